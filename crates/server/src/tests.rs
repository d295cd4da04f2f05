//! Tests that need control of the clock, the endpoint or the caller.

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
use crate::catalog::{CallContext, Catalog, Definition, IntoTool as _, ToolError, tool_fn};
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

/// Messages of an HTTP+SSE session wait for five seconds if the client does not read. Then the session ends.
#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_reads_is_evicted_after_five_seconds() {
    let server = server();
    let worker = at(START);
    let principal = Arc::new(Principal::anonymous());
    let mut stream = server
        .open_sse_session(&principal, None, "/messages")
        .unwrap_or_else(|reply| panic!("{reply:?}"));
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(StreamEvent {
        data: EventData::Message(path),
        ..
    })) = stream.poll_next(&mut cx)
    else {
        panic!("the first event says where to post");
    };
    let path = String::from_utf8(path.to_vec()).expect("UTF-8");
    let id = path.rsplit('=').next().expect("an id").to_owned();
    let ping = Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    let post = || {
        let mut cx = Context::from_waker(Waker::noop());
        server.post_sse_message(
            &mut cx,
            (&worker, RequestOrigin::default()),
            &principal,
            &id,
            &ping,
        )
    };
    // The queue holds 64 responses; the next ones wait.
    for _ in 0..64 {
        post().unwrap_or_else(|reply| panic!("{reply:?}")).await;
    }
    let waits = tokio::spawn(post().unwrap_or_else(|reply| panic!("{reply:?}")));
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_millis(4_990)).await;
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    assert!(post().is_ok(), "it is still there");
    tokio::time::advance(Duration::from_millis(20)).await;
    waits.await.expect("no panic");
    assert!(
        matches!(post(), Err(MaybeReady::Ready(Reply::Response(answer))) if answer.refusal == Some(RejectReason::SessionUnknown))
    );
    // The end of the stream tells the client.
    assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(None)));
}

/// A stream ends when the credential that opened it expires.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_what_its_caller_has_shown_does() {
    let server = server();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    for (principal, seconds) in [
        (Principal::new("ada").with_expiry(now + 60), 61),
        (Principal::new("ada").with_expiry(now.saturating_sub(1)), 1),
    ] {
        let mut stream = listen_as(principal, &server);
        let mut cx = Context::from_waker(Waker::noop());
        let deadline = stream.deadline().expect("an end");
        assert!(deadline <= tokio::time::Instant::now() + Duration::from_secs(seconds));
        tokio::time::advance(Duration::from_secs(seconds)).await;
        // SUB-05: with the response that ends it.
        let last = stream.poll_next(&mut cx);
        let is_answer = |event: &StreamEvent| matches!(event.data, EventData::Response(_));
        assert!(matches!(last, Poll::Ready(Some(event)) if is_answer(&event)));
        assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(None)));
    }
}

#[test]
fn what_is_offered_is_measured_anew_once_it_is_replaced() {
    let server = server();
    let offered = |names: &[&str]| {
        let config = ServerConfig::default();
        let prepared = server.prepare(catalog(names), &config, Admission::default());
        server.install(prepared);
        let page = crate::telemetry::prometheus_page(&server.telemetry().metrics.families());
        ["longshore_tools ", "longshore_tools_size_bytes "].map(|name| {
            let value = page.lines().find_map(|line| line.strip_prefix(name));
            value.expect("a value").parse::<usize>().expect("a number")
        })
    };
    let [none, nothing_told] = offered(&[]);
    assert_eq!((none, nothing_told), (0, 0));
    let [one, reported] = offered(&["a"]);
    assert_eq!(one, 1);
    assert_eq!(offered(&["a", "b"]), [2, 2 * reported]);
}

/// A caller is notified of a changed list only if its visible part differs.
#[tokio::test]
async fn who_sees_no_difference_is_not_told_that_a_list_has_changed() {
    let rules = json!({"rules": [{"effect": "deny", "principals": ["ada"], "tools": ["secret*"]}]});
    let policy = || {
        let config = serde_json::from_value(rules.clone()).expect("sound rules");
        crate::auth::Policy::new(&config).expect("sound rules")
    };
    let server = server();
    let serve = |names: &[&str]| {
        let admission = Admission {
            policy: policy(),
            ..Admission::default()
        };
        let prepared = server.prepare(catalog(names), &ServerConfig::default(), admission);
        server.install(prepared)
    };
    serve(&["open", "secret"]);
    tokio::spawn(Arc::clone(&server).run_notifications());
    let mut streams = ["ada", "eve"].map(|name| listen_as(Principal::new(name), &server));
    let mut reported = async || {
        server.streams.announcer().tools_changed();
        have_news(&mut streams).await
    };
    assert_eq!(reported().await, [true, true], "the application says so");
    assert!(serve(&["open", "secret", "secret_too"]).tools);
    assert_eq!(reported().await, [false, true]);
    serve(&["open", "open_too", "secret"]);
    assert_eq!(reported().await, [true, true]);
}

/// Changed rules and a tool search change lists too, for those who see a difference.
#[tokio::test]
async fn changed_rules_and_a_search_are_changes_of_the_list_for_whom_it_differs() {
    let server = server();
    let serve = |denied: Option<&str>, above: Option<usize>| {
        let rules = denied
            .map(|denied| json!({"effect": "deny", "principals": ["ada"], "tools": [denied]}));
        let rules: Vec<_> = rules.into_iter().collect();
        let rules = serde_json::from_value(json!({ "rules": rules })).expect("sound rules");
        let admission = Admission {
            policy: crate::auth::Policy::new(&rules).expect("sound rules"),
            ..Admission::default()
        };
        let mut config = ServerConfig::default();
        config.search.above = above;
        let catalog = catalog(&["first", "second", "third"]);
        server.install(server.prepare(catalog, &config, admission))
    };
    serve(Some("first"), None);
    tokio::spawn(Arc::clone(&server).run_notifications());
    let mut streams = ["ada", "eve"].map(|name| listen_as(Principal::new(name), &server));
    let mut told = async |changes: ListChanges| {
        if changes.tools {
            server.streams.announcer().tools_changed();
        }
        have_news(&mut streams).await
    };
    assert_eq!(told(serve(Some("first"), None)).await, [false, false]);
    assert_eq!(told(serve(Some("second"), None)).await, [true, false]);
    // Beyond two tools, those of the search are listed instead.
    assert_eq!(told(serve(Some("second"), Some(2))).await, [false, true]);
    assert_eq!(told(serve(Some("second"), None)).await, [false, true]);
    // Without rules, it is not known what each caller saw before.
    assert_eq!(told(serve(None, None)).await, [true, true]);
    assert_eq!(told(serve(None, None)).await, [false, false]);
    assert_eq!(told(serve(None, Some(2))).await, [true, true]);
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

/// Returns which of the streams have an event, once all tasks have run.
async fn have_news(streams: &mut [Box<dyn EventSource>; 2]) -> [bool; 2] {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let mut cx = Context::from_waker(Waker::noop());
    [0, 1].map(|at| streams[at].poll_next(&mut cx).is_ready())
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

#[test]
fn lh_08_a_session_ends_a_day_after_it_began_however_busy_it_is() {
    let server = server();
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    for (now, expected) in [
        (START, None),
        (START + DAY - 1, None),
        (START + DAY, Some(RejectReason::SessionUnknown)),
        (START + 2 * DAY, Some(RejectReason::SessionUnknown)),
    ] {
        worker.set_now(now);
        assert_eq!(
            refusal(&post(&server, &worker, Some(&id), &ping)),
            expected,
            "{now}"
        );
        // A worker that has not cached the id gives the same result.
        assert_eq!(
            refusal(&post(&server, &at(now), Some(&id), &ping)),
            expected,
            "{now}"
        );
    }
}

#[test]
fn lh_08_a_session_may_end_sooner_and_that_is_counted() {
    let config = ServerConfig {
        session_seconds: 60,
        ..ServerConfig::default()
    };
    let server = Arc::new(Server::new(ServerParts {
        config,
        ..of(Catalog::default())
    }));
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    for (now, expected, hits) in [
        (START + 59, None, 0),
        (START + 60, Some(RejectReason::SessionUnknown), 1),
    ] {
        worker.set_now(now);
        let found = refusal(&post(&server, &worker, Some(&id), &ping));
        assert_eq!(found, expected, "{now}");
        assert_eq!(server.limits.hits.of(Limit::SessionSeconds), hits);
    }
    // An unknown id is not an ended session.
    post(&server, &worker, Some("x"), &ping);
    assert_eq!(server.limits.hits.of(Limit::SessionSeconds), 1);
}

#[test]
fn list_02_a_page_is_sent_as_it_lies_in_the_catalog() {
    let server = server();
    let worker = at(START);
    let id = session(&server, &worker);
    let list = |id_of_request: u32| {
        let list = json!({"jsonrpc": "2.0", "id": id_of_request, "method": "tools/list"});
        match post(&server, &worker, Some(&id), &list) {
            Reply::Response(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    let (one, other) = (list(1), list(2));
    assert_eq!(&*one.head, br#"{"jsonrpc":"2.0","id":1"#);
    assert_eq!(
        one.rest.pieces()[0].as_ptr(),
        other.rest.pieces()[0].as_ptr()
    );
}

/// Parses the body of a response.
fn text(reply: Reply) -> Value {
    match reply {
        Reply::Response(answer) => serde_json::from_slice(&answer.to_bytes()).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lh_08_a_session_of_another_endpoint_is_unknown() {
    let (server, other) = at_two_endpoints(&[]);
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(refusal(&post(&server, &worker, Some(&id), &ping)), None);
    // Also on the worker that has cached the id for the other endpoint.
    for worker in [&worker, &at(START)] {
        let foreign = post(&other, worker, Some(&id), &ping);
        assert_eq!(refusal(&foreign), Some(RejectReason::SessionUnknown));
    }
}

#[test]
fn lh_08_a_session_of_somebody_else_is_unknown() {
    let server = server();
    let worker = at(START);
    let id = session(&server, &worker);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let stranger = post_as(Principal::local(), &server, &worker, Some(&id), &ping);
    assert_eq!(refusal(&stranger), Some(RejectReason::SessionUnknown));
    assert_eq!(refusal(&post(&server, &worker, Some(&id), &ping)), None);
}

#[test]
fn pag_01_a_cursor_of_another_endpoint_is_refused() {
    let (server, other) = at_two_endpoints(&["a", "b"]);
    let worker = at(START);
    let list = |server: &Arc<Server>, params: Value| {
        let id = session(server, &at(START));
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": params});
        text(post(server, &worker, Some(&id), &list))
    };
    let first = list(&server, json!({}));
    let params = json!({"cursor": first["result"]["nextCursor"]});
    assert_eq!(
        list(&server, params.clone())["result"]["tools"][0]["name"],
        "b"
    );
    assert_eq!(list(&other, params)["error"]["code"], -32602);
}

#[test]
fn list_02_every_page_of_every_revision_is_sent_as_it_lies_in_the_catalog() {
    let server = Arc::new(server_with(KeyRing::random(), &["a", "b", "c"]));
    let worker = at(START);
    let page = |session: &str, cursor: &Value| {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": cursor}});
        match post(&server, &worker, Some(session), &list) {
            Reply::Response(answer) => answer.rest.pieces()[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let (one, other) = (session(&server, &worker), session(&server, &worker));
    let mut cursor = Value::Null;
    for last in [false, false, true] {
        let bytes = page(&one, &cursor);
        assert_eq!(bytes.as_ptr(), page(&other, &cursor).as_ptr());
        let rest = bytes
            .strip_prefix(b",\"result\":")
            .and_then(|b| b.strip_suffix(b"}"));
        let result: Value = serde_json::from_slice(rest.expect("a result")).expect("JSON");
        cursor = result["nextCursor"].clone();
        assert_eq!(cursor.is_null(), last);
    }
}

#[test]
fn tool_10_a_large_text_is_sent_without_a_copy_and_reserves_memory_until_then() {
    let echo = |_, arguments: Map<String, Value>| async move {
        Ok::<_, ToolError>(arguments["text"].as_str().unwrap_or_default().to_owned())
    };
    let tool = tool_fn(Definition::new("echo"), echo).into_tool();
    let limits = LimitConfig {
        response_bytes: Some(4 * LARGE_BYTES as u64),
        ..LimitConfig::default()
    };
    let server = Arc::new(Server::new(ServerParts {
        limits: Limits::new(&limits, &Metrics::default()).into(),
        ..of(Catalog::new([tool]).expect("a good tool"))
    }));
    let worker = at(START);
    let id = session(&server, &worker);
    let call = |text: &str| {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": text}}});
        match post(&server, &worker, Some(&id), &call) {
            Reply::Response(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    for (sent, pieces) in [
        ("x".repeat(LARGE_BYTES - 1), 1),
        ("x".repeat(LARGE_BYTES), 2),
        ("\u{e9}".repeat(LARGE_BYTES / 2), 2),
        ("x".repeat(LARGE_BYTES) + "\n", 1),
    ] {
        let answer = call(&sent);
        assert_eq!(answer.rest.pieces().len(), pieces);
        let document: Value = serde_json::from_slice(&answer.to_bytes()).expect("JSON");
        let result = json!({"content": [{"type": "text", "text": sent}], "isError": false});
        assert!(document["result"] == result);
    }
    let large = "x".repeat(LARGE_BYTES);
    let unread = [(); 4].map(|()| call(&large));
    let refused = call(&large);
    assert!(matches!(refused.refusal, Some(RejectReason::Limited(_))));
    drop(unread);
    assert_eq!(call(&large).refusal, None);
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

#[test]
fn gemini_cli_gets_an_object_where_the_text_of_a_result_is_another_json_value() {
    let tool = tool_fn(
        Definition::new("list"),
        |_: Arc<CallContext>, _: Map<String, Value>| async { Ok::<_, ToolError>("[1]".to_owned()) },
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("good tools");
    let (server, worker) = (Arc::new(Server::new(of(catalog))), at(START));
    for (name, structured) in [
        ("gemini-cli-mcp-client", json!({"result": [1]})),
        ("test", Value::Null),
    ] {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": name, "version": "1"}});
        let initialize =
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let Reply::Response(answer) = post(&server, &worker, None, &initialize) else {
            panic!("a stream");
        };
        let session = answer.session.expect("a session");
        let call =
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list"}});
        let document = text(post(&server, &worker, Some(&session), &call));
        assert_eq!(document["result"]["content"][0]["text"], "[1]");
        assert_eq!(
            document["result"]["structuredContent"], structured,
            "{name}"
        );
    }
}

/// Creates a server with a tool that requests roots.
fn asking_server() -> Arc<Server> {
    Arc::new(Server::new(of(asking_catalog())))
}

fn asking_catalog() -> Catalog {
    let tool = tool_fn(
        Definition::new("ask"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let roots = context.roots().await?;
            Ok::<_, ToolError>(roots[0].uri.clone())
        },
    );
    Catalog::new([tool.into_tool()]).expect("good tools")
}

/// The call runs for at most a minute, and its events are kept for five minutes after its end.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_client_can_be_resumed_for_as_long_as_it_waits() {
    let mut parts = of(asking_catalog());
    parts.config.client_requests.timeout_seconds = 7200;
    let (server, worker) = (Arc::new(Server::new(parts)), at(START));
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}},
        "clientInfo": {"name": "test", "version": "1"}});
    let session = session_of(&server, &worker, &params);
    let call =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask"}});
    let caller = Principal::anonymous();
    let begun = begin_post(caller, &server, &worker, Some(&session), &call);
    let Reply::Stream(mut stream) = begun.reply().await else {
        panic!("no stream");
    };
    let first = std::future::poll_fn(|cx| stream.poll_next(cx)).await;
    let first = first.and_then(|event| event.id).expect("an id");
    let request = std::future::poll_fn(|cx| stream.poll_next(cx)).await;
    assert!(request.is_some_and(|event| matches!(event.data, EventData::Message(_))));
    drop(stream);
    tokio::time::advance(Duration::from_secs(7000)).await;
    let (mut headers, mcp) = headers_of(&[
        ("mcp-session-id", &session),
        ("last-event-id", &first.to_string()),
    ]);
    let principal = Arc::new(Principal::anonymous());
    let head = head(&principal, &mut headers, &mcp);
    let opened = server.open_stream(&worker, &head, VersionHeader::WithSessions);
    let reply = opened.unwrap_or_else(|refusal| panic!("{refusal:?}")).await;
    assert!(matches!(reply, Reply::Stream(_)), "{reply:?}");
}

#[test]
fn mrtr_06_a_state_is_good_for_its_principal_and_for_a_quarter_of_an_hour() {
    // ELI-06
    let server = asking_server();
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .expect("later")
        .as_secs();
    let call = |extra: Value| {
        let mut params = json!({
            "name": "ask",
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
            },
        });
        params
            .as_object_mut()
            .expect("an object")
            .extend(extra.as_object().expect("an object").clone());
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    };
    let send = |principal: Principal, now: u64, body: &Value| {
        at_once(over_stdio(
            &server,
            principal,
            &StdioPeer::default(),
            now,
            body,
        ))
    };
    let asked = send(Principal::local(), now, &call(json!({})));
    let again = call(json!({
        "requestState": asked["result"]["requestState"],
        "inputResponses": {"roots-1": {"roots": [{"uri": "file:///x"}]}},
    }));
    let good = send(Principal::local(), now + 890, &again);
    assert_eq!(good["result"]["content"][0]["text"], "file:///x");
    for bad in [
        send(Principal::anonymous(), now, &again),
        send(Principal::local(), now + 910, &again),
    ] {
        assert_eq!(bad["error"]["code"], -32602, "{bad}");
    }
    let counts = server.client_request_counts();
    assert_eq!(
        (counts.asked, counts.resumed, counts.states_refused),
        (1, 1, 2)
    );
}

#[tokio::test]
async fn tsk_10_a_task_is_there_for_its_own_principal_only() {
    let tool = tool_fn(
        Definition::new("work").task(crate::catalog::TaskSupport::Required),
        |_, _: Map<String, Value>| std::future::pending::<Result<String, ToolError>>(),
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("good tools");
    let server = Arc::new(Server::new(of(catalog)));
    let send = async |principal: Principal, method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":
                {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let handled = over_stdio(&server, principal, &StdioPeer::default(), START, &body);
        text(handled.reply().await)
    };
    let created = send(Principal::local(), "tools/call", json!({"name": "work"})).await;
    let task = &created["result"]["taskId"];
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": task, "inputResponses": {}});
        let refused = send(Principal::anonymous(), method, params).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
    let own = send(Principal::local(), "tasks/get", json!({"taskId": task})).await;
    assert_eq!(own["result"]["status"], "working");
}

#[tokio::test]
async fn rpc_08_a_call_in_a_batch_over_stdio_that_reports_progress_is_answered() {
    let tool = tool_fn(
        Definition::new("reports"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            context.progress(1.0, None, "half").await;
            Ok::<_, ToolError>(String::new())
        },
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("good tools");
    let server = Arc::new(Server::new(of(catalog)));
    let peer = StdioPeer::default();
    let send = async |body: Value| -> Vec<Value> {
        let handled = over_stdio(&server, Principal::local(), &peer, START, &body);
        let read = |text: &[u8]| serde_json::from_slice(text).expect("JSON");
        let mut stream = match handled.reply().await {
            Reply::Response(response) => return vec![read(&response.to_bytes())],
            Reply::Stream(stream) => stream,
            other => panic!("{other:?}"),
        };
        let mut messages = Vec::new();
        while let Some(event) = std::future::poll_fn(|cx| stream.poll_next(cx)).await {
            match event.data {
                EventData::Message(message) => messages.push(read(&message)),
                EventData::Response(response) => messages.push(read(&response.to_bytes())),
                EventData::Empty => {}
            }
        }
        messages
    };
    let params = json!({"protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
    let params = json!({"name": "reports", "_meta": {"progressToken": "token"}});
    let messages =
        send(json!([{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}])).await;
    let [progress, responses] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert_eq!(progress["params"]["progressToken"], "token");
    assert_eq!(responses[0]["id"], 2, "{responses}");
    assert_eq!(responses[0]["result"]["isError"], false);
}

#[test]
fn a_further_initialize_over_stdio_negotiates_again_in_the_same_session() {
    let server = server();
    let peer = StdioPeer::default();
    let send = |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        at_once(over_stdio(&server, Principal::local(), &peer, START, &body))
    };
    let initialize = |version: &str| {
        let params = json!({"protocolVersion": version, "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        send("initialize", params)
    };
    let first = initialize("2025-11-25");
    assert_eq!(first["result"]["protocolVersion"], "2025-11-25", "{first}");
    let name = peer.session().expect("a session").log_name.clone();
    let second = initialize("2024-11-05");
    assert_eq!(
        second["result"]["protocolVersion"], "2024-11-05",
        "{second}"
    );
    let session = peer.session().expect("a session");
    assert_eq!(session.revision, Revision::V2024_11_05);
    assert_eq!(session.log_name, name, "its subscriptions and calls stay");
    assert_eq!(initialize("2025-11-25")["error"], Value::Null);
    assert_eq!(send("ping", json!({}))["result"], json!({}));
    // The position is in a part of the message that the client does not see on its own.
    for (method, params) in [
        ("tools/list", json!({"cursor": 5})),
        ("logging/setLevel", json!({})),
    ] {
        let error = send(method, params)["error"].to_string();
        assert!(
            error.contains("Invalid params") && !error.contains("column"),
            "{error}"
        );
    }
}
