//! `${VARIABLE}` in a configuration file.
//!
//! | written | means |
//! |---|---|
//! | `${NAME}` | the variable's value; an error if it is not set |
//! | `${NAME:-text}` | the text, if it is not set or empty |
//! | `${NAME:?message}` | an error with this message, if it is not set or empty |
//! | `$${` | `${` itself |

use crate::environment::Probe;

/// Result of expanding a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expanded {
    /// There was nothing to replace.
    Unchanged,
    /// A text with replaced variables, or with an escaped `$${`.
    Text {
        text: String,
        /// A variable's value is in it.
        substituted: bool,
    },
}

/// Replaces the variables in one text. With `lenient`, one that is not set is empty.
pub(super) fn expand(text: &str, probe: &Probe, lenient: bool) -> Result<Expanded, String> {
    if !text.contains("${") {
        return Ok(Expanded::Unchanged);
    }
    let mut expanded = String::with_capacity(text.len());
    let mut substituted = false;
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        let reference = &reference[2..];
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = reference;
            continue;
        }
        expanded.push_str(before);
        let (reference, after) = reference
            .split_once('}')
            .ok_or_else(|| "`${` has no `}`; write `$${` for a literal `${`".to_owned())?;
        if reference.contains("${") {
            return Err(format!(
                "`${{{reference}}}` has another `${{` in it; they cannot be within one another"
            ));
        }
        expanded.push_str(&value_of(reference, probe, lenient)?);
        substituted = true;
        rest = after;
    }
    expanded.push_str(rest);
    Ok(Expanded::Text {
        text: expanded,
        substituted,
    })
}

fn value_of(reference: &str, probe: &Probe, lenient: bool) -> Result<String, String> {
    let (name, otherwise) = match reference.find(':') {
        Some(at) => (&reference[..at], Some(&reference[at + 1..])),
        None => (reference, None),
    };
    if !is_name(name) {
        return Err(format!(
            "`${{{name}}}` does not name a variable; write `$${{` for the text itself"
        ));
    }
    let otherwise = otherwise.map(|otherwise| {
        (
            otherwise.chars().next(),
            otherwise.get(1..).unwrap_or_default(),
        )
    });
    if let Some((kind, _)) = otherwise
        && !matches!(kind, Some('-' | '?'))
    {
        return Err(match reference.strip_prefix("env:") {
            // As Cursor and VS Code have it.
            Some(variable) if is_name(variable) => {
                format!("`${{{reference}}}` is not supported; write ${{{variable}}}")
            }
            _ => format!(
                "`${{{reference}}}` is not supported; write ${{{name}}}, ${{{name}:-default}} or ${{{name}:?message}}"
            ),
        });
    }
    if let Some(value) = probe.variable(name) {
        return Ok(value.to_owned());
    }
    match otherwise {
        Some((Some('?'), message)) => Err(format!("the variable {name} is not set: {message}")),
        Some((_, text)) => Ok(text.to_owned()),
        None if lenient || probe.is_set(name) => Ok(String::new()),
        None => Err(format!(
            "the variable {name} is not set; set it, or write ${{{name}:-default}}"
        )),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe() -> Probe {
        Probe::of([("NAME", "value"), ("EMPTY", "")])
    }

    fn text(text: &str) -> Expanded {
        Expanded::Text {
            text: text.to_owned(),
            substituted: true,
        }
    }

    #[test]
    fn variables_are_replaced() {
        for (written, expected) in [
            ("${NAME}", "value"),
            ("a ${NAME} b ${NAME}", "a value b value"),
            ("${EMPTY}", ""),
            ("${MISSING:-default}", "default"),
            ("${EMPTY:-default}", "default"),
            ("${NAME:-default}", "value"),
            ("${NAME:?needed}", "value"),
            ("${MISSING:-}", ""),
            ("https://${NAME}:${MISSING:-80}/", "https://value:80/"),
        ] {
            assert_eq!(
                expand(written, &probe(), false),
                Ok(text(expected)),
                "{written}"
            );
        }
    }

    #[test]
    fn what_is_no_reference_stays() {
        for written in ["plain", "$NAME", "costs 5$", "{{ name }}"] {
            assert_eq!(expand(written, &probe(), false), Ok(Expanded::Unchanged));
        }
        assert_eq!(
            expand("a $${NAME}", &probe(), false),
            Ok(Expanded::Text {
                text: "a ${NAME}".to_owned(),
                substituted: false
            })
        );
    }

    #[test]
    fn what_is_missing_is_an_error_that_names_it_unless_leniency_is_asked_for() {
        for (written, part) in [
            ("${MISSING}", "MISSING is not set"),
            ("${MISSING:?see the manual}", "see the manual"),
            ("${NAME", "no `}`"),
            ("${}", "does not name"),
            ("${1}", "does not name"),
            ("${MISSING:+x}", "}` is not supported; write ${"),
            ("${NAME:+x}", "}` is not supported; write ${"),
            ("${env:TOKEN}", "}` is not supported; write ${TOKEN}"),
            ("${MISSING:-${NAME}}", "within one another"),
        ] {
            let message = expand(written, &probe(), false).expect_err("an error");
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(expand("a${MISSING}", &probe(), true), Ok(text("a")));
        assert!(expand("${MISSING:?needed}", &probe(), true).is_err());
    }
}
