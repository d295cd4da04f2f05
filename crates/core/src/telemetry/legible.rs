//! Escapes characters that mislead readers of a log line.
//!
//! Names and arguments come from clients. Control characters move the cursor of a terminal, and separators begin new
//! lines in some viewers. Bidirectional marks display text in another order than it is stored.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns true for a character that is invisible or changes how text is displayed.
pub fn is_misleading(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Bidirectional marks, embeddings and isolates.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Line and paragraph separators.
            | '\u{2028}' | '\u{2029}'
            // Characters without a width, except those that join others, as in scripts and emoji.
            | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}'
        )
}

/// Escapes misleading characters in a line of JSON. The value does not change.
pub fn legible_json(line: &str) -> Cow<'_, str> {
    // Fast path: the other misleading ASCII characters are escaped in JSON anyway.
    if line.bytes().all(|b| b.is_ascii() && b != 0x7f) {
        return Cow::Borrowed(line);
    }
    let mut legible = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        if is_misleading(c) {
            // All these characters have four digits. Writing to a string does not fail.
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
        for c in "\u{7f}\u{85}\u{9b}\u{61c}\u{200b}\u{200e}\u{2060}\u{2064}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}".chars() {
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
