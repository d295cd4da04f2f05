//! Server card and catalogue (draft of SEP-2127), and entity tags of documents.

use longshore::App;
use serde_json::{Value, json};

use crate::support::{Response, Running, Serve};

fn served() -> Running {
    Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            c.server.title = Some("Weather".to_owned());
            c.http.public_url = Some("https://mcp.example.com".to_owned());
            c.http.server_card.name = Some("com.example/weather".to_owned());
            c.endpoints.insert(
                "small".to_owned(),
                serde_json::from_value(json!({"tools": ["echo"], "title": "Small weather"}))
                    .expect("valid"),
            );
        })
        .start()
}

fn get(server: &Running, path: &str, more: &str) -> Response {
    let text = format!("GET {path} HTTP/1.1\r\nhost: mcp.example.com\r\n{more}\r\n");
    server.connect().send(text).receive()
}

fn parsed(response: &Response) -> Value {
    serde_json::from_str(&response.body).expect("JSON")
}

#[test]
fn a_catalogue_leads_to_the_card_of_each_endpoint() {
    let server = served();
    let catalogue = get(&server, "/.well-known/ai-catalog.json", "");
    assert_eq!(
        catalogue.header("content-type"),
        Some("application/ai-catalog+json")
    );
    assert_eq!(
        parsed(&catalogue),
        json!({"specVersion": "1.0", "entries": [
            {
                "identifier": "urn:air:example.com:mcp:weather", "type": "application/mcp-server-card+json",
                "url": "https://mcp.example.com/mcp/server-card",
            },
            {
                "identifier": "urn:air:example.com:mcp:weather-small", "type": "application/mcp-server-card+json",
                "url": "https://mcp.example.com/mcp/small/server-card",
            },
        ]})
    );
    let card = get(&server, "/mcp/server-card", "");
    assert_eq!(
        card.header("content-type"),
        Some("application/mcp-server-card+json")
    );
    assert_eq!(card.header("access-control-allow-origin"), Some("*"));
    let document = parsed(&card);
    assert_eq!(document["name"], "com.example/weather");
    assert_eq!(
        [&document["title"], &document["description"]],
        ["Weather"; 2]
    );
    assert_eq!(
        document["remotes"][0],
        json!({
            "type": "streamable-http", "url": "https://mcp.example.com/mcp",
            "supportedProtocolVersions": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
        })
    );
    let small = parsed(&get(&server, "/mcp/small/server-card", ""));
    assert_eq!(
        small["remotes"][0]["url"],
        "https://mcp.example.com/mcp/small"
    );
    assert_eq!(
        [&small["title"], &small["description"]],
        ["Small weather"; 2]
    );
    assert_eq!(get(&served_without(), "/mcp/server-card", "").status, 404);
}

#[test]
fn pages_of_every_origin_may_read_a_card_and_ask_whether_it_has_changed() {
    let page = "https://app.example.com";
    let server = Serve::new()
        .configured(|c| {
            c.http.public_url = Some("https://mcp.example.com".to_owned());
            c.http.allowed_origins = vec![page.to_owned()];
            c.http.server_card.name = Some("com.example/weather".to_owned());
        })
        .start();
    for (origin, allowed) in [(page, page), ("https://other.example.com", "*")] {
        let ask = format!(
            "OPTIONS /mcp/server-card HTTP/1.1\r\nhost: mcp.example.com\r\norigin: {origin}\r\n\
             access-control-request-method: GET\r\naccess-control-request-headers: if-none-match\r\n\r\n"
        );
        let response = server.connect().send(ask).receive_head();
        assert_eq!(response.status, 204, "{origin}");
        let found = response.header("access-control-allow-origin");
        assert_eq!(found, Some(allowed));
        let card = get(
            &server,
            "/mcp/server-card",
            &format!("origin: {origin}\r\n"),
        );
        assert_eq!(card.header("access-control-allow-origin"), Some("*"));
    }
}

#[test]
fn an_endpoint_of_another_application_has_a_card_with_its_name() {
    let server = Serve::new()
        .configured(|c| {
            c.server.title = Some("Weather".to_owned());
            c.http.public_url = Some("https://mcp.example.com".to_owned());
            c.http.server_card.name = Some("com.example/weather".to_owned());
        })
        .app(|app| {
            let named = App::new().name("sums", "7");
            app.endpoint("sums", named).endpoint("other", App::new())
        })
        .start();
    let catalogue = parsed(&get(&server, "/.well-known/ai-catalog.json", ""));
    assert_eq!(catalogue["entries"].as_array().map(Vec::len), Some(3));
    let sums = parsed(&get(&server, "/mcp/sums/server-card", ""));
    assert_eq!(sums["name"], "com.example/weather-sums");
    assert_eq!([&sums["title"], &sums["version"]], ["sums", "7"]);
    assert_eq!(
        sums["remotes"][0]["url"],
        "https://mcp.example.com/mcp/sums"
    );
    let other = parsed(&get(&server, "/mcp/other/server-card", ""));
    assert_eq!(other["title"], "Weather");
}

fn served_without() -> Running {
    Serve::new()
        .configured(|c| c.http.public_url = Some("https://mcp.example.com".to_owned()))
        .start()
}

#[test]
fn documents_are_sent_again_only_if_they_have_changed() {
    let server = served();
    for path in ["/mcp/server-card", "/.well-known/ai-catalog.json", "/tools"] {
        let first = get(&server, path, "");
        assert_eq!(first.status, 200, "{path}");
        let tag = first.header("etag").expect("a tag").to_owned();
        let again = get(&server, path, &format!("if-none-match: {tag}\r\n"));
        assert_eq!((again.status, &*again.body), (304, ""), "{path}");
        assert_eq!(again.header("etag"), Some(&*tag));
        let other = get(&server, path, "if-none-match: \"other\"\r\n");
        assert_eq!(other.status, 200, "{path}");
    }
}
