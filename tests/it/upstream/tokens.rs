//! Upstream servers that want tokens.

use std::sync::Arc;

use longshore::auth::{AuthMethod, AuthOutcome, Credentials, Principal};
use longshore::source::UpstreamConfig;
use serde_json::json;

use super::{behind, listed, result};
use crate::support::Serve;

/// Lets in who has a token of this number, counted from 0.
#[derive(Debug)]
struct Numbered(&'static str);

impl AuthMethod for Numbered {
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
        match presented.bearer() {
            Some(token) if token == self.0 => {
                AuthOutcome::Proven(Arc::new(Principal::new("longshore")))
            }
            Some(_) => AuthOutcome::Refused(longshore::auth::AuthError::Invalid("old".into())),
            None => AuthOutcome::Absent,
        }
    }
}

/// An issuer whose tokens are `token0`, `token1` and so on.
fn issuer() -> std::net::SocketAddr {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let mut stream = stream;
            let mut text = Vec::new();
            let mut buffer = [0; 4096];
            while !String::from_utf8_lossy(&text).contains("grant_type=") {
                match stream.read(&mut buffer) {
                    Ok(read) if read > 0 => text.extend_from_slice(&buffer[..read]),
                    _ => break,
                }
            }
            let body = format!(r#"{{"access_token": "token{number}", "expires_in": 3600}}"#);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let _ = write!(
                stream,
                "{head}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

#[test]
fn a_token_that_is_refused_is_got_anew_once() {
    for (accepted, is_in) in [("token0", true), ("token1", true), ("token9", false)] {
        let upstream = Serve::new()
            .app(|app| app.auth_method(Numbered(accepted)))
            .toolset("demo")
            .start();
        let config: UpstreamConfig = serde_json::from_value(json!({
            "url": format!("http://{}/mcp", upstream.address()),
            "auth": {"oauth": {
                "token_url": format!("http://{}/token", issuer()), "client_id": "a", "client_secret": "b",
            }},
        }))
        .expect("valid");
        let server = behind([("up", config)]).toolset("demo").start();
        assert_eq!(
            listed(&server).contains_key("up__echo"),
            is_in,
            "{accepted}"
        );
        if is_in {
            let call = json!({"name": "up__echo", "arguments": {"message": "hello"}});
            let called = result(&server, "2025-11-25", "tools/call", call);
            assert_eq!(called["isError"], false, "{called}");
        }
    }
}

#[test]
fn credentials_for_a_program_are_refused_with_their_place() {
    let mut config = longshore::Config::default();
    let upstream = json!({"command": "x", "auth": {"bearer": "s3cret"}});
    let upstream = serde_json::from_value(upstream).expect("valid");
    config.upstreams.insert("x".to_owned(), upstream);
    let refused = crate::support::bind(longshore::App::new().config(config));
    let error = refused.expect_err("refused").to_string();
    assert_eq!(error, "upstreams.x.auth: it is for servers with a url");
}
