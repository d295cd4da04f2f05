//! YAML.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Location, MessageFormatter as _, Spanned, UserMessageFormatter};

use super::SyntaxError;
use crate::config::value::{Content, Node, Origin};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    // The parser does not accept a document of blanks and comments only.
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        let origin = Origin::File { line: 1, column: 1 };
        return Ok(Node::new(origin, Content::Leaf(Value::Null)));
    }
    // As YAML 1.2 has it: `on` and `no` are words, and so is what begins with a zero.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIASED_MAX,
        },
    };
    serde_saphyr::from_str_with_options::<Spanned<Yaml>>(text, options)
        .map(|tree| node(tree, None))
        .map_err(|error| SyntaxError {
            place: error.location().map(place),
            message: explained(
                UserMessageFormatter
                    .format_message(error.without_snippet())
                    .replace('\n', " "),
            ),
        })
}

/// Parts of messages about a wrong structure, each with its usual cause. The first that fits counts.
const CAUSES: [(&str, &str); 9] = [
    (
        "flow mapping",
        "inside { } and [ ], put quotes around values with braces, as in \"${NAME}\"",
    ),
    (
        "flow sequence",
        "inside { } and [ ], put quotes around values with braces, as in \"${NAME}\"",
    ),
    (
        "expected string scalar",
        "put quotes around text that begins with a brace, as in \"{{ city }}\"",
    ),
    (
        "anchor or alias",
        "put quotes around text that begins with * or &, as in \"*\"",
    ),
    (
        "reference to unknown value",
        "put quotes around text that begins with *, as in \"*\"",
    ),
    (
        "unexpected character",
        "put quotes around text that begins with this character",
    ),
    (
        "mapping values are not allowed",
        "put quotes around text with a colon and a blank, and begin settings that belong together at the same column",
    ),
    (
        "did not find expected",
        "settings that belong together begin at the same column, behind blanks and no tabs",
    ),
    (
        "tabs disallowed",
        "settings that belong together begin at the same column, behind blanks and no tabs",
    ),
];

/// Adds the usual cause to a message about a wrong structure.
fn explained(message: String) -> String {
    let cause = CAUSES.iter().find(|(part, _)| message.contains(part));
    match cause {
        Some((_, cause)) => format!("{message}; {cause}"),
        None => message,
    }
}

/// Values that come of aliases.
const ALIASED_MAX: usize = 10_000;

enum Yaml {
    Leaf(Value),
    List(Vec<Spanned<Yaml>>),
    Table(Vec<(Spanned<String>, Spanned<Yaml>)>),
}

fn place(location: Location) -> (usize, usize) {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    (number(location.line()), number(location.column()))
}

fn node(yaml: Spanned<Yaml>, key: Option<Location>) -> Node {
    let (line, column) = place(key.unwrap_or(yaml.referenced));
    let content = match yaml.value {
        Yaml::Leaf(value) => Content::Leaf(value),
        Yaml::List(items) => {
            Content::List(items.into_iter().map(|item| node(item, None)).collect())
        }
        Yaml::Table(entries) => {
            let entries = entries
                .into_iter()
                .map(|(name, value)| (name.value, node(value, Some(name.referenced))));
            Content::Table(entries.collect())
        }
    };
    Node::new(Origin::File { line, column }, content)
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree)
    }
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting")
    }

    fn visit_bool<E>(self, yes: bool) -> Result<Yaml, E> {
        Ok(Yaml::Leaf(yes.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Yaml, E> {
        Ok(Yaml::Leaf(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Yaml, E> {
        Ok(Yaml::Leaf(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Yaml, E> {
        let number = serde_json::Number::from_f64(number)
            .ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Yaml::Leaf(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Yaml, E> {
        Ok(Yaml::Leaf(text.into()))
    }

    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Leaf(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Yaml, D::Error> {
        Yaml::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Yaml, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Yaml::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Yaml, A::Error> {
        let mut table: Vec<(Spanned<String>, Spanned<Yaml>)> = Vec::new();
        while let Some((name, value)) = entries.next_entry::<Spanned<String>, _>()? {
            if table.iter().any(|(known, _)| known.value == name.value) {
                return Err(A::Error::custom(format_args!(
                    "{:?} is there twice",
                    name.value
                )));
            }
            table.push((name, value));
        }
        Ok(Yaml::Table(table))
    }
}
