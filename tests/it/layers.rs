//! The rule of the rooms: each uses only those above it in the list of `src/lib.rs`. So there are no cycles, and
//! whoever reads from the top meets nothing that was not introduced.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn a_room_uses_only_rooms_above_it() {
    let rooms = rooms();
    let mut violations = BTreeSet::new();
    for (place, room) in rooms.iter().enumerate() {
        for file in files_of(room) {
            for used in uses(&read(&file)) {
                let below = rooms
                    .iter()
                    .position(|room| *room == used)
                    .is_some_and(|at| place < at);
                if below {
                    violations.insert(format!("{room} uses {used} ({})", file.display()));
                }
            }
        }
    }
    assert_eq!(violations, BTreeSet::new());
}

#[test]
fn a_room_names_others_and_not_what_the_crate_says_of_them() {
    let rooms = rooms();
    // The attributes belong to no room.
    let free = ["tool", "resource", "prompt"];
    let mut shortcuts = BTreeSet::new();
    for room in &rooms {
        for file in files_of(room) {
            for used in uses(&read(&file)) {
                if !rooms.contains(&used) && !free.contains(&&*used) {
                    shortcuts.insert(format!("crate::{used} ({})", file.display()));
                }
            }
        }
    }
    assert_eq!(shortcuts, BTreeSet::new());
}

#[test]
fn everything_under_src_belongs_to_a_room() {
    let rooms = rooms();
    let roots = ["lib", "main"];
    for entry in fs::read_dir(source()).expect("a folder") {
        let name = entry.expect("an entry").path();
        let stem = name
            .file_stem()
            .and_then(|s| s.to_str())
            .expect("UTF-8")
            .to_owned();
        assert!(
            rooms.contains(&stem) || roots.contains(&&*stem),
            "{stem} is in no list"
        );
    }
}

#[test]
fn paths_are_found_in_every_form_that_they_take() {
    let text = "
        use crate::server::{Local, Server};
        use crate::{auth, net::Body, seal::{KeyRing, Session}};
        fn a() -> crate::protocol::Revision { todo() } // not crate::cli::x
        /// See [`crate::app`].
        let not_a_path = mycrate::config;
        pub(crate) use crate::catalog;
    ";
    let expected = ["auth", "catalog", "net", "protocol", "seal", "server"];
    assert_eq!(uses(text), expected.map(str::to_owned).into());
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("a file")
}

/// The rooms, from top to bottom.
fn rooms() -> Vec<String> {
    let root = read(&source().join("lib.rs"));
    let modules = root
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let rooms: Vec<String> = modules.map(str::to_owned).collect();
    assert!(rooms.len() > 10, "{rooms:?}");
    rooms
}

/// All files of a room: what is in its folder and in those of the crates that it includes, except the folders of other rooms.
fn files_of(room: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = read(&source().join("lib.rs"));
    let own = folder_of(&text, room);
    let others: Vec<PathBuf> = rooms()
        .iter()
        .filter(|other| *other != room)
        .filter_map(|other| folder_of(&text, other))
        .collect();
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = own.into_iter().collect();
    match room {
        "source" => {
            folders.extend(["crates/toolsets/src", "crates/demo/src"].map(|f| root.join(f)))
        }
        "transport" => folders.push(root.join("crates/http/src")),
        _ => files.push(source().join(format!("{room}.rs"))),
    }
    files.retain(|file| file.exists());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if !others.contains(&path) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "{room} has no files");
    files
}

/// The folder of the file that a room's `path` attribute names.
fn folder_of(text: &str, room: &str) -> Option<PathBuf> {
    let before = &text[..text.find(&format!("pub mod {room};"))?];
    let start = before.rfind("../crates/")?;
    let path = before[start..].split('"').next()?;
    let attribute = before[start..].lines().count();
    let folder = Path::new(path).parent()?;
    (attribute <= 2).then(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(folder.strip_prefix("..").unwrap_or(folder))
    })
}

/// The first names of all paths that begin at the crate.
fn uses(text: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let mut found = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let is_part_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
        if code[..at].ends_with(is_part_of_a_name) {
            continue;
        }
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            Some(list) => found.extend(heads(list)),
            None => found.extend(name(rest)),
        }
    }
    found
}

/// The first names of the paths in a list, up to its closing brace.
fn heads(list: &str) -> Vec<String> {
    let mut depth = 1_u32;
    let mut heads = vec![name(list)];
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => heads.push(name(&list[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads.into_iter().flatten().collect()
}

/// The name that a text begins with.
fn name(text: &str) -> Option<String> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}
