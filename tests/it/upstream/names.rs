//! Upstream items with unusual names.

use std::collections::BTreeSet;

use longshore::source::{OnDown, UpstreamNames};
use serde_json::{Value, json};

use super::subscriptions::subscriptions;
use super::{behind, counting, everything, folder, http, listed, result, stdio};
use crate::lasting::open;
use crate::support::{Running, Serve, becomes};

fn names(server: &Running) -> Vec<String> {
    listed(server).into_keys().collect()
}

fn uris(server: &Running, method: &str, list: &str, member: &str) -> BTreeSet<String> {
    let listed = result(server, "2025-11-25", method, json!({}));
    let entries = listed[list].as_array().expect("a list");
    let text = |entry: &Value| entry[member].as_str().expect("a URI").to_owned();
    entries.iter().map(text).collect()
}

/// A server of one tool, with a name of its own.
fn called(folder: &tempfile::TempDir, name: &str) -> String {
    counting(folder.path()).replace(r#""name":"count""#, &format!(r#""name":"{name}""#))
}

#[test]
fn only_names_that_two_have_get_a_prefix_if_that_is_wished_for() {
    let (one, two, three) = (folder("One."), folder("Two."), folder("Three."));
    let upstreams = [
        ("a", stdio(&counting(one.path()))),
        ("b", stdio(&counting(two.path()))),
        ("c", stdio(&called(&three, "other"))),
        // The demo's own tool has this name.
        ("d", stdio(&called(&three, "echo"))),
    ];
    let server = behind(upstreams)
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            c.upstreams_names = UpstreamNames::Collision;
            c.upstreams_separator = Some("-".to_owned());
        })
        .start();
    let names = names(&server);
    let wanted = ["a-count", "b-count", "other", "d-echo", "echo"];
    for name in wanted {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
    assert!(
        !names
            .iter()
            .any(|name| name == "count" || name == "c-other")
    );
    for name in ["a-count", "other", "d-echo"] {
        let called = server.session("2025-11-25").call(name, &json!({})).result();
        assert_eq!(called["isError"], false, "{name}: {called}");
    }
}

#[test]
fn an_upstream_does_not_get_the_name_that_another_ones_tool_has_on_a_collision() {
    let (one, two, three) = (folder("One."), folder("Two."), folder("Three."));
    let server = behind([
        ("a", stdio(&counting(one.path()))),
        ("b", stdio(&called(&two, "c__count"))),
        ("c", stdio(&counting(three.path()))),
    ])
    .configured(|c| c.upstreams_names = UpstreamNames::Collision)
    .start();
    let listed = listed(&server);
    let names: Vec<&str> = listed.keys().map(String::as_str).collect();
    assert_eq!(names, ["a__count", "b__c__count", "c__count"]);
    assert_eq!(listed["c__count"], "Three.");
}

#[test]
fn without_prefixes_the_second_of_two_is_refused_and_one_of_its_own_counts() {
    let (one, two, three) = (folder("One."), folder("Two."), folder("Three."));
    let mut prefixed = stdio(&counting(three.path()));
    prefixed.prefix = Some("my_".to_owned());
    let server = behind([
        ("a", stdio(&counting(one.path()))),
        ("b", stdio(&counting(two.path()))),
        ("c", prefixed),
    ])
    .configured(|c| c.upstreams_names = UpstreamNames::Never)
    .start();
    assert_eq!(names(&server), ["count", "my_count"]);
    assert_eq!(listed(&server)["count"], "One.");
    let health = server.page("/health").json();
    assert_eq!(
        health["refused"],
        json!([{"source": "upstreams", "place": "tool count"}])
    );
}

#[test]
fn a_name_that_is_too_long_with_its_prefix_is_shortened_and_called_by_its_own() {
    let folder = folder("Long.");
    let long = "n".repeat(64);
    let server = behind([("up", stdio(&called(&folder, &long)))]).start();
    let names = names(&server);
    assert_eq!(names.len(), 1);
    assert_eq!(names[0].len(), 64);
    assert!(names[0].starts_with("up__nnnn"), "{names:?}");
    let called = server.session("2025-11-25").call(&names[0], &json!({}));
    assert_eq!(called.result()["isError"], false);
}

#[test]
fn res_01_of_two_resources_with_one_uri_the_second_has_its_servers_name_before_it() {
    let (one, two) = (everything(), everything());
    let server = behind([("one", http(&one)), ("two", http(&two))]).start();
    let listed = uris(&server, "resources/list", "resources", "uri");
    let twice: Vec<_> = listed
        .iter()
        .filter(|uri| uri.starts_with("two+"))
        .collect();
    assert!(!twice.is_empty(), "{listed:?}");
    for uri in &twice {
        let plain = uri.strip_prefix("two+").expect("a prefix");
        assert!(listed.contains(plain), "{plain} in {listed:?}");
    }
    assert!(listed.iter().all(|uri| !uri.starts_with("one+")));

    let read = |uri: &str| {
        let read = result(&server, "2025-11-25", "resources/read", json!({"uri": uri}));
        read["contents"][0].clone()
    };
    let (own, other) = (read("test://static-text"), read("two+test://static-text"));
    assert_eq!(own["uri"], "test://static-text");
    assert_eq!(other["uri"], "two+test://static-text");
    assert_eq!(own["text"], other["text"]);

    let templates = uris(
        &server,
        "resources/templates/list",
        "resourceTemplates",
        "uriTemplate",
    );
    assert!(
        templates.contains("two+test://template/{id}/data"),
        "{templates:?}"
    );
    let filled = read("two+test://template/7/data");
    assert_eq!(filled["uri"], "two+test://template/7/data");
    assert!(filled["text"].as_str().expect("a text").contains('7'));
}

#[test]
fn sub_08_who_listens_to_one_that_was_renamed_is_told_by_the_name_it_has_here() {
    const RENAMED: &str = "two+test://watched-resource";
    let one = everything();
    let two = Serve::new().toolset("everything").admin().start();
    let server = behind([("one", http(&one)), ("two", http(&two))]).start();
    let session = server.session("2025-11-25");
    session
        .request("resources/subscribe", &json!({"uri": RENAMED}))
        .result();
    let mut stream = open(&server, &session);
    becomes(|| subscriptions(&two) == 1.0);
    for upstream in [&one, &two] {
        let session = upstream.session("2025-11-25");
        session.call("touch_watched_resource", &json!({})).result();
    }
    let event = stream.event().expect("an event");
    assert_eq!(event["method"], "notifications/resources/updated");
    assert_eq!(event["params"]["uri"], RENAMED);
}

/// A server of one resource, which ends when it is read while it is down.
fn noting(folder: &std::path::Path, name: &str) -> String {
    format!(
        r#"[ -e {folder}/{name} ] && exit 1
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            answer() {{ echo '{{"jsonrpc":"2.0","id":'$id',"result":'"$1"'}}'; }}
            case "$line" in
            *server/discover*) echo '{{"jsonrpc":"2.0","id":'$id',"error":{{"code":-32601,"message":"no"}}}}' ;;
            *'"initialize"'*) answer '{{"protocolVersion":"2025-11-25","capabilities":{{"resources":{{}}}},"serverInfo":{{"name":"x","version":"0"}}}}' ;;
            *resources/templates/list*) answer '{{"resourceTemplates":[]}}' ;;
            *resources/list*) answer '{{"resources":[{{"uri":"notes://today","name":"today"}}]}}' ;;
            *resources/read*) [ -e {folder}/{name} ] && exit 1
                answer '{{"contents":[{{"uri":"notes://today","text":"{name}"}}]}}' ;;
            esac
        done"#,
        folder = folder.display()
    )
}

#[test]
fn the_uri_of_one_that_is_hidden_does_not_lead_to_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |name| stdio(&noting(folder.path(), name));
    let mut hidden = of("a");
    hidden.on_down = OnDown::Hide;
    let server = behind([("a", hidden), ("b", of("b"))]).start();
    let listed = || uris(&server, "resources/list", "resources", "uri");
    let both = BTreeSet::from(["notes://today", "b+notes://today"].map(str::to_owned));
    assert_eq!(listed(), both);
    std::fs::write(folder.path().join("a"), "").expect("written");
    let session = server.session("2025-11-25");
    let _ = session.request("resources/read", &json!({"uri": "notes://today"}));
    becomes(|| listed() != both);
    assert_eq!(listed(), BTreeSet::from(["b+notes://today".to_owned()]));
}
