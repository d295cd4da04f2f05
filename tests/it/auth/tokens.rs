//! Access tokens over HTTP, of an issuer that the server asks for its keys.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore::net::TrustedProxies;
use longshore::{CallContext, Definition, tool_fn};
use serde_json::{Map, Value, json};

use super::bearer;
use crate::support::{Response, Running, Serve, Stateless};

/// An issuer on a port of its own.
pub(crate) struct Issuer {
    pub(crate) url: String,
    key: Ed25519KeyPair,
    pages: Arc<Mutex<BTreeMap<String, String>>>,
}

pub(super) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Issuer {
    /// An issuer that responds.
    pub(crate) fn start() -> Self {
        let issuer = Self::silent();
        issuer.speak();
        issuer
    }

    /// An issuer that accepts connections without a useful response.
    pub(crate) fn silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let pages: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let told = Arc::clone(&pages);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default();
                let page = told.lock().expect("not poisoned").get(path).cloned();
                let (status, body) = match page {
                    Some(page) => ("200 OK", page),
                    None => ("404 Not Found", String::new()),
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self {
            url,
            key: Ed25519KeyPair::generate().expect("a key"),
            pages,
        }
    }

    /// Begins to say where its keys are, and which.
    pub(crate) fn speak(&self) {
        let x = encode(self.key.public_key().as_ref());
        let keys =
            json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "alg": "EdDSA", "x": x}]});
        let about = json!({"issuer": self.url, "jwks_uri": format!("{}/keys", self.url)});
        let mut pages = self.pages.lock().expect("not poisoned");
        pages.insert("/keys".to_owned(), keys.to_string());
        pages.insert(
            "/.well-known/openid-configuration".to_owned(),
            about.to_string(),
        );
    }

    /// Signs a token with these claims and the required ones.
    pub(crate) fn token(&self, claims: Value) -> String {
        let now = unix_seconds();
        let mut all = json!({"iss": self.url, "aud": RESOURCE, "sub": "alice", "exp": now + 600});
        for (name, value) in claims.as_object().expect("an object") {
            all[name] = value.clone();
        }
        let header = json!({"alg": "EdDSA", "kid": "1", "typ": "at+jwt"});
        let message = format!("{}.{}", encode(header.to_string()), encode(all.to_string()));
        let signature = encode(self.key.sign(message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    }
}

pub(super) fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a time").as_secs()
}

pub(super) const RESOURCE: &str = "https://mcp.example.com/mcp";
const METADATA: &str = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp";

/// Two settings are all that it needs.
pub(super) fn serve(issuer: &Issuer) -> Serve {
    let url = issuer.url.clone();
    let who = tool_fn(
        Definition::new("who"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            Ok::<_, longshore::ToolError>(context.principal().name().to_owned())
        },
    );
    let write = tool_fn(
        Definition::new("write")
            .scope("files:write")
            .scope("files:read"),
        |_: Arc<CallContext>, _: Map<String, Value>| async move {
            Ok::<_, longshore::ToolError>("written".to_owned())
        },
    );
    Serve::new().tool(who).tool(write).configured(|c| {
        c.http.public_url = Some("https://mcp.example.com".to_owned());
        c.auth.oauth.issuer = Some(url);
    })
}

fn call(server: &Running, tool: &str, token: &str) -> Response {
    Stateless::call(tool, json!({}))
        .and("authorization", &bearer(token))
        .send(server)
}

pub(super) fn get(server: &Running, path: &str, more: &str) -> Response {
    let text = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
    server.connect().send(text).receive()
}

#[test]
fn an_issuer_and_a_public_url_are_all_that_tokens_need() {
    let issuer = Issuer::start();
    let server = serve(&issuer).start();
    let result = call(&server, "who", &issuer.token(json!({}))).result();
    let name = result["content"][0]["text"].as_str().expect("a text");
    let host = issuer.url.strip_prefix("http://").expect("a scheme");
    assert_eq!(name, format!("oauth:{host}#alice"));
}

#[test]
fn auth_02_a_challenge_leads_to_the_metadata_and_that_to_the_issuer() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| c.auth.oauth.scopes = vec!["mcp".to_owned()])
        .start();
    let refused = Stateless::call("who", json!({})).send(&server);
    assert_eq!(refused.status, 401);
    // AUTH-03: the scopes are in it.
    assert_eq!(
        refused.header("www-authenticate"),
        Some(&*format!(
            r#"Bearer scope="mcp", resource_metadata="{METADATA}""#
        ))
    );
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
    ] {
        // Any origin may read the metadata, because browser clients need it.
        let document = get(&server, path, "origin: https://client.example\r\n");
        assert_eq!(document.header("access-control-allow-origin"), Some("*"));
        assert_eq!(document.header("cache-control"), Some("max-age=3600"));
        assert_eq!(
            document.json(),
            json!({
                "resource": RESOURCE,
                "authorization_servers": [issuer.url],
                "bearer_methods_supported": ["header"],
                "dpop_signing_alg_values_supported": ["ES256", "EdDSA", "RS256", "PS256"],
                "scopes_supported": ["mcp"],
                "resource_name": "test",
            })
        );
        let text = format!(
            "OPTIONS {path} HTTP/1.1\r\nhost: localhost\r\norigin: https://client.example\r\n\r\n"
        );
        let preflight = server.connect().send(text).receive_head();
        assert_eq!(
            (
                preflight.status,
                preflight.header("access-control-allow-headers")
            ),
            (204, Some("*"))
        );
    }
    assert_eq!(
        get(&server, "/.well-known/oauth-protected-resource/other", "").status,
        404
    );
}

#[test]
fn auth_05_tokens_for_others_and_of_others_are_refused() {
    let (issuer, other) = (Issuer::start(), Issuer::start());
    let server = serve(&issuer).start();
    for (token, expected) in [
        (
            issuer.token(json!({"aud": "https://elsewhere.example/mcp"})),
            "the token was issued for another audience",
        ),
        (issuer.token(json!({"exp": 1_000})), "the token has expired"),
        (other.token(json!({})), "the token is of another issuer"),
        (
            other.token(json!({"iss": issuer.url})),
            "the signature of the token is wrong",
        ),
        (
            "not-a-token-at-all-but-long-enough".to_owned(),
            "the credential is not known",
        ),
    ] {
        let refused = call(&server, "who", &token);
        assert_eq!(refused.error(401, 401, ""), expected);
        let challenge = refused.header("www-authenticate").expect("a challenge");
        let expected = format!(
            r#"Bearer error="invalid_token", error_description="{expected}", resource_metadata="{METADATA}""#
        );
        assert_eq!(challenge, expected);
    }
}

/// Clients of one address, such as that of a hosted client, learn from status 401 that they have to refresh.
#[test]
fn expired_tokens_are_no_failed_authentications() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| c.limits.failed_authentications_per_minute = Some(2))
        .start();
    let status = |token: &str| call(&server, "who", token).status;
    let expired = issuer.token(json!({"exp": 1_000}));
    assert_eq!([(); 4].map(|()| status(&expired)), [401; 4]);
    let foreign = issuer.token(json!({"aud": "https://elsewhere.example/mcp"}));
    assert_eq!([(); 3].map(|()| status(&foreign)), [401, 401, 429]);
}

#[test]
fn without_leeway_times_of_tokens_are_held_to_the_second() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| c.auth.oauth.leeway_seconds = 0)
        .start();
    let status = |claims: Value| call(&server, "who", &issuer.token(claims)).status;
    // The keys are there.
    assert_eq!(status(json!({})), 200);
    let begun = unix_seconds();
    let now = loop {
        let now = unix_seconds();
        if begun < now {
            break now;
        }
        std::thread::yield_now();
    };
    // A second has just begun, which not every clock in the server has seen.
    assert_eq!(status(json!({"iat": now, "nbf": now})), 200);
    assert_eq!(status(json!({"exp": now})), 401);
    assert_eq!(status(json!({"iat": now + 60})), 401);
}

#[test]
fn auth_09_a_tool_that_needs_scopes_says_all_of_them_at_once_and_before_any_stream() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| c.auth.oauth.scopes = vec!["mcp".to_owned()])
        .start();
    let token = issuer.token(json!({"scope": "mcp files:read"}));
    let refused = call(&server, "write", &token);
    assert_eq!(
        refused.error(403, 403, "1"),
        "the credential lacks a scope that is needed: files:write files:read"
    );
    let challenge = refused.header("www-authenticate").expect("a challenge");
    assert!(
        challenge.starts_with(r#"Bearer error="insufficient_scope", "#),
        "{challenge}"
    );
    assert!(
        challenge.contains(r#"scope="mcp files:write files:read", "#),
        "{challenge}"
    );
    assert!(challenge.contains(METADATA), "{challenge}");
    // The tool is listed nevertheless: its caller can request the scope.
    let list = Stateless::new("tools/list", json!({})).and("authorization", &bearer(&token));
    assert_eq!(
        list.send(&server).result()["tools"]
            .as_array()
            .expect("a list")
            .len(),
        2
    );
    // A step up, and it goes.
    let more = issuer.token(json!({"scope": "mcp files:read files:write"}));
    assert_eq!(
        call(&server, "write", &more).result()["content"][0]["text"],
        "written"
    );
    // AUTH-10: a broad scope that is said to bring them along does so.
    let broad = serve(&issuer)
        .configured(|c| {
            let implied = vec!["files:read".to_owned(), "files:write".to_owned()];
            c.auth.implied_scopes = [("files".to_owned(), implied)].into();
        })
        .start();
    let token = issuer.token(json!({"scope": "files"}));
    assert_eq!(
        call(&broad, "write", &token).result()["content"][0]["text"],
        "written"
    );
}

#[test]
fn somebody_without_a_credential_is_asked_for_one_where_a_tool_needs_scopes() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| c.auth.anonymous = Some("guest".to_owned()))
        .start();
    let call = |tool| Stateless::call(tool, json!({})).send(&server);
    assert_eq!(call("who").result()["content"][0]["text"], "guest");
    let refused = call("write");
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").expect("a challenge");
    assert!(
        challenge.contains(r#"scope="files:write files:read""#),
        "{challenge}"
    );
}

#[test]
fn before_there_are_keys_the_answer_is_503_and_after_that_tokens_are_good() {
    let issuer = Issuer::silent();
    let server = serve(&issuer).start();
    let token = issuer.token(json!({}));
    let refused = call(&server, "who", &token);
    assert_eq!(refused.status, 503);
    assert!(
        refused.header("retry-after").is_some() && refused.header("www-authenticate").is_none()
    );
    assert_eq!(get(&server, "/readyz", "").status, 503);
    issuer.speak();
    // The next attempt is not long in coming, and requests wait for it.
    let good = (0..5).any(|_| call(&server, "who", &token).status == 200);
    assert!(good);
    assert_eq!(get(&server, "/readyz", "").status, 200);
    assert_eq!(get(&server, "/livez", "").status, 200);
}

#[test]
fn metadata_that_depends_on_the_request_is_not_cached() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| {
            c.http.public_url = None;
            let proxies = ["127.0.0.0/8".parse().expect("a network")];
            c.http.trusted_proxies = TrustedProxies::from_iter(proxies);
            c.auth.oauth.audience = vec![RESOURCE.to_owned()];
        })
        .start();
    let path = "/.well-known/oauth-protected-resource";
    let document = get(&server, path, "x-forwarded-host: evil.example\r\n");
    assert_eq!(document.header("cache-control"), Some("no-store"));
    assert_eq!(document.json()["resource"], "http://evil.example/mcp");
}

#[test]
fn a_server_behind_a_path_answers_below_it_and_says_so() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| {
            c.http.public_url = Some("https://example.com/tools".to_owned());
            c.auth.oauth.audience = vec![RESOURCE.to_owned()];
        })
        .start();
    let token = bearer(&issuer.token(json!({})));
    let call = Stateless::call("who", json!({})).and("authorization", &token);
    for path in ["/mcp", "/tools/mcp", "/tools/mcp/"] {
        let text = call.text().replacen("/mcp", path, 1);
        assert_eq!(server.connect().send(text).receive().status, 200, "{path}");
    }
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/tools/mcp",
        "/tools/.well-known/oauth-protected-resource",
    ] {
        let document = get(&server, path, "");
        assert_eq!(
            document.json()["resource"],
            "https://example.com/tools/mcp",
            "{path}"
        );
    }
}

#[test]
fn auth_05_a_token_for_one_endpoint_is_no_good_at_another() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| {
            let endpoint = |config: Value| serde_json::from_value(config).expect("valid");
            c.endpoints
                .insert("own".to_owned(), endpoint(json!({"tools": ["who"]})));
            let scoped =
                json!({"tools": ["who"], "audience": ["urn:files"], "scopes": ["files:read"]});
            c.endpoints.insert("files".to_owned(), endpoint(scoped));
        })
        .start();
    let status = |path: &str, claims: Value| {
        let call =
            Stateless::call("who", json!({})).and("authorization", &bearer(&issuer.token(claims)));
        let text = call.text();
        let text = text.replacen("POST /mcp ", &format!("POST {path} "), 1);
        let response = server.connect().send(text).receive();
        let challenge = response.header("www-authenticate").map(str::to_owned);
        (response.status, challenge.unwrap_or_default())
    };
    let own = "https://mcp.example.com/mcp/own";
    for (path, claims, expected) in [
        ("/mcp", json!({}), 200),
        ("/mcp", json!({"aud": own}), 401),
        (
            "/mcp",
            json!({"aud": "urn:files", "scope": "files:read"}),
            401,
        ),
        ("/mcp/own", json!({"aud": own}), 200),
        ("/mcp/own", json!({"aud": [own, RESOURCE]}), 200),
        ("/mcp/own", json!({}), 401),
        (
            "/mcp/files",
            json!({"aud": "urn:files", "scope": "files:read"}),
            200,
        ),
        ("/mcp/files", json!({"aud": "urn:files"}), 403),
        (
            "/mcp/files",
            json!({"aud": own, "scope": "files:read"}),
            401,
        ),
        ("/mcp/own", json!({"aud": "urn:other"}), 401),
    ] {
        let (status, challenge) = status(path, claims.clone());
        assert_eq!(status, expected, "{path} {claims}: {challenge}");
        let metadata =
            format!("https://mcp.example.com/.well-known/oauth-protected-resource{path}");
        assert_eq!(
            challenge.contains(&metadata),
            expected != 200,
            "{challenge}"
        );
        assert_eq!(
            challenge.contains("files:read"),
            path == "/mcp/files" && expected != 200
        );
    }
    let document = get(&server, "/.well-known/oauth-protected-resource/mcp/own", "").json();
    assert_eq!(document["resource"], own);
}

#[test]
fn streams_end_when_the_token_does_that_opened_them() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| c.auth.oauth.leeway_seconds = 0)
        .start();
    // A first call waits for the keys.
    call(&server, "who", &issuer.token(json!({}))).result();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time");
    let token = bearer(&issuer.token(json!({"exp": now.as_secs() + 3})));
    let listen = Stateless::new(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let mut connection = server.connect();
    connection.send(listen.and("authorization", &token).text());
    assert_eq!(connection.receive_head().status, 200);
    // SUB-05: the end is sent explicitly.
    let mut last = None;
    while let Some(event) = connection.event() {
        last = Some(event);
    }
    assert_eq!(last.expect("an answer")["result"]["resultType"], "complete");
    let waited = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time")
        - now;
    assert!(waited < std::time::Duration::from_secs(15), "{waited:?}");
}
