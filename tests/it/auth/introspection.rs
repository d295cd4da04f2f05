//! Introspection of access tokens at their issuer (RFC 7662).

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use longshore::auth::IntrospectionConfig;
use longshore::{CallContext, Definition, ToolError, tool_fn};
use serde_json::{Map, Value, json};

use super::{CI, bearer, with_keys};
use crate::support::{Response, Running, Serve, Site, Stateless, Told};

const AUDIENCE: &str = "https://mcp.example.com/mcp";
const SECRET: &str = "a secret:of the server";

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// An issuer that knows some tokens by name.
fn issuer() -> Site {
    Site::start(|_, asked| {
        let expected = STANDARD.encode("longshore:a+secret%3Aof+the+server");
        if asked.headers.get("authorization") != Some(&format!("Basic {expected}")) {
            return Told::json(401, json!({"error": "invalid_client"}));
        }
        let token = asked.field("token").expect("a token");
        let good = json!({
            "active": true, "sub": "42", "aud": AUDIENCE, "scope": "orders:read", "client_id": "app",
            "exp": now() + 600,
        });
        let with = |change: &[(&str, Value)]| {
            let mut members = good.clone();
            for (name, value) in change {
                members[*name] = value.clone();
            }
            Told::json(200, members)
        };
        let without = |name: &str| {
            let mut members = good.clone();
            members.as_object_mut().expect("an object").remove(name);
            Told::json(200, members)
        };
        match &*token {
            "good" => with(&[]),
            "of-another-server" => with(&[("aud", "https://other.example.com".into())]),
            "of-several-servers" => {
                with(&[("aud", json!(["https://other.example.com", AUDIENCE]))])
            }
            "of-nobody" => without("aud"),
            "without-expiry" => without("exp"),
            "without-subject" => without("sub"),
            "expired" => with(&[("exp", (now() - 100).into())]),
            "not-yet" => with(&[("nbf", (now() + 600).into())]),
            "of-another-issuer" => with(&[("iss", "https://evil.example.com".into())]),
            "odd-scope" => with(&[("scope", 7.into())]),
            "of-a-type" => with(&[("token_use", "access_token".into())]),
            "to-refresh" => with(&[("token_type", "refresh_token".into())]),
            "to-refresh-at-ory" => with(&[
                ("token_type", "Bearer".into()),
                ("token_use", "refresh_token".into()),
            ]),
            "to-refresh-at-keycloak" => with(&[("typ", "Refresh".into())]),
            "active-as-text" => with(&[("active", "true".into())]),
            "twice" => Told::json(200, json!([{"active": true}])),
            "broken" => Told::json(500, json!({})),
            _ if token.contains('.') => with(&[]),
            _ => Told::json(200, json!({"active": false})),
        }
    })
}

fn serve(issuer: &Site, change: impl FnOnce(&mut IntrospectionConfig)) -> Running {
    let who = tool_fn(
        Definition::new("who"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let caller = context.principal();
            let scopes: Vec<_> = caller.scopes().collect();
            Ok::<_, ToolError>(format!("{} {}", caller.name(), scopes.join(" ")))
        },
    );
    let url = issuer.url.clone();
    let mut introspection = IntrospectionConfig {
        url: Some(format!("{url}/introspect")),
        client_id: "longshore".to_owned(),
        client_secret: Some(SECRET.to_owned().into()),
        ..IntrospectionConfig::default()
    };
    change(&mut introspection);
    Serve::new()
        .tool(who)
        .configured(|config| {
            with_keys(config);
            config.auth.oauth.issuer = Some(url);
            config.auth.oauth.audience = vec![AUDIENCE.to_owned()];
            config.auth.oauth.introspection = introspection;
        })
        .start()
}

fn call(server: &Running, token: &str) -> Response {
    let call = Stateless::call("who", json!({}));
    call.and("authorization", &bearer(token)).send(server)
}

fn text(response: &Response) -> String {
    let body: Value = serde_json::from_str(&response.body).expect("JSON");
    body["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn asked(issuer: &Site, token: &str) -> usize {
    let all = issuer.asked("/introspect").into_iter();
    all.filter(|asked| asked.field("token").as_deref() == Some(token))
        .count()
}

#[test]
fn each_answer_of_the_issuer_has_its_status() {
    let issuer = issuer();
    let server = serve(&issuer, |_| {});
    for (token, status, part) in [
        ("good", 200, "#42 orders:read"),
        ("of-several-servers", 200, "#42 orders:read"),
        ("without-expiry", 200, "#42 orders:read"),
        ("of-a-type", 200, "#42 orders:read"),
        ("without-subject", 200, "#app orders:read"),
        ("of-another-server", 401, "another audience"),
        (
            "of-nobody",
            401,
            "the issuer does not name the audience of the token",
        ),
        ("expired", 401, "expired"),
        ("not-yet", 401, "not valid yet"),
        ("of-another-issuer", 401, "another issuer"),
        ("odd-scope", 401, "scopes"),
        ("unknown", 401, "not active"),
        ("to-refresh", 401, "not an access token"),
        ("to-refresh-at-ory", 401, "not an access token"),
        ("to-refresh-at-keycloak", 401, "not an access token"),
        (
            "active-as-text",
            503,
            "tokens cannot be checked now: their issuer does not respond",
        ),
        (
            "twice",
            503,
            "tokens cannot be checked now: their issuer does not respond",
        ),
        (
            "broken",
            503,
            "tokens cannot be checked now: their issuer does not respond",
        ),
    ] {
        let response = call(&server, token);
        assert_eq!(response.status, status, "{token}: {}", response.body);
        assert!(response.body.contains(part), "{token}: {}", response.body);
        assert!(
            !response.body.contains(SECRET) && !response.body.contains("introspect"),
            "{token}"
        );
        if status == 503 {
            assert_eq!(response.header("retry-after"), Some("2"), "{token}");
        }
    }
}

#[test]
fn a_result_is_reused_and_a_key_is_no_token() {
    let issuer = issuer();
    let server = serve(&issuer, |_| {});
    for token in ["good", "unknown"] {
        for _ in 0..3 {
            call(&server, token);
        }
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| call(&server, token));
            }
        });
        assert_eq!(asked(&issuer, token), 1, "{token}");
    }
    let sent = issuer.asked("/introspect").swap_remove(0);
    assert_eq!(sent.method, "POST");
    assert_eq!(
        sent.field("token_type_hint").as_deref(),
        Some("access_token")
    );
    assert_eq!(text(&call(&server, CI)), "key:ci ");
    assert_eq!(asked(&issuer, CI), 0);
    let unknown = call(&server, "lsk_a-key-that-nobody-has-and-that-is-not-sent");
    assert_eq!(unknown.status, 401);
    assert_eq!(issuer.asked("/introspect").len(), 2);
}

#[test]
fn a_jwt_of_the_issuer_is_introspected_and_one_of_another_is_not() {
    let issuer = issuer();
    let server = serve(&issuer, |_| {});
    let jwt = |iss: &str| {
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = encode(json!({"alg": "EdDSA", "typ": "at+jwt"}));
        format!(
            "{header}.{}.c2lnbmF0dXJl",
            encode(json!({"iss": iss, "sub": "42"}))
        )
    };
    let own = jwt(&issuer.url);
    assert_eq!(call(&server, &own).status, 200);
    assert_eq!(asked(&issuer, &own), 1);
    let foreign = jwt("https://evil.example.com");
    assert_eq!(call(&server, &foreign).status, 401);
    assert_eq!(asked(&issuer, &foreign), 0);
}

#[test]
fn an_audience_is_optional_only_if_the_setting_says_so() {
    let issuer = issuer();
    let server = serve(&issuer, |config| config.require_audience = false);
    assert_eq!(call(&server, "of-nobody").status, 200);
    assert_eq!(call(&server, "of-another-server").status, 401);
}

#[test]
fn an_issuer_that_does_not_know_this_server_or_is_down_is_503() {
    let issuer = issuer();
    let wrong = serve(&issuer, |config| {
        config.client_secret = Some("wrong".to_owned().into());
    });
    let response = call(&wrong, "good");
    assert_eq!(response.status, 503, "{}", response.body);
    let down = serve(&issuer, |config| {
        config.url = Some("http://127.0.0.1:9/introspect".into());
    });
    assert_eq!(call(&down, "good").status, 503);
    assert_eq!(text(&call(&down, CI)), "key:ci ");
}

#[test]
fn settings_that_cannot_work_stop_the_start() {
    let cases: [(fn(&mut longshore::Config), &str); 5] = [
        (
            |c| c.auth.oauth.introspection.client_secret = None,
            "introspection.client_secret",
        ),
        (
            |c| c.auth.oauth.introspection.client_id.clear(),
            "introspection.client_id",
        ),
        (
            |c| c.auth.oauth.introspection.cache_seconds = 0,
            "introspection.cache_seconds",
        ),
        (
            |c| c.auth.oauth.introspection.url = None,
            "introspection.url",
        ),
        (
            |c| c.auth.oauth.introspection.url = Some("http://idp.example.com/i".into()),
            "introspection.url",
        ),
    ];
    for (change, expected) in cases {
        let mut config = longshore::Config::default();
        config.auth.oauth.issuer = Some("https://idp.example.com".to_owned());
        config.auth.oauth.audience = vec![AUDIENCE.to_owned()];
        config.auth.oauth.introspection.url = Some("https://idp.example.com/introspect".to_owned());
        config.auth.oauth.introspection.client_id = "longshore".to_owned();
        config.auth.oauth.introspection.client_secret = Some(SECRET.to_owned().into());
        change(&mut config);
        config.toolsets = vec!["demo".to_owned()];
        config.http.port = 0;
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let bound = runtime.block_on(longshore::App::new().config(config).bind());
        let error = bound.map(drop).expect_err("refused").to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!error.contains(SECRET), "{error}");
    }
}
