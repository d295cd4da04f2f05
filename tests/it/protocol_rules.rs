//! Checks the table in `docs/protocol.md` of which test covers which protocol rule.
//!
//! A test names the rules that it holds in its own name (`http_07_...`, `mh_10_to_12_...`), or in its comments
//! (`HTTP-07`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const DOCUMENT: &str = include_str!("../../docs/protocol.md");
/// Folders with tests.
const FOLDERS: [&str; 2] = ["crates", "tests/it"];
/// Checks of every message in every test, which are not a test of their own.
const EVERY_MESSAGE: &str = "tests/it/support/schema.rs";

const PREFIXES: [&str; 37] = [
    "RPC", "META", "ERA", "VER", "HTTP", "LH", "SSE24", "MH", "STD", "DISC", "PAG", "LIST",
    "CACHE", "SUB", "TOOL", "RES", "PRM", "COMP", "LOG", "PROG", "CAN", "PING", "TMO", "MRTR",
    "ELI", "SAM", "ROOT", "SCH", "AUTH", "CLI", "EXT", "TSK", "TKL", "APP", "TRC", "SEC", "RATE",
];

#[test]
fn the_table_of_rules_names_the_tests_that_hold_them() {
    let tests = tests_by_rule();
    let mut document = String::new();
    let mut listed = BTreeSet::new();
    let mut excused = BTreeSet::new();
    for line in DOCUMENT.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", rule, level, revisions, what, _, ""] if is_rule(rule) => {
                assert!(listed.insert(rule.to_owned()), "{rule} appears twice");
                let names = tests.get(rule).map_or("none".to_owned(), |names| {
                    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                    names.join(", ")
                });
                document += &format!("| {rule} | {level} | {revisions} | {what} | {names} |\n");
            }
            ["", rule, _, ""] if is_rule(rule) => {
                assert!(excused.insert(rule.to_owned()), "{rule} appears twice");
                document += &format!("{line}\n");
            }
            _ => document += &format!("{line}\n"),
        }
    }
    assert!(listed.len() > 150, "{listed:?}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md");
        std::fs::write(path, document).expect("written");
    } else {
        assert!(
            document == DOCUMENT,
            "docs/protocol.md does not name the tests that there are; write it anew with\n  UPDATE_DOCS=1 cargo test --test it protocol_rules"
        );
    }
    let without: BTreeSet<_> = listed
        .iter()
        .filter(|rule| !tests.contains_key(*rule))
        .cloned()
        .collect();
    assert_eq!(
        without, excused,
        "rules without a test, and those that may be"
    );
}

/// The names of tests, by the rules that they name.
fn tests_by_rule() -> BTreeMap<String, BTreeSet<String>> {
    let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<_> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.ends_with(file!()) {
                // Mentions of rules in the parser are not tests.
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                if path.ends_with(EVERY_MESSAGE) {
                    for rule in rules_in_text(&text) {
                        let all = "all tests".to_owned();
                        tests.entry(rule).or_default().insert(all);
                    }
                } else {
                    read(&text, &mut tests);
                }
            }
        }
    }
    tests
}

/// Reads the tests of a file: each from its attribute to the brace that ends it.
fn read(text: &str, tests: &mut BTreeMap<String, BTreeSet<String>>) {
    let lines: Vec<_> = text.lines().collect();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let is_test = ["#[test]", "#[tokio::test"]
            .iter()
            .any(|attribute| line.trim_start().starts_with(attribute));
        if !is_test {
            continue;
        }
        let comment = lines[..start]
            .iter()
            .rev()
            .take_while(|line| line.trim_start().starts_with("///"));
        let end = format!("{}}}", " ".repeat(indent));
        let length = lines[start..].iter().take_while(|line| **line != end);
        let body: Vec<_> = length.copied().collect();
        let name = body.iter().find_map(|line| {
            let (_, rest) = line.split_once("fn ")?;
            rest.split_once('(').map(|(name, _)| name)
        });
        let Some(name) = name else { continue };
        let comments = comment.copied().collect::<String>() + &body.join("\n");
        for rule in rules_in_name(name)
            .into_iter()
            .chain(rules_in_text(&comments))
        {
            tests.entry(rule).or_default().insert(name.to_owned());
        }
    }
}

/// `mh_10_to_12_and_so_on` names three rules, `http_01_08` two.
fn rules_in_name(name: &str) -> Vec<String> {
    let mut rules = Vec::new();
    let mut prefix: Option<&str> = None;
    let mut last = 0;
    let mut until = false;
    for word in name.split('_') {
        let upper = word.to_uppercase();
        let known = PREFIXES.iter().find(|prefix| **prefix == upper);
        let number = word.parse::<u8>().ok().filter(|_| word.len() == 2);
        match (known, number, prefix) {
            (Some(known), ..) => prefix = Some(known),
            (_, Some(number), Some(prefix)) => {
                let first = if until { last + 1 } else { number };
                rules.extend((first..=number).map(|number| format!("{prefix}-{number:02}")));
                last = number;
                until = false;
            }
            (_, None, Some(_)) if word == "to" || word == "and" => until = word == "to",
            _ => prefix = None,
        }
    }
    rules
}

/// Rules as comments write them: `MH-10`.
fn rules_in_text(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| is_rule(word))
        .map(str::to_owned)
        .collect()
}

fn is_rule(word: &str) -> bool {
    word.rsplit_once('-').is_some_and(|(prefix, number)| {
        PREFIXES.contains(&prefix) && number.len() == 2 && number.parse::<u8>().is_ok()
    })
}

#[test]
fn names_and_comments_are_read_as_they_are_written() {
    assert_eq!(
        rules_in_name("mh_10_to_12_agree"),
        ["MH-10", "MH-11", "MH-12"]
    );
    assert_eq!(rules_in_name("http_01_08_hosts"), ["HTTP-01", "HTTP-08"]);
    assert_eq!(rules_in_name("meta_02_and_06_x"), ["META-02", "META-06"]);
    assert_eq!(rules_in_name("lh_03_mh_01_other"), ["LH-03", "MH-01"]);
    assert_eq!(rules_in_name("rpc_06_in_2025_03_26"), ["RPC-06"]);
    assert_eq!(
        rules_in_text("// SSE24-01, and (LH-08)."),
        ["SSE24-01", "LH-08"]
    );
}
