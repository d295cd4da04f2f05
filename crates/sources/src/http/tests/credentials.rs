//! Tests of request credentials: tokens are obtained, stored, refreshed and never exposed.

use std::time::Duration;

use super::*;
use crate::environment::Probe;
use crate::source::tokens::{TokenStore, TokensConfig};
use crate::state::{Memory, SharedState};

#[tokio::test]
async fn tokens_are_got_kept_and_got_anew() {
    let issued = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = issued.clone();
    let (issuer, asked) = serve(move |_| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let body = format!(
            r#"{{"access_token": "token{number}", "token_type": "bearer", "expires_in": 3600}}"#
        );
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    let (server, seen) = serve(|request| {
        if request.to_lowercase().contains("bearer token1") {
            response("200 OK\r\ncontent-type: text/plain", b"in")
        } else {
            response("401 Unauthorized", b"")
        }
    })
    .await;
    let oauth = json!({"token_url": format!("http://{issuer}/token"), "client_id": "me:x", "client_secret": "s&cret", "scopes": ["a", "b"]});
    let tool = tool(
        server,
        json!({"url": "/", "method": "POST", "source": {"auth": {"oauth": oauth}}}),
    );
    assert_eq!(text(&call(&tool, json!({})).await.expect("in")), "in");
    assert_eq!(text(&call(&tool, json!({})).await.expect("in")), "in");
    assert_eq!(
        seen.lock().expect("no panic").len(),
        3,
        "once with the token that was refused"
    );
    let asked = asked.lock().expect("no panic");
    assert_eq!(asked.len(), 2);
    assert!(
        asked[0].ends_with("grant_type=client_credentials&scope=a+b"),
        "{asked:?}"
    );
    assert!(
        asked[0].to_lowercase().contains("authorization: basic "),
        "{asked:?}"
    );
}

/// Starts an issuer that grants `access0`, `refresh0` and so on, and a server that accepts only the access token with
/// one number.
async fn issuing(accepted: usize) -> (SocketAddr, Arc<std::sync::Mutex<Vec<String>>>, SocketAddr) {
    let issued = std::sync::atomic::AtomicUsize::new(0);
    let (issuer, asked) = serve(move |_| {
        let number = issued.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let body = format!(
            r#"{{"access_token": "access{number}", "refresh_token": "refresh{number}", "expires_in": 3600}}"#
        );
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    let (server, _) = serve(move |request| {
        if request.contains(&format!("Bearer access{accepted}")) {
            response("200 OK\r\ncontent-type: text/plain", b"in")
        } else {
            response("401 Unauthorized", b"")
        }
    })
    .await;
    (issuer, asked, server)
}

fn body_of(request: &str) -> &str {
    request.split_once("\r\n\r\n").expect("a whole request").1
}

#[tokio::test]
async fn a_refresh_token_is_used_replaced_and_kept_for_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let (issuer, asked, server) = issuing(1).await;
    let oauth = json!({
        "token_url": format!("http://{issuer}/token"), "client_id": "app", "refresh_token": "first",
    });
    let description = json!({"url": "/", "source": {"auth": {"oauth": oauth}}});
    let start = || Tokens::in_folder(folder.path().join("tokens"));
    let one = tool_with(server, description.clone(), start());
    // The first token is rejected; the server accepts the second.
    assert_eq!(text(&call(&one, json!({})).await.expect("in")), "in");
    // A restart continues with the stored token, which is still valid.
    let two = tool_with(server, description.clone(), start());
    assert_eq!(text(&call(&two, json!({})).await.expect("in")), "in");
    let bodies = |asked: &[String]| -> Vec<String> {
        let bodies = asked.iter().map(|request| body_of(request).to_owned());
        bodies.collect()
    };
    assert_eq!(
        bodies(&asked.lock().expect("no panic")),
        [
            "grant_type=refresh_token&refresh_token=first&client_id=app",
            "grant_type=refresh_token&refresh_token=refresh0&client_id=app",
        ]
    );
    let kept: Vec<_> = std::fs::read_dir(folder.path().join("tokens"))
        .expect("a folder")
        .flatten()
        .collect();
    for kept in &kept {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = kept.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "nobody else may read {kept:?}");
    }
    let names = kept.iter().map(std::fs::DirEntry::file_name);
    let ends = |end: &str| {
        let names = names.clone();
        names
            .filter(|name| name.to_string_lossy().ends_with(end))
            .count()
    };
    assert_eq!((ends(".token"), ends(".lock"), kept.len()), (1, 1, 2));
}

/// A configuration change rebuilds the tools, which must not present a rotated refresh token again.
#[tokio::test]
async fn a_refresh_token_that_was_replaced_outlives_a_reload() {
    let (issuer, asked, server) = strict().await;
    let tokens = Tokens::default();
    for _ in 0..3 {
        let tool = tool_with(server, refreshing(issuer), tokens.clone());
        assert_eq!(text(&call(&tool, json!({})).await.expect("in")), "in");
    }
    assert_eq!(asked.lock().expect("no panic").len(), 3);
}

/// Starts an issuer that accepts each refresh token once, grants expired access tokens and records what it receives;
/// and a server that accepts any token.
async fn strict() -> (SocketAddr, Arc<std::sync::Mutex<Vec<String>>>, SocketAddr) {
    let good = std::sync::Mutex::new("first".to_owned());
    let (issuer, asked) = serve(move |request| {
        let mut good = good.lock().expect("no panic");
        let body = body_of(request);
        if !body.contains(&format!("refresh_token={good}&")) {
            return response("400 Bad Request", b"{}");
        }
        let next = match good.strip_prefix("refresh") {
            None => 0,
            Some(number) => number.parse::<u32>().expect("a number") + 1,
        };
        *good = format!("refresh{next}");
        let body = format!(
            r#"{{"access_token": "access{next}", "refresh_token": "{good}", "expires_in": 0}}"#
        );
        response("200 OK\r\ncontent-type: application/json", body.as_bytes())
    })
    .await;
    let (server, _) = serve(|_| response("200 OK\r\ncontent-type: text/plain", b"in")).await;
    (issuer, asked, server)
}

fn refreshing(issuer: SocketAddr) -> Value {
    let oauth = json!({
        "token_url": format!("http://{issuer}/token"), "client_id": "app", "refresh_token": "first",
    });
    json!({"url": "/", "source": {"auth": {"oauth": oauth}}})
}

/// Returns the token store of a replica.
fn shared(state: &SharedState) -> Tokens {
    let tokens = in_state();
    let reported = tokens.are_in(state.clone(), true, true);
    reported.expect("a place for them");
    tokens
}

fn in_state() -> Tokens {
    let config = TokensConfig {
        store: Some(TokenStore::State),
        folder: None,
    };
    Tokens::new(&config, &Probe::default()).expect("a place")
}

#[tokio::test]
async fn replicas_that_share_refresh_tokens_show_each_one_once() {
    let (issuer, asked, server) = strict().await;
    let state = SharedState::new(Arc::new(Memory::new(1 << 20)), Duration::from_secs(5));
    let replicas = [(); 3].map(|()| tool_with(server, refreshing(issuer), shared(&state)));
    let calls = (0..4).flat_map(|_| &replicas);
    let called = futures_util::future::join_all(calls.map(|tool| call(tool, json!({})))).await;
    for called in called {
        assert_eq!(text(&called.expect("in")), "in");
    }
    // A replica that starts later continues with the stored token.
    let late = tool_with(server, refreshing(issuer), shared(&state));
    assert_eq!(text(&call(&late, json!({})).await.expect("in")), "in");
    let asked = asked.lock().expect("no panic");
    assert_eq!(asked.len(), 13);
    for (number, request) in asked.iter().enumerate() {
        let shown = match number {
            0 => "first".to_owned(),
            number => format!("refresh{}", number - 1),
        };
        let wanted = format!("grant_type=refresh_token&refresh_token={shown}&client_id=app");
        assert_eq!(body_of(request), wanted);
    }
}

#[tokio::test]
async fn without_the_state_that_refresh_tokens_are_in_none_is_used() {
    let (issuer, asked, server) = strict().await;
    let alone = tool_with(server, refreshing(issuer), in_state());
    call(&alone, json!({})).await.expect_err("no state");
    assert_eq!(asked.lock().expect("no panic").len(), 0);
}

#[tokio::test]
async fn a_token_of_ours_is_exchanged_for_one_of_theirs() {
    let folder = tempfile::tempdir().expect("a folder");
    let subject = folder.path().join("token");
    std::fs::write(&subject, "ours\n").expect("written");
    let (issuer, asked, server) = issuing(0).await;
    let oauth = json!({
        "token_url": format!("http://{issuer}/token"), "client_id": "app", "client_secret": "x",
        "subject_token_file": subject, "audience": "theirs",
    });
    let tool = tool(
        server,
        json!({"url": "/", "source": {"auth": {"oauth": oauth}}}),
    );
    assert_eq!(text(&call(&tool, json!({})).await.expect("in")), "in");
    let asked = asked.lock().expect("no panic");
    assert_eq!(
        body_of(&asked[0]),
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=ours\
         &subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt\
         &requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token&audience=theirs"
    );
}

#[tokio::test]
async fn eli_08_credentials_for_others_are_taken_out_of_what_they_answer() {
    let repeats = |request: &str| {
        let sent = request.replace('"', "'");
        let status = match request.contains("/fails") {
            true => "403 Forbidden",
            false => "200 OK",
        };
        let head = format!("{status}\r\ncontent-type: text/plain\r\nx-seen: canary-of-the-api");
        response(&head, sent.as_bytes())
    };
    let (server, seen) = serve(repeats).await;
    let ways = [
        json!({"bearer": "canary-of-the-api"}),
        json!({"header": {"name": "x-key", "value": "canary-of-the-api"}}),
        json!({"query": {"name": "key", "value": "canary-of-the-api"}}),
        json!({"basic": {"username": "u", "password": "canary-of-the-api"}}),
    ];
    for auth in ways {
        for url in ["/works", "/fails"] {
            let tool = tool(server, json!({"url": url, "source": {"auth": auth}}));
            let told = match call(&tool, json!({})).await {
                Ok(output) => text(&output).to_owned(),
                Err(message) => message,
            };
            let sent = seen.lock().expect("no panic").pop().expect("a request");
            // The secret is redacted in Base64 too, as Basic authentication sends it.
            for secret in ["canary-of-the-api", "dTpjYW5hcnktb2YtdGhlLWFwaQ"] {
                assert!(!told.contains(secret), "{told}");
            }
            assert!(
                sent.contains("canary-of-the-api") || sent.contains("dTpjYW5hcnktb2YtdGhlLWFwaQ")
            );
            assert!(told.contains("***"), "{told}");
        }
    }
}

/// Returns a tool with an absolute URL whose origin is not that of the base.
fn tool_elsewhere(
    server: SocketAddr,
    elsewhere: SocketAddr,
    source: &Value,
    send_credentials: Option<bool>,
) -> Arc<dyn Tool> {
    let mut description = json!({"url": format!("http://{elsewhere}/other"), "source": source});
    if let Some(send) = send_credentials {
        description["send_credentials"] = send.into();
    }
    tool(server, description)
}

#[tokio::test]
async fn credentials_go_to_the_origin_of_the_base_alone_unless_a_tool_says_otherwise() {
    let (server, _) = serve(|_| response("200 OK\r\ncontent-type: text/plain", b"in")).await;
    let (elsewhere, seen) =
        serve(|_| response("401 Unauthorized\r\ncontent-type: text/plain", b"out")).await;
    let last = || seen.lock().expect("no panic").pop().expect("a request");
    for auth in [
        json!({"bearer": "canary-1"}),
        json!({"basic": {"username": "u", "password": "canary-1"}}),
        json!({"header": {"name": "x-key", "value": "canary-1"}}),
        json!({"query": {"name": "key", "value": "canary-1"}}),
    ] {
        let source = json!({"auth": auth, "headers": {"x-other": "canary-2"}});
        for (send, is_sent) in [(None, false), (Some(false), false), (Some(true), true)] {
            let tool = tool_elsewhere(server, elsewhere, &source, send);
            call(&tool, json!({})).await.expect_err("401");
            let request = last();
            for secret in ["canary-1", "canary-2"] {
                let found = request.contains(secret)
                    || secret == "canary-1" && request.contains("dTpjYW5hcnktMQ==");
                assert_eq!(found, is_sent, "{secret}, {send:?}: {request}");
            }
        }
    }
}

#[test]
fn where_credentials_go_has_to_be_said_if_nothing_tells() {
    let base = "127.0.0.1:1".parse().expect("an address");
    let of = |urls: [&str; 2], source: Value| {
        let mut config = config(base, json!({"source": source}));
        config.base_url = String::new();
        let tools = urls.iter().enumerate().map(|(number, url)| HttpToolConfig {
            name: format!("t{number}"),
            url: (*url).to_owned(),
            ..HttpToolConfig::default()
        });
        config.tools = tools.collect();
        let refused = collected(&config).offered.refused;
        refused.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let secret = json!({"auth": {"bearer": "a"}});
    let one = ["https://a.example/x", "https://a.example/y"];
    let two = ["https://a.example/x", "https://b.example/y"];
    assert_eq!(of(one, secret.clone()), [""; 0]);
    assert_eq!(of(two, json!({"headers": {}})), [""; 0]);
    for source in [
        secret,
        json!({"headers": {"x-key": "a"}}),
        json!({"headers": {}, "forward_headers": ["x-tenant"]}),
    ] {
        let refused = of(two, source);
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("send_credentials"), "{refused:?}");
    }
    let mut config = config(
        base,
        json!({"url": "https://a.example/", "send_credentials": true}),
    );
    config.auth.login = true;
    let tokens = Tokens::in_folder("/nonexistent".into());
    let refused = &collected_with(&config, tokens).offered.refused;
    assert!(refused[0].problem.contains("auth.login"), "{refused:?}");
}
