//! `longshore key`.

use std::io::{self, Read as _};

use clap::{Subcommand, ValueEnum};

use super::output::print;
use super::terminal;
use crate::app::{AppError, MainError};
use crate::auth::{KeyHash, check_holder, new_key};

/// Generates and hashes keys. A key is never an argument, because other users can read command lines.
#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Generate a key, and print it once with its hash and the setting for it
    New {
        /// Name of the key's holder
        #[arg(value_name = "NAME", default_value = "client")]
        name: String,

        /// Format of the configuration file
        #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
        format: FileFormat,
    },
    /// Print the hash of a key from standard input
    Hash,
}

/// The format of a configuration file.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum FileFormat {
    #[default]
    Yaml,
    Toml,
}

/// Runs the command.
pub(super) fn key(command: &KeyCommand) -> Result<(), MainError> {
    let text = match command {
        KeyCommand::New { name, format } => {
            check_holder(name)
                .map_err(|problem| AppError::Arguments(format!("{name:?}: {problem}")))?;
            made(name, *format).map_err(AppError::from)
        }
        KeyCommand::Hash => hashed(),
    };
    print(&text?)
}

fn made(name: &str, format: FileFormat) -> io::Result<String> {
    let key = new_key()?;
    let hash = KeyHash::of(&key);
    // A JSON string is also valid in YAML and TOML.
    let quoted = serde_json::json!(name);
    let entry = match format {
        FileFormat::Yaml => {
            format!("auth:\n  api_keys:\n    - {{ name: {quoted}, keys: [\"{hash}\"] }}")
        }
        FileFormat::Toml => {
            format!("[auth]\napi_keys = [{{ name = {quoted}, keys = [\"{hash}\"] }}]")
        }
    };
    let entry = entry.replace('\n', "\n  ");
    Ok(format!(
        "key   {key}\n\
         hash  {hash}\n\n\
         Give the key to {name}; it is not shown again. Callers send it as `Authorization: Bearer <key>`.\n\
         The server needs the hash only, in one of these places:\n\n\
         The configuration file:\n\n  {entry}\n\n\
         The environment:\n\n  LONGSHORE_AUTH__API_KEYS={name}={hash}\n\n\
         A line of the file that auth.api_keys_file names:\n\n  {name} {hash}\n"
    ))
}

fn hashed() -> Result<String, AppError> {
    const KEY_MAX_BYTES: u64 = 4096;
    let key = if terminal::has_person() {
        terminal::secret("Key")?
    } else {
        let mut key = Vec::new();
        io::stdin().take(KEY_MAX_BYTES).read_to_end(&mut key)?;
        // A key has ASCII characters only; others are reported below.
        String::from_utf8_lossy(&key).into_owned()
    };
    let hash = KeyHash::parse(key.trim()).map_err(|error| AppError::Refused(error.to_string()))?;
    Ok(format!("{hash}\n"))
}
