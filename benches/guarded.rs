//! Scenarios with authentication, access policies and rate limits.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use longshore::auth::Effect;
use longshore::bench::Pipeline;
use longshore::{App, Config, Tool};
use serde_json::{Value, json};

use super::settings::{
    ISSUER, KEYS, TOKEN, compare, holder, key, limit_everything, own_tools, rule, take_tokens,
};
use super::{Lookup, Scenario, Server, Work, definition};

/// A setting with its credential.
type Set = (&'static str, fn(&mut Config), String);

/// Returns one call to servers without authentication, with each authentication method, and with all kinds of rate
/// limit buckets.
pub fn guarded() -> Vec<Scenario> {
    let settings: [Set; 4] = [
        ("call-open", |_| {}, key(0)),
        ("call-key", |c| c.auth.api_keys = vec![holder(0)], key(0)),
        ("call-token", take_tokens, TOKEN.to_owned()),
        ("call-buckets", limit_everything, key(0)),
    ];
    let calls = settings.map(|(name, set, credential)| {
        let mut config = plain();
        config.toolsets.push("demo".to_owned());
        set(&mut config);
        let app = App::new().config(config);
        let server = Server::shown(app, Some(KEYS), Some(&credential));
        let echo = json!({"name": "echo", "arguments": {"message": "hello"}});
        server.in_session(name, "tools/call", Some(echo))
    });
    let mut calls = Vec::from(calls);
    calls.push(dpop_call());
    calls
}

/// Returns calls with a token that is bound to a key, each with a DPoP proof of its own (RFC 9449).
fn dpop_call() -> Scenario {
    const PROOFS: usize = 500;
    let client = DpopClient::new();
    let mut config = plain();
    config.toolsets.push("demo".to_owned());
    take_tokens(&mut config);
    let pipeline = Pipeline::with_keys(App::new().config(config), Some(&client.issuer_keys()));
    let server = Server {
        pipeline: Rc::new(pipeline.unwrap_or_else(|error| panic!("{error}"))),
        session: None,
        credential: None,
    };
    let echo = json!({"name": "echo", "arguments": {"message": "hello"}});
    let requests = server.stateless_requests("tools/call", echo, PROOFS, |request, number| {
        let headers = request.headers_mut();
        for (name, value) in [
            ("authorization", format!("DPoP {}", client.token)),
            ("dpop", client.proof(number)),
        ] {
            let value = HeaderValue::try_from(value).unwrap_or_else(|error| panic!("{error}"));
            headers.insert(name, value);
        }
    });
    Scenario::new("call-dpop", Work::Requests(server.pipeline, requests)).checked()
}

/// A client with a key, and a token that is bound to it, of an issuer that does not exist.
struct DpopClient {
    key: EcdsaKeyPair,
    jwk: Value,
    issuer: Ed25519KeyPair,
    token: String,
}

impl DpopClient {
    fn new() -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = key.unwrap_or_else(|error| panic!("{error}"));
        let point = key.public_key().as_ref();
        let (x, y) = (encoded(&point[1..33]), encoded(&point[33..]));
        let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        let thumbprint = encoded(digest(&SHA256, members.as_bytes()));
        let issuer = Ed25519KeyPair::from_seed_unchecked(&[7; 32]);
        let issuer = issuer.unwrap_or_else(|error| panic!("{error}"));
        let header = json!({"alg": "EdDSA", "kid": "1", "typ": "at+jwt"});
        let claims = json!({
            "iss": ISSUER, "aud": "loadtest", "sub": "loadtest", "client_id": "loadtest", "scope": "mcp",
            "exp": 4_102_444_800_u64, "cnf": {"jkt": thumbprint},
        });
        let token = signed(&header, &claims, |message| {
            issuer.sign(message).as_ref().to_vec()
        });
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y});
        Self {
            key,
            jwk,
            issuer,
            token,
        }
    }

    fn issuer_keys(&self) -> String {
        let x = encoded(self.issuer.public_key());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "alg": "EdDSA", "x": x}]})
            .to_string()
    }

    fn proof(&self, number: usize) -> String {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let header = json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": self.jwk});
        let claims = json!({
            "jti": format!("proof-{number}"), "htm": "POST", "htu": "http://127.0.0.1:3000/mcp",
            "iat": now.as_secs(), "ath": encoded(digest(&SHA256, self.token.as_bytes())),
        });
        signed(&header, &claims, |message| {
            let signature = self.key.sign(&SystemRandom::new(), message);
            signature
                .unwrap_or_else(|error| panic!("{error}"))
                .as_ref()
                .to_vec()
        })
    }
}

fn signed(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let message = format!(
        "{}.{}",
        encoded(header.to_string()),
        encoded(claims.to_string())
    );
    let signature = encoded(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns a lookup of one bucket among `addresses`.
pub fn buckets(addresses: u32) -> Vec<Scenario> {
    let buckets = longshore::bench::Buckets::new(addresses);
    let work = Work::Buckets(buckets, addresses as usize);
    vec![Scenario::new(format!("bucket-of-{addresses}"), work)]
}

/// The credential for another server of a caller whose token was exchanged before (`auth.on_behalf_of`).
pub fn exchanged() -> Vec<Scenario> {
    let exchange = longshore::bench::CachedExchange::new(860);
    vec![Scenario::new(
        "exchange-cached",
        Work::Exchange(Box::new(exchange)),
    )]
}

/// The listing of 51 tools of which a rule hides the first.
pub fn filtered() -> Vec<Scenario> {
    let tools = (1..=51).map(|number| Arc::new(Lookup(definition(number))) as Arc<dyn Tool>);
    let mut config = plain();
    config.policy.rules = vec![rule(Effect::Deny, &[definition(1).name().to_owned()])];
    let server = Server::new(App::new().config(config).tools(tools));
    vec![server.in_session("list-of-51-less-one", "tools/list", Some(json!({})))]
}

/// Returns listings with 1,000 roles and 10,000 tools, where each role has 9 tools of its own and 100 shared ones:
/// for one role, and for one role after another. For comparison, also returns a listing of as many tools without
/// rules.
pub fn roles() -> Vec<Scenario> {
    const ROLES: u32 = 1000;
    let tools = (1..=10_000).map(|number| Arc::new(Lookup(definition(number))) as Arc<dyn Tool>);
    let mut config = plain();
    config.auth.api_keys = (0..ROLES).map(holder).collect();
    let own = (0..ROLES).map(|role| {
        let own = role * 9 + 1..role * 9 + 10;
        own_tools(role, own.map(|number| format!("lookup_record_{number:05}")))
    });
    config.policy.rules = own.collect();
    // 100 of them.
    let shared = vec!["lookup_record_099??".to_owned()];
    config.policy.rules.push(rule(Effect::Allow, &shared));
    let mut server = Server::shown(App::new().config(config).tools(tools), None, Some(&key(0)));
    let mut of = |role| {
        server.credential = Some(key(role));
        let list = server.stateless("list-of-one-role", "tools/list", json!({}));
        let Work::Requests(pipeline, mut requests) = list.work else {
            unreachable!("it was made of a request");
        };
        (pipeline, requests.remove(0))
    };
    let (pipeline, one) = of(0);
    let all = (0..ROLES).map(|role| of(role).1).collect();
    let one = Work::Requests(Rc::clone(&pipeline), vec![one]);
    let mut all = Scenario::new(
        format!("list-of-{ROLES}-roles"),
        Work::Requests(pipeline, all),
    );
    all.warm_up = ROLES as usize;
    vec![Scenario::new("list-of-one-role", one), all]
}

fn plain() -> Config {
    let mut config = Config::default();
    compare(&mut config);
    config
}
