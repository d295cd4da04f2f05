//! Answers in parts that can be taken up again: each part is put into a log before it is sent.
//!
//! While its client reads, a call's stream is written and sent by the body of the answer ([`Resumable`]), without a
//! task of its own. If the client goes away, or takes the stream up again elsewhere, a task goes on writing to the log,
//! and whoever takes it up follows the log ([`Follow`]), on whichever replica.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::Instant;

use super::feed::Told;
use super::part::{EventId, Part, Parts, Said, StreamId};
use super::replicas::Word;
use super::{Place, Streams};
use crate::net;
use crate::protocol::{ErrorCode, ErrorObject, Revision};
use crate::server::Answer;
use crate::server::call::{Resumption, Terms};
use crate::server::liveness::{SAY_ALIVE, short};
use crate::server::share::Kind;
use crate::server::stream::CallStream;
use crate::state::{ENTRY_MAX_BYTES, Retention, SharedState, StateError};
use crate::telemetry::WatchedLater;

/// A call's stream on this replica: that of a call that runs here, or one that somebody follows here.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Counts how often the stream was taken up; only the last one may say anything (LH-05).
    holder: AtomicU64,
    /// The call runs here.
    is_here: AtomicBool,
    /// Somebody follows it on another replica.
    is_followed_elsewhere: AtomicBool,
    /// Its session was ended: nobody can come back to it.
    is_abandoned: AtomicBool,
    /// Wakes the holder when it is one no longer.
    waker: AtomicWaker,
    /// There is something new in the log.
    news: Notify,
}

impl Live {
    /// Makes somebody new the holder.
    pub(super) fn take(&self) -> u64 {
        let mine = self.holder.fetch_add(1, Ordering::AcqRel) + 1;
        self.waker.wake();
        self.news.notify_waiters();
        mine
    }

    fn is_held_by(&self, holder: u64) -> bool {
        self.holder.load(Ordering::Acquire) == holder
    }

    /// Another replica has taken the stream up.
    pub(super) fn taken_elsewhere(&self) {
        self.is_followed_elsewhere.store(true, Ordering::Release);
        self.take();
    }

    /// Its session was ended, and what is said is not kept any more.
    pub(super) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Returns true if the call runs here.
    pub(super) fn is_here(&self) -> bool {
        self.is_here.load(Ordering::Acquire)
    }

    /// Another replica has put something into the log.
    pub(super) fn has_news(&self) {
        self.news.notify_waiters();
    }
}

/// What an entry of the log is, by its first byte.
const BEGINNING: u8 = b'b';
const MESSAGE: u8 = b'm';
const ANSWER: u8 = b'a';
/// The call was cancelled, and there is no answer.
const END: u8 = b'e';

/// Whether nothing comes after an entry.
pub(super) fn ends(entry: &[u8]) -> bool {
    matches!(entry.first(), Some(&ANSWER | &END))
}

impl Streams {
    /// The answer of a call that has something to say before its end.
    pub(in crate::server) fn resumable(
        self: &Arc<Self>,
        call: CallStream,
        terms: Terms,
    ) -> Box<dyn Parts> {
        let Some(session) = call.session().cloned() else {
            return Box::new(call);
        };
        let stream = self.number_of_call();
        let live = Arc::new(Live::default());
        live.is_here.store(true, Ordering::Release);
        self.live()
            .insert((Arc::clone(&session), stream), Arc::clone(&live));
        let poll_after = match (terms.resumption, self.config.poll_after_seconds) {
            (Resumption::Primed, seconds) if seconds > 0 => Some(Duration::from_secs(seconds)),
            _ => None,
        };
        let life = Duration::from_secs(self.config.replay_seconds);
        let keep = Retention {
            entries: self.config.replay_events,
            bytes: self.config.replay_bytes,
            life: life + terms.timeout,
            may_go: true,
        };
        let log = self.names.events(&session, stream);
        let owner = call.owner();
        let state = Kind::Stream.of(&self.state, owner.as_deref());
        // Every log begins with an entry, so that there is a place before its first message.
        // It says which request is answered, for whoever has to do that when this replica is gone.
        let begins = [&[BEGINNING], call.request_id().as_bytes()].concat();
        let writing = Writing::new(
            (self, &state),
            (log.clone(), keep),
            BEGINNING,
            Said::Nothing,
            begins.into(),
        );
        Box::new(Resumable {
            is_primed: terms.resumption == Resumption::Primed,
            leaves_at: poll_after.map(|after| Instant::now() + after),
            leaves: false,
            calling: Some(Calling {
                log,
                keep,
                writing: Some(writing),
                streams: Arc::clone(self),
                state,
                session,
                stream,
                live,
                call,
                is_kept: true,
                is_over: false,
                is_alone: false,
                attempts: None,
            }),
        })
    }

    /// A number for a call's stream, from which others see where the call runs.
    fn number_of_call(&self) -> u64 {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        u64::from(short(self.liveness.replica())) << 32 | u64::from(begun)
    }

    fn leave_call(&self, session: &Arc<str>, stream: u64) {
        let mut live = self.live();
        let key = (Arc::clone(session), stream);
        // Whoever follows it holds on to it.
        if live
            .get(&key)
            .is_some_and(|live| Arc::strong_count(live) <= 2)
        {
            live.remove(&key);
        }
    }

    /// Somebody on another replica has taken up a stream.
    pub(super) fn call_taken(&self, session: &Arc<str>, stream: u64) {
        let live = self.live().get(&(Arc::clone(session), stream)).cloned();
        if let Some(live) = live {
            live.taken_elsewhere();
        }
    }

    /// The call of a stream runs on another replica, and has said something.
    pub(super) fn call_said(&self, session: &Arc<str>, stream: u64) {
        let live = self.live().get(&(Arc::clone(session), stream)).cloned();
        if let Some(live) = live {
            live.has_news();
        }
    }
}

/// A call, and what becomes of what it says.
struct Calling {
    streams: Arc<Streams>,
    /// The state, with what is written there counted for the caller.
    state: SharedState,
    session: Arc<str>,
    stream: u64,
    live: Arc<Live>,
    log: String,
    keep: Retention,
    call: CallStream,
    writing: Option<Writing>,
    /// Whether the log has begun.
    is_kept: bool,
    is_over: bool,
    /// Nobody reads it here: what does not get into the log is lost.
    is_alone: bool,
    attempts: Option<Attempts>,
}

/// A part on its way into the log.
struct Writing {
    said: Said,
    kind: u8,
    entry: Bytes,
    done: BoxFuture<'static, Result<u64, StateError>>,
}

/// What there is for keeping an end that could not be kept at once.
struct Attempts {
    until: Instant,
    /// The server stops.
    are_last: bool,
    _room: OwnedSemaphorePermit,
}

/// After which time it is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// For how long a server that stops goes on trying.
const LAST_TRIES: Duration = Duration::from_secs(3);
/// How many bytes of such ends may wait together: 16 MiB.
pub(super) const UNKEPT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Writing {
    fn new(
        (streams, state): (&Streams, &SharedState),
        (log, keep): (String, Retention),
        kind: u8,
        said: Said,
        entry: Bytes,
    ) -> Self {
        let state = state.clone();
        let bytes = entry.len() as u64;
        streams.kept_bytes.fetch_add(bytes, Ordering::Relaxed);
        let put = entry.clone();
        Self {
            said,
            kind,
            entry,
            done: Box::pin(async move { state.append(&log, put, keep).await }),
        }
    }
}

impl Calling {
    /// The next part, once it is in the log.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        loop {
            if let Some(writing) = &mut self.writing {
                let Poll::Ready(written) = writing.done.as_mut().poll(cx) else {
                    return Poll::Pending;
                };
                self.streams.heed(&written);
                if let Err(error) = &written
                    && self.tries_again(error)
                {
                    continue;
                }
                let Some(Writing { said, kind, .. }) = self.writing.take() else {
                    continue;
                };
                let number = written.ok();
                self.is_kept &= kind != BEGINNING || number.is_some();
                let id = number.filter(|_| self.is_kept).map(|number| EventId {
                    stream: StreamId::Call(self.stream),
                    number,
                });
                match kind {
                    BEGINNING if id.is_none() => continue,
                    END => return Poll::Ready(None),
                    _ => {}
                }
                return Poll::Ready(Some(Part::of(said).with_id(id)));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            self.is_kept &= !self.live.is_abandoned.load(Ordering::Acquire);
            let Poll::Ready(part) = self.call.poll_next(cx) else {
                return Poll::Pending;
            };
            let (kind, said) = match part.map(|part| part.said) {
                Some(Said::Message(message)) => (MESSAGE, Said::Message(message)),
                Some(Said::Answer(answer)) => (ANSWER, Said::Answer(answer)),
                Some(Said::Nothing) => continue,
                None => (END, Said::Nothing),
            };
            self.is_over = kind != MESSAGE;
            if !self.is_kept {
                // Nobody can come back for what is not there.
                if kind == END {
                    return Poll::Ready(None);
                }
                return Poll::Ready(Some(Part::of(said)));
            }
            let entry = self.entry(kind, &said);
            if self.is_over {
                self.keep.life = Duration::from_secs(self.streams.config.replay_seconds);
            }
            let place = (self.log.clone(), self.keep);
            let store = (&*self.streams, &self.state);
            self.writing = Some(Writing::new(store, place, kind, said, entry));
        }
    }

    /// Has an end written once more that could not be, where somebody may come back for it. Whether there is one to be
    /// written.
    fn tries_again(&mut self, error: &StateError) -> bool {
        let Some(writing) = &mut self.writing else {
            return false;
        };
        let may_be = !matches!(error, StateError::TooLarge { .. } | StateError::WrongType);
        if !(self.is_alone && may_be && matches!(writing.kind, ANSWER | END)) {
            return false;
        }
        if self.attempts.is_none() {
            let bytes = u32::try_from(writing.entry.len()).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.streams.unkept).try_acquire_many_owned(bytes);
            self.attempts = room.ok().map(|room| Attempts {
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
            attempts.until = attempts.until.min(Instant::now() + LAST_TRIES);
        }
        if self
            .attempts
            .as_ref()
            .is_none_or(|tries| tries.until <= Instant::now())
        {
            tracing::warn!(%error, "how a call ended whose stream broke off could not be kept, and is lost");
            return false;
        }
        let (state, log) = (self.state.clone(), self.log.clone());
        let (entry, keep) = (writing.entry.clone(), self.keep);
        writing.done = Box::pin(async move {
            tokio::time::sleep(AGAIN).await;
            state.append(&log, entry, keep).await
        });
        true
    }

    fn entry(&self, kind: u8, said: &Said) -> Bytes {
        let kind_of = [kind];
        let mut pieces: Vec<&[u8]> = vec![&kind_of[..]];
        match said {
            Said::Nothing => {}
            Said::Message(message) => pieces.push(message),
            Said::Answer(answer) => pieces.extend(answer.pieces().map(|piece| &**piece)),
        }
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if bytes <= self.keep.bytes.min(ENTRY_MAX_BYTES) {
            return pieces.concat().into();
        }
        // Whoever comes back is told that there was an answer, and why it is not there.
        let mut entry = vec![kind];
        if kind == ANSWER {
            let message =
                "the answer is too large to be kept for a stream that broke off; call again";
            let error = ErrorObject::new(ErrorCode::Internal, message);
            error.write(&mut entry, Some(self.call.request_id()));
        }
        entry.into()
    }

    /// Goes on without a reader, to the call's end.
    async fn finish(mut self) {
        let _busy = self.streams.inflight.busy();
        self.is_alone = true;
        self.tell_followers();
        while poll_fn(|cx| self.poll_part(cx)).await.is_some() {
            self.tell_followers();
        }
        self.tell_followers();
    }

    fn tell_followers(&self) {
        self.live.news.notify_waiters();
        if self.live.is_followed_elsewhere.load(Ordering::Acquire) {
            self.streams.say(Word::Appended {
                session: Arc::clone(&self.session),
                stream: self.stream,
            });
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.live.is_here.store(false, Ordering::Release);
        self.streams.leave_call(&self.session, self.stream);
    }
}

/// The body of an answer that can be taken up again.
struct Resumable {
    /// `None` once it is at its end, or goes on without this reader.
    calling: Option<Calling>,
    /// The client understands that a stream begins with an event that says nothing (LH-14, LH-16).
    is_primed: bool,
    /// When the client is to come back for the rest.
    leaves_at: Option<Instant>,
    leaves: bool,
}

impl Resumable {
    /// Has a task go on in its place.
    fn hand_over(&mut self) {
        let Some(calling) = self.calling.take() else {
            return;
        };
        if calling.is_over && calling.writing.is_none() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            net::spawn_on(&runtime, calling.finish());
        }
    }
}

impl Parts for Resumable {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        loop {
            let Some(calling) = &mut self.calling else {
                return Poll::Ready(None);
            };
            calling.live.waker.register(cx.waker());
            if self.leaves || !calling.live.is_held_by(0) {
                self.hand_over();
                return Poll::Ready(None);
            }
            match calling.poll_part(cx) {
                Poll::Ready(Some(part)) => {
                    if !matches!(part.said, Said::Nothing) {
                        return Poll::Ready(Some(part));
                    }
                    if self.is_primed {
                        let retry = u64::from(calling.streams.config.retry_ms);
                        return Poll::Ready(Some(Part {
                            retry: Some(Duration::from_millis(retry)),
                            ..part
                        }));
                    }
                }
                Poll::Ready(None) => {
                    self.calling = None;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    let leaves = self.is_primed
                        && calling.is_kept
                        && calling.writing.is_none()
                        && (calling.call.is_let_go()
                            || self.leaves_at.is_some_and(|at| at <= Instant::now()));
                    if !leaves {
                        return Poll::Pending;
                    }
                    // LH-15
                    self.leaves = true;
                    let retry = u64::from(calling.streams.config.retry_ms);
                    return Poll::Ready(Some(Part::retry(Duration::from_millis(retry))));
                }
            }
        }
    }

    fn watch(&mut self, watch: WatchedLater) {
        if let Some(calling) = &mut self.calling {
            calling.call.watch(watch);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.leaves_at
    }
}

impl Drop for Resumable {
    /// LH-02: that the client has gone is no reason to stop.
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// A call's stream that was taken up again: what its log has, and what comes into it.
pub(super) struct Follow {
    place: Place,
    call: Followed,
    mine: u64,
    after: u64,
    ready: VecDeque<(u64, Bytes)>,
    reading: BoxFuture<'static, Option<Vec<(u64, Bytes)>>>,
    first: Option<Part>,
    leaves_at: Instant,
    is_over: bool,
}

/// Which stream is followed.
#[derive(Clone)]
struct Followed {
    streams: Arc<Streams>,
    session: Arc<str>,
    stream: u64,
    live: Arc<Live>,
}

/// How many entries are read at once.
const PAGE: usize = 64;
/// How often a log is looked into although nobody has said that there is anything new.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl Follow {
    pub(super) fn new(
        place: Place,
        session: Arc<str>,
        stream: u64,
        (after, most): (u64, Duration),
        revision: Revision,
    ) -> Self {
        let streams = Arc::clone(&place.streams);
        let live = {
            let mut all = streams.live();
            Arc::clone(all.entry((Arc::clone(&session), stream)).or_default())
        };
        let mine = live.take();
        if !live.is_here.load(Ordering::Acquire) {
            let session = Arc::clone(&session);
            streams.say(Word::Taken { session, stream });
        }
        let id = EventId {
            stream: StreamId::Call(stream),
            number: after,
        };
        let first = revision.has_priming_events().then(|| streams.priming(id));
        let life = match streams.config.poll_after_seconds {
            seconds if seconds > 0 && first.is_some() => Duration::from_secs(seconds).min(most),
            _ => most,
        };
        let call = Followed {
            streams,
            session,
            stream,
            live,
        };
        Self {
            place,
            reading: Box::pin(call.clone().more(after)),
            call,
            mine,
            after,
            ready: VecDeque::new(),
            first,
            leaves_at: Instant::now() + life,
            is_over: false,
        }
    }

    /// One after whose event nothing comes.
    pub(super) fn at_its_end(mut self) -> Self {
        self.is_over = true;
        self
    }

    fn part(&mut self, number: u64, entry: &Bytes) -> Option<Part> {
        let kind = entry.first().copied()?;
        let content = entry.slice(1..);
        let part = match kind {
            MESSAGE if !content.is_empty() => Part::message(content),
            ANSWER => Part::answer(Answer::of(content)),
            _ => {
                self.is_over |= kind == END;
                return None;
            }
        };
        self.is_over |= kind == ANSWER;
        Some(part.with_id(Some(EventId {
            stream: StreamId::Call(self.call.stream),
            number,
        })))
    }

    fn end(&mut self, comes_back: bool) -> Poll<Option<Part>> {
        self.is_over = true;
        Poll::Ready(comes_back.then(|| Part::retry(self.place.streams.retry_after())))
    }
}

impl Followed {
    /// Waits for what comes after a number. `None` if nothing will.
    async fn more(self, after: u64) -> Option<Vec<(u64, Bytes)>> {
        let log = self.streams.names.events(&self.session, self.stream);
        let mut look_at = Instant::now();
        loop {
            let mut news = pin!(self.live.news.notified());
            news.as_mut().enable();
            let page = self.streams.state.read_after(&log, after, PAGE).await;
            self.streams.heed(&page);
            match page {
                Ok(Some(page)) if !page.continues(after) => return None,
                Ok(Some(page)) if !page.entries.is_empty() => return Some(page.entries),
                // The state may come back.
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => return None,
            }
            if look_at <= Instant::now() {
                look_at = Instant::now() + SAY_ALIVE;
                let ended = self.end_if_gone(&log).await;
                self.streams.heed(&ended);
                if let Ok(true) = ended {
                    continue;
                }
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, news).await;
        }
    }
}

impl Followed {
    /// Ends the stream of a call whose replica is gone: nobody else would. Returns true if it did.
    async fn end_if_gone(&self, log: &str) -> Result<bool, StateError> {
        let streams = &self.streams;
        let runner = (self.stream >> 32) as u32;
        if !streams.is_shared
            || runner == short(streams.liveness.replica())
            || streams.liveness.runs_calls(runner).await?
        {
            return Ok(false);
        }
        let page = streams.state.read_after(log, 0, 1).await?;
        let first = page.and_then(|page| page.entries.into_iter().next());
        let Some((_, first)) = first else {
            return Ok(false);
        };
        tracing::warn!(session = %self.session, "the replica that ran a call is gone; whoever resumes the call's stream is told");
        let Some(id) = first.strip_prefix(&[BEGINNING]) else {
            // Which request it was is not known any more. Whoever comes back is told that the stream is not known.
            streams.state.remove(log).await?;
            return Ok(true);
        };
        if id.is_empty() {
            // Of an earlier version, which does not say that it is there.
            return Ok(false);
        }
        let mut entry = vec![ANSWER];
        let message = "the process that ran the call is gone; call again";
        let error = ErrorObject::new(ErrorCode::Internal, message);
        error.write(&mut entry, std::str::from_utf8(id).ok());
        let keep = Retention {
            entries: streams.config.replay_events,
            bytes: streams.config.replay_bytes,
            life: Duration::from_secs(streams.config.replay_seconds),
            may_go: true,
        };
        streams.state.append(log, entry.into(), keep).await?;
        Ok(true)
    }
}

impl Parts for Follow {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Part>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            self.call.live.waker.register(cx.waker());
            if !self.call.live.is_held_by(self.mine) {
                return self.end(false);
            }
            while let Poll::Ready(told) = self.place.feed.poll_next(cx) {
                if let Told::End(end) = told {
                    return self.end(end == super::End::Stopping);
                }
            }
            if let Some((number, entry)) = self.ready.pop_front() {
                if entry.is_empty() {
                    // Sealed by a key that is not here. Another replica may have it.
                    return self.end(true);
                }
                self.after = number;
                match self.part(number, &entry) {
                    Some(part) => return Poll::Ready(Some(part)),
                    None => continue,
                }
            }
            match self.reading.as_mut().poll(cx) {
                Poll::Ready(None) => return self.end(false),
                Poll::Ready(Some(entries)) => {
                    let after = entries.last().map_or(self.after, |(number, _)| *number);
                    self.ready.extend(entries);
                    self.reading = Box::pin(self.call.clone().more(after));
                }
                Poll::Pending if self.leaves_at <= Instant::now() => return self.end(true),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.leaves_at)
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        // The one that is kept, this one, and the one that reads.
        let mut live = self.call.streams.live();
        let key = (Arc::clone(&self.call.session), self.call.stream);
        if live.get(&key).is_some_and(|live| {
            !live.is_here.load(Ordering::Acquire) && Arc::strong_count(live) <= 3
        }) {
            live.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::tests::replica_of;

    /// A call that one replica has begun, as another one that shares its state follows it.
    async fn followed(parts: &[&[u8]]) -> (Arc<Server>, Followed, u64) {
        let state = SharedState::default();
        let [runs, follows] = [(); 2].map(|()| replica_of(state.clone()));
        let stream = runs.streams.number_of_call();
        let session: Arc<str> = "session".into();
        let streams = Arc::clone(&follows.streams);
        let log = streams.names.events(&session, stream);
        let keep = Retention {
            entries: 3,
            bytes: 1000,
            life: Duration::from_secs(3600),
            may_go: true,
        };
        let mut last = 0;
        for part in parts {
            let part = Bytes::copy_from_slice(part);
            last = state.append(&log, part, keep).await.expect("a state");
        }
        let followed = Followed {
            streams,
            session,
            stream,
            live: Arc::default(),
        };
        (runs, followed, last)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_follows_a_call_of_a_replica_that_is_gone_is_told_within_its_deadline() {
        let (runs, followed, last) = followed(&[b"b\"one\"", b"m{}"]).await;
        runs.streams.liveness.say_for_calls().await.expect("said");
        let begun = Instant::now();
        let told = followed.more(last).await.expect("an end");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let [(_, entry)] = &told[..] else {
            panic!("{told:?}");
        };
        assert!(ends(entry));
        let answer: serde_json::Value = serde_json::from_slice(&entry[1..]).expect("JSON");
        assert_eq!(answer["id"], "one");
        assert_eq!(answer["error"]["code"], -32603);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_waited_for_while_its_replica_says_that_it_is_there() {
        let (runs, followed, last) = followed(&[b"b1", b"m{}"]).await;
        let says = async {
            loop {
                runs.streams.liveness.say_for_calls().await.expect("said");
                tokio::time::sleep(SAY_ALIVE).await;
            }
        };
        let long = Duration::from_secs(300);
        tokio::select! {
            told = tokio::time::timeout(long, followed.more(last)) => assert!(told.is_err()),
            () = says => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_request_is_not_known_any_more_is_forgotten() {
        let (_runs, followed, last) = followed(&[b"b1", b"m{}", b"m{}", b"m{}"]).await;
        assert!(followed.more(last).await.is_none());
    }
}
