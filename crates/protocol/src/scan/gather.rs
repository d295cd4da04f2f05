//! A buffer for short pieces of a text.
//!
//! Appending a piece of unknown length to a `Vec` takes a call of `memcpy` and a check for room. Here a constant number of bytes is
//! copied, and the next piece overwrites the excess.

use super::block::BLOCK;

/// Number of bytes from which pieces are copied: a block and the same length after it.
pub(crate) const WINDOW: usize = 2 * BLOCK;

/// A buffer for the pieces of one block, each byte of which becomes two at most.
pub(crate) struct Gather {
    bytes: [u8; WINDOW + BLOCK],
    len: usize,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self {
            bytes: [0; WINDOW + BLOCK],
            len: 0,
        }
    }

    /// Appends a piece of the block at the beginning of a window.
    #[inline(always)]
    pub(crate) fn copy(&mut self, window: &[u8; WINDOW], start: usize, end: usize) {
        const SHORT: usize = 16;
        if end - start <= SHORT {
            self.copy_all::<SHORT>(window, start);
        } else {
            self.copy_all::<BLOCK>(window, start);
        }
        self.len += end - start;
    }

    #[inline(always)]
    fn copy_all<const LENGTH: usize>(&mut self, window: &[u8; WINDOW], start: usize) {
        let from = window.get(start..).and_then(<[u8]>::first_chunk::<LENGTH>);
        let to = self.bytes.get_mut(self.len..);
        let to = to.and_then(<[u8]>::first_chunk_mut::<LENGTH>);
        if let (Some(from), Some(to)) = (from, to) {
            *to = *from;
        }
    }

    /// Appends a byte.
    #[inline(always)]
    pub(crate) fn push_byte(&mut self, byte: u8) {
        if let Some(to) = self.bytes.get_mut(self.len) {
            *to = byte;
        }
        self.len += 1;
    }

    /// Appends two bytes.
    #[inline(always)]
    pub(crate) fn push_pair(&mut self, pair: [u8; 2]) {
        let to = self.bytes.get_mut(self.len..);
        if let Some(to) = to.and_then(<[u8]>::first_chunk_mut::<2>) {
            *to = pair;
        }
        self.len += pair.len();
    }

    /// Appends a character.
    #[inline(always)]
    pub(crate) fn push(&mut self, character: char) {
        if let Some(to) = self.bytes.get_mut(self.len..) {
            self.len += character.encode_utf8(to).len();
        }
    }

    /// Hands everything on, and is empty again.
    #[inline(always)]
    pub(crate) fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes.get(..self.len).unwrap_or_default());
        self.len = 0;
    }
}
