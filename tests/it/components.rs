//! WebAssembly components, over HTTP.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Running, Serve, Stateless, becomes};

/// The components in the tests of `longshore::source`.
const PLAIN: &str = include_str!("../../crates/sources/src/wasm/tests/plain.wat");

struct Components {
    folder: tempfile::TempDir,
}

impl Components {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

fn source(name: &str, path: &Path, mut component: Value) -> Value {
    component["path"] = path.to_str().expect("UTF-8").into();
    json!({"name": name, "component": component})
}

fn serve(sources: &[Value]) -> Running {
    let sources = serde_json::from_value(json!(sources)).expect("sources");
    Serve::new()
        .configured(|config| config.sources = sources)
        .start()
}

fn call(server: &Running, tool: &str, arguments: Value) -> Value {
    Stateless::call(tool, arguments).send(server).result()
}

#[test]
fn functions_are_tools_in_every_revision() {
    let components = Components::new();
    let path = components.file("plain.wasm", PLAIN);
    let include = ["add", "echo", "check", "many-texts"];
    let server = serve(&[source("calc", &path, json!({"include": include}))]);
    let listed = Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let names: Vec<_> = listed["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(
        names,
        ["calc__add", "calc__echo", "calc__check", "calc__many-texts"]
    );
    assert_eq!(listed["tools"][0]["outputSchema"]["maximum"], 255);
    assert_eq!(
        listed["tools"][0]["annotations"],
        json!({"readOnlyHint": true, "openWorldHint": false})
    );

    let sum = call(&server, "calc__add", json!({"left": 40, "right": 2}));
    assert_eq!(sum["structuredContent"], 42);
    assert_eq!(sum["content"], json!([{"type": "text", "text": "42"}]));
    let wrong = call(&server, "calc__add", json!({"left": 300, "right": 2}));
    assert_eq!(wrong["isError"], true);
    assert!(
        wrong["content"][0]["text"]
            .as_str()
            .expect("a text")
            .contains("255")
    );
    let refused = call(&server, "calc__check", json!({"text": ""}));
    assert_eq!(refused["isError"], true);
    assert_eq!(refused["content"][0]["text"], "nothing");

    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let session = server.session(revision);
        let sum = session
            .call("calc__add", &json!({"left": 40, "right": 2}))
            .result();
        assert_eq!(sum["content"][0]["text"], "42", "{revision}");
        let echoed = session.call("calc__echo", &json!({"text": "ä"})).result();
        assert_eq!(echoed["content"][0]["text"], "ä", "{revision}");
    }
}

#[test]
fn a_broken_component_is_refused_alone() {
    let components = Components::new();
    let good = components.file("good.wasm", PLAIN);
    let core = components.file("core.wasm", "\0asm\u{1}\0\0\0");
    let http = "(component (import \"wasi:http/types@0.2.0\" (instance (export \"f\" (func)))))";
    let http = components.file("http.wasm", http);
    let missing = components.folder.path().join("missing.wasm");
    let server = serve(&[
        source("good", &good, json!({"include": ["add"]})),
        source("core", &core, json!({})),
        source("http", &http, json!({})),
        source("missing", &missing, json!({})),
    ]);
    assert_eq!(
        call(&server, "good__add", json!({"left": 1, "right": 2}))["structuredContent"],
        3
    );
    let health = server.page("/health").json();
    let refused: Vec<_> = health["refused"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|refused| (refused["source"].clone(), refused["place"].clone()))
        .collect();
    assert_eq!(
        refused,
        [
            (json!("core"), json!("sources[1].component.path")),
            (json!("http"), json!("sources[2].component.path")),
            (json!("missing"), json!("sources[3].component.path")),
        ]
    );
}

#[test]
fn whoever_closes_a_connection_ends_the_call_and_others_are_served_meanwhile() {
    let components = Components::new();
    let path = components.file("plain.wasm", PLAIN);
    let once = json!({"include": ["spin", "count"], "limits": {"concurrency": 1, "queue_ms": 0}});
    let server = serve(&[
        source("busy", &path, once),
        source("free", &path, json!({"include": ["count"]})),
    ]);
    let is_full = || {
        let answer = call(&server, "busy__count", json!({}));
        let text = answer["content"][0]["text"].as_str().expect("a text");
        text.contains("too many calls")
    };
    let mut caller = server.connect();
    caller.send(Stateless::call("busy__spin", json!({})).text());
    becomes(is_full);
    for _ in 0..20 {
        let counted = call(&server, "free__count", json!({}));
        assert_eq!(counted["structuredContent"], 1);
    }
    assert!(is_full());
    drop(caller);
    becomes(|| !is_full());
}

#[test]
fn an_endless_call_is_ended_with_a_reason() {
    let components = Components::new();
    let path = components.file("plain.wasm", PLAIN);
    let server = serve(&[source(
        "c",
        &path,
        json!({"limits": {"timeout_seconds": 1}}),
    )]);
    let ended = call(&server, "c__spin", json!({}));
    assert_eq!(ended["isError"], true);
    assert_eq!(
        ended["content"][0]["text"],
        "the component took longer than 1 s and was ended"
    );
}
