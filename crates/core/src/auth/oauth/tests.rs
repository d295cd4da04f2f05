//! What is let in and what is not, by behaviour.

mod dpop;
mod hostile;
mod keys_of_issuers;
mod settings;
mod wycheproof;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::{Value, json};

use super::token::Token;
use super::verification::{VERIFIED_SECONDS, settled};
use super::*;
use crate::auth::credential_cache::{Cacheable as _, FOREVER};
use crate::auth::{AuthError, AuthMethod as _, AuthOutcome, Credentials, PrincipalKind};

const ISSUER: &str = "https://id.example.com";
const RESOURCE: &str = "https://mcp.example.com/mcp";
const NOW: u64 = 1_800_000_000;

type Sign = dyn Fn(&[u8]) -> Vec<u8>;

/// Somebody who signs.
struct Signer {
    algorithm: &'static str,
    jwk: Value,
    sign: Box<Sign>,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    fn es256(id: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let public = pair.public_key().as_ref().to_vec();
        let (x, y) = (encode(&public[1..33]), encode(&public[33..]));
        Self {
            algorithm: "ES256",
            jwk: json!({"kty": "EC", "crv": "P-256", "kid": id, "use": "sig", "alg": "ES256", "x": x, "y": y}),
            sign: Box::new(move |message| {
                let signature = pair.sign(&SystemRandom::new(), message).expect("signed");
                signature.as_ref().to_vec()
            }),
        }
    }

    fn ed25519(id: &str) -> Self {
        let pair = Ed25519KeyPair::generate().expect("a key");
        let x = encode(pair.public_key().as_ref());
        Self {
            algorithm: "EdDSA",
            jwk: json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "alg": "EdDSA", "x": x}),
            sign: Box::new(move |message| pair.sign(message).as_ref().to_vec()),
        }
    }

    fn rsa(id: &str, algorithm: &'static str) -> Self {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
        let padding: &'static dyn RsaEncoding = match algorithm {
            "RS256" => &RSA_PKCS1_SHA256,
            _ => &RSA_PSS_SHA256,
        };
        Self {
            algorithm,
            jwk: json!({"kty": "RSA", "kid": id, "use": "sig", "alg": algorithm, "n": encode(&public.n), "e": encode(&public.e)}),
            sign: Box::new(move |message| {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &SystemRandom::new(), message, &mut signature)
                    .expect("signed");
                signature
            }),
        }
    }

    fn id(&self) -> &str {
        self.jwk["kid"].as_str().expect("an id")
    }

    fn header(&self) -> Value {
        json!({"alg": self.algorithm, "kid": self.id(), "typ": "at+jwt"})
    }

    /// A token of just these texts.
    fn token_of(&self, header: impl AsRef<[u8]>, claims: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = (self.sign)(message.as_bytes());
        format!("{message}.{}", encode(signature))
    }

    fn token(&self, claims: &Value) -> String {
        self.token_of(self.header().to_string(), claims.to_string())
    }
}

/// Claims of a good token.
fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": RESOURCE, "sub": "alice", "client_id": "client", "scope": "mcp files:read",
        "iat": NOW - 10, "nbf": NOW - 10, "exp": NOW + 600,
    })
}

fn set_of(signers: &[&Signer]) -> String {
    let keys: Vec<_> = signers.iter().map(|signer| signer.jwk.clone()).collect();
    json!({ "keys": keys }).to_string()
}

fn tokens(change: impl FnOnce(&mut OAuthConfig)) -> Tokens {
    let mut config = OAuthConfig {
        issuer: Some(ISSUER.to_owned()),
        ..OAuthConfig::default()
    };
    change(&mut config);
    Tokens::new(&config, &Implied::default(), Some(RESOURCE)).expect("sound settings")
}

fn judged_at(tokens: &Tokens, token: &str, now: u64) -> AuthOutcome {
    let mut headers = HeaderMap::new();
    headers.insert(
        "authorization",
        format!("Bearer {token}").parse().expect("a value"),
    );
    match Credentials::read(&headers, None, None, now) {
        Ok(presented) => tokens.judge(&presented),
        Err(error) => AuthOutcome::Refused(error),
    }
}

fn judged(tokens: &Tokens, token: &str) -> AuthOutcome {
    judged_at(tokens, token, NOW)
}

/// `None` if the token is good, else why it is not.
fn fault(judgement: AuthOutcome) -> Option<String> {
    match judgement {
        AuthOutcome::Proven(_) => None,
        AuthOutcome::Absent => Some("absent".to_owned()),
        AuthOutcome::Refused(error) => Some(error.to_string()),
        AuthOutcome::Later(_) => Some("later".to_owned()),
    }
}

fn principal(judgement: AuthOutcome) -> Arc<Principal> {
    match judgement {
        AuthOutcome::Proven(principal) => principal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_algorithm_that_is_accepted_is() {
    let signers = [
        Signer::rsa("1", "RS256"),
        Signer::rsa("2", "PS256"),
        Signer::es256("3"),
        Signer::ed25519("4"),
    ];
    let tokens = tokens(|_| {});
    tokens.0.issuers[0].hold(&set_of(&signers.each_ref()));
    for signer in &signers {
        let alice = principal(judged(&tokens, &signer.token(&claims())));
        assert_eq!(
            alice.name(),
            "oauth:id.example.com#alice",
            "{}",
            signer.algorithm
        );
        assert_eq!(alice.kind(), PrincipalKind::Token);
        assert_eq!(
            (alice.subject(), alice.client()),
            (Some("alice"), Some("client"))
        );
        assert_eq!(alice.issuer(), Some(ISSUER));
        assert!(alice.has_scope("files:read") && !alice.has_scope("files:write"));
    }
    // A key that does not say which of the two that its type has is for both.
    let mut plain = Signer::rsa("5", "PS256");
    plain.jwk.as_object_mut().expect("an object").remove("alg");
    tokens.0.issuers[0].hold(&set_of(&[&plain]));
    assert_eq!(fault(judged(&tokens, &plain.token(&claims()))), None);
}

#[test]
fn auth_04_a_judgement_lasts_as_long_as_what_was_verified_and_no_longer_than_the_keys() {
    let (signer, other) = (Signer::ed25519("1"), Signer::ed25519("2"));
    let changes = Epoch::default();
    let tokens = tokens(|_| {}).noting(&changes);
    let issuer = &tokens.0.issuers[0];
    issuer.hold(&set_of(&[&signer]));
    assert_eq!(changes.count(), 1);
    let lasts_at = |token: &str, now: u64| {
        let mut headers = HeaderMap::new();
        let value = format!("Bearer {token}").parse().expect("a value");
        headers.insert("authorization", value);
        let presented = Credentials::read(&headers, None, None, now).expect("well-formed");
        tokens.holds_until(&presented)
    };
    let token = signer.token(&claims());
    // Nobody has looked at it yet.
    assert_eq!(lasts_at(&token, NOW), None);
    assert_eq!(fault(judged(&tokens, &token)), None);
    assert_eq!(lasts_at(&token, NOW), Some(NOW + VERIFIED_SECONDS));
    // Another look does not make it last longer.
    assert_eq!(fault(judged_at(&tokens, &token, NOW + 100)), None);
    assert_eq!(lasts_at(&token, NOW + 100), Some(NOW + VERIFIED_SECONDS));
    let mut short = claims();
    short["exp"] = (NOW + 20).into();
    let short = signer.token(&short);
    assert_eq!(fault(judged(&tokens, &short)), None);
    assert_eq!(lasts_at(&short, NOW), Some(NOW + 20 + tokens.0.leeway));
    // What is no token is judged by others for ever.
    assert_eq!(lasts_at("lsk_a-key", NOW), Some(FOREVER));
    issuer.hold(&set_of(&[&other]));
    assert_eq!((changes.count(), lasts_at(&token, NOW)), (2, None));
}

#[test]
fn what_was_verified_is_remembered_within_bounds_however_large_tokens_are() {
    let signer = Signer::ed25519("1");
    let tokens = tokens(|_| {});
    tokens.0.issuers[0].hold(&set_of(&[&signer]));
    for number in 0..4_000 {
        let mut claims = claims();
        claims["sub"] = format!("user-{number}").into();
        claims["padding"] = "x".repeat(8 * 1024).into();
        assert_eq!(fault(judged(&tokens, &signer.token(&claims))), None);
    }
    let verified = &tokens.0.verified;
    assert!(
        verified.weight() <= VERIFIED_MAX_BYTES,
        "{}",
        verified.weight()
    );
    assert!((100..4_000).contains(&verified.len()), "{}", verified.len());
}

#[test]
fn sec_04_principals_are_told_apart_by_issuer_subject_and_client() {
    let signer = Signer::ed25519("1");
    let tokens = tokens(|_| {});
    tokens.0.issuers[0].hold(&set_of(&[&signer]));
    let who = |subject: &str, client: &str| {
        let mut claims = claims();
        claims["sub"] = subject.into();
        claims["client_id"] = client.into();
        principal(judged(&tokens, &signer.token(&claims)))
    };
    assert_eq!(who("alice", "a"), who("alice", "a"));
    assert_ne!(who("alice", "a"), who("alice", "b"));
    assert_ne!(who("alice", "a"), who("bob", "a"));
    assert_ne!(who("alice#a", ""), who("alice", "#a"));
}

#[test]
fn what_was_verified_is_remembered_but_not_beyond_its_end_nor_its_key() {
    let (signer, other) = (Signer::ed25519("1"), Signer::ed25519("2"));
    let tokens = tokens(|_| {});
    let issuer = &tokens.0.issuers[0];
    issuer.hold(&set_of(&[&signer]));
    let mut short = claims();
    short["exp"] = (NOW + 100).into();
    let (long, short) = (signer.token(&claims()), signer.token(&short));
    let first = principal(judged(&tokens, &long));
    assert!(
        Arc::ptr_eq(&first, &principal(judged(&tokens, &long))),
        "the same one"
    );
    assert_eq!(fault(judged(&tokens, &short)), None);
    for (token, later, expected) in [
        (&long, 299, None),
        (&long, 301, None),
        (&long, 659, None),
        (&long, 660, Some("the token has expired")),
        (&short, 159, None),
        (&short, 160, Some("the token has expired")),
    ] {
        let found = fault(judged_at(&tokens, token, NOW + later));
        assert_eq!(found.as_deref(), expected, "{later}");
    }
    // A key that the issuer has taken away lets nobody in, whatever was remembered.
    issuer.hold(&set_of(&[&other]));
    assert_eq!(fault(judged(&tokens, &long)).as_deref(), Some("later"));
    // What is remembered is bounded.
    issuer.hold(&set_of(&[&signer]));
    assert!(tokens.0.verified.capacity() <= VERIFIED_MAX_BYTES);
}

#[test]
fn products_say_the_same_in_different_claims() {
    let signer = Signer::ed25519("1");
    for (issuer, claims, client, scopes, groups) in [
        (
            "https://login.microsoftonline.com/t/v2.0",
            json!({"aud": "guid", "azp": "app", "scp": "a b", "groups": ["g"], "roles": ["r"]}),
            Some("app"),
            "a b",
            "g r",
        ),
        (
            "https://x.eu.auth0.com/",
            json!({"aud": ["guid", "x"], "azp": "app", "scope": "a", "permissions": ["b"]}),
            Some("app"),
            "a b",
            "",
        ),
        (
            "https://x.okta.com/oauth2/default",
            json!({"aud": "guid", "cid": "app", "scp": ["a", "b"], "groups": ["g"]}),
            Some("app"),
            "a b",
            "g",
        ),
        (
            "https://id.example.com/realms/main",
            json!({"aud": "guid", "azp": "app", "typ": "Bearer", "scope": "a", "realm_access": {"roles": ["r"]}}),
            Some("app"),
            "a",
            "r",
        ),
        (
            "https://cognito-idp.eu-west-1.amazonaws.com/pool",
            json!({"client_id": "guid", "token_use": "access", "scope": "a", "cognito:groups": ["g"]}),
            Some("guid"),
            "a",
            "g",
        ),
        (
            "https://accounts.google.com",
            json!({"aud": "guid", "azp": "app"}),
            Some("app"),
            "",
            "",
        ),
    ] {
        let tokens = tokens(|c| {
            c.issuer = Some(issuer.to_owned());
            c.audience = vec!["guid".to_owned()];
        });
        tokens.0.issuers[0].hold(&set_of(&[&signer]));
        let mut all = claims;
        for (name, value) in [
            ("iss", json!(issuer)),
            ("sub", json!("s")),
            ("exp", json!(NOW + 60)),
        ] {
            all[name] = value;
        }
        let found = principal(judged(&tokens, &signer.token(&all)));
        assert_eq!(found.client(), client, "{issuer}");
        assert_eq!(
            found.scopes().collect::<Vec<_>>().join(" "),
            scopes,
            "{issuer}"
        );
        assert_eq!(
            found.groups().collect::<Vec<_>>().join(" "),
            groups,
            "{issuer}"
        );
    }
    let google = tokens(|c| {
        c.issuer = Some("https://accounts.google.com".to_owned());
        c.audience = vec!["guid".to_owned()];
    });
    google.0.issuers[0].hold(&set_of(&[&signer]));
    let bare = json!({"iss": "accounts.google.com", "aud": "guid", "sub": "s", "exp": NOW + 60});
    assert_eq!(fault(judged(&google, &signer.token(&bare))), None);
    let cognito = tokens(|c| {
        c.issuer = Some("https://cognito-idp.eu-west-1.amazonaws.com/pool".to_owned());
        c.audience = vec!["guid".to_owned()];
    });
    cognito.0.issuers[0].hold(&set_of(&[&signer]));
    let id_token = json!({"iss": "https://cognito-idp.eu-west-1.amazonaws.com/pool", "client_id": "guid", "token_use": "id", "sub": "s", "exp": NOW + 60});
    assert!(fault(judged(&cognito, &signer.token(&id_token))).is_some());
}

#[test]
fn several_issuers_have_keys_and_audiences_of_their_own() {
    let (one, other) = (Signer::ed25519("1"), Signer::ed25519("1"));
    let tokens = tokens(|c| {
        c.issuers = vec![IssuerConfig {
            issuer: "https://other.example.com".to_owned(),
            name: Some("other".to_owned()),
            audience: vec!["elsewhere".to_owned()],
            ..IssuerConfig::default()
        }];
    });
    tokens.0.issuers[0].hold(&set_of(&[&one]));
    tokens.0.issuers[1].hold(&set_of(&[&other]));
    let mut second = claims();
    second["iss"] = "https://other.example.com".into();
    second["aud"] = "elsewhere".into();
    let alice = principal(judged(&tokens, &other.token(&second)));
    assert_eq!(alice.name(), "oauth:other#alice");
    assert_eq!(fault(judged(&tokens, &one.token(&claims()))), None);
    // Neither one's key signs for the other, nor is one's audience the other's.
    assert!(fault(judged(&tokens, &one.token(&second))).is_some());
    assert!(fault(judged(&tokens, &other.token(&claims()))).is_some());
    second["aud"] = RESOURCE.into();
    assert!(fault(judged(&tokens, &other.token(&second))).is_some());
}

#[test]
fn settings_that_can_never_work_are_refused_with_what_to_do() {
    type Setting = fn(&mut OAuthConfig, String);
    let reported = |change: &dyn Fn(&mut OAuthConfig), resource: Option<&str>| {
        let mut config = OAuthConfig {
            issuer: Some(ISSUER.to_owned()),
            ..OAuthConfig::default()
        };
        change(&mut config);
        let made = Tokens::new(&config, &Implied::default(), resource);
        made.map(drop).expect_err("refused").to_string()
    };
    let issuer: Setting = |c, value| c.issuer = Some(value);
    let audience: Setting = |c, value| c.audience = vec![value];
    let scopes: Setting = |c, value| c.scopes = vec![value];
    for (setting, value, expected) in [
        (issuer, "id.example.com", "auth.oauth.issuer"),
        (issuer, "http://id.example.com", "https"),
        (issuer, "https://id.example.com?x=1", "without a query"),
        (
            issuer,
            "https://user:pass@id.example.com",
            "auth.oauth.issuer",
        ),
        (issuer, "ftp://id.example.com", "auth.oauth.issuer"),
        (
            |c, value| c.jwks_url = Some(value),
            "http://id.example.com/keys",
            "jwks_url",
        ),
        (audience, "", "auth.oauth.audience"),
        (audience, "a b", "auth.oauth.audience"),
        (audience, "https://a/#b", "auth.oauth.audience"),
        (scopes, "offline_access", "auth.oauth.scopes"),
        (scopes, "a b", "auth.oauth.scopes"),
        (|c, _| c.leeway_seconds = 61, "", "at most 60"),
        (
            |c, value| c.metadata_url = Some(value),
            "x",
            "auth.oauth.metadata_url",
        ),
        (
            |c, issuer| {
                c.issuers = vec![IssuerConfig {
                    issuer,
                    ..IssuerConfig::default()
                }];
            },
            ISSUER,
            "twice",
        ),
    ] {
        let error = reported(&|c| setting(c, value.to_owned()), Some(RESOURCE));
        assert!(error.contains(expected), "{error}");
    }
    let error = reported(&|_| {}, None);
    assert!(
        error.contains("http.public_url") && error.contains("auth.oauth.audience"),
        "{error}"
    );
}
