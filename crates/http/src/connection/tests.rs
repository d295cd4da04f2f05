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

    /// A connection whose client has sent the preface of HTTP/2.
    fn http_2() -> Self {
        let watched = Self::new();
        watched.state.apply(Event::Begins { http2: true });
        watched.state.preface_is_complete();
        watched
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
fn a_stop_waits_for_the_rest_of_a_head_for_a_moment_only() {
    let watched = TimedConnection::new();
    watched.clock.tick();
    assert!(!watched.state.awaits_head(1), "no byte has arrived");
    watched.state.has_read(1);
    assert!(!watched.state.awaits_head(1));
    watched.clock.tick();
    assert!(watched.state.awaits_head(1));
    watched.state.has_written(false, true);
    assert!(!watched.state.awaits_head(1), "a response waits");
    watched.begin_request();
    assert!(!watched.state.awaits_head(1));
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
    let body_overdue = || watched.state.body_overdue(&cx, 100_000);
    watched.begin_request();
    assert_eq!(body_overdue(), None);
    assert_eq!(watched.ended_after(30), None);
    assert_eq!(body_overdue(), None);
    assert_eq!(woken.0.load(Relaxed), 0);
    assert_eq!(watched.ended_after(1), None, "its reader can still answer");
    assert_eq!(woken.0.load(Relaxed), 1);
    assert_eq!(body_overdue(), Some(Limit::BodySeconds));
}

/// The socket reports them before the request begins.
#[test]
fn bytes_of_a_body_that_arrive_with_the_head_count_for_its_rate() {
    let watched = TimedConnection::new();
    let cx = Context::from_waker(Waker::noop());
    watched.state.has_read(200 + 4 * 1_024);
    watched.begin_request();
    let overdue = (1..=30).find(|_| {
        let overdue = watched.state.body_overdue(&cx, 4 * 1_024);
        assert_eq!(watched.ended_after(1), None);
        overdue.is_some()
    });
    // After five seconds, and four for what has arrived; then the reader is woken.
    assert_eq!(overdue, Some(11));
}

#[test]
fn a_body_has_its_time_after_a_slow_authentication() {
    let watched = TimedConnection::new();
    let cx = Context::from_waker(Waker::noop());
    watched.begin_request();
    assert_eq!(watched.ended_after(40), None);
    watched.state.restart_body();
    assert_eq!(watched.state.body_overdue(&cx, 0), None);
    assert_eq!(watched.ended_after(5), None);
    assert_eq!(watched.state.body_overdue(&cx, 0), None);
    assert_eq!(watched.ended_after(1), None);
    let limit = watched.state.body_overdue(&cx, 0);
    assert_eq!(limit, Some(Limit::BodyRate));
}

#[test]
fn a_body_that_trickles_is_given_five_seconds() {
    for (bytes_a_second, ended) in [(1_023, Some(6)), (1_024, None)] {
        let watched = TimedConnection::new();
        let cx = Context::from_waker(Waker::noop());
        watched.begin_request();
        let mut received = 0;
        let overdue = (1..=30).find(|second| {
            // What came in the first five seconds counts; here, nothing did.
            if *second > 5 {
                received += bytes_a_second;
            }
            watched.state.body_overdue(&cx, received);
            assert_eq!(watched.ended_after(1), None);
            watched.state.body_overdue(&cx, received).is_some()
        });
        assert_eq!(overdue, ended, "{bytes_a_second}");
        let limit = ended.map(|_| Limit::BodyRate);
        assert_eq!(watched.state.body_overdue(&cx, received), limit);
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
    state.has_read(10);
    assert_eq!(state.phase(), Phase::Head);
    watched.begin_request();
    assert_eq!(state.phase(), Phase::Body);
    state.apply(Event::BodyRead);
    assert_eq!(state.phase(), Phase::Working);
    // The next request may come before the answer was written: it waits.
    state.has_read(10);
    assert_eq!(state.phase(), Phase::Working);
    state.response_is_ready();
    assert_eq!(state.phase(), Phase::Writing);
    state.apply(Event::WaitsForBytes { in_head: false });
    assert_eq!(state.phase(), Phase::Idle);
    state.has_read(10);
    assert_eq!(state.phase(), Phase::Head);
}

/// Also where bytes were written since the last read: the response to a request before it, or `100 Continue`.
#[test]
fn a_call_may_take_any_time_behind_another_request_and_in_front_of_one() {
    let watched = TimedConnection::new();
    let state = &watched.state;
    // Two requests in one read.
    state.has_read(1000);
    watched.begin_request();
    state.response_is_ready();
    state.has_written(true, false);
    watched.begin_request();
    state.has_written(true, false);
    state.apply(Event::BodyRead);
    state.apply(Event::WaitsForBytes { in_head: false });
    assert_eq!(state.phase(), Phase::Working);
    assert_eq!(state.shared().idle_for(state.now()), None);
    assert_eq!(watched.ended_after(1_000), None);
    // A third one, in two reads.
    for in_head in [true, false] {
        state.has_read(10);
        state.apply(Event::WaitsForBytes { in_head });
        assert_eq!(watched.ended_after(1_000), None, "{in_head}");
    }
    state.response_is_ready();
    state.has_written(true, false);
    assert_eq!(watched.ended_after(100), Some((76, TimeoutKind::Idle)));
}

#[test]
fn a_response_that_is_read_slowly_is_sent_whole_in_front_of_another_request() {
    let watched = TimedConnection::new();
    let state = &watched.state;
    state.has_read(1000);
    watched.begin_request();
    state.response_is_ready();
    for in_head in [true, false] {
        state.has_written(true, in_head);
        state.has_written(false, in_head);
        state.has_read(10);
        for _ in 0..10 {
            assert_eq!(watched.ended_after(30), None, "{in_head}");
            state.has_written(true, in_head);
            state.has_written(false, in_head);
        }
    }
    state.has_written(true, true);
    assert_eq!(watched.ended_after(100), Some((11, TimeoutKind::Head)));
}

#[test]
fn a_pause_begins_with_the_answer_also_where_nobody_asks_for_more() {
    let watched = TimedConnection::new();
    watched.begin_request();
    watched.state.apply(Event::BodyRead);
    // The call takes long; hyper asks for more meanwhile, and there is nothing.
    let waits = Event::WaitsForBytes { in_head: false };
    watched.state.apply(waits);
    assert_eq!(watched.ended_after(1_000), None);
    watched.state.response_is_ready();
    assert_eq!(watched.ended_after(1_000), None, "nothing has been sent");
    watched.state.has_written(true, false);
    assert_eq!(watched.ended_after(100), Some((76, TimeoutKind::Idle)));
}

#[test]
fn part_of_a_head_behind_an_answered_request_has_a_heads_time() {
    let watched = TimedConnection::new();
    watched.begin_request();
    watched.state.response_is_ready();
    watched.state.apply(Event::WaitsForBytes { in_head: true });
    assert_eq!(watched.ended_after(100), Some((11, TimeoutKind::Head)));
}

#[test]
fn http_2_retires_when_idle_or_old_or_after_its_requests_and_not_before() {
    let retires = |state: &ConnectionState| state.retires(&Context::from_waker(Waker::noop()));
    let watched = TimedConnection::http_2();
    watched.begin_request();
    watched.state.open_stream();
    assert_eq!(watched.ended_after(200), None);
    assert!(!retires(&watched.state), "a stream is open");
    watched.state.close_stream();
    watched.ended_after(75);
    assert!(!retires(&watched.state));
    watched.ended_after(1);
    assert!(retires(&watched.state), "idle");
    assert_eq!(watched.hits.of(Limit::IdleSeconds), 1);

    let watched = TimedConnection::http_2();
    for _ in 0..999 {
        watched.begin_request();
        watched.ended_after(1);
    }
    assert!(!retires(&watched.state));
    watched.ended_after(1);
    assert!(retires(&watched.state), "old");

    let watched = TimedConnection::http_2();
    for _ in 1..watched.limits.connection_requests {
        watched.begin_request();
    }
    assert!(!retires(&watched.state));
    watched.begin_request();
    assert!(retires(&watched.state), "enough requests");
}

#[test]
fn the_preface_of_http_2_has_a_heads_time() {
    let watched = TimedConnection::new();
    watched.state.apply(Event::Begins { http2: true });
    watched.state.has_read(14);
    watched.state.has_written(true, false);
    assert_eq!(watched.ended_after(100), Some((11, TimeoutKind::Head)));
    watched.state.preface_is_complete();
    assert_eq!(watched.ended_after(200), None);
}

#[test]
fn an_answer_over_http_2_that_nobody_takes_ends_the_connection() {
    let watched = TimedConnection::http_2();
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
