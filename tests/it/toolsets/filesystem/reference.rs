//! Ordinary calls have the results that the official reference server gives.
//!
//! It is not a part of this repository. `npm install @modelcontextprotocol/server-filesystem` gets it, and
//! `LONGSHORE_REFERENCE_FILESYSTEM` names its `dist/index.js`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::Grounds;

use crate::support::KillOnDrop;

const WHERE: &str = "LONGSHORE_REFERENCE_FILESYSTEM";

/// The reference server, spoken to over its standard input and output.
struct Reference {
    _child: KillOnDrop,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Reference {
    fn start(script: &str, root: &Path) -> Self {
        let mut child = Command::new("node")
            .arg(script)
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("node");
        let input = child.stdin.take().expect("an input");
        let output = BufReader::new(child.stdout.take().expect("an output"));
        let mut reference = Self {
            _child: KillOnDrop(child),
            input,
            output,
            last_id: 0,
        };
        let client = json!({"name": "test", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        reference.request("initialize", params);
        reference.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        reference
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").expect("it listens");
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        self.send(
            &json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}),
        );
        loop {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).expect("a line"),
                0,
                "it ended"
            );
            let mut message: Value = serde_json::from_str(&line).expect("JSON");
            if message["id"] == self.last_id {
                return message["result"].take();
            }
        }
    }
}

fn fill(grounds: &Grounds) {
    grounds.file("root/readme.md", "# Title\n\nOne\nTwo\nThree");
    grounds.file(
        "root/src/main.rs",
        "fn main() {\n    first();\n    second();\n}\n",
    );
    grounds.file("root/src/deep/lib.rs", "");
    grounds.file("root/src/deep/more.txt", "x".repeat(5000));
    grounds.file("root/.hidden/file.txt", "hidden");
    grounds.file("root/picture.png", [0x89, b'P', b'N', b'G']);
    grounds.file("root/sound.mp3", [1, 2, 3]);
    grounds.file("root/data.bin", [0, 1, 2]);
    grounds.file("outside/secret.txt", "secret");
}

/// Calls in their order: later ones see what earlier ones did.
fn calls() -> Vec<(&'static str, Value)> {
    let edit = |old: &str, new: &str, dry: bool| {
        let edits = json!([{"oldText": old, "newText": new}]);
        json!({"path": "{root}/src/main.rs", "edits": edits, "dryRun": dry})
    };
    vec![
        ("list_allowed_directories", json!({})),
        ("read_file", json!({"path": "{root}/readme.md"})),
        ("read_text_file", json!({"path": "{root}/readme.md"})),
        ("read_text_file", json!({"path": "readme.md"})),
        ("read_text_file", json!({"path": "{root}/src/../readme.md"})),
        (
            "read_text_file",
            json!({"path": "{root}/readme.md", "head": 2}),
        ),
        (
            "read_text_file",
            json!({"path": "{root}/readme.md", "head": 50}),
        ),
        (
            "read_text_file",
            json!({"path": "{root}/readme.md", "tail": 2}),
        ),
        (
            "read_text_file",
            json!({"path": "{root}/readme.md", "tail": 50}),
        ),
        ("read_text_file", json!({"path": "{root}/src/deep/lib.rs"})),
        ("read_text_file", json!({"path": "{root}/nothing.md"})),
        ("read_text_file", json!({"path": "{root}"})),
        (
            "read_text_file",
            json!({"path": "{base}/outside/secret.txt"}),
        ),
        ("read_media_file", json!({"path": "{root}/picture.png"})),
        ("read_media_file", json!({"path": "{root}/sound.mp3"})),
        ("read_media_file", json!({"path": "{root}/data.bin"})),
        (
            "read_multiple_files",
            json!({"paths": ["{root}/readme.md", "{root}/src/main.rs"]}),
        ),
        ("list_directory", json!({"path": "{root}"})),
        ("list_directory", json!({"path": "{root}/src"})),
        ("list_directory", json!({"path": "{root}/src/"})),
        ("list_directory", json!({"path": "{root}/readme.md"})),
        (
            "list_directory_with_sizes",
            json!({"path": "{root}/src/deep", "sortBy": "size"}),
        ),
        (
            "list_directory_with_sizes",
            json!({"path": "{root}/src/deep"}),
        ),
        ("directory_tree", json!({"path": "{root}"})),
        (
            "directory_tree",
            json!({"path": "{root}", "excludePatterns": ["deep", "*.bin"]}),
        ),
        (
            "directory_tree",
            json!({"path": "{root}", "excludePatterns": ["**/*.rs"]}),
        ),
        (
            "search_files",
            json!({"path": "{root}", "pattern": "**/*.rs"}),
        ),
        ("search_files", json!({"path": "{root}", "pattern": "*.md"})),
        (
            "search_files",
            json!({"path": "{root}", "pattern": "**/*.txt"}),
        ),
        (
            "search_files",
            json!({"path": "{root}", "pattern": "**", "excludePatterns": ["src/**"]}),
        ),
        (
            "search_files",
            json!({"path": "{root}", "pattern": "*.nothing"}),
        ),
        (
            "search_files",
            json!({"path": "{root}/src", "pattern": "deep"}),
        ),
        ("edit_file", edit("first();", "erst();", true)),
        (
            "edit_file",
            edit("first();\n    second();", "erst();\n    zweit();", false),
        ),
        (
            "edit_file",
            edit("erst();\nzweit();", "one();\ntwo();", false),
        ),
        ("edit_file", edit("never there", "x", false)),
        ("read_text_file", json!({"path": "{root}/src/main.rs"})),
        (
            "write_file",
            json!({"path": "{root}/new.txt", "content": "new\n"}),
        ),
        (
            "write_file",
            json!({"path": "{root}/readme.md", "content": "changed"}),
        ),
        (
            "write_file",
            json!({"path": "{root}/no/folder.txt", "content": "x"}),
        ),
        (
            "write_file",
            json!({"path": "{base}/outside/new.txt", "content": "x"}),
        ),
        ("read_text_file", json!({"path": "{root}/new.txt"})),
        ("create_directory", json!({"path": "{root}/made/in/one"})),
        ("create_directory", json!({"path": "{root}/made/in/one"})),
        (
            "move_file",
            json!({"source": "{root}/new.txt", "destination": "{root}/made/new.txt"}),
        ),
        (
            "move_file",
            json!({"source": "{root}/readme.md", "destination": "{root}/made/new.txt"}),
        ),
        (
            "move_file",
            json!({"source": "{root}/nothing", "destination": "{root}/x"}),
        ),
        (
            "move_file",
            json!({"source": "{root}/made", "destination": "{root}/moved"}),
        ),
        ("list_directory", json!({"path": "{root}/moved"})),
        ("get_file_info", json!({"path": "{root}/moved/new.txt"})),
        ("get_file_info", json!({"path": "{root}/moved"})),
    ]
}

#[test]
fn ordinary_calls_have_the_results_of_the_reference_server() {
    let Some(script) = std::env::var_os(WHERE) else {
        let told = format!("SKIPPED: {WHERE} names no reference server to compare with\n");
        let _ = std::io::stderr().write_all(told.as_bytes());
        return;
    };
    let script = script.to_str().expect("UTF-8");
    let (ours, theirs) = (Grounds::new(), Grounds::new());
    fill(&ours);
    fill(&theirs);
    let server = ours.server();
    let mut reference = Reference::start(script, &theirs.root);
    let mut different = Vec::new();
    for (tool, arguments) in calls() {
        let mine = server.result(tool, filled(&arguments, &ours));
        let params = json!({"name": tool, "arguments": filled(&arguments, &theirs)});
        let other = reference.request("tools/call", params);
        let (mine, other) = (
            comparable(tool, &mine, &ours),
            comparable(tool, &other, &theirs),
        );
        if mine != other {
            different.push(format!(
                "{tool} {arguments}\n  ours:   {mine}\n  theirs: {other}"
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

fn filled(arguments: &Value, grounds: &Grounds) -> Value {
    let text = arguments
        .to_string()
        .replace("{root}", grounds.root.to_str().expect("UTF-8"))
        .replace("{base}", grounds.base.to_str().expect("UTF-8"));
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the parts that must be equal: the content of successes. Error texts and time formats differ by server.
fn comparable(tool: &str, result: &Value, grounds: &Grounds) -> Value {
    if result["isError"] == true {
        return json!("refused");
    }
    let base = grounds.base.to_str().expect("UTF-8");
    let text = result["content"].to_string().replace(base, "{base}");
    let mut content: Value = serde_json::from_str(&text).expect("JSON");
    if tool == "get_file_info" {
        let text = content[0]["text"].as_str().expect("a text");
        let times = ["created", "modified", "accessed"];
        let lines = text
            .lines()
            .filter(|line| !times.iter().any(|time| line.starts_with(time)));
        content[0]["text"] = lines.collect::<Vec<_>>().join("\n").into();
    }
    content
}
