//! The command line.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
// The configuration and the MCP client are not, because modules of this crate have their names.
use crate as cli;
use longshore_app::app;
use longshore_catalog as catalog;
use longshore_core::{auth, seal, state, telemetry};
use longshore_net::{environment, net};
use longshore_protocol as protocol;
use longshore_server::harness;

mod source {
    pub(crate) use longshore_sources::*;
    pub(crate) use longshore_toolsets::NAMES as TOOLSETS;
}

mod transport {
    pub use longshore_http as http;
}

mod client;
mod complete;
mod config;
mod connect;
mod discover;
mod doctor;
mod healthcheck;
mod init;
mod interrupt;
mod key;
mod log;
mod login;
#[cfg(target_os = "linux")]
mod reaper;
mod output;
mod paint;
mod policy;
mod registry;
#[cfg(target_os = "linux")]
mod page_release;
mod run;
mod suggestions;
mod table;
mod terminal;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::app::{AppError, MainError};
use crate::environment::Probe;
use crate::source::TOOLSETS;
use longshore_app::config::{Flags, Transport};

/// Serves MCP tools over HTTP, or over standard input and output.
///
/// Without a command, it runs `run`: it serves the demo toolset on http://127.0.0.1:3000/mcp.
#[derive(Debug, Parser)]
#[command(
    name = "longshore",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
        longshore                                   the demo toolset on http://127.0.0.1:3000/mcp\n  \
        longshore init weather                      a first configuration, in the folder weather\n  \
        longshore run --port 8080                   on another port\n  \
        longshore run --transport stdio             for a client that starts this program itself\n  \
        longshore run --config longshore.yaml       with a configuration file\n  \
        longshore config explain                    every setting, and where its value comes from\n  \
        longshore doctor                            checks this machine and the configuration\n  \
        longshore doctor --url https://host/mcp     checks a deployed server as a client\n\n\
        Every setting is also an environment variable: LONGSHORE_HOST, LONGSHORE_PORT (or PORT),\n\
        LONGSHORE_TRANSPORT, LONGSHORE_TOOLSET, LONGSHORE_WORKERS, LONGSHORE_CONFIG, and\n\
        LONGSHORE_<PART>__<NAME> for what the file has: LONGSHORE_HTTP__ALLOWED_HOSTS=mcp.example.com\n\n\
        Logs go to standard error; LONGSHORE_LOG sets how much: error, warn, info, debug, trace.\n\n\
        Exit codes: 0 done, or stopped on request; 1 failed, or cannot serve; 2 invalid command line."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until stopped; the default command
    Run(run::RunCommand),
    /// Generate a configuration for tools without code, or with --rust a project
    ///
    /// longshore init weather && longshore run --config weather/longshore.yaml
    ///
    /// Existing files are not overwritten.
    #[command(verbatim_doc_comment)]
    Init(init::InitArgs),
    /// Generate API keys, and their hashes for the configuration
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Evaluate access rules
    Policy(policy::PolicyArgs),
    /// Inspect settings: schema, validation, origin of values
    Config(config::ConfigArgs),
    /// List what an MCP server offers
    ///
    /// longshore list http://127.0.0.1:3000/mcp
    #[command(verbatim_doc_comment, after_help = client::CREDENTIALS)]
    List(client::ListArgs),
    /// Call a tool of an MCP server
    ///
    /// longshore call http://127.0.0.1:3000/mcp echo message=hello
    ///
    /// Exit codes: 0 done, 1 the tool reported an error or could not be called, 2 invalid arguments.
    #[command(verbatim_doc_comment, after_help = client::CREDENTIALS)]
    Call(client::CallArgs),
    /// Read a resource of an MCP server
    ///
    /// longshore read http://127.0.0.1:3000/mcp verb://go
    #[command(verbatim_doc_comment, after_help = client::CREDENTIALS)]
    Read(client::ReadArgs),
    /// Get a prompt of an MCP server
    ///
    /// longshore prompt http://127.0.0.1:3000/mcp practise_verb verb=go
    #[command(verbatim_doc_comment, after_help = client::CREDENTIALS)]
    Prompt(client::PromptArgs),
    /// Log in to an MCP server: asks for consent in a browser, and stores the token
    ///
    /// longshore login https://mcp.example.com/mcp
    ///
    /// `list`, `call`, `read` and `prompt` then use the token. With --config it is stored where the
    /// server with that configuration keeps its tokens, for upstreams with auth.login; with
    /// tokens.store = state, all replicas use it.
    #[command(verbatim_doc_comment)]
    Login(login::LoginArgs),
    /// Delete the token of a login, and revoke it at its issuer
    Logout(login::LogoutArgs),
    /// List stored logins with their servers and expiry; never a token
    Logins(login::LoginsArgs),
    /// Generate command tools from the --help texts of a program and its subcommands
    ///
    /// longshore discover gh pr --depth 1 --inherit HOME > tools.yaml
    ///
    /// The program is run with --help only, in a clean environment and within limits, like a command
    /// tool. Nothing is served until you use the configuration.
    #[command(verbatim_doc_comment)]
    Discover(discover::DiscoverArgs),
    /// Find published MCP servers, and print how to configure one as an upstream
    Registry(registry::RegistryArgs),
    /// Diagnose this machine and configuration, or with --url a deployed server, and recommend changes
    ///
    /// Exit codes: 0 no errors, 1 errors found, 2 invalid command line.
    Doctor(doctor::DoctorArgs),
    /// Check whether the server on this machine is ready; fails if it is not
    Healthcheck(healthcheck::HealthcheckArgs),
    /// Add this server to an MCP client, or remove it
    ///
    ///   longshore connect claude-code https://mcp.example.com/mcp
    ///   longshore connect cursor --stdio --config longshore.yaml
    ///   longshore connect vscode --project --token-variable SHOP_KEY
    ///   longshore connect claude-desktop --remove
    ///
    /// The client's file is edited in place, after a copy is made: comments and other servers stay. A
    /// token is never written: the entry names an environment variable of the client.
    #[command(verbatim_doc_comment)]
    Connect(connect::ConnectArgs),
    /// Print shell completions: of commands, options, tools, arguments, resources and prompts
    ///
    /// bash: source <(longshore completions bash)
    /// zsh:  source <(longshore completions zsh)
    /// fish: longshore completions fish > ~/.config/fish/completions/longshore.fish
    ///
    /// Names of tools are requested from the server of the line, with its credentials, and given up
    /// after two seconds. Upstreams that are programs are not started.
    #[command(verbatim_doc_comment)]
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or with --folder write one for each command
    ///
    /// longshore man > longshore.1 && man ./longshore.1
    #[command(verbatim_doc_comment)]
    Man {
        /// Write the pages into this existing folder
        #[arg(long, value_name = "FOLDER")]
        folder: Option<PathBuf>,
    },
    /// SERVER TOOL [ARGUMENTS]: short for `call`; URL alone: for `list`
    #[command(external_subcommand)]
    Short(Vec<String>),
}

/// Exit code of an invalid command line, as of one that cannot be parsed.
const INVALID: u8 = 2;

/// Error of a command.
type Failure = MainError;

/// Options of `run`.
#[derive(Debug, Default, Args)]
struct RunArgs {
    /// Read settings from a YAML, TOML or JSON file, by its extension [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<std::path::PathBuf>,

    /// Listen on this IP address; 0.0.0.0 means all addresses [default: 127.0.0.1, in containers 0.0.0.0] [env:
    /// LONGSHORE_HOST]
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,

    /// Listen on this port; 0 chooses a free one [default: 3000, in containers 8080] [env: PORT, LONGSHORE_PORT]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Serve over HTTP, or over standard input and output [default: http] [env: LONGSHORE_TRANSPORT]
    #[arg(long, value_name = "TRANSPORT", value_enum)]
    transport: Option<TransportArg>,

    /// Serve this built-in toolset: demo, everything, fetch, filesystem, memory, time, and in builds with them git,
    /// sql; may be repeated [default: demo] [env: LONGSHORE_TOOLSET]
    #[arg(
        long = "toolset",
        value_name = "NAME",
        value_parser = ToolsetName,
        hide_possible_values = true
    )]
    toolsets: Vec<String>,

    /// Serve with this many threads [default: one for each core] [env: LONGSHORE_WORKERS]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,

    /// Listen on other addresses than localhost without authentication [env: LONGSHORE_HTTP__INSECURE]
    #[arg(long)]
    insecure: bool,
}

/// Accepts any name, and lists the known ones for shell completion. An unknown name is reported with the other
/// settings.
#[derive(Clone)]
struct ToolsetName;

impl TypedValueParser for ToolsetName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(TOOLSETS.into_iter().map(PossibleValue::new)))
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TransportArg {
    Http,
    Stdio,
}

impl From<RunArgs> for Flags {
    fn from(args: RunArgs) -> Self {
        let mut flags = Flags::default();
        flags.config = args.config;
        flags.host = args.host;
        flags.port = args.port;
        flags.workers = args.workers;
        flags.transport = args.transport.map(|transport| match transport {
            TransportArg::Http => Transport::Http,
            TransportArg::Stdio => Transport::Stdio,
        });
        flags.toolsets = args.toolsets;
        flags.insecure = args.insecure;
        flags
    }
}

/// Prints the manual page of the program, or writes the page of each command into a folder.
fn manual(folder: Option<&Path>) -> Result<(), Failure> {
    if let Some(folder) = folder {
        return clap_mangen::generate_to(Cli::command(), folder).map_err(|error| {
            let problem = format!("cannot write into {}: {error}", folder.display());
            AppError::Refused(problem).into()
        });
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .map_err(AppError::from)?;
    output::print(&String::from_utf8_lossy(&page))
}

/// Arguments of one command, without the definitions of the others.
#[derive(Debug, Parser)]
struct OneCommand<A: clap::Args> {
    #[command(flatten)]
    arguments: A,
}

/// Parses the arguments of a command, if it is the one of the command line. `None` if they are not valid, too.
fn parsed_alone<A: clap::Args>(command: &str) -> Option<A> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    if words.next()? != command {
        return None;
    }
    let command = OneCommand::try_parse_from(std::iter::once(program).chain(words));
    command.ok().map(|command| command.arguments)
}

impl Cli {
    fn of(command: Command) -> Self {
        Self {
            command: Some(command),
            run: RunArgs::default(),
        }
    }
}

/// Runs the command line. The exit code is 0 on success, 1 on failure, and 2 for an invalid command line.
pub fn main() -> ExitCode {
    if complete::respond(Probe::real()) {
        return ExitCode::SUCCESS;
    }
    // The commands that containers run are parsed by themselves: all definitions together take a fifth of the instructions of
    // a start. Help and errors are those of the whole command line.
    let cli = match (parsed_alone("run"), parsed_alone("healthcheck")) {
        (Some(run), _) => Cli::of(Command::Run(run)),
        (_, Some(healthcheck)) => Cli::of(Command::Healthcheck(healthcheck)),
        (None, None) => {
            Cli::try_parse().unwrap_or_else(|error| suggestions::with_tip(error).exit())
        }
    };
    let audience = output::Audience::of(Probe::real());
    let without_a_word = Command::Run(run::RunCommand {
        settings: cli.run,
        ..run::RunCommand::default()
    });
    match cli.command.unwrap_or(without_a_word) {
        Command::Run(command) => serve(command, audience),
        other => carry_out(other, audience),
    }
}

/// Serves until stopped.
#[inline(never)]
fn serve(command: run::RunCommand, mut audience: output::Audience) -> ExitCode {
    let served = run::run(command, &mut audience);
    conclude(served, audience)
}

/// Runs a command that ends by itself. Its frame is large, and no server keeps it on its stack.
#[inline(never)]
fn carry_out(command: Command, audience: output::Audience) -> ExitCode {
    if !matches!(
        command,
        Command::Run(_) | Command::Healthcheck(_) | Command::Short(_)
    ) {
        interrupt::watch();
    }
    let done = match command {
        Command::Run(command) => return serve(command, audience),
        Command::Init(args) => init::init(args),
        Command::Key(command) => key::key(&command),
        Command::Policy(args) => return judge(policy::policy(args), audience),
        Command::Config(args) => config::config(args),
        Command::Login(args) => login::login(args),
        Command::Logout(args) => login::logout(&args),
        Command::Logins(args) => login::list(&args),
        Command::Discover(args) => discover::run(args),
        Command::Registry(args) => registry::registry(args),
        Command::Doctor(args) => return judge(doctor::doctor(args), audience),
        Command::List(args) => client::list(&args),
        Command::Call(args) => client::call(&args),
        Command::Read(args) => client::read(&args),
        Command::Prompt(args) => client::prompt(&args),
        Command::Short(words) => return carry_out(written_out(&words), audience),
        Command::Healthcheck(args) => {
            print_line(healthcheck::healthcheck(&args).map_err(AppError::Refused))
        }
        Command::Connect(args) => print_line(connect::connect(&args, Probe::real())),
        Command::Completions { shell } => {
            complete::script(shell).and_then(|script| output::print(&script))
        }
        Command::Man { folder } => manual(folder.as_deref()),
    };
    conclude(done, audience)
}

/// Parses the short form as the command that it abbreviates. Exits if that is not a valid command line.
fn written_out(words: &[String]) -> Command {
    let word = words.first().map_or("", String::as_str);
    let next = words.get(1).map(String::as_str);
    let has_tool = next.is_some_and(|next| !next.starts_with('-'));
    // A tool does not have a URL as its name.
    let is_call = has_tool && next.and_then(client::url_of).is_none();
    // An option before the command makes the parser take it as a server name.
    if suggestions::is_command(word) || !is_call && client::url_of(word).is_none() {
        suggestions::no_command(word);
    }
    let command = if has_tool { "call" } else { "list" };
    let line = ["longshore", command].into_iter();
    let line = line.chain(words.iter().map(String::as_str));
    let command = Cli::parse_from(line).command;
    command.unwrap_or_else(|| suggestions::no_command(word))
}

/// Prints the result of a command.
fn print_line(done: Result<String, AppError>) -> Result<(), Failure> {
    output::print(&format!("{}\n", done?))
}

/// Ends a command whose exit code 1 may be its result.
fn judge(judged: Result<bool, Failure>, audience: output::Audience) -> ExitCode {
    match judged {
        Ok(false) => ExitCode::FAILURE,
        judged => conclude(judged.map(drop), audience),
    }
}

fn conclude(done: Result<(), Failure>, audience: output::Audience) -> ExitCode {
    log::flush();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error, audience);
            match error.is_of_arguments() {
                true => ExitCode::from(INVALID),
                false => ExitCode::FAILURE,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_has_the_options_of_the_command_that_it_is_short_for() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            format!("{:?}", written_out(&words))
        };
        let call = of(&["http://a/mcp", "echo", "a=-1", "--json"]);
        assert!(
            call.starts_with("Call(") && call.contains("json: true"),
            "{call}"
        );
        assert!(of(&["shop", "echo"]).starts_with("Call("));
        assert!(of(&["http://a/mcp"]).starts_with("List("));
        assert!(of(&["a:80", "--json"]).starts_with("List("));
    }
}
