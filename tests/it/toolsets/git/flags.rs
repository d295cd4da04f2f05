//! Marks in the index: files that are assumed to be unchanged, and files that are intended to be added.

use serde_json::json;

use super::{Git, git};

#[test]
fn a_file_that_is_assumed_unchanged_stays_so() {
    let ours = Git::new();
    let at = &ours.repository;
    for name in ["a", "b", "c"] {
        ours.write(name, "one\n");
    }
    ours.commit("first");
    ours.call("git_create_branch", json!({"branch_name": "first"}));
    let Some(_) = git(at, &["update-index", "--assume-unchanged", "a"]) else {
        return;
    };
    ours.write("a", "mine\n");
    ours.write("b", "two\n");
    let flags = || git(at, &["ls-files", "-v"]).expect("listed");

    assert!(!ours.status().contains("\ta") && !ours.status().contains(" a\n"));
    let diff = ours.call("git_diff", json!({"target": "HEAD"}));
    assert!(diff.contains("+two") && !diff.contains("mine"), "{diff}");
    let said = ours.call("git_add", json!({"files": ["a"]}));
    assert!(said.starts_with("No changes were staged"), "{said}");
    ours.call("git_add", json!({"files": ["."]}));
    assert_eq!(flags(), "h a\nH b\nH c");
    ours.call("git_reset", json!({}));
    assert_eq!(flags(), "h a\nH b\nH c");
    ours.commit("second");
    ours.call("git_checkout", json!({"branch_name": "first"}));
    assert_eq!(flags(), "h a\nH b\nH c");
    assert_eq!(ours.read("a"), "mine\n");

    // A checkout that would overwrite it looks at the file itself.
    ours.call("git_checkout", json!({"branch_name": "main"}));
    git(at, &["update-index", "--no-assume-unchanged", "a"]);
    ours.commit("third");
    git(at, &["update-index", "--assume-unchanged", "a"]);
    ours.write("a", "more\n");
    let said = ours.refused("git_checkout", json!({"branch_name": "first"}));
    assert!(said.contains("would be overwritten"), "{said}");
    assert_eq!(ours.read("a"), "more\n");
}

#[test]
fn a_file_that_is_intended_to_be_added_is_shown_and_kept() {
    let ours = Git::new();
    let at = &ours.repository;
    ours.write("a", "one\n");
    ours.commit("first");
    ours.call("git_create_branch", json!({"branch_name": "other"}));
    ours.write("n", "new\n");
    ours.write("m", "new too\n");
    let Some(_) = git(at, &["add", "--intent-to-add", "n", "m"]) else {
        return;
    };
    let same_status = || {
        let theirs = git(at, &["status"]).expect("a status");
        assert_eq!(ours.status(), format!("Repository status:\n{theirs}"));
    };
    same_status();
    let theirs = git(at, &["diff"]).expect("a diff");
    let diff = ours.call("git_diff_unstaged", json!({}));
    assert!(
        diff.contains(&theirs) && diff.contains("+new too\n"),
        "{diff}"
    );
    let diff = ours.call("git_diff", json!({"target": "HEAD"}));
    assert!(diff.contains("+new too\n"), "{diff}");

    // Other changes leave it alone.
    ours.write("a", "two\n");
    ours.call("git_add", json!({"files": ["a"]}));
    same_status();
    ours.call("git_commit", json!({"message": "second"}));
    same_status();
    ours.call("git_checkout", json!({"branch_name": "other"}));
    same_status();
    assert_eq!(git(at, &["diff", "--name-only"]).as_deref(), Some("m\nn"));

    std::fs::remove_file(at.join("m")).expect("removed");
    same_status();
    ours.call("git_diff_unstaged", json!({}));
    ours.call("git_add", json!({"files": ["."]}));
    same_status();
    assert_eq!(git(at, &["ls-files"]).as_deref(), Some("a\nn"));
    assert_eq!(git(at, &["show", ":n"]).as_deref(), Some("new"));
    git(at, &["add", "--intent-to-add", "a"]);
    ours.call("git_reset", json!({}));
    same_status();
}
