//! Tests that need control of the clock, the endpoint or the caller.

mod calls;
mod lists;
mod sessions;
mod streams;

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};

use super::{
    Admission, EventData, EventSource, HttpHead, ListChanges, MaybeReady, McpHeaders, RejectReason,
    Reply, Server, ServerConfig, ServerContext, ServerParts, StdioPeer, StreamEvent, VersionHeader,
    WorkerState,
};
use crate::auth::Principal;
use crate::catalog::{
    CallContext, Catalog, Definition, IntoTool as _, TaskSupport, ToolError, tool_fn,
};
use crate::limit::{LARGE_BYTES, Limit, LimitConfig, Limits};
use crate::protocol::Revision;
use crate::seal::{KeyRing, SealConfig};
use crate::state::SharedState;
use crate::telemetry::{CountedTransport, Metrics, RequestOrigin, Telemetry};

const START: u64 = 1_700_000_000;
const DAY: u64 = 24 * 60 * 60;

fn server() -> Arc<Server> {
    Arc::new(server_with(KeyRing::random(), &[]))
}

/// Creates a server with these tools and a page size of one.
fn server_with(keys: KeyRing, names: &[&str]) -> Server {
    sharing(ServerContext::default(), keys, names)
}

fn sharing(shared: ServerContext, keys: KeyRing, names: &[&str]) -> Server {
    let config = ServerConfig {
        page_size: 1,
        ..ServerConfig::default()
    };
    Server::new(ServerParts {
        config,
        keys: keys.into(),
        shared,
        ..of(catalog(names))
    })
}

/// A catalog of tools that do nothing.
fn catalog(names: &[&str]) -> Catalog {
    let nothing = |_, _: Map<String, Value>| async { Ok::<_, ToolError>(String::new()) };
    let tools = names
        .iter()
        .map(|name| tool_fn(Definition::new(*name), nothing).into_tool());
    Catalog::new(tools).expect("good tools")
}

/// Default parts of a test server.
pub(super) fn of(catalog: Catalog) -> ServerParts {
    ServerParts {
        config: ServerConfig::default(),
        keys: KeyRing::random().into(),
        shared: ServerContext::default(),
        catalog,
        methods: HashMap::new(),
        telemetry: Telemetry::default(),
        admission: Admission::default(),
        limits: Limits::new(&LimitConfig::default(), &Metrics::default()).into(),
        audit: None,
    }
}

/// Creates one of several servers with a shared state.
pub(super) fn replica_of(state: SharedState) -> Arc<Server> {
    let shared = ServerContext {
        state,
        is_shared: true,
        ..ServerContext::default()
    };
    Arc::new(sharing(shared, KeyRing::random(), &[]))
}

/// Creates two servers with one key, the second for another endpoint.
fn at_two_endpoints(names: &[&str]) -> (Arc<Server>, Arc<Server>) {
    let keys = || {
        let keys = vec!["a key that both of these servers have".to_owned().into()];
        KeyRing::new(&SealConfig { keys }).expect("long enough")
    };
    let context = ServerContext {
        endpoint: Some("other".into()),
        ..ServerContext::default()
    };
    let other = sharing(context, keys(), names);
    (Arc::new(server_with(keys(), names)), Arc::new(other))
}

pub(super) fn at(now: u64) -> WorkerState {
    let worker = WorkerState::new(Telemetry::default().cells());
    worker.set_now(now);
    worker
}

/// Begins to listen for changes of the list of tools, which is acknowledged.
fn listen_as(principal: Principal, server: &Arc<Server>) -> Box<dyn EventSource> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}},
    });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let reply = match begin(principal, server, &at(START), &headers, &listen) {
        MaybeReady::Ready(Reply::Stream(stream)) => Ok(stream),
        other => Err(other),
    };
    let mut stream = reply.expect("a stream");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(Some(_))));
    stream
}

/// Sends one POST that completes at once.
fn post(server: &Arc<Server>, worker: &WorkerState, session: Option<&str>, body: &Value) -> Reply {
    post_as(Principal::anonymous(), server, worker, session, body)
}

fn post_as(
    principal: Principal,
    server: &Arc<Server>,
    worker: &WorkerState,
    session: Option<&str>,
    body: &Value,
) -> Reply {
    match begin_post(principal, server, worker, session, body) {
        MaybeReady::Ready(reply) => reply,
        MaybeReady::Pending(_) => panic!("had to wait"),
    }
}

fn begin_post(
    principal: Principal,
    server: &Arc<Server>,
    worker: &WorkerState,
    session: Option<&str>,
    body: &Value,
) -> MaybeReady {
    let session = session.map(|session| ("mcp-session-id", session));
    begin(principal, server, worker, session.as_slice(), body)
}

fn begin(
    principal: Principal,
    server: &Arc<Server>,
    worker: &WorkerState,
    headers: &[(&'static str, &str)],
    body: &Value,
) -> MaybeReady {
    let (mut headers, mcp) = headers_of(headers);
    let principal = Arc::new(principal);
    let mut head = head(&principal, &mut headers, &mcp);
    let cx = &mut Context::from_waker(Waker::noop());
    server.handle_http(cx, worker, &mut head, &Bytes::from(body.to_string()))
}

pub(super) fn headers_of(pairs: &[(&'static str, &str)]) -> (HeaderMap, McpHeaders) {
    let (mut headers, mut mcp) = (HeaderMap::new(), McpHeaders::default());
    for (name, value) in pairs {
        let value = HeaderValue::try_from(*value).expect("visible");
        mcp.add(name, &value);
        headers.insert(*name, value);
    }
    (headers, mcp)
}

pub(super) fn head<'h>(
    principal: &'h Arc<Principal>,
    headers: &'h mut HeaderMap,
    mcp: &'h McpHeaders,
) -> HttpHead<'h> {
    HttpHead {
        principal,
        headers,
        mcp,
        extensions: None,
        takes_streams: true,
        wire: CountedTransport::Http11,
        peer: None,
    }
}

fn session(server: &Arc<Server>, worker: &WorkerState) -> String {
    let params = json!({"protocolVersion": "2025-06-18"});
    session_of(server, worker, &params)
}

fn session_of(server: &Arc<Server>, worker: &WorkerState, params: &Value) -> String {
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    match post(server, worker, None, &initialize) {
        Reply::Response(answer) => answer.session.expect("a session"),
        other => panic!("{other:?}"),
    }
}

fn refusal(reply: &Reply) -> Option<RejectReason> {
    match reply {
        Reply::Response(answer) => answer.refusal.clone(),
        other => panic!("{other:?}"),
    }
}

/// Parses the body of a response.
fn text(reply: Reply) -> Value {
    match reply {
        Reply::Response(answer) => serde_json::from_slice(&answer.to_bytes()).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

/// Handles a message that came over stdio.
fn over_stdio(
    server: &Arc<Server>,
    principal: Principal,
    peer: &StdioPeer,
    now: u64,
    body: &Value,
) -> MaybeReady {
    let (worker, principal) = (at(now), Arc::new(principal));
    let (by, body) = (
        (&worker, RequestOrigin::PIPE),
        Bytes::from(body.to_string()),
    );
    let cx = &mut Context::from_waker(Waker::noop());
    server.handle_stdio(cx, by, peer, &principal, &body)
}

/// Parses the body of a response that is there at once.
fn at_once(handled: MaybeReady) -> Value {
    match handled {
        MaybeReady::Ready(reply) => text(reply),
        MaybeReady::Pending(_) => panic!("had to wait"),
    }
}
