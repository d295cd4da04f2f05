//! JSON text, written straight into the buffer that is sent.

use super::scan::plain_prefix;

/// Appends a string with its quotes, escaped as little as JSON allows.
#[inline]
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_escaped(out, text);
    out.push(b'"');
}

/// Returns true if a string needs no escapes.
#[inline]
pub fn is_plain(text: &str) -> bool {
    plain_prefix(text.as_bytes()) == text.len()
}

/// Appends a string without quotes.
pub fn push_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let plain = plain_prefix(rest);
        let (run, tail) = rest.split_at(plain);
        out.extend_from_slice(run);
        let Some((special, tail)) = tail.split_first() else {
            return;
        };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(DIGITS[usize::from(other >> 4)]);
                out.push(DIGITS[usize::from(other & 0xf)]);
            }
        }
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in r#"[\x00-\x7f\u{e9}\u{1F600}]{0,120}"#) {
            let mut out = Vec::new();
            push_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).expect("valid JSON"), text);
        }
    }
}
