//! `longshore key`.

use std::io::{self, Read as _, Write as _};

use clap::Subcommand;

use crate::app::{AppError, MainError};
use crate::auth::{KeyHash, new_key};

/// Making keys. A key is never an argument: other users of the machine can read those.
#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key: it is printed this once, with its hash and where that goes
    New {
        /// Whose key it is
        #[arg(value_name = "NAME", default_value = "somebody")]
        name: String,
    },
    /// Print the hash of a key that is read from standard input
    Hash,
}

/// Does what the command says.
pub(super) fn key(command: &KeyCommand) -> Result<(), MainError> {
    let text = match command {
        KeyCommand::New { name } => made(name).map_err(AppError::from),
        KeyCommand::Hash => hashed(),
    };
    let said = text.and_then(|text| Ok(io::stdout().lock().write_all(text.as_bytes())?));
    said.map_err(MainError::from)
}

fn made(name: &str) -> io::Result<String> {
    let key = new_key()?;
    let hash = KeyHash::of(&key);
    Ok(format!(
        "key   {key}\n\
         hash  {hash}\n\n\
         Give the key to {name}; it is not shown again. Callers send it as `Authorization: Bearer <key>`.\n\
         The server needs the hash only, in one of these places:\n\n  \
         configuration file      [auth]\n                          api_keys = [{{ name = \"{name}\", keys = [\"{hash}\"] }}]\n  \
         environment             LONGSHORE_AUTH__API_KEYS={name}={hash}\n  \
         auth.api_keys_file      {name} {hash}\n"
    ))
}

fn hashed() -> Result<String, AppError> {
    const KEY_MAX_BYTES: u64 = 4096;
    let mut key = String::new();
    io::stdin().take(KEY_MAX_BYTES).read_to_string(&mut key)?;
    let hash = KeyHash::parse(key.trim()).map_err(|error| AppError::Refused(error.to_string()))?;
    Ok(format!("{hash}\n"))
}
