//! Messages for mistyped commands, with what was probably meant.

use std::path::Path;

use clap::CommandFactory as _;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;

/// Words of other programs for the command that serves.
const OTHER_WORDS_FOR_RUN: [&str; 5] = ["serve", "server", "start", "up", "daemon"];

pub(super) fn is_command(word: &str) -> bool {
    Cli::command()
        .get_subcommands()
        .any(|known| known.get_name() == word)
}

/// The word is probably a mistyped command.
pub(super) fn no_command(word: &str) -> ! {
    let arguments = std::env::args_os().skip(1);
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    Cli::command()
        .error(ErrorKind::InvalidSubcommand, problem_of(word, &arguments))
        .exit()
}

/// Adds a tip to an error that has a configuration file as an argument.
pub(super) fn with_tip(mut error: clap::Error) -> clap::Error {
    let file = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) if is_settings_file(word) => word.clone(),
        _ => return error,
    };
    let tip = StyledStr::from(format!(
        "a configuration file is named with '--config {file}'"
    ));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    error
}

fn problem_of(word: &str, arguments: &[String]) -> String {
    if is_command(word) {
        let at = arguments.iter().position(|argument| argument == word);
        let (options, rest) = arguments.split_at(at.unwrap_or(0));
        let rest = rest.get(1..).unwrap_or_default();
        let line = [&[word.to_owned()], options, rest].concat().join(" ");
        return format!("options come after the command: longshore {line}");
    }
    if is_settings_file(word) {
        return format!(
            "unrecognized subcommand '{word}'. A configuration file is named with --config: longshore run --config {word}"
        );
    }
    let command = Cli::command();
    let names = command.get_subcommands().map(clap::Command::get_name);
    let meant = match OTHER_WORDS_FOR_RUN.contains(&word) {
        true => Some("run"),
        false => likeness_of(word, names),
    };
    let meant = meant.map_or_else(String::new, |known| format!(" Did you mean '{known}'?"));
    format!(
        "unrecognized subcommand '{word}'.{meant} What an upstream offers is listed by: longshore list {word}"
    )
}

/// Returns the most similar known name, if any is similar.
pub(super) fn likeness_of<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let likeness = |known: &str| {
        strsim::jaro_winkler(known, word).max(strsim::normalized_damerau_levenshtein(known, word))
    };
    known
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| 0.7 <= *likeness)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

fn is_settings_file(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(|it| it.to_str());
    matches!(
        extension,
        Some("yaml" | "yml" | "toml" | "json" | "jsonc" | "json5")
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_word_of_another_program_is_the_command_that_serves() {
        for word in OTHER_WORDS_FOR_RUN {
            let problem = problem_of(word, &[]);
            assert!(problem.contains("Did you mean 'run'?"), "{problem}");
        }
        let problem = problem_of("lst", &[]);
        assert!(problem.contains("Did you mean 'list'?"), "{problem}");
        let problem = problem_of("shop", &[]);
        assert!(!problem.contains("Did you mean"), "{problem}");
    }

    #[test]
    fn a_configuration_file_is_not_a_command() {
        let problem = problem_of("./longshore.yaml", &[]);
        assert!(
            problem.ends_with("longshore run --config ./longshore.yaml"),
            "{problem}"
        );
    }

    #[test]
    fn a_configuration_file_as_an_argument_has_a_tip() {
        let refused = |words: &[&str]| {
            let error = Cli::try_parse_from(words).expect_err("it is not an argument");
            with_tip(error).to_string()
        };
        let tip = "named with '--config a.yaml'";
        let error = refused(&["longshore", "run", "a.yaml"]);
        assert!(error.contains(tip), "{error}");
        let error = refused(&["longshore", "run", "a"]);
        assert!(!error.contains("--config a"), "{error}");
    }

    #[test]
    fn options_before_a_command_are_moved_behind_it() {
        let arguments = ["--port", "80", "call", "x"].map(str::to_owned);
        let problem = problem_of("call", &arguments);
        assert!(problem.ends_with("longshore call --port 80 x"), "{problem}");
    }
}
