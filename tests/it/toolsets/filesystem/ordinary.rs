//! Normal use of the tools.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use base64::Engine as _;
use serde_json::json;

use super::super::{call, serve};
use super::Grounds;

#[test]
fn files_are_read_as_text_and_in_part() {
    let grounds = Grounds::new();
    grounds.file("root/lines.txt", "one\ntwo\nthree\n");
    grounds.file("root/bytes.txt", [b'a', 0xff, b'b']);
    let server = grounds.server();
    let part = |extra: serde_json::Value| {
        let mut arguments = json!({"path": "lines.txt"});
        arguments
            .as_object_mut()
            .expect("an object")
            .extend(extra.as_object().expect("an object").clone());
        server.call("read_text_file", arguments)
    };
    assert_eq!(part(json!({})).as_deref(), Ok("one\ntwo\nthree\n"));
    assert_eq!(part(json!({"head": 2})).as_deref(), Ok("one\ntwo"));
    assert_eq!(part(json!({"tail": 2})).as_deref(), Ok("two\nthree\n"));
    assert!(part(json!({"head": 1, "tail": 1})).is_err());
    assert_eq!(server.read("bytes.txt").as_deref(), Ok("a\u{fffd}b"));
    let result = server.result("read_file", json!({"path": grounds.root.join("lines.txt")}));
    assert_eq!(result["structuredContent"]["content"], "one\ntwo\nthree\n");
    let several = json!({"paths": ["lines.txt", "nothing.txt"]});
    let text = server.call("read_multiple_files", several).expect("texts");
    assert!(
        text.starts_with("lines.txt:\none\ntwo\nthree\n\n\n---\nnothing.txt: Error - "),
        "{text}"
    );
}

#[test]
fn media_are_read_as_what_they_are() {
    let grounds = Grounds::new();
    let bytes = [0x89, b'P', b'N', b'G'];
    for name in ["a.PNG", "b.wav", "c d.bin"] {
        grounds.file(&format!("root/{name}"), bytes);
    }
    let server = grounds.server();
    let block =
        |path: &str| server.result("read_media_file", json!({"path": path}))["content"][0].take();
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    let picture = block("a.PNG");
    assert_eq!(
        (&picture["type"], &picture["mimeType"]),
        (&json!("image"), &json!("image/png"))
    );
    assert_eq!(picture["data"], encoded);
    assert_eq!(block("b.wav")["type"], "audio");
    let other = block("c d.bin");
    assert_eq!(other["resource"]["blob"], encoded);
    let uri = other["resource"]["uri"].as_str().expect("a URI");
    assert!(
        uri.starts_with("file:///") && uri.ends_with("/root/c%20d.bin"),
        "{uri}"
    );
}

#[test]
fn files_are_written_whole_and_keep_their_mode() {
    let grounds = Grounds::new();
    let server = grounds.server();
    server.write("new.txt", "new\u{0}ly").expect("written");
    let path = grounds.root.join("new.txt");
    assert_eq!(std::fs::read(&path).expect("read"), b"new\0ly");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).expect("set");
    let before = std::fs::metadata(&path).expect("there").ino();
    server.write("new.txt", "").expect("written");
    let after = std::fs::metadata(&path).expect("there");
    assert_eq!(after.permissions().mode() & 0o7777, 0o750);
    assert_ne!(after.ino(), before, "another took its place");
    assert_eq!(after.len(), 0);
    assert!(server.write("no/such/folder.txt", "x").is_err());
    assert!(server.write(".", "x").is_err());
    let left: Vec<_> = std::fs::read_dir(&grounds.root)
        .expect("a folder")
        .collect();
    assert_eq!(left.len(), 1, "nothing is left over");
}

#[test]
fn edits_are_shown_and_made() {
    let grounds = Grounds::new();
    let path = grounds.file("root/a.txt", "one\r\ntwo\r\n");
    let server = grounds.server();
    let edits = json!([{"oldText": "two", "newText": "2"}]);
    let dry = json!({"path": "a.txt", "edits": edits, "dryRun": true});
    let shown = server.call("edit_file", dry).expect("shown");
    assert!(
        shown.contains("-two\n+2\n") && shown.starts_with("```diff\n"),
        "{shown}"
    );
    assert_eq!(
        std::fs::read_to_string(&path).expect("read"),
        "one\r\ntwo\r\n"
    );
    let made = server.call("edit_file", json!({"path": "a.txt", "edits": edits}));
    assert_eq!(made.as_deref(), Ok(&*shown));
    // Line ends stay what they are.
    assert_eq!(
        std::fs::read_to_string(&path).expect("read"),
        "one\r\n2\r\n"
    );
    let again = server.call("edit_file", json!({"path": "a.txt", "edits": edits}));
    assert!(again.expect_err("gone").contains("two"));
    grounds.file("root/bytes", [0xff, b'a']);
    let edit = json!({"path": "bytes", "edits": [{"oldText": "a", "newText": "b"}]});
    assert!(
        server
            .call("edit_file", edit)
            .expect_err("refused")
            .contains("UTF-8")
    );
}

#[test]
fn directories_are_made_listed_and_moved() {
    let grounds = Grounds::new();
    let server = grounds.server();
    let make = |path: &str| server.call("create_directory", json!({"path": path}));
    make("a/b/c").expect("made");
    make("a/b/c").expect("there already");
    grounds.file("root/a/large.txt", "x".repeat(3000));
    grounds.file("root/a/Small.txt", "x");
    assert!(make("a/large.txt").is_err());
    let list = |tool: &str, arguments| server.call(tool, arguments).expect("a list");
    assert_eq!(
        list("list_directory", json!({"path": "a"})),
        "[FILE] Small.txt\n[DIR] b\n[FILE] large.txt"
    );
    let sized = list(
        "list_directory_with_sizes",
        json!({"path": "a", "sortBy": "size"}),
    );
    assert!(
        sized.ends_with("\n\nTotal: 2 files, 1 directories\nCombined size: 2.93 KB"),
        "{sized}"
    );
    let small = sized.find("Small").expect("listed");
    assert!(sized.find("large").expect("listed") < small, "{sized}");
    let tree = list(
        "directory_tree",
        json!({"path": "a", "excludePatterns": ["c", "*.txt"]}),
    );
    assert_eq!(
        tree,
        "[\n  {\n    \"name\": \"b\",\n    \"type\": \"directory\",\n    \"children\": []\n  }\n]"
    );
    let move_to = |source: &str, destination: &str| {
        server.call(
            "move_file",
            json!({"source": source, "destination": destination}),
        )
    };
    move_to("a/large.txt", "a/b/moved.txt").expect("moved");
    assert!(
        move_to("a/Small.txt", "a/b/moved.txt")
            .expect_err("taken")
            .contains("exists")
    );
    assert!(
        move_to("a", "a/b/a")
            .expect_err("into itself")
            .contains("itself")
    );
    assert!(move_to("a/b", "a/Small.txt").is_err());
    assert!(move_to("nothing", "x").is_err());
    move_to("a/b", "b").expect("moved");
    assert!(grounds.root.join("b/moved.txt").exists() && grounds.root.join("b/c").is_dir());
}

#[test]
fn names_that_would_break_lines_are_shown_in_one() {
    let grounds = Grounds::new();
    grounds.file("root/a\n[DIR] b", "");
    let server = grounds.server();
    let listed = server.call("list_directory", json!({"path": "."}));
    assert_eq!(listed.as_deref(), Ok("[FILE] a\\n[DIR] b"));
}

#[test]
fn files_are_found_and_described() {
    let grounds = Grounds::new();
    grounds.file("root/src/main.rs", "fn main() {}");
    grounds.file("root/src/deep/lib.rs", "");
    grounds.file("root/target/out.rs", "");
    let server = grounds.server();
    let search = |arguments| server.call("search_files", arguments).expect("an answer");
    let root = grounds.root.display();
    let arguments = json!({"path": ".", "pattern": "**/*.rs", "excludePatterns": ["target"]});
    assert_eq!(
        search(arguments),
        format!("{root}/src/deep/lib.rs\n{root}/src/main.rs")
    );
    assert_eq!(
        search(json!({"path": "src", "pattern": "*.rs"})),
        format!("{root}/src/main.rs")
    );
    assert_eq!(
        search(json!({"path": "src", "pattern": "*.md"})),
        "No matches found"
    );
    let info = server
        .call("get_file_info", json!({"path": "src/main.rs"}))
        .expect("information");
    assert!(info.starts_with("size: 12\n"), "{info}");
    for line in [
        "isDirectory: false",
        "isFile: true",
        "permissions: 6",
        "modified: 20",
    ] {
        assert!(info.contains(line), "{info}");
    }
}

#[test]
fn roots_of_a_client_widen_nothing() {
    let grounds = Grounds::new();
    grounds.file("outside/secret.txt", "secret");
    let server = serve("filesystem", json!({"filesystem": grounds.settings()}));
    let session = server.session_of("2025-06-18", &json!({"roots": {"listChanged": true}}));
    let path = grounds.base.join("outside/secret.txt");
    let read = session
        .call("read_text_file", &json!({"path": path}))
        .result();
    assert_eq!(read["isError"], true);
    let named = call(&server, "list_allowed_directories", json!({}));
    assert_eq!(
        named["structuredContent"]["content"],
        format!("Allowed directories:\n{}", grounds.root.display())
    );
}

#[test]
fn concurrent_edits_of_one_file_are_all_made() {
    const EDITS: usize = 12;
    let grounds = Grounds::new();
    let lines: Vec<String> = (0..EDITS).map(|n| format!("line {n:02}\n")).collect();
    let path = grounds.file("root/lines.txt", lines.concat());
    let server = grounds.server();
    let calls = (0..EDITS).map(|n| {
        let edit = json!({"oldText": format!("line {n:02}"), "newText": format!("edit {n:02}")});
        ("edit_file", json!({"path": "lines.txt", "edits": [edit]}))
    });
    for result in server.results(calls) {
        assert_ne!(result["isError"], true, "{result}");
    }
    let edited = std::fs::read_to_string(path).expect("read");
    assert_eq!(edited, lines.concat().replace("line", "edit"));
}
