//! Connection state, read by the sweep to end slow connections.
//!
//! hyper's own header timer costs 5 to 13 % of throughput, since it is armed for each request. Here the socket
//! ([`super::socket`]) and the requests only report events; [`activity`] has the transitions, and publishes the phase
//! with the second in which it began. Once a second the sweep ([`super::worker`]) checks all connections of a worker.
//!
//! One thread serves a connection and sweeps it, so the state is plain. Other threads see only [`SharedConn`].

mod activity;
mod h1;
mod h2;
mod shared;
#[cfg(test)]
mod tests;
mod trust;

use std::cell::Cell;
use std::sync::Arc;

use self::activity::Activity;
pub(crate) use self::activity::{Event, Phase};
use self::h1::H1State;
use self::h2::H2State;
pub(crate) use self::shared::SharedConn;
pub(crate) use self::trust::QueueState;
use self::trust::Reputation;
use super::config::HttpLimits;
use super::timer::WorkerClock;
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
        self.shared.apply(event, self.clock.now())
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.shared.activity().phase
    }

    /// Returns true if the client takes no bytes of what is being written.
    pub(crate) fn is_stalled(&self) -> bool {
        self.shared.activity().stalled.is_some()
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
        } = self.shared.activity();
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

    /// Records a write: whether bytes were taken, and whether part of a next head has arrived.
    #[inline]
    pub(super) fn has_written(&self, progress: bool, in_head: bool) {
        self.apply(match progress {
            true => Event::Written { in_head },
            false => Event::WriteBlocked,
        });
    }
}
