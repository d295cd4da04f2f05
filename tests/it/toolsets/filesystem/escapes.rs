//! No path leads out of the permitted directories, for any tool.
//!
//! Each tool is tried with each path. After each case, everything outside must be unchanged.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::{Grounds, Server, everything_in};
use crate::support::assert_contains;

const SECRET: &str = "what nobody inside may read";

/// Creates a root with every kind of entry that may lead outside, and files to protect beside it.
pub(super) fn grounds() -> Grounds {
    let grounds = Grounds::new();
    grounds.file("outside/secret.txt", SECRET);
    grounds.file("outside/inner/hidden-name.txt", SECRET);
    grounds.file("root-evil/secret.txt", SECRET);
    grounds.file("rootless", SECRET);
    grounds.file("root/a.txt", "inside");
    grounds.file("root/sub/b.txt", "inside too");
    let link = |target: &str, name: &str| {
        symlink(target, grounds.root.join(name)).expect("a link");
    };
    let base = grounds.base.to_str().expect("UTF-8");
    link("../outside/secret.txt", "to_file");
    link(&format!("{base}/outside/secret.txt"), "to_file_absolute");
    link("../outside", "to_folder");
    link(&format!("{base}/outside"), "to_folder_absolute");
    link("../outside/", "to_folder_slash");
    link("sub/../../outside", "to_folder_by_dots");
    link("./././../outside/.", "to_folder_by_more_dots");
    link(&format!("{base}/root/../outside"), "to_folder_by_root");
    link(
        &format!("{base}/root/sub/../../outside"),
        "to_folder_by_sub",
    );
    link(&format!("/{base}/outside"), "to_folder_double_slash");
    link("chain_2", "chain_1");
    link("sub/chain_3", "chain_2");
    link("../../outside", "sub/chain_3");
    link("..", "to_parent");
    link("/", "to_everything");
    link(".", "to_itself");
    link("../root", "to_root_from_above");
    link("loop_b", "loop_a");
    link("loop_a", "loop_b");
    link("own", "own");
    link("own/x", "own_below");
    link("../outside/new", "to_nothing_outside");
    link("nothing", "to_nothing_inside");
    link("../root-evil", "to_neighbour");
    link("../rootless", "to_rootless");
    link("/proc/self/root", "to_proc_root");
    link("/proc/self/cwd", "to_proc_cwd");
    link("/proc/self/fd", "to_proc_fds");
    link("/proc/self/environ", "to_environment");
    link("/dev/zero", "to_zeroes");
    link("/dev/stdin", "to_stdin");
    link("../../outside", "sub/up");
    for n in 0..60 {
        link(&format!("step_{}", n + 1), &format!("step_{n}"));
    }
    link("../outside", "step_60");
    grounds
}

/// Named paths, with `{base}` and `{root}` for the folders. All must be rejected.
const OUTSIDE: [(&str, &str); 80] = [
    ("parent", ".."),
    ("parent with a slash", "../"),
    ("parent with a dot", "../."),
    ("parent of the current", "./.."),
    ("parent by the root", "{root}/.."),
    ("parent by a folder", "sub/../.."),
    ("parent by a file", "a.txt/../.."),
    ("parent by what is not there", "nothing/../.."),
    ("file beside", "../outside/secret.txt"),
    ("file beside, by a folder", "sub/../../outside/secret.txt"),
    ("file beside, by the root", "{root}/../outside/secret.txt"),
    (
        "file beside, by the root and a folder",
        "{root}/sub/../../outside/secret.txt",
    ),
    (
        "file beside, by dots and slashes",
        "sub/.//.././//../outside/./secret.txt",
    ),
    ("file beside, by a file", "a.txt/../../outside/secret.txt"),
    ("file beside with a slash", "../outside/secret.txt/"),
    ("folder beside", "../outside"),
    ("folder beside with a slash", "../outside/"),
    ("nothing beside", "../outside/nothing"),
    ("new file beside", "../new"),
    ("new folder beside", "../new/folder"),
    ("absolute file", "{base}/outside/secret.txt"),
    ("absolute folder", "{base}/outside"),
    ("absolute base", "{base}"),
    ("absolute with two slashes", "//{base}/outside/secret.txt"),
    ("absolute with many slashes", "////etc////passwd"),
    ("neighbour that begins alike", "{root}-evil/secret.txt"),
    (
        "neighbour that begins alike, relative",
        "../root-evil/secret.txt",
    ),
    ("neighbour that is a file", "{root}less"),
    ("root in capitals", "{base}/ROOT/a.txt"),
    ("root cut short", "{base}/roo"),
    ("everything", "/"),
    ("everything by dots", "/../../.."),
    (
        "far above",
        "../../../../../../../../../../../../etc/passwd",
    ),
    ("passwd", "/etc/passwd"),
    (
        "passwd by the root",
        "{root}/../../../../../../../../etc/passwd",
    ),
    ("environment", "/proc/self/environ"),
    ("memory", "/proc/self/mem"),
    ("root of the process", "/proc/self/root/etc/passwd"),
    ("folder of the process", "/proc/self/cwd"),
    ("open file of the process", "/proc/self/fd/0"),
    ("thread of the process", "/proc/thread-self/environ"),
    ("device", "/dev/zero"),
    ("standard input", "/dev/stdin"),
    ("link to a file", "to_file"),
    ("link to a file with a slash", "to_file/"),
    ("link to a file, by the root", "{root}/to_file"),
    ("link to a file, absolute", "to_file_absolute"),
    ("link to a folder", "to_folder"),
    ("link to a folder, absolute", "to_folder_absolute"),
    ("link to a folder, with a slash", "to_folder_slash"),
    ("file by a link", "to_folder/secret.txt"),
    ("folder by a link", "to_folder/inner"),
    ("nothing by a link", "to_folder/nothing"),
    ("new file by a link", "to_folder/new"),
    ("file by an absolute link", "to_folder_absolute/secret.txt"),
    ("file by a link with dots", "to_folder_by_dots/secret.txt"),
    (
        "file by a link with more dots",
        "to_folder_by_more_dots/secret.txt",
    ),
    (
        "file by a link over the root",
        "to_folder_by_root/secret.txt",
    ),
    (
        "file by a link over a folder",
        "to_folder_by_sub/secret.txt",
    ),
    (
        "file by a link with two slashes",
        "to_folder_double_slash/secret.txt",
    ),
    ("file by links", "chain_1/secret.txt"),
    ("file by a link further down", "sub/up/secret.txt"),
    (
        "file by a link to the parent",
        "to_parent/outside/secret.txt",
    ),
    ("file by a link to everything", "to_everything/etc/passwd"),
    (
        "file by a link to the root from above",
        "to_root_from_above/a.txt",
    ),
    ("link to a neighbour", "to_neighbour/secret.txt"),
    ("link to a file that begins alike", "to_rootless"),
    ("link to what is not there", "to_nothing_outside"),
    (
        "file below a link to what is not there",
        "to_nothing_outside/x",
    ),
    ("links in a circle", "loop_a"),
    ("file below links in a circle", "loop_a/x"),
    ("link to itself", "own"),
    ("link below itself", "own_below"),
    ("too many links", "step_0/secret.txt"),
    ("link to the process's root", "to_proc_root/etc/passwd"),
    ("link to the process's folder", "to_proc_cwd/Cargo.toml"),
    ("link to the process's files", "to_proc_fds/0"),
    ("link to the environment", "to_environment"),
    ("link to a device", "to_zeroes"),
    ("link to standard input", "to_stdin"),
];

/// Invalid paths.
const NO_PATHS: [(&str, &str); 14] = [
    ("NUL at the end", "a.txt\0"),
    ("NUL within", "a.txt\0/../../outside/secret.txt"),
    ("NUL alone", "\0"),
    ("home", "~"),
    ("file at home", "~/.ssh/id_rsa"),
    ("drive", "C:"),
    ("drive and folder", "C:\\Windows"),
    ("drive with slashes", "c:/windows"),
    ("share", "\\\\server\\share"),
    ("URL", "file:///etc/passwd"),
    ("URL of the root", "file://{root}/a.txt"),
    ("below a file", "a.txt/x"),
    ("below a file, by dots", "sub/../a.txt/x"),
    ("name that is too long", "{long}"),
];

/// Names that look like an escape but are literal: reading finds nothing, and writing stays inside.
const NAMES: [(&str, &str); 16] = [
    ("percent", "..%2f..%2foutside%2fsecret.txt"),
    ("percent twice", "..%252foutside%252fsecret.txt"),
    ("dots in percent", "%2e%2e"),
    ("backslashes", "..\\..\\outside\\secret.txt"),
    ("backslash", "..\\outside"),
    ("overlong dots", "..\u{c0}\u{af}outside"),
    ("full-width dots", "\u{ff0e}\u{ff0e}"),
    ("one dot leader", "\u{2024}\u{2024}"),
    ("division slash", "..\u{2215}outside"),
    ("three dots", "..."),
    ("dots and a space", ".. "),
    ("space and dots", " .."),
    ("somebody's home", "~root"),
    ("variable", "$HOME"),
    ("command", "$(id)"),
    ("line break", "..\n"),
];

/// Every tool with a path in the place of each of its paths.
fn operations(path: &str) -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("reading", "read_file", json!({"path": path})),
        ("reading", "read_text_file", json!({"path": path})),
        (
            "reading",
            "read_text_file",
            json!({"path": path, "head": 1}),
        ),
        (
            "reading",
            "read_text_file",
            json!({"path": path, "tail": 1}),
        ),
        ("reading", "read_media_file", json!({"path": path})),
        ("reading", "read_multiple_files", json!({"paths": [path]})),
        ("reading", "list_directory", json!({"path": path})),
        (
            "reading",
            "list_directory_with_sizes",
            json!({"path": path}),
        ),
        ("reading", "directory_tree", json!({"path": path})),
        (
            "reading",
            "search_files",
            json!({"path": path, "pattern": "**"}),
        ),
        ("reading", "get_file_info", json!({"path": path})),
        (
            "reading",
            "edit_file",
            json!({"path": path, "edits": [{"oldText": "what", "newText": "x"}]}),
        ),
        (
            "reading",
            "edit_file",
            json!({"path": path, "edits": [], "dryRun": true}),
        ),
        (
            "reading",
            "move_file",
            json!({"source": path, "destination": "moved"}),
        ),
        (
            "writing",
            "write_file",
            json!({"path": path, "content": "written"}),
        ),
        ("writing", "create_directory", json!({"path": path})),
        (
            "writing",
            "move_file",
            json!({"source": "sub/b.txt", "destination": path}),
        ),
    ]
}

struct Trial {
    grounds: Grounds,
    server: Server,
    before: std::collections::BTreeMap<std::path::PathBuf, String>,
    failed: Vec<String>,
    cases: usize,
}

impl Trial {
    fn new() -> Self {
        let grounds = grounds();
        let server = grounds.server();
        let before = outside(&grounds);
        Self {
            grounds,
            server,
            before,
            failed: Vec::new(),
            cases: 0,
        }
    }

    fn path(&self, shape: &str) -> String {
        shape
            .replace("{base}", self.grounds.base.to_str().expect("UTF-8"))
            .replace("{root}", self.grounds.root.to_str().expect("UTF-8"))
            .replace("{long}", &"x".repeat(256))
    }

    /// Tries one case; files outside must be neither seen nor changed.
    fn case(&mut self, name: &str, tool: &str, arguments: Value) -> bool {
        self.cases += 1;
        let called = self.server.call(tool, arguments.clone());
        let (Ok(text) | Err(text)) = &called;
        let is_refused = called.is_err() || text.contains(": Error - ");
        // The caller knows the names that it asks for, except for this one.
        let is_silent = ["what nobody", "hidden-name", "root:x:0:0", "PATH="];
        if is_silent.iter().any(|word| text.contains(word)) {
            self.failed
                .push(format!("{name}: {tool} {arguments} says {text}"));
        }
        if outside(&self.grounds) != self.before {
            self.failed.push(format!(
                "{name}: {tool} {arguments} changed what is outside"
            ));
            self.before = outside(&self.grounds);
        }
        is_refused
    }

    fn refused(&mut self, name: &str, shape: &str) {
        let path = self.path(shape);
        for (_, tool, arguments) in operations(&path) {
            if !self.case(name, tool, arguments.clone()) {
                self.failed
                    .push(format!("{name}: {tool} {arguments} was done"));
            }
        }
    }

    fn end(self, at_least: usize) {
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
        assert!(at_least <= self.cases, "{} cases", self.cases);
    }
}

/// Returns everything outside of the root.
fn outside(grounds: &Grounds) -> std::collections::BTreeMap<std::path::PathBuf, String> {
    let mut found = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(&grounds.base).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path == grounds.root {
            continue;
        }
        if path.is_dir() {
            found.extend(everything_in(&path));
        }
        found.insert(path, String::new());
    }
    found
}

#[test]
fn what_is_outside_can_neither_be_seen_nor_changed() {
    let mut trial = Trial::new();
    for (name, shape) in OUTSIDE {
        trial.refused(name, shape);
    }
    trial.end(OUTSIDE.len() * 17);
}

#[test]
fn what_is_no_path_is_refused() {
    let mut trial = Trial::new();
    for (name, shape) in NO_PATHS {
        trial.refused(name, shape);
    }
    trial.refused("path that is too long", &"sub/../".repeat(1000));
    trial.refused(
        "path of names that are too long",
        &format!("sub/{}", "y".repeat(300)),
    );
    trial.end(NO_PATHS.len() * 17);
}

#[test]
fn what_only_looks_like_a_way_out_is_a_name() {
    let mut trial = Trial::new();
    for (name, shape) in NAMES {
        for (kind, tool, arguments) in operations(shape) {
            let is_refused = trial.case(name, tool, arguments.clone());
            let is_there = std::fs::symlink_metadata(trial.grounds.root.join(shape)).is_ok();
            match kind {
                "reading" if !is_refused => {
                    trial
                        .failed
                        .push(format!("{name}: {tool} {arguments} was done"));
                }
                "writing" if is_refused == is_there => {
                    trial
                        .failed
                        .push(format!("{name}: {tool} made it elsewhere"));
                }
                _ => {}
            }
            // As it was.
            let made = trial.grounds.root.join(shape);
            if tool == "move_file" && kind == "writing" && is_there {
                std::fs::rename(&made, trial.grounds.root.join("sub/b.txt")).expect("moved back");
            } else if made.is_dir() {
                std::fs::remove_dir(&made).expect("removed");
            } else {
                let _ = std::fs::remove_file(&made);
            }
        }
    }
    trial.end(NAMES.len() * 17);
}

#[test]
fn refusals_tell_neither_where_a_link_leads_nor_whether_anything_is_there() {
    let grounds = grounds();
    let server = grounds.server();
    let base = grounds.base.to_str().expect("UTF-8");
    let told = |path: &str| server.read(path).expect_err("refused").replace(path, "");
    assert_eq!(told("/etc/passwd"), told("/etc/nothing-of-this-name"));
    assert_eq!(told("to_folder/secret.txt"), told("to_folder/nothing"));
    assert_eq!(told("to_file"), told("to_nothing_outside"));
    for path in [
        "to_file",
        "to_folder_absolute/secret.txt",
        "chain_1/secret.txt",
        "../outside/secret.txt",
    ] {
        let told = told(path);
        assert!(!told.contains(base) && !told.contains("outside/"), "{told}");
    }
}

#[test]
fn links_that_stay_inside_are_followed() {
    let grounds = grounds();
    let root = &grounds.root;
    let link = |target: &str, name: &str| symlink(target, root.join(name)).expect("a link");
    link("a.txt", "in_file");
    link("sub", "in_folder");
    link("../a.txt", "sub/in_above");
    link(root.join("sub").to_str().expect("UTF-8"), "in_absolute");
    link("in_folder/../in_folder/b.txt", "in_by_links");
    link(".", "in_here");
    let server = grounds.server();
    for (path, content) in [
        ("in_file", "inside"),
        ("in_folder/b.txt", "inside too"),
        ("sub/in_above", "inside"),
        ("in_absolute/b.txt", "inside too"),
        ("in_by_links", "inside too"),
        ("in_here/in_here/in_here/a.txt", "inside"),
        ("to_itself/a.txt", "inside"),
        ("to_folder/../a.txt", "inside"),
        ("to_folder/..", ""),
    ] {
        if content.is_empty() {
            assert!(
                server.call("list_directory", json!({"path": path})).is_ok(),
                "{path}"
            );
        } else {
            assert_eq!(server.read(path).as_deref(), Ok(content), "{path}");
        }
    }
    server.write("in_file", "changed").expect("written");
    assert_eq!(
        std::fs::read_to_string(root.join("a.txt")).expect("read"),
        "changed"
    );
    assert!(root.join("in_file").is_symlink(), "the link is still one");
    server.write("in_folder/new.txt", "new").expect("written");
    assert_eq!(
        std::fs::read_to_string(root.join("sub/new.txt")).expect("read"),
        "new"
    );
}

#[test]
fn nothing_is_made_through_a_link_to_what_is_not_there() {
    let grounds = grounds();
    let server = grounds.server();
    let before = everything_in(&grounds.base);
    for path in [
        "to_nothing_inside",
        "to_nothing_outside",
        "to_nothing_inside/x",
    ] {
        assert!(server.write(path, "x").is_err(), "{path}");
        assert!(
            server
                .call("create_directory", json!({"path": path}))
                .is_err(),
            "{path}"
        );
        let onto = json!({"source": "a.txt", "destination": path});
        assert!(server.call("move_file", onto).is_err(), "{path}");
    }
    assert_eq!(everything_in(&grounds.base), before);
}

#[test]
fn pipes_and_devices_are_not_waited_for() {
    let grounds = grounds();
    let pipe = grounds.root.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let socket =
        std::os::unix::net::UnixListener::bind(grounds.root.join("socket")).expect("a socket");
    symlink("pipe", grounds.root.join("to_pipe")).expect("a link");
    let server = grounds.server();
    for path in ["pipe", "to_pipe", "socket"] {
        for (_, tool, arguments) in operations(path) {
            let is_move = tool == "move_file" || tool == "get_file_info";
            let called = server.call(tool, arguments.clone());
            let (Ok(text) | Err(text)) = &called;
            let is_refused = called.is_err() || text.contains("Error - ");
            assert!(is_move || is_refused, "{tool} {arguments}: {text}");
            if grounds.root.join("moved").symlink_metadata().is_ok() {
                std::fs::rename(grounds.root.join("moved"), grounds.root.join(path))
                    .expect("moved back");
            }
        }
    }
    let info = server
        .call("get_file_info", json!({"path": "pipe"}))
        .expect("information");
    assert_contains(&info, &["isFile: false", "isDirectory: false"]);
    // A directory walk skips them.
    let found = server.call("search_files", json!({"path": ".", "pattern": "**/pipe"}));
    assert!(found.expect("found").ends_with("/pipe"));
    drop(socket);
}

#[test]
fn walks_do_not_follow_links() {
    let grounds = grounds();
    let server = grounds.server();
    let tree = server
        .call("directory_tree", json!({"path": "."}))
        .expect("a tree");
    let all = server
        .call("search_files", json!({"path": ".", "pattern": "**"}))
        .expect("matches");
    let sizes = server
        .call("list_directory_with_sizes", json!({"path": "."}))
        .expect("a list");
    for text in [&tree, &all, &sizes] {
        assert!(
            !text.contains("hidden-name") && !text.contains("secret.txt"),
            "{text}"
        );
    }
    // Links that lead outside cannot be used, so a search omits them; a listing shows their names.
    assert!(!all.contains("to_folder"), "{all}");
    assert!(tree.contains("to_folder"), "{tree}");
    assert!(all.contains("to_itself"), "{all}");
}

#[test]
fn a_hard_link_is_let_go_of_when_its_file_is_written() {
    let grounds = grounds();
    let shared = grounds.file("outside/shared.txt", "shared");
    let inside = grounds.root.join("shared.txt");
    std::fs::hard_link(&shared, &inside).expect("a link");
    let server = grounds.server();
    assert_eq!(server.read("shared.txt").as_deref(), Ok("shared"));
    server.write("shared.txt", "mine").expect("written");
    assert_eq!(std::fs::read_to_string(&shared).expect("read"), "shared");
    assert_eq!(std::fs::read_to_string(&inside).expect("read"), "mine");
}
