//! API keys that are added and taken away while the program runs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use super::{KEY, OTHER_KEY, Program, settings};
use crate::support::assert_contains;

#[test]
fn keys_of_a_server_that_asked_for_none_need_a_restart() {
    let open = "http: {port: 0}\nserver: {name: one}\n";
    let mut program = Program::start(open, &[]);
    program.write(&settings("two", KEY, ""));
    let line = program.wait_for("is in force");
    assert!(
        line.contains("server.name") && !line.contains("auth"),
        "{line}"
    );
    let line = program.wait_for("changed settings need a restart");
    assert!(line.contains("auth.api_keys"), "{line}");
}

#[test]
fn streams_of_a_key_that_is_taken_away_end_and_those_of_others_go_on() {
    let settings = |keys: &str| {
        format!(
            "server:\n  name: one\nhttp:\n  port: 0\n  legacy_sse: true\nauth:\n  api_keys: [{keys}]\n"
        )
    };
    let both = format!("'me={KEY}', 'other={OTHER_KEY}'");
    let mut program = Program::start(&settings(&both), &[]);
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let streams = |key: &str| {
        let accept = "Accept: application/json, text/event-stream\r\n";
        let post = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n{accept}Content-Type: application/json\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{listen}",
            listen.len()
        );
        let legacy = format!(
            "GET /sse HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n{accept}Connection: close\r\n\r\n"
        );
        [post, legacy].map(|request| {
            let mut stream = TcpStream::connect(program.address).expect("it listens");
            stream.write_all(request.as_bytes()).expect("written");
            let mut begun = BufReader::new(stream);
            let mut head = String::new();
            begun.read_line(&mut head).expect("a head");
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            begun
        })
    };
    let (mine, theirs) = (streams(KEY), streams(OTHER_KEY));
    program.write(&settings(&format!("'other={OTHER_KEY}'")));
    program.wait_for("is in force");
    let changed = std::time::Instant::now();
    for mut stream in mine {
        let mut rest = String::new();
        let end = stream.read_to_string(&mut rest);
        assert!(end.is_ok(), "{end:?}");
    }
    let took = changed.elapsed();
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    for stream in theirs {
        let socket = stream.get_ref();
        socket.set_nonblocking(true).expect("a setting");
        let mut byte = [0];
        let end = socket.peek(&mut byte);
        let is_open = end.as_ref().is_ok_and(|bytes| 0 < *bytes)
            || end.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(is_open);
    }
}

#[test]
fn a_key_that_is_taken_away_opens_nothing_on_a_connection_that_has_shown_it() {
    let settings = |keys: &str| format!("http: {{port: 0}}\nauth: {{api_keys: [{keys}]}}\n");
    let both = format!("'me={KEY}', 'other={OTHER_KEY}'");
    let mut program = Program::start(&settings(&both), &[]);
    let mut connection = program.connect();
    let mut status = || {
        let tools = format!("GET /tools HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\n\r\n");
        connection.send(tools).receive().status
    };
    assert_eq!([status(), status(), status()], [200; 3]);
    program.write(&settings(&format!("'other={OTHER_KEY}'")));
    program.wait_for("is in force");
    assert_eq!(status(), 401);
}

#[test]
fn the_last_key_is_revoked_when_it_is_taken_away() {
    let mut program = Program::start(&settings("one", KEY, ""), &[]);
    assert!(program.get("/tools", KEY).starts_with("HTTP/1.1 200"));
    program.write("server:\n  name: one\nhttp:\n  port: 0\n");
    let line = program.wait_for("no API key is left");
    assert_contains(&line, &["ERROR", "auth.api_keys"]);
    program.wait_for("is in force");
    for key in [KEY, ""] {
        let answer = program.get("/tools", key);
        assert!(answer.starts_with("HTTP/1.1 401"), "{key:?}: {answer}");
    }
    program.write(&settings("one", OTHER_KEY, ""));
    program.wait_for("is in force");
    assert!(program.get("/tools", OTHER_KEY).starts_with("HTTP/1.1 200"));
}
