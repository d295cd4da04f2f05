//! What the documents say is so.

use std::collections::BTreeMap;

use longshore::Config;
use longshore::transport::http::routes;
use serde_json::{Value, json};

const CONFIGURATION: &str = include_str!("../../docs/configuration.md");
const HTTP: &str = include_str!("../../docs/http.md");
const README: &str = include_str!("../../README.md");

/// Between these lines of the document stands what `longshore::config::reference` says.
const GENERATED: [&str; 2] = [
    "<!-- what follows is generated; UPDATE_DOCS=1 cargo test --test it docs -->\n",
    "<!-- end of what is generated -->\n",
];

#[test]
fn the_reference_of_settings_is_what_the_types_say() {
    let [begin, end] = GENERATED;
    let (before, rest) = CONFIGURATION.split_once(begin).expect("a beginning");
    let (there, after) = rest.split_once(end).expect("an end");
    let generated = format!("\n{}\n", longshore::config::reference());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
        let document = format!("{before}{begin}{generated}{end}{after}");
        std::fs::write(path, document).expect("written");
        return;
    }
    assert!(
        there == generated,
        "docs/configuration.md is not what the types say; write it anew with\n  UPDATE_DOCS=1 cargo test --test it docs"
    );
}

#[test]
fn documented_defaults_are_true() {
    for setting in longshore::config::settings() {
        if setting.path.contains(['[', '<']) || setting.default.is_null() || setting.is_secret {
            continue;
        }
        let config: Config = serde_json::from_value(nested(&setting.path, setting.default.clone()))
            .expect("a value that can be set");
        assert_eq!(
            format!("{config:?}"),
            format!("{:?}", Config::default()),
            "{}",
            setting.path
        );
    }
}

#[test]
fn every_setting_of_the_readme_is_among_them() {
    let known = rows(CONFIGURATION);
    let shown = rows(README);
    assert!(!shown.is_empty());
    for (setting, row) in shown {
        let known = known
            .get(&setting)
            .unwrap_or_else(|| panic!("there is no {setting}"));
        assert!(row.variable.contains(&known.variable), "{setting}");
    }
}

#[test]
fn the_example_of_the_readme_is_hello() {
    let hello = include_str!("../../examples/hello.rs");
    let (_, code) = hello.split_once("\n\n").expect("a head and code");
    assert!(README.contains(code), "{code}");
}

#[test]
fn every_path_is_documented() {
    let mut documented = Vec::new();
    for line in HTTP.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let ["", path, methods, open @ ("yes" | "no"), ..] = cells[..] {
            documented.push((path.trim_matches('`'), methods, open == "yes"));
        }
    }
    let served: Vec<_> = routes()
        .iter()
        .map(|route| (route.path, route.methods, route.is_open()))
        .collect();
    assert_eq!(documented, served);
}

/// What a table says of one setting.
struct Row {
    variable: String,
}

/// Reads `| setting | default | variable | ...` with the setting and the variable in backticks.
fn rows(document: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    let mut in_table = false;
    for line in document.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", "Setting", "Default", ..] => in_table = true,
            ["", setting, _, variable, ..] if in_table && setting.starts_with('`') => {
                let row = Row {
                    variable: variable.trim_matches('`').to_owned(),
                };
                assert!(
                    rows.insert(setting.trim_matches('`').to_owned(), row)
                        .is_none(),
                    "{setting} is there twice"
                );
            }
            ["", ..] if in_table => {}
            _ => in_table = false,
        }
    }
    rows
}

/// `a.b` and 1 as `{"a": {"b": 1}}`.
fn nested(setting: &str, value: Value) -> Value {
    setting
        .rsplit('.')
        .fold(value, |inner, name| json!({ name: inner }))
}
