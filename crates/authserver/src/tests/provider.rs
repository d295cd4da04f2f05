//! An OpenID provider on a socket: metadata, keys, and a token endpoint.

use std::sync::{Arc, Mutex};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A provider that logs in one user.
#[derive(Clone)]
pub(super) struct FakeProvider {
    pub(super) issuer: String,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    /// Claims that replace those of the ID token.
    changed: Value,
    /// Response of the userinfo endpoint, if there is one.
    info: Option<Value>,
    nonce: String,
    /// Forms that the token endpoint received.
    received: Vec<String>,
    seed: [u8; 32],
    fault: Option<Fault>,
    /// True after the code for single use.
    used: bool,
}

/// What is wrong with a provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// It accepts connections and does not respond.
    Silent,
    /// It responds with status 500 and a page that must not be repeated.
    Status,
    /// Its documents are not JSON.
    NotJson,
    /// Its documents are larger than any real one.
    Large,
    /// Its metadata names another issuer.
    OtherIssuer,
    /// Its metadata names an endpoint of another scheme.
    OtherScheme,
    /// It grants tokens without an ID token.
    NoIdToken,
}

impl FakeProvider {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let provider = Self {
            issuer: format!("http://{address}"),
            inner: Arc::new(Mutex::new(Inner {
                changed: json!({}),
                info: None,
                nonce: String::new(),
                received: Vec::new(),
                seed: [7; 32],
                fault: None,
                used: false,
            })),
        };
        let serving = provider.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        provider
    }

    /// Sets the nonce of the next ID token, and claims that replace others; `null` removes one.
    pub(super) fn next(&self, nonce: &str, changed: Value) {
        let mut inner = self.inner.lock().expect("not poisoned");
        nonce.clone_into(&mut inner.nonce);
        inner.changed = changed;
    }

    /// Serves this user at a userinfo endpoint, to who shows the access token.
    pub(super) fn show_user(&self, info: Value) {
        self.inner.lock().expect("not poisoned").info = Some(info);
    }

    /// Signs an identity assertion for a client; `changed` replaces claims.
    pub(super) fn assertion(&self, client: &str, kind: &str, changed: &Value) -> String {
        let now = longshore_net::environment::unix_seconds();
        let mut claims = json!({
            "iss": self.issuer, "aud": "https://mcp.example.com", "sub": "user-1", "client_id": client,
            "email": "ann@example.com", "email_verified": true, "jti": "a", "iat": now, "exp": now + 300,
            "resource": "https://mcp.example.com/mcp", "scope": "files:read files:delete",
        });
        for (name, value) in changed.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        let inner = self.inner.lock().expect("not poisoned");
        signed(&inner, kind, &claims)
    }

    /// Signs with another key from now on, which the metadata does not show.
    pub(super) fn change_key(&self) {
        self.inner.lock().expect("not poisoned").seed = [8; 32];
    }

    /// Breaks the provider from now on.
    pub(super) fn break_by(&self, fault: Fault) {
        self.inner.lock().expect("not poisoned").fault = Some(fault);
    }

    /// Forms that the token endpoint received.
    pub(super) fn received(&self) -> Vec<String> {
        self.inner.lock().expect("not poisoned").received.clone()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let mut part = [0; 4096];
        loop {
            let Ok(read @ 1..) = stream.read(&mut part).await else {
                return;
            };
            request.extend_from_slice(&part[..read]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() < length.unwrap_or(0) {
                continue;
            }
            let path = head.split(' ').nth(1).unwrap_or_default();
            let fault = self.inner.lock().expect("not poisoned").fault;
            let answer = match fault {
                Some(Fault::Silent) => return std::future::pending().await,
                Some(Fault::Status) => "internal: provider-secret".to_owned(),
                Some(Fault::NotJson) => "<html>provider-secret".to_owned(),
                Some(Fault::Large) => format!("{{\"x\":\"{}\"}}", "y".repeat(2_000_000)),
                _ => self.respond(path, head, body, fault).to_string(),
            };
            let status = match fault {
                Some(Fault::Status) => "500 Internal Server Error",
                _ => "200 OK",
            };
            let response = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
                answer.len()
            );
            let _ = stream.write_all(response.as_bytes()).await;
            return;
        }
    }

    fn respond(&self, path: &str, head: &str, body: &str, fault: Option<Fault>) -> Value {
        let issuer = &self.issuer;
        let login = match fault {
            Some(Fault::OtherScheme) => "javascript:alert(1)".to_owned(),
            _ => format!("{issuer}/login"),
        };
        let named = match fault {
            Some(Fault::OtherIssuer) => "https://evil.example",
            _ => issuer,
        };
        match path {
            "/.well-known/openid-configuration" => {
                let mut document = json!({
                    "issuer": named,
                    "authorization_endpoint": login,
                    "token_endpoint": format!("{issuer}/token"),
                    "jwks_uri": format!("{issuer}/keys"),
                    "authorization_response_iss_parameter_supported": true,
                });
                if self.inner.lock().expect("not poisoned").info.is_some() {
                    document["userinfo_endpoint"] = format!("{issuer}/userinfo").into();
                }
                document
            }
            "/userinfo" if head.contains("Bearer provider-token") => {
                let inner = self.inner.lock().expect("not poisoned");
                inner.info.clone().unwrap_or_default()
            }
            "/keys" => {
                let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
                let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
                json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "kid": "k", "alg": "EdDSA"}]})
            }
            "/token" => {
                let mut inner = self.inner.lock().expect("not poisoned");
                let is_known = head.to_ascii_lowercase().contains("authorization: basic ");
                inner.received.push(body.to_owned());
                let is_used = body.contains("code=provider-code-once")
                    && std::mem::replace(&mut inner.used, true);
                if !is_known || is_used || !body.contains("code=provider-code") {
                    return json!({"error": "invalid_grant"});
                }
                if fault == Some(Fault::NoIdToken) {
                    return json!({"access_token": "provider-token", "token_type": "Bearer"});
                }
                let token = id_token(issuer, &inner);
                json!({"id_token": token, "access_token": "provider-token", "refresh_token": "provider-refresh", "token_type": "Bearer"})
            }
            _ => json!({"error": "not_found"}),
        }
    }
}

fn id_token(issuer: &str, inner: &Inner) -> String {
    let mut claims = json!({
        "iss": issuer, "aud": "our-id", "sub": "user-1", "name": "Ann",
        "email": "ann@example.com", "email_verified": true, "groups": ["dev"],
        "nonce": inner.nonce, "iat": longshore_net::environment::unix_seconds(),
        "exp": longshore_net::environment::unix_seconds() + 60,
    });
    for (name, value) in inner.changed.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    let members = claims.as_object_mut().expect("an object");
    members.retain(|_, value| !value.is_null());
    signed(inner, "JWT", &claims)
}

fn signed(inner: &Inner, kind: &str, claims: &Value) -> String {
    let pair = Ed25519KeyPair::from_seed_unchecked(&inner.seed).expect("a key");
    let header = json!({"alg": "EdDSA", "typ": kind, "kid": "k"}).to_string();
    let message = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes()).as_ref());
    format!("{message}.{signature}")
}
