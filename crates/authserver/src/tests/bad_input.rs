//! Every parameter of every endpoint with every kind of bad value, wrong clocks, and providers with faults.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, LOCATION};
use http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};

use super::flow::{self, CLIENT_REDIRECT, Flow, Page, VERIFIER, encoded, encoded_form, form};
use super::provider::Fault;

/// Text that no response may repeat.
const MARK: &str = "mark-of-bad-input";

/// How a parameter is spoiled.
#[derive(Clone, Copy, Debug)]
enum Bad {
    Missing,
    Empty,
    Twice,
    Long,
    Controls,
    NotUtf8,
    Markup,
    Other,
}

const ALL: [Bad; 8] = [
    Bad::Missing,
    Bad::Empty,
    Bad::Twice,
    Bad::Long,
    Bad::Controls,
    Bad::NotUtf8,
    Bad::Markup,
    Bad::Other,
];

/// Returns the parameters, encoded, with one of them spoiled.
fn spoiled(fields: &[(&str, &str)], name: &str, bad: Bad) -> String {
    let rest: Vec<_> = fields
        .iter()
        .copied()
        .filter(|(known, _)| *known != name)
        .collect();
    let rest = encoded(&rest);
    let value = match bad {
        Bad::Missing => return rest,
        Bad::Empty => String::new(),
        Bad::Twice => return format!("{}&{name}={MARK}", encoded(fields)),
        Bad::Long => format!("{MARK}{}", "x".repeat(15 * 1024)),
        Bad::Controls => format!("{MARK}%00%0D%0ASet-Cookie:%20a=b"),
        Bad::NotUtf8 => format!("{MARK}%FF%FE"),
        Bad::Markup => format!("%22%3E%3Cscript%3E{MARK}"),
        Bad::Other => MARK.to_owned(),
    };
    format!("{rest}&{name}={value}")
}

/// Checks an OAuth error for programs.
fn check_error(case: &str, status: StatusCode, headers: &HeaderMap, text: &str) {
    assert!(status.is_client_error(), "{case}: {status} {text}");
    assert_eq!(headers[CONTENT_TYPE], "application/json", "{case}");
    assert_eq!(headers["cache-control"], "no-store", "{case}");
    let error: Value = serde_json::from_str(text).expect("JSON");
    for member in ["error", "error_description"] {
        let is_told = error[member].as_str().is_some_and(|text| !text.is_empty());
        assert!(is_told, "{case}: {text}");
    }
    assert!(!text.contains(MARK), "{case}: {text}");
}

/// Checks that a browser is shown a page with an error, or returns to the client with one.
fn check_page(case: &str, status: StatusCode, headers: &HeaderMap, text: &str) {
    assert!(!text.contains(MARK), "{case}: {text}");
    assert!(headers.get("x-frame-options").is_some(), "{case}");
    if status == StatusCode::SEE_OTHER {
        let location = headers[LOCATION].to_str().expect("ASCII");
        assert!(location.starts_with(CLIENT_REDIRECT), "{case}: {location}");
        let url = location.parse().expect("a URL");
        for name in ["error", "error_description", "iss"] {
            assert!(flow::query(&url, name).is_some(), "{case}: {location}");
        }
        // The client's own state is all that it gets back of what it sent.
        let state = flow::query(&url, "state").unwrap_or_default();
        let rest = location.replace(&*encoded(&[("state", &state)]), "");
        assert!(!rest.contains(MARK), "{case}: {location}");
    } else {
        assert!(status.is_client_error(), "{case}: {status}");
        assert!(headers.get(LOCATION).is_none(), "{case}");
        assert!(text.contains("<h1"), "{case}: {text}");
    }
}

#[tokio::test]
async fn bad_parameters_of_the_token_endpoint_are_oauth_errors() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let code = flow.log_in(&client).await;
    let first = flow.log_in(&client).await;
    let tokens = flow
        .redeem(&client, &first, VERIFIER)
        .await
        .expect("tokens");
    let refresh = tokens["refresh_token"].as_str().expect("a token");
    let redeeming = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("client_id", &*client),
        ("redirect_uri", CLIENT_REDIRECT),
        ("code_verifier", VERIFIER),
        ("resource", "https://mcp.example.com/mcp"),
    ];
    let refreshing = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh),
        ("client_id", &*client),
        ("scope", "files:read"),
        ("resource", "https://mcp.example.com/mcp"),
    ];
    for fields in [&redeeming[..], &refreshing[..]] {
        for (name, _) in fields {
            for bad in ALL {
                let is_optional = matches!(*name, "redirect_uri" | "resource" | "scope");
                if is_optional && matches!(bad, Bad::Missing | Bad::Empty) {
                    continue;
                }
                // Scopes that are not offered are ignored.
                if *name == "scope" && !matches!(bad, Bad::Twice) {
                    continue;
                }
                let case = format!("{} {name} {bad:?}", fields[0].1);
                let request = encoded_form("/token", spoiled(fields, name, bad), None);
                let (status, headers, text) = flow.send(request).await;
                check_error(&case, status, &headers, &text);
            }
        }
    }
    // None of these attempts used up the code or the refresh token.
    assert!(flow.token(&redeeming).await.is_ok());
    assert!(flow.token(&refreshing).await.is_ok());
}

#[tokio::test]
async fn bad_parameters_of_the_revocation_endpoint_are_oauth_errors() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let fields = [("token", "t"), ("client_id", &*client)];
    for (name, _) in fields {
        for bad in ALL {
            // RFC 7009, section 2.2: a token that is not known is not an error.
            if name == "token" && !matches!(bad, Bad::Missing | Bad::Empty | Bad::Twice) {
                continue;
            }
            let request = encoded_form("/revoke", spoiled(&fields, name, bad), None);
            let (status, headers, text) = flow.send(request).await;
            check_error(&format!("revoke {name} {bad:?}"), status, &headers, &text);
        }
    }
}

#[tokio::test]
async fn bad_parameters_of_the_authorization_endpoint_are_a_page_or_an_error_for_the_client() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let fields = [
        ("response_type", "code"),
        ("client_id", &*client),
        ("redirect_uri", CLIENT_REDIRECT),
        (
            "code_challenge",
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
        ),
        ("code_challenge_method", "S256"),
        ("state", "client-state"),
        ("resource", "https://mcp.example.com/mcp"),
        ("scope", "files:read"),
        ("dpop_jkt", "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"),
    ];
    for (name, _) in fields {
        for bad in ALL {
            let is_optional = matches!(
                name,
                "redirect_uri" | "state" | "resource" | "scope" | "dpop_jkt"
            );
            if is_optional && matches!(bad, Bad::Missing | Bad::Empty) {
                continue;
            }
            // The state belongs to the client: any text of a bounded length.
            if name == "state" && !matches!(bad, Bad::Twice | Bad::Long) {
                continue;
            }
            // Scopes that are not offered are ignored.
            if name == "scope" && !matches!(bad, Bad::Twice | Bad::Long) {
                continue;
            }
            let case = format!("authorize {name} {bad:?}");
            let uri = format!("/authorize?{}", spoiled(&fields, name, bad));
            let request = Request::get(uri).body(Bytes::new()).expect("a request");
            let (status, headers, text) = flow.send(request).await;
            check_page(&case, status, &headers, &text);
        }
    }
}

#[tokio::test]
async fn bad_parameters_of_the_consent_form_and_the_callback_are_a_page() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let consent = [("form", page.form()), ("decision", "allow")];
    for (name, _) in consent {
        for bad in ALL {
            let case = format!("consent {name} {bad:?}");
            let body = spoiled(&consent, name, bad);
            let request = encoded_form("/oauth/consent", body, Some(&page.cookie));
            let (status, headers, text) = flow.send(request).await;
            check_page(&case, status, &headers, &text);
            // Everything but the one button is a refusal, which the client is told.
            assert!(
                name == "decision" || status != StatusCode::SEE_OTHER,
                "{case}"
            );
        }
    }
    let provider = flow.decide(&page, "allow").await;
    let state = flow::query(&provider, "state").expect("a state");
    let back = [
        ("code", "provider-code"),
        ("state", &*state),
        ("iss", &*flow.provider.issuer),
    ];
    for (name, _) in back {
        for bad in ALL {
            let case = format!("callback {name} {bad:?}");
            let uri = format!("/oauth/callback?{}", spoiled(&back, name, bad));
            let request = Request::get(uri)
                .header(COOKIE, &page.cookie)
                .body(Bytes::new());
            let (status, headers, text) = flow.send(request.expect("a request")).await;
            check_page(&case, status, &headers, &text);
        }
    }
}

#[tokio::test]
async fn members_of_registrations_that_have_another_type_are_named() {
    let flow = Flow::start().await;
    let others = [json!(1), json!(true), json!({}), json!([[]]), json!([1])];
    for member in [
        "client_name",
        "redirect_uris",
        "grant_types",
        "response_types",
        "token_endpoint_auth_method",
        "dpop_bound_access_tokens",
    ] {
        for other in &others {
            if member == "dpop_bound_access_tokens" && other.is_boolean() {
                continue;
            }
            let mut body = json!({"redirect_uris": ["https://a.example/"]});
            body[member] = other.clone();
            let request = Request::post("/register").body(Bytes::from(body.to_string()));
            let (status, headers, text) = flow.send(request.expect("a request")).await;
            check_error(&format!("register {body}"), status, &headers, &text);
        }
    }
    for body in [
        r#"{"redirect_uris":["https://a.example/"],"redirect_uris":["https://b.example/"]}"#,
        "{\"redirect_uris\":[\"https://a.example/\"],\"client_name\":\"\u{0}\"}",
        "null",
        "{",
    ] {
        let request = Request::post("/register").body(Bytes::from(body));
        let (status, headers, text) = flow.send(request.expect("a request")).await;
        check_error(&format!("register {body}"), status, &headers, &text);
    }
}

#[tokio::test]
async fn what_is_sealed_expires_by_the_clock_of_the_replica_that_opens_it() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    let consent = [("form", page.form()), ("decision", "allow")];
    let late = form("/oauth/consent", &consent, Some(&page.cookie));
    let (status, ..) = flow.send_after(15 * 60 + 1, late).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the consent page");

    let provider = flow.decide(&page, "allow").await;
    let state = flow::query(&provider, "state").expect("a state");
    let back = encoded(&[
        ("code", "provider-code"),
        ("state", &state),
        ("iss", &flow.provider.issuer),
    ]);
    let late = Request::get(format!("/oauth/callback?{back}"))
        .header(COOKIE, &page.cookie)
        .body(Bytes::new());
    let (status, ..) = flow.send_after(15 * 60 + 1, late.expect("a request")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the login");

    let code = flow.log_in(&client).await;
    let redeeming = [
        ("grant_type", "authorization_code"),
        ("code", &*code),
        ("client_id", &*client),
        ("code_verifier", VERIFIER),
    ];
    let (status, _, text) = flow.send_after(62, form("/token", &redeeming, None)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the code");
    assert!(text.contains("invalid_grant"), "{text}");
    let tokens = flow.redeem(&client, &code, VERIFIER).await.expect("tokens");
    let refreshing = [
        ("grant_type", "refresh_token"),
        (
            "refresh_token",
            tokens["refresh_token"].as_str().expect("a token"),
        ),
        ("client_id", &*client),
    ];
    let week = 7 * 24 * 3600 + 1;
    let (status, _, text) = flow
        .send_after(week, form("/token", &refreshing, None))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the refresh token");
    assert!(text.contains("invalid_grant"), "{text}");
}

/// Presses the button, and returns where the browser goes and the page that it sees.
async fn allow(flow: &Flow, page: &Page) -> (StatusCode, HeaderMap, String) {
    let fields = [("form", page.form()), ("decision", "allow")];
    flow.send(form("/oauth/consent", &fields, Some(&page.cookie)))
        .await
}

/// The client is told that the provider failed, and nothing of what the provider said.
fn check_failed(fault: Fault, (status, headers, text): (StatusCode, HeaderMap, String)) {
    assert_eq!(status, StatusCode::SEE_OTHER, "{fault:?} {text}");
    let location = headers[LOCATION].to_str().expect("ASCII");
    assert!(
        location.starts_with(CLIENT_REDIRECT),
        "{fault:?} {location}"
    );
    let url = location.parse().expect("a URL");
    let error = flow::query(&url, "error").expect("an error");
    let is_fitting = ["server_error", "temporarily_unavailable"].contains(&&*error);
    assert!(is_fitting, "{fault:?} {location}");
    assert!(!location.contains("provider-secret"), "{location}");
    assert_eq!(flow::query(&url, "code"), None, "{fault:?}");
}

#[tokio::test]
async fn a_provider_with_faults_is_an_error_for_the_client_before_the_login() {
    for fault in [
        Fault::Status,
        Fault::NotJson,
        Fault::Large,
        Fault::OtherIssuer,
        Fault::OtherScheme,
    ] {
        let flow = Flow::start().await;
        let client = flow.register().await;
        let page = flow.authorize(&client, &[]).await;
        flow.provider.break_by(fault);
        check_failed(fault, allow(&flow, &page).await);
    }
}

#[tokio::test]
async fn a_provider_with_faults_is_an_error_for_the_client_after_the_login() {
    for fault in [
        Fault::Status,
        Fault::NotJson,
        Fault::Large,
        Fault::NoIdToken,
    ] {
        let flow = Flow::start().await;
        let client = flow.register().await;
        let page = flow.authorize(&client, &[]).await;
        let provider = flow.decide(&page, "allow").await;
        flow.provider.break_by(fault);
        check_failed(fault, flow.callback(&page, &provider, &[]).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_does_not_respond_is_an_error_after_a_bounded_time() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let page = flow.authorize(&client, &[]).await;
    flow.provider.break_by(Fault::Silent);
    let begun = tokio::time::Instant::now();
    // Those that wait for the same fetch share its failure.
    let logins = (0..6).map(|_| allow(&flow, &page));
    for failed in futures_util::future::join_all(logins).await {
        check_failed(Fault::Silent, failed);
    }
    assert!(begun.elapsed().as_secs() <= 15, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_state_that_is_too_long_is_a_page_and_not_lost() {
    let flow = Flow::start().await;
    let client = flow.register().await;
    let long = "s".repeat(2048);
    let page = flow.authorize(&client, &[("state", &*long)]).await;
    let back = flow.decide(&page, "deny").await;
    assert_eq!(flow::query(&back, "state").as_deref(), Some(&*long));
    let longer = "s".repeat(2049);
    let page = flow.authorize(&client, &[("state", &*longer)]).await;
    assert_eq!(page.status, StatusCode::BAD_REQUEST, "{}", page.html);
}
