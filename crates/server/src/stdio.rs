//! Messages received over standard input.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Context;

use bytes::Bytes;
use http::{Extensions, HeaderMap};
use serde_json::json;

use super::inflight::{OnDisconnect, Resumption, STDIO};
use super::instrument::speaks;
use super::reply::Reply;
use super::rounds::Reach;
use super::streams::EventSource;
use super::{
    BatchPolicy, Caller, Headers, MaybeReady, RequestContext, Server, WorkerState, malformed,
    truncated,
};
use crate::auth::Principal;
use crate::protocol::message::{self, Message, Payload, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision};
use crate::seal::Session;
use crate::telemetry::{Seen, Watch};

/// State of the one client of a process or of an HTTP+SSE session.
#[derive(Debug, Default)]
pub(crate) struct StdioPeer {
    session: OnceLock<Session>,
    listens: AtomicBool,
    /// True for HTTP+SSE clients, which have no stateless era.
    has_sessions_only: bool,
    /// Simulated HTTP request of each message, in tests.
    http: Option<TestHttpRequest>,
}

/// Headers and extensions of a simulated HTTP request.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestHttpRequest {
    pub headers: HeaderMap,
    pub extensions: Arc<Extensions>,
}

impl StdioPeer {
    /// Creates the state of a client of the 2024-11-05 HTTP+SSE transport.
    pub(super) fn for_http_sse() -> Self {
        Self {
            has_sessions_only: true,
            ..Self::default()
        }
    }

    /// A client whose messages come with headers and extensions.
    pub(crate) fn with_http(http: Option<TestHttpRequest>) -> Self {
        Self {
            http,
            ..Self::default()
        }
    }

    /// The session, after `initialize`.
    pub(super) fn session(&self) -> Option<&Session> {
        self.session.get()
    }

    /// Returns true after `initialize`.
    pub(crate) fn has_session(&self) -> bool {
        self.session.get().is_some()
    }
}

impl Server {
    /// Handles one message that arrived as `seen` describes. Returns `Ready` if nothing has to wait; otherwise
    /// registers with `cx`.
    pub(crate) fn handle_stdio(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        (worker, seen): (&WorkerState, Seen<'_>),
        peer: &StdioPeer,
        principal: &Arc<Principal>,
        body: &Bytes,
    ) -> MaybeReady {
        MaybeReady::Ready(match Payload::within(body, self.bounds) {
            Ok(Payload::Single(Message::Request(request))) => {
                let watch = self.observe(worker.cells(), principal, seen, &request);
                let (sender, message) = ((peer, principal), (body, &request));
                let handled = self.stdio_request(cx, worker, sender, message, watch.as_ref());
                return self.observed(watch, &request, handled);
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                // A client may use both eras at once. Request ids are unique within each.
                if let Some(session) = peer.session.get() {
                    self.handle_notification(&session.log_name, &notification);
                }
                if !peer.has_sessions_only {
                    self.handle_notification(STDIO, &notification);
                }
                Reply::Accepted
            }
            Ok(Payload::Single(Message::Response(response))) => {
                if let Some(session) = peer.session.get() {
                    self.handle_client_response(&session.log_name, principal, &response);
                }
                Reply::Accepted
            }
            Ok(Payload::Batch(elements)) => match peer.session.get() {
                Some(session)
                    if self.config.batch == BatchPolicy::Always
                        || self.config.batch == BatchPolicy::Auto
                            && session.revision.has_batches() =>
                {
                    let caller = Caller {
                        reach: Reach::Batch,
                        ..self.stdio_caller(worker, Some(session), principal, None)
                    };
                    return self.batch(cx, (worker, seen), caller, None, body, &elements);
                }
                _ => malformed("an array of messages is not accepted: only 2025-03-26 has batches"),
            },
            Err(problem) => self.malformed_message(&problem),
        })
    }

    /// The stream of notifications of a session. Returns it once, as soon as there is a session.
    pub(crate) fn stdio_notifications(
        self: &Arc<Self>,
        peer: &StdioPeer,
        principal: &Arc<Principal>,
    ) -> Option<Box<dyn EventSource>> {
        let session = peer.session.get()?;
        if peer.listens.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.session_notifications(session, principal)
    }

    fn stdio_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        worker: &WorkerState,
        (peer, principal): (&StdioPeer, &Arc<Principal>),
        (body, request): (&Bytes, &Request<'_>),
        watch: Option<&Watch<'_>>,
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
            body,
            request,
        };
        if let Some(version) = request.params.meta.protocol_version {
            if peer.has_sessions_only {
                let version = message::string(version).unwrap_or_default();
                return MaybeReady::Ready(not_on_this_transport(request.id, &version));
            }
            let caller = self.stdio_caller(worker, None, principal, watch);
            return self.stateless_request(cx, of(caller));
        }
        if let Some(session) = peer.session.get() {
            let caller = self.stdio_caller(worker, Some(session), principal, watch);
            return self.session_request(cx, of(caller));
        }
        MaybeReady::Ready(match Method::parse(&request.method) {
            Some(Method::Initialize) => match self.initialize(worker, principal, request) {
                Ok((session, reply)) => {
                    speaks(watch, session.revision, Some(&session.log_name));
                    let _ = peer.session.set(session);
                    reply
                }
                Err(reply) => reply,
            },
            Some(Method::Ping) => Reply::constant(request.id, br#","result":{}}"#),
            _ => Reply::error(
                request.id,
                &ErrorObject::new(
                    ErrorCode::InvalidRequest,
                    "send initialize first, or io.modelcontextprotocol/protocolVersion in _meta",
                ),
            ),
        })
    }

    fn stdio_caller<'a>(
        &self,
        worker: &WorkerState,
        session: Option<&'a Session>,
        principal: &'a Arc<Principal>,
        watch: Option<&'a Watch<'a>>,
    ) -> Caller<'a> {
        let revision = session.map_or(Revision::V2026_07_28, |session| session.revision);
        speaks(watch, revision, session.map(|session| &session.log_name));
        Caller {
            principal,
            address: None,
            revision,
            session: session.map(|session| &session.log_name),
            // A pipe cannot be closed for one request only.
            on_disconnect: OnDisconnect::RunOn,
            stream_after: Some(self.stream_after()),
            resumption: Resumption::No,
            capabilities: session.map_or_else(Default::default, |session| session.capabilities),
            reach: Reach::Stream,
            room: self.room(),
            now: worker.now(),
            watch,
            propagation: self.telemetry.propagation(),
        }
    }
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
