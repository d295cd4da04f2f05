//! Invalid bodies. Each gets an immediate response, and the connection stays open.

use longshore::tool;
use serde_json::json;

use crate::support::{Serve, Stateless};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// A POST of any bytes.
fn post(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn rpc_01_bodies_that_are_not_utf_8_json_are_parse_errors() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let deep = |open: &str, close: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}1{}}}"#,
            open.repeat(20_000),
            close.repeat(20_000)
        )
    };
    let bodies: Vec<Vec<u8>> = vec![
        utf16(good),
        [&b"\xff\xfe"[..], &utf16(good)].concat(),
        [&b"\xef\xbb\xbf"[..], good.as_bytes()].concat(),
        good.replace("ping", "p\u{0}ing").into_bytes(),
        good.replace("ping", "p\ning").into_bytes(),
        good.replace('"', "'").into_bytes(),
        good.replace("\"id\":1", "\"id\":01").into_bytes(),
        good.replace("\"id\":1", "\"id\":NaN").into_bytes(),
        good.replace("\"id\":1", "\"id\":Infinity").into_bytes(),
        good.replace("\"id\":1", "\"id\":-").into_bytes(),
        good.replace("\"id\":1", "\"id\":1,").into_bytes(),
        good.replace("ping", r"\ud800").into_bytes(),
        good.replace("ping", r"\x41").into_bytes(),
        [good.as_bytes(), good.as_bytes()].concat(),
        [good.as_bytes(), b"\0"].concat(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}".to_vec(),
        b"[".repeat(20_000),
        b"{\"a\":".repeat(20_000),
        deep("[", "]").into_bytes(),
        deep("{\"a\":", "}").into_bytes(),
        Vec::new(),
    ];
    for body in bodies {
        connection.send(post(&body));
        let response = connection.receive();
        assert_eq!(response.status, 400, "{}", body.escape_ascii());
        response.error(400, -32700, "");
    }
    let answer = Stateless::call("echo", json!({"message": "still here"})).send_on(&mut connection);
    assert_eq!(answer.result()["content"][0]["text"], "still here");
}

/// Long messages are kept in another form than short ones.
#[test]
fn rpc_01_long_messages_are_read_like_short_ones() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for part in ["plain ", "\u{e9}\u{1F600}", "\"\\\n\t\u{1}"] {
        for length in [100, 8_000, 8_192, 9_000, 70_000] {
            let text = part.repeat(length / part.len());
            let call = Stateless::call("echo", json!({"message": text}));
            let echoed = &call.send_on(&mut connection).result()["content"][0]["text"];
            assert_eq!(echoed, text.as_str(), "{part:?}, {length}");
        }
    }
    let good = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":"{}"}}}}}}"#,
        "a".repeat(20_000)
    );
    for (at, byte) in [(1_000, 0xff), (19_000, 0x80), (19_000, 0x1f)] {
        let mut body = good.clone().into_bytes();
        body[at] = byte;
        let refused = connection.send(post(&body)).receive();
        refused.error(400, -32700, "");
        let message = refused.json()["error"]["message"].to_string();
        assert!(message.contains(&format!("at byte {at}")), "{message}");
    }
}

#[test]
fn envelope_members_that_are_there_twice_are_refused_however_they_are_written() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","meth\u006fd":"tools/call"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#.to_owned(),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{meta},{meta}}}}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","n\u0061me":"fail",{meta}}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{}},"arguments":{{}},{meta}}}}}"#
        ),
    ] {
        connection
            .send(post(body.as_bytes()))
            .receive()
            .error(400, -32600, "1");
    }
}

#[test]
fn names_of_members_are_compared_by_their_bytes() {
    let server = Serve::new().tool(echo).start();
    let session = server.session("2025-06-18");
    session
        .post(r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#)
        .error(400, -32600, "1");
    session
        .post(
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/list","method\u0000":"x"}"#,
        )
        .result();
    session
        .post(r#"{"jsonrpc":"2.0","ID":1,"method":"ping"}"#)
        .accepted();
}

#[test]
fn numbers_too_large_for_anything_are_arguments_like_others() {
    let server = Serve::new().tool(echo).start();
    let session = server.session("2025-11-25");
    let call = |number: &str| {
        session.post(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"message":{number}}}}}}}"#
        ))
    };
    for number in [
        "1e400",
        "-1e400",
        &"9".repeat(5000),
        "1e-400",
        "123456789012345678901234567890",
    ] {
        assert_eq!(call(number).result()["isError"], true, "{number}");
    }
}

#[test]
fn an_object_has_a_bounded_number_of_members() {
    let server = Serve::new().tool(echo).start();
    let session = server.session("2025-06-18");
    let of = |count: usize| {
        let members: String = (3..count).map(|n| format!("\"k{n}\":[{{}}],")).collect();
        format!(r#"{{{members}"jsonrpc":"2.0","id":1,"method":"ping"}}"#)
    };
    assert_eq!(session.post(&of(10_000)).result(), json!({}));
    session.post(&of(10_001)).error(400, -32600, "");
}

#[test]
fn a_large_argument_comes_back_whole() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for size in [1, 8 * 1024, 64 * 1024, 1024 * 1024, 3 * 1024 * 1024] {
        let message = "x\u{e9}\n".repeat(size / 4);
        let answer = Stateless::call("echo", json!({"message": message})).send_on(&mut connection);
        assert!(answer.result()["content"][0]["text"] == *message, "{size}");
    }
}
