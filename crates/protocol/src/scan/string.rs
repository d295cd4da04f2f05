//! Strings of JSON, and the search for their end.

use std::borrow::Cow;

use memchr::memchr2;
use multiversion::multiversion;

use super::block::{self, BLOCK};
use super::is_special;
use super::unescape::unescape;

/// A JSON string as it stands in the document, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonString<'a> {
    pub(super) raw: &'a str,
    pub(super) escaped: bool,
}

impl<'a> JsonString<'a> {
    /// Reads a value's text as a string. `None` if it is something else.
    #[inline]
    pub fn of_value(value: &'a str) -> Option<Self> {
        let [b'"', inner @ .., b'"'] = value.as_bytes() else {
            return None;
        };
        Some(Self {
            raw: value.get(1..value.len() - 1)?,
            escaped: inner.contains(&b'\\'),
        })
    }

    /// Passes on the unescaped text, which is nearly always the raw text.
    #[inline]
    pub(crate) fn with_text<R>(self, read: impl FnOnce(&str) -> R) -> R {
        if self.escaped {
            read(&self.unescape())
        } else {
            read(self.raw)
        }
    }

    /// One bit of 64, equal for equal names. A name with escapes gets all bits, since it may equal any.
    #[inline(always)]
    pub(super) fn mark(self) -> u64 {
        if self.escaped {
            return u64::MAX;
        }
        let bytes = self.raw.as_bytes();
        let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
            return 1;
        };
        let sum = bytes.len() as u64 + u64::from(*first) * 5 + u64::from(*last) * 9;
        1 << (sum & 63)
    }

    /// Returns the raw text if it has no escapes.
    #[inline]
    pub fn as_written(self) -> Option<&'a str> {
        (!self.escaped).then_some(self.raw)
    }

    /// Returns the text with escapes resolved.
    #[inline]
    pub(crate) fn unescape(self) -> Cow<'a, str> {
        // The scanner has let only escapes through that mean something.
        self.text().unwrap_or_default()
    }

    /// Returns the text with escapes resolved, and `None` if an escape means nothing.
    ///
    /// That is possible only for strings that were read by [`scanned_string`](super::Scanner::scanned_string), which does not look
    /// at escapes.
    #[inline]
    pub fn text(self) -> Option<Cow<'a, str>> {
        if self.escaped {
            unescape(self.raw).map(Cow::Owned)
        } else {
            Some(Cow::Borrowed(self.raw))
        }
    }
}

/// Returns the number of leading bytes of a string without quote, backslash or control character.
///
/// Eight bytes at a time, and longer runs in blocks.
#[inline(always)]
pub(crate) fn plain_prefix(bytes: &[u8]) -> usize {
    plain_prefix_by(bytes, plain_run)
}

/// Like [`plain_prefix`], for bytes that are known to have no control characters.
#[inline(always)]
pub(super) fn scanned_prefix(bytes: &[u8]) -> usize {
    plain_prefix_by(bytes, |rest| {
        memchr2(b'"', b'\\', rest).unwrap_or(rest.len())
    })
}

/// `run` finds the end of a long string.
#[inline(always)]
fn plain_prefix_by(bytes: &[u8], run: impl FnOnce(&[u8]) -> usize) -> usize {
    let mut at = 0;
    // Most strings of a message end within this loop.
    while at < 32 {
        let Some(word) = bytes[at..].first_chunk::<8>() else {
            return at + plain_tail(&bytes[at..]);
        };
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + run(&bytes[at..])
}

#[inline(never)]
fn plain_run(bytes: &[u8]) -> usize {
    let mut at = plain_blocks(bytes, LONG_BYTES / BLOCK);
    if at == LONG_BYTES {
        at += plain_long_run(&bytes[at..]);
        at += plain_blocks(&bytes[at..], usize::MAX);
    }
    at + plain_words(&bytes[at..])
}

/// Length from which a run is worth the choice of instructions.
const LONG_BYTES: usize = 512;

/// Returns the number of bytes in leading chunks of 1 KiB without quote, backslash or control character, found with the
/// widest instructions that the processor has.
///
/// Smallest values of 64 columns are kept, and looked at once for each chunk: four instructions for each vector instead of
/// seven. Of 64 KiB that takes 0.7 times as long with AVX2 and SSE2, and half as long with AVX-512.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl", "x86_64+avx2"))]
fn plain_long_run(bytes: &[u8]) -> usize {
    let mut at = 0;
    for chunk in bytes.chunks_exact(1024) {
        let mut low = [u8::MAX; BLOCK];
        let mut backslash = [u8::MAX; BLOCK];
        for row in chunk.as_chunks::<BLOCK>().0 {
            for ((low, backslash), byte) in low.iter_mut().zip(&mut backslash).zip(row) {
                *low = (byte ^ block::QUOTE_TO_LIMIT).min(*low);
                *backslash = (byte ^ b'\\').min(*backslash);
            }
        }
        if block::any_special(&low, &backslash) {
            break;
        }
        at += chunk.len();
    }
    at
}

/// Returns the number of bytes in at most `blocks_max` leading blocks, up to the first quote, backslash or control character.
#[inline(always)]
fn plain_blocks(bytes: &[u8], blocks_max: usize) -> usize {
    let mut at = 0;
    for block in bytes.as_chunks::<BLOCK>().0.iter().take(blocks_max) {
        let specials = block::specials(block);
        if specials != 0 {
            return at + specials.trailing_zeros() as usize;
        }
        at += BLOCK;
    }
    at
}

fn plain_words(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = bytes[at..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + plain_tail(&bytes[at..])
}

fn plain_tail(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|b| is_special(*b))
        .unwrap_or(bytes.len())
}

/// Sets the high bit of each byte that [`is_special`]. The subtraction borrows, so bytes above the lowest marked byte
/// may be wrong; the lowest is right.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 0x80;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    (control | zero(word ^ (ONES * b'"' as u64)) | zero(word ^ (ONES * b'\\' as u64))) & HIGH
}
