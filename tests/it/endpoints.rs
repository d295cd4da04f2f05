//! Endpoints beside `/mcp`.

use longshore::server::EndpointConfig;
use longshore::{App, Config, ResourceDefinition, resource_fn, tool};
use serde_json::{Value, json};

use crate::support::{Response, Running, Serve, Stateless, meta, post, request};

/// Adds two numbers.
#[tool(read_only)]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Says it again.
#[tool]
async fn again(text: String) -> String {
    text
}

fn send(server: &Running, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let text = post(headers, body).replacen("POST /mcp ", &format!("POST {path} "), 1);
    server.connect().send(text).receive()
}

/// Begins a session at an endpoint; its id.
fn session(server: &Running, path: &str) -> (String, Value) {
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    });
    let response = send(server, path, &[], &request("initialize", &hello));
    let id = response.header("mcp-session-id").expect("a session");
    (id.to_owned(), response.result())
}

fn ask(server: &Running, path: &str, session: &str, method: &str, params: Value) -> Response {
    send(
        server,
        path,
        &[("mcp-session-id", session)],
        &request(method, &params),
    )
}

fn tools(server: &Running, path: &str) -> Vec<String> {
    let (id, _) = session(server, path);
    let list = ask(server, path, &id, "tools/list", json!({})).result();
    let tools = list["tools"].as_array().expect("tools");
    tools
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn endpoint(config: Value) -> EndpointConfig {
    serde_json::from_value(config).expect("valid")
}

fn two() -> Serve {
    Serve::new().tool(add).tool(again).configured(|c| {
        let sums = endpoint(
            json!({"tools": ["a*"], "exclude_tools": ["again"], "instructions": "Sums only."}),
        );
        c.endpoints.insert("sums".to_owned(), sums);
        c.server.instructions = Some("All of it.".to_owned());
    })
}

#[test]
fn an_endpoint_has_what_is_named_and_nothing_else() {
    let server = two().start();
    assert_eq!(tools(&server, "/mcp"), ["add", "again"]);
    assert_eq!(tools(&server, "/mcp/sums"), ["add"]);
    assert_eq!(tools(&server, "/mcp/sums/"), ["add"]);
    let (id, initialized) = session(&server, "/mcp/sums");
    assert_eq!(initialized["instructions"], "Sums only.");
    let call = |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        ask(&server, "/mcp/sums", &id, "tools/call", params)
    };
    let sum = call("add", json!({"a": 1, "b": 2})).result();
    assert_eq!(sum["content"][0]["text"], "3");
    let refused = call("again", json!({"text": "x"})).error(200, -32602, "1");
    assert!(refused.starts_with("Unknown tool: again"), "{refused}");
    // DISC-02: a capability that the endpoint does not offer does not exist.
    ask(&server, "/mcp/sums", &id, "resources/list", json!({})).error(200, -32601, "1");
}

#[test]
fn lh_08_a_session_of_one_endpoint_is_unknown_at_every_other() {
    let server = two()
        .configured(|c| {
            let other = endpoint(json!({"tools": ["again"]}));
            c.endpoints.insert("other".to_owned(), other);
        })
        .start();
    let paths = ["/mcp", "/mcp/sums", "/mcp/other"];
    for own in paths {
        let (id, _) = session(&server, own);
        for path in paths {
            let pong = ask(&server, path, &id, "ping", json!({}));
            if path == own {
                assert_eq!(pong.result(), json!({}));
            } else {
                pong.error(404, 404, "");
            }
        }
    }
}

#[test]
fn requests_that_stand_alone_are_answered_there_too() {
    let server = two().start();
    let call = Stateless::call("add", json!({"a": 2, "b": 3}));
    let text = call.text().replacen("POST /mcp ", "POST /mcp/sums ", 1);
    let sum = server.connect().send(text).receive().result();
    assert_eq!(sum["content"][0]["text"], "5");
    let discovered = send(
        &server,
        "/mcp/sums",
        &[
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "server/discover"),
        ],
        &request("server/discover", &json!({"_meta": meta()})),
    );
    assert_eq!(discovered.result()["instructions"], "Sums only.");
}

#[test]
fn an_endpoint_that_is_not_configured_is_not_there() {
    let server = two().start();
    for path in ["/mcp/nothing", "/mcp/", "/mcp/sums/more", "/mcp/SUMS"] {
        let response = send(&server, path, &[], &request("ping", &json!({})));
        let there = path == "/mcp/";
        assert_eq!(response.status == 404, !there, "{path}: {response:?}");
    }
    let wrong = server
        .connect()
        .send("PUT /mcp/sums HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        .receive();
    assert_eq!(wrong.status, 405);
}

#[test]
fn names_with_another_meaning_and_endpoints_without_contents_are_refused() {
    for (name, config, told) in [
        (
            "sse",
            json!({"tools": ["*"]}),
            "is reserved; choose another name",
        ),
        (
            "respond",
            json!({"tools": ["*"]}),
            "is reserved; choose another name",
        ),
        (
            "messages",
            json!({"tools": ["*"]}),
            "is reserved; choose another name",
        ),
        ("A b", json!({"tools": ["*"]}), "1 to 64 characters"),
        (
            "x",
            json!({}),
            "it selects nothing; set tools, resources or prompts",
        ),
        ("x", json!({"tools": ["["]}), "tools: "),
    ] {
        let mut all = Config::default();
        all.http.port = 0;
        all.endpoints.insert(name.to_owned(), endpoint(config));
        let refused = crate::support::bind(App::new().tool(add).config(all));
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains(told), "{name}: {error}");
    }
    let mut config = Config::default();
    config.http.port = 0;
    let twice = App::new()
        .endpoint("a", App::new().tool(add))
        .endpoint("a", App::new().tool(again));
    let error = crate::support::bind(twice.config(config))
        .expect_err("refused")
        .to_string();
    assert_eq!(
        error,
        "the endpoint /mcp/a cannot be: two endpoints have this name; rename one"
    );
}

#[test]
fn another_application_is_served_beside_this_one() {
    let other = App::new().name("sums", "7").instructions("Sums.").tool(add);
    let announcer = other.announcer();
    let server = Serve::new()
        .tool(again)
        .app(|app| app.endpoint("sums", other))
        .start();
    assert_eq!(tools(&server, "/mcp"), ["again"]);
    assert_eq!(tools(&server, "/mcp/sums"), ["add"]);
    let (id, initialized) = session(&server, "/mcp/sums");
    assert_eq!(initialized["serverInfo"]["name"], "sums");
    assert_eq!(initialized["instructions"], "Sums.");
    let mut stream = server.connect();
    let get = format!(
        "GET /mcp/sums HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {id}\r\n\r\n"
    );
    assert_eq!(stream.send(get).receive_head().status, 200);
    announcer.tools_changed();
    assert_eq!(stream.event(), Some(crate::lasting::changed("tools")));
}

#[test]
fn rules_and_keys_hold_at_every_endpoint() {
    let server = two()
        .configured(|c| {
            crate::auth::with_keys(c);
            c.policy = serde_json::from_value(json!({"rules": [
                {"effect": "deny", "name": "no sums for bob", "principals": ["key:bob"], "tools": ["add"]},
            ]}))
            .expect("valid");
        })
        .start();
    let list = |key: Option<&str>| {
        let call = Stateless::new("tools/list", json!({}));
        let call = match key {
            Some(key) => call.and("authorization", &crate::auth::bearer(key)),
            None => call,
        };
        let text = call.text().replacen("POST /mcp ", "POST /mcp/sums ", 1);
        server.connect().send(text).receive()
    };
    assert_eq!(list(None).status, 401);
    let seen = |key| list(Some(key)).result()["tools"].as_array().map(Vec::len);
    assert_eq!(seen(crate::auth::CI), Some(1));
    assert_eq!(seen(crate::auth::BOB), Some(0));
}

#[test]
fn an_endpoint_tells_of_changes_of_its_own_resources_only() {
    let text = |uri: &str| {
        let definition = ResourceDefinition::new(uri, uri);
        resource_fn(definition, |_| async { Ok("text") })
    };
    let mut announcer = None;
    let server = two()
        .app(|app| {
            announcer = Some(app.announcer());
            app.resource(text("test://one"))
                .resource(text("test://two"))
        })
        .configured(|c| {
            let one = endpoint(json!({"resources": ["test://one", "test://later*"]}));
            c.endpoints.insert("one".to_owned(), one);
        })
        .start();
    let announcer = announcer.expect("an application");
    let uris = ["test://two", "test://one", "test://later/1", "test://never"];
    let filter = json!({"notifications": {"resourceSubscriptions": uris}});
    let listen = Stateless::new("subscriptions/listen", filter);
    let text = listen.text().replacen("POST /mcp ", "POST /mcp/one ", 1);
    let mut stream = server.connect();
    assert_eq!(stream.send(text).receive_head().status, 200);
    let accepted = stream.event().expect("an acknowledgement");
    assert_eq!(
        accepted["params"]["notifications"]["resourceSubscriptions"],
        json!(["test://one", "test://later/1"])
    );
    for uri in uris {
        announcer.resource_changed(uri);
    }
    for uri in ["test://one", "test://later/1"] {
        let told = stream.event().expect("a notification");
        assert_eq!(told["params"]["uri"], uri);
    }
    let (id, _) = session(&server, "/mcp/one");
    let subscribe = |uri: &str| {
        let params = json!({ "uri": uri });
        ask(&server, "/mcp/one", &id, "resources/subscribe", params)
    };
    assert_eq!(subscribe("test://one").result(), json!({}));
    subscribe("test://two").error(200, -32002, "1");
}
