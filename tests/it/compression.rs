//! Answers in fewer bytes, for clients that take gzip.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::support::{Running, Serve, meta, request};
use crate::support::assert_contains;

/// The head of an answer, and its bytes.
fn answer(server: &Running, method: &str, params: Value, headers: &str) -> (String, Vec<u8>) {
    let mut params = params;
    params["_meta"] = meta();
    params["_meta"]["progressToken"] = json!(1);
    let name = params["name"]
        .as_str()
        .map_or_else(String::new, |name| format!("mcp-name: {name}\r\n"));
    let body = request(method, &params);
    let text = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n\
         {name}{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.write_all(text.as_bytes()).expect("written");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("read");
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec())
        .expect("ASCII")
        .to_ascii_lowercase();
    (head, bytes.split_off(end + 4))
}

const GZIP: &str = "accept-encoding: br, gzip\r\n";

#[test]
fn long_answers_are_compressed_for_those_who_take_it() {
    let server = Serve::demo_with(|c| c.http.compression = true);
    let (head, plain) = answer(&server, "tools/list", json!({}), "");
    assert!(
        !head.contains("content-encoding") && plain.len() > 1024,
        "{head}"
    );
    // Caches must know that others get it compressed.
    assert_contains(&head, &["vary: accept-encoding"]);
    let (head, squeezed) = answer(&server, "tools/list", json!({}), GZIP);
    assert_contains(&head, &["content-encoding: gzip", "vary: accept-encoding"]);
    assert!(
        head.contains(&format!("content-length: {}", squeezed.len())),
        "{head}"
    );
    let mut inflated = Vec::new();
    GzDecoder::new(&*squeezed)
        .read_to_end(&mut inflated)
        .expect("gzip");
    assert!(inflated == plain && squeezed.len() < plain.len() / 2);
    let refused = "accept-encoding: gzip;q=0\r\n";
    let (head, again) = answer(&server, "tools/list", json!({}), refused);
    assert!(
        !head.contains("content-encoding") && again == plain,
        "{head}"
    );
}

#[test]
fn an_answer_that_is_longer_than_a_worker_should_wait_for_is_compressed_too() {
    let server = Serve::demo_with(|c| c.http.compression = true);
    let message = "a text that repeats itself ".repeat(40_000);
    let call = json!({"name": "echo", "arguments": {"message": message}});
    let (head, squeezed) = answer(&server, "tools/call", call, GZIP);
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut inflated = String::new();
    GzDecoder::new(&*squeezed)
        .read_to_string(&mut inflated)
        .expect("gzip");
    assert!(inflated.contains(&message) && squeezed.len() < 100_000);
}

#[test]
fn short_answers_and_streams_are_not_and_nothing_is_unless_a_setting_says_so() {
    let server = Serve::demo_with(|c| c.http.compression = true);
    let echo = json!({"name": "echo", "arguments": {"message": "hi"}});
    let (head, body) = answer(&server, "tools/call", echo, GZIP);
    assert!(
        !head.contains("content-encoding") && body.starts_with(b"{"),
        "{head}"
    );
    // The call reports progress.
    let slow = json!({"name": "wait", "arguments": {"seconds": 0.05}});
    let (head, body) = answer(&server, "tools/call", slow, GZIP);
    assert!(
        head.contains("text/event-stream") && !head.contains("content-encoding"),
        "{head} {}",
        String::from_utf8_lossy(&body)
    );
    let (head, _) = answer(&Serve::demo(), "tools/list", json!({}), GZIP);
    assert!(
        !head.contains("content-encoding") && !head.contains("vary"),
        "{head}"
    );
}
