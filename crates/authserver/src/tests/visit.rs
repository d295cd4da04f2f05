//! Users whom the provider recognizes in a browser, for pages of this server.

use bytes::Bytes;
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use serde_json::json;
use url::Url;

use super::flow::{Flow, encoded, query};
use crate::visit::{BrowserCookie, LoginStateCookie};
use longshore_net::environment::unix_seconds;

fn header(headers: &HeaderMap, name: http::HeaderName) -> String {
    let value = headers.get(name).expect("a header");
    value.to_str().expect("ASCII").to_owned()
}

fn with_cookie(cookie: &str) -> HeaderMap {
    let value = HeaderValue::from_str(cookie).expect("a cookie");
    HeaderMap::from_iter([(COOKIE, value)])
}

/// Begins at the page of this server; returns the browser's cookie and the provider's page.
async fn begin(flow: &Flow, visit: &str) -> (String, Url) {
    let sent = flow.server.recognize(&HeaderMap::new(), visit).await;
    let sent = sent.expect("a redirect");
    assert_eq!(sent.status(), StatusCode::SEE_OTHER);
    let cookie = header(sent.headers(), SET_COOKIE);
    let (cookie, _) = cookie.split_once(';').expect("attributes");
    let provider = header(sent.headers(), LOCATION);
    (cookie.to_owned(), provider.parse().expect("a URL"))
}

/// Comes back from the provider with a browser.
async fn come_back(flow: &Flow, cookie: &str, provider: &Url) -> (StatusCode, HeaderMap, String) {
    let nonce = query(provider, "nonce").expect("a nonce");
    flow.provider.next(&nonce, json!({}));
    let state = query(provider, "state").expect("a state");
    let fields = [
        ("code", "provider-code"),
        ("state", &*state),
        ("iss", &*flow.provider.issuer),
    ];
    let path = format!("/oauth/callback?{}", encoded(&fields));
    let request = Request::get(path).header(COOKIE, cookie).body(Bytes::new());
    flow.send(request.expect("a request")).await
}

#[tokio::test]
async fn a_visit_that_does_not_fit_into_a_url_is_rejected() {
    let flow = Flow::start().await;
    let long = "x".repeat(5000);
    let sent = flow.server.recognize(&HeaderMap::new(), &long).await;
    assert_eq!(sent.map(drop), Err("the link is too long".to_owned()));
    begin(&flow, &long[..1000]).await;
}

#[tokio::test]
async fn a_user_is_recognized_and_returns_to_what_was_visited() {
    let flow = Flow::start().await;
    let (cookie, provider) = begin(&flow, "the-link").await;
    let other = flow.replica();
    let (status, headers, text) = come_back(&other, &cookie, &provider).await;
    assert_eq!(status, StatusCode::SEE_OTHER, "{text}");
    let back: Url = header(&headers, LOCATION).parse().expect("a URL");
    assert!(
        back.as_str()
            .starts_with("https://mcp.example.com/connect?visitor=")
    );
    let sealed = query(&back, "visitor").expect("a visitor");
    let now = unix_seconds();
    let visitor = flow.server.visitor(&with_cookie(&cookie), &sealed, now);
    let visitor = visitor.expect("the user");
    assert_eq!((&*visitor.visit, &*visitor.subject), ("the-link", "user-1"));

    // Another browser, a later time, another value.
    let value = "x".repeat(43);
    let foreign = with_cookie(&format!("__Host-longshore-login-8={value}"));
    assert_eq!(flow.server.visitor(&foreign, &sealed, now), None);
    assert_eq!(flow.server.visitor(&HeaderMap::new(), &sealed, now), None);
    let later = flow
        .server
        .visitor(&with_cookie(&cookie), &sealed, now + 301);
    assert_eq!(later, None);
    let state = query(&provider, "state").expect("a state");
    let mixed = flow.server.visitor(&with_cookie(&cookie), &state, now);
    assert_eq!(mixed, None, "a value of another purpose");
}

#[tokio::test]
async fn a_response_of_the_provider_counts_in_the_browser_that_began_only() {
    let flow = Flow::start().await;
    let (_, provider) = begin(&flow, "the-link").await;
    let value = "x".repeat(43);
    let foreign = format!("__Host-longshore-login-8={value}");
    let (status, headers, text) = come_back(&flow, &foreign, &provider).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(headers.get(LOCATION).is_none());
    assert!(
        text.contains("this browser did not begin the login"),
        "{text}"
    );
}

#[test]
fn logins_that_begin_at_the_same_time_keep_their_browser() {
    let cookie = BrowserCookie::new(true);
    let begin = |shown: &HeaderMap| {
        let browser = cookie.of_or_new(shown);
        let mut response = http::Response::default();
        browser.set_on(&mut response);
        let set = header(response.headers(), SET_COOKIE);
        let (pair, attributes) = set.split_once(';').expect("attributes");
        assert_eq!(
            attributes,
            " Path=/; HttpOnly; SameSite=Lax; Max-Age=3600; Secure"
        );
        (browser.digest, pair.to_owned())
    };
    let name = |pair: &str| pair.split('=').next().map(str::to_owned);
    // Both pages were requested before the browser had a cookie.
    let (first, one) = begin(&HeaderMap::new());
    let (second, other) = std::iter::repeat_with(|| begin(&HeaderMap::new()))
        .find(|(_, other)| name(other) != name(&one))
        .expect("endless");
    let shown = with_cookie(&format!("{one}; {other}"));
    assert!(cookie.is_of(&shown, &first) && cookie.is_of(&shown, &second));
    // A later login keeps one of them, for another hour.
    let (third, again) = begin(&shown);
    assert!((third == first && again == one) || (third == second && again == other));
    let moved = with_cookie(&one.replace("-login-", "-login-9"));
    assert!(!cookie.is_of(&moved, &first));
}

#[test]
fn the_state_of_a_login_is_in_a_cookie_of_its_own() {
    let cookie = LoginStateCookie::new(true);
    let kept = |id: &str, state: &str, seconds| {
        let mut response = http::Response::default();
        cookie.set_on(&mut response, id, state, seconds);
        header(response.headers(), SET_COOKIE)
    };
    let set = kept("abc", "sealed_state-1", 900);
    assert_eq!(
        set,
        "__Host-longshore-connect-1=sealed_state-1; Path=/; HttpOnly; SameSite=Lax; Max-Age=900; Secure"
    );
    assert!(kept("abc", "", 0).contains("=; ") && kept("abc", "", 0).contains("Max-Age=0"));
    let shown = with_cookie("other=1; __Host-longshore-connect-1=sealed_state-1");
    let state = |headers: &HeaderMap, id| cookie.state(headers, id);
    assert_eq!(state(&shown, "abc").as_deref(), Some("sealed_state-1"));
    assert_eq!(state(&shown, "bcd"), None, "another login");
    assert!(cookie.is_free(&shown, "bcd") && !cookie.is_free(&shown, "abc"));
    let twice = "__Host-longshore-connect-1=a; __Host-longshore-connect-1=b";
    assert_eq!(state(&with_cookie(twice), "abc"), None);
    assert_eq!(LoginStateCookie::new(false).state(&shown, "abc"), None);
}
