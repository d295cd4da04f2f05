//! Malicious repositories and arguments.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore::__test::gix;
use serde_json::{Value, json};

use super::super::call;
use super::{Git, git};

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
    // A folder in the repository selects it, and so does its name relative to the configured folder.
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
        diff.len() < 1100 && diff.ends_with("[cut: only the first 1000 bytes are shown]"),
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
        assert!(
            said.contains("a tree contains an invalid file name"),
            "{name}: {said}"
        );
        assert!(git.status().ends_with("working tree clean"), "{name}");
    }
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

#[test]
fn the_branch_of_a_bare_repository_is_in_none_of_its_working_trees() {
    let ours = Git::new();
    let at = &ours.repository;
    let Some(_) = git(at, &["version"]) else {
        return;
    };
    ours.write("a", "a\n");
    ours.commit("first");
    git(at, &["clone", "--quiet", "--bare", ".", "../bare.git"]);
    let bare = at.with_file_name("bare.git");
    git(
        &bare,
        &["worktree", "add", "--quiet", "-b", "other", "../tree"],
    );
    let tree = at.with_file_name("tree");
    let said = ours.call(
        "git_checkout",
        json!({"repo_path": tree, "branch_name": "main"}),
    );
    assert_eq!(said, "Switched to branch 'main'");
}

#[test]
fn folders_in_an_index_are_nested_only_so_far() {
    let ours = Git::new();
    ours.write("a", "a\n");
    ours.commit("first");
    let head = &b"DIRC\0\0\0\x02"[..];
    let checksum = &[0; 20][..];
    // No entries, but a part with nested folders.
    let part = b"a\0-1 1\n".repeat(200_000);
    let size = u32::try_from(part.len()).expect("short").to_be_bytes();
    let index = [head, &[0; 4], b"TREE", &size, &part, checksum].concat();
    fs::write(ours.git_dir("index"), index).expect("written");
    for (tool, arguments) in [
        ("git_status", json!({})),
        ("git_show", json!({"revision": ":a"})),
    ] {
        let problem = ours.refused(tool, arguments);
        assert!(problem.contains("too deep"), "{tool}: {problem}");
    }
    // An empty file with a long path.
    let mut entry = [0; 62];
    entry[24..28].copy_from_slice(&0o100_644_u32.to_be_bytes());
    let id = gix::ObjectId::empty_blob(gix::hash::Kind::Sha1);
    entry[40..60].copy_from_slice(id.as_slice());
    entry[60..].copy_from_slice(&0xfff_u16.to_be_bytes());
    let mut entry = [&entry[..], &b"a/".repeat(200_000), b"a"].concat();
    entry.resize(entry.len() + 8 - entry.len() % 8, 0);
    let index = [head, &[0, 0, 0, 1], &entry, checksum].concat();
    fs::write(ours.git_dir("index"), index).expect("written");
    let problem = ours.refused("git_commit", json!({"message": "second"}));
    assert!(problem.contains("invalid path"), "{problem}");
}

#[test]
fn pipes_in_place_of_files_with_rules_are_not_read() {
    let ours = Git::new();
    ours.write("d/file", "1\n");
    ours.commit("first");
    for (name, tool) in [
        (".gitignore", "git_status"),
        (".gitattributes", "git_diff_unstaged"),
    ] {
        let pipe = ours.repository.join("d").join(name);
        let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        ours.write("d/file", "another text\n");
        let problem = ours.refused(tool, json!({}));
        assert!(problem.contains("is a pipe"), "{tool}: {problem}");
        fs::remove_file(&pipe).expect("removed");
        ours.call(tool, json!({}));
    }
}
