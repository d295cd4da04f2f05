//! HTTP/2 with prior knowledge, on the same port.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use longshore::tool;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::{Conversation, End, Gate, Running, Serve, Stateless, becomes, request};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

fn echoing(message: &str) -> Stateless {
    Stateless::call("echo", json!({"message": message}))
}

/// A request as HTTP/2 has it: the text of HTTP/1.1 taken apart.
fn over_http2(text: &str) -> Request<Full<Bytes>> {
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let mut request = Request::post("http://localhost/mcp");
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ").expect("a field");
        match name {
            "host" => request = request.uri(format!("http://{value}/mcp")),
            name => request = request.header(name, value),
        }
    }
    request
        .body(Full::from(body.to_owned()))
        .expect("a request")
}

async fn connect(server: &Running) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(server.address())
        .await
        .expect("the server listens");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn send(sender: &mut SendRequest<Full<Bytes>>, text: &str) -> (StatusCode, Value) {
    let response = sender
        .send_request(over_http2(text))
        .await
        .expect("an answer");
    assert_eq!(response.headers().get("connection"), None);
    let status = response.status();
    let session = response.headers().get("mcp-session-id");
    let session = session.map(|id| id.to_str().expect("ASCII").to_owned());
    let body = Limited::new(response.into_body(), 1 << 20)
        .collect()
        .await
        .expect("a body");
    let answer = serde_json::from_slice(&body.to_bytes()).expect("JSON");
    let mut conversation = Conversation::default();
    conversation.sent_bytes(text.as_bytes());
    conversation.received(&answer, session.as_deref());
    (status, answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_eras_are_served() {
    let server = Serve::new().tool(echo).start();
    let mut sender = connect(&server).await;
    let (status, answer) = send(&mut sender, &echoing("hi").text()).await;
    assert_eq!(
        (status, &answer["result"]["content"][0]["text"]),
        (StatusCode::OK, &json!("hi"))
    );
    let session = server.session("2025-06-18");
    let (status, answer) = send(&mut sender, &session.text("ping", &json!({}))).await;
    assert_eq!((status, &answer["result"]), (StatusCode::OK, &json!({})));
    let (status, answer) = send(&mut sender, &echoing("hi").without("mcp-name").text()).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::BAD_REQUEST, &json!(-32020))
    );
    let foreign = echoing("hi").and("host", "evil.example.com").text();
    assert_eq!(send(&mut sender, &foreign).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_a_head_gets_no_body() {
    let server = Serve::new().tool(echo).start();
    let mut sender = connect(&server).await;
    for (path, status) in [
        ("health", StatusCode::OK),
        ("mcp", StatusCode::METHOD_NOT_ALLOWED),
    ] {
        let ask = Request::head(format!("http://localhost/{path}")).body(Full::default());
        let answer = sender.send_request(ask.expect("a request")).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), status);
        let length = answer.headers().get("content-length").cloned();
        let length: usize = length
            .and_then(|l| l.to_str().ok()?.parse().ok())
            .expect("a length");
        assert!(0 < length);
        let body = answer.into_body().collect().await.expect("an end");
        assert_eq!(body.to_bytes(), "");
    }
    send(&mut sender, &echoing("after").text()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_answered_side_by_side() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(echo).tool(tool).start();
    let mut sender = connect(&server).await;
    let mut slow = sender.clone();
    let call = Stateless::call("gate", json!({})).text();
    let slow = tokio::spawn(async move { send(&mut slow, &call).await });
    let all = (0..64).map(|n| {
        let mut sender = sender.clone();
        let text = echoing(&n.to_string()).text();
        tokio::spawn(async move { send(&mut sender, &text).await.1 })
    });
    for (n, answer) in all.collect::<Vec<_>>().into_iter().enumerate() {
        let answer = answer.await.expect("no panic");
        assert_eq!(answer["result"]["content"][0]["text"], n.to_string());
    }
    assert!(!slow.is_finished());
    gate.open();
    assert_eq!(slow.await.expect("no panic").0, StatusCode::OK);
    send(&mut sender, &echoing("after").text()).await;
}

/// Drops a request's stream, which resets it, and says how its call ended.
async fn reset(gate: &Gate, sender: &mut SendRequest<Full<Bytes>>, text: &str) {
    let mut sender = sender.clone();
    let request = over_http2(text);
    let waiting = tokio::spawn(async move { sender.send_request(request).await });
    tokio::task::block_in_place(|| gate.begun());
    waiting.abort();
    assert!(waiting.await.expect_err("was aborted").is_cancelled());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mh_16_a_reset_stream_ends_its_stateless_call_and_no_other() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(echo).tool(tool).start();
    let mut sender = connect(&server).await;
    let call = Stateless::call("gate", json!({})).text();
    reset(&gate, &mut sender, &call).await;
    assert_eq!(tokio::task::block_in_place(|| gate.end()), End::Dropped);
    assert_eq!(
        send(&mut sender, &echoing("hi").text()).await.0,
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_02_the_call_of_a_session_runs_on_when_its_stream_is_reset() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(echo).tool(tool).start();
    let mut sender = connect(&server).await;
    let text = server
        .session("2025-11-25")
        .text("tools/call", &json!({"name": "gate"}));
    reset(&gate, &mut sender, &text).await;
    assert_eq!(
        send(&mut sender, &echoing("hi").text()).await.0,
        StatusCode::OK
    );
    gate.assert_running();
    gate.open();
    assert_eq!(tokio::task::block_in_place(|| gate.end()), End::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_costs_its_stream_alone() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.body_bytes = 1000)
        .start();
    let mut sender = connect(&server).await;
    let (status, answer) = send(&mut sender, &echoing(&"x".repeat(1000)).text()).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!(413))
    );
    assert_eq!(
        send(&mut sender, &echoing("hi").text()).await.0,
        StatusCode::OK
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_costs_its_stream_alone() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.body_seconds = 1)
        .start();
    let stream = TcpStream::connect(server.address())
        .await
        .expect("the server listens");
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    let never = http_body_util::StreamBody::new(futures_util::stream::pending::<
        Result<http_body::Frame<Bytes>, std::io::Error>,
    >());
    let slow = Request::post("http://localhost/mcp")
        .header("content-type", "application/json")
        .body(never)
        .expect("a request");
    let response = sender.send_request(slow).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
    assert!(sender.is_ready());
}

/// Waits until the server has said that it takes no further streams, and the connection is over.
async fn until_closed(sender: &SendRequest<Full<Bytes>>) {
    let patience = Duration::from_secs(20);
    let closed = async {
        while !sender.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let closed = tokio::time::timeout(patience, closed).await;
    closed.expect("the connection ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_nothing_is_ended() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.idle_seconds = 1)
        .start();
    let mut sender = connect(&server).await;
    send(&mut sender, &echoing("hi").text()).await;
    until_closed(&sender).await;
}

#[test]
fn a_connection_has_an_age_and_is_told_goaway_then() {
    const GOAWAY: u8 = 7;
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.connection_seconds = 1)
        .start();
    let connection = server.connect();
    let mut stream = connection.stream();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("a socket");
    loop {
        let mut frame = [0; 9];
        stream.read_exact(&mut frame).expect("a frame");
        let [_, high, low, kind, ..] = frame;
        let mut payload = vec![0; usize::from(high) << 8 | usize::from(low)];
        stream.read_exact(&mut payload).expect("a payload");
        if kind == GOAWAY {
            // The last stream and the code: no error.
            assert_eq!(payload[4..8], [0; 4]);
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_closed_after_so_many_requests() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.connection_requests = 3)
        .start();
    let mut sender = connect(&server).await;
    for _ in 0..3 {
        let (status, _) = send(&mut sender, &echoing("hi").text()).await;
        assert_eq!(status, StatusCode::OK);
    }
    until_closed(&sender).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_a_client_makes_no_room_for_ends_the_connection() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.write_stall_seconds = 1)
        .start();
    let stream = TcpStream::connect(server.address())
        .await
        .expect("the server listens");
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1000);
    let handshake = builder.handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.expect("the server speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let call = echoing(&"x".repeat(1_000_000)).text();
    let response = sender.send_request(over_http2(&call)).await;
    // The head comes; the body is never read.
    let response = response.expect("a head");
    let ended = tokio::time::timeout(Duration::from_secs(20), connection).await;
    ended.expect("the connection ends").expect("no panic").ok();
    drop(response);
    echoing("still here").send(&server).result();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_lets_open_streams_finish() {
    let (gate, tool) = Gate::new();
    let mut server = Serve::new().tool(tool).start();
    let mut sender = connect(&server).await;
    let call = Stateless::call("gate", json!({})).text();
    let calling = tokio::spawn(async move { send(&mut sender, &call).await });
    gate.begun();
    server.begin_to_stop();
    becomes(|| std::net::TcpStream::connect(server.address()).is_err());
    gate.open();
    assert_eq!(calling.await.expect("no panic").0, StatusCode::OK);
}

#[test]
fn a_preface_in_two_parts_is_one() {
    let server = Serve::new().tool(echo).start();
    let connection = server.connect();
    let mut stream = connection.stream();
    stream.write_all(b"PRI * HT").expect("a socket");
    stream.flush().expect("a socket");
    stream
        .write_all(b"TP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .expect("a socket");
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).expect("a frame");
    assert_eq!(frame[3], 4, "the server's settings come first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preface_that_does_not_end_has_a_heads_time() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.header_seconds = 1)
        .start();
    let mut sender = connect(&server).await;
    for beginning in ["PRI * HTTP/2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n"] {
        server.connect().send(beginning).assert_ends();
    }
    // A connection with the whole preface may be idle for longer.
    let (status, _) = send(&mut sender, &echoing("hi").text()).await;
    assert_eq!(status, StatusCode::OK);
}

#[test]
fn a_preface_that_does_not_end_does_not_delay_a_stop() {
    let mut server = Serve::new()
        .tool(echo)
        .limits(|l| l.header_seconds = 600)
        .configured(|c| c.drain.grace_seconds = Some(600))
        .start();
    let mut connection = server.connect();
    connection.send("PRI * HTTP/2.0");
    let mut frame = [0; 9];
    let read = connection.stream().read_exact(&mut frame);
    read.expect("the server's settings");
    let mut shorter = server.connect();
    shorter.send("PRI * HT");
    server.begin_to_stop();
    connection.assert_ends();
    shorter.assert_ends();
}

#[test]
fn what_only_begins_like_the_preface_is_http_1() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    connection.send("P");
    let ping = request("ping", &json!({}));
    let text = crate::support::post(&[], &ping);
    connection
        .send(&text[1..])
        .receive()
        .error(400, -32600, "1");
    let odd = "PRI * HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(server.connect().send(odd).receive().status, 404);
}
