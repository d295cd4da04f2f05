//! Paths, methods and headers that are checked before the body is read.

use longshore::tool;
use serde_json::{Value, json};

use crate::support::{Connection, Response, Serve, Stateless};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

fn echoing() -> Stateless {
    Stateless::call("echo", json!({"message": "hi"}))
}

/// A request without a body.
fn bare(connection: &mut Connection, method: &str, path: &str, headers: &str) -> Response {
    let text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    connection.send(text).receive()
}

#[test]
fn http_04_the_endpoint_has_one_path_with_or_without_a_slash() {
    let server = Serve::new().tool(echo).start();
    let text = echoing().text();
    for path in [
        "/mcp",
        "/mcp/",
        "/mcp?x=1",
        "/mcp/?",
        "http://localhost/mcp",
    ] {
        let text = text.replace("POST /mcp ", &format!("POST {path} "));
        assert_eq!(
            server.connect().send(text).receive().result()["isError"],
            false
        );
    }
    for path in [
        "/",
        "/MCP",
        "/mcp//",
        "/mcp/x",
        "/sse",
        "/messages",
        "//mcp",
        "/%6dcp",
    ] {
        let text = text.replace("POST /mcp ", &format!("POST {path} "));
        let response = server.connect().send(text).receive();
        assert_eq!(response.status, 404, "{path}");
        assert_eq!(
            response.header("content-type"),
            Some("application/problem+json")
        );
    }
}

#[test]
fn lh_03_mh_01_other_methods_are_405_and_told_what_there_is() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        for path in ["/mcp", "/mcp/"] {
            let response = bare(
                &mut connection,
                method,
                path,
                "accept: text/event-stream\r\n",
            );
            response.error(405, 405, "");
            assert_eq!(
                response.header("allow"),
                Some("GET, POST, DELETE"),
                "{method}"
            );
        }
    }
    for method in ["GET", "DELETE", "PUT"] {
        let version = "mcp-protocol-version: 2026-07-28\r\n";
        let response = bare(&mut connection, method, "/mcp", version);
        response.error(405, 405, "");
        assert_eq!(response.header("allow"), Some("POST"), "{method}");
    }
    // Browsers and probes need no session and no stream; a client that accepts a stream lacks its session ID.
    for accept in ["", "accept: */*\r\n", "accept: text/html, */*;q=0.8\r\n"] {
        let response = bare(&mut connection, "GET", "/mcp", accept);
        response.error(405, 405, "");
        assert_eq!(response.header("allow"), Some("POST"), "{accept}");
    }
    let stream = bare(
        &mut connection,
        "GET",
        "/mcp",
        "accept: text/event-stream\r\n",
    );
    stream.error(400, -32600, "");
    // The answer to HEAD has a length and no body.
    connection.send("HEAD /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let head = connection.receive_head();
    assert_eq!(
        (head.status, head.header("allow")),
        (405, Some("GET, POST, DELETE"))
    );
    assert_eq!(
        echoing().send_on(&mut connection).result()["isError"],
        false
    );
}

#[test]
fn http_01_08_hosts_and_origins_are_checked_whatever_the_request() {
    let server = Serve::new().tool(echo).start();
    for (header, value) in [
        ("host", "evil.example.com"),
        ("host", "localhost.evil.example.com"),
        ("host", "0.0.0.0:3000"),
        ("origin", "https://evil.example.com"),
        ("origin", "null"),
        ("origin", "http://localhost.evil.example.com"),
    ] {
        let response = echoing().and(header, value).send(&server);
        response.error(403, 403, "");
        let setting = format!("http.allowed_{header}s");
        assert_eq!(
            response.json()["error"]["data"],
            json!({"setting": setting})
        );
        for method in ["GET", "DELETE", "OPTIONS"] {
            let text = match header {
                "host" => format!("{method} /mcp HTTP/1.1\r\nhost: {value}\r\n\r\n"),
                _ => format!(
                    "{method} /mcp HTTP/1.1\r\nhost: localhost\r\n{header}: {value}\r\n\r\n"
                ),
            };
            assert_eq!(server.connect().send(text).receive().status, 403);
        }
    }
    for host in ["localhost", "127.0.0.1:1", "[::1]:3000", "LOCALHOST"] {
        echoing().and("host", host).send(&server).result();
    }
    for origin in [
        "http://localhost",
        "https://127.0.0.1:8443",
        "http://[::1]:5173",
    ] {
        echoing().and("origin", origin).send(&server).result();
    }
}

#[test]
fn http_08_there_is_one_host_and_it_is_one() {
    let server = Serve::new().tool(echo).start();
    let none = echoing().text().replace("host: localhost\r\n", "");
    server.connect().send(none).receive().error(400, 400, "");
    let two = echoing().text().replace(
        "host: localhost\r\n",
        "host: localhost\r\nhost: localhost\r\n",
    );
    server.connect().send(two).receive().error(400, 400, "");
    for bad in [
        "",
        "a b",
        "localhost:x",
        "localhost/",
        "user@localhost",
        "localhost,localhost",
        "[::1",
    ] {
        echoing().and("host", bad).send(&server).error(400, 400, "");
    }
    // The authority of the target takes its place.
    let foreign = echoing()
        .text()
        .replace("POST /mcp ", "POST http://evil.example.com/mcp ");
    server.connect().send(foreign).receive().error(403, 403, "");
    let without = echoing()
        .text()
        .replace("POST /mcp ", "POST http://localhost/mcp ")
        .replace("host: localhost\r\n", "");
    server.connect().send(without).receive().error(400, 400, "");
}

#[test]
fn http_08_hosts_and_origins_can_be_allowed() {
    let server = Serve::new()
        .tool(echo)
        .configured(|c| {
            c.http.allowed_hosts = vec!["mcp.example.com".to_owned()];
            c.http.allowed_origins = vec!["https://app.example.com".to_owned()];
        })
        .start();
    let call = echoing().and("host", "mcp.example.com:8080");
    call.clone()
        .and("origin", "https://app.example.com")
        .send(&server)
        .result();
    call.and("origin", "https://app.example.com:444")
        .send(&server)
        .error(403, 403, "");
}

#[test]
fn http_07_the_body_is_declared_as_json() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for good in [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
    ] {
        echoing()
            .and("content-type", good)
            .send_on(&mut connection)
            .result();
    }
    for bad in [
        "text/plain",
        "application/json; charset=utf-16",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json-rpc",
        "",
    ] {
        echoing()
            .and("content-type", bad)
            .send_on(&mut connection)
            .error(415, 415, "");
    }
    let none = echoing()
        .text()
        .replace("content-type: application/json\r\n", "");
    connection.send(none).receive().error(415, 415, "");
}

#[test]
fn http_07_an_answer_in_one_of_the_two_forms_is_accepted() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for good in [
        "application/json",
        "*/*",
        "application/*;q=0.1, text/html",
        "",
    ] {
        echoing()
            .and("accept", good)
            .send_on(&mut connection)
            .result();
    }
    let none = echoing()
        .text()
        .replace("accept: application/json, text/event-stream\r\n", "");
    connection.send(none).receive().result();
    // A client that accepts only event streams gets one with the response as its only event.
    let streamed = echoing()
        .and("accept", "text/event-stream")
        .send_on(&mut connection);
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    // The Java SDK ignores events without a type.
    let event = streamed.body.strip_prefix("event: message\ndata: ");
    let event = event.and_then(|event| event.strip_suffix("\n\n"));
    let event: Value = serde_json::from_str(event.expect("an event")).expect("JSON");
    assert_eq!(event["result"]["isError"], false);
    // A refusal has a status, and is what it is for everybody.
    let refused = Stateless::new("nothing/like/it", json!({})).and("accept", "text/event-stream");
    refused.send_on(&mut connection).error(404, -32601, "1");
    for bad in [
        "text/html",
        "application/xml, image/*",
        "application/json;q=0, text/html",
    ] {
        echoing()
            .and("accept", bad)
            .send_on(&mut connection)
            .error(406, 406, "");
    }
    let strict = Serve::new()
        .tool(echo)
        .configured(|c| c.http.strict_accept = true)
        .start();
    echoing().send(&strict).result();
    echoing()
        .and("accept", "application/json")
        .send(&strict)
        .error(406, 406, "");
}

#[test]
fn http_06_answers_are_json_and_http_05_notifications_have_none() {
    let server = Serve::new().tool(echo).start();
    let response = echoing().send(&server);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(
        response.header("content-length"),
        Some(&*response.body.len().to_string())
    );
    let session = server.session("2025-06-18");
    let accepted = session.post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    accepted.accepted();
    assert_eq!(accepted.header("content-type"), None);
}

#[test]
fn health_is_told_to_whoever_asks() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    let text = "GET /health HTTP/1.1\r\nhost: 10.0.0.7:3000\r\n\r\n";
    let health = connection.send(text).receive();
    assert_eq!(health.status, 200);
    let health = health.json();
    assert_eq!(
        (&health["status"], &health["tools"]),
        (&json!("ok"), &json!(1))
    );
    let post = bare(&mut connection, "POST", "/health", "content-length: 0\r\n");
    assert_eq!(
        (post.status, post.header("allow")),
        (405, Some("GET, HEAD"))
    );
}
