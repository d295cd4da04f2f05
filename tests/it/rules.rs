//! Rules of the protocol that have no other place.

use longshore::{CallContext, JsonSchema, ToolError, tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::support::{Gate, Running, Serve, Stateless};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

#[derive(Deserialize, JsonSchema)]
struct Answer {
    answer: String,
}

/// Asks a person.
#[tool]
async fn ask(context: &CallContext) -> Result<String, ToolError> {
    let given = context.elicit::<Answer>("Well?").await?;
    Ok(given.accepted().map_or_else(String::new, |g| g.answer))
}

/// Asks a person to visit a page.
#[tool]
async fn visit(context: &CallContext) -> Result<&'static str, ToolError> {
    Ok(context
        .elicit_url("Please visit it.", "https://example.com")
        .await?
        .action())
}

/// Every `_meta` in a message.
fn metas<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if name == "_meta" {
                    found.push(member);
                }
                metas(member, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| metas(item, found)),
        _ => {}
    }
}

#[test]
fn meta_08_keys_of_meta_are_the_specifications_or_have_a_prefix() {
    let server = Serve::new().toolset("everything").start();
    let answers = [
        Stateless::new("server/discover", json!({})),
        Stateless::new("tools/list", json!({})),
        Stateless::new("resources/list", json!({})),
        Stateless::call("metadata", json!({})),
    ];
    for request in answers {
        let result = request.send(&server).result();
        let mut found = Vec::new();
        metas(&result, &mut found);
        assert!(!found.is_empty(), "{}", request.method);
        for key in found
            .iter()
            .filter_map(|meta| meta.as_object())
            .flat_map(|m| m.keys())
        {
            let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
            let known = matches!(
                key.as_str(),
                "io.modelcontextprotocol/serverInfo" | "ui" | "ui/resourceUri"
            );
            // The second label of a prefix tells who it belongs to.
            let label = prefix.split('.').nth(1).unwrap_or_default();
            let ours = prefix.contains('.') && !matches!(label, "modelcontextprotocol" | "mcp");
            assert!(known || ours, "{key} in {result}");
        }
    }
}

#[test]
fn meta_03_what_one_request_declares_says_nothing_of_the_next() {
    let server = Serve::new().tool(ask).start();
    let mut connection = server.connect();
    let able =
        Stateless::call("ask", json!({})).meta("clientCapabilities", json!({"elicitation": {}}));
    let asked = able.send_on(&mut connection).result();
    assert_eq!(asked["resultType"], "input_required");
    let unable = Stateless::call("ask", json!({})).send_on(&mut connection);
    unable.error(400, -32021, "1");
}

#[test]
fn eli_01_only_declared_modes_are_used() {
    let server = Serve::new().tool(ask).tool(visit).start();
    let call = |tool: &str, capabilities: Value| {
        let request = Stateless::call(tool, json!({}));
        request
            .meta("clientCapabilities", capabilities)
            .send(&server)
    };
    // An empty object means forms.
    call("visit", json!({"elicitation": {}})).error(400, -32021, "1");
    call("visit", json!({"elicitation": {"form": {}}})).error(400, -32021, "1");
    call("ask", json!({"elicitation": {"url": {}}})).error(400, -32021, "1");
    let asked = call("visit", json!({"elicitation": {"url": {}}})).result();
    assert_eq!(asked["resultType"], "input_required");
    for revision in ["2025-06-18", "2025-11-25"] {
        let session = server.session(revision);
        for tool in ["ask", "visit"] {
            assert_eq!(session.call(tool, &json!({})).result()["isError"], true);
        }
    }
}

#[test]
fn mrtr_08_nothing_is_left_of_a_question_that_nobody_answers() {
    let server = Serve::new().tool(ask).start();
    for _ in 0..50 {
        let request = Stateless::call("ask", json!({}));
        let request = request.meta("clientCapabilities", json!({"elicitation": {}}));
        assert_eq!(
            request.send(&server).result()["resultType"],
            "input_required"
        );
    }
    // A server that stops waits for its calls, so that it would not come to an end with one of these left.
    drop(server);
}

#[test]
fn can_02_a_cancellation_that_comes_too_late_does_no_harm() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(tool).start();
    let session = server.session("2025-06-18");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    for _ in 0..3 {
        gate.open();
        let result = session.call("gate", &json!({})).result();
        assert_eq!(result["content"][0]["text"], "through");
        session.post(cancel).accepted();
    }
}

#[test]
fn can_03_a_handshake_is_not_cancelled() {
    let server = Serve::demo();
    let session = server.session("2025-03-26");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    session.post(cancel).accepted();
    assert_eq!(session.request("ping", &json!({})).result(), json!({}));
}

#[test]
fn rpc_05_notifications_are_not_answered_whatever_they_say() {
    let server = Serve::demo();
    for revision in REVISIONS {
        let session = server.session(revision);
        for method in [
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/roots/list_changed",
            "notifications/progress",
            "notifications/nobody/knows",
            "tools/list",
        ] {
            let notification = json!({"jsonrpc": "2.0", "method": method});
            session.post(&notification.to_string()).accepted();
        }
    }
}

#[test]
fn lh_10_a_version_header_that_names_nothing_is_a_bad_request() {
    let server = Serve::demo();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for revision in REVISIONS {
        let session = server.session(revision);
        for version in ["2025-06-19", "1", "", "2025-06-18, 2025-11-25"] {
            let headers = [
                ("mcp-session-id", session.id.as_str()),
                ("mcp-protocol-version", version),
            ];
            let response = server.post(&headers, ping);
            assert_eq!(response.status, 400, "{version:?}: {response:?}");
        }
    }
}

#[test]
fn ver_05_a_session_keeps_to_what_it_has_negotiated() {
    let server = Serve::demo();
    let call = json!({"name": "calculate", "arguments": {"operation": "add", "a": 1, "b": 1}});
    for revision in REVISIONS {
        let session = server.session(revision);
        let body = super::support::request("tools/call", &call);
        // The session's version counts, not the version in the header.
        for version in REVISIONS {
            let headers = [
                ("mcp-session-id", session.id.as_str()),
                ("mcp-protocol-version", version),
            ];
            let result = server.post(&headers, &body).result();
            let structured = result.get("structuredContent").is_some();
            assert_eq!(
                structured,
                revision >= "2025-06-18",
                "{revision}, {version}"
            );
        }
    }
}

#[test]
fn tool_06_a_result_that_does_not_fit_its_schema_is_not_sent() {
    let server = wrong_results();
    let call = |tool: &str| Stateless::call(tool, json!({})).send(&server);
    call("wrong").error(200, -32603, "1");
    call("missing").error(200, -32603, "1");
    let failed = call("failed").result();
    assert_eq!(failed["content"][0]["text"], "no such city");
    assert_eq!(failed["isError"], true);
    assert_eq!(call("right").result()["structuredContent"], json!({"n": 1}));
}

/// Tools by hand, whose results the server checks.
fn wrong_results() -> Running {
    let tool = |name: &str, output: Result<Value, longshore::Output>| {
        let schema = json!({
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        });
        let definition = longshore::Definition::new(name).output_schema(schema);
        ByHand { definition, output }
    };
    Serve::new()
        .tool(tool("wrong", Ok(json!({"n": "one"}))))
        .tool(tool(
            "missing",
            Err(longshore::Output::text("nothing structured")),
        ))
        .tool(tool(
            "failed",
            Err(longshore::Output::text("no such city").into_error()),
        ))
        .tool(tool("right", Ok(json!({"n": 1}))))
        .start()
}

struct ByHand {
    definition: longshore::Definition,
    output: Result<Value, longshore::Output>,
}

impl longshore::Tool for ByHand {
    fn definition(&self) -> &longshore::Definition {
        &self.definition
    }

    fn call(
        &self,
        _: std::sync::Arc<CallContext>,
        _: longshore::Arguments,
    ) -> longshore::catalog::CallFuture {
        let output = match &self.output {
            Ok(value) => longshore::Output::structured(value).map_err(ToolError::from),
            Err(plain) => Ok(plain.clone()),
        };
        Box::pin(std::future::ready(output))
    }
}
