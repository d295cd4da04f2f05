//! Access tokens that are bound to a key of the client, over a socket (RFC 9449).

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use longshore::state::Memory;
use serde_json::{Value, json};

use super::tokens::{Issuer, encode, get, serve, unix_seconds};
use crate::support::{Response, Running, Stateless};

/// A client's key, with a token that is bound to it.
struct Client {
    key: Ed25519KeyPair,
    token: String,
}

impl Client {
    fn new(issuer: &Issuer) -> Self {
        let key = Ed25519KeyPair::generate().expect("a key");
        let jwk = jwk(&key).to_string();
        let thumbprint = encode(digest(&SHA256, jwk.as_bytes()));
        let token = issuer.token(json!({"cnf": {"jkt": thumbprint}}));
        Self { key, token }
    }

    fn proof(&self, id: &str, url: &str, nonce: Option<&str>) -> String {
        let header = json!({"typ": "dpop+jwt", "alg": "EdDSA", "jwk": jwk(&self.key)});
        let mut claims = json!({
            "jti": id, "htm": "POST", "htu": url, "iat": unix_seconds(),
            "ath": encode(digest(&SHA256, self.token.as_bytes())),
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        let message = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(claims.to_string())
        );
        format!("{message}.{}", encode(self.key.sign(message.as_bytes())))
    }

    fn call(&self, server: &Running, proof: &str) -> Response {
        let authorization = format!("DPoP {}", self.token);
        Stateless::call("who", json!({}))
            .and("authorization", &authorization)
            .and("dpop", proof)
            .send(server)
    }
}

fn jwk(key: &Ed25519KeyPair) -> Value {
    json!({"crv": "Ed25519", "kty": "OKP", "x": encode(key.public_key())})
}

const URL: &str = "https://mcp.example.com/mcp";

#[test]
fn a_bound_token_is_accepted_with_a_proof_and_each_proof_once_at_all_replicas() {
    let issuer = Issuer::start();
    let state = Arc::new(Memory::default());
    let one = serve(&issuer).app(|app| app.store(state.clone())).start();
    let other = serve(&issuer).app(|app| app.store(state)).start();
    let client = Client::new(&issuer);

    let metadata = get(&one, "/.well-known/oauth-protected-resource/mcp", "").json();
    let algorithms = json!(["ES256", "EdDSA", "RS256", "PS256"]);
    assert_eq!(metadata["dpop_signing_alg_values_supported"], algorithms);

    let proof = client.proof("1", URL, None);
    assert_eq!(client.call(&one, &proof).status, 200);
    let again = client.call(&other, &proof);
    assert_eq!(again.status, 401, "{again:?}");
    let challenge = again.header("www-authenticate").expect("a challenge");
    assert!(
        challenge.starts_with(r#"DPoP error="invalid_dpop_proof""#)
            && challenge.contains("used before")
            && challenge.contains(r#"algs="ES256 EdDSA RS256 PS256""#),
        "{challenge}"
    );
    assert_eq!(
        client.call(&other, &client.proof("2", URL, None)).status,
        200
    );

    // Elsewhere, and as a bearer token.
    let elsewhere = client.proof("3", "https://other.example.com/mcp", None);
    assert_eq!(client.call(&one, &elsewhere).status, 401);
    let bearer = format!("Bearer {}", client.token);
    let stolen = one.post(&[("authorization", &bearer)], "{}");
    assert_eq!(stolen.status, 401);
}

#[test]
fn a_server_with_nonces_names_one_in_its_response() {
    let issuer = Issuer::start();
    let server = serve(&issuer)
        .configured(|c| {
            c.auth.oauth.dpop.required = true;
            c.auth.oauth.dpop.nonces = true;
        })
        .start();
    let client = Client::new(&issuer);
    let refused = client.call(&server, &client.proof("1", URL, None));
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains("use_dpop_nonce"), "{challenge}");
    let nonce = refused.header("dpop-nonce").expect("a nonce");
    let proof = client.proof("1", URL, Some(nonce));
    assert_eq!(client.call(&server, &proof).status, 200);

    let bearer = format!("Bearer {}", issuer.token(json!({})));
    let unbound = server.post(&[("authorization", &bearer)], "{}");
    assert_eq!(unbound.status, 401);
    let challenge = unbound.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("DPoP "), "{challenge}");
}
