//! What the documents say is so.

use std::collections::BTreeMap;

use longshore::Config;
use longshore::transport::http::routes;
use serde_json::{Value, json};

const CONFIGURATION: &str = include_str!("../../docs/configuration.md");
const HTTP: &str = include_str!("../../docs/http.md");
const README: &str = include_str!("../../README.md");

#[test]
fn every_setting_is_documented_and_every_documented_one_exists() {
    let documented: Vec<_> = rows(CONFIGURATION).into_keys().collect();
    let mut settings = Vec::new();
    collect_settings("", &mut settings);
    settings.sort();
    assert!(settings.len() > 20, "{settings:?}");
    assert_eq!(documented, settings);
}

#[test]
fn documented_defaults_and_variables_are_true() {
    for (setting, row) in rows(CONFIGURATION) {
        let long = format!("LONGSHORE_{}", setting.to_uppercase().replace('.', "__"));
        let short = match &*setting {
            "http.host" => "LONGSHORE_HOST",
            "http.port" => "LONGSHORE_PORT",
            "http.workers" => "LONGSHORE_WORKERS",
            "transport" => "LONGSHORE_TRANSPORT",
            "toolsets" => "LONGSHORE_TOOLSET",
            _ => &long,
        };
        assert_eq!(row.variable, short, "{setting}");
        let Some(default) = row
            .default
            .strip_prefix('`')
            .and_then(|d| d.strip_suffix('`'))
        else {
            continue;
        };
        let default = serde_json::from_str(default).expect("a default is JSON");
        let config: Config =
            serde_json::from_value(nested(&setting, default)).expect("a value that can be set");
        assert_eq!(
            format!("{config:?}"),
            format!("{:?}", Config::default()),
            "{setting}"
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
    default: String,
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
            ["", setting, default, variable, ..] if in_table && setting.starts_with('`') => {
                let row = Row {
                    default: default.to_owned(),
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

/// Finds out which settings there are by asking for one that there is not: the refusal names all the others.
fn collect_settings(parent: &str, settings: &mut Vec<String>) {
    let unknown = join(parent, "no_such_setting");
    let refusal = serde_json::from_value::<Config>(nested(&unknown, Value::Null))
        .expect_err("no such setting");
    let refusal = refusal.to_string();
    if !refusal.starts_with("unknown field `no_such_setting`") {
        settings.push(parent.to_owned());
        return;
    }
    for name in refusal.split('`').skip(3).step_by(2) {
        collect_settings(&join(parent, name), settings);
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}

/// `a.b` and 1 as `{"a": {"b": 1}}`.
fn nested(setting: &str, value: Value) -> Value {
    setting
        .rsplit('.')
        .fold(value, |inner, name| json!({ name: inner }))
}
