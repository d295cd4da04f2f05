//! The access policy.

use std::sync::Arc;

use longshore::auth::PolicyConfig;
use longshore::{CallContext, Definition, IntoTool, Tool, tool_fn};
use serde_json::{Map, Value, json};

use super::{BOB, CI, bearer};
use crate::support::{Response, Running, Serve, Stateless, request};

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
            // A hidden item behaves as if it did not exist, and no suggestion mentions it.
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
    // Another replica continues the list, and the last page has no cursor.
    let second = page(&replica, CI, Some(&cursor));
    assert_eq!(listed(&second), ["t4_even", "t6_even"]);
    let cursor_2 = second.result()["nextCursor"]
        .as_str()
        .expect("a cursor")
        .to_owned();
    let third = page(&server, CI, Some(&cursor_2));
    assert_eq!(listed(&third), ["t8_even"]);
    assert!(third.result().get("nextCursor").is_none());
    // A caller with other permissions cannot use the cursor.
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
fn rules_may_demand_scopes_for_resources_and_prompts() {
    let server = Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            super::with_keys(c);
            c.auth.api_keys[1].scopes = vec!["library".to_owned()];
            let about = json!({"effect": "allow", "resources": ["*"], "requires": ["library"]});
            let prompts = json!({"effect": "allow", "prompts": ["*"], "requires": ["library"]});
            c.policy = rules(json!([about, prompts]));
        })
        .start();
    let template = json!({"type": "ref/resource", "uri": "verb://{verb}"});
    let prompt = json!({"type": "ref/prompt", "name": "proofread"});
    let argument = |name: &str| json!({"name": name, "value": "s"});
    let about = "longshore://about";
    let requests = [
        ("resources/read", json!({"uri": about})),
        ("resources/read", json!({"uri": "verb://go"})),
        (
            "prompts/get",
            json!({"name": "proofread", "arguments": {"text": "a"}}),
        ),
        (
            "completion/complete",
            json!({"ref": template, "argument": argument("verb")}),
        ),
        (
            "completion/complete",
            json!({"ref": prompt, "argument": argument("depth")}),
        ),
        (
            "subscriptions/listen",
            json!({"notifications": {"resourceSubscriptions": [about]}}),
        ),
    ];
    for (method, params) in &requests {
        let request = || Stateless::new(method, params.clone());
        let refused = ask(&server, CI, request());
        assert_eq!(refused.status, 403, "{method}: {}", refused.body);
        let challenge = refused.header("www-authenticate").expect("a challenge");
        assert!(challenge.contains(r#"scope="library""#), "{challenge}");
        let text = request().and("authorization", &bearer(BOB)).text();
        let head = server.connect().send(text).receive_head();
        assert_eq!(head.status, 200, "{method}");
    }
    for (method, member) in [("resources/list", "resources"), ("prompts/list", "prompts")] {
        let list = ask(&server, CI, Stateless::new(method, json!({}))).result();
        assert!(list[member][0].is_object(), "{method}");
    }
    for (key, status) in [(CI, 403), (BOB, 200)] {
        let key = bearer(key);
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let begun = server.post(&[("authorization", &key)], &request("initialize", &params));
        let session = begun.header("mcp-session-id").expect("a session");
        let subscribed = server.post(
            &[
                ("authorization", &key),
                ("mcp-session-id", session),
                ("mcp-protocol-version", "2025-06-18"),
            ],
            &request("resources/subscribe", &json!({"uri": about})),
        );
        assert_eq!(subscribed.status, status, "{}", subscribed.body);
    }
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

const MANIFEST: &str = "---\nname: sail\ndescription: Sails.\n---\nSail.\n";

#[longshore::resource(uri = "place://{country}/{city}")]
async fn place(#[arg(complete = countries)] country: String, city: String) -> String {
    format!("{city} in {country}")
}

fn countries(_: &longshore::CompletionRequest) -> longshore::Completions {
    longshore::Completions::new(["norway", "atlantis"]).of_total(5)
}

/// A server with a skill, a template that completes, and a resource that changes; of each something is hidden from bob.
fn with_hidden() -> (Running, longshore::Announcer) {
    let mut announcer = None;
    let skill = longshore::Skill::new(MANIFEST)
        .and_then(|skill| skill.file("charts/open.md", "x"))
        .and_then(|skill| skill.file("charts/secret.md", "x"))
        .expect("a skill");
    let other = longshore::Skill::new(MANIFEST.replace("name: sail", "name: smuggle"));
    let open = longshore::ResourceDefinition::new("open://a", "a");
    let closed = longshore::ResourceDefinition::new("secret://b", "b");
    let server = Serve::new()
        .app(|app| {
            announcer = Some(app.announcer());
            app.resource(longshore::StaticResource::text(open, "a"))
                .resource(longshore::StaticResource::text(closed, "b"))
                .resource(place)
                .skill(skill)
                .skill(other.expect("a skill"))
        })
        .configured(|c| {
            super::with_keys(c);
            let hidden = [
                "secret://*",
                "place://atlantis/*",
                "skill://smuggle/*",
                "*secret.md",
            ];
            c.policy = rules(json!([
                {"effect": "deny", "principals": ["key:bob"], "resources": hidden},
            ]));
        })
        .start();
    (server, announcer.expect("an application"))
}

#[test]
fn what_may_not_be_read_is_not_subscribed_to() {
    let (server, announcer) = with_hidden();
    let uris = json!(["open://a", "secret://b", "secret://nothing-there"]);
    let mut streams = [CI, BOB].map(|key| {
        let filter = json!({"notifications": {"resourceSubscriptions": uris}});
        let listen = Stateless::new("subscriptions/listen", filter);
        let mut connection = server.connect();
        connection.send(listen.and("authorization", &bearer(key)).text());
        assert_eq!(connection.receive_head().status, 200);
        let first = connection.event().expect("an acknowledgement");
        let honoured = first["params"]["notifications"]["resourceSubscriptions"].clone();
        let seen = match key {
            CI => uris.clone(),
            _ => json!(["open://a"]),
        };
        assert_eq!(honoured, seen);
        connection
    });
    announcer.resource_changed("secret://b");
    announcer.resource_changed("open://a");
    let [ci, bob] = &mut streams;
    let uri = |of: &mut crate::support::Connection| {
        of.event().expect("a notification")["params"]["uri"].clone()
    };
    assert_eq!((uri(ci), uri(ci)), (json!("secret://b"), json!("open://a")));
    assert_eq!(uri(bob), "open://a");
    // Within sessions: as if it were not there.
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
    });
    for (key, is_seen) in [(CI, true), (BOB, false)] {
        let key = bearer(key);
        let begun = server.post(
            &[("authorization", &key)],
            &crate::support::request("initialize", &params),
        );
        let session = begun.header("mcp-session-id").expect("an id");
        let headers = [("authorization", &*key), ("mcp-session-id", session)];
        let subscribe = |uri: &str| {
            let body = crate::support::request("resources/subscribe", &json!({ "uri": uri }));
            server.post(&headers, &body)
        };
        subscribe("open://a").result();
        match is_seen {
            true => drop(subscribe("secret://b").result()),
            false => drop(subscribe("secret://b").error(200, -32002, "1")),
        }
    }
}

#[test]
fn skills_and_their_files_are_hidden_alike() {
    let (server, _) = with_hidden();
    let skills = |key| {
        let list = ask(&server, key, Stateless::new("skills/list", json!({}))).result();
        list["skills"].as_array().expect("a list").clone()
    };
    let files = |skill: &Value| {
        let files = skill["resources"].as_array().expect("files").iter();
        files.map(|file| file["uri"].clone()).collect::<Vec<_>>()
    };
    let (all, seen) = (skills(CI), skills(BOB));
    assert_eq!((all.len(), seen.len()), (2, 1));
    assert_eq!(seen[0]["uri"], "skill://sail/SKILL.md");
    let open = ["skill://sail/SKILL.md", "skill://sail/charts/open.md"];
    assert_eq!(files(&seen[0]), open);
    assert_eq!(files(&all[0]).len(), 3);
    let get = |key, uri: &str| {
        let get = Stateless::new("skills/get", json!({ "uri": uri })).without("mcp-name");
        ask(&server, key, get)
    };
    assert_eq!(files(&get(BOB, open[0]).result()["skill"]), open);
    get(BOB, "skill://smuggle/SKILL.md").error(200, -32602, "1");
    let read = |key| {
        let read = Stateless::new(
            "resources/directory/read",
            json!({"uri": "skill://sail/charts"}),
        )
        .without("mcp-name");
        let listed = ask(&server, key, read).result();
        let listed = listed["resources"].as_array().expect("a list").iter();
        listed.map(|entry| entry["uri"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((read(CI).len(), read(BOB)), (2, vec![json!(open[1])]));
}

#[test]
fn nothing_is_suggested_that_leads_to_what_is_hidden() {
    let (server, _) = with_hidden();
    let suggested = |key| {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": "place://{country}/{city}"},
            "argument": {"name": "country", "value": ""},
        });
        let answer = ask(&server, key, Stateless::new("completion/complete", params)).result();
        answer["completion"].clone()
    };
    assert_eq!(suggested(CI)["values"], json!(["norway", "atlantis"]));
    assert_eq!(
        suggested(BOB),
        json!({"values": ["norway"], "hasMore": true})
    );
}
