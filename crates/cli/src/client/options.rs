//! Options of the client commands.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::ArgValueCompleter;
use longshore_sources::client::Lifecycle;

use super::super::complete;
use super::super::paint::ColorChoice;

/// Help text about credentials, below the options.
pub(in super::super) const CREDENTIALS: &str = "Credentials:\n  \
    The variable LONGSHORE_TOKEN holds a bearer token (an API key or an access token)\n  \
    for a server that is named by its URL. Without it the token of `longshore login URL`\n  \
    is used, if there is one. An upstream of the configuration is sent its own headers\n  \
    and auth.";

/// Server and connection options.
#[derive(Debug, Args)]
pub(in super::super) struct ServerArgs {
    /// A URL, host:port, or the name of an upstream in the configuration file
    #[arg(add = ArgValueCompleter::new(complete::servers))]
    pub(super) server: String,

    /// The file that has the upstream; one with `mcpServers` of another product will do [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Print the response as JSON; the default if standard output is not a terminal
    #[arg(long)]
    pub(super) json: bool,

    /// Colour the output for people; JSON is never coloured. With `auto`: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(super) color: ColorChoice,

    /// Timeout of a request, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 120,
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(in super::super) timeout: u64,

    /// Lifecycle to connect with [default: what the upstream's configuration says, else auto]
    #[arg(long, value_enum, value_name = "LIFECYCLE")]
    pub(super) protocol: Option<ProtocolChoice>,
}

/// Lifecycle to connect with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in super::super) enum ProtocolChoice {
    /// `server/discover` first, and `initialize` if the server is a legacy one
    Auto,
    /// 2026-07-28
    Modern,
    /// `initialize`: up to 2025-11-25
    Legacy,
}

impl From<ProtocolChoice> for Lifecycle {
    fn from(choice: ProtocolChoice) -> Self {
        match choice {
            ProtocolChoice::Auto => Self::Auto,
            ProtocolChoice::Modern => Self::Modern,
            ProtocolChoice::Legacy => Self::Legacy,
        }
    }
}

/// Answer to elicitation requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in super::super) enum Answers {
    /// Ask at the terminal
    Ask,
    /// Accept with the defaults that the form declares; cancel where a required field has none
    AcceptDefaults,
    /// Decline
    Decline,
}

/// Kind of items to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in super::super) enum Kind {
    Tools,
    Resources,
    Prompts,
}

#[derive(Debug, Args)]
pub(in super::super) struct ListArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// Kind of items to list; all kinds if omitted
    #[arg(long, value_enum)]
    pub(super) kind: Option<Kind>,
}

#[derive(Debug, Args)]
pub(in super::super) struct CallArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// The tool's name
    #[arg(add = ArgValueCompleter::new(complete::tools))]
    pub(super) tool: String,

    /// Arguments, each as name=value or name:=JSON, or all as one JSON object; `-` reads the object from standard input
    ///
    /// The tool's input schema gives `name=value` its type: a string stays a string, numbers and booleans are parsed,
    /// a repeated name makes an array, and objects are JSON. If the schema allows several types, the first that fits
    /// is used. `name:=JSON` is sent unchanged: note:=null, tags:='["a", "b"]'.
    #[arg(add = ArgValueCompleter::new(complete::arguments))]
    pub(super) arguments: Vec<String>,

    /// Response to forms and pages of the server (elicitation) [default: `ask` at a terminal, otherwise the client declares no
    /// elicitation]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(super) answer: Option<Answers>,
}

#[derive(Debug, Args)]
pub(in super::super) struct ReadArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// The resource's URI
    #[arg(add = ArgValueCompleter::new(complete::resources))]
    pub(super) uri: String,
}

#[derive(Debug, Args)]
pub(in super::super) struct PromptArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,

    /// The prompt's name
    #[arg(add = ArgValueCompleter::new(complete::prompts))]
    pub(super) prompt: String,

    /// Arguments, each as name=value
    pub(super) arguments: Vec<String>,
}
