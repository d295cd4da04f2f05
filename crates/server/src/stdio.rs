//! Messages received over standard input.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Context;

use bytes::Bytes;
use serde_json::json;

use super::config::BatchPolicy;
use super::errors::malformed;
use super::inflight::STDIO;
use super::parts::Server;
use super::peer::StdioPeer;
use super::reply::{MaybeReady, Reply};
use super::request_context::{Caller, Channel, Headers, Origin, RequestContext, report_lifecycle};
use super::streams;
use super::streams::EventSource;
use super::text::truncated;
use super::worker_state::WorkerState;
use super::{batch, dispatch, errors, handshake, instrument, notifications};
use crate::auth::Principal;
use crate::protocol::message::{self, Ends, Malformed, Message, Payload, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision};
use crate::seal::Session;
use crate::telemetry::{RequestOrigin, RequestScope};

impl Server {
    /// Handles one message that arrived as `seen` describes. Returns `Ready` if nothing has to wait; otherwise
    /// registers with `cx`.
    pub fn handle_stdio(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        (worker, seen): (&WorkerState, RequestOrigin<'_>),
        peer: &StdioPeer,
        principal: &Arc<Principal>,
        body: &Bytes,
    ) -> MaybeReady {
        let payload = match Payload::within(body, self.bounds) {
            Err(problem) if problem.is_unread() => {
                return MaybeReady::Ready(unread_message(self, body, problem));
            }
            payload => payload,
        };
        let message = (body, payload);
        handle_payload(self, cx, (worker, seen), peer, principal, message)
    }

    /// The stream of notifications of a session. Returns it once, as soon as there is a session.
    pub fn stdio_notifications(
        self: &Arc<Self>,
        peer: &StdioPeer,
        principal: &Arc<Principal>,
    ) -> Option<Box<dyn EventSource>> {
        let session = peer.session()?;
        if peer.listens.swap(true, Ordering::Relaxed) {
            return None;
        }
        streams::session_notifications(self, &session, principal)
    }
}

/// Error for a message that could not be read to its end. It has the id of its request, if that can be found: without one, the
/// client waits until its timeout.
#[cold]
fn unread_message(server: &Server, body: &[u8], problem: Malformed<'_>) -> Reply {
    let mut ends = Ends::default();
    ends.add(body);
    let id = ends.request_id(message::is_closed(body));
    let problem = Malformed {
        id: id.as_deref(),
        ..problem
    };
    errors::malformed_message(&server.limits.hits, &problem)
}

/// Handles a message that has been parsed.
pub(crate) fn handle_payload(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    (worker, seen): (&WorkerState, RequestOrigin<'_>),
    peer: &StdioPeer,
    principal: &Arc<Principal>,
    (body, payload): (&Bytes, Result<Payload<'_>, Malformed<'_>>),
) -> MaybeReady {
    MaybeReady::Ready(match payload {
        Ok(Payload::Single(Message::Request(request))) => {
            let watch = instrument::observe(server, worker.cells(), principal, seen, &request);
            let (sender, message) = ((peer, principal), (body, &request));
            let handled = handle_request(server, cx, worker, sender, message, watch.as_ref());
            return instrument::observed(server, watch, &request, handled);
        }
        Ok(Payload::Single(Message::Notification(notification))) => {
            // A client may use both lifecycles at once. Request ids are unique within each.
            if let Some(session) = peer.session() {
                notifications::handle_notification(server, &session.log_name, &notification);
            }
            if peer.assumed.is_none() {
                notifications::handle_notification(server, STDIO, &notification);
            }
            Reply::Accepted
        }
        Ok(Payload::Single(Message::Response(response))) => {
            let Some(session) = peer.session() else {
                return MaybeReady::Ready(Reply::Accepted);
            };
            let session = &session.log_name;
            match notifications::handle_response(server, session, principal, &response) {
                MaybeReady::Ready(_) => Reply::Accepted,
                // The request was sent by an earlier process, so nobody waits for the outcome.
                MaybeReady::Pending(forwarded) => {
                    return MaybeReady::Pending(Box::pin(async move {
                        drop(forwarded.await);
                        Reply::Accepted
                    }));
                }
            }
        }
        Ok(Payload::Batch(elements)) => match peer.session() {
            Some(session)
                if server.config.batch == BatchPolicy::Always
                    || server.config.batch == BatchPolicy::Auto
                        && session.revision.has_batches() =>
            {
                let caller = stdio_caller(server, worker, Some(&session), principal, None);
                return batch::handle(server, cx, (worker, seen), caller, None, body, &elements);
            }
            _ => malformed("an array of messages is not accepted: only 2025-03-26 has batches"),
        },
        Err(problem) if problem.is_response => {
            return handle_malformed_response(server, peer, principal, &problem);
        }
        Err(problem) => errors::malformed_message(&server.limits.hits, &problem),
    })
}

/// Handles a malformed response. RPC-05: over stdio it gets no reply; over HTTP+SSE, its POST does.
#[cold]
fn handle_malformed_response(
    server: &Arc<Server>,
    peer: &StdioPeer,
    principal: &Principal,
    problem: &Malformed<'_>,
) -> MaybeReady {
    let handled = peer.session().map(|session| {
        let session = &session.log_name;
        notifications::handle_malformed_response(server, session, principal, problem)
    });
    match handled {
        // A request of an earlier process has nobody who waits for its outcome.
        Some(MaybeReady::Ready(refusal)) if peer.assumed.is_some() => MaybeReady::Ready(refusal),
        None if peer.assumed.is_some() => {
            MaybeReady::Ready(errors::malformed_message(&server.limits.hits, problem))
        }
        Some(_) | None => MaybeReady::Ready(Reply::Accepted),
    }
}

fn handle_request(
    server: &Arc<Server>,
    cx: &mut Context<'_>,
    worker: &WorkerState,
    (peer, principal): (&StdioPeer, &Arc<Principal>),
    (body, request): (&Bytes, &Request<'_>),
    watch: Option<&RequestScope<'_>>,
) -> MaybeReady {
    let mut all = peer.http.as_ref().map(|http| http.headers.clone());
    let headers = all.as_mut().zip(peer.http.as_ref());
    let headers = headers.map(|(all, http)| Headers {
        mcp: None,
        all,
        extensions: Some(&http.extensions),
    });
    let of = |caller| RequestContext {
        caller,
        headers,
        body: body.into(),
        request,
    };
    if let Some(version) = request.params.meta.protocol_version {
        if peer.assumed.is_some() {
            let version = message::string(version).unwrap_or_default();
            return MaybeReady::Ready(not_on_this_transport(request.id, &version));
        }
        let caller = stdio_caller(server, worker, None, principal, watch);
        return dispatch::stateless_request(server, cx, of(caller));
    }
    let method = Method::parse(&request.method);
    let assumed = |revision| {
        let begin = || {
            let sessions = &server.sessions;
            sessions.begin_without_initialize(revision, principal, worker.now())
        };
        peer.session_or(begin)
    };
    let session = || peer.session().or_else(|| peer.assumed.map(assumed));
    if method != Some(Method::Initialize)
        && let Some(session) = session()
    {
        let caller = stdio_caller(server, worker, Some(&session), principal, watch);
        return dispatch::session_request(server, cx, of(caller));
    }
    MaybeReady::Ready(match method {
        Some(Method::Initialize) => match handshake::initialize(server, worker, principal, request)
        {
            Ok((session, reply)) => {
                let session = peer.begin_session(session);
                report_lifecycle(watch, session.revision, Some(&session.log_name));
                reply
            }
            Err(reply) => reply,
        },
        Some(Method::Ping) => Reply::constant(request.id, br#","result":{}}"#),
        _ => Reply::fail(
            request.id,
            ErrorCode::InvalidRequest,
            "send initialize first, or io.modelcontextprotocol/protocolVersion in _meta",
        ),
    })
}

fn stdio_caller<'a>(
    server: &Server,
    worker: &WorkerState,
    session: Option<&'a Session>,
    principal: &'a Arc<Principal>,
    watch: Option<&'a RequestScope<'a>>,
) -> Caller<'a> {
    let origin = Origin {
        principal,
        address: None,
        now: worker.now(),
        watch,
    };
    Caller::new(Channel::Stdio, origin, session, server.caller_defaults)
}

/// VER-02: this transport serves only revisions with sessions.
fn not_on_this_transport(id: &str, requested: &str) -> Reply {
    let supported: Vec<_> = Revision::ALL
        .into_iter()
        .filter(|revision| revision.has_sessions())
        .map(Revision::as_str)
        .collect();
    let data = json!({"supported": supported, "requested": truncated(requested)});
    let error = ErrorObject::new(
        ErrorCode::UnsupportedProtocolVersion,
        "Unsupported protocol version",
    );
    Reply::error(id, &error.with_data(data))
}
