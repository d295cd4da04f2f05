//! Other servers behind this one.

mod callers;
mod changes;
mod cut_streams;
mod failing;
mod forwarding;
mod lifecycles;
mod links;
mod misbehaving;
mod modern;
mod names;
mod starting;
mod subscriptions;
mod tokens;

pub(crate) use starting::late;

use std::collections::BTreeMap;
use std::path::Path;

use longshore::client::Lifecycle;
use longshore::source::UpstreamConfig;
use serde_json::{Value, json};

use crate::support::{Running, Serve, becomes};

fn stdio(script: &str) -> UpstreamConfig {
    serde_json::from_value(json!({"command": "sh", "args": ["-c", script]})).expect("valid")
}

fn http(server: &Running) -> UpstreamConfig {
    serde_json::from_value(json!({"url": format!("http://{}/mcp", server.address())}))
        .expect("valid")
}

/// Configures the same server as a legacy one.
fn with_sessions(server: &Running) -> UpstreamConfig {
    UpstreamConfig {
        protocol: Lifecycle::Legacy,
        ..http(server)
    }
}

fn behind(upstreams: impl IntoIterator<Item = (&'static str, UpstreamConfig)>) -> Serve {
    let upstreams: BTreeMap<String, UpstreamConfig> = upstreams
        .into_iter()
        .map(|(name, config)| (name.to_owned(), config))
        .collect();
    Serve::new().configured(|c| c.upstreams = upstreams)
}

fn everything() -> Running {
    Serve::new().toolset("everything").start()
}

fn result(server: &Running, revision: &str, method: &str, params: Value) -> Value {
    server.session(revision).request(method, &params).result()
}

/// A server of one tool that tells how often it was started.
fn counting(folder: &Path) -> String {
    format!(
        r#"[ -e {folder}/down ] && exit 1
        echo started >> {folder}/starts
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            case "$line" in
            *server/discover*) echo '{{"jsonrpc":"2.0","id":'$id',"error":{{"code":-32601,"message":"no"}}}}' ;;
            *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"protocolVersion":"2024-11-05","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"x","version":"0"}}}}}}' ;;
            *tools/list*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"tools":[{{"name":"count","description":"'"$(cat {folder}/description)"'","inputSchema":{{"type":"object"}}}}]}}}}' ;;
            *announce*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"content":[]}}}}'; echo '{{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}}' ;;
            *die*) exit 1 ;;
            *tools/call*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"content":[{{"type":"text","text":"started '$(wc -l < {folder}/starts)'"}}]}}}}' ;;
            esac
        done"#,
        folder = folder.display()
    )
}

/// A folder for [`counting`], with what its tool is described by.
fn folder(description: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    describe(folder.path(), description);
    folder
}

fn describe(folder: &Path, description: &str) {
    std::fs::write(folder.join("description"), description).expect("written");
}

/// The tools that are listed, by name and description.
fn listed(server: &Running) -> BTreeMap<String, String> {
    let list = result(server, "2025-11-25", "tools/list", json!({}));
    let tools = list["tools"].as_array().expect("tools");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    tools
        .iter()
        .map(|tool| (text(&tool["name"]), text(&tool["description"])))
        .collect()
}

fn starts(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("starts")).map_or(0, |text| text.lines().count())
}

#[test]
fn what_a_server_offers_is_offered_under_its_prefix() {
    let upstream = everything();
    let server = behind([("up", http(&upstream))]).start();
    let direct = result(&upstream, "2025-11-25", "tools/list", json!({}));
    let relayed = result(&server, "2025-11-25", "tools/list", json!({}));
    let names = |list: &Value, prefix: &str| -> Vec<String> {
        let tools = list["tools"].as_array().expect("tools");
        tools
            .iter()
            .map(|tool| format!("{prefix}{}", tool["name"].as_str().expect("a name")))
            .collect()
    };
    assert_eq!(names(&relayed, ""), names(&direct, "up__"));
    for (direct, relayed) in direct["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .zip(relayed["tools"].as_array().into_iter().flatten())
    {
        assert_eq!(direct["inputSchema"], relayed["inputSchema"]);
        assert_eq!(direct["description"], relayed["description"]);
        assert_eq!(direct["annotations"], relayed["annotations"]);
    }
    for (method, member) in [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        assert_eq!(
            result(&server, "2025-11-25", method, json!({}))[member],
            result(&upstream, "2025-11-25", method, json!({}))[member]
        );
    }
    let prompts = result(&server, "2025-11-25", "prompts/list", json!({}));
    assert!(
        prompts["prompts"][0]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("up__")),
        "{prompts}"
    );
}

#[test]
fn calls_reads_and_prompts_give_what_they_give_directly() {
    let upstream = everything();
    let server = behind([("up", http(&upstream))]).start();
    for revision in ["2025-06-18", "2025-11-25"] {
        for (tool, arguments) in [
            ("test_simple_text", json!({})),
            ("test_image_content", json!({})),
            ("test_multiple_content_types", json!({})),
            ("test_error_handling", json!({})),
        ] {
            let call = |name: &str| json!({"name": name, "arguments": arguments});
            assert_eq!(
                result(
                    &server,
                    revision,
                    "tools/call",
                    call(&format!("up__{tool}"))
                ),
                result(&upstream, revision, "tools/call", call(tool)),
                "{tool} in {revision}"
            );
        }
    }
    let uri = json!({"uri": "test://static-text"});
    assert_eq!(
        result(&server, "2025-11-25", "resources/read", uri.clone()),
        result(&upstream, "2025-11-25", "resources/read", uri)
    );
    let template = json!({"uri": "test://template/123/data"});
    assert_eq!(
        result(&server, "2025-11-25", "resources/read", template.clone()),
        result(&upstream, "2025-11-25", "resources/read", template)
    );
    let prompt = |name: &str| json!({"name": name});
    assert_eq!(
        result(
            &server,
            "2025-11-25",
            "prompts/get",
            prompt("up__test_simple_prompt")
        ),
        result(
            &upstream,
            "2025-11-25",
            "prompts/get",
            prompt("test_simple_prompt")
        )
    );
}

#[test]
fn arguments_on_several_lines_are_one_message_to_a_program() {
    let folder = folder("x");
    let server = behind([("up", stdio(&counting(folder.path())))]).start();
    let session = server.session("2025-11-25");
    let message = "{\"jsonrpc\": \"2.0\", \"id\": 9, \"method\": \"tools/call\", \"params\": {\n  \"name\": \"up__count\",\n  \
                   \"arguments\": {\n    \"a\": 1,\r\n    \"b\": [\n]\n  }\n}}";
    let answer = session.post(message);
    assert_eq!(
        answer.json()["result"]["content"][0]["text"],
        "started 1",
        "{answer:?}"
    );
}

#[test]
fn a_program_is_started_once_for_all_and_again_after_it_died() {
    let folder = folder("Counts.");
    let server = behind([("x", stdio(&counting(folder.path())))]).start();
    let session = server.session("2025-11-25");
    let call = |arguments: Value| session.call("x__count", &arguments).result();
    assert_eq!(call(json!({}))["content"][0]["text"], "started 1");
    assert_eq!(call(json!({}))["content"][0]["text"], "started 1");
    let died = call(json!({"a": "die"}));
    assert_eq!(died["isError"], true, "{died}");
    assert_eq!(
        died["content"][0]["text"],
        "the upstream server x disconnected before it responded; the call may have been executed"
    );
    assert_eq!(
        call(json!({}))["content"][0]["text"],
        "started 2",
        "the next call starts it again"
    );
}

#[test]
fn what_is_remembered_needs_no_connection() {
    let folder = folder("Counts.");
    let memory = folder.path().join("memory");
    let start = || {
        behind([("x", stdio(&counting(folder.path())))])
            .configured(|c| c.upstreams_folder = Some(memory.clone()))
            .start()
    };
    let first = start();
    assert_eq!(starts(folder.path()), 1);
    drop(first);
    let second = start();
    let list = result(&second, "2025-11-25", "tools/list", json!({}));
    assert_eq!(list["tools"][0]["name"], "x__count");
    assert_eq!(starts(folder.path()), 1, "nothing was started for the list");
    let called = result(
        &second,
        "2025-11-25",
        "tools/call",
        json!({"name": "x__count"}),
    );
    assert_eq!(called["content"][0]["text"], "started 2");
}

#[test]
fn one_that_is_missing_does_not_keep_the_others_away() {
    let upstream = everything();
    let missing: UpstreamConfig =
        serde_json::from_value(json!({"command": "no-such-mcp-server"})).expect("valid");
    let server = behind([
        ("gone", missing),
        ("silent", stdio("exit 0")),
        ("up", http(&upstream)),
    ])
    .start();
    let list = result(&server, "2025-11-25", "tools/list", json!({}));
    let tools = list["tools"].as_array().expect("tools");
    assert!(!tools.is_empty());
    assert!(tools.iter().all(|tool| {
        tool["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("up__"))
    }));
    let health = server.page("/health");
    assert_eq!(health.status, 200);
}

#[test]
fn one_that_has_gone_is_down_until_it_is_back() {
    let demo = |port| {
        let demo = Serve::new().toolset("demo");
        demo.configured(|c| c.http.port = port).start()
    };
    let upstreams = [demo(0), demo(0)];
    let ports = upstreams
        .each_ref()
        .map(|upstream| upstream.address().port());
    let server = behind([
        ("modern", http(&upstreams[0])),
        ("legacy", with_sessions(&upstreams[1])),
    ])
    .start();
    let call = |name: &str| {
        let echo = json!({"name": format!("{name}__echo"), "arguments": {"message": "here"}});
        result(&server, "2025-11-25", "tools/call", echo)
    };
    let health = || server.page("/health").json();
    for name in ["modern", "legacy"] {
        assert_eq!(call(name)["content"][0]["text"], "here");
    }
    drop(upstreams);
    // A call may still be rejected by a server that is about to stop.
    becomes(|| {
        for name in ["modern", "legacy"] {
            assert_eq!(call(name)["isError"], true);
        }
        health()["upstreams_down"] == 2
    });
    // No call tells that they have returned.
    let _upstreams = ports.map(demo);
    becomes(|| health()["upstreams_down"] == 0);
}

#[test]
fn tools_are_chosen_by_name() {
    let upstream = everything();
    let mut config = http(&upstream);
    config.tools = vec!["test_*_text".to_owned(), "test_image_content".to_owned()];
    config.exclude_tools = vec!["*image*".to_owned()];
    config.prefix = Some(String::new());
    let server = behind([("up", config)]).start();
    let list = result(&server, "2025-11-25", "tools/list", json!({}));
    let names: Vec<&str> = list["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["test_simple_text"]);
}
