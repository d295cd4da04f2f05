//! The everything toolset: what it answers to the letter, which the conformance suite does not look at.

use serde_json::{Value, json};

use super::support::{Running, Serve, Stateless};

fn everything() -> Running {
    Serve::new().toolset("everything").start()
}

fn call(server: &Running, tool: &str, arguments: Value) -> Value {
    Stateless::call(tool, arguments).send(server).result()
}

fn text(server: &Running, tool: &str, arguments: Value) -> String {
    let result = call(server, tool, arguments);
    assert_eq!(result["isError"], false, "{result}");
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {result}"))
        .to_owned()
}

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAKAAAABkBAMAAADzmCa8AAAAJFBMVEUYIEg6NGhuRniyXHDohlz4vm7/7KoSOlweVHY8KCQeFhj///8O4UfIAAABg0lEQVR42u3WPU7EMBAFYF+BK1DSbse2iIKtEWBayA1QToC0V3ALpKFNqHw5kviHsDuZiMlLsFZ+XWLvp5mMLa1SOTk5/5EzcDKYwdMEz8HJYAbTBi/eZOBmLJfvG0k4sE4etGmD2xas0aBFgnYRsMaB22VAQc/qio61Nx8t2NCr10UXckkEOo8WR8CdBy256r3iCQQWBSOqsY492Iw3TDc9BVoMuOPAgUf0PAk2XIFEiWqs48VAy3VM9KxuiTx2kK4c+HWw+Bt8PvwtCfbRFf3+z+DnUap5oD4C57bMFygANVugZChsgUmAmutYdA65AifBfUwZM+edwjA/7yTga+xvFRD+DVMAX2LLqCkH7w40FPix4UEJE1q+R00ZDiZ/l+PdWwc8ybscLzNsyvChrHuXjSSu4wdqKRGQSSIg13I7ImMGkzJmML3uIU7Ub+v2uYO4J7b1d9k/h8XBIQhGz4SfxW0lsa1MBHSXmQbh31AE+nLXAWVDcX9EgFOGg8yxQX/Db18ds6nxKrRSAAAAAElFTkSuQmCC";

#[test]
fn contents_are_those_that_are_prescribed() {
    // PRM-04: bytes in Base64, with a media type.
    let server = everything();
    let content = |tool| call(&server, tool, json!({}))["content"].clone();
    let picture = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    assert_eq!(
        content("test_simple_text"),
        json!([{"type": "text", "text": "This is a simple text response for testing."}])
    );
    assert_eq!(content("test_image_content"), json!([picture]));
    assert_eq!(
        content("test_audio_content"),
        json!([{
            "type": "audio",
            "data": "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=",
            "mimeType": "audio/wav",
        }])
    );
    let embedded = json!({
        "uri": "test://embedded-resource", "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    });
    assert_eq!(
        content("test_embedded_resource"),
        json!([{"type": "resource", "resource": embedded}])
    );
    let mixed = json!({
        "uri": "test://mixed-content-resource", "mimeType": "application/json",
        "text": r#"{"test":"data","value":123}"#,
    });
    assert_eq!(
        content("test_multiple_content_types"),
        json!([
            {"type": "text", "text": "Multiple content types test:"},
            picture,
            {"type": "resource", "resource": mixed},
        ])
    );
    let failure = call(&server, "test_error_handling", json!({}));
    assert_eq!(failure["isError"], true);
    assert_eq!(
        failure["content"][0]["text"],
        "This tool intentionally returns an error for testing"
    );
}

#[test]
fn every_tool_can_be_seen_and_the_first_one_called_without_arguments() {
    let server = everything();
    let listed = Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let tools = listed["tools"].as_array().expect("tools");
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names[..2], ["throw_dice", "weather"]);
    let thrown = call(&server, "throw_dice", json!({}));
    assert!(thrown["content"].is_array(), "{thrown}");
    for tool in tools {
        assert!(tool["description"].is_string(), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(tool["inputSchema"]["properties"].is_object(), "{tool}");
    }
    let mirrored = tools
        .iter()
        .find(|tool| tool["inputSchema"].to_string().contains("x-mcp-header"));
    assert_eq!(mirrored.expect("one")["name"], "test_custom_header");
}

#[test]
fn sch_06_a_schema_is_served_as_it_was_written() {
    let server = everything();
    let listed = Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let tools = listed["tools"].as_array().expect("tools");
    let tool = tools
        .iter()
        .find(|tool| tool["name"] == "json_schema_2020_12_tool");
    let schema = &tool.expect("it is there")["inputSchema"];
    assert_eq!(
        schema["$schema"],
        "https://json-schema.org/draft/2020-12/schema"
    );
    assert_eq!(schema["$defs"]["address"]["$anchor"], "addressDef");
    assert_eq!(schema["then"], json!({"required": ["phone"]}));
    assert_eq!(schema["else"], json!({"required": ["email"]}));
    assert_eq!(schema["additionalProperties"], false);
    let good = json!({"name": "Ada", "contactMethod": "phone", "phone": "1"});
    assert!(
        text(&server, "json_schema_2020_12_tool", good)
            .starts_with("json_schema_2020_12_tool called")
    );
    for bad in [
        json!({}),
        json!({"contactMethod": "phone", "email": "a@example.com"}),
        json!({"email": "a@example.com", "address": {"city": 1}}),
        json!({"email": "a@example.com", "fax": "1"}),
    ] {
        let result = call(&server, "json_schema_2020_12_tool", bad.clone());
        assert_eq!(result["isError"], true, "{bad}");
    }
}

#[test]
fn resources_and_prompts_are_those_that_are_prescribed() {
    let server = everything();
    let read = |uri: &str| {
        let request = Stateless::new("resources/read", json!({"uri": uri}));
        request.send(&server).result()["contents"].clone()
    };
    assert_eq!(
        read("test://static-text"),
        json!([{
            "uri": "test://static-text", "mimeType": "text/plain",
            "text": "This is the content of the static text resource.",
        }])
    );
    assert_eq!(
        read("test://static-binary"),
        json!([{"uri": "test://static-binary", "mimeType": "image/png", "blob": PNG}])
    );
    assert_eq!(
        read("test://template/123/data"),
        json!([{
            "uri": "test://template/123/data", "mimeType": "application/json",
            "text": r#"{"id":"123","templateTest":true,"data":"Data for ID: 123"}"#,
        }])
    );
    assert_eq!(
        read("everything://documents").as_array().map(Vec::len),
        Some(3)
    );
    let get = |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        Stateless::new("prompts/get", params).send(&server).result()["messages"].clone()
    };
    assert_eq!(
        get(
            "test_prompt_with_arguments",
            json!({"arg1": "a", "arg2": "b"})
        ),
        json!([{"role": "user", "content": {
            "type": "text", "text": "Prompt with arguments: arg1='a', arg2='b'",
        }}])
    );
    let messages = get(
        "test_prompt_with_embedded_resource",
        json!({"resourceUri": "test://x"}),
    );
    assert_eq!(messages[0]["content"]["resource"]["uri"], "test://x");
    assert_eq!(
        messages[1]["content"]["text"],
        "Please process the embedded resource above."
    );
    assert_eq!(
        get("test_prompt_with_image", json!({}))[0]["content"]["data"],
        PNG
    );
}

#[test]
fn suggestions_depend_on_what_is_known_already() {
    let server = everything();
    let complete = |argument: &str, value: &str, context: Value| {
        let params = json!({
            "ref": {"type": "ref/prompt", "name": "introduce_colleague"},
            "argument": {"name": argument, "value": value},
            "context": {"arguments": context},
        });
        Stateless::new("completion/complete", params)
            .send(&server)
            .result()["completion"]["values"]
            .clone()
    };
    assert_eq!(
        complete("team", "s", json!({})),
        json!(["sales", "support"])
    );
    assert_eq!(
        complete("name", "", json!({"team": "sales"})),
        json!(["David", "Eve", "Frank"])
    );
    assert_eq!(complete("name", "g", json!({})), json!(["Grace"]));
    let params = json!({
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "test"},
    });
    let nothing = Stateless::new("completion/complete", params)
        .send(&server)
        .result();
    assert_eq!(
        nothing["completion"],
        json!({"values": [], "total": 0, "hasMore": false})
    );
}

#[test]
fn progress_is_reported_in_both_eras() {
    let server = everything();
    let session = server.session("2025-11-25");
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": 7}});
    let stateless = Stateless::new("tools/call", json!({"name": "test_tool_with_progress"}))
        .params(|params| params["_meta"]["progressToken"] = "seven".into());
    for (text, token) in [
        (session.text("tools/call", &params), json!(7)),
        (stateless.text(), json!("seven")),
    ] {
        let mut connection = server.connect();
        assert_eq!(connection.send(text).receive_head().status, 200);
        let mut found = Vec::new();
        let result = loop {
            let message = connection.event().expect("a message");
            if message.get("result").is_some() {
                break message["result"].clone();
            }
            let params = &message["params"];
            assert_eq!(
                (&params["progressToken"], &params["total"]),
                (&token, &json!(100))
            );
            found.push(params["progress"].clone());
        };
        assert_eq!(found, [0, 50, 100]);
        assert_eq!(result["content"][0]["text"], "Progress test completed");
    }
}

#[test]
fn log_02_the_level_that_was_asked_for_is_what_is_sent() {
    let server = everything();
    let quiet = Stateless::call("test_logging_tool", json!({})).send(&server);
    assert_eq!(
        quiet.result()["content"][0]["text"],
        "Logging tool completed"
    );
    for level in ["debug", "warning", "emergency"] {
        let request =
            Stateless::call("test_logging_tool", json!({})).meta("logLevel", level.into());
        let mut connection = server.connect();
        connection.send(request.text()).receive_head();
        let message = connection.event().expect("a message");
        assert_eq!(
            message["params"],
            json!({"level": level, "data": "logLevel was requested"})
        );
        assert!(
            connection
                .event()
                .expect("the answer")
                .get("result")
                .is_some()
        );
    }
    let request = Stateless::call("all_levels", json!({})).meta("logLevel", "error".into());
    let mut connection = server.connect();
    connection.send(request.text()).receive_head();
    let mut levels = Vec::new();
    loop {
        let message = connection.event().expect("a message");
        match message["params"]["level"].as_str() {
            Some(level) => levels.push(level.to_owned()),
            None => break,
        }
    }
    assert_eq!(levels, ["error", "critical", "alert", "emergency"]);
}

#[test]
fn mh_10_mirrored_arguments_of_every_type() {
    let server = everything();
    let arguments = json!({"query": "SELECT 1", "region": "eu", "priority": 3, "dry_run": true});
    let request = Stateless::call("run_query", arguments)
        .and("mcp-param-region", "eu")
        .and("mcp-param-priority", "3")
        .and("mcp-param-dry-run", "true");
    let result = request.send(&server).result();
    assert_eq!(
        result["content"][0]["text"],
        "eu would run \"SELECT 1\" in Asc order with priority 3"
    );
    let defaults = Stateless::call("run_query", json!({"query": "x"})).send(&server);
    assert_eq!(
        defaults.result()["content"][0]["text"],
        "eu-north ran \"x\" in Asc order"
    );
    let contradicting = request.with("mcp-param-priority", "4").send(&server);
    contradicting.error(400, -32020, "1");
}

// === Questions ===

/// A call of the stateless lifecycle by a client that can be asked anything.
fn asking(method: &str, params: Value) -> Stateless {
    let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    Stateless::new(method, params).meta("clientCapabilities", capabilities)
}

/// Builds the retry with answers.
fn answered(request: &Stateless, asked: &Value, answers: Value) -> Stateless {
    request.clone().params(|params| {
        params["inputResponses"] = answers;
        if !asked["requestState"].is_null() {
            params["requestState"] = asked["requestState"].clone();
        }
    })
}

fn filled_in(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

#[test]
fn mrtr_02_mrtr_03_questions_have_the_names_that_are_prescribed() {
    let server = everything();
    let call = |tool: &str| asking("tools/call", json!({"name": tool}));
    let request = call("test_input_required_result_multi_round");
    let first = request.send(&server).result();
    assert_eq!(first["resultType"], "input_required");
    assert_eq!(
        first["inputRequests"]["step1"],
        json!({"method": "elicitation/create", "params": {
            "mode": "form",
            "message": "Step 1: What is your name?",
            "requestedSchema": {
                "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
            },
        }})
    );
    let request = answered(
        &request,
        &first,
        json!({"step1": filled_in(json!({"name": "Alice"}))}),
    );
    let second = request.send(&server).result();
    assert_ne!(first["requestState"], second["requestState"]);
    assert!(second["inputRequests"]["step2"].is_object(), "{second}");
    let request = answered(
        &request,
        &second,
        json!({"step2": filled_in(json!({"color": "blue"}))}),
    );
    let done = request.send(&server).result();
    assert_eq!(done["content"][0]["text"], "Alice likes blue.");

    let request = call("test_input_required_result_multiple_inputs");
    let asked = request.send(&server).result();
    let sampled =
        json!({"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"});
    let answers = json!({
        "user_name": filled_in(json!({"name": "Alice"})),
        "greeting": sampled,
        "client_roots": {"roots": [{"uri": "file:///w"}]},
    });
    let done = answered(&request, &asked, answers).send(&server).result();
    assert_eq!(done["content"][0]["text"], "All inputs received");
}

#[test]
fn mrtr_01_mrtr_04_prompts_ask_too_and_only_for_what_is_declared() {
    let server = everything();
    let request = asking(
        "prompts/get",
        json!({"name": "test_input_required_result_prompt"}),
    );
    let asked = request.send(&server).result();
    let answers = json!({"user_context": filled_in(json!({"context": "a ship"}))});
    let done = answered(&request, &asked, answers).send(&server).result();
    assert_eq!(
        done["messages"][0]["content"]["text"],
        "Use the following context: a ship"
    );
    let tool = json!({"name": "test_input_required_result_capabilities"});
    let request =
        Stateless::new("tools/call", tool).meta("clientCapabilities", json!({"roots": {}}));
    let asked = request.send(&server).result();
    let asked: Vec<_> = asked["inputRequests"]
        .as_object()
        .expect("questions")
        .keys()
        .collect();
    assert_eq!(asked, ["client_roots"]);
}

#[test]
fn meta_04_a_tool_says_what_its_client_lacks() {
    let server = everything();
    let missing = call_without(&server);
    missing.error(400, -32021, "1");
    assert_eq!(
        missing.json()["error"]["data"],
        json!({"requiredCapabilities": {"sampling": {}}})
    );
    let session = server.session("2025-11-25");
    let failed = session.call("test_missing_capability", &json!({})).result();
    assert_eq!(failed["isError"], true);
}

fn call_without(server: &Running) -> super::support::Response {
    Stateless::call("test_missing_capability", json!({})).send(server)
}
