//! What `longshore doctor` says of certificates, credentials, other origins and logins.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use longshore::seal::Secret;
use serde_json::json;

use super::{Filter, at, demo, doctor, in_front, pass_on};
use crate::support::{Running, Serve, Site, Told, free_port, tls_file};

#[test]
fn certificates_are_looked_at_as_clients_do() {
    let server = demo().tls().start();
    let url = format!("https://localhost:{}/mcp", server.address().port());
    let said = doctor(&["--url", &url, "--hold", "1"], &[]);
    assert_eq!(said.code, Some(1));
    said.assert("tls", "chain", "failure", &["--ca", "whole chain"]);
    said.assert("streams", "subscriptions/listen", "ok", &[]);
    let ca = tls_file("ca.crt").display().to_string();
    let said = doctor(&["--url", &url, "--hold", "1", "--ca", &ca], &[]);
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("tls", "chain", "ok", &[]);
    said.assert("tls", "expiry", "ok", &["valid until 2"]);
    said.assert("tls", "versions", "ok", &["TLS 1.3 and 1.2; HTTP/2"]);
    said.assert("tls", "old versions", "ok", &["rejected"]);
}

#[test]
fn a_port_that_speaks_the_other_scheme_is_named_with_the_url_to_use() {
    let (plain, secure) = (demo().start(), demo().tls().start());
    let url = |scheme: &str, server: &Running| {
        format!("{scheme}://localhost:{}/mcp", server.address().port())
    };
    let said = doctor(&["--url", &url("https", &plain)], &[]);
    let right = url("http", &plain);
    said.assert("tls", "handshake", "failure", &[&right]);
    let said = doctor(&["--url", &url("http", &secure)], &[]);
    let right = url("https", &secure);
    said.assert("access", "endpoint", "failure", &["speaks TLS", &right]);
}

/// The version in the first message of a client that speaks TLS.
fn hello_version(stream: &TcpStream) -> Option<[u8; 2]> {
    let mut said = [0; 11];
    loop {
        match stream.peek(&mut said).ok()? {
            0 => return None,
            11 => return Some([said[9], said[10]]),
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn versions_of_tls_that_nobody_should_speak_are_told() {
    let server = demo().tls().start();
    let address = server.address();
    let front = in_front(move |mut stream| match hello_version(&stream) {
        // It continues in TLS 1.1, and rejects TLS 1.0.
        Some([3, 2]) => {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(&[22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2]);
            let _ = stream.write_all(&[0; 36]);
        }
        Some([3, 1]) => {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(&[21, 3, 1, 0, 2, 2, 70]);
        }
        _ => pass_on(stream, address, |_| Filter::Pass),
    });
    let url = format!("https://localhost:{}/mcp", front.port());
    let ca = tls_file("ca.crt").display().to_string();
    let said = doctor(&["--url", &url, "--hold", "1", "--ca", &ca], &[]);
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("tls", "versions", "ok", &[]);
    said.assert(
        "tls",
        "old versions",
        "warning",
        &["TLS 1.1 is accepted", "ssl_protocols"],
    );
}

#[test]
fn who_asks_for_a_proof_is_asked_with_one() {
    const KEY: &str = "a-key-that-is-long-enough-for-everybody";
    let server = demo()
        .configured(|c| {
            c.auth.api_keys = vec![longshore::auth::ApiKeyConfig {
                name: "ci".to_owned(),
                keys: vec![Secret::from(KEY.to_owned())],
                ..longshore::auth::ApiKeyConfig::default()
            }];
        })
        .start();
    let url = at(server.address());
    let said = doctor(&["--url", &url], &[]);
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("protocol", "everything", "skipped", &[]);
    assert!(said.finding("protocol", "everything")["seen"].is_string());
    // As read from a file.
    let token = format!("{KEY}\n");
    let said = doctor(
        &["--url", &url, "--hold", "1"],
        &[("LONGSHORE_TOKEN", &token)],
    );
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("sessions", "replicas", "ok", &[]);
    assert!(!said.json.to_string().contains(KEY));
}

#[test]
fn pages_that_are_to_call_are_tried_as_a_browser_would() {
    let server = demo()
        .configured(|c| c.http.allowed_origins = vec!["https://app.example.com".to_owned()])
        .start();
    let url = at(server.address());
    let with = |origin: &str| doctor(&["--url", &url, "--hold", "1", "--origin", origin], &[]);
    with("https://app.example.com").assert(
        "guards",
        "preflight",
        "ok",
        &["may call, and can read the needed headers"],
    );
    with("https://other.example.com").assert(
        "guards",
        "preflight",
        "failure",
        &["http.allowed_origins", "https://other.example.com"],
    );
}

/// A server in front of an identity provider whose login page responds so.
fn in_front_of_provider(page: &'static str) -> (Running, Site) {
    let provider = Site::start(move |issuer, asked| match &*asked.target {
        "/.well-known/openid-configuration" => Told::json(
            200,
            json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/login"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            }),
        ),
        "/keys" => Told::json(
            200,
            json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}),
        ),
        _ => Told::html(page),
    });
    let url = provider.url.clone();
    let port = free_port();
    let server = Serve::new()
        .configured(move |c| {
            c.toolsets.push("demo".to_owned());
            c.http.public_url = Some(format!("http://127.0.0.1:{port}"));
            c.http.port = port;
            let facade = &mut c.auth.oauth.facade;
            facade.provider = Some(url);
            facade.client_id = Some("longshore".to_owned());
            facade.client_secret = Some("secret".to_owned().into());
        })
        .shared_key()
        .start();
    (server, provider)
}

#[test]
fn a_login_is_walked_up_to_the_page_of_the_provider() {
    let (server, provider) = in_front_of_provider("<h1>Log in</h1>");
    let url = at(server.address());
    let said = doctor(&["--url", &url, "--login"], &[]);
    said.assert("login", "registration", "ok", &[]);
    said.assert("login", "login page", "ok", &["127.0.0.1"]);
    let asked = provider.asked("/login").pop().expect("the login page");
    assert!(asked.target.contains("client_id=longshore"), "{asked:?}");
    // RFC 8707, 2: the identifier of the server has no query.
    let with_query = doctor(&["--url", &format!("{url}?a=1#b"), "--login"], &[]);
    with_query.assert("authorization", "resource", "ok", &[]);
    with_query.assert("login", "login page", "ok", &["127.0.0.1"]);
    let without = doctor(&["--url", &url], &[]);
    assert!(without.find("login", "registration").is_none());

    let (server, _provider) =
        in_front_of_provider("<title>Sign in</title> AADSTS50011: The redirect URI");
    let said = doctor(&["--url", &at(server.address()), "--login"], &[]);
    said.assert(
        "login",
        "login page",
        "failure",
        &["AADSTS50011", "/oauth/callback", "register"],
    );
}

#[test]
fn the_query_of_the_url_is_sent() {
    let site = Site::start(|_, asked| match &*asked.target {
        "/mcp?tenant=a" => Told::json(
            200,
            json!({"jsonrpc": "2.0", "id": 1, "result": {
                "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "shop", "version": "1"},
            }}),
        ),
        _ => Told::json(404, json!({})),
    });
    let said = doctor(&["--url", &format!("{}/mcp?tenant=a", site.url)], &[]);
    said.assert("protocol", "sessions", "ok", &["shop 1 speaks 2025-11-25"]);
    said.assert("protocol", "Accept", "ok", &[]);
    said.assert("protocol", "trailing slash", "warning", &["/mcp/"]);
}
