//! Messages of the one client at the other end of standard input and output.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Context;

use bytes::Bytes;
use serde_json::json;

use super::call::{OnDisconnect, Resumption, STDIO};
use super::reply::Reply;
use super::rounds::Reach;
use super::streams::Parts;
use super::watched::speaks;
use super::{BatchPolicy, Caller, Handled, Incoming, Local, Server, malformed, truncated};
use crate::auth::Principal;
use crate::protocol::message::{self, Message, Payload, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision};
use crate::seal::Session;
use crate::telemetry::{Seen, Watch};

/// What a process has agreed on with its one client.
#[derive(Debug, Default)]
pub(crate) struct StdioPeer {
    session: OnceLock<Session>,
    listens: AtomicBool,
    /// It has sessions only, and is reached over HTTP.
    has_sessions_only: bool,
}

impl StdioPeer {
    /// A client of the transport of 2024-11-05.
    pub(super) fn of_sessions() -> Self {
        Self {
            has_sessions_only: true,
            ..Self::default()
        }
    }

    /// What was agreed on.
    pub(super) fn session(&self) -> Option<&Session> {
        self.session.get()
    }

    /// Whether there was a handshake.
    pub(crate) fn has_session(&self) -> bool {
        self.session.get().is_some()
    }
}

impl Server {
    /// Answers one message; `seen` is how it came in. What can be said at once is; `cx` is for what cannot.
    pub(crate) fn handle_stdio(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        (local, seen): (&Local, Seen<'_>),
        peer: &StdioPeer,
        principal: &Arc<Principal>,
        body: &Bytes,
    ) -> Handled {
        Handled::Now(match Payload::within(body, self.bounds) {
            Ok(Payload::Single(Message::Request(request))) => {
                let watch = self.watch(local.cells(), principal, seen, &request);
                let (sender, message) = ((peer, principal), (body, &request));
                let handled = self.stdio_request(cx, local, sender, message, watch.as_ref());
                return self.watched(watch, &request, handled);
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                // Both eras may be in use at once, and ids are unique within each.
                if let Some(session) = peer.session.get() {
                    self.notified(&session.log_name, &notification);
                }
                if !peer.has_sessions_only {
                    self.notified(STDIO, &notification);
                }
                Reply::Accepted
            }
            Ok(Payload::Single(Message::Response(response))) => {
                if let Some(session) = peer.session.get() {
                    self.answered(&session.log_name, principal, &response);
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
                        ..self.stdio_caller(local, Some(session), principal, None)
                    };
                    return self.batch(cx, (local, seen), caller, None, body, &elements);
                }
                _ => malformed("an array of messages is not accepted: only 2025-03-26 has batches"),
            },
            Err(problem) => self.not_a_message(&problem),
        })
    }

    /// What the client of a session hears outside of answers; once, as soon as there is a session.
    pub(crate) fn stdio_stream(
        self: &Arc<Self>,
        peer: &StdioPeer,
        principal: &Arc<Principal>,
    ) -> Option<Box<dyn Parts>> {
        let session = peer.session.get()?;
        if peer.listens.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.standing_for(session, principal)
    }

    fn stdio_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        local: &Local,
        (peer, principal): (&StdioPeer, &Arc<Principal>),
        (body, request): (&Bytes, &Request<'_>),
        watch: Option<&Watch<'_>>,
    ) -> Handled {
        let of = |caller| Incoming {
            caller,
            headers: None,
            body,
            request,
        };
        if let Some(version) = request.params.meta.protocol_version {
            if peer.has_sessions_only {
                let version = message::string(version).unwrap_or_default();
                return Handled::Now(not_on_this_transport(request.id, &version));
            }
            let caller = self.stdio_caller(local, None, principal, watch);
            return self.stateless_request(cx, of(caller));
        }
        if let Some(session) = peer.session.get() {
            let caller = self.stdio_caller(local, Some(session), principal, watch);
            return self.session_request(cx, of(caller));
        }
        Handled::Now(match Method::parse(&request.method) {
            Some(Method::Initialize) => match self.initialize(local, principal, request) {
                Ok((session, reply)) => {
                    speaks(watch, session.revision, Some(&session.log_name));
                    let _ = peer.session.set(session);
                    reply
                }
                Err(reply) => reply,
            },
            Some(Method::Ping) => Reply::fixed(request.id, br#","result":{}}"#),
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
        local: &Local,
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
            // There is no disconnecting from one request only.
            on_disconnect: OnDisconnect::RunOn,
            stream_after: Some(self.stream_after()),
            resumption: Resumption::No,
            capabilities: session.map_or_else(Default::default, |session| session.capabilities),
            reach: Reach::Stream,
            room: self.room(),
            now: local.now(),
            watch,
            propagation: self.telemetry.propagation(),
        }
    }
}

/// VER-02: where there are sessions only, the stateless era is not served.
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
