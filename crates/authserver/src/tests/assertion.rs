//! Identity assertions of the provider (ID-JAG), instead of a login.

use serde_json::{Value, json};

use super::flow::Flow;
use crate::auth::FacadeClientConfig;
use crate::metadata::JWT_BEARER;

const SECRET: &str = "secret-of-the-desktop";

async fn flow() -> Flow {
    Flow::with(|config| {
        config.identity_assertions = true;
        for (id, secret) in [("desktop", Some(SECRET)), ("public", None)] {
            config.clients.push(FacadeClientConfig {
                id: id.to_owned(),
                redirect_uris: vec!["http://127.0.0.1/callback".to_owned()],
                secret: secret.map(|secret| secret.to_owned().into()),
                ..FacadeClientConfig::default()
            });
        }
    })
    .await
}

async fn shown(flow: &Flow, assertion: &str, changed: &[(&str, &str)]) -> Result<Value, Value> {
    let mut fields = vec![
        ("grant_type", JWT_BEARER),
        ("assertion", assertion),
        ("client_id", "desktop"),
        ("client_secret", SECRET),
    ];
    for (name, value) in changed {
        fields.retain(|(known, _)| known != name);
        fields.push((name, value));
    }
    flow.token(&fields).await
}

const TYPE: &str = "oauth-id-jag+jwt";

#[tokio::test]
async fn an_assertion_of_the_provider_is_exchanged_for_an_access_token() {
    let flow = flow().await;
    let scopes = json!({"scope": "files:read files:delete files:read"});
    let assertion = flow.provider.assertion("desktop", TYPE, &scopes);
    let tokens = shown(&flow, &assertion, &[]).await.expect("a token");
    assert_eq!(tokens["scope"], "files:read", "the scopes that there are");
    assert_eq!(tokens.get("refresh_token"), None);
    let principal = flow.principal_of(&tokens["access_token"]).await;
    let principal = principal.expect("a caller");
    assert_eq!(principal.subject(), Some("user-1"));
    assert_eq!(principal.client(), Some("desktop"));
    let again = shown(&flow, &assertion, &[]).await.expect_err("used");
    assert_eq!(again["error"], "invalid_grant");
    // A replica with the same state knows it too.
    let replica = shown(&flow.replica(), &assertion, &[]).await;
    assert_eq!(replica.expect_err("used")["error"], "invalid_grant");
}

#[tokio::test]
async fn an_assertion_for_somebody_or_something_else_is_rejected() {
    let flow = flow().await;
    let now = longshore_net::environment::unix_seconds();
    for changed in [
        json!({"aud": "https://other.example.com"}),
        json!({"aud": ["https://mcp.example.com", "https://other.example.com"]}),
        json!({"iss": "https://other.example.com"}),
        json!({"client_id": "other"}),
        json!({"client_id": null}),
        json!({"resource": "https://other.example.com/mcp"}),
        json!({"resource": null}),
        json!({"resource": ["https://mcp.example.com/mcp", "https://mcp.example.com/mcp/small"]}),
        json!({"exp": now - 120}),
        json!({"exp": now + 7200}),
        json!({"exp": null}),
        json!({"jti": ""}),
        json!({"jti": null}),
        json!({"sub": ""}),
    ] {
        let assertion = flow.provider.assertion("desktop", TYPE, &changed);
        let refused = shown(&flow, &assertion, &[]).await;
        let refused = refused.expect_err(&changed.to_string());
        let is_odd_user = changed.get("sub").is_some();
        assert!(
            is_odd_user || refused["error"] == "invalid_grant",
            "{changed}: {refused}"
        );
    }
    // An ID token, or an access token, is not an assertion.
    for kind in ["JWT", "at+jwt"] {
        let assertion = flow.provider.assertion("desktop", kind, &json!({}));
        let refused = shown(&flow, &assertion, &[]).await.expect_err(kind);
        assert_eq!(refused["error"], "invalid_grant");
    }
    flow.provider.change_key();
    let forged = flow.provider.assertion("desktop", TYPE, &json!({}));
    assert!(shown(&flow, &forged, &[]).await.is_err());
}

#[tokio::test]
async fn only_known_clients_with_their_secret_show_assertions() {
    let flow = flow().await;
    let assertion = flow.provider.assertion("desktop", TYPE, &json!({}));
    let wrong = shown(&flow, &assertion, &[("client_secret", "x")]).await;
    assert_eq!(wrong.expect_err("refused")["error"], "invalid_client");
    let assertion = flow.provider.assertion("public", TYPE, &json!({}));
    let public = shown(
        &flow,
        &assertion,
        &[("client_id", "public"), ("client_secret", "")],
    )
    .await;
    assert_eq!(public.expect_err("refused")["error"], "unauthorized_client");
    let off = Flow::start().await;
    let assertion = off.provider.assertion("desktop", TYPE, &json!({}));
    let client = off.register().await;
    let refused = shown(&off, &assertion, &[("client_id", &client)]).await;
    assert_eq!(refused.expect_err("off")["error"], "unsupported_grant_type");
}

#[tokio::test]
async fn accounts_that_are_not_listed_do_not_get_in_by_an_assertion() {
    let flow = Flow::with(|config| {
        config.identity_assertions = true;
        config.allow.domains = vec!["other.example".to_owned()];
        config.clients.push(FacadeClientConfig {
            id: "desktop".to_owned(),
            secret: Some(SECRET.to_owned().into()),
            ..FacadeClientConfig::default()
        });
    })
    .await;
    let assertion = flow.provider.assertion("desktop", TYPE, &json!({}));
    let refused = shown(&flow, &assertion, &[]).await;
    assert_eq!(refused.expect_err("refused")["error"], "access_denied");
}

#[tokio::test]
async fn metadata_tells_that_assertions_are_accepted() {
    let flow = flow().await;
    let (_, text) = flow.get("/.well-known/oauth-authorization-server").await;
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        document["authorization_grant_profiles_supported"],
        json!(["urn:ietf:params:oauth:grant-profile:id-jag"])
    );
    let grants = document["grant_types_supported"]
        .as_array()
        .expect("a list");
    assert!(grants.contains(&JWT_BEARER.into()));
}
