//! Messages that come over HTTP: which lifecycle each belongs to, and what its headers have to say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};

use super::call::OnDisconnect;
use super::mirror::{self, Mirrored, VersionHeader};
use super::reply::{Answer, Reply};
use super::{BatchPolicy, Caller, Local, Server, malformed, not_a_message, stateless};
use crate::auth::Principal;
use crate::protocol::Revision;
use crate::protocol::message::{Message, Notification, Payload, Request};

/// An HTTP request as far as the server needs to know it.
#[derive(Debug)]
pub(crate) struct HttpMessage {
    pub(crate) principal: Arc<Principal>,
    pub(crate) headers: HeaderMap,
    /// What `MCP-Protocol-Version` among the headers says.
    pub(crate) version: VersionHeader,
    /// Whether the client takes an event stream for an answer.
    pub(crate) takes_streams: bool,
    pub(crate) body: Bytes,
}

static SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

impl Server {
    /// Answers the body of one POST.
    #[inline]
    pub(crate) async fn handle_http(
        self: &Arc<Self>,
        local: &Local,
        message: HttpMessage,
    ) -> Reply {
        let HttpMessage {
            principal,
            headers,
            version,
            takes_streams,
            body,
        } = message;
        let stream_after = takes_streams.then(|| self.stream_after());
        match Payload::read(&body) {
            Ok(Payload::Single(Message::Request(request))) => {
                self.http_request(
                    local,
                    principal,
                    headers,
                    version,
                    stream_after,
                    &body,
                    &request,
                )
                .await
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                let stateless = notification.params.meta.protocol_version.is_some();
                if stateless || version == VersionHeader::Stateless {
                    return Reply::Accepted;
                }
                self.heard(local, &principal, &headers, version, Some(&notification))
            }
            Ok(Payload::Single(Message::Response(_))) => {
                if version == VersionHeader::Stateless {
                    // MH-21: nothing was asked, so there is nothing to answer.
                    return malformed("a client of this revision sends no responses");
                }
                self.heard(local, &principal, &headers, version, None)
            }
            Ok(Payload::Batch(elements)) => {
                self.http_batch(local, principal, headers, version, &body, elements)
                    .await
            }
            Err(problem) => not_a_message(&problem),
        }
    }

    /// One request, by the decision table of eras.
    #[inline]
    async fn http_request(
        self: &Arc<Self>,
        local: &Local,
        principal: Arc<Principal>,
        headers: HeaderMap,
        version: VersionHeader,
        stream_after: Option<Duration>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        if request.params.meta.protocol_version.is_some() || version == VersionHeader::Stateless {
            let caller = Caller {
                principal,
                revision: Revision::V2026_07_28,
                session: None,
                on_disconnect: OnDisconnect::Cancel,
                stream_after,
            };
            return self
                .stateless_request(caller, Some(headers), body, request)
                .await;
        }
        match version {
            VersionHeader::Absent | VersionHeader::WithSessions
                if request.method == "initialize" =>
            {
                match self.initialize(local, &principal, request) {
                    Ok((session, Reply::Answer(answer))) => Reply::Answer(Answer {
                        session: Some(session.seal(&self.keys, &self.mount)),
                        ..answer
                    }),
                    Ok((_, reply)) | Err(reply) => reply,
                }
            }
            VersionHeader::Absent | VersionHeader::WithSessions => {
                let id = match session_id(&headers) {
                    Ok(id) => id,
                    Err(reply) => return reply,
                };
                let session = match self.session(local, &principal, id, Some(request.id)) {
                    Ok(session) => session,
                    Err(reply) => return reply,
                };
                let caller = Caller {
                    principal,
                    revision: session.revision,
                    session: Some(Arc::clone(&session.log_name)),
                    on_disconnect: OnDisconnect::RunOn,
                    stream_after,
                };
                self.session_request(caller, Some(headers), body, request)
                    .await
            }
            VersionHeader::Unknown | VersionHeader::Stateless => {
                unknown_version(Some(request.id), &headers)
            }
        }
    }

    /// A notification or a response of the handshake era: heard if the session is good (HTTP-05).
    fn heard(
        &self,
        local: &Local,
        principal: &Principal,
        headers: &HeaderMap,
        version: VersionHeader,
        notification: Option<&Notification<'_>>,
    ) -> Reply {
        if version == VersionHeader::Unknown {
            return unknown_version(None, headers);
        }
        let session = session_id(headers).and_then(|id| self.session(local, principal, id, None));
        match session {
            Ok(session) => {
                if let Some(notification) = notification {
                    self.notified(&session.log_name, notification);
                }
                Reply::Accepted
            }
            Err(reply) => reply,
        }
    }

    /// An array of messages (RPC-06 to RPC-08).
    async fn http_batch(
        self: &Arc<Self>,
        local: &Local,
        principal: Arc<Principal>,
        headers: HeaderMap,
        version: VersionHeader,
        body: &Bytes,
        elements: Vec<&str>,
    ) -> Reply {
        let no_batch = "an array of messages is not accepted: only 2025-03-26 has batches";
        if version == VersionHeader::Stateless || self.config.batch == BatchPolicy::Never {
            return malformed(no_batch);
        }
        if version == VersionHeader::Unknown {
            return unknown_version(None, &headers);
        }
        let session = session_id(&headers).and_then(|id| self.session(local, &principal, id, None));
        let session = match session {
            Ok(session) => session,
            Err(reply) => return reply,
        };
        let caller = Caller {
            principal,
            revision: session.revision,
            session: Some(Arc::clone(&session.log_name)),
            on_disconnect: OnDisconnect::RunOn,
            // The answers of an array come together.
            stream_after: None,
        };
        if !session.revision.has_batches() && self.config.batch != BatchPolicy::Always {
            return malformed(no_batch);
        }
        self.batch(&caller, Some(&headers), body, elements).await
    }
}

/// LH-10: a version header that names no revision that is served.
#[cold]
fn unknown_version(id: Option<&str>, headers: &HeaderMap) -> Reply {
    match mirror::read(headers, &mirror::VERSION) {
        Mirrored::Text(text) => stateless::unsupported_version(id, &text),
        Mirrored::Repeated => stateless::unsupported_version(id, "several at once"),
        Mirrored::Invalid(_) | Mirrored::Absent => stateless::unsupported_version(id, "not ASCII"),
    }
}

/// The value of `Mcp-Session-Id`.
#[inline]
pub(crate) fn session_id(headers: &HeaderMap) -> Result<Option<&[u8]>, Reply> {
    let mut values = headers.get_all(&SESSION_ID).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(malformed("Mcp-Session-Id appears more than once"));
    }
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}
