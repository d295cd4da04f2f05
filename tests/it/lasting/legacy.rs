//! The transport of 2024-11-05: a stream, and messages that are posted beside it.

use longshore::net::TrustedProxies;
use serde_json::{Value, json};

use super::{announcing, changed, updated};
use crate::support::{Connection, Response, Running, Serve, becomes, request};

/// A client of that transport.
struct Old<'s> {
    server: &'s Running,
    stream: Connection,
    path: String,
}

impl<'s> Old<'s> {
    fn connect(server: &'s Running, at: &str) -> Self {
        let mut stream = server.connect();
        stream.send(format!(
            "GET {at} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        ));
        let head = stream.receive_head();
        assert_eq!(head.status, 200);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        let first = stream.any_event().expect("an event");
        assert_eq!(first.event.as_deref(), Some("endpoint"), "SSE24-01");
        Self {
            server,
            stream,
            path: first.data.expect("a path"),
        }
    }

    fn begin(server: &'s Running) -> Self {
        let mut old = Self::connect(server, "/sse");
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
        old.post(&request("initialize", &params)).accepted();
        let message = old.message();
        assert_eq!(message["result"]["protocolVersion"], "2024-11-05");
        old
    }

    fn post(&self, body: &str) -> Response {
        post(self.server, &self.path, body)
    }

    fn message(&mut self) -> Value {
        let event = self.stream.any_event().expect("an event");
        assert_eq!(event.event.as_deref(), Some("message"), "SSE24-02");
        event.message.expect("JSON")
    }
}

fn post(server: &Running, path: &str, body: &str) -> Response {
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    server.connect().send(text).receive()
}

fn serve() -> super::Announcing {
    announcing(|serve| serve.configured(|c| c.http.legacy_sse = true))
}

#[test]
fn a_client_that_has_reconnected_goes_on_without_initialize() {
    let server = serve().server;
    let mut old = Old::connect(&server, "/sse");
    old.post(&request("tools/list", &json!({}))).accepted();
    assert!(old.message()["result"]["tools"].is_array());
    old.post(&request("ping", &json!({}))).accepted();
    assert_eq!(old.message()["result"], json!({}));
}

#[test]
fn sse24_01_the_path_for_messages_is_below_that_of_the_public_url() {
    let server = Serve::new()
        .configured(|c| {
            c.http.legacy_sse = true;
            c.http.public_url = Some("http://localhost/base".to_owned());
        })
        .start();
    for at in ["/sse", "/base/sse"] {
        let mut old = Old::connect(&server, at);
        assert!(
            old.path.starts_with("/base/messages?sessionId="),
            "{}",
            old.path
        );
        old.post(&request("ping", &json!({}))).accepted();
        assert_eq!(old.message()["result"], json!({}));
    }
}

#[test]
fn sse24_01_the_path_for_messages_is_below_the_path_that_a_trusted_proxy_has_removed() {
    for (is_trusted, path) in [(true, "/tools/messages?"), (false, "/messages?")] {
        let server = Serve::new()
            .configured(|c| {
                c.http.legacy_sse = true;
                let proxies = ["127.0.0.0/8".parse().expect("a network")];
                let trusted = proxies.into_iter().filter(|_| is_trusted);
                c.http.trusted_proxies = TrustedProxies::from_iter(trusted);
            })
            .start();
        let mut stream = server.connect();
        stream.send(
            "GET /sse HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nx-forwarded-prefix: /tools\r\n\r\n",
        );
        assert_eq!(stream.receive_head().status, 200);
        let first = stream.any_event().expect("an event");
        let named = first.data.expect("a path");
        assert!(named.starts_with(path), "{named}");
    }
}

#[test]
fn sse24_01_to_04_what_is_posted_is_answered_on_the_stream() {
    let it = serve();
    let mut old = Old::begin(&it.server);
    assert!(old.path.starts_with("/messages?sessionId="), "{}", old.path);
    old.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .accepted();
    old.post(&request("tools/list", &json!({}))).accepted();
    assert!(old.message()["result"]["tools"].is_array());
    // Notifications of a call precede its response.
    let params = json!({"name": "gate", "_meta": {"progressToken": 7}});
    old.post(&request("tools/call", &params)).accepted();
    assert_eq!(old.message()["method"], "notifications/progress");
    it.gate.open();
    assert_eq!(old.message()["result"]["content"][0]["text"], "through");
    // Change notifications are sent too.
    old.post(&request(
        "resources/subscribe",
        &json!({"uri": "test://watched"}),
    ))
    .accepted();
    assert_eq!(old.message()["result"], json!({}));
    it.announcer.resource_changed("test://watched");
    assert_eq!(old.message(), updated("test://watched"));
    it.announcer.tools_changed();
    assert_eq!(old.message(), changed("tools"));
}

#[test]
fn sse24_04_what_is_no_message_or_has_no_session_is_refused_at_once() {
    let it = serve();
    let old = Old::begin(&it.server);
    old.post("{").error(400, -32700, "");
    old.post("[]").error(400, -32600, "");
    let ping = request("ping", &json!({}));
    post(&it.server, "/messages", &ping).error(400, 400, "");
    post(&it.server, "/messages?sessionId=0123", &ping).error(404, 404, "");
    let path = old.path.clone();
    drop(old);
    // The session ends with its stream.
    becomes(|| post(&it.server, &path, &ping).status == 404);
}

fn replicas(share: bool) -> [super::Announcing; 2] {
    let state: std::sync::Arc<dyn longshore::state::State> =
        std::sync::Arc::new(longshore::state::Memory::default());
    [(); 2].map(|()| {
        let state = std::sync::Arc::clone(&state);
        announcing(|serve| {
            let serve = serve.shared_key().configured(|c| c.http.legacy_sse = true);
            match share {
                true => serve.app(|app| app.store(state)),
                false => serve,
            }
        })
    })
}

#[test]
fn what_is_posted_to_another_replica_is_answered_on_the_stream_all_the_same() {
    let [one, other] = replicas(true);
    let mut old = Old::begin(&one.server);
    let there = |body: &str| post(&other.server, &old.path, body);
    there(&request("ping", &json!({}))).accepted();
    there(&request("tools/list", &json!({}))).accepted();
    there("{").error(400, -32700, "");
    // A forged ID is unknown on every replica.
    let forged = old.path.replace("sessionId=", "sessionId=A");
    let ping = request("ping", &json!({}));
    post(&other.server, &forged, &ping).error(404, 404, "");
    let mut answers = [old.message(), old.message()];
    answers.sort_by_key(|answer| answer["result"]["tools"].is_array());
    assert_eq!(answers[0]["result"], json!({}));
    assert!(answers[1]["result"]["tools"].is_array());
}

#[test]
fn replicas_that_share_no_state_say_that_they_cannot_pass_anything_on() {
    let [one, other] = replicas(false);
    let old = Old::begin(&one.server);
    let ping = request("ping", &json!({}));
    let message = post(&other.server, &old.path, &ping).error(404, 404, "");
    assert!(message.contains("share no state"), "{message}");
}

#[test]
fn requests_of_the_stateless_era_are_told_where_they_belong() {
    let it = serve();
    let mut old = Old::begin(&it.server);
    let params = json!({"_meta": crate::support::meta()});
    old.post(&request("server/discover", &params)).accepted();
    let message = old.message();
    assert_eq!(message["error"]["code"], -32022);
    let supported = message["error"]["data"]["supported"]
        .as_array()
        .expect("a list");
    assert!(supported.contains(&json!("2024-11-05")) && !supported.contains(&json!("2026-07-28")));
}

#[test]
fn a_call_ends_with_the_stream_that_would_have_its_answer() {
    let it = serve();
    let old = Old::begin(&it.server);
    let params = json!({"name": "gate"});
    old.post(&request("tools/call", &params)).accepted();
    it.gate.begun();
    drop(old);
    assert_eq!(it.gate.end(), crate::support::End::Dropped);
}

#[test]
fn a_server_that_stops_ends_its_streams() {
    let mut it = serve();
    let mut stream = Old::begin(&it.server).into_stream();
    it.server.begin_to_stop();
    assert_eq!(stream.any_event(), None);
}

#[test]
fn http_01_pages_of_other_origins_have_no_part_in_it() {
    let it = serve();
    for text in [
        "GET /sse HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\n\r\n",
        "POST /messages?sessionId=1 HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n",
    ] {
        assert_eq!(it.server.connect().send(text).receive().status, 403);
    }
}

#[test]
fn nobody_has_it_who_did_not_ask_for_it() {
    let server = Serve::demo();
    for text in [
        "GET /sse HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /mcp/sse HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "POST /messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
        "POST /mcp/respond HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
    ] {
        assert_eq!(server.connect().send(text).receive().status, 404, "{text}");
    }
    let it = serve();
    Old::connect(&it.server, "/mcp/sse");
    let put = "PUT /sse HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(it.server.connect().send(put).receive().status, 405);
}

#[test]
fn answers_can_be_posted_under_an_older_name() {
    let server = Serve::demo_with(|c| c.http.respond_alias = true);
    let session = server.session("2025-06-18");
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let respond = |headers: &str| {
        let text = format!(
            "POST /mcp/respond HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        server.connect().send(text).receive()
    };
    respond(&format!("mcp-session-id: {}\r\n", session.id)).accepted();
    respond("").error(400, -32600, "");
}

impl Old<'_> {
    fn into_stream(self) -> Connection {
        self.stream
    }
}
