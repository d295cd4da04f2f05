//! Which keys are used, and how they come in.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::keys::{KeySet, KeySetError};
use super::*;

#[test]
fn keys_for_anything_else_are_left_out() {
    let (ec, ed, rsa) = (
        Signer::es256("1"),
        Signer::ed25519("1"),
        Signer::rsa("1", "RS256"),
    );
    let set = |signer: &Signer, name: &str, value: Value| {
        let mut key = signer.jwk.clone();
        match value {
            Value::Null => key.as_object_mut().expect("an object").remove(name),
            value => key
                .as_object_mut()
                .expect("an object")
                .insert(name.to_owned(), value),
        };
        KeySet::read(json!({"keys": [key]}).to_string().as_bytes()).is_ok()
    };
    let short = encode([0xff; 128]);
    let padded = encode([&[0; 128][..], &[0xff; 128]].concat());
    for (signer, name, value, good) in [
        (&ec, "x", json!("same"), false),
        (&ec, "use", json!("enc"), false),
        (&ec, "use", json!(["sig"]), false),
        (&ec, "use", Value::Null, true),
        (&ec, "key_ops", json!(["verify"]), true),
        (&ec, "key_ops", json!(["sign", "verify"]), true),
        (&ec, "key_ops", json!(["sign"]), false),
        (&ec, "key_ops", json!([]), false),
        (&ec, "key_ops", json!("verify"), false),
        (&ec, "alg", json!("ES384"), false),
        (&ec, "alg", json!("RS256"), false),
        (&ec, "alg", json!("none"), false),
        (&ec, "alg", json!(1), false),
        (&ec, "alg", Value::Null, true),
        (&ec, "crv", json!("P-384"), false),
        (&ec, "crv", json!("secp256k1"), false),
        (&ec, "kty", json!("oct"), false),
        (&ec, "kty", json!("RSA"), false),
        (&ec, "d", json!("AAAA"), false),
        (&ec, "kid", json!(7), false),
        (&ed, "crv", json!("Ed448"), false),
        (&ed, "crv", json!("X25519"), false),
        (&ed, "x", json!("AAAA"), false),
        (&ed, "alg", json!("Ed25519"), true),
        (&rsa, "n", json!(short), false),
        (&rsa, "n", json!(padded), false),
        (&rsa, "n", json!(encode([0xff; 1025])), false),
        (&rsa, "n", Value::Null, false),
        (&rsa, "e", Value::Null, false),
        (&rsa, "alg", json!("PS256"), true),
        (&rsa, "alg", json!("RSA-OAEP"), false),
        (&rsa, "alg", json!("RS512"), false),
    ] {
        assert_eq!(
            set(signer, name, value.clone()),
            good,
            "{} {name}: {value}",
            signer.algorithm
        );
    }
}

#[test]
fn a_set_of_keys_has_bounds() {
    let key = Signer::ed25519("1").jwk;
    let many = |count: usize| json!({"keys": vec![key.clone(); count]}).to_string();
    assert!(KeySet::read(many(64).as_bytes()).is_ok());
    let refused = |text: &str| KeySet::read(text.as_bytes()).expect_err("refused");
    assert_eq!(refused(&many(65)), KeySetError::TooMany);
    let large = json!({"keys": [key], "x": "x".repeat(SET_MAX_BYTES)}).to_string();
    assert_eq!(refused(&large), KeySetError::Form);
    for text in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"keys":{}}"#,
        r#"{"keys":[],"keys":[]}"#,
        "<html>",
    ] {
        assert_eq!(refused(text), KeySetError::Form, "{text}");
    }
    assert_eq!(refused(r#"{"keys":[]}"#), KeySetError::NoKey);
    assert_eq!(refused(r#"{"keys":["x",1,null,{}]}"#), KeySetError::NoKey);
}

#[test]
fn a_token_without_a_keys_id_must_leave_no_doubt() {
    let (one, other) = (Signer::ed25519("1"), Signer::ed25519("2"));
    let mut header = one.header();
    header.as_object_mut().expect("an object").remove("kid");
    let token = one.token_of(header.to_string(), claims().to_string());
    let tokens = tokens(|_| {});
    tokens.0.issuers[0].hold(&set_of(&[&one]));
    assert_eq!(fault(judged(&tokens, &token)), None);
    tokens.0.issuers[0].hold(&set_of(&[&one, &other]));
    assert!(fault(judged(&tokens, &token)).is_some());
}

/// An issuer on a port of its own, which answers what it was told to.
struct Site {
    url: String,
    pages: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let pages: Arc<Mutex<BTreeMap<String, (u16, String)>>> = Arc::default();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, noted) = (Arc::clone(&pages), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                noted.lock().expect("not poisoned").push(path.clone());
                let page = seen.lock().expect("not poisoned").get(&path).cloned();
                let (status, body) = page.unwrap_or((404, String::new()));
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nlocation: /elsewhere\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, pages, asked }
    }

    fn put(&self, path: &str, status: u16, body: impl Into<String>) {
        let mut pages = self.pages.lock().expect("not poisoned");
        pages.insert(path.to_owned(), (status, body.into()));
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("not poisoned"))
    }

    fn tokens(&self) -> Tokens {
        let url = self.url.clone();
        tokens(|c| c.issuer = Some(url))
    }

    fn claims(&self) -> Value {
        let mut claims = claims();
        claims["iss"] = self.url.clone().into();
        claims
    }
}

/// Lets the keys be kept up to date while a future is waited for.
async fn kept_up<T>(tokens: &Tokens, what: impl Future<Output = T>) -> T {
    tokio::select! {
        never = tokens.refresh_keys(None) => match never {},
        done = what => done,
    }
}

#[tokio::test]
async fn keys_are_discovered_and_before_there_are_any_nobody_can_tell() {
    let site = Site::start().await;
    let signer = Signer::ed25519("1");
    let tokens = site.tokens();
    let token = signer.token(&site.claims());
    assert!(!tokens.is_ready());
    kept_up(&tokens, async {
        match settled(judged(&tokens, &token)).await {
            AuthOutcome::Refused(AuthError::Unavailable(_)) => {}
            other => panic!("{other:?}"),
        }
        let jwks = format!("{}/keys", site.url);
        site.put(
            "/.well-known/openid-configuration",
            200,
            json!({"issuer": site.url, "jwks_uri": jwks}).to_string(),
        );
        site.put("/keys", 200, set_of(&[&signer]));
        assert_eq!(fault(settled(judged(&tokens, &token)).await), None);
        assert!(tokens.is_ready());
    })
    .await;
    let asked = site.asked();
    assert!(
        asked.contains(&"/.well-known/oauth-authorization-server".to_owned()),
        "{asked:?}"
    );
}

#[tokio::test]
async fn documents_that_are_not_about_the_issuer_are_not_believed() {
    let signer = Signer::ed25519("1");
    for (document, expected) in [
        (
            json!({"issuer": "https://other.example", "jwks_uri": "/keys"}),
            "other.example",
        ),
        (
            json!({"issuer": "SELF/", "jwks_uri": "SELF/keys"}),
            "exactly as it does",
        ),
        (
            json!({"issuer": "SELF", "jwks_uri": "http://10.0.0.1/keys"}),
            "which is not an https URL",
        ),
        (
            json!({"issuer": "SELF", "jwks_uri": "file:///etc/passwd"}),
            "which is not an https URL",
        ),
        (json!({"issuer": "SELF"}), "is not issuer metadata"),
        (json!({"jwks_uri": "SELF/keys"}), "is not issuer metadata"),
        (json!([]), "is not issuer metadata"),
    ] {
        let site = Site::start().await;
        let text = document.to_string().replace("SELF", &site.url);
        for path in ["oauth-authorization-server", "openid-configuration"] {
            site.put(&format!("/.well-known/{path}"), 200, &*text);
        }
        site.put("/keys", 200, set_of(&[&signer]));
        let tokens = site.tokens();
        let error = tokens.0.issuers[0]
            .try_once(&tokens.0.client)
            .await
            .expect_err("refused");
        assert!(error.contains(expected), "{error}");
        assert!(!tokens.is_ready());
    }
}

#[tokio::test]
async fn redirects_errors_and_large_answers_bring_no_keys() {
    let signer = Signer::ed25519("1");
    let site = Site::start().await;
    let url = site.url.clone();
    let tokens = tokens(|c| {
        c.jwks_url = Some(format!("{url}/keys"));
        c.issuer = Some(url);
    });
    let set = set_of(&[&signer]);
    site.put("/elsewhere", 200, &*set);
    for (status, body) in [
        (302, set.clone()),
        (500, set.clone()),
        (204, String::new()),
        (200, "<html>".to_owned()),
        (200, "x".repeat(SET_MAX_BYTES + 1)),
    ] {
        site.put("/keys", status, body);
        let tried = tokens.0.issuers[0].try_once(&tokens.0.client).await;
        assert!(tried.is_err(), "{status}");
    }
    site.put("/keys", 200, set);
    assert!(tokens.0.issuers[0].try_once(&tokens.0.client).await.is_ok());
    // What was there stays in force while the issuer is out of order.
    site.put("/keys", 500, "");
    assert!(
        tokens.0.issuers[0]
            .try_once(&tokens.0.client)
            .await
            .is_err()
    );
    assert!(tokens.is_ready());
}

#[tokio::test]
async fn an_unknown_key_is_asked_for_once_in_a_while_and_known_ones_do_not_wait() {
    let site = Site::start().await;
    let (old, new, never) = (
        Signer::ed25519("old"),
        Signer::ed25519("new"),
        Signer::ed25519("never"),
    );
    let url = site.url.clone();
    let tokens = tokens(|c| {
        c.jwks_url = Some(format!("{url}/keys"));
        c.issuer = Some(url);
    });
    site.put("/keys", 200, set_of(&[&old]));
    kept_up(&tokens, async {
        assert_eq!(
            fault(settled(judged(&tokens, &old.token(&site.claims()))).await),
            None
        );
        // Rotated: the first token with the new key has it asked for, others wait for that, and all are good.
        site.put("/keys", 200, set_of(&[&old, &new]));
        let (one, other) = (
            judged(&tokens, &new.token(&site.claims())),
            judged(&tokens, &new.token(&site.claims())),
        );
        let both = tokio::join!(settled(one), settled(other));
        assert_eq!((fault(both.0), fault(both.1)), (None, None));
        let fetches = tokens.0.issuers[0].fetches();
        // Two hundred strangers after that have nothing asked for.
        for _ in 0..200 {
            assert_eq!(
                fault(judged(&tokens, &never.token(&site.claims()))).as_deref(),
                Some("the token is signed with a key that is not known")
            );
            assert_eq!(fault(judged(&tokens, &old.token(&site.claims()))), None);
        }
        assert_eq!(tokens.0.issuers[0].fetches(), fetches);
    })
    .await;
}

/// A client that is told that its valid token is invalid asks its user to log in.
#[tokio::test]
async fn an_unknown_key_is_no_fault_of_the_token_while_the_issuer_is_down() {
    let site = Site::start().await;
    let (old, new) = (Signer::ed25519("old"), Signer::ed25519("new"));
    let url = site.url.clone();
    let tokens = tokens(|c| {
        c.jwks_url = Some(format!("{url}/keys"));
        c.issuer = Some(url);
    });
    site.put("/keys", 200, set_of(&[&old]));
    let (old, rotated) = (old.token(&site.claims()), new.token(&site.claims()));
    kept_up(&tokens, async {
        assert_eq!(fault(settled(judged(&tokens, &old)).await), None);
        site.put("/keys", 502, "");
        // The first token has the keys fetched, the second one comes too soon for that.
        for _ in 0..2 {
            match settled(judged(&tokens, &rotated)).await {
                AuthOutcome::Refused(AuthError::Unavailable(_)) => {}
                other => panic!("{other:?}"),
            }
            assert_eq!(fault(judged(&tokens, &old)), None);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_are_stale_for_a_day_and_no_longer() {
    let signer = Signer::ed25519("1");
    let tokens = tokens(|_| {});
    tokens.0.issuers[0].hold(&set_of(&[&signer]));
    let token = signer.token(&claims());
    let metrics = crate::telemetry::Metrics::default();
    tokens.show(&metrics);
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    assert_eq!(fault(judged(&tokens, &token)), None);
    assert!(tokens.is_ready());
    // Operators see it coming.
    let page = crate::telemetry::prometheus_page(&metrics.families());
    let age = format!(
        "longshore_issuer_keys_age_seconds{{issuer=\"{}\"}} 86400",
        tokens.issuers()[0]
    );
    assert!(page.contains(&age), "{age} is not in {page}");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!tokens.is_ready());
    assert_eq!(fault(judged(&tokens, &token)).as_deref(), Some("later"));
}
