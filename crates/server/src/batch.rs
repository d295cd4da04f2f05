//! Batches of messages, which only revision 2025-03-26 has.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::errors::malformed;
use super::inflight::BoxedCall;
use super::parts::Server;
use super::reply::{JsonResponse, MaybeReady, Reply};
use super::request_context::{Caller, Headers, Origin, RequestContext};
use super::streams::{EventData, EventSource, StreamEvent};
use super::worker_state::WorkerState;
use super::{audit_record, dispatch, errors, instrument, notifications};
use crate::auth::Principal;
use crate::limit::{Limit, LimitExceeded};
use crate::net::{Peer, ShareKey};
use crate::protocol::message::Message;
use crate::protocol::{ErrorCode, ErrorObject, Method};
use crate::telemetry::RequestOrigin;

/// Handles the messages of a batch concurrently. Responses keep the order of the requests.
pub(super) fn handle(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    by: (&WorkerState, RequestOrigin<'_>),
    caller: Caller<'_>,
    headers: Option<&Headers<'_>>,
    body: &Bytes,
    elements: &[&str],
) -> MaybeReady {
    if elements.is_empty() {
        return MaybeReady::Ready(malformed("an array of messages has at least one"));
    }
    let most = server.config.messages.batch;
    if most < elements.len() {
        let message = format!("an array has at most {most} messages (server.messages.batch)");
        return MaybeReady::Ready(errors::batch_too_large(
            &server.limits.hits,
            Limit::Batch,
            message,
        ));
    }
    let mut answers = Vec::with_capacity(elements.len());
    for (at, text) in elements.iter().enumerate() {
        // The transport counted the first message. Messages over stdio are not rate limited.
        let limited = match &headers {
            Some(_) if 0 < at => count_again(server, by.1.peer, caller.principal).err(),
            _ => None,
        };
        // A call takes its headers, so each one needs a copy.
        let mut all = headers.map(|headers| headers.all.clone());
        let headers = match (headers, &mut all) {
            (Some(headers), Some(all)) => Some(Headers {
                mcp: headers.mcp,
                all,
                extensions: headers.extensions,
            }),
            _ => None,
        };
        answers.extend(handle_element(
            server,
            cx,
            by,
            caller,
            headers,
            (body, text),
            limited,
        ));
    }
    let replies = BatchReplies {
        server: Arc::clone(server),
        share: caller.share(),
        parts: answers.into_iter().map(BatchPart::of).collect(),
        next: 0,
        is_over: false,
    };
    MaybeReady::Pending(Box::pin(replies.reply()))
}

/// Charges the rate limits for a further message, as if it had arrived in a request of its own.
fn count_again(
    server: &Server,
    peer: Option<Peer>,
    principal: &Principal,
) -> Result<(), LimitExceeded> {
    peer.map_or(Ok(()), |peer| server.limits.arrive(peer.address))?;
    server.limits.admit(principal)
}

/// Handles one message of a batch. Returns `None` for notifications, and no response for accepted responses.
///
/// A request with `limited` set is rejected, so that the others still get their responses.
fn handle_element(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    (worker, seen): (&WorkerState, RequestOrigin<'_>),
    caller: Caller<'_>,
    headers: Option<Headers<'_>>,
    (body, text): (&Bytes, &str),
    limited: Option<LimitExceeded>,
) -> Option<MaybeReady> {
    let request = match Message::within(text, server.bounds) {
        Ok(Message::Request(request)) => request,
        Ok(Message::Notification(notification)) => {
            if let Some(session) = caller.session {
                notifications::handle_notification(server, session, &notification);
            }
            return None;
        }
        Ok(Message::Response(response)) => {
            let principal = caller.principal;
            return caller.session.map(|session| {
                notifications::handle_response(server, session, principal, &response)
            });
        }
        Err(problem) if problem.is_response => {
            let principal = caller.principal;
            return caller.session.map(|session| {
                notifications::handle_malformed_response(server, session, principal, &problem)
            });
        }
        Err(problem) => {
            return Some(MaybeReady::Ready(errors::malformed_message(
                &server.limits.hits,
                &problem,
            )));
        }
    };
    if let Some(refused) = limited {
        audit_record::audit_limited(server, caller, refused);
        return Some(MaybeReady::Ready(Reply::limited(Some(request.id), refused)));
    }
    // RPC-07; requests of the stateless lifecycle are not allowed in a batch either.
    if request.method == Method::Initialize.as_str()
        || request.params.meta.protocol_version.is_some()
    {
        let error = ErrorObject::new(
            ErrorCode::InvalidRequest,
            "this request is not accepted in an array of messages",
        );
        return Some(MaybeReady::Ready(Reply::error(request.id, &error)));
    }
    let seen = RequestOrigin {
        headers: headers.as_ref().map(|headers| &*headers.all),
        ..seen
    };
    let watch = instrument::observe(server, worker.cells(), caller.principal, seen, &request);
    let origin = Origin {
        principal: caller.principal,
        address: caller.address,
        now: caller.now,
        watch: watch.as_ref(),
    };
    let caller = Caller::with_profile(origin, caller.session, caller.profile);
    let request_context = RequestContext {
        caller,
        headers,
        body: body.into(),
        request: &request,
    };
    let handled = dispatch::session_request(server, cx, request_context);
    Some(instrument::observed(server, watch, &request, handled))
}

/// Replies to the messages of a batch. Together they are one array, or a stream of messages that ends with the array.
struct BatchReplies {
    server: Arc<Server>,
    share: ShareKey,
    parts: Vec<BatchPart>,
    /// Index of the part whose messages are sent next, so that none waits for all those of another.
    next: usize,
    /// True after the last event of the stream.
    is_over: bool,
}

/// Reply to one message of a batch.
enum BatchPart {
    Waiting(BoxedCall<Reply>),
    Stream(Box<dyn EventSource>),
    /// `None` if the message gets no response.
    Done(Option<JsonResponse>),
}

impl BatchPart {
    fn of(reply: MaybeReady) -> Self {
        match reply {
            MaybeReady::Pending(reply) => Self::Waiting(reply),
            MaybeReady::Ready(Reply::Stream(stream)) => Self::Stream(stream),
            MaybeReady::Ready(Reply::Response(response)) => Self::Done(Some(response)),
            MaybeReady::Ready(Reply::Accepted | Reply::Cancelled) => Self::Done(None),
        }
    }

    /// Polls for the next message. `None` once the response has arrived.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            match self {
                Self::Done(_) => return Poll::Ready(None),
                Self::Waiting(reply) => match reply.as_mut().poll(cx) {
                    Poll::Ready(reply) => *self = Self::of(MaybeReady::Ready(reply)),
                    Poll::Pending => return Poll::Pending,
                },
                Self::Stream(stream) => match stream.poll_next(cx) {
                    Poll::Ready(Some(event)) => match event.data {
                        EventData::Message(message) => return Poll::Ready(Some(message)),
                        EventData::Response(response) => *self = Self::Done(Some(response)),
                        EventData::Empty => {}
                    },
                    Poll::Ready(None) => *self = Self::Done(None),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}

impl BatchReplies {
    /// Waits for all replies, or for the first one that is a stream.
    async fn reply(mut self) -> Reply {
        let is_stream = poll_fn(|cx| self.poll_replies(cx)).await;
        match is_stream {
            true => Reply::Stream(Box::new(self)),
            false => self.joined(),
        }
    }

    /// Polls the replies that have not arrived. Returns true if one of them is a stream.
    fn poll_replies(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let (mut streams, mut waits) = (false, false);
        for part in &mut self.parts {
            if let BatchPart::Waiting(reply) = part
                && let Poll::Ready(reply) = reply.as_mut().poll(cx)
            {
                *part = BatchPart::of(MaybeReady::Ready(reply));
            }
            streams |= matches!(part, BatchPart::Stream(_));
            waits |= matches!(part, BatchPart::Waiting(_));
        }
        match streams || !waits {
            true => Poll::Ready(streams),
            false => Poll::Pending,
        }
    }

    fn joined(&mut self) -> Reply {
        let responses = self.parts.drain(..).filter_map(|part| match part {
            BatchPart::Done(response) => response,
            BatchPart::Waiting(_) | BatchPart::Stream(_) => None,
        });
        match join(responses, self.server.config.messages.batch_bytes) {
            Some(joined) => joined.counted(&self.server.limits, self.share, "null"),
            None => {
                let message = "the responses together are too large (server.messages.batch_bytes); send fewer requests in one batch";
                let hits = &self.server.limits.hits;
                errors::batch_too_large(hits, Limit::BatchBytes, message.to_owned())
            }
        }
    }
}

impl EventSource for BatchReplies {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let mut waits = false;
        let count = self.parts.len();
        for at in (self.next..count).chain(0..self.next) {
            match self.parts[at].poll_message(cx) {
                Poll::Ready(Some(message)) => {
                    self.next = (at + 1) % count;
                    return Poll::Ready(Some(StreamEvent::message(message)));
                }
                Poll::Ready(None) => {}
                Poll::Pending => waits = true,
            }
        }
        if waits {
            return Poll::Pending;
        }
        self.is_over = true;
        Poll::Ready(match self.joined() {
            Reply::Response(response) => Some(StreamEvent::response(response)),
            Reply::Accepted | Reply::Stream(_) | Reply::Cancelled => None,
        })
    }
}

/// Joins the responses into one array. Returns `None` if it exceeds `most` bytes.
fn join(answers: impl Iterator<Item = JsonResponse>, most: usize) -> Option<Reply> {
    let mut out = b"[".to_vec();
    for answer in answers {
        if out.len() > 1 {
            out.push(b',');
        }
        // The closing bracket takes one byte.
        if most < out.len() + answer.head.len() + answer.rest.len() + 1 {
            return None;
        }
        answer
            .pieces()
            .for_each(|piece| out.extend_from_slice(piece));
    }
    if out.len() == 1 {
        return Some(Reply::Accepted);
    }
    out.push(b']');
    Some(Reply::document(out))
}
