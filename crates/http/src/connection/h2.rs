//! State that only HTTP/2 connections have.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

use super::{ConnectionState, Event, TimeoutKind};
use crate::limit::{Limit, LimitCounters};
use crate::transport::http::config::HttpLimits;

/// Bytes that are read from an HTTP/2 connection until others have their turn.
const ROOM: u32 = 32 * 1024;
/// Read budget of an untrusted connection, in bytes, beside the rest of a frame. 16 KiB can open and reset hundreds of
/// streams, which would block the worker. This many bytes hold fewer streams than h2 counts against the connection.
const ROOM_UNTRUSTED: u32 = 512;

/// State of an HTTP/2 connection, as far as code outside h2 needs it.
#[derive(Debug, Default)]
pub(crate) struct H2State {
    /// True once the client's preface is complete.
    has_preface: Cell<bool>,
    /// Bytes that may still be read before other connections run.
    room: Cell<u32>,
    /// The limit because of which the connection is let go of.
    restless: Cell<Option<Limit>>,
    /// Number of streams without a response.
    open: Cell<u32>,
    /// Responses in progress.
    send_stalls: SendStalls,
    /// Set when the client must not open further streams.
    retires: Cell<bool>,
    /// Second from which the connection is polled unconditionally, if there is one.
    look_at: Cell<Option<u32>>,
    /// Waker of the task that drives the connection.
    driver: RefCell<Option<Waker>>,
}

impl H2State {
    /// Returns true if no stream waits for its response and no response waits for its client.
    fn are_idle(&self) -> bool {
        self.open.get() == 0 && self.send_stalls.is_empty()
    }

    /// Wakes the connection if its poll is due.
    pub(super) fn look_if_due(&self, now: u32) {
        if self.look_at.get().is_some_and(|second| second <= now) {
            self.wake_driver();
        }
    }

    fn wake_driver(&self) {
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }
}

impl ConnectionState {
    /// Overdue state of an HTTP/2 connection. It retires if it is idle or old, and ends only if responses stall or the
    /// preface does not arrive.
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
        let idle = self.shared().idle_for(now);
        if !self.has_preface() && idle.is_some_and(|age| limits.header_seconds < age) {
            return Some(TimeoutKind::Head);
        }
        let idle = idle.is_some_and(|age| limits.idle_seconds < age);
        if let Some(limit) = self.is_old(now) {
            self.retire(hits, limit);
        } else if idle {
            self.retire(hits, Some(Limit::IdleSeconds));
        }
        self.h2.look_if_due(now);
        None
    }

    /// Records that the client's preface is complete, which ends its time limit.
    pub(crate) fn preface_is_complete(&self) {
        self.h2.has_preface.set(true);
    }

    /// Returns true if the client may open HTTP/2 streams.
    pub(crate) fn has_preface(&self) -> bool {
        self.h2.has_preface.get()
    }

    /// Stops new streams on the connection; open streams run to completion.
    pub(crate) fn retire(&self, hits: &LimitCounters, limit: Option<Limit>) {
        if !self.h2.retires.replace(true) {
            if let Some(limit) = limit {
                hits.count(limit);
            }
            self.h2.wake_driver();
        }
    }

    /// Returns true if [`retire`](Self::retire) was called. Otherwise registers `cx` to be woken on that call.
    #[inline]
    pub(crate) fn retires(&self, cx: &Context<'_>) -> bool {
        let mut driver = self.h2.driver.borrow_mut();
        match &*driver {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *driver = Some(cx.waker().clone()),
        }
        self.h2.retires.get()
    }

    /// Schedules a poll at the given second, or soon after it.
    pub(crate) fn look_again_at(&self, second: u32) {
        self.h2.look_at.set(Some(second));
    }

    /// Marks the connection as exceeding its rate of stream resets or of frames without payload.
    pub(crate) fn is_too_restless(&self, limit: Limit) {
        self.h2.restless.set(self.h2.restless.get().or(Some(limit)));
    }

    /// The limit because of which the connection is let go of, if it is.
    pub(crate) fn restless_for(&self) -> Option<Limit> {
        self.h2.restless.get()
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
        self.h2.room.set(room);
    }

    /// Returns the rest of the read budget in bytes.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.h2.room.get()
    }

    /// Subtracts the bytes read from the budget.
    #[inline]
    pub(crate) fn takes_room(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.h2.room.set(self.room().saturating_sub(bytes));
    }

    /// Counts a stream until [`close_stream`](Self::close_stream).
    #[inline]
    pub(crate) fn open_stream(&self) {
        self.h2.open.set(self.h2.open.get() + 1);
    }

    /// Records that a stream has its response or was abandoned.
    #[inline]
    pub(crate) fn close_stream(&self) {
        self.h2.open.set(self.h2.open.get().saturating_sub(1));
        self.http2_ends();
    }

    /// Watches a response whose client may read it slowly, until
    /// [`end_slow_response`](Self::end_slow_response). Returns its index.
    pub(crate) fn begin_slow_response(&self) -> usize {
        self.apply(Event::Http2ResponseBegins);
        self.h2.send_stalls.enter(self.now())
    }

    /// Records that a part of a slow response was passed on, and its client has to make room.
    pub(crate) fn slow_response_goes_on(&self, index: usize) {
        self.h2.send_stalls.progress(index, Some(self.now()));
    }

    /// Records that a slow response waits for its handler.
    pub(crate) fn slow_response_waits(&self, index: usize) {
        self.h2.send_stalls.progress(index, None);
    }

    /// Records that a slow response has ended or was abandoned.
    pub(crate) fn end_slow_response(&self, index: usize) {
        self.h2.send_stalls.leave(index);
        self.http2_ends();
    }

    #[inline]
    fn http2_ends(&self) {
        let idle = self.h2.are_idle();
        self.apply(Event::Http2Ends { idle });
    }
}

/// Responses of one connection in progress that a client may read slowly.
///
/// On HTTP/1 a client that does not read stalls its socket, which the sweep detects. Over HTTP/2 it may read the socket
/// but withhold the flow-control window of a stream; the response then waits here. Each large or streamed response
/// records its last progress.
#[derive(Debug, Default)]
struct SendStalls(RefCell<Vec<Sending>>);

#[derive(Clone, Copy, Debug)]
enum Sending {
    Free,
    /// The handler must produce more data.
    Waiting,
    /// The client has to make room; since which second.
    Since(u32),
}

impl SendStalls {
    fn enter(&self, now: u32) -> usize {
        let mut all = self.0.borrow_mut();
        let sending = Sending::Since(now);
        match all.iter().position(|s| matches!(s, Sending::Free)) {
            Some(free) => {
                all[free] = sending;
                free
            }
            None => {
                all.push(sending);
                all.len() - 1
            }
        }
    }

    /// Records the side to wait for: the client since a given second, or the handler.
    fn progress(&self, index: usize, since: Option<u32>) {
        if let Some(sending) = self.0.borrow_mut().get_mut(index) {
            *sending = since.map_or(Sending::Waiting, Sending::Since);
        }
    }

    fn leave(&self, index: usize) {
        let mut all = self.0.borrow_mut();
        if let Some(sending) = all.get_mut(index) {
            *sending = Sending::Free;
        }
        while matches!(all.last(), Some(Sending::Free)) {
            all.pop();
        }
    }

    fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Returns true if a client has read nothing of a response for more than `seconds`.
    fn stall_since(&self, now: u32, seconds: u32) -> bool {
        self.0
            .borrow()
            .iter()
            .any(|s| matches!(s, Sending::Since(since) if seconds < now.saturating_sub(*since)))
    }
}
