//! A message in, a reply out. No sockets here.
//!
//! [`Server::handle_http`] and [`Server::handle_stdio`] decide for each message which of the two lifecycles it
//! belongs to ([`handshake`] up to 2025-11-25, [`stateless`] for 2026-07-28), and hand what both agree on to
//! one dispatcher. Everything after that is shared.

mod call;
mod completion;
mod config;
mod content;
mod generation;
mod handshake;
mod lists;
mod local;
mod method;
mod mirror;
mod prompts;
mod reply;
mod resources;
mod stateless;
mod tools;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};

pub use config::{BatchPolicy, ServerConfig, ValidationErrors};
pub(crate) use local::Local;
pub use method::{MethodFuture, MethodHandler};
pub(crate) use mirror::Mirrored;
pub(crate) use reply::{Answer, Refusal, Reply};

use crate::auth::Principal;
use crate::catalog::{CallContext, Catalog, RequestId};
use crate::protocol::message::{Malformed, MalformedKind, Message, Payload, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision};
use crate::seal::{KeyRing, Revoked, Session};
use call::Inflight;
use generation::Generation;
use reply::begin;

/// How many messages one array may hold.
const BATCH_MAX: usize = 50;
/// How large the answer to an array may become, in bytes.
const BATCH_ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;

/// One MCP server: a catalog, and what it takes to answer for it.
pub(crate) struct Server {
    generation: ArcSwap<Generation>,
    config: ServerConfig,
    keys: KeyRing,
    revoked: Revoked,
    methods: HashMap<String, Arc<dyn MethodHandler>>,
    /// The name of the endpoint; bound into everything that is sealed.
    mount: Box<str>,
    /// Names this process in the sessions that it issues.
    replica: u64,
    inflight: Arc<Inflight>,
}

/// An HTTP request as far as the server needs to know it.
#[derive(Debug)]
pub(crate) struct HttpMessage {
    pub(crate) principal: Arc<Principal>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Who sent a request, once its lifecycle has settled that.
#[derive(Clone, Debug)]
struct Caller {
    principal: Arc<Principal>,
    revision: Revision,
    /// The session's name for logs.
    session: Option<Arc<str>>,
}

impl Caller {
    /// What a tool, a resource or a prompt may ask about the request.
    #[inline]
    fn into_context(self, id: &str, headers: Option<HeaderMap>) -> Arc<CallContext> {
        Arc::new(CallContext {
            principal: self.principal,
            session: self.session,
            request_id: RequestId::from_json(id),
            headers,
        })
    }
}

/// What a process that talks over standard input and output has agreed on with its one client.
#[derive(Debug, Default)]
pub(crate) struct StdioPeer {
    session: std::sync::OnceLock<Session>,
}

const SESSION_ID: &str = "mcp-session-id";

impl Server {
    pub(crate) fn new(
        config: ServerConfig,
        keys: KeyRing,
        catalog: Catalog,
        methods: HashMap<String, Arc<dyn MethodHandler>>,
    ) -> Self {
        let generation = Generation::new(catalog, &config);
        Self {
            generation: ArcSwap::from_pointee(generation),
            config,
            keys,
            revoked: Revoked::default(),
            methods,
            mount: "mcp".into(),
            replica: u64::from_ne_bytes(crate::seal::random_bytes()),
            inflight: Arc::default(),
        }
    }

    /// Waits until no call is left that outlives its request.
    pub(crate) async fn idle(&self) {
        self.inflight.idle().await;
    }

    /// How many tools there are.
    pub(crate) fn tool_count(&self) -> usize {
        self.generation.load().catalog.len()
    }

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
            body,
        } = message;
        match Payload::read(&body) {
            Ok(Payload::Single(Message::Request(request))) => {
                self.http_request(local, principal, headers, &body, &request)
                    .await
            }
            Ok(Payload::Single(Message::Notification(notification))) => {
                if notification.params.meta.protocol_version.is_some() || is_stateless(&headers) {
                    return Reply::Accepted;
                }
                self.one_way(local, &principal, &headers)
            }
            Ok(Payload::Single(Message::Response(_))) => {
                if is_stateless(&headers) {
                    // MH-21: nothing was asked, so there is nothing to answer.
                    return malformed("a client of this revision sends no responses");
                }
                self.one_way(local, &principal, &headers)
            }
            Ok(Payload::Batch(elements)) => {
                self.http_batch(local, principal, headers, &body, elements)
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
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        if request.params.meta.protocol_version.is_some() {
            return self
                .stateless_request(principal, Some(headers), body, request)
                .await;
        }
        match version_header(&headers) {
            VersionHeader::Absent | VersionHeader::Known(_) if is_stateless(&headers) => {
                self.stateless_request(principal, Some(headers), body, request)
                    .await
            }
            VersionHeader::Absent | VersionHeader::Known(_) if request.method == "initialize" => {
                match self.initialize(local, &principal, request) {
                    Ok((session, Reply::Answer(answer))) => Reply::Answer(Answer {
                        session: Some(session.seal(&self.keys, &self.mount)),
                        ..answer
                    }),
                    Ok((_, reply)) | Err(reply) => reply,
                }
            }
            VersionHeader::Absent | VersionHeader::Known(_) => {
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
                };
                self.session_request(caller, Some(headers), body, request)
                    .await
            }
            VersionHeader::Unknown(version) => {
                stateless::unsupported_version(Some(request.id), &version)
            }
        }
    }

    /// A notification or a response of the handshake era: heard if the session is good (HTTP-05). None of
    /// them has an effect yet that outlives its request.
    fn one_way(&self, local: &Local, principal: &Principal, headers: &HeaderMap) -> Reply {
        if let VersionHeader::Unknown(version) = version_header(headers) {
            return stateless::unsupported_version(None, &version);
        }
        match session_id(headers).and_then(|id| self.session(local, principal, id, None)) {
            Ok(_) => Reply::Accepted,
            Err(reply) => reply,
        }
    }

    /// An array of messages (RPC-06 to RPC-08).
    async fn http_batch(
        self: &Arc<Self>,
        local: &Local,
        principal: Arc<Principal>,
        headers: HeaderMap,
        body: &Bytes,
        elements: Vec<&str>,
    ) -> Reply {
        let no_batch = "an array of messages is not accepted: only 2025-03-26 has batches";
        if is_stateless(&headers) || self.config.batch == BatchPolicy::Never {
            return malformed(no_batch);
        }
        if let VersionHeader::Unknown(version) = version_header(&headers) {
            return stateless::unsupported_version(None, &version);
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
        };
        if !session.revision.has_batches() && self.config.batch != BatchPolicy::Always {
            return malformed(no_batch);
        }
        self.batch(&caller, Some(&headers), body, elements).await
    }

    /// Answers the messages of an array side by side, in their order, those that want no answer left out.
    async fn batch(
        self: &Arc<Self>,
        caller: &Caller,
        headers: Option<&HeaderMap>,
        body: &Bytes,
        elements: Vec<&str>,
    ) -> Reply {
        if elements.is_empty() {
            return malformed("an array of messages has at least one");
        }
        if elements.len() > BATCH_MAX {
            return malformed("an array has at most 50 messages");
        }
        let answers = elements.into_iter().map(|text| async move {
            let request = match Message::read(text) {
                Ok(Message::Request(request)) => request,
                Ok(Message::Notification(_) | Message::Response(_)) => return None,
                Err(problem) => return Some(not_a_message(&problem)),
            };
            // RPC-07, and a request of the stateless era is never in an array.
            if request.method == "initialize" || request.params.meta.protocol_version.is_some() {
                let error = ErrorObject::new(
                    ErrorCode::InvalidRequest,
                    "this request is not accepted in an array of messages",
                );
                return Some(Reply::error(request.id, &error));
            }
            let headers = headers.cloned();
            Some(Box::pin(self.session_request(caller.clone(), headers, body, &request)).await)
        });
        let answers = futures_util::future::join_all(answers).await;
        let mut out = b"[".to_vec();
        for answer in answers.into_iter().flatten() {
            let Reply::Answer(answer) = answer else {
                continue;
            };
            if out.len() + answer.head.len() + answer.rest.len() > BATCH_ANSWER_MAX_BYTES {
                return malformed(
                    "the answers together are too large; send fewer requests at once",
                );
            }
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(&answer.head);
            out.extend_from_slice(&answer.rest);
        }
        if out.len() == 1 {
            return Reply::Accepted;
        }
        out.push(b']');
        Reply::document(out)
    }

    /// A request within a session.
    #[inline]
    async fn session_request(
        self: &Arc<Self>,
        caller: Caller,
        headers: Option<HeaderMap>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        match Method::parse(&request.method).filter(|method| method.is_in(caller.revision)) {
            Some(method) => self.dispatch(method, caller, headers, body, request).await,
            None => self
                .other_method(caller, headers, request)
                .await
                .unwrap_or_else(|| method_not_found(request)),
        }
    }

    /// A request that stands alone.
    #[inline]
    async fn stateless_request(
        self: &Arc<Self>,
        principal: Arc<Principal>,
        headers: Option<HeaderMap>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        let caller = Caller {
            principal,
            revision: Revision::V2026_07_28,
            session: None,
        };
        match stateless::check_envelope(request, headers.as_ref()) {
            Ok(method) => self.dispatch(method, caller, headers, body, request).await,
            Err(refusal) if is_unknown_method(&refusal) => self
                .other_method(caller, headers, request)
                .await
                .unwrap_or(refusal),
            Err(refusal) => refusal,
        }
    }

    /// What both lifecycles end in.
    #[inline]
    async fn dispatch(
        self: &Arc<Self>,
        method: Method,
        caller: Caller,
        headers: Option<HeaderMap>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        match method {
            Method::ToolsCall => self.call_tool(caller, headers, body, request).await,
            Method::ToolsList => self.list_tools(&caller, request),
            Method::Ping => Reply::pieces(
                begin(request.id, 0).into(),
                Bytes::from_static(br#","result":{}}"#),
            ),
            Method::Discover => Reply::pieces(
                begin(request.id, 0).into(),
                self.generation.load().discovered.clone(),
            ),
            // A session has begun already, and over HTTP each handshake begins one of its own.
            Method::Initialize => Reply::error(
                request.id,
                &ErrorObject::new(ErrorCode::InvalidRequest, "initialize was answered already"),
            ),
            other => Box::pin(self.dispatch_further(other, caller, headers, request)).await,
        }
    }

    /// The methods of what need not be there. Apart and boxed, so that calls of tools do not carry their futures.
    async fn dispatch_further(
        self: &Arc<Self>,
        method: Method,
        caller: Caller,
        headers: Option<HeaderMap>,
        request: &Request<'_>,
    ) -> Reply {
        if !self.generation.load().offers(method) {
            return if caller.revision.has_sessions() {
                method_not_found(request)
            } else {
                stateless::unknown_method(request)
            };
        }
        match method {
            Method::ResourcesList => self.list_resources(&caller, request),
            Method::TemplatesList => self.list_templates(&caller, request),
            Method::ResourcesRead => self.read_resource(caller, headers, request).await,
            Method::PromptsList => self.list_prompts(&caller, request),
            Method::PromptsGet => self.get_prompt(caller, headers, request).await,
            Method::Complete => self.complete(caller, headers, request).await,
            Method::Initialize
            | Method::Ping
            | Method::Discover
            | Method::ToolsList
            | Method::ToolsCall => unreachable!("dispatched before"),
        }
    }

    /// A method of the application's own. `None` if there is none of the name.
    async fn other_method(
        &self,
        caller: Caller,
        headers: Option<HeaderMap>,
        request: &Request<'_>,
    ) -> Option<Reply> {
        let handler = Arc::clone(self.methods.get(&*request.method)?);
        let params = request.params.object.unwrap_or("{}");
        let params = match serde_json::from_str::<Map<String, Value>>(params) {
            Ok(params) => Value::Object(params),
            Err(e) => return Some(tools::invalid_params(request.id, &e.to_string())),
        };
        let stateless = caller.revision.has_result_type();
        let context = caller.into_context(request.id, headers);
        Some(match handler.call(context, params).await {
            Ok(mut result) => {
                if stateless && let Value::Object(result) = &mut result {
                    result.entry("resultType").or_insert("complete".into());
                }
                let mut out = begin(request.id, 128);
                out.extend_from_slice(br#","result":"#);
                out.extend_from_slice(result.to_string().as_bytes());
                out.push(b'}');
                Reply::document(out)
            }
            Err(error) => Reply::error(request.id, &error),
        })
    }

    /// Answers one line from standard input.
    pub(crate) async fn handle_stdio(
        self: &Arc<Self>,
        local: &Local,
        peer: &StdioPeer,
        principal: &Arc<Principal>,
        body: Bytes,
    ) -> Reply {
        match Payload::read(&body) {
            Ok(Payload::Single(Message::Request(request))) => {
                if request.params.meta.protocol_version.is_some() {
                    let principal = Arc::clone(principal);
                    return self
                        .stateless_request(principal, None, &body, &request)
                        .await;
                }
                self.stdio_request(local, peer, principal, &body, &request)
                    .await
            }
            Ok(Payload::Single(Message::Notification(_) | Message::Response(_))) => Reply::Accepted,
            Ok(Payload::Batch(elements)) => match peer.session.get() {
                Some(session)
                    if self.config.batch == BatchPolicy::Always
                        || self.config.batch == BatchPolicy::Auto
                            && session.revision.has_batches() =>
                {
                    self.batch(&session_caller(session, principal), None, &body, elements)
                        .await
                }
                _ => malformed("an array of messages is not accepted: only 2025-03-26 has batches"),
            },
            Err(problem) => not_a_message(&problem),
        }
    }

    async fn stdio_request(
        self: &Arc<Self>,
        local: &Local,
        peer: &StdioPeer,
        principal: &Arc<Principal>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        if let Some(session) = peer.session.get() {
            let caller = session_caller(session, principal);
            return self.session_request(caller, None, body, request).await;
        }
        match &*request.method {
            "initialize" => match self.initialize(local, principal, request) {
                Ok((session, reply)) => {
                    let _ = peer.session.set(session);
                    reply
                }
                Err(reply) => reply,
            },
            "ping" => Reply::pieces(
                begin(request.id, 0).into(),
                Bytes::from_static(br#","result":{}}"#),
            ),
            _ => Reply::error(
                request.id,
                &ErrorObject::new(
                    ErrorCode::InvalidRequest,
                    "send initialize first, or io.modelcontextprotocol/protocolVersion in _meta",
                ),
            ),
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("mount", &self.mount)
            .finish_non_exhaustive()
    }
}

fn session_caller(session: &Session, principal: &Arc<Principal>) -> Caller {
    Caller {
        principal: Arc::clone(principal),
        revision: session.revision,
        session: Some(Arc::clone(&session.log_name)),
    }
}

/// What `MCP-Protocol-Version` says.
enum VersionHeader {
    Absent,
    Known(#[expect(dead_code, reason = "within a session its own revision counts")] Revision),
    Unknown(String),
}

#[inline]
fn version_header(headers: &HeaderMap) -> VersionHeader {
    match mirror::read(headers, mirror::VERSION) {
        Mirrored::Absent => VersionHeader::Absent,
        Mirrored::Text(text) => match Revision::parse(&text) {
            Some(revision) => VersionHeader::Known(revision),
            None => VersionHeader::Unknown(text.into_owned()),
        },
        Mirrored::Repeated => VersionHeader::Unknown("several at once".to_owned()),
        Mirrored::Invalid(_) => VersionHeader::Unknown("not ASCII".to_owned()),
    }
}

/// Whether the version header names the revision without sessions.
#[inline]
pub(crate) fn is_stateless(headers: &HeaderMap) -> bool {
    match headers.get(mirror::VERSION) {
        Some(value) => value
            .to_str()
            .is_ok_and(|v| Revision::parse(v.trim()).is_some_and(|r| !r.has_sessions())),
        None => false,
    }
}

/// The value of `Mcp-Session-Id`.
#[inline]
pub(crate) fn session_id(headers: &HeaderMap) -> Result<Option<&[u8]>, Reply> {
    let mut values = headers.get_all(SESSION_ID).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(malformed("Mcp-Session-Id appears more than once"));
    }
    Ok(first.map(|value| value.as_bytes().trim_ascii()))
}

fn is_unknown_method(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Answer(Answer {
            refusal: Some(Refusal::Method),
            ..
        })
    )
}

/// A method that does not exist, within a session.
fn method_not_found(request: &Request<'_>) -> Reply {
    let message = format!("Method not found: {}", truncated(&request.method));
    Reply::error(
        request.id,
        &ErrorObject::new(ErrorCode::MethodNotFound, message),
    )
}

fn malformed(message: &'static str) -> Reply {
    Reply::refuse(Refusal::Malformed, None, ErrorCode::InvalidRequest, message)
}

fn not_a_message(problem: &Malformed<'_>) -> Reply {
    let (code, name) = match problem.kind {
        MalformedKind::Parse => (ErrorCode::Parse, "Parse error"),
        MalformedKind::Invalid => (ErrorCode::InvalidRequest, "Invalid Request"),
    };
    let message = format!("{name}: {}", problem.reason);
    Reply::refuse(Refusal::Malformed, problem.id, code, message)
}

/// A stranger's text, cut to what fits into an error message.
pub(crate) fn truncated(text: &str) -> Cow<'_, str> {
    const MAX_BYTES: usize = 200;
    if text.len() <= MAX_BYTES {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!(
        "{}...",
        &text[..text.floor_char_boundary(MAX_BYTES)]
    ))
}
