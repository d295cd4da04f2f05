//! Requests for something of an upstream server that is still starting.

use std::path::Path;

use serde_json::{Value, json};

use super::{behind, stdio};
use crate::support::{Connection, Response, Running, Serve, Stateless, becomes, post, request};

/// A program that responds only after it is told to.
pub(crate) fn late(folder: &Path) -> String {
    let capabilities = r#"{"tools":{},"resources":{},"prompts":{}}"#;
    let tools =
        r#"[{"name":"echo","inputSchema":{"type":"object","properties":{"pin":{"type":"string","writeOnly":true}}},"execution":{"taskSupport":"optional"}},
        {"name":"hidden","inputSchema":{"type":"object"}}]"#
            .replace('\n', "");
    format!(
        r#"while [ ! -e {folder}/go ]; do sleep 0.02; done
        [ -e {folder}/down ] && exit 1
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            answer() {{ echo '{{"jsonrpc":"2.0","id":'$id',"result":'"$1"'}}'; }}
            case "$line" in
            *server/discover*) echo '{{"jsonrpc":"2.0","id":'$id',"error":{{"code":-32601,"message":"no"}}}}' ;;
            *'"initialize"'*) answer '{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"serverInfo":{{"name":"x","version":"0"}}}}' ;;
            *tools/list*) answer '{{"tools":{tools}}}' ;;
            *prompts/list*) answer '{{"prompts":[{{"name":"greet"}}]}}' ;;
            *resources/templates/list*) answer '{{"resourceTemplates":[]}}' ;;
            *resources/list*) answer '{{"resources":[{{"uri":"test://one","name":"one"}}]}}' ;;
            *tools/call*) answer '{{"content":[{{"type":"text","text":"called"}}]}}' ;;
            *prompts/get*) answer '{{"messages":[{{"role":"user","content":{{"type":"text","text":"hello"}}}}]}}' ;;
            *resources/read*) answer '{{"contents":[{{"uri":"test://one","text":"one"}}]}}' ;;
            esac
        done"#,
        folder = folder.display()
    )
}

/// A server in front of such a program.
struct Starting {
    folder: tempfile::TempDir,
    server: Running,
}

impl Starting {
    fn new(change: impl FnOnce(Serve) -> Serve) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let serve = behind([("up", stdio(&late(folder.path())))])
            .configured(|c| c.upstreams_wait_seconds = Some(0))
            .admin();
        let server = change(serve).start();
        Self { folder, server }
    }

    /// Sends a request, and waits until this many are in progress.
    fn send(&self, text: impl AsRef<[u8]>, waiting: usize) -> Connection {
        let mut connection = self.server.connect();
        connection.send(text);
        self.wait(waiting);
        connection
    }

    /// Waits until this many requests are in progress.
    fn wait(&self, waiting: usize) {
        let line = format!("mcp_inflight_requests {waiting}");
        becomes(|| self.metrics().lines().any(|found| found == line));
    }

    fn metrics(&self) -> String {
        self.server.admin_page("/metrics").body
    }

    /// Makes the program respond.
    fn go(&self) {
        std::fs::write(self.folder.path().join("go"), "").expect("written");
    }

    /// Makes the program exit without a response.
    fn fail(&self) {
        std::fs::write(self.folder.path().join("down"), "").expect("written");
        self.go();
    }
}

fn called(response: &Response) {
    let result = response.result();
    assert_eq!(result["content"][0]["text"], "called", "{result}");
}

fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"a": [1]}})
}

#[test]
fn the_capabilities_of_a_session_include_what_a_starting_upstream_may_have() {
    let starting = Starting::new(|serve| serve);
    let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let capabilities = || {
        let response = starting
            .server
            .post(&[], &request("initialize", &initialize));
        response.result()["capabilities"].take()
    };
    let at_start = capabilities();
    assert!(at_start["prompts"].is_object(), "{at_start}");
    assert!(at_start["resources"].is_object(), "{at_start}");
    let session = starting.server.session("2025-11-25");
    let prompts = || session.request("prompts/list", &json!({})).result()["prompts"].take();
    assert_eq!(prompts(), json!([]));
    starting.go();
    becomes(|| prompts()[0]["name"] == "up__greet");
}

#[test]
fn a_call_waits_for_an_upstream_that_is_starting_in_both_lifecycles() {
    let starting = Starting::new(|serve| serve);
    let session = starting.server.session("2025-11-25");
    let mut first = starting.send(session.text("tools/call", &call("up__echo")), 1);
    let stateless = Stateless::call("up__echo", json!({})).text();
    let mut second = starting.send(stateless, 2);
    starting.go();
    called(&first.receive());
    called(&second.receive());
    // The calls are counted as calls of the tool, and none as one of an unknown name.
    starting.wait(0);
    let metrics = starting.metrics();
    let counted = |tool: &str| {
        let label = format!("gen_ai_tool_name=\"{tool}\"");
        metrics
            .lines()
            .any(|line| line.contains("operation_duration") && line.contains(&label))
    };
    assert!(counted("up__echo") && !counted("_OTHER"), "{metrics}");
}

#[test]
fn resources_and_prompts_wait_too() {
    let starting = Starting::new(|serve| serve);
    let session = starting.server.session("2025-11-25");
    let uri = json!({"uri": "test://one"});
    let name = json!({"name": "up__greet"});
    let mut read = starting.send(session.text("resources/read", &uri), 1);
    let mut get = starting.send(session.text("prompts/get", &name), 2);
    starting.go();
    assert_eq!(read.receive().result()["contents"][0]["text"], "one");
    let prompt = get.receive().result();
    assert_eq!(prompt["messages"][0]["content"]["text"], "hello");
}

#[test]
fn a_call_waits_by_every_way_that_leads_to_a_tool() {
    let starting = Starting::new(|serve| {
        serve
            .toolset("demo")
            .configured(|c| c.server.search.above = Some(0))
    });
    let session = starting.server.session("2025-11-25");
    let by_search =
        json!({"name": "call_tool", "arguments": {"name": "up__echo", "arguments": {}}});
    let mut by_search = starting.send(session.text("tools/call", &by_search), 1);
    let headers = [("mcp-session-id", ""); 0];
    let body = r#"{"a": 1}"#;
    let text = post(&headers, body).replace("POST /mcp ", "POST /tools/up__echo ");
    let mut by_rest = starting.send(text, 2);
    let mut as_task = call("up__echo");
    as_task["task"] = json!({});
    let mut as_task = starting.send(session.text("tools/call", &as_task), 3);
    starting.go();
    called(&by_search.receive());
    let rest = by_rest.receive();
    assert_eq!(rest.status, 200, "{rest:?}");
    assert!(rest.body.contains("called"), "{rest:?}");
    let created = as_task.receive().result();
    let task = json!({"taskId": created["task"]["taskId"]});
    let result = session.request("tasks/result", &task).result();
    assert_eq!(result["content"][0]["text"], "called", "{result}");
}

#[test]
fn a_name_that_no_upstream_can_have_is_unknown_at_once() {
    let starting = Starting::new(|serve| serve);
    let session = starting.server.session("2025-11-25");
    let message = session.call("echo", &json!({})).error(200, -32602, "1");
    assert_eq!(message, "Unknown tool: echo");
    let message = session
        .request("prompts/get", &json!({"name": "greet"}))
        .error(200, -32602, "1");
    assert_eq!(message, "Unknown prompt: greet");
}

#[test]
fn what_a_rule_hides_is_answered_like_what_is_not_there() {
    let starting = Starting::new(|serve| {
        serve.configured(|c| {
            c.policy = serde_json::from_value(json!({
                "rules": [{"effect": "deny", "tools": ["up__hidden"]}]
            }))
            .expect("valid");
        })
    });
    let session = starting.server.session("2025-11-25");
    let names = ["up__hidden", "up__absent"];
    let mut waiting = 0;
    let connections = names.map(|name| {
        waiting += 1;
        starting.send(session.text("tools/call", &call(name)), waiting)
    });
    starting.go();
    let messages = connections.map(|mut connection| connection.receive().error(200, -32602, "1"));
    assert_eq!(messages, names.map(|name| format!("Unknown tool: {name}")));
    called(&session.call("up__echo", &json!({})));
}

#[test]
fn an_upstream_that_takes_too_long_is_named_to_those_who_may_see_its_tools() {
    let serve = |serve: Serve| serve.configured(|c| c.server.call_timeout_seconds = 1);
    let started =
        "upstream `up` is still starting, and its items are not known yet; try again in 5 s";
    for (rule, tool, expected) in [
        (None, "up__echo", Ok(started)),
        // A rule for one name does not tell it from others that are not there.
        (
            Some(json!({"effect": "deny", "tools": ["up__hidden"]})),
            "up__hidden",
            Ok(started),
        ),
        (
            Some(json!({"effect": "allow", "tools": ["up__echo"]})),
            "up__echo",
            Ok(started),
        ),
        (
            Some(json!({"effect": "allow", "tools": ["up__echo"]})),
            "up__hidden",
            Err("Unknown tool: up__hidden"),
        ),
    ] {
        let starting = Starting::new(|s| {
            serve(s).configured(|c| {
                c.policy =
                    serde_json::from_value(json!({"rules": rule.as_slice()})).expect("valid");
            })
        });
        let session = starting.server.session("2025-11-25");
        let response = session.call(tool, &json!({}));
        match expected {
            Ok(message) => {
                assert_eq!(response.error(200, 503, "1"), message, "{rule:?}");
                assert_eq!(response.json()["error"]["data"]["retryAfterMs"], 5000);
            }
            Err(message) => assert_eq!(response.error(200, -32602, "1"), message, "{rule:?}"),
        }
    }
}

#[test]
fn a_call_that_waits_is_recorded_once_and_as_its_tool_says() {
    let records = tempfile::tempdir().expect("a folder");
    let file = records.path().join("audit.jsonl");
    let starting = Starting::new(|serve| {
        serve.configured(|c| {
            c.audit.file = Some(file.clone());
            c.audit.arguments = true;
            c.policy = serde_json::from_value(json!({
                "rules": [{"name": "all", "effect": "allow", "tools": ["*"]}]
            }))
            .expect("valid");
        })
    });
    // The schema is unknown, and so the secret argument.
    let given_up = Stateless::call("up__echo", json!({"pin": "canary"})).text();
    drop(starting.send(given_up, 1));
    starting.wait(0);
    let session = starting.server.session("2025-11-25");
    let params = json!({"name": "up__echo", "arguments": {"pin": "canary"}});
    let mut waits = starting.send(session.text("tools/call", &params), 1);
    starting.go();
    called(&waits.receive());
    let Starting { server, .. } = starting;
    drop(server);
    let text = std::fs::read_to_string(file).expect("a file");
    let records = text.lines().map(serde_json::from_str::<Value>);
    let records = records.map(|record| record.expect("an object"));
    let calls: Vec<Value> = records.filter(|record| record["event"] == "call").collect();
    assert!(!text.contains("canary"), "{text}");
    let [given_up, call] = &*calls else {
        panic!("one record of each call: {text}");
    };
    assert_eq!(given_up["outcome"], "cancelled", "{given_up}");
    for (member, value) in [
        ("outcome", json!("ok")),
        ("tool", json!("up__echo")),
        ("rule", json!("all")),
        ("arguments", json!({"pin": "[redacted]"})),
    ] {
        assert_eq!(call[member], value, "{member} of {call}");
    }
}

#[test]
fn a_call_of_an_upstream_that_fails_to_start_is_one_of_an_unknown_tool() {
    let starting = Starting::new(|serve| serve);
    let session = starting.server.session("2025-11-25");
    let mut waits = starting.send(session.text("tools/call", &call("up__echo")), 1);
    starting.fail();
    let message = waits.receive().error(200, -32602, "1");
    assert_eq!(message, "Unknown tool: up__echo");
    // From now on it is answered at once.
    session.call("up__echo", &json!({})).error(200, -32602, "1");
}

#[test]
fn can_01_a_call_that_waits_is_cancelled_and_ends_with_its_client() {
    let starting = Starting::new(|serve| serve);
    let session = starting.server.session("2025-11-25");
    let waits = starting.send(session.text("tools/call", &call("up__echo")), 1);
    let cancelled = request("notifications/cancelled", &json!({"requestId": 1}));
    session.post(&cancelled.replace("\"id\":1,", "")).accepted();
    starting.wait(0);
    drop(waits);
    // Without a session there is no retry (MH-16).
    let waits = starting.send(Stateless::call("up__echo", json!({})).text(), 1);
    drop(waits);
    starting.wait(0);
}

#[test]
fn one_caller_has_only_so_many_calls_that_wait() {
    let starting = Starting::new(|serve| serve.configured(|c| c.server.messages.batch = 100));
    let session = starting.server.session("2025-03-26");
    let each = |id: usize| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call("up__echo")});
    let calls: Vec<Value> = (1..=65).map(each).collect();
    let text = post(&session.headers(), &Value::from(calls).to_string());
    let mut batch = starting.send(text, 64);
    starting.go();
    let answers = batch.receive().json();
    let answers = answers.as_array().expect("answers");
    let (last, others) = answers.split_last().expect("answers");
    assert_eq!(others.len(), 64);
    for answer in others {
        assert_eq!(answer["result"]["content"][0]["text"], "called", "{answer}");
    }
    assert_eq!(last["error"]["code"], 503, "{last}");
    assert_eq!(
        last["error"]["message"],
        "too many requests wait for upstreams that are still starting; try again in 5 s"
    );
}
