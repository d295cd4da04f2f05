//! The memory toolset.

use std::process::Command;

use serde_json::{Value, json};

use super::reference::Reference;
use super::{call, refusal, serve};
use crate::support::{Running, Serve, Stateless};

fn settings(folder: &tempfile::TempDir) -> Value {
    json!({"memory": {"file": folder.path().join("memory.jsonl")}})
}

/// A conversation: each tool, with what it is called with.
fn conversation() -> Vec<(&'static str, Value)> {
    let entity = |name: &str, kind: &str, observations: &[&str]| json!({"name": name, "entityType": kind, "observations": observations});
    let relation =
        |from: &str, to: &str, kind: &str| json!({"from": from, "to": to, "relationType": kind});
    vec![
        ("read_graph", json!({})),
        (
            "create_entities",
            json!({"entities": [
                entity("Ada", "person", &["wrote the first program", "spricht Französisch"]),
                entity("Engine", "machine", &[]),
            ]}),
        ),
        (
            "create_entities",
            json!({"entities": [entity("Ada", "other", &["never"]), entity("Charles", "person", &["built it"])]}),
        ),
        (
            "create_relations",
            json!({"relations": [
                relation("Ada", "Engine", "programmed"),
                relation("Charles", "Engine", "designed"),
                relation("Charles", "nobody", "missed"),
            ]}),
        ),
        (
            "create_relations",
            json!({"relations": [relation("Ada", "Engine", "programmed"), relation("Ada", "Charles", "knew")]}),
        ),
        (
            "add_observations",
            json!({"observations": [
                {"entityName": "Engine", "contents": ["was never finished", "has \"a\" mill"]},
                {"entityName": "Ada", "contents": ["wrote the first program"]},
            ]}),
        ),
        (
            "add_observations",
            json!({"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
        ),
        ("read_graph", json!({})),
        ("search_nodes", json!({"query": "PERSON"})),
        ("search_nodes", json!({"query": "französisch"})),
        ("search_nodes", json!({"query": "mill"})),
        ("search_nodes", json!({"query": "not there"})),
        ("open_nodes", json!({"names": ["Engine", "Nobody"]})),
        ("open_nodes", json!({"names": []})),
        (
            "delete_observations",
            json!({"deletions": [
                {"entityName": "Engine", "observations": ["was never finished", "x"]},
                {"entityName": "Nobody", "observations": ["x"]},
            ]}),
        ),
        (
            "delete_relations",
            json!({"relations": [relation("Ada", "Charles", "knew"), relation("a", "b", "c")]}),
        ),
        ("read_graph", json!({})),
        (
            "delete_entities",
            json!({"entityNames": ["Charles", "Nobody"]}),
        ),
        ("read_graph", json!({})),
        ("create_entities", json!({"entities": []})),
        ("delete_entities", json!({"entityNames": ["Ada", "Engine"]})),
        ("read_graph", json!({})),
    ]
}

#[test]
fn a_conversation_is_remembered() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve("memory", settings(&folder));
    for (tool, arguments) in conversation().into_iter().take(6) {
        assert_ne!(call(&server, tool, arguments)["isError"], true, "{tool}");
    }
    // As after a restart.
    let server = serve("memory", settings(&folder));
    let graph = call(&server, "read_graph", json!({}));
    assert_eq!(
        graph["structuredContent"],
        json!({
            "entities": [
                {"name": "Ada", "entityType": "person", "observations": ["wrote the first program", "spricht Französisch"]},
                {"name": "Engine", "entityType": "machine", "observations": ["was never finished", "has \"a\" mill"]},
                {"name": "Charles", "entityType": "person", "observations": ["built it"]},
            ],
            "relations": [
                {"from": "Ada", "to": "Engine", "relationType": "programmed"},
                {"from": "Charles", "to": "Engine", "relationType": "designed"},
                {"from": "Charles", "to": "nobody", "relationType": "missed"},
                {"from": "Ada", "to": "Charles", "relationType": "knew"},
            ],
        })
    );
    let text = graph["content"][0]["text"].as_str().expect("a text");
    let same: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(same, graph["structuredContent"]);
    let read = Stateless::new("resources/read", json!({"uri": "memory://knowledge-graph"}))
        .send(&server)
        .result();
    assert_eq!(read["contents"][0]["text"], text);
    assert_eq!(read["contents"][0]["mimeType"], "application/json");

    let unknown = call(
        &server,
        "add_observations",
        json!({"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
    );
    assert_eq!(unknown["isError"], true);
    assert_eq!(
        unknown["content"][0]["text"],
        "Entity with name Nobody not found"
    );
    let wrong = call(
        &server,
        "create_entities",
        json!({"entities": [{"name": "x"}]}),
    );
    assert_eq!(wrong["isError"], true);
}

#[test]
fn it_says_what_keeps_it_from_starting() {
    let told = refusal("memory", json!({}));
    assert!(told.contains("builtin.memory.file is not set"), "{told}");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("memory.jsonl"),
        "\n\n{\"type\":\"entity\"}",
    )
    .expect("written");
    let told = refusal("memory", settings(&folder));
    assert!(
        told.contains("memory.jsonl, of which line 3 has no string \"name\""),
        "{told}"
    );
}

#[test]
fn callers_with_keys_have_memories_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Serve::new()
        .configured(|config| {
            config.toolsets = vec!["memory".to_owned()];
            config.builtin = serde_json::from_value(settings(&folder)).expect("settings");
            crate::auth::with_keys(config);
        })
        .start();
    let by = |key: &str, tool: &str, arguments: Value| {
        let request =
            Stateless::call(tool, arguments).and("authorization", &format!("Bearer {key}"));
        request.send(&server).result()
    };
    for (key, name) in [(crate::auth::CI, "of ci"), (crate::auth::BOB, "of bob")] {
        let entities = json!({"entities": [{"name": name, "entityType": "t", "observations": []}]});
        assert_ne!(by(key, "create_entities", entities)["isError"], true);
    }
    for (key, name) in [(crate::auth::CI, "of ci"), (crate::auth::BOB, "of bob")] {
        let graph = by(key, "read_graph", json!({}));
        let entities = &graph["structuredContent"]["entities"];
        assert_eq!(
            (
                entities.as_array().map(Vec::len),
                entities[0]["name"].as_str()
            ),
            (Some(1), Some(name))
        );
    }
    assert!(
        !folder.path().join("memory.jsonl").exists(),
        "nobody has used the shared one"
    );
}

#[test]
fn the_reference_server_answers_alike_and_reads_the_same_file() {
    let (ours_folder, theirs_folder) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let (our_file, their_file) = (
        ours_folder.path().join("memory.jsonl"),
        theirs_folder.path().join("memory.jsonl"),
    );
    let Some(script) = std::env::var_os("LONGSHORE_REFERENCE_MEMORY") else {
        let told = "SKIPPED: set LONGSHORE_REFERENCE_MEMORY to dist/index.js of @modelcontextprotocol/server-memory to compare with it\n";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes());
        return;
    };
    let mut theirs = Reference::start(
        Command::new("node")
            .arg(script)
            .env("MEMORY_FILE_PATH", &their_file),
    );
    let ours: Running = serve("memory", settings(&ours_folder));
    for (step, (tool, arguments)) in conversation().into_iter().enumerate() {
        let expected = theirs.call(tool, arguments.clone());
        let answer = call(&ours, tool, arguments);
        for part in ["content", "structuredContent"] {
            assert_eq!(answer[part], expected[part], "step {step}, {tool}");
        }
        assert_eq!(
            answer["isError"] == true,
            expected["isError"] == true,
            "step {step}, {tool}"
        );
        let text = |file| std::fs::read_to_string(file).unwrap_or_default();
        assert_eq!(text(&our_file), text(&their_file), "step {step}, {tool}");
    }
}
