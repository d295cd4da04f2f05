//! Tokens that are bound to a key of the client (RFC 9449, sections 5, 8 and 10).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::flow::{self, CLIENT_REDIRECT, Flow, VERIFIER};
use longshore_net::environment::unix_seconds;

/// A client's key.
struct Key(Ed25519KeyPair);

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Key {
    fn new() -> Self {
        Self(Ed25519KeyPair::generate().expect("a key"))
    }

    fn jwk(&self) -> Value {
        json!({"crv": "Ed25519", "kty": "OKP", "x": encode(self.0.public_key().as_ref())})
    }

    fn thumbprint(&self) -> String {
        encode(digest(&SHA256, self.jwk().to_string().as_bytes()))
    }

    /// A proof for the token endpoint.
    fn proof(&self, id: &str, more: &[(&str, &str)]) -> String {
        let header = json!({"typ": "dpop+jwt", "alg": "EdDSA", "jwk": self.jwk()});
        let mut claims = json!({
            "jti": id, "htm": "POST", "htu": "https://mcp.example.com/token", "iat": unix_seconds(),
        });
        for (name, value) in more {
            claims[*name] = (*value).into();
        }
        let message = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(claims.to_string())
        );
        let signature = encode(self.0.sign(message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    }
}

/// A token request with a proof; an empty one is left out.
async fn token(flow: &Flow, fields: &[(&str, &str)], proof: &str) -> Result<Value, Value> {
    let mut request =
        Request::post("/token").header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    if !proof.is_empty() {
        request = request.header("dpop", proof);
    }
    let body = Bytes::from(flow::encoded(fields));
    let (status, headers, text) = flow.send(request.body(body).expect("a request")).await;
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    if let Some(nonce) = headers.get("dpop-nonce") {
        value["nonce"] = nonce.to_str().expect("ASCII").into();
    }
    match status {
        StatusCode::OK => Ok(value),
        _ => Err(value),
    }
}

fn redeeming<'f>(client: &'f str, code: &'f str) -> [(&'f str, &'f str); 5] {
    [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("client_id", client),
        ("redirect_uri", CLIENT_REDIRECT),
        ("code_verifier", VERIFIER),
    ]
}

fn refreshing<'f>(client: &'f str, tokens: &'f Value) -> [(&'f str, &'f str); 3] {
    [
        ("grant_type", "refresh_token"),
        (
            "refresh_token",
            tokens["refresh_token"].as_str().expect("a token"),
        ),
        ("client_id", client),
    ]
}

#[tokio::test]
async fn tokens_of_a_login_are_bound_to_the_key_that_redeems_the_code() {
    let flow = Flow::start().await;
    let (key, other) = (Key::new(), Key::new());
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let tokens = token(&flow, &redeeming(&client, &code), &key.proof("1", &[])).await;
    let tokens = tokens.expect("tokens");
    assert_eq!(tokens["token_type"], "DPoP");
    let claims = flow.claims_of(&tokens["access_token"]);
    assert_eq!(claims["cnf"]["jkt"], key.thumbprint());
    // As a bearer token it is of no use.
    assert!(flow.principal_of(&tokens["access_token"]).await.is_none());

    let refresh = refreshing(&client, &tokens);
    for (proof, reason) in [
        (String::new(), "invalid_grant"),
        (other.proof("1", &[]), "invalid_grant"),
        (key.proof("1", &[]), "invalid_dpop_proof"),
        (key.proof("2", &[("htm", "GET")]), "invalid_dpop_proof"),
        ("x".to_owned(), "invalid_dpop_proof"),
    ] {
        let refused = token(&flow, &refresh, &proof).await.expect_err("refused");
        assert_eq!(refused["error"], reason, "{refused}");
    }
    let refreshed = token(&flow, &refresh, &key.proof("3", &[])).await;
    let refreshed = refreshed.expect("tokens");
    let claims = flow.claims_of(&refreshed["access_token"]);
    assert_eq!(claims["cnf"]["jkt"], key.thumbprint());
}

#[tokio::test]
async fn a_code_that_is_bound_to_a_key_is_not_redeemed_by_another() {
    let flow = Flow::start().await;
    let (key, other) = (Key::new(), Key::new());
    let client = flow.register().await;
    let thumbprint = key.thumbprint();
    let page = flow.authorize(&client, &[("dpop_jkt", &thumbprint)]).await;
    let provider = flow.decide(&page, "allow").await;
    let back = flow.come_back(&page, &provider, &[]).await;
    let code = flow::query(&back, "code").expect("a code");
    for proof in [String::new(), other.proof("1", &[])] {
        let refused = token(&flow, &redeeming(&client, &code), &proof).await;
        assert_eq!(refused.expect_err("refused")["error"], "invalid_grant");
    }
    let tokens = token(&flow, &redeeming(&client, &code), &key.proof("1", &[])).await;
    assert!(tokens.is_ok(), "a refused request uses up nothing");
}

#[tokio::test]
async fn a_client_that_registers_for_bound_tokens_gets_no_others() {
    let flow = Flow::start().await;
    let body =
        json!({"redirect_uris": ["http://127.0.0.1/callback"], "dpop_bound_access_tokens": true});
    let request = Request::post("/register").body(Bytes::from(body.to_string()));
    let (_, _, text) = flow.send(request.expect("a request")).await;
    let registered: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(registered["dpop_bound_access_tokens"], true);
    let client = registered["client_id"].as_str().expect("an ID");
    let code = flow.log_in(client).await;
    let refused = flow.redeem(client, &code, VERIFIER).await;
    assert_eq!(refused.expect_err("refused")["error"], "invalid_dpop_proof");
    let tokens = token(
        &flow,
        &redeeming(client, &code),
        &Key::new().proof("1", &[]),
    )
    .await;
    assert!(tokens.is_ok());
}

#[tokio::test]
async fn a_server_that_requires_bound_tokens_issues_no_others() {
    let mut flow = Flow::start().await;
    flow.server.requires_dpop = true;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let refused = flow.redeem(&client, &code, VERIFIER).await;
    assert_eq!(refused.expect_err("refused")["error"], "invalid_dpop_proof");
}

#[tokio::test]
async fn a_server_with_nonces_tells_the_next_one() {
    let flow = Flow::with_nonces().await;
    let key = Key::new();
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let fields = redeeming(&client, &code);
    let refused = token(&flow, &fields, &key.proof("1", &[])).await;
    let refused = refused.expect_err("without a nonce");
    assert_eq!(refused["error"], "use_dpop_nonce");
    let nonce = refused["nonce"].as_str().expect("a nonce");
    let proof = key.proof("1", &[("nonce", nonce)]);
    let tokens = token(&flow, &fields, &proof).await.expect("tokens");
    assert_eq!(tokens["token_type"], "DPoP");
}

#[tokio::test]
async fn proofs_without_a_grant_take_no_place_in_the_state() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let before = flow.state_bytes();
    for number in 0..50 {
        let proof = Key::new().proof(&number.to_string(), &[]);
        let refused = token(&flow, &redeeming(&client, "no code"), &proof).await;
        assert_eq!(refused.expect_err("refused")["error"], "invalid_grant");
    }
    assert_eq!(flow.state_bytes(), before);
}
