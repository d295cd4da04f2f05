//! Facts about callers in requests to APIs.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

fn caller() -> Principal {
    let claims = json!({"email": "ann@example.com", "tenant": 7, "evil": "a\r\nx-admin: 1"});
    let claims = claims.as_object().expect("an object").clone();
    Principal::new("ann")
        .with_groups(["staff", "ops"])
        .with_scopes(["orders:read"])
        .with_claims(claims)
}

fn headers(pairs: &[(&str, &str)]) -> ForwardConfig {
    let pair = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    ForwardConfig {
        headers: pairs.iter().map(pair).collect(),
        ..ForwardConfig::default()
    }
}

fn sent(config: &ForwardConfig, caller: &Principal) -> Result<HeaderMap, String> {
    let forward = Forward::new(config, None, false).map_err(|(_, problem)| problem)?;
    let mut headers = HeaderMap::new();
    match forward.apply(caller, &mut headers) {
        Ok(_) => Ok(headers),
        Err(error) => Err(error.message().to_owned()),
    }
}

#[test]
fn headers_have_the_facts_that_the_configuration_names_and_no_others() {
    let config = headers(&[
        ("x-user", "{{ caller.name }}"),
        ("x-groups", "{{ caller.groups | join(',') }}"),
        ("x-tenant", "{{ caller.claims.tenant }}"),
        ("x-mail", "mailto:{{ caller.claims.email }}"),
        ("x-kind", "{{ caller.kind }}"),
        ("x-phone", "{{ caller.claims.phone | default('') }}"),
    ]);
    let sent = sent(&config, &caller()).expect("all there");
    let text = |name: &str| sent.get(name).map(|value| value.to_str().expect("text"));
    assert_eq!(text("x-user"), Some("ann"));
    assert_eq!(text("x-groups"), Some("staff,ops"));
    assert_eq!(text("x-tenant"), Some("7"));
    assert_eq!(text("x-mail"), Some("mailto:ann@example.com"));
    assert_eq!(text("x-kind"), Some("custom"));
    assert_eq!(text("x-phone"), None);
    assert_eq!(sent.len(), 5);
}

#[test]
fn a_caller_without_the_fact_is_refused() {
    for template in [
        "{{ caller.subject }}",
        "{{ caller.claims.phone }}",
        "a{{ caller.claims.phone }}",
    ] {
        let error = sent(&headers(&[("x-who", template)]), &caller()).expect_err("missing");
        assert!(error.contains("x-who"), "{error}");
        assert!(!error.contains("ann"), "{error}");
    }
}

#[test]
fn a_claim_cannot_add_a_header() {
    let config = headers(&[("x-evil", "{{ caller.claims.evil }}")]);
    let error = sent(&config, &caller()).expect_err("control characters");
    assert!(
        error.contains("x-evil") && !error.contains("admin"),
        "{error}"
    );
    let long = json!({"long": "a".repeat(5000)});
    let long = caller().with_claims(long.as_object().expect("an object").clone());
    assert!(sent(&headers(&[("x-long", "{{ caller.claims.long }}")]), &long).is_err());
}

#[test]
fn settings_that_cannot_work_are_named() {
    let problem =
        |config: &ForwardConfig| Forward::new(config, None, false).expect_err("refused").0;
    for (name, template, expected) in [
        ("x user", "{{ caller.name }}", "forward.headers.x user"),
        ("host", "{{ caller.name }}", "forward.headers.host"),
        ("x-user", "{{ city }}", "forward.headers.x-user"),
        ("x-user", "{{ caller.name", "forward.headers.x-user"),
    ] {
        let found = problem(&headers(&[(name, template)]));
        assert_eq!(found, expected);
    }
    let assertion = |change: fn(&mut AssertionConfig), has_credentials: bool| {
        let mut config = ForwardConfig::default();
        change(&mut config.assertion);
        let signer = AssertionSigner::new(&KeyRing::random(), None);
        let made = Forward::new(&config, signer.as_ref(), has_credentials);
        made.expect_err("refused").0
    };
    type Change = fn(&mut AssertionConfig);
    let cases: [(Change, bool, &str); 5] = [
        (
            |c| c.lifetime_seconds = 30,
            false,
            "forward.assertion.audience",
        ),
        (
            |c| c.audience = Some(String::new()),
            false,
            "forward.assertion.audience",
        ),
        (
            |c| c.audience = Some("api".into()),
            false,
            "forward.assertion.issuer",
        ),
        (
            |c| c.audience = Some("api".into()),
            true,
            "forward.assertion.header",
        ),
        (
            |c| {
                c.audience = Some("api".into());
                c.lifetime_seconds = 3600;
            },
            false,
            "forward.assertion.lifetime_seconds",
        ),
    ];
    for (change, has_credentials, expected) in cases {
        let found = assertion(change, has_credentials);
        assert_eq!(found, expected);
    }
}

/// Verifies a JWT with a JWK set, and returns its claims.
fn verified(jwt: &str, keys: &str) -> Option<Value> {
    let keys: Value = serde_json::from_str(keys).ok()?;
    let (message, signature) = jwt.rsplit_once('.')?;
    let (header, claims) = message.split_once('.')?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
    let mut all = keys["keys"].as_array()?.iter();
    let key = all.find(|key| key["kid"] == header["kid"])?;
    let public = decode(key["x"].as_str()?)?;
    let key = UnparsedPublicKey::new(&ED25519, public);
    key.verify(message.as_bytes(), &decode(signature)?).ok()?;
    serde_json::from_slice(&decode(claims)?).ok()
}

#[test]
fn an_assertion_names_the_caller_and_is_for_one_audience() {
    let ring = KeyRing::random();
    let signer = AssertionSigner::new(&ring, Some("https://mcp.example.com".into())).expect("keys");
    let config = ForwardConfig {
        assertion: AssertionConfig {
            audience: Some("https://orders.internal".into()),
            claims: ["email", "groups", "scope", "sub"]
                .map(str::to_owned)
                .to_vec(),
            ..AssertionConfig::default()
        },
        ..ForwardConfig::default()
    };
    let forward = Forward::new(&config, Some(&signer), false).expect("settings");
    let mut headers = HeaderMap::new();
    let sent = forward.apply(&caller(), &mut headers).expect("a caller");
    let value = headers.get(AUTHORIZATION).expect("a header");
    assert_eq!(sent.as_ref(), Some(value));
    assert!(value.is_sensitive());
    let jwt = value
        .to_str()
        .expect("text")
        .strip_prefix("Bearer ")
        .expect("a token");
    let claims = verified(jwt, signer.public_keys()).expect("signed by this server");
    assert_eq!(claims["iss"], "https://mcp.example.com");
    assert_eq!(claims["aud"], "https://orders.internal");
    assert_eq!(claims["sub"], "ann");
    assert_eq!(claims["email"], "ann@example.com");
    assert_eq!(claims["groups"], json!(["staff", "ops"]));
    assert_eq!(claims["scope"], "orders:read");
    assert!(claims.get("tenant").is_none(), "not named");
    let lifetime = claims["exp"].as_u64().zip(claims["iat"].as_u64());
    assert_eq!(lifetime.map(|(exp, iat)| exp - iat), Some(60));
    // Another replica with the same ring has the same keys, another ring has not.
    let replica = AssertionSigner::new(&ring, None).expect("keys");
    assert!(verified(jwt, replica.public_keys()).is_some());
    let other = AssertionSigner::new(&KeyRing::random(), None).expect("keys");
    assert!(verified(jwt, other.public_keys()).is_none());
}

#[test]
fn there_is_no_assertion_about_an_unauthenticated_caller_or_without_a_claim() {
    let signer = AssertionSigner::new(&KeyRing::random(), Some("https://a.example".into()));
    let mut config = ForwardConfig::default();
    config.assertion.audience = Some("api".into());
    config.assertion.header = Some("x-assertion".into());
    let apply = |config: &ForwardConfig, caller: &Principal| {
        let forward = Forward::new(config, signer.as_ref(), true).expect("settings");
        let mut headers = HeaderMap::new();
        let applied = forward.apply(caller, &mut headers);
        applied
            .map(|_| headers)
            .map_err(|error| error.message().to_owned())
    };
    assert!(apply(&config, &Principal::anonymous()).is_err());
    let headers = apply(&config, &caller()).expect("a caller");
    assert!(headers.contains_key("x-assertion") && !headers.contains_key(AUTHORIZATION));
    config.assertion.claims = vec!["phone".into()];
    let error = apply(&config, &caller()).expect_err("no such claim");
    assert!(error.contains("phone"), "{error}");
}
