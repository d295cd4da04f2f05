//! Framing checks on the bytes of an HTTP/1 connection, for facts that hyper does not report.
//!
//! A head with both `Content-Length` and `Transfer-Encoding` is ambiguous, and a proxy may read it in the other way:
//! request smuggling. hyper uses the chunks and drops the length, so that code behind it cannot detect the conflict.
//! This module inspects the bytes before hyper does. It corrupts the second of the two fields, and hyper rejects the
//! head in order, like any malformed one. The same applies to header lines that end with a bare line feed, which
//! parsers interpret differently.
//!
//! Heads are parsed by line ([`lines`]), and only the two fields that frame the body are read ([`fields`]). Bodies are
//! followed to the last byte ([`chunks`]), since the next head starts there, even if pipelined. This also detects that
//! part of a next request arrived with the last one.
//!
//! A head identical to the last one is not parsed again ([`known`]), and the service reuses its earlier results.

mod chunks;
mod fields;
mod known_heads;
mod lines;
mod lookbehind;
#[cfg(test)]
mod tests;

use chunks::Chunks;
use fields::Framing;
use known_heads::KnownHeads;
use lookbehind::Lookbehind;

/// Framing checker for the incoming bytes of one connection.
#[derive(Debug, Default)]
pub(crate) struct FramingGuard {
    /// Number of bytes before the current buffer.
    read: u64,
    /// End offset of the latest request, if its length is known.
    end: Option<u64>,
    /// Offset up to which the bytes are body only and need no inspection.
    body_end: u64,
    /// The chunks of a body that has begun and not ended.
    chunks: Option<Chunks>,
    /// Set after a request whose end could not be found. Bodies and heads can no longer be told apart, so all bytes are
    /// inspected.
    lost: bool,
    /// Incomplete head that contains one of the two fields.
    head: Option<Framing>,
    tail: Lookbehind,
    known: KnownHeads,
}

/// Result of comparing a head with the remembered one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HeadMatch {
    /// No information.
    Unknown,
    /// The head is remembered for later comparison.
    New,
    /// Identical to the remembered head, except for the length of its body.
    Same,
}

/// Position of the bytes within a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BytePosition {
    /// A head begins with them.
    Beginning,
    /// Continuation of a head.
    Head,
    /// Part of a body; the bytes after the body are not yet classified.
    Body,
}

impl FramingGuard {
    /// Inspects the bytes of a read before any other consumer. Returns the comparison with the remembered head for
    /// bytes that begin a later head of the connection.
    #[inline]
    pub fn inspect(&mut self, bytes: &mut [u8], at: BytePosition) -> HeadMatch {
        // Otherwise the head could not be attributed to a request.
        let begins_one = at == BytePosition::Beginning && self.end == Some(self.read) && !self.lost;
        if begins_one && let Some(ends) = self.known.recognise(bytes) {
            let end = self.read + ends.body as u64;
            self.end = Some(end);
            self.body_end = end;
            self.tail.clear();
            self.read += bytes.len() as u64;
            return HeadMatch::Same;
        }
        let begins = self.read;
        self.look_closely(bytes, at);
        if begins_one && self.remember(bytes, begins) {
            HeadMatch::New
        } else {
            HeadMatch::Unknown
        }
    }

    /// Remembers the head at the start of these bytes, if it is complete and no second request follows.
    fn remember(&mut self, bytes: &[u8], begins: u64) -> bool {
        let Some(end) = self.end else {
            return false;
        };
        let is_whole = self.body_end == end && self.read <= end && self.head.is_none();
        is_whole && !self.lost && self.chunks.is_none() && self.known.remember(bytes, end - begins)
    }

    fn look_closely(&mut self, bytes: &mut [u8], at: BytePosition) {
        if at == BytePosition::Beginning {
            self.end = None;
        }
        let from = self.body_left(bytes.len());
        if 0 < from {
            self.tail.clear();
        }
        if from < bytes.len() {
            self.follow(bytes, from, at);
            // No name begins in a body.
            let past = self.body_left(bytes.len());
            if from < past {
                self.tail.clear();
            }
            if past < bytes.len() {
                self.tail.keep(&bytes[from.max(past)..]);
            }
        }
        self.read += bytes.len() as u64;
    }

    /// Returns true if bytes beyond the latest request have arrived.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.end.is_some_and(|end| end < self.read)
    }

    /// Returns true if the body of the latest request is incomplete.
    pub(crate) fn is_short(&self) -> bool {
        self.chunks.is_some() || self.end.is_some_and(|end| self.read < end)
    }

    /// Returns the number of bytes, out of the given count, that belong to a body.
    #[inline]
    fn body_left(&self, of: usize) -> usize {
        let left = self.body_end.saturating_sub(self.read);
        usize::try_from(left).map_or(of, |left| left.min(of))
    }
}
