//! Answers that come as event streams, because their calls had something to say before.

use serde_json::{Value, json};

use crate::support::{Connection, End, Gate, Running, Serve, Stateless, request};

fn serve() -> (Gate, Running) {
    let (gate, tool) = Gate::new();
    (gate, Serve::new().tool(tool).start())
}

/// A call that wants to be told of its progress.
fn curious() -> Stateless {
    Stateless::call("gate", json!({}))
        .params(|params| params["_meta"]["progressToken"] = "p".into())
}

/// Reads the head of an event stream and its first message.
fn begins(connection: &mut Connection) -> Value {
    let head = connection.receive_head();
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    connection.event().expect("a message")
}

#[test]
fn mh_14_a_stream_has_what_its_request_is_told_then_the_answer_then_nothing() {
    let (gate, server) = serve();
    let mut connection = server.connect();
    connection.send(curious().text());
    let told = begins(&mut connection);
    assert_eq!(told["method"], "notifications/progress");
    assert_eq!(told["params"]["progressToken"], "p");
    assert!(told.get("id").is_none(), "MH-15: nothing is asked");
    gate.open();
    let answer = connection.event().expect("an answer");
    assert_eq!(
        (&answer["id"], &answer["result"]["isError"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(connection.event(), None);
    // The connection stays open.
    gate.open();
    let quiet = Stateless::call("gate", json!({})).send_on(&mut connection);
    assert_eq!(quiet.result()["isError"], false);
}

#[test]
fn mh_17_nobody_in_between_keeps_a_stream_back() {
    let (gate, server) = serve();
    let mut connection = server.connect();
    connection.send(curious().text());
    let head = connection.receive_head();
    assert_eq!(head.header("cache-control"), Some("no-cache"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    gate.open();
}

#[test]
fn lh_01_a_session_has_streams_too() {
    let (gate, server) = serve();
    let session = server.session("2025-06-18");
    let mut connection = server.connect();
    let params = json!({"name": "gate", "_meta": {"progressToken": 7}});
    connection.send(session.text("tools/call", &params));
    assert_eq!(begins(&mut connection)["params"]["progressToken"], 7);
    gate.open();
    assert_eq!(connection.event().expect("an answer")["id"], 1);
    assert_eq!(connection.event(), None);
}

#[test]
fn http_06_who_takes_no_stream_gets_none() {
    let (gate, server) = serve();
    gate.open();
    let answer = curious().and("accept", "application/json").send(&server);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.result()["isError"], false);
}

#[test]
fn mh_18_what_has_a_status_of_its_own_never_becomes_a_stream() {
    let (_gate, server) = serve();
    curious()
        .without("mcp-name")
        .send(&server)
        .error(400, -32020, "1");
    curious()
        .with("mcp-method", "x")
        .send(&server)
        .error(400, -32020, "1");
    let unknown = curious()
        .params(|p| p["name"] = "gat".into())
        .with("mcp-name", "gat");
    unknown.send(&server).error(200, -32602, "1");
}

#[test]
fn mh_16_closing_a_stream_ends_its_call() {
    let (gate, server) = serve();
    let mut connection = server.connect();
    connection.send(curious().text());
    begins(&mut connection);
    drop(connection);
    assert_eq!(gate.end(), End::Dropped);
}

#[test]
fn lh_02_closing_a_stream_of_a_session_ends_nothing() {
    let (gate, server) = serve();
    let session = server.session("2025-11-25");
    let mut connection = server.connect();
    let params = json!({"name": "gate", "_meta": {"progressToken": 7}});
    connection.send(session.text("tools/call", &params));
    begins(&mut connection);
    drop(connection);
    session.request("ping", &json!({})).result();
    gate.assert_running();
    gate.open();
    assert_eq!(gate.end(), End::Done);
}

#[test]
fn can_01_a_call_that_is_cancelled_gets_no_answer() {
    let (gate, server) = serve();
    let session = server.session("2025-06-18");
    let mut connection = server.connect();
    let params = json!({"name": "gate", "_meta": {"progressToken": 7}});
    connection.send(session.text("tools/call", &params));
    begins(&mut connection);
    let cancel = |id: Value| {
        let params = json!({"requestId": id, "reason": "no longer needed"});
        let body = request("notifications/cancelled", &params).replace("\"id\":1,", "");
        session.post(&body).accepted();
    };
    // IDs of other requests and sessions, and invalid IDs, have no effect.
    for id in [json!(2), json!("1"), json!(null), json!({})] {
        cancel(id);
    }
    let other = server.session("2025-06-18");
    other
        .post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .accepted();
    session.request("ping", &json!({})).result();
    gate.assert_running();
    cancel(json!(1));
    assert_eq!(gate.end(), End::Dropped);
    assert_eq!(connection.event(), None);
    // Too late, and harmless.
    cancel(json!(1));
}
