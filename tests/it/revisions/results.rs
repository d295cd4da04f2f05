//! Results of calls in each protocol version.

use longshore::server::ValidationErrors;
use longshore::{CallContext, Content, JsonSchema, Output, ToolError, tool};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{INTERNAL, INVALID_PARAMS, WITH_SESSIONS};
use crate::support::{Running, Serve, Stateless};

#[derive(Serialize, JsonSchema)]
struct Report {
    degrees: f64,
}

/// Reports the weather.
#[tool(title = "Weather", read_only, meta("com.example/cost" = 3))]
async fn weather(place: String) -> Report {
    assert!(!place.is_empty());
    Report { degrees: 21.5 }
}

/// Counts.
#[tool]
async fn count() -> Vec<u32> {
    vec![1, 2, 3]
}

/// Returns a block of each kind.
#[tool]
async fn blocks() -> Vec<Content> {
    vec![
        Content::text("a \"text\"\n"),
        Content::image(b"i", "image/png"),
        Content::audio(b"a", "audio/wav"),
        Content::resource_link("test://a", "A"),
        Content::embedded_text("test://b", "text/plain", "b"),
        Content::embedded_blob("test://c", "application/octet-stream", b"c"),
    ]
}

/// Says something of the result itself.
#[tool]
async fn annotated() -> Output {
    let mut meta = Map::new();
    meta.insert("com.example/cost".to_owned(), json!(3));
    Output::text("x").with_meta(meta)
}

/// Returns a value, but no text.
#[tool]
async fn bare(list: bool) -> Result<Output, ToolError> {
    Ok(match list {
        false => Output::structured(&Report { degrees: 21.5 })?.with_content(Vec::new()),
        true => Output::structured(&[1])?.with_content([Content::image(b"i", "image/png")]),
    })
}

/// Finds nothing.
#[tool]
async fn broken() -> Result<String, ToolError> {
    Err(ToolError::new("nothing there"))
}

/// Is at fault itself.
#[tool]
async fn faulty() -> Result<String, ToolError> {
    Err(ToolError::internal("the password is 1234"))
}

/// Panics.
#[tool]
async fn panics() -> String {
    panic!("on purpose")
}

fn server() -> Serve {
    Serve::new()
        .tool(weather)
        .tool(count)
        .tool(blocks)
        .tool(annotated)
        .tool(broken)
        .tool(faulty)
        .tool(panics)
}

/// The text of a call's result in each revision, from old to new.
fn results(server: &Running, tool: &str, arguments: &Value) -> Vec<String> {
    let mut bodies: Vec<_> = WITH_SESSIONS
        .iter()
        .map(|revision| server.session(revision).call(tool, arguments).body)
        .collect();
    bodies.push(Stateless::call(tool, arguments.clone()).send(server).body);
    let result = |body: String| {
        let result = body.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#);
        result
            .and_then(|r| r.strip_suffix('}'))
            .expect("a result")
            .to_owned()
    };
    bodies.into_iter().map(result).collect()
}

const TAIL: &str = r#","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}"#;

#[test]
fn tool_10_structured_objects_are_shown_from_2025_06_18_on() {
    // TOOL-07: as text too.
    let results = results(&server().start(), "weather", &json!({"place": "x"}));
    let text = r#"{"content":[{"type":"text","text":"{\"degrees\":21.5}"}]"#;
    let structured = format!(r#"{text},"structuredContent":{{"degrees":21.5}},"isError":false"#);
    assert_eq!(results[0], format!(r#"{text},"isError":false}}"#));
    assert_eq!(results[1], results[0]);
    assert_eq!(results[2], format!("{structured}}}"));
    assert_eq!(results[3], results[2]);
    assert_eq!(results[4], format!("{structured}{TAIL}"));
}

#[test]
fn tool_10_a_value_without_text_is_shown_as_text_to_older_clients() {
    let server = Serve::new().tool(bare).start();
    let text = r#"{"content":[{"type":"text","text":"{\"degrees\":21.5}"}],"isError":false}"#;
    let value = r#"{"content":[],"structuredContent":{"degrees":21.5},"isError":false"#;
    let found = results(&server, "bare", &json!({"list": false}));
    assert_eq!(found[..2], [text, text]);
    assert_eq!(found[2..4], [format!("{value}}}"), format!("{value}}}")]);
    assert_eq!(found[4], format!("{value}{TAIL}"));
    let image = r#"{"content":[{"type":"image","data":"aQ==","mimeType":"image/png"}"#;
    let found = results(&server, "bare", &json!({"list": true}));
    let text = format!(r#"{image},{{"type":"text","text":"[1]"}}],"isError":false}}"#);
    assert!(found[..4].iter().all(|old| *old == text), "{found:?}");
    let value = format!(r#"{image}],"structuredContent":[1],"isError":false{TAIL}"#);
    assert_eq!(found[4], value);
}

#[test]
fn tool_10_other_structured_values_are_shown_in_2026_07_28_alone() {
    let results = results(&server().start(), "count", &json!({}));
    for old in &results[..4] {
        assert_eq!(
            old,
            r#"{"content":[{"type":"text","text":"[1,2,3]"}],"isError":false}"#
        );
    }
    assert_eq!(
        results[4],
        format!(
            r#"{{"content":[{{"type":"text","text":"[1,2,3]"}}],"structuredContent":[1,2,3],"isError":false{TAIL}"#
        )
    );
}

#[test]
fn tool_10_blocks_that_a_revision_does_not_know_are_shown_as_text() {
    let results = results(&server().start(), "blocks", &json!({}));
    let first = r#"{"type":"text","text":"a \"text\"\n"},{"type":"image","data":"aQ==","mimeType":"image/png"}"#;
    let audio = r#"{"type":"audio","data":"YQ==","mimeType":"audio/wav"}"#;
    let no_audio = r#"{"type":"text","text":"[audio, audio/wav: this client cannot receive it]"}"#;
    let link = r#"{"type":"resource_link","uri":"test://a","name":"A"}"#;
    let no_link = r#"{"type":"text","text":"A: test://a"}"#;
    let last = r#"{"type":"resource","resource":{"uri":"test://b","mimeType":"text/plain","text":"b"}},{"type":"resource","resource":{"uri":"test://c","mimeType":"application/octet-stream","blob":"Yw=="}}"#;
    let all =
        |audio, link| format!(r#"{{"content":[{first},{audio},{link},{last}],"isError":false"#);
    assert_eq!(results[0], all(no_audio, no_link) + "}");
    assert_eq!(results[1], all(audio, no_link) + "}");
    assert_eq!(results[2], all(audio, link) + "}");
    assert_eq!(results[3], all(audio, link) + "}");
    assert_eq!(results[4], all(audio, link) + TAIL);
}

#[test]
fn meta_of_a_result_is_shown_to_all() {
    let results = results(&server().start(), "annotated", &json!({}));
    for old in &results[..4] {
        assert!(
            old.ends_with(r#""isError":false,"_meta":{"com.example/cost":3}}"#),
            "{old}"
        );
    }
    assert!(
        results[4].ends_with(
            r#""resultType":"complete","_meta":{"com.example/cost":3,"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}"#
        ),
        "{}",
        results[4]
    );
}

#[test]
fn tool_10_listings_hold_what_each_revision_knows() {
    let server = server().start();
    let list = |revision: &str| {
        let listed = match revision {
            "2026-07-28" => Stateless::new("tools/list", json!({}))
                .send(&server)
                .result(),
            old => server
                .session(old)
                .request("tools/list", &json!({}))
                .result(),
        };
        listed["tools"].clone()
    };
    let input = r#""inputSchema":{"type":"object","additionalProperties":false,"properties":{"place":{"type":"string"}},"required":["place"]}"#;
    let output = r#""outputSchema":{"type":"object","properties":{"degrees":{"type":"number"}},"required":["degrees"]}"#;
    let hints = r#""annotations":{"readOnlyHint":true"#;
    let head = r#"{"name":"weather""#;
    let says = r#""description":"Reports the weather.""#;
    let meta = r#""_meta":{"com.example/cost":3}"#;
    let first = |revision: &str| list(revision)[0].to_string();
    assert_eq!(first("2024-11-05"), format!("{head},{says},{input}}}"));
    assert_eq!(
        first("2025-03-26"),
        format!(r#"{head},{says},{input},{hints},"title":"Weather"}}}}"#)
    );
    for revision in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        assert_eq!(
            first(revision),
            format!(r#"{head},"title":"Weather",{says},{input},{output},{hints}}},{meta}}}"#)
        );
    }
    // Only versions that define it have the output schema of a list.
    for (revision, shown) in [
        ("2025-06-18", false),
        ("2025-11-25", false),
        ("2026-07-28", true),
    ] {
        assert_eq!(
            list(revision)[1].get("outputSchema").is_some(),
            shown,
            "{revision}"
        );
    }
}

#[test]
fn tool_02_an_unknown_tool_is_told_with_the_one_that_may_have_been_meant() {
    let server = server().start();
    let mut messages = Vec::new();
    for name in ["wether", "Weather", "nothing like it", "", "\u{0}"] {
        for revision in WITH_SESSIONS {
            let response = server.session(revision).call(name, &json!({}));
            messages.push(response.error(200, INVALID_PARAMS, "1"));
        }
        let call = Stateless::call("x", json!({})).params(|p| p["name"] = name.into());
        let call = if name == "\u{0}" {
            call.with("mcp-name", "=?base64?AA==?=")
        } else {
            call.with("mcp-name", name)
        };
        messages.push(call.send(&server).error(200, INVALID_PARAMS, "1"));
    }
    messages.dedup();
    assert_eq!(
        messages,
        [
            "Unknown tool: wether; did you mean weather?",
            "Unknown tool: Weather; did you mean weather?",
            "Unknown tool: nothing like it",
            "Unknown tool: ",
            "Unknown tool: \u{0}",
        ]
    );
}

#[test]
fn tool_02_a_call_needs_a_name_and_its_arguments_are_an_object() {
    let server = server().start();
    let session = server.session("2025-11-25");
    for params in [
        json!({}),
        json!({"name": 1}),
        json!({"name": null}),
        json!({"name": "count", "arguments": [1]}),
        json!({"name": "count", "arguments": "{}"}),
    ] {
        session
            .request("tools/call", &params)
            .error(200, INVALID_PARAMS, "1");
    }
    for params in [
        json!({"name": "count"}),
        json!({"name": "count", "arguments": null}),
        json!({"name": "count", "arguments": []}),
    ] {
        session.request("tools/call", &params).result();
    }
}

#[test]
fn tool_03_failures_are_results_that_the_model_reads() {
    for result in results(&server().start(), "broken", &json!({})) {
        assert!(
            result.starts_with(
                r#"{"content":[{"type":"text","text":"nothing there"}],"isError":true"#
            ),
            "{result}"
        );
    }
}

#[test]
fn tool_03_faults_of_the_server_are_its_own_secret() {
    let server = server().start();
    for tool in ["faulty", "panics"] {
        for revision in WITH_SESSIONS {
            let message = server
                .session(revision)
                .call(tool, &json!({}))
                .error(200, INTERNAL, "1");
            assert_eq!(message, "Internal error");
        }
        let response = Stateless::call(tool, json!({})).send(&server);
        assert_eq!(response.error(200, INTERNAL, "1"), "Internal error");
    }
}

#[test]
fn tool_04_invalid_arguments_are_shown_to_the_model_from_2025_11_25_on() {
    // TOOL-05
    let reported = |reporting| {
        let server = server().validation_errors(reporting).start();
        let wrong = json!({"place": 7});
        let mut to_model = Vec::new();
        let mut responses: Vec<_> = WITH_SESSIONS
            .iter()
            .map(|revision| server.session(revision).call("weather", &wrong))
            .collect();
        responses.push(Stateless::call("weather", wrong).send(&server));
        for response in responses {
            let shown = response.json().get("result").is_some();
            let message = if shown {
                let result = response.result();
                assert_eq!(result["isError"], true);
                result["content"][0]["text"]
                    .as_str()
                    .expect("a text")
                    .to_owned()
            } else {
                response.error(200, INVALID_PARAMS, "1")
            };
            let prefix = "Invalid arguments for tool weather: ";
            assert!(
                message.starts_with(prefix) && message.contains("place"),
                "{message}"
            );
            to_model.push(shown);
        }
        to_model
    };
    assert_eq!(
        reported(ValidationErrors::Auto),
        [false, false, false, true, true]
    );
    assert_eq!(reported(ValidationErrors::Protocol), [false; 5]);
    assert_eq!(reported(ValidationErrors::Tool), [true; 5]);
}

/// Passes on what a file system says, or says it in words of its own.
#[tool]
async fn fragile(own_words: bool) -> Result<String, ToolError> {
    if own_words {
        return Err(ToolError::new("there is no such customer"));
    }
    Ok(std::fs::read_to_string("/no/such/place/secret-path")?)
}

/// As `fragile`, with an error of any type.
#[tool]
async fn fragile_boxed() -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    Ok(std::fs::read_to_string("/no/such/place/secret-path")?)
}

/// Needs a client that can be asked.
#[tool]
async fn asks_boxed(
    context: &CallContext,
) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    context.roots().await?;
    Ok("never".to_owned())
}

#[test]
fn tool_03_an_error_of_any_type_is_masked_and_keeps_what_the_client_lacks() {
    let server = Serve::new()
        .tool(fragile_boxed)
        .tool(asks_boxed)
        .configured(|c| c.server.mask_errors = true)
        .start();
    let call = |tool: &str, arguments: Value| Stateless::call(tool, arguments).send(&server);
    let result = call("fragile_boxed", json!({})).result();
    assert_eq!(
        result["content"][0]["text"],
        "the tool failed; the reason is in the server's log"
    );
    call("asks_boxed", json!({})).error(400, -32021, "1");
}

#[test]
fn tool_03_what_was_not_written_for_the_model_is_told_unless_a_setting_says_otherwise() {
    let told = |masked: bool, own_words: bool| {
        let server = Serve::new()
            .tool(fragile)
            .configured(|c| c.server.mask_errors = masked)
            .start();
        let result = Stateless::call("fragile", json!({"own_words": own_words})).send(&server);
        let result = result.result();
        assert_eq!(result["isError"], true);
        result["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    for masked in [false, true] {
        assert_eq!(told(masked, true), "there is no such customer");
    }
    assert!(told(false, false).contains("No such file"));
    assert_eq!(
        told(true, false),
        "the tool failed; the reason is in the server's log"
    );
}

/// Reads the payer from `_meta`.
#[tool]
async fn billed(context: &CallContext) -> String {
    let tenant: Option<String> = context.meta("com.example/tenant");
    let nested: Option<Map<String, Value>> = context.meta("com.example/nested");
    let version: Option<String> = context.meta("io.modelcontextprotocol/protocolVersion");
    format!(
        "{tenant:?} {:?} {}",
        nested.map(|it| it.len()),
        version.is_some()
    )
}

#[test]
fn meta_09_members_that_nobody_else_knows_reach_the_tool() {
    let server = Serve::new().tool(billed).start();
    let text = |result: Value| {
        result["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned()
    };
    let own = json!({"com.example/tenant": "a\"b", "com.example/nested": {"x": [1], "y": {}}, "progressToken": 1});
    for revision in WITH_SESSIONS {
        let session = server.session(revision);
        let params = json!({"name": "billed", "arguments": {}, "_meta": own});
        let said = text(session.request("tools/call", &params).result());
        assert_eq!(said, "Some(\"a\\\"b\") Some(2) false");
        assert_eq!(
            text(session.call("billed", &json!({})).result()),
            "None None false"
        );
    }
    let call = Stateless::call("billed", json!({}));
    assert_eq!(text(call.clone().send(&server).result()), "None None false");
    let call = call.params(|params| {
        for (key, value) in own.as_object().into_iter().flatten() {
            params["_meta"][key] = value.clone();
        }
    });
    let said = text(call.send(&server).result());
    assert_eq!(said, "Some(\"a\\\"b\") Some(2) false");
    // A value of another type than expected counts as absent.
    let call = Stateless::call("billed", json!({}))
        .params(|params| params["_meta"]["com.example/tenant"] = json!(7));
    assert!(text(call.send(&server).result()).starts_with("None"));
}
