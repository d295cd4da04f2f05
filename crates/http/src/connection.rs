//! Connection state, read by the sweep to end slow connections.
//!
//! hyper's own header timer costs 5 to 13 % of throughput, since it is armed for each request. Here the socket
//! ([`super::socket`]) only records the current phase and the second in which it began. Once a second the sweep
//! ([`super::sweep`]) checks all connections of a worker.

mod streams;
mod trust;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};

use self::streams::Streams;
pub(crate) use self::trust::QueueState;
use self::trust::Reputation;
use super::config::HttpLimits;
use super::framing::Findings;
use super::head_cache::HeadCache;
use super::timer::WorkerClock;
use crate::auth::{ClientCertificate, CredentialCache};
use crate::limit::{Limit, LimitCounters};
use crate::net::Peer;

/// State of a connection. Only its own worker writes to it, so the atomics are uncontended.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    clock: Arc<WorkerClock>,
    /// Peer address of the socket.
    peer: Peer,
    /// Client certificate from the handshake.
    certificate: OnceLock<ClientCertificate>,
    /// The credential of the latest request, and its principal.
    pub shown: CredentialCache,
    /// Results for the previous head.
    pub(super) head_cache: HeadCache,
    /// Number of the request that can be framed in two ways; 0 for none.
    ambiguous: AtomicU32,
    phase: AtomicU8,
    /// The second in which the phase began.
    since: AtomicU32,
    /// Second in which a write stalled, plus one; 0 while writes progress.
    stalled: AtomicU32,
    /// Bytes that came in since the phase began.
    received: AtomicU64,
    requests: AtomicU32,
    /// Second from which the connection is closed after its next response.
    retire_at: AtomicU32,
    /// The body that is being read took too long: 0 for no, else [`LATE`] or [`TRICKLES`].
    body_expired: AtomicU8,
    body_waker: Mutex<Option<Waker>>,
    /// Set when the server has ended the connection without waiting for its client.
    cut: AtomicBool,
    trust: Reputation,
    /// Over HTTP/2.
    pub streams: Streams,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// No byte of a request has arrived.
    Idle,
    /// A request's head is coming in.
    Head,
    /// Its body is coming in.
    Body,
    /// The response is being produced or sent.
    Answer,
    /// The response is ready and being sent.
    Sending,
    /// The response is a stream and may take any time.
    Stream,
    /// HTTP/2, whose streams have timers of their own.
    Http2,
}

/// Values of [`ConnectionState::body_expired`]: the body exceeds its time limit, or arrives too slowly.
const LATE: u8 = 1;
const TRICKLES: u8 = 2;
/// Value of [`ConnectionState::retire_at`] that closes the connection after its next response, whatever its age.
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
            since: AtomicU32::new(clock.now()),
            clock,
            peer,
            certificate: OnceLock::new(),
            shown: CredentialCache::default(),
            head_cache: HeadCache::default(),
            ambiguous: AtomicU32::new(0),
            phase: AtomicU8::new(Phase::Idle as u8),
            stalled: AtomicU32::new(0),
            received: AtomicU64::new(0),
            requests: AtomicU32::new(0),
            retire_at: AtomicU32::new(retire_at),
            body_expired: AtomicU8::new(0),
            body_waker: Mutex::new(None),
            cut: AtomicBool::new(false),
            trust: Reputation::default(),
            streams: Streams::default(),
        }
    }

    /// Peer address of the socket; behind a proxy, the proxy's.
    #[inline]
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Bytes that came in since the phase began.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Notes what the client has shown in the handshake.
    pub fn shows(&self, certificate: ClientCertificate) {
        let _ = self.certificate.set(certificate);
    }

    /// The certificate that the client has shown in the handshake.
    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.get()
    }

    /// Returns the idle time in seconds, if no request is pending or in progress.
    pub(crate) fn idle_for(&self) -> Option<u32> {
        let idle = match self.phase() {
            Phase::Idle => true,
            Phase::Http2 => self.streams.are_idle(),
            Phase::Head | Phase::Body | Phase::Answer | Phase::Sending | Phase::Stream => false,
        };
        let idle = idle && self.stalled.load(Relaxed) == 0;
        idle.then(|| self.clock.now().saturating_sub(self.since.load(Relaxed)))
    }

    /// Notes that the connection is ended from without.
    pub fn cut(&self) {
        self.cut.store(true, Relaxed);
    }

    /// Returns true if [`cut`](Self::cut) was called.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// Closes the connection after its next response, to free its memory.
    pub(crate) fn retire_soon(&self) {
        self.retire_at.store(AT_ONCE, Relaxed);
    }

    /// Returns the applicable limit if the connection exceeds its max age.
    #[inline]
    fn is_old(&self, now: u32) -> Option<Option<Limit>> {
        match self.retire_at.load(Relaxed) {
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

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Body,
            3 => Phase::Answer,
            4 => Phase::Sending,
            5 => Phase::Stream,
            _ => Phase::Http2,
        }
    }

    #[inline]
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        self.since.store(self.clock.now(), Relaxed);
    }

    /// Counts a request and starts the timer of its body. Returns true if it is the connection's last.
    #[inline]
    pub(crate) fn begin_request(&self, limits: &HttpLimits, hits: &LimitCounters) -> bool {
        let requests = self.requests.load(Relaxed) + 1;
        self.requests.store(requests, Relaxed);
        if self.phase() == Phase::Http2 {
            self.since.store(self.clock.now(), Relaxed);
            self.streams.begin();
            if limits.connection_requests <= requests {
                self.retire(hits, Some(Limit::ConnectionRequests));
            }
            return false;
        }
        self.received.store(0, Relaxed);
        self.enter(Phase::Body);
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

    /// Number of the latest request, from 1.
    #[inline]
    pub(super) fn request_number(&self) -> u32 {
        self.requests.load(Relaxed)
    }

    /// Records what the bytes of a read have shown about requests that have not begun.
    #[inline]
    pub(super) fn notes(&self, findings: Findings) {
        if let Some(repeats) = findings.repeats {
            self.head_cache.note(repeats);
        }
        if let Some(request) = findings.ambiguous {
            self.ambiguous.store(request, Relaxed);
        }
    }

    /// Returns true if the current request can be framed in two ways.
    #[inline]
    pub(super) fn is_ambiguous(&self) -> bool {
        let ambiguous = self.ambiguous.load(Relaxed);
        ambiguous != 0 && ambiguous <= self.request_number()
    }

    /// Records that the body was read or abandoned.
    #[inline]
    pub(crate) fn body_is_read(&self) {
        if self.phase() == Phase::Body {
            self.enter(Phase::Answer);
        }
    }

    /// Records that the response is ready. Once part of it was sent, the connection becomes idle: hyper does not signal
    /// that if it already waits for data.
    #[inline]
    pub(crate) fn answer_is_ready(&self) {
        self.has_answered();
        if self.phase() == Phase::Answer {
            self.phase.store(Phase::Sending as u8, Relaxed);
        }
    }

    /// The limit that the body that is being read has hit by taking too long. If none, `cx` is woken when it does.
    #[inline]
    pub(crate) fn body_overdue(&self, cx: &Context<'_>) -> Option<Limit> {
        match self.body_expired.load(Relaxed) {
            LATE => return Some(Limit::BodySeconds),
            TRICKLES => return Some(Limit::BodyRate),
            _ => {}
        }
        let mut waker = self
            .body_waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*waker {
            // The waker always belongs to the connection's own task.
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
        None
    }

    /// Overdue state of the connection, for the sweep. An overdue body is ended by its reader, which can still send a
    /// response.
    pub(crate) fn overdue(&self, limits: &HttpLimits, hits: &LimitCounters) -> Option<TimeoutKind> {
        let now = self.clock.now();
        let stalled = self.stalled.load(Relaxed);
        if stalled != 0 && limits.write_stall_seconds < now + 1 - stalled.min(now + 1) {
            return Some(TimeoutKind::Write);
        }
        let age = now.saturating_sub(self.since.load(Relaxed));
        match self.phase() {
            Phase::Idle if limits.idle_seconds < age => Some(TimeoutKind::Idle),
            Phase::Head if limits.header_seconds < age => Some(TimeoutKind::Head),
            Phase::Body => {
                let too_slow = 5 < age
                    && self.received.load(Relaxed)
                        < u64::from(age - 5) * u64::from(limits.body_bytes_per_second);
                let is_late = limits.body_seconds < age;
                if is_late || too_slow {
                    let limit = if is_late { LATE } else { TRICKLES };
                    self.body_expired.store(limit, Relaxed);
                    let waker = self
                        .body_waker
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    if let Some(waker) = &*waker {
                        waker.wake_by_ref();
                    }
                }
                None
            }
            Phase::Http2 => {
                if self
                    .streams
                    .send_stalls
                    .stall_since(now, limits.write_stall_seconds)
                {
                    return Some(TimeoutKind::Write);
                }
                let idle = self.idle_for().is_some_and(|age| limits.idle_seconds < age);
                if let Some(limit) = self.is_old(now) {
                    self.retire(hits, limit);
                } else if idle {
                    self.retire(hits, Some(Limit::IdleSeconds));
                }
                self.streams.look_if_due(now);
                None
            }
            _ => None,
        }
    }

    #[inline]
    fn begin_head(&self, bytes: usize) {
        self.enter(Phase::Head);
        self.received.store(bytes as u64, Relaxed);
    }

    #[inline]
    pub(super) fn has_read(&self, bytes: usize, answered: bool) {
        match self.phase() {
            Phase::Idle if bytes > 0 => self.begin_head(bytes),
            // The next request may arrive during this response; its time limit has not started then.
            Phase::Answer if bytes > 0 && answered => self.begin_head(bytes),
            Phase::Head | Phase::Body => {
                self.received
                    .store(self.received.load(Relaxed) + bytes as u64, Relaxed);
            }
            _ => {}
        }
    }

    /// Handles a read by hyper that has no data. If the last response was sent, the connection becomes idle. If part of
    /// the next head has arrived, the time limit of that head starts.
    #[inline]
    pub(super) fn waits_for_more(&self, answered: bool, head_has_begun: bool) {
        if answered && matches!(self.phase(), Phase::Answer | Phase::Sending) {
            self.pause(head_has_begun);
        }
    }

    #[inline]
    fn pause(&self, head_has_begun: bool) {
        self.enter(if head_has_begun {
            Phase::Head
        } else {
            Phase::Idle
        });
    }

    #[inline]
    pub(super) fn has_written(&self, progress: bool, head_has_begun: bool) {
        if progress {
            if self.stalled.load(Relaxed) != 0 {
                self.stalled.store(0, Relaxed);
            }
            if matches!(self.phase(), Phase::Sending | Phase::Idle) {
                self.pause(head_has_begun);
            }
        } else if self.stalled.load(Relaxed) == 0 {
            self.stalled.store(self.clock.now() + 1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

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
        watched.state.enter(Phase::Head);
        assert_eq!(watched.ended_after(100), Some((11, TimeoutKind::Head)));
        for patient in [Phase::Answer, Phase::Sending, Phase::Stream] {
            watched.state.enter(patient);
            assert_eq!(watched.ended_after(1_000), None, "{patient:?}");
        }
    }

    #[test]
    fn a_write_that_does_not_go_on_ends_the_connection_and_one_that_does_saves_it() {
        let watched = TimedConnection::new();
        watched.state.enter(Phase::Answer);
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
        state.body_is_read();
        assert_eq!(state.phase(), Phase::Answer);
        // The next request may come before the answer was written: it waits.
        state.has_read(10, false);
        assert_eq!(state.phase(), Phase::Answer);
        state.waits_for_more(true, false);
        assert_eq!(state.phase(), Phase::Idle);
        state.has_read(10, false);
        assert_eq!(state.phase(), Phase::Head);
    }

    #[test]
    fn a_pause_begins_with_the_answer_also_where_nobody_asks_for_more() {
        let watched = TimedConnection::new();
        watched.begin_request();
        watched.state.body_is_read();
        // The call takes long; hyper asks for more meanwhile, and there is nothing.
        watched.state.waits_for_more(false, false);
        assert_eq!(watched.ended_after(1_000), None);
        watched.state.answer_is_ready();
        assert_eq!(watched.ended_after(1_000), None, "nothing has been sent");
        watched.state.has_written(true, false);
        assert_eq!(watched.ended_after(100), Some((76, TimeoutKind::Idle)));
    }

    #[test]
    fn part_of_a_head_behind_an_answered_request_has_a_heads_time() {
        let watched = TimedConnection::new();
        watched.state.enter(Phase::Answer);
        watched.state.waits_for_more(true, true);
        assert_eq!(watched.ended_after(100), Some((11, TimeoutKind::Head)));
    }

    #[test]
    fn http_2_retires_when_idle_or_old_or_after_its_requests_and_not_before() {
        let retires = |state: &ConnectionState| state.retires(&Context::from_waker(Waker::noop()));
        let watched = TimedConnection::new();
        watched.state.enter(Phase::Http2);
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
        watched.state.enter(Phase::Http2);
        for _ in 0..999 {
            watched.begin_request();
            watched.ended_after(1);
        }
        assert!(!retires(&watched.state));
        watched.ended_after(1);
        assert!(retires(&watched.state), "old");

        let watched = TimedConnection::new();
        watched.state.enter(Phase::Http2);
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
        watched.state.enter(Phase::Http2);
        let waiting = watched.state.streams.send_stalls.enter(watched.clock.now());
        assert_eq!(watched.ended_after(30), None);
        watched
            .state
            .streams
            .send_stalls
            .progress(waiting, Some(watched.clock.now()));
        assert_eq!(watched.ended_after(30), None);
        assert_eq!(watched.ended_after(1), Some((1, TimeoutKind::Write)));
        // Where the answer itself is what is waited for, nothing is overdue.
        watched.state.streams.send_stalls.progress(waiting, None);
        assert_eq!(watched.ended_after(100), None);
        watched.state.streams.send_stalls.leave(waiting);
    }
}
