//! What needs a clock, a mount or a caller of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};

use super::{
    Admission, Handled, HttpHead, Local, McpHeaders, Part, Refusal, Reply, Said, Server,
    ServerConfig, ServerParts, Shared,
};
use crate::auth::Principal;
use crate::catalog::{CallContext, Catalog, Definition, IntoTool as _, ToolError, tool_fn};
use crate::limit::{Limit, LimitConfig, Limits};
use crate::seal::{KeyRing, SealConfig};
use crate::state::SharedState;
use crate::telemetry::{Metrics, Seen, Telemetry, Wire};

const START: u64 = 1_700_000_000;
const DAY: u64 = 24 * 60 * 60;

fn server() -> Arc<Server> {
    Arc::new(server_with(KeyRing::random(), &[]))
}

/// A server of tools of these names, one to a page.
fn server_with(keys: KeyRing, names: &[&str]) -> Server {
    sharing(Shared::default(), keys, names)
}

fn sharing(shared: Shared, keys: KeyRing, names: &[&str]) -> Server {
    let config = ServerConfig {
        page_size: 1,
        ..ServerConfig::default()
    };
    let tools = names.iter().map(|name| {
        let nothing = |_, _: Map<String, Value>| async { Ok::<_, ToolError>(String::new()) };
        tool_fn(Definition::new(*name), nothing).into_tool()
    });
    let catalog = Catalog::new(tools).expect("good tools");
    Server::new(ServerParts {
        config,
        keys: keys.into(),
        shared,
        ..of(catalog)
    })
}

/// What a server of these tests is made of, unless a test says otherwise.
fn of(catalog: Catalog) -> ServerParts {
    ServerParts {
        config: ServerConfig::default(),
        keys: KeyRing::random().into(),
        shared: Shared::default(),
        catalog,
        methods: HashMap::new(),
        telemetry: Telemetry::default(),
        admission: Admission::default(),
        limits: Limits::new(&LimitConfig::default(), &Metrics::default()).into(),
        audit: None,
    }
}

/// One of several servers that share a state.
pub(super) fn replica_of(state: SharedState) -> Arc<Server> {
    let shared = Shared {
        state,
        is_shared: true,
        ..Shared::default()
    };
    Arc::new(sharing(shared, KeyRing::random(), &[]))
}

/// Two servers of one key, the second at another mount.
fn at_two_mounts(names: &[&str]) -> (Arc<Server>, Arc<Server>) {
    let keys = || {
        let keys = vec!["a key that both of these servers have".to_owned().into()];
        KeyRing::new(&SealConfig { keys }).expect("long enough")
    };
    let mut other = server_with(keys(), names);
    other.mount = "other".into();
    (Arc::new(server_with(keys(), names)), Arc::new(other))
}

fn at(now: u64) -> Local {
    let local = Local::new(Telemetry::default().cells());
    local.set_now(now);
    local
}

/// Messages of a session of 2024-11-05 that nobody reads wait for five seconds; then the session ends.
#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_reads_is_evicted_after_five_seconds() {
    let server = server();
    let local = at(START);
    let principal = Arc::new(Principal::anonymous());
    let mut stream = server
        .open_legacy(&principal, None, "/messages")
        .unwrap_or_else(|reply| panic!("{reply:?}"));
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(Part {
        said: Said::Message(path),
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
        server.post_legacy(&mut cx, (&local, Seen::default()), &principal, &id, &ping)
    };
    // There is room for 64 answers; the next ones wait.
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
        matches!(post(), Err(Reply::Answer(answer)) if answer.refusal == Some(Refusal::SessionUnknown))
    );
    // Its reader is told by the end of the stream.
    assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(None)));
}

/// What a token shows ends with it, and so does a stream that was opened by it.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_what_its_caller_has_shown_does() {
    let server = server();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}},
    });
    for (principal, seconds) in [
        (Principal::new("ada").with_expiry(now + 60), 61),
        (Principal::new("ada").with_expiry(now.saturating_sub(1)), 1),
    ] {
        let reply = listen_as(principal, &server, &listen);
        let Reply::Stream(mut stream) = reply else {
            panic!("{reply:?}");
        };
        let mut cx = Context::from_waker(Waker::noop());
        let acknowledged = stream.poll_next(&mut cx);
        assert!(matches!(acknowledged, Poll::Ready(Some(_))));
        let deadline = stream.deadline().expect("an end");
        assert!(deadline <= tokio::time::Instant::now() + Duration::from_secs(seconds));
        tokio::time::advance(Duration::from_secs(seconds)).await;
        // SUB-05: with the answer that ends it.
        let last = stream.poll_next(&mut cx);
        let is_answer = |part: &Part| matches!(part.said, Said::Answer(_));
        assert!(matches!(last, Poll::Ready(Some(part)) if is_answer(&part)));
        assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(None)));
    }
}

#[test]
fn what_is_offered_is_measured_anew_once_it_is_replaced() {
    let server = server();
    let nothing = |_, _: Map<String, Value>| async { Ok::<_, ToolError>(String::new()) };
    let offered = |names: &[&str]| {
        let tools = names
            .iter()
            .map(|name| tool_fn(Definition::new(*name), nothing).into_tool());
        let catalog = Catalog::new(tools).expect("good tools");
        let prepared = server.prepare(catalog, &ServerConfig::default(), Admission::default());
        server.install(prepared);
        let page = crate::telemetry::prometheus_page(&server.telemetry.metrics.families());
        ["longshore_tools ", "longshore_tools_size_bytes "].map(|name| {
            let value = page.lines().find_map(|line| line.strip_prefix(name));
            value.expect("a value").parse::<usize>().expect("a number")
        })
    };
    let [none, nothing_told] = offered(&[]);
    assert_eq!((none, nothing_told), (0, 0));
    let [one, told] = offered(&["a"]);
    assert_eq!(one, 1);
    assert_eq!(offered(&["a", "b"]), [2, 2 * told]);
}

/// Of a list that was replaced only those hear to whom it looks different.
#[tokio::test]
async fn who_sees_no_difference_is_not_told_that_a_list_has_changed() {
    let rules = json!({"rules": [{"effect": "deny", "principals": ["ada"], "tools": ["secret*"]}]});
    let policy = || {
        let config = serde_json::from_value(rules.clone()).expect("sound rules");
        crate::auth::Policy::new(&config).expect("sound rules")
    };
    let catalog = |names: &[&str]| {
        let nothing = |_, _: Map<String, Value>| async { Ok::<_, ToolError>(String::new()) };
        let tools = names
            .iter()
            .map(|name| tool_fn(Definition::new(*name), nothing).into_tool());
        Catalog::new(tools).expect("good tools")
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
    tokio::spawn(Arc::clone(&server).attend());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": {"_meta": meta, "notifications": {"toolsListChanged": true}},
    });
    let mut streams = ["ada", "eve"].map(|name| {
        let Reply::Stream(mut stream) = listen_as(Principal::new(name), &server, &listen) else {
            panic!("a stream");
        };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(stream.poll_next(&mut cx), Poll::Ready(Some(_))));
        stream
    });
    let mut told = async || {
        server.announcer.tools_changed();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let mut cx = Context::from_waker(Waker::noop());
        [0, 1].map(|at| streams[at].poll_next(&mut cx).is_ready())
    };
    assert_eq!(told().await, [true, true], "the application says so");
    assert!(serve(&["open", "secret", "secret_too"]).tools);
    assert_eq!(told().await, [false, true]);
    serve(&["open", "open_too", "secret"]);
    assert_eq!(told().await, [true, true]);
}

fn listen_as(principal: Principal, server: &Arc<Server>, body: &Value) -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert(
        "mcp-protocol-version",
        HeaderValue::from_static("2026-07-28"),
    );
    headers.insert(
        "mcp-method",
        HeaderValue::from_static("subscriptions/listen"),
    );
    let mut mcp = McpHeaders::default();
    for (name, value) in &headers {
        mcp.add(name.as_str(), value);
    }
    let principal = Arc::new(principal);
    let mut head = HttpHead {
        principal: &principal,
        headers: &mut headers,
        mcp: &mcp,
        takes_streams: true,
        wire: Wire::Http11,
        peer: None,
    };
    let body = Bytes::from(body.to_string());
    let mut cx = Context::from_waker(Waker::noop());
    match server.handle_http(&mut cx, &at(START), &mut head, &body) {
        Handled::Now(reply) => reply,
        Handled::Later(_) => panic!("had to wait"),
    }
}

/// One POST, answered at once.
fn post(server: &Arc<Server>, local: &Local, session: Option<&str>, body: &Value) -> Reply {
    post_as(Principal::anonymous(), server, local, session, body)
}

fn post_as(
    principal: Principal,
    server: &Arc<Server>,
    local: &Local,
    session: Option<&str>,
    body: &Value,
) -> Reply {
    let mut headers = HeaderMap::new();
    if let Some(session) = session {
        headers.insert(
            "mcp-session-id",
            HeaderValue::try_from(session).expect("visible"),
        );
    }
    let mut mcp = McpHeaders::default();
    for (name, value) in &headers {
        mcp.add(name.as_str(), value);
    }
    let principal = Arc::new(principal);
    let mut head = HttpHead {
        principal: &principal,
        headers: &mut headers,
        mcp: &mcp,
        takes_streams: true,
        wire: Wire::Http11,
        peer: None,
    };
    let body = Bytes::from(body.to_string());
    match server.handle_http(
        &mut Context::from_waker(Waker::noop()),
        local,
        &mut head,
        &body,
    ) {
        Handled::Now(reply) => reply,
        Handled::Later(_) => panic!("had to wait"),
    }
}

fn session(server: &Arc<Server>, local: &Local) -> String {
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}});
    match post(server, local, None, &initialize) {
        Reply::Answer(answer) => answer.session.expect("a session"),
        other => panic!("{other:?}"),
    }
}

fn refusal(reply: &Reply) -> Option<Refusal> {
    match reply {
        Reply::Answer(answer) => answer.refusal.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lh_08_a_session_ends_a_day_after_it_began_however_busy_it_is() {
    let server = server();
    let local = at(START);
    let id = session(&server, &local);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    for (now, expected) in [
        (START, None),
        (START + DAY - 1, None),
        (START + DAY, Some(Refusal::SessionUnknown)),
        (START + 2 * DAY, Some(Refusal::SessionUnknown)),
    ] {
        local.set_now(now);
        assert_eq!(
            refusal(&post(&server, &local, Some(&id), &ping)),
            expected,
            "{now}"
        );
        // A worker that has never seen the id says the same.
        assert_eq!(
            refusal(&post(&server, &at(now), Some(&id), &ping)),
            expected,
            "{now}"
        );
    }
}

#[test]
fn lh_08_a_session_may_end_sooner_and_that_is_counted() {
    let mut server = server_with(KeyRing::random(), &[]);
    server.config.session_seconds = 60;
    let server = Arc::new(server);
    let local = at(START);
    let id = session(&server, &local);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    for (now, expected, hits) in [
        (START + 59, None, 0),
        (START + 60, Some(Refusal::SessionUnknown), 1),
    ] {
        local.set_now(now);
        let found = refusal(&post(&server, &local, Some(&id), &ping));
        assert_eq!(found, expected, "{now}");
        assert_eq!(server.limits.hits.of(Limit::SessionSeconds), hits);
    }
    // What never was a session has not ended.
    post(&server, &local, Some("x"), &ping);
    assert_eq!(server.limits.hits.of(Limit::SessionSeconds), 1);
}

#[test]
fn list_02_a_page_is_sent_as_it_lies_in_the_catalog() {
    let server = server();
    let local = at(START);
    let id = session(&server, &local);
    let list = |id_of_request: u32| {
        let list = json!({"jsonrpc": "2.0", "id": id_of_request, "method": "tools/list"});
        match post(&server, &local, Some(&id), &list) {
            Reply::Answer(answer) => answer,
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

/// The whole text of an answer.
fn text(reply: Reply) -> Value {
    match reply {
        Reply::Answer(answer) => serde_json::from_slice(&answer.whole()).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lh_08_a_session_of_another_mount_is_unknown() {
    let (server, other) = at_two_mounts(&[]);
    let local = at(START);
    let id = session(&server, &local);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(refusal(&post(&server, &local, Some(&id), &ping)), None);
    // By the same worker too, which has opened the id for the one mount.
    for local in [&local, &at(START)] {
        let foreign = post(&other, local, Some(&id), &ping);
        assert_eq!(refusal(&foreign), Some(Refusal::SessionUnknown));
    }
}

#[test]
fn lh_08_a_session_of_somebody_else_is_unknown() {
    let server = server();
    let local = at(START);
    let id = session(&server, &local);
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let stranger = post_as(Principal::local(), &server, &local, Some(&id), &ping);
    assert_eq!(refusal(&stranger), Some(Refusal::SessionUnknown));
    assert_eq!(refusal(&post(&server, &local, Some(&id), &ping)), None);
}

#[test]
fn pag_01_a_cursor_of_another_mount_is_refused() {
    let (server, other) = at_two_mounts(&["a", "b"]);
    let local = at(START);
    let list = |server: &Arc<Server>, params: Value| {
        let id = session(server, &at(START));
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": params});
        text(post(server, &local, Some(&id), &list))
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
    let local = at(START);
    let page = |session: &str, cursor: &Value| {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": cursor}});
        match post(&server, &local, Some(session), &list) {
            Reply::Answer(answer) => answer.rest.pieces()[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let (one, other) = (session(&server, &local), session(&server, &local));
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

/// A server of one tool that asks for roots.
fn asking_server() -> Arc<Server> {
    let tool = tool_fn(
        Definition::new("ask"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let roots = context.roots().await?;
            Ok::<_, ToolError>(roots[0].uri.clone())
        },
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("good tools");
    Arc::new(Server::new(of(catalog)))
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
        let (local, principal) = (at(now), Arc::new(principal));
        let body = Bytes::from(body.to_string());
        let peer = super::StdioPeer::default();
        let cx = &mut Context::from_waker(Waker::noop());
        let Handled::Now(Reply::Answer(answer)) =
            server.handle_stdio(cx, (&local, Seen::PIPE), &peer, &principal, &body)
        else {
            panic!("answered at once");
        };
        serde_json::from_slice::<Value>(&answer.whole()).expect("JSON")
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
        let (local, principal) = (at(START), Arc::new(principal));
        let body = Bytes::from(body.to_string());
        let peer = super::StdioPeer::default();
        let handled = std::future::poll_fn(|cx| {
            std::task::Poll::Ready(server.handle_stdio(
                cx,
                (&local, Seen::PIPE),
                &peer,
                &principal,
                &body,
            ))
        });
        let Reply::Answer(answer) = handled.await.reply().await else {
            panic!("one document");
        };
        serde_json::from_slice::<Value>(&answer.whole()).expect("JSON")
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
