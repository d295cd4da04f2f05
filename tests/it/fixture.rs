//! The everything toolset in the parts of it that servers are tested by: names, texts and schemas to the letter.

use serde_json::{Value, json};

use crate::support::{Connection, Running, Serve, Session, Stateless};

fn everything() -> Running {
    Serve::new().toolset("everything").start()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {result}"))
}

fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// Calls a tool within a session, answers the one thing that it asks, and returns what it asked and its text.
fn asked(
    server: &Running,
    session: &Session<'_>,
    tool: &str,
    arguments: Value,
    answer: Value,
) -> (Value, String) {
    let mut connection = server.connect();
    let params = json!({"name": tool, "arguments": arguments});
    connection.send(session.text("tools/call", &params));
    assert_eq!(connection.receive_head().status, 200);
    let mut question = next(&mut connection);
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
    session.post(&answer.to_string()).accepted();
    let result = next(&mut connection);
    let asked = json!({"method": question["method"], "params": question["params"].take()});
    (asked, text(&result["result"]).to_owned())
}

fn next(connection: &mut Connection) -> Value {
    connection.event().expect("a message")
}

#[test]
fn what_is_announced_is_what_there_is() {
    let server = everything();
    let offers = json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "prompts": {"listChanged": true},
        "logging": {},
        "completions": {},
    });
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = server.session(revision);
        for (name, settings) in offers.as_object().expect("an object") {
            let announced = &session.initialized["capabilities"][name];
            assert_eq!(announced, settings, "{revision} {name}");
        }
        assert_eq!(session.request("ping", &json!({})).result(), json!({}));
        let level = json!({"level": "debug"});
        let set = session.request("logging/setLevel", &level).result();
        assert_eq!(set, json!({}));
        for method in ["resources/subscribe", "resources/unsubscribe"] {
            let watched = json!({"uri": "test://watched-resource"});
            assert_eq!(session.request(method, &watched).result(), json!({}));
        }
    }
    let discovered = Stateless::new("server/discover", json!({}))
        .send(&server)
        .result();
    assert!(
        discovered["supportedVersions"]
            .as_array()
            .expect("a list")
            .contains(&json!("2026-07-28"))
    );
    for (name, settings) in offers.as_object().expect("an object") {
        assert_eq!(&discovered["capabilities"][name], settings, "{name}");
    }
    let extensions = &discovered["capabilities"]["extensions"];
    assert_eq!(extensions["io.modelcontextprotocol/tasks"], json!({}));
    assert!(discovered["capabilities"].get("tasks").is_none());
}

#[test]
fn the_first_of_each_list_are_those_that_are_called() {
    let server = everything();
    let list = |method: &str, member: &str| {
        let listed = Stateless::new(method, json!({})).send(&server).result();
        listed[member].as_array().expect("a list").clone()
    };
    let tools = list("tools/list", "tools");
    // The tool has no required arguments.
    assert_eq!(tools[0]["inputSchema"].get("required"), None);
    assert!(
        tools
            .iter()
            .all(|tool| !tool["description"].as_str().unwrap_or_default().is_empty())
    );
    let mirrored = |tool: &&Value| tool["inputSchema"].to_string().contains("x-mcp-header");
    let first = tools.iter().find(mirrored).expect("one that is mirrored");
    assert_eq!(first["name"], "test_custom_header");
    assert_eq!(
        first["inputSchema"]["properties"]["value"]["type"],
        "string"
    );
    assert_eq!(
        first["inputSchema"]["properties"]["value"]["x-mcp-header"],
        "Value"
    );
    assert_eq!(first["inputSchema"]["required"], json!(["value"]));
    let resources = list("resources/list", "resources");
    let named = |uri: &str| {
        let found = resources.iter().find(|resource| resource["uri"] == uri);
        let found = found.unwrap_or_else(|| panic!("{uri} is not listed"));
        assert!(found["description"].is_string(), "{uri}");
        (found["name"].clone(), found["mimeType"].clone())
    };
    assert_eq!(resources[0]["uri"], "test://static-text");
    for (uri, name, media_type) in [
        ("test://static-text", "Static Text Resource", "text/plain"),
        (
            "test://static-binary",
            "Static Binary Resource",
            "image/png",
        ),
        ("test://watched-resource", "Watched Resource", "text/plain"),
    ] {
        assert_eq!(named(uri), (json!(name), json!(media_type)));
    }
    let templates = list("resources/templates/list", "resourceTemplates");
    let template = templates
        .iter()
        .find(|template| template["uriTemplate"] == "test://template/{id}/data")
        .expect("the template");
    assert_eq!(
        (&template["name"], &template["mimeType"]),
        (&json!("Resource Template"), &json!("application/json"))
    );
    let prompts = list("prompts/list", "prompts");
    for prompt in [
        "test_simple_prompt",
        "test_prompt_with_arguments",
        "test_prompt_with_embedded_resource",
        "test_prompt_with_image",
        "test_input_required_result_prompt",
    ] {
        let found = prompts.iter().find(|known| known["name"] == prompt);
        let found = found.unwrap_or_else(|| panic!("{prompt} is not listed"));
        assert!(found["description"].is_string(), "{prompt}");
    }
    let watched = Stateless::new("resources/read", json!({"uri": "test://watched-resource"}))
        .send(&server)
        .result();
    assert!(
        watched["contents"][0]["text"]
            .as_str()
            .expect("a text")
            .starts_with("Watched resource content")
    );
}

#[test]
fn questions_within_sessions_are_those_that_are_prescribed() {
    let server = everything();
    let session = server.session_of("2025-11-25", &able());
    let sampled =
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}});
    let (question, said) = asked(
        &server,
        &session,
        "test_sampling",
        json!({"prompt": "Where?"}),
        sampled,
    );
    assert_eq!(said, "LLM response: Paris");
    assert_eq!(question["method"], "sampling/createMessage");
    assert_eq!(
        question["params"]["messages"],
        json!([{"role": "user", "content": {"type": "text", "text": "Where?"}}])
    );
    assert_eq!(question["params"]["maxTokens"], 100);

    let content = json!({"username": "ada", "email": "ada@example.com"});
    let (question, said) = asked(
        &server,
        &session,
        "test_elicitation",
        json!({"message": "Who?"}),
        json!({"action": "accept", "content": content}),
    );
    assert_eq!(
        said,
        format!("User response: action=accept, content={content}")
    );
    assert_eq!(question["params"]["message"], "Who?");
    assert_eq!(
        question["params"]["requestedSchema"],
        json!({
            "type": "object",
            "properties": {
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            },
            "required": ["username", "email"],
        })
    );
    for action in ["decline", "cancel"] {
        let (_, said) = asked(
            &server,
            &session,
            "test_elicitation",
            json!({"message": "Who?"}),
            json!({ "action": action }),
        );
        assert!(
            said.starts_with(&format!("User response: action={action}")),
            "{said}"
        );
    }

    let (question, said) = asked(
        &server,
        &session,
        "test_elicitation_sep1034_defaults",
        json!({}),
        json!({"action": "accept", "content": {"age": 31}}),
    );
    assert_eq!(question["params"]["message"], "Please provide values");
    let schema = &question["params"]["requestedSchema"];
    assert!(schema.get("required").is_none());
    let fields = &schema["properties"];
    for (field, kind, default) in [
        ("name", "string", json!("John Doe")),
        ("age", "integer", json!(30)),
        ("score", "number", json!(95.5)),
        ("status", "string", json!("active")),
        ("verified", "boolean", json!(true)),
    ] {
        assert_eq!(fields[field]["type"], kind, "{field}");
        assert_eq!(fields[field]["default"], default, "{field}");
    }
    assert_eq!(
        fields["status"]["enum"],
        json!(["active", "inactive", "pending"])
    );
    assert!(
        said.starts_with("Elicitation completed: action=accept, content={"),
        "{said}"
    );

    let (question, _) = asked(
        &server,
        &session,
        "test_elicitation_sep1330_enums",
        json!({}),
        json!({"action": "decline"}),
    );
    let three = |keyword: &str, word: &str| {
        let each = [(1, "First"), (2, "Second"), (3, "Third")];
        let titled = each.map(
            |(n, nth)| json!({"const": format!("value{n}"), "title": format!("{nth} {word}")}),
        );
        match keyword {
            "oneOf" => json!({"type": "string", "oneOf": titled}),
            _ => json!({"type": "array", "items": {"anyOf": titled}}),
        }
    };
    let options = json!(["option1", "option2", "option3"]);
    let fields = json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": three("oneOf", "Option"),
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": three("anyOf", "Choice"),
    });
    for (name, field) in fields.as_object().expect("an object") {
        let mut shown = question["params"]["requestedSchema"]["properties"][name].clone();
        if let Some(shown) = shown.as_object_mut() {
            shown.remove("description");
            shown.remove("title");
        }
        assert_eq!(&shown, field, "{name}");
    }
    // A client without the capability gets an error.
    let plain = server.session("2025-11-25");
    let refused = plain
        .call("test_sampling", &json!({"prompt": "x"}))
        .result();
    assert_eq!(refused["isError"], true);
}

#[test]
fn eli_11_a_visit_is_asked_for_and_done_with_or_demanded() {
    let server = everything();
    let session = server.session_of("2025-11-25", &json!({"elicitation": {"url": {}}}));
    let mut standing = server.connect();
    assert_eq!(standing.get(&session.headers()).status, 200);
    let (question, said) = asked(
        &server,
        &session,
        "visit_page",
        json!({}),
        json!({"action": "accept"}),
    );
    assert_eq!(said, "The person said: accept");
    let told = next(&mut standing);
    assert_eq!(told["method"], "notifications/elicitation/complete");
    assert_eq!(
        told["params"]["elicitationId"],
        question["params"]["elicitationId"]
    );
    let refused = session.call("visit_first", &json!({}));
    refused.error(200, -32042, "1");
    let done = session
        .call("visit_first", &json!({"visited": true}))
        .result();
    assert_eq!(text(&done), "The page was visited.");
}

#[test]
fn log_messages_of_the_fixture_are_those_that_are_prescribed() {
    let server = everything();
    let session = server.session("2025-11-25");
    session
        .request("logging/setLevel", &json!({"level": "debug"}))
        .result();
    let mut connection = server.connect();
    let params = json!({"name": "test_tool_with_logging"});
    connection.send(session.text("tools/call", &params));
    connection.receive_head();
    for data in [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ] {
        let message = next(&mut connection);
        assert_eq!(message["method"], "notifications/message");
        assert_eq!(message["params"]["level"], "info");
        assert_eq!(message["params"]["data"], data);
    }
    assert_eq!(
        text(&next(&mut connection)["result"]),
        "Tool with logging executed successfully"
    );
}

#[test]
fn lh_15_the_stream_of_the_fixture_is_closed_and_its_result_fetched() {
    let server = everything();
    let session = server.session("2025-11-25");
    let mut connection = server.connect();
    let params = json!({"name": "test_reconnection"});
    connection.send(session.text("tools/call", &params));
    connection.receive_head();
    let first = connection.any_event().expect("its beginning");
    assert!(first.id.is_some());
    let mut names_delay = false;
    while let Some(event) = connection.any_event() {
        assert_eq!(event.message, None, "the result comes elsewhere");
        names_delay |= event.retry.is_some();
    }
    assert!(names_delay);
    let [header] = session.headers();
    let mut back = server.connect();
    let id = first.id.expect("an id");
    back.get(&[header, ("last-event-id", &id)]);
    assert_eq!(
        text(&next(&mut back)["result"]),
        "Reconnection test completed"
    );
    // Without sessions there is nothing to come back to.
    let plain = Stateless::call("test_reconnection", json!({}))
        .send(&server)
        .result();
    assert_eq!(text(&plain), "Reconnection test completed");
}

#[test]
fn changes_that_are_triggered_reach_who_asked_for_them_only() {
    let server = everything();
    let listen = |filter: Value| {
        let mut request =
            Stateless::new("subscriptions/listen", json!({ "notifications": filter }));
        request.id = json!("l");
        let mut connection = server.connect();
        connection.send(request.text());
        connection.receive_head();
        next(&mut connection);
        connection
    };
    let mut of_tools = listen(json!({"toolsListChanged": true}));
    let mut of_prompts = listen(json!({"promptsListChanged": true}));
    for (tool, said) in [
        ("test_trigger_tool_change", "Tool list change triggered"),
        ("test_trigger_prompt_change", "Prompt list change triggered"),
    ] {
        let result = Stateless::call(tool, json!({})).send(&server).result();
        assert_eq!(text(&result), said);
    }
    for (stream, list) in [(&mut of_tools, "tools"), (&mut of_prompts, "prompts")] {
        let told = next(stream);
        assert_eq!(told["method"], format!("notifications/{list}/list_changed"));
        assert_eq!(
            told["params"]["_meta"],
            json!({"io.modelcontextprotocol/subscriptionId": "l"})
        );
    }
}

#[test]
fn tasks_of_the_fixture_are_those_that_are_prescribed() {
    let server = everything();
    let able = |request: Stateless| {
        request.meta(
            "clientCapabilities",
            json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}),
        )
    };
    let call = |tool: &str, arguments: Value| able(Stateless::call(tool, arguments));
    let get = |task: &str| {
        let get = Stateless::new("tasks/get", json!({"taskId": task})).and("mcp-name", task);
        able(get).send(&server).result()
    };
    let until = |task: &str, status: &str| {
        crate::support::until(|| Some(get(task)).filter(|shown| shown["status"] == status))
    };
    let greeted = call("greet", json!({"name": "Ada"})).send(&server).result();
    assert_eq!(
        (text(&greeted), &greeted["resultType"]),
        ("Hello, Ada!", &json!("complete"))
    );
    let begin = |tool: &str, arguments: Value| {
        let created = call(tool, arguments).send(&server).result();
        assert_eq!(created["resultType"], "task", "{tool}: {created}");
        created["taskId"].as_str().expect("an id").to_owned()
    };
    let task = begin("confirm_delete", json!({"filename": "a.txt"}));
    let asking = until(&task, "input_required");
    let questions = asking["inputRequests"].as_object().expect("questions");
    let (name, question) = questions.iter().next().expect("one");
    assert_eq!(
        (questions.len(), &question["params"]["message"]),
        (1, &json!("Delete a.txt?"))
    );
    assert_eq!(
        question["params"]["requestedSchema"],
        json!({"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]})
    );
    let accepted = json!({"action": "accept", "content": {"confirm": true}});
    let params = json!({"taskId": task, "inputResponses": {name: accepted}});
    able(Stateless::new("tasks/update", params))
        .and("mcp-name", &task)
        .send(&server)
        .result();
    until(&task, "completed");
    let task = begin("multi_input", json!({}));
    let asking = until(&task, "input_required");
    assert_eq!(
        asking["inputRequests"]
            .as_object()
            .map(serde_json::Map::len),
        Some(2)
    );
    let failed = until(&begin("protocol_error_job", json!({})), "failed");
    assert!(failed["error"]["code"].is_i64());
    let failed = until(&begin("failing_job", json!({})), "completed");
    assert_eq!(failed["result"]["isError"], true);
    for tool in ["failing_job", "protocol_error_job", "test_tool_with_task"] {
        Stateless::call(tool, json!({}))
            .send(&server)
            .error(400, -32021, "1");
    }
    let first = call("test_tool_with_task", json!({}));
    let asked = first.send(&server).result();
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(
        asked["inputRequests"]["user_name"]["params"]["message"],
        "What is your name?"
    );
    let name = json!({"user_name": {"action": "accept", "content": {"name": "Alice"}}});
    let again = first.params(|params| {
        params["inputResponses"] = name;
        params["requestState"] = asked["requestState"].clone();
    });
    let created = again.send(&server).result();
    let done = until(created["taskId"].as_str().expect("an id"), "completed");
    assert_eq!(text(&done["result"]), "Hello, Alice! (async)");
}
