//! Arrays of messages, which 2025-03-26 alone has.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use futures_util::future::join_all;

use super::reply::Reply;
use super::watched::speaks;
use super::{Caller, Handled, Headers, Incoming, Local, Server, malformed};
use crate::auth::Principal;
use crate::limit::{Limit, Refused};
use crate::net::Peer;
use crate::protocol::message::Message;
use crate::protocol::{ErrorCode, ErrorObject, Method};
use crate::telemetry::Seen;

impl Server {
    /// Answers the messages of an array side by side, in their order, those that want no answer left out.
    pub(super) fn batch(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&Local, Seen<'_>),
        caller: Caller<'_>,
        headers: Option<&Headers<'_>>,
        body: &Bytes,
        elements: &[&str],
    ) -> Handled {
        if elements.is_empty() {
            return Handled::Now(malformed("an array of messages has at least one"));
        }
        let most = self.config.messages.batch;
        if most < elements.len() {
            let message = format!("an array has at most {most} messages (server.messages.batch)");
            return Handled::Now(self.too_much(Limit::Batch, message));
        }
        let mut answers = Vec::with_capacity(elements.len());
        for (at, text) in elements.iter().enumerate() {
            // The first one was counted when the array came in. Over standard input and output nothing is.
            let limited = match &headers {
                Some(_) if 0 < at => self.count_again(by.1.peer, caller.principal).err(),
                _ => None,
            };
            // Each call takes headers of its own along.
            let mut all = headers.map(|headers| headers.all.clone());
            let headers = match (headers, &mut all) {
                (Some(headers), Some(all)) => Some(Headers {
                    mcp: headers.mcp,
                    all,
                }),
                _ => None,
            };
            answers.extend(self.batched(cx, by, caller, headers, (body, text), limited));
        }
        let (server, share) = (Arc::clone(self), caller.share());
        Handled::Later(Box::pin(async move {
            let answers = join_all(answers.into_iter().map(Handled::reply)).await;
            let most = server.config.messages.batch_bytes;
            match join(answers, most) {
                Some(joined) => joined.counted(&server.limits, share, "null"),
                None => {
                    let message = "the answers together are too large (server.messages.batch_bytes); send fewer requests at once";
                    server.too_much(Limit::BatchBytes, message.to_owned())
                }
            }
        }))
    }

    /// A further message has come with a request: it counts for as much as if it had come alone.
    fn count_again(&self, peer: Option<Peer>, principal: &Principal) -> Result<(), Refused> {
        peer.map_or(Ok(()), |peer| self.limits.arrive(peer.address))?;
        self.limits.admit(principal)
    }

    /// One message of an array. `None` if it wants no answer. A request that is `limited` is refused, so that the others
    /// get their answers.
    fn batched(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        (local, seen): (&Local, Seen<'_>),
        caller: Caller<'_>,
        headers: Option<Headers<'_>>,
        (body, text): (&Bytes, &str),
        limited: Option<Refused>,
    ) -> Option<Handled> {
        let request = match Message::within(text, self.bounds) {
            Ok(Message::Request(request)) => request,
            Ok(Message::Notification(notification)) => {
                if let Some(session) = caller.session {
                    self.notified(session, &notification);
                }
                return None;
            }
            Ok(Message::Response(response)) => {
                if let Some(session) = caller.session {
                    self.answered(session, caller.principal, &response);
                }
                return None;
            }
            Err(problem) => return Some(Handled::Now(self.not_a_message(&problem))),
        };
        if let Some(refused) = limited {
            return Some(Handled::Now(Reply::limited(Some(request.id), refused)));
        }
        // RPC-07, and a request of the stateless era is never in an array.
        if request.method == Method::Initialize.as_str()
            || request.params.meta.protocol_version.is_some()
        {
            let error = ErrorObject::new(
                ErrorCode::InvalidRequest,
                "this request is not accepted in an array of messages",
            );
            return Some(Handled::Now(Reply::error(request.id, &error)));
        }
        let seen = Seen {
            headers: headers.as_ref().map(|headers| &*headers.all),
            ..seen
        };
        let watch = self.watch(local.cells(), caller.principal, seen, &request);
        speaks(watch.as_ref(), caller.revision, caller.session);
        let caller = Caller {
            watch: watch.as_ref(),
            ..caller
        };
        let incoming = Incoming {
            caller,
            headers,
            body,
            request: &request,
        };
        let handled = self.session_request(cx, incoming);
        Some(self.watched(watch, &request, handled))
    }
}

/// The answers in one array, if it has no more bytes than it may.
fn join(answers: Vec<Reply>, most: usize) -> Option<Reply> {
    let mut out = b"[".to_vec();
    for answer in answers {
        let Reply::Answer(answer) = answer else {
            continue;
        };
        if out.len() > 1 {
            out.push(b',');
        }
        // A bracket comes too.
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
