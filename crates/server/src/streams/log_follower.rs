//! Resumed call streams, which follow the log of the call on any replica.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::Streams;
use super::bus::BusMessage;
use super::event::{EventId, EventSource, StreamEvent, StreamId};
use super::live_stream::LiveStream;
use super::mailbox::{CloseReason, MailboxItem};
use super::registration::Registration;
use super::resumable::{ANSWER, BEGINNING, END, MESSAGE};
use crate::protocol::{ErrorCode, ErrorObject, Revision};
use crate::server::liveness::{HEARTBEAT_INTERVAL, short_id};
use crate::server::reply::JsonResponse;
use crate::state::{Retention, StateError};

/// A resumed call stream: replays the log and follows it.
pub(super) struct LogFollower {
    place: Registration,
    call: FollowedLog,
    mine: u64,
    after: u64,
    ready: VecDeque<(u64, Bytes)>,
    reading: BoxFuture<'static, Option<Vec<(u64, Bytes)>>>,
    first: Option<StreamEvent>,
    /// True if the client supports events without data.
    is_primed: bool,
    leaves_at: Instant,
    is_over: bool,
}

/// The log of a call stream.
#[derive(Clone)]
struct FollowedLog {
    streams: Arc<Streams>,
    session: Arc<str>,
    stream: u64,
    live: Arc<LiveStream>,
}

/// Number of entries read in one request.
const PAGE: usize = 64;
/// Interval between reads if no notification arrives.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

impl LogFollower {
    pub(super) fn new(
        place: Registration,
        session: Arc<str>,
        stream: u64,
        (event, most): (EventId, Duration),
        revision: Revision,
    ) -> Self {
        let streams = Arc::clone(&place.streams);
        let live = streams.enter_call(&session, stream);
        let mine = live.take();
        if !live.is_here.load(Ordering::Acquire) {
            let session = Arc::clone(&session);
            streams.broadcast(BusMessage::Taken { session, stream });
        }
        let after = event.number;
        let first = revision
            .has_priming_events()
            .then(|| streams.priming(event.alternate()));
        let max_age = match streams.config.poll_after_seconds {
            seconds if seconds > 0 && first.is_some() => Duration::from_secs(seconds).min(most),
            _ => most,
        };
        let call = FollowedLog {
            streams,
            session,
            stream,
            live,
        };
        Self {
            place,
            reading: Box::pin(call.clone().next_entries(after)),
            call,
            mine,
            after,
            ready: VecDeque::new(),
            is_primed: first.is_some(),
            first,
            leaves_at: Instant::now() + max_age,
            is_over: false,
        }
    }

    fn event(&mut self, number: u64, entry: &Bytes) -> Option<StreamEvent> {
        let kind = entry.first().copied()?;
        let content = entry.slice(1..);
        let event = match kind {
            MESSAGE if !content.is_empty() => StreamEvent::message(content),
            ANSWER => StreamEvent::response(JsonResponse::new(content)),
            _ => {
                self.is_over |= kind == END;
                return None;
            }
        };
        self.is_over |= kind == ANSWER;
        let stream = StreamId::Call(self.call.stream);
        Some(event.with_id(Some(EventId::new(stream, number))))
    }

    /// Returns true if the stream continues to the end of its log, because no other process has the log.
    fn outlasts(&self, reason: CloseReason) -> bool {
        let mailbox = &self.place.mailbox;
        reason == CloseReason::Stopping && !mailbox.is_revoked() && !self.call.streams.is_shared
    }

    fn end(&mut self, comes_back: bool) -> Poll<Option<StreamEvent>> {
        self.is_over = true;
        let names_delay = comes_back && self.is_primed;
        Poll::Ready(names_delay.then(|| StreamEvent::retry(self.place.streams.retry_after())))
    }
}

impl FollowedLog {
    /// Waits for entries after a position. Returns `None` if there will be none.
    async fn next_entries(self, after: u64) -> Option<Vec<(u64, Bytes)>> {
        let log = self.streams.names.events(&self.session, self.stream);
        let mut check_at = Instant::now();
        loop {
            let mut news = pin!(self.live.news.notified());
            news.as_mut().enable();
            let page = self.streams.state.read_after(&log, after, PAGE).await;
            self.streams.track_health(&page);
            match page {
                Ok(Some(page)) if !page.continues(after) => return None,
                Ok(Some(page)) if !page.entries.is_empty() => return Some(page.entries),
                // The state may recover.
                Ok(Some(_)) | Err(_) => {}
                Ok(None) => return None,
            }
            if check_at <= Instant::now() {
                check_at = Instant::now() + HEARTBEAT_INTERVAL;
                let ended = self.end_if_orphaned(&log).await;
                self.streams.track_health(&ended);
                if let Ok(true) = ended {
                    continue;
                }
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, news).await;
        }
    }

    /// Ends the stream of a call whose replica is gone, since no other process will. Returns true if it did.
    async fn end_if_orphaned(&self, log: &str) -> Result<bool, StateError> {
        let streams = &self.streams;
        let runner = (self.stream >> 32) as u32;
        if !streams.is_shared
            || runner == short_id(streams.liveness.replica())
            || streams.liveness.runs_calls(runner).await?
        {
            return Ok(false);
        }
        let page = streams.state.read_after(log, 0, 1).await?;
        let first = page.and_then(|page| page.entries.into_iter().next());
        let Some((_, first)) = first else {
            return Ok(false);
        };
        let Some(id) = first.strip_prefix(&[BEGINNING]) else {
            // The request id has been trimmed. Resuming then fails with an unknown event.
            streams.state.remove(log).await?;
            self.report_orphaned();
            return Ok(true);
        };
        if id.is_empty() {
            // Written by an earlier version, which sends no heartbeats.
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
        self.report_orphaned();
        Ok(true)
    }

    fn report_orphaned(&self) {
        tracing::warn!(session = %self.session, "the replica that ran a call has stopped; clients that resume the call's stream get an error");
    }
}

impl EventSource for LogFollower {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
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
            let mut is_stopping = false;
            while let Poll::Ready(item) = self.place.mailbox.poll_next(cx) {
                if let MailboxItem::CloseReason(end) = item {
                    is_stopping = self.outlasts(end);
                    if is_stopping {
                        break;
                    }
                    return self.end(end == CloseReason::Stopping);
                }
            }
            // Read before the log: the last entry is written before the call leaves.
            let is_here = self.call.live.is_here();
            if let Some((number, entry)) = self.ready.pop_front() {
                if entry.is_empty() {
                    // Sealed with an unknown key. Another replica may have it.
                    return self.end(true);
                }
                self.after = number;
                match self.event(number, &entry) {
                    Some(event) => return Poll::Ready(Some(event)),
                    None => continue,
                }
            }
            match self.reading.as_mut().poll(cx) {
                Poll::Ready(None) => return self.end(false),
                Poll::Ready(Some(entries)) => {
                    let after = entries.last().map_or(self.after, |(number, _)| *number);
                    self.ready.extend(entries);
                    self.reading = Box::pin(self.call.clone().next_entries(after));
                }
                Poll::Pending if is_stopping && is_here => return Poll::Pending,
                Poll::Pending if is_stopping || self.leaves_at <= Instant::now() => {
                    return self.end(true);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.leaves_at)
    }
}

impl Drop for LogFollower {
    fn drop(&mut self) {
        let FollowedLog {
            streams,
            session,
            stream,
            ..
        } = &self.call;
        streams.leave_call(session, *stream);
    }
}

#[cfg(test)]
mod tests {
    use super::super::resumable::ends;
    use super::*;
    use crate::server::Server;
    use crate::server::tests::replica_of;
    use crate::state::SharedState;

    /// A call that one replica has begun, as another one that shares its state follows it.
    async fn followed(parts: &[&[u8]]) -> (Arc<Server>, FollowedLog, u64) {
        let state = SharedState::default();
        let [runs, follows] = [(); 2].map(|()| replica_of(state.clone()));
        let stream = runs.streams.next_call_stream();
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
        for event in parts {
            let event = Bytes::copy_from_slice(event);
            last = state.append(&log, event, keep).await.expect("a state");
        }
        let followed = FollowedLog {
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
        runs.streams.liveness.heartbeat_calls().await.expect("data");
        let begun = Instant::now();
        let reported = followed.next_entries(last).await.expect("an end");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let [(_, entry)] = &reported[..] else {
            panic!("{reported:?}");
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
                runs.streams.liveness.heartbeat_calls().await.expect("data");
                tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            }
        };
        let long = Duration::from_secs(300);
        tokio::select! {
            reported = tokio::time::timeout(long, followed.next_entries(last)) => assert!(reported.is_err()),
            () = says => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_request_is_not_known_any_more_is_forgotten() {
        let (_runs, followed, last) = followed(&[b"b1", b"m{}", b"m{}", b"m{}"]).await;
        assert!(followed.next_entries(last).await.is_none());
    }
}
