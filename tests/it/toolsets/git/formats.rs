//! Encodings of files and messages, and formats of repositories.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::{Git, git};
use crate::support::assert_contains;

fn utf16(text: &str) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

#[test]
fn files_in_utf_16_stay_in_utf_16() {
    for encoding in ["UTF-16", "UTF-16LE-BOM"] {
        let ours = Git::new();
        let at = &ours.repository;
        let write = |text: &str| fs::write(at.join("f.txt"), utf16(text)).expect("written");
        ours.write(
            ".gitattributes",
            &format!("*.txt text working-tree-encoding={encoding}\n"),
        );
        write("one \u{e9}\n");
        ours.commit("first");
        ours.call("git_create_branch", json!({"branch_name": "first"}));
        write("one \u{e9}\ntwo\n");
        let diff = ours.call("git_diff_unstaged", json!({}));
        assert!(diff.ends_with(" one \u{e9}\n+two"), "{diff}");
        ours.commit("second");
        assert_eq!(
            ours.call("git_show", json!({"revision": "HEAD:f.txt"})),
            "one \u{e9}\ntwo\n"
        );
        ours.call("git_checkout", json!({"branch_name": "first"}));
        assert_eq!(
            fs::read(at.join("f.txt")).expect("read"),
            utf16("one \u{e9}\n")
        );
        write("one \u{e9}\n");
        assert!(ours.status().ends_with("working tree clean"));
        if let Some(theirs) = git(at, &["status", "--porcelain"]) {
            assert_eq!(theirs, "", "{encoding}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_converted_does_not_hide_the_others() {
    let ours = Git::new();
    ours.write("a", "a\n");
    ours.write("f.txt", "f\n");
    ours.write("w.dos", "one\ntwo\n");
    ours.commit("first");
    for encoding in ["UTF-16", "UTF-32", "nothing"] {
        ours.write(
            ".gitattributes",
            &format!("*.txt working-tree-encoding={encoding}\n*.dos text\n"),
        );
        ours.write("a", &format!("{encoding}\n"));
        ours.write("f.txt", &format!("changed {encoding}\n"));
        let status = ours.status();
        assert_contains(&status, &["\tmodified:   a\n\tmodified:   f.txt\n"]);
        ours.call("git_diff_unstaged", json!({}));
        let said = ours.refused("git_add", json!({"files": ["f.txt"]}));
        assert_contains(&said, &["'f.txt'", "working-tree-encoding"]);
        ours.call("git_add", json!({"files": ["a"]}));
    }
    // Line ends that would be lost are a matter of adding the file.
    let config = fs::read_to_string(ours.git_dir("config")).expect("read");
    let config = format!("{config}[core]\n\tautocrlf = input\n\tsafecrlf = true\n");
    fs::write(ours.git_dir("config"), config).expect("written");
    ours.write("w.dos", "one\r\ntwo\nthree\n");
    assert!(ours.status().contains("modified:   w.dos"));
    let said = ours.refused("git_add", json!({"files": ["w.dos"]}));
    assert!(said.contains("core.safecrlf"), "{said}");
}

#[test]
fn messages_are_read_in_the_encoding_of_their_commit() {
    let ours = Git::new();
    let at = &ours.repository;
    let message = at.join("message");
    fs::write(&message, b"caf\xe9\n").expect("written");
    let arguments = ["-c", "i18n.commitEncoding=ISO-8859-1", "commit", "-q"];
    let arguments = [&arguments[..], &["--allow-empty", "-F", "message"]].concat();
    let Some(_) = git(at, &arguments) else {
        return;
    };
    let log = ours.call("git_log", json!({}));
    assert!(log.contains("Message: caf\u{e9}\n"), "{log}");
    let show = ours.call("git_show", json!({"revision": "HEAD"}));
    assert!(show.contains("    caf\u{e9}\n"), "{show}");
}

#[test]
fn a_format_that_is_not_supported_is_named() {
    let ours = Git::new();
    let formats = [
        ("--object-format=sha256", "SHA-256"),
        ("--ref-format=reftable", "git refs migrate"),
    ];
    for (format, expected) in formats {
        let name = format.trim_start_matches('-');
        let folder = ours.folder.path().join("served").join(name);
        let made = Command::new("git")
            .args(["init", "-q", format])
            .arg(&folder)
            .output();
        // Older versions do not know them.
        if made.is_ok_and(|made| made.status.success()) {
            let said = ours.refused("git_status", json!({"repo_path": folder}));
            assert!(said.contains(expected), "{said}");
        }
    }
}
