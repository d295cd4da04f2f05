//! Patterns that clients can compile.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use super::is_data;

/// Returns true if clients can compile all patterns of a schema.
///
/// Many clients compile the output schemas of a list with JavaScript's regular expressions in Unicode mode. One pattern
/// that is invalid there makes the whole list unusable to them.
pub(super) fn has_portable_patterns(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => {
            members
                .iter()
                .all(|(keyword, value)| match (keyword.as_str(), value) {
                    (keyword, Value::Array(_)) if is_data(keyword) => true,
                    ("pattern", Value::String(pattern)) => is_portable(pattern),
                    ("patternProperties", Value::Object(schemas)) => {
                        schemas.keys().all(|pattern| is_portable(pattern))
                            && schemas.values().all(has_portable_patterns)
                    }
                    (_, value) => has_portable_patterns(value),
                })
        }
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
                c => {
                    if !inside.next(Some(c), c == '-') {
                        return false;
                    }
                }
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
    /// Set after a hyphen that follows a member which can begin a range.
    is_range: bool,
    /// The last member, which can begin a range.
    last: Option<char>,
}

impl Class {
    /// Adds a member; `None` for a set of characters. Returns false if it ends a range that it may not end.
    fn next(&mut self, c: Option<char>, is_hyphen: bool) -> bool {
        let is_in_order = match (self.last, c) {
            (Some(first), Some(last)) if self.is_range => first <= last,
            _ => true,
        };
        let ends_range = self.is_range;
        self.is_range = is_hyphen && self.last.is_some() && !ends_range;
        if !self.is_range {
            self.last = c.filter(|_| !ends_range);
        }
        is_in_order
    }

    /// Returns true if an escaped character may stand here. Sets such as `\w` cannot begin or end a range.
    fn escape(&mut self, c: char, begins_range: bool) -> bool {
        let is_set = matches!(c, 'd' | 'D' | 'w' | 'W' | 's' | 'S');
        let is_portable = is_escape(c) || c == '-';
        if is_set && (self.is_range || begins_range) {
            return false;
        }
        let member = match c {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'f' => '\u{c}',
            'v' => '\u{b}',
            c => c,
        };
        self.next(Some(member).filter(|_| !is_set), false) && is_portable
    }
}

/// Returns true for characters that may follow a backslash everywhere.
fn is_escape(c: char) -> bool {
    matches!(
        c,
        'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'n' | 'r' | 't' | 'f' | 'v' | '/'
    ) || r"^$\.*+?()[]{}|".contains(c)
}

/// Reads the bounds of a repetition after `{`: `2}`, `2,}` or `2,3}`, in order.
fn reads_bounds(rest: &mut Peekable<Chars<'_>>) -> bool {
    let mut bounds = String::new();
    loop {
        match rest.next() {
            Some('}') => break,
            Some(c) => bounds.push(c),
            None => return false,
        }
    }
    let (least, most) = bounds.split_once(',').unwrap_or((&bounds, ""));
    let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
    if least.is_empty() || !is_number(least) || !is_number(most) {
        return false;
    }
    match (least.parse::<u32>(), most.parse::<u32>()) {
        (Ok(least), Ok(most)) => least <= most,
        (least, _) => least.is_ok() && most.is_empty(),
    }
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
            r"[!-/:-@\[-`a-z-9][\t-\r][--/]",
            "a{0}b{2,}c{3,3}",
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
            "a{1,2,3}",
            "a{2,1}",
            "a{,1}",
            "a{1",
            "a{99999999999}",
            "[z-a]",
            r"[a-\t]",
            "[0-9b-a]",
            "[a-z--!]",
            "[a-z-9-0]",
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
