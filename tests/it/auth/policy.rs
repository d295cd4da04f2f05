//! Who sees and uses what.

use std::sync::Arc;

use longshore::auth::PolicyConfig;
use longshore::{CallContext, Definition, IntoTool, Tool, tool_fn};
use serde_json::{Map, Value, json};

use super::{BOB, CI, bearer};
use crate::support::{Response, Running, Serve, Stateless};

fn tool(name: &str) -> Arc<dyn Tool> {
    tool_fn(
        Definition::new(name),
        |_: Arc<CallContext>, _: Map<String, Value>| async move {
            Ok::<_, longshore::ToolError>("done".to_owned())
        },
    )
    .into_tool()
}

fn rules(rules: Value) -> PolicyConfig {
    serde_json::from_value(json!({ "rules": rules })).expect("sound rules")
}

fn serve(names: &[&str], policy: Value) -> Serve {
    let tools: Vec<_> = names.iter().map(|name| tool(name)).collect();
    Serve::new().app(|app| app.tools(tools)).configured(|c| {
        super::with_keys(c);
        c.policy = rules(policy);
    })
}

fn ask(server: &Running, key: &str, request: Stateless) -> Response {
    request.and("authorization", &bearer(key)).send(server)
}

fn listed(response: &Response) -> Vec<String> {
    let tools = response.result()["tools"].clone();
    let names = tools.as_array().expect("a list").iter();
    names
        .map(|t| t["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn a_list_shows_what_may_be_called_and_what_is_hidden_is_unknown() {
    let names = ["files_read", "files_delete", "users_read"];
    let server = serve(
        &names,
        json!([
            {"effect": "allow", "principals": ["key:*"], "tools": ["files_*"]},
            {"effect": "deny", "principals": ["key:bob"], "tools": ["*_delete"]},
        ]),
    )
    .start();
    for (key, visible) in [(CI, &names[..2]), (BOB, &names[..1])] {
        let list = ask(&server, key, Stateless::new("tools/list", json!({})));
        assert_eq!(listed(&list), visible);
        // CACHE-04
        assert_eq!(list.result()["cacheScope"], "private");
        for name in names {
            let call = ask(&server, key, Stateless::call(name, json!({})));
            if visible.contains(&name) {
                assert_eq!(call.result()["content"][0]["text"], "done");
                continue;
            }
            // What is hidden is answered like what there is not, and nobody is told that there is something like it.
            let refusal = call.error(200, -32602, "1");
            let near = ask(
                &server,
                key,
                Stateless::call(&name.replace('e', "x"), json!({})),
            );
            assert_eq!(refusal, format!("Unknown tool: {name}"));
            assert!(!near.error(200, -32602, "1").contains(name));
        }
        // Nor is there another way around.
        let text = format!(
            "GET /tools HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\r\n",
            bearer(key)
        );
        let body = server.connect().send(text).receive().body;
        for name in names {
            assert_eq!(body.contains(name), visible.contains(&name), "{body}");
        }
        let text = format!(
            "POST /tools/users_read HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\ncontent-length: 0\r\n\r\n",
            bearer(key)
        );
        assert_eq!(server.connect().send(text).receive().status, 404);
    }
}

#[test]
fn pages_of_a_filtered_list_are_full_and_their_cursors_are_for_the_same_class() {
    let names: Vec<_> = (0..10)
        .map(|n| format!("t{n}_{}", if n % 2 == 0 { "even" } else { "odd" }))
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let policy = json!([
        {"effect": "allow", "principals": ["key:ci"], "tools": ["*_even"]},
        {"effect": "allow", "principals": ["key:bob"], "tools": ["*_odd"]},
    ]);
    let start = || {
        serve(&names, policy.clone())
            .page_size(2)
            .shared_key()
            .start()
    };
    let (server, replica) = (start(), start());
    let page = |server: &Running, key: &str, cursor: Option<&str>| {
        let params = cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor }));
        ask(server, key, Stateless::new("tools/list", params))
    };
    let first = page(&server, CI, None);
    assert_eq!(listed(&first), ["t0_even", "t2_even"]);
    let cursor = first.result()["nextCursor"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    // Another replica goes on, and the last page has no cursor.
    let second = page(&replica, CI, Some(&cursor));
    assert_eq!(listed(&second), ["t4_even", "t6_even"]);
    let cursor_2 = second.result()["nextCursor"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    let third = page(&server, CI, Some(&cursor_2));
    assert_eq!(listed(&third), ["t8_even"]);
    assert!(third.result().get("nextCursor").is_none());
    // Somebody who sees other things gets nowhere with it.
    assert!(
        page(&server, BOB, Some(&cursor))
            .error(200, -32602, "1")
            .contains("cursor")
    );
    assert_eq!(listed(&page(&server, BOB, None)), ["t1_odd", "t3_odd"]);
}

#[test]
fn rules_may_demand_scopes_for_what_is_seen() {
    let server = serve(
        &["deploy"],
        json!([{"effect": "allow", "requires": ["ops:deploy"]}]),
    )
    .configured(|c| c.auth.api_keys[1].scopes = vec!["ops:deploy".to_owned()])
    .start();
    assert_eq!(
        listed(&ask(&server, CI, Stateless::new("tools/list", json!({})))),
        ["deploy"]
    );
    let refused = ask(&server, CI, Stateless::call("deploy", json!({})));
    assert_eq!(refused.status, 403);
    let challenge = refused.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains(r#"scope="ops:deploy""#), "{challenge}");
    let done = ask(&server, BOB, Stateless::call("deploy", json!({})));
    assert_eq!(done.result()["content"][0]["text"], "done");
}

#[test]
fn resources_and_prompts_are_hidden_alike() {
    let server = Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            super::with_keys(c);
            c.policy = rules(json!([{"effect": "deny", "principals": ["key:bob"], "resources": ["*"], "prompts": ["*"]}]));
        })
        .start();
    for (method, member) in [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ] {
        let count = |key| {
            let list = ask(&server, key, Stateless::new(method, json!({}))).result();
            list[member].as_array().expect("a list").len()
        };
        assert!(0 < count(CI), "{method}");
        assert_eq!(count(BOB), 0, "{method}");
    }
    let first = |method, member: &str, key: &str| {
        let list = ask(&server, CI, Stateless::new(method, json!({}))).result();
        list[member][0][key].as_str().expect("a text").to_owned()
    };
    let uri = first("resources/list", "resources", "uri");
    let read = |key| {
        ask(
            &server,
            key,
            Stateless::new("resources/read", json!({"uri": uri})),
        )
    };
    read(CI).result();
    assert_eq!(read(BOB).error(200, -32602, "1"), "Resource not found");
    let name = first("prompts/list", "prompts", "name");
    let get = |key| {
        ask(
            &server,
            key,
            Stateless::new("prompts/get", json!({"name": name, "arguments": {}})),
        )
    };
    assert!(get(BOB).body.contains("Unknown prompt"));
    assert!(!get(CI).body.contains("Unknown prompt"));
}

#[test]
fn a_page_of_ten_thousand_tools_holds_what_is_seen_and_nobody_else_sees_it() {
    let names: Vec<_> = (0..10_000).map(|n| format!("tool_{n:05}")).collect();
    let tools: Vec<_> = names.iter().map(|name| tool(name)).collect();
    let policy: Vec<_> = (0..10).map(|n| json!({"effect": "allow", "principals": ["key:ci"], "tools": [format!("tool_*{n:02}")]})).collect();
    let server = Serve::new()
        .app(|app| app.tools(tools))
        .configured(|c| {
            super::with_keys(c);
            c.policy = rules(json!(policy));
        })
        .start();
    let list = ask(&server, CI, Stateless::new("tools/list", json!({})));
    assert_eq!(listed(&list).len(), 1_000);
    assert!(listed(&ask(&server, BOB, Stateless::new("tools/list", json!({})))).is_empty());
}
