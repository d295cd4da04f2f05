//! Messages received over HTTP: selects the lifecycle of each from its headers and `_meta`.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;

use super::config::BatchPolicy;
use super::errors::malformed;
use super::param_headers::VersionHeader;
use super::parts::Server;
use super::reply::{JsonResponse, MaybeReady, Reply};
use super::request_context::{
    Caller, Channel, HttpHead, MessageBody, RequestContext, report_lifecycle,
};
use super::worker_state::WorkerState;
use super::{batch, dispatch, errors, handshake, instrument, notifications};
use crate::catalog::SharedText;
use crate::limit::share_of;
use crate::protocol::Method;
use crate::protocol::message::{self, Malformed, Message, Payload, Request};
use crate::telemetry::{RequestOrigin, RequestScope};

impl Server {
    /// Handles the body of one POST. Returns `Ready` if nothing has to wait; otherwise registers with `cx`.
    #[inline]
    pub fn handle_http(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        worker: &WorkerState,
        head: &mut HttpHead<'_>,
        body: &Bytes,
    ) -> MaybeReady {
        let version = head.mcp.version();
        let is_long = SharedText::WORTHWHILE_BYTES <= body.len();
        let long_text = is_long.then(|| SharedText::new(body.clone()));
        let text = match &long_text {
            None => message::text(body),
            Some(Ok(text)) => Ok(text.as_str()),
            Some(Err(error)) => Err(Malformed::not_utf8(error.valid_up_to())),
        };
        let payload = match text {
            Ok(text) => Payload::of_text(text, self.bounds),
            Err(problem) => Err(problem),
        };
        let message = MessageBody {
            bytes: body,
            text: long_text.as_ref().and_then(|text| text.as_ref().ok()),
        };
        MaybeReady::Ready(match &payload {
            Ok(Payload::Single(Message::Request(request))) => {
                let seen = RequestOrigin {
                    wire: head.wire,
                    headers: Some(head.headers),
                    peer: head.peer,
                };
                let watch =
                    instrument::observe(self, worker.cells(), head.principal, seen, request);
                let (head, message) = ((head, version), (message, request));
                let handled = handle_request(self, cx, worker, head, message, watch.as_ref());
                return instrument::observed(self, watch, request, handled);
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                let modern = notification.params.meta.protocol_version.is_some();
                if modern || version == VersionHeader::Stateless {
                    Reply::Accepted
                } else {
                    return handle_one_way(self, worker, head, version, |session| {
                        notifications::handle_notification(self, session, notification);
                        MaybeReady::Ready(Reply::Accepted)
                    });
                }
            }
            // MH-21: the stateless lifecycle has no client requests, so there is nothing to respond to.
            Ok(Payload::Single(Message::Response(_))) if version == VersionHeader::Stateless => {
                malformed("a client of this revision sends no responses")
            }
            Ok(Payload::Single(Message::Response(response))) => {
                return handle_one_way(self, worker, head, version, |session| {
                    notifications::handle_response(self, session, head.principal, response)
                });
            }
            Ok(Payload::Batch(elements)) => {
                return handle_batch(self, cx, worker, head, version, body, elements);
            }
            Err(problem) if problem.is_response && version != VersionHeader::Stateless => {
                return handle_malformed_response(self, worker, head, version, problem);
            }
            Err(problem) => errors::malformed_message(&self.limits.hits, problem),
        })
    }

    /// Ends the session named by a DELETE request (LH-09).
    pub fn end_session(
        &self,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<(), Reply> {
        let session = handshake::session_of(self, worker, head, version, None)?;
        let address = head.peer.map(|peer| peer.address);
        handshake::revoke(self, worker, &session, share_of(head.principal, address));
        Ok(())
    }
}

/// Handles a malformed response of the stateful lifecycle. Whether its session is valid makes no difference to the reply.
#[cold]
fn handle_malformed_response(
    server: &Arc<Server>,
    worker: &WorkerState,
    head: &HttpHead<'_>,
    version: VersionHeader,
    problem: &Malformed<'_>,
) -> MaybeReady {
    match handshake::session_of(server, worker, head, version, None) {
        Ok(session) => notifications::handle_malformed_response(
            server,
            &session.log_name,
            head.principal,
            problem,
        ),
        Err(_) => MaybeReady::Ready(errors::malformed_message(&server.limits.hits, problem)),
    }
}

/// Handles one request in the lifecycle that the decision table gives it.
#[inline]
fn handle_request(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    worker: &WorkerState,
    (head, version): (&mut HttpHead<'_>, VersionHeader),
    (body, request): (MessageBody<'_>, &Request<'_>),
    watch: Option<&RequestScope<'_>>,
) -> MaybeReady {
    let modern = request.params.meta.protocol_version.is_some();
    let has_session = !modern && version != VersionHeader::Stateless;
    if has_session
        && request.method == Method::Initialize.as_str()
        && version != VersionHeader::Unknown
    {
        if let Err(refused) = server
            .limits
            .begin_session(head.principal, head.peer.map(|peer| peer.address))
        {
            return MaybeReady::Ready(Reply::limited(Some(request.id), refused));
        }
        return MaybeReady::Ready(
            match handshake::initialize(server, worker, head.principal, request) {
                Ok((session, Reply::Response(answer))) => {
                    report_lifecycle(watch, session.revision, Some(&session.log_name));
                    Reply::Response(JsonResponse {
                        session: Some(server.sessions.seal(&session)),
                        ..answer
                    })
                }
                Ok((_, reply)) | Err(reply) => reply,
            },
        );
    }
    let session = match has_session
        .then(|| handshake::session_of(server, worker, head, version, Some(request.id)))
        .transpose()
    {
        Ok(session) => session,
        Err(reply) => return MaybeReady::Ready(reply),
    };
    let channel = Channel::Http {
        accepts_stream: head.takes_streams,
    };
    let origin = head.origin(worker, watch);
    let request_context = RequestContext {
        caller: Caller::new(channel, origin, session.as_deref(), server.caller_defaults),
        headers: Some(head.headers()),
        body,
        request,
    };
    match has_session {
        true => dispatch::session_request(server, cx, request_context),
        false => dispatch::stateless_request(server, cx, request_context),
    }
}

/// Handles a notification or a response of the stateful lifecycle, if its session is valid (HTTP-05).
fn handle_one_way(
    server: &Arc<Server>,
    worker: &WorkerState,
    head: &HttpHead<'_>,
    version: VersionHeader,
    handle: impl FnOnce(&str) -> MaybeReady,
) -> MaybeReady {
    match handshake::session_of(server, worker, head, version, None) {
        Ok(session) => handle(&session.log_name),
        Err(reply) => MaybeReady::Ready(reply),
    }
}

/// Handles a batch (RPC-06 to RPC-08).
fn handle_batch(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    worker: &WorkerState,
    head: &mut HttpHead<'_>,
    version: VersionHeader,
    body: &Bytes,
    elements: &[&str],
) -> MaybeReady {
    let no_batch = "an array of messages is not accepted: only 2025-03-26 has batches";
    if version == VersionHeader::Stateless || server.config.batch == BatchPolicy::Never {
        return MaybeReady::Ready(malformed(no_batch));
    }
    let session = match handshake::session_of(server, worker, head, version, None) {
        Ok(session) => session,
        Err(reply) => return MaybeReady::Ready(reply),
    };
    if !session.revision.has_batches() && server.config.batch != BatchPolicy::Always {
        return MaybeReady::Ready(malformed(no_batch));
    }
    let origin = head.origin(worker, None);
    let caller = Caller::new(
        Channel::Batch {
            accepts_stream: head.takes_streams,
        },
        origin,
        Some(&session),
        server.caller_defaults,
    );
    let seen = RequestOrigin {
        wire: head.wire,
        headers: None,
        peer: head.peer,
    };
    batch::handle(
        server,
        cx,
        (worker, seen),
        caller,
        Some(&head.headers()),
        body,
        elements,
    )
}
