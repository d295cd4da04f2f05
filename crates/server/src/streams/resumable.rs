//! Resumable call streams: each event is appended to a log before it is sent.
//!
//! While the client reads, the response body ([`ResumableStream`]) drives the call, without a task. When the client
//! disconnects or resumes elsewhere, a task takes over. Resumed streams follow the log ([`LogFollower`]) on any
//! replica.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Streams;
use super::bus::BusMessage;
use super::event::{EventData, EventId, EventSource, StreamEvent, StreamId};
use super::live_stream::LiveStream;
use super::pending_write::{
    PendingWrite, RETRY_BYTES_MAX, RETRY_BYTES_MIN, Unwritten, append, is_outage, may_pass,
};
use crate::net;
use crate::protocol::{ErrorCode, ErrorObject};
use crate::server::call_stream::CallStream;
use crate::server::liveness::short_id;
use crate::server::running_call::{CallOptions, Resumption};
use crate::server::share::StateKind;
use crate::state::{ENTRY_MAX_BYTES, Retention, SharedState, StateError};
use crate::telemetry::DeferredScope;

/// Kind of a log entry, its first byte.
pub(super) const BEGINNING: u8 = b'b';
pub(super) const MESSAGE: u8 = b'm';
pub(super) const ANSWER: u8 = b'a';
/// The call was cancelled and has no response.
pub(super) const END: u8 = b'e';

/// Returns true if the entry is the last of its log.
pub(super) fn ends(entry: &[u8]) -> bool {
    matches!(entry.first(), Some(&ANSWER | &END))
}

impl Streams {
    /// Creates the response stream of a call.
    pub(crate) fn resumable(
        self: &Arc<Self>,
        call: CallStream,
        options: CallOptions,
    ) -> Box<dyn EventSource> {
        let Some(session) = call.session().cloned() else {
            return Box::new(call);
        };
        let stream = self.next_call_stream();
        let live = self.enter_call(&session, stream);
        live.is_here.store(true, Ordering::Release);
        let poll_after = match (options.resumption, self.config.poll_after_seconds) {
            (Resumption::Primed, seconds) if seconds > 0 => Some(Duration::from_secs(seconds)),
            _ => None,
        };
        let max_age = Duration::from_secs(self.config.replay_seconds);
        let keep = Retention {
            entries: self.config.replay_events,
            bytes: self.config.replay_bytes,
            // The time that the call waits for its client does not count towards its timeout.
            life: max_age + options.timeout + self.inflight.client_requests.timeout(),
            may_go: true,
        };
        let log = self.names.events(&session, stream);
        let owner = call.owner();
        let state = StateKind::Stream.of(&self.state, owner.as_deref());
        // The first entry makes position 0 valid. It contains the request id, so that another replica can complete
        // the stream if this one dies.
        let begins = [&[BEGINNING], call.request_id().as_bytes()].concat();
        let writing = PendingWrite::new(
            (self, &state),
            (&log, keep),
            (BEGINNING, EventData::Empty),
            VecDeque::new(),
            begins.into(),
        );
        Box::new(ResumableStream {
            is_primed: options.resumption == Resumption::Primed,
            leaves_at: poll_after.map(|after| Instant::now() + after),
            leaves: false,
            logged: Some(LoggedCall {
                log,
                keep,
                writing: Some(writing),
                streams: Arc::clone(self),
                state,
                session,
                stream,
                live,
                call,
                is_logged: true,
                is_over: false,
                is_detached: false,
                unwritten: Unwritten::default(),
                attempts: None,
            }),
        })
    }

    /// A stream number that identifies the replica with the call.
    pub(super) fn next_call_stream(&self) -> u64 {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        u64::from(short_id(self.liveness.replica())) << 32 | u64::from(begun)
    }
}

/// A call whose events are logged.
struct LoggedCall {
    streams: Arc<Streams>,
    /// View of the state that charges entries to the caller.
    state: SharedState,
    session: Arc<str>,
    stream: u64,
    live: Arc<LiveStream>,
    log: String,
    keep: Retention,
    call: CallStream,
    writing: Option<PendingWrite>,
    /// True while events are logged.
    is_logged: bool,
    is_over: bool,
    /// True if the call has no reader, so an event that is not logged is lost.
    is_detached: bool,
    unwritten: Unwritten,
    attempts: Option<RetryWindow>,
}

/// Retries of an entry of a log, while the state is unavailable.
struct RetryWindow {
    until: Instant,
    /// True during shutdown.
    are_last: bool,
    _room: OwnedSemaphorePermit,
}

/// Delay between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum duration of retries during shutdown.
const SHUTDOWN_RETRY: Duration = Duration::from_secs(3);

impl LoggedCall {
    /// Returns the next event after it was logged.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        loop {
            if let Some(writing) = &mut self.writing {
                let Poll::Ready(written) = writing.done.as_mut().poll(cx) else {
                    return Poll::Pending;
                };
                self.streams.track_health(&written);
                if let Err(error) = &written
                    && self.retry_write(error)
                {
                    if self.is_detached {
                        continue;
                    }
                    return Poll::Ready(self.take_for_reader());
                }
                if written.is_ok()
                    && let Some(writing) = &mut self.writing
                    && writing.before.pop_front().is_some()
                {
                    let next = writing.next();
                    writing.done = append(&self.state, &self.log, next, self.keep, Duration::ZERO);
                    continue;
                }
                let Some(mut writing) = self.writing.take() else {
                    continue;
                };
                let kind = writing.kind;
                let data = std::mem::replace(&mut writing.data, EventData::Empty);
                match &written {
                    Ok(_) => (self.attempts, self.unwritten.room) = (None, None),
                    Err(error) if kind == MESSAGE && !self.is_detached && is_outage(error) => {
                        let budget = &self.streams.retry_budget;
                        self.unwritten.hold(writing, self.keep, budget);
                    }
                    Err(_) => self.unwritten.room = None,
                }
                let number = written.ok();
                self.is_logged &= kind != BEGINNING || number.is_some();
                let id = number
                    .filter(|_| self.is_logged)
                    .map(|number| EventId::new(StreamId::Call(self.stream), number));
                match kind {
                    BEGINNING if id.is_none() => continue,
                    END => return Poll::Ready(None),
                    _ => {}
                }
                return Poll::Ready(Some(StreamEvent::of(data).with_id(id)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            self.is_logged &= !self.live.is_abandoned.load(Ordering::Acquire);
            if self.is_detached
                && self.is_logged
                && let Some(last) = self.unwritten.entries.pop_back()
            {
                self.write((MESSAGE, EventData::Empty), last);
                continue;
            }
            let Poll::Ready(event) = self.call.poll_next(cx) else {
                return Poll::Pending;
            };
            let (kind, data) = match event.map(|event| event.data) {
                Some(EventData::Message(message)) => (MESSAGE, EventData::Message(message)),
                Some(EventData::Response(answer)) => (ANSWER, EventData::Response(answer)),
                Some(EventData::Empty) => continue,
                None => (END, EventData::Empty),
            };
            self.is_over = kind != MESSAGE;
            if !self.is_logged {
                // An abandoned stream has no follower that needs an end entry.
                if kind == END {
                    return Poll::Ready(None);
                }
                return Poll::Ready(Some(StreamEvent::of(data)));
            }
            let entry = self.entry(kind, &data);
            if self.is_over {
                self.keep.life = Duration::from_secs(self.streams.config.replay_seconds);
            }
            self.write((kind, data), entry);
        }
    }

    /// Begins to append an entry behind the messages that could not be appended before.
    fn write(&mut self, event: (u8, EventData), entry: Bytes) {
        let before = std::mem::take(&mut self.unwritten.entries);
        let (store, place) = ((&*self.streams, &self.state), (&*self.log, self.keep));
        self.writing = Some(PendingWrite::new(store, place, event, before, entry));
    }

    /// Takes the response whose entry is retried. The reader's connection may be broken, so the entry is written
    /// nevertheless.
    fn take_for_reader(&mut self) -> Option<StreamEvent> {
        let writing = self.writing.as_mut()?;
        let data = std::mem::replace(&mut writing.data, EventData::Empty);
        (!matches!(data, EventData::Empty)).then(|| StreamEvent::of(data))
    }

    /// Retries the last entry of a call, or any message without a reader. Returns false if no retry is possible.
    fn retry_write(&mut self, error: &StateError) -> bool {
        let Some(writing) = &mut self.writing else {
            return false;
        };
        let must_arrive = match writing.kind {
            MESSAGE => self.is_detached,
            kind => kind != BEGINNING,
        };
        if !(may_pass(error) && must_arrive) {
            return false;
        }
        // A message that finds no room does not keep the others from theirs.
        if !is_outage(error) {
            writing.before.clear();
        }
        if self.attempts.is_none() {
            self.unwritten.room = None;
            let budget = &self.streams.retry_budget;
            // Half of the room is for responses that no reader has.
            if !self.is_detached && budget.available_permits() < RETRY_BYTES_MAX / 2 {
                return false;
            }
            let bytes = writing.bytes().max(RETRY_BYTES_MIN);
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let room = Arc::clone(budget).try_acquire_many_owned(bytes);
            self.attempts = room.ok().map(|room| RetryWindow {
                until: Instant::now() + self.keep.life,
                are_last: false,
                _room: room,
            });
        }
        if let Some(attempts) = &mut self.attempts
            && !attempts.are_last
            && self.streams.is_stopping()
        {
            attempts.are_last = true;
            attempts.until = attempts.until.min(Instant::now() + SHUTDOWN_RETRY);
        }
        if self
            .attempts
            .as_ref()
            .is_none_or(|tries| tries.until <= Instant::now())
        {
            if self.is_detached {
                tracing::warn!(%error, "a message or the result of a call whose stream broke could not be stored, and is lost");
                // Later messages are tried anew, but for those of a stop, which share its time.
                if !self.streams.is_stopping() {
                    self.attempts = None;
                }
            }
            return false;
        }
        let next = writing.next();
        writing.done = append(&self.state, &self.log, next, self.keep, RETRY_INTERVAL);
        true
    }

    fn entry(&self, kind: u8, data: &EventData) -> Bytes {
        let kind_of = [kind];
        let mut pieces: Vec<&[u8]> = vec![&kind_of[..]];
        match data {
            EventData::Empty => {}
            EventData::Message(message) => pieces.push(message),
            EventData::Response(answer) => pieces.extend(answer.pieces().map(|piece| &**piece)),
        }
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if bytes <= self.keep.bytes.min(ENTRY_MAX_BYTES) {
            return pieces.concat().into();
        }
        // A resumed stream gets an error in place of the oversized response.
        let mut entry = vec![kind];
        if kind == ANSWER {
            let message = "the result is too large to be stored for a broken stream; call again";
            let error = ErrorObject::new(ErrorCode::Internal, message);
            error.write(&mut entry, Some(self.call.request_id()));
        }
        entry.into()
    }

    /// Drives the call until it completes, without a reader.
    async fn finish(mut self) {
        let _busy = self.streams.inflight.delay_shutdown();
        self.is_detached = true;
        self.notify_followers();
        while poll_fn(|cx| self.poll_event(cx)).await.is_some() {
            self.notify_followers();
        }
        self.notify_followers();
    }

    fn notify_followers(&self) {
        self.live.news.notify_waiters();
        if self.live.is_followed_elsewhere.load(Ordering::Acquire) {
            self.streams.broadcast(BusMessage::Appended {
                session: Arc::clone(&self.session),
                stream: self.stream,
            });
        }
    }
}

impl Drop for LoggedCall {
    fn drop(&mut self) {
        self.live.is_here.store(false, Ordering::Release);
        self.streams.leave_call(&self.session, self.stream);
    }
}

/// Response body of a resumable call.
struct ResumableStream {
    /// `None` at the end, or after a task took over.
    logged: Option<LoggedCall>,
    /// True if the client supports an empty first event (LH-14, LH-16).
    is_primed: bool,
    /// Time at which the stream closes so that the client reconnects.
    leaves_at: Option<Instant>,
    leaves: bool,
}

impl ResumableStream {
    /// Continues the call in a task.
    fn hand_over(&mut self) {
        let Some(logged) = self.logged.take() else {
            return;
        };
        if logged.is_over && logged.writing.is_none() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            net::spawn_on(&runtime, logged.finish());
        }
    }
}

impl EventSource for ResumableStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        loop {
            let Some(logged) = &mut self.logged else {
                return Poll::Ready(None);
            };
            logged.live.waker.register(cx.waker());
            let is_answered = logged.attempts.is_some();
            if self.leaves || is_answered || !logged.live.is_held_by(0) {
                self.hand_over();
                return Poll::Ready(None);
            }
            match logged.poll_event(cx) {
                Poll::Ready(Some(event)) => {
                    if !matches!(event.data, EventData::Empty) {
                        return Poll::Ready(Some(event));
                    }
                    if self.is_primed {
                        return Poll::Ready(Some(StreamEvent {
                            retry: logged.streams.config.first_retry(),
                            ..event
                        }));
                    }
                }
                Poll::Ready(None) => {
                    self.hand_over();
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    // A stopping process without replicas leaves the client nowhere to resume.
                    let leaves = self.is_primed
                        && (logged.streams.is_shared || !logged.streams.is_stopping())
                        && logged.is_logged
                        && logged.writing.is_none()
                        && (logged.call.is_let_go()
                            || self.leaves_at.is_some_and(|at| at <= Instant::now()));
                    if !leaves {
                        return Poll::Pending;
                    }
                    // LH-15
                    self.leaves = true;
                    let retry = u64::from(logged.streams.config.retry_ms);
                    return Poll::Ready(Some(StreamEvent::retry(Duration::from_millis(retry))));
                }
            }
        }
    }

    fn watch(&mut self, watch: DeferredScope) {
        if let Some(logged) = &mut self.logged {
            logged.call.watch(watch);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.leaves_at
    }
}

impl Drop for ResumableStream {
    /// LH-02: a disconnect does not cancel the call.
    fn drop(&mut self) {
        self.hand_over();
    }
}
