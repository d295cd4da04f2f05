//! Many tools behind three.

use std::sync::Arc;

use longshore::{CallContext, Definition, ToolError, tool_fn};
use serde_json::{Map, Value, json};

use crate::support::{Running, Serve, Stateless};

/// Many tools, of which each says what it was called with.
fn many(serve: Serve) -> Serve {
    let tools = [
        ("weather_forecast", "What the weather will be at a place."),
        ("send_mail", "Sends a message to a person."),
        ("list_files", "Lists the files in a folder."),
        ("read_file", "Reads a file."),
        ("delete_file", "Deletes a file for good."),
    ];
    tools.into_iter().fold(serve, |serve, (name, text)| {
        let schema = json!({
            "type": "object",
            "properties": {"place": {"type": "string"}},
            "required": ["place"],
        });
        let definition = Definition::new(name).description(text).input_schema(schema);
        serve.tool(tool_fn(
            definition,
            move |_: Arc<CallContext>, arguments: Map<String, Value>| async move {
                Ok::<_, ToolError>(format!("{name} {}", Value::from(arguments)))
            },
        ))
    })
}

fn searched() -> Serve {
    many(Serve::new()).configured(|c| c.server.search.above = Some(4))
}

fn call(server: &Running, name: &str, arguments: Value) -> Value {
    let result = server.session("2025-11-25").call(name, &arguments).result();
    assert_eq!(result["isError"], false, "{result}");
    result
}

fn found(server: &Running, query: &str) -> Vec<String> {
    let result = call(server, "search_tools", json!({"query": query}));
    let tools = result["structuredContent"]["tools"]
        .as_array()
        .expect("tools");
    tools
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn beyond_a_number_the_list_has_three_tools_that_lead_to_all_others() {
    let server = searched().start();
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let list = server
            .session(revision)
            .request("tools/list", &json!({}))
            .result();
        let names: Vec<_> = list["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|tool| tool["name"].clone())
            .collect();
        assert_eq!(names, ["search_tools", "describe_tool", "call_tool"]);
    }
    assert_eq!(found(&server, "Weather?"), ["weather_forecast"]);
    assert_eq!(
        found(&server, "files"),
        ["read_file", "delete_file", "list_files"]
    );
    let described = call(&server, "describe_tool", json!({"name": "read_file"}));
    let described = &described["structuredContent"];
    assert_eq!(described["inputSchema"]["required"], json!(["place"]));
    let arguments = json!({"name": "read_file", "arguments": {"place": "a \"b\" \u{e9}"}});
    let called = call(&server, "call_tool", arguments);
    assert_eq!(
        called["content"][0]["text"],
        "read_file {\"place\":\"a \\\"b\\\" \u{e9}\"}"
    );
    // A caller that knows a tool calls it by its name.
    let called = call(&server, "send_mail", json!({"place": "x"}));
    assert_eq!(called["content"][0]["text"], "send_mail {\"place\":\"x\"}");
    // And without a session.
    let arguments = json!({"name": "send_mail", "arguments": {"place": "y"}});
    let called = Stateless::call("call_tool", arguments)
        .send(&server)
        .result();
    assert_eq!(called["content"][0]["text"], "send_mail {\"place\":\"y\"}");
    assert_eq!(called["resultType"], "complete");
}

#[test]
fn up_to_that_number_the_list_is_as_ever() {
    let server = many(Serve::new())
        .configured(|c| c.server.search.above = Some(5))
        .start();
    let session = server.session("2025-11-25");
    let list = session.request("tools/list", &json!({})).result();
    assert_eq!(list["tools"].as_array().map(Vec::len), Some(5));
    let refused = session.call("search_tools", &json!({"query": "x"}));
    let message = refused.error(200, -32602, "1");
    assert!(message.starts_with("Unknown tool"), "{message}");
}

#[test]
fn what_is_wrong_with_a_call_is_told_as_if_it_were_direct() {
    let server = searched().start();
    let session = server.session("2025-11-25");
    let told = |verb: &str, arguments: Value| {
        let result = session.call(verb, &arguments).result();
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    let invalid = told("call_tool", json!({"name": "read_file", "arguments": {}}));
    assert!(
        invalid.starts_with("Invalid arguments for tool read_file"),
        "{invalid}"
    );
    for (arguments, problem) in [
        (
            json!({"words": "x"}),
            "unknown field `words`, expected `query` or `limit`",
        ),
        (
            json!({"query": "x", "limit": -1}),
            "invalid value: integer `-1`, expected an integer that is not negative",
        ),
    ] {
        assert_eq!(
            told("search_tools", arguments),
            format!("Invalid arguments for tool search_tools: {problem}")
        );
    }
    assert_eq!(
        told("describe_tool", json!({"name": "nothing"})),
        "Unknown tool: nothing; find one with search_tools"
    );
    let unknown = session.call("call_tool", &json!({"name": "raed_file"}));
    let message = unknown.error(200, -32602, "1");
    assert_eq!(message, "Unknown tool: raed_file; did you mean read_file?");
    let itself = session.call("call_tool", &json!({"name": "call_tool", "arguments": {}}));
    itself.error(200, -32602, "1");
    // An array is not an object, whatever its items are.
    for (verb, arguments) in [
        ("search_tools", json!(["files"])),
        ("describe_tool", json!(["read_file"])),
        ("call_tool", json!(["read_file", {"place": "here"}])),
        ("call_tool", json!("read_file")),
    ] {
        let answer = session.call(verb, &arguments);
        let message = answer.error(200, -32602, "1");
        assert_eq!(message, "Invalid params: arguments is an object");
    }
}

#[test]
fn what_a_caller_does_not_see_is_not_found_and_few_are_listed() {
    let server = searched()
        .configured(|c| {
            crate::auth::with_keys(c);
            c.policy = serde_json::from_value(json!({"rules": [
                {"effect": "deny", "name": "no files", "principals": ["key:bob"], "tools": ["*_file"]},
                {"effect": "deny", "name": "no end", "principals": ["key:ci"], "tools": ["delete_file"]},
            ]}))
            .expect("valid");
            c.server.search.above = Some(3);
        })
        .start();
    let of = |key: &str, request: Stateless| {
        request
            .and("authorization", &crate::auth::bearer(key))
            .send(&server)
    };
    let (ci, bob) = (crate::auth::CI, crate::auth::BOB);
    let list = |key| of(key, Stateless::new("tools/list", json!({}))).result();
    assert_eq!(list(ci)["tools"][0]["name"], "search_tools");
    assert_eq!(list(bob)["tools"][0]["name"], "weather_forecast");
    let search = Stateless::call("search_tools", json!({"query": "file"}));
    let result = of(ci, search).result();
    assert_eq!(result["structuredContent"]["found"], 2);
    let delete = json!({"name": "delete_file", "arguments": {"place": "x"}});
    let refused = of(ci, Stateless::call("call_tool", delete));
    let message = refused.error(200, -32602, "1");
    assert!(
        message.starts_with("Unknown tool: delete_file"),
        "{message}"
    );
    let describe = Stateless::call("describe_tool", json!({"name": "delete_file"}));
    assert_eq!(of(ci, describe).result()["isError"], true);
}

#[test]
fn a_tool_of_such_a_name_is_refused_at_start() {
    let mut config = longshore::Config::default();
    config.http.port = 0;
    config.server.search.above = Some(1);
    let tool = tool_fn(
        Definition::new("call_tool"),
        |_: Arc<CallContext>, _: Map<String, Value>| async move { Ok::<_, ToolError>("x") },
    );
    let refused = crate::support::bind(longshore::App::new().tool(tool).config(config));
    assert_eq!(
        refused.expect_err("refused").to_string(),
        "tool \"call_tool\" was added twice; rename one of them"
    );
}

#[test]
fn each_endpoint_has_a_number_of_its_own() {
    let server = many(Serve::new())
        .configured(|c| {
            let config = json!({"tools": ["*"], "search_above": 2});
            let endpoint = serde_json::from_value(config).expect("valid");
            c.endpoints.insert("searched".to_owned(), endpoint);
        })
        .start();
    for (path, first) in [
        ("/mcp", "weather_forecast"),
        ("/mcp/searched", "search_tools"),
    ] {
        let list = Stateless::new("tools/list", json!({})).text();
        let list = list.replacen("POST /mcp ", &format!("POST {path} "), 1);
        let list = server.connect().send(list).receive().result();
        assert_eq!(list["tools"][0]["name"], first, "{path}");
    }
}
