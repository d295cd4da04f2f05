//! Event streams of upstream servers that end in the middle of an event.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longshore::client::Lifecycle;
use longshore::source::UpstreamConfig;
use serde_json::{Value, json};

use super::{behind, result};
use crate::support::incoming::read;
use crate::support::{Asked, Site, Told, becomes};

/// A server whose responses to calls end with `cut`. It sends the rest to a client that resumes after the first event.
fn cutting(cut: &'static str) -> Site {
    let response = Mutex::new(Value::Null);
    Site::start(move |_, asked| {
        let mut response = response.lock().expect("not poisoned");
        if asked.method == "GET" {
            return match asked.headers.get("last-event-id").map(String::as_str) {
                None => Told::json(405, Value::Null),
                Some("1") => Told::stream(&format!("id: 2\ndata: {response}\n\n")),
                Some(_) => Told::stream(""),
            };
        }
        respond(asked, cut, &mut response)
    })
}

fn respond(asked: &Asked, cut: &str, response: &mut Value) -> Told {
    let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => Told::json(
            200,
            answer(json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "0"},
            })),
        )
        .header("mcp-session-id", "s"),
        "tools/list" => Told::json(
            200,
            answer(json!({"tools": [{"name": "try", "inputSchema": {"type": "object"}}]})),
        ),
        "tools/call" => {
            *response = answer(json!({"content": [{"type": "text", "text": "whole"}]}));
            Told::stream(&format!("id: 1\nretry: 1\ndata: \n\n{cut}"))
        }
        _ => Told::json(202, Value::Null),
    }
}

#[test]
fn a_response_that_is_cut_inside_an_event_is_resumed_after_the_last_whole_one() {
    for cut in [
        "",
        "id: 2",
        "event: message\nid: 2\n",
        "event: message\nid: 2\ndata: {\"jsonrpc\":",
        "id: 2\ndata: {}\n",
        "data: {\"jsonrpc\":",
    ] {
        let site = cutting(cut);
        let config = json!({"url": format!("{}/mcp", site.url)});
        let upstream = UpstreamConfig {
            protocol: Lifecycle::Legacy,
            ..serde_json::from_value(config).expect("valid")
        };
        let server = behind([("bad", upstream)]).start();
        let call = json!({"name": "bad__try", "arguments": {}});
        let called = result(&server, "2025-11-25", "tools/call", call);
        assert_eq!(called["content"][0]["text"], "whole", "{cut:?}: {called}");
    }
}

/// The lists are requested again after each such stream.
#[test]
fn streams_without_event_ids_that_end_immediately_are_opened_less_and_less_often() {
    let opened = Arc::<Mutex<Vec<Instant>>>::default();
    let times = Arc::clone(&opened);
    let site = Site::start(move |_, asked| {
        if asked.method == "GET" {
            times.lock().expect("not poisoned").push(Instant::now());
            return Told::stream("retry: 1\n\n");
        }
        respond(asked, "", &mut Value::Null)
    });
    let config = json!({"url": format!("{}/mcp", site.url), "protocol": "legacy"});
    let config = serde_json::from_value(config).expect("valid");
    let server = behind([("ends", config)]).start();
    becomes(|| 4 < opened.lock().expect("not poisoned").len());
    drop(server);
    let opened = opened.lock().expect("not poisoned");
    // 100 ms, doubled each time.
    assert!(Duration::from_secs(3) <= opened[4] - opened[0]);
}

/// A server that is gone as soon as it has begun to respond to a call.
fn vanishing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().expect("a connection");
            let Some(asked) = read(&mut stream, &mut Vec::new()) else {
                continue;
            };
            let message: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
            let result = match message["method"].as_str().unwrap_or_default() {
                "initialize" => json!({
                    "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "x", "version": "0"},
                }),
                "tools/list" => {
                    json!({"tools": [{"name": "try", "inputSchema": {"type": "object"}}]})
                }
                "tools/call" => {
                    drop(listener);
                    let _ = stream.write_all(
                        b"HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                          id: 1\nretry: 1\ndata: \n\n",
                    );
                    return;
                }
                _ => Value::Null,
            };
            let (status, body) = match result {
                Value::Null if asked.method == "GET" => (405, String::new()),
                Value::Null => (202, String::new()),
                result => {
                    let response = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
                    (200, response.to_string())
                }
            };
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n\
                 content-length: {}\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + &body).as_bytes());
        }
    });
    url
}

#[test]
fn a_call_whose_stream_cannot_be_resumed_counts_as_one_that_may_have_been_executed() {
    let config = json!({"url": vanishing(), "protocol": "legacy"});
    let config = serde_json::from_value(config).expect("valid");
    let server = behind([("up", config)]).start();
    let call = json!({"name": "up__try", "arguments": {}});
    let called = result(&server, "2025-11-25", "tools/call", call);
    assert_eq!(
        called["content"][0]["text"],
        "the upstream server up disconnected before it responded; the call may have been executed"
    );
}
