//! `longshore registry`: servers that others have published, as entries of `upstreams`.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{self, Asked, Site, Told, assert_contains};

/// A registry of two pages and one server.
fn registry() -> Site {
    Site::start(|_, asked: &Asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let query: Vec<(String, String)> = url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect();
        let says = |name: &str| query.iter().find(|(key, _)| key == name);
        match path {
            "/sub/v0.1/servers" => {
                assert_eq!(says("search").map(|(_, text)| &**text), Some("a b&c"));
                assert_eq!(says("version").map(|(_, text)| &**text), Some("latest"));
                let (number, next) = match says("cursor") {
                    None => (1, json!("two")),
                    Some(_) => (2, Value::Null),
                };
                let server = json!({
                    "name": format!("io.example/server-{number}"), "description": "Does\n\u{1b}[31mthings", "version": "1.0",
                    "remotes": [{"type": "streamable-http", "url": "https://a.example/mcp"}],
                    "unknown": {"member": 1},
                });
                let official =
                    json!({"io.modelcontextprotocol.registry/official": {"status": "active"}});
                Told::json(
                    200,
                    json!({"servers": [{"server": server, "_meta": official}], "metadata": {"nextCursor": next, "count": 1}}),
                )
            }
            // The name is one segment.
            "/sub/v0.1/servers/io.example%2Fweather/versions/latest" => Told::json(
                200,
                json!({
                    "server": {
                        "name": "io.example/weather", "description": "The weather\nupstreams: {}", "version": "2.0",
                        "packages": [{
                            "registryType": "npm", "identifier": "@example/weather", "version": "2.0",
                            "transport": {"type": "stdio"},
                            "packageArguments": [{"type": "named", "name": "--note", "value": "${HOME} \"quoted\": \u{202e}#1"}],
                            "environmentVariables": [
                                {"name": "WEATHER_KEY", "description": "Of your account", "isRequired": true, "isSecret": true},
                                {"name": "TRACE", "description": "More output"},
                            ],
                        }],
                    },
                    "_meta": {"io.modelcontextprotocol.registry/official": {"status": "deprecated"}},
                }),
            ),
            "/sub/v0.1/servers/io.example%2Fbundle/versions/latest" => Told::json(
                200,
                json!({"server": {"name": "io.example/bundle", "packages": [{"registryType": "mcpb", "identifier": "b"}]}}),
            ),
            "/sub/v0.1/servers/io.example%2Fbroken/versions/latest" => Told::json(200, json!([])),
            "/sub/v0.1/servers/io.example%2Fdown/versions/latest" => Told::json(503, json!({})),
            _ => Told::json(404, json!({"error": "Server not found"})),
        }
    })
}

fn longshore(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = support::longshore(arguments, &[("WEATHER_KEY", "a secret")]);
    support::run(command.current_dir(folder))
}

fn ask(site: &Site, arguments: &[&str]) -> (Option<i32>, String, String) {
    let url = format!("{}/sub", site.url);
    let arguments = [&["registry", "--url", &url][..], arguments].concat();
    longshore(Path::new("."), &arguments)
}

#[test]
fn servers_are_found_over_all_pages_up_to_a_number() {
    let site = registry();
    let (code, printed, _) = ask(&site, &["search", "a b&c"]);
    assert_eq!(code, Some(0));
    let found: Value = serde_json::from_str(&printed).expect("JSON");
    let servers = found.as_array().expect("a list").iter();
    let names: Vec<_> = servers.map(|server| &server["name"]).collect();
    assert_eq!(names, ["io.example/server-1", "io.example/server-2"]);
    assert_eq!(found[0]["ways"], json!(["http"]));
    let (_, printed, _) = ask(&site, &["search", "a b&c", "--limit", "1"]);
    let found: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(found.as_array().map(Vec::len), Some(1));
}

#[test]
fn an_entry_is_a_configuration_that_holds_and_says_what_it_needs() {
    let (code, printed, said) = ask(&registry(), &["show", "io.example/weather"]);
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "marked as deprecated",
        "needs the variable WEATHER_KEY: Of your account",
        "takes, too: TRACE (More output)",
    ] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.yaml"), &printed).expect("written");
    let arguments = ["config", "explain", "--json", "--config", "a.yaml"];
    let (_, explained, _) = longshore(folder.path(), &arguments);
    let explained: Value = serde_json::from_str(&explained).expect("JSON");
    let settings = explained["settings"].as_array().expect("a list");
    let value = |name: &str| {
        let name = format!("upstreams.weather.{name}");
        let one = settings.iter().find(|one| one["setting"] == *name);
        one.map_or(&Value::Null, |one| &one["value"])
    };
    assert_eq!(value("command"), "npx", "{printed}");
    // Variables of this machine are not expanded in the registry's text.
    assert_eq!(
        *value("args"),
        json!([
            "-y",
            "@example/weather@2.0",
            "--note",
            "${HOME} \"quoted\": \u{202e}#1"
        ])
    );
    // Who reads the entry sees in which order it is.
    assert_contains(&printed, &["\\u202e#1"]);
    assert!(!printed.contains('\u{202e}'), "{printed}");
    assert_eq!(value("env.WEATHER_KEY"), "[secret]");
}

#[test]
fn what_cannot_be_had_is_said_with_the_reason() {
    let site = registry();
    for (name, part) in [
        ("io.example/none", "there is no server \"io.example/none\""),
        ("io.example/bundle", "it is a bundle; add --unpack FOLDER"),
        (
            "io.example/broken",
            "its response is not that of a registry",
        ),
        ("io.example/down", "status 503"),
    ] {
        let (code, printed, said) = ask(&site, &["show", name]);
        assert_eq!((code, &*printed), (Some(1), ""), "{said}");
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    let url = format!("{}/other", site.url);
    let search = ["registry", "search", "a", "--url", &url];
    let (_, _, said) = longshore(Path::new("."), &search);
    assert_contains(&said, &["it responded with status 404"]);
    let (code, _, said) = ask(&site, &["show", "io.example/weather", "--version", "9.9.9"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("io.example/weather has no version \"9.9.9\"; its latest is 2.0"),
        "{said}"
    );
    let arguments = ["registry", "show", "a", "--url", "ftp://a"];
    let (_, _, said) = longshore(Path::new("."), &arguments);
    assert_contains(&said, &["is not the URL of a registry; write one such as"]);
}
