//! Parser for `--help` texts, limited to conventions that most programs share.

mod options;
pub(super) use options::Flag;
use options::{Spoken, flag, positionals, possible_values, values};

/// Parsed help text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Help {
    /// True if the text has a usage line.
    pub(super) has_usage: bool,
    /// The program's own description.
    pub(super) about: String,
    pub(super) commands: Vec<Command>,
    pub(super) options: Vec<Flag>,
    pub(super) positionals: Vec<Positional>,
    /// Names and descriptions of the positional arguments that the text lists.
    described: Vec<(String, String)>,
    /// True if the text is a manual page.
    pub(super) is_manual: bool,
    /// True if the usage has further forms, which were not read.
    pub(super) has_more_forms: bool,
    /// Examples of options that could not be parsed, as written.
    pub(super) not_understood: Vec<String>,
}

/// A subcommand.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) name: String,
    pub(super) about: String,
}

/// A positional argument.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Positional {
    pub(super) name: String,
    pub(super) is_required: bool,
    pub(super) choices: Vec<String>,
    pub(super) about: String,
}

/// Maximum number of lines. No help text for people is longer.
const LINES_MAX: usize = 5000;
const ENTRIES_MAX: usize = 300;
const ABOUT_CHARACTERS: usize = 400;
/// Maximum number of reported options that could not be parsed.
const NOT_UNDERSTOOD_MAX: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Before,
    Usage,
    /// Positional arguments of argparse, one of which can be the subcommands.
    Positionals,
    /// Positional arguments alone.
    Arguments,
    Commands,
    Options,
    Other,
}

impl Help {
    /// Parses a help text. `words` are the program's name and the subcommands that lead to it.
    pub(super) fn read(text: &str, words: &[&str]) -> Self {
        let text = plain(text);
        if is_manual(&text) {
            return Self::read_manual(&text, words);
        }
        let mut help = Self::default();
        let mut section = Section::Before;
        let mut usage = String::new();
        // Usage of the options, where it stands apart from the usage line.
        let mut synopsis = String::new();
        let mut about: Vec<&str> = Vec::new();
        // Indent of the current entry. Its continuation lines are indented further.
        let mut entry: Option<(usize, Last)> = None;
        // Indent of the last positional argument. argparse lists subcommands below theirs.
        let mut positional: Option<usize> = None;
        for line in text.lines().take(LINES_MAX) {
            let trimmed = line.trim();
            let indent = line.len() - line.trim_start().len();
            if trimmed.is_empty() {
                // clap puts an empty line between options, but none within one.
                if matches!(section, Section::Usage) {
                    section = Section::Other;
                }
                continue;
            }
            if let Some(rest) = usage_of(trimmed) {
                section = Section::Usage;
                help.has_usage = true;
                // A note can stand in the first usage line, as that of the AWS CLI about its version 2.
                if usage.is_empty() || begins_anew(rest, words) && !begins_anew(&usage, words) {
                    rest.clone_into(&mut usage);
                }
                entry = None;
                continue;
            }
            if section == Section::Usage && !usage.is_empty() && indent > 0 {
                section = below_usage(trimmed);
                if trimmed.ends_with(':') && section != Section::Usage {
                    continue;
                }
            }
            let is_form = begins_anew(trimmed, words);
            if section == Section::Usage && (indent > 0 || is_form) {
                if usage.is_empty() || !begins_anew(trimmed, words) && !help.has_more_forms {
                    usage.extend([" ", trimmed]);
                } else {
                    help.has_more_forms = true;
                }
                continue;
            }
            // npm lists all options in brackets first, and then each with its description.
            if section == Section::Options && trimmed.starts_with('[') {
                synopsis.extend([" ", trimmed]);
                continue;
            }
            if indent == 0 && !trimmed.starts_with('-') {
                section = heading(trimmed, section);
                let is_about = help.options.is_empty() && help.commands.is_empty();
                if is_about
                    && matches!(section, Section::Before | Section::Other)
                    && !trimmed.ends_with(':')
                    && !is_error(trimmed, words)
                {
                    about.push(trimmed);
                }
                (entry, positional) = (None, None);
                continue;
            }
            // A single dash begins a list item, not an option.
            if trimmed.starts_with('-') && !trimmed.starts_with("- ") && indent <= 12 {
                entry = help.add(trimmed).then_some((indent, Last::Flag));
                continue;
            }
            let is_of_positional =
                section == Section::Positionals && positional.is_some_and(|at| indent == at + 2);
            if let Some((at, last)) = entry
                && at < indent
                && !is_of_positional
            {
                help.continued(last, trimmed);
                continue;
            }
            let added = match section {
                Section::Positionals | Section::Arguments if !is_of_positional => {
                    positional = Some(indent);
                    help.add_described(trimmed).then_some(Last::Positional)
                }
                Section::Positionals | Section::Commands => {
                    help.add_command(trimmed).then_some(Last::Command)
                }
                _ => continue,
            };
            entry = added.map(|last| (indent, last));
        }
        help.end(&format!("{usage} {synopsis}"));
        about.truncate(3);
        help.about = about.join(" ").chars().take(ABOUT_CHARACTERS).collect();
        help.take_positionals(&usage, words);
        help
    }

    /// Adds the commands of a line: names separated by commas, or one with its description. Returns true if lines of its
    /// description may follow.
    fn add_command(&mut self, line: &str) -> bool {
        let room = ENTRIES_MAX.saturating_sub(self.commands.len());
        if let Some(names) = names(line) {
            let named = names.into_iter().filter(|name| *name != "help");
            let named = named.take(room).map(|name| Command {
                name: name.to_owned(),
                about: String::new(),
            });
            self.commands.extend(named);
            return false;
        }
        // argparse lists commands below the name of their argument.
        let is_placeholder = line == line.to_uppercase() && !line.contains(' ');
        let command = command(line).filter(|_| 0 < room && !is_placeholder);
        let is_added = command.is_some();
        self.commands.extend(command);
        is_added
    }

    /// Adds the description of a positional argument. Returns true if more lines of it may follow.
    fn add_described(&mut self, line: &str) -> bool {
        let (name, about) = line.split_once("  ").unwrap_or((line, ""));
        let name = name.trim_matches(['<', '>', '[', ']', '{', '}', '.', ' ']);
        let about = about.trim().chars().take(ABOUT_CHARACTERS).collect();
        let has_room = self.described.len() < ENTRIES_MAX;
        if has_room {
            self.described.push((name.to_owned(), about));
        }
        has_room
    }

    /// Takes the positional arguments of the usage, with their descriptions.
    fn take_positionals(&mut self, usage: &str, words: &[&str]) {
        // argparse also lists the subcommands in the usage.
        if !self.commands.is_empty() {
            return;
        }
        self.positionals = positionals(usage, words);
        for positional in &mut self.positionals {
            let choices = positional.choices.join(",");
            let mut described = self.described.iter();
            let found = described.find(|(name, _)| {
                name.eq_ignore_ascii_case(&positional.name)
                    || !choices.is_empty() && *name == choices
            });
            if let Some((_, about)) = found {
                positional.about.clone_from(about);
            }
            if positional.choices.is_empty() {
                positional.choices = possible_values(&positional.about);
            }
        }
    }

    /// Parses a manual page: the description from its name section, arguments from its synopsis, and its options.
    fn read_manual(text: &str, words: &[&str]) -> Self {
        let mut help = Self {
            is_manual: true,
            ..Self::default()
        };
        let mut section = "";
        let mut usage = String::new();
        // Indents of the section's content and of the current entry.
        let mut least = 0;
        let mut entry = None;
        let mut is_first_paragraph = false;
        for line in text.lines().take(LINES_MAX) {
            let trimmed = line.trim();
            let indent = line.len() - line.trim_start().len();
            if trimmed.is_empty() {
                is_first_paragraph = false;
                continue;
            }
            if indent == 0 {
                section = trimmed;
                least = 0;
                entry = None;
                continue;
            }
            if least == 0 {
                least = indent;
            }
            match section {
                "NAME" => {
                    let (_, about) = trimmed.split_once(" - ").unwrap_or(("", trimmed));
                    if !help.about.is_empty() {
                        help.about.push(' ');
                    }
                    help.about.extend(about.chars().take(ABOUT_CHARACTERS));
                }
                "SYNOPSIS" => {
                    if help.has_usage && indent == least {
                        help.has_more_forms = true;
                    }
                    help.has_usage = true;
                    if !help.has_more_forms {
                        usage.extend([" ", trimmed]);
                    }
                }
                section if section.ends_with("OPTIONS") => {
                    if indent == least && trimmed.starts_with(['-', '<']) {
                        let (is_added, last) = match trimmed.starts_with('-') {
                            true => (help.add(trimmed), Last::Flag),
                            false => (help.add_described(trimmed), Last::Positional),
                        };
                        is_first_paragraph = is_added;
                        entry = is_added.then_some((indent, last));
                    } else if let Some((at, last)) = entry
                        && at < indent
                        && is_first_paragraph
                    {
                        help.continued(last, trimmed);
                    }
                }
                _ => {}
            }
        }
        help.end(&usage);
        help.take_positionals(&usage, words);
        help
    }

    /// Adds the option that a line begins with. Returns false if there is none.
    fn add(&mut self, line: &str) -> bool {
        match flag(line) {
            Spoken::Flag(flag) if self.options.len() < ENTRIES_MAX => {
                self.options.push(flag);
                true
            }
            Spoken::Flag(_) | Spoken::OfItself => false,
            Spoken::Unclear => {
                if self.not_understood.len() < NOT_UNDERSTOOD_MAX {
                    self.not_understood.push(line.chars().take(60).collect());
                }
                false
            }
        }
    }

    /// Returns true if the text does not say how the program is used.
    pub(super) fn is_nothing(&self) -> bool {
        !self.has_usage && self.options.is_empty() && self.commands.is_empty()
    }

    /// Completes the options with information from elsewhere in the text.
    fn end(&mut self, usage: &str) {
        let values = values(usage);
        for flag in &mut self.options {
            if flag.value.is_none()
                && let Some((_, value)) = values.iter().find(|(name, _)| *name == flag.name)
            {
                flag.take_value(value);
            }
            flag.read_about();
        }
    }

    fn continued(&mut self, last: Last, text: &str) {
        let about = match last {
            Last::Flag => self.options.last_mut().map(|flag| &mut flag.about),
            Last::Command => self.commands.last_mut().map(|command| &mut command.about),
            Last::Positional => self.described.last_mut().map(|(_, about)| about),
        };
        if let Some(about) = about
            && about.len() < ABOUT_CHARACTERS
        {
            if !about.is_empty() {
                about.push(' ');
            }
            about.extend(text.chars().take(ABOUT_CHARACTERS));
        }
    }
}

#[derive(Clone, Copy)]
enum Last {
    Flag,
    Command,
    Positional,
}

/// Removes bold markup: terminal escape sequences, and the overstruck letters of manual pages.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\u{1b}' => {
                if characters.next_if_eq(&'[').is_some() {
                    for c in characters.by_ref() {
                        if ('\u{40}'..='\u{7e}').contains(&c) {
                            break;
                        }
                    }
                }
            }
            '\u{8}' => {
                plain.pop();
            }
            '\t' => plain.push_str("        "),
            '\n' => plain.push('\n'),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Returns true if the text is a manual page: `GIT-CLONE(1) ... GIT-CLONE(1)`, with headings in capitals.
fn is_manual(text: &str) -> bool {
    let mut lines = text
        .lines()
        .take(LINES_MAX)
        .filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default().trim();
    let page = first.split_whitespace().next().unwrap_or_default();
    let is_titled = page.ends_with(')') && page.contains('(') && first.len() > page.len();
    if is_titled && first.ends_with(page) {
        return true;
    }
    let mut has = |heading: &str| lines.any(|line| line == heading);
    (first == "NAME" || has("NAME")) && has("SYNOPSIS")
}

/// Returns the text after `Usage:`.
fn usage_of(line: &str) -> Option<&str> {
    let (head, rest) = line.split_at_checked(6)?;
    if !head.eq_ignore_ascii_case("usage:") {
        return None;
    }
    Some(rest.trim())
}

/// Returns true if a usage line begins another form, rather than continuing the first.
fn begins_anew(line: &str, words: &[&str]) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    // Redis writes `./redis-server`.
    let is_program = words.first() == first.rsplit('/').next().as_ref();
    line.starts_with("or:") || is_program
}

/// Returns true if a line is an error message of the program: `aws: error: the following arguments are required`.
fn is_error(line: &str, words: &[&str]) -> bool {
    let rest = words.first().and_then(|name| line.strip_prefix(name));
    rest.is_some_and(|rest| rest.starts_with(':') && rest.to_lowercase().contains("error"))
}

/// Returns the section of an indented line below a usage. curl and wrk list their options there without an empty line.
fn below_usage(line: &str) -> Section {
    if line.ends_with(':') && !line.contains(' ') {
        return heading(line, Section::Usage);
    }
    match line.starts_with('-') && line.contains("  ") {
        true => Section::Options,
        false => Section::Usage,
    }
}

fn heading(line: &str, now: Section) -> Section {
    let lower = line.to_lowercase();
    let named = |word: &str| lower.contains(word);
    if lower.ends_with(':') || !line.contains(' ') || line == line.to_uppercase() {
        return if named("positional arguments") {
            Section::Positionals
        } else if named("command") {
            Section::Commands
        } else if named("option") || named("flag") {
            Section::Options
        } else if lower.starts_with("arg") {
            Section::Arguments
        } else {
            Section::Other
        };
    }
    match now {
        // Commands can be grouped under headings of a few words.
        Section::Commands => Section::Commands,
        Section::Before => Section::Before,
        _ => Section::Other,
    }
}

/// Parses a line such as `add, a   Adds things`.
fn command(line: &str) -> Option<Command> {
    let (names, about) = match line.split_once("  ") {
        Some((names, about)) => (names, about.trim()),
        None => match line.split_once(": ") {
            Some((names, about)) => (names, about.trim()),
            None => (line, ""),
        },
    };
    let name = names.split([',', ' ', '|']).next().unwrap_or_default();
    let name = name.trim_end_matches([':', '*']);
    // A sentence is not a command.
    if about.is_empty() && line.contains(' ') || !is_word(name) || name == "help" {
        return None;
    }
    Some(Command {
        name: name.to_owned(),
        about: about.chars().take(ABOUT_CHARACTERS).collect(),
    })
}

/// Returns true if the name can be passed to the program without being taken for an option.
fn is_word(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= 64
        && name.chars().all(is_inner)
}

/// Returns the names in a line that consists of names separated by commas.
fn names(line: &str) -> Option<Vec<&str>> {
    let names = line.trim_end_matches(',').split(',').map(str::trim);
    let names: Vec<&str> = names.collect();
    let is_list = 1 < names.len() || line.ends_with(',');
    (is_list && names.iter().all(|name| is_word(name))).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option<'a>(help: &'a Help, name: &str) -> &'a Flag {
        help.options
            .iter()
            .find(|flag| flag.name == name)
            .unwrap_or_else(|| panic!("no {name} in {help:?}"))
    }

    fn names(help: &Help) -> Vec<&str> {
        help.commands.iter().map(|command| &*command.name).collect()
    }

    #[test]
    fn help_as_rust_programs_write_it() {
        let help = Help::read(
            "Sends boats.\n\nUsage: boat send [OPTIONS] <HARBOUR> [CREW]...\n\n\
             Arguments:\n  <HARBOUR>  Where to\n  [CREW]...  Who\n\nOptions:\n  \
             -v, --verbose\n          Says more,\n          and more\n\n      \
             --sail <SAIL>  Which one [default: main] [possible values: main, jib]\n  \
             -n, --number <N>  How many\n  -h, --help  Print help\n  -V, --version  Print version\n",
            &["boat", "send"],
        );
        assert_eq!(help.about, "Sends boats.");
        assert_eq!(option(&help, "--verbose").about, "Says more, and more");
        assert_eq!(option(&help, "--verbose").value, None);
        assert_eq!(option(&help, "--sail").choices, ["main", "jib"]);
        assert_eq!(option(&help, "--number").value.as_deref(), Some("N"));
        assert_eq!(help.options.len(), 3, "help and version are none");
        let positionals: Vec<_> = help
            .positionals
            .iter()
            .map(|one| (&*one.name, one.is_required, &*one.about))
            .collect();
        assert_eq!(
            positionals,
            [("HARBOUR", true, "Where to"), ("CREW", false, "Who")]
        );
        let help = Help::read(
            "Usage: boat <MODE> <FILE>\n\nArguments:\n  <MODE>\n          How it is sent\n\n          \
             [possible values: fast, slow]\n\n  <FILE>  What, which\n          is sent\n\nOptions:\n  -v, --verbose  More\n",
            &["boat"],
        );
        let [mode, file] = &help.positionals[..] else {
            panic!("{help:?}");
        };
        assert_eq!(mode.choices, ["fast", "slow"]);
        assert!(mode.about.starts_with("How it is sent"), "{help:?}");
        assert_eq!(file.about, "What, which is sent");
    }

    #[test]
    fn help_as_argparse_writes_it() {
        let help = Help::read(
            "usage: tool.py [-h] [--mode {fast,slow}] [-o OUT]\n               {add,remove} ...\n\nA tool.\n\n\
             positional arguments:\n  {add,remove}\n    add        adds\n    remove     removes\n\n\
             options:\n  -h, --help         show this help message and exit\n  \
             --mode {fast,slow}\n                     how\n  -o OUT, --out OUT  where to\n",
            &["tool.py"],
        );
        assert_eq!(names(&help), ["add", "remove"]);
        assert_eq!(help.about, "A tool.");
        assert_eq!(option(&help, "--mode").choices, ["fast", "slow"]);
        assert_eq!(option(&help, "--out").value.as_deref(), Some("OUT"));
        assert_eq!(help.positionals, []);
    }

    #[test]
    fn values_in_lower_case_are_values() {
        let help = Help::read(
            "Usage: sed [OPTION]... [input-file]...\n\n  -n, --quiet, --silent\n                 suppress printing\n  \
             -e script, --expression=script\n                 add the script\n  -l N, --line-length=N\n                 length\n",
            &["sed"],
        );
        let script = option(&help, "--expression");
        assert_eq!(
            (script.value.as_deref(), &*script.about),
            (Some("script"), "add the script")
        );
        assert_eq!(option(&help, "--line-length").value.as_deref(), Some("N"));
        assert_eq!(option(&help, "--silent").value, None);
        let help = Help::read(
            "usage: python [option] ...\nOptions:\n-b     : warn about bytes\n-c cmd : run a text (it ends the options)\n",
            &["python"],
        );
        let command = option(&help, "-c");
        assert_eq!(command.value.as_deref(), Some("cmd"));
        assert_eq!(command.about, "run a text (it ends the options)");
        let bytes = option(&help, "-b");
        assert_eq!(
            (bytes.value.as_deref(), &*bytes.about),
            (None, "warn about bytes")
        );
    }

    #[test]
    fn help_as_cobra_and_git_write_it() {
        let help = Help::read(
            "Manages things\n\nUsage:\n  kit [command]\n\nAvailable Commands:\n  apply       Apply it\n  help        Help about any command\n\n\
             Flags:\n      --count int   how many (default 3)\n  -h, --help        help for kit\n\n\
             Use \"kit [command] --help\" for more information about a command.\n",
            &["kit"],
        );
        assert_eq!(names(&help), ["apply"]);
        assert_eq!(option(&help, "--count").value.as_deref(), Some("int"));
        let help = Help::read(
            "usage: git [-v | --version] [-C <path>]\n           <command> [<args>]\n\n\
             These are common Git commands used in various situations:\n\n\
             start a working area (see also: git help tutorial)\n   clone     Clone a repository\n   init      Create one\n\n\
             work on the current change\n   add       Add file contents\n",
            &["git"],
        );
        assert_eq!(names(&help), ["clone", "init", "add"]);
    }

    #[test]
    fn help_as_gnu_programs_write_it() {
        let help = Help::read(
            "Usage: grep [OPTION]... PATTERNS [FILE]...\nSearch for PATTERNS in each FILE.\n\n\
             Pattern selection and interpretation:\n  -E, --extended-regexp     PATTERNS are extended\n  \
             -m, --max-count=NUM       stop after NUM\n      --color[=WHEN]        use markers;\n                            WHEN is 'always'\n",
            &["grep"],
        );
        assert_eq!(help.about, "Search for PATTERNS in each FILE.");
        assert_eq!(option(&help, "--max-count").value.as_deref(), Some("NUM"));
        let color = option(&help, "--color");
        assert!(color.value_is_optional && color.about.ends_with("WHEN is 'always'"));
        assert_eq!(help.commands, []);
        assert_eq!(help.positionals.len(), 2);
    }

    #[test]
    fn help_as_git_writes_it_for_one_of_its_commands() {
        let help = Help::read(
            "usage: git clone [<options>] [--] <repo> [<dir>]\n   or: git clone --all\n\n    -v, --[no-]verbose    be more verbose\n    \
             --[no-]progress       force progress reporting\n    --[no-]reject-shallow don't clone shallow repository\n    \
             -l, --[no-]local      to clone from a local repository\n    --[no-]recurse-submodules[=<pathspec>]\n                          \
             initialize submodules in the clone\n    -j, --[no-]jobs <n>   number of submodules cloned in parallel\n    \
             --[no-]filter <args>  object filtering\n    --- odd\n",
            &["git", "clone"],
        );
        let values = |name: &str| option(&help, name).value.clone();
        for name in ["--verbose", "--progress", "--reject-shallow", "--local"] {
            assert_eq!(values(name), None, "{name}");
        }
        assert_eq!(
            option(&help, "--reject-shallow").about,
            "don't clone shallow repository"
        );
        assert_eq!(values("--jobs").as_deref(), Some("n"));
        let optional = option(&help, "--recurse-submodules");
        assert!(optional.value_is_optional && optional.about.starts_with("initialize"));
        let positionals = help
            .positionals
            .iter()
            .map(|one| (&*one.name, one.is_required));
        assert_eq!(
            positionals.collect::<Vec<_>>(),
            [("repo", true), ("dir", false)]
        );
        assert!(help.has_more_forms);
        assert_eq!(help.not_understood, ["--- odd"]);
    }

    #[test]
    fn usage_lines_are_those_of_the_program() {
        let help = Help::read(
            "usage: Note: Version 2 is now stable and recommended for general use.\n\n\
             usage: aws [options] <command> <subcommand> [<subcommand> ...] [parameters]\n\
             To see help text, you can run:\n\n  aws help\n\
             aws: error: the following arguments are required: command\n",
            &["aws"],
        );
        let positionals = |help: &Help| -> Vec<String> {
            let all = help.positionals.iter();
            all.map(|one| one.name.clone()).collect()
        };
        assert_eq!(positionals(&help), ["command", "subcommand", "parameters"]);
        assert_eq!(help.about, "");
        let help = Help::read(
            "Usage: ./redis-server [/path/to/redis.conf] [options] [-]\n       \
             ./redis-server - (read config from stdin)\n       ./redis-server -v or --version\n       \
             ./redis-server --test-memory <megabytes>\n\n\
             Examples:\n       ./redis-server --port 7777\n",
            &["redis-server"],
        );
        assert_eq!(positionals(&help), ["redis.conf"]);
        let usage = "Usage: ip { link | addr } { COMMAND | help }\n";
        let choices = Help::read(usage, &["ip"]).positionals.remove(0).choices;
        assert_eq!(choices, ["link", "addr"]);
        assert!(help.has_more_forms && help.options.is_empty(), "{help:?}");
    }

    #[test]
    fn pages_of_a_manual_are_read() {
        let text = "GIT-CLONE(1)                 Git Manual                 GIT-CLONE(1)\n\nN\u{8}NA\u{8}AM\u{8}ME\u{8}E\n       git-clone - Clone a \
             repository into a new directory\n\nSYNOPSIS\n       git clone [--template=<template-directory>]\n                 [-l] [-o <name>] [--] \
             <repository>\n                 [<directory>]\n\nDESCRIPTION\n       -- is not an option.\n\nOPTIONS\n       -l, --local\n           This flag \
             bypasses; specifying\n           --no-local will override it.\n\n           --shallow-submodules. Not here.\n\n       --template\n           A \
             folder\n\n       -o, --origin=<name>\n           A name\n\n       <repository>\n           From\n           where\n\nSEE ALSO\n       -x\n\nGit 2.54.0                   06/01/2026                GIT-CLONE(1)\n";
        let help = Help::read(text, &["git", "clone"]);
        assert!(help.is_manual);
        assert_eq!(help.about, "Clone a repository into a new directory");
        let names: Vec<&str> = help.options.iter().map(|flag| &*flag.name).collect();
        assert_eq!(names, ["--local", "--template", "--origin"]);
        assert_eq!(option(&help, "--local").value, None);
        assert_eq!(
            option(&help, "--local").about,
            "This flag bypasses; specifying --no-local will override it."
        );
        let template = option(&help, "--template").value.as_deref();
        assert_eq!(template, Some("template-directory"));
        let positionals = help
            .positionals
            .iter()
            .map(|one| (&*one.name, one.is_required, &*one.about));
        assert_eq!(
            positionals.collect::<Vec<_>>(),
            [("repository", true, "From where"), ("directory", false, "")]
        );
    }

    #[test]
    fn positional_arguments_of_argparse_are_no_commands() {
        let help = Help::read(
            "usage: convert [-h] [--count COUNT] file [out] {png,jpg}\n\nConverts a file.\n\n\
             positional arguments:\n  file           the input file\n  out            the output file\n  \
             {png,jpg}      the format, which\n                 is written\n\n\
             options:\n  -h, --help     show this\n  --count COUNT  how many\n",
            &["convert"],
        );
        assert_eq!(names(&help), [""; 0]);
        let positionals = help
            .positionals
            .iter()
            .map(|one| (&*one.name, one.is_required, &*one.about));
        assert_eq!(
            positionals.collect::<Vec<_>>(),
            [
                ("file", true, "the input file"),
                ("out", false, "the output file"),
                ("choice", true, "the format, which is written"),
            ]
        );
        assert_eq!(option(&help, "--count").value.as_deref(), Some("COUNT"));
        let help = Help::read(
            "usage: things [-h] COMMAND ...\n\nManages things.\n\noptions:\n  -h, --help  show this\n\n\
             commands:\n  COMMAND\n    add       adds a thing\n    remove    removes it\n",
            &["things"],
        );
        assert_eq!(names(&help), ["add", "remove"]);
        let help = Help::read(
            "usage: things [-h] COMMAND ...\n\npositional arguments:\n  COMMAND\n    add       adds a thing, which\n              is new\n    \
             remove    removes it\n",
            &["things"],
        );
        assert_eq!(names(&help), ["add", "remove"]);
        assert_eq!(help.commands[0].about, "adds a thing, which is new");
    }

    #[test]
    fn options_directly_below_the_usage_are_read() {
        let curl = "Usage: curl [options...] <url>\n -d, --data <data>          HTTP POST data\n \
             -f, --fail                 Fail fast with no output on HTTP errors\n -h, --help <category>      Get help\n\n\
             This is not the full help.\n";
        let wrk = "Usage: wrk <options> <url>\n  Options:\n    -d, --data    <T>  Duration of test   \n\n    \
             --fail             Fails\n";
        for (text, name) in [(curl, "curl"), (wrk, "wrk")] {
            let help = Help::read(text, &[name]);
            assert_eq!(help.positionals.len(), 1, "{help:?}");
            assert_eq!(help.positionals[0].name, "url");
            assert!(option(&help, "--data").value.is_some());
            assert_eq!(option(&help, "--fail").value, None);
        }
    }

    #[test]
    fn help_as_npm_and_cargo_write_it() {
        let help = Help::read(
            "npm <command>\n\nUsage:\n\nnpm install        install all the dependencies in your project\nnpm <command> -h   quick help on \
             <command>\n\nAll commands:\n\n    access, adduser, audit,\n    ci, help, install-test\n\nSpecify configs in the file:\n    /root/.npmrc\n",
            &["npm"],
        );
        assert_eq!(
            names(&help),
            ["access", "adduser", "audit", "ci", "install-test"]
        );
        let help = Help::read(
            "Install a package\n\nUsage:\nnpm install [<package-spec> ...]\n\nOptions:\n[-S|--save|--no-save]\n[-g|--global] [--install-strategy \
             <hoisted|nested>]\n[-w|--workspace <name> [-w|--workspace <name> ...]]\n\n  -S|--save\n    Save installed packages\n\n  \
             --install-strategy\n    Sets the strategy\n\n  -w|--workspace\n    In one\n\nalias: add\n",
            &["npm", "install"],
        );
        assert_eq!(help.about, "Install a package");
        assert_eq!(option(&help, "--save").value, None);
        assert_eq!(
            option(&help, "--install-strategy").value.as_deref(),
            Some("hoisted|nested")
        );
        assert_eq!(option(&help, "--workspace").value.as_deref(), Some("name"));
        assert_eq!(help.positionals[0].name, "package-spec");
        let help = Help::read(
            "Usage: cargo build [OPTIONS]\n\nOptions:\n  -v, --verbose...  Use verbose output\n  -Z <FLAG>  Unstable\n      --config <KEY=VALUE|PATH>  Override\n",
            &["cargo", "build"],
        );
        assert_eq!(option(&help, "--verbose").value, None);
        assert_eq!(option(&help, "-Z").value.as_deref(), Some("FLAG"));
        assert_eq!(
            option(&help, "--config").value.as_deref(),
            Some("KEY=VALUE|PATH")
        );
        assert_eq!(help.positionals, []);
    }

    #[test]
    fn what_is_no_help_is_nothing_and_hostile_names_are_left_out() {
        for text in [
            "",
            "\u{1b}[",
            "Usage:",
            "\u{8}\u{8}",
            "Commands:\n  $(id)  x\n  ;rm -rf  y\n  --x  z\n",
        ] {
            let help = Help::read(text, &["x"]);
            assert_eq!(
                (&help.commands[..], &help.positionals[..]),
                (&[][..], &[][..]),
                "{text:?}"
            );
        }
        let bold = Help::read("C\u{8}Commands:\n  \u{1b}[1madd\u{1b}[0m  Adds\n", &["x"]);
        assert_eq!(names(&bold), ["add"]);
        let endless = "Commands:\n".to_owned() + &"  a  b\n".repeat(100_000);
        assert!(Help::read(&endless, &["x"]).commands.len() <= ENTRIES_MAX);
    }
}
