//! Extensions: how they are announced, MCP Apps, and skills.

use longshore::{App, Definition, Skill, ToolError, View, ViewPermission, tool, tool_fn};
use serde_json::{Map, Value, json};

use super::support::{Running, Serve, Session, Stateless};
use crate::support::{Checked as _, assert_contains};

/// Throws a die.
#[tool(ui = "ui://game/die")]
async fn throw() -> u8 {
    4
}

fn die() -> View {
    View::new("ui://game/die", "die", "<p>4</p>")
        .connects_to("https://api.example.com")
        .permission(ViewPermission::Camera)
}

fn skill() -> Skill {
    let manifest = "---\nname: greeting\ndescription: How to greet.\n---\nSay ahoy.\n";
    let skill = Skill::new(manifest).expect("a manifest");
    let skill = skill.file("references/a.md", "# A\n").expect("a file");
    skill.file("logo.png", [0xff, 0xd8]).expect("a file")
}

fn discovered(server: &Running) -> Value {
    let discovered = Stateless::new("server/discover", json!({})).send(server);
    discovered.result()["capabilities"].clone()
}

fn initialized(session: &Session<'_>) -> Value {
    session.initialized["capabilities"].clone()
}

fn refusal(app: App) -> String {
    app.config(longshore::Config::default())
        .checked_harness()
        .expect_err("cannot be")
        .to_string()
}

#[test]
fn ext_01_extensions_are_announced_where_each_era_looks_for_them() {
    let settings = json!({"currencies": ["EUR"]});
    let server = Serve::new()
        .app(|app| {
            app.extension("com.example/billing", settings.clone())
                .skill(skill())
                .tool(throw)
                .resource(die())
        })
        .start();
    let everywhere = json!({"com.example/billing": settings, "io.modelcontextprotocol/ui": {}});
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = server.session(revision);
        assert_eq!(
            initialized(&session)["extensions"],
            everywhere,
            "{revision}"
        );
    }
    let mut with_skills = everywhere;
    with_skills["io.modelcontextprotocol/skills"] = json!({"directoryRead": true});
    assert_eq!(discovered(&server)["extensions"], with_skills);
}

#[test]
fn without_extensions_nothing_is_said_of_them() {
    let server = Serve::demo();
    assert_eq!(discovered(&server).get("extensions"), None);
    assert_eq!(
        initialized(&server.session("2025-11-25")).get("extensions"),
        None
    );
    for method in ["skills/list", "skills/get", "resources/directory/read"] {
        let unknown = Stateless::new(method, json!({"uri": "skill://a"})).without("mcp-name");
        unknown.send(&server).error(404, -32601, "1");
    }
}

#[test]
fn an_extension_without_a_prefix_or_settings_is_refused() {
    let refused = refusal(App::new().extension("billing", json!({})));
    assert!(refused.contains("a prefix"), "{refused}");
    let refused = refusal(App::new().extension("a.b/c", json!(1)));
    assert!(refused.contains("an object"), "{refused}");
    let twice = App::new()
        .extension("a.b/c", json!({}))
        .extension("a.b/c", json!({}));
    assert!(refusal(twice).contains("twice"));
}

// === MCP Apps ===

#[test]
fn app_01_a_view_is_linked_in_both_spellings_and_can_be_read() {
    let server = Serve::new()
        .tool(throw)
        .app(|app| app.resource(die()))
        .start();
    let listed = Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    assert_eq!(
        listed["tools"][0]["_meta"],
        json!({"ui": {"resourceUri": "ui://game/die"}, "ui/resourceUri": "ui://game/die"})
    );
    let read = Stateless::new("resources/read", json!({"uri": "ui://game/die"}))
        .send(&server)
        .result();
    assert_eq!(
        read["contents"],
        json!([{
            "uri": "ui://game/die",
            "mimeType": "text/html;profile=mcp-app",
            "text": "<!DOCTYPE html>\n<p>4</p>",
            "_meta": {"ui": {
                "csp": {"connectDomains": ["https://api.example.com"]},
                "permissions": {"camera": {}},
            }},
        }])
    );
}

#[test]
fn app_02_app_03_a_tool_with_a_view_answers_clients_without() {
    let server = Serve::new()
        .tool(throw)
        .app(|app| app.resource(die()))
        .start();
    for revision in ["2024-11-05", "2025-11-25"] {
        let result = server.session(revision).call("throw", &json!({})).result();
        assert_eq!(result["content"][0]["text"], "4");
    }
    // 2025-03-26 has no `_meta` in definitions.
    let old = server
        .session("2025-03-26")
        .request("tools/list", &json!({}));
    assert_eq!(old.result()["tools"][0].get("_meta"), None);
}

#[test]
fn app_01_a_view_that_is_not_there_is_refused_at_the_start() {
    let refused = refusal(App::new().tool(throw));
    assert_contains(&refused, &["its view \"ui://game/die\" does not exist"]);
    let elsewhere = tool_fn(
        Definition::new("t").ui("https://example.com"),
        |_, _: Map<String, Value>| async { Ok::<_, ToolError>(String::new()) },
    );
    assert!(refusal(App::new().tool(elsewhere)).contains("ui://"));
    let plain = longshore::StaticResource::text(
        longshore::ResourceDefinition::new("ui://a", "a").mime_type("text/html"),
        "",
    );
    assert!(refusal(App::new().resource(plain)).contains("profile=mcp-app"));
}

// === Skills ===

fn ask(server: &Running, method: &str, params: Value) -> super::support::Response {
    Stateless::new(method, params)
        .without("mcp-name")
        .send(server)
}

#[test]
fn skills_are_listed_and_found() {
    let server = Serve::new().app(|app| app.skill(skill())).start();
    let listed = ask(&server, "skills/list", json!({})).result();
    assert_eq!(listed["cacheScope"], "public");
    assert!(listed["ttlMs"].is_u64());
    let entry = &listed["skills"][0];
    assert_eq!(entry["uri"], "skill://greeting/SKILL.md");
    assert_eq!(
        entry["frontmatter"],
        json!({"name": "greeting", "description": "How to greet."})
    );
    assert_eq!(entry["resources"].as_array().map(Vec::len), Some(3));
    let one = ask(
        &server,
        "skills/get",
        json!({"uri": "skill://greeting/SKILL.md"}),
    )
    .result();
    assert_eq!(one["skill"], *entry);
    assert_eq!(one.get("nextCursor"), None);
    for file in entry["resources"].as_array().expect("files") {
        let read = Stateless::new("resources/read", json!({"uri": file["uri"]}));
        let contents = read.send(&server).result()["contents"][0].clone();
        let bytes = match contents["text"].as_str() {
            Some(text) => text.len(),
            None => 2,
        };
        assert_eq!(file["size"], bytes, "{file}");
    }
    ask(
        &server,
        "skills/get",
        json!({"uri": "skill://other/SKILL.md"}),
    )
    .error(200, -32602, "1");
    ask(&server, "skills/get", json!({})).error(200, -32602, "1");
}

#[test]
fn folders_of_skills_can_be_looked_into() {
    let server = Serve::new().app(|app| app.skill(skill())).start();
    let children = |uri: &str| {
        let result = ask(&server, "resources/directory/read", json!({"uri": uri})).result();
        let children = result["resources"].as_array().expect("resources").clone();
        children
            .iter()
            .map(|child| (child["uri"].clone(), child["mimeType"].clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        children("skill://greeting"),
        [
            (json!("skill://greeting/SKILL.md"), json!("text/markdown")),
            (json!("skill://greeting/logo.png"), json!("image/png")),
            (
                json!("skill://greeting/references"),
                json!("inode/directory")
            ),
        ]
    );
    assert_eq!(children("skill://greeting/references/").len(), 1);
    for none in ["skill://greeting/SKILL.md", "skill://other", "file:///etc"] {
        ask(&server, "resources/directory/read", json!({"uri": none})).error(200, -32602, "1");
    }
    let cursor = json!({"uri": "skill://greeting", "cursor": "x"});
    ask(&server, "resources/directory/read", cursor).error(200, -32602, "1");
}

#[test]
fn pag_02_skills_have_pages() {
    let numbered = |number: u32| {
        let manifest = format!("---\nname: skill-{number}\ndescription: d\n---\n");
        Skill::new(manifest).expect("a manifest")
    };
    let server = Serve::new()
        .app(|app| (0..5).fold(app, |app, number| app.skill(numbered(number))))
        .page_size(2)
        .start();
    let (mut found, mut params) = (0, json!({}));
    loop {
        let page = ask(&server, "skills/list", params).result();
        found += page["skills"].as_array().map_or(0, Vec::len);
        if page["nextCursor"].is_null() {
            break;
        }
        params = json!({"cursor": page["nextCursor"]});
    }
    assert_eq!(found, 5);
}
