//! Sessions of the HTTP+SSE transport of 2024-11-05: one open event stream, and messages posted beside it.
//!
//! A session lives in this process as long as its stream. Its responses wait in a bounded queue. A session whose
//! client reads nothing for five seconds is evicted. A message posted to another replica is forwarded to the replica
//! with the stream, if they share state.
//!
//! At shutdown, and when its credential expires, a session accepts no more requests. Its stream ends after the responses to
//! those in progress, because its client cannot resume it. A stream has no maximum age: clients of this transport fail, or
//! reconnect without `initialize`.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::errors;
use super::parts::Server;
use super::reply::{JsonResponse, MaybeReady, RejectReason, Reply};
use super::sse_sessions::{SseSession, SseSessionId};
use super::streams::{BusMessage, EventData, EventSource, StreamEvent, StreamSlot};
use super::worker_state::WorkerState;
use super::{handshake, notifications, stdio};
use crate::auth::Principal;
use crate::environment::unix_seconds;
use crate::protocol::message::{Malformed, Message, MessageBounds, Payload};
use crate::protocol::{ErrorCode, Revision};
use crate::seal::{random_bytes, short_digest};
use crate::telemetry::RequestOrigin;

/// Maximum size of a message forwarded to another replica, in bytes.
const FORWARD_BYTES_MAX: usize = 30 * 1024;
/// Work that remains after a message was posted: it sends the response to the stream.
pub type ReplyTask = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Server {
    /// Opens a session and its stream. `path` is the path to which the client posts messages (SSE24-01). `revision` is the one
    /// that a client names which has reconnected, and may not send `initialize` again.
    pub fn open_sse_session(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        address: Option<IpAddr>,
        path: &str,
        revision: Option<Revision>,
    ) -> Result<Box<dyn EventSource>, Reply> {
        let place = self.streams.slot_for(principal, address)?;
        let (session, messages) = SseSession::new(
            principal,
            revision
                .filter(|revision| revision.has_sessions())
                .unwrap_or(Revision::V2024_11_05),
        );
        let session = Arc::new(session);
        let id = SseSessionId {
            replica: self.replica,
            number: random_bytes(),
            owner: short_digest(&[principal.id().as_bytes()]),
        };
        let id = id.sign(&self.keys, &self.endpoint);
        let first = StreamEvent::event("endpoint", format!("{path}?sessionId={id}").into());
        let id: Box<str> = id.into();
        self.sessions
            .sse
            .all()
            .insert(id.clone(), Arc::clone(&session));
        Ok(Box::new(SseSessionStream {
            ends_at: principal.expires().and_then(|end| {
                Instant::now().checked_add(Duration::from_secs(end.saturating_sub(unix_seconds())))
            }),
            server: Arc::clone(self),
            id,
            session,
            place,
            messages,
            standing: None,
            first: Some(first),
        }))
    }

    /// Handles a message posted to a session. The response goes to the session's stream.
    ///
    /// # Errors
    ///
    /// The reply to a malformed message, or to one that is forwarded to another replica.
    pub fn post_sse_message(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, RequestOrigin<'_>),
        principal: &Arc<Principal>,
        id: &str,
        body: &Bytes,
    ) -> Result<ReplyTask, MaybeReady> {
        let session = self.sessions.sse.all().get(id).cloned();
        let session = session.filter(|session| session.principal == *principal);
        let Some(session) = session else {
            return Err(forward(self, principal, id, body));
        };
        let payload = Payload::within(body, self.bounds);
        let permit = match expects_response(&payload, self.bounds) {
            true => Some(session.begin_request().map_err(MaybeReady::Ready)?),
            false => None,
        };
        let message = (body, payload);
        let handled = stdio::handle_payload(self, cx, by, &session.peer, principal, message);
        if let MaybeReady::Ready(Reply::Response(answer)) = &handled
            && answer.refusal == Some(RejectReason::Malformed)
            && let MaybeReady::Ready(refusal) = handled
        {
            return Err(MaybeReady::Ready(refusal));
        }
        let server = Arc::clone(self);
        let id: Box<str> = id.into();
        Ok(Box::pin(async move {
            if !session.respond(handled, permit).await {
                evict(&server, &id, &session);
            }
        }))
    }
}

/// Returns true if the message is a request, or a batch with one.
fn expects_response(payload: &Result<Payload<'_>, Malformed<'_>>, bounds: MessageBounds) -> bool {
    match payload {
        Ok(Payload::Single(message)) => matches!(message, Message::Request(_)),
        Ok(Payload::Batch(elements)) => elements.iter().any(|text| {
            let message = Message::within(text, bounds);
            !matches!(message, Ok(Message::Notification(_) | Message::Response(_)))
        }),
        Err(_) => false,
    }
}

/// Forwards a message to the replica that has the session's stream.
#[cold]
fn forward(server: &Arc<Server>, principal: &Principal, id: &str, body: &Bytes) -> MaybeReady {
    match forwarded(server, principal, id, body) {
        Ok(message) => {
            let forwarding = notifications::forward(Arc::clone(server), message);
            MaybeReady::Pending(Box::pin(forwarding))
        }
        Err(refusal) => MaybeReady::Ready(refusal),
    }
}

/// Returns the form in which a message is forwarded.
fn forwarded(
    server: &Server,
    principal: &Principal,
    id: &str,
    body: &Bytes,
) -> Result<BusMessage, Reply> {
    let unknown = |message| {
        let code = ErrorCode::Http(404);
        Reply::refuse(RejectReason::SessionUnknown, None, code, message)
    };
    let owner = short_digest(&[principal.id().as_bytes()]);
    let to = SseSessionId::read(id, &server.keys, &server.endpoint)
        .filter(|id| id.owner == owner && id.replica != server.replica)
        .map(|id| id.replica)
        .ok_or_else(|| {
            unknown("Session not found: it ends with its event stream; open one again")
        })?;
    if !server.streams.is_shared() {
        return Err(unknown(
            "Session not found on this replica: another replica has its event stream, and replicas share no state; configure a shared state, or route a session to one replica",
        ));
    }
    if let Err(problem) = Payload::within(body, server.bounds) {
        return Err(errors::malformed_message(&server.limits.hits, &problem));
    }
    let message = std::str::from_utf8(body).ok();
    let Some(message) = message.filter(|text| text.len() <= FORWARD_BYTES_MAX) else {
        return Err(unknown(
            "the message is too large to be passed to the replica that has the event stream; route a session to one replica",
        ));
    };
    Ok(BusMessage::Posted {
        to,
        session: id.to_owned(),
        principal: principal.id().into(),
        message: message.to_owned(),
    })
}

/// Handles a message that was posted to another replica for a session of this one.
pub(super) fn receive_forwarded(server: &Arc<Server>, id: &str, principal: &str, message: String) {
    let session = server.sessions.sse.all().get(id).cloned();
    let Some(session) = session.filter(|session| *session.principal.id() == *principal) else {
        return;
    };
    let worker = WorkerState::new(server.observability.telemetry.cells());
    let (server, id, body) = (Arc::clone(server), id.to_owned(), Bytes::from(message));
    tokio::spawn(async move {
        let posted = std::future::poll_fn(|cx| {
            let principal = &session.principal;
            let by = (&worker, RequestOrigin::default());
            Poll::Ready(server.post_sse_message(cx, by, principal, &id, &body))
        });
        if let Ok(posted) = posted.await {
            posted.await;
        }
    });
}

/// Ends a session whose client does not read.
fn evict(server: &Server, id: &str, session: &SseSession) {
    if server.sessions.sse.all().remove(id).is_some() {
        tracing::info!("a session of 2024-11-05 was ended: its client did not read its messages");
    }
    session.is_evicted.store(true, Ordering::Release);
    session.waker.wake();
}

/// Event stream of a session.
struct SseSessionStream {
    server: Arc<Server>,
    id: Box<str>,
    session: Arc<SseSession>,
    place: StreamSlot,
    messages: mpsc::Receiver<JsonResponse>,
    /// Notifications of the session, after `initialize`.
    standing: Option<Box<dyn EventSource>>,
    first: Option<StreamEvent>,
    ends_at: Option<Instant>,
}

impl SseSessionStream {
    /// Returns the next notification of the session.
    fn poll_notification(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if self.standing.is_none() {
            let SseSession {
                peer, principal, ..
            } = &*self.session;
            self.standing = self.server.stdio_notifications(peer, principal);
        }
        while let Some(standing) = &mut self.standing {
            match standing.poll_next(cx) {
                Poll::Ready(Some(event)) => {
                    if let EventData::Message(message) = event.data {
                        return Poll::Ready(message);
                    }
                }
                // It ends at shutdown, before the responses to requests in progress.
                Poll::Ready(None) => self.standing = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }
}

impl EventSource for SseSessionStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        self.session.waker.register(cx.waker());
        let is_told_to_end = self.place.is_ended(cx);
        if self.session.is_evicted.load(Ordering::Acquire)
            || is_told_to_end && self.place.is_revoked()
        {
            return Poll::Ready(None);
        }
        if is_told_to_end || self.ends_at.is_some_and(|end| end <= Instant::now()) {
            self.session.close();
        }
        // Read before the queue: a response is queued before its permit is released.
        let is_finished = self.session.is_finished();
        if let Poll::Ready(answer) = self.messages.poll_recv(cx) {
            let message = answer.as_ref().map(JsonResponse::to_bytes);
            return Poll::Ready(message.map(|message| StreamEvent::event("message", message)));
        }
        if let Poll::Ready(message) = self.poll_notification(cx) {
            return Poll::Ready(Some(StreamEvent::event("message", message)));
        }
        match is_finished {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.ends_at
    }

    fn is_standing(&self) -> bool {
        true
    }
}

impl Drop for SseSessionStream {
    /// The session ends with its stream, and with it the work whose result has no reader.
    fn drop(&mut self) {
        self.server.sessions.sse.all().remove(&self.id);
        if let Some(session) = self.session.peer.session() {
            handshake::close_work(&self.server, &session.log_name);
            self.server.streams.remove_session_state(&session.log_name);
        }
    }
}

#[cfg(test)]
mod tests;
