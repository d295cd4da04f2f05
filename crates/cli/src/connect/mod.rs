//! `longshore connect`: writes a server's entry into the settings of an MCP client.

mod clients;
mod edit;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use url::Url;

use self::clients::{Client, ServerAccess};
use self::edit::Edit;
use super::client::shell_word;
use crate::app::AppError;
use crate::environment::{Probe, read_text_file};

/// Options of `connect`.
#[derive(Debug, Args)]
pub(super) struct ConnectArgs {
    /// The client
    #[arg(value_name = "CLIENT", value_enum)]
    client: Client,

    /// Address of the server's endpoint
    #[arg(
        value_name = "URL",
        default_value = "http://127.0.0.1:3000/mcp",
        conflicts_with = "stdio"
    )]
    url: String,

    /// Let the client start this program, and talk to it by standard input and output
    #[arg(long)]
    stdio: bool,

    /// Configuration file for --stdio
    #[arg(long, value_name = "FILE", requires = "stdio")]
    config: Option<PathBuf>,

    /// Name of the server in the client
    #[arg(long, value_name = "NAME", default_value = "longshore")]
    name: String,

    /// Environment variable of the client in which the access token or API key is
    #[arg(long, value_name = "VARIABLE", conflicts_with = "stdio")]
    token_variable: Option<String>,

    /// Write the file of the project in this folder, not the user's
    #[arg(long, conflicts_with = "file")]
    project: bool,

    /// Write this file, not the client's usual one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Print the entry and change nothing
    #[arg(long, conflicts_with = "remove")]
    print: bool,

    /// Remove the server from the client
    #[arg(long)]
    remove: bool,
}

/// Maximum size of a client's file. Claude Code keeps its history beside its servers.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Appended to the name of a file for the copy of it before the change.
const BACKUP_SUFFIX: &str = ".before-longshore";

/// Runs the command. Returns what was done, for the user.
///
/// # Errors
///
/// The arguments are invalid, or the client's file cannot be changed. It is then as it was.
pub(super) fn connect(args: &ConnectArgs, probe: &Probe) -> Result<String, AppError> {
    check_name(&args.name).map_err(AppError::Arguments)?;
    let client = args.client;
    let reach = reach(args).map_err(AppError::Arguments)?;
    if args.print || (client == Client::Inspector && !args.remove) {
        return printed(args, &reach).map_err(AppError::Arguments);
    }
    let entry = (!args.remove).then(|| client.entry(&reach)).transpose();
    let entry = entry.map_err(AppError::Arguments)?;
    let path = match &args.file {
        Some(path) => path.clone(),
        None => client
            .file(args.project.then_some(Path::new(".")), probe)
            .map_err(AppError::Arguments)?,
    };
    let edit = Edit {
        table: client.table(),
        name: &args.name,
        entry: entry.as_ref(),
    };
    change(&path, client, &edit).map_err(AppError::Refused)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err(format!(
            "--name is {name:?}; use 1 to 64 letters, digits, hyphens and underscores, which all clients accept"
        ));
    }
    Ok(())
}

fn reach(args: &ConnectArgs) -> Result<ServerAccess, String> {
    if args.stdio {
        let program = std::env::current_exe()
            .map_err(|error| format!("cannot find the path of this program: {error}"))?;
        let mut arguments: Vec<String> = ["run", "--transport", "stdio"].map(str::to_owned).into();
        if let Some(config) = &args.config {
            // The client starts the program in a folder of its own.
            let config = fs::canonicalize(config).map_err(|error| {
                format!(
                    "cannot read the configuration file {}: {error}",
                    config.display()
                )
            })?;
            arguments.extend(["--config".to_owned(), text_of(&config)?]);
        }
        let command = text_of(&program)?;
        return Ok(ServerAccess::Program { command, arguments });
    }
    let url = Url::parse(&args.url).map_err(|error| {
        format!(
            "{:?} is not a URL ({error}); write it whole, such as https://host/mcp",
            args.url
        )
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "the URL {:?} must begin with https:// or http://",
            args.url
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "the URL has a user name or password in it, which would stand in the client's file; put a token into an environment \
             variable and name it with --token-variable"
                .to_owned(),
        );
    }
    if let Some(variable) = &args.token_variable {
        let starts_well =
            variable.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let is_plain = |character: char| character.is_ascii_alphanumeric() || character == '_';
        if !starts_well || !variable.chars().all(is_plain) {
            // The value may be a token by mistake, so it is not repeated.
            return Err(
                "--token-variable expects the name of an environment variable (letters, digits, underscores), not the token itself"
                    .to_owned(),
            );
        }
    }
    Ok(ServerAccess::Url {
        url: args.url.clone(),
        token_variable: args.token_variable.clone(),
    })
}

fn text_of(path: &Path) -> Result<String, String> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        format!(
            "the path {} is not UTF-8, which the client's file must be",
            path.display()
        )
    })
}

/// The text that a user would put into the client's file.
fn printed(args: &ConnectArgs, reach: &ServerAccess) -> Result<String, String> {
    if args.client == Client::Inspector {
        return Ok(match reach {
            ServerAccess::Url { url, .. } => {
                let url = shell_word(url);
                format!("npx @modelcontextprotocol/inspector --transport http --server-url {url}")
            }
            ServerAccess::Program { command, arguments } => {
                let words = std::iter::once(command).chain(arguments);
                let words: Vec<String> = words.map(|word| shell_word(word)).collect();
                format!("npx @modelcontextprotocol/inspector {}", words.join(" "))
            }
        });
    }
    let entry = args.client.entry(reach)?;
    let edit = Edit {
        table: args.client.table(),
        name: &args.name,
        entry: Some(&entry),
    };
    let text = edit.apply(args.client.syntax(), "")?.unwrap_or_default();
    Ok(text.trim_end().to_owned())
}

fn change(path: &Path, client: Client, edit: &Edit<'_>) -> Result<String, String> {
    let target = target_of(path);
    let shown = path.display();
    let title = client.title();
    let name = edit.name;
    let unchanged = |problem: &dyn std::fmt::Display| format!("{shown} was not changed: {problem}");
    let before = read(&target).map_err(|error| unchanged(&error))?;
    let changed = edit
        .apply(client.syntax(), before.as_deref().unwrap_or_default())
        .map_err(|problem| unchanged(&problem))?;
    let Some(changed) = changed else {
        return Ok(match edit.entry {
            Some(_) => format!("{title} has \"{name}\" already, in {shown}."),
            None => format!("{title} has no server \"{name}\" in {shown}."),
        });
    };
    let mut note = String::new();
    if before.is_some() {
        let backup = with_suffix(&target, BACKUP_SUFFIX);
        fs::copy(&target, &backup).map_err(|error| {
            unchanged(&format!(
                "cannot write the copy {}: {error}",
                backup.display()
            ))
        })?;
        note = format!(" The file as it was: {}.", backup.display());
    }
    write(&target, &changed).map_err(|error| unchanged(&error))?;
    let next_step = client.next_step(edit.entry.is_some());
    Ok(match edit.entry {
        Some(_) => format!("{title} has the server \"{name}\" now, in {shown}. {next_step}{note}"),
        None => {
            format!("The server \"{name}\" was removed from {title}, in {shown}. {next_step}{note}")
        }
    })
}

/// Maximum number of links to follow, as in Linux.
const LINKS_MAX: usize = 40;

/// Returns the file that a link points at, which need not exist. A link stays a link: what it points at is written.
fn target_of(path: &Path) -> PathBuf {
    if let Ok(target) = fs::canonicalize(path) {
        return target;
    }
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(next) = fs::read_link(&target) else {
            break;
        };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    target
}

/// Reads a file; `None` when there is none.
fn read(path: &Path) -> io::Result<Option<String>> {
    match read_text_file(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        text => text.map(Some),
    }
}

/// Writes a new file beside the old one and puts it into its place, so that a client never reads a part.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = with_suffix(path, &format!(".new-longshore-{}", std::process::id()));
    let written = (|| {
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new)?;
        if let Ok(old) = fs::metadata(path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&new);
    }
    written
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
