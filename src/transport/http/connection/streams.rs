//! What a connection of HTTP/2 is doing beyond what all do.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use std::task::Context;

use futures_util::task::AtomicWaker;

use super::{ConnectionState, Phase};
use crate::limit::{Hits, Limit};
use crate::transport::http::sending::Sendings;

/// Bytes that are read from an HTTP/2 connection until others have their turn.
const ROOM: u32 = 32 * 1024;
/// The same of one that is not trusted, beside the rest of a frame: into 16 KiB go hundreds of streams that are opened and
/// taken back, and nobody else is served until all have been looked at. Into these go fewer than h2 counts against it.
const ROOM_UNTRUSTED: u32 = 512;

/// The streams of one connection, as far as anybody but h2 has to know of them.
#[derive(Debug)]
pub(crate) struct Streams {
    /// How many bytes may still be read until others had their turn.
    room: AtomicU32,
    /// Streams have begun since the connection was looked at, and nothing is read or written until it is once more.
    begun: AtomicBool,
    /// The limit because of which the connection is let go of.
    restless: OnceLock<Limit>,
    /// How many have no answer yet.
    open: AtomicU32,
    /// Answers that are on their way.
    pub(crate) sendings: Sendings,
    /// The client is told to open no further ones.
    retires: AtomicBool,
    /// The second from which on the connection is looked at, whatever comes.
    look_at: AtomicU32,
    /// Whoever drives it.
    driver: AtomicWaker,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            room: AtomicU32::new(0),
            begun: AtomicBool::new(false),
            restless: OnceLock::new(),
            open: AtomicU32::new(0),
            sendings: Sendings::default(),
            retires: AtomicBool::new(false),
            look_at: AtomicU32::new(u32::MAX),
            driver: AtomicWaker::new(),
        }
    }
}

impl Streams {
    /// Whether none waits for its answer, and none for its client to take it.
    pub(super) fn are_idle(&self) -> bool {
        self.open.load(Relaxed) == 0 && self.sendings.is_empty()
    }

    /// A stream has begun.
    #[inline]
    pub(super) fn begin(&self) {
        self.begun.store(true, Relaxed);
    }

    /// Has the connection looked at, if it is time.
    pub(super) fn look_if_due(&self, now: u32) {
        if self.look_at.load(Relaxed) <= now {
            self.driver.wake();
        }
    }
}

impl ConnectionState {
    /// Has the client told to open no further streams; those that are open come to their end.
    pub(crate) fn retire(&self, hits: &Hits, limit: Option<Limit>) {
        if !self.streams.retires.swap(true, Relaxed) {
            if let Some(limit) = limit {
                hits.count(limit);
            }
            self.streams.driver.wake();
        }
    }

    /// Whether [`retire`](Self::retire) was called. If not, `cx` is woken when it is.
    #[inline]
    pub(crate) fn retires(&self, cx: &Context<'_>) -> bool {
        self.streams.driver.register(cx.waker());
        self.streams.retires.load(Relaxed)
    }

    /// Has it looked at in a second to come, or soon after.
    pub(crate) fn look_again_at(&self, second: u32) {
        self.streams.look_at.store(second, Relaxed);
    }

    /// Streams are taken back too often, or too many frames carry nothing.
    pub(crate) fn is_too_restless(&self, limit: Limit) {
        let _ = self.streams.restless.set(limit);
    }

    /// The limit because of which the connection is let go of, if it is.
    pub(crate) fn restless_for(&self) -> Option<Limit> {
        self.streams.restless.get().copied()
    }

    /// Whether [`is_too_restless`](Self::is_too_restless) was called.
    #[inline]
    pub(crate) fn is_restless(&self) -> bool {
        self.streams.restless.get().is_some()
    }

    /// The connection is looked at, and may be read from for a while.
    #[inline]
    pub(crate) fn begin_look(&self) {
        let room = match self.is_trusted() {
            true => ROOM,
            false => ROOM_UNTRUSTED,
        };
        self.streams.room.store(room, Relaxed);
    }

    /// How many bytes may be read now.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.streams.room.load(Relaxed)
    }

    /// So many were read.
    #[inline]
    pub(crate) fn takes_room(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.streams
            .room
            .store(self.room().saturating_sub(bytes), Relaxed);
    }

    /// Whether a stream has begun since this was asked last, so that the connection is to be looked at once more.
    #[inline]
    pub(crate) fn take_begun(&self) -> bool {
        // Mostly it is asked when nothing was read.
        self.holds_back() && self.streams.begun.swap(false, AcqRel)
    }

    /// Whether the socket waits until the connection is looked at once more. Only its own worker asks.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.streams.begun.load(Relaxed)
    }

    /// The same for whoever has done something that the connection has to see: anybody, on any thread.
    #[inline]
    pub(crate) fn is_looked_at_again(&self) -> bool {
        // A mere load would not tell `take_begun` of what was done before.
        self.streams.begun.fetch_or(false, AcqRel)
    }

    /// Counts a stream of HTTP/2 until [`close_stream`](Self::close_stream). Says whether the request is one.
    #[inline]
    pub(crate) fn open_stream(&self) -> bool {
        let is_stream = self.phase() == Phase::Multiplexed;
        if is_stream {
            self.streams
                .open
                .store(self.streams.open.load(Relaxed) + 1, Relaxed);
        }
        is_stream
    }

    /// A stream of HTTP/2 has its answer, or nobody waits for it any more.
    #[inline]
    pub(crate) fn close_stream(&self) {
        let open = self.streams.open.load(Relaxed);
        self.streams.open.store(open.saturating_sub(1), Relaxed);
        self.since.store(self.clock.now(), Relaxed);
    }
}
