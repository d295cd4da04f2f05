//! Messages received over HTTP: selects the lifecycle of each from its headers and `_meta`.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::{Extensions, HeaderMap};

use super::inflight::{OnDisconnect, Resumption};
use super::instrument::speaks;
use super::param_headers::{HeaderValueState, McpHeaders, SingleHeader, VersionHeader};
use super::reply::{JsonResponse, Refusal, Reply};
use super::rounds::Reach;
use super::{
    BatchPolicy, Caller, Headers, MaybeReady, RequestContext, Server, StaleSessions, WorkerState,
    malformed, stateless,
};
use crate::auth::Principal;
use crate::limit::share_of;
use crate::net::Peer;
use crate::protocol::message::{Message, Notification, Payload, Request, Response};
use crate::protocol::{ClientCapabilities, ErrorCode, Method, Revision};
use crate::seal::Session;
use crate::telemetry::{Seen, Watch, Wire};

/// The parts of an HTTP request head that the server needs.
#[derive(Debug)]
pub struct HttpHead<'a> {
    pub principal: &'a Arc<Principal>,
    /// All headers. A call takes them out and gives them back.
    pub headers: &'a mut HeaderMap,
    /// Headers that MCP defines.
    pub mcp: &'a McpHeaders,
    /// Values that layers of the application have put into the request, if there are any.
    pub extensions: Option<&'a Arc<Extensions>>,
    /// True if the client accepts an event stream as the response.
    pub takes_streams: bool,
    /// Protocol of the connection, for metrics.
    pub wire: Wire,
    /// Address of the client.
    pub peer: Option<Peer>,
}

/// A message that gets no response: a notification, or the response to a client request.
#[derive(Clone, Copy)]
enum OneWayMessage<'a> {
    Notification(&'a Notification<'a>),
    Response(&'a Response<'a>),
}

impl HttpHead<'_> {
    fn headers(&mut self) -> Headers<'_> {
        Headers {
            mcp: Some(self.mcp),
            all: self.headers,
            extensions: self.extensions,
        }
    }
}

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
        MaybeReady::Ready(match &Payload::within(body, self.bounds) {
            Ok(Payload::Single(Message::Request(request))) => {
                let seen = Seen {
                    wire: head.wire,
                    headers: Some(head.headers),
                    peer: head.peer,
                };
                let watch = self.observe(worker.cells(), head.principal, seen, request);
                let (head, message) = ((head, version), (body, request));
                let handled = self.http_request(cx, worker, head, message, watch.as_ref());
                return self.observed(watch, request, handled);
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                let modern = notification.params.meta.protocol_version.is_some();
                if modern || version == VersionHeader::Stateless {
                    Reply::Accepted
                } else {
                    self.handle_one_way(
                        worker,
                        head,
                        version,
                        OneWayMessage::Notification(notification),
                    )
                }
            }
            // MH-21: the stateless era has no client requests, so there is nothing to respond to.
            Ok(Payload::Single(Message::Response(_))) if version == VersionHeader::Stateless => {
                malformed("a client of this revision sends no responses")
            }
            Ok(Payload::Single(Message::Response(response))) => {
                self.handle_one_way(worker, head, version, OneWayMessage::Response(response))
            }
            Ok(Payload::Batch(elements)) => {
                return self.http_batch(cx, worker, head, version, body, elements);
            }
            Err(problem) => self.malformed_message(problem),
        })
    }

    /// Handles one request; its lifecycle follows the decision table of eras.
    #[inline]
    fn http_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        worker: &WorkerState,
        (head, version): (&mut HttpHead<'_>, VersionHeader),
        (body, request): (&Bytes, &Request<'_>),
        watch: Option<&Watch<'_>>,
    ) -> MaybeReady {
        let stream_after = head.takes_streams.then(|| self.stream_after());
        let modern = request.params.meta.protocol_version.is_some();
        if modern || version == VersionHeader::Stateless {
            speaks(watch, Revision::V2026_07_28, None);
            let caller = Caller {
                principal: head.principal,
                address: head.peer.map(|peer| peer.address),
                revision: Revision::V2026_07_28,
                session: None,
                on_disconnect: OnDisconnect::Cancel,
                stream_after,
                resumption: Resumption::No,
                capabilities: ClientCapabilities::default(),
                reach: Reach::Stream,
                room: self.room(),
                now: worker.now(),
                watch,
                propagation: self.telemetry.propagation(),
            };
            let request_context = RequestContext {
                caller,
                headers: Some(head.headers()),
                body,
                request,
            };
            return self.stateless_request(cx, request_context);
        }
        if request.method == Method::Initialize.as_str() && version != VersionHeader::Unknown {
            if let Err(refused) = self
                .limits
                .begin_session(head.principal, head.peer.map(|peer| peer.address))
            {
                return MaybeReady::Ready(Reply::limited(Some(request.id), refused));
            }
            return MaybeReady::Ready(match self.initialize(worker, head.principal, request) {
                Ok((session, Reply::Response(answer))) => {
                    speaks(watch, session.revision, Some(&session.log_name));
                    Reply::Response(JsonResponse {
                        session: Some(session.seal(&self.keys, &self.mount)),
                        ..answer
                    })
                }
                Ok((_, reply)) | Err(reply) => reply,
            });
        }
        let session = match self.session_of(worker, head, version, Some(request.id)) {
            Ok(session) => session,
            Err(reply) => return MaybeReady::Ready(reply),
        };
        speaks(watch, session.revision, Some(&session.log_name));
        let caller = Caller {
            principal: head.principal,
            address: head.peer.map(|peer| peer.address),
            revision: session.revision,
            session: Some(&session.log_name),
            on_disconnect: OnDisconnect::RunOn,
            stream_after,
            resumption: Resumption::of(session.revision),
            capabilities: session.capabilities,
            reach: match session.revision.has_streamed_answers() {
                _ if !head.takes_streams => Reach::NoStream,
                true => Reach::Stream,
                false => Reach::OldRevision,
            },
            room: self.room(),
            now: worker.now(),
            watch,
            propagation: self.telemetry.propagation(),
        };
        let request_context = RequestContext {
            caller,
            headers: Some(head.headers()),
            body,
            request,
        };
        self.session_request(cx, request_context)
    }

    /// Handles a notification or a response of the handshake era, if its session is valid (HTTP-05).
    fn handle_one_way(
        &self,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
        message: OneWayMessage<'_>,
    ) -> Reply {
        let session = match self.session_of(worker, head, version, None) {
            Ok(session) => session,
            Err(reply) => return reply,
        };
        match message {
            OneWayMessage::Notification(notification) => {
                self.handle_notification(&session.log_name, notification);
                Reply::Accepted
            }
            OneWayMessage::Response(response) => {
                self.handle_client_response(&session.log_name, head.principal, response)
            }
        }
    }

    /// Handles a batch (RPC-06 to RPC-08).
    fn http_batch(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        worker: &WorkerState,
        head: &mut HttpHead<'_>,
        version: VersionHeader,
        body: &Bytes,
        elements: &[&str],
    ) -> MaybeReady {
        let no_batch = "an array of messages is not accepted: only 2025-03-26 has batches";
        if version == VersionHeader::Stateless || self.config.batch == BatchPolicy::Never {
            return MaybeReady::Ready(malformed(no_batch));
        }
        let session = match self.session_of(worker, head, version, None) {
            Ok(session) => session,
            Err(reply) => return MaybeReady::Ready(reply),
        };
        if !session.revision.has_batches() && self.config.batch != BatchPolicy::Always {
            return MaybeReady::Ready(malformed(no_batch));
        }
        let caller = Caller {
            principal: head.principal,
            address: head.peer.map(|peer| peer.address),
            revision: session.revision,
            session: Some(&session.log_name),
            on_disconnect: OnDisconnect::RunOn,
            // The responses of a batch are sent together.
            stream_after: None,
            resumption: Resumption::No,
            capabilities: session.capabilities,
            reach: Reach::Batch,
            room: self.room(),
            now: worker.now(),
            watch: None,
            propagation: self.telemetry.propagation(),
        };
        let seen = Seen {
            wire: head.wire,
            headers: None,
            peer: head.peer,
        };
        self.batch(
            cx,
            (worker, seen),
            caller,
            Some(&head.headers()),
            body,
            elements,
        )
    }

    /// Ends the session named by a DELETE request (LH-09).
    pub fn end_session(
        &self,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<(), Reply> {
        let session = self.session_of(worker, head, version, None)?;
        let address = head.peer.map(|peer| peer.address);
        self.revoke(worker, &session, share_of(head.principal, address));
        Ok(())
    }

    /// Looks up the session named by a request of the handshake era. `request` is the JSON-RPC id, for the error.
    #[inline]
    pub(super) fn session_of(
        &self,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
        request: Option<&str>,
    ) -> Result<Arc<Session>, Reply> {
        if version == VersionHeader::Unknown {
            return Err(unknown_version(request, head.mcp));
        }
        let id = match &head.mcp.session {
            SingleHeader::Absent => None,
            SingleHeader::Known(word) => Some(word.as_bytes()),
            SingleHeader::One(value) => Some(value.as_bytes().trim_ascii()),
            SingleHeader::Repeated => {
                return Err(Reply::refuse(
                    Refusal::Malformed,
                    request,
                    ErrorCode::InvalidRequest,
                    "Mcp-Session-Id appears more than once",
                ));
            }
        };
        let named = (head.mcp, id);
        match (self.session(worker, head.principal, named, request), id) {
            (Err(refused), Some(id)) if self.config.stale_sessions == StaleSessions::Accept => {
                let said = match head.mcp.version.read() {
                    HeaderValueState::Text(text) => Revision::parse(&text),
                    _ => None,
                };
                self.substitute_session(worker, head.principal, id, said)
                    .ok_or(refused)
            }
            (found, _) => found,
        }
    }
}

/// LH-10: the version header names a revision that is not served.
#[cold]
fn unknown_version(id: Option<&str>, mcp: &McpHeaders) -> Reply {
    match mcp.version.read() {
        HeaderValueState::Text(text) => stateless::unsupported_version(id, &text),
        HeaderValueState::Repeated => stateless::unsupported_version(id, "several at once"),
        HeaderValueState::Invalid(_) | HeaderValueState::Absent => {
            stateless::unsupported_version(id, "not ASCII")
        }
    }
}
