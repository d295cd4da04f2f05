//! URIs in results, views, skills and tasks of upstreams, as clients of this server have them.

use longshore::source::UpstreamConfig;
use serde_json::{Value, json};

use super::{behind, result, stdio};
use crate::auth::{BOB, CI, bearer, with_keys};
use crate::support::{Running, Stateless};

/// A server of the session lifecycle whose tools link to resources, and one of which runs as a task only.
fn linking(name: &str) -> UpstreamConfig {
    let script = r#"while read -r line; do
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        uri=$(printf '%s' "$line" | sed 's/.*"uri":"\([^"]*\)".*/\1/')
        case "$line" in
        *'"initialize"'*'io.modelcontextprotocol/ui'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"x","version":"0"}}}' ;;
        *tools/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"link","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://view/a"},"ui/resourceUri":"ui://view/a"}},{"name":"long","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}}' ;;
        *resources/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resources":[{"uri":"test://listed","name":"listed"}]}}' ;;
        *templates/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resourceTemplates":[]}}' ;;
        *resources/read*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"contents":[{"uri":"'$uri'","text":"'$uri' of NAME"}]}}' ;;
        *'"long"'*'"task":{'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"task":{"taskId":"t1","status":"working","ttl":1000}}}' ;;
        *'"long"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"as a task only"}}' ;;
        *tasks/result*'"t1"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"as a task"}]}}' ;;
        *tools/call*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"resource_link","uri":"test://listed","name":"l"},{"type":"resource_link","uri":"test://unlisted/1","name":"u"},{"type":"resource","resource":{"uri":"test://listed","text":"x"}},{"type":"resource_link","uri":"https://example.com/","name":"w"}],"_meta":{"ui":{"resourceUri":"ui://view/a"}}}}' ;;
        esac
    done"#;
    stdio(&script.replace("NAME", name))
}

fn links(result: &Value) -> Vec<String> {
    let blocks = result["content"].as_array().expect("content");
    let uri = |block: &Value| {
        block["uri"]
            .as_str()
            .or(block["resource"]["uri"].as_str())
            .map(str::to_owned)
    };
    blocks.iter().filter_map(uri).collect()
}

fn read(server: &Running, uri: &str) -> Value {
    let read = result(server, "2025-11-25", "resources/read", json!({"uri": uri}));
    assert_eq!(read["contents"][0]["uri"], uri, "{read}");
    read["contents"][0]["text"].clone()
}

#[test]
fn what_results_link_to_is_read_from_the_upstream_that_linked_to_it() {
    let server = behind([("one", linking("one")), ("two", linking("two"))]).start();
    for (name, prefix) in [("one", ""), ("two", "two+")] {
        let tool = format!("{name}__link");
        let called = result(&server, "2025-11-25", "tools/call", json!({"name": tool}));
        let found = links(&called);
        let [listed, unlisted, embedded, web] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(*listed, format!("{prefix}test://listed"));
        assert_eq!(embedded, listed);
        assert_eq!(web, "https://example.com/");
        assert_eq!(read(&server, listed), format!("test://listed of {name}"));
        assert_eq!(
            read(&server, unlisted),
            format!("test://unlisted/1 of {name}")
        );
        // Resources without a link cannot be read.
        let another = unlisted.replace("unlisted/1", "unlisted/2");
        let session = server.session("2025-11-25");
        let refused = session.request("resources/read", &json!({"uri": another}));
        assert_eq!(refused.json()["error"]["code"], -32002, "{refused:?}");
    }
}

#[test]
fn app_01_a_view_of_an_upstream_has_the_uri_that_its_tool_names() {
    let server = behind([("one", linking("one")), ("two", linking("two"))]).start();
    let listed = result(&server, "2025-11-25", "tools/list", json!({}));
    for (name, view) in [("one", "ui://view/a"), ("two", "ui://two+view/a")] {
        let tools = listed["tools"].as_array().expect("tools");
        let tool = format!("{name}__link");
        let tool = tools
            .iter()
            .find(|found| found["name"] == tool)
            .expect("it is listed");
        assert_eq!(tool["_meta"]["ui"]["resourceUri"], view);
        assert_eq!(tool["_meta"]["ui/resourceUri"], view);
        let called = result(
            &server,
            "2025-11-25",
            "tools/call",
            json!({"name": tool["name"]}),
        );
        assert_eq!(called["_meta"]["ui"]["resourceUri"], view);
        assert_eq!(read(&server, view), format!("ui://view/a of {name}"));
    }
}

#[test]
fn a_link_is_good_for_the_caller_that_got_it_within_the_rules() {
    let serve = || behind([("one", linking("one"))]).configured(with_keys);
    let call = |server: &Running, key: &str| {
        let call = Stateless::call("one__link", json!({})).and("authorization", &bearer(key));
        links(&call.send(server).result())[1].clone()
    };
    let read = |server: &Running, key: &str, uri: &str| {
        let read = Stateless::new("resources/read", json!({"uri": uri}));
        read.and("authorization", &bearer(key)).send(server).json()
    };
    let server = serve().start();
    let uri = call(&server, CI);
    assert_eq!(
        read(&server, CI, &uri)["result"]["contents"][0]["text"],
        "test://unlisted/1 of one"
    );
    assert_eq!(read(&server, BOB, &uri)["error"]["code"], -32602);
    for (rule, is_read) in [
        (
            json!({"name": "x", "effect": "deny", "resources": ["test://unlisted/*"]}),
            false,
        ),
        (
            json!({"name": "x", "effect": "deny", "resources": ["one+*"]}),
            false,
        ),
        (
            json!({"name": "x", "effect": "allow", "resources": ["test://unlisted/*"], "tools": ["*"]}),
            true,
        ),
        (
            json!({"name": "x", "effect": "allow", "resources": ["test://listed"], "tools": ["*"]}),
            false,
        ),
    ] {
        let server = serve()
            .configured(|c| {
                c.policy.rules = vec![serde_json::from_value(rule.clone()).expect("a rule")];
            })
            .start();
        let uri = call(&server, CI);
        let read = read(&server, CI, &uri);
        assert_eq!(read.get("result").is_some(), is_read, "{rule}: {read}");
    }
}

#[test]
fn a_tool_that_runs_as_a_task_only_is_called_by_clients_of_each_kind() {
    let server = behind([("one", linking("one"))]).start();
    for revision in ["2025-06-18", "2025-11-25"] {
        let called = result(
            &server,
            revision,
            "tools/call",
            json!({"name": "one__long"}),
        );
        assert_eq!(
            called["content"][0]["text"], "as a task",
            "{revision}: {called}"
        );
    }
    let called = Stateless::call("one__long", json!({}))
        .send(&server)
        .result();
    assert_eq!(called["content"][0]["text"], "as a task", "{called}");
    let listed = result(&server, "2025-11-25", "tools/list", json!({}));
    let tools = listed["tools"].as_array().expect("tools");
    let long = tools
        .iter()
        .find(|tool| tool["name"] == "one__long")
        .expect("it is listed");
    assert_eq!(long["execution"]["taskSupport"], "optional");
}

/// A server of 2026-07-28 alone with one skill, whose files it does not list.
const SKILLED: &str = r#"while read -r line; do
    id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    uri=$(printf '%s' "$line" | sed 's/.*"uri":"\([^"]*\)".*/\1/')
    case "$line" in
    *server/discover*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"resources":{},"extensions":{"io.modelcontextprotocol/skills":{}}}}}' ;;
    *resources/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","resources":[]}}' ;;
    *templates/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","resourceTemplates":[]}}' ;;
    *skills/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","skills":[{"uri":"skill://greet/SKILL.md","frontmatter":{"name":"greet","description":"How to greet."},"resources":[{"uri":"skill://greet/SKILL.md","size":1},{"uri":"skill://greet/refs/a.md","size":2}]}]}}' ;;
    *resources/read*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"resultType":"complete","contents":[{"uri":"'$uri'","text":"'$uri'"}]}}' ;;
    *) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
    esac
done"#;

#[test]
fn skills_of_upstreams_are_listed_and_their_files_read() {
    let server = behind([("one", stdio(SKILLED)), ("two", stdio(SKILLED))]).start();
    let ask = |method: &str, params: Value| Stateless::new(method, params).send(&server).result();
    let listed = ask("skills/list", json!({}));
    let uris: Vec<_> = listed["skills"]
        .as_array()
        .expect("skills")
        .iter()
        .map(|skill| skill["uri"].clone())
        .collect();
    assert_eq!(
        uris,
        ["skill://greet/SKILL.md", "skill://two/greet/SKILL.md"]
    );
    let got = ask("skills/get", json!({"uri": "skill://two/greet/SKILL.md"}));
    let file = &got["skill"]["resources"][1]["uri"];
    assert_eq!(*file, "skill://two/greet/refs/a.md", "{got}");
    let contents = ask("resources/read", json!({"uri": file}));
    assert_eq!(contents["contents"][0]["uri"], *file);
    assert_eq!(contents["contents"][0]["text"], "skill://greet/refs/a.md");
    let folder = ask(
        "resources/directory/read",
        json!({"uri": "skill://two/greet/refs"}),
    );
    assert_eq!(folder["resources"][0]["uri"], *file, "{folder}");
}

#[test]
fn an_entry_of_a_list_that_is_not_an_object_is_left_out() {
    let script = SKILLED.replace(r#""skills":["#, r#""skills":["boom",7,null,[],"#);
    let server = behind([("one", stdio(&script))]).toolset("demo").start();
    let listed = Stateless::new("skills/list", json!({}))
        .send(&server)
        .result();
    let skills = listed["skills"].as_array().expect("skills");
    assert_eq!(skills.len(), 1, "{listed}");
    assert_eq!(skills[0]["uri"], "skill://greet/SKILL.md");
}
