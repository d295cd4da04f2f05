//! Headers that repeat parts of the body, in the stateless lifecycle.

use longshore::tool;
use serde_json::{Value, json};

use super::{HEADER_MISMATCH, INVALID_REQUEST};
use crate::support::{Serve, Stateless};

/// Runs a query where the data is.
#[tool]
async fn query(
    #[arg(header = "Region")] region: Option<String>,
    #[arg(header = "Shard")] shard: Option<i64>,
    #[arg(header = "Dry")] dry: Option<bool>,
) -> String {
    format!("{region:?} {shard:?} {dry:?}")
}

#[test]
fn mh_03_the_version_header_is_required() {
    let server = Serve::demo();
    let message = Stateless::new("tools/list", json!({}))
        .without("mcp-protocol-version")
        .send(&server)
        .error(400, HEADER_MISMATCH, "1");
    assert_eq!(
        message,
        "Header mismatch: mcp-protocol-version is missing; the body has '2026-07-28'"
    );
}

#[test]
fn ver_03_the_version_header_says_what_the_body_says() {
    let server = Serve::demo();
    for version in ["2025-11-25", "1900-01-01", "2026-07-29"] {
        let list = Stateless::new("tools/list", json!({})).with("mcp-protocol-version", version);
        list.send(&server).error(400, HEADER_MISMATCH, "1");
    }
}

#[test]
fn mh_04_the_method_header_is_required_and_says_what_the_body_says() {
    let server = Serve::demo();
    let list = Stateless::new("tools/list", json!({}));
    for spoiled in [
        list.clone().without("mcp-method"),
        list.clone().with("mcp-method", "tools/call"),
        list.clone().with("mcp-method", "Tools/List"),
        list.clone().with("mcp-method", ""),
        // The method has no Base64 form.
        list.clone()
            .with("mcp-method", "=?base64?dG9vbHMvbGlzdA==?="),
    ] {
        spoiled.send(&server).error(400, HEADER_MISMATCH, "1");
    }
}

#[test]
fn mh_05_the_name_header_is_required_and_says_what_the_body_says() {
    let server = Serve::demo();
    let call = Stateless::call("echo", json!({"message": "hi"}));
    for spoiled in [
        call.clone().without("mcp-name"),
        call.clone().with("mcp-name", "Echo"),
        call.clone().with("mcp-name", "fail"),
        call.clone().with("mcp-name", ""),
    ] {
        spoiled.send(&server).error(400, HEADER_MISMATCH, "1");
    }
}

#[test]
fn http_09_names_of_headers_have_no_case_and_blanks_around_values_do_not_count() {
    let server = Serve::demo();
    let call = Stateless::call("echo", json!({"message": "hi"}))
        .without("mcp-method")
        .and("MCP-METHOD", " \t tools/call \t")
        .with("mcp-name", "  echo ")
        .with("mcp-protocol-version", " 2026-07-28 ");
    assert_eq!(call.send(&server).result()["isError"], false);
}

#[test]
fn mh_07_to_09_names_in_base64_are_decoded_before_they_are_compared() {
    let server = Serve::demo();
    let call = Stateless::call("echo", json!({"message": "hi"}));
    call.clone()
        .with("mcp-name", "=?base64?ZWNobw==?=")
        .send(&server)
        .result();
    for bad in [
        "=?base64?ZWNobw?=",
        "=?base64?ZWNo!w==?=",
        "=?base64?ZWNobw==",
        "ZWNobw==?=",
        "ZWNobw==",
        "=?BASE64?ZWNobw==?=",
        "=?base64?/w==?=",
        "=?base64??=",
        "=?base64?=",
    ] {
        call.clone()
            .with("mcp-name", bad)
            .send(&server)
            .error(400, HEADER_MISMATCH, "1");
    }
    // Non-ASCII values must be Base64-encoded.
    let message = call
        .with("mcp-name", "\u{e9}cho")
        .send(&server)
        .error(400, HEADER_MISMATCH, "1");
    assert!(message.contains("visible ASCII"), "{message}");
}

#[test]
fn mh_10_to_12_arguments_that_are_mirrored_agree_with_their_headers() {
    let server = Serve::new().tool(query).start();
    let check = |arguments: Value, headers: &[(&str, &str)]| {
        let mut call = Stateless::call("query", arguments);
        for (name, value) in headers {
            call = call.and(name, value);
        }
        let response = call.send(&server);
        if response.status == 200 {
            assert_eq!(response.result()["isError"], false);
            return true;
        }
        response.error(400, HEADER_MISMATCH, "1");
        false
    };
    let region = |value: &str, header: &'static str| {
        check(json!({"region": value}), &[("mcp-param-region", header)])
    };
    assert!(region("eu", "eu"));
    assert!(region(
        "Hello, \u{4e16}\u{754c}",
        "=?base64?SGVsbG8sIOS4lueVjA==?="
    ));
    assert!(region(" padded ", "=?base64?IHBhZGRlZCA=?="));
    assert!(region("", ""));
    assert!(!region("eu", "EU"));
    assert!(!region("eu", "=?base64?ZXU?="));
    assert!(!check(json!({"region": "eu"}), &[]));
    assert!(!check(
        json!({"region": "eu"}),
        &[("mcp-param-region", "eu"), ("mcp-param-region", "eu")]
    ));
    // MH-11
    assert!(check(json!({}), &[]));
    assert!(check(json!({"region": null}), &[]));
    assert!(!check(json!({}), &[("mcp-param-region", "eu")]));
    assert!(!check(
        json!({"region": null}),
        &[("mcp-param-region", "null")]
    ));
    // MH-12
    assert!(check(json!({"shard": 42}), &[("Mcp-Param-Shard", "42.0")]));
    assert!(!check(json!({"shard": 42}), &[("mcp-param-shard", "43")]));
    assert!(!check(json!({"shard": 42}), &[("mcp-param-shard", "0x2a")]));
    assert!(check(json!({"dry": true}), &[("mcp-param-dry", "true")]));
    assert!(!check(json!({"dry": true}), &[("mcp-param-dry", "TRUE")]));
    // Headers for arguments without an annotation are ignored.
    assert!(check(json!({}), &[("mcp-param-other", "x")]));
}

#[test]
fn mh_22_a_mirrored_header_that_is_there_twice_is_refused() {
    let server = Serve::demo();
    let call = Stateless::call("echo", json!({"message": "hi"}));
    for (name, value) in [
        ("mcp-method", "tools/call"),
        ("mcp-name", "echo"),
        ("mcp-protocol-version", "2026-07-28"),
    ] {
        let message = call
            .clone()
            .and(name, value)
            .send(&server)
            .error(400, HEADER_MISMATCH, "1");
        assert_eq!(
            message,
            format!("Header mismatch: {name} appears more than once")
        );
    }
}

#[test]
fn http_10_mirrored_headers_on_requests_of_a_session_say_nothing() {
    let server = Serve::new().tool(query).start();
    let session = server.session("2025-11-25");
    let headers = [
        ("mcp-session-id", &*session.id),
        ("mcp-method", "resources/read"),
        ("mcp-name", "other"),
        ("mcp-name", "another"),
        ("mcp-param-region", "nowhere"),
    ];
    let body = crate::support::request(
        "tools/call",
        &json!({"name": "query", "arguments": {"region": "eu"}}),
    );
    assert_eq!(server.post(&headers, &body).result()["isError"], false);
}

#[test]
fn a_session_id_that_is_there_twice_is_refused() {
    let server = Serve::demo();
    let session = server.session("2025-06-18");
    let headers = [
        ("mcp-session-id", &*session.id),
        ("mcp-session-id", &*session.id),
    ];
    let ping = r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
    server
        .post(&headers, ping)
        .error(400, INVALID_REQUEST, "\"a\"");
}
