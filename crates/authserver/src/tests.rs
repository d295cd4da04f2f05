//! Whole logins, against a provider on a socket, and the attacks of RFC 9700.

mod assertion;
mod attacks;
mod bad_input;
mod dpop;
mod flow;
mod provider;
mod races;
mod visit;

use flow::{CLIENT_REDIRECT, Flow, VERIFIER};
use http::StatusCode;
use serde_json::json;

#[tokio::test]
async fn auth_a_client_registers_logs_in_calls_and_refreshes() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    assert_eq!(tokens["token_type"], "Bearer");
    assert_eq!(tokens["expires_in"], 600);
    assert_eq!(tokens["scope"], "files:read");

    let claims = flow.claims_of(&tokens["access_token"]);
    assert_eq!(claims["iss"], "https://mcp.example.com");
    assert_eq!(claims["aud"], "https://mcp.example.com/mcp");
    assert_eq!(claims["sub"], "user-1");
    assert_eq!(claims["email"], "ann@example.com");
    assert_eq!(claims["groups"], json!(["dev"]));
    assert_eq!(claims["client_id"], client.as_str());

    let refreshed = flow.refresh(&client, &tokens["refresh_token"]).await;
    let refreshed = refreshed.expect("tokens");
    assert_ne!(refreshed["refresh_token"], tokens["refresh_token"]);
    assert_eq!(flow.claims_of(&refreshed["access_token"])["sub"], "user-1");
}

#[tokio::test]
async fn auth_tokens_prove_who_calls_at_the_endpoint() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    let principal = flow
        .principal_of(&tokens["access_token"])
        .await
        .expect("a caller");
    assert_eq!(principal.subject(), Some("user-1"));
    assert!(principal.has_scope("files:read"));
    assert!(flow.principal_of(&tokens["refresh_token"]).await.is_none());
}

#[tokio::test]
async fn a_login_continues_on_another_replica_with_the_same_keys() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let other = flow.replica();
    let tokens = other
        .redeem(&client, &code, VERIFIER)
        .await
        .expect("tokens");
    // The state is shared, so each replica knows what the others redeemed.
    let again = flow.redeem(&client, &code, VERIFIER).await;
    assert_eq!(again.expect_err("used")["error"], "invalid_grant");
    let refreshed = flow.refresh(&client, &tokens["refresh_token"]).await;
    assert_eq!(refreshed.expect_err("ended")["error"], "invalid_grant");
}

#[tokio::test]
async fn a_revoked_login_cannot_be_refreshed() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let fields = [("token", refresh), ("client_id", &client)];
    let (status, _) = flow.post("/revoke", &fields).await;
    assert_eq!(status, StatusCode::OK);
    let refused = flow.refresh(&client, &tokens["refresh_token"]).await;
    assert_eq!(refused.expect_err("ended")["error"], "invalid_grant");
}

#[tokio::test]
async fn a_user_who_cancels_returns_to_the_client_with_access_denied() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let url = flow.decide(&page, "deny").await;
    assert_eq!(url.as_str().split('?').next(), Some(CLIENT_REDIRECT));
    assert_eq!(flow::query(&url, "error").as_deref(), Some("access_denied"));
    assert_eq!(flow::query(&url, "state").as_deref(), Some("client-state"));
    assert_eq!(
        flow::query(&url, "iss").as_deref(),
        Some("https://mcp.example.com")
    );
}

#[tokio::test]
async fn accounts_that_are_not_listed_do_not_get_in() {
    let flow = Flow::with(|config| config.allow.domains = vec!["other.example".to_owned()]).await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let provider = flow.decide(&page, "allow").await;
    let back = flow.come_back(&page, &provider, &[]).await;
    assert_eq!(
        flow::query(&back, "error").as_deref(),
        Some("access_denied")
    );
    assert_eq!(flow::query(&back, "code"), None);
}

#[tokio::test]
async fn scopes_of_changed_rules_are_offered_at_once() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let wanted = [("scope", "files:read files:write")];
    let page = flow.authorize(&client, &wanted).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "invalid_scope");
    flow.server.offer_scopes(vec!["files:write".to_owned()]);
    let page = flow.authorize(&client, &wanted).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    let (_, text) = flow.get("/.well-known/oauth-authorization-server").await;
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let offered = json!(["files:read", "files:write"]);
    assert_eq!(document["scopes_supported"], offered);
}

#[tokio::test]
async fn metadata_lists_what_there_is() {
    let flow = Flow::start().await;
    let (status, text) = flow.get("/.well-known/oauth-authorization-server").await;
    assert_eq!(status, StatusCode::OK);
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["issuer"], "https://mcp.example.com");
    assert_eq!(
        document["code_challenge_methods_supported"],
        json!(["S256"])
    );
    assert_eq!(document["scopes_supported"], json!(["files:read"]));
    let (status, _) = flow.get("/.well-known/openid-configuration/mcp").await;
    assert_eq!(status, StatusCode::OK);
}
