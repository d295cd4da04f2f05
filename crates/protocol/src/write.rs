//! JSON text, written straight into the buffer that is sent.

use super::scan::{BLOCK, Gather, WINDOW, block, plain_prefix};

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

/// Appends JSON text on one line. A line break between its tokens would end the message over stdio, and the data of an
/// event.
#[inline]
pub fn push_json(out: &mut Vec<u8>, json: &str) {
    match memchr::memchr2(b'\n', b'\r', json.as_bytes()) {
        None => out.extend_from_slice(json.as_bytes()),
        Some(_) => push_json_lines(out, json),
    }
}

#[cold]
fn push_json_lines(out: &mut Vec<u8>, json: &str) {
    let bytes = json.bytes();
    out.extend(bytes.map(|byte| {
        if matches!(byte, b'\n' | b'\r') {
            b' '
        } else {
            byte
        }
    }));
}

/// Appends a string without quotes.
pub fn push_escaped(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    if WINDOW <= rest.len() {
        rest = push_escaped_blocks(out, rest);
    }
    loop {
        let plain = plain_prefix(rest);
        let (run, tail) = rest.split_at(plain);
        out.extend_from_slice(run);
        let Some((special, tail)) = tail.split_first() else {
            return;
        };
        match short_escape(*special) {
            Some(escape) => out.extend_from_slice(&escape),
            None => push_code(out, *special),
        }
        rest = tail;
    }
}

/// Appends all but the end of a string, and returns its end.
fn push_escaped_blocks<'a>(out: &mut Vec<u8>, mut rest: &'a [u8]) -> &'a [u8] {
    let mut gather = Gather::new();
    while let Some(window) = rest.first_chunk::<WINDOW>() {
        let (block, tail) = rest
            .split_first_chunk::<BLOCK>()
            .unwrap_or((&[0; BLOCK], &[]));
        let mut specials = block::specials(block);
        if specials == 0 {
            out.extend_from_slice(block);
        } else {
            let mut done = 0;
            while specials != 0 {
                let next = specials.trailing_zeros() as usize;
                specials &= specials - 1;
                gather.copy(window, done, next);
                match short_escape(block[next % BLOCK]) {
                    Some(escape) => gather.push_pair(escape),
                    None => {
                        gather.flush(out);
                        push_code(out, block[next % BLOCK]);
                    }
                }
                done = next + 1;
            }
            gather.copy(window, done, BLOCK);
            gather.flush(out);
        }
        rest = tail;
    }
    rest
}

/// The escape of two characters for a character, if it has one.
#[inline(always)]
fn short_escape(special: u8) -> Option<[u8; 2]> {
    const LETTERS: [u8; 128] = {
        let mut letters = [0; 128];
        letters[b'"' as usize] = b'"';
        letters[b'\\' as usize] = b'\\';
        letters[b'\n' as usize] = b'n';
        letters[b'\r' as usize] = b'r';
        letters[b'\t' as usize] = b't';
        letters
    };
    match LETTERS.get(usize::from(special)) {
        Some(&letter) if letter != 0 => Some([b'\\', letter]),
        _ => None,
    }
}

/// Appends the escape of a control character by its code.
#[cold]
fn push_code(out: &mut Vec<u8>, special: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"\\u00");
    out.push(DIGITS[usize::from(special >> 4)]);
    out.push(DIGITS[usize::from(special & 0xf)]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn json_is_written_on_one_line() {
        for (json, expected) in [
            (r#"{"a":"\n\r"}"#, r#"{"a":"\n\r"}"#),
            ("{\r\n  \"a\":\n1\r}", "{    \"a\": 1 }"),
            ("", ""),
        ] {
            let mut out = b"x".to_vec();
            push_json(&mut out, json);
            assert_eq!(out, format!("x{expected}").as_bytes());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in r#"[\x00-\x7f\u{e9}\u{1F600}]{0,120}"#) {
            let mut out = Vec::new();
            push_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).expect("valid JSON"), text);
        }

        #[test]
        fn what_is_written_in_blocks_reads_back(
            pieces in prop::collection::vec("[a-z ]{0,80}|[\"\\\\\\n\\r\\t]{1,90}|[\\x00-\\x1f]{1,3}|\u{e9}{1,40}", 0..20)
        ) {
            let text = pieces.concat();
            let mut out = Vec::new();
            push_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).expect("valid JSON"), text);
        }
    }
}
