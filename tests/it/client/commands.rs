//! `longshore list` and `call` at a server of 2026-07-28.

use serde_json::Value;

use super::*;
use crate::support::{self, Asked, Site, Told, longshore};

/// A server with a tool whose argument is mirrored, one that breaks the rules for that, and one that asks.
fn shop() -> Site {
    Site::start(|_, asked: &Asked| {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let tool = |name: &str, properties: Value| json!({"name": name, "inputSchema": {"type": "object", "properties": properties}});
        let result = match message["method"].as_str().unwrap_or_default() {
            "server/discover" => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
            }
            "tools/list" => json!({"tools": [
                tool("buy", json!({"region": {"type": "string", "x-mcp-header": "Region"}})),
                tool("bad", json!({"region": {"type": "number", "x-mcp-header": "Region"}})),
                tool("ask", json!({})),
            ]}),
            _ if message["params"]["name"] == "ask"
                && message["params"]["inputResponses"].is_null() =>
            {
                json!({"resultType": "input_required", "requestState": "kept", "inputRequests": {"q": {
                    "method": "elicitation/create",
                    "params": {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {
                        "size": {"type": "integer", "default": 7},
                        "name": {"type": "string"},
                    }}},
                }}})
            }
            _ => {
                let said = json!({
                    "header": asked.headers.get("mcp-param-region"),
                    "answers": message["params"]["inputResponses"],
                    "state": message["params"]["requestState"],
                });
                json!({"resultType": "complete", "content": [{"type": "text", "text": said.to_string()}]})
            }
        };
        Told::json(
            200,
            json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
        )
    })
}

fn run(arguments: &[&str]) -> (bool, String, String) {
    let (code, stdout, stderr) = support::run(&mut longshore(arguments, &[]));
    (code == Some(0), stdout, stderr)
}

fn said(out: &str) -> Value {
    let result: Value = serde_json::from_str(out).expect("JSON");
    let text = result["content"][0]["text"].as_str().expect("a text");
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn mh_10_a_call_repeats_arguments_in_headers_where_the_tool_wants_that() {
    let url = format!("{}/mcp", shop().url);
    let (done, out, _) = run(&["call", &url, "buy", "region=Øst"]);
    assert!(done);
    assert_eq!(said(&out)["header"], "=?base64?w5hzdA==?=");
    let (done, out, _) = run(&["call", &url, "buy", "region=north"]);
    assert!(done);
    assert_eq!(said(&out)["header"], "north");
}

#[test]
fn mh_19_tools_that_break_the_rules_for_headers_are_left_out() {
    let url = format!("{}/mcp", shop().url);
    let (done, out, told) = run(&["list", &url]);
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let tools = all["tools"].as_array().expect("tools");
    assert!(done);
    assert_eq!(tools.len(), 2, "{out}");
    assert!(told.contains("left out: the tool \"bad\""), "{told}");
    let (done, _, told) = run(&["call", &url, "bad", "region=1"]);
    assert!(!done && told.contains("x-mcp-header"), "{told}");
}

#[test]
fn a_form_is_answered_as_the_command_says() {
    let url = format!("{}/mcp", shop().url);
    let (done, _, told) = run(&["call", &url, "ask"]);
    assert!(!done && told.contains("no client can be asked"), "{told}");
    let (done, out, _) = run(&["call", &url, "ask", "--answer", "accept-defaults"]);
    assert!(done);
    let answers = json!({"q": {"action": "accept", "content": {"size": 7}}});
    assert_eq!(said(&out)["answers"], answers);
    assert_eq!(said(&out)["state"], "kept");
    let (_, out, _) = run(&["call", &url, "ask", "--answer", "decline"]);
    assert_eq!(said(&out)["answers"], json!({"q": {"action": "decline"}}));
}

#[test]
fn json_that_is_not_the_response_ends_the_wait_for_it() {
    let site =
        Site::start(|_, _| Told::json(200, json!({"jsonrpc": "2.0", "method": "notifications/x"})));
    let url = format!("{}/mcp", site.url);
    let (done, _, told) = run(&["list", &url, "--timeout", "20"]);
    assert!(!done && told.contains("is not the response"), "{told}");
}

#[test]
fn shells_complete_what_the_server_offers() {
    let shop = shop();
    let completed = |words: &[&str]| {
        let mut arguments = vec!["--", "longshore"];
        arguments.extend(words);
        let index = words.len().to_string();
        let variables = [
            ("_LONGSHORE_COMPLETE", "bash"),
            ("_CLAP_COMPLETE_INDEX", &*index),
            ("_CLAP_IFS", " "),
        ];
        let (code, stdout, stderr) = support::run(&mut longshore(&arguments, &variables));
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        stdout
    };
    let url = format!("{}/mcp", shop.url);
    assert!(completed(&["call", &url, ""]).starts_with("buy bad ask --config"));
    assert_eq!(completed(&["run", "--toolset", "files"]), "filesystem");
    assert_eq!(completed(&["call", &url, "b"]), "buy bad");
    assert_eq!(completed(&["call", &url, "buy", "re"]), "region=");
    assert_eq!(completed(&["cal"]), "call");
    // As bash splits it.
    let (scheme, rest) = url.split_once(':').expect("a URL");
    assert_eq!(completed(&["call", scheme, ":", rest, "as"]), "ask");

    assert_eq!(completed(&["call", "http://127.0.0.1:9/mcp", "b"]), "");
}
