//! Batches of messages, which only revision 2025-03-26 has.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use futures_util::future::join_all;

use super::errors::malformed;
use super::parts::Server;
use super::reply::{MaybeReady, Reply};
use super::request_context::{Caller, Headers, Origin, RequestContext};
use super::worker_state::WorkerState;
use super::{audit_record, dispatch, errors, instrument, notifications};
use crate::auth::Principal;
use crate::limit::{Limit, LimitExceeded};
use crate::net::Peer;
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
    let (server, share) = (Arc::clone(server), caller.share());
    MaybeReady::Pending(Box::pin(async move {
        let answers = join_all(answers.into_iter().map(MaybeReady::reply)).await;
        let most = server.config.messages.batch_bytes;
        match join(answers, most) {
            Some(joined) => joined.counted(&server.limits, share, "null"),
            None => {
                let message = "the responses together are too large (server.messages.batch_bytes); send fewer requests in one batch";
                errors::batch_too_large(&server.limits.hits, Limit::BatchBytes, message.to_owned())
            }
        }
    }))
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

/// Joins the responses into one array. Returns `None` if it exceeds `most` bytes.
fn join(answers: Vec<Reply>, most: usize) -> Option<Reply> {
    let mut out = b"[".to_vec();
    for answer in answers {
        let Reply::Response(answer) = answer else {
            continue;
        };
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
