//! APIs and upstream servers that require a client certificate.

use longshore::net::{Client, Guard, OutgoingRequest};
use longshore::tool;
use serde_json::{Value, json};
use url::Url;

use crate::support::{Running, Serve, Stateless, tls_file};

/// Says something back.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// Starts a server that rejects connections without a client certificate.
fn strict() -> Running {
    Serve::new()
        .tool(echo)
        .tls()
        .configured(|c| c.http.tls.client_ca = Some(tls_file("ca.crt")))
        .start()
}

fn url(server: &Running, path: &str) -> String {
    format!("https://localhost:{}{path}", server.address().port())
}

/// Serves the strict server as an upstream, an HTTP API and an OpenAPI document.
fn in_front_of(server: &Running, tls: &Value) -> Running {
    let sources = json!([
        {"name": "api", "http": {"base_url": url(server, ""), "tls": tls, "tools": [{"name": "status", "url": "/health"}]}},
        {"name": "document", "openapi": {"document": url(server, "/openapi.json"), "tls": tls}},
    ]);
    let upstream = json!({"url": url(server, "/mcp"), "tls": tls});
    Serve::new()
        .tool(echo)
        .configured(|c| {
            c.sources = serde_json::from_value(sources).expect("sources");
            let upstream = serde_json::from_value(upstream).expect("an upstream");
            c.upstreams.insert("up".to_owned(), upstream);
        })
        .start()
}

fn called(server: &Running, tool: &str) -> (bool, String) {
    let arguments = match tool {
        "status" => json!({}),
        "document__echo" => json!({"body": {"message": "in private"}}),
        _ => json!({"message": "in private"}),
    };
    let result = Stateless::call(tool, arguments).send(server).result();
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    (result["isError"] == true, text.to_owned())
}

#[test]
fn sources_and_upstreams_send_their_client_certificate() {
    let server = strict();
    let tls = json!({"ca": tls_file("ca.crt"), "certificate": tls_file("client.crt"), "key": tls_file("client.key")});
    let gateway = in_front_of(&server, &tls);
    let (failed, text) = called(&gateway, "status");
    assert!(!failed && text.contains("\"tools\""), "{text}");
    for tool in ["document__echo", "up__echo"] {
        let (failed, text) = called(&gateway, tool);
        assert!(!failed && text.contains("in private"), "{tool}: {text}");
    }
}

#[test]
fn calls_without_the_required_certificate_fail() {
    let server = strict();
    let gateway = in_front_of(&server, &json!({"ca": tls_file("ca.crt")}));
    let (failed, text) = called(&gateway, "status");
    assert!(failed, "{text}");
}

#[tokio::test]
async fn the_certificate_is_sent_to_trusted_hosts_only() {
    let server = strict();
    let health: Url = url(&server, "/health").parse().expect("a URL");
    let pem = std::fs::read(tls_file("ca.crt")).expect("certificates");
    let status = async |guard: Guard| {
        let builder = Client::builder(guard).roots(&pem).expect("certificates");
        let builder = builder.identity_files(&tls_file("client.crt"), &tls_file("client.key"));
        let client = builder.expect("a pair").build().expect("a client");
        let sent = client.fetch(OutgoingRequest::get(health.clone())).await;
        sent.map(|response| response.status.as_u16()).ok()
    };
    assert_eq!(status(Guard::public().trust(&health)).await, Some(200));
    assert_eq!(status(Guard::public().allow_loopback()).await, None);
}
