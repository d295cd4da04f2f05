//! Attacks of RFC 9700 (OAuth security), and invalid input at every endpoint.

use http::header::{CONTENT_SECURITY_POLICY, ORIGIN, X_FRAME_OPTIONS};
use http::{Request, StatusCode};
use serde_json::{Value, json};

use super::flow::{self, CLIENT_REDIRECT, Flow, VERIFIER, form};

#[tokio::test]
async fn nothing_redirects_to_a_uri_that_the_client_did_not_register() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    for uri in [
        "https://evil.example/callback",
        "http://127.0.0.1:33418/other",
        "http://127.0.0.1.evil.example/callback",
        "javascript:alert(1)",
        "//evil.example/callback",
    ] {
        let page = flow.authorize(&client, &[("redirect_uri", uri)]).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{uri}");
        assert!(page.headers.get("location").is_none());
        assert!(!page.html.contains("evil.example"), "nothing is repeated");
    }
}

#[tokio::test]
async fn unknown_and_forged_clients_get_a_page() {
    let flow = Flow::start().await;
    let mut forged = flow.register().await;
    forged.replace_range(10..11, if &forged[10..11] == "A" { "B" } else { "A" });
    for client in [
        "",
        "nobody",
        &forged,
        "http://127.0.0.1:1",
        "https://u@a.example/x",
    ] {
        let page = flow.authorize(client, &[]).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{client}");
    }
}

#[tokio::test]
async fn errors_after_the_redirect_uri_was_checked_go_to_the_client() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    for (changed, error) in [
        (("response_type", ""), "invalid_request"),
        (("response_type", "token"), "unsupported_response_type"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge", "short"), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge_method", ""), "invalid_request"),
        (("resource", "https://other.example/mcp"), "invalid_target"),
        (("request", "x"), "request_not_supported"),
    ] {
        let page = flow.authorize(&client, &[changed]).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{changed:?}");
        let location = page.headers["location"].to_str().expect("ASCII");
        assert!(location.starts_with(CLIENT_REDIRECT), "{location}");
        let url = location.parse().expect("a URL");
        assert_eq!(
            flow::query(&url, "error").as_deref(),
            Some(error),
            "{changed:?}"
        );
        assert_eq!(flow::query(&url, "state").as_deref(), Some("client-state"));
        assert!(flow::query(&url, "iss").is_some());
    }
}

/// RFC 9700, section 4.11.2.
#[tokio::test]
async fn a_wrong_request_leads_to_no_site_that_anyone_may_have_registered() {
    const SITE: &str = "https://evil.example/cb";
    let flow = Flow::with(|config| {
        config.clients = vec![crate::auth::FacadeClientConfig {
            id: "console".to_owned(),
            redirect_uris: vec![SITE.to_owned()],
            ..Default::default()
        }];
    })
    .await;
    let client = flow.register_at(SITE).await;
    let wrong = [("redirect_uri", SITE), ("response_type", "token")];
    let page = flow.authorize(&client, &wrong).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    assert!(page.headers.get("location").is_none());
    assert!(
        page.html
            .contains("href=\"https://evil.example/cb?error=unsupported_response_type&amp;"),
        "{}",
        page.html
    );
    // The operator knows the sites of configured clients.
    let page = flow.authorize("console", &wrong).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let page = flow.authorize(&client, &[("redirect_uri", SITE)]).await;
    assert_eq!(page.status, StatusCode::OK, "the user decides");
}

#[tokio::test]
async fn parameters_that_are_there_twice_are_rejected() {
    let flow = Flow::start().await;
    let (status, _) = flow.get("/authorize?client_id=a&client_id=b").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let fields = [
        ("grant_type", "refresh_token"),
        ("grant_type", "refresh_token"),
    ];
    let (status, body) = flow.post("/token", &fields).await;
    assert_eq!(
        (status, &body["error"]),
        (StatusCode::BAD_REQUEST, &json!("invalid_request"))
    );
}

#[tokio::test]
async fn consent_cannot_be_given_by_another_browser_or_site() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let (mine, other) = (
        flow.authorize(&client, &[]).await,
        flow.authorize(&client, &[]).await,
    );
    let fields = [("form", mine.form()), ("decision", "allow")];
    for cookie in [
        None,
        Some(other.cookie.as_str()),
        Some("__Host-longshore-login-1=x"),
    ] {
        let (status, ..) = flow.send(form("/oauth/consent", &fields, cookie)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{cookie:?}");
    }
    let mut elsewhere = form("/oauth/consent", &fields, Some(&mine.cookie));
    elsewhere
        .headers_mut()
        .insert(ORIGIN, "https://evil.example".parse().expect("ASCII"));
    let (status, ..) = flow.send(elsewhere).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    // A sealed value of another purpose is not a form.
    let fields = [("form", client.as_str()), ("decision", "allow")];
    let (status, ..) = flow
        .send(form("/oauth/consent", &fields, Some(&mine.cookie)))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_consent_page_cannot_be_framed_and_its_cookie_is_bound_to_the_host() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    assert_eq!(page.headers[X_FRAME_OPTIONS], "DENY");
    let policy = page.headers[CONTENT_SECURITY_POLICY]
        .to_str()
        .expect("ASCII");
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"));
    let cookie = page.headers["set-cookie"].to_str().expect("ASCII");
    for part in [
        "__Host-",
        "; Secure",
        "; HttpOnly",
        "; SameSite=Lax",
        "; Path=/",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
}

#[tokio::test]
async fn a_callback_in_another_browser_ends_there() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let provider = flow.decide(&page, "allow").await;
    // An attacker began the login and sends the victim the callback.
    let victim = flow.authorize(&client, &[]).await;
    let (status, headers, _) = flow.callback(&victim, &provider, &[]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(headers.get("location").is_none());
}

#[tokio::test]
async fn a_response_of_another_issuer_is_a_mix_up() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let provider = flow.decide(&page, "allow").await;
    for iss in ["https://evil.example", ""] {
        let back = flow.come_back(&page, &provider, &[("iss", iss)]).await;
        assert_eq!(
            flow::query(&back, "error").as_deref(),
            Some("access_denied"),
            "{iss}"
        );
    }
    assert_eq!(
        flow.provider.received().len(),
        0,
        "the code was not sent anywhere"
    );
}

#[tokio::test]
async fn id_tokens_that_are_not_for_this_login_are_rejected() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let provider = flow.decide(&page, "allow").await;
    let nonce = flow::query(&provider, "nonce").expect("a nonce");
    for changed in [
        json!({"nonce": "other"}),
        json!({"aud": "other-client"}),
        json!({"aud": ["our-id", "other-client"]}),
        json!({"azp": "other-client"}),
        json!({"iss": "https://evil.example"}),
        json!({"exp": 1}),
        json!({"sub": ""}),
    ] {
        flow.provider.next(&nonce, changed.clone());
        let (_, headers, _) = flow.callback_as_prepared(&page, &provider, &[]).await;
        let url = headers["location"]
            .to_str()
            .expect("ASCII")
            .parse()
            .expect("a URL");
        assert_eq!(
            flow::query(&url, "error").as_deref(),
            Some("server_error"),
            "{changed}"
        );
        assert_eq!(flow::query(&url, "code"), None);
    }
    flow.provider.next(&nonce, json!({}));
    flow.provider.change_key();
    let (_, headers, _) = flow.callback_as_prepared(&page, &provider, &[]).await;
    let url = headers["location"]
        .to_str()
        .expect("ASCII")
        .parse()
        .expect("a URL");
    assert_eq!(flow::query(&url, "error").as_deref(), Some("server_error"));
}

/// An address that the provider has not verified does not admit its owner, nor is it passed on.
#[tokio::test]
async fn only_verified_addresses_count() {
    let flow = Flow::with(|config| config.allow.domains = vec!["example.com".to_owned()]).await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let provider = flow.decide(&page, "allow").await;
    let nonce = flow::query(&provider, "nonce").expect("a nonce");
    for (verified, error) in [
        (json!(true), None),
        (json!("true"), None),
        (json!(false), Some("access_denied")),
        (json!("false"), Some("access_denied")),
        (json!(1), Some("access_denied")),
        // Absent.
        (json!(null), Some("access_denied")),
    ] {
        flow.provider
            .next(&nonce, json!({"email_verified": verified}));
        let (_, headers, _) = flow.callback_as_prepared(&page, &provider, &[]).await;
        let location = headers["location"].to_str().expect("ASCII");
        let url = location.parse().expect("a URL");
        assert_eq!(flow::query(&url, "error").as_deref(), error, "{verified}");
    }
}

#[tokio::test]
async fn codes_are_bound_to_client_verifier_and_redirect_uri_and_are_used_once() {
    let flow = Flow::start().await;
    let (client, other) = (flow.register().await, flow.register().await);
    let code = flow.log_in(&client).await;
    let wrong = "x".repeat(43);
    let error = |answer: Result<Value, Value>| answer.expect_err("refused")["error"].clone();
    assert_eq!(
        error(flow.redeem(&other, &code, VERIFIER).await),
        "invalid_grant"
    );
    assert_eq!(
        error(flow.redeem(&client, &code, &wrong).await),
        "invalid_grant"
    );
    assert_eq!(
        error(flow.redeem(&client, "forged", VERIFIER).await),
        "invalid_grant"
    );
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("client_id", &client),
        ("redirect_uri", "http://127.0.0.1:1/callback"),
        ("code_verifier", VERIFIER),
    ];
    assert_eq!(error(flow.token(&fields).await), "invalid_grant");
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    assert_eq!(
        error(flow.redeem(&client, &code, VERIFIER).await),
        "invalid_grant"
    );
    // The second use ends the login of the first.
    let refreshed = flow.refresh(&client, &tokens["refresh_token"]).await;
    assert_eq!(error(refreshed), "invalid_grant");
}

#[tokio::test]
async fn refresh_tokens_are_bound_to_their_client_resource_and_scopes() {
    let flow = Flow::with(|config| config.scopes.push("files:write".to_owned())).await;
    let (client, other) = (flow.register().await, flow.register().await);
    let code = flow.log_in_for(&client, "files:read").await;
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    let refused = flow.refresh(&other, &tokens["refresh_token"]).await;
    assert_eq!(refused.expect_err("refused")["error"], "invalid_grant");
    let refused = flow.refresh(&client, &tokens["access_token"]).await;
    assert_eq!(refused.expect_err("refused")["error"], "invalid_grant");
    for (name, value, error) in [
        (
            "resource",
            "https://mcp.example.com/mcp/small",
            "invalid_target",
        ),
        ("scope", "files:write", "invalid_scope"),
    ] {
        let fields = [
            ("grant_type", "refresh_token"),
            (
                "refresh_token",
                tokens["refresh_token"].as_str().expect("a token"),
            ),
            ("client_id", client.as_str()),
            (name, value),
        ];
        let refused = flow.token(&fields).await;
        assert_eq!(refused.expect_err("refused")["error"], error);
    }
}

#[tokio::test]
async fn confidential_clients_need_their_secret() {
    let flow = Flow::with(|config| {
        config.clients = vec![crate::auth::FacadeClientConfig {
            id: "console".to_owned(),
            name: None,
            redirect_uris: vec![CLIENT_REDIRECT.to_owned()],
            secret: Some("secret-of-the-console".to_owned().into()),
        }];
    })
    .await;
    let code = flow.log_in("console").await;
    let refused = flow.redeem("console", &code, VERIFIER).await;
    assert_eq!(refused.expect_err("refused")["error"], "invalid_client");
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.as_str()),
        ("client_id", "console"),
        ("client_secret", "secret-of-the-console"),
        ("code_verifier", VERIFIER),
    ];
    assert!(flow.token(&fields).await.is_ok());
}

#[tokio::test]
async fn the_providers_tokens_do_not_reach_the_client() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    let shown = format!("{code} {tokens}");
    for secret in ["provider-token", "provider-refresh", "our-secret"] {
        assert!(!shown.contains(secret));
        assert!(!format!("{:?}", flow.server).contains(secret));
    }
}

#[tokio::test]
async fn registrations_that_are_not_acceptable_say_why() {
    let flow = Flow::start().await;
    let many: Vec<_> = (0..11).map(|n| format!("https://a.example/{n}")).collect();
    for (body, error) in [
        ("".to_owned(), "invalid_client_metadata"),
        ("[]".to_owned(), "invalid_client_metadata"),
        (
            json!({"client_name": "x"}).to_string(),
            "invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": ["http://a.example/"]}).to_string(),
            "invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": ["javascript:x"]}).to_string(),
            "invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": many}).to_string(),
            "invalid_redirect_uri",
        ),
        (
            json!({"redirect_uris": ["https://a.example/"], "grant_types": ["implicit"]})
                .to_string(),
            "invalid_client_metadata",
        ),
        (
            json!({"redirect_uris": ["https://a.example/"], "client_name": "x".repeat(17000)})
                .to_string(),
            "invalid_client_metadata",
        ),
    ] {
        let request = Request::post("/register")
            .body(body.clone().into())
            .expect("a request");
        let (status, _, text) = flow.send(request).await;
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (status, &answer["error"]),
            (StatusCode::BAD_REQUEST, &json!(error)),
            "{body}"
        );
        assert!(
            answer["error_description"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
}

#[tokio::test]
async fn registration_and_metadata_documents_can_be_turned_off() {
    let flow = Flow::with(|config| {
        config.registration = false;
        config.metadata_documents = false;
    })
    .await;
    let body = json!({"redirect_uris": ["https://a.example/"]}).to_string();
    let request = Request::post("/register")
        .body(body.into())
        .expect("a request");
    let (status, ..) = flow.send(request).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let page = flow
        .authorize("https://client.example/metadata.json", &[])
        .await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST);
    let (_, metadata) = flow.get("/.well-known/oauth-authorization-server").await;
    assert!(!metadata.contains("registration_endpoint"));
}

#[tokio::test]
async fn methods_and_content_types_are_checked() {
    let flow = Flow::start().await;
    for (method, path, status) in [
        ("GET", "/token", 405),
        ("POST", "/authorize", 405),
        ("PUT", "/register", 405),
        ("OPTIONS", "/token", 204),
        ("OPTIONS", "/oauth/consent", 405),
        ("POST", "/token", 400),
        ("POST", "/revoke", 400),
        ("POST", "/oauth/consent", 400),
        ("GET", "/oauth/callback", 400),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body("{}".into());
        let (found, headers, _) = flow.send(request.expect("a request")).await;
        assert_eq!(found.as_u16(), status, "{method} {path}");
        let is_shared = headers.get("access-control-allow-origin").is_some();
        assert_eq!(
            is_shared,
            !path.starts_with("/oauth") && path != "/authorize"
        );
    }
}

#[tokio::test]
async fn metadata_documents_are_fetched_from_public_addresses_only() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("set");
    let port = listener.local_addr().expect("an address").port();
    let flow = Flow::start().await;
    for id in [
        format!("https://127.0.0.1:{port}/client.json"),
        format!("https://localhost:{port}/client.json"),
        format!("https://[::ffff:127.0.0.1]:{port}/client.json"),
        "https://169.254.169.254/latest/meta-data/".to_owned(),
        "https://10.0.0.1/client.json".to_owned(),
        "https://[fd00::1]/client.json".to_owned(),
        format!("http://127.0.0.1:{port}/client.json"),
    ] {
        let page = flow.authorize(&id, &[]).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{id}");
        assert!(!page.html.contains("name=form"), "{id}");
    }
    let error = listener.accept().expect_err("no connection");
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}
