//! Secrets, and where they are sent.

use super::*;

#[tokio::test]
async fn eli_08_what_a_scheme_was_given_is_taken_out_of_answers() {
    let (server, seen) = serve(|request| {
        let status = match request.contains("/fails") {
            true => "403 Forbidden",
            false => "200 OK",
        };
        response(
            &format!("{status}\r\ncontent-type: text/plain"),
            request.as_bytes(),
        )
    })
    .await;
    let schemes = json!({
        "head": {"type": "apiKey", "in": "header", "name": "x-key"},
        "query": {"type": "apiKey", "in": "query", "name": "key"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": "key"},
        "basic": {"type": "http", "scheme": "basic"},
        "bearer": {"type": "http", "scheme": "bearer"},
        "oauth": {"type": "oauth2", "flows": {}},
    });
    let none = json!({"default": {"description": "any"}});
    for (scheme, secret) in [
        ("head", "canary+of/it="),
        ("query", "canary+of/it="),
        ("cookie", "canary-of-it"),
        ("basic", "me:canary-of-it"),
        ("bearer", "canary-of-it"),
        ("oauth", "canary-of-it"),
    ] {
        let mut document = with_responses(&[("works", none.clone()), ("fails", none.clone())]);
        document["servers"] = json!([{"url": format!("http://{server}")}]);
        document["security"] = json!([{scheme: []}]);
        document["components"] = json!({"securitySchemes": schemes});
        let collector = import_with(document, json!({"credentials": {scheme: secret}}));
        for name in ["works", "fails"] {
            let reported = match call(&collector, name, json!({})).await {
                Ok(output) => format!("{output:?}"),
                Err(message) => message,
            };
            let sent = seen.lock().expect("no panic").pop().expect("a request");
            assert!(
                sent.contains("canary") || sent.contains("bWU6Y2FuYXJ5"),
                "{sent}"
            );
            assert!(reported.contains("***"), "{scheme}: {reported}");
            for part in ["canary", "bWU6Y2FuYXJ5"] {
                assert!(!reported.contains(part), "{scheme}: {reported}");
            }
        }
    }
}

#[test]
fn a_secret_that_no_header_can_hold_is_refused_in_a_cookie_too() {
    for place in ["header", "cookie"] {
        let mut document = with_responses(&[("a", json!({}))]);
        document["security"] = json!([{"key": []}]);
        let scheme = json!({"type": "apiKey", "in": place, "name": "x-key"});
        document["components"] = json!({"securitySchemes": {"key": scheme}});
        let collector = import_with(document, json!({"credentials": {"key": "a\u{7f}b"}}));
        let problem = &refusals(&collector)[0];
        assert!(problem.contains("no header can hold"), "{place}: {problem}");
    }
}

#[tokio::test]
async fn sec_12_the_query_of_a_documents_url_is_not_told() {
    let (server, _) = serve(|request| {
        let body: &[u8] = match request.starts_with("GET /broken?") {
            true => b"{",
            false => b"{}",
        };
        response("200 OK\r\ncontent-type: application/json", body)
    })
    .await;
    for path in ["broken", "other"] {
        let url = format!("http://{server}/{path}");
        let config = json!({"document": format!("{url}?token=canary")});
        let config: OpenApiSourceConfig = serde_json::from_value(config).expect("a configuration");
        let unread = Document::read(&config, ImportLimits::new(&config, 0)).await;
        let problem = unread.expect_err("no document").problem;
        assert!(problem.starts_with(&format!("{url}: ")), "{problem}");
    }
}

const SECRETS: [&str; 3] = ["auth", "credentials", "headers"];

/// Returns one of the settings that hold secrets.
fn with_secret(which: &str) -> Value {
    match which {
        "auth" => json!({"auth": {"bearer": "canary"}}),
        "credentials" => json!({"credentials": {"key": "canary"}}),
        _ => json!({"headers": {"x-any": "canary"}}),
    }
}

#[test]
fn a_fetched_document_does_not_decide_where_credentials_go() {
    let there = "https://api.example.com";
    let elsewhere = "https://docs.example.com/openapi.json";
    for which in SECRETS {
        let secret = with_secret(which);
        let refused = import_fetched(petstore("3.1.0", there), elsewhere, secret.clone());
        let problems = refusals(&refused);
        assert!(
            problems[0].contains("sources[0].openapi.server")
                && problems[0].contains("https://api.example.com/v2")
                && problems[0].contains("set openapi.server"),
            "{problems:?}"
        );
        assert_eq!(refused.offered.tools.len(), 0);
        // The operator knows the document's own origin, and the configured server.
        let own = import_fetched(
            petstore("3.1.0", there),
            "https://api.example.com/openapi.json",
            secret.clone(),
        );
        assert_eq!(own.offered.tools.len(), 7, "{:?}", refusals(&own));
        let mut named = secret.clone();
        named["server"] = there.into();
        let named = import_fetched(petstore("3.1.0", there), elsewhere, named);
        assert_eq!(named.offered.tools.len(), 7, "{:?}", refusals(&named));
        // The operator wrote or reviewed a document in a file.
        let file = import_with(petstore("3.1.0", there), secret);
        assert_eq!(file.offered.tools.len(), 7, "{:?}", refusals(&file));
    }
    let open = import_fetched(petstore("3.1.0", there), elsewhere, json!({}));
    assert_eq!(open.offered.tools.len(), 7, "there is nothing to send");
}

#[test]
fn nor_do_servers_of_its_paths_and_operations() {
    let mut document = petstore("3.1.0", "https://api.example.com");
    document["paths"]["/login"]["servers"] = json!([{"url": "https://evil.example"}]);
    document["paths"]["/pets"]["get"]["servers"] = json!([{"url": "https://evil.example"}]);
    document["paths"]["/pets"]["post"]["servers"] = json!([{"url": "/v3"}]);
    let url = "https://api.example.com/openapi.json";
    for which in SECRETS {
        let collector = import_fetched(document.clone(), url, with_secret(which));
        let problems = refusals(&collector);
        let of_origin: Vec<_> = problems
            .iter()
            .filter(|problem| problem.contains("whose origin differs from that of the fetched document: credentials are not sent there; set openapi.server to the URL of the API"))
            .map(|problem| problem.split(':').next().unwrap_or_default())
            .collect();
        assert_eq!(of_origin.len(), 2, "{problems:?}");
        assert_eq!(collector.offered.tools.len(), 5);
        let file = import_with(document.clone(), with_secret(which));
        // A file has no URL of its own, so it cannot have relative ones.
        assert_eq!(file.offered.tools.len(), 6, "{:?}", refusals(&file));
    }
}

#[tokio::test]
async fn a_part_that_was_fetched_does_not_decide_for_a_document_in_a_file() {
    let (server, _) = serve(|_| {
        let item = json!({
            "get": {"operationId": "taken", "servers": [{"url": "https://evil.example"}], "responses": {}},
            "post": {"operationId": "plain", "responses": {}},
        });
        response("200 OK\r\ncontent-type: application/json", item.to_string().as_bytes())
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("api.json");
    let root = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {"/a": {"$ref": format!("http://{server}/part.json")}},
    });
    std::fs::write(&file, root.to_string()).expect("written");
    let config = json!({
        "document": file, "auth": {"bearer": "canary"}, "egress": {"loopback": true},
    });
    let config: OpenApiSourceConfig = serde_json::from_value(config).expect("a configuration");
    let document = Document::read(&config, ImportLimits::new(&config, 0))
        .await
        .expect("a document");
    let collector = import_document(&config, &document);
    let problems = refusals(&collector);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("GET /a") && problems[0].contains("whose origin differs from that of the fetched document: credentials are not sent there; set openapi.server to the URL of the API"));
    assert_eq!(collector.offered.tools.len(), 1);
}
