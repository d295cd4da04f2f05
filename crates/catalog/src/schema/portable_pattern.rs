//! Patterns that clients can compile.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

/// Returns true if clients can compile all patterns of a schema.
///
/// Many clients compile the output schemas of a list with JavaScript's regular expressions in Unicode mode. One pattern
/// that is invalid there makes the whole list unusable to them.
pub(super) fn has_portable_patterns(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().all(|(keyword, value)| {
            match (keyword.as_str(), value) {
                // Values, not schemas.
                ("const" | "enum" | "default" | "examples", Value::Array(_)) => true,
                ("pattern", Value::String(pattern)) => is_portable(pattern),
                ("patternProperties", Value::Object(schemas)) => {
                    schemas.keys().all(|pattern| is_portable(pattern))
                        && schemas.values().all(has_portable_patterns)
                }
                (_, value) => has_portable_patterns(value),
            }
        }),
        Value::Array(items) => items.iter().all(has_portable_patterns),
        _ => true,
    }
}

/// Returns true if a pattern is evidently valid in JavaScript's Unicode mode. The result may be false for a valid pattern.
fn is_portable(pattern: &str) -> bool {
    let mut rest = pattern.chars().peekable();
    let mut class: Option<Class> = None;
    // Groups that are open: true for assertions, which cannot be repeated.
    let mut groups = Vec::new();
    // Of what was read last: whether it can be repeated, and whether it is a repetition.
    let (mut is_atom, mut is_repetition) = (false, false);
    while let Some(c) = rest.next() {
        if let Some(inside) = &mut class {
            match c {
                ']' => class = None,
                '\\' => {
                    let Some(escaped) = rest.next() else {
                        return false;
                    };
                    let mut following = rest.clone();
                    let begins_range =
                        following.next() == Some('-') && following.next() != Some(']');
                    if !inside.escape(escaped, begins_range) {
                        return false;
                    }
                }
                c => inside.next(c == '-'),
            }
            continue;
        }
        let was_repetition = std::mem::take(&mut is_repetition);
        let was_atom = std::mem::replace(&mut is_atom, true);
        match c {
            '\\' => match rest.next() {
                Some('b' | 'B') => is_atom = false,
                Some(escaped) if is_escape(escaped) => {}
                _ => return false,
            },
            '[' => {
                rest.next_if_eq(&'^');
                class = Some(Class::default());
            }
            '(' => {
                let Some(is_assertion) = begins_assertion(&mut rest) else {
                    return false;
                };
                groups.push(is_assertion);
                is_atom = false;
            }
            ')' => match groups.pop() {
                Some(is_assertion) => is_atom = !is_assertion,
                None => return false,
            },
            '?' if was_repetition => is_atom = false,
            '*' | '+' | '?' | '{' => {
                if !was_atom || c == '{' && !reads_bounds(&mut rest) {
                    return false;
                }
                (is_atom, is_repetition) = (false, true);
            }
            '^' | '$' | '|' => is_atom = false,
            ']' | '}' => return false,
            _ => {}
        }
    }
    class.is_none() && groups.is_empty()
}

/// Reads what a group begins with after `(`. `None` if it is not evidently valid.
fn begins_assertion(rest: &mut Peekable<Chars<'_>>) -> Option<bool> {
    if rest.next_if_eq(&'?').is_none() {
        return Some(false);
    }
    match rest.next()? {
        ':' => Some(false),
        '=' | '!' => Some(true),
        '<' => matches!(rest.next()?, '=' | '!').then_some(true),
        _ => None,
    }
}

/// Character class that is being read.
#[derive(Default)]
struct Class {
    has_members: bool,
    /// Set after a hyphen that is not the first member.
    is_range: bool,
}

impl Class {
    fn next(&mut self, is_hyphen: bool) {
        self.is_range = is_hyphen && self.has_members;
        self.has_members = true;
    }

    /// Returns true if an escaped character may stand here. Sets such as `\w` cannot begin or end a range.
    fn escape(&mut self, c: char, begins_range: bool) -> bool {
        let is_set = matches!(c, 'd' | 'D' | 'w' | 'W' | 's' | 'S');
        let is_portable = is_escape(c) || c == '-';
        if is_set && (self.is_range || begins_range) {
            return false;
        }
        self.next(false);
        is_portable
    }
}

/// Returns true for characters that may follow a backslash everywhere.
fn is_escape(c: char) -> bool {
    matches!(
        c,
        'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'n' | 'r' | 't' | 'f' | 'v' | '/'
    ) || r"^$\.*+?()[]{}|".contains(c)
}

/// Reads the bounds of a repetition after `{`.
fn reads_bounds(rest: &mut Peekable<Chars<'_>>) -> bool {
    let mut digits = 0;
    for c in rest.by_ref() {
        match c {
            '0'..='9' => digits += 1,
            ',' if 0 < digits => {}
            '}' => return 0 < digits,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_of_javascript_are_told_from_others() {
        for portable in [
            "",
            "^[a-z0-9-]+$",
            r"^\d{3}-\d{4}$",
            r"^[\w.-]+@[^\s@]+\.(?:com|org){1,2}$",
            r"^(a|b)*?c{2,}?$",
            r"^[-\w]\/\{x\}[\w-]$",
            r"^[\w.!#$%&'*+/=?^`{|}~-]+@[a-z]$",
            r"[\]\-a]",
            r"a\b",
            r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
            r"(?<=a)b(?=c)",
            "é+",
        ] {
            assert!(is_portable(portable), "{portable}");
        }
        for other in [
            r"^\d{3}\-\d{4}$",
            "(?i)abc",
            r"(?<year>\d+)",
            r"\p{Greek}",
            r"^\A\z$",
            r"[\w-.]",
            r"[a-\d]",
            "[[:alpha:]]",
            "[]a]",
            "a]",
            "a}",
            "a{x}",
            "a++",
            "a**",
            "a???",
            "^*",
            r"\_",
            "[a",
            "(a",
            "a)",
            "(?=a)*",
        ] {
            assert!(!is_portable(other), "{other}");
        }
    }

    #[test]
    fn patterns_are_found_wherever_they_are() {
        let with = |pattern: &str| {
            json!({"type": "object", "properties": {"pattern": {"anyOf": [
                {"type": "null"}, {"items": {"pattern": pattern}}
            ]}}})
        };
        assert!(has_portable_patterns(&with("^a$")));
        assert!(!has_portable_patterns(&with("(?i)a")));
        let names = json!({"patternProperties": {"(?i)^x": {}}});
        assert!(!has_portable_patterns(&names));
        let values = json!({"enum": [{"pattern": "(?i)a"}]});
        assert!(has_portable_patterns(&values));
    }
}
