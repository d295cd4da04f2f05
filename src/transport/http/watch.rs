//! What the bytes of an HTTP/1 connection say about framing, and hyper does not tell.
//!
//! A head with both `Content-Length` and `Transfer-Encoding` can be read in two ways, and whoever stands in front of
//! this server may have read it in the other one: that is how requests are smuggled. hyper takes the chunks and drops
//! the length, so nobody behind it can see that there was one. Here the bytes are looked at on their way to hyper; the
//! second of the two fields is spoiled, and hyper refuses the head as it refuses any other that is broken, in its turn.
//! So it does where a line of a head ends with a line feed alone, which some take for an end and some do not.
//!
//! Heads are followed from line to line ([`lines`]), and of their fields the two are read that say where the body ends
//! ([`fields`]). Bodies are followed to their end ([`chunks`]), since what comes behind them is a head again, however early
//! it comes. So it is known too whether part of a next request has come along with the last one.
//!
//! A head that says the same as the last one is not looked at again ([`known`]), and those behind are told.

mod chunks;
mod fields;
mod known;
mod lines;
mod tail;
#[cfg(test)]
mod tests;

use chunks::Chunks;
use fields::Framing;
use known::Known;
use tail::Tail;

/// Looks at what comes in on one connection.
#[derive(Debug, Default)]
pub(crate) struct HeadWatch {
    /// How many bytes came before the ones at hand.
    read: u64,
    /// Where the latest request ends, if its length was said.
    end: Option<u64>,
    /// Up to where there is only the body of a request, which need not be looked at.
    body_end: u64,
    /// The chunks of a body that has begun and not ended.
    chunks: Option<Chunks>,
    /// There was a request whose end could not be found: what is a body and what is not is no longer known, and
    /// everything is looked at.
    lost: bool,
    /// A head that has begun, and one of the two fields with it, and whose end has not come.
    head: Option<Framing>,
    tail: Tail,
    known: Known,
}

/// What the bytes of a head have told about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Came {
    /// Nothing.
    Unknown,
    /// It is what others are compared with from now on.
    New,
    /// It says, byte for byte, what the one says that is remembered, but for the length of its body.
    Same,
}

/// Where in a request bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// A head begins with them.
    Beginning,
    /// A head goes on with them.
    Head,
    /// They are of a body; of what comes behind it nothing is known yet.
    Body,
}

impl HeadWatch {
    /// Looks at what was read, before anybody else does. Of a head that begins with it, and is not the first of its
    /// connection, it may be known that it came before.
    #[inline]
    pub(crate) fn look(&mut self, bytes: &mut [u8], at: At) -> Came {
        // Otherwise nobody could say which request it is whose head these bytes have.
        let begins_one = at == At::Beginning && self.end == Some(self.read) && !self.lost;
        if begins_one && let Some(ends) = self.known.recognise(bytes) {
            let end = self.read + ends.body as u64;
            self.end = Some(end);
            self.body_end = end;
            self.tail.clear();
            self.read += bytes.len() as u64;
            return Came::Same;
        }
        let begins = self.read;
        self.look_closely(bytes, at);
        if begins_one && self.remember(bytes, begins) {
            Came::New
        } else {
            Came::Unknown
        }
    }

    /// Remembers the head of the request that these bytes begin with, if all of it is there, and nothing of another one.
    fn remember(&mut self, bytes: &[u8], begins: u64) -> bool {
        let Some(end) = self.end else {
            return false;
        };
        let is_whole = self.body_end == end && self.read <= end && self.head.is_none();
        is_whole && !self.lost && self.chunks.is_none() && self.known.remember(bytes, end - begins)
    }

    fn look_closely(&mut self, bytes: &mut [u8], at: At) {
        if at == At::Beginning {
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

    /// Whether more has come than the latest request.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.end.is_some_and(|end| end < self.read)
    }

    /// Whether the latest request has a body that has not all come.
    pub(crate) fn is_short(&self) -> bool {
        self.chunks.is_some() || self.end.is_some_and(|end| self.read < end)
    }

    /// How many of so many bytes at hand belong to a body.
    #[inline]
    fn body_left(&self, of: usize) -> usize {
        let left = self.body_end.saturating_sub(self.read);
        usize::try_from(left).map_or(of, |left| left.min(of))
    }
}
