//! Tools that ask their client.

mod rounds;
mod sessions;
mod visits;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::Checked as _;
use longshore::protocol::Revision;
use longshore::{
    App, CallContext, ClientAbility, Config, Elicited, Form, Harness, JsonSchema, SamplingContent,
    SamplingMessage, SamplingRequest, SamplingTool, ToolError, ToolResult, prompt, resource, tool,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct Colour {
    color: String,
}

/// Asks two things, one after the other.
#[tool]
async fn two_questions(context: &CallContext) -> Result<String, ToolError> {
    let name = context.elicit::<Name>("What is your name?").await?;
    let Elicited::Accepted(Name { name }) = name else {
        return Ok(format!("no name: {}", name.action()));
    };
    let colour = context
        .elicit::<Colour>("What is your favorite color?")
        .await?;
    let colour = colour.accepted().map_or("no color".to_owned(), |c| c.color);
    Ok(format!("{name} likes {colour}."))
}

#[derive(Deserialize, JsonSchema)]
struct Aged {
    name: String,
    age: u8,
    #[serde(default)]
    nick: String,
}

/// Asks for a number.
#[tool]
async fn aged(context: &CallContext) -> Result<String, ToolError> {
    let person = context.elicit::<Aged>("Who are you?").await?;
    Ok(person.accepted().map_or_else(String::new, |person| {
        format!("{}{} is {}.", person.nick, person.name, person.age)
    }))
}

/// Asks three things at once, by names.
#[tool]
async fn at_once(context: &CallContext) -> Result<String, ToolError> {
    let greeting = SamplingRequest::new("Generate a greeting", 50);
    let (name, greeting, roots) = tokio::try_join!(
        context
            .elicit::<Name>("What is your name?")
            .named("user_name"),
        context.sample(&greeting).named("greeting"),
        context.roots().named("client_roots"),
    )?;
    let name = name.accepted().map_or(String::new(), |n| n.name);
    Ok(format!("{} {name} at {}", greeting.text(), roots[0].uri))
}

/// Asks one named question.
#[tool]
async fn named(context: &CallContext) -> Result<String, ToolError> {
    let name = context
        .elicit::<Name>("What is your name?")
        .named("user_name")
        .await?;
    Ok(format!(
        "Hello, {}!",
        name.accepted().map_or("you".to_owned(), |n| n.name)
    ))
}

/// Samples with a tool until the model wants nothing more.
#[tool]
async fn agent(context: &CallContext) -> Result<String, ToolError> {
    let mut messages = vec![SamplingMessage::user("How warm is it?")];
    for _ in 0..3 {
        let request = SamplingRequest::conversation(messages.clone(), 100)
            .tool(SamplingTool::new("thermometer", json!({"type": "object"})));
        let said = context.sample(&request).await?;
        let calls: Vec<_> = said.tool_uses().cloned().collect();
        if calls.is_empty() {
            return Ok(said.text());
        }
        messages.push(said.into());
        let results = calls.iter().map(|call| ToolResult::text(call, "21 °C"));
        messages.push(SamplingMessage::results(results));
    }
    Err(ToolError::new("the model never came to an end"))
}

/// Asks for a visit to a page.
#[tool]
async fn connect(context: &CallContext) -> Result<String, ToolError> {
    let page = "https://example.com/connect?flow=7";
    let visited = context.elicit_url("Connect your account.", page).await?;
    Ok(visited.action().to_owned())
}

/// Samples only where that is possible.
#[tool]
async fn tactful(context: &CallContext) -> Result<String, ToolError> {
    if !context.client_can(ClientAbility::Sampling) {
        return Ok("without".to_owned());
    }
    Ok(context
        .sample(&SamplingRequest::new("Hm?", 10))
        .await?
        .text())
}

/// Needs sampling before it does anything.
#[tool]
async fn needs_sampling(context: &CallContext) -> Result<String, ToolError> {
    context.require(ClientAbility::Sampling)?;
    Ok("has it".to_owned())
}

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Takes a step between two questions.
#[tool]
async fn steps(context: &CallContext) -> Result<String, ToolError> {
    let before = context
        .step("draw", async { Ok::<_, ToolError>(17) })
        .await?;
    let name = context
        .elicit::<Name>("What is your name?")
        .await?
        .accepted();
    let taken = context
        .step("take", async {
            tokio::task::yield_now().await;
            Ok::<_, ToolError>(TAKEN.fetch_add(1, Ordering::SeqCst))
        })
        .await?;
    context
        .elicit::<Colour>("What is your favorite color?")
        .await?;
    let name = name.map_or(String::new(), |n| n.name);
    Ok(format!("{name}: {before}, {taken}"))
}

static RUNS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Tells how far it is, before and after a question.
#[tool]
async fn reports(context: &CallContext) -> Result<String, ToolError> {
    context.progress(1.0, Some(3.0), "begun").await;
    context.elicit::<Name>("What is your name?").await?;
    context.progress(2.0, Some(3.0), "named").await;
    Ok("done".to_owned())
}

/// Asks something else each time it runs.
#[tool]
async fn fickle(context: &CallContext) -> Result<String, ToolError> {
    let runs = {
        let mut runs = RUNS.lock().expect("no panic");
        runs.push("again".to_owned());
        runs.len()
    };
    context.elicit::<Name>(format!("Question {runs}?")).await?;
    Ok("never".to_owned())
}

/// Every kind of choice.
#[tool]
async fn choices(context: &CallContext) -> Result<String, ToolError> {
    let form = Form::from_schema(json!({
        "type": "object",
        "properties": {
            "one": {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
            "some": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            "count": {"type": "integer", "default": 3},
        },
    }))?;
    let chosen = context.elicit_form("Choose.", form).await?;
    let action = chosen.action();
    let content = Value::Object(chosen.accepted().unwrap_or_default());
    Ok(format!("action={action}, content={content}"))
}

/// Asks what context to use.
#[prompt]
async fn asking_prompt(context: &CallContext) -> Result<String, longshore::PromptError> {
    let name = context.elicit::<Name>("Who is asking?").await?.accepted();
    Ok(format!(
        "I am {}.",
        name.map_or("nobody".to_owned(), |n| n.name)
    ))
}

/// Asks who wants to read it.
#[resource(uri = "asking://secret", ttl = "60s", cache_scope = "public")]
async fn asking_resource(context: &CallContext) -> Result<String, longshore::ResourceError> {
    let name = context.elicit::<Name>("Who is reading?").await?.accepted();
    Ok(format!(
        "For {} only.",
        name.map_or("nobody".to_owned(), |n| n.name)
    ))
}

fn app() -> App {
    App::new()
        .config(Config::default())
        .tool(two_questions)
        .tool(aged)
        .tool(at_once)
        .tool(named)
        .tool(agent)
        .tool(connect)
        .tool(tactful)
        .tool(needs_sampling)
        .tool(steps)
        .tool(reports)
        .tool(fickle)
        .tool(choices)
        .prompt(asking_prompt)
        .resource(asking_resource)
}

/// A person called Ada, and a model that wants to look at a thermometer first.
fn answers(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" if params["mode"] == "url" => json!({"action": "accept"}),
        "elicitation/create" => {
            let fields = params["requestedSchema"]["properties"].as_object();
            let answer = |name: &str| match name {
                "name" => json!("Ada"),
                "color" => json!("blue"),
                "one" => json!("b"),
                "some" => json!(["y"]),
                _ => json!(4),
            };
            let names = fields.expect("fields").keys();
            let content: Value = names
                .map(|n| (n.clone(), answer(n)))
                .collect::<serde_json::Map<_, _>>()
                .into();
            json!({"action": "accept", "content": content})
        }
        "sampling/createMessage" => {
            let messages = params["messages"].as_array().expect("messages");
            if params["tools"].is_array() && messages.len() == 1 {
                let call =
                    json!({"type": "tool_use", "id": "1", "name": "thermometer", "input": {}});
                return json!({"role": "assistant", "content": [call], "model": "m", "stopReason": "toolUse"});
            }
            let text = match messages.last().map(|m| &m["content"]["type"]) {
                Some(kind) if *kind == "tool_result" => "It is 21 °C.",
                _ => "Hello there,",
            };
            json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"})
        }
        "roots/list" => json!({"roots": [{"uri": "file:///home/ada", "name": "home"}]}),
        other => panic!("nobody asks {other}"),
    }
}

const THAT_ASK: [Revision; 3] = [
    Revision::V2025_06_18,
    Revision::V2025_11_25,
    Revision::V2026_07_28,
];

fn harness(revision: Revision) -> Harness {
    app()
        .checked_harness()
        .expect("valid")
        .with_version(revision)
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {result}"))
}

#[tokio::test]
async fn one_tool_asks_clients_of_every_revision() {
    for revision in THAT_ASK {
        let server = harness(revision).on_client_request(answers);
        let result = server
            .call("two_questions", json!({}))
            .await
            .expect("a result");
        assert_eq!(text(&result), "Ada likes blue.", "{revision}");
        let result = server.call("at_once", json!({})).await.expect("a result");
        assert_eq!(
            text(&result),
            "Hello there, Ada at file:///home/ada",
            "{revision}"
        );
        let counts = server.client_request_counts();
        assert_eq!((counts.asked, counts.waiting), (5, 0), "{revision}");
    }
}

#[tokio::test]
async fn eli_05_to_decline_and_to_cancel_are_answers() {
    for revision in THAT_ASK {
        for action in ["decline", "cancel"] {
            let server =
                harness(revision).on_client_request(move |_, _| json!({ "action": action }));
            let result = server
                .call("two_questions", json!({}))
                .await
                .expect("a result");
            assert_eq!(text(&result), format!("no name: {action}"));
        }
    }
}

#[tokio::test]
async fn eli_09_content_that_is_an_empty_list_is_an_empty_form() {
    for revision in THAT_ASK {
        let content = json!({"action": "accept", "content": []});
        let server = harness(revision).on_client_request(move |_, _| content.clone());
        let refused = match server.call("named", json!({})).await {
            Ok(result) => text(&result).to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(refused.contains("is missing"), "{refused}");
    }
}

#[tokio::test]
async fn eli_09_whole_numbers_may_be_written_as_decimals_and_optional_fields_as_null() {
    for revision in THAT_ASK {
        let content = json!({"name": "Ada", "age": 4.0, "nick": null});
        let response = json!({"action": "accept", "content": content});
        let server = harness(revision).on_client_request(move |_, _| response.clone());
        let result = server.call("aged", json!({})).await.expect("a result");
        assert_eq!(text(&result), "Ada is 4.", "{revision}");
    }
}

#[tokio::test]
async fn sam_01_a_model_may_want_tools_to_be_called() {
    for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
        let server = harness(revision).on_client_request(answers);
        let result = server.call("agent", json!({})).await.expect("a result");
        assert_eq!(text(&result), "It is 21 °C.", "{revision}");
    }
    let message = SamplingMessage::user(SamplingContent::from("x"));
    assert_eq!(message.content.len(), 1);
}

#[tokio::test]
async fn eli_03_pages_are_shown_where_the_revision_has_them() {
    for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
        let server = harness(revision).on_client_request(move |method, params| {
            let has_id = params["elicitationId"].is_string();
            assert_eq!(has_id, revision == Revision::V2025_11_25);
            answers(method, params)
        });
        let result = server.call("connect", json!({})).await.expect("a result");
        assert_eq!(text(&result), "accept");
    }
}

#[tokio::test]
async fn eli_09_what_does_not_fit_the_form_is_no_answer() {
    let wrong = |_: &str, _: &Value| json!({"action": "accept", "content": {"name": 7}});
    let server = harness(Revision::V2025_11_25).on_client_request(wrong);
    let result = server.call("named", json!({})).await.expect("a result");
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("name"), "{result}");
    let server = harness(Revision::V2026_07_28).on_client_request(wrong);
    let error = server.call("named", json!({})).await.expect_err("refused");
    assert_eq!(error["code"], -32602);
    let message = error["message"].as_str().expect("words");
    assert!(message.contains("inputResponses.user_name"), "{message}");
}

#[tokio::test]
async fn forms_are_shown_to_each_revision_as_it_knows_them() {
    for revision in THAT_ASK {
        let server = harness(revision).on_client_request(move |method, params| {
            let fields = &params["requestedSchema"]["properties"];
            if revision == Revision::V2025_06_18 {
                assert_eq!(params["mode"], Value::Null);
                let one = json!({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]});
                assert_eq!(fields, &json!({"one": one, "count": {"type": "integer"}}));
            } else {
                assert_eq!(params["mode"], "form");
                assert_eq!(
                    fields["some"]["items"],
                    json!({"type": "string", "enum": ["x", "y"]})
                );
                assert_eq!(fields["count"]["default"], 3);
            }
            answers(method, params)
        });
        let result = server.call("choices", json!({})).await.expect("a result");
        let content = if revision == Revision::V2025_06_18 {
            r#"{"one":"b","count":4}"#
        } else {
            r#"{"one":"b","some":["y"],"count":4}"#
        };
        assert_eq!(text(&result), format!("action=accept, content={content}"));
    }
}

#[tokio::test]
async fn prompts_and_resources_ask_too() {
    for revision in THAT_ASK {
        let server = harness(revision).on_client_request(answers);
        let prompt = server
            .get_prompt("asking_prompt", json!({}))
            .await
            .expect("messages");
        assert_eq!(
            prompt["messages"][0]["content"]["text"], "I am Ada.",
            "{revision}"
        );
        for _ in 0..2 {
            let read = server.read("asking://secret").await.expect("contents");
            assert_eq!(read["contents"][0]["text"], "For Ada only.", "{revision}");
            if revision == Revision::V2026_07_28 {
                // A result that depends on client input must not be cached, whatever its cache hints are.
                assert_eq!(
                    (&read["ttlMs"], &read["cacheScope"]),
                    (&json!(0), &json!("private"))
                );
            }
        }
        assert_eq!(server.client_request_counts().asked, 3, "each reading asks");
    }
}

#[tokio::test]
async fn a_tool_can_find_out_what_its_client_can_do() {
    for revision in THAT_ASK {
        let result = harness(revision)
            .call("tactful", json!({}))
            .await
            .expect("a result");
        assert_eq!(text(&result), "without");
        let server = harness(revision).on_client_request(answers);
        let result = server.call("tactful", json!({})).await.expect("a result");
        assert_eq!(text(&result), "Hello there,");
    }
}

#[tokio::test]
async fn what_the_client_has_not_declared_is_not_asked() {
    for (tool, required) in [
        ("needs_sampling", json!({"sampling": {}})),
        ("two_questions", json!({"elicitation": {}})),
        ("connect", json!({"elicitation": {"url": {}}})),
        ("agent", json!({"sampling": {}})),
    ] {
        // META-04, MRTR-04.
        let error = harness(Revision::V2026_07_28)
            .call(tool, json!({}))
            .await
            .expect_err("refused");
        assert_eq!(error["code"], -32021, "{tool}");
        assert_eq!(error["data"]["requiredCapabilities"], required, "{tool}");
        // Before, a failure that the model reads.
        let result = harness(Revision::V2025_11_25)
            .call(tool, json!({}))
            .await
            .expect("a result");
        assert_eq!(result["isError"], true);
        assert!(
            text(&result).starts_with("Server requires the "),
            "{result}"
        );
    }
    let error = harness(Revision::V2026_07_28)
        .get_prompt("asking_prompt", json!({}))
        .await;
    assert_eq!(error.expect_err("refused")["code"], -32021);
    let error = harness(Revision::V2026_07_28).read("asking://secret").await;
    assert_eq!(error.expect_err("refused")["code"], -32021);
}

#[tokio::test]
async fn clients_of_2024_11_05_have_models_and_roots_over_stdio_and_no_forms() {
    let server = harness(Revision::V2024_11_05).on_client_request(answers);
    let result = server.call("tactful", json!({})).await.expect("a result");
    assert_eq!(text(&result), "Hello there,");
}
