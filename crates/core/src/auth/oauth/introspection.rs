//! Introspection of access tokens at their issuer (RFC 7662), for tokens that only the issuer can read.
//!
//! Results are cached by the token's digest, and one request is under way for each token at any time. The number of
//! concurrent requests is bounded, so that invalid tokens cannot overload the issuer.
//!
//! # Failure
//!
//! If the issuer does not respond, tokens without a cached result cannot be verified, and the response is 503.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::cache_weight::{ENTRY_BYTES, principal_bytes};
use super::config::{IntrospectionConfig, IntrospectionMethod, OAuthSetupError, url};
use super::strict_json;
use crate::auth::scopes::Implied;
use crate::auth::{AuthError, AuthOutcome, Principal};
use crate::net::{Client, Deadlines, Guard, OutgoingRequest, with_causes};
use crate::telemetry;

/// Timeout of a request, and of the wait for its permit.
const DEADLINE: Duration = Duration::from_secs(3);
/// Maximum size of a response, in bytes.
const RESPONSE_MAX_BYTES: usize = 64 * 1024;
/// Maximum number of concurrent requests.
const REQUESTS_MAX: usize = 32;
/// Maximum number of cached results of usual size, and the memory of all.
const CACHED_MAX: usize = 10_000;
const CACHED_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Cache time of an inactive token, and of a failed request, in seconds.
const INACTIVE_SECONDS: u64 = 10;
const FAILED_SECONDS: u64 = 2;
/// Interval at which expired results are removed, in seconds.
const PURGE_SECONDS: u64 = 60;

/// The introspection endpoint of an issuer.
pub(super) struct Introspection {
    url: Url,
    client_id: String,
    client_secret: crate::environment::Secret,
    method: IntrospectionMethod,
    client: Client,
    pub(super) cache_seconds: u64,
    pub(super) requires_audience: bool,
    permits: Semaphore,
    cache: Cache<[u8; 32], Arc<Introspected>, BySize>,
    /// Time from which expired results are removed again, in seconds of Unix time.
    purge_at: AtomicU64,
    counts: Counts,
    /// True if the latest request failed, so that a failure is logged once.
    is_failing: AtomicBool,
}

/// Number of requests by outcome.
#[derive(Debug, Default)]
struct Counts {
    active: AtomicU64,
    inactive: AtomicU64,
    failed: AtomicU64,
}

/// Cached result for one token.
pub(super) struct Introspected {
    /// Approximate memory size.
    bytes: u64,
    /// Time until which the result is reused, in seconds of Unix time.
    until: u64,
    /// Implied scopes at the request.
    implied: Arc<Implied>,
    result: Result<Arc<Principal>, AuthError>,
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<[u8; 32], Arc<Introspected>> for BySize {
    fn weight(&self, _: &[u8; 32], result: &Arc<Introspected>) -> u64 {
        result.bytes
    }
}

/// Reason for which a token could not be introspected.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("no response within 3 s, because too many requests are under way")]
    Busy,
    #[error("{0}")]
    Fetch(String),
    #[error("it responded with {0}; check auth.oauth.introspection.client_id and client_secret")]
    Credentials(StatusCode),
    #[error("it responded with {0}")]
    Status(StatusCode),
    #[error(
        "its response is not a JSON object with a boolean `active`; check auth.oauth.introspection.url"
    )]
    Document,
}

impl Introspection {
    /// Builds the client from settings; `None` without `url`.
    pub(super) fn new(config: &IntrospectionConfig) -> Result<Option<Self>, OAuthSetupError> {
        let Some(text) = &config.url else {
            return match config.is_set() {
                true => Err(OAuthSetupError::Introspection {
                    setting: "url",
                    problem: "it is not set; set it to the issuer's introspection endpoint",
                }),
                false => Ok(None),
            };
        };
        let url = url("auth.oauth.introspection.url", text)?;
        let Some(client_secret) = config.client_secret.clone() else {
            return Err(OAuthSetupError::Introspection {
                setting: "client_secret",
                problem: "it is not set; issuers respond only to clients that authenticate",
            });
        };
        if config.client_id.is_empty() {
            return Err(OAuthSetupError::Introspection {
                setting: "client_id",
                problem: "it is not set; set it to the ID of this server at the issuer",
            });
        }
        if !(1..=300).contains(&config.cache_seconds) {
            return Err(OAuthSetupError::Introspection {
                setting: "cache_seconds",
                problem: "it is out of range; set 1 to 300",
            });
        }
        let client = Client::builder(Guard::public().trust(&url))
            .redirects(0)
            .max_body(RESPONSE_MAX_BYTES)
            .deadlines(Deadlines::total(DEADLINE))
            .build()
            .map_err(|error| OAuthSetupError::Client(error.to_string()))?;
        Ok(Some(Self {
            url,
            client_id: config.client_id.clone(),
            client_secret,
            method: config.method,
            client,
            cache_seconds: config.cache_seconds,
            requires_audience: config.require_audience,
            permits: Semaphore::new(REQUESTS_MAX),
            cache: Cache::with_weighter(CACHED_MAX, CACHED_MAX_BYTES, BySize),
            purge_at: AtomicU64::new(0),
            counts: Counts::default(),
            is_failing: AtomicBool::new(false),
        }))
    }

    /// Returns the cached result for a token, if it was computed with these implied scopes.
    pub(super) fn cached(
        &self,
        hash: &[u8; 32],
        now: u64,
        implied: &Arc<Implied>,
    ) -> Option<Arc<Introspected>> {
        let cached = self.cache.get(hash);
        cached.filter(|result| result.holds(now, implied))
    }

    /// Introspects a token. Concurrent calls for the same token share one request. `accept` checks the claims of an active
    /// token, and returns its principal with the expiry.
    pub(super) async fn introspect(
        &self,
        token: &str,
        hash: [u8; 32],
        (now, implied): (u64, &Arc<Implied>),
        accept: impl Fn(Map<String, Value>) -> Result<(Arc<Principal>, u64), AuthError> + Send,
    ) -> Arc<Introspected> {
        self.purge(now);
        loop {
            match self.cache.get_value_or_guard_async(&hash).await {
                Ok(result) if result.holds(now, implied) => return result,
                Ok(_) => {
                    self.cache.remove(&hash);
                }
                Err(guard) => {
                    let result = Arc::new(self.fetch(token, (now, implied), &accept).await);
                    let _ = guard.insert(Arc::clone(&result));
                    return result;
                }
            }
        }
    }

    /// Removes expired results, which nobody may ask for again.
    fn purge(&self, now: u64) {
        let due = self.purge_at.load(Ordering::Relaxed);
        let next = now + PURGE_SECONDS;
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let swapped = || self.purge_at.compare_exchange(due, next, order, failed);
        if due <= now && swapped().is_ok() {
            self.cache.retain(|_, result| now < result.until);
        }
    }

    async fn fetch(
        &self,
        token: &str,
        (now, implied): (u64, &Arc<Implied>),
        accept: &(impl Fn(Map<String, Value>) -> Result<(Arc<Principal>, u64), AuthError> + Send),
    ) -> Introspected {
        let began = Instant::now();
        let (until, result) = match self.ask(token).await {
            Ok(Some(claims)) if is_of_other_kind(&claims) => {
                self.succeeded(&self.counts.inactive);
                let error = "it is a refresh token or an ID token, not an access token";
                let until = now + self.cache_seconds.min(INACTIVE_SECONDS);
                (until, Err(AuthError::Invalid(error.into())))
            }
            Ok(Some(claims)) => {
                self.succeeded(&self.counts.active);
                match accept(claims) {
                    Ok((principal, expires)) => {
                        (expires.min(now + self.cache_seconds), Ok(principal))
                    }
                    Err(error) => (now + self.cache_seconds.min(INACTIVE_SECONDS), Err(error)),
                }
            }
            Ok(None) => {
                self.succeeded(&self.counts.inactive);
                let error = AuthError::Invalid("the token is not active".into());
                (now + self.cache_seconds.min(INACTIVE_SECONDS), Err(error))
            }
            Err(problem) => {
                self.failed(&problem);
                let error = "tokens cannot be checked now: their issuer does not respond";
                // Most failures are timeouts, which are longer than that.
                let until = now + began.elapsed().as_secs() + FAILED_SECONDS;
                (until, Err(AuthError::Unavailable(error.into())))
            }
        };
        Introspected::new(result, token, until, Arc::clone(implied))
    }

    /// Asks the issuer. Returns the members of the response if the token is active.
    async fn ask(&self, token: &str) -> Result<Option<Map<String, Value>>, Problem> {
        let permit = tokio::time::timeout(DEADLINE, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Problem::Busy);
        };
        let response = self.client.fetch(self.request(token)).await;
        let response = response.map_err(|error| Problem::Fetch(with_causes(&error)))?;
        match response.status {
            StatusCode::OK => {}
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                return Err(Problem::Credentials(status));
            }
            status => return Err(Problem::Status(status)),
        }
        let mut members = strict_json::object(&response.body).ok_or(Problem::Document)?;
        match members.remove("active") {
            Some(Value::Bool(true)) => Ok(Some(members)),
            Some(Value::Bool(false)) => Ok(None),
            _ => Err(Problem::Document),
        }
    }

    /// Sends a made-up token. An issuer that accepts this client responds that the token is not active.
    #[cfg(feature = "cli")]
    pub(super) async fn examine(&self) -> Result<(), String> {
        match self.ask("longshore-doctor-made-up-token").await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(
                "it reports a made-up token as active, so any token would be accepted; check auth.oauth.introspection.url"
                    .to_owned(),
            ),
            Err(problem) => Err(problem.to_string()),
        }
    }

    /// Builds the request (RFC 7662, 2.1), with the client's credentials (RFC 6749, 2.3.1).
    fn request(&self, token: &str) -> OutgoingRequest {
        let mut request = OutgoingRequest::new(Method::POST, self.url.clone());
        let mut form = Serializer::new(String::new());
        form.append_pair("token", token);
        form.append_pair("token_type_hint", "access_token");
        match self.method {
            IntrospectionMethod::Basic => {
                let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
                let secret = encode(self.client_secret.expose());
                let pair = STANDARD.encode(format!("{}:{secret}", encode(&self.client_id)));
                if let Ok(mut value) = HeaderValue::try_from(format!("Basic {pair}")) {
                    value.set_sensitive(true);
                    request.headers.insert(AUTHORIZATION, value);
                }
            }
            IntrospectionMethod::Post => {
                form.append_pair("client_id", &self.client_id);
                form.append_pair("client_secret", self.client_secret.expose());
            }
        }
        let media = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers.insert(CONTENT_TYPE, media);
        let json = HeaderValue::from_static("application/json");
        request.headers.insert(ACCEPT, json);
        request.body = form.finish().into();
        request
    }

    fn succeeded(&self, count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!(url = %self.url, "introspection of tokens works again");
        }
    }

    fn failed(&self, problem: &Problem) {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                url = %self.url,
                error = %problem,
                setting = "auth.oauth.introspection.url",
                "tokens cannot be introspected; requests get 503 until it works again"
            );
        }
    }

    /// Registers the counters of requests by outcome.
    pub(super) fn show(self: &Arc<Self>, metrics: &telemetry::Metrics) {
        type Count = fn(&Counts) -> &AtomicU64;
        let all: [(&str, Count); 3] = [
            ("active", |counts| &counts.active),
            ("inactive", |counts| &counts.inactive),
            ("failed", |counts| &counts.failed),
        ];
        for (outcome, count) in all {
            let this = Arc::clone(self);
            #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
            let read = move || count(&this.counts).load(Ordering::Relaxed) as f64;
            metrics.read(&telemetry::INTROSPECTIONS, &[("outcome", outcome)], read);
        }
    }
}

impl Introspected {
    fn new(
        result: Result<Arc<Principal>, AuthError>,
        token: &str,
        until: u64,
        implied: Arc<Implied>,
    ) -> Self {
        let bytes = result.as_deref().map_or(ENTRY_BYTES, principal_bytes);
        Self {
            bytes: bytes + token.len() as u64,
            until,
            implied,
            result,
        }
    }

    fn holds(&self, now: u64, implied: &Arc<Implied>) -> bool {
        now < self.until && Arc::ptr_eq(&self.implied, implied)
    }

    pub(super) fn outcome(&self) -> AuthOutcome {
        match &self.result {
            Ok(principal) => AuthOutcome::Proven(Arc::clone(principal)),
            Err(error) => AuthOutcome::Refused(error.clone()),
        }
    }

    /// Time until which the result is reused, in seconds of Unix time.
    pub(super) fn until(&self) -> u64 {
        self.until
    }
}

/// Returns true for a refresh token or an ID token, which many issuers report as active too. The members that tell differ: those
/// of RFC 7662 section 2.2, of Ory and of Keycloak.
fn is_of_other_kind(members: &Map<String, Value>) -> bool {
    let kinds = ["token_type", "token_use", "typ"].map(|name| members.get(name));
    let mut kinds = kinds.into_iter().flatten().filter_map(Value::as_str);
    kinds.any(|kind| {
        let kind = kind.to_ascii_lowercase();
        matches!(
            &*kind,
            "refresh" | "refresh_token" | "offline" | "id" | "id_token" | "n_a"
        )
    })
}

impl fmt::Debug for Introspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introspection")
            .field("url", &self.url.as_str())
            .field("cached", &self.cache.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn introspection() -> Introspection {
        introspection_at("https://id.example.com/introspect".to_owned())
    }

    fn introspection_at(url: String) -> Introspection {
        let config = IntrospectionConfig {
            url: Some(url),
            client_id: "id".to_owned(),
            client_secret: Some("secret".to_owned().into()),
            ..IntrospectionConfig::default()
        };
        let built = Introspection::new(&config).expect("valid");
        built.expect("it is on")
    }

    fn result(claims: &Value, until: u64, implied: &Arc<Implied>) -> Arc<Introspected> {
        let claims = claims.as_object().expect("an object").clone();
        let principal = Principal::anonymous().with_claims(claims);
        let (result, implied) = (Ok(Arc::new(principal)), Arc::clone(implied));
        Arc::new(Introspected::new(result, "token", until, implied))
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_reused_for_a_while_after_its_request() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = silent.local_addr().expect("an address");
        let introspection = introspection_at(format!("http://{address}/"));
        let implied = Arc::default();
        let accept = |_| -> Result<(Arc<Principal>, u64), AuthError> { panic!("no response") };
        let asked = introspection.introspect("token", [1; 32], (NOW, &implied), accept);
        assert!(asked.await.result.is_err());
        let is_cached = |now| introspection.cached(&[1; 32], now, &implied).is_some();
        let end = NOW + DEADLINE.as_secs() + FAILED_SECONDS;
        assert_eq!((is_cached(end - 1), is_cached(end)), (true, false));
    }

    #[test]
    fn results_are_cached_within_bounds_however_large_responses_are() {
        let (introspection, implied) = (introspection(), Arc::default());
        let large = json!({"groups": vec![0; 20_000]});
        for number in 0_u8..100 {
            let result = result(&large, NOW + 60, &implied);
            assert!(20_000 * size_of::<Value>() as u64 <= result.bytes);
            introspection.cache.insert([number; 32], result);
        }
        let cache = &introspection.cache;
        assert!(cache.weight() <= CACHED_MAX_BYTES && cache.len() < 100);
    }

    #[test]
    fn expired_results_are_removed_and_those_with_other_implied_scopes_are_not_used() {
        let (introspection, implied) = (introspection(), Arc::default());
        for (number, until) in [(1, NOW + 60), (2, NOW + 300)] {
            let result = result(&json!({}), until, &implied);
            introspection.cache.insert([number; 32], result);
        }
        let other = Arc::default();
        assert!(introspection.cached(&[1; 32], NOW, &implied).is_some());
        assert!(introspection.cached(&[1; 32], NOW, &other).is_none());
        introspection.purge(NOW);
        assert_eq!(introspection.cache.len(), 2);
        introspection.purge(NOW + 100);
        assert_eq!(introspection.cache.len(), 1);
        assert!(introspection.cached(&[2; 32], NOW, &implied).is_some());
    }
}
