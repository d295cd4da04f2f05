//! The built-in toolsets with settings, over HTTP.

#[cfg(target_os = "linux")]
mod fetch;
mod equivalence;
mod filesystem;
mod memory;
mod reference;
#[cfg(feature = "git")]
mod git;
#[cfg(feature = "sql")]
mod sql;
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

/// The result of a call, in the stateless lifecycle.
pub(crate) fn call(server: &Running, tool: &str, arguments: Value) -> Value {
    Stateless::call(tool, arguments).send(server).result()
}

/// Returns the start-up error of a server with one toolset.
fn refusal(toolset: &str, builtin: Value) -> String {
    let config = longshore::Config {
        toolsets: vec![toolset.to_owned()],
        builtin: serde_json::from_value(builtin).expect("settings"),
        ..longshore::Config::default()
    };
    let harness = longshore::App::new().config(config).harness();
    harness.map(drop).expect_err("refused").to_string()
}

/// Says that something was not tested, past what the harness captures of tests that pass.
#[cfg(any(feature = "git", feature = "sql"))]
fn skipped(why: &str) {
    use std::io::Write;
    let line = format!("SKIPPED: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[test]
fn what_does_not_exist_is_named_with_what_does() {
    let told = refusal("tiem", json!({}));
    assert!(told.contains("\"tiem\"") && told.contains("time"), "{told}");
}

#[test]
fn a_toolset_that_this_build_lacks_says_how_to_have_it() {
    for (toolset, is_there) in [
        ("git", cfg!(feature = "git")),
        ("sql", cfg!(feature = "sql")),
    ] {
        let told = refusal(toolset, json!({}));
        let expected = if is_there {
            format!("builtin.{toolset}.")
        } else {
            format!("build with --features {toolset}")
        };
        assert!(told.contains(&expected), "{told}");
    }
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

#[test]
fn limits_of_toolsets_are_counted_by_their_settings() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("large.txt"), "x".repeat(200)).expect("written");
    for name in ["a", "b", "c"] {
        std::fs::create_dir_all(folder.path().join("tree").join(name)).expect("made");
    }
    let server = Serve::new()
        .configured(|config| {
            config.toolsets = vec!["filesystem".to_owned(), "memory".to_owned()];
            config.http.admin.port = Some(0);
            config.builtin = serde_json::from_value(json!({
                "filesystem": {"directories": [folder.path()], "limits": {"bytes": 100, "entries": 2}},
                "memory": {"file": folder.path().join("memory.jsonl"), "max_entities": 0},
            }))
            .expect("settings");
        })
        .start();
    for _ in 0..2 {
        call(&server, "read_text_file", json!({"path": "large.txt"}));
    }
    call(&server, "directory_tree", json!({"path": "tree"}));
    let entity = json!({"name": "a", "entityType": "b", "observations": []});
    call(&server, "create_entities", json!({"entities": [entity]}));
    let page = server.admin_page("/metrics");
    for (setting, hits) in [
        ("filesystem.limits.bytes", 2),
        ("filesystem.limits.entries", 1),
        ("filesystem.limits.depth", 0),
        ("memory.max_entities", 1),
    ] {
        let found = page.limit_hits(&format!("builtin.{setting}"));
        assert_eq!(found, hits, "{setting}");
    }
}
