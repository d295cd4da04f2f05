//! The built-in toolsets with settings, over HTTP.

mod time;

use longshore::environment::Probe;
use serde_json::{Value, json};

use crate::support::{Running, Serve, Stateless};

/// A server with one toolset.
pub(crate) fn serve(toolset: &str, builtin: Value) -> Running {
    Serve::new()
        .configured(|config| {
            config.toolsets = vec![toolset.to_owned()];
            config.builtin = serde_json::from_value(builtin).expect("settings");
        })
        .start()
}

/// The result of a call, in the stateless era.
pub(crate) fn call(server: &Running, tool: &str, arguments: Value) -> Value {
    Stateless::call(tool, arguments).send(server).result()
}

/// Why a server with one toolset does not start.
fn refusal(toolset: &str, builtin: Value) -> String {
    let config = longshore::Config {
        toolsets: vec![toolset.to_owned()],
        builtin: serde_json::from_value(builtin).expect("settings"),
        ..longshore::Config::default()
    };
    let harness = longshore::App::new().config(config).harness();
    harness.map(drop).expect_err("refused").to_string()
}

#[test]
fn what_does_not_exist_is_named_with_what_does() {
    let told = refusal("tiem", json!({}));
    assert!(told.contains("\"tiem\"") && told.contains("time"), "{told}");
}

#[test]
fn the_examples_of_the_document_are_configurations() {
    let document = include_str!("../../../docs/toolsets.md");
    let mut examples = 0;
    for block in document.split("```yaml\n").skip(1) {
        let (example, _) = block.split_once("```").expect("an end");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("longshore.yaml");
        std::fs::write(&path, example).expect("written");
        let mut flags = longshore::config::Flags::default();
        flags.config = Some(path);
        let config = longshore::Config::load(&flags, &Probe::of([("A", "b")]));
        let config = config.unwrap_or_else(|error| panic!("{example}\n{error}"));
        assert!(!config.toolsets.is_empty(), "{example}");
        examples += 1;
    }
    assert!(0 < examples);
}
