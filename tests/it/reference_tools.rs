//! The built-in toolsets have the tools and arguments of the official reference servers, so that prompts written for
//! those work here. What differs is named below, with its reason.
//!
//! `reference/*.json` has the names, types and obligation of each argument, taken from what the installed packages answer to
//! `tools/list`; and the licence of each package. Descriptions are left out, since ours are our own.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{Serve, Stateless};

const REFERENCES: [(&str, &str); 7] = [
    ("everything", include_str!("reference/everything.json")),
    ("fetch", include_str!("reference/fetch.json")),
    ("filesystem", include_str!("reference/filesystem.json")),
    ("git", include_str!("reference/git.json")),
    ("memory", include_str!("reference/memory.json")),
    ("sqlite", include_str!("reference/sqlite.json")),
    ("time", include_str!("reference/time.json")),
];

/// The reference server, our toolset, and the settings with which it offers all that it has.
fn compared() -> Vec<(&'static str, &'static str, Value)> {
    let mut compared = vec![
        ("everything", "everything", json!({})),
        ("fetch", "fetch", json!({})),
        (
            "filesystem",
            "filesystem",
            json!({"filesystem": {"directories": [std::env::temp_dir()], "write": true}}),
        ),
        (
            "memory",
            "memory",
            json!({"memory": {"file": std::env::temp_dir().join("never-written.jsonl")}}),
        ),
        ("time", "time", json!({})),
    ];
    if cfg!(feature = "git") {
        let settings =
            json!({"git": {"repositories": [env!("CARGO_MANIFEST_DIR")], "write": true}});
        compared.push(("git", "git", settings));
    }
    if cfg!(feature = "sql") {
        let database =
            json!({"name": "x", "postgres": "postgres://x@localhost/x", "read_query": true});
        compared.push(("sqlite", "sql", json!({"sql": {"databases": [database]}})));
    }
    compared
}

/// Known differences to the reference server: its name, the tool, the argument (or nothing for the whole tool), and
/// the reason. `*` stands for all tools of a server.
const DIFFERENCES: &[(&str, &str, &str, &str)] = &[
    (
        "everything",
        "*",
        "",
        "both are examples of what the protocol can do; ours has the names that the official conformance suite prescribes",
    ),
    (
        "sqlite",
        "write_query",
        "",
        "what is written is written by queries of the configuration, whose text no model makes up",
    ),
    (
        "sqlite",
        "create_table",
        "",
        "tables are made by those who run the database",
    ),
    (
        "sqlite",
        "append_insight",
        "",
        "it keeps notes, and has nothing to do with databases",
    ),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    package: String,
    version: String,
    licence: String,
    tools: BTreeMap<String, BTreeMap<String, Argument>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Argument {
    r#type: String,
    required: bool,
}

#[test]
fn every_tool_and_argument_of_the_reference_servers_is_there_or_has_a_reason() {
    let mut unexplained = Vec::new();
    let mut used = Vec::new();
    for (server, toolset, settings) in compared() {
        let reference = reference(server);
        let ours = tools(toolset, settings);
        for (tool, arguments) in &reference.tools {
            for (argument, difference) in differences(arguments, ours.get(tool)) {
                let reason = DIFFERENCES.iter().position(|(of, its, what, _)| {
                    *of == server
                        && (*its == "*" || its == tool)
                        && (*its == "*" || *what == argument)
                });
                match reason {
                    Some(position) => used.push(position),
                    None => unexplained.push(format!("{server}: {tool} {argument}: {difference}")),
                }
            }
        }
    }
    assert!(
        unexplained.is_empty(),
        "differences without a reason in DIFFERENCES:\n{}",
        unexplained.join("\n")
    );
    for (position, (server, tool, argument, _)) in DIFFERENCES.iter().enumerate() {
        let is_compared = compared().iter().any(|(name, ..)| name == server);
        assert!(
            used.contains(&position) || !is_compared,
            "{server}: {tool} {argument} no longer differs; take it out of DIFFERENCES"
        );
    }
}

#[test]
fn the_reference_says_what_it_was_taken_from() {
    for (server, _) in REFERENCES {
        let reference = reference(server);
        assert!(reference.package.ends_with(server), "{server}");
        assert!(reference.version.starts_with("202"), "{server}");
        assert!(reference.licence.contains("MIT"), "{server}");
        assert!(!reference.tools.is_empty(), "{server}");
    }
}

fn reference(server: &str) -> Reference {
    let (_, text) = REFERENCES
        .iter()
        .find(|(name, _)| *name == server)
        .expect("a reference");
    serde_json::from_str(text).expect("what it should be")
}

/// The input schemas of a toolset, by tool.
fn tools(toolset: &str, settings: Value) -> BTreeMap<String, Value> {
    let server = Serve::new()
        .configured(|config| {
            config.toolsets = vec![toolset.to_owned()];
            config.builtin = serde_json::from_value(settings).expect("settings");
        })
        .start();
    let listed = Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let tools = listed["tools"].as_array().expect("a list").iter();
    tools
        .map(|tool| {
            let name = tool["name"].as_str().expect("a name").to_owned();
            (name, tool["inputSchema"].clone())
        })
        .collect()
}

/// Returns the differences by argument; an empty name stands for the whole tool.
fn differences(
    theirs: &BTreeMap<String, Argument>,
    ours: Option<&Value>,
) -> Vec<(String, &'static str)> {
    let Some(ours) = ours else {
        return vec![(
            String::new(),
            "no such tool exists, so the limit has no effect",
        )];
    };
    let is_required = |name: &str| {
        let required = ours["required"].as_array();
        required.is_some_and(|all| all.iter().any(|one| one == name))
    };
    let mut found = Vec::new();
    for (name, argument) in theirs {
        let mine = &ours["properties"][name];
        let difference = if mine.is_null() {
            Some("which is not an argument; there")
        } else if is_required(name) != argument.required {
            Some("it is required by one of them alone")
        } else if !has_type(mine, &argument.r#type) {
            Some("it has another type")
        } else {
            None
        };
        found.extend(difference.map(|difference| (name.clone(), difference)));
    }
    let properties = ours["properties"].as_object();
    for name in properties.into_iter().flat_map(serde_json::Map::keys) {
        if is_required(name) && !theirs.contains_key(name) {
            found.push((name.clone(), "theirs works without it"));
        }
    }
    found
}

/// Returns true if a schema accepts values of a type. Where the reference accepts any number, integers suffice: each
/// is a count.
fn has_type(schema: &Value, wanted: &str) -> bool {
    let is_wanted = |name: &Value| name == wanted || (wanted == "number" && name == "integer");
    match &schema["type"] {
        Value::Array(names) => names.iter().any(is_wanted),
        Value::Null => {
            wanted == "string" && (schema["enum"].is_array() || schema["$ref"].is_string())
        }
        name => is_wanted(name),
    }
}
