//! The handshake, and what its session is good for.

use longshore::server::StaleSessions;
use serde_json::{Value, json};

use super::{INVALID_PARAMS, WITH_SESSIONS};
use crate::support::{Connection, Gate, Response, Serve, Session, request};

#[test]
fn ver_01_a_revision_that_is_served_is_confirmed_and_the_newest_offered_instead_of_others() {
    let server = Serve::demo();
    for revision in WITH_SESSIONS {
        assert_eq!(
            server.session(revision).initialized["protocolVersion"],
            revision
        );
    }
    for unknown in [
        "2026-07-28",
        "1900-01-01",
        "2025-06-19",
        "",
        "draft",
        "9999-12-31",
    ] {
        assert_eq!(
            server.session(unknown).initialized["protocolVersion"],
            "2025-11-25"
        );
    }
}

#[test]
fn disc_03_initialize_says_who_the_server_is_and_what_it_can() {
    // TOOL-01, LOG-01
    let server = Serve::new()
        .app(|app| app.instructions("Count \"twice\"."))
        .start();
    let session = server.session("2025-06-18");
    assert_eq!(
        session.initialized.to_string(),
        r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":{"name":"test","version":"1"},"instructions":"Count \"twice\"."}"#
    );
}

#[test]
fn initialize_needs_a_version_and_takes_whatever_else_clients_say() {
    let server = Serve::demo();
    for params in [
        json!({}),
        json!({"protocolVersion": 1}),
        json!({"capabilities": {}}),
    ] {
        server
            .post(&[], &request("initialize", &params))
            .error(200, INVALID_PARAMS, "1");
    }
    for params in [
        json!({"protocolVersion": "2025-06-18"}),
        json!({"protocolVersion": "2025-06-18", "capabilities": {"roots": {"listChanged": true}, "x": [1]}}),
        json!({"protocolVersion": "2025-06-18", "clientInfo": {"name": "a", "version": "1", "title": "A", "icons": [{}]}}),
        json!({"protocolVersion": "2025-06-18", "clientInfo": {"name": "\u{1f600}".repeat(500), "version": "v".repeat(9999)}}),
    ] {
        let response = server.post(&[], &request("initialize", &params));
        assert_eq!(response.result()["protocolVersion"], "2025-06-18");
        assert!(
            response
                .header("mcp-session-id")
                .is_some_and(|id| id.len() <= 512)
        );
    }
}

#[test]
fn lh_06_session_ids_are_visible_ascii_and_never_the_same() {
    let server = Serve::demo();
    let (one, other) = (server.session("2025-06-18"), server.session("2025-06-18"));
    assert_ne!(one.id, other.id);
    for id in [&one.id, &other.id] {
        assert!(id.bytes().all(|b| (0x21..=0x7e).contains(&b)), "{id}");
        assert!((40..=512).contains(&id.len()), "{id}");
    }
}

#[test]
fn lh_07_requests_without_a_session_are_400() {
    let server = Serve::demo();
    for method in ["ping", "tools/list", "tools/call", "anything"] {
        let message = server
            .post(&[], &request(method, &json!({})))
            .error(400, -32600, "1");
        assert!(
            message.starts_with("Mcp-Session-Id is missing"),
            "{message}"
        );
    }
}

#[test]
fn lh_08_ids_that_are_not_ours_are_404() {
    let server = Serve::demo();
    let session = server.session("2025-06-18");
    let mut flipped = session.id.clone().into_bytes();
    let last = flipped.len() - 1;
    let middle = last / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).expect("ASCII");
    let long = "x".repeat(10_000);
    for id in [
        "x",
        "",
        "00000000-0000-0000-0000-000000000000",
        &flipped,
        &session.id[..last],
        &format!("{}A", session.id),
        &long,
    ] {
        let headers = [("mcp-session-id", id)];
        let ping = request("ping", &json!({}));
        let message = server.post(&headers, &ping).error(404, 404, "");
        assert!(message.contains("send initialize again"), "{message}");
    }
    // Blanks around it are no part of it.
    let padded = format!(" {} ", session.id);
    let headers = [("mcp-session-id", &*padded)];
    server.post(&headers, &request("ping", &json!({}))).result();
}

#[test]
fn lh_08_another_server_accepts_the_id_if_it_has_the_key_and_only_then() {
    let one = Serve::new().shared_key().start();
    let twin = Serve::new().shared_key().start();
    let stranger = Serve::new().start();
    let session = one.session("2025-06-18");
    let ping = request("ping", &json!({}));
    assert_eq!(twin.post(&session.headers(), &ping).result(), json!({}));
    stranger.post(&session.headers(), &ping).error(404, 404, "");
    // As soon as one of them holds the key that sealed it, in any place.
    let rotated = Serve::new()
        .shared_key()
        .configured(|c| {
            let new = "a newer secret, which is the one to seal with from now on".to_owned();
            c.seal.keys.insert(0, new.into());
        })
        .start();
    assert_eq!(rotated.post(&session.headers(), &ping).result(), json!({}));
    let later = rotated.session("2025-06-18");
    twin.post(&later.headers(), &ping).error(404, 404, "");
}

fn delete(mut connection: Connection, headers: &[(&str, &str)]) -> Response {
    let mut text = "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\n".to_owned();
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    connection.send(text + "\r\n").receive()
}

#[test]
fn lh_09_delete_ends_a_session_and_no_other() {
    let server = Serve::demo();
    for revision in WITH_SESSIONS {
        let (session, other) = (server.session(revision), server.session(revision));
        let ended = delete(server.connect(), &session.headers());
        assert_eq!((ended.status, &*ended.body), (200, ""));
        session.request("ping", &json!({})).error(404, 404, "");
        session
            .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .error(404, 404, "");
        delete(server.connect(), &session.headers()).error(404, 404, "");
        assert_eq!(other.request("ping", &json!({})).result(), json!({}));
    }
}

#[test]
fn lh_09_delete_needs_a_session() {
    let server = Serve::demo();
    delete(server.connect(), &[]).error(400, -32600, "");
    delete(server.connect(), &[("mcp-session-id", "x")]).error(404, 404, "");
}

#[test]
fn mh_01_the_stateless_era_has_no_delete() {
    let server = Serve::demo();
    let session = server.session("2025-11-25");
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-session-id", &session.id),
    ];
    let response = delete(server.connect(), &headers);
    response.error(405, 405, "");
    assert_eq!(response.header("allow"), Some("POST"));
    session.request("ping", &json!({})).result();
}

#[test]
fn lh_11_the_session_says_which_revision_counts() {
    let server = Serve::demo();
    let arguments = json!({"operation": "add", "a": 1, "b": 2});
    let structured = |session: &Session<'_>, version: Option<&str>| {
        let mut headers = session.headers().to_vec();
        headers.extend(version.map(|v| ("mcp-protocol-version", v)));
        let body = request(
            "tools/call",
            &json!({"name": "calculate", "arguments": arguments}),
        );
        server.post(&headers, &body).result()["structuredContent"].clone()
    };
    let (old, new) = (server.session("2025-03-26"), server.session("2025-06-18"));
    for version in [None, Some("2025-03-26"), Some("2025-06-18")] {
        assert_eq!(structured(&old, version), Value::Null);
        assert_eq!(structured(&new, version), json!({"result": 3.0}));
    }
}

#[test]
fn lh_17_one_session_has_several_calls_at_once() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(tool).start();
    let session = server.session("2025-11-25");
    let call = session.text("tools/call", &json!({"name": "gate"}));
    let mut waiting = [server.connect(), server.connect(), server.connect()];
    for connection in &mut waiting {
        connection.send(&call);
        gate.begun();
    }
    session.request("ping", &json!({})).result();
    for connection in &mut waiting {
        gate.open();
        connection.receive().result();
    }
}

#[test]
fn ping_01_is_answered_with_nothing() {
    let server = Serve::demo();
    for revision in WITH_SESSIONS {
        let session = server.session(revision);
        for body in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":"a"}}}"#,
        ] {
            assert_eq!(
                session.post(body).body,
                r#"{"jsonrpc":"2.0","id":1,"result":{}}"#
            );
        }
    }
}

/// Requests with a session id that this server has never given out.
fn stray(
    server: &crate::support::Running,
    id: &str,
    version: Option<&str>,
    body: &str,
) -> Response {
    let mut headers = vec![("mcp-session-id", id)];
    headers.extend(version.map(|version| ("mcp-protocol-version", version)));
    server.post(&headers, body)
}

#[test]
fn lh_08_a_session_that_is_not_known_is_404_unless_a_setting_says_otherwise() {
    let another = Serve::demo();
    let id = another.session("2025-06-18").id.clone();
    let list = request("tools/list", &json!({}));
    stray(&Serve::demo(), &id, None, &list).error(404, 404, "");
    let accepting = Serve::demo_with(|c| c.server.stale_sessions = StaleSessions::Accept);
    // The header determines the version; without one it is 2025-03-26, which has arrays.
    let call = request(
        "tools/call",
        &json!({"name": "echo", "arguments": {"message": 7}}),
    );
    let old = stray(&accepting, &id, Some("2025-06-18"), &call);
    assert_eq!(old.json()["error"]["code"], INVALID_PARAMS);
    let new = stray(&accepting, &id, Some("2025-11-25"), &call);
    assert_eq!(new.result()["isError"], true);
    let batch = stray(&accepting, &id, None, &format!("[{list}]"));
    assert_eq!(batch.status, 200, "{batch:?}");
    // Without an ID there is no session, and an invalid ID is rejected.
    accepting.post(&[], &list).error(400, -32600, "1");
    for none in ["a b", &"x".repeat(513)] {
        stray(&accepting, none, None, &list).error(404, 404, "");
    }
}

#[test]
fn lh_09_a_session_that_was_ended_stays_ended_also_where_strays_are_accepted() {
    let accepting = Serve::demo_with(|c| c.server.stale_sessions = StaleSessions::Accept);
    let own = accepting.session("2025-06-18").id.clone();
    let list = request("tools/list", &json!({}));
    for id in [&*own, "somebody-elses-server-gave-this"] {
        assert_eq!(stray(&accepting, id, None, &list).status, 200);
        let delete =
            format!("DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {id}\r\n\r\n");
        assert_eq!(accepting.connect().send(delete).receive().status, 200);
        stray(&accepting, id, None, &list).error(404, 404, "");
    }
}
