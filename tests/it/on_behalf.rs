//! Calls with the caller's own rights: its access token is exchanged (RFC 8693), and upstreams have a connection for each
//! caller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longshore::auth::IntrospectionConfig;
use longshore::client::Lifecycle;
use longshore::source::UpstreamConfig;
use longshore::{CallContext, Definition, ToolError, tool_fn};
use serde_json::{Map, Value, json};

use crate::auth::{CI, bearer, with_keys};
use crate::support::{Running, Serve, Site, Stateless, Told, assert_contains, longshore, said};

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const AUDIENCE: &str = "https://mcp.example.com/mcp";

/// An issuer that knows the tokens `of-NAME`, exchanges them for `exchanged-NAME`, and is also an API that returns the
/// headers of each request.
fn issuer() -> Site {
    Site::start(|_, asked| match &*asked.target {
        "/introspect" => {
            let token = asked.field("token").expect("a token");
            let name = ["of-", "exchanged-", "listing-"]
                .iter()
                .find_map(|prefix| token.strip_prefix(prefix));
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let now = now.expect("after 1970").as_secs();
            Told::json(
                200,
                match name {
                    Some(name) => json!({
                        "active": true, "sub": name, "aud": AUDIENCE, "client_id": "app", "exp": now + 600,
                    }),
                    None => json!({"active": false}),
                },
            )
        }
        "/token" => {
            if asked.field("grant_type").as_deref() == Some("client_credentials") {
                return Told::json(
                    200,
                    json!({"access_token": "listing-service", "token_type": "Bearer"}),
                );
            }
            let token = asked.field("subject_token").or(asked.field("assertion"));
            if asked.field("requested_token_type").as_deref() == Some(ID_JAG) {
                let token = token.as_deref().and_then(|token| token.strip_prefix("of-"));
                return Told::json(
                    200,
                    json!({"access_token": format!("of-{}", token.expect("a token")), "token_type": "N_A", "issued_token_type": ID_JAG}),
                );
            }
            match token.as_deref().and_then(|token| token.strip_prefix("of-")) {
                Some("eve") => Told::json(400, json!({"error": "access_denied\n[x]"})),
                Some("down") => Told::json(503, json!({})),
                Some(name) => Told::json(
                    200,
                    json!({"access_token": format!("exchanged-{name}"), "token_type": "Bearer", "expires_in": 300}),
                ),
                None => Told::json(400, json!({"error": "invalid_request"})),
            }
        }
        _ => Told::json(200, json!({"headers": asked.headers})),
    })
}

fn exchange(issuer: &Site) -> Value {
    json!({
        "token_url": format!("{}/token", issuer.url), "client_id": "longshore", "client_secret": "secret-of-longshore",
        "audience": "https://orders.internal", "scopes": ["orders"],
    })
}

fn with_introspection(serve: Serve, issuer: &Site) -> Serve {
    let url = issuer.url.clone();
    serve.configured(|config| {
        config.auth.oauth.issuer = Some(url.clone());
        config.auth.oauth.audience = vec![AUDIENCE.to_owned()];
        config.auth.oauth.introspection = IntrospectionConfig {
            url: Some(format!("{url}/introspect")),
            client_id: "longshore".to_owned(),
            client_secret: Some("secret-of-longshore".to_owned().into()),
            ..IntrospectionConfig::default()
        };
    })
}

fn serve(issuer: &Site, auth: &Value) -> Running {
    serve_with(issuer, issuer, auth)
}

/// A server whose callers have tokens of `issuer`.
fn serve_with(issuer: &Site, api: &Site, auth: &Value) -> Running {
    let sources = json!([{"name": "orders", "http": {
        "base_url": api.url,
        "auth": auth,
        "tools": [{"name": "list", "url": "/orders"}],
    }}]);
    let sources = serde_json::from_value(sources).expect("sources");
    let serve = Serve::new().configured(|config| {
        config.sources = sources;
        with_keys(config);
    });
    with_introspection(serve, issuer).admin().start()
}

fn metrics(server: &Running) -> String {
    server.admin_page("/metrics").body
}

fn call(server: &Running, tool: &str, token: &str) -> Value {
    let call = Stateless::call(tool, json!({}));
    let response = call.and("authorization", &bearer(token)).send(server);
    serde_json::from_str(&response.body).expect("JSON")
}

fn text(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_default().to_owned()
}

#[test]
fn each_caller_reaches_the_api_with_a_token_of_its_own() {
    let issuer = issuer();
    let server = serve(&issuer, &json!({"on_behalf_of": exchange(&issuer)}));
    for name in ["alice", "bob", "alice"] {
        let answer = call(&server, "list", &format!("of-{name}"));
        let sent = issuer.asked("/orders").pop().expect("a request");
        assert_eq!(
            sent.headers["authorization"],
            format!("Bearer exchanged-{name}")
        );
        // An API that echoes the token does not hand it to the caller.
        assert!(!answer.to_string().contains("exchanged-"), "{answer}");
    }
    let exchanges: Vec<_> = issuer
        .asked("/token")
        .into_iter()
        .map(|asked| {
            let of = |name| asked.field(name).unwrap_or_default();
            assert_eq!(
                of("grant_type"),
                "urn:ietf:params:oauth:grant-type:token-exchange"
            );
            assert_eq!(
                of("subject_token_type"),
                "urn:ietf:params:oauth:token-type:access_token"
            );
            assert_eq!(of("audience"), "https://orders.internal");
            assert_eq!(of("scope"), "orders");
            assert!(asked.headers["authorization"].starts_with("Basic "));
            of("subject_token")
        })
        .collect();
    // The second call of alice used the cached token.
    assert_eq!(exchanges, ["of-alice", "of-bob"]);
}

#[test]
fn a_caller_whose_token_is_not_exchanged_is_told_and_the_api_not_asked() {
    let issuer = issuer();
    let server = serve(&issuer, &json!({"on_behalf_of": exchange(&issuer)}));
    let refused = text(&call(&server, "list", "of-eve"));
    assert_eq!(
        refused,
        "orders: your access token was not exchanged for one that it accepts (access_denied[x], status 400); log in again, or ask the operator of this server to check your rights there"
    );
    // Asked once: the rejection is remembered for some seconds.
    call(&server, "list", "of-eve");
    assert_eq!(issuer.asked("/token").len(), 1);
    let refused = text(&call(&server, "list", CI));
    assert_eq!(
        refused,
        "orders: it is used with your own rights, for which you need an access token; you authenticated otherwise (api_key)"
    );
    for _ in 0..2 {
        let down = call(&server, "list", "of-down");
        assert_eq!(down["result"]["isError"], true, "{down}");
    }
    // The failure is shared by the calls of a moment.
    assert_eq!(issuer.asked("/token").len(), 2);
    assert!(issuer.asked("/orders").is_empty());
    // Others are served meanwhile.
    assert!(text(&call(&server, "list", "of-alice")).contains("headers"));
    let metrics = metrics(&server);
    for (outcome, count) in [("exchanged", 1), ("rejected", 1), ("failed", 1)] {
        let line = format!(
            "longshore_auth_exchanges_total{{upstream=\"orders\",outcome=\"{outcome}\"}} {count}"
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[test]
fn entra_is_asked_in_its_own_form() {
    let issuer = issuer();
    let auth = json!({"on_behalf_of": {
        "token_url": format!("{}/token", issuer.url), "client_id": "longshore", "client_secret": "secret-of-longshore",
        "form": "entra", "scopes": ["api://orders/.default"],
    }});
    let server = serve(&issuer, &auth);
    call(&server, "list", "of-alice");
    let asked = issuer.asked("/token").pop().expect("a request");
    let of = |name| asked.field(name).unwrap_or_default();
    assert_eq!(
        of("grant_type"),
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
    );
    assert_eq!(of("requested_token_use"), "on_behalf_of");
    assert_eq!(of("assertion"), "of-alice");
    assert_eq!(of("client_id"), "longshore");
    assert_eq!(of("client_secret"), "secret-of-longshore");
    assert_eq!(of("scope"), "api://orders/.default");
}

#[test]
fn the_audit_log_says_whom_a_tool_reached_and_with_whose_identity() {
    let issuer = issuer();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let http = |name: &str, auth: Value| {
        json!({"name": name, "http": {
            "base_url": issuer.url, "auth": auth, "tools": [{"name": format!("list_{name}"), "url": "/orders"}],
        }})
    };
    let sources = json!([
        http("callers", json!({"on_behalf_of": exchange(&issuer)})),
        http("ours", json!({"bearer": "a-secret-of-ours"})),
        http("open", json!({})),
    ]);
    let sources = serde_json::from_value(sources).expect("sources");
    let serve = Serve::new().configured(|config| {
        config.sources = sources;
        config.audit.file = Some(file.clone());
    });
    let server = with_introspection(serve, &issuer).start();
    for name in ["callers", "ours", "open"] {
        call(&server, &format!("list_{name}"), "of-alice");
    }
    drop(server);
    let text = std::fs::read_to_string(&file).expect("a file");
    let records = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|record| record["event"] == "call")
        .map(|record| {
            (
                record["upstream"].clone(),
                record["upstream_identity"].clone(),
            )
        });
    let expected = [("callers", "caller"), ("ours", "service"), ("open", "none")];
    let expected = expected.map(|(name, identity)| (json!(name), json!(identity)));
    assert_eq!(records.collect::<Vec<_>>(), expected);
    assert!(!text.contains("a-secret-of-ours") && !text.contains("exchanged-"));
}

/// Enterprise-managed authorization: the identity provider vouches for the caller to the issuer of the API.
#[test]
fn the_callers_token_is_exchanged_for_an_identity_assertion_and_that_redeemed() {
    let (provider, issuer) = (issuer(), issuer());
    let auth = json!({"on_behalf_of": {
        "token_url": format!("{}/token", provider.url), "client_id": "longshore", "client_secret": "secret-of-longshore",
        "scopes": ["orders"],
        "identity_assertion": {
            "issuer": "https://as.example.com", "token_url": format!("{}/token", issuer.url),
            "client_id": "longshore-there", "client_secret": "secret-there", "resource": "https://orders.example.com",
        },
    }});
    let server = serve_with(&provider, &issuer, &auth);
    for _ in 0..2 {
        call(&server, "list", "of-alice");
        let sent = issuer.asked("/orders").pop().expect("a request");
        assert_eq!(sent.headers["authorization"], "Bearer exchanged-alice");
    }
    let [asked] = &provider.asked("/token")[..] else {
        panic!("one exchange");
    };
    for (name, value) in [
        ("requested_token_type", ID_JAG),
        ("audience", "https://as.example.com"),
        ("resource", "https://orders.example.com"),
        ("scope", "orders"),
        ("subject_token", "of-alice"),
    ] {
        assert_eq!(asked.field(name).as_deref(), Some(value));
    }
    let [redeemed] = &issuer.asked("/token")[..] else {
        panic!("one request");
    };
    let grant = redeemed.field("grant_type");
    assert_eq!(
        grant.as_deref(),
        Some("urn:ietf:params:oauth:grant-type:jwt-bearer")
    );
    assert_eq!(redeemed.field("assertion").as_deref(), Some("of-alice"));
    let refused = text(&call(&server, "list", "of-eve"));
    assert!(refused.contains("access_denied"), "{refused}");
}

/// RFC 7523: a projected service account token is the credential.
#[test]
fn a_workload_shows_its_own_assertion() {
    let issuer = issuer();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    std::fs::write(&file, "of-workload\n").expect("written");
    let auth = json!({"oauth": {
        "token_url": format!("{}/token", issuer.url), "client_id": "longshore", "assertion_file": file, "scopes": ["orders"],
    }});
    let server = serve(&issuer, &auth);
    call(&server, "list", "of-alice");
    let sent = issuer.asked("/orders").pop().expect("a request");
    assert_eq!(sent.headers["authorization"], "Bearer exchanged-workload");
    let asked = issuer.asked("/token").pop().expect("a request");
    let of = |name| asked.field(name).unwrap_or_default();
    assert_eq!(
        of("grant_type"),
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
    );
    assert_eq!(of("assertion"), "of-workload");
    assert_eq!(of("scope"), "orders");
}

#[test]
fn without_access_tokens_the_setting_is_refused_at_start() {
    let issuer = issuer();
    let config = json!({
        "sources": [{"name": "orders", "http": {
            "base_url": issuer.url,
            "auth": {"on_behalf_of": exchange(&issuer)},
            "tools": [{"name": "list", "url": "/orders"}],
        }}],
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.json");
    std::fs::write(&file, config.to_string()).expect("written");
    let (code, text) = said(longshore(&["config", "check", "--config"], &[]).arg(&file));
    assert_eq!(code, Some(1));
    assert_contains(&text, &["on_behalf_of", "auth.oauth"]);
}

/// An upstream that tells who calls it, with what.
fn upstream(issuer: &Site) -> Running {
    let who = tool_fn(
        Definition::new("who"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let header = context.headers().and_then(|headers| headers.get("x-user"));
            let header = header.and_then(|value| value.to_str().ok()).unwrap_or("-");
            let session = context.session_id().unwrap_or("-");
            Ok::<_, ToolError>(format!("{} {header} {session}", context.principal().name()))
        },
    );
    with_introspection(Serve::new().tool(who), issuer).start()
}

fn in_front_of(upstream: &Running, issuer: &Site, lifecycle: Lifecycle, max: usize) -> Running {
    let config: UpstreamConfig = serde_json::from_value(json!({
        "url": format!("http://{}/mcp", upstream.address()),
        "auth": {"on_behalf_of": exchange(issuer)},
        "listing_auth": {"oauth": {
            "token_url": format!("{}/token", issuer.url), "client_id": "longshore", "client_secret": "secret-of-longshore",
        }},
        "forward": {"headers": {"x-user": "{{ caller.subject }}"}},
        "callers_max": max,
    }))
    .expect("valid");
    let config = UpstreamConfig {
        protocol: lifecycle,
        ..config
    };
    let serve = Serve::new().configured(|settings| {
        settings.upstreams = [("up".to_owned(), config)].into();
        with_keys(settings);
    });
    with_introspection(serve, issuer).start()
}

#[test]
fn each_caller_has_a_connection_of_its_own_to_an_upstream() {
    for lifecycle in [Lifecycle::Legacy, Lifecycle::Modern] {
        let issuer = issuer();
        let upstream = upstream(&issuer);
        let server = in_front_of(&upstream, &issuer, lifecycle, 8);
        let host = issuer.url.trim_start_matches("http://");
        let mut sessions = BTreeSet::new();
        for name in ["alice", "bob", "alice", "bob"] {
            let said = text(&call(&server, "up__who", &format!("of-{name}")));
            let words: Vec<&str> = said.split(' ').collect();
            assert_eq!(
                words[..2],
                [&*format!("oauth:{host}#{name}"), name],
                "{said}"
            );
            sessions.insert((name, words[2].to_owned()));
        }
        // One session for each, where there are sessions.
        assert_eq!(sessions.len(), 2, "{sessions:?}");
        // The listing was requested with credentials of its own, and each token was exchanged once.
        let subjects: Vec<_> = issuer
            .asked("/token")
            .iter()
            .filter_map(|asked| asked.field("subject_token"))
            .collect();
        assert_eq!(subjects, ["of-alice", "of-bob"]);
        let refused = text(&call(&server, "up__who", CI));
        assert_eq!(
            refused,
            "the upstream server up: it is used with your own rights, for which you need an access token; you authenticated otherwise (api_key)"
        );
        let refused = text(&call(&server, "up__who", "of-eve"));
        assert!(refused.contains("access_denied"), "{refused}");
        // The circuit breaker has not counted them.
        assert!(text(&call(&server, "up__who", "of-alice")).contains("alice"));
    }
}

#[test]
fn the_connection_that_was_unused_for_longest_makes_room_for_another_caller() {
    let issuer = issuer();
    let upstream = upstream(&issuer);
    let server = in_front_of(&upstream, &issuer, Lifecycle::Legacy, 2);
    let session = |name: &str| {
        let said = text(&call(&server, "up__who", &format!("of-{name}")));
        said.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    let (alice, bob) = (session("alice"), session("bob"));
    assert_eq!(session("alice"), alice);
    session("carol");
    assert_eq!(session("alice"), alice, "used more recently than bob");
    assert_ne!(session("bob"), bob);
}
