//! A message in, a reply out. No sockets here.
//!
//! [`Server::handle_http`] and [`Server::handle_stdio`] decide for each message which of the two lifecycles it
//! belongs to ([`handshake`] up to 2025-11-25, [`stateless`] for 2026-07-28), and hand what both agree on to
//! one dispatcher. Everything after that is shared.

mod batch;
mod call;
mod config;
mod generation;
mod handshake;
mod http;
mod local;
mod logging;
mod method;
mod mirror;
mod reply;
mod stateless;
mod stdio;
mod stream;
mod tools;

use std::borrow::Cow;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

pub(crate) use call::next_heartbeat;
pub use config::{BatchPolicy, ServerConfig, ValidationErrors};
pub(crate) use http::{HttpHead, session_id};
pub(crate) use local::Local;
pub use method::{MethodFuture, MethodHandler};
pub(crate) use mirror::VersionHeader;
pub(crate) use reply::{Answer, Refusal, Reply};
pub(crate) use stdio::StdioPeer;
pub(crate) use stream::{CallStream, Part};

use crate::auth::Principal;
use crate::catalog::{CallContext, Catalog, Outlet, RequestId};
use crate::protocol::message::{Malformed, MalformedKind, Notification, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision};
use crate::seal::{KeyRing, Revoked};
use call::{Inflight, OnDisconnect};
use generation::Generation;
use logging::Levels;
use reply::begin;

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
    levels: Levels,
}

/// Who sent a request, once its lifecycle has settled that.
#[derive(Clone, Debug)]
struct Caller {
    principal: Arc<Principal>,
    revision: Revision,
    /// The session's name for logs.
    session: Option<Arc<str>>,
    on_disconnect: OnDisconnect,
    /// After how long an answer becomes a stream; `None` if the caller takes none.
    stream_after: Option<Duration>,
}

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
            levels: Levels::default(),
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
                .unwrap_or_else(|| {
                    let message = format!("Method not found: {}", truncated(&request.method));
                    Reply::error(
                        request.id,
                        &ErrorObject::new(ErrorCode::MethodNotFound, message),
                    )
                }),
        }
    }

    /// A request that stands alone.
    #[inline]
    async fn stateless_request(
        self: &Arc<Self>,
        caller: Caller,
        headers: Option<HeaderMap>,
        body: &Bytes,
        request: &Request<'_>,
    ) -> Reply {
        match stateless::check_envelope(request, headers.as_ref()) {
            // A call's level is looked at after its name.
            Ok(method) if method != Method::ToolsCall => match stateless::log_level(request) {
                Ok(_) => self.dispatch(method, caller, headers, body, request).await,
                Err(refusal) => refusal,
            },
            Ok(method) => self.dispatch(method, caller, headers, body, request).await,
            Err(refusal) if is_unknown_method(&refusal) => self
                .other_method(caller, headers, request)
                .await
                .unwrap_or(refusal),
            Err(refusal) => refusal,
        }
    }

    /// A notification of a client's; `session` is where its ids mean something.
    fn notified(&self, session: &str, notification: &Notification<'_>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        // CAN-01: a malformed one is ignored.
        if notification.method == "notifications/cancelled"
            && let Some(params) = notification.params.object
            && let Ok(cancelled) = serde_json::from_str::<Cancelled<'_>>(params)
        {
            self.inflight.cancel(session, cancelled.request_id.get());
        }
    }

    /// After how long an answer becomes a stream.
    fn stream_after(&self) -> Duration {
        Duration::from_secs(self.config.stream_after_seconds)
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
            Method::SetLogLevel => self.set_log_level(&caller, request),
            // A session has begun already, and over HTTP each handshake begins one of its own.
            Method::Initialize => Reply::error(
                request.id,
                &ErrorObject::new(ErrorCode::InvalidRequest, "initialize was answered already"),
            ),
        }
    }

    /// A method of the application's own. `None` if there is none of the name.
    async fn other_method(
        &self,
        caller: Caller,
        headers: Option<HeaderMap>,
        request: &Request<'_>,
    ) -> Option<Reply> {
        // The specification's own stay what they are, also in revisions that do not have them.
        if Method::parse(&request.method).is_some() {
            return None;
        }
        let handler = Arc::clone(self.methods.get(&*request.method)?);
        let params = request.params.object.unwrap_or("{}");
        let params = match serde_json::from_str::<Map<String, Value>>(params) {
            Ok(params) => Value::Object(params),
            Err(e) => return Some(tools::invalid_params(request.id, &e.to_string())),
        };
        let stateless = caller.revision.has_result_type();
        let context = Arc::new(CallContext {
            principal: caller.principal,
            session: caller.session,
            request_id: RequestId::from_json(request.id),
            headers,
            outlet: Outlet::default(),
        });
        // The handler's own code runs within the guard too: whatever panics, this request alone fails.
        let call = AssertUnwindSafe(async { handler.call(context, params).await }).catch_unwind();
        let Ok(answer) = call.await else {
            tracing::error!(method = %request.method, "a method panicked; its request failed, nothing else is affected");
            return Some(tools::internal_error(request.id));
        };
        Some(match answer {
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
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("mount", &self.mount)
            .finish_non_exhaustive()
    }
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
