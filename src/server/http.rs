//! Messages that come over HTTP: which lifecycle each belongs to, and what its headers have to say.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};

use super::call::OnDisconnect;
use super::mirror::{self, Mirrored, VersionHeader};
use super::reply::{Answer, Refusal, Reply};
use super::{BatchPolicy, Caller, Local, Server, malformed, not_a_message, stateless};
use crate::auth::Principal;
use crate::protocol::message::{Message, Notification, Payload, Request};
use crate::protocol::{ErrorCode, Revision};
use crate::seal::Session;

/// The head of an HTTP request, as far as the server needs to know it.
#[derive(Debug)]
pub(crate) struct HttpHead {
    pub(crate) principal: Arc<Principal>,
    pub(crate) headers: HeaderMap,
    /// What `MCP-Protocol-Version` among the headers says.
    pub(crate) version: VersionHeader,
    /// Whether the client takes an event stream for an answer.
    pub(crate) takes_streams: bool,
}

static SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

impl Server {
    /// Answers the body of one POST.
    #[inline]
    pub(crate) async fn handle_http(
        self: &Arc<Self>,
        local: &Local,
        head: HttpHead,
        body: Bytes,
    ) -> Reply {
        match Payload::read(&body) {
            Ok(Payload::Single(Message::Request(request))) => {
                self.http_request(local, head, &body, &request).await
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                let stateless = notification.params.meta.protocol_version.is_some();
                if stateless || head.version == VersionHeader::Stateless {
                    return Reply::Accepted;
                }
                self.heard(local, &head, Some(&notification))
            }
            Ok(Payload::Single(Message::Response(_))) => {
                if head.version == VersionHeader::Stateless {
                    // MH-21: nothing was asked, so there is nothing to answer.
                    return malformed("a client of this revision sends no responses");
                }
                self.heard(local, &head, None)
            }
            Ok(Payload::Batch(elements)) => self.http_batch(local, head, &body, elements).await,
            Err(problem) => not_a_message(&problem),
        }
    }

    /// One request, by the decision table of eras.
    #[inline]
    async fn http_request(
        self: &Arc<Self>,
        local: &Local,
        head: HttpHead,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        let modern = request.params.meta.protocol_version.is_some();
        if modern || head.version == VersionHeader::Stateless {
            let caller = Caller {
                principal: head.principal,
                revision: Revision::V2026_07_28,
                session: None,
                on_disconnect: OnDisconnect::Cancel,
                stream_after: head.takes_streams.then(|| self.stream_after()),
            };
            let headers = Some(head.headers);
            return self.stateless_request(caller, headers, body, request).await;
        }
        if request.method == "initialize" && head.version != VersionHeader::Unknown {
            return match self.initialize(local, &head.principal, request) {
                Ok((session, Reply::Answer(answer))) => Reply::Answer(Answer {
                    session: Some(session.seal(&self.keys, &self.mount)),
                    ..answer
                }),
                Ok((_, reply)) | Err(reply) => reply,
            };
        }
        let session = match self.session_of(local, &head, Some(request.id)) {
            Ok(session) => session,
            Err(reply) => return reply,
        };
        let caller = Caller {
            principal: head.principal,
            revision: session.revision,
            session: Some(Arc::clone(&session.log_name)),
            on_disconnect: OnDisconnect::RunOn,
            stream_after: head.takes_streams.then(|| self.stream_after()),
        };
        let headers = Some(head.headers);
        self.session_request(caller, headers, body, request).await
    }

    /// A notification or a response of the handshake era: heard if the session is good (HTTP-05).
    fn heard(
        &self,
        local: &Local,
        head: &HttpHead,
        notification: Option<&Notification<'_>>,
    ) -> Reply {
        match self.session_of(local, head, None) {
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
        head: HttpHead,
        body: &Bytes,
        elements: Vec<&str>,
    ) -> Reply {
        let no_batch = "an array of messages is not accepted: only 2025-03-26 has batches";
        if head.version == VersionHeader::Stateless || self.config.batch == BatchPolicy::Never {
            return malformed(no_batch);
        }
        let session = match self.session_of(local, &head, None) {
            Ok(session) => session,
            Err(reply) => return reply,
        };
        if !session.revision.has_batches() && self.config.batch != BatchPolicy::Always {
            return malformed(no_batch);
        }
        let caller = Caller {
            principal: head.principal,
            revision: session.revision,
            session: Some(Arc::clone(&session.log_name)),
            on_disconnect: OnDisconnect::RunOn,
            // The answers of an array come together.
            stream_after: None,
        };
        self.batch(&caller, Some(&head.headers), body, elements)
            .await
    }

    /// The session that a request of the handshake era names; `request` is its id.
    #[inline]
    fn session_of(
        &self,
        local: &Local,
        head: &HttpHead,
        request: Option<&str>,
    ) -> Result<Arc<Session>, Reply> {
        if head.version == VersionHeader::Unknown {
            return Err(unknown_version(request, &head.headers));
        }
        let id = session_id(&head.headers, request)?;
        self.session(local, &head.principal, id, request)
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

/// The value of `Mcp-Session-Id`. `request` is the id of the request that has it, if it is one.
#[inline]
pub(crate) fn session_id<'h>(
    headers: &'h HeaderMap,
    request: Option<&str>,
) -> Result<Option<&'h [u8]>, Reply> {
    let mut values = headers.get_all(&SESSION_ID).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Reply::refuse(
            Refusal::Malformed,
            request,
            ErrorCode::InvalidRequest,
            "Mcp-Session-Id appears more than once",
        ));
    }
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}
