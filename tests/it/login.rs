//! `longshore login`: tokens by consent in a browser, their storage, use, refresh and deletion.

#[cfg(feature = "redis")]
mod shared;
mod world;

use std::path::Path;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use self::world::{World, has_tool};
use crate::support::{Serve, assert_contains};

#[test]
fn a_login_is_kept_used_got_anew_and_forgotten() {
    let world = World::new(json!({}));
    let server = world.server();
    let going = world.begin(&[]);
    assert_eq!(going.parameter("client_id"), "registered");
    assert_eq!(going.parameter("resource"), server);
    assert_eq!(going.parameter("scope"), "tools offline_access");
    assert_eq!(going.parameter("code_challenge_method"), "S256");
    let registered: Value =
        serde_json::from_str(&world.site.asked("/register")[0].body).expect("JSON");
    assert_eq!(
        registered["redirect_uris"],
        json!([going.parameter("redirect_uri")])
    );
    assert_eq!(registered["application_type"], "native");
    // A redirect with another state, or another path, is rejected.
    let state = going.parameter("state");
    assert!(
        going
            .back(&[("code", "evil"), ("state", "guessed")])
            .starts_with("HTTP/1.1 400")
    );
    assert!(going.back(&[("code", "evil")]).starts_with("HTTP/1.1 400"));
    let challenge = going.parameter("code_challenge");
    let redirect = going.parameter("redirect_uri");
    let shown = going.back(&[
        ("code", "good"),
        ("state", &*state),
        ("iss", &*world.site.url),
    ]);
    assert!(shown.starts_with("HTTP/1.1 200"), "{shown}");
    let (done, said) = going.end();
    assert!(done, "{said}");
    assert!(
        !said.contains("access1") && !said.contains("refresh1"),
        "{said}"
    );

    let exchange = &world.site.asked("/token")[0];
    assert_eq!(exchange.field("code").as_deref(), Some("good"));
    assert_eq!(exchange.field("resource").as_deref(), Some(&*server));
    assert_eq!(exchange.field("redirect_uri"), Some(redirect));
    let verifier = exchange.field("code_verifier").expect("a verifier");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, verifier.as_bytes());
    assert_eq!(URL_SAFE_NO_PAD.encode(digest), challenge);
    let (file, login) = world.login().expect("it is kept");
    assert_eq!(login["issuer"], world.site.url);
    assert_eq!(mode(&file), 0o600);
    assert_eq!(mode(file.parent().expect("a folder")), 0o700);

    assert!(has_tool(&world.run(&["list", &server])));
    // Another process has refreshed the token; a rejected token is refreshed once.
    world.given.store(7, Ordering::Relaxed);
    let refused = world.run(&["list", &server]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_contains(&said, &["log in again with `longshore login`"]);
    world.given.store(1, Ordering::Relaxed);
    let old = json!({ "grants": [login] }).to_string();
    std::fs::write(&file, old.replace("access1", "access0")).expect("written");
    assert!(has_tool(&world.run(&["list", &server])));
    let refreshed = world.site.asked("/token").pop().expect("asked");
    assert_eq!(
        refreshed.field("grant_type").as_deref(),
        Some("refresh_token")
    );
    assert_eq!(refreshed.field("resource").as_deref(), Some(&*server));
    assert_eq!(refreshed.field("client_id").as_deref(), Some("registered"));
    let (_, login) = world.login().expect("it is kept");
    assert_eq!(login["refresh_token"], "refresh2");
    assert_eq!(mode(&file), 0o600);

    let out = world.run(&["logout", &server]);
    assert!(out.status.success());
    assert_eq!(
        world.site.asked("/revoke")[0].field("token").as_deref(),
        Some("refresh2")
    );
    assert!(world.login().is_none());
    let said = String::from_utf8(world.run(&["list", &server]).stderr).expect("UTF-8");
    assert!(
        said.contains(&format!("longshore login {server}")),
        "{said}"
    );
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().expect("there").permissions().mode() & 0o777
}

/// RFC 9207: what another issuer sends is not used, and not shown.
#[test]
fn an_answer_of_another_issuer_is_not_used() {
    for iss in [None, Some("https://evil.example")] {
        let world = World::new(json!({}));
        let going = world.begin(&[]);
        let state = going.parameter("state");
        let mut back = vec![
            ("code", "stolen"),
            ("state", &*state),
            ("error_description", "sp00fed"),
        ];
        back.extend(iss.map(|iss| ("iss", iss)));
        going.back(&back);
        let (done, said) = going.end();
        assert!(
            !done && said.contains("another issuer") && !said.contains("sp00fed"),
            "{said}"
        );
        assert!(world.site.asked("/token").is_empty() && world.login().is_none());
    }
}

/// Servers in Python write the URL of their issuer with a slash at its end, which the issuer itself does not.
#[test]
fn an_issuer_that_is_named_with_a_slash_at_its_end_is_the_same() {
    let world = World::new(json!({"named": "/"}));
    let (done, said) = world.begin(&[]).consent(&world.site.url);
    assert!(done, "{said}");
    let world = World::new(json!({"named": "//"}));
    let output = world.run(&["login", &world.server(), "--timeout", "60"]);
    assert!(!output.status.success());
}

#[test]
fn what_makes_no_safe_login_is_refused_with_what_to_do() {
    for (change, part) in [
        (json!({"code_challenge_methods_supported": []}), "PKCE"),
        (
            json!({"code_challenge_methods_supported": ["plain"]}),
            "PKCE",
        ),
        (json!({"issuer": "https://evil.example"}), "evil.example"),
        (json!({"registration_endpoint": null}), "--client-id"),
        (
            json!({"authorization_endpoint": "javascript://evil.example/%0aalert(1)"}),
            "http and https",
        ),
        (json!({"token_endpoint": null}), "token_endpoint"),
    ] {
        let world = World::new(change.clone());
        let output = world.run(&["login", &world.server(), "--timeout", "60"]);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(
            !output.status.success() && said.contains(part),
            "{change}: {said}"
        );
        assert!(world.site.asked("/token").is_empty() && world.login().is_none());
    }
}

#[test]
fn a_client_that_is_registered_or_described_is_not_registered_again() {
    let world = World::new(json!({"client_id_metadata_document_supported": true}));
    let going = world.begin(&["--client-metadata", "https://me.example/client.json"]);
    assert_eq!(
        going.parameter("client_id"),
        "https://me.example/client.json"
    );
    let mut child = going.child;
    child.kill().expect("killed");
    child.wait().expect("ended");
    let going = world.begin(&["--client-id", "mine", "--scope", "a", "--scope", "b"]);
    assert_eq!(going.parameter("client_id"), "mine");
    assert_eq!(going.parameter("scope"), "a b offline_access");
    let mut child = going.child;
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(world.site.asked("/register").is_empty());
}

#[test]
fn an_upstream_is_called_with_the_login_that_its_folder_has() {
    let world = World::new(json!({}));
    assert!(world.begin(&[]).consent(&world.site.url).0);
    let upstream = json!({"url": world.server(), "auth": {"login": true}});
    let upstream = serde_json::from_value(upstream).expect("valid");
    let server = Serve::new()
        .configured(|c| {
            c.upstreams.insert("up".to_owned(), upstream);
            c.tokens.folder = Some(world.folder.path().join("tokens"));
        })
        .start();
    let tools = server
        .session("2025-11-25")
        .request("tools/list", &json!({}))
        .result();
    assert_eq!(tools["tools"][0]["name"], "up__secret");
    // So is one by its name on the command line.
    let file = world.folder.path().join("servers.json");
    let text = json!({"mcpServers": {"up": {"url": world.server()}}}).to_string();
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("a path");
    assert!(has_tool(&world.run(&["list", "up", "--config", file])));
    assert!(
        world
            .run(&["logout", "up", "--config", file])
            .status
            .success()
    );
    assert!(world.login().is_none());
}

/// AUTH-12: the list of logins contains holders, never tokens.
#[test]
fn logins_are_listed_without_their_tokens_and_forgotten_one_issuer_at_a_time() {
    let world = World::new(json!({}));
    let listed = |arguments: &[&str]| -> Vec<Value> {
        let output = world.run(&[&["logins"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(
            !text.contains("access1") && !text.contains("refresh1"),
            "{text}"
        );
        serde_json::from_str(&text).expect("JSON")
    };
    assert_eq!(listed(&[]), [json!(null); 0]);
    assert!(world.begin(&[]).consent(&world.site.url).0);
    let server = world.server();
    let [login] = &listed(&[])[..] else {
        panic!("one login")
    };
    assert_eq!(login["kind"], "login");
    assert_eq!(login["server"], server);
    assert_eq!(login["resource"], server);
    assert_eq!(login["issuer"], world.site.url);
    assert_eq!(login["client"], "registered");
    assert_eq!(login["renewable"], true);
    assert!(
        login["ends"]
            .as_str()
            .is_some_and(|ends| ends.ends_with('Z'))
    );
    // Another folder is another place.
    let elsewhere = world.folder.path().join("elsewhere");
    let elsewhere = elsewhere.to_str().expect("a path");
    assert_eq!(listed(&["--folder", elsewhere]).len(), 0);

    let said = |arguments: &[&str]| {
        let output = world.run(&[&["logout", &*server], arguments].concat());
        assert!(output.status.success());
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let nobody = said(&["--issuer", "https://another.example"]);
    assert!(nobody.contains("there is no login"), "{nobody}");
    assert_eq!(listed(&[]).len(), 1);
    let gone = said(&["--issuer", &world.site.url]);
    assert!(gone.contains("revoked the token"), "{gone}");
    assert_eq!(listed(&[]).len(), 0);
}

#[test]
fn a_login_that_nothing_would_be_left_of_is_not_begun() {
    for (settings, part) in [
        (
            json!({}),
            "tokens.store is memory, so the token would be lost when this command ends: set tokens.store to file, or to state if there are replicas, or name a folder with --folder",
        ),
        (
            json!({"tokens": {"store": "state"}}),
            "tokens.store is state, but the state is not shared; set state.url, or store tokens in a folder (tokens.store = file)",
        ),
        (
            json!({"tokens": {"store": "state"}, "state": {"url": "redis://127.0.0.1:1"}}),
            "set seal.keys",
        ),
        (
            json!({
                "tokens": {"store": "state"}, "state": {"url": "redis://127.0.0.1:1"},
                "seal": {"keys": ["a key that is long enough to be one of them"]},
            }),
            "tokens cannot be read or stored in the state that replicas share",
        ),
    ] {
        let world = World::new(json!({}));
        let mut configuration = settings.clone();
        configuration["upstreams"] =
            json!({"up": {"url": world.server(), "auth": {"login": true}}});
        let file = world.configuration(&configuration);
        let output = world.run(&["login", "up", "--config", &file, "--timeout", "60"]);
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(
            !output.status.success() && said.contains(part),
            "{settings}: {said}"
        );
        assert!(
            world.site.asked("/mcp").is_empty(),
            "nobody was asked for consent"
        );
    }
}

#[test]
fn a_server_that_wants_a_login_and_forgets_it_does_not_start() {
    let mut config = longshore::Config::default();
    let upstream = json!({"url": "https://a.example/mcp", "auth": {"login": true}});
    let upstream = serde_json::from_value(upstream).expect("valid");
    config.upstreams.insert("up".to_owned(), upstream);
    let refused = crate::support::bind(longshore::App::new().config(config));
    let error = refused.expect_err("refused").to_string();
    assert!(
        error.starts_with(
            "upstreams.up.auth: a login needs a token store that other processes can read"
        ),
        "{error}"
    );
}

#[test]
fn a_client_secret_goes_to_an_issuer_that_was_named_and_to_no_other() {
    let world = World::new(json!({}));
    let server = world.server();
    let command = |more: &[&str]| {
        let all = [&["login", &server, "--client-id", "mine"], more].concat();
        let mut command = world.command(&all);
        command.env("LONGSHORE_CLIENT_SECRET", "canary-of-mine");
        command
    };
    let refused = command(&[]).output().expect("runs");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        said.contains(&world.site.url) && said.contains("--issuer"),
        "{said}"
    );
    assert!(world.site.asked("/token").is_empty());
    // A client ID that was given once is stored.
    let issuer = world.site.url.clone();
    for more in [&["--issuer", &issuer][..], &[]] {
        let (done, said) = world.begin_by(command(more)).consent(&issuer);
        assert!(done, "{said}");
    }
    let asked = world.site.asked("/token");
    assert_eq!(asked.len(), 2);
    // Another secret is sent to no server.
    let mut other = command(&[]);
    other.env("LONGSHORE_CLIENT_SECRET", "canary-of-another");
    assert!(!other.output().expect("runs").status.success());
}

#[test]
fn cli_09_a_scope_that_is_missing_is_named_and_asked_for_by_the_next_login() {
    let world = World::new(json!({}));
    let server = world.server();
    let (done, said) = world.begin(&[]).consent(&world.site.url);
    assert!(done, "{said}");
    let refused = world.run(&["call", &server, "write"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert_contains(&said, &["lacks the scope files:write", "`longshore login "]);
    // It stays stored over further logins without the option.
    for _ in 0..2 {
        let going = world.begin(&[]);
        assert_eq!(going.parameter("scope"), "tools offline_access files:write");
        let (done, said) = going.consent(&world.site.url);
        assert!(done, "{said}");
        assert!(world.run(&["call", &server, "write"]).status.success());
    }
    let going = world.begin(&["--scope", "tools"]);
    assert_eq!(going.parameter("scope"), "tools offline_access");
}

#[test]
fn a_server_of_2025_03_26_without_metadata_has_its_endpoints_where_that_says() {
    let world = World::new(json!({"without": "/.well-known/"}));
    let going = world.begin(&[]);
    assert_eq!(going.page.path(), "/authorize");
    assert_eq!(world.site.asked("/register").len(), 1);
    let (done, said) = going.consent(&world.site.url);
    assert!(done, "{said}");
    assert_eq!(world.site.asked("/token").len(), 1);
    assert!(has_tool(&world.run(&["list", &world.server()])));
    // Others want a key, and there is nothing to log in to.
    let world = World::new(json!({"without": "/.well-known/", "registers": false}));
    let refused = world.run(&["login", &world.server()]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("LONGSHORE_TOKEN") && said.contains("it requires authentication (HTTP 401), but has no OAuth metadata (RFC 9728, RFC 8414), and registers no client at /register. It probably needs an API key or token from its operator: put that into the variable LONGSHORE_TOKEN, or into `headers` of the upstream's configuration"),
        "{said}"
    );
}
