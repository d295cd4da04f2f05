//! Messages that come over HTTP: which lifecycle each belongs to, and what its headers have to say.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::HeaderMap;

use super::call::{OnDisconnect, Resumption};
use super::mirror::{McpHeaders, Mirrored, Once, VersionHeader};
use super::reply::{Answer, Refusal, Reply};
use super::rounds::Reach;
use super::watched::speaks;
use super::{
    BatchPolicy, Caller, Handled, Headers, Incoming, Local, Server, StaleSessions, malformed,
    stateless,
};
use crate::auth::Principal;
use crate::limit::share_of;
use crate::net::Peer;
use crate::protocol::message::{Message, Notification, Payload, Request, Response};
use crate::protocol::{ClientCapabilities, ErrorCode, Method, Revision};
use crate::seal::Session;
use crate::telemetry::{Seen, Watch, Wire};

/// The head of an HTTP request, as far as the server needs to know it.
#[derive(Debug)]
pub(crate) struct HttpHead<'a> {
    pub(crate) principal: &'a Arc<Principal>,
    /// All headers; a call takes them along.
    pub(crate) headers: &'a mut HeaderMap,
    /// Those that the protocol gives a meaning to.
    pub(crate) mcp: &'a McpHeaders,
    /// Whether the client takes an event stream for an answer.
    pub(crate) takes_streams: bool,
    /// What carries it.
    pub(crate) wire: Wire,
    /// Who has sent it.
    pub(crate) peer: Option<Peer>,
}

/// A message that wants no answer.
#[derive(Clone, Copy)]
enum Heard<'a> {
    Notification(&'a Notification<'a>),
    Response(&'a Response<'a>),
}

impl HttpHead<'_> {
    fn headers(&mut self) -> Headers<'_> {
        Headers {
            mcp: Some(self.mcp),
            all: self.headers,
        }
    }
}

impl Server {
    /// Answers the body of one POST. What can be said at once is; `cx` is for what cannot.
    #[inline]
    pub(crate) fn handle_http(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        local: &Local,
        head: &mut HttpHead<'_>,
        body: &Bytes,
    ) -> Handled {
        let version = head.mcp.version();
        Handled::Now(match &Payload::within(body, self.bounds) {
            Ok(Payload::Single(Message::Request(request))) => {
                let seen = Seen {
                    wire: head.wire,
                    headers: Some(head.headers),
                    peer: head.peer,
                };
                let watch = self.watch(local.cells(), head.principal, seen, request);
                let (head, message) = ((head, version), (body, request));
                let handled = self.http_request(cx, local, head, message, watch.as_ref());
                return self.watched(watch, request, handled);
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                let modern = notification.params.meta.protocol_version.is_some();
                if modern || version == VersionHeader::Stateless {
                    Reply::Accepted
                } else {
                    self.heard(local, head, version, Heard::Notification(notification))
                }
            }
            // MH-21: nothing was asked, so there is nothing to answer.
            Ok(Payload::Single(Message::Response(_))) if version == VersionHeader::Stateless => {
                malformed("a client of this revision sends no responses")
            }
            Ok(Payload::Single(Message::Response(response))) => {
                self.heard(local, head, version, Heard::Response(response))
            }
            Ok(Payload::Batch(elements)) => {
                return self.http_batch(cx, local, head, version, body, elements);
            }
            Err(problem) => self.not_a_message(problem),
        })
    }

    /// One request, by the decision table of eras.
    #[inline]
    fn http_request(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        local: &Local,
        (head, version): (&mut HttpHead<'_>, VersionHeader),
        (body, request): (&Bytes, &Request<'_>),
        watch: Option<&Watch<'_>>,
    ) -> Handled {
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
                now: local.now(),
                watch,
                propagation: self.telemetry.propagation(),
            };
            let incoming = Incoming {
                caller,
                headers: Some(head.headers()),
                body,
                request,
            };
            return self.stateless_request(cx, incoming);
        }
        if request.method == Method::Initialize.as_str() && version != VersionHeader::Unknown {
            if let Err(refused) = self
                .limits
                .begin_session(head.principal, head.peer.map(|peer| peer.address))
            {
                return Handled::Now(Reply::limited(Some(request.id), refused));
            }
            return Handled::Now(match self.initialize(local, head.principal, request) {
                Ok((session, Reply::Answer(answer))) => {
                    speaks(watch, session.revision, Some(&session.log_name));
                    Reply::Answer(Answer {
                        session: Some(session.seal(&self.keys, &self.mount)),
                        ..answer
                    })
                }
                Ok((_, reply)) | Err(reply) => reply,
            });
        }
        let session = match self.session_of(local, head, version, Some(request.id)) {
            Ok(session) => session,
            Err(reply) => return Handled::Now(reply),
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
            now: local.now(),
            watch,
            propagation: self.telemetry.propagation(),
        };
        let incoming = Incoming {
            caller,
            headers: Some(head.headers()),
            body,
            request,
        };
        self.session_request(cx, incoming)
    }

    /// A notification or a response of the handshake era: heard if the session is good (HTTP-05).
    fn heard(
        &self,
        local: &Local,
        head: &HttpHead<'_>,
        version: VersionHeader,
        message: Heard<'_>,
    ) -> Reply {
        let session = match self.session_of(local, head, version, None) {
            Ok(session) => session,
            Err(reply) => return reply,
        };
        match message {
            Heard::Notification(notification) => {
                self.notified(&session.log_name, notification);
                Reply::Accepted
            }
            Heard::Response(response) => self.answered(&session.log_name, head.principal, response),
        }
    }

    /// An array of messages (RPC-06 to RPC-08).
    fn http_batch(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        local: &Local,
        head: &mut HttpHead<'_>,
        version: VersionHeader,
        body: &Bytes,
        elements: &[&str],
    ) -> Handled {
        let no_batch = "an array of messages is not accepted: only 2025-03-26 has batches";
        if version == VersionHeader::Stateless || self.config.batch == BatchPolicy::Never {
            return Handled::Now(malformed(no_batch));
        }
        let session = match self.session_of(local, head, version, None) {
            Ok(session) => session,
            Err(reply) => return Handled::Now(reply),
        };
        if !session.revision.has_batches() && self.config.batch != BatchPolicy::Always {
            return Handled::Now(malformed(no_batch));
        }
        let caller = Caller {
            principal: head.principal,
            address: head.peer.map(|peer| peer.address),
            revision: session.revision,
            session: Some(&session.log_name),
            on_disconnect: OnDisconnect::RunOn,
            // The answers of an array come together.
            stream_after: None,
            resumption: Resumption::No,
            capabilities: session.capabilities,
            reach: Reach::Batch,
            room: self.room(),
            now: local.now(),
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
            (local, seen),
            caller,
            Some(&head.headers()),
            body,
            elements,
        )
    }

    /// Ends the session that a DELETE names (LH-09).
    pub(crate) fn end_session(
        &self,
        local: &Local,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<(), Reply> {
        let session = self.session_of(local, head, version, None)?;
        let address = head.peer.map(|peer| peer.address);
        self.revoke(local, &session, share_of(head.principal, address));
        Ok(())
    }

    /// The session that a request of the handshake era names; `request` is its id.
    #[inline]
    pub(super) fn session_of(
        &self,
        local: &Local,
        head: &HttpHead<'_>,
        version: VersionHeader,
        request: Option<&str>,
    ) -> Result<Arc<Session>, Reply> {
        if version == VersionHeader::Unknown {
            return Err(unknown_version(request, head.mcp));
        }
        let id = match &head.mcp.session {
            Once::Absent => None,
            Once::Known(word) => Some(word.as_bytes()),
            Once::One(value) => Some(value.as_bytes().trim_ascii()),
            Once::Repeated => {
                return Err(Reply::refuse(
                    Refusal::Malformed,
                    request,
                    ErrorCode::InvalidRequest,
                    "Mcp-Session-Id appears more than once",
                ));
            }
        };
        let named = (head.mcp, id);
        match (self.session(local, head.principal, named, request), id) {
            (Err(refused), Some(id)) if self.config.stale_sessions == StaleSessions::Accept => {
                let said = match head.mcp.version.read() {
                    Mirrored::Text(text) => Revision::parse(&text),
                    _ => None,
                };
                self.stand_in(local, head.principal, id, said)
                    .ok_or(refused)
            }
            (found, _) => found,
        }
    }
}

/// LH-10: a version header that names no revision that is served.
#[cold]
fn unknown_version(id: Option<&str>, mcp: &McpHeaders) -> Reply {
    match mcp.version.read() {
        Mirrored::Text(text) => stateless::unsupported_version(id, &text),
        Mirrored::Repeated => stateless::unsupported_version(id, "several at once"),
        Mirrored::Invalid(_) | Mirrored::Absent => stateless::unsupported_version(id, "not ASCII"),
    }
}
