//! Resolution of escapes in strings.

use memchr::memchr;

use super::block::{self, BLOCK};
use super::gather::{Gather, WINDOW};

/// Reads the escape at the beginning of a text; returns the character and the number of bytes.
///
/// # Errors
///
/// A description of the fault.
#[inline(always)]
pub(super) fn escape(text: &[u8]) -> Result<(char, usize), &'static str> {
    match text.get(1).copied().and_then(character_of) {
        Some(character) => Ok((char::from(character), 2)),
        None => escaped_code(text),
    }
}

/// Returns the character of an escape with this letter.
#[inline(always)]
fn character_of(letter: u8) -> Option<u8> {
    let character = CHARACTERS.get(usize::from(letter)).copied();
    character.filter(|character| *character != 0)
}

/// The characters of escapes, by their letters. 0 for others.
const CHARACTERS: [u8; 128] = {
    let mut characters = [0; 128];
    characters[b'"' as usize] = b'"';
    characters[b'\\' as usize] = b'\\';
    characters[b'/' as usize] = b'/';
    characters[b'b' as usize] = 0x08;
    characters[b'f' as usize] = 0x0C;
    characters[b'n' as usize] = b'\n';
    characters[b'r' as usize] = b'\r';
    characters[b't' as usize] = b'\t';
    characters
};

/// Reads `\uXXXX`, or two of them that are one character.
#[inline(never)]
fn escaped_code(text: &[u8]) -> Result<(char, usize), &'static str> {
    let unit = code_unit(text)?;
    if let Some(character) = char::from_u32(unit) {
        return Ok((character, 6));
    }
    let second = text.get(6..).unwrap_or_default();
    if unit < 0xDC00 && second.starts_with(b"\\u") {
        let second = code_unit(second)?;
        if (0xDC00..0xE000).contains(&second) {
            let code = 0x1_0000 + ((unit - 0xD800) << 10) + (second - 0xDC00);
            return char::from_u32(code)
                .map(|character| (character, 12))
                .ok_or(LONE_SURROGATE);
        }
    }
    Err(LONE_SURROGATE)
}

const LONE_SURROGATE: &str = "lone surrogate in a string";

/// Reads `\uXXXX`.
fn code_unit(text: &[u8]) -> Result<u32, &'static str> {
    const UNKNOWN: &str = "unknown escape in a string";
    let Some(b"\\u") = text.get(..2) else {
        return Err(UNKNOWN);
    };
    let digits = text.get(2..).unwrap_or_default();
    let mut unit = 0;
    for digit in digits.iter().take(4) {
        let digit = char::from(*digit).to_digit(16).ok_or(UNKNOWN)?;
        unit = unit << 4 | digit;
    }
    if digits.len() < 4 {
        return Err("unexpected end of a string");
    }
    Ok(unit)
}

/// Returns a string with its escapes resolved, and `None` if an escape means nothing.
pub(super) fn unescape(raw: &str) -> Option<String> {
    let (mut out, mut rest) = if WINDOW <= raw.len() && raw.is_ascii() {
        unescape_blocks(raw)?
    } else {
        (String::with_capacity(raw.len()), raw)
    };
    while let Some(at) = memchr(b'\\', rest.as_bytes()) {
        out.push_str(rest.get(..at)?);
        let (character, len) = escape(rest.as_bytes().get(at..)?).ok()?;
        out.push(character);
        rest = rest.get(at + len..)?;
    }
    out.push_str(rest);
    Some(out)
}

/// Resolves the escapes of an ASCII string except for its end, which is returned, too.
///
/// The result is checked for UTF-8 as a whole, which is quick for ASCII only.
fn unescape_blocks(raw: &str) -> Option<(String, &str)> {
    let mut out = Vec::with_capacity(raw.len());
    let mut gather = Gather::new();
    let mut rest = raw.as_bytes();
    while let Some(window) = rest.first_chunk::<WINDOW>() {
        let block = window.first_chunk::<BLOCK>()?;
        let mut backslashes = block::backslashes(block);
        let mut done = 0;
        while backslashes != 0 {
            let next = backslashes.trailing_zeros() as usize;
            gather.copy(window, done, next);
            done = next + 2;
            match character_of(window[(next + 1) % WINDOW]) {
                Some(character) => gather.push_byte(character),
                None => {
                    let (character, len) = escaped_code(window.get(next..)?).ok()?;
                    gather.push(character);
                    done = next + len;
                }
            }
            backslashes &= block::from(done);
        }
        if done < BLOCK {
            gather.copy(window, done, BLOCK);
            done = BLOCK;
        }
        gather.flush(&mut out);
        rest = rest.get(done..)?;
    }
    let rest = raw.get(raw.len() - rest.len()..)?;
    Some((String::from_utf8(out).ok()?, rest))
}
