use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use url::Url;

use super::*;
use crate::seal::{KeyRing, SealConfig, SealedState};
use crate::state::{Memory as MemoryState, State};

fn grant(issuer: &str, token: &str) -> Grant {
    grant_with(issuer, token, &json!({}))
}

fn grant_with(issuer: &str, token: &str, change: &Value) -> Grant {
    let mut grant = json!({
        "server": "https://a.example/mcp", "resource": "https://a.example/mcp", "issuer": issuer,
        "token_endpoint": format!("{issuer}/token"), "revocation_endpoint": null, "client_id": "c",
        "client_secret": null, "access_token": token, "expires": null, "refresh_token": null,
    });
    for (name, value) in change.as_object().into_iter().flatten() {
        grant[name] = value.clone();
    }
    serde_json::from_value(grant).expect("a grant")
}

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

fn state_of(store: &Arc<dyn State>) -> SharedState {
    let keys = SealConfig {
        keys: vec!["k".repeat(32).into()],
    };
    let keys = Arc::new(KeyRing::new(&keys).expect("long enough"));
    let sealed = Arc::new(SealedState::new(Arc::clone(store), keys));
    SharedState::new(sealed, Duration::from_secs(5))
}

fn shared(store: &Arc<dyn State>) -> Tokens {
    let config = TokensConfig {
        store: Some(TokenStore::State),
        folder: None,
    };
    let tokens = Tokens::new(&config, &Probe::default()).expect("a place");
    let reported = tokens.are_in(state_of(store), true, true);
    reported.expect("a place for them");
    tokens
}

/// Returns the access tokens under a name, the latest last.
async fn access(tokens: &Tokens, name: &Name) -> Vec<String> {
    let grants = tokens.load(name).await.expect("readable");
    let grants = grants.unwrap_or_default();
    grants
        .iter()
        .map(|grant| grant.access_token.clone())
        .collect()
}

async fn change(tokens: &Tokens, name: &Name, grant: &Grant, is_new: bool) {
    let turn = tokens.turn(name).await.expect("a turn");
    match is_new {
        true => tokens.begin(name, grant).await.expect("kept"),
        false => tokens.keep(name, grant).await.expect("kept"),
    }
    turn.end().await;
}

/// Checks the properties that all stores share.
async fn keeps(tokens: Tokens) {
    let (name, other) = (
        Name::of_login(&url("https://a.example/mcp")),
        Name::of_login(&url("https://b.example/mcp")),
    );
    assert_eq!(access(&tokens, &name).await, [""; 0]);
    change(&tokens, &name, &grant("https://one.example", "one"), true).await;
    change(&tokens, &name, &grant("https://two.example", "two"), true).await;
    assert_eq!(access(&tokens, &name).await, ["one", "two"]);
    let of = async |issuer: Option<&str>| {
        let grants = tokens.load(&name).await.expect("readable");
        let grants = grants.expect("there");
        grants.of(issuer).map(|grant| grant.access_token.clone())
    };
    assert_eq!(of(None).await.as_deref(), Some("two"));
    assert_eq!(
        of(Some("https://one.example/")).await.as_deref(),
        Some("one")
    );
    assert_eq!(of(Some("https://three.example")).await, None);
    // A refreshed grant does not become the one in use; a login does.
    change(&tokens, &name, &grant("https://one.example", "1"), false).await;
    assert_eq!(of(None).await.as_deref(), Some("two"));
    change(&tokens, &name, &grant("https://one.example", "uno"), true).await;
    assert_eq!(of(None).await.as_deref(), Some("uno"));
    change(&tokens, &other, &grant("https://one.example", "b"), true).await;
    assert_eq!(access(&tokens, &name).await, ["two", "uno"]);

    let mut all = tokens.all().await.expect("readable");
    all.sort_by(|(one, _), (two, _)| one.as_str().cmp(two.as_str()));
    let names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [name.clone(), other.clone()]);
    let forgotten = tokens.forget(&name, Some("https://two.example")).await;
    forgotten.expect("forgotten");
    assert_eq!(access(&tokens, &name).await, ["uno"]);
    // Grants that have expired and cannot be refreshed are removed; refreshable ones stay.
    let over = json!({"expires": 1});
    let renewable = json!({"expires": 1, "refresh_token": "r"});
    change(
        &tokens,
        &name,
        &grant_with("https://one.example", "x", &over),
        false,
    )
    .await;
    let renewable = grant_with("https://one.example", "y", &renewable);
    change(&tokens, &other, &renewable, false).await;
    tokens.sweep(SystemTime::now()).await.expect("swept");
    assert_eq!(access(&tokens, &name).await, [""; 0]);
    assert_eq!(access(&tokens, &other).await, ["y"]);
    tokens.forget(&other, None).await.expect("forgotten");
    assert!(tokens.all().await.expect("readable").is_empty());
}

#[tokio::test]
async fn each_place_keeps_what_each_issuer_gave_and_the_latest_is_used() {
    let folder = tempfile::tempdir().expect("a folder");
    keeps(Tokens::default()).await;
    keeps(Tokens::in_folder(folder.path().join("deep/down"))).await;
    let store: Arc<dyn State> = Arc::new(MemoryState::new(1 << 20));
    keeps(shared(&store)).await;
}

#[tokio::test]
async fn one_at_a_time_has_its_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let store: Arc<dyn State> = Arc::new(MemoryState::new(1 << 20));
    let memory = Tokens::default();
    let in_folder = || Tokens::in_folder(folder.path().to_owned());
    // Two handles of one process, and two processes.
    for (one, other) in [
        (memory.clone(), memory),
        (in_folder(), in_folder()),
        (shared(&store), shared(&store)),
    ] {
        let name = Name::of_login(&url("https://a.example/mcp"));
        let turn = one.turn(&name).await.expect("a turn");
        let waits = tokio::time::timeout(Duration::from_millis(150), other.turn(&name)).await;
        assert!(waits.is_err(), "{one:?}");
        let next = Name::of_login(&url("https://b.example/mcp"));
        other.turn(&next).await.expect("another turn").end().await;
        turn.end().await;
        other.turn(&name).await.expect("the turn").end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_lasts_as_long_as_its_holder_and_ends_if_that_has_crashed() {
    let store: Arc<dyn State> = Arc::new(MemoryState::new(1 << 20));
    let tokens = shared(&store);
    let name = Name::of_login(&url("https://a.example/mcp"));
    let slow = tokens.turn(&name).await.expect("a turn");
    let waits = tokio::time::timeout(Duration::from_secs(29), tokens.turn(&name));
    assert!(waits.await.is_err(), "it is held still");
    slow.end().await;
    let begun = tokio::time::Instant::now();
    drop(tokens.turn(&name).await.expect("the next"));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    let last = tokens.turn(&name).await.expect("the last, after a while");
    assert!(begun.elapsed() <= Duration::from_secs(20));
    last.end().await;
}

#[tokio::test]
async fn what_is_shared_is_sealed_and_its_place_does_not_tell_whose_it_is() {
    let store: Arc<dyn State> = Arc::new(MemoryState::new(1 << 20));
    let tokens = shared(&store);
    let name = Name::of_login(&url("https://secret-server.example/mcp"));
    let canary = grant("https://issuer.example", "canary-of-a-token");
    change(&tokens, &name, &canary, true).await;
    let key = format!(
        "oauth:grants:{}",
        data_encoding::HEXLOWER.encode(&crate::seal::digest(&[name.as_str().as_bytes()]))
    );
    assert!(!key.contains("secret-server"));
    for key in [key.as_str(), "oauth:names"] {
        let raw = store.get(key).await.expect("readable").expect("there");
        let raw = String::from_utf8_lossy(&raw);
        assert!(!raw.contains("canary") && !raw.contains("example"), "{key}");
    }
    // A reader with another key sees nothing.
    let keys = SealConfig {
        keys: vec!["other".repeat(8).into()],
    };
    let keys = Arc::new(KeyRing::new(&keys).expect("long enough"));
    let sealed = Arc::new(SealedState::new(Arc::clone(&store), keys));
    let config = TokensConfig {
        store: Some(TokenStore::State),
        folder: None,
    };
    let other = Tokens::new(&config, &Probe::default()).expect("a place");
    let state = SharedState::new(sealed, Duration::from_secs(5));
    other.are_in(state, true, true).expect("a place for them");
    assert_eq!(access(&other, &name).await, [""; 0]);
    assert!(!format!("{tokens:?} {canary:?}").contains("canary"));
}

#[test]
fn the_state_is_a_place_only_if_others_have_it_and_cannot_read_it() {
    let store: Arc<dyn State> = Arc::new(MemoryState::new(1 << 20));
    let config = TokensConfig {
        store: Some(TokenStore::State),
        folder: None,
    };
    let tokens = Tokens::new(&config, &Probe::default()).expect("a place");
    let reported = |is_shared, is_sealed| tokens.are_in(state_of(&store), is_shared, is_sealed);
    assert!(matches!(reported(false, true), Err(TokensError::NoState)));
    assert!(matches!(reported(true, false), Err(TokensError::NoKeys)));
    assert!(reported(true, true).is_ok());
    // With tokens in another store, the state's properties do not matter.
    let elsewhere = Tokens::default();
    assert!(elsewhere.are_in(state_of(&store), false, false).is_ok());
}

#[test]
fn the_folder_is_the_one_that_commands_have_unless_another_is_named() {
    let config = TokensConfig {
        store: Some(TokenStore::File),
        folder: None,
    };
    let place = |variables: &[(&str, &str)]| {
        let probe = Probe::of(variables.iter().copied());
        Tokens::new(&config, &probe).map(|tokens| tokens.to_string())
    };
    assert_eq!(
        place(&[("HOME", "/home/me")]).expect("a folder"),
        "/home/me/.config/longshore/tokens"
    );
    assert_eq!(
        place(&[("HOME", "/home/me"), ("XDG_CONFIG_HOME", "/config")]).expect("a folder"),
        "/config/longshore/tokens"
    );
    assert_eq!(
        place(&[("HOME", "/home/me"), ("LONGSHORE_TOKENS", "/t")]).expect("a folder"),
        "/t"
    );
    assert!(matches!(place(&[]), Err(TokensError::NoFolder)));
}

#[test]
fn servers_that_differ_in_their_query_have_logins_of_their_own() {
    let name = |text: &str| Name::of_login(&url(text));
    let plain = name("https://a.example/mcp");
    assert_eq!(plain, name("https://a.example/mcp/"));
    assert_eq!(plain, name("https://a.example/mcp?"));
    assert_eq!(plain, name("https://a.example/mcp#part"));
    let one = name("https://a.example/mcp?tenant=1");
    assert_ne!(plain, one);
    assert_ne!(one, name("https://a.example/mcp?tenant=2"));
    for name in [plain, one] {
        assert_eq!(Name::read(name.as_str()), Some(name));
    }
    for other in [
        "a.login",
        "../x-0123456789abcdef0123456789abcdef.login",
        "notes.txt",
    ] {
        assert_eq!(Name::read(other), None, "{other}");
    }
}

#[test]
fn tokens_of_different_issuers_clients_resources_and_beginnings_are_apart() {
    let name = |issuer: &str, client: &str, resource: &str, first: &str| {
        Name::of_token(&url(issuer), client, resource, first)
    };
    let one = name("https://i.example/token", "c", "r", "f");
    for other in [
        name("https://i.example/other", "c", "r", "f"),
        name("https://i.example/token", "d", "r", "f"),
        name("https://i.example/token", "c", "s", "f"),
        name("https://i.example/token", "c", "r", "g"),
        // The boundary between the parts matters.
        name("https://i.example/token", "cr", "", "f"),
    ] {
        assert_ne!(one, other);
    }
    assert!(!one.as_str().contains('f') || !one.as_str().starts_with('f'));
}

#[test]
fn a_token_is_got_anew_before_it_ends_and_a_short_one_not_all_the_time() {
    let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
    let granted = |life: Value| -> Granted {
        serde_json::from_value(json!({"access_token": "a", "expires_in": life})).expect("granted")
    };
    let mut long = grant("https://i.example", "");
    assert!(!long.is_fresh(at(0)), "there is none yet");
    long.take(granted(json!(3600)), at(1000));
    assert!(long.is_fresh(at(4569)) && !long.is_fresh(at(4570)));
    let mut short = grant("https://i.example", "");
    short.take(granted(json!(20)), at(1000));
    assert!(short.is_fresh(at(1009)) && !short.is_fresh(at(1010)));
    let mut endless = grant("https://i.example", "");
    endless.take(granted(json!(null)), at(1000));
    assert!(endless.is_fresh(at(u32::MAX.into())));
    for odd in [json!(-5), json!(0)] {
        let mut grant = grant("https://i.example", "");
        grant.take(granted(odd), at(1000));
        assert_eq!(grant.expires, None);
    }
    let mut renewable = grant("https://i.example", "");
    renewable.refresh_token = Some("r".to_owned());
    renewable.take(granted(json!(0)), at(1000));
    assert!(!renewable.is_fresh(at(1000)));
}

#[test]
fn responses_that_differ_from_the_standard_are_read() {
    let granted = |more: Value| -> Granted {
        let mut response = json!({"access_token": "a"});
        for (name, value) in more.as_object().expect("an object") {
            response[name] = value.clone();
        }
        serde_json::from_value(response).expect("granted")
    };
    for (life, seconds) in [
        (json!("3599"), Some(3599.0)),
        (json!(3599), Some(3599.0)),
        (json!("never"), None),
        (json!(null), None),
        (json!({}), None),
    ] {
        assert_eq!(granted(json!({"expires_in": life})).expires_in, seconds);
    }
    let listed = granted(json!({"scope": ["a", "b"], "refresh_token": "", "token_type": null}));
    assert_eq!(listed.scope.as_deref(), Some("a b"));
    assert_eq!(listed.refresh_token, None);
    assert!(listed.is_usable(false));
    for (token, kind, is_usable) in [
        ("a", "bearer", true),
        ("a", "DPoP", false),
        ("a", "mac", false),
        ("", "Bearer", false),
        ("a\nb", "Bearer", false),
        ("\u{e9}", "Bearer", false),
    ] {
        let granted = granted(json!({"access_token": token, "token_type": kind}));
        assert_eq!(granted.is_usable(false), is_usable, "{token:?} {kind}");
    }
}

#[test]
fn a_server_has_no_end_of_issuers() {
    let mut grants = Grants::default();
    for number in 0..20 {
        grants.add(grant(&format!("https://{number}.example"), "t"));
    }
    assert_eq!(grants.iter().count(), 8);
    assert_eq!(
        grants.of(None).map(|grant| grant.issuer.as_str()),
        Some("https://19.example")
    );
}
