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
use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::net::{Client, Guard};

#[tokio::test]
async fn auth_a_client_registers_logs_in_calls_and_refreshes() {
    let flow = Flow::start().await;
    let (client, tokens) = flow.log_in_and_redeem().await;
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
    let (_, tokens) = flow.log_in_and_redeem().await;
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
    let (client, tokens) = flow.log_in_and_redeem().await;
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

/// After a restart, all users of a client refresh before its document is there again.
#[tokio::test]
async fn requests_of_one_client_share_a_fetch_of_its_document() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let id = format!("http://{address}/client.json");
    let document = json!({"client_id": id, "redirect_uris": [CLIENT_REDIRECT]}).to_string();
    let mut flow = Flow::start().await;
    flow.server.is_local = true;
    let web = Client::builder(Guard::public().allow_loopback()).build();
    flow.server.web = web.expect("a client");
    let serve_once = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a byte"));
        }
        let length = document.len();
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{document}");
        stream.write_all(response.as_bytes()).await.expect("sent");
    };
    let pages = join_all((0..30).map(|_| flow.authorize(&id, &[])));
    let (pages, ()) = tokio::join!(pages, serve_once);
    for page in pages {
        assert_eq!(page.status, StatusCode::OK, "{}", page.html);
    }
}

#[tokio::test]
async fn the_main_endpoint_has_other_names() {
    let flow = Flow::start().await;
    let main = |path: &str| {
        let url = format!("https://mcp.example.com{path}");
        let resource = flow.server.resource(Some(&url));
        resource.is_ok_and(|resource| resource == "https://mcp.example.com/mcp")
    };
    for path in ["", "/", "/mcp", "/mcp/", "/sse", "/mcp/sse"] {
        assert!(main(path), "{path}");
    }
    for path in [".evil", ".evil/sse", "/other", "/mcp/small", "/sse/x"] {
        assert!(!main(path), "{path}");
    }
}

/// RFC 6749, section 3.3. Claude requests `claudeai` or `offline_access` at every server, `mcp-remote` `openid email profile`.
#[tokio::test]
async fn scopes_that_are_not_offered_are_ignored() {
    let flow = Flow::with(|config| config.scopes.push("files:write".to_owned())).await;
    let client = flow.register().await;
    for (requested, granted) in [
        ("", "files:read files:write"),
        ("claudeai", "files:read files:write"),
        (" offline_access", "files:read files:write"),
        ("openid email profile", "files:read files:write"),
        ("openid files:read admin files:read", "files:read"),
    ] {
        let code = flow.log_in_for(&client, requested).await;
        let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
        assert_eq!(tokens["scope"], granted, "{requested}");
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", &*client),
            (
                "refresh_token",
                tokens["refresh_token"].as_str().expect("a token"),
            ),
            ("scope", requested),
        ];
        let refreshed = flow.token(&fields).await.expect("tokens");
        assert_eq!(refreshed["scope"], granted, "{requested}");
    }
}

#[tokio::test]
async fn scopes_of_changed_rules_are_offered_at_once() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let wanted = [("scope", "files:read files:write")];
    let asked = "<dd>files:read, files:write</dd>";
    let page = flow.authorize(&client, &wanted).await;
    assert!(!page.html.contains(asked), "{}", page.html);
    flow.server.offer_scopes(vec!["files:write".to_owned()]);
    let page = flow.authorize(&client, &wanted).await;
    assert!(page.html.contains(asked), "{}", page.html);
    let (_, text) = flow.get("/.well-known/oauth-authorization-server").await;
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let offered = json!(["files:read", "files:write"]);
    assert_eq!(document["scopes_supported"], offered);
}

#[tokio::test]
async fn a_refresh_leaves_out_scopes_that_are_not_offered_any_more() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    flow.server.offer_scopes(vec!["files:write".to_owned()]);
    let code = flow.log_in_for(&client, "files:write").await;
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    assert_eq!(tokens["scope"], "files:write");
    let mut refresh = tokens["refresh_token"].clone();
    for (offered, scope) in [
        ("other", json!(null)),
        ("files:write", json!("files:write")),
    ] {
        flow.server.offer_scopes(vec![offered.to_owned()]);
        for requested in ["", "files:write"] {
            let fields = [
                ("grant_type", "refresh_token"),
                ("client_id", &*client),
                ("refresh_token", refresh.as_str().expect("a token")),
                ("scope", requested),
            ];
            let refreshed = flow.token(&fields).await.expect("tokens");
            assert_eq!(refreshed["scope"], scope, "{offered} {requested}");
            refresh = refreshed["refresh_token"].clone();
        }
    }
}

/// Authelia, Zitadel and Okta put little more than the subject into ID tokens.
#[tokio::test]
async fn claims_that_the_id_token_does_not_have_come_from_the_userinfo_endpoint() {
    for (subject, is_admitted) in [("user-1", true), ("user-2", false)] {
        let flow = Flow::with(|config| config.allow.domains = vec!["example.com".to_owned()]).await;
        flow.provider.show_user(json!({
            "sub": subject, "email": "ann@example.com", "email_verified": true, "groups": ["dev"],
        }));
        let client = flow.register().await;
        let minimal = json!({"email": null, "email_verified": null, "name": null, "groups": null});
        let back = flow.come_back_as(&client, minimal).await;
        assert_eq!(flow::query(&back, "code").is_some(), is_admitted, "{back}");
        if let Some(code) = flow::query(&back, "code") {
            let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
            let claims = flow.claims_of(&tokens["access_token"]);
            assert_eq!(claims["email"], "ann@example.com");
            assert_eq!(claims["groups"], json!(["dev"]));
        }
    }
}

#[tokio::test]
async fn a_changed_name_of_the_server_is_shown_at_once() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    for name in ["Tools", "Other tools"] {
        flow.server.name.set(name);
        let page = flow.authorize(&client, &[]).await;
        let asked = format!(" wants access to {name}</h1>");
        assert!(page.html.contains(&asked), "{}", page.html);
    }
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
    let (status, text) = flow.get("/.well-known/openid-configuration/mcp").await;
    assert_eq!(status, StatusCode::OK);
    // OpenID Connect Discovery 1.0, section 3: clients reject a document without these.
    let openid: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for member in [
        "jwks_uri",
        "response_types_supported",
        "subject_types_supported",
        "id_token_signing_alg_values_supported",
    ] {
        assert!(!openid[member].is_null(), "{member}");
    }
    assert_eq!(openid["issuer"], document["issuer"]);
}

#[tokio::test]
async fn a_user_who_is_no_longer_allowed_gets_no_further_tokens() {
    let mut flow = Flow::start().await;
    let (client, tokens) = flow.log_in_and_redeem().await;
    flow.server.config.allow.subjects = vec!["another".to_owned()];
    let refused = flow.refresh(&client, &tokens["refresh_token"]).await;
    assert_eq!(refused.expect_err("rejected")["error"], "invalid_grant");
    flow.server.config.allow.subjects.clear();
    let renewed = flow.refresh(&client, &tokens["refresh_token"]).await;
    assert!(renewed.is_ok(), "{renewed:?}");
}

/// RFC 7009, section 2.2.1: the client must not believe that the token has ended.
#[tokio::test]
async fn access_tokens_cannot_be_revoked() {
    let flow = Flow::start().await;
    let (client, tokens) = flow.log_in_and_redeem().await;
    let access = tokens["access_token"].as_str().expect("a token");
    let fields = [("token", access), ("client_id", &client)];
    let (status, error) = flow.post("/revoke", &fields).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"], "unsupported_token_type");
}
