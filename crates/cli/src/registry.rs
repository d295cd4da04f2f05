//! `longshore registry`: finds published servers, and prints their configuration as an upstream.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Failure;
use super::client::{clean, of_server, pretty_json};
use super::output::{self, print};
use super::run::{runtime, trust_ca_of_variable};
use super::table::{line, table};
use crate::app::AppError;
use crate::net::with_causes;
use crate::source::{
    Entry, Preference, REGISTRY, Registry, RegistryError, Server, described, entry,
};
use crate::telemetry::legible_json;

#[derive(Debug, Args)]
pub(super) struct RegistryArgs {
    #[command(subcommand)]
    command: RegistryCommand,

    /// Registry URL; it must implement version 0.1 of the MCP registry API
    #[arg(long, value_name = "URL", default_value = REGISTRY, global = true)]
    url: String,

    /// Print what the registry says as JSON; `search` does so when standard output is not a terminal
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RegistryCommand {
    /// List servers whose name contains a text
    Search {
        /// The text
        text: String,

        /// Maximum number of results
        #[arg(
            long,
            value_name = "N",
            default_value_t = 30,
            value_parser = clap::value_parser!(u16).range(1..=2000)
        )]
        limit: u16,
    },
    /// Print an `upstreams` entry for a server
    ///
    /// longshore registry show io.github.somebody/weather > longshore.yaml
    ///
    /// The entry comes from the publisher of the server. Read it before you use it. Values that you
    /// must supply are variables, which are listed on standard error.
    #[command(verbatim_doc_comment)]
    Show {
        /// Full name of the server
        name: String,

        /// Version of the server
        #[arg(long, value_name = "VERSION", default_value = "latest")]
        version: String,

        /// Run the server as a local program, even if a remote one is published
        #[arg(long, conflicts_with = "json")]
        package: bool,

        /// Download the server's bundle (mcpb), check its SHA-256, and unpack it into this new folder
        #[arg(long, value_name = "FOLDER", conflicts_with = "json")]
        unpack: Option<PathBuf>,

        /// Name of the upstream [default: the last part of the server's name]
        #[arg(long = "as", value_name = "NAME", conflicts_with = "json")]
        upstream: Option<String>,
    },
}

pub(super) fn registry(args: RegistryArgs) -> Result<(), Failure> {
    trust_ca_of_variable()?;
    let failed = |error: RegistryError| of_server(&args.url, with_causes(&error));
    let registry =
        Registry::at(&args.url).map_err(|error| AppError::Arguments(format!("--url: {error}")))?;
    let runtime = runtime()?;
    match args.command {
        RegistryCommand::Search { text, limit } => {
            let found = runtime
                .block_on(registry.search(&text, limit.into()))
                .map_err(failed)?;
            if args.json || !io::stdout().is_terminal() {
                let found: Vec<Value> = found.iter().map(as_json).collect();
                print(&pretty_json(&Value::from(found)))
            } else {
                print(&listed(&found))
            }
        }
        RegistryCommand::Show {
            name,
            version,
            package,
            unpack,
            upstream,
        } => {
            let answer = runtime
                .block_on(registry.server(&name, &version))
                .map_err(failed)?;
            if args.json {
                return print(&pretty_json(&answer));
            }
            let server = described(&answer).map_err(failed)?;
            let preference = match package {
                true => Preference::Package,
                false => Preference::Remote,
            };
            let made = match unpack {
                Some(folder) => runtime
                    .block_on(registry.unpacked(&server, &folder))
                    .map_err(|error| of_server(&name, clean(&with_causes(&error))))?,
                None => entry(&server, preference).map_err(|why| {
                    let why: Vec<String> = why.iter().map(|why| clean(why)).collect();
                    of_server(
                        &name,
                        format!("it cannot be configured: {}", why.join("; ")),
                    )
                })?,
            };
            let made = Entry {
                name: upstream.unwrap_or(made.name),
                ..made
            };
            print_summary(&server, &made);
            print(&configuration(&server, &made))
        }
    }
}

fn as_json(server: &Server) -> Value {
    json!({
        "name": server.name,
        "version": server.version,
        "description": server.description,
        "ways": server.ways(),
        "status": server.status,
    })
}

fn listed(found: &[Server]) -> String {
    if found.is_empty() {
        return "nothing was found\n".to_owned();
    }
    let mut table = table(["NAME", "VERSION", "BY", ""], 120);
    for server in found {
        table.add_row([
            line(&server.name),
            line(&server.version),
            line(&server.ways().join(", ")),
            line(&server.description),
        ]);
    }
    format!("{table}\n")
}

/// Prints what a user of the entry must supply.
fn print_summary(server: &Server, entry: &Entry) {
    if let Some(status) = server
        .status
        .as_deref()
        .filter(|status| *status != "active")
    {
        output::remark(&format!("it is marked as {}", line(status)));
    }
    for command in &entry.before {
        output::remark(&format!("run this first: {}", line(command)));
    }
    for (variable, what) in &entry.needed {
        let what = match line(what) {
            what if what.is_empty() => String::new(),
            what => format!(": {what}"),
        };
        output::remark(&format!("it needs the variable {variable}{what}"));
    }
    for optional in &entry.optional {
        output::remark(&format!("it takes, too: {}", line(optional)));
    }
}

/// Renders an entry as YAML, with JSON strings. They are those of a stranger, and a user reads them: what would change their
/// order or hide is escaped.
fn configuration(server: &Server, entry: &Entry) -> String {
    let json = |value: &Value| legible_json(&value.to_string()).into_owned();
    let mut text = format!(
        "# {} {}: {}\nupstreams:\n  {}:\n",
        line(&server.name),
        line(&server.version),
        line(&server.description),
        json(&entry.name.as_str().into())
    );
    for (key, value) in &entry.config {
        match value {
            Value::Object(members) => {
                let _ = writeln!(text, "    {key}:");
                for (name, value) in members {
                    let _ = writeln!(
                        text,
                        "      {}: {}",
                        json(&name.as_str().into()),
                        json(value)
                    );
                }
            }
            value => {
                let _ = writeln!(text, "    {key}: {}", json(value));
            }
        }
    }
    text
}
