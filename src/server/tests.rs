//! What needs a clock of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::{Handled, HttpHead, Local, McpHeaders, Refusal, Reply, Server, ServerConfig};
use crate::auth::Principal;
use crate::catalog::Catalog;
use crate::seal::KeyRing;

const START: u64 = 1_700_000_000;
const DAY: u64 = 24 * 60 * 60;

fn server() -> Arc<Server> {
    let config = ServerConfig::default();
    Arc::new(Server::new(
        config,
        KeyRing::random(),
        Catalog::default(),
        HashMap::new(),
    ))
}

fn at(now: u64) -> Local {
    let local = Local::new();
    local.set_now(now);
    local
}

/// One POST, answered at once.
fn post(server: &Arc<Server>, local: &Local, session: Option<&str>, body: &Value) -> Reply {
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
    let principal = Arc::new(Principal::anonymous());
    let mut head = HttpHead {
        principal: &principal,
        headers: &mut headers,
        mcp: &mcp,
        takes_streams: true,
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
        Reply::Answer(answer) => answer.refusal,
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
