//! Repositories as they are, read and written.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use longshore::__test::gix;
use serde_json::json;

use super::super::{refusal, serve};
use super::{Git, git};
use crate::support::{Stateless, assert_contains};

#[test]
fn a_repository_is_filled_looked_at_and_branched() {
    let git = Git::new();
    assert_eq!(
        git.status(),
        "Repository status:\nOn branch main\n\nNo commits yet\n\nnothing to commit"
    );
    git.write("a.txt", "one\ntwo\n");
    git.write("folder/b.txt", "b\n");
    assert!(git.status().ends_with(
        "Untracked files:\n\ta.txt\n\tfolder/\n\nnothing added to commit but untracked files present"
    ));
    assert_eq!(
        git.call("git_add", json!({"files": ["a.txt"]})),
        "Files staged successfully"
    );
    assert!(
        git.status().contains(
            "Changes to be committed:\n\tnew file:   a.txt\n\nUntracked files:\n\tfolder/"
        )
    );
    let staged = git.call("git_diff_staged", json!({}));
    assert_eq!(
        staged,
        "Staged changes:\ndiff --git a/a.txt b/a.txt\nnew file mode 100644\nindex 0000000..814f4a4\n--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two"
    );
    assert_eq!(git.call("git_reset", json!({})), "All staged changes reset");
    assert!(
        git.refused("git_commit", json!({"message": "x"}))
            .starts_with("No changes staged for commit.")
    );
    let first = git.commit("first\n\nwith more");
    assert_eq!(first.len(), 40);
    assert!(
        git.status()
            .ends_with("nothing to commit, working tree clean")
    );

    git.write("a.txt", "one\n2\n");
    assert!(
        git.call("git_diff_unstaged", json!({}))
            .ends_with("@@ -1,2 +1,2 @@\n one\n-two\n+2")
    );
    assert!(
        git.call("git_diff_unstaged", json!({"context_lines": 0}))
            .ends_with("@@ -2 +2 @@ one\n-two\n+2")
    );
    let second = git.commit("second");
    let log = git.call("git_log", json!({}));
    assert!(
        log.starts_with(&format!(
            "Commit history:\nCommit: {second}\nAuthor: A U Thor\nDate: "
        )),
        "{log}"
    );
    assert!(log.contains("\nMessage: second\n\nCommit: "), "{log}");
    assert!(log.ends_with("\nMessage: first\n\nwith more\n"), "{log}");
    assert_eq!(
        git.call("git_log", json!({"max_count": 1}))
            .matches("Commit: ")
            .count(),
        1
    );
    assert_eq!(
        git.call("git_log", json!({"start_timestamp": "yesterday"}))
            .matches("Commit: ")
            .count(),
        2
    );
    assert_eq!(
        git.call("git_log", json!({"end_timestamp": "2001-01-01"})),
        "Commit history:\n"
    );

    let show = git.call("git_show", json!({"revision": "HEAD"}));
    assert!(
        show.starts_with(&format!(
            "commit {second}\nAuthor: A U Thor <author@example.com>\nDate:   "
        )),
        "{show}"
    );
    assert!(
        show.ends_with(
            "\n\n    second\n\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        ),
        "{show}"
    );
    assert_eq!(
        git.call("git_show", json!({"revision": "HEAD~1:a.txt"})),
        "one\ntwo\n"
    );
    assert_eq!(
        git.call("git_show", json!({"revision": "HEAD:"})),
        "a.txt\nfolder/"
    );

    let made = git.call(
        "git_create_branch",
        json!({"branch_name": "old", "base_branch": "HEAD~1"}),
    );
    assert_eq!(made, "Created branch 'old' from 'HEAD~1'");
    let again = git.refused("git_create_branch", json!({"branch_name": "old"}));
    assert_eq!(
        again,
        "Cannot create branch 'old': refs/heads/old already exists"
    );
    assert_eq!(
        git.call("git_branch", json!({"branch_type": "local"})),
        "* main\n  old"
    );
    assert_eq!(
        git.call(
            "git_branch",
            json!({"branch_type": "all", "contains": second})
        ),
        "* main"
    );
    assert_eq!(
        git.call(
            "git_branch",
            json!({"branch_type": "local", "not_contains": second})
        ),
        "  old"
    );
    assert_eq!(
        git.call("git_checkout", json!({"branch_name": "old"})),
        "Switched to branch 'old'"
    );
    assert_eq!(git.read("a.txt"), "one\ntwo\n");
    assert!(
        git.status()
            .ends_with("On branch old\nnothing to commit, working tree clean")
    );
    let said = git.call("git_checkout", json!({"branch_name": second}));
    assert_eq!(said, format!("HEAD is now detached at {}", &second[..7]));
    assert_eq!(git.read("a.txt"), "one\n2\n");
    let short = &second[..7];
    assert_eq!(
        git.call("git_branch", json!({"branch_type": "local"})),
        format!("* (HEAD detached at {short})\n  main\n  old")
    );
    assert!(
        git.status()
            .contains(&format!("\nHEAD detached at {short}\n"))
    );
    let said = git.refused("git_create_branch", json!({"branch_name": "x"}));
    assert!(said.contains("pass base_branch"), "{said}");
}

#[test]
fn what_it_says_is_what_git_says() {
    let ours = Git::new();
    let at = &ours.repository;
    let Some(_) = git(at, &["version"]) else {
        return;
    };
    let long: String = (1..200)
        .map(|n| format!("fn line_{n}() {{\n    {n}\n}}\n\n"))
        .collect();
    ours.write("code.rs", &long);
    ours.write("kept.txt", "kept\n");
    ours.write("moved.txt", "moved\nand long enough\n");
    ours.write("gone.txt", "gone\n");
    ours.write("script", "#!/bin/sh\n");
    ours.write("becomes", "a file\n");
    ours.write("ends", "without a newline");
    ours.write("\u{fc}ber \"quoted\".txt", "x\n");
    ours.write("binary", "a\0b");
    ours.write(".gitignore", "ignored\n*.log\n!kept.log\n");
    ours.write("crlf.txt", "a\nb\n");
    ours.write(".gitattributes", "crlf.txt text eol=crlf\n");
    symlink("kept.txt", at.join("link")).expect("linked");
    ours.commit("first");
    assert_eq!(git(at, &["fsck", "--strict"]).as_deref(), Some(""));
    assert_eq!(git(at, &["status", "--porcelain"]).as_deref(), Some(""));

    ours.write(
        "code.rs",
        &long
            .replace("    7\n", "    seven\n")
            .replace("    9\n", "")
            .replace("    150\n", "    x\n    y\n"),
    );
    fs::create_dir(at.join("elsewhere")).expect("made");
    fs::rename(at.join("moved.txt"), at.join("elsewhere/moved.txt")).expect("moved");
    fs::remove_file(at.join("gone.txt")).expect("removed");
    fs::set_permissions(at.join("script"), fs::Permissions::from_mode(0o755)).expect("set");
    fs::remove_file(at.join("becomes")).expect("removed");
    symlink("kept.txt", at.join("becomes")).expect("linked");
    ours.write("ends", "with a newline\n");
    ours.write("\u{fc}ber \"quoted\".txt", "y\n");
    ours.write("binary", "a\0c");
    ours.write("crlf.txt", "a\r\nc\r\n");
    ours.write("ignored/x", "x");
    ours.write("a.log", "x");
    ours.write("new/deep/file", "x\n");
    ours.write("new/a.log", "x\n");
    ours.write("empty", "");
    let compared = |what: &str| {
        let status = git(at, &["status"]).expect("git");
        assert_eq!(
            ours.status(),
            format!("Repository status:\n{status}"),
            "{what}"
        );
        for (tool, title, arguments) in [
            (
                "git_diff_unstaged",
                "Unstaged changes",
                vec!["diff", "--unified=3", "-M100%"],
            ),
            (
                "git_diff_staged",
                "Staged changes",
                vec!["diff", "--unified=3", "-M100%", "--cached"],
            ),
        ] {
            let said = git(at, &arguments).expect("git");
            assert_eq!(
                ours.call(tool, json!({})),
                format!("{title}:\n{said}"),
                "{what}"
            );
        }
        for context in [0, 1, 10] {
            let option = format!("--unified={context}");
            let said = git(at, &["diff", &option, "-M100%", "HEAD"]).expect("git");
            let diff = ours.call(
                "git_diff",
                json!({"target": "HEAD", "context_lines": context}),
            );
            assert_eq!(diff, format!("Diff with HEAD:\n{said}"), "{what}");
        }
    };
    compared("unstaged");
    ours.call(
        "git_add",
        json!({"files": ["code.rs", "gone.txt", "elsewhere", "moved.txt", "script", "empty"]}),
    );
    compared("partly staged");
    ours.call("git_add", json!({"files": ["."]}));
    compared("staged");
    ours.call("git_commit", json!({"message": "second"}));
    compared("committed");
    assert_eq!(git(at, &["fsck", "--strict"]).as_deref(), Some(""));
    let range = git(at, &["diff", "-M100%", "HEAD~1..HEAD"]).expect("git");
    let diff = ours.call("git_diff", json!({"target": "HEAD~1..HEAD"}));
    assert_eq!(diff, format!("Diff with HEAD~1..HEAD:\n{range}"));

    // There and back again; git finds nothing amiss.
    for target in ["HEAD~1", "main"] {
        ours.call("git_checkout", json!({"branch_name": target}));
        compared(target);
        assert_eq!(
            git(at, &["status", "--porcelain"]).as_deref(),
            Some(""),
            "{target}"
        );
    }
    assert_eq!(ours.read("crlf.txt"), "a\r\nc\r\n");
    assert_eq!(
        fs::read_link(at.join("becomes")).expect("a link"),
        Path::new("kept.txt")
    );

    git(at, &["branch", "topic", "HEAD~1"]);
    git(at, &["update-ref", "refs/remotes/origin/main", "HEAD~1"]);
    git(
        at,
        &[
            "symbolic-ref",
            "refs/remotes/origin/HEAD",
            "refs/remotes/origin/main",
        ],
    );
    git(
        at,
        &["config", "remote.origin.url", "https://example.com/x"],
    );
    git(
        at,
        &[
            "config",
            "remote.origin.fetch",
            "+refs/heads/*:refs/remotes/origin/*",
        ],
    );
    git(at, &["config", "branch.main.remote", "origin"]);
    git(at, &["config", "branch.main.merge", "refs/heads/main"]);
    compared("ahead of another");
    git(
        at,
        &[
            "config",
            "remote.origin.fetch",
            "+refs/heads/main:refs/remotes/origin/main",
        ],
    );
    compared("ahead of the only branch that is fetched");
    let other = at.with_file_name("other");
    let other = other.to_str().expect("UTF-8");
    git(at, &["worktree", "add", "--quiet", other, "topic"]);
    for (kind, arguments) in [
        ("local", vec![]),
        ("remote", vec!["-r"]),
        ("all", vec!["-a"]),
    ] {
        let mut all = vec!["branch"];
        all.extend(arguments);
        let said = Command::new("git")
            .current_dir(at)
            .args(&all)
            .output()
            .expect("git");
        let said = String::from_utf8_lossy(&said.stdout);
        assert_eq!(
            ours.call("git_branch", json!({"branch_type": kind})),
            said.trim_end_matches('\n')
        );
    }
    git(at, &["gc", "--quiet"]);
    compared("packed");
}

#[test]
fn a_folder_of_deleted_files_is_still_a_tracked_one() {
    let ours = Git::new();
    let at = &ours.repository;
    ours.write("d/e/gone", "1\n");
    ours.write("f/file", "1\n");
    ours.write("g/gone", "1\n");
    ours.commit("first");
    fs::remove_dir_all(at.join("d/e")).expect("removed");
    fs::remove_dir_all(at.join("f")).expect("removed");
    fs::remove_dir_all(at.join("g")).expect("removed");
    ours.write("d/new/one", "1\n");
    ours.write("d/two", "1\n");
    ours.write("f", "1\n");
    let status = ours.call("git_status", json!({}));
    let untracked = status.split("Untracked files:\n").nth(1);
    let listed = untracked.and_then(|rest| rest.split("\n\n").next());
    assert_eq!(listed, Some("\td/new/\n\td/two\n\tf"), "{status}");
    if let Some(theirs) = git(at, &["status", "--porcelain", "--untracked-files=normal"]) {
        assert!(theirs.contains("?? d/new/\n?? d/two\n?? f"), "{theirs}");
    }
}

#[test]
fn an_unfinished_merge_is_seen_and_concluded() {
    let ours = Git::new();
    let at = &ours.repository;
    let Some(_) = git(at, &["version"]) else {
        return;
    };
    ours.write("a", "base\n");
    ours.commit("base");
    ours.call("git_create_branch", json!({"branch_name": "topic"}));
    ours.write("a", "ours\n");
    let first = ours.commit("ours");
    ours.call("git_checkout", json!({"branch_name": "topic"}));
    ours.write("a", "theirs\n");
    ours.write("b", "b\n");
    let second = ours.commit("theirs");
    ours.call("git_checkout", json!({"branch_name": "main"}));
    let merge = Command::new("git")
        .current_dir(at)
        .args([
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@example.com",
            "merge",
            "topic",
        ])
        .output()
        .expect("git");
    assert!(!merge.status.success(), "it conflicts");
    let status = git(at, &["status"]).expect("git");
    assert_eq!(ours.status(), format!("Repository status:\n{status}"));
    assert!(
        ours.call("git_diff_unstaged", json!({}))
            .contains("* Unmerged path a")
    );
    let said = ours.refused("git_commit", json!({"message": "x"}));
    assert!(said.contains("unmerged paths, 'a'"), "{said}");
    let said = ours.refused("git_checkout", json!({"branch_name": "topic"}));
    assert!(said.contains("in progress"), "{said}");
    // Other files can be added meanwhile; unmerged entries stay unmerged.
    ours.write("c", "c\n");
    ours.call("git_add", json!({"files": ["c"]}));
    let unmerged = git(at, &["ls-files", "--unmerged"]).expect("git");
    assert_eq!(unmerged.lines().count(), 3, "{unmerged}");
    ours.write("a", "both\n");
    ours.call("git_add", json!({"files": ["a"]}));
    let status = git(at, &["status"]).expect("git");
    assert_eq!(ours.status(), format!("Repository status:\n{status}"));
    ours.call("git_commit", json!({"message": "merged"}));
    let parents = git(at, &["log", "-1", "--format=%P"]).expect("git");
    assert_eq!(parents, format!("{first} {second}"));
    assert!(!ours.git_dir("MERGE_HEAD").exists());
    assert!(ours.status().ends_with("working tree clean"));

    // Unstaging everything ends a merge, so that the next commit is not one without the merged content.
    git(at, &["checkout", "-q", "-b", "other", "HEAD~1"]);
    ours.write("d", "d\n");
    let third = ours.commit("other");
    let merge = ["merge", "-q", "--no-commit", "--no-ff", "main"];
    git(at, &merge).expect("git");
    ours.call("git_reset", json!({}));
    assert!(!ours.git_dir("MERGE_HEAD").exists());
    ours.write("d", "dd\n");
    ours.call("git_add", json!({"files": ["d"]}));
    ours.call("git_commit", json!({"message": "no merge"}));
    let parents = git(at, &["log", "-1", "--format=%P"]).expect("git");
    assert_eq!(parents, third);
}

#[test]
fn a_path_may_lead_to_the_repository_by_a_link() {
    let git = Git::new();
    git.write("folder/a", "a\n");
    let link = git.folder.path().join("link");
    symlink(&git.repository, &link).expect("linked");
    let files = |path: &str| json!({"files": [link.join(path)]});
    git.call("git_add", files("folder/a"));
    assert!(git.status().contains("new file:   folder/a"));
    let said = git.refused("git_add", files("../outside"));
    assert!(said.contains("outside the repository"), "{said}");
}

#[test]
fn changes_are_not_lost_by_checking_out() {
    let git = Git::new();
    git.write("same", "1\n");
    git.write("differs", "1\n");
    git.write("folder/file", "1\n");
    git.commit("first");
    git.call("git_create_branch", json!({"branch_name": "first"}));
    git.write("differs", "2\n");
    git.write("new", "2\n");
    fs::remove_dir_all(git.repository.join("folder")).expect("removed");
    git.write("folder", "now a file\n");
    git.commit("second");

    let to_first = || git.try_call("git_checkout", json!({"branch_name": "first"}));
    let to_main = || git.try_call("git_checkout", json!({"branch_name": "main"}));
    git.write("differs", "mine\n");
    let said = to_first().expect_err("it would be lost");
    assert_contains(&said, &["would be overwritten", "\tdiffers\n"]);
    assert_eq!(
        (git.read("differs"), git.read("new")),
        ("mine\n".to_owned(), "2\n".to_owned())
    );
    git.call("git_add", json!({"files": ["differs"]}));
    to_first().expect_err("staged, it would be lost as well");
    git.write("differs", "2\n");
    git.call("git_add", json!({"files": ["differs"]}));

    git.write("same", "mine\n");
    git.write("untracked", "mine\n");
    assert_eq!(
        to_first().expect("nothing is lost"),
        "Switched to branch 'first'"
    );
    assert_eq!(git.read("same"), "mine\n");
    assert_eq!(git.read("untracked"), "mine\n");
    assert_eq!(git.read("differs"), "1\n");
    assert_eq!(git.read("folder/file"), "1\n");
    assert!(!git.repository.join("new").exists());

    git.write("new", "mine\n");
    let said = to_main().expect_err("an untracked file would be lost");
    assert!(said.contains("\tnew\n"), "{said}");
    fs::remove_file(git.repository.join("new")).expect("removed");
    git.write("folder/mine", "mine\n");
    let said = to_main().expect_err("a file in a folder would be lost");
    assert!(said.contains("\tfolder\n"), "{said}");
    fs::remove_file(git.repository.join("folder/mine")).expect("removed");
    to_main().expect("nothing is lost");
    assert_eq!(git.read("folder"), "now a file\n");
}

#[test]
fn writing_is_offered_only_where_it_is_configured() {
    let folder = tempfile::tempdir().expect("a folder");
    gix::init(folder.path()).expect("a repository");
    let server = serve("git", json!({"git": {"repositories": [folder.path()]}}));
    let listed = Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let mut names: Vec<_> = listed["tools"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name"))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "git_branch",
            "git_diff",
            "git_diff_staged",
            "git_diff_unstaged",
            "git_log",
            "git_show",
            "git_status"
        ]
    );
    for (settings, setting) in [
        (json!({"git": {}}), "builtin.git.repositories"),
        (
            json!({"git": {"repositories": ["/nonexistent"]}}),
            "builtin.git.repositories[0]",
        ),
        (
            json!({"git": {"repositories": ["/"]}}),
            "builtin.git.repositories[0]",
        ),
        (
            json!({"git": {"repositories": [folder.path()], "author": {"name": "x\ny", "email": "z"}}}),
            "builtin.git.author.name",
        ),
    ] {
        let told = refusal("git", settings);
        assert!(told.contains(setting), "{told}");
    }
}

#[test]
fn files_that_are_ignored_or_missing_are_told_apart() {
    let git = Git::new();
    git.write(".gitignore", "*.log\n");
    git.write("a.log", "x");
    git.write("a", "x");
    git.commit("first");
    let said = git.refused("git_add", json!({"files": ["nothing"]}));
    assert_eq!(said, "pathspec 'nothing' did not match any files");
    let said = git.refused("git_add", json!({"files": ["a.log"]}));
    assert!(said.contains("ignored"), "{said}");
    let said = git.call("git_add", json!({"files": ["a"]}));
    assert!(said.starts_with("No changes were staged"), "{said}");
    fs::remove_file(git.repository.join("a")).expect("removed");
    git.call("git_add", json!({"files": ["a"]}));
    assert!(git.status().contains("deleted:    a"));
    // Another repository in this one is shown, and not looked into.
    let nested = git.repository.join("nested");
    gix::init(&nested).expect("a repository");
    fs::write(nested.join("x"), "x").expect("written");
    let status = git.status();
    assert!(status.contains("\tnested/"), "{status}");
    let said = git.refused("git_add", json!({"files": ["nested"]}));
    assert!(said.contains("repository of its own"), "{said}");
}

#[test]
fn somebody_else_changing_the_repository_is_waited_for_and_told() {
    let git = Git::new();
    git.write("a", "x");
    fs::write(git.git_dir("index.lock"), "").expect("written");
    let said = git.refused("git_add", json!({"files": ["."]}));
    assert!(
        said.contains("another process is changing the repository; try again in a moment"),
        "{said}"
    );
    fs::remove_file(git.git_dir("index.lock")).expect("removed");
    git.commit("first");
    assert!(!git.git_dir("index.lock").exists());
}
