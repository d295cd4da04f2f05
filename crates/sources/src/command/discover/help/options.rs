//! Options and positional arguments of a help text.

use super::{LINES_MAX, Positional, is_word};

/// An option, by its longest name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Flag {
    /// Name with its dashes.
    pub(in super::super) name: String,
    /// Name of its value, if it takes one.
    pub(in super::super) value: Option<String>,
    /// True if the value can be omitted, as in `--color[=WHEN]`.
    pub(in super::super) value_is_optional: bool,
    pub(in super::super) choices: Vec<String>,
    pub(in super::super) about: String,
    pub(in super::super) is_required: bool,
}

/// Returns the options in a usage with the names of their values: `[--jobs <n>]`, `[--filter=<filter>]`.
pub(super) fn values(usage: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for group in usage.split(['[', '(']).take(LINES_MAX) {
        let group = group.trim_end_matches([']', ')', ' ', '.']);
        let Some((names, value)) = group.split_once([' ', '=']) else {
            continue;
        };
        let value = value.trim();
        let is_one = !value.contains(char::is_whitespace) || value.starts_with('<');
        if is_one && is_placeholder(value) {
            found.extend(names.split('|').map(|name| (name.trim(), value)));
        }
    }
    found
}

/// Returns true if a word has the form of a value's name.
fn is_placeholder(word: &str) -> bool {
    word.starts_with(['<', '[', '{', '='])
        || word.contains(|c: char| c.is_ascii_uppercase())
            && !word.contains(|c: char| c.is_lowercase())
}

/// Meaning of a line that begins with a dash.
pub(super) enum Spoken {
    Flag(Flag),
    /// Help and version options, which never become arguments.
    OfItself,
    Unclear,
}

/// Parses a line such as `-n, --max-count=NUM   stops after so many`.
pub(super) fn flag(line: &str) -> Spoken {
    // Python writes `-c cmd : program`.
    let split = line.split_once("  ").or_else(|| line.split_once(" : "));
    let (spec, mut about) = match split {
        Some((spec, about)) => (spec, Some(about.trim().trim_start_matches(": "))),
        None => (line, None),
    };
    let mut flag = Flag::default();
    let mut tokens = tokens(spec);
    // Values can be aligned too: `-d, --duration    <T>  how long`.
    if let Some((value, rest)) = about.and_then(|about| about.split_once("  "))
        && value.starts_with('<')
    {
        tokens.push(value);
        about = Some(rest.trim());
    }
    tokens.retain(|token| *token != ",");
    let mut words = String::new();
    for (position, written) in tokens.iter().enumerate() {
        let token = written.trim_end_matches(',');
        if !token.starts_with('-') {
            let is_last = position + 1 == tokens.len();
            // A lower-case word is a value if another name or a description that is set apart follows, as in
            // `-e script, --expression=script` and `--count int   how many`.
            let is_followed = match is_last {
                true => about.is_some(),
                false => written.ends_with(',') && tokens[position + 1].starts_with('-'),
            };
            if is_placeholder(token) || is_followed {
                if flag.value.is_none() && !flag.name.is_empty() {
                    flag.take_value(token);
                }
                continue;
            }
            words = tokens[position..].join(" ");
            break;
        }
        // Names can be separated by characters that are part of a value in other options.
        let separators: &[char] = match token.contains('=') {
            false => &[',', '|', '/'],
            true => &[],
        };
        for part in token.split(separators) {
            flag.take_name(part);
        }
    }
    let bare = flag.name.trim_start_matches('-');
    // A lone `-h` can also mean hosts or human-readable.
    let tells_of_itself = matches!(bare, "help" | "version" | "usage")
        || matches!(bare, "h" | "?" | "V") && flag.value.is_none();
    if bare.is_empty() {
        // Lines of dashes are decoration, and a lone `--` ends the options.
        let is_drawn = line.chars().all(|c| "-=+| ".contains(c)) || spec.trim() == "--";
        return if is_drawn {
            Spoken::OfItself
        } else {
            Spoken::Unclear
        };
    }
    if tells_of_itself {
        return Spoken::OfItself;
    }
    flag.about = match about {
        Some(about) if words.is_empty() => about.to_owned(),
        Some(about) => format!("{words} {about}"),
        None => words,
    };
    Spoken::Flag(flag)
}

impl Flag {
    /// Adds one of the option's names, with the value that follows it.
    fn take_name(&mut self, part: &str) {
        // The negated form is not needed.
        let part = part.replace("[no-]", "");
        let (name, value) = match part.find(['=', '[', '<']) {
            Some(at) => part.split_at(at),
            None => (&*part, ""),
        };
        // `--verbose...` marks a repeatable option; a single full stop ends a sentence.
        let name = name.trim_end_matches('.');
        let bare = name.trim_start_matches('-');
        if !is_word(bare) || name.len() - bare.len() > 2 {
            return;
        }
        if self.name.len() < name.len() || !self.name.starts_with("--") {
            name.clone_into(&mut self.name);
        }
        if !value.is_empty() {
            self.take_value(value);
        }
    }

    pub(super) fn take_value(&mut self, text: &str) {
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

    /// Reads details from the description that the form of the option does not show.
    pub(super) fn read_about(&mut self) {
        if self.value.is_some() && self.choices.is_empty() {
            self.choices = possible_values(&self.about);
        }
        let lower = self.about.to_lowercase();
        self.is_required = lower.contains("[required]") || lower.contains("(required)");
    }
}

/// Returns the values that a description of clap lists.
pub(super) fn possible_values(about: &str) -> Vec<String> {
    let rest = about.split_once("[possible values: ");
    let values = rest.and_then(|(_, rest)| rest.split_once(']'));
    let values = values.into_iter().flat_map(|(values, _)| values.split(','));
    values.map(|value| value.trim().to_owned()).collect()
}

/// Returns the positional arguments in a usage.
pub(super) fn positionals(usage: &str, words: &[&str]) -> Vec<Positional> {
    let mut found: Vec<Positional> = Vec::new();
    // The separator ends the options, and no value begins with a dash.
    let usage = usage.replace("[--] ", "").replace("[--]", "");
    for (position, token) in tokens(&usage).into_iter().enumerate() {
        let is_optional = token.starts_with('[');
        let bare = token.trim_end_matches('.').trim_matches(['[', ']', ' ']);
        let bare = bare.trim_end_matches(['.', ' ']).trim();
        let name = bare.trim_matches(['<', '>']);
        // This token is the program itself, possibly under another name.
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
            // An example of a path is named like its file.
            None if name.starts_with('/') => name.rsplit('/').next().unwrap_or(name),
            None => name,
        };
        let is_name = name
            .chars()
            .all(|c| c.is_alphanumeric() || "-_. ".contains(c));
        if !is_name || found.iter().any(|other| other.name == name) {
            continue;
        }
        found.push(Positional {
            name: name.to_owned(),
            is_required: !is_optional,
            choices: choices.map(alternatives).unwrap_or_default(),
            about: String::new(),
        });
        if found.len() == 16 {
            break;
        }
    }
    found
}

/// Splits the alternatives of `{a,b}`, or of `{ a | b }` if none of them is a placeholder such as `COMMAND`.
fn alternatives(text: &str) -> Vec<String> {
    if !text.contains('|') {
        return text.split(',').map(str::to_owned).collect();
    }
    let all: Vec<&str> = text.split('|').map(str::trim).collect();
    let is_value = |one: &&str| is_word(one) && **one != one.to_uppercase();
    match all.iter().all(is_value) {
        true => all.into_iter().map(str::to_owned).collect(),
        false => Vec::new(),
    }
}

/// Splits a usage into words. A bracketed part is one word.
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
