//! The lifecycle of a request: the decision table, row by row, and messages without a lifecycle.

use serde_json::{Value, json};

use super::{
    INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE, UNSUPPORTED_VERSION, WITH_SESSIONS,
};
use crate::support::{Serve, Stateless, meta, request};

const VERSION: &str = "mcp-protocol-version";
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

#[test]
fn row_01_rpc_12_what_is_not_json_is_a_parse_error() {
    let server = Serve::demo();
    for body in [
        "",
        " ",
        "{",
        "nonsense",
        "{}{}",
        r#"{"jsonrpc":"2.0",}"#,
        "\u{feff}{}",
        "'a'",
    ] {
        server.post(&[], body).error(400, PARSE, "");
    }
    let session = server.session("2025-06-18");
    session.post("{").error(400, PARSE, "");
    let headers = [(VERSION, "2026-07-28")];
    server.post(&headers, "{").error(400, PARSE, "");
}

#[test]
fn row_02_rpc_08_an_array_is_refused_unless_the_session_is_of_2025_03_26() {
    let server = Serve::demo();
    let batch = format!("[{PING}]");
    server.post(&[], &batch).error(400, INVALID_REQUEST, "");
    server
        .post(&[(VERSION, "2026-07-28")], &batch)
        .error(400, INVALID_REQUEST, "");
    for revision in WITH_SESSIONS {
        let response = server.session(revision).post(&batch);
        if revision == "2025-03-26" {
            assert_eq!(response.body, r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
        } else {
            response.error(400, INVALID_REQUEST, "");
        }
    }
}

#[test]
fn row_03_rpc_12_what_is_no_message_is_an_invalid_request() {
    let server = Serve::demo();
    let without_id = [
        "1",
        "\"text\"",
        "null",
        "{}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1e400,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1e-2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
    ];
    for body in &without_id[..without_id.len() - 1] {
        server.post(&[], body).error(400, INVALID_REQUEST, "");
    }
    let with_id = [
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
    ];
    for body in with_id {
        server.post(&[], body).error(400, INVALID_REQUEST, "1");
    }
}

#[test]
fn row_04_era_01_a_request_with_modern_meta_needs_no_session_and_ignores_one() {
    let server = Serve::demo();
    let session = server.session("2025-06-18");
    let call = Stateless::call("echo", json!({"message": "hi"}));
    for call in [
        call.clone(),
        call.clone().and("mcp-session-id", &session.id),
        call.clone().and("mcp-session-id", "no session of ours"),
        call.clone().and("last-event-id", "7"),
    ] {
        let response = call.send(&server);
        assert_eq!(response.result()["content"][0]["text"], "hi");
        // MH-02
        assert_eq!(response.header("mcp-session-id"), None);
    }
}

#[test]
fn row_04_era_04_removed_methods_are_unknown_in_the_stateless_era() {
    let server = Serve::demo();
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/result",
        "tasks/list",
    ] {
        let message =
            Stateless::new(method, json!({}))
                .send(&server)
                .error(404, METHOD_NOT_FOUND, "1");
        assert_eq!(message, format!("Method not found: {method}"));
    }
}

#[test]
fn row_04_mh_13_unknown_methods_and_features_that_are_not_offered_are_404() {
    let server = Serve::new().start();
    for method in [
        "resources/list",
        "prompts/get",
        "completion/complete",
        "x",
        "",
        "Tools/list",
    ] {
        Stateless::new(method, json!({}))
            .send(&server)
            .error(404, METHOD_NOT_FOUND, "1");
    }
}

#[test]
fn row_05_era_02_initialize_without_modern_meta_begins_a_session() {
    let server = Serve::demo();
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}});
    let body = request("initialize", &params);
    for headers in [
        &[][..],
        &[(VERSION, "2025-06-18")],
        &[(VERSION, "2024-11-05")],
    ] {
        let response = server.post(headers, &body);
        assert_eq!(response.result()["protocolVersion"], "2025-06-18");
        assert!(response.header("mcp-session-id").is_some());
    }
    // With the id of a session that is still good, too: a new one.
    let session = server.session("2025-06-18");
    let response = server.post(&session.headers(), &body);
    assert_ne!(response.header("mcp-session-id"), Some(&*session.id));
    assert_eq!(session.request("ping", &json!({})).result(), json!({}));
}

#[test]
fn row_06_era_05_the_modern_version_header_without_modern_meta_is_never_the_old_era() {
    let server = Serve::demo();
    let session = server.session("2025-06-18");
    let bodies = [
        PING.to_owned(),
        request("tools/list", &json!({})),
        request(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
        ),
        request("tools/list", &json!({"_meta": {}})),
        request("tools/list", &json!({"_meta": null})),
        request(
            "tools/list",
            &json!({"_meta": {"io.modelcontextprotocol/clientCapabilities": {}}}),
        ),
    ];
    for body in &bodies {
        for headers in [
            &[(VERSION, "2026-07-28")][..],
            &[(VERSION, "2026-07-28"), ("mcp-session-id", &session.id)],
        ] {
            let message = server.post(headers, body).error(400, INVALID_PARAMS, "1");
            assert_eq!(
                message,
                "Invalid params: _meta.io.modelcontextprotocol/protocolVersion is required"
            );
        }
    }
}

#[test]
fn row_07_requests_of_the_handshake_era_go_by_their_session() {
    let server = Serve::demo();
    let session = server.session("2025-06-18");
    for version in [
        None,
        Some("2025-06-18"),
        Some("2025-11-25"),
        Some("2024-11-05"),
    ] {
        let mut headers = session.headers().to_vec();
        headers.extend(version.map(|v| (VERSION, v)));
        assert_eq!(server.post(&headers, PING).result(), json!({}));
        let headers: Vec<_> = version.map(|v| (VERSION, v)).into_iter().collect();
        server.post(&headers, PING).error(400, INVALID_REQUEST, "1");
    }
}

#[test]
fn row_08_lh_10_a_version_header_that_nobody_knows_is_refused() {
    let server = Serve::demo();
    let session = server.session("2025-06-18");
    let initialize = request(
        "initialize",
        &json!({"protocolVersion": "2025-06-18", "capabilities": {}}),
    );
    for version in [
        "1900-01-01",
        "2025-06-19",
        "",
        "latest",
        "2025-06-18, 2025-06-18",
    ] {
        let headers = [("mcp-session-id", &*session.id), (VERSION, version)];
        for (body, id) in [
            (PING, "1"),
            (&initialize, "1"),
            (INITIALIZED, ""),
            (ANSWER, ""),
        ] {
            let response = server.post(&headers, body);
            response.error(400, UNSUPPORTED_VERSION, id);
            let data = &response.json()["error"]["data"];
            assert_eq!(data["requested"], version);
            let supported = data["supported"].as_array().expect("versions");
            assert_eq!(supported.len(), 5);
            assert!(
                WITH_SESSIONS
                    .iter()
                    .all(|v| supported.contains(&Value::from(*v)))
            );
        }
    }
    let twice = [
        ("mcp-session-id", &*session.id),
        (VERSION, "2025-06-18"),
        (VERSION, "2025-06-18"),
    ];
    server
        .post(&twice, PING)
        .error(400, UNSUPPORTED_VERSION, "1");
}

#[test]
fn row_09_http_05_notifications_and_responses_of_a_session_are_accepted() {
    let server = Serve::demo();
    for revision in WITH_SESSIONS {
        let session = server.session(revision);
        session.post(INITIALIZED).accepted();
        session.post(ANSWER).accepted();
        session
            .post(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#)
            .accepted();
        session
            .post(r#"{"jsonrpc":"2.0","method":"nobody/knows"}"#)
            .accepted();
    }
    // Messages without a session, or with an ended one, are rejected.
    for body in [INITIALIZED, ANSWER] {
        server.post(&[], body).error(400, INVALID_REQUEST, "");
        server
            .post(&[(VERSION, "2025-06-18")], body)
            .error(400, INVALID_REQUEST, "");
        server
            .post(&[("mcp-session-id", "x")], body)
            .error(404, 404, "");
    }
}

#[test]
fn row_10_rpc_05_notifications_of_the_stateless_era_are_accepted_without_an_answer() {
    let server = Serve::demo();
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    server
        .post(&[(VERSION, "2026-07-28")], cancelled)
        .accepted();
    let with_meta = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "_meta": meta()},
    });
    server.post(&[], &with_meta.to_string()).accepted();
}

#[test]
fn row_11_mh_21_a_response_of_the_stateless_era_is_refused() {
    let server = Serve::demo();
    server
        .post(&[(VERSION, "2026-07-28")], ANSWER)
        .error(400, INVALID_REQUEST, "");
}

#[test]
fn era_03_both_eras_are_served_on_one_connection() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    let mut connection = server.connect();
    for _ in 0..3 {
        let answer = connection.send(session.text("ping", &json!({}))).receive();
        assert_eq!(answer.result(), json!({}));
        let answer = Stateless::new("server/discover", json!({})).send_on(&mut connection);
        assert_eq!(answer.result()["resultType"], "complete");
        // META-03: what came before on the connection tells nothing.
        connection.post(&[], PING).error(400, INVALID_REQUEST, "1");
    }
}

#[test]
fn rpc_02_and_03_ids_are_echoed_byte_for_byte() {
    let server = Serve::demo();
    let session = server.session("2025-06-18");
    let long = format!("\"{}\"", "x".repeat(1024));
    for id in [
        "0",
        "-1",
        "1.0",
        "9223372036854775807",
        "18446744073709551615",
        "-9223372036854775808",
        "\"\"",
        "\"1\"",
        r#""a\"b\\c\/dé\n""#,
        "\"\u{1f600}\"",
        &long,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        assert_eq!(session.post(&body).body, expected);
        let unknown = body.replace("ping", "pong");
        session.post(&unknown).error(200, METHOD_NOT_FOUND, id);
        server.post(&[], &body).error(400, INVALID_REQUEST, id);
    }
    let too_long = format!(
        r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#,
        "x".repeat(1025)
    );
    session.post(&too_long).error(400, INVALID_REQUEST, "");
}

#[test]
fn unknown_methods_of_a_session_are_errors_of_an_ordinary_answer() {
    let server = Serve::new().start();
    for revision in WITH_SESSIONS {
        let session = server.session(revision);
        for method in ["server/discover", "resources/list", "x"] {
            let message = session
                .request(method, &json!({}))
                .error(200, METHOD_NOT_FOUND, "1");
            assert_eq!(message, format!("Method not found: {method}"));
        }
        session
            .request("initialize", &json!({}))
            .error(200, INVALID_PARAMS, "1");
    }
}

#[test]
fn meta_09_members_that_nobody_knows_are_tolerated() {
    let server = Serve::demo();
    let call = Stateless::call("echo", json!({"message": "hi"}))
        .meta("somethingNew", json!([1, 2]))
        .meta(
            "clientCapabilities",
            json!({"roots": {"listChanged": true}, "x": {"y": 1}}),
        )
        .params(|p| p["unheardOf"] = json!({"a": []}));
    assert_eq!(call.send(&server).result()["isError"], false);
    let session = server.session("2025-06-18");
    let body = r#"{"x":[{}],"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":1},"y":2},"z":null}"#;
    assert_eq!(session.post(body).result(), json!({}));
}
