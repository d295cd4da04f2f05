//! Resources and templates of resources, over real sockets and through the harness. Tests are named after the rule
//! that they hold the server to.

mod caching;
mod lists;

use std::sync::Arc;
use std::time::Duration;

use longshore::catalog::CatalogError;
use longshore::{
    Annotations, App, AppError, CacheScope, CallContext, Harness, Icon, Parameters,
    PromptDefinition, PromptError, ResourceContents, ResourceDefinition, ResourceError, Role,
    StaticResource, prompt_fn, resource_fn, template_fn,
};
use serde_json::{Value, json};

use crate::support::Checked as _;
use crate::support::{Running, Serve, Stateless};

const WITH_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

fn definition(uri: &str) -> ResourceDefinition {
    ResourceDefinition::new(uri, "a resource")
}

/// Adds a resource of each kind.
fn resources(app: App) -> App {
    let text = definition("test://text")
        .title("Text")
        .description("Some text.")
        .mime_type("text/plain")
        .annotations(Annotations {
            audience: vec![Role::User],
            priority: Some(0.5),
            last_modified: Some("2026-01-01T00:00:00Z".to_owned()),
        })
        .icon(Icon::new("https://example.com/icon.png"))
        .meta("com.example/kind", json!("text"))
        .ttl(Duration::from_secs(60))
        .cache_scope(CacheScope::Public);
    let parts = [
        ResourceContents::text("one"),
        ResourceContents::text("two")
            .with_uri("test://parts/2")
            .with_mime_type("text/markdown"),
    ];
    app.resource(StaticResource::text(text, "hello"))
        .resource(StaticResource::binary(
            definition("test://binary").mime_type("image/png"),
            [0x89, b'P', b'N', b'G', 0xff],
        ))
        .resource(resource_fn(definition("test://parts"), move |_| {
            let parts = parts.to_vec();
            async move { Ok(parts) }
        }))
        .resource(resource_fn(definition("test://json"), |_| async {
            Ok(json!({"answer": 42}))
        }))
        .resource(resource_fn(definition("test://nothing"), |_| async {
            Ok(Vec::<ResourceContents>::new())
        }))
        .resource(resource_fn(definition("test://gone"), |_| async {
            Err::<String, _>(ResourceError::not_found())
        }))
        .resource(resource_fn(definition("test://broken"), |_| async {
            Err::<String, _>(ResourceError::new("the disk is on fire"))
        }))
        .resource(resource_fn(definition("test://secret"), |_| async {
            Err::<String, _>(ResourceError::internal("password hunter2 was refused"))
        }))
        .resource(resource_fn(definition("test://panics"), |_| async {
            if true {
                panic!("on purpose");
            }
            Ok("unreachable")
        }))
        .resource(resource_fn(
            definition("test://slow").timeout(Duration::from_millis(1)),
            |_| async {
                std::future::pending::<()>().await;
                Ok("never")
            },
        ))
        .resource(template_fn(
            definition("test://square/{number}").mime_type("text/plain"),
            |_, variables: Parameters| async move {
                let number: u32 = variables.parse("number")?;
                Ok((u64::from(number) * u64::from(number)).to_string())
            },
        ))
        .resource(template_fn(
            definition("git://repo/{branch}/{+path}{?line}"),
            |_, variables: Parameters| async move {
                let said: Vec<_> = variables.iter().map(|(n, v)| format!("{n}={v}")).collect();
                Ok(said.join(" "))
            },
        ))
}

fn served() -> Running {
    Serve::new().app(resources).start()
}

fn without_resources() -> Running {
    Serve::new().start()
}

fn harness() -> Harness {
    resources(App::new())
        .checked_harness()
        .expect("valid resources")
}

fn stateless_read(server: &Running, uri: &str) -> Value {
    Stateless::new("resources/read", json!({ "uri": uri }))
        .send(server)
        .json()
}

// === Reading ===

#[test]
fn cache_01_text_is_read_with_its_time_to_live() {
    let server = served();
    let read = stateless_read(&server, "test://text");
    let result = &read["result"];
    assert_eq!(
        result["contents"],
        json!([{"uri": "test://text", "mimeType": "text/plain", "text": "hello"}])
    );
    assert_eq!(result["cacheScope"], "public");
    assert_eq!(result["resultType"], "complete");
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "test"
    );
    assert_eq!(result["ttlMs"], 60_000);
    let binary = stateless_read(&server, "test://binary");
    assert_eq!(
        binary["result"]["contents"],
        json!([{"uri": "test://binary", "mimeType": "image/png", "blob": "iVBOR/8="}])
    );
    assert_eq!(
        (&binary["result"]["ttlMs"], &binary["result"]["cacheScope"]),
        (&json!(0), &json!("private"))
    );
}

#[test]
fn sessions_read_without_what_the_stateless_era_adds() {
    let server = served();
    for revision in WITH_SESSIONS {
        let read = server
            .session(revision)
            .request("resources/read", &json!({"uri": "test://text"}))
            .result();
        assert_eq!(
            read,
            json!({"contents": [{"uri": "test://text", "mimeType": "text/plain", "text": "hello"}]})
        );
    }
}

#[tokio::test]
async fn several_contents_keep_their_own_uris() {
    let read = harness().read("test://parts").await.expect("contents");
    assert_eq!(
        read["contents"],
        json!([
            {"uri": "test://parts", "text": "one"},
            {"uri": "test://parts/2", "mimeType": "text/markdown", "text": "two"},
        ])
    );
}

#[tokio::test]
async fn values_are_read_as_json() {
    let read = harness().read("test://json").await.expect("contents");
    assert_eq!(
        read["contents"],
        json!([{"uri": "test://json", "mimeType": "application/json", "text": r#"{"answer":42}"#}])
    );
}

#[tokio::test]
async fn templates_are_given_their_variables_decoded() {
    let harness = harness();
    let text = async |uri: &str| {
        let read = harness.read(uri).await.expect("contents");
        assert_eq!(read["contents"][0]["uri"], uri);
        read["contents"][0]["text"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!(text("test://square/12").await, "144");
    assert_eq!(
        text("git://repo/fix%2F7/src/main.rs?line=3").await,
        "branch=fix/7 line=3 path=src/main.rs"
    );
    assert_eq!(text("git://repo/main/a").await, "branch=main path=a");
}

#[test]
fn res_02_what_is_not_there_has_a_code_by_revision() {
    // RES-03: an error, never empty contents.
    let server = served();
    let uris = [
        "test://missing",
        "test://gone",
        "test://nothing",
        "test://square/x",
        "test://square/",
        "git://repo/main",
    ];
    for uri in uris {
        let error = &stateless_read(&server, uri)["error"];
        assert_eq!(
            error,
            &json!({"code": -32602, "message": "Resource not found", "data": {"uri": uri}})
        );
        for revision in WITH_SESSIONS {
            let response = server
                .session(revision)
                .request("resources/read", &json!({ "uri": uri }));
            response.error(200, -32002, "1");
            assert_eq!(response.json()["error"]["data"], json!({ "uri": uri }));
        }
    }
}

#[test]
fn res_04_what_is_no_uri_is_refused() {
    let server = served();
    let long = format!("test://{}", "a".repeat(8 * 1024));
    for uri in [
        "",
        "/etc/passwd",
        "test://a b",
        "test://\u{0}",
        "test://{id}",
        &long,
    ] {
        let params = json!({ "uri": uri });
        let response = server
            .session("2025-11-25")
            .request("resources/read", &params);
        response.error(200, -32602, "1");
        let echoed = response.json()["error"]["data"]["uri"].to_string();
        assert!(echoed.len() < 1_000, "{echoed}");
    }
    for params in [
        json!({}),
        json!({"uri": 7}),
        json!({"uri": null}),
        json!({"uri": ["x"]}),
    ] {
        let response = server
            .session("2025-11-25")
            .request("resources/read", &params);
        response.error(200, -32602, "1");
    }
}

#[tokio::test]
async fn a_uri_of_fifty_thousand_commas_is_refused_at_once() {
    let error = harness()
        .read(&format!("git://repo/{}", ",".repeat(50_000)))
        .await
        .expect_err("too long");
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn failures_tell_as_much_as_they_should() {
    let harness = harness();
    let error = async |uri: &str| harness.read(uri).await.expect_err("fails");
    assert_eq!(
        error("test://broken").await,
        json!({"code": -32603, "message": "the disk is on fire"})
    );
    assert_eq!(
        error("test://secret").await,
        json!({"code": -32603, "message": "Internal error"})
    );
    assert_eq!(
        error("test://panics").await,
        json!({"code": -32603, "message": "Internal error"})
    );
    assert_eq!(
        error("test://slow").await,
        json!({"code": -32603, "message": "the resource did not respond within 0.001 s"})
    );
    assert!(harness.read("test://text").await.is_ok());
}

#[test]
fn mh_05_the_uri_is_mirrored_in_a_header() {
    let server = served();
    let read = Stateless::new("resources/read", json!({"uri": "test://text"}));
    read.send(&server).result();
    read.clone()
        .without("mcp-name")
        .send(&server)
        .error(400, -32020, "1");
    read.clone()
        .with("mcp-name", "test://other")
        .send(&server)
        .error(400, -32020, "1");
    // MH-07: in its encoded form too.
    read.with("mcp-name", "=?base64?dGVzdDovL3RleHQ=?=")
        .send(&server)
        .result();
}

#[tokio::test]
async fn a_resource_knows_who_asks_and_may_say_how_far_it_is() {
    let whoami = resource_fn(
        definition("test://me"),
        |context: Arc<CallContext>| async move {
            context.progress(1.0, Some(2.0), "half").await;
            Ok(context.principal().name().to_owned())
        },
    );
    let harness = App::new()
        .resource(whoami)
        .checked_harness()
        .expect("valid");
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "resources/read",
        "params": {"uri": "test://me", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": "t",
        }},
    });
    let said = harness.send_and_listen(&message.to_string()).await;
    assert_eq!(said[0]["method"], "notifications/progress");
    assert_eq!(said[0]["params"]["progressToken"], "t");
    assert_eq!(said[1]["result"]["contents"][0]["text"], "local");
}

#[test]
fn contents_without_meta_for_those_that_do_not_know_it() {
    let part = ResourceContents {
        meta: json!({"com.example/a": 1}).as_object().cloned(),
        ..ResourceContents::text("x")
    };
    let server = Serve::new()
        .app(|app| {
            app.resource(resource_fn(definition("test://meta"), move |_| {
                let part = part.clone();
                async move { Ok(part) }
            }))
        })
        .start();
    for revision in WITH_SESSIONS {
        let params = json!({"uri": "test://meta"});
        let read = server
            .session(revision)
            .request("resources/read", &params)
            .result();
        assert_eq!(
            read["contents"][0].get("_meta").is_some(),
            "2025-06-18" <= revision
        );
    }
}

// === Registration ===

fn refused(app: App) -> CatalogError {
    match app.checked_harness() {
        Err(AppError::Catalog(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn template(uri: &str) -> impl longshore::IntoResource {
    template_fn(definition(uri), |_, _| async { Ok("") })
}

#[test]
fn what_cannot_be_offered_is_refused_with_a_reason() {
    let text = |uri: &str| StaticResource::text(definition(uri), "");
    let error = refused(
        App::new()
            .resource(text("test://a"))
            .resource(text("test://a")),
    );
    assert_eq!(
        error.to_string(),
        r#"resource "test://a" was added twice; change one of the URIs"#
    );
    let error = refused(App::new().resource(text("no uri")));
    assert_eq!(
        error.to_string(),
        r#"resource "no uri": the URI is not valid, it does not begin with a scheme, such as `file:`"#
    );
    let error = refused(App::new().resource(template("test://{a}-{b}")));
    assert_eq!(
        error.to_string(),
        r#"resource "test://{a}-{b}": the template cannot be used"#
    );
    let source = std::error::Error::source(&error).expect("a source");
    assert!(
        source
            .to_string()
            .contains("the end of the variable `a` is ambiguous"),
        "{source}"
    );
    let error = refused(
        App::new()
            .resource(template("t://{a}/x"))
            .resource(template("t://{b}/x")),
    );
    assert_eq!(
        error.to_string(),
        r#"the templates "t://{a}/x" and "t://{b}/x" match the same URIs; drop one of them"#
    );
    let important = definition("test://a").annotations(Annotations {
        priority: Some(1.5),
        ..Annotations::default()
    });
    let error = refused(App::new().resource(StaticResource::text(important, "")));
    assert_eq!(
        error.to_string(),
        r#"resource "test://a": a priority is from 0 to 1"#
    );
}

#[tokio::test]
async fn a_fixed_resource_comes_before_templates_and_these_in_order() {
    let named = |uri: &str, text: &'static str| {
        template_fn(definition(uri), move |_, _| async move { Ok(text) })
    };
    let harness = App::new()
        .resource(named("t://{+all}", "first"))
        .resource(named("t://a/{b}", "second"))
        .resource(StaticResource::text(definition("t://a/fixed"), "fixed"))
        .checked_harness()
        .expect("valid");
    for (uri, text) in [("t://a/fixed", "fixed"), ("t://a/b", "first")] {
        let read = harness.read(uri).await.expect("contents");
        assert_eq!(read["contents"][0]["text"], text);
    }
}

// === Errors ===

#[test]
fn errors_that_were_not_written_for_the_caller_are_masked_if_a_setting_says_so() {
    async fn lost() -> std::io::Result<String> {
        std::fs::read_to_string("/nonexistent")
    }
    let responses = |masked: bool| {
        let lost_prompt = PromptDefinition::new("lost");
        let server = Serve::new()
            .app(|app| {
                app.resource(resource_fn(definition("test://lost"), |_| async {
                    Ok::<_, ResourceError>(lost().await?)
                }))
                .resource(resource_fn(definition("test://broken"), |_| async {
                    Err::<String, _>(ResourceError::new("the disk is on fire"))
                }))
                .prompt(prompt_fn(lost_prompt, |_, _| async {
                    Ok::<_, PromptError>(lost().await?)
                }))
            })
            .configured(|c| c.server.mask_errors = masked)
            .start();
        let read = |uri| stateless_read(&server, uri)["error"]["message"].to_string();
        let prompt = Stateless::new("prompts/get", json!({"name": "lost"})).send(&server);
        let prompt = prompt.json()["error"]["message"].to_string();
        [read("test://lost"), read("test://broken"), prompt]
    };
    let [read, written, prompt] = responses(false);
    assert!(read.contains("No such file"), "{read}");
    assert!(prompt.contains("No such file"), "{prompt}");
    let [masked_read, masked_written, masked_prompt] = responses(true);
    assert_eq!(masked_written, written);
    for masked in [masked_read, masked_prompt] {
        assert!(!masked.contains("No such file"), "{masked}");
    }
}
