//! Repositories with symbolic links among their own files: nothing is written, or read, outside of the configured
//! folders.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Git;

/// A repository with one commit, and a folder outside of the configured ones.
fn prepared() -> (Git, PathBuf) {
    let git = Git::new();
    git.write("a", "a\n");
    git.commit("first");
    let outside = git.folder.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("file"), "theirs\n").expect("written");
    (git, outside)
}

fn replace(place: &Path, target: &Path) {
    let _ = fs::remove_file(place);
    let _ = fs::remove_dir_all(place);
    fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    symlink(target, place).expect("linked");
}

fn untouched(outside: &Path, what: &str) {
    let names = fs::read_dir(outside).expect("listed").count();
    assert_eq!(names, 1, "{what}: nothing new");
    let text = fs::read_to_string(outside.join("file")).expect("read");
    assert_eq!(text, "theirs\n", "{what}");
}

#[test]
fn nothing_is_written_through_links_of_a_repository() {
    for (place, target) in [
        ("logs/HEAD", "file"),
        ("logs/HEAD", "new"),
        ("logs/refs", "."),
        ("logs/refs/heads", "."),
        ("logs/refs/heads/main", "file"),
        ("logs/refs/heads/f", "."),
        ("refs/heads/f", "."),
        ("refs/heads/main.lock", "new"),
    ] {
        let (git, outside) = prepared();
        replace(&git.git_dir(place), &outside.join(target));
        let what = format!("{place} -> {target}");
        for (tool, arguments) in [
            ("git_create_branch", json!({"branch_name": "f/x"})),
            ("git_add", json!({"files": ["."]})),
            (
                "git_commit",
                json!({"message": "a line for a file elsewhere"}),
            ),
            ("git_checkout", json!({"branch_name": "main"})),
            ("git_reset", json!({})),
        ] {
            git.write("b", "b\n");
            let said = git.refused(tool, arguments);
            assert!(
                said.contains("parts outside of the folders"),
                "{what}: {said}"
            );
            untouched(&outside, &what);
        }
    }
}

#[test]
fn no_object_is_stored_in_a_folder_elsewhere() {
    let (git, outside) = prepared();
    for byte in 0..=255 {
        let folder = git.git_dir(&format!("objects/{byte:02x}"));
        if !folder.exists() {
            symlink(&outside, folder).expect("linked");
        }
    }
    git.write("b", "b\n");
    git.refused("git_add", json!({"files": ["b"]}));
    untouched(&outside, "objects");
}

#[test]
fn links_behind_links_that_stay_inside_are_checked() {
    let (git, outside) = prepared();
    let shared = git.folder.path().join("served/shared");
    fs::create_dir(&shared).expect("made");
    replace(&git.git_dir("refs/heads/f"), &shared);
    git.call("git_create_branch", json!({"branch_name": "f/x"}));
    assert!(shared.join("x").exists(), "a link that stays inside works");
    symlink(&outside, shared.join("g")).expect("linked");
    git.refused("git_create_branch", json!({"branch_name": "f/g/x"}));
    untouched(&outside, "behind a link");
}

#[test]
fn a_head_that_is_no_reference_is_not_written_to() {
    for through in ["ref: hooks/x\n", "ref: refs/heads/other\n"] {
        let (git, outside) = prepared();
        // Links of files that are not used are no concern, such as those of hooks.
        replace(&git.git_dir("hooks"), &outside);
        fs::write(git.git_dir("refs/heads/other"), "ref: hooks/x\n").expect("written");
        fs::write(git.git_dir("HEAD"), through).expect("written");
        git.write("b", "b\n");
        git.call("git_add", json!({"files": ["b"]}));
        let said = git.refused("git_commit", json!({"message": "second"}));
        assert!(said.contains("HEAD does not lead to a branch"), "{said}");
        untouched(&outside, through);
    }
}
