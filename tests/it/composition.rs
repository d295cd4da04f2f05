//! Composition of several servers into one.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use longshore::catalog::{ChangeHandle, Source, SourceItems};
use longshore::{
    App, CallContext, Definition, IntoTool as _, Parameters, PromptDefinition, PromptError,
    ResourceDefinition, StaticResource, ToolError, prompt_fn, tool, tool_fn,
};
use serde_json::{Map, Value, json};

use crate::lasting::{changed, open};
use crate::support::{Running, Serve};

/// Adds two numbers.
#[tool]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

fn other() -> App {
    let greeting = prompt_fn(
        PromptDefinition::new("greeting"),
        |_: Arc<CallContext>, _: Parameters| async { Ok::<_, PromptError>("Ahoy!".to_owned()) },
    );
    App::new()
        .tool(add)
        .prompt(greeting)
        .resource(StaticResource::text(
            ResourceDefinition::new("other://text", "text"),
            "a text",
        ))
}

/// Tools by name, which can be changed.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<(Vec<String>, ChangeHandle)>>);

impl Names {
    fn are(&self, names: &[&str]) {
        let mut shared = self.0.lock().expect("not poisoned");
        shared.0 = names.iter().map(|name| (*name).to_owned()).collect();
        shared.1.notify();
    }
}

impl Source for Names {
    fn name(&self) -> &str {
        "names"
    }

    fn offer(&self) -> BoxFuture<'_, SourceItems> {
        let names = self.0.lock().expect("not poisoned").0.clone();
        Box::pin(async move {
            let mut offered = SourceItems::default();
            for name in names {
                let tool = tool_fn(
                    Definition::new(name.clone()),
                    move |_: Arc<CallContext>, _: Map<String, Value>| {
                        let name = name.clone();
                        async move { Ok::<_, ToolError>(name) }
                    },
                );
                offered.tools.push(tool.into_tool());
            }
            offered
        })
    }

    fn watch(&self, changed: ChangeHandle) {
        self.0.lock().expect("not poisoned").1 = changed;
    }
}

fn listed(server: &Running, method: &str, member: &str) -> Vec<String> {
    let list = server
        .session("2025-11-25")
        .request(method, &json!({}))
        .result();
    let entries = list[member].as_array().expect("a list");
    let text = |entry: &Value| entry["name"].as_str().expect("a name").to_owned();
    entries.iter().map(text).collect()
}

#[test]
fn an_import_takes_over_what_there_is_under_a_prefix() {
    let server = Serve::new()
        .tool(add)
        .app(|app| app.import("other_", other()))
        .start();
    assert_eq!(listed(&server, "tools/list", "tools"), ["add", "other_add"]);
    assert_eq!(
        listed(&server, "prompts/list", "prompts"),
        ["other_greeting"]
    );
    let session = server.session("2025-11-25");
    let sum = session.call("other_add", &json!({"a": 1, "b": 2})).result();
    assert_eq!(sum["content"][0]["text"], "3");
    let invalid = session.call("other_add", &json!({"a": "x"})).result();
    assert_eq!(invalid["isError"], true);
    let got = session
        .request("prompts/get", &json!({"name": "other_greeting"}))
        .result();
    assert_eq!(got["messages"][0]["content"]["text"], "Ahoy!");
    let read = session
        .request("resources/read", &json!({"uri": "other://text"}))
        .result();
    assert_eq!(read["contents"][0]["text"], "a text");
}

#[test]
fn what_an_imported_application_announces_is_announced() {
    let other = other();
    let announcer = other.announcer();
    let server = Serve::new().app(|app| app.import("x_", other)).start();
    let session = server.session("2025-11-25");
    let mut stream = open(&server, &session);
    announcer.prompts_changed();
    assert_eq!(stream.event(), Some(changed("prompts")));
}

#[test]
fn list_03_a_mounted_source_is_asked_again_when_it_changes() {
    let names = Names::default();
    names.are(&["one"]);
    let server = Serve::new()
        .tool(add)
        .app(|app| app.source("n_", names.clone()))
        .start();
    assert_eq!(listed(&server, "tools/list", "tools"), ["add", "n_one"]);
    let session = server.session("2025-11-25");
    let mut stream = open(&server, &session);
    names.are(&["one", "two"]);
    assert_eq!(stream.event(), Some(changed("tools")));
    assert_eq!(
        listed(&server, "tools/list", "tools"),
        ["add", "n_one", "n_two"]
    );
    let called = session.call("n_two", &json!({})).result();
    assert_eq!(called["content"][0]["text"], "two");
    names.are(&[]);
    assert_eq!(stream.event(), Some(changed("tools")));
    assert_eq!(listed(&server, "tools/list", "tools"), ["add"]);
}

#[test]
fn what_a_source_cannot_offer_keeps_nothing_else_away() {
    let names = Names::default();
    names.are(&["good", "bad name", "good"]);
    let server = Serve::new().app(|app| app.source("", names)).start();
    assert_eq!(listed(&server, "tools/list", "tools"), ["good"]);
    let health = server.page("/health").json();
    assert_eq!(
        health["refused"],
        json!([
            {"source": "names", "place": "tool bad name"},
            {"source": "names", "place": "tool good"},
        ])
    );
}

#[test]
fn prefixes_add_up() {
    let names = Names::default();
    names.are(&["deep"]);
    let inner = App::new().source("b_", names);
    let server = Serve::new().app(|app| app.import("a_", inner)).start();
    assert_eq!(listed(&server, "tools/list", "tools"), ["a_b_deep"]);
}

struct Shop(&'static str);

/// Returns the name of the shop.
#[tool]
async fn shop(#[state] shop: &Shop) -> &'static str {
    shop.0
}

struct Shops;

impl Source for Shops {
    fn name(&self) -> &str {
        "shops"
    }

    fn offer(&self) -> BoxFuture<'_, SourceItems> {
        let mut offered = SourceItems::default();
        offered.tools.push(shop.into_tool());
        Box::pin(async { offered })
    }
}

#[tokio::test]
async fn a_source_of_an_imported_application_has_the_values_of_that_application() {
    let of = |name| App::new().provide(Shop(name)).source("", Shops);
    let without = App::new().source("", Shops);
    let server = of("outer_")
        .import("inner_", of("inner").import("deep_", of("deep")))
        .import("lent_", without)
        .harness()
        .expect("valid");
    for (tool, name) in [
        ("shop", "outer_"),
        ("inner_shop", "inner"),
        ("inner_deep_shop", "deep"),
        ("lent_shop", "outer_"),
    ] {
        let result = server.call(tool, json!({})).await.expect("a result");
        assert_eq!(result.text(), name, "{tool}");
    }
}
