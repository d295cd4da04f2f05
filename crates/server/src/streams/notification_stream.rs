//! Streams that deliver notifications until they are closed: of a session, or of `subscriptions/listen`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::event::{EventData, EventId, EventSource, StreamEvent, StreamId};
use super::mailbox::{CloseReason, MailboxItem};
use super::registration::Registration;
use super::subscriber::Subscriber;
use super::{Streams, notice};
use crate::auth::Principal;
use crate::environment::unix_seconds;
use crate::protocol::Revision;
use crate::seal::random_bytes;
use crate::server::reply::JsonResponse;

/// A notification stream.
pub(super) struct NotificationStream {
    place: Registration,
    subscriber: Subscriber,
    kind: StreamKind,
    /// First event.
    first: Option<StreamEvent>,
    /// Last events, after the stream was closed.
    last: Option<VecDeque<StreamEvent>>,
    ends_at: Option<Instant>,
    /// Id of the last event, a `ping`, if no other event had one. The Go SDK 1.4 closes its session after six streams that end
    /// without a new id.
    last_id: Option<EventId>,
}

/// Form of the events and of the end of the stream.
pub(super) enum StreamKind {
    /// A session over HTTP: events have ids, and the client reconnects after the end.
    Session(Revision),
    /// A session over a connection that ends with it.
    Plain,
    /// A request of the stateless lifecycle.
    Listen(ListenContext),
}

/// Data that every message of `subscriptions/listen` contains.
pub(super) struct ListenContext {
    /// JSON-RPC id of the request.
    pub(super) id: Box<str>,
    /// Complete response, which ends the stream (SUB-05).
    pub(super) result: Bytes,
    /// True if a notification precedes the response, as stdio requires (SUB-06).
    pub(super) sends_cancelled: bool,
}

impl NotificationStream {
    pub(super) fn new(
        place: Registration,
        subscriber: Subscriber,
        kind: StreamKind,
        first: Option<StreamEvent>,
    ) -> Self {
        Self {
            place,
            subscriber,
            kind,
            first,
            last: None,
            ends_at: None,
            last_id: None,
        }
    }

    /// Sets the maximum age of the stream.
    pub(super) fn with_max_age(mut self, max_age: Duration) -> Self {
        self.ends_at = Some(Instant::now() + max_age);
        self
    }

    /// Sets the id of a last event, for a stream that reaches its maximum age without any other id.
    pub(super) fn with_last_id(mut self, id: Option<EventId>) -> Self {
        self.last_id = id;
        self
    }

    fn end(&self, end: CloseReason) -> VecDeque<StreamEvent> {
        let mut last = VecDeque::new();
        match &self.kind {
            _ if end == CloseReason::Gone => {}
            // Clients of earlier revisions may read an event without data as a message. The Go SDK 1.2 and 1.3 close their session.
            StreamKind::Session(revision) if revision.has_priming_events() => {
                last.push_back(StreamEvent::retry(self.place.streams.retry_after()));
            }
            StreamKind::Session(_) | StreamKind::Plain => {}
            StreamKind::Listen(listen) => {
                if listen.sends_cancelled {
                    last.push_back(StreamEvent::message(listen.cancelled()));
                }
                last.push_back(StreamEvent::response(JsonResponse::new(
                    listen.result.clone(),
                )));
            }
        }
        last
    }
}

impl EventSource for NotificationStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        while self.last.is_none() {
            if self.subscriber.lookup.is_some() {
                match self.subscriber.poll_task(cx, &self.kind) {
                    Poll::Ready(Ok(Some(message))) => {
                        return Poll::Ready(Some(StreamEvent::message(message)));
                    }
                    Poll::Ready(Ok(None)) => {}
                    Poll::Ready(Err(task)) => {
                        if self.ends_at.is_none_or(|end| Instant::now() < end) {
                            self.place.mailbox.put_back(task);
                        }
                    }
                    // Notices keep their order, so the stream waits for the task.
                    Poll::Pending => return Poll::Pending,
                }
            }
            let end = match self.place.mailbox.poll_next(cx) {
                Poll::Ready(MailboxItem::Notice(notice, _))
                    if !self.subscriber.wants_notice(&notice) =>
                {
                    continue;
                }
                Poll::Ready(MailboxItem::Task(task)) => {
                    self.subscriber.load_task(task, &self.kind);
                    continue;
                }
                Poll::Ready(MailboxItem::Notice(notice, number)) => {
                    let event = match &self.kind {
                        StreamKind::Listen(listen) => {
                            StreamEvent::message(notice::message(&notice, Some(&listen.id)))
                        }
                        StreamKind::Plain => StreamEvent::message(notice::message(&notice, None)),
                        StreamKind::Session(_) => {
                            let id = number.map(|number| EventId::new(StreamId::Standing, number));
                            self.last_id = self.last_id.filter(|_| id.is_none());
                            StreamEvent::message(notice::message(&notice, None)).with_id(id)
                        }
                    };
                    return Poll::Ready(Some(event));
                }
                Poll::Ready(MailboxItem::CloseReason(end)) => end,
                Poll::Pending if self.ends_at.is_some_and(|end| end <= Instant::now()) => {
                    if let Some(id) = self.last_id.take() {
                        return Poll::Ready(Some(ping().with_id(Some(id))));
                    }
                    CloseReason::Stopping
                }
                Poll::Pending => return Poll::Pending,
            };
            self.last = Some(self.end(end));
        }
        Poll::Ready(self.last.as_mut().and_then(VecDeque::pop_front))
    }

    fn deadline(&self) -> Option<Instant> {
        self.ends_at
    }

    fn is_standing(&self) -> bool {
        true
    }
}

/// A `ping` whose response nothing waits for. Earlier clients read any event as a message, so it cannot be empty.
fn ping() -> StreamEvent {
    // Positive, and without the mark of requests that wait for a response.
    let id = u64::from_ne_bytes(random_bytes()) >> 2;
    StreamEvent::message(format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"ping"}}"#).into())
}

impl ListenContext {
    fn cancelled(&self) -> Bytes {
        let id = &self.id;
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"requestId":{id},"reason":"the server stops"}}}}"#
        )
        .into()
    }
}

impl Streams {
    /// Maximum age of a new stream, with 10 % jitter, so that streams opened together do not close together.
    pub(crate) fn max_age(&self) -> Duration {
        let noise = u32::from(random_bytes::<1>()[0]);
        let max_age = Duration::from_secs(self.config.max_age_seconds);
        max_age * 9 / 10 + max_age * noise / 1275
    }

    /// Maximum age of a caller's new stream. It does not outlive the credential.
    pub(crate) fn max_age_for(&self, principal: &Principal) -> Duration {
        let max_age = self.max_age();
        match principal.expires() {
            None => max_age,
            Some(end) => max_age.min(Duration::from_secs(end.saturating_sub(unix_seconds()))),
        }
    }

    /// First event of a resumable stream, for revisions that have one (LH-14, LH-16).
    pub(super) fn priming(self: &Arc<Self>, id: EventId) -> StreamEvent {
        StreamEvent {
            retry: self.config.first_retry(),
            ..StreamEvent::of(EventData::Empty).with_id(Some(id))
        }
    }
}
