use std::net::SocketAddr;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;
use url::Url;

use super::*;
use crate::environment::{Probe, seconds_since_1970};
use crate::net::testing::{response, serve};
use crate::source::tokens::{TokenStore, TokensConfig};
use crate::state::testing::{Asked, Fronted, StandIn};
use crate::state::{Memory, SharedState, State, StateError, StateFuture};

/// An issuer that accepts each refresh token once and records it. While it is switched off, it fails with a server
/// error.
struct Strict {
    address: SocketAddr,
    shown: Arc<StdMutex<Vec<String>>>,
    failure: Arc<StdMutex<Option<(&'static str, &'static str)>>>,
}

impl Strict {
    async fn start() -> Self {
        let good = StdMutex::new(0);
        let shown = Arc::<StdMutex<Vec<String>>>::default();
        let failure = Arc::<StdMutex<Option<(&'static str, &'static str)>>>::default();
        let (seen, broken) = (Arc::clone(&shown), Arc::clone(&failure));
        let (address, _) = serve(move |request| {
            let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let fields = url::form_urlencoded::parse(body.as_bytes());
            let mut fields = fields.filter(|(name, _)| name == "refresh_token");
            let token = fields.next().map(|(_, value)| value.into_owned());
            let token = token.unwrap_or_default();
            seen.lock().expect("no panic").push(token.clone());
            if let Some((status, body)) = *broken.lock().expect("no panic") {
                return response(status, body.as_bytes());
            }
            let mut good = good.lock().expect("no panic");
            if token != format!("refresh{good}") {
                return response("400 Bad Request", br#"{"error": "invalid_grant"}"#);
            }
            *good += 1;
            let body = format!(
                r#"{{"access_token": "access{good}", "refresh_token": "refresh{good}", "expires_in": 3600}}"#
            );
            response("200 OK\r\ncontent-type: application/json", body.as_bytes())
        })
        .await;
        Self {
            address,
            shown,
            failure,
        }
    }

    /// Makes it respond with an error from now on.
    fn fail(&self, status: &'static str, body: &'static str) {
        *self.failure.lock().expect("no panic") = Some((status, body));
    }

    fn work(&self) {
        *self.failure.lock().expect("no panic") = None;
    }

    fn shown(&self) -> Vec<String> {
        self.shown.lock().expect("no panic").clone()
    }

    /// Returns the grant that a login stores, with an expired token.
    fn grant(&self, number: u32) -> Grant {
        let issuer = format!("http://{}", self.address);
        serde_json::from_value(json!({
            "server": "http://127.0.0.1:1/mcp", "resource": "http://127.0.0.1:1/mcp", "issuer": issuer,
            "token_endpoint": format!("{issuer}/token"), "revocation_endpoint": null, "client_id": "c",
            "client_secret": null, "access_token": format!("access{number}"), "expires": 1,
            "refresh_token": format!("refresh{number}"),
        }))
        .expect("a grant")
    }
}

fn name() -> Name {
    let server: Url = "http://127.0.0.1:1/mcp".parse().expect("a URL");
    Name::of_login(&server)
}

fn login(tokens: &Tokens) -> Arc<Renewed> {
    Arc::new(Renewed::new(tokens.clone(), name(), GrantType::Login(None)))
}

fn state(store: Arc<dyn State>) -> Tokens {
    let config = TokensConfig {
        store: Some(TokenStore::State),
        folder: None,
    };
    let tokens = Tokens::new(&config, &Probe::default()).expect("a place");
    let state = SharedState::new(store, Duration::from_secs(5));
    tokens.are_in(state, true, true).expect("a place for them");
    tokens
}

/// A store that can be made unavailable, for all operations or for writes only.
#[derive(Debug)]
struct Unsteady {
    store: Memory,
    is_gone: AtomicBool,
    is_full: AtomicBool,
}

impl Unsteady {
    fn new() -> Arc<Fronted<Self>> {
        Arc::new(Fronted(Self {
            store: Memory::new(1 << 20),
            is_gone: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        }))
    }
}

impl StandIn for Unsteady {
    fn store(&self) -> &Memory {
        &self.store
    }

    fn instead<'a, T: Send + 'a>(&'a self, asked: Asked) -> Option<StateFuture<'a, T>> {
        let is = |what: &AtomicBool| what.load(Ordering::Relaxed);
        let error = match asked {
            Asked::Put if is(&self.is_full) => StateError::Full,
            Asked::Put | Asked::Value | Asked::Swap if is(&self.is_gone) => {
                StateError::Unreachable {
                    reason: "gone".to_owned(),
                }
            }
            _ => return None,
        };
        Some(Box::pin(std::future::ready(Err(error))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_counts_a_moment_after_it_was_made_and_so_does_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = Tokens::in_folder(folder.path().to_owned());
    let logged_in = login(&tokens);
    let token = logged_in.token().await;
    assert!(matches!(token, Err(CredentialError::NoLogin)));
    let keep = async |token: &str| {
        let mut grant: Grant = serde_json::from_value(json!({
            "resource": "r", "issuer": "https://i.example", "token_endpoint": "https://i.example/token",
            "revocation_endpoint": null, "client_id": "c", "client_secret": null,
            "access_token": "", "expires": null, "refresh_token": null,
        }))
        .expect("a grant");
        grant.access_token = token.to_owned();
        tokens.keep(&name(), &grant).await.expect("kept");
    };
    keep("one").await;
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer one"
    );
    keep("another").await;
    // The cached state is used for a moment without a read.
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer one"
    );
    tokio::time::advance(LOOKS).await;
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer another"
    );
    // After a rejection by the server, the store is read immediately.
    keep("a third").await;
    assert!(logged_in.refused("another", &HeaderMap::new()).await);
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer a third"
    );
    // No further token can be obtained.
    assert!(!logged_in.refused("a third", &HeaderMap::new()).await);
    tokens.forget(&name(), None).await.expect("forgotten");
    tokio::time::advance(LOOKS).await;
    let token = logged_in.token().await;
    assert!(matches!(token, Err(CredentialError::NoLogin)));
}

#[tokio::test]
async fn replicas_that_need_another_token_at_once_show_the_refresh_token_once() {
    let issuer = Strict::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let in_folder = || Tokens::in_folder(folder.path().to_owned());
    let store: Arc<dyn State> = Arc::new(Memory::new(1 << 20));
    let in_state = || state(Arc::clone(&store));
    for (number, replicas) in [
        (0, [(); 4].map(|()| in_folder())),
        (1, [(); 4].map(|()| in_state())),
    ] {
        let kept = replicas[0].keep(&name(), &issuer.grant(number)).await;
        kept.expect("kept");
        let replicas = replicas.map(|tokens| login(&tokens));
        let got = join_all(replicas.iter().map(Renewed::token)).await;
        let wanted = format!("Bearer access{}", number + 1);
        for got in got {
            assert_eq!(got.expect("a token").value, *wanted);
        }
        assert_eq!(issuer.shown().len(), number as usize + 1);
        // The same holds if the server rejects the token of all replicas.
        if number == 1 {
            let none = HeaderMap::new();
            let refused = replicas
                .iter()
                .map(|replica| replica.refused("access2", &none));
            assert!(join_all(refused).await.into_iter().all(|again| again));
            let got = join_all(replicas.iter().map(Renewed::token)).await;
            for got in got {
                assert_eq!(got.expect("a token").value, "Bearer access3");
            }
            assert_eq!(issuer.shown(), ["refresh0", "refresh1", "refresh2"]);
        }
    }
}

#[tokio::test]
async fn whoever_goes_away_leaves_the_token_that_was_asked_for_to_others() {
    let issuer = Strict::start().await;
    let tokens = Tokens::default();
    tokens.keep(&name(), &issuer.grant(0)).await.expect("kept");
    let logged_in = login(&tokens);
    {
        let asking = logged_in.token();
        tokio::pin!(asking);
        // The refresh has begun, and its caller is cancelled.
        assert!(futures_util::poll!(asking.as_mut()).is_pending());
    }
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer access1"
    );
    assert_eq!(issuer.shown(), ["refresh0"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_good_is_used_while_nobody_can_look_where_it_is_kept() {
    let issuer = Strict::start().await;
    let store = Unsteady::new();
    let tokens = state(Arc::clone(&store) as Arc<dyn State>);
    tokens.keep(&name(), &issuer.grant(0)).await.expect("kept");
    let logged_in = login(&tokens);
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer access1"
    );
    store.0.is_gone.store(true, Ordering::Relaxed);
    tokio::time::advance(LOOKS).await;
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer access1"
    );
    // No token is requested that could not be shared with the others.
    assert!(!logged_in.refused("access1", &HeaderMap::new()).await);
    let started = login(&tokens);
    let token = started.token().await.map_err(original);
    assert!(
        token.is_err_and(|error| matches!(&*error, CredentialError::Kept(_))),
        "it cannot be read"
    );
    assert_eq!(issuer.shown().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_kept_is_used_and_kept_before_the_next_is_got() {
    let issuer = Strict::start().await;
    let store = Unsteady::new();
    let (one, other) = [(); 2]
        .map(|()| state(Arc::clone(&store) as Arc<dyn State>))
        .into();
    one.keep(&name(), &issuer.grant(0)).await.expect("kept");
    let (first, second) = (login(&one), login(&other));
    store.0.is_full.store(true, Ordering::Relaxed);
    assert_eq!(
        first.token().await.expect("a token").value,
        "Bearer access1"
    );
    assert!(first.refused("access1", &HeaderMap::new()).await);
    store.0.is_full.store(false, Ordering::Relaxed);
    assert_eq!(
        first.token().await.expect("a token").value,
        "Bearer access2"
    );
    // The other replica has it too.
    assert_eq!(
        second.token().await.expect("a token").value,
        "Bearer access2"
    );
    assert_eq!(issuer.shown(), ["refresh0", "refresh1"]);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_gives_no_more_is_left_alone_until_somebody_logs_in() {
    let issuer = Strict::start().await;
    let tokens = Tokens::default();
    tokens.keep(&name(), &issuer.grant(7)).await.expect("kept");
    let logged_in = login(&tokens);
    for _ in 0..3 {
        let token = logged_in.token().await;
        assert!(
            matches!(token, Err(CredentialError::LoginEnded)),
            "{token:?}"
        );
    }
    assert_eq!(issuer.shown().len(), 1);
    // A new login starts over.
    tokens.keep(&name(), &issuer.grant(0)).await.expect("kept");
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer access1"
    );
}

/// Returns the error that calls share.
fn original(error: CredentialError) -> Arc<CredentialError> {
    match error {
        CredentialError::Shared(error) => error,
        error => Arc::new(error),
    }
}

/// Returns the status of the issuer's rejection.
fn status_of(token: Result<AccessToken, CredentialError>) -> u16 {
    match &*original(token.expect_err("no token")) {
        CredentialError::Refused(rejection) => rejection.status.as_u16(),
        error => panic!("{error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_issuer_with_which_something_is_wrong_does_not_end_a_login() {
    let issuer = Strict::start().await;
    let tokens = Tokens::default();
    tokens.keep(&name(), &issuer.grant(0)).await.expect("kept");
    let logged_in = login(&tokens);
    for status in ["503 Service Unavailable", "429 Too Many Requests"] {
        issuer.fail(status, "{}");
        let wanted: u16 = status[..3].parse().expect("a status");
        assert_eq!(status_of(logged_in.token().await), wanted);
        tokio::time::advance(SHARED).await;
    }
    issuer.fail("400 Bad Request", r#"{"error": "temporarily_unavailable"}"#);
    assert_eq!(status_of(logged_in.token().await), 400);
    tokio::time::advance(SHARED).await;
    issuer.work();
    assert_eq!(
        logged_in.token().await.expect("a token").value,
        "Bearer access1"
    );
}

/// GitHub reports errors with status 200.
#[tokio::test]
async fn an_error_with_status_200_ends_a_login_too() {
    let issuer = Strict::start().await;
    let tokens = Tokens::default();
    tokens.keep(&name(), &issuer.grant(0)).await.expect("kept");
    issuer.fail("200 OK", r#"{"error": "bad_refresh_token"}"#);
    let token = login(&tokens).token().await;
    assert!(
        matches!(token, Err(CredentialError::LoginEnded)),
        "{token:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_failed_refresh_share_its_failure() {
    let issuer = Strict::start().await;
    let tokens = Tokens::default();
    tokens.keep(&name(), &issuer.grant(0)).await.expect("kept");
    let logged_in = login(&tokens);
    issuer.fail("503 Service Unavailable", "{}");
    let got = join_all((0..20).map(|_| logged_in.token())).await;
    assert!(got.into_iter().all(|token| status_of(token) == 503));
    assert_eq!(issuer.shown().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_has_not_expired_is_used_while_the_issuer_fails() {
    let issuer = Strict::start().await;
    let tokens = Tokens::default();
    let mut grant = issuer.grant(0);
    // It is due for a refresh.
    grant.expires = Some(seconds_since_1970(SystemTime::now()) + 20);
    tokens.keep(&name(), &grant).await.expect("kept");
    let logged_in = login(&tokens);
    issuer.fail("503 Service Unavailable", "{}");
    for _ in 0..3 {
        let token = logged_in.token().await;
        assert_eq!(token.expect("the old token").value, "Bearer access0");
        tokio::time::advance(SHARED).await;
    }
    assert_eq!(issuer.shown().len(), 1);
    assert!(logged_in.refused("access0", &HeaderMap::new()).await);
    tokio::time::advance(PAUSE).await;
    assert_eq!(status_of(logged_in.token().await), 503);
    tokio::time::advance(PAUSE).await;
    issuer.work();
    let token = logged_in.token().await;
    assert_eq!(token.expect("a new token").value, "Bearer access1");
}

/// Another login would not help.
#[tokio::test(start_paused = true)]
async fn an_issuer_that_rejects_the_configured_client_does_not_end_a_login() {
    let issuer = Strict::start().await;
    let tokens = Tokens::default();
    let name = Name::of_user("files", "api.example", "ann");
    tokens.keep(&name, &issuer.grant(0)).await.expect("kept");
    let of = |client: Option<&str>| {
        let config = PerUserConfig {
            client_id: client.map(str::to_owned),
            client_secret: client.map(|_| "secret".to_owned().into()),
            ..PerUserConfig::default()
        };
        let way = GrantType::User(Box::new(config));
        Arc::new(Renewed::new(tokens.clone(), name.clone(), way))
    };
    issuer.fail("401 Unauthorized", r#"{"error": "invalid_client"}"#);
    let logged_in = of(Some("c"));
    assert_eq!(status_of(logged_in.token().await), 401);
    tokio::time::advance(PAUSE).await;
    let again = original(logged_in.token().await.expect_err("no token"));
    assert_eq!(
        again.to_string(),
        "its issuer of tokens rejected the request: invalid_client, status 401"
    );
    assert_eq!(issuer.shown().len(), 1, "not asked again at once");
    // A client that registered itself registers again at the next login.
    let token = of(None).token().await;
    assert!(
        matches!(token, Err(CredentialError::LoginEnded)),
        "{token:?}"
    );
    // The secret of another client is not sent to the issuer of the login.
    let token = of(Some("other")).token().await;
    assert!(
        matches!(token, Err(CredentialError::LoginEnded)),
        "{token:?}"
    );
    assert_eq!(issuer.shown().len(), 2);
}
