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
mod send_stalls;
mod shared;
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
            Phase::Idle if limits.idle_seconds < age => Some(TimeoutKind::Idle),
            Phase::Head if limits.header_seconds < age => Some(TimeoutKind::Head),
            Phase::Body => {
                self.h1.expire_body(age, limits);
                None
            }
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::{Context, Wake, Waker};

    use super::*;

    const PEER: Peer = Peer {
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: None,
    };

    /// A connection, and the seconds that pass.
    struct TimedConnection {
        clock: Arc<WorkerClock>,
        state: ConnectionState,
        limits: HttpLimits,
        hits: LimitCounters,
    }

    impl TimedConnection {
        fn new() -> Self {
            let clock = Arc::new(WorkerClock::default());
            Self {
                state: ConnectionState::new(Arc::clone(&clock), PEER, 1_000),
                clock,
                limits: HttpLimits::default(),
                hits: LimitCounters::new(&crate::telemetry::Metrics::default()),
            }
        }

        fn begin_request(&self) -> bool {
            self.state.begin_request(&self.limits, &self.hits)
        }

        /// Lets seconds pass, and says which of them ended the connection.
        fn ended_after(&self, seconds: u32) -> Option<(u32, TimeoutKind)> {
            (1..=seconds).find_map(|second| {
                self.clock.tick();
                Some((second, self.state.overdue(&self.limits, &self.hits)?))
            })
        }
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn phases_end_at_their_limits_and_at_most_a_second_late() {
        let watched = TimedConnection::new();
        assert_eq!(watched.ended_after(100), Some((76, TimeoutKind::Idle)));
        watched.state.apply(Event::PartOfHead);
        assert_eq!(watched.ended_after(100), Some((11, TimeoutKind::Head)));
        for patient in [Event::TlsHandshake, Event::StreamBegins, Event::StreamEnds] {
            watched.state.apply(patient);
            assert_eq!(watched.ended_after(1_000), None, "{patient:?}");
        }
    }

    #[test]
    fn a_write_that_does_not_go_on_ends_the_connection_and_one_that_does_saves_it() {
        let watched = TimedConnection::new();
        watched.state.apply(Event::TlsHandshake);
        watched.state.has_written(false, false);
        assert_eq!(watched.ended_after(30), None);
        // That it is tried again is no progress.
        watched.state.has_written(false, false);
        assert_eq!(watched.ended_after(2), Some((1, TimeoutKind::Write)));
        watched.state.has_written(true, false);
        assert_eq!(watched.ended_after(100), None);
    }

    #[test]
    fn a_body_is_given_its_time_and_who_reads_it_is_woken_then() {
        let watched = TimedConnection::new();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let cx = Context::from_waker(&waker);
        watched.begin_request();
        watched.state.has_read(100_000, false);
        assert_eq!(watched.state.body_overdue(&cx), None);
        assert_eq!(watched.ended_after(30), None);
        assert_eq!(watched.state.body_overdue(&cx), None);
        assert_eq!(woken.0.load(Relaxed), 0);
        assert_eq!(watched.ended_after(1), None, "its reader can still answer");
        assert_eq!(woken.0.load(Relaxed), 1);
        assert_eq!(watched.state.body_overdue(&cx), Some(Limit::BodySeconds));
    }

    #[test]
    fn a_body_that_trickles_is_given_five_seconds() {
        for (bytes_a_second, ended) in [(1_023, Some(6)), (1_024, None)] {
            let watched = TimedConnection::new();
            let cx = Context::from_waker(Waker::noop());
            watched.begin_request();
            let overdue = (1..=30).find(|second| {
                // What came in the first five seconds counts; here, nothing did.
                if *second > 5 {
                    watched.state.has_read(bytes_a_second, false);
                }
                assert_eq!(watched.ended_after(1), None);
                watched.state.body_overdue(&cx).is_some()
            });
            assert_eq!(overdue, ended, "{bytes_a_second}");
            let limit = ended.map(|_| Limit::BodyRate);
            assert_eq!(watched.state.body_overdue(&cx), limit);
        }
    }

    #[test]
    fn a_request_is_the_last_by_its_number_or_by_the_connections_age() {
        let watched = TimedConnection::new();
        let limits = HttpLimits {
            connection_requests: 3,
            ..HttpLimits::default()
        };
        let last = [(); 3].map(|()| watched.state.begin_request(&limits, &watched.hits));
        assert_eq!(last, [false, false, true]);
        assert_eq!(watched.hits.of(Limit::ConnectionRequests), 1);
        let watched = TimedConnection::new();
        assert!(!watched.begin_request());
        for _ in 0..1_000 {
            watched.clock.tick();
        }
        assert!(watched.begin_request());
        assert_eq!(watched.hits.of(Limit::ConnectionSeconds), 1);
        // Whose memory is needed has hit no limit of its own.
        let watched = TimedConnection::new();
        watched.state.retire_soon();
        assert!(watched.begin_request());
        assert_eq!(watched.hits.of(Limit::ConnectionSeconds), 0);
    }

    #[test]
    fn a_request_goes_through_its_phases() {
        let watched = TimedConnection::new();
        let state = &watched.state;
        state.has_read(10, false);
        assert_eq!(state.phase(), Phase::Head);
        watched.begin_request();
        assert_eq!(state.phase(), Phase::Body);
        state.apply(Event::BodyRead);
        assert_eq!(state.phase(), Phase::Working);
        // The next request may come before the answer was written: it waits.
        state.has_read(10, false);
        assert_eq!(state.phase(), Phase::Working);
        state.apply(Event::WaitsForBytes {
            answered: true,
            in_head: false,
        });
        assert_eq!(state.phase(), Phase::Idle);
        state.has_read(10, false);
        assert_eq!(state.phase(), Phase::Head);
    }

    #[test]
    fn a_pause_begins_with_the_answer_also_where_nobody_asks_for_more() {
        let watched = TimedConnection::new();
        watched.begin_request();
        watched.state.apply(Event::BodyRead);
        // The call takes long; hyper asks for more meanwhile, and there is nothing.
        watched.state.apply(Event::WaitsForBytes {
            answered: false,
            in_head: false,
        });
        assert_eq!(watched.ended_after(1_000), None);
        watched.state.response_is_ready();
        assert_eq!(watched.ended_after(1_000), None, "nothing has been sent");
        watched.state.has_written(true, false);
        assert_eq!(watched.ended_after(100), Some((76, TimeoutKind::Idle)));
    }

    #[test]
    fn part_of_a_head_behind_an_answered_request_has_a_heads_time() {
        let watched = TimedConnection::new();
        watched.state.apply(Event::TlsHandshake);
        watched.state.apply(Event::WaitsForBytes {
            answered: true,
            in_head: true,
        });
        assert_eq!(watched.ended_after(100), Some((11, TimeoutKind::Head)));
    }

    #[test]
    fn http_2_retires_when_idle_or_old_or_after_its_requests_and_not_before() {
        let retires = |state: &ConnectionState| state.retires(&Context::from_waker(Waker::noop()));
        let watched = TimedConnection::new();
        watched.state.apply(Event::Begins { http2: true });
        watched.begin_request();
        assert!(watched.state.open_stream());
        assert_eq!(watched.ended_after(200), None);
        assert!(!retires(&watched.state), "a stream is open");
        watched.state.close_stream();
        watched.ended_after(75);
        assert!(!retires(&watched.state));
        watched.ended_after(1);
        assert!(retires(&watched.state), "idle");
        assert_eq!(watched.hits.of(Limit::IdleSeconds), 1);

        let watched = TimedConnection::new();
        watched.state.apply(Event::Begins { http2: true });
        for _ in 0..999 {
            watched.begin_request();
            watched.ended_after(1);
        }
        assert!(!retires(&watched.state));
        watched.ended_after(1);
        assert!(retires(&watched.state), "old");

        let watched = TimedConnection::new();
        watched.state.apply(Event::Begins { http2: true });
        for _ in 1..watched.limits.connection_requests {
            watched.begin_request();
        }
        assert!(!retires(&watched.state));
        watched.begin_request();
        assert!(retires(&watched.state), "enough requests");
    }

    #[test]
    fn an_answer_over_http_2_that_nobody_takes_ends_the_connection() {
        let watched = TimedConnection::new();
        watched.state.apply(Event::Begins { http2: true });
        let waiting = watched.state.begin_slow_response();
        assert_eq!(watched.ended_after(30), None);
        watched.state.slow_response_goes_on(waiting);
        assert_eq!(watched.ended_after(30), None);
        assert_eq!(watched.ended_after(1), Some((1, TimeoutKind::Write)));
        // Where the answer itself is what is waited for, nothing is overdue.
        watched.state.slow_response_waits(waiting);
        assert_eq!(watched.ended_after(100), None);
        watched.state.end_slow_response(waiting);
    }
}
