//! What needs a clock, a mount or a caller of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};

use super::{
    Admission, Handled, HttpHead, Local, McpHeaders, Refusal, Reply, Server, ServerConfig, Shared,
};
use crate::auth::Principal;
use crate::catalog::{CallContext, Catalog, Definition, IntoTool as _, ToolError, tool_fn};
use crate::limit::{LimitConfig, Limits};
use crate::seal::{KeyRing, SealConfig};
use crate::telemetry::{Metrics, Telemetry, Wire};

const START: u64 = 1_700_000_000;
const DAY: u64 = 24 * 60 * 60;

fn server() -> Arc<Server> {
    Arc::new(server_with(KeyRing::random(), &[]))
}

/// A server of tools of these names, one to a page.
fn server_with(keys: KeyRing, names: &[&str]) -> Server {
    let config = ServerConfig {
        page_size: 1,
        ..ServerConfig::default()
    };
    let tools = names.iter().map(|name| {
        let nothing = |_, _: Map<String, Value>| async { Ok::<_, ToolError>(String::new()) };
        tool_fn(Definition::new(*name), nothing).into_tool()
    });
    let catalog = Catalog::new(tools).expect("good tools");
    Server::new(
        config,
        keys,
        Shared::default(),
        catalog,
        HashMap::new(),
        Telemetry::default(),
        Admission::default(),
        Limits::new(&LimitConfig::default(), &Metrics::default()),
    )
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
    assert_eq!(one.rest.as_ptr(), other.rest.as_ptr());
}

/// The whole text of an answer.
fn text(reply: Reply) -> Value {
    match reply {
        Reply::Answer(answer) => {
            serde_json::from_slice(&[answer.head, answer.rest].concat()).expect("JSON")
        }
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
            Reply::Answer(answer) => answer.rest,
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
    let config = ServerConfig::default();
    Arc::new(Server::new(
        config,
        KeyRing::random(),
        Shared::default(),
        catalog,
        HashMap::new(),
        Telemetry::default(),
        Admission::default(),
        Limits::new(&LimitConfig::default(), &Metrics::default()),
    ))
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
            server.handle_stdio(cx, &local, &peer, &principal, &body)
        else {
            panic!("answered at once");
        };
        serde_json::from_slice::<Value>(&[answer.head, answer.rest].concat()).expect("JSON")
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
    let counts = server.question_counts();
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
    let server = Arc::new(Server::new(
        ServerConfig::default(),
        KeyRing::random(),
        Shared::default(),
        Catalog::new([tool.into_tool()]).expect("good tools"),
        HashMap::new(),
        Telemetry::default(),
        Admission::default(),
        Limits::new(&LimitConfig::default(), &Metrics::default()),
    ));
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
            std::task::Poll::Ready(server.handle_stdio(cx, &local, &peer, &principal, &body))
        });
        let Reply::Answer(answer) = handled.await.reply().await else {
            panic!("one document");
        };
        serde_json::from_slice::<Value>(&[answer.head, answer.rest].concat()).expect("JSON")
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
