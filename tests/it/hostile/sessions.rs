//! Invalid session IDs, and IDs of ended sessions.

use super::{Case, Sessions, bytes, run_on, server};
use crate::support::request;
use serde_json::json;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Changes one character.
fn changed(id: &str, at: usize) -> String {
    let mut bytes = id.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).expect("ASCII")
}

#[test]
fn lh_08_session_ids_that_are_none_of_ours_are_not_found() {
    let server = server();
    let other = super::server();
    let sessions = Sessions::of(&server);
    let id = &sessions.0[3].1;
    let mut bad: Vec<String> = [
        "x",
        "0",
        "null",
        "undefined",
        "true",
        "{}",
        "../../etc/passwd",
        "' or 1=1 --",
        "00000000-0000-0000-0000-000000000000",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "*",
        "%00",
        "$(id)",
        "-1",
        "a b",
    ]
    .map(str::to_owned)
    .into();
    bad.push("x".repeat(511));
    bad.push("x".repeat(8000));
    // Wherever it is changed, and however it is cut or drawn out.
    bad.extend(
        (0..id.len())
            .step_by(id.len() / 24)
            .map(|at| changed(id, at)),
    );
    bad.push(changed(id, id.len() - 1));
    bad.extend([1, 2, 8, id.len() / 2, id.len() - 1].map(|n| id[..id.len() - n].to_owned()));
    bad.extend([1, 2, 8].map(|n| id[n..].to_owned()));
    bad.push(format!("{id}A"));
    bad.push(format!("A{id}"));
    bad.push(format!("{id}{id}"));
    bad.push(format!("{id}=="));
    bad.push(format!("{id}, {id}"));
    bad.push(format!("{id};x"));
    bad.push(format!("\"{id}\""));
    bad.push(id.chars().rev().collect());
    if id.to_ascii_uppercase() != *id {
        bad.push(id.to_ascii_uppercase());
    }
    if id.to_ascii_lowercase() != *id {
        bad.push(id.to_ascii_lowercase());
    }
    bad.push(other.session("2025-11-25").id.clone());
    let mut cases = Vec::new();
    for id in &bad {
        let headers = [("mcp-session-id", id.as_str())];
        let case = |what: &str, bytes| Case::new(format!("{what} with {id:.60}"), bytes);
        cases.push(case("request", bytes(&headers, PING)).error(404, 404, ""));
        cases.push(case("notification", bytes(&headers, NOTE)).error(404, 404, ""));
        let delete =
            format!("DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {id}\r\n\r\n");
        cases.push(case("DELETE", delete.into_bytes()).error(404, 404, ""));
    }
    assert!(run_on(&server, cases) >= 150);
}

#[test]
fn lh_07_sessions_have_to_be_named_once() {
    let server = server();
    let sessions = Sessions::of(&server);
    let id = &sessions.0[3].1;
    let mut cases = Vec::new();
    for (name, body, echoed) in [
        ("ping", PING.to_owned(), "1"),
        ("tools/list", request("tools/list", &json!({})), "1"),
        (
            "a call",
            request("tools/call", &json!({"name": "say"})),
            "1",
        ),
        ("an unknown method", request("unknown", &json!({})), "1"),
        ("a notification", NOTE.to_owned(), ""),
        (
            "a response",
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned(),
            "",
        ),
    ] {
        let case = Case::new(format!("{name} without a session"), bytes(&[], &body));
        cases.push(case.error(400, -32600, echoed));
        let twice = [("mcp-session-id", &**id), ("mcp-session-id", &**id)];
        let case = Case::new(format!("{name} with two sessions"), bytes(&twice, &body));
        cases.push(case.error(400, -32600, echoed));
        for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let headers = [("mcp-protocol-version", version)];
            let case = Case::new(
                format!("{name}, {version}, no session"),
                bytes(&headers, &body),
            );
            cases.push(case.error(400, -32600, echoed));
        }
    }
    let delete = "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n";
    cases.push(Case::new("DELETE of nothing", delete).error(400, -32600, ""));
    let delete = format!(
        "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {id}\r\nmcp-session-id: {id}\r\n\r\n"
    );
    cases.push(Case::new("DELETE of two", delete).error(400, -32600, ""));
    assert!(run_on(&server, cases) >= 38);
}

#[test]
fn lh_10_versions_that_are_none_are_refused_and_others_of_the_era_tolerated() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for (revision, id) in &sessions.0 {
        for version in [
            "",
            "x",
            "1",
            "1.0",
            "2.0",
            "1900-01-01",
            "2025-11-26",
            "9999-12-31",
            "2025-6-18",
            "20250618",
            "2025-06-18x",
            "x2025-06-18",
            "2025-06-18, 2025-06-18",
            "latest",
            "draft",
            "null",
            "*",
        ] {
            let headers = [
                ("mcp-session-id", id.as_str()),
                ("mcp-protocol-version", version),
            ];
            let case = Case::new(format!("{version:?} in {revision}"), bytes(&headers, PING));
            cases.push(case.error(400, -32022, "1"));
        }
        for version in [
            "2024-11-05",
            "2025-03-26",
            "2025-06-18",
            "2025-11-25",
            " 2025-06-18 ",
        ] {
            let headers = [
                ("mcp-session-id", id.as_str()),
                ("mcp-protocol-version", version),
            ];
            cases.push(Case::new(
                format!("{version:?} in {revision}"),
                bytes(&headers, PING),
            ));
        }
        // ERA-05: who says that it has none of that lifecycle is not taken for one that has.
        let headers = [
            ("mcp-session-id", id.as_str()),
            ("mcp-protocol-version", "2026-07-28"),
        ];
        let case = Case::new(format!("stateless in {revision}"), bytes(&headers, PING));
        cases.push(case.error(400, -32602, "1"));
        let twice = [
            ("mcp-session-id", id.as_str()),
            ("mcp-protocol-version", "2025-06-18"),
            ("mcp-protocol-version", "2025-06-18"),
        ];
        let case = Case::new(format!("two versions in {revision}"), bytes(&twice, PING));
        cases.push(case.error(400, -32022, "1"));
    }
    assert!(run_on(&server, cases) >= 90);
}

#[test]
fn lh_10_versions_that_are_none_end_no_session_and_open_no_stream() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for (revision, id) in &sessions.0 {
        for version in [
            "",
            "1900-01-01",
            "2025-11-26",
            "2025-06-18, 2025-06-18",
            "x",
        ] {
            for method in ["DELETE", "GET"] {
                let head = format!(
                    "{method} /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {id}\r\n"
                );
                let text = format!("{head}mcp-protocol-version: {version}\r\n\r\n");
                let name = format!("{method} with {version:?} in {revision}");
                cases.push(Case::new(name, text).error(400, -32022, ""));
            }
            let headers = [("mcp-session-id", id.as_str())];
            let name = format!("{revision} goes on after {version:?}");
            cases.push(Case::new(name, bytes(&headers, PING)));
        }
    }
    assert_eq!(run_on(&server, cases), 60);
}

#[test]
fn lh_09_what_has_ended_stays_ended_for_everything() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for (revision, id) in &sessions.0 {
        let headers = [("mcp-session-id", id.as_str())];
        let case = |what: &str, bytes: Vec<u8>| Case::new(format!("{what}, {revision}"), bytes);
        let delete =
            format!("DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {id}\r\n\r\n");
        cases.push(case("before", bytes(&headers, PING)));
        cases.push(case("DELETE", delete.clone().into_bytes()).status(&[200, 204]));
        cases.push(case("again", delete.into_bytes()).error(404, 404, ""));
        cases.push(case("request", bytes(&headers, PING)).error(404, 404, ""));
        cases.push(case("notification", bytes(&headers, NOTE)).error(404, 404, ""));
        cases.push(
            case(
                "call",
                bytes(&headers, request("tools/call", &json!({"name": "say"}))),
            )
            .error(404, 404, ""),
        );
        cases.push(
            case(
                "response",
                bytes(&headers, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            )
            .error(404, 404, ""),
        );
        // A handshake starts a new session, even if its request names one.
        let params = json!({"protocolVersion": revision, "capabilities": {}});
        cases.push(case(
            "initialize",
            bytes(&headers, request("initialize", &params)),
        ));
    }
    assert!(run_on(&server, cases) >= 32);
}
