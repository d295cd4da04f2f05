//! Unpaired surrogates in the JSON of other servers.
//!
//! JavaScript and Java hold strings in UTF-16. A server that cuts one inside of a character writes half of it as an escape, which
//! is no character, and the whole document would be rejected.

use std::borrow::Cow;

use memchr::{memchr, memmem};

/// Replaces the escapes of unpaired surrogates (`\ud800`) by that of U+FFFD.
pub fn paired(json: &[u8]) -> Cow<'_, [u8]> {
    let is_surrogate = |at: usize| {
        matches!(json.get(at + 2), Some(b'd' | b'D'))
            && json
                .get(at + 3)
                .is_some_and(|digit| !matches!(digit, b'0'..=b'7'))
    };
    match memmem::find_iter(json, b"\\u").any(is_surrogate) {
        true => replaced(json),
        false => Cow::Borrowed(json),
    }
}

/// Does the same to a text, which can end within an escape.
pub fn paired_text(json: &str) -> Cow<'_, str> {
    match paired(json.as_bytes()) {
        Cow::Borrowed(_) => json.into(),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    }
}

#[cold]
fn replaced(json: &[u8]) -> Cow<'_, [u8]> {
    let mut out = Cow::Borrowed(json);
    let mut at = 0;
    while let Some(found) = json.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        let escape = at + found;
        at = match unit(json, escape) {
            Some(0xd800..=0xdbff) if matches!(unit(json, escape + 6), Some(0xdc00..=0xdfff)) => {
                escape + 12
            }
            Some(0xd800..=0xdfff) => {
                out.to_mut()[escape + 2..escape + 6].copy_from_slice(b"fffd");
                escape + 6
            }
            _ => escape + 2,
        };
    }
    out
}

/// Returns the UTF-16 code unit of an escape.
fn unit(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unpaired_surrogates_are_replaced() {
        for (json, expected) in [
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\ude00b""#, r#""\ufffdb""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\uD83D\n""#, r#""\ufffd\n""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\ud7ff \u00e9""#, r#""\ud7ff \u00e9""#),
            (r#""\ud83"#, r#""\ud83"#),
            (r#"{"a":"x\"#, r#"{"a":"x\"#),
            (
                r#""\\\uDC00\ud83d\uDE00\uD83D""#,
                r#""\\\ufffd\ud83d\uDE00\ufffd""#,
            ),
            (r#""\ud800ü\n""#, r#""\ufffdü\n""#),
            ("", ""),
        ] {
            let found = paired(json.as_bytes());
            assert_eq!(std::str::from_utf8(&found), Ok(expected), "{json}");
            assert_eq!(paired_text(json), expected);
        }
    }
}
