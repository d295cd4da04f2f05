//! Rules of the code's structure that Cargo does not hold: the order of the rooms within a crate, and what the facade exports.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that consist of several rooms, each a module of the crate's root.
const OF_ROOMS: [&str; 3] = ["net", "core", "app"];

#[test]
fn a_room_uses_only_rooms_above_it() {
    let mut violations = BTreeSet::new();
    for name in OF_ROOMS {
        let folder = crates().join(name).join("src");
        let rooms = rooms(&read(&folder.join("lib.rs")));
        assert!(rooms.len() > 1, "{name}: {rooms:?}");
        for (place, room) in rooms.iter().enumerate() {
            for file in files_of(&folder, room) {
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
    }
    assert_eq!(violations, BTreeSet::new());
}

#[test]
fn the_facade_lists_what_it_exports() {
    let root = read(&manifest().join("src/lib.rs"));
    let globs: Vec<_> = root.lines().filter(|line| line.contains("::*")).collect();
    assert_eq!(globs, Vec::<&str>::new(), "each export is named");
    let kinds = [
        "fn ", "struct ", "enum ", "trait ", "type ", "const ", "static ",
    ];
    let own: Vec<_> = root
        .lines()
        .filter(|line| !line.starts_with("//"))
        .filter_map(|line| line.trim().strip_prefix("pub "))
        .filter(|item| kinds.iter().any(|kind| item.starts_with(kind)))
        .collect();
    assert_eq!(
        own,
        Vec::<&str>::new(),
        "the facade has no items of its own"
    );
}

#[test]
fn an_internal_crate_says_that_it_is_one() {
    for entry in fs::read_dir(crates()).expect("a folder") {
        let folder = entry.expect("an entry").path();
        let place = folder.display();
        let readme = read(&folder.join("README.md"));
        assert!(readme.contains("An internal part of Longshore"), "{place}");
        let manifest = read(&folder.join("Cargo.toml"));
        let is_said = manifest.contains("description = \"An internal part of Longshore.");
        assert!(is_said, "{place}");
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

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn crates() -> PathBuf {
    manifest().join("crates")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).expect("a file")
}

/// The rooms of a crate, from top to bottom.
fn rooms(root: &str) -> Vec<String> {
    let modules = root
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    modules.map(str::to_owned).collect()
}

/// All files of a room.
fn files_of(folder: &Path, room: &str) -> Vec<PathBuf> {
    let mut files = vec![folder.join(format!("{room}.rs"))];
    files.retain(|file| file.exists());
    let mut folders = vec![folder.join(room)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "{room} has no files");
    files
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
