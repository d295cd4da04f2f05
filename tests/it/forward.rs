//! Who calls, told to the APIs behind tools.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::auth::{BOB, CI, bearer, with_keys};
use crate::support::{Running, Serve, Site, Stateless, Told, assert_contains};

/// An API that returns the headers of each request.
fn api() -> Site {
    Site::start(|_, asked| Told::json(200, json!({ "headers": asked.headers })))
}

/// A server with one tool of each kind of source.
fn serve(api: &Site) -> Running {
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Orders", "version": "1"},
        "paths": {"/orders": {"get": {"operationId": "list", "responses": {"200": {"description": "Orders."}}}}},
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("orders.json");
    std::fs::write(&file, document.to_string()).expect("written");
    let assertion = json!({
        "audience": "https://orders.internal",
        "issuer": "https://mcp.example.com",
        "header": "x-assertion",
        "claims": ["scope"],
    });
    let sources = json!([
        {"name": "orders", "openapi": {
            "document": file,
            "server": api.url,
            "forward": {"headers": {"x-user": "{{ caller.name }}"}, "assertion": assertion},
        }},
        {"name": "plain", "http": {
            "base_url": api.url,
            "headers": {"authorization": "Bearer of-the-service"},
            "forward": {"headers": {"x-kind": "{{ caller.kind }}"}},
            "tools": [
                {"name": "who", "url": "/who/{{ caller.name }}"},
                {"name": "kinds", "url": "/kinds", "query": {"kind": "{{ caller.kind }}"}},
            ],
        }},
        {"name": "strict", "http": {
            "base_url": api.url,
            "forward": {"headers": {"x-mail": "{{ caller.claims.email }}"}},
            "tools": [{"name": "mail", "url": "/mail"}],
        }},
    ]);
    let sources = serde_json::from_value(sources).expect("sources");
    let server = Serve::new()
        .configured(|config| {
            config.sources = sources;
            with_keys(config);
        })
        .start();
    drop(folder);
    server
}

fn call(server: &Running, tool: &str, key: &str) -> Value {
    let call = Stateless::call(tool, json!({}));
    let response = call.and("authorization", &bearer(key)).send(server);
    serde_json::from_str(&response.body).expect("JSON")
}

fn headers(api: &Site, path: &str) -> std::collections::BTreeMap<String, String> {
    let asked = api.asked(path).pop();
    asked
        .unwrap_or_else(|| panic!("no request to {path}"))
        .headers
}

fn decoded(part: &str) -> Value {
    let bytes = URL_SAFE_NO_PAD.decode(part).expect("base64url");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn an_api_is_told_who_calls_and_can_verify_it() {
    let api = api();
    let server = serve(&api);
    let result = call(&server, "orders__list", CI);
    let sent = headers(&api, "/orders");
    assert_eq!(sent["x-user"], "key:ci");
    assert!(!sent.contains_key("authorization"), "{sent:?}");
    let jwt = &sent["x-assertion"];
    let parts: Vec<&str> = jwt.split('.').collect();
    let (header, claims) = (decoded(parts[0]), decoded(parts[1]));
    assert_eq!(header["typ"], "caller+jwt");
    assert_eq!(claims["sub"], "key:ci");
    assert_eq!(claims["aud"], "https://orders.internal");
    assert_eq!(claims["iss"], "https://mcp.example.com");
    assert_eq!(claims["scope"], "");
    // An API that echoes the assertion does not hand it to the caller.
    assert!(!result.to_string().contains(parts[2]), "{result}");

    // The keys are public, and contain the one that signed.
    let get = "GET /.well-known/caller-jwks.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let keys = server.connect().send(get).receive();
    assert_eq!(keys.status, 200);
    assert_eq!(
        keys.header("content-type"),
        Some("application/jwk-set+json")
    );
    let keys: Value = serde_json::from_str(&keys.body).expect("JSON");
    let ids: Vec<&Value> = keys["keys"]
        .as_array()
        .expect("keys")
        .iter()
        .map(|key| &key["kid"])
        .collect();
    assert!(ids.contains(&&header["kid"]), "{keys}");
    assert!(keys["keys"][0].get("d").is_none(), "no private key");
    let post = "POST /.well-known/caller-jwks.json HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(server.connect().send(post).receive().status, 405);
}

#[test]
fn each_caller_is_told_as_itself_and_nothing_else_is_forwarded() {
    let api = api();
    let server = serve(&api);
    call(&server, "who", CI);
    call(&server, "who", BOB);
    for (path, key) in [("/who/key%3Aci", CI), ("/who/key%3Abob", BOB)] {
        let sent = headers(&api, path);
        assert_eq!(sent["x-kind"], "api_key");
        assert_eq!(sent["authorization"], "Bearer of-the-service");
        assert!(sent.values().all(|value| !value.contains(key)), "{sent:?}");
    }
    call(&server, "kinds", CI);
    let asked = api.asked("/kinds").pop().expect("a request");
    assert_eq!(asked.target, "/kinds?kind=api_key");
}

#[test]
fn a_caller_without_the_claim_is_refused_and_the_api_not_asked() {
    let api = api();
    let server = serve(&api);
    let refused = call(&server, "mail", CI);
    assert!(api.asked("/mail").is_empty());
    let text = refused.to_string();
    assert_contains(&text, &["x-mail", "credentials"]);
}

#[test]
fn a_placeholder_for_a_missing_fact_rejects_the_call() {
    let api = api();
    let sources = json!([
        {"name": "h", "http": {"base_url": api.url, "tools": [
            {"name": "query", "url": "/orders", "query": {"owner": "{{ caller.subject }}"}},
            {"name": "header", "url": "/orders", "headers": {"x-owner": "{{ caller.subject }}"}},
            {"name": "path", "url": "/orders/{{ caller.subject }}"},
            {"name": "mixed", "url": "/orders", "query": {"owner": "u-{{ caller.subject }}"}},
            {"name": "json", "method": "POST", "url": "/orders", "json": {"owner": "{{ caller.claims.tenant }}"}},
        ]}},
        {"name": "c", "command": {"tools": [
            {"name": "line", "argv": ["echo", "orders", "--owner={{ caller.subject }}"]},
            {"name": "group", "argv": ["echo", "orders", ["--owner", "{{ caller.subject }}"]]},
            {"name": "input", "argv": ["cat"], "stdin": "{{ caller.subject }}"},
        ]}},
    ]);
    let sources = serde_json::from_value(sources).expect("sources");
    let server = Serve::new()
        .configured(|config| {
            config.sources = sources;
            with_keys(config);
        })
        .start();
    for tool in [
        "query", "header", "path", "mixed", "json", "line", "group", "input",
    ] {
        let refused = call(&server, tool, CI);
        assert_eq!(refused["error"]["code"], 403, "{tool}: {refused}");
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("do not contain caller."),
            "{tool}: {message}"
        );
    }
    assert!(api.asked("/orders").is_empty());
}

#[test]
fn settings_that_cannot_work_are_reported_at_their_place() {
    let sources = json!([
        {"name": "a", "http": {"base_url": "https://api.example.com", "forward": {"headers": {"x-user": "{{ user }}"}},
            "tools": [{"name": "a", "url": "/a"}]}},
        {"name": "b", "http": {"base_url": "https://api.example.com", "forward": {"assertion": {"audience": "api"}},
            "tools": [{"name": "b", "url": "/b"}]}},
        {"name": "c", "command": {"tools": [{"name": "say", "argv": ["printf", "%s", "{{ caller.name }}"]}]}},
    ]);
    let sources = serde_json::from_value(sources).expect("sources");
    let server = Serve::new()
        .configured(|config| config.sources = sources)
        .start();
    let health = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut health = server.connect().send(health).receive().json();
    let refused = health["refused"].take();
    let places: Vec<&str> = refused
        .as_array()
        .expect("a list")
        .iter()
        .map(|refused| refused["place"].as_str().expect("a place"))
        .collect();
    assert_eq!(
        places,
        [
            "sources[0].http.forward.headers.x-user",
            "sources[1].http.forward.assertion.issuer",
        ]
    );
    let said = Stateless::call("say", json!({})).send(&server).result();
    assert_eq!(said["content"][0]["text"], "anonymous");
}
