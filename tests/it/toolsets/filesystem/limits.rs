//! Limits of a call, and the messages at these limits.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::super::refusal;
use super::{Grounds, everything_in};
use crate::support::assert_contains;

#[test]
fn nothing_is_read_or_written_beyond_its_size() {
    let grounds = Grounds::new();
    grounds.file("root/just.txt", "x".repeat(100));
    grounds.file("root/more.txt", "x".repeat(101));
    let server = grounds.server_with(|settings| settings["limits"] = json!({"bytes": 100}));
    assert_eq!(server.read("just.txt").expect("read").len(), 100);
    for (tool, arguments) in [
        ("read_text_file", json!({"path": "more.txt"})),
        ("read_text_file", json!({"path": "more.txt", "head": 1})),
        ("read_media_file", json!({"path": "more.txt"})),
        (
            "edit_file",
            json!({"path": "more.txt", "edits": [{"oldText": "x", "newText": "y"}]}),
        ),
        (
            "edit_file",
            json!({"path": "just.txt", "edits": [{"oldText": "x", "newText": "xy"}]}),
        ),
        (
            "write_file",
            json!({"path": "just.txt", "content": "y".repeat(101)}),
        ),
    ] {
        let told = server.call(tool, arguments).expect_err("too much");
        assert!(told.contains("builtin.filesystem.limits.bytes"), "{told}");
    }
    assert_eq!(server.read("just.txt").expect("read"), "x".repeat(100));
    // Together, too.
    let several = json!({"paths": ["just.txt", "just.txt"]});
    let told = server
        .call("read_multiple_files", several)
        .expect("one of them");
    assert!(told.contains("just.txt: Error - "), "{told}");
}

#[test]
fn listings_end_and_say_so() {
    let grounds = Grounds::new();
    for n in 0..20 {
        grounds.file(&format!("root/folder/{n:02}.txt"), "");
    }
    let server = grounds.server_with(|settings| settings["limits"] = json!({"entries": 10}));
    let listed = server
        .call("list_directory", json!({"path": "folder"}))
        .expect("a list");
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 11, "{listed}");
    assert!(
        lines[10].contains("builtin.filesystem.limits.entries"),
        "{listed}"
    );
    let tree = server
        .call("directory_tree", json!({"path": "."}))
        .expect("a tree");
    let tree: serde_json::Value = serde_json::from_str(&tree).expect("JSON");
    assert_eq!(tree[0]["truncated"], true);
    assert!(tree[0]["children"].as_array().expect("children").len() <= 10);
}

#[test]
fn trees_and_searches_go_so_deep_and_no_deeper() {
    let grounds = Grounds::new();
    grounds.file("root/1/2/3/4/deep.txt", "");
    grounds.file("root/1/2/near.txt", "");
    let server = grounds.server_with(|settings| settings["limits"] = json!({"depth": 3}));
    let tree = server
        .call("directory_tree", json!({"path": "."}))
        .expect("a tree");
    let tree: serde_json::Value = serde_json::from_str(&tree).expect("JSON");
    let third = &tree[0]["children"][0]["children"][0];
    assert_eq!(third["name"], "3");
    assert_eq!(
        (&third["children"], &third["truncated"]),
        (&json!([]), &json!(true))
    );
    let found = server
        .call("search_files", json!({"path": ".", "pattern": "**/*.txt"}))
        .expect("matches");
    assert!(
        found.contains("near.txt") && !found.contains("deep.txt"),
        "{found}"
    );
    assert!(found.contains("builtin.filesystem.limits.depth"), "{found}");
}

#[test]
fn searches_end_at_their_matches_and_at_what_they_look_at() {
    let grounds = Grounds::new();
    for n in 0..20 {
        grounds.file(&format!("root/{n:02}/file.txt"), "");
    }
    let search = |limits: serde_json::Value| {
        let server = grounds.server_with(|settings| settings["limits"] = limits);
        let found = server.call("search_files", json!({"path": ".", "pattern": "**/*.txt"}));
        found.expect("matches")
    };
    let found = search(json!({"matches": 5}));
    assert_eq!(found.lines().count(), 6, "{found}");
    assert_contains(&found, &["builtin.filesystem.limits.matches"]);
    let found = search(json!({"searched": 25}));
    assert_contains(&found, &["builtin.filesystem.limits.searched"]);
    assert!(search(json!({"matches": 20})).lines().count() == 20);
}

#[test]
fn a_folder_of_many_levels_does_no_harm() {
    let grounds = Grounds::new();
    let server = grounds.server();
    let deep = "d/".repeat(300);
    server
        .call("create_directory", json!({"path": deep}))
        .expect("made");
    server
        .write(format!("{deep}f.txt"), "at the bottom")
        .expect("written");
    assert_eq!(
        server.read(format!("{deep}f.txt")).as_deref(),
        Ok("at the bottom")
    );
    let tree = server
        .call("directory_tree", json!({"path": "."}))
        .expect("a tree");
    assert!(tree.contains("truncated"));
}

#[test]
fn nothing_can_be_changed_unless_that_is_configured() {
    let grounds = Grounds::new();
    let file = grounds.file("root/a.txt", "as it was");
    let server = grounds.server_with(|settings| settings["write"] = json!(false));
    let tools = server.tools();
    for tool in ["write_file", "edit_file", "create_directory", "move_file"] {
        assert!(!tools.contains(&tool.to_owned()), "{tool}");
    }
    assert_eq!(tools.len(), 10);
    assert_eq!(grounds.server().tools().len(), 14);
    assert_eq!(std::fs::read_to_string(file).expect("read"), "as it was");
}

#[test]
fn what_is_marked_as_read_only_stays_as_it_is() {
    let grounds = Grounds::new();
    let file = grounds.file("root/a.txt", "as it was");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).expect("marked");
    let server = grounds.server();
    let before = everything_in(&grounds.base);
    let edit = json!({"path": "a.txt", "edits": [{"oldText": "as", "newText": "like"}]});
    for told in [server.write("a.txt", "x"), server.call("edit_file", edit)] {
        assert!(told.expect_err("refused").contains("read-only"));
    }
    assert_eq!(everything_in(&grounds.base), before);
}

#[test]
fn settings_that_cannot_be_used_stop_the_start() {
    let grounds = Grounds::new();
    grounds.file("root/a.txt", "");
    let told = |settings| refusal("filesystem", json!({"filesystem": settings}));
    let told_of = told(json!({}));
    assert!(
        told_of.contains("builtin.filesystem.directories is empty")
            && told_of.contains("LONGSHORE_BUILTIN__FILESYSTEM__DIRECTORIES"),
        "{told_of}"
    );
    let told_of = told(json!({"directories": [grounds.root, grounds.base.join("nothing")]}));
    assert_contains(&told_of, &["builtin.filesystem.directories[1] is "]);
    assert!(told(json!({"directories": [grounds.root.join("a.txt")]})).contains("[0]"));
    for (limit, value) in [
        ("bytes", 0),
        ("depth", 0),
        ("depth", 1000),
        ("timeout_seconds", 0),
        ("concurrency", 0),
    ] {
        let told_of = told(json!({"directories": [grounds.root], "limits": {limit: value}}));
        assert!(
            told_of.contains(&format!("builtin.filesystem.limits.{limit}")),
            "{told_of}"
        );
    }
}
