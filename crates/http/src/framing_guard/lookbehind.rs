//! Last bytes of the previous read, since a field name may be split across reads.

use super::fields::{Field, NAME_MAX};

/// Buffer with the size of the longest field name.
#[derive(Debug, Default)]
pub(super) struct Lookbehind {
    bytes: [u8; NAME_MAX],
    len: usize,
}

impl Lookbehind {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn last(&self) -> Option<u8> {
        self.as_slice().last().copied()
    }

    /// Clears the buffer at the end of its line or head.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends the bytes that follow.
    #[inline]
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.bytes = *last;
            self.len = NAME_MAX;
            return;
        }
        let kept = self.len.min(NAME_MAX - bytes.len());
        self.bytes.copy_within(self.len - kept..self.len, 0);
        self.bytes[kept..kept + bytes.len()].copy_from_slice(bytes);
        self.len = kept + bytes.len();
    }

    /// The field whose name began in here and ends in these bytes, and where.
    pub(super) fn field(&self, bytes: &[u8]) -> Option<(Field, usize)> {
        let tail = self.as_slice();
        let line = tail.iter().rposition(|b| *b == b'\n')? + 1;
        Field::goes_on(&tail[line..], bytes)
    }
}
