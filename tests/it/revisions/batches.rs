//! Several messages in one array, as 2025-03-26 has them.

use longshore::server::BatchPolicy;
use serde_json::{Value, json};

use super::{INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, WITH_SESSIONS};
use crate::support::{Response, Serve, meta};

fn ping(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

fn answers(response: &Response) -> Vec<Value> {
    assert_eq!(response.status, 200, "{response:?}");
    match response.json() {
        Value::Array(answers) => answers,
        other => panic!("not an array: {other}"),
    }
}

#[test]
fn rpc_06_answers_come_in_order_and_notifications_get_none() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    let slow = json!({
        "jsonrpc": "2.0", "id": "slow", "method": "tools/call",
        "params": {"name": "wait", "arguments": {"seconds": 0.05}},
    });
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let answer = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
    let body = format!(
        "[{slow},{notification},{},{answer}, {}]",
        ping("2"),
        ping("\"3\"")
    );
    let response = session.post(&body);
    let answers = answers(&response);
    let ids: Vec<_> = answers.iter().map(|a| a["id"].clone()).collect();
    assert_eq!(ids, [json!("slow"), json!(2), json!("3")]);
    assert_eq!(
        answers[0]["result"]["content"][0]["text"],
        "waited for 0.05 s"
    );
    assert_eq!(answers[2]["result"], json!({}));
}

#[test]
fn rpc_06_an_array_that_wants_no_answer_is_accepted() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    session
        .post(r#"[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":1,"result":{}}]"#)
        .accepted();
}

#[test]
fn rpc_06_a_member_that_is_wrong_spoils_no_other() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    let body = format!(
        r#"[1, {{}}, {}, {{"jsonrpc":"2.0","id":3,"method":"x"}}, [{}], {{"jsonrpc":"2.0","id":null,"method":"ping"}},
            {{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{{"name":"nothing"}}}}]"#,
        ping("2"),
        ping("5"),
    );
    let answers = answers(&session.post(&body));
    let codes: Vec<_> = answers
        .iter()
        .map(|a| a["error"]["code"].as_i64())
        .collect();
    let invalid = Some(INVALID_REQUEST);
    assert_eq!(
        codes,
        [
            invalid,
            invalid,
            None,
            Some(METHOD_NOT_FOUND),
            invalid,
            invalid,
            Some(INVALID_PARAMS)
        ]
    );
    assert!(answers[0].get("id").is_none());
    assert_eq!(answers[6]["id"], 4);
}

#[test]
fn rpc_07_initialize_is_not_accepted_in_an_array() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-03-26", "capabilities": {}},
    });
    let response = session.post(&format!("[{initialize},{}]", ping("2")));
    assert_eq!(response.header("mcp-session-id"), None);
    let answers = answers(&response);
    assert_eq!(answers[0]["error"]["code"], INVALID_REQUEST);
    assert_eq!(answers[1]["result"], json!({}));
    // Before there is a session, neither.
    server
        .post(&[], &format!("[{initialize}]"))
        .error(400, INVALID_REQUEST, "");
}

#[test]
fn a_request_of_the_stateless_era_is_not_accepted_in_an_array() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    let list =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta()}});
    let answers = answers(&session.post(&format!("[{list}]")));
    assert_eq!(answers[0]["error"]["code"], INVALID_REQUEST);
}

#[test]
fn an_array_has_from_one_to_fifty_members() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    let of = |count: usize| format!("[{}]", vec![ping("1"); count].join(","));
    session.post(&of(0)).error(400, INVALID_REQUEST, "");
    assert_eq!(answers(&session.post(&of(50))).len(), 50);
    session.post(&of(51)).error(400, INVALID_REQUEST, "");
}

#[test]
fn rpc_08_batches_can_be_had_always_or_never() {
    let always = Serve::new().batch(BatchPolicy::Always).start();
    let never = Serve::new().batch(BatchPolicy::Never).start();
    let body = format!("[{}]", ping("1"));
    for revision in WITH_SESSIONS {
        assert_eq!(answers(&always.session(revision).post(&body)).len(), 1);
        never
            .session(revision)
            .post(&body)
            .error(400, INVALID_REQUEST, "");
    }
    // An array without a caller still belongs to none, and the stateless lifecycle has no arrays.
    always.post(&[], &body).error(400, INVALID_REQUEST, "");
    always
        .post(&[("mcp-protocol-version", "2026-07-28")], &body)
        .error(400, INVALID_REQUEST, "");
}
