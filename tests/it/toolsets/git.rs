//! The git toolset: repositories as they are, and as somebody prepares them who means harm.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{call, refusal, serve};
use crate::support::{Running, Stateless};

/// A server with a repository that has nothing in it yet.
struct Git {
    folder: TempDir,
    repository: PathBuf,
    server: Running,
}

fn settings(folder: &Path, more: Value) -> Value {
    let mut git = json!({
        "repositories": [folder],
        "write": true,
        "author": {"name": "A U Thor", "email": "author@example.com"},
    });
    let more = more.as_object().expect("an object").clone();
    git.as_object_mut().expect("an object").extend(more);
    json!({ "git": git })
}

impl Git {
    fn new() -> Self {
        Self::with(json!({}))
    }

    fn with(more: Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let repository = folder.path().join("served/project");
        fs::create_dir_all(&repository).expect("made");
        let made = gix::init(&repository).expect("a repository");
        let head = made.git_dir().join("HEAD");
        fs::write(head, "ref: refs/heads/main\n").expect("written");
        let server = serve("git", settings(&folder.path().join("served"), more));
        Self {
            folder,
            repository,
            server,
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.repository.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.repository.join(path)).expect("a file")
    }

    /// What a tool answers, or why not.
    fn try_call(&self, tool: &str, more: Value) -> Result<String, String> {
        let mut arguments = json!({ "repo_path": self.repository });
        let more = more.as_object().expect("an object").clone();
        arguments.as_object_mut().expect("an object").extend(more);
        let result = call(&self.server, tool, arguments);
        let text = result["content"][0]["text"]
            .as_str()
            .expect("a text")
            .to_owned();
        if result["isError"] == true {
            Err(text)
        } else {
            Ok(text)
        }
    }

    fn call(&self, tool: &str, more: Value) -> String {
        self.try_call(tool, more)
            .unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    fn refused(&self, tool: &str, more: Value) -> String {
        self.try_call(tool, more).expect_err(tool)
    }

    /// Stages everything and commits it.
    fn commit(&self, message: &str) -> String {
        self.call("git_add", json!({"files": ["."]}));
        let said = self.call("git_commit", json!({ "message": message }));
        said.rsplit(' ').next().expect("an id").to_owned()
    }

    fn status(&self) -> String {
        let status = self.call("git_status", json!({}));
        status.trim_end_matches('\n').to_owned()
    }

    fn git_dir(&self, path: &str) -> PathBuf {
        self.repository.join(".git").join(path)
    }
}

/// What git itself says; nothing if there is none on this machine.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let said = Command::new("git")
        .current_dir(folder)
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name == "PATH"))
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args([
            "-c",
            "user.name=A U Thor",
            "-c",
            "user.email=author@example.com",
        ])
        .args([
            "-c",
            "advice.statusHints=false",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(arguments)
        .output();
    let Ok(said) = said else {
        super::skipped("there is no git on this machine to compare with");
        return None;
    };
    assert!(
        said.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&said.stderr)
    );
    Some(
        String::from_utf8_lossy(&said.stdout)
            .trim_end_matches('\n')
            .to_owned(),
    )
}

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
    // Something else can be added meanwhile; what is not merged stays so.
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
    assert!(
        said.contains("would be overwritten") && said.contains("\tdiffers\n"),
        "{said}"
    );
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
fn values_are_never_options_and_paths_never_lead_out() {
    let git = Git::new();
    git.write("a", "a\n");
    git.commit("first");
    let marker = git.folder.path().join("marker");
    let output = format!("--output={}", marker.display());
    for value in [
        &*output,
        "--upload-pack=touch x",
        "-c",
        "--",
        "-h",
        "--exec=x",
        "-",
    ] {
        for (tool, argument) in [
            ("git_diff", "target"),
            ("git_show", "revision"),
            ("git_checkout", "branch_name"),
            ("git_create_branch", "branch_name"),
        ] {
            let mut arguments = serde_json::Map::new();
            arguments.insert(argument.to_owned(), value.into());
            let said = git.refused(tool, Value::Object(arguments));
            assert!(
                said.contains("cannot start with '-'"),
                "{tool} {value}: {said}"
            );
        }
        git.refused(
            "git_create_branch",
            json!({"branch_name": "x", "base_branch": value}),
        );
        git.refused(
            "git_branch",
            json!({"branch_type": "local", "contains": value}),
        );
        git.refused(
            "git_branch",
            json!({"branch_type": "local", "not_contains": value}),
        );
        git.refused("git_log", json!({"start_timestamp": value}));
        git.refused("git_log", json!({"end_timestamp": value}));
        git.refused("git_add", json!({"files": [value]}));
    }
    for value in [
        "ext::sh -c touch% x",
        "HEAD^{/first}",
        ":/first",
        "HEAD...main",
        "no such",
        "HEAD:../a",
        "HEAD:/etc/passwd",
        "HEAD:a/../../b",
        "\n",
        "",
        "@{-1000000}",
        "HEAD~99999999999",
    ] {
        git.refused("git_show", json!({"revision": value}));
        git.refused("git_diff", json!({"target": value}));
        git.refused("git_checkout", json!({"branch_name": value}));
    }
    for value in [
        "a..b",
        "HEAD",
        "@",
        "a b",
        "a~",
        "a^",
        "a:b",
        ".a",
        "a.lock",
        "a/",
        "/a",
        "a//b",
        "",
        "\x07",
        "refs/../x",
        "@{1}",
    ] {
        git.refused("git_create_branch", json!({"branch_name": value}));
    }
    for path in [
        "../marker",
        "/etc/passwd",
        "a/../../x",
        ".git/config",
        "x/.git/y",
        ".GIT/config",
        "",
        "\0",
    ] {
        let said = git.try_call("git_add", json!({"files": [path]}));
        assert!(said.is_err() || path.is_empty(), "{path:?}: {said:?}");
    }
    for path in [
        "/",
        "/etc",
        "..",
        "../..",
        "/nonexistent",
        "",
        "\0",
        "~",
        "file:///etc",
    ] {
        let result = call(&git.server, "git_status", json!({"repo_path": path}));
        if path.is_empty() {
            continue;
        }
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert_eq!(result["isError"], true, "{path}: {text}");
        assert!(
            text.contains("is in no repository that may be used here"),
            "{path}: {text}"
        );
    }
    assert!(!marker.exists());
    // A folder in the repository stands for it, and so does its name from the configured folder.
    git.write("folder/b", "b\n");
    for path in [
        git.repository.join("folder"),
        PathBuf::from("project"),
        PathBuf::from("project/folder/."),
    ] {
        let result = call(&git.server, "git_status", json!({"repo_path": path}));
        assert_ne!(result["isError"], true, "{}: {result}", path.display());
    }
}

#[test]
fn what_points_out_of_the_configured_folders_is_refused() {
    let outside = Git::new();
    outside.write("secret", "secret\n");
    outside.commit("first");
    let refused = |what: &str, prepare: &dyn Fn(&Git)| {
        let git = Git::new();
        git.write("a", "a\n");
        git.commit("first");
        git.status();
        prepare(&git);
        let said = git.try_call("git_status", json!({}));
        let said = said.expect_err(what);
        assert!(!said.contains("secret"), "{what}: {said}");
    };
    let theirs = outside.repository.join(".git");
    let replaced = |git: &Git, path: &str, target: &Path| {
        let path = git.repository.join(path);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        symlink(target, path).expect("linked");
    };
    refused("a link in place of the repository", &|git| {
        fs::remove_dir_all(&git.repository).expect("removed");
        symlink(&outside.repository, &git.repository).expect("linked");
    });
    refused("a link in place of .git", &|git| {
        replaced(git, ".git", &theirs);
    });
    refused("a file in place of .git", &|git| {
        fs::remove_dir_all(git.git_dir("")).expect("removed");
        git.write(".git", &format!("gitdir: {}\n", theirs.display()));
    });
    refused("a relative file in place of .git", &|git| {
        fs::remove_dir_all(git.git_dir("")).expect("removed");
        git.write(
            ".git",
            "gitdir: ../../../../../../../../../../../../../etc\n",
        );
    });
    refused("objects elsewhere", &|git| {
        replaced(git, ".git/objects", &theirs.join("objects"));
    });
    refused("references elsewhere", &|git| {
        replaced(git, ".git/refs", &theirs.join("refs"));
    });
    refused("HEAD elsewhere", &|git| {
        replaced(git, ".git/HEAD", &theirs.join("HEAD"));
    });
    refused("an index elsewhere", &|git| {
        replaced(git, ".git/index", &theirs.join("index"));
    });
    refused("a configuration elsewhere", &|git| {
        replaced(git, ".git/config", &theirs.join("config"));
    });
    refused("objects borrowed from elsewhere", &|git| {
        let list = format!("{}\n", theirs.join("objects").display());
        fs::create_dir_all(git.git_dir("objects/info")).expect("made");
        fs::write(git.git_dir("objects/info/alternates"), list).expect("written");
    });
    refused("a common folder elsewhere", &|git| {
        fs::write(git.git_dir("commondir"), theirs.display().to_string()).expect("written");
    });
    refused("objects borrowed in a circle", &|git| {
        fs::create_dir_all(git.git_dir("objects/info")).expect("made");
        fs::write(git.git_dir("objects/info/alternates"), "../objects\n").expect("written");
    });
}

#[test]
fn a_working_tree_elsewhere_is_not_read() {
    let git = Git::new();
    git.write("secret", "tracked\n");
    git.commit("first");
    let outside = git.folder.path().join("outside");
    fs::create_dir(&outside).expect("made");
    fs::write(outside.join("secret"), "TOP SECRET\n").expect("written");
    let config = fs::read_to_string(git.git_dir("config")).expect("read");
    let with = format!("{config}\n[core]\n\tworktree = {}\n", outside.display());
    fs::write(git.git_dir("config"), with).expect("written");
    let said = git.try_call("git_diff_unstaged", json!({}));
    assert!(!format!("{said:?}").contains("TOP SECRET"), "{said:?}");
    fs::write(git.git_dir("config"), config).expect("written");

    // Nor is anything read through a folder that became a link.
    git.write("folder/secret", "tracked\n");
    git.commit("second");
    fs::remove_dir_all(git.repository.join("folder")).expect("removed");
    symlink(&outside, git.repository.join("folder")).expect("linked");
    let said = git.call("git_diff_unstaged", json!({}));
    assert!(
        !said.contains("TOP SECRET") && said.contains("deleted file"),
        "{said}"
    );
    let said = git.try_call("git_add", json!({"files": ["folder/secret"]}));
    assert!(!format!("{said:?}").contains("TOP SECRET"), "{said:?}");
    let said = git.try_call("git_checkout", json!({"branch_name": "HEAD~1"}));
    assert_eq!(
        fs::read_to_string(outside.join("secret")).expect("read"),
        "TOP SECRET\n",
        "{said:?}"
    );
}

#[test]
fn nothing_that_a_repository_brings_is_run() {
    let git = Git::new();
    let marker = git.folder.path().join("marker");
    let script = git.folder.path().join("served/script.sh");
    fs::write(
        &script,
        format!("#!/bin/sh\ntouch {}\ncat\n", marker.display()),
    )
    .expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("set");
    let script = script.display();
    let config = fs::read_to_string(git.git_dir("config")).expect("read");
    fs::write(
        git.git_dir("config"),
        format!(
            "{config}
[core]
\tfsmonitor = {script}
\thooksPath = {hooks}
\teditor = {script}
\tpager = {script}
\tsshCommand = {script}
\taskPass = {script}
[filter \"evil\"]
\tclean = {script}
\tsmudge = {script}
\tprocess = {script}
\trequired = true
[diff \"evil\"]
\tcommand = {script}
\ttextconv = {script}
[diff]
\texternal = {script}
[commit]
\tgpgSign = true
[gpg]
\tprogram = {script}
[credential]
\thelper = {script}
[alias]
\tstatus = !{script}
[include]
\tpath = {script}
[safe]
\tdirectory = *
",
            hooks = git.git_dir("hooks").display(),
        ),
    )
    .expect("written");
    fs::create_dir_all(git.git_dir("hooks")).expect("made");
    for hook in [
        "pre-commit",
        "prepare-commit-msg",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "fsmonitor-watchman",
    ] {
        symlink(
            git.folder.path().join("served/script.sh"),
            git.git_dir("hooks").join(hook),
        )
        .expect("linked");
    }
    git.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    git.write("a", "one\n");
    git.commit("first");
    git.call("git_create_branch", json!({"branch_name": "first"}));
    git.write("a", "two\n");
    git.status();
    git.call("git_diff_unstaged", json!({}));
    git.call("git_diff", json!({"target": "HEAD"}));
    git.commit("second");
    git.call("git_show", json!({"revision": "HEAD"}));
    git.call("git_log", json!({}));
    git.call("git_checkout", json!({"branch_name": "first"}));
    git.call("git_reset", json!({}));
    assert_eq!(git.read("a"), "one\n");
    assert!(!marker.exists());
}

#[test]
fn results_and_histories_have_an_end() {
    let git = Git::with(json!({"limits": {
        "output_bytes": 1000, "file_bytes": 5000, "files": 20, "log_commits": 3, "walked_commits": 50, "context_lines": 2,
    }}));
    for n in 0..5 {
        git.write("a", &format!("{n}\n"));
        git.commit(&format!("commit {n}"));
    }
    for count in [5, 1_000_000, -1] {
        let log = git.call("git_log", json!({"max_count": count}));
        assert_eq!(log.matches("Commit: ").count(), 3, "{count}");
    }
    assert_eq!(
        git.call("git_log", json!({"max_count": 0})),
        "Commit history:\n"
    );
    git.write("a", &"a line\n".repeat(500));
    let diff = git.call("git_diff_unstaged", json!({}));
    assert!(
        diff.len() < 1100
            && diff.ends_with("[cut here: there is more than the 1000 bytes that are shown]"),
        "{diff}"
    );
    git.write("a", &"a line\n".repeat(5000));
    let diff = git.call("git_diff_unstaged", json!({}));
    assert!(diff.contains("too large to be compared"), "{diff}");
    assert!(git.status().contains("modified:   a"));
    let said = git.refused("git_add", json!({"files": ["a"]}));
    assert!(said.contains("more than 5000 bytes"), "{said}");
    let text: String = (0..20).map(|n| format!("{n}\n")).collect();
    git.write("a", &text);
    git.commit("numbers");
    git.write("a", &text.replace("10\n", "ten\n"));
    let diff = git.call("git_diff_unstaged", json!({"context_lines": 1_000_000}));
    assert!(diff.contains("@@ -9,5 +9,5 @@"), "{diff}");
    for n in 0..25 {
        git.write(&format!("many/{n}"), "x");
    }
    let said = git.refused("git_add", json!({"files": ["many"]}));
    assert!(said.contains("more than 20 files"), "{said}");
}

#[test]
fn a_tree_that_holds_itself_a_billion_times_is_given_up_on() {
    let git = Git::with(json!({"limits": {"files": 1000}}));
    let repository = gix::open(&git.repository).expect("opens");
    let mut id = repository.write_blob(b"x").expect("written").detach();
    let mut kind = gix::objs::tree::EntryKind::Blob;
    for _ in 0..10 {
        let entry = |n: usize| gix::objs::tree::Entry {
            mode: kind.into(),
            filename: format!("d{n}").into(),
            oid: id,
        };
        let tree = gix::objs::Tree {
            entries: (0..10).map(entry).collect(),
        };
        id = repository.write_object(&tree).expect("written").detach();
        kind = gix::objs::tree::EntryKind::Tree;
    }
    let tree = id;
    let commit = gix::objs::Commit {
        tree,
        parents: Default::default(),
        author: gix::actor::Signature::default(),
        committer: gix::actor::Signature::default(),
        encoding: None,
        message: "bomb".into(),
        extra_headers: Vec::new(),
    };
    let id = repository.write_object(&commit).expect("written").detach();
    fs::write(git.git_dir("refs/heads/main"), format!("{id}\n")).expect("written");
    for (tool, arguments) in [
        ("git_status", json!({})),
        ("git_show", json!({"revision": "HEAD"})),
        ("git_diff", json!({"target": "HEAD"})),
        ("git_diff_staged", json!({})),
        ("git_reset", json!({})),
        ("git_checkout", json!({"branch_name": id.to_string()})),
    ] {
        if tool == "git_checkout" {
            continue;
        }
        let said = git.refused(tool, arguments);
        assert!(said.contains("more than 1000 files"), "{tool}: {said}");
    }
    assert_eq!(
        git.call("git_show", json!({"revision": "HEAD:d0"}))
            .lines()
            .count(),
        10
    );
}

#[test]
fn trees_with_names_that_lead_out_are_refused() {
    for name in ["..", ".git", ".GIT", "a/b", ".", "git~1", "\u{200c}.git"] {
        let git = Git::new();
        git.write("a", "a\n");
        git.commit("first");
        let repository = gix::open(&git.repository).expect("opens");
        let blob = repository.write_blob(b"evil").expect("written").detach();
        let tree = gix::objs::Tree {
            entries: vec![gix::objs::tree::Entry {
                mode: gix::objs::tree::EntryKind::Blob.into(),
                filename: name.into(),
                oid: blob,
            }],
        };
        let Ok(tree) = repository.write_object(&tree) else {
            continue;
        };
        let commit = gix::objs::Commit {
            tree: tree.detach(),
            parents: Default::default(),
            author: gix::actor::Signature::default(),
            committer: gix::actor::Signature::default(),
            encoding: None,
            message: "evil".into(),
            extra_headers: Vec::new(),
        };
        let id = repository.write_object(&commit).expect("written").detach();
        let said = git.refused("git_checkout", json!({"branch_name": id.to_string()}));
        assert!(said.contains("no name of a file"), "{name}: {said}");
        assert!(git.status().ends_with("working tree clean"), "{name}");
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
        said.contains("somebody else is changing the repository"),
        "{said}"
    );
    fs::remove_file(git.git_dir("index.lock")).expect("removed");
    git.commit("first");
    assert!(!git.git_dir("index.lock").exists());
}

#[test]
fn a_linked_working_tree_is_one_as_long_as_it_is_in_the_configured_folders() {
    let ours = Git::new();
    let at = &ours.repository;
    let Some(_) = git(at, &["version"]) else {
        return;
    };
    ours.write("a", "a\n");
    ours.commit("first");
    git(
        at,
        &["worktree", "add", "--quiet", "-b", "inside", "../inside"],
    );
    let inside = ours.folder.path().join("served/inside");
    let status = |path: &Path| call(&ours.server, "git_status", json!({ "repo_path": path }));
    let said = status(&inside);
    let text = said["content"][0]["text"].as_str().expect("a text");
    assert_eq!(
        text,
        "Repository status:\nOn branch inside\nnothing to commit, working tree clean"
    );
    let said = ours.refused("git_checkout", json!({"branch_name": "inside"}));
    assert!(said.contains("another working tree"), "{said}");
    git(
        at,
        &[
            "worktree",
            "add",
            "--quiet",
            "-b",
            "outside",
            "../../outside",
        ],
    );
    let said = status(&ours.folder.path().join("outside"));
    assert_eq!(said["isError"], true);
}
