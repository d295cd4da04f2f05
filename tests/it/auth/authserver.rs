//! The authorization server in front of an identity provider, over a socket. Its endpoints are tested in its crate; here is
//! how it is served beside the MCP endpoint.

use serde_json::json;

use super::bearer;
use crate::support::{Response, Running, Serve};

fn served() -> Running {
    served_with(|_| {})
}

fn served_with(change: impl FnOnce(&mut longshore::Config)) -> Running {
    Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            c.http.public_url = Some("https://mcp.example.com".to_owned());
            c.auth.oauth.scopes = vec!["mcp".to_owned()];
            let facade = &mut c.auth.oauth.facade;
            facade.provider = Some("https://id.example.com".to_owned());
            facade.client_id = Some("longshore".to_owned());
            facade.client_secret = Some("secret".to_owned().into());
        })
        .configured(change)
        .shared_key()
        .admin()
        .start()
}

fn send(server: &Running, head: &str, body: &str) -> Response {
    let length = body.len();
    server
        .connect()
        .send(format!(
            "{head} HTTP/1.1\r\nHost: mcp.example.com\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .receive()
}

#[test]
fn auth_13_an_unauthenticated_client_finds_the_authorization_server_and_registers() {
    let server = served();
    let challenge = server.post(&[], "{}");
    assert_eq!(challenge.status, 401);
    let resource = send(&server, "GET /.well-known/oauth-protected-resource/mcp", "").json();
    let issuer = json!(["https://mcp.example.com"]);
    assert_eq!(resource["authorization_servers"], issuer);

    let metadata = send(&server, "GET /.well-known/oauth-authorization-server", "");
    assert_eq!(metadata.header("access-control-allow-origin"), Some("*"));
    let metadata = metadata.json();
    assert_eq!(metadata["issuer"], "https://mcp.example.com");
    // Clients that read no metadata use the default endpoints.
    for (name, path) in [
        ("authorization_endpoint", "authorize"),
        ("token_endpoint", "token"),
        ("registration_endpoint", "register"),
    ] {
        assert_eq!(metadata[name], format!("https://mcp.example.com/{path}"));
    }
    assert_eq!(metadata["scopes_supported"], json!(["mcp"]));

    let client = r#"{"client_name":"Editor","redirect_uris":["http://127.0.0.1/callback"]}"#;
    let registered = send(&server, "POST /register", client);
    assert_eq!(registered.status, 201);
    assert!(registered.json()["client_id"].is_string());

    let keys = send(&server, "GET /.well-known/jwks.json", "").json();
    assert_eq!(keys["keys"][0]["crv"], "Ed25519");

    // Each step is counted by its outcome.
    send(&server, "GET /authorize?client_id=unknown", "");
    send(&server, "POST /token", "grant_type=password");
    let metrics = server.admin_page("/metrics").body;
    for (step, outcome) in [
        ("register", "ok"),
        ("authorize", "invalid_client"),
        ("token", "invalid_request"),
    ] {
        let line =
            format!("longshore_auth_logins_total{{step=\"{step}\",outcome=\"{outcome}\"}} 1");
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[test]
fn tokens_of_others_and_values_of_other_purposes_do_not_open_the_endpoint() {
    let server = served();
    let client = r#"{"redirect_uris":["http://127.0.0.1/callback"]}"#;
    let registered = send(&server, "POST /register", client).json();
    let client_id = registered["client_id"].as_str().expect("an ID");
    for token in [client_id, "a.b.c", "e30.e30.e30"] {
        let denied = server.post(&[("Authorization", &bearer(token))], "{}");
        assert_eq!(denied.status, 401, "{token}");
    }
}

/// RFC 6749, section 2.3.1: the server must protect the endpoint against guesses.
#[test]
fn who_guesses_the_secret_of_a_client_too_often_is_told_to_wait() {
    let server = served_with(|c| {
        c.limits.failed_authentications_per_minute = Some(2);
        let client = json!({"id": "console", "redirect_uris": ["https://console.example/cb"], "secret": "secret-of-the-console"});
        c.auth.oauth.facade.clients = vec![serde_json::from_value(client).expect("a client")];
    });
    let guess = |path: &str, secret: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: mcp.example.com\r\nContent-Type: application/x-www-form-urlencoded"
        );
        let body = format!(
            "client_id=console&client_secret={secret}&grant_type=refresh_token&refresh_token=x&token=x"
        );
        let length = body.len();
        let text = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        server.connect().send(text).receive()
    };
    assert_eq!(guess("/revoke", "secret-of-the-console").status, 200);
    assert_eq!(guess("/token", "secret-of-the-console").status, 400);
    assert_eq!(guess("/token", "guess").status, 401);
    assert_eq!(guess("/revoke", "guess").status, 401);
    for path in ["/token", "/revoke"] {
        for secret in ["guess", "secret-of-the-console"] {
            let response = guess(path, secret);
            assert_eq!(response.status, 429, "{path} {secret}");
            assert_eq!(response.json()["error"], "temporarily_unavailable");
            let seconds = response
                .header("retry-after")
                .expect("a time")
                .parse::<u64>();
            assert!((1..=31).contains(&seconds.expect("a number")));
        }
    }
    // Clients without a secret have nothing to guess.
    let client = r#"{"redirect_uris":["http://127.0.0.1/callback"]}"#;
    assert_eq!(send(&server, "POST /register", client).status, 201);
}

#[test]
fn a_server_without_the_setting_has_none_of_the_paths() {
    let server = Serve::demo();
    for head in [
        "GET /authorize",
        "POST /token",
        "POST /register",
        "GET /oauth/callback",
    ] {
        let response = server
            .connect()
            .send(format!(
                "{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
            ))
            .receive();
        assert_eq!(response.status, 404, "{head}");
    }
}
