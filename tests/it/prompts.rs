//! Prompts and completion, over real sockets and through the harness. Tests are named after the rule that they hold the
//! server to.

mod completion;

use std::future::ready;
use std::sync::Arc;

use longshore::catalog::{ArgumentFuture, CatalogError, PromptFuture, ReadFuture, VariableFuture};
use longshore::{
    Annotations, App, AppError, CallContext, CompletionRequest, Completions, Content, Harness,
    Icon, Parameters, Prompt, PromptArgument, PromptDefinition, PromptError, PromptMessage,
    PromptOutput, ResourceContents, ResourceDefinition, ResourceError, ResourceTemplate, prompt_fn,
};
use serde_json::json;

use crate::support::Checked as _;
use crate::support::{Running, Serve, Stateless};

const WITH_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A prompt with arguments of each kind and suggestions for one of them.
struct Review(PromptDefinition);

impl Review {
    fn new() -> Self {
        Self(
            PromptDefinition::new("review")
                .title("Code review")
                .description("Asks for a review.")
                .argument(
                    PromptArgument::required("code")
                        .title("Code")
                        .description("The code."),
                )
                .argument(PromptArgument::optional("language"))
                .icon(Icon::new("https://example.com/icon.png"))
                .meta("com.example/kind", json!("review")),
        )
    }
}

impl Prompt for Review {
    fn definition(&self) -> &PromptDefinition {
        &self.0
    }

    fn get(&self, _: Arc<CallContext>, arguments: Parameters) -> PromptFuture {
        let language = arguments
            .get("language")
            .unwrap_or("some language")
            .to_owned();
        let code = arguments.get("code").unwrap_or_default().to_owned();
        Box::pin(ready(Ok(PromptOutput::new([
            PromptMessage::user(format!("Review this {language}:")),
            PromptMessage::user(code),
            PromptMessage::assistant("With pleasure."),
        ]))))
    }

    fn completes(&self, argument: &str) -> bool {
        argument == "language"
    }

    fn complete(&self, _: Arc<CallContext>, request: CompletionRequest) -> ArgumentFuture {
        let found = match request.value.as_str() {
            "many" => Ok(Completions::new((0..250).map(|i| i.to_string()))),
            "counted" => Ok(Completions::new(["one"]).of_total(1_000)),
            "fails" => Err(PromptError::new("no suggestions today")),
            "panics" => panic!("on purpose"),
            value => {
                let code = request.arguments.get("code").unwrap_or("none");
                Ok(Completions::matching(
                    value,
                    ["rust", "ruby", &format!("for {code}")],
                ))
            }
        };
        Box::pin(ready(found))
    }
}

/// A template with suggestions.
struct Verb(ResourceDefinition);

impl ResourceTemplate for Verb {
    fn definition(&self) -> &ResourceDefinition {
        &self.0
    }

    fn read(&self, _: Arc<CallContext>, _: &str, variables: Parameters) -> ReadFuture {
        let verb = variables.get("verb").unwrap_or_default().to_owned();
        Box::pin(ready(Ok(vec![ResourceContents::text(verb)])))
    }

    fn completes(&self, variable: &str) -> bool {
        variable == "verb"
    }

    fn complete(&self, _: Arc<CallContext>, request: CompletionRequest) -> VariableFuture {
        let found = match request.value.as_str() {
            "fails" => Err(ResourceError::internal("secret")),
            "many" => Ok(Completions::new(["go", "get", "walk"]).of_total(1_000)),
            value => Ok(Completions::matching(value, ["go", "get", "walk"])),
        };
        Box::pin(ready(found))
    }
}

fn prompts(app: App) -> App {
    let fails = |error: fn() -> PromptError| {
        move |_: Arc<CallContext>, _: Parameters| async move { Err::<String, _>(error()) }
    };
    app.prompt(Review::new())
        .prompt(prompt_fn(PromptDefinition::new("plain"), |_, _| async { Ok("Just do it.") }))
        .prompt(prompt_fn(PromptDefinition::new("blocks"), |_, _| async {
            let mut link = Content::resource_link("test://a", "a");
            if let Content::ResourceLink(link) = &mut link {
                link.annotations = Some(Annotations {
                    last_modified: Some("2026-01-01T00:00:00Z".to_owned()),
                    ..Annotations::default()
                });
            }
            let mut text = Content::text("t");
            if let Content::Text(text) = &mut text {
                text.meta = json!({"com.example/a": 1}).as_object().cloned();
                text.annotations = Some(Annotations {
                    priority: Some(1.0),
                    last_modified: Some("2026-01-01T00:00:00Z".to_owned()),
                    ..Annotations::default()
                });
            }
            Ok(vec![
                text,
                Content::image(b"x", "image/png"),
                Content::audio(b"x", "audio/wav"),
                link,
                Content::embedded_text("test://b", "text/plain", "b"),
            ])
        }))
        .prompt(prompt_fn(
            PromptDefinition::new("number").argument(PromptArgument::required("n")),
            |_, arguments: Parameters| async move { Ok(format!("{}", arguments.parse::<u8>("n")? / 2)) },
        ))
        .prompt(prompt_fn(
            PromptDefinition::new("broken"),
            fails(|| PromptError::new("the template was not found")),
        ))
        .prompt(prompt_fn(
            PromptDefinition::new("secret"),
            fails(|| PromptError::internal("hunter2")),
        ))
        .prompt(prompt_fn(PromptDefinition::new("panics"), |_, _| async {
            if true {
                panic!("on purpose");
            }
            Ok("")
        }))
        .resource_template(Verb(ResourceDefinition::new("verb://{verb}/{tense}", "verb")))
}

fn served() -> Running {
    Serve::new().app(prompts).start()
}

fn harness() -> Harness {
    prompts(App::new())
        .checked_harness()
        .expect("valid prompts")
}

// === Lists ===

#[test]
fn prm_01_prompts_and_completions_are_announced_where_there_are_any() {
    // COMP-01
    let (with, without) = (served(), Serve::new().start());
    let plain = Serve::new()
        .app(|app| {
            app.prompt(prompt_fn(PromptDefinition::new("p"), |_, _| async {
                Ok("")
            }))
        })
        .start();
    let discovered = |server: &Running| {
        Stateless::new("server/discover", json!({}))
            .send(server)
            .result()["capabilities"]
            .clone()
    };
    for (server, prompts, completions) in [
        (&with, true, true),
        (&plain, true, false),
        (&without, false, false),
    ] {
        let capabilities = discovered(server);
        assert_eq!(capabilities.get("prompts").is_some(), prompts);
        assert_eq!(capabilities.get("completions").is_some(), completions);
        for revision in WITH_SESSIONS {
            let session = server.session(revision);
            let capabilities = &session.initialized["capabilities"];
            assert_eq!(capabilities.get("prompts").is_some(), prompts, "{revision}");
            let completions = completions && revision != "2024-11-05";
            assert_eq!(
                capabilities.get("completions").is_some(),
                completions,
                "{revision}"
            );
        }
    }
}

#[test]
fn disc_02_methods_of_what_is_not_there_are_not_found() {
    let server = Serve::new().start();
    for method in ["prompts/list", "prompts/get", "completion/complete"] {
        let response = Stateless::new(method, json!({"name": "review"})).send(&server);
        response.error(404, -32601, "1");
        for revision in WITH_SESSIONS {
            let response = server
                .session(revision)
                .request(method, &json!({"name": "review"}));
            response.error(200, -32601, "1");
        }
    }
}

#[test]
fn prompts_are_listed_as_each_revision_knows_them() {
    let server = served();
    let list = Stateless::new("prompts/list", json!({}))
        .send(&server)
        .result();
    assert_eq!(
        list["prompts"][0],
        json!({
            "name": "review", "title": "Code review", "description": "Asks for a review.",
            "arguments": [
                {"name": "code", "title": "Code", "description": "The code.", "required": true},
                {"name": "language"},
            ],
            "icons": [{"src": "https://example.com/icon.png"}],
            "_meta": {"com.example/kind": "review"},
        })
    );
    assert_eq!(list["prompts"][1], json!({"name": "plain"}));
    assert_eq!(
        (&list["ttlMs"], &list["cacheScope"]),
        (&json!(300_000), &json!("public"))
    );
    for revision in WITH_SESSIONS {
        let list = server
            .session(revision)
            .request("prompts/list", &json!({}))
            .result();
        let review = &list["prompts"][0];
        let has_titles = "2025-06-18" <= revision;
        assert_eq!(review.get("title").is_some(), has_titles, "{revision}");
        assert_eq!(
            review["arguments"][0].get("title").is_some(),
            has_titles,
            "{revision}"
        );
        assert_eq!(review.get("_meta").is_some(), has_titles, "{revision}");
        assert_eq!(
            review.get("icons").is_some(),
            "2025-11-25" <= revision,
            "{revision}"
        );
        assert!(list.get("ttlMs").is_none());
    }
}

// === Getting ===

#[test]
fn prompts_are_got_in_both_eras() {
    let server = served();
    let params = json!({"name": "review", "arguments": {"code": "x = 1", "language": "Python"}});
    let messages = json!([
        {"role": "user", "content": {"type": "text", "text": "Review this Python:"}},
        {"role": "user", "content": {"type": "text", "text": "x = 1"}},
        {"role": "assistant", "content": {"type": "text", "text": "With pleasure."}},
    ]);
    let got = Stateless::new("prompts/get", params.clone())
        .send(&server)
        .result();
    assert_eq!(got["messages"], messages);
    assert_eq!(got["description"], "Asks for a review.");
    assert_eq!(got["resultType"], "complete");
    // Prompts are not to be kept.
    assert!(got.get("ttlMs").is_none() && got.get("cacheScope").is_none());
    for revision in WITH_SESSIONS {
        let got = server
            .session(revision)
            .request("prompts/get", &params)
            .result();
        assert_eq!(
            got,
            json!({"description": "Asks for a review.", "messages": messages})
        );
    }
}

#[test]
fn tool_10_content_is_shown_as_each_revision_knows_it() {
    let server = served();
    for revision in WITH_SESSIONS {
        let got = server
            .session(revision)
            .request("prompts/get", &json!({"name": "blocks"}));
        let got = got.result();
        let block = |i: usize| &got["messages"][i]["content"];
        let new = "2025-06-18" <= revision;
        assert_eq!(block(0).get("_meta").is_some(), new, "{revision}");
        assert_eq!(
            block(0)["annotations"].get("lastModified").is_some(),
            new,
            "{revision}"
        );
        assert_eq!(block(0)["annotations"]["priority"], 1.0, "{revision}");
        assert_eq!(block(1)["type"], "image");
        let audio = if revision == "2024-11-05" {
            "text"
        } else {
            "audio"
        };
        assert_eq!(block(2)["type"], audio, "{revision}");
        assert_eq!(
            block(3)["type"],
            if new { "resource_link" } else { "text" },
            "{revision}"
        );
        assert_eq!(block(4)["resource"]["text"], "b");
    }
}

#[test]
fn prm_02_unknown_prompts_and_missing_arguments_are_invalid() {
    let server = served();
    for (params, message) in [
        (json!({"name": "nobody"}), "Unknown prompt: nobody"),
        (
            json!({"name": 7}),
            "Invalid params: name is required, a string: which prompt to get",
        ),
        (
            json!({}),
            "Invalid params: name is required, a string: which prompt to get",
        ),
        (
            json!({"name": "review"}),
            "Invalid params: missing argument: `code`",
        ),
        (
            json!({"name": "review", "arguments": {"language": "C"}}),
            "Invalid params: missing argument: `code`",
        ),
        (
            json!({"name": "review", "arguments": {"code": 7}}),
            "Invalid params: arguments: `code` is a string",
        ),
        (
            json!({"name": "review", "arguments": ["x"]}),
            "Invalid params: arguments: invalid type: sequence, expected an object of strings",
        ),
        (
            json!({"name": "review", "arguments": {"code": "x", "lang": "C"}}),
            "Invalid params: the prompt has no argument `lang`; it has `code`, `language`",
        ),
        (
            json!({"name": "number", "arguments": {"n": "300"}}),
            "Invalid params: `n` cannot be read: number too large to fit in target type",
        ),
    ] {
        for revision in WITH_SESSIONS {
            let response = server.session(revision).request("prompts/get", &params);
            assert_eq!(response.error(200, -32602, "1"), message);
        }
        if params["name"].is_string() {
            let response = Stateless::new("prompts/get", params).send(&server);
            assert_eq!(response.error(200, -32602, "1"), message);
        }
    }
}

#[tokio::test]
async fn failures_tell_as_much_as_they_should() {
    let harness = harness();
    for (name, message) in [
        ("broken", "the template was not found"),
        ("secret", "Internal error"),
        ("panics", "Internal error"),
    ] {
        let error = harness.get_prompt(name, json!({})).await.expect_err(name);
        assert_eq!(error, json!({"code": -32603, "message": message}));
    }
}

#[test]
fn mh_05_the_name_is_mirrored_in_a_header() {
    let server = served();
    let get = Stateless::new("prompts/get", json!({"name": "plain"}));
    get.send(&server).result();
    get.clone()
        .without("mcp-name")
        .send(&server)
        .error(400, -32020, "1");
    get.with("mcp-name", "Plain")
        .send(&server)
        .error(400, -32020, "1");
}

// === Completion ===

// === Registration ===

#[test]
fn what_cannot_be_offered_is_refused_with_a_reason() {
    let prompt = |definition: PromptDefinition| prompt_fn(definition, |_, _| async { Ok("") });
    let refused = |app: App| match app.checked_harness() {
        Err(AppError::Catalog(error)) => error,
        other => panic!("{other:?}"),
    };
    let named = |name: &str| prompt(PromptDefinition::new(name));
    let error = refused(App::new().prompt(named("a")).prompt(named("a")));
    assert!(
        matches!(error, CatalogError::DuplicatePrompt { .. }),
        "{error}"
    );
    for name in ["", "a\nb", &"x".repeat(129)] {
        let error = refused(App::new().prompt(named(name)));
        assert!(matches!(error, CatalogError::Definition { .. }), "{error}");
    }
    let twice = PromptDefinition::new("p")
        .argument(PromptArgument::required("a"))
        .argument(PromptArgument::optional("a"));
    let error = refused(App::new().prompt(prompt(twice)));
    assert_eq!(
        error.to_string(),
        r#"prompt "p": the argument "a" appears twice"#
    );
}
