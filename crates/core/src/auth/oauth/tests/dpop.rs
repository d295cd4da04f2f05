//! Tokens that are bound to a key by DPoP: RFC 9449, sections 4.3, 7 and 8, by behaviour.

use std::fmt;
use std::time::Duration;

use http::Method;

use super::*;
use crate::auth::oauth::dpop::DpopNonces;
use crate::state::{Memory, SharedState};

/// Thumbprint of a key of a test: RFC 7638, by hand.
fn thumbprint(jwk: &Value) -> String {
    let text = match jwk["kty"].as_str() {
        Some("EC") => json!({"crv": jwk["crv"], "kty": "EC", "x": jwk["x"], "y": jwk["y"]}),
        Some("OKP") => json!({"crv": jwk["crv"], "kty": "OKP", "x": jwk["x"]}),
        _ => json!({"e": jwk["e"], "kty": "RSA", "n": jwk["n"]}),
    };
    encode(digest(&SHA256, text.to_string().as_bytes()))
}

/// A server with one issuer, and a client with a key and a token that is bound to it.
struct Setup {
    tokens: Tokens,
    client: Signer,
    token: String,
}

impl Setup {
    fn new(client: Signer) -> Self {
        Self::with(client, |_| {})
    }

    fn with(client: Signer, change: impl FnOnce(&mut OAuthConfig)) -> Self {
        let issuer = Signer::ed25519("issuer");
        let tokens = tokens(change);
        tokens.0.issuers[0].hold(&set_of(&[&issuer]));
        let mut bound = claims();
        bound["cnf"] = json!({"jkt": thumbprint(&client.jwk)});
        let token = issuer.token(&bound);
        Self {
            tokens,
            client,
            token,
        }
    }

    /// Header of a proof.
    fn header(&self) -> Value {
        let mut jwk = self.client.jwk.clone();
        jwk.as_object_mut()
            .expect("an object")
            .retain(|name, _| ["kty", "crv", "x", "y", "n", "e"].contains(&name.as_str()));
        json!({"typ": "dpop+jwt", "alg": self.client.algorithm, "jwk": jwk})
    }

    /// Claims of a proof for a call.
    fn claims(&self, id: &str) -> Value {
        json!({
            "jti": id, "htm": "POST", "htu": RESOURCE, "iat": NOW, "ath": encode(digest(&SHA256, self.token.as_bytes())),
        })
    }

    fn proof(&self, header: &Value, claims: &Value) -> String {
        self.client.token_of(header.to_string(), claims.to_string())
    }

    fn good(&self, id: &str) -> String {
        self.proof(&self.header(), &self.claims(id))
    }

    /// `None` if the call is accepted, else why it is not.
    async fn called(&self, scheme: &str, proof: Option<&str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        let value = format!("{scheme} {}", self.token);
        headers.insert("authorization", value.parse().expect("a value"));
        if let Some(proof) = proof {
            headers.insert("dpop", proof.parse().expect("a value"));
        }
        let presented = Credentials::read(&headers, None, None, NOW).expect("well-formed");
        let presented = presented.with_method(&Method::POST).with_url(RESOURCE);
        let lasts = self.tokens.holds_until(&presented);
        assert!(scheme != "DPoP" || lasts.is_none(), "nothing is cached");
        fault(settled(self.tokens.judge(&presented)).await)
    }
}

#[tokio::test]
async fn a_bound_token_counts_with_a_proof_of_its_key_and_each_proof_once() {
    for client in [
        Signer::es256("a"),
        Signer::ed25519("a"),
        Signer::rsa("a", "PS256"),
        Signer::rsa("a", "RS256"),
    ] {
        let setup = Setup::new(client);
        let proof = setup.good("1");
        assert_eq!(setup.called("DPoP", Some(&proof)).await, None);
        assert_eq!(setup.called("dpop", Some(&setup.good("2"))).await, None);
        let again = setup.called("DPoP", Some(&proof)).await;
        assert_eq!(
            again.as_deref(),
            Some("the proof was used before; sign a new one")
        );
    }
}

#[tokio::test]
async fn a_proof_that_is_not_for_this_request_is_rejected() {
    let setup = Setup::new(Signer::es256("a"));
    let good = setup.claims("1");
    let changed = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        setup.proof(&setup.header(), &claims)
    };
    for (proof, reason) in [
        (changed("htm", "GET".into()), "htm is not the method"),
        (changed("htm", "post".into()), "htm is not the method"),
        (
            changed("htu", "https://mcp.example.com/".into()),
            "htu is not the URL",
        ),
        (
            changed("htu", "https://evil.example/mcp".into()),
            "htu is not the URL",
        ),
        (changed("htu", Value::Null), "htu is not the URL"),
        (changed("iat", (NOW - 301).into()), "iat is missing"),
        (changed("iat", (NOW + 301).into()), "iat is missing"),
        (changed("iat", "now".into()), "iat is missing"),
        (
            changed("ath", encode("other").into()),
            "ath is not the hash",
        ),
        (changed("ath", Value::Null), "ath is not the hash"),
        (changed("jti", Value::Null), "jti is missing"),
        (changed("jti", "".into()), "jti is missing"),
        (changed("jti", "x".repeat(257).into()), "jti is missing"),
    ] {
        let found = setup.called("DPoP", Some(&proof)).await;
        let found = found.expect("rejected");
        assert!(found.starts_with(reason), "{found}");
    }
    // Query, fragment and the spelling of the host do not count.
    let same = changed("htu", "HTTPS://mcp.example.com:443/mcp?a=1#b".into());
    assert_eq!(setup.called("DPoP", Some(&same)).await, None);
}

#[tokio::test]
async fn a_proof_in_another_form_is_rejected() {
    let setup = Setup::new(Signer::es256("a"));
    let claims = setup.claims("1");
    let changed = |name: &str, value: Value| {
        let mut header = setup.header();
        header[name] = value;
        setup.proof(&header, &claims)
    };
    let with_private = {
        let mut header = setup.header();
        header["jwk"]["d"] = "AA".into();
        setup.proof(&header, &claims)
    };
    let other_key = {
        let mut header = setup.header();
        header["jwk"] = Signer::es256("b").jwk;
        setup.proof(&header, &claims)
    };
    for (proof, reason) in [
        (changed("typ", "JWT".into()), "typ of the proof"),
        (changed("alg", "none".into()), "alg of the proof"),
        (changed("alg", "HS256".into()), "alg of the proof"),
        (changed("alg", "EdDSA".into()), "jwk of the proof"),
        (changed("jwk", Value::Null), "jwk of the proof"),
        (
            changed("jwk", json!({"kty": "oct", "k": "AAAA"})),
            "jwk of the proof",
        ),
        (changed("crit", json!(["x"])), "the proof demands"),
        (with_private, "jwk of the proof"),
        (other_key, "the signature of the proof is wrong"),
        ("a.b".to_owned(), "the proof is not a JWT"),
        (".".repeat(9000), "the proof is too long"),
    ] {
        let found = setup.called("DPoP", Some(&proof)).await;
        let found = found.expect("rejected");
        assert!(found.starts_with(reason), "{found} instead of {reason}");
    }
}

#[tokio::test]
async fn a_stolen_token_is_of_no_use() {
    let setup = Setup::new(Signer::es256("a"));
    let missing = setup.called("DPoP", None).await.expect("rejected");
    assert!(
        missing.starts_with("the header DPoP is missing"),
        "{missing}"
    );
    let bearer = setup.called("Bearer", Some(&setup.good("1"))).await;
    let bearer = bearer.expect("rejected");
    assert!(bearer.contains("send it with the scheme DPoP"), "{bearer}");
    // The thief has a key of his own.
    let thief = Setup {
        client: Signer::es256("b"),
        token: setup.token.clone(),
        tokens: setup.tokens.clone(),
    };
    let stolen = thief.called("DPoP", Some(&thief.good("1"))).await;
    let stolen = stolen.expect("rejected");
    assert!(stolen.contains("another key"), "{stolen}");
}

#[tokio::test]
async fn a_token_without_a_key_is_a_bearer_token() {
    let issuer = Signer::ed25519("issuer");
    for required in [false, true] {
        let mut setup = Setup::with(Signer::es256("a"), |config| config.dpop.required = required);
        setup.tokens.0.issuers[0].hold(&set_of(&[&issuer]));
        setup.token = issuer.token(&claims());
        let bearer = setup.called("Bearer", None).await;
        assert_eq!(bearer.is_some(), required, "{bearer:?}");
        let as_dpop = setup.called("DPoP", Some(&setup.good("1"))).await;
        assert!(as_dpop.is_some(), "RFC 9449, section 7.2");
    }
}

/// Nonces for a test.
struct Fixed;

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fixed")
    }
}

impl DpopNonces for Fixed {
    fn issue(&self, now: u64) -> String {
        format!("n-{now}")
    }

    fn is_valid(&self, nonce: &str, now: u64) -> bool {
        nonce == self.issue(now)
    }
}

#[tokio::test]
async fn a_server_with_nonces_names_one_and_accepts_a_proof_with_it() {
    let setup = Setup::new(Signer::es256("a"));
    let state = SharedState::new(Arc::new(Memory::new(1 << 20)), Duration::from_secs(1));
    let verifier = DpopVerifier::new(state, Some(Arc::new(Fixed)));
    setup.tokens.verify_proofs_by(verifier);
    let without = setup.called("DPoP", Some(&setup.good("1"))).await;
    assert!(without.is_some_and(|text| text.contains("DPoP-Nonce")));
    let mut claims = setup.claims("1");
    claims["nonce"] = format!("n-{NOW}").into();
    let proof = setup.proof(&setup.header(), &claims);
    assert_eq!(setup.called("DPoP", Some(&proof)).await, None);
}

#[tokio::test]
async fn replicas_with_one_state_accept_a_proof_once() {
    let one = Setup::new(Signer::es256("a"));
    let state = SharedState::new(Arc::new(Memory::new(1 << 20)), Duration::from_secs(1));
    let verifier = DpopVerifier::new(state, None);
    one.tokens.verify_proofs_by(verifier.clone());
    let request = |proof| DpopRequest {
        proof: Some(proof),
        method: "POST",
        url: RESOURCE,
        token: Some(&one.token),
    };
    let proof = one.good("1");
    assert_eq!(one.called("DPoP", Some(&proof)).await, None);
    let again = verifier.verify(&request(&proof), NOW).expect("valid");
    assert!(verifier.use_once(&again, "alice").await.is_err());
}
