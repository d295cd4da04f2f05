//! Checks that the documentation is correct.

use std::collections::BTreeMap;

use longshore::Config;
use longshore::limit::Limit;
use longshore::transport::http::routes;
use serde_json::{Value, json};

const CONFIGURATION: &str = include_str!("../../docs/configuration.md");
const LIMITS: &str = include_str!("../../docs/limits.md");
const OBSERVABILITY: &str = include_str!("../../docs/observability.md");
const HTTP: &str = include_str!("../../docs/http.md");
const README: &str = include_str!("../../README.md");

/// Between these lines of the document stands what `longshore::config::reference_index` says.
const GENERATED: [&str; 2] = [
    "<!-- what follows is generated; UPDATE_DOCS=1 cargo test --test it docs -->\n",
    "<!-- end of what is generated -->\n",
];

#[test]
fn the_reference_of_settings_is_what_the_types_say() {
    let [begin, end] = GENERATED;
    let (before, rest) = CONFIGURATION.split_once(begin).expect("a beginning");
    let (there, after) = rest.split_once(end).expect("an end");
    let generated = format!("\n{}\n", longshore::config::reference_index());
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
        let document = format!("{before}{begin}{generated}{end}{after}");
        std::fs::write(path, document).expect("written");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a folder");
        for page in longshore::config::reference() {
            let path = folder.join(page.name).with_extension("md");
            std::fs::write(path, page.text).expect("written");
        }
        return;
    }
    let hint = "update it with\n  UPDATE_DOCS=1 cargo test --test it docs";
    assert!(
        there == generated,
        "docs/configuration.md is out of date; {hint}"
    );
    let pages = longshore::config::reference();
    for page in &pages {
        let path = folder.join(&page.name).with_extension("md");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == page.text,
            "{} is out of date; {hint}",
            path.display()
        );
    }
    let files = std::fs::read_dir(folder).expect("a folder").count();
    assert_eq!(
        files,
        pages.len(),
        "docs/configuration has other files; {hint}"
    );
}

/// A line for each type, for the sake of who compares two versions.
#[test]
fn the_schema_that_a_release_has_is_what_the_types_say() {
    let mut schema = longshore::schemars::schema_for!(Config).to_value();
    let definitions = schema["$defs"].take();
    let definitions = definitions.as_object().expect("types").iter();
    let lines: Vec<_> = definitions
        .map(|(name, definition)| format!("{}:{definition}", json!(name)))
        .collect();
    let definitions = format!("\"$defs\":{{\n{}\n}}", lines.join(",\n"));
    let generated = schema
        .to_string()
        .replacen("\"$defs\":null", &definitions, 1)
        + "\n";
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/app/src/config/schema.json"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, generated).expect("written");
        return;
    }
    assert!(
        std::fs::read_to_string(path).expect("a schema") == generated,
        "crates/app/src/config/schema.json is not what the types say; write it anew with\n  UPDATE_DOCS=1 cargo test --test it docs"
    );
    let read: Value = serde_json::from_str(&generated).expect("JSON");
    assert_eq!(read, longshore::schemars::schema_for!(Config).to_value());
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
    let mut known = BTreeMap::new();
    for page in longshore::config::reference() {
        if page.name != "shared" {
            known.extend(rows(&page.text));
        }
    }
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

/// Files that readers copy from: the README, platform pages, manifests, the chart.
fn copied_from() -> Vec<(std::path::PathBuf, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["docs/platforms", "deploy", "helm"];
    let mut folders: Vec<_> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut files = vec![root.join("README.md"), root.join("Dockerfile")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    let text = |path: std::path::PathBuf| Some((path.clone(), std::fs::read_to_string(path).ok()?));
    files.into_iter().filter_map(text).collect()
}

#[test]
fn every_variable_that_people_may_copy_is_one() {
    /// Short names, and names that are not settings.
    const OTHERS: [&str; 11] = [
        "LONGSHORE_IMAGE",
        "LONGSHORE_IMAGE_PORT",
        "LONGSHORE_CHART_VENV",
        "LONGSHORE_CONFIG",
        "LONGSHORE_TOKEN",
        "LONGSHORE_HOST",
        "LONGSHORE_PORT",
        "LONGSHORE_WORKERS",
        "LONGSHORE_TRANSPORT",
        "LONGSHORE_TOOLSET",
        "LONGSHORE_LOG",
    ];
    let settings: Vec<Vec<String>> = longshore::config::settings()
        .map(|setting| {
            setting
                .path
                .replace("[]", "")
                .split('.')
                .map(str::to_uppercase)
                .collect()
        })
        .collect();
    // A placeholder, as in `upstreams.<name>.command`, matches any name.
    let is_setting = |name: &str| {
        let parts: Vec<&str> = name["LONGSHORE_".len()..].split("__").collect();
        settings.iter().any(|setting| {
            parts.len() <= setting.len()
                && parts
                    .iter()
                    .zip(setting)
                    .all(|(part, known)| part == known || known.starts_with('<'))
        })
    };
    let mut unknown = Vec::new();
    let mut seen = 0;
    for (path, text) in copied_from() {
        for (at, _) in text.match_indices("LONGSHORE_") {
            let rest = &text[at..];
            let end = rest
                .find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
                .unwrap_or(rest.len());
            let name = rest[..end].trim_end_matches('_');
            let in_file = name.strip_suffix("_FILE").unwrap_or(name);
            // Placeholders such as `LONGSHORE_<PART>__<NAME>` and `LONGSHORE_...`.
            if name == "LONGSHORE" || OTHERS.contains(&name) {
                continue;
            }
            seen += 1;
            if !is_setting(name) && !is_setting(in_file) {
                unknown.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(10 < seen, "{seen}");
    assert_eq!(unknown, Vec::<String>::new());
}

/// Rows of all limit tables: resource, default, settings and metric.
fn limits() -> Vec<[&'static str; 4]> {
    let rows = LIMITS.lines().filter_map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", what, default, setting, _, counted, ""]
                if what != "What" && !what.starts_with('-') =>
            {
                Some([what, default, setting, counted])
            }
            _ => None,
        }
    });
    rows.collect()
}

/// Returns the texts in backticks.
fn named(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn every_limit_that_is_documented_has_the_setting_the_default_and_the_metric_that_it_says() {
    let settings: BTreeMap<_, _> = longshore::config::settings()
        .map(|setting| (setting.path.clone(), setting.default.clone()))
        .collect();
    let is_section = |name: &str| {
        let prefix = format!("{name}.");
        settings.keys().any(|path| path.starts_with(&prefix))
    };
    let hits: Vec<_> = Limit::ALL.into_iter().map(Limit::setting).collect();
    let limits = limits();
    assert!(100 <= limits.len(), "{}", limits.len());
    for [what, default, setting, counted] in limits {
        for name in named(setting) {
            let from_elsewhere = name == "RLIMIT_NOFILE" || name.starts_with("OTEL_");
            let known = settings.get(name);
            assert!(
                known.is_some() || is_section(name) || from_elsewhere,
                "{what}: there is no {name}"
            );
            if let Some(number) = known.and_then(Value::as_u64).filter(|number| *number != 0) {
                let words = default.split(|c: char| !c.is_ascii_digit());
                let said: Vec<_> = words.collect();
                assert!(said.contains(&&*number.to_string()), "{what}: {number}");
            }
        }
        assert!(
            setting.starts_with("fixed: ") || named(setting).next().is_some(),
            "{what}: {setting}"
        );
        let mut metric = named(counted);
        match metric.next() {
            Some("hits") => {
                let limit = metric.next().or_else(|| named(setting).next());
                let waits = counted == "`hits` of what they wait for";
                let limit = limit.map(|limit| limit.replace(".<name>", ""));
                assert!(
                    waits || limit.is_some_and(|limit| hits.contains(&&*limit)),
                    "{what}: {counted}"
                );
            }
            Some("refusals") => {
                let reason = metric.next().expect("a reason");
                assert!(
                    OBSERVABILITY.contains(&format!("`{reason}`")),
                    "{what}: {reason}"
                );
            }
            Some(metric) => {
                assert!(
                    OBSERVABILITY.contains(&format!("`{metric}`")),
                    "{what}: {metric}"
                );
            }
            None => assert!(
                ["not counted", "tool errors"].contains(&counted),
                "{what}: {counted}"
            ),
        }
    }
}

#[test]
fn every_limit_that_has_a_counter_is_documented() {
    let documented: Vec<_> = limits()
        .into_iter()
        .filter(|[_, _, _, counted]| *counted == "`hits`")
        .flat_map(|[_, _, setting, _]| named(setting))
        .map(|setting| setting.replace(".<name>", ""))
        .collect();
    for limit in Limit::ALL {
        let setting = limit.setting();
        assert!(documented.iter().any(|known| known == setting), "{setting}");
    }
}

#[test]
fn the_index_for_agents_names_what_there_is() {
    let index = include_str!("../../llms.txt");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let links = index.match_indices("](").map(|(at, _)| &index[at + 2..]);
    let links: Vec<_> = links.filter_map(|rest| rest.split(')').next()).collect();
    assert!(10 < links.len(), "{links:?}");
    for link in links {
        assert!(root.join(link).exists(), "{link}");
    }
}

#[test]
fn the_index_for_people_names_every_page() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let index = std::fs::read_to_string(folder.join("README.md")).expect("an index");
    let links = index.match_indices("](").map(|(at, _)| &index[at + 2..]);
    let links: Vec<_> = links
        .filter_map(|rest| rest.split([')', '#']).next())
        .collect();
    for link in &links {
        assert!(folder.join(link).exists(), "{link}");
    }
    for entry in std::fs::read_dir(&folder).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_str().expect("UTF-8");
        if name.ends_with(".md") && name != "README.md" {
            assert!(links.contains(&name), "{name} is not in docs/README.md");
        }
    }
}

/// A table row about a setting.
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
                    "{setting} appears twice"
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

/// All documents and manifests below a folder, or the file itself.
fn texts(path: &std::path::Path, found: &mut Vec<(String, String)>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder") {
            texts(&entry.expect("an entry").path(), found);
        }
        return;
    }
    let kind = path.extension().and_then(|kind| kind.to_str());
    let is_shown = matches!(
        kind,
        Some("md" | "txt" | "yaml" | "yml" | "toml" | "json" | "jsonc" | "env" | "service" | "rs")
    );
    if is_shown && let Ok(text) = std::fs::read_to_string(path) {
        found.push((path.display().to_string(), text));
    }
}

/// Returns the API keys and the encryption keys in a line.
fn keys_in(line: &str) -> (Vec<String>, Vec<String>) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-:".contains(c);
    let words = line.split(|c| !is_part(c));
    let is_key = |word: &&str| {
        word.starts_with("lsk_")
            || word
                .strip_prefix("sha256:")
                .is_some_and(|digits| digits.len() == 64 && line.to_lowercase().contains("key"))
    };
    let api_keys = words.filter(is_key).map(str::to_owned).collect();
    let after = [
        "keys: [",
        "keys = [",
        "SEAL__KEYS=",
        "seal-keys=",
        "SEAL__KEYS: ",
    ]
    .iter()
    .find_map(|begin| Some(line.split_once(begin)?.1));
    let values = after.unwrap_or_default().split([',', ']', '}']);
    let values = values.map(|value| value.trim().trim_matches(['"', '\'', '\\', '`']).to_owned());
    // Shorter texts are not keys.
    (api_keys, values.filter(|value| 24 <= value.len()).collect())
}

#[test]
fn keys_that_the_documents_show_open_nothing() {
    use longshore::auth::KeyHash;
    use longshore::seal::{KeyRing, SealConfig, Secret};

    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for name in [
        "README.md",
        "llms.txt",
        "docs",
        "deploy",
        "helm",
        "examples",
        "CONTRIBUTING.md",
    ] {
        texts(&root.join(name), &mut all);
    }
    assert!(20 < all.len());
    let mut seals = 0;
    for (path, text) in all {
        for line in text.lines() {
            let (api_keys, sealing) = keys_in(line);
            for key in &api_keys {
                assert!(
                    KeyHash::parse(key).is_err(),
                    "{path} shows the key {key:?}, and it is accepted: {line}"
                );
            }
            for key in &sealing {
                seals += 1;
                // Taken from the environment or a command.
                if key.contains('$') {
                    continue;
                }
                let config = SealConfig {
                    keys: vec![Secret::from(key.clone())],
                };
                let refused = KeyRing::new(&config).map(|_| ());
                assert!(
                    refused.is_err(),
                    "{path} shows the key {key:?}, and it is accepted: {line}"
                );
                assert!(KeyHash::parse(key).is_err(), "{path}: {key:?}");
            }
        }
    }
    // Checks that the search finds the known examples.
    assert!(2 < seals, "{seals}");
}

#[test]
fn the_build_context_of_the_image_has_the_scripts_of_its_build() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("text");
    let ignored = read(".dockerignore");
    let is_kept = |path: &str| {
        let kept = ignored.lines().filter_map(|line| line.strip_prefix('!'));
        kept.into_iter().any(|kept| match kept.split_once('*') {
            Some((start, end)) => path.starts_with(start) && path.ends_with(end),
            None => path == kept,
        })
    };
    let mut scripts = vec![
        "deploy/program.sh".to_owned(),
        "deploy/rootfs.sh".to_owned(),
    ];
    let mut next = 0;
    while let Some(script) = scripts.get(next).cloned() {
        next += 1;
        assert!(is_kept(&script), "{script}");
        // Those that it runs.
        let text = read(&script);
        for name in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.') {
            let path = format!("deploy/{name}");
            let is_script = name.ends_with(".sh") || name.ends_with(".pl");
            if is_script && root.join(&path).is_file() && !scripts.contains(&path) {
                scripts.push(path);
            }
        }
    }
    assert!(
        scripts.contains(&"deploy/order.pl".to_owned()),
        "{scripts:?}"
    );
}
