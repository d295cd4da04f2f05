//! An issuer and its keys: discovery, refresh, and use during outages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::CACHE_CONTROL;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use url::Url;

use super::config::{EndpointAudiences, is_safe};
use super::keys::{KeySet, KeySetError};
use super::preset::Preset;
use super::strict_json;
use crate::auth::credential_cache::Epoch;
use crate::net::{Client, FetchError, FetchedResponse, Mutex, OutgoingRequest, with_causes};

/// Lifetime of keys without caching headers, and bounds of the lifetime.
const LIFE_DEFAULT: Duration = Duration::from_secs(60 * 60);
const LIFE_MIN: Duration = Duration::from_secs(5 * 60);
const LIFE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum use of keys while the issuer is unreachable.
const STALE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Minimum interval between fetches that an unknown key causes.
const UNKNOWN_EVERY: Duration = Duration::from_secs(30);
/// Maximum time that a request waits for keys.
const PATIENCE: Duration = Duration::from_secs(3);
/// Retry delays: initially without keys, and later with keys.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX_WITHOUT_KEYS: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// A trusted issuer.
#[derive(Debug)]
pub(super) struct Issuer {
    /// Name in principal names.
    pub(super) name: String,
    /// Names of the issuer in tokens; the first is its own.
    pub(super) names: Vec<String>,
    pub(super) preset: Preset,
    pub(super) audiences: Vec<String>,
    /// True if the audiences are the URL of `/mcp`, and not from a setting.
    pub(super) derives_audiences: bool,
    pub(super) group_claims: Vec<String>,
    /// Configured URL of the keys. `None` if it is discovered.
    pub(super) jwks_url: Option<Url>,
    pub(super) url: Url,
    /// True if its tokens are introspected, so that it needs no keys.
    pub(super) is_introspected: bool,
    /// True for this server's own authorization server: its keys are given, never fetched, and do not expire.
    pub(super) is_local: bool,
    pub(super) state: IssuerState,
}

/// State of an issuer's keys.
#[derive(Debug)]
pub(super) struct IssuerState {
    held: ArcSwapOption<CachedKeys>,
    wanted: Notify,
    /// Number of fetch attempts, which wakes waiting requests.
    attempts: watch::Sender<u64>,
    /// Time of the last fetch caused by an unknown key, and the number of fetch attempts before it.
    unknown: Mutex<Option<(Instant, u64)>>,
    began: Instant,
    /// True if the last fetch failed, so that the issuer may have newer keys.
    is_outdated: AtomicBool,
    /// Records changes of the keys.
    pub(super) changes: Epoch,
}

/// Keys and the time of their fetch.
#[derive(Debug)]
pub(super) struct CachedKeys {
    pub(super) keys: KeySet,
    text: Bytes,
    since: Instant,
    life: Duration,
    /// Grows with each change of the keys.
    pub(super) edition: u64,
}

/// Report on an issuer, for configuration checks.
#[cfg(feature = "cli")]
#[derive(Clone, Debug)]
pub struct IssuerReport {
    /// Number of usable keys.
    pub keys: usize,
    /// URL of the keys.
    pub url: Url,
    /// Its clock, in the format of the `Date` header.
    pub date: Option<String>,
}

/// Error when fetching keys.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeysError {
    #[error("{url}: {source}")]
    Fetch {
        url: Url,
        #[source]
        source: FetchError,
    },
    #[error("{url} responded with {status}")]
    Status { url: Url, status: http::StatusCode },
    #[error("{url} is not issuer metadata")]
    Document { url: Url },
    #[error(
        "{url} is about {found:?} and not about this issuer: write the issuer in auth.oauth exactly as it does"
    )]
    OtherIssuer { url: Url, found: String },
    #[error("{url} has jwks_uri {jwks:?}, which is not an https URL")]
    JwksUrl { url: Url, jwks: String },
    #[error("{url}: {source}")]
    Keys {
        url: Url,
        #[source]
        source: KeySetError,
    },
}

impl Default for IssuerState {
    fn default() -> Self {
        Self {
            held: ArcSwapOption::empty(),
            wanted: Notify::new(),
            attempts: watch::Sender::new(0),
            unknown: Mutex::default(),
            began: Instant::now(),
            is_outdated: AtomicBool::new(false),
            changes: Epoch::default(),
        }
    }
}

impl Issuer {
    /// Returns the accepted audiences of its tokens at an endpoint besides `/mcp`.
    pub(super) fn audiences_at<'a>(&'a self, endpoint: &'a EndpointAudiences) -> &'a [String] {
        // This server's own authorization server always issues tokens for the URL of one endpoint.
        if self.is_local {
            &endpoint.derived
        } else if !endpoint.configured.is_empty() {
            &endpoint.configured
        } else if self.derives_audiences {
            &endpoint.derived
        } else {
            &self.audiences
        }
    }

    /// The keys, if there are any that are still in force.
    pub(super) fn keys(&self) -> Option<Arc<CachedKeys>> {
        let held = self.state.held.load_full()?;
        let is_current = self.is_local || held.since.elapsed() <= held.life.max(STALE_MAX);
        is_current.then_some(held)
    }

    /// Returns true if the issuer may have newer keys, which could not be fetched.
    pub(super) fn is_outdated(&self) -> bool {
        self.state.is_outdated.load(Ordering::Acquire)
    }

    /// Returns the age of the keys, or the time since the start if none were loaded.
    pub(super) fn keys_age(&self) -> Duration {
        let held = self.state.held.load_full();
        held.map_or(self.state.began, |held| held.since).elapsed()
    }

    /// Returns for how many seconds the keys stay valid without a refresh, or `None` if their edition differs.
    pub(super) fn holds_for(&self, edition: u64) -> Option<u64> {
        let held = self.state.held.load_full()?;
        let left = match self.is_local {
            true => held.life,
            false => held.life.max(STALE_MAX).checked_sub(held.since.elapsed())?,
        };
        (held.edition == edition).then_some(left.as_secs())
    }

    /// Requests a fetch because of an unknown key, or joins the one that was requested. Returns `None` if the last one is too
    /// recent.
    pub(super) fn ask_for_unknown(&self) -> Option<watch::Receiver<u64>> {
        if self.is_local {
            return None;
        }
        let waiting = self.state.attempts.subscribe();
        let attempts = *waiting.borrow();
        let mut unknown = self.state.unknown.lock();
        match *unknown {
            // Valid tokens with a new key arrive together. They wait for the fetch that the first one has requested.
            Some((since, before)) if since.elapsed() < UNKNOWN_EVERY => {
                (attempts == before).then_some(waiting)
            }
            _ => {
                *unknown = Some((Instant::now(), attempts));
                self.state.wanted.notify_one();
                Some(waiting)
            }
        }
    }

    /// Requests the first fetch.
    pub(super) fn ask_for_first(&self) -> watch::Receiver<u64> {
        self.state.attempts.subscribe()
    }

    /// Waits for the next fetch attempt, with a timeout.
    pub(super) async fn wait(mut waiting: watch::Receiver<u64>) {
        let _ = tokio::time::timeout(PATIENCE, waiting.changed()).await;
    }

    /// Refreshes the keys for as long as it is polled.
    pub(super) async fn refresh_keys(&self, client: &Client) -> std::convert::Infallible {
        if self.is_local || self.is_introspected {
            return std::future::pending().await;
        }
        let mut failures = 0_u32;
        loop {
            let result = self.refresh(client).await;
            let is_outdated = result.is_err();
            self.state.is_outdated.store(is_outdated, Ordering::Release);
            let pause = match result {
                Ok(life) => {
                    failures = 0;
                    // Refresh before expiry, so that no request has to wait.
                    life * 4 / 5
                }
                Err(error) => {
                    let has_keys = self.keys().is_some();
                    if failures == 0 || failures.is_power_of_two() {
                        tracing::warn!(
                            issuer = self.names[0],
                            error = with_causes(&error),
                            has_keys,
                            setting = "auth.oauth.issuer",
                            "the keys of an issuer cannot be fetched; fetching is retried. Until keys are there, tokens get status 503. Check that auth.oauth.issuer is written exactly as in the issuer's metadata, or set jwks_url"
                        );
                    }
                    failures = failures.saturating_add(1);
                    let max = if has_keys {
                        RETRY_MAX
                    } else {
                        RETRY_MAX_WITHOUT_KEYS
                    };
                    RETRY_MIN.saturating_mul(1 << failures.min(10)).min(max)
                }
            };
            self.state.attempts.send_modify(|attempts| *attempts += 1);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.state.wanted.notified() => {}
            }
        }
    }

    /// Fetches the keys once. Returns their URL, the response and the keys in it.
    async fn fetch(&self, client: &Client) -> Result<(Url, FetchedResponse, KeySet), KeysError> {
        let url = match &self.jwks_url {
            Some(url) => url.clone(),
            None => self.discover(client).await?,
        };
        let answer = get(client, &url).await?;
        match KeySet::read(&answer.body) {
            Ok(keys) => Ok((url, answer, keys)),
            Err(source) => Err(KeysError::Keys { url, source }),
        }
    }

    /// Fetches and holds the keys, and returns their lifetime.
    async fn refresh(&self, client: &Client) -> Result<Duration, KeysError> {
        let (url, answer, keys) = self.fetch(client).await?;
        let held = self.state.held.load_full();
        let life = life(&answer.headers);
        let edition = match &held {
            // Unchanged keys keep their edition, so that verified tokens stay cached.
            Some(held) if held.text == answer.body => held.edition,
            Some(held) => held.edition + 1,
            None => 1,
        };
        if held.is_none_or(|held| held.edition != edition) {
            tracing::info!(issuer = self.names[0], %url, "an issuer's keys were read");
        }
        self.state.store(keys, answer.body, life, edition);
        Ok(life)
    }

    /// Discovers the URL of the keys from the issuer's metadata (RFC 8414, 3.1; OpenID Connect Discovery).
    async fn discover(&self, client: &Client) -> Result<Url, KeysError> {
        let mut failure = None;
        for url in documents(&self.url) {
            match self.discover_at(client, &url).await {
                Ok(jwks) => return Ok(jwks),
                // Metadata of another issuer ends the discovery, because the error must be reported.
                Err(error @ (KeysError::OtherIssuer { .. } | KeysError::JwksUrl { .. })) => {
                    return Err(error);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| KeysError::Document {
            url: self.url.clone(),
        }))
    }

    async fn discover_at(&self, client: &Client, url: &Url) -> Result<Url, KeysError> {
        let answer = get(client, url).await?;
        let document = || KeysError::Document { url: url.clone() };
        let found = strict_json::object(&answer.body).ok_or_else(document)?;
        match found.get("issuer") {
            Some(Value::String(issuer)) if *issuer == self.names[0] => {}
            Some(Value::String(issuer)) => {
                return Err(KeysError::OtherIssuer {
                    url: url.clone(),
                    found: issuer.chars().take(200).collect(),
                });
            }
            _ => return Err(document()),
        }
        let jwks = found.get("jwks_uri").and_then(Value::as_str);
        let jwks = jwks.ok_or_else(document)?;
        match Url::parse(jwks) {
            // Only an issuer on this machine may refer to a key URL on this machine.
            Ok(jwks)
                if jwks.scheme() == "https" || is_safe(&jwks) && self.url.scheme() == "http" =>
            {
                Ok(jwks)
            }
            _ => Err(KeysError::JwksUrl {
                url: url.clone(),
                jwks: jwks.chars().take(200).collect(),
            }),
        }
    }

    /// Fetches the keys once, for configuration checks. The result is not stored.
    #[cfg(feature = "cli")]
    pub(super) async fn examine(&self, client: &Client) -> Result<IssuerReport, KeysError> {
        let (url, answer, keys) = self.fetch(client).await?;
        let date = answer
            .headers
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok());
        Ok(IssuerReport {
            keys: keys.len(),
            url,
            date: date.map(str::to_owned),
        })
    }

    /// Fetches the keys once.
    #[cfg(test)]
    pub(super) async fn try_once(&self, client: &Client) -> Result<(), String> {
        let tried = self.refresh(client).await;
        tried.map(drop).map_err(|error| error.to_string())
    }

    /// Installs a key set, if it is valid.
    pub(super) fn hold(&self, text: &str) {
        let edition = self.keys().map_or(1, |held| held.edition + 1);
        let Ok(keys) = KeySet::read(text.as_bytes()) else {
            return;
        };
        let text = text.to_owned().into();
        self.state.store(keys, text, LIFE_DEFAULT, edition);
    }

    /// Ends a fetch without keys.
    #[cfg(test)]
    pub(super) fn end_fetch(&self) {
        self.state.attempts.send_modify(|attempts| *attempts += 1);
    }

    /// Returns the number of fetches.
    #[cfg(test)]
    pub(super) fn fetches(&self) -> u64 {
        *self.state.attempts.borrow()
    }
}

impl IssuerState {
    fn store(&self, keys: KeySet, text: Bytes, life: Duration, edition: u64) {
        self.held.store(Some(Arc::new(CachedKeys {
            keys,
            text,
            since: Instant::now(),
            life,
            edition,
        })));
        self.changes.note();
    }
}

async fn get(client: &Client, url: &Url) -> Result<FetchedResponse, KeysError> {
    let answer = client
        .fetch(OutgoingRequest::get(url.clone()))
        .await
        .map_err(|source| KeysError::Fetch {
            url: url.clone(),
            source,
        })?;
    if answer.status != http::StatusCode::OK {
        return Err(KeysError::Status {
            url: url.clone(),
            status: answer.status,
        });
    }
    Ok(answer)
}

/// Returns the metadata URLs: with the well-known name before the path, and after it.
fn documents(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/').to_owned();
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    };
    paths.into_iter().map(at).collect()
}

fn life(headers: &http::HeaderMap) -> Duration {
    let values = headers.get_all(CACHE_CONTROL).iter();
    let directives = values.filter_map(|value| value.to_str().ok());
    let seconds = directives
        .flat_map(|value| value.split(','))
        .find_map(|directive| {
            let (name, value) = directive.split_once('=')?;
            let is_age = name.trim().eq_ignore_ascii_case("max-age");
            is_age.then(|| value.trim().trim_matches('"').parse::<u64>().ok())?
        });
    match seconds {
        None => LIFE_DEFAULT,
        Some(seconds) => Duration::from_secs(seconds).clamp(LIFE_MIN, LIFE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn documents_are_looked_for_where_rfc_8414_and_openid_put_them() {
        let at = |issuer: &str| {
            let url = Url::parse(issuer).expect("a URL");
            documents(&url)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            at("https://id.example.com"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration",
            ]
        );
        for issuer in ["https://id.example.com/a/b", "https://id.example.com/a/b/"] {
            assert_eq!(
                at(issuer),
                [
                    "https://id.example.com/.well-known/oauth-authorization-server/a/b",
                    "https://id.example.com/.well-known/openid-configuration/a/b",
                    "https://id.example.com/a/b/.well-known/openid-configuration",
                ]
            );
        }
    }

    #[test]
    fn keys_are_good_for_as_long_as_they_say_within_bounds() {
        for (said, minutes) in [
            (None, 60),
            (Some("public, max-age=600"), 10),
            (Some("max-age=0"), 5),
            (Some("Max-Age=\"1200\", must-revalidate"), 20),
            (Some("max-age=99999999999"), 24 * 60),
            (Some("no-store"), 60),
            (Some("max-age=abc"), 60),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(said) = said {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static(said));
            }
            assert_eq!(
                life(&headers),
                Duration::from_secs(60 * minutes),
                "{said:?}"
            );
        }
    }
}
