//! `#[resource]` and `#[prompt]` as the crate of a stranger uses them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Checked as _;
use longshore::{
    App, CallContext, CompletionRequest, Completions, Content, Harness, PromptError, PromptMessage,
    PromptOutput, ResourceContents, ResourceError, prompt, resource,
};
use serde::Serialize;
use serde_json::{Value, json};

/// A type of one's own that is read from a string.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Colour {
    Red,
    Blue,
}

#[derive(Debug)]
struct NoColour;

impl fmt::Display for NoColour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("neither red nor blue")
    }
}

impl FromStr for Colour {
    type Err = NoColour;

    fn from_str(text: &str) -> Result<Self, NoColour> {
        match text {
            "red" => Ok(Self::Red),
            "blue" => Ok(Self::Blue),
            _ => Err(NoColour),
        }
    }
}

// === Resources ===

/// The settings in force.
///
/// They are few.
#[resource(
    uri = "config://app",
    name = "app settings",
    title = "Settings",
    mime_type = "application/toml",
    ttl = "60s",
    cache_scope = "public",
    timeout = "5s",
    icon = "https://example.com/icon.png",
    meta("com.example/kind" = [1, 2]),
)]
async fn settings() -> &'static str {
    "colour = \"red\""
}

#[resource(uri = "test://bytes")]
async fn bytes() -> Vec<u8> {
    vec![0, 0xff]
}

#[resource(uri = "test://shared-bytes")]
async fn shared_bytes() -> ::bytes::Bytes {
    ::bytes::Bytes::from_static(&[0, 0xff])
}

#[derive(Serialize)]
struct State {
    running: bool,
}

#[resource(uri = "test://state")]
async fn state() -> State {
    State { running: true }
}

#[resource(uri = "test://parts")]
async fn parts() -> Vec<ResourceContents> {
    vec![
        ResourceContents::text("a"),
        ResourceContents::blob("b").with_uri("test://parts/b"),
    ]
}

#[resource(uri = "test://perhaps/{there}")]
async fn perhaps(there: bool) -> Option<String> {
    there.then(|| "here".to_owned())
}

#[resource(uri = "test://fails/{how}")]
async fn fails(how: String) -> Result<Option<State>, ResourceError> {
    match &*how {
        "nothing" => Ok(None),
        "missing" => Err(ResourceError::not_found()),
        other => Err(other.parse::<u8>().expect_err("no number"))?,
    }
}

/// Behind an alias, and with an error that is no `std::error::Error`.
type Answer = Result<String, NoColour>;

#[resource(uri = "test://alias")]
async fn alias() -> Answer {
    Err(NoColour)
}

#[resource(uri = "test://blocks/{n}", blocking)]
fn blocks(n: u64) -> String {
    (1..=n).product::<u64>().to_string()
}

#[resource(uri = "test://{colour}/{+path}{?line,definition,uri}")]
async fn variables(
    context: &CallContext,
    #[arg(complete = colours)] colour: Colour,
    path: String,
    line: Option<u32>,
    #[arg(default = "none")] definition: String,
    #[arg(default, rename = "uri")] r#type: u8,
) -> String {
    let name = context.principal().name();
    format!("{name}: {colour:?} {path} {line:?} {definition} {type}")
}

fn colours(context: &CallContext, request: &CompletionRequest) -> Vec<String> {
    vec![format!("{} {}", context.principal().name(), request.value)]
}

fn harness() -> Harness {
    App::new()
        .resource(settings)
        .resource(bytes)
        .resource(shared_bytes)
        .resource(state)
        .resource(parts)
        .resource(perhaps)
        .resource(fails)
        .resource(alias)
        .resource(blocks)
        .resource(variables)
        .prompt(plain)
        .prompt(spoken)
        .prompt(blocks_of_content)
        .prompt(whole)
        .prompt(paint)
        .prompt(refuses)
        .prompt(counts)
        .checked_harness()
        .expect("valid")
}

#[tokio::test]
async fn a_variable_of_a_resource_may_hold_several_segments() {
    #[resource(uri = "folder://optional{/path*}")]
    async fn optional(path: Option<String>) -> String {
        path.unwrap_or_default()
    }

    #[resource(uri = "folder://required/{path*}")]
    async fn required(path: String) -> String {
        path
    }

    let app = App::new().resource(optional).resource(required);
    let harness = app.checked_harness().expect("valid");
    for (uri, path) in [
        ("folder://optional/a/b", "a/b"),
        ("folder://optional", ""),
        ("folder://required/a/b", "a/b"),
    ] {
        let read = harness.read(uri).await.expect(uri);
        assert_eq!(read["contents"][0]["text"], path, "{uri}");
    }
}

async fn contents(uri: &str) -> Value {
    harness().read(uri).await.expect("contents")["contents"].clone()
}

#[test]
fn a_resource_is_defined_by_its_attribute() {
    use longshore::Resource;

    let definition = settings.definition();
    assert_eq!(
        (definition.uri(), definition.name()),
        ("config://app", "app settings")
    );
    assert_eq!(Resource::definition(&bytes).name(), "bytes");
}

#[tokio::test]
async fn a_resource_is_listed_with_what_its_attribute_says() {
    let listed = harness().resources().await.expect("a list");
    assert_eq!(
        listed[0],
        json!({
            "uri": "config://app", "name": "app settings", "title": "Settings",
            "description": "The settings in force.\n\nThey are few.",
            "mimeType": "application/toml",
            "icons": [{"src": "https://example.com/icon.png"}],
            "_meta": {"com.example/kind": [1, 2]},
        })
    );
    let templates = harness().resource_templates().await.expect("a list");
    let templates: Vec<_> = templates.iter().map(|t| &t["uriTemplate"]).collect();
    assert_eq!(
        templates,
        [
            "test://perhaps/{there}",
            "test://fails/{how}",
            "test://blocks/{n}",
            "test://{colour}/{+path}{?line,definition,uri}",
        ]
    );
}

#[tokio::test]
async fn a_resource_is_still_a_function() {
    assert_eq!(settings().await, "colour = \"red\"");
    assert_eq!(blocks(5), "120");
    let context = CallContext::for_test();
    let text = variables(
        &context,
        Colour::Red,
        "a".to_owned(),
        None,
        "d".to_owned(),
        7,
    )
    .await;
    assert_eq!(text, "anonymous: Red a None d 7");
}

#[tokio::test]
async fn results_become_contents() {
    let read = harness().read("config://app").await.expect("contents");
    assert_eq!(
        (&read["ttlMs"], &read["cacheScope"]),
        (&json!(60_000), &json!("public"))
    );
    for (uri, expected) in [
        (
            "config://app",
            json!([{"uri": "config://app", "mimeType": "application/toml", "text": "colour = \"red\""}]),
        ),
        (
            "test://bytes",
            json!([{"uri": "test://bytes", "blob": "AP8="}]),
        ),
        (
            "test://shared-bytes",
            json!([{"uri": "test://shared-bytes", "blob": "AP8="}]),
        ),
        (
            "test://state",
            json!([{"uri": "test://state", "mimeType": "application/json", "text": "{\"running\":true}"}]),
        ),
        (
            "test://parts",
            json!([{"uri": "test://parts", "text": "a"}, {"uri": "test://parts/b", "blob": "Yg=="}]),
        ),
        (
            "test://perhaps/true",
            json!([{"uri": "test://perhaps/true", "text": "here"}]),
        ),
        (
            "test://blocks/5",
            json!([{"uri": "test://blocks/5", "text": "120"}]),
        ),
    ] {
        assert_eq!(contents(uri).await, expected);
    }
}

#[tokio::test]
async fn what_is_not_there_and_what_fails_are_errors() {
    for (uri, code, message) in [
        ("test://perhaps/false", -32602, "Resource not found"),
        ("test://perhaps/maybe", -32602, "Resource not found"),
        ("test://fails/nothing", -32602, "Resource not found"),
        ("test://fails/missing", -32602, "Resource not found"),
        ("test://fails/x", -32603, "invalid digit found in string"),
        ("test://alias", -32603, "neither red nor blue"),
        ("test://green/a", -32602, "Resource not found"),
    ] {
        let error = harness().read(uri).await.expect_err(uri);
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(code), &json!(message)),
            "{uri}"
        );
    }
}

#[tokio::test]
async fn variables_are_parameters() {
    for (uri, text) in [
        ("test://red/a/b", "local: Red a/b None none 0"),
        ("test://blue/a?line=7&uri=3", "local: Blue a Some(7) none 3"),
        (
            "test://blue/a?definition=%C3%A9",
            "local: Blue a None \u{e9} 0",
        ),
    ] {
        assert_eq!(contents(uri).await[0]["text"], text);
    }
    let params = json!({
        "ref": {"type": "ref/resource", "uri": "test://{colour}/{+path}{?line,definition,uri}"},
        "argument": {"name": "colour", "value": "r"},
    });
    let found = harness()
        .request("completion/complete", params)
        .await
        .expect("suggestions");
    assert_eq!(found["completion"]["values"], json!(["local r"]));
}

// === Prompts ===

#[prompt]
async fn plain() -> &'static str {
    "Just do it."
}

#[prompt]
async fn spoken() -> [PromptMessage; 2] {
    [
        PromptMessage::user("Hello."),
        PromptMessage::assistant("Hello!"),
    ]
}

#[prompt]
async fn blocks_of_content() -> Vec<Content> {
    vec![Content::text("Look:"), Content::image(b"x", "image/png")]
}

#[prompt]
async fn whole() -> PromptOutput {
    PromptOutput::new([PromptMessage::user("x")]).with_description("for today")
}

/// Asks for a picture.
#[prompt(
    name = "paint it",
    title = "Paint",
    timeout = "5s",
    icon = "data:image/png;base64,AA==",
    meta("com.example/a" = 1)
)]
async fn paint(
    context: &CallContext,
    /// In which colour.
    #[arg(title = "Colour", complete = known_colours)]
    colour: Colour,
    /// Of what.
    #[arg(default = "a house", complete = subjects)]
    what: String,
    #[arg(rename = "size in cm")] size: Option<u32>,
) -> String {
    format!("{}: {colour:?} {what} {size:?}", context.principal().name())
}

fn subjects(request: &CompletionRequest) -> Result<Vec<&'static str>, std::num::ParseIntError> {
    let count: usize = request.value.parse()?;
    Ok(vec!["a house"; count])
}

async fn known_colours(request: CompletionRequest) -> Result<Completions, PromptError> {
    tokio::task::yield_now().await;
    if request.value == "x" {
        return Err(PromptError::invalid("there is no colour with an x"));
    }
    Ok(Completions::matching(&request.value, ["red", "blue"]))
}

#[resource(uri = "test://own/{name}")]
async fn own(#[arg(complete = names)] name: String) -> String {
    name
}

async fn names(context: Arc<CallContext>, _: CompletionRequest) -> Vec<String> {
    tokio::task::yield_now().await;
    vec![context.principal().name().to_owned()]
}

#[tokio::test]
async fn suggestions_may_know_who_asks_and_wait() {
    let harness = App::new().resource(own).checked_harness().expect("valid");
    let params = json!({
        "ref": {"type": "ref/resource", "uri": "test://own/{name}"},
        "argument": {"name": "name", "value": ""},
    });
    let found = harness
        .request("completion/complete", params)
        .await
        .expect("suggestions");
    assert_eq!(found["completion"]["values"], json!(["local"]));
}

#[prompt]
async fn refuses() -> Result<String, String> {
    Err("not today".to_owned())
}

#[prompt(blocking)]
fn counts(to: u8) -> Result<String, std::num::TryFromIntError> {
    std::thread::sleep(Duration::ZERO);
    Ok(i8::try_from(to)?.to_string())
}

#[tokio::test]
async fn a_prompt_is_listed_with_its_parameters() {
    let prompts = harness().prompts().await.expect("a list");
    assert_eq!(prompts[0], json!({"name": "plain"}));
    assert_eq!(
        prompts[4],
        json!({
            "name": "paint it", "title": "Paint", "description": "Asks for a picture.",
            "arguments": [
                {"name": "colour", "title": "Colour", "description": "In which colour.", "required": true},
                {"name": "what", "description": "Of what."},
                {"name": "size in cm"},
            ],
            "icons": [{"src": "data:image/png;base64,AA=="}],
            "_meta": {"com.example/a": 1},
        })
    );
}

#[tokio::test]
async fn prompts_become_messages() {
    let text =
        |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
    for (name, arguments, messages) in [
        ("plain", json!({}), vec![text("user", "Just do it.")]),
        (
            "spoken",
            json!({}),
            vec![text("user", "Hello."), text("assistant", "Hello!")],
        ),
        (
            "blocks_of_content",
            json!({}),
            vec![
                text("user", "Look:"),
                json!({
                    "role": "user",
                    "content": {"type": "image", "data": "eA==", "mimeType": "image/png"},
                }),
            ],
        ),
        (
            "paint it",
            json!({"colour": "red"}),
            vec![text("user", "local: Red a house None")],
        ),
        (
            "paint it",
            json!({"colour": "blue", "what": "a dog", "size in cm": "7"}),
            vec![text("user", "local: Blue a dog Some(7)")],
        ),
        ("counts", json!({"to": "7"}), vec![text("user", "7")]),
    ] {
        let got = harness()
            .get_prompt(name, arguments)
            .await
            .expect("messages");
        assert_eq!(got["messages"], json!(messages), "{name}");
    }
    let got = harness()
        .get_prompt("whole", json!({}))
        .await
        .expect("messages");
    assert_eq!(got["description"], "for today");
}

#[tokio::test]
async fn prompts_refuse_in_words() {
    for (name, arguments, code, message) in [
        (
            "paint it",
            json!({}),
            -32602,
            "Invalid params: missing argument: `colour`",
        ),
        (
            "paint it",
            json!({"colour": "green"}),
            -32602,
            "Invalid params: `colour` cannot be read: neither red nor blue",
        ),
        ("refuses", json!({}), -32603, "not today"),
        (
            "counts",
            json!({"to": "200"}),
            -32603,
            "out of range integral type conversion attempted",
        ),
    ] {
        let error = harness().get_prompt(name, arguments).await.expect_err(name);
        assert_eq!(error, json!({"code": code, "message": message}));
    }
}

#[tokio::test]
async fn arguments_are_completed_by_the_named_function() {
    let complete = async |argument: &str, value: &str| {
        let params = json!({
            "ref": {"type": "ref/prompt", "name": "paint it"},
            "argument": {"name": argument, "value": value},
        });
        harness().request("completion/complete", params).await
    };
    let values = |found: &Value| found["completion"]["values"].clone();
    assert_eq!(
        values(&complete("colour", "b").await.expect("suggestions")),
        json!(["blue"])
    );
    assert_eq!(
        values(&complete("what", "1").await.expect("suggestions")),
        json!(["a house"])
    );
    assert_eq!(
        values(&complete("size in cm", "1").await.expect("suggestions")),
        json!([])
    );
    let error = complete("what", "x").await.expect_err("refused");
    assert_eq!(error["message"], "invalid digit found in string");
    let error = complete("colour", "x").await.expect_err("refused");
    assert_eq!(
        error["message"],
        "Invalid params: there is no colour with an x"
    );
}

// === Errors of any type ===

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[resource(uri = "lost://disk")]
async fn lost_disk() -> Result<String, AnyError> {
    Err(std::io::Error::other("/dev/sda7 is gone").into())
}

#[prompt]
async fn lost_prompt() -> Result<String, AnyError> {
    Err(std::io::Error::other("/dev/sda7 is gone").into())
}

#[tokio::test]
async fn errors_of_any_type_are_masked_if_a_setting_says_so() {
    for (masked, is_told) in [(false, true), (true, false)] {
        let mut config = longshore::Config::default();
        config.server.mask_errors = masked;
        let app = App::new().resource(lost_disk).prompt(lost_prompt);
        let server = app.config(config).harness().expect("valid");
        let read = server.read("lost://disk").await.expect_err("lost");
        let got = server.get_prompt("lost_prompt", json!({})).await;
        for error in [read, got.expect_err("lost")] {
            assert_eq!(error.code(), -32603);
            assert_eq!(error.message().contains("sda7"), is_told, "{error}");
        }
    }
}

// === Types that a macro passes on ===

macro_rules! prompt_with {
    ($name:ident, $ty:ty, $context:ty) => {
        #[prompt]
        async fn $name(optional: $ty, context: $context) -> String {
            let name = context.principal().name();
            format!("{name}: {optional:?}")
        }
    };
}

prompt_with!(maybe, Option<u8>, &CallContext);

#[tokio::test]
async fn types_that_a_macro_passes_on_are_seen_as_written() {
    let server = App::new().prompt(maybe).harness().expect("valid");
    let listed = server.prompts().await.expect("a list");
    assert_eq!(listed[0]["arguments"], json!([{"name": "optional"}]));
    let got = server
        .get_prompt("maybe", json!({}))
        .await
        .expect("messages");
    assert_eq!(got["messages"][0]["content"]["text"], "local: None");
}
