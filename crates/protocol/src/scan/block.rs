//! Searches in blocks of 64 bytes. A result has one bit for each byte, the lowest for the first.
//!
//! They use vectors of 16 bytes, which all x86-64 and 64-bit ARM processors have. A compiler vectorizes loops only sometimes.

use wide::u8x16;

/// Length of a block.
pub(crate) const BLOCK: usize = 64;

/// Turns the quote into [`LIMIT`], and leaves control characters below it and the rest above it.
pub(super) const QUOTE_TO_LIMIT: u8 = b'"' ^ LIMIT;
const LIMIT: u8 = 0x20;

/// Returns which bytes are quotes, backslashes or control characters.
#[inline(always)]
pub(crate) fn specials(block: &[u8; BLOCK]) -> u64 {
    let limit = u8x16::splat(LIMIT);
    bits(block, |bytes| {
        let moved = bytes ^ u8x16::splat(QUOTE_TO_LIMIT);
        moved.min(limit).simd_eq(moved) | bytes.simd_eq(u8x16::splat(b'\\'))
    })
}

/// Returns true if a byte of one block is at most [`LIMIT`], or one of the other is 0.
#[inline(always)]
pub(super) fn any_special(low: &[u8; BLOCK], zero: &[u8; BLOCK]) -> bool {
    let limit = u8x16::splat(LIMIT);
    let mut any = u8x16::splat(0);
    for (low, zero) in low.as_chunks().0.iter().zip(zero.as_chunks().0) {
        let low = u8x16::new(*low);
        any |= low.min(limit).simd_eq(low) | u8x16::new(*zero).simd_eq(u8x16::splat(0));
    }
    any.to_bitmask() != 0
}

/// Returns which bytes are backslashes.
#[inline(always)]
pub(crate) fn backslashes(block: &[u8; BLOCK]) -> u64 {
    bits(block, |bytes| bytes.simd_eq(u8x16::splat(b'\\')))
}

/// Returns which bytes are quotes.
#[inline(always)]
fn quotes(block: &[u8; BLOCK]) -> u64 {
    bits(block, |bytes| bytes.simd_eq(u8x16::splat(b'"')))
}

#[inline(always)]
fn bits(block: &[u8; BLOCK], holds: impl Fn(u8x16) -> u8x16) -> u64 {
    let mut bits = 0;
    for (part, bytes) in block.as_chunks::<16>().0.iter().enumerate() {
        bits |= u64::from(holds(u8x16::new(*bytes)).to_bitmask()) << (16 * part);
    }
    bits
}

/// Returns the bits from `position` on, or none if it is beyond the last one.
#[inline(always)]
pub(crate) fn from(position: usize) -> u64 {
    if position < BLOCK {
        u64::MAX << position
    } else {
        0
    }
}

/// Searches a valid JSON string for its closing quote, block by block.
///
/// Escaped characters are found by addition, which carries through a run of backslashes: in a run, every second one escapes the
/// next character. Simdjson does the same ("Parsing Gigabytes of JSON per Second", Langdale and Lemire, 2019).
#[derive(Default)]
pub(super) struct ClosingQuote {
    /// The first character of the next block is escaped.
    carry: bool,
}

impl ClosingQuote {
    /// Returns the position of the closing quote in the next block.
    #[inline(always)]
    pub(super) fn find(&mut self, block: &[u8; BLOCK]) -> Option<usize> {
        let quotes = quotes(block) & !self.escaped(backslashes(block));
        (quotes != 0).then(|| quotes.trailing_zeros() as usize)
    }

    /// Returns true if the first character after the blocks is escaped.
    pub(super) fn escapes_next(&self) -> bool {
        self.carry
    }

    #[inline(always)]
    fn escaped(&mut self, backslashes: u64) -> u64 {
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let carry = u64::from(self.carry);
        // An escaped backslash escapes nothing.
        let backslashes = backslashes & !carry;
        let behind = backslashes << 1 | carry;
        // Runs that begin at an odd position leave a single bit in the sum, after their end. Other runs keep their bits.
        let odd_starts = backslashes & !EVEN & !behind;
        let (sum, overflow) = odd_starts.overflowing_add(backslashes);
        self.carry = overflow;
        // In a run that begins at an even position, the odd positions are escaped, and vice versa.
        (EVEN ^ (sum << 1)) & behind
    }
}
