//! Git and time have the results of the official reference servers.
//!
//! These are no part of this repository. `interop/reference.sh` installs them, and says where they are.

use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};

use super::reference::Reference;
use super::{call, serve};

/// Program of a reference server, from a variable.
fn program(variable: &str) -> Option<std::ffi::OsString> {
    let program = std::env::var_os(variable);
    if program.is_none() {
        let told = format!("SKIPPED: {variable} names no reference server to compare with\n");
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
    program
}

/// The texts of a result; failures have words of their own.
fn comparable(result: &Value) -> Value {
    if result["isError"] == true {
        return json!("refused");
    }
    result["content"].clone()
}

#[cfg(feature = "git")]
mod git {
    use std::path::{Path, PathBuf};

    use super::*;

    /// A repository that is the same to the bit whenever it is made.
    fn repository(folder: &Path) -> PathBuf {
        let path = folder.join("project");
        std::fs::create_dir_all(path.join("src")).expect("made");
        let git = |arguments: &[&str]| {
            let done = Command::new("git")
                .current_dir(&path)
                .args(arguments)
                .envs([
                    ("GIT_CONFIG_GLOBAL", "/dev/null"),
                    ("GIT_CONFIG_NOSYSTEM", "1"),
                    ("GIT_AUTHOR_DATE", "2026-01-02T03:04:05+01:00"),
                    ("GIT_COMMITTER_DATE", "2026-01-02T03:04:05+01:00"),
                ])
                .status()
                .expect("git");
            assert!(done.success(), "git {arguments:?}");
        };
        let write = |name: &str, text: &str| {
            std::fs::write(path.join(name), text).expect("written");
        };
        git(&["init", "-q", "-b", "main"]);
        git(&["config", "user.name", "A U Thor"]);
        git(&["config", "user.email", "author@example.com"]);
        write(
            "readme.md",
            "# Title\n\none\ntwo\nthree\nfour\nfive\nsix\nseven\n",
        );
        write("src/main.rs", "fn main() {}\n");
        write("gone.txt", "gone\n");
        git(&["add", "."]);
        git(&["commit", "-qm", "The first one.\n\nWith a body."]);
        git(&["branch", "old"]);
        git(&["tag", "v1"]);
        write(
            "readme.md",
            "# Title\n\none\n2\nthree\nfour\nfive\nsix\n7\n",
        );
        git(&["rm", "-q", "gone.txt"]);
        git(&["commit", "-qam", "The second one."]);
        write(
            "readme.md",
            "# Title\n\none\n2\nthree\nfour\nfive\nsix\neight\n",
        );
        write("new.txt", "no newline at its end");
        write("src/staged.rs", "// staged\n");
        git(&["add", "src/staged.rs"]);
        path
    }

    /// Calls in their order: later ones see what earlier ones did.
    fn calls() -> Vec<(&'static str, Value)> {
        vec![
            ("git_status", json!({})),
            ("git_diff_unstaged", json!({})),
            ("git_diff_unstaged", json!({"context_lines": 0})),
            ("git_diff_staged", json!({})),
            ("git_diff", json!({"target": "main"})),
            ("git_diff", json!({"target": "old"})),
            ("git_diff", json!({"target": "v1", "context_lines": 1})),
            ("git_diff", json!({"target": "nonesuch"})),
            ("git_diff", json!({"target": "--output=/tmp/x"})),
            ("git_log", json!({})),
            ("git_log", json!({"max_count": 1})),
            ("git_log", json!({"start_timestamp": "2026-01-01"})),
            ("git_log", json!({"start_timestamp": "2026-01-03"})),
            ("git_log", json!({"end_timestamp": "2025-12-31"})),
            ("git_show", json!({"revision": "HEAD"})),
            ("git_show", json!({"revision": "v1"})),
            ("git_show", json!({"revision": "HEAD:readme.md"})),
            ("git_show", json!({"revision": "HEAD:src"})),
            ("git_show", json!({"revision": "HEAD~1"})),
            ("git_show", json!({"revision": "nonesuch"})),
            ("git_branch", json!({"branch_type": "local"})),
            ("git_branch", json!({"branch_type": "remote"})),
            ("git_branch", json!({"branch_type": "all"})),
            (
                "git_branch",
                json!({"branch_type": "local", "contains": "main"}),
            ),
            (
                "git_branch",
                json!({"branch_type": "local", "not_contains": "main"}),
            ),
            ("git_add", json!({"files": ["new.txt"]})),
            ("git_add", json!({"files": ["new.txt"]})),
            ("git_add", json!({"files": ["../outside"]})),
            ("git_add", json!({"files": ["nonesuch"]})),
            ("git_status", json!({})),
            ("git_diff_staged", json!({})),
            ("git_reset", json!({})),
            ("git_status", json!({})),
            ("git_add", json!({"files": ["."]})),
            ("git_commit", json!({"message": "The third one."})),
            ("git_commit", json!({"message": "Nothing."})),
            ("git_log", json!({"max_count": 5})),
            ("git_create_branch", json!({"branch_name": "made"})),
            ("git_create_branch", json!({"branch_name": "made"})),
            (
                "git_create_branch",
                json!({"branch_name": "other", "base_branch": "old"}),
            ),
            ("git_create_branch", json!({"branch_name": "-x"})),
            ("git_checkout", json!({"branch_name": "other"})),
            ("git_status", json!({})),
            ("git_checkout", json!({"branch_name": "v1"})),
            ("git_status", json!({})),
            ("git_branch", json!({"branch_type": "local"})),
            ("git_checkout", json!({"branch_name": "nonesuch"})),
            ("git_checkout", json!({"branch_name": "main"})),
        ]
    }

    /// Commits that are made by a call have the time at which they are made, and so hashes of their own. What to type next into a shell
    /// is said by theirs alone, since models have tools instead.
    fn without_times(text: &str) -> String {
        let is_hash = |word: &str| word.len() == 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
        let known = text.contains("2026-01-02");
        let said = text
            .lines()
            .filter(|line| !line.starts_with("  (use \"git "));
        let lines = said.map(|line| {
            let line = line.split(" (use \"git ").next().unwrap_or(line);
            if line.starts_with("Date:") && !line.contains("2026-01-02") {
                return "Date: {now}".to_owned();
            }
            let words = line.split(' ').map(|word| match is_hash(word) && !known {
                true => "{hash}",
                false => word,
            });
            words.collect::<Vec<_>>().join(" ")
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn git_has_the_results_of_the_reference_server() {
        let Some(program) = program("LONGSHORE_REFERENCE_GIT") else {
            return;
        };
        let (ours, theirs) = (
            tempfile::tempdir().expect("a folder"),
            tempfile::tempdir().expect("a folder"),
        );
        let (mine, other) = (repository(ours.path()), repository(theirs.path()));
        let mut reference = Reference::start(
            Command::new(program)
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .arg("--repository")
                .arg(&other),
        );
        let author = json!({"name": "A U Thor", "email": "author@example.com"});
        let settings = json!({"git": {"repositories": [&mine], "write": true, "author": author}});
        let server = serve("git", settings);
        let mut different = Vec::new();
        for (tool, arguments) in calls() {
            let at = |path: &Path| {
                let mut arguments = arguments.clone();
                arguments["repo_path"] = path.to_str().expect("UTF-8").into();
                arguments
            };
            let texts = |result: Value, path: &Path| {
                let text = comparable(&result).to_string();
                let text = text.replace(path.to_str().expect("UTF-8"), "{repository}");
                let value: Value = serde_json::from_str(&text).expect("JSON");
                let parts = value.as_array().into_iter().flatten();
                let parts: Vec<String> = parts
                    .map(|part| without_times(part["text"].as_str().unwrap_or_default()))
                    .collect();
                match parts.is_empty() {
                    true => text,
                    false => parts.join("\n=====\n"),
                }
            };
            let mine = texts(call(&server, tool, at(&mine)), &mine);
            let other = texts(reference.call(tool, at(&other)), &other);
            if mine != other {
                different.push(format!(
                    "{tool} {arguments}\n--- ours:\n{mine}\n--- theirs:\n{other}"
                ));
            }
        }
        assert!(different.is_empty(), "{}", different.join("\n\n"));
    }
}

#[test]
fn time_has_the_results_of_the_reference_server() {
    let Some(program) = program("LONGSHORE_REFERENCE_TIME") else {
        return;
    };
    let mut reference = Reference::start(Command::new(program).args(["--local-timezone", "UTC"]));
    let server = serve("time", json!({"time": {"local_zone": "UTC"}}));
    let convert = |from: &str, time: &str, to: &str| {
        let arguments = json!({"source_timezone": from, "time": time, "target_timezone": to});
        ("convert_time", arguments)
    };
    // Times differ between the servers by a second.
    let of_the_minute = |text: &str| {
        let mut value: Value = serde_json::from_str(text).unwrap_or_else(|_| text.into());
        if let Some(Value::String(time)) = value.get_mut("datetime") {
            time.replace_range(17..19, "00");
        }
        value
    };
    let mut different = Vec::new();
    for (tool, arguments) in [
        ("get_current_time", json!({"timezone": "UTC"})),
        ("get_current_time", json!({"timezone": "Asia/Kathmandu"})),
        ("get_current_time", json!({"timezone": "America/New_York"})),
        ("get_current_time", json!({"timezone": "Mars/Olympus"})),
        convert("UTC", "12:00", "Asia/Kathmandu"),
        convert("Europe/Berlin", "23:30", "America/Los_Angeles"),
        convert("Asia/Tokyo", "00:00", "UTC"),
        convert("UTC", "24:00", "UTC"),
        convert("UTC", "1200", "UTC"),
        convert("Nowhere", "12:00", "UTC"),
        convert("UTC", "12:00", "Nowhere"),
    ] {
        let mine = comparable(&call(&server, tool, arguments.clone()));
        let other = comparable(&reference.call(tool, arguments.clone()));
        let read = |of: &Value| of[0]["text"].as_str().map(of_the_minute);
        if mine.is_string() != other.is_string() || read(&mine) != read(&other) {
            different.push(format!(
                "{tool} {arguments}\n  ours:   {mine}\n  theirs: {other}"
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
