//! Errors of settings, in terms of the source that set them.

use std::fmt;
use std::path::Path;

use super::value::{Node, Origin};

/// A setting that does not exist, or cannot have its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Setting, such as `http.port`; empty for the whole configuration.
    pub setting: String,
    /// Position: `longshore.yaml:3:5`, a variable, or a flag.
    pub place: String,
    /// Description of the error and of valid values.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl Diagnostic {
    pub(super) fn new(
        path: &[String],
        origin: &Origin,
        file: Option<&Path>,
        message: impl Into<String>,
    ) -> Self {
        let place = match origin {
            Origin::File { .. } => format!("configuration file {}", origin.describe(file)),
            Origin::Variable { name } => format!("environment variable {name}"),
            Origin::Default | Origin::Detected { .. } => "configuration".to_owned(),
            Origin::Flag { name } => name.clone(),
        };
        Self {
            setting: path.join("."),
            place,
            message: message.into(),
        }
    }

    /// From a refusal of serde's at a path.
    pub(super) fn of_value(
        path: &[String],
        tree: &Node,
        file: Option<&Path>,
        refusal: &str,
        is_secret: bool,
    ) -> Self {
        let node = tree.nearest(path);
        let hides_value = is_secret || node.written.is_some();
        let message = if let Some(unknown) = Unknown::parse(refusal) {
            unknown.explain(path, &node.origin, hides_value)
        } else if let Some(field) = refusal.strip_prefix("missing field ") {
            let owner = match path {
                [] => String::new(),
                _ => format!(" in {}", setting_name(path)),
            };
            format!("{} is missing{owner}", field.trim())
        } else if hides_value {
            format!("{}: {}", setting_name(path), expectation(refusal))
        } else {
            format!("{}: {}", setting_name(path), in_words(refusal))
        };
        Self::new(path, &node.origin, file, message)
    }
}

/// Writes a path as the reference does: `sources[0].name`.
pub(super) fn setting_name(path: &[String]) -> String {
    let mut name = String::new();
    for part in path {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            name.extend(["[", part, "]"]);
        } else {
            name.extend([if name.is_empty() { "" } else { "." }, part]);
        }
    }
    name
}

/// Returns true if an error is about a missing setting.
pub(super) fn is_missing(refusal: &str) -> bool {
    refusal.starts_with("missing field ")
}

/// An unknown name.
struct Unknown<'a> {
    name: &'a str,
    /// True for names of settings, false for values of one.
    is_field: bool,
    known: Vec<&'a str>,
}

impl<'a> Unknown<'a> {
    fn parse(refusal: &'a str) -> Option<Self> {
        let is_field = refusal.starts_with("unknown field ");
        if !is_field && !refusal.starts_with("unknown variant ") {
            return None;
        }
        let mut names = refusal.split('`').skip(1).step_by(2);
        Some(Self {
            name: names.next()?,
            is_field,
            known: names.collect(),
        })
    }

    /// Returns the setting for the servers of VS Code, Codex and Zed, which have another name there.
    fn of_other_products(&self) -> Option<&'a str> {
        let is_theirs = matches!(self.name, "servers" | "mcp_servers" | "context_servers");
        let mut known = self.known.iter().copied();
        known.find(|name| is_theirs && *name == "mcpServers")
    }

    fn explain(&self, path: &[String], origin: &Origin, hides_value: bool) -> String {
        let nearest = self
            .of_other_products()
            .or_else(|| nearest(self.name, &self.known));
        if !self.is_field {
            let there_are = format!("it can be {}", self.known.join(", "));
            let setting = setting_name(path);
            return match nearest {
                _ if hides_value => format!("{setting} cannot have this value; {there_are}"),
                Some(near) => format!(
                    "{setting} cannot be {:?}; did you mean {near}? {there_are}",
                    self.name
                ),
                None => format!("{setting} cannot be {:?}; {there_are}", self.name),
            };
        }
        let parent = path.split_last().map_or(&[][..], |(_, parent)| parent);
        let full = |name: &str| {
            let mut path = parent.to_vec();
            path.push(name.to_owned());
            match origin {
                Origin::Variable { .. } => variable_of(&path.join(".")),
                _ => setting_name(&path),
            }
        };
        // If serde lost the path, only the name is known.
        let unknown = match path.last() {
            Some(last) if last == self.name => setting_name(path),
            _ => format!("{}.{}", setting_name(path), self.name),
        };
        match nearest {
            Some(near) => format!("unknown setting {unknown}; did you mean {}?", full(near)),
            None if self.known.is_empty() => format!("unknown setting {unknown}"),
            None => {
                const SHOWN: usize = 16;
                let mut known = self.known[..self.known.len().min(SHOWN)].join(", ");
                if SHOWN < self.known.len() {
                    known.push_str(" and others");
                }
                match parent {
                    [] => format!("unknown setting {unknown}; the settings here are {known}"),
                    _ => format!(
                        "unknown setting {unknown}; {} has {known}",
                        setting_name(parent)
                    ),
                }
            }
        }
    }
}

/// The name that was probably meant.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    const LIKENESS: f64 = 0.75;
    let name = name.to_lowercase();
    let likeness = |known: &str| {
        let known = known.to_lowercase();
        // A part of the name that is right counts: `timeout` for `call_timeout_seconds`.
        let contained = 3 < name.len() && (known.contains(&name) || name.contains(&known));
        let alike = strsim::jaro_winkler(&name, &known)
            .max(strsim::normalized_damerau_levenshtein(&name, &known));
        if contained { alike.max(0.8) } else { alike }
    };
    known
        .iter()
        .map(|known| (likeness(known), *known))
        .filter(|(likeness, _)| LIKENESS <= *likeness)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

/// The variable for a setting.
pub(super) fn variable_of(setting: &str) -> String {
    format!("LONGSHORE_{}", setting.to_uppercase().replace('.', "__"))
}

/// Replaces type names in a message of serde.
fn in_words(message: &str) -> String {
    // The message omits the value, which can be a secret in place of a table.
    if message.contains("expected struct ") {
        let found = match message.starts_with("invalid type: sequence") {
            true => "a list",
            false => "a single value",
        };
        return format!("{found} was found where a table of settings is expected");
    }
    typed(message)
}

/// Returns the expectation only, because the value can be secret.
fn expectation(message: &str) -> String {
    if message.contains("expected struct ") {
        return in_words(message);
    }
    match message.rsplit_once("expected ") {
        Some((_, expected)) => typed(&format!("expected {expected}")),
        None => "it cannot have this value".to_owned(),
    }
}

fn typed(message: &str) -> String {
    const WORDS: [(&str, &str); 11] = [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected f32", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected a table of settings"),
    ];
    let mut message = WORDS
        .iter()
        .fold(message.to_owned(), |message, (type_name, words)| {
            message.replace(type_name, words)
        });
    if message.ends_with("expected a string") && !message.contains("null") {
        message.push_str("; put it in quotes");
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = [
            "host",
            "port",
            "workers",
            "allowed_hosts",
            "call_timeout_seconds",
        ];
        for (name, near) in [
            ("prot", Some("port")),
            ("hots", Some("host")),
            ("Port", Some("port")),
            ("allowed-hosts", Some("allowed_hosts")),
            ("allowedHosts", Some("allowed_hosts")),
            ("timeout", Some("call_timeout_seconds")),
            ("zebra", None),
        ] {
            assert_eq!(nearest(name, &known), near, "{name}");
        }
    }
}
