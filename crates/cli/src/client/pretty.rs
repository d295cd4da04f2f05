//! JSON with line breaks and indentation, with all digits of its numbers.

use serde_json::Value;

use crate::telemetry::legible_json;

/// Formats valid JSON. Escapes that are not needed are resolved, and characters that could control a terminal are escaped.
pub(super) fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 4);
    let mut depth = 0;
    let mut rest = json.trim_start();
    while let Some(first) = rest.chars().next() {
        let token = token(rest);
        rest = rest[token.len()..].trim_start();
        match first {
            '{' | '[' => {
                out.push(first);
                if rest.starts_with(['}', ']']) {
                    out.push_str(&rest[..1]);
                    rest = rest[1..].trim_start();
                } else {
                    depth += 1;
                    break_line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                break_line(&mut out, depth);
                out.push(first);
            }
            ',' => {
                out.push(first);
                break_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            '"' => match serde_json::from_str::<Value>(token) {
                Ok(text) => out.push_str(&legible_json(&text.to_string())),
                Err(_) => out.push_str(&legible_json(token)),
            },
            _ => out.push_str(token),
        }
    }
    out
}

fn break_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Returns the token at the beginning of a text.
fn token(text: &str) -> &str {
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | ':' | '}' | ']');
    let mut is_escaped = false;
    let length = match text.as_bytes().first() {
        Some(b'"') => text[1..]
            .find(|c: char| {
                let ends = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                ends
            })
            .map(|at| at + 2),
        Some(b'{' | b'}' | b'[' | b']' | b',' | b':') => Some(1),
        _ => text.find(is_end),
    };
    &text[..length.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_formatted_as_serde_json_does() {
        for json in [
            "{}",
            " [ ] ",
            r#"{"a":[],"b":{},"c":[1,-2.5e+30,true,null,["x"]]}"#,
            r#"["a\"],{:","\\","\\\"", "\u00e9\n\u0007","ü,"]"#,
            "\"text\"",
            "7",
        ] {
            let value: Value = serde_json::from_str(json).expect(json);
            assert_eq!(pretty(json), format!("{value:#}"), "{json}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        assert_eq!(
            pretty(r#"{"a":20000000000000000001,"b":[1.50]}"#),
            "{\n  \"a\": 20000000000000000001,\n  \"b\": [\n    1.50\n  ]\n}"
        );
    }
}
