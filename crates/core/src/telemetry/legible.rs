//! Characters that fool whoever reads a line, escaped.
//!
//! Names and arguments are a stranger's text. Control characters move the cursor of a terminal, line and paragraph separators
//! begin a line in some viewers, and marks of direction show a text in another order than it has.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns true if a character is not shown as itself.
pub fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Marks of direction, and what sets and ends a direction.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Separators of lines and paragraphs.
            | '\u{2028}' | '\u{2029}'
            // Nothing to see.
            | '\u{feff}'
        )
}

/// A line of JSON with the escapes that JSON has for such characters. It means the same.
pub fn legible_json(line: &str) -> Cow<'_, str> {
    // All of them are beyond ASCII, but for those that JSON escapes anyway and DEL.
    if line.bytes().all(|b| b.is_ascii() && b != 0x7f) {
        return Cow::Borrowed(line);
    }
    let mut legible = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        if is_misleading(c) {
            // All of them have four digits. Writing to a string does not fail.
            let _ = write!(legible, "\\u{:04x}", u32::from(c));
        } else {
            legible.push(c);
        }
    }
    Cow::Owned(legible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_misleads_is_escaped_and_means_the_same() {
        for c in "\u{7f}\u{85}\u{9b}\u{61c}\u{200e}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}".chars() {
            let text = format!("a{c}b");
            let line = serde_json::json!({ "name": text }).to_string();
            let legible = legible_json(&line);
            assert!(!legible.contains(c) && legible.is_ascii(), "{legible}");
            let read: serde_json::Value = serde_json::from_str(&legible).expect("JSON");
            assert_eq!(read["name"], text);
        }
        let line = r#"{"name":"Žluťoučký kůň, 日本語, 👩‍💻, שלום"}"#;
        assert_eq!(legible_json(line), line);
    }
}
