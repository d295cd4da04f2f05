//! Connection state, read by the sweep to end slow connections.
//!
//! hyper's own header timer costs 5 to 13 % of throughput, since it is armed for each request. Here the socket
//! ([`super::socket`]) and the requests only report events; [`shared`] has the transitions, and publishes the phase
//! with the second in which it began. Once a second the sweep ([`super::worker`]) checks all connections of a worker.
//!
//! One thread serves a connection and sweeps it, so the state is plain. Other threads see only [`SharedConn`].

mod h2;
mod shared;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Waker};

use self::h2::H2State;
use self::shared::Activity;
pub(crate) use self::shared::{Event, Phase, SharedConn};
use super::config::HttpLimits;
use super::framing::Findings;
use super::headers::SummaryCache;
use crate::limit::{Limit, LimitCounters};
use crate::net::Peer;

/// State of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    clock: Arc<WorkerClock>,
    shared: Arc<SharedConn>,
    /// Number of requests so far.
    requests: Cell<u32>,
    /// Second from which the connection is closed after its next response.
    retire_at: Cell<u32>,
    trust: Reputation,
    h1: H1State,
    h2: H2State,
}

/// Seconds since a worker started, counted by its sweep.
#[derive(Debug, Default)]
pub(crate) struct WorkerClock {
    seconds: AtomicU32,
}

impl WorkerClock {
    #[inline]
    pub fn now(&self) -> u32 {
        self.seconds.load(Relaxed)
    }

    pub fn tick(&self) -> u32 {
        self.seconds.fetch_add(1, Relaxed) + 1
    }
}

/// Value of [`ConnectionState::retire_at`] that closes the connection after its next response, regardless of its age.
const AT_ONCE: u32 = 0;

/// Reason for which the sweep ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutKind {
    Head,
    Idle,
    Write,
}

impl TimeoutKind {
    /// The limit that was hit.
    pub fn limit(self) -> Limit {
        match self {
            Self::Head => Limit::HeaderSeconds,
            Self::Idle => Limit::IdleSeconds,
            Self::Write => Limit::WriteStallSeconds,
        }
    }
}

impl ConnectionState {
    pub fn new(clock: Arc<WorkerClock>, peer: Peer, retire_at: u32) -> Self {
        Self {
            shared: Arc::new(SharedConn::new(peer, clock.now())),
            clock,
            requests: Cell::new(0),
            retire_at: Cell::new(retire_at),
            trust: Reputation::default(),
            h1: H1State::default(),
            h2: H2State::default(),
        }
    }

    /// The part that other threads may see.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<SharedConn> {
        &self.shared
    }

    /// Applies an event. Returns the phase before it, and the one after it.
    #[inline]
    pub(crate) fn apply(&self, event: Event) -> (Phase, Phase) {
        self.shared.activity.apply(event, self.clock.now())
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.shared.activity.read().phase
    }

    /// Returns true if the client takes no bytes of what is being written.
    pub(crate) fn is_stalled(&self) -> bool {
        self.shared.activity.read().stalled.is_some()
    }

    /// Returns true if the connection speaks HTTP/2.
    #[inline]
    pub(crate) fn is_http2(&self) -> bool {
        self.phase().is_http2()
    }

    /// Closes the connection after its next response, to free its memory.
    pub(crate) fn retire_soon(&self) {
        self.retire_at.set(AT_ONCE);
    }

    /// Returns the applicable limit if the connection exceeds its max age.
    #[inline]
    fn is_old(&self, now: u32) -> Option<Option<Limit>> {
        match self.retire_at.get() {
            AT_ONCE => Some(None),
            at if at <= now => Some(Some(Limit::ConnectionSeconds)),
            _ => None,
        }
    }

    /// The second it is.
    #[inline]
    pub fn now(&self) -> u32 {
        self.clock.now()
    }

    /// Number of the latest request, from 1.
    #[inline]
    pub(super) fn request_number(&self) -> u32 {
        self.requests.get()
    }

    /// Counts a request and starts the timer of its body. Returns true if it is the connection's last.
    #[inline]
    pub(crate) fn begin_request(&self, limits: &HttpLimits, hits: &LimitCounters) -> bool {
        let requests = self.requests.get() + 1;
        self.requests.set(requests);
        let (_, phase) = self.apply(Event::Request);
        if phase.is_http2() {
            if limits.connection_requests <= requests {
                self.retire(hits, Some(Limit::ConnectionRequests));
            }
            return false;
        }
        self.h1.begin_body();
        let limit = match self.is_old(self.clock.now()) {
            Some(limit) => limit,
            None if limits.connection_requests <= requests => Some(Limit::ConnectionRequests),
            None => return false,
        };
        if let Some(limit) = limit {
            hits.count(limit);
        }
        true
    }

    /// Begins the time of the body anew: nothing could read it while its client was authenticated.
    pub(crate) fn restart_body(&self) {
        self.apply(Event::BodyRestarts);
        self.h1.begin_body();
    }

    /// Records that the body was read or abandoned, and that the response is ready.
    #[inline]
    pub(crate) fn response_is_ready(&self) {
        self.apply(Event::BodyRead);
        self.has_answered();
        self.apply(Event::ResponseReady);
    }

    /// Overdue state of the connection, for the sweep. An overdue body is ended by its reader, which can still send a
    /// response.
    pub(crate) fn overdue(&self, limits: &HttpLimits, hits: &LimitCounters) -> Option<TimeoutKind> {
        let now = self.clock.now();
        let Activity {
            phase,
            since,
            stalled,
        } = self.shared.activity.read();
        if stalled.is_some_and(|since| limits.write_stall_seconds < now.saturating_sub(since)) {
            return Some(TimeoutKind::Write);
        }
        let age = now.saturating_sub(since);
        match phase {
            Phase::Body => {
                self.h1.expire_body(age, limits);
                None
            }
            // Part of a response has not been sent, and has its own time limit.
            Phase::Idle | Phase::Head if stalled.is_some() => None,
            Phase::Idle if limits.idle_seconds < age => Some(TimeoutKind::Idle),
            Phase::Head if limits.header_seconds < age => Some(TimeoutKind::Head),
            Phase::Http2 | Phase::Http2Idle => self.overdue_http2(now, limits, hits),
            _ => None,
        }
    }

    /// Returns true if a head has been arriving for some seconds, and nothing else is to be sent.
    pub(crate) fn awaits_head(&self, seconds: u32) -> bool {
        let activity = self.shared.activity.read();
        activity.phase == Phase::Head
            && activity.stalled.is_none()
            && seconds <= self.clock.now().saturating_sub(activity.since)
    }

    /// Records a write: whether bytes were taken, and whether part of a next head has arrived.
    #[inline]
    pub(super) fn has_written(&self, progress: bool, in_head: bool) {
        self.apply(match progress {
            true => Event::Written { in_head },
            false => Event::WriteBlocked,
        });
    }
}

/// State of an HTTP/1 connection beside its phase.
#[derive(Debug, Default)]
struct H1State {
    /// Bytes that arrived of the head, or of the body that is being read.
    received: Cell<u64>,
    /// The limit of time that the body which is being read has exceeded.
    body_expired: Cell<Option<Limit>>,
    body_waker: RefCell<Option<Waker>>,
    /// Summary of the previous head.
    summaries: SummaryCache,
}

impl H1State {
    /// A body begins.
    #[inline]
    fn begin_body(&self) {
        self.received.set(0);
        self.body_expired.set(None);
    }

    /// Lets the reader of a body know if it took too long: it can still send a response.
    fn expire_body(&self, age: u32, limits: &HttpLimits) {
        let too_slow = 5 < age
            && self.received.get() < u64::from(age - 5) * u64::from(limits.body_bytes_per_second);
        let limit = match limits.body_seconds < age {
            true => Limit::BodySeconds,
            false if too_slow => Limit::BodyRate,
            false => return,
        };
        self.body_expired.set(Some(limit));
        if let Some(waker) = &*self.body_waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl ConnectionState {
    /// Bytes that arrived of the head, or of the body that is being read.
    pub(crate) fn received(&self) -> u64 {
        self.h1.received.get()
    }

    /// Cache for the summary of the previous head.
    #[inline]
    pub(crate) fn summaries(&self) -> &SummaryCache {
        &self.h1.summaries
    }

    /// Records bytes that were read. Those of a body are counted by its reader, since some arrive with the head.
    #[inline]
    pub(crate) fn has_read(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let bytes = bytes as u64;
        match self.apply(Event::Read) {
            (Phase::Head, _) => {
                let before = self.h1.received.get();
                self.h1.received.set(before + bytes);
            }
            (_, Phase::Head) => self.h1.received.set(bytes),
            _ => {}
        }
    }

    /// Records what bytes have shown about requests that have not begun.
    #[inline]
    pub(crate) fn notes(&self, findings: Findings) {
        if let Some(repeats) = findings.repeats {
            self.h1.summaries.note(repeats);
        }
        if let Some(request) = findings.ambiguous {
            self.shared().set_ambiguous(request);
        }
    }

    /// Returns true if the current request can be framed in two ways.
    #[inline]
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.shared().is_ambiguous(self.request_number())
    }

    /// The limit that the body that is being read has hit by taking too long, with `received` bytes so far. If none, `cx` is
    /// woken when it does.
    #[inline]
    pub(crate) fn body_overdue(&self, cx: &Context<'_>, received: usize) -> Option<Limit> {
        self.h1.received.set(received as u64);
        if let Some(limit) = self.h1.body_expired.get() {
            return Some(limit);
        }
        let mut waker = self.h1.body_waker.borrow_mut();
        match &*waker {
            // The waker always belongs to the connection's own task.
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
        None
    }
}

/// Queue state of an untrusted connection ([`super::admission`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// Nowhere.
    #[default]
    None,
    /// In line.
    Awaited,
    /// The connection may be polled once.
    Come,
}

/// Maximum credit. It bounds the losses before a connection becomes untrusted, and the gains afterwards.
const CREDIT_MAX: i32 = 64;
/// Cost of a stream reset, in units of one response.
const RESET_COST: i32 = 4;
/// Number of turns after which a connection has mostly sent a response, even over TLS.
const TURNS_NEW: u32 = 8;

/// Credit that a connection has earned and lost by its requests.
#[derive(Debug, Default)]
struct Reputation {
    /// Credit for completed responses; the connection is trusted above zero.
    credit: Cell<i32>,
    /// State in the queue of untrusted connections.
    turn: Cell<QueueState>,
    /// Number of turns so far.
    turns: Cell<u32>,
}

impl ConnectionState {
    /// Returns true if the connection has positive credit from its responses.
    #[inline]
    pub(crate) fn is_trusted(&self) -> bool {
        0 < self.trust.credit.get()
    }

    /// Records a completed response.
    #[inline]
    pub(crate) fn has_answered(&self) {
        let credit = self.trust.credit.get();
        if credit < CREDIT_MAX {
            self.trust.credit.set(credit + 1);
        }
    }

    /// Charges the client for HTTP/2 streams that it has reset, whether or not they had a response. Resets after a fast
    /// response cause the same work.
    pub(crate) fn takes_back(&self, streams: u32) {
        let cost = RESET_COST.saturating_mul(i32::try_from(streams).unwrap_or(i32::MAX));
        let credit = self.trust.credit.get().saturating_sub(cost);
        self.trust.credit.set(credit.max(-CREDIT_MAX));
    }

    pub(crate) fn turn(&self) -> QueueState {
        self.trust.turn.get()
    }

    pub(crate) fn has_turn(&self, turn: QueueState) {
        self.trust.turn.set(turn);
    }

    /// Records one poll of the untrusted connection.
    pub(crate) fn takes_turn(&self) {
        self.has_turn(QueueState::None);
        let turns = self.trust.turns.get();
        self.trust.turns.set(turns.saturating_add(1));
    }

    /// Returns true if the connection has had few turns, too few for a response, and has done no harm.
    pub(crate) fn is_new(&self) -> bool {
        self.trust.turns.get() < TURNS_NEW && 0 <= self.trust.credit.get()
    }
}
