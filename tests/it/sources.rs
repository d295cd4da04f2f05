//! Tools that configuration describes.

use serde_json::{Value, json};

use crate::support::{Running, Serve, Stateless};

fn serve(sources: Value) -> Serve {
    let sources = serde_json::from_value(sources).expect("sources");
    Serve::new().configured(|config| config.sources = sources)
}

fn names(server: &Running) -> Vec<String> {
    let listed = Stateless::new("tools/list", json!({}))
        .send(server)
        .result();
    let tools = listed["tools"].as_array().expect("a list").iter();
    tools
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn health(server: &Running) -> Value {
    server.page("/health").json()
}

#[test]
fn one_that_is_described_wrongly_is_refused_and_the_rest_served() {
    let server = serve(json!([
        {"name": "files", "command": {"tools": [
            {"name": "say", "arguments": {"text": {}}, "argv": ["printf", "%s!", "{{ text }}"]},
            {"name": "lost", "argv": ["no-such-command-anywhere"]},
            {"name": "say", "argv": ["echo"]},
            {"name": "not a name", "argv": ["echo"]},
        ]}},
        {"name": "pets", "openapi": {"document": "/nonexistent.yaml"}},
        {"name": "nothing"},
        {"name": "files", "command": {}},
    ]))
    .start();
    assert_eq!(names(&server), ["say"]);
    let refused = health(&server)["refused"].take();
    let places: Vec<&str> = refused
        .as_array()
        .expect("a list")
        .iter()
        .map(|refused| refused["place"].as_str().expect("a place"))
        .collect();
    assert_eq!(
        places,
        [
            "sources[0].command.tools[1] (lost)",
            "tool say",
            "tool not a name",
            "sources[1].openapi.document",
            "sources[2]",
            "sources[3].name",
        ]
    );
    let said = Stateless::call("say", json!({"text": "$(id); hello"}))
        .send(&server)
        .result();
    assert_eq!(said["content"][0]["text"], "$(id); hello!");
    let wrong = Stateless::call("say", json!({"text": 7}))
        .send(&server)
        .result();
    assert_eq!(wrong["isError"], true);
}

#[test]
fn where_nothing_can_be_offered_nothing_is_served() {
    let sources = json!([{"name": "pets", "openapi": {"document": "/nonexistent.yaml"}}]);
    let config = longshore::Config {
        sources: serde_json::from_value(sources).expect("sources"),
        ..longshore::Config::default()
    };
    let app = longshore::App::new().config(config);
    let error = app.harness().map(drop).expect_err("refused").to_string();
    assert!(
        error.contains("source pets, sources[0].openapi.document")
            && error.contains("/nonexistent.yaml"),
        "{error}"
    );
}

#[test]
#[cfg(not(feature = "wasm"))]
fn a_build_without_components_says_how_to_have_them() {
    let component = json!({"name": "text", "component": {"path": "./text.wasm"}});
    let server = serve(json!([
        {"name": "files", "command": {"tools": [{"name": "say", "argv": ["printf", "hello"]}]}},
        component,
    ]))
    .start();
    assert_eq!(names(&server), ["say"]);
    assert_eq!(
        health(&server)["refused"][0]["place"],
        "sources[1].component"
    );
    let config = longshore::Config {
        sources: serde_json::from_value(json!([component])).expect("sources"),
        ..longshore::Config::default()
    };
    let app = longshore::App::new().config(config);
    let error = app.harness().map(drop).expect_err("refused").to_string();
    assert!(error.contains("this build has no WebAssembly support; build with --features wasm, or remove the source"), "{error}");
}

#[test]
fn the_example_of_the_readme_is_a_configuration() {
    let readme = include_str!("../../README.md");
    let documents = include_str!("../../docs/sources.md");
    let mut examples = 0;
    for text in [readme, documents] {
        for block in text
            .split("```yaml\n")
            .skip(1)
            .filter(|block| block.contains("sources:"))
        {
            let (example, _) = block.split_once("```").expect("an end");
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("longshore.yaml");
            let example = example
                .replace("${WEATHER_TOKEN}", "t")
                .replace("${IDP_CLIENT_SECRET}", "s")
                .replace("${CRM_CLIENT_SECRET}", "s")
                .replace("${PETS_API_KEY}", "k");
            std::fs::write(&path, example).expect("written");
            let mut flags = longshore::config::Flags::default();
            flags.config = Some(path);
            let config =
                longshore::Config::load(&flags, &longshore::environment::Probe::of([("A", "b")]));
            assert!(config.is_ok(), "{:?}", config.err().map(|e| e.to_string()));
            examples += 1;
        }
    }
    assert_eq!(examples, 9);
}
