//! Shell completion: commands and options, and what a server offers.
//!
//! The script of `longshore completions SHELL` runs this program for each completion, with [`VARIABLE`] set to the name of the shell
//! and the words of the line behind `--`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::Shells;

use super::client::{ServerArgs, offered};
use super::run::load;
use super::{Cli, Failure};
use crate::app::AppError;
use crate::environment::Probe;
use crate::protocol::Method;
use longshore_app::config::Flags;

/// Set by the completion script.
const VARIABLE: &str = "_LONGSHORE_COMPLETE";
/// Timeout of each request to a server, in seconds: a user waits for the shell.
const TIMEOUT_SECONDS: u64 = 2;

/// The line up to the word that is completed.
static LINE: OnceLock<Line> = OnceLock::new();

/// Words of a line, and the command line that they belong to.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    words: Vec<OsString>,
    /// True if the program's name was left out.
    is_nameless: bool,
}

impl Line {
    /// Reads the short form `longshore SERVER TOOL` as `call SERVER TOOL`, without the program's name, so that the positions of the
    /// words remain.
    fn of(mut words: Vec<OsString>, index: usize) -> Self {
        let is_short = 1 < index
            && words.get(1).is_some_and(|word| {
                !word.to_string_lossy().starts_with('-')
                    && Cli::command().find_subcommand(word).is_none()
            });
        if is_short {
            words[0] = "call".into();
        }
        Self {
            words,
            is_nameless: is_short,
        }
    }

    fn command(&self) -> Command {
        Cli::command().no_binary_name(self.is_nameless)
    }

    fn up_to(&self, index: usize) -> Self {
        Self {
            words: self.words[..index].to_vec(),
            is_nameless: self.is_nameless,
        }
    }
}

/// Returns the script that a shell has to read.
///
/// # Errors
///
/// The shell is unknown.
pub(super) fn script(shell: clap_complete::Shell) -> Result<String, Failure> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells
        .completer(&shell.to_string())
        .ok_or_else(|| AppError::Refused(format!("there is no completion for {shell}")))?;
    completer
        .write_registration(VARIABLE, "longshore", "longshore", "longshore", &mut script)
        .map_err(AppError::from)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Prints completions if the script of a shell asks for them. Returns false if this is an ordinary run.
pub(super) fn respond(probe: &Probe) -> bool {
    let Some(shell) = probe.variable(VARIABLE) else {
        return false;
    };
    let words: Vec<OsString> = std::env::args_os()
        .skip_while(|word| word != "--")
        .skip(1)
        .collect();
    let mut out = Vec::new();
    // A shell shows nothing if completion fails.
    let _ = match shell {
        "bash" => for_bash(words, probe, &mut out),
        shell => for_other(shell, words, probe, &mut out),
    };
    let _ = io::stdout().write_all(&out);
    true
}

fn index_of(probe: &Probe, words: &[OsString]) -> usize {
    let last = words.len().saturating_sub(1);
    let index = probe.variable("_CLAP_COMPLETE_INDEX");
    index
        .and_then(|index| index.parse().ok())
        .map_or(last, |index: usize| index.min(last))
}

fn for_other(
    shell: &str,
    words: Vec<OsString>,
    probe: &Probe,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else {
        return Ok(());
    };
    let index = index_of(probe, &words);
    let line = Line::of(words, index);
    let _ = LINE.set(line.up_to(index));
    let folder = std::env::current_dir().ok();
    completer.write_complete(&mut line.command(), line.words, folder.as_deref(), out)
}

/// bash splits words at `:` and `=`, as in URLs. They are joined again here; it replaces only the last part.
fn for_bash(words: Vec<OsString>, probe: &Probe, out: &mut Vec<u8>) -> io::Result<()> {
    let index = index_of(probe, &words);
    let (words, index, typed) = joined(words, index);
    let line = Line::of(words, index);
    let _ = LINE.set(line.up_to(index));
    let folder = std::env::current_dir().ok();
    let found = complete(&mut line.command(), line.words, index, folder.as_deref())?;
    let separator = probe.variable("_CLAP_IFS").unwrap_or("\n");
    let found: Vec<_> = found
        .iter()
        .map(|candidate| candidate.get_value().to_string_lossy())
        .filter_map(|value| value.get(typed..).map(str::to_owned))
        .collect();
    out.write_all(found.join(separator).as_bytes())
}

/// Joins words that were split at `:` and `=`. Also returns how many bytes of the completed word bash takes for another word.
fn joined(words: Vec<OsString>, index: usize) -> (Vec<OsString>, usize, usize) {
    let is_separator = |word: &OsStr| word == ":" || word == "=" || word == "::";
    let mut all: Vec<OsString> = Vec::new();
    let (mut at, mut typed, mut glue) = (0, 0, false);
    for (position, word) in words.into_iter().enumerate() {
        let separates = is_separator(&word);
        match all.last_mut() {
            // The program's name and the command are words of their own.
            Some(last) if (separates || glue) && 1 < position => {
                if position == index {
                    typed = if separates {
                        last.len() + word.len()
                    } else {
                        last.len()
                    };
                }
                last.push(&word);
            }
            _ => all.push(word),
        }
        glue = separates;
        if position == index {
            at = all.len() - 1;
            break;
        }
    }
    (all, at, typed)
}

/// The words of the command that the line has so far.
fn matches(line: &Line) -> Option<ArgMatches> {
    let command = line.command().ignore_errors(true);
    let mut matches = command.try_get_matches_from(&line.words).ok()?;
    matches.remove_subcommand().map(|(_, matches)| matches)
}

/// The server and the other words that the line names so far.
fn line() -> Option<(ServerArgs, ArgMatches)> {
    let matches = matches(LINE.get()?)?;
    let mut server = ServerArgs::from_arg_matches(&matches).ok()?;
    server.timeout = TIMEOUT_SECONDS;
    Some((server, matches))
}

/// The configuration file that the line names.
fn config_of(line: &Line) -> Option<PathBuf> {
    matches(line)?.try_remove_one("config").ok().flatten()
}

fn candidates(
    current: &OsStr,
    method: Method,
    member: &'static str,
    name: &str,
) -> Vec<CompletionCandidate> {
    let Some((server, _)) = line() else {
        return Vec::new();
    };
    let current = current.to_string_lossy();
    let items = offered(&server, method.as_str(), member);
    let named = items
        .iter()
        .filter_map(|item| Some((item[name].as_str()?, item)));
    named
        .filter(|(name, _)| name.starts_with(&*current) && is_safe(name))
        .map(|(name, item)| {
            let help = item["title"].as_str().or(item["description"].as_str());
            let help = help.and_then(|help| help.lines().next());
            CompletionCandidate::new(name).help(help.map(|help| super::client::clean(help).into()))
        })
        .collect()
}

/// Returns true if a server's word can stand in a command line as it is. bash inserts completions without quotes, so that
/// other words could become commands or options there.
fn is_safe(word: &str) -> bool {
    !word.starts_with('-') && super::client::shell_word(word) == word
}

/// Names of upstreams in the configuration.
pub(super) fn servers(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let mut flags = Flags::default();
    flags.config = LINE.get().and_then(config_of);
    let Ok(loaded) = load(flags) else {
        return Vec::new();
    };
    let known = loaded.config.upstreams.keys();
    let known = known.filter(|name| name.starts_with(&*current));
    known.map(CompletionCandidate::new).collect()
}

/// Names of the server's tools.
pub(super) fn tools(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, Method::ToolsList, "tools", "name")
}

/// URIs of the server's resources.
pub(super) fn resources(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, Method::ResourcesList, "resources", "uri")
}

/// Names of the server's prompts.
pub(super) fn prompts(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, Method::PromptsList, "prompts", "name")
}

/// Arguments of the tool that the line names, each with `=`.
pub(super) fn arguments(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some((server, matches)) = line() else {
        return Vec::new();
    };
    let Some(tool) = matches.get_one::<String>("tool") else {
        return Vec::new();
    };
    let current = current.to_string_lossy();
    let items = offered(&server, Method::ToolsList.as_str(), "tools");
    let schema = items
        .iter()
        .find(|item| item["name"] == **tool)
        .map(|item| &item["inputSchema"]);
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    let properties = properties.into_iter().flatten();
    if let Some((name, value)) = current.split_once('=') {
        let values = properties
            .filter(|(property, _)| *property == name)
            .filter_map(|(_, schema)| schema["enum"].as_array())
            .flatten()
            .filter_map(|one| one.as_str());
        return values
            .filter(|one| one.starts_with(value) && is_safe(one))
            .map(|one| CompletionCandidate::new(format!("{name}={one}")))
            .collect();
    }
    properties
        .filter(|(name, _)| name.starts_with(&*current) && is_safe(name))
        .map(|(name, schema)| {
            let help = schema["description"].as_str();
            CompletionCandidate::new(format!("{name}="))
                .help(help.map(|help| super::client::clean(help).into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    #[test]
    fn words_that_bash_split_are_joined() {
        let line = [
            "longshore",
            "call",
            "http",
            ":",
            "//127.0.0.1",
            ":",
            "3000/mcp",
            "ec",
        ];
        let expected = words(&["longshore", "call", "http://127.0.0.1:3000/mcp", "ec"]);
        assert_eq!(joined(words(&line), 7), (expected, 3, 0));
        let expected = words(&["longshore", "call", "http://127.0.0.1"]);
        assert_eq!(joined(words(&line), 4), (expected, 2, 5));
        let line = ["longshore", "call", "x", "paint", "size", "=", "la"];
        let expected = words(&["longshore", "call", "x", "paint", "size=la"]);
        assert_eq!(joined(words(&line), 6), (expected.clone(), 4, 5));
        let expected = words(&["longshore", "call", "x", "paint", "size="]);
        assert_eq!(joined(words(&line[..6]), 5), (expected, 4, 5));
    }

    #[test]
    fn the_short_form_is_completed_as_a_call() {
        let short = Line::of(words(&["longshore", "http://a/mcp", "ec"]), 2);
        assert_eq!(short.words, words(&["call", "http://a/mcp", "ec"]));
        let command = short.command().ignore_errors(true);
        let matches = command.try_get_matches_from(&short.words);
        let matches = matches.expect("a command");
        let (name, matches) = matches.subcommand().expect("a command");
        let tool = matches.get_one::<String>("tool").map(String::as_str);
        assert_eq!((name, tool), ("call", Some("ec")));
        for line in [
            &["longshore", "http://a/mcp"][..],
            &["longshore", "list", "x"],
            &["longshore", "--color", "x"],
        ] {
            let same = Line::of(words(line), line.len() - 1);
            assert_eq!(same.words, words(line), "{line:?}");
        }
    }

    #[test]
    fn the_configuration_of_the_line_is_used() {
        let config = |line: &[&str]| config_of(&Line::of(words(line), line.len()));
        let file = Some(PathBuf::from("a.json"));
        assert_eq!(config(&["longshore", "list", "--config", "a.json"]), file);
        assert_eq!(config(&["longshore", "call", "--config=a.json"]), file);
        assert_eq!(config(&["longshore", "list"]), None);
    }

    #[test]
    fn names_that_a_shell_would_interpret_are_not_offered() {
        assert!(is_safe("echo") && is_safe("test://a/b") && is_safe("a.b-c_d"));
        for name in [
            "a;ls", "$(ls)", "`ls`", "a b", "*", "-x", "a\nb", "a|b", "~",
        ] {
            assert!(!is_safe(name), "{name}");
        }
    }

    #[test]
    fn each_shell_has_a_script_that_runs_the_program() {
        use clap::ValueEnum as _;
        for shell in clap_complete::Shell::value_variants() {
            let script = script(*shell).map_err(|_| "no script").expect("a script");
            assert!(script.contains(VARIABLE), "{shell}: {script}");
        }
    }
}
