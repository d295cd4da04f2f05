//! Many requests at once on one connection of HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use longshore::tool;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::{End, Gate, Running, Serve, meta};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// Returns the message after a while.
#[tool]
async fn later(message: String, milliseconds: u64) -> String {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    message
}

/// Gives way to others a few times.
#[tool]
async fn gives_way(message: String) -> String {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    message
}

/// Returns many bytes.
#[tool]
async fn many(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// Breaks.
#[tool]
async fn breaks() -> String {
    panic!("as it should")
}

#[derive(Clone)]
struct Client(http2::SendRequest<Full<Bytes>>);

impl Client {
    async fn of(server: &Running) -> Self {
        let stream = TcpStream::connect(server.address())
            .await
            .expect("the server listens");
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.expect("the server speaks HTTP/2");
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let mut sender = self.0.clone();
        sender.ready().await.expect("the connection lasts");
        sender.send_request(request).await.expect("an answer")
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.send(request(tool, arguments, &[])).await;
        assert_eq!(answer.status(), StatusCode::OK);
        json_of(answer).await
    }
}

/// A call of 2026-07-28, in which fields are replaced, or left out where they have no value.
fn request(tool: &str, mut arguments: Value, other: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let params = json!({ "name": tool, "arguments": arguments.take(), "_meta": meta() });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut request = Request::post("http://localhost/mcp");
    let usual = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ];
    for (name, value) in usual {
        if other.iter().all(|(other, _)| *other != name) {
            request = request.header(name, value);
        }
    }
    for (name, value) in other.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    let body = Full::from(body.to_string());
    request.body(body).expect("a request")
}

async fn json_of(answer: Response<Incoming>) -> Value {
    let body = answer.into_body().collect().await.expect("all of it");
    serde_json::from_slice(&body.to_bytes()).expect("JSON")
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"))
}

fn serve() -> Running {
    Serve::new()
        .tool(echo)
        .tool(later)
        .tool(gives_way)
        .tool(many)
        .tool(breaks)
        .start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stream_has_its_own_answer_be_it_at_once_or_later() {
    let server = serve();
    let client = Client::of(&server).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..90_usize {
        let client = client.clone();
        calls.spawn(async move {
            let said = format!("{n}");
            let answer = match n % 5 {
                0 => {
                    client
                        .call("later", json!({"message": said, "milliseconds": n}))
                        .await
                }
                1 => client.call("gives_way", json!({"message": said})).await,
                2 => {
                    let answer = client.call("many", json!({"bytes": 1_000 * n})).await;
                    assert_eq!(text(&answer).len(), 1_000 * n);
                    return;
                }
                3 if n % 2 == 0 => {
                    let answer = client.call("breaks", json!({})).await;
                    assert_eq!(answer["error"]["code"], -32603);
                    return;
                }
                _ => client.call("echo", json!({"message": said})).await,
            };
            assert_eq!(text(&answer), said);
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended.expect("the right answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_waits_keeps_no_other_waiting_and_can_be_taken_back() {
    let (gate, gated) = Gate::new();
    let server = Serve::new().tool(echo).tool(gated).start();
    let client = Client::of(&server).await;
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.call("gate", json!({})).await })
    };
    gate.begun();
    for n in 0..10 {
        let said = n.to_string();
        let answer = client.call("echo", json!({ "message": said })).await;
        assert_eq!(text(&answer), said);
        assert!(!waiting.is_finished());
    }
    gate.assert_running();
    waiting.abort();
    assert_eq!(gate.end(), End::Dropped);
    let answer = client.call("echo", json!({"message": "still there"})).await;
    assert_eq!(text(&answer), "still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stream_is_judged_by_its_own_head_whatever_came_before_it() {
    let server = serve();
    let client = Client::of(&server).await;
    let heads: [(&[(&str, &str)], u16); 10] = [
        (&[], 200),
        (&[("user-agent", "one")], 200),
        (&[("user-agent", "two"), ("user-agent", "one")], 200),
        (&[("content-type", "text/plain")], 415),
        (&[("content-type", "")], 415),
        (&[("accept", "image/png")], 406),
        (&[("origin", "https://evil.example.com")], 403),
        (&[("mcp-name", "other")], 400),
        (&[("mcp-protocol-version", "1999-01-01")], 400),
        (&[("x_underscore", "y")], 400),
    ];
    for (first, status) in &heads {
        for (second, other) in &heads {
            // Repeated often enough that the cache is used.
            for (fields, expected) in [(first, status), (first, status), (first, status)]
                .into_iter()
                .chain([(second, other), (second, other), (first, status)])
            {
                let sent = request("echo", json!({"message": "hi"}), fields);
                let answer = client.send(sent).await;
                assert_eq!(answer.status(), *expected, "{fields:?} behind {first:?}");
                let answer = json_of(answer).await;
                assert_eq!(answer.get("result").is_some(), *expected == 200, "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn large_responses_on_streams_without_a_window_are_bounded() {
    const BYTES: usize = 8 * 1024 * 1024;
    let server = Serve::new()
        .tool(echo)
        .tool(many)
        .configured(|c| c.limits.response_bytes = Some(40 * 1024 * 1024))
        .start();
    let client = Client::of(&server).await;
    let mut unread = Vec::new();
    let refused = loop {
        let answer = client
            .send(request("many", json!({ "bytes": BYTES }), &[]))
            .await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        unread.push(answer);
    };
    assert_eq!(unread.len(), 2);
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    let error = json_of(refused).await;
    assert_eq!(error["error"]["data"]["setting"], "limits.response_bytes");
    // A reset stream returns its share.
    drop(unread.pop());
    let mut tries = 0;
    while !client
        .send(request("many", json!({ "bytes": BYTES }), &[]))
        .await
        .status()
        .is_success()
    {
        tries += 1;
        assert!(tries < 1000);
        tokio::task::yield_now().await;
    }
    let echoed = client.call("echo", json!({ "message": "hi" })).await;
    assert_eq!(echoed["result"]["content"][0]["text"], "hi");
}

#[tokio::test]
async fn trailers_are_bounded() {
    let server = serve();
    let stream = TcpStream::connect(server.address())
        .await
        .expect("the server listens");
    let (sender, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    for (fields, expected) in [(10, StatusCode::OK), (300, StatusCode::BAD_REQUEST)] {
        let mut sender = sender.clone().ready().await.expect("the connection lasts");
        let (parts, body) = request("echo", json!({"message": "hi"}), &[]).into_parts();
        let body = body.collect().await.expect("all of it").to_bytes();
        let sent = Request::from_parts(parts, ());
        let (response, mut upload) = sender.send_request(sent, false).expect("a stream");
        upload.send_data(body, false).expect("a body");
        let mut trailers = HeaderMap::new();
        for n in 0..fields {
            let name = HeaderName::try_from(format!("x-{n}")).expect("a name");
            let value = HeaderValue::try_from("x".repeat(200)).expect("a value");
            trailers.insert(name, value);
        }
        upload.send_trailers(trailers).expect("trailers");
        let response = response.await.expect("a response");
        assert_eq!(response.status(), expected, "{fields} fields");
    }
}
