//! Client requests of upstream servers, across lifecycles.

use serde_json::{Value, json};

use super::{behind, everything, http, listed, stdio, with_sessions};
use crate::support::{Running, Stateless, assert_contains};

/// A server of 2026-07-28 alone that asks by its result, and reads the answers in the next request.
const ASKS: &str = r#"while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *server/discover*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}' ;;
    *tools/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","tools":[{"name":"ask","inputSchema":{"type":"object"}}]}}' ;;
    *'"inputResponses":{"name":{"action":"accept","content":{"name":"Ada"}}}'*'"requestState":"kept"'*)
        echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","content":[{"type":"text","text":"Hello, Ada!"}]}}' ;;
    *'"inputResponses"'*)
        echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","content":[{"type":"text","text":"So be it."}]}}' ;;
    *tools/call*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"input_required","inputRequests":{"name":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}},"requestState":"kept"}}' ;;
    *) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
    esac
done"#;

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a text")
}

fn able(request: Stateless) -> Stateless {
    request.meta(
        "clientCapabilities",
        json!({"elicitation": {}, "sampling": {}, "roots": {}}),
    )
}

/// Calls a tool with nothing but its name and arguments, in rounds, answering each question by `answer`.
fn in_rounds(server: &Running, tool: &str, arguments: Value, answer: fn(&Value) -> Value) -> Value {
    let first = able(Stateless::call(tool, arguments));
    let mut result = first.send(server).result();
    for _ in 0..5 {
        if result["resultType"] != "input_required" {
            return result;
        }
        let questions = result["inputRequests"].as_object().expect("questions");
        let answers: serde_json::Map<_, _> = questions
            .iter()
            .map(|(name, question)| (name.clone(), answer(question)))
            .collect();
        let state = result["requestState"].clone();
        let retry = first.clone().params(|params| {
            params["inputResponses"] = answers.into();
            params["requestState"] = state;
        });
        result = retry.send(server).result();
    }
    panic!("it asks without an end: {result}");
}

/// Calls a tool within a session, and answers its first question on the stream.
fn in_a_session(server: &Running, tool: &str, arguments: Value, answer: Value) -> Value {
    let session = server.session_of(
        "2025-11-25",
        &json!({"elicitation": {}, "sampling": {}, "roots": {}}),
    );
    let mut connection = server.connect();
    let call = json!({"name": tool, "arguments": arguments});
    let head = connection
        .send(session.text("tools/call", &call))
        .receive_head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    let question = connection.event().expect("a question");
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
    session.post(&answer.to_string()).accepted();
    connection.event().expect("an answer")["result"].take()
}

#[test]
fn a_modern_client_answers_what_an_upstream_with_sessions_asks() {
    let upstream = everything();
    let server = behind([("up", with_sessions(&upstream))]).start();
    let asked = |answer| {
        let arguments = json!({"message": "Who are you?"});
        let result = in_rounds(&server, "up__test_elicitation", arguments, answer);
        text(&result).to_owned()
    };
    let said = asked(|question| {
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["message"], "Who are you?");
        let properties = &question["params"]["requestedSchema"]["properties"];
        assert!(properties.get("username").is_some(), "{question}");
        json!({"action": "accept", "content": {"username": "ada", "email": "ada@example.com"}})
    });
    assert_contains(&said, &["action=accept", "ada@example.com"]);
    let said = asked(|_| json!({"action": "decline"}));
    assert!(said.contains("action=decline"), "{said}");
}

#[test]
fn a_modern_client_samples_for_an_upstream_with_sessions() {
    let upstream = everything();
    let server = behind([("up", with_sessions(&upstream))]).start();
    let result = in_rounds(
        &server,
        "up__test_sampling",
        json!({"prompt": "Hm?"}),
        |question| {
            assert_eq!(question["method"], "sampling/createMessage");
            assert_eq!(question["params"]["messages"][0]["content"]["text"], "Hm?");
            json!({"role": "assistant", "content": {"type": "text", "text": "Aha!"}, "model": "test-model"})
        },
    );
    assert!(text(&result).contains("Aha!"), "{result}");
}

#[test]
fn a_client_with_a_session_answers_what_a_modern_upstream_asks() {
    let server = behind([("up", stdio(ASKS))]).start();
    let accepted = json!({"action": "accept", "content": {"name": "Ada"}});
    let result = in_a_session(&server, "up__ask", json!({}), accepted);
    assert_eq!(text(&result), "Hello, Ada!");
    let result = in_a_session(&server, "up__ask", json!({}), json!({"action": "cancel"}));
    assert_eq!(text(&result), "So be it.");
}

#[test]
fn an_upstream_of_both_eras_is_asked_in_the_modern_one_for_clients_of_each() {
    let upstream = everything();
    let server = behind([("up", http(&upstream))]).start();
    let ada = json!({"action": "accept", "content": {"username": "ada", "email": "a@b.example"}});
    let arguments = json!({"message": "Who?"});
    let result = in_a_session(&server, "up__test_elicitation", arguments.clone(), ada);
    assert!(text(&result).contains("action=accept"), "{result}");
    let result = in_rounds(
        &server,
        "up__test_elicitation",
        arguments,
        |_| json!({"action": "decline"}),
    );
    assert!(text(&result).contains("action=decline"), "{result}");
}

#[test]
fn each_era_is_asked_by_an_upstream_of_its_own_era() {
    let upstream = everything();
    let server = behind([
        ("legacy", with_sessions(&upstream)),
        ("modern", stdio(ASKS)),
    ])
    .start();
    let ada = json!({"action": "accept", "content": {"username": "ada", "email": "a@b.example"}});
    let arguments = json!({"message": "Who?"});
    let result = in_a_session(&server, "legacy__test_elicitation", arguments, ada);
    assert!(text(&result).contains("action=accept"), "{result}");
    let result = in_rounds(
        &server,
        "modern__ask",
        json!({}),
        |_| json!({"action": "accept", "content": {"name": "Ada"}}),
    );
    assert_eq!(text(&result), "Hello, Ada!");
}

#[test]
fn whoever_cannot_be_asked_is_not() {
    let upstream = everything();
    let server = behind([
        ("legacy", with_sessions(&upstream)),
        ("modern", stdio(ASKS)),
    ])
    .start();
    let session = server.session("2025-11-25");
    for (tool, arguments) in [
        ("legacy__test_elicitation", json!({"message": "Who?"})),
        ("modern__ask", json!({})),
    ] {
        let result = session.call(tool, &arguments).result();
        assert_eq!(result["isError"], true, "{tool}: {result}");
    }
}

/// A program that ends at the message after `server/discover`, as those of the first Python SDKs do.
const ENDS_LATE: &str = r#"while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case "$line" in
    *server/discover*) read -r line; exit 1 ;;
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"0"}}}' ;;
    *tools/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"old","inputSchema":{"type":"object"}}]}}' ;;
    esac
done"#;

#[test]
fn a_program_that_ends_at_the_message_after_the_probe_is_started_again() {
    let mut config = stdio(ENDS_LATE);
    config.connect_seconds = 3;
    let server = behind([("up", config)]).start();
    assert!(listed(&server).contains_key("up__old"));
}
