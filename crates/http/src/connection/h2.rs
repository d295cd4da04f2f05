//! State that only HTTP/2 connections have.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::AcqRel, Ordering::Relaxed};
use std::task::Context;

use futures_util::task::AtomicWaker;

use super::activity::Event;
use super::{ConnectionState, TimeoutKind};
use crate::limit::{Limit, LimitCounters};
use crate::transport::http::config::HttpLimits;
use crate::transport::http::h2_send_stalls::SendStalls;

/// Bytes that are read from an HTTP/2 connection until others have their turn.
const ROOM: u32 = 32 * 1024;
/// Read budget of an untrusted connection, in bytes, beside the rest of a frame. 16 KiB can open and reset hundreds of
/// streams, which would block the worker. This many bytes hold fewer streams than h2 counts against the connection.
const ROOM_UNTRUSTED: u32 = 512;

/// State of an HTTP/2 connection, as far as code outside h2 needs it.
#[derive(Debug)]
pub(crate) struct H2State {
    /// Bytes that may still be read before other connections run.
    room: AtomicU32,
    /// Set when streams have begun since the last poll of the connection. Reads and writes pause until the next poll.
    begun: AtomicBool,
    /// The limit because of which the connection is let go of.
    restless: OnceLock<Limit>,
    /// Number of streams without a response.
    open: AtomicU32,
    /// Responses in progress.
    pub(crate) send_stalls: SendStalls,
    /// Set when the client must not open further streams.
    retires: AtomicBool,
    /// Second from which the connection is polled unconditionally.
    look_at: AtomicU32,
    /// Waker of the task that drives the connection.
    driver: AtomicWaker,
}

impl Default for H2State {
    fn default() -> Self {
        Self {
            room: AtomicU32::new(0),
            begun: AtomicBool::new(false),
            restless: OnceLock::new(),
            open: AtomicU32::new(0),
            send_stalls: SendStalls::default(),
            retires: AtomicBool::new(false),
            look_at: AtomicU32::new(u32::MAX),
            driver: AtomicWaker::new(),
        }
    }
}

impl H2State {
    /// Returns true if no stream waits for its response and no response waits for its client.
    pub(super) fn are_idle(&self) -> bool {
        self.open.load(Relaxed) == 0 && self.send_stalls.is_empty()
    }

    /// Wakes the connection if its poll is due.
    pub(super) fn look_if_due(&self, now: u32) {
        if self.look_at.load(Relaxed) <= now {
            self.driver.wake();
        }
    }
}

impl ConnectionState {
    /// Overdue state of an HTTP/2 connection. It retires if it is idle or old, and ends only if responses stall.
    pub(super) fn overdue_http2(
        &self,
        now: u32,
        limits: &HttpLimits,
        hits: &LimitCounters,
    ) -> Option<TimeoutKind> {
        let stalls = &self.h2.send_stalls;
        if stalls.stall_since(now, limits.write_stall_seconds) {
            return Some(TimeoutKind::Write);
        }
        let idle = self.idle_for().is_some_and(|age| limits.idle_seconds < age);
        if let Some(limit) = self.is_old(now) {
            self.retire(hits, limit);
        } else if idle {
            self.retire(hits, Some(Limit::IdleSeconds));
        }
        self.h2.look_if_due(now);
        None
    }

    /// Stops new streams on the connection; open streams run to completion.
    pub(crate) fn retire(&self, hits: &LimitCounters, limit: Option<Limit>) {
        if !self.h2.retires.swap(true, Relaxed) {
            if let Some(limit) = limit {
                hits.count(limit);
            }
            self.h2.driver.wake();
        }
    }

    /// Returns true if [`retire`](Self::retire) was called. Otherwise registers `cx` to be woken on that call.
    #[inline]
    pub(crate) fn retires(&self, cx: &Context<'_>) -> bool {
        self.h2.driver.register(cx.waker());
        self.h2.retires.load(Relaxed)
    }

    /// Schedules a poll at the given second, or soon after it.
    pub(crate) fn look_again_at(&self, second: u32) {
        self.h2.look_at.store(second, Relaxed);
    }

    /// Marks the connection as exceeding its rate of stream resets or of frames without payload.
    pub(crate) fn is_too_restless(&self, limit: Limit) {
        let _ = self.h2.restless.set(limit);
    }

    /// The limit because of which the connection is let go of, if it is.
    pub(crate) fn restless_for(&self) -> Option<Limit> {
        self.h2.restless.get().copied()
    }

    /// Returns true if [`is_too_restless`](Self::is_too_restless) was called.
    #[inline]
    pub(crate) fn is_restless(&self) -> bool {
        self.h2.restless.get().is_some()
    }

    /// Starts a poll of the connection and refills its read budget.
    #[inline]
    pub(crate) fn begin_look(&self) {
        let room = match self.is_trusted() {
            true => ROOM,
            false => ROOM_UNTRUSTED,
        };
        self.h2.room.store(room, Relaxed);
    }

    /// Returns the rest of the read budget in bytes.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.h2.room.load(Relaxed)
    }

    /// Subtracts the bytes read from the budget.
    #[inline]
    pub(crate) fn takes_room(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.h2
            .room
            .store(self.room().saturating_sub(bytes), Relaxed);
    }

    /// Records that streams begin. Reads and writes pause until the next poll of the connection.
    #[inline]
    pub(crate) fn hold_back(&self) {
        self.h2.begun.store(true, Relaxed);
    }

    /// Returns true if a stream has begun since the last call, which requires another poll of the connection.
    #[inline]
    pub(crate) fn take_begun(&self) -> bool {
        // Fast path: mostly no data was read.
        self.holds_back() && self.h2.begun.swap(false, AcqRel)
    }

    /// Returns true if the socket must wait for the next poll of the connection. Called by the connection's own worker
    /// only.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.h2.begun.load(Relaxed)
    }

    /// Thread-safe variant of `holds_back`, for any thread that has changed state the connection must see.
    #[inline]
    pub(crate) fn is_looked_at_again(&self) -> bool {
        // A plain load would not synchronize `take_begun` with earlier writes.
        self.h2.begun.fetch_or(false, AcqRel)
    }

    /// Counts an HTTP/2 stream until [`close_stream`](Self::close_stream). Returns true if the request is one.
    #[inline]
    pub(crate) fn open_stream(&self) -> bool {
        let is_stream = self.is_http2();
        if is_stream {
            self.h2.open.store(self.h2.open.load(Relaxed) + 1, Relaxed);
        }
        is_stream
    }

    /// Records that an HTTP/2 stream has its response or was abandoned.
    #[inline]
    pub(crate) fn close_stream(&self) {
        let open = self.h2.open.load(Relaxed);
        self.h2.open.store(open.saturating_sub(1), Relaxed);
        self.apply(Event::Http2StreamDone);
    }
}
