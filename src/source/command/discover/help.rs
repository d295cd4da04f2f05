//! What a program's `--help` says, as far as most programs agree on how to say it.

/// What was understood of a help text.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Help {
    /// There was a usage in it.
    pub(super) has_usage: bool,
    /// What the program says that it does.
    pub(super) about: String,
    pub(super) commands: Vec<Command>,
    pub(super) options: Vec<Flag>,
    pub(super) positionals: Vec<Positional>,
}

/// A subcommand.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) name: String,
    pub(super) about: String,
}

/// An option, by its longest name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Flag {
    /// With its dashes.
    pub(super) name: String,
    /// What stands for its value, if it takes one.
    pub(super) value: Option<String>,
    /// Whether the value may be left out, as in `--color[=WHEN]`.
    pub(super) value_is_optional: bool,
    pub(super) choices: Vec<String>,
    pub(super) about: String,
    pub(super) is_required: bool,
}

/// An argument that is known by its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Positional {
    pub(super) name: String,
    pub(super) is_required: bool,
    pub(super) choices: Vec<String>,
}

/// No help that people read is longer.
const LINES_MAX: usize = 5000;
const ENTRIES_MAX: usize = 300;
const ABOUT_CHARACTERS: usize = 400;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Before,
    Usage,
    Commands,
    Options,
    Other,
}

impl Help {
    /// Reads a help text. `words` are the program's name and the subcommands that lead to it.
    pub(super) fn read(text: &str, words: &[&str]) -> Self {
        let text = plain(text);
        let mut help = Self::default();
        let mut section = Section::Before;
        let mut usage = String::new();
        let mut about: Vec<&str> = Vec::new();
        // How far what an entry is about is indented, at least.
        let mut entry: Option<(usize, Last)> = None;
        for line in text.lines().take(LINES_MAX) {
            let trimmed = line.trim();
            let indent = line.len() - line.trim_start().len();
            if trimmed.is_empty() {
                // clap leaves a line between an option and the next, but none within.
                if matches!(section, Section::Usage) {
                    section = Section::Other;
                }
                continue;
            }
            if let Some(rest) = usage_of(trimmed) {
                section = Section::Usage;
                help.has_usage = true;
                if usage.is_empty() {
                    usage.push_str(rest);
                }
                entry = None;
                continue;
            }
            if section == Section::Usage && indent > 0 {
                if usage.is_empty() || !begins_anew(trimmed, words) {
                    usage.push(' ');
                    usage.push_str(trimmed);
                }
                continue;
            }
            if indent == 0 && !trimmed.starts_with('-') {
                section = heading(trimmed, section);
                if matches!(section, Section::Before | Section::Other) && !trimmed.ends_with(':') {
                    about.push(trimmed);
                }
                entry = None;
                continue;
            }
            if trimmed.starts_with('-') && indent <= 12 {
                if let Some(flag) = flag(trimmed)
                    && help.options.len() < ENTRIES_MAX
                {
                    help.options.push(flag);
                    entry = Some((indent, Last::Flag));
                } else {
                    entry = None;
                }
                continue;
            }
            match entry {
                Some((at, last)) if at < indent => {
                    help.continued(last, trimmed);
                    continue;
                }
                _ => {}
            }
            if section == Section::Commands {
                entry = None;
                if let Some(command) = command(trimmed)
                    && help.commands.len() < ENTRIES_MAX
                {
                    help.commands.push(command);
                    entry = Some((indent, Last::Command));
                }
            }
        }
        for flag in &mut help.options {
            flag.read_about();
        }
        help.about = about
            .iter()
            .take(3)
            .copied()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(ABOUT_CHARACTERS)
            .collect();
        help.positionals = positionals(&usage, words);
        // argparse lists them in the usage too.
        if !help.commands.is_empty() {
            help.positionals.clear();
        }
        help
    }

    fn continued(&mut self, last: Last, text: &str) {
        let about = match last {
            Last::Flag => self.options.last_mut().map(|flag| &mut flag.about),
            Last::Command => self.commands.last_mut().map(|command| &mut command.about),
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
}

/// Without what makes letters bold: the sequences of terminals, and letters that are struck twice, as manuals have.
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

/// What stands behind `Usage:`.
fn usage_of(line: &str) -> Option<&str> {
    let (head, rest) = line.split_at_checked(6)?;
    if !head.eq_ignore_ascii_case("usage:") {
        return None;
    }
    Some(rest.trim())
}

/// Whether a further line of a usage is another way to use the program, and not the rest of the first.
fn begins_anew(line: &str, words: &[&str]) -> bool {
    line.starts_with("or:") || line.split_whitespace().next() == words.first().copied()
}

fn heading(line: &str, now: Section) -> Section {
    let lower = line.to_lowercase();
    let named = |word: &str| lower.contains(word);
    if lower.ends_with(':') || !line.contains(' ') || line == line.to_uppercase() {
        return if named("command") || named("positional arguments") {
            Section::Commands
        } else if named("option") || named("flag") {
            Section::Options
        } else {
            Section::Other
        };
    }
    match now {
        // Commands in groups, each below a few words.
        Section::Commands => Section::Commands,
        Section::Before => Section::Before,
        _ => Section::Other,
    }
}

/// `add, a   Adds things`.
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
    // A sentence is none.
    if about.is_empty() && line.contains(' ') || !is_word(name) || name == "help" {
        return None;
    }
    Some(Command {
        name: name.to_owned(),
        about: about.chars().take(ABOUT_CHARACTERS).collect(),
    })
}

/// What may be given to a program as it is: nothing that it could take for an option.
fn is_word(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= 64
        && name.chars().all(is_inner)
}

/// `-n, --max-count=NUM   stops after so many`.
fn flag(line: &str) -> Option<Flag> {
    let (spec, about) = match line.split_once("  ") {
        Some((spec, about)) => (spec, about.trim()),
        None => (line, ""),
    };
    let mut flag = Flag::default();
    let parts = tokens(spec).into_iter().flat_map(|token| {
        // Several names may be written together, values with what is also between names.
        let separators: &[char] = match token.starts_with('-') && !token.contains('=') {
            true => &[',', '|', '/'],
            false => &[],
        };
        token.trim_end_matches(',').split(separators)
    });
    for part in parts {
        if part.starts_with('-') {
            let (name, value) = match part.find(['=', '[', '<']) {
                Some(at) => part.split_at(at),
                None => (part, ""),
            };
            let bare = name.trim_start_matches('-');
            if !is_word(bare) || name.len() - bare.len() > 2 {
                // `--[no-]color`
                continue;
            }
            if flag.name.len() < name.len() || !flag.name.starts_with("--") {
                name.clone_into(&mut flag.name);
            }
            if !value.is_empty() {
                flag.take_value(value);
            }
        } else if flag.value.is_none() && !flag.name.is_empty() {
            flag.take_value(part);
        }
    }
    let bare = flag.name.trim_start_matches('-');
    // A lone `-h` may be about hosts or humans.
    let tells_of_itself = matches!(bare, "help" | "version" | "usage")
        || matches!(bare, "h" | "?" | "V") && flag.value.is_none();
    if bare.is_empty() || tells_of_itself {
        return None;
    }
    about.clone_into(&mut flag.about);
    Some(flag)
}

impl Flag {
    fn take_value(&mut self, text: &str) {
        self.value_is_optional |= text.starts_with('[');
        let bare = text.trim_matches(['=', '[', ']', '<', '>', '.']);
        if let Some(choices) = bare
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        {
            self.choices = choices.split(',').map(str::to_owned).collect();
        }
        if !bare.is_empty() {
            self.value = Some(bare.to_owned());
        }
    }

    /// What its description says that its form does not.
    fn read_about(&mut self) {
        if self.value.is_some()
            && self.choices.is_empty()
            && let Some((_, rest)) = self.about.split_once("[possible values: ")
            && let Some((values, _)) = rest.split_once(']')
        {
            self.choices = values
                .split(',')
                .map(|value| value.trim().to_owned())
                .collect();
        }
        let lower = self.about.to_lowercase();
        self.is_required = lower.contains("[required]") || lower.contains("(required)");
    }
}

/// The arguments in a usage that are known by their place.
fn positionals(usage: &str, words: &[&str]) -> Vec<Positional> {
    let mut found: Vec<Positional> = Vec::new();
    for (position, token) in tokens(usage).into_iter().enumerate() {
        let is_optional = token.starts_with('[');
        let bare = token.trim_end_matches('.').trim_matches(['[', ']']);
        let bare = bare.trim_end_matches('.').trim();
        let name = bare.trim_matches(['<', '>']);
        // The program itself, perhaps by another name.
        if position == 0 || words.contains(&name) || bare.starts_with('-') || bare.is_empty() {
            continue;
        }
        let lower = name.to_lowercase();
        let stands_for_options = ["option", "options", "flags", "global options", "--"];
        if stands_for_options.contains(&lower.as_str()) || is_optional && lower.contains("options")
        {
            continue;
        }
        let choices = name
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let name = match choices {
            Some(_) => "choice",
            None => name,
        };
        let is_name = name
            .chars()
            .all(|c| c.is_alphanumeric() || "-_ ".contains(c));
        if !is_name || found.iter().any(|other| other.name == name) {
            continue;
        }
        found.push(Positional {
            name: name.to_owned(),
            is_required: !is_optional,
            choices: choices
                .map(|choices| choices.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
        });
        if found.len() == 16 {
            break;
        }
    }
    found
}

/// The words of a usage; what stands in brackets is one.
fn tokens(usage: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (at, c) in usage.char_indices() {
        match c {
            '[' | '<' | '{' | '(' => depth += 1,
            ']' | '>' | '}' | ')' => depth = depth.saturating_sub(1),
            c if c.is_whitespace() && depth == 0 => {
                tokens.push(&usage[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    tokens.push(&usage[start..]);
    tokens.retain(|token| !token.is_empty() && !token.starts_with('('));
    tokens
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
            .map(|one| (&*one.name, one.is_required))
            .collect();
        assert_eq!(positionals, [("HARBOUR", true), ("CREW", false)]);
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
