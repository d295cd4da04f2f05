//! Marks in the index: files that are assumed to be unchanged, files that are intended to be added, and times of files.

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

#[test]
fn a_change_of_the_same_second_and_size_stays_visible_when_the_index_is_written_again() {
    let ours = Git::new();
    ours.write("a", "one\n");
    ours.write("b", "b\n");
    ours.commit("first");
    let path = ours.repository.join("a");
    let staged_at = std::fs::metadata(&path)
        .and_then(|a| a.modified())
        .expect("a time");
    let index = ours.git_dir("index");
    let set_time = |path: &std::path::Path, at| {
        let file = std::fs::File::options()
            .append(true)
            .open(path)
            .expect("open");
        file.set_modified(at).expect("set");
    };
    // The change, the entry and the index have one time. What the index does not compare is ignored.
    let config = std::fs::read_to_string(ours.git_dir("config")).expect("read");
    let config = format!("{config}[core]\n\ttrustctime = false\n");
    std::fs::write(ours.git_dir("config"), config).expect("written");
    ours.write("a", "two\n");
    set_time(&path, staged_at);
    set_time(&index, staged_at);
    assert!(ours.status().contains("modified:   a"), "{}", ours.status());

    ours.write("b", "bb\n");
    ours.call("git_add", json!({"files": ["b"]}));
    // The index is newer than the file now.
    set_time(&index, staged_at + std::time::Duration::from_secs(10));
    let status = ours.status();
    assert!(
        status.contains("Changes not staged for commit:\n\tmodified:   a"),
        "{status}"
    );
    ours.commit("second");
    assert_eq!(
        ours.call("git_show", json!({"revision": "HEAD:a"})),
        "two\n"
    );
}
