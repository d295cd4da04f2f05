//! `tools/list` and `server/discover`: pages, cursors and cache hints.

use longshore::{Definition, Output, ToolError, tool_fn};
use serde_json::{Map, Value, json};

use super::{INVALID_PARAMS, WITH_SESSIONS};
use crate::support::{Running, Serve, Session, Stateless};

/// A server with tools of these names.
fn serving(names: &[&str]) -> Serve {
    names.iter().fold(Serve::new().page_size(2), |serve, name| {
        let definition = Definition::new(*name);
        serve.tool(tool_fn(definition, |_, _: Map<String, Value>| async {
            Ok::<_, ToolError>(Output::text(""))
        }))
    })
}

fn page(server: &Running, cursor: Option<&str>) -> Value {
    let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
    Stateless::new("tools/list", params).send(server).result()
}

fn names(page: &Value) -> Vec<&str> {
    let tools = page["tools"].as_array().expect("a list");
    tools
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name"))
        .collect()
}

fn cursor(page: &Value) -> &str {
    page["nextCursor"].as_str().expect("a cursor")
}

#[test]
fn pag_02_pages_follow_one_another_in_every_revision() {
    let server = serving(&["a", "b", "c", "d", "e"]).start();
    let first = page(&server, None);
    assert_eq!(names(&first), ["a", "b"]);
    let second = page(&server, Some(cursor(&first)));
    assert_eq!(names(&second), ["c", "d"]);
    let third = page(&server, Some(cursor(&second)));
    assert_eq!(names(&third), ["e"]);
    assert!(third.get("nextCursor").is_none());
    for revision in WITH_SESSIONS {
        let session = server.session(revision);
        let second = session
            .request("tools/list", &json!({"cursor": cursor(&first)}))
            .result();
        assert_eq!(names(&second), ["c", "d"]);
        assert_eq!(
            cursor(&second),
            cursor(&page(&server, Some(cursor(&first))))
        );
    }
}

#[test]
fn pag_02_a_last_page_that_is_full_has_no_cursor() {
    let server = serving(&["a", "b"]).start();
    assert!(page(&server, None).get("nextCursor").is_none());
    let empty = serving(&[]).start();
    assert_eq!(names(&page(&empty, None)), [""; 0]);
}

#[test]
fn pag_01_cursors_that_were_not_given_out_are_refused() {
    let server = serving(&["a", "b", "c"]).start();
    let stranger = serving(&["a", "b", "c"]).start();
    let foreign = page(&stranger, None);
    let own = page(&server, None);
    let own = cursor(&own);
    let tampered = format!(
        "{}{}",
        if own.starts_with('A') { 'B' } else { 'A' },
        &own[1..]
    );
    let cut = &own[..own.len() - 1];
    let session = server.session("2025-06-18");
    // As a cursor, an empty string is one like any other: not ours.
    for bad in [
        "",
        "x",
        "2",
        &tampered,
        cut,
        &format!("{own}A"),
        &session.id,
        cursor(&foreign),
    ] {
        let list = Stateless::new("tools/list", json!({"cursor": bad}));
        let message = list.send(&server).error(200, INVALID_PARAMS, "1");
        assert_eq!(
            message,
            "Invalid params: the cursor is not one of this server's; list from the start"
        );
        session
            .request("tools/list", &json!({"cursor": bad}))
            .error(200, INVALID_PARAMS, "1");
    }
    for odd in [json!(1), json!({}), json!([own])] {
        session
            .request("tools/list", &json!({"cursor": odd}))
            .error(200, INVALID_PARAMS, "1");
    }
    let null = session
        .request("tools/list", &json!({"cursor": null}))
        .result();
    assert_eq!(names(&null), ["a", "b"]);
}

#[test]
fn pag_02_another_server_with_the_key_continues_a_list_although_its_tools_are_others() {
    // META-10, META-11: the cursor says everything.
    let one = serving(&["a", "b", "c", "d"]).shared_key().start();
    let first = page(&one, None);
    let after = |names: &[&str]| {
        let other = serving(names).shared_key().start();
        let second = page(&other, Some(cursor(&first)));
        let names = super::listings::names(&second);
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(after(&["a", "b", "c", "d"]), ["c", "d"]);
    // New items in front: the list continues after the last name.
    assert_eq!(after(&["new", "newer", "a", "b", "c"]), ["c"]);
    // The name was removed: the list continues at its position.
    assert_eq!(after(&["a", "x", "c", "d"]), ["c", "d"]);
    assert_eq!(after(&["a"]), [""; 0]);
}

#[test]
fn list_01_and_02_listings_are_the_same_to_the_byte() {
    let names = ["z", "a", "m", "b"];
    let (one, other) = (
        serving(&names).page_size(9).start(),
        serving(&names).page_size(9).start(),
    );
    let text = |server: &Running| Stateless::new("tools/list", json!({})).send(server).body;
    let first = text(&one);
    assert_eq!(
        super::listings::names(&page(&one, None)),
        names,
        "the order in which they were added"
    );
    assert_eq!(text(&one), first);
    assert_eq!(text(&other), first);
    for revision in WITH_SESSIONS {
        let of = |server: &Running| {
            let list = |session: Session<'_>| session.request("tools/list", &json!({})).body;
            list(server.session(revision))
        };
        assert_eq!(of(&one), of(&other));
        assert_eq!(of(&one), of(&one));
    }
    // Other parameters make no difference: none, an empty object, an invalid cursor.
    let session = one.session("2025-06-18");
    let listed = session.request("tools/list", &json!({})).body;
    assert_eq!(
        session
            .post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
            .body,
        listed
    );
    assert_eq!(
        session
            .request("tools/list", &json!({"cursor": null, "x": 1}))
            .body,
        listed
    );
}

#[test]
fn cache_01_and_03_all_pages_say_how_long_they_may_be_kept_and_by_whom() {
    let server = serving(&["a", "b", "c"])
        .configured(|c| c.server.list_ttl_ms = 1234)
        .start();
    let first = page(&server, None);
    let second = page(&server, Some(cursor(&first)));
    let discovered = Stateless::new("server/discover", json!({}))
        .send(&server)
        .result();
    for result in [first, second, discovered] {
        assert_eq!(result["ttlMs"], 1234);
        assert_eq!(result["cacheScope"], "public");
    }
    // A call's result may not be kept.
    let called = Stateless::call("a", json!({})).send(&server).result();
    assert!(called.get("ttlMs").is_none() && called.get("cacheScope").is_none());
}

#[test]
fn disc_01_the_server_says_what_it_is_to_whoever_asks() {
    let server = Serve::new()
        .app(|app| app.instructions("Ask \"twice\"."))
        .start();
    let mut discover = Stateless::new("server/discover", json!({}));
    discover.id = json!("discover-1");
    assert_eq!(
        discover.send(&server).body,
        r#"{"jsonrpc":"2.0","id":"discover-1","result":{"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{"listChanged":true},"logging":{}},"instructions":"Ask \"twice\".","ttlMs":300000,"cacheScope":"public","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}}"#
    );
}

#[test]
fn disc_02_what_is_declared_is_there_and_what_is_not_is_not() {
    let server = Serve::demo();
    let discovered = Stateless::new("server/discover", json!({}))
        .send(&server)
        .result();
    // VER-07: tasks are not mentioned.
    assert_eq!(
        discovered["capabilities"],
        json!({
            "tools": {"listChanged": true},
            "logging": {},
            "resources": {"subscribe": true, "listChanged": true},
            "prompts": {"listChanged": true},
            "completions": {}
        })
    );
    for method in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        let list = Stateless::new(method, json!({})).send(&server).result();
        assert_eq!(list["cacheScope"], "public", "{method}");
    }
    Stateless::new("tasks/get", json!({}))
        .send(&server)
        .error(404, -32601, "1");
}
