//! Request heads that equal the previous one of their connection, which the server does not parse again.

use serde_json::json;

use crate::support::{Connection, Response, Running, Serve, post, request};

const REVISION: &str = "2025-06-18";

fn echo(text: &str) -> String {
    request(
        "tools/call",
        &json!({"name": "echo", "arguments": {"message": text}}),
    )
}

fn echoed(response: &Response) -> String {
    let text = &response.result()["content"][0]["text"];
    text.as_str().expect("a text").to_owned()
}

/// A connection whose last head is known, and what calls with that head.
fn known(server: &Running) -> (Connection, impl Fn(&str) -> String) {
    let session = server.session(REVISION).id;
    let call = move |text: &str| {
        let headers = [
            ("mcp-session-id", &*session),
            ("mcp-protocol-version", REVISION),
        ];
        post(&headers, &echo(text))
    };
    let mut connection = server.connect();
    for text in ["first", "remembered", "known"] {
        assert_eq!(echoed(&connection.send(call(text)).receive()), text);
    }
    (connection, call)
}

/// A request with one line of its head in place of another.
fn with(text: &str, name: &str, line: &str) -> String {
    let begins = text.find(&format!("\r\n{name}:")).expect("the field") + 2;
    let ends = begins + text[begins..].find("\r\n").expect("a line");
    format!("{}{line}{}", &text[..begins], &text[ends..])
}

#[test]
fn bodies_of_any_length_are_answered_each_for_itself() {
    let server = Serve::demo();
    let (mut connection, call) = known(&server);
    for length in [1, 9, 10, 99, 100, 1_000, 9_000, 40_000, 200_000, 5, 1] {
        let text = "x".repeat(length);
        assert_eq!(echoed(&connection.send(call(&text)).receive()), text);
    }
    // The head alone, then its body in parts.
    let text = call("in parts");
    let head = text.find("\r\n\r\n").expect("a head") + 4;
    connection.send(&text[..head]);
    connection.send(&text[head..head + 10]);
    assert_eq!(
        echoed(&connection.send(&text[head + 10..]).receive()),
        "in parts"
    );
    // Part of the head, then the rest.
    for cut in [1, 30, head - 1] {
        connection.send(&text[..cut]);
        std::thread::yield_now();
        assert_eq!(echoed(&connection.send(&text[cut..]).receive()), "in parts");
    }
}

#[test]
fn heads_that_differ_are_judged_by_what_they_say() {
    let server = Serve::demo();
    let revoked = server.session(REVISION).id;
    for (name, line, status) in [
        ("host", "host: evil.example.com".to_owned(), 403),
        (
            "host",
            "host: localhost\r\norigin: http://evil.example.com".to_owned(),
            403,
        ),
        ("host", "x: y".to_owned(), 400),
        ("host", "host: localhost\r\nhost: localhost".to_owned(), 400),
        ("content-type", "content-type: text/plain".to_owned(), 415),
        ("accept", "accept: text/html".to_owned(), 406),
        ("accept", "accept: */*\r\nmcp_name: echo".to_owned(), 400),
        (
            "mcp-protocol-version",
            "mcp-protocol-version: 1999-01-01".to_owned(),
            400,
        ),
        ("mcp-session-id", "mcp-session-id: unknown".to_owned(), 404),
        ("mcp-session-id", format!("mcp-session-id: {revoked}x"), 404),
        ("mcp-session-id", "x: y".to_owned(), 400),
    ] {
        let (mut connection, call) = known(&server);
        let other = with(&call("other"), name, &line);
        let response = connection.send(other).receive();
        assert_eq!(response.status, status, "{line:?}: {response:?}");
        if response.header("connection") != Some("close") {
            assert_eq!(echoed(&connection.send(call("again")).receive()), "again");
        }
    }
    let (mut connection, call) = known(&server);
    let elsewhere = call("elsewhere").replacen("/mcp", "/other", 1);
    assert_eq!(connection.send(elsewhere).receive().status, 404);
    assert_eq!(echoed(&connection.send(call("again")).receive()), "again");
}

#[test]
fn lh_09_a_session_that_was_ended_is_so_for_a_head_that_is_known() {
    let server = Serve::demo();
    let session = server.session(REVISION);
    let call = post(&session.headers(), &echo("hi"));
    let mut connection = server.connect();
    for _ in 0..4 {
        assert_eq!(echoed(&connection.send(&call).receive()), "hi");
    }
    let id = &session.id;
    let end = format!("DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {id}\r\n\r\n");
    assert_eq!(server.connect().send(end).receive().status, 200);
    for _ in 0..2 {
        assert_eq!(connection.send(&call).receive().status, 404);
    }
}

#[test]
fn requests_that_come_together_are_each_judged_for_themselves() {
    let server = Serve::demo();
    let (mut connection, call) = known(&server);
    let good = call("good");
    let evil = with(&good, "host", "host: evil.example.com");
    connection.send(format!("{good}{good}{evil}"));
    for status in [200, 200, 403] {
        assert_eq!(connection.receive().status, status);
    }
    // Part of the second comes with the first, the rest alone.
    for cut in [1, 20, evil.len() - 30] {
        let (mut connection, call) = known(&server);
        let good = call("good");
        let evil = with(&good, "host", "host: evil.example.com");
        connection.send(format!("{good}{}", &evil[..cut]));
        assert_eq!(echoed(&connection.receive()), "good");
        assert_eq!(connection.send(&evil[cut..]).receive().status, 403);
    }
}

#[test]
fn what_looks_like_the_head_that_is_known_and_stands_elsewhere_is_none() {
    let server = Serve::demo();
    for before in [
        "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "",
    ] {
        let (mut connection, call) = known(&server);
        let good = call("good");
        // The rest is inside of a header field.
        let begun = "POST /mcp HTTP/1.1\r\nhost: evil.example.com\r\nx: ";
        connection.send(format!("{before}{begun}"));
        if !before.is_empty() {
            connection.receive();
        }
        let response = connection.send(&good).receive();
        assert!(
            [400, 403].contains(&response.status),
            "{before:?}: {response:?}"
        );
    }
}
