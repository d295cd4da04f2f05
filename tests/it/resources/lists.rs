//! Lists of resources and of templates, and what is announced of them.

use serde_json::{Value, json};

use super::{WITH_SESSIONS, resources, served, without_resources};
use crate::support::{Running, Serve, Stateless};

#[test]
fn res_01_resources_are_announced_where_there_are_any() {
    let (with, without) = (served(), without_resources());
    let discovered = |server: &Running| {
        Stateless::new("server/discover", json!({}))
            .send(server)
            .result()["capabilities"]
            .clone()
    };
    let declared = json!({"subscribe": true, "listChanged": true});
    assert_eq!(discovered(&with)["resources"], declared);
    assert!(discovered(&without).get("resources").is_none());
    for revision in WITH_SESSIONS {
        let session = with.session(revision);
        let capabilities = &session.initialized["capabilities"];
        assert_eq!(capabilities["resources"], declared, "{revision}");
        assert!(capabilities.get("prompts").is_none(), "{revision}");
        assert!(capabilities.get("completions").is_none(), "{revision}");
        let session = without.session(revision);
        let capabilities = &session.initialized["capabilities"];
        assert!(capabilities.get("resources").is_none(), "{revision}");
    }
}

#[test]
fn disc_02_methods_of_what_is_not_there_are_not_found() {
    let server = without_resources();
    let methods = [
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ];
    for method in methods {
        let params = json!({"uri": "test://text"});
        let response = Stateless::new(method, params.clone()).send(&server);
        response.error(404, -32601, "1");
        for revision in WITH_SESSIONS {
            let response = server.session(revision).request(method, &params);
            response.error(200, -32601, "1");
        }
    }
}

#[test]
fn fixed_resources_and_templates_are_listed_apart() {
    let server = served();
    let resources = Stateless::new("resources/list", json!({}))
        .send(&server)
        .result();
    assert_eq!(
        resources["resources"][0],
        json!({
            "uri": "test://text", "name": "a resource", "title": "Text", "description": "Some text.",
            "mimeType": "text/plain", "size": 5,
            "annotations": {
                "audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"
            },
            "icons": [{"src": "https://example.com/icon.png"}],
            "_meta": {"com.example/kind": "text"},
        })
    );
    assert_eq!(resources["resources"].as_array().map(Vec::len), Some(10));
    assert_eq!(resources["resultType"], "complete");
    assert_eq!(
        (&resources["ttlMs"], &resources["cacheScope"]),
        (&json!(300_000), &json!("public"))
    );
    let templates = Stateless::new("resources/templates/list", json!({}))
        .send(&server)
        .result();
    assert_eq!(
        templates["resourceTemplates"],
        json!([
            {"uriTemplate": "test://square/{number}", "name": "a resource", "mimeType": "text/plain"},
            {"uriTemplate": "git://repo/{branch}/{+path}{?line}", "name": "a resource"},
        ])
    );
    assert_eq!(templates["cacheScope"], "public");
}

#[test]
fn tool_10_older_revisions_are_shown_what_they_know() {
    let server = served();
    for revision in WITH_SESSIONS {
        let list = server
            .session(revision)
            .request("resources/list", &json!({}))
            .result();
        let text = &list["resources"][0];
        let has_titles = "2025-06-18" <= revision;
        assert_eq!(text.get("title").is_some(), has_titles, "{revision}");
        assert_eq!(text.get("_meta").is_some(), has_titles, "{revision}");
        assert_eq!(
            text["annotations"].get("lastModified").is_some(),
            has_titles,
            "{revision}"
        );
        assert_eq!(
            text.get("icons").is_some(),
            "2025-11-25" <= revision,
            "{revision}"
        );
        assert!(list.get("ttlMs").is_none() && list.get("resultType").is_none());
    }
}

#[test]
fn pag_02_every_list_has_pages_and_no_cursor_fits_another() {
    let server = Serve::new().page_size(4).app(resources).start();
    let page = |method: &str, params: Value| Stateless::new(method, params).send(&server);
    let first = page("resources/list", json!({})).result();
    let cursor = first["nextCursor"].as_str().expect("a cursor").to_owned();
    let second = page("resources/list", json!({"cursor": cursor})).result();
    assert_eq!(second["resources"][0]["uri"], "test://nothing");
    for method in ["resources/templates/list", "tools/list"] {
        page(method, json!({"cursor": cursor})).error(200, -32602, "1");
    }
    page("resources/list", json!({"cursor": ""})).error(200, -32602, "1");
}
