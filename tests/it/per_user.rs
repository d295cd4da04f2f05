//! Each user's own login at the API of a source (`auth.per_user`).

mod browser;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore::source::UpstreamConfig;
use longshore::{CallContext, Definition, ToolError, tool_fn};
use serde_json::{Map, Value, json};

use self::browser::{Browser, link, log_in, query};
use crate::auth::{BOB, CI, bearer, with_keys};
use crate::support::{Running, Serve, Site, Stateless, Told, longshore, said};

const PUBLIC: &str = "https://mcp.example.com";

/// An issuer that grants `access-CODE` for a code and renews it, and an API that returns the headers of each request.
fn api() -> Site {
    let renewals = AtomicUsize::new(0);
    Site::start(move |url, asked| {
        let path = asked.target.split('?').next().unwrap_or_default();
        match path {
            "/.well-known/oauth-authorization-server" => Told::json(
                200,
                json!({
                    "issuer": url,
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"),
                    "registration_endpoint": format!("{url}/register"),
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
                }),
            ),
            "/register" => {
                let asked: Value = serde_json::from_str(&asked.body).expect("JSON");
                assert_eq!(
                    asked["redirect_uris"],
                    json!([format!("{PUBLIC}/connect/callback")])
                );
                assert_eq!(asked["application_type"], "web");
                Told::json(201, json!({"client_id": "registered"}))
            }
            "/token" => match asked.field("grant_type").as_deref() {
                Some("authorization_code") => {
                    let code = asked.field("code").expect("a code");
                    // The token of this code is due for renewal at once.
                    let life = if code == "short" { 0 } else { 3600 };
                    Told::json(
                        200,
                        json!({
                            "access_token": format!("access-{code}"), "token_type": "Bearer", "expires_in": life,
                            "refresh_token": format!("refresh-{code}"),
                        }),
                    )
                }
                Some("refresh_token") => {
                    let number = renewals.fetch_add(1, Ordering::Relaxed);
                    match asked.field("refresh_token").as_deref() {
                        Some("refresh-short") => Told::json(
                            200,
                            json!({"access_token": format!("renewed-{number}"), "expires_in": 3600}),
                        ),
                        _ => Told::json(400, json!({"error": "invalid_grant"})),
                    }
                }
                _ => Told::json(400, json!({"error": "unsupported_grant_type"})),
            },
            "/revoked" => Told::json(401, json!({})),
            _ => Told::json(200, json!({"headers": asked.headers})),
        }
    })
}

fn sources(api: &Site, auth: &Value) -> Value {
    json!([{"name": "files", "http": {
        "base_url": api.url,
        "auth": {"per_user": auth},
        "tools": [{"name": "list", "url": "/files"}, {"name": "gone", "url": "/revoked"}],
    }}])
}

fn per_user(api: &Site) -> Value {
    json!({
        "authorize_url": format!("{}/authorize", api.url), "token_url": format!("{}/token", api.url),
        "client_id": "longshore", "client_secret": "secret-of-longshore", "scopes": ["files:read"],
        "parameters": {"access_type": "offline"},
    })
}

fn serve(sources: Value, folder: Option<&Path>) -> Running {
    let sources = serde_json::from_value(sources).expect("sources");
    Serve::new()
        .configured(|config| {
            config.sources = sources;
            config.http.public_url = Some(PUBLIC.to_owned());
            config.tokens.folder = folder.map(Path::to_owned);
            with_keys(config);
        })
        .shared_key()
        .admin()
        .start()
}

fn call(server: &Running, tool: &str, key: &str) -> Value {
    let call = Stateless::call(tool, json!({}));
    let response = call.and("authorization", &bearer(key)).send(server);
    serde_json::from_str(&response.body).expect("JSON")
}

fn text(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_default().to_owned()
}

#[test]
fn a_user_logs_in_once_and_only_that_users_calls_use_the_login() {
    let api = api();
    let server = serve(sources(&api, &per_user(&api)), None);
    let asked = call(&server, "list", CI);
    assert_eq!(asked["result"]["isError"], true);
    assert!(text(&asked).starts_with(
        "files: log in to 127.0.0.1 first: open https://mcp.example.com/connect?link="
    ));
    assert!(api.asked("/files").is_empty());

    let mut browser = Browser::default();
    let page = browser.agree(&server, &link(&asked), CI);
    assert_eq!(page.path(), "/authorize");
    for (name, value) in [
        ("client_id", "longshore"),
        ("response_type", "code"),
        ("redirect_uri", "https://mcp.example.com/connect/callback"),
        ("code_challenge_method", "S256"),
        ("scope", "files:read"),
        ("access_type", "offline"),
    ] {
        assert_eq!(query(&page, name), value, "{page}");
    }
    let done = browser.come_back(&server, &page, "alices");
    assert!(
        done.body.contains("can now use your account for files"),
        "{}",
        done.body
    );
    let redeemed = api.asked("/token").pop().expect("a request");
    assert_eq!(
        redeemed.field("redirect_uri").as_deref(),
        Some("https://mcp.example.com/connect/callback")
    );
    assert!(redeemed.field("code_verifier").is_some());
    assert!(redeemed.headers["authorization"].starts_with("Basic "));

    let answer = call(&server, "list", CI);
    let sent = api.asked("/files").pop().expect("a request");
    assert_eq!(sent.headers["authorization"], "Bearer access-alices");
    assert!(!answer.to_string().contains("access-alices"), "{answer}");
    // Somebody else has to log in first, too.
    link(&call(&server, "list", BOB));
    assert_eq!(api.asked("/files").len(), 1);
}

#[test]
fn a_user_sees_and_ends_the_own_logins() {
    let api = api();
    let mut auth = per_user(&api);
    auth["revoke_url"] = format!("{}/revoke", api.url).into();
    let server = serve(sources(&api, &auth), None);
    let send = |method: &str, target: &str, key: &str| {
        let authorization = match key {
            "" => String::new(),
            key => format!("Authorization: {}\r\n", bearer(key)),
        };
        let head = format!("{method} {target}");
        Browser::default().send(&server, &head, &authorization, "")
    };
    let account = |key: &str| {
        let response = send("GET", "/accounts", key);
        assert_eq!(response.status, 200, "{}", response.body);
        assert_eq!(response.header("cache-control"), Some("no-store"));
        response.json()["accounts"][0].clone()
    };
    let before = account(CI);
    assert_eq!(before["source"], "files");
    assert_eq!(before["connected"], false);
    let url = before["login_url"].as_str().expect("a URL");
    assert!(
        url.starts_with("https://mcp.example.com/connect?link="),
        "{url}"
    );

    log_in(&server, "list", CI, "alices");
    let after = account(CI);
    assert_eq!(after["connected"], true);
    assert_eq!(after["scopes"], json!(["files:read"]));
    assert!(!after.to_string().contains("access-"), "{after}");
    assert_eq!(account(BOB)["connected"], false);

    assert_eq!(send("GET", "/accounts", "").status, 401);
    for (target, status) in [("/accounts", 400), ("/accounts?source=nothing", 404)] {
        assert_eq!(send("DELETE", target, CI).status, status, "{target}");
    }
    assert_eq!(send("POST", "/accounts", CI).status, 405);
    assert_eq!(send("DELETE", "/accounts?source=files", BOB).status, 404);
    assert_eq!(send("DELETE", "/accounts?source=files", CI).status, 204);
    let revoked = api.asked("/revoke").pop().expect("a revocation");
    assert_eq!(revoked.field("token").as_deref(), Some("refresh-alices"));
    assert!(revoked.headers["authorization"].starts_with("Basic "));
    assert_eq!(account(CI)["connected"], false);
    link(&call(&server, "list", CI));
}

#[test]
fn a_link_is_of_no_use_to_anybody_else() {
    let api = api();
    let server = serve(sources(&api, &per_user(&api)), None);
    let link = link(&call(&server, "list", CI));
    let value = link.strip_prefix("/connect?link=").expect("a link");
    let mut browser = Browser::default();
    let page = browser.get(&server, &link);
    assert!(
        page.header("content-security-policy")
            .is_some_and(|policy| policy.contains("frame-ancestors 'none'"))
    );
    let allow = |key| [("link", value), ("key", key), ("decision", "allow")];
    for (origin, key, status) in [
        // Another user, to whom the link was passed on.
        (PUBLIC, BOB, 403),
        (PUBLIC, "", 403),
        (PUBLIC, "lsk_nobody", 403),
        // A form of another site.
        ("https://evil.example", CI, 403),
        ("null", CI, 403),
    ] {
        let refused = browser.post(&server, origin, &allow(key));
        assert_eq!(refused.status, status, "{origin} {key}: {}", refused.body);
        assert!(refused.header("location").is_none());
    }
    let declined = [("link", value), ("key", CI), ("decision", "deny")];
    assert_eq!(browser.post(&server, PUBLIC, &declined).status, 200);
    for bad in [
        "",
        "?done=x",
        "?link=",
        "?link=x",
        "?visitor=x",
        "?link=a&link=b",
        "?link=a&visitor=b",
    ] {
        let page = browser.get(&server, &format!("/connect{bad}"));
        assert_eq!(page.status, 400, "{bad}");
    }
    assert_eq!(browser.send(&server, "DELETE /connect", "", "").status, 405);
    assert_eq!(browser.get(&server, "/connect/begin").status, 405);
    assert_eq!(browser.get(&server, "/connect/else").status, 404);
    assert!(api.asked("/token").is_empty());
}

#[test]
fn a_response_of_the_issuer_counts_in_the_browser_that_began_only() {
    let api = api();
    let server = serve(sources(&api, &per_user(&api)), None);
    let link = link(&call(&server, "list", CI));
    let mut browser = Browser::default();
    let page = browser.agree(&server, &link, CI);
    let mut other = Browser::default();
    let refused = other.come_back(&server, &page, "stolen");
    assert_eq!(refused.status, 400);
    assert!(
        refused
            .body
            .contains("this browser did not begin the login"),
        "{}",
        refused.body
    );
    let state = query(&page, "state");
    for (query, part) in [
        (
            format!("error=access_denied&state={state}"),
            "the issuer rejected the login: access_denied",
        ),
        (
            format!("code=a&iss=https%3A%2F%2Fevil.example&state={state}"),
            "from another issuer",
        ),
        (format!("state={state}"), "no code"),
        ("code=a&state=x".to_owned(), "did not begin the login"),
        ("code=a".to_owned(), "has expired"),
        (format!("code=a&code=b&state={state}"), "more than once"),
    ] {
        let refused = browser.get(&server, &format!("/connect/callback?{query}"));
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.body.contains(part), "{query}: {}", refused.body);
    }
    assert!(api.asked("/token").is_empty());
    assert_eq!(browser.come_back(&server, &page, "good").status, 200);
    assert!(browser.cookies.is_empty(), "{:?}", browser.cookies);
    let metrics = server.admin_page("/metrics").body;
    for (outcome, count) in [
        ("connected", 1),
        ("denied", 1),
        ("other_browser", 2),
        ("other_issuer", 1),
    ] {
        let line = format!(
            "longshore_auth_logins_total{{step=\"account\",outcome=\"{outcome}\"}} {count}"
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[test]
fn a_login_begins_at_one_replica_and_ends_at_another_and_is_renewed() {
    let api = api();
    let folder = tempfile::tempdir().expect("a folder");
    let one = serve(sources(&api, &per_user(&api)), Some(folder.path()));
    let other = serve(sources(&api, &per_user(&api)), Some(folder.path()));
    let third = serve(sources(&api, &per_user(&api)), Some(folder.path()));
    let link = link(&call(&one, "list", CI));
    let mut browser = Browser::default();
    let page = browser.agree(&other, &link, CI);
    assert_eq!(browser.come_back(&third, &page, "short").status, 200);
    for server in [&one, &other] {
        call(server, "list", CI);
        let sent = api.asked("/files").pop().expect("a request");
        // Renewed once, for all replicas.
        assert_eq!(sent.headers["authorization"], "Bearer renewed-0");
    }
    let stored: String = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("read"))
        .collect();
    assert!(stored.contains("renewed-0") && !stored.contains("secret-of-longshore"));
}

#[test]
fn a_login_that_has_ended_is_asked_for_again() {
    let api = api();
    let server = serve(sources(&api, &per_user(&api)), None);
    log_in(&server, "gone", CI, "alices");
    // The API rejects the token, and the issuer renews it no more.
    link(&call(&server, "gone", CI));
    let before = api.asked("/token").len();
    link(&call(&server, "list", CI));
    assert_eq!(api.asked("/token").len(), before, "not asked again at once");
}

#[test]
fn a_call_waits_for_a_user_whose_login_has_ended() {
    let api = api();
    let server = serve(sources(&api, &per_user(&api)), None);
    log_in(&server, "gone", CI, "alices");
    // The API rejects the token, and the issuer renews it no more.
    let link = link(&call(&server, "gone", CI));
    let list = || {
        Stateless::call("list", json!({}))
            .and("authorization", &bearer(CI))
            .meta("clientCapabilities", json!({"elicitation": {"url": {}}}))
    };
    let asked = list().send(&server).result();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    // The user agrees before the login.
    let again = list().params(|params| {
        params["inputResponses"] = json!({"longshore-login": {"action": "accept"}});
        params["requestState"] = asked["requestState"].clone();
    });
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| again.send(&server).result());
        let mut browser = Browser::default();
        let page = browser.agree(&server, &link, CI);
        browser.come_back(&server, &page, "alices-again");
        let answer = waiting.join().expect("no panic");
        assert!(answer.to_string().contains("headers"), "{answer}");
    });
}

#[test]
fn guesses_of_a_key_are_limited_as_at_the_endpoint() {
    let api = api();
    let sources = serde_json::from_value(sources(&api, &per_user(&api))).expect("sources");
    let server = Serve::new()
        .configured(|config| {
            config.sources = sources;
            config.http.public_url = Some(PUBLIC.to_owned());
            config.limits.failed_authentications_per_minute = Some(2);
            with_keys(config);
        })
        .start();
    let link = link(&call(&server, "list", CI));
    let value = link.strip_prefix("/connect?link=").expect("a link");
    let mut browser = Browser::default();
    let mut status = || {
        let guess = [("link", value), ("key", "lsk_guess"), ("decision", "allow")];
        let refused = browser.post(&server, PUBLIC, &guess);
        assert_eq!(
            refused.header("retry-after").is_some(),
            refused.status == 429
        );
        refused.status
    };
    assert_eq!([status(), status(), status()], [403, 403, 429]);
}

#[test]
fn a_logout_on_the_command_line_is_revoked_with_the_secret_of_the_client() {
    let api = api();
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    let mut auth = per_user(&api);
    auth["revoke_url"] = format!("{}/revoke", api.url).into();
    let sources = sources(&api, &auth);
    let server = serve(sources.clone(), Some(&tokens));
    log_in(&server, "list", CI, "alices");
    let config = json!({
        "sources": sources, "tokens": {"folder": tokens}, "http": {"public_url": PUBLIC},
    });
    let file = folder.path().join("longshore.json");
    std::fs::write(&file, config.to_string()).expect("written");
    let file = file.to_str().expect("a path");
    let arguments = ["logout", "files", "--user", "key:ci", "--config", file];
    let (code, text) = said(&mut longshore(&arguments, &[]));
    assert_eq!(code, Some(0), "{text}");
    let revoked = api.asked("/revoke").pop().expect("a revocation");
    assert_eq!(revoked.field("token").as_deref(), Some("refresh-alices"));
    assert!(revoked.headers["authorization"].starts_with("Basic "));
}

#[test]
fn clients_that_can_show_links_are_asked_to_in_each_lifecycle() {
    let api = api();
    let server = serve(sources(&api, &per_user(&api)), None);
    let stateless = Stateless::call("list", json!({}))
        .and("authorization", &bearer(CI))
        .meta("clientCapabilities", json!({"elicitation": {"url": {}}}));
    let asked = stateless.send(&server).result();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let request = &asked["inputRequests"]["longshore-login"];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["mode"], "url");
    let link = request["params"]["url"].as_str().expect("a URL");
    let link = link
        .strip_prefix(PUBLIC)
        .expect("of this server")
        .to_owned();
    let mut browser = Browser::default();
    let page = browser.agree(&server, &link, CI);
    browser.come_back(&server, &page, "alices");
    // The client sends the request again, with the user's answer.
    let again = Stateless::call("list", json!({}))
        .and("authorization", &bearer(CI))
        .meta("clientCapabilities", json!({"elicitation": {"url": {}}}))
        .params(|params| {
            params["inputResponses"] = json!({"longshore-login": {"action": "accept"}});
            params["requestState"] = asked["requestState"].clone();
        });
    let answer = again.send(&server).result();
    assert!(answer.to_string().contains("headers"), "{answer}");

    let capabilities = json!({"elicitation": {"url": {}}});
    let key = bearer(BOB);
    let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}});
    let session = server.post(
        &[("authorization", &key)],
        &crate::support::request("initialize", &initialize),
    );
    let id = session
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let headers = [("authorization", &*key), ("mcp-session-id", &*id)];
    let called = crate::support::request("tools/call", &json!({"name": "list", "arguments": {}}));
    let refused: Value = serde_json::from_str(&server.post(&headers, &called).body).expect("JSON");
    assert_eq!(refused["error"]["code"], -32042, "{refused}");
    let url = refused["error"]["data"]["elicitations"][0]["url"].as_str();
    assert!(url.is_some_and(|url| url.starts_with(PUBLIC)), "{refused}");
}

#[test]
fn an_upstream_names_its_issuer_and_this_server_registers_there() {
    let issuer = api();
    let who = tool_fn(
        Definition::new("who"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            Ok::<_, ToolError>(context.principal().name().to_owned())
        },
    );
    let url = issuer.url.clone();
    // The upstream lists its tools for everybody, and the issuer's tokens are not checked here.
    let upstream = Serve::new()
        .tool(who)
        .app(|app| app.auth_method(OwnTokens))
        .configured(|config| {
            config.auth.anonymous = Some("nobody".to_owned());
            config.auth.oauth.issuer = Some(url);
            config.auth.oauth.audience = vec!["any".to_owned()];
        })
        .start();
    let config: UpstreamConfig = serde_json::from_value(json!({
        "url": format!("http://{}/mcp", upstream.address()),
        "auth": {"per_user": {}},
    }))
    .expect("valid");
    let server = Serve::new()
        .configured(|settings| {
            settings.upstreams = [("up".to_owned(), config)].into();
            settings.http.public_url = Some(PUBLIC.to_owned());
            with_keys(settings);
        })
        .start();
    log_in(&server, "up__who", CI, "alices");
    log_in(&server, "up__who", BOB, "bobs");
    for (key, name) in [
        (CI, "access-alices"),
        (BOB, "access-bobs"),
        (CI, "access-alices"),
    ] {
        assert_eq!(text(&call(&server, "up__who", key)), name);
    }
    assert_eq!(issuer.asked("/register").len(), 1, "for all logins");
}

/// Takes every token as the name of its holder.
#[derive(Debug)]
struct OwnTokens;

impl longshore::auth::AuthMethod for OwnTokens {
    fn judge(&self, presented: &longshore::auth::Credentials<'_>) -> longshore::auth::AuthOutcome {
        match presented.bearer() {
            Some(token) => longshore::auth::AuthOutcome::Proven(Arc::new(
                longshore::auth::Principal::new(token),
            )),
            None => longshore::auth::AuthOutcome::Absent,
        }
    }
}
