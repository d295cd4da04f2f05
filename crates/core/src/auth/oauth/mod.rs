//! OAuth 2.1 access tokens. This server is a resource server: it verifies tokens and does not issue them.
//!
//! A token is parsed without trust ([`token`]). Its issuer's keys ([`issuer`], [`keys`]) verify the signature with
//! the algorithm of the key. Then the claims are checked. Verified tokens are cached for a short time.
//!
//! # Failure
//!
//! While an issuer is unreachable, its keys stay valid for a day. Without keys, tokens cannot be verified, and the
//! response is 503.

mod binding;
mod cache_weight;
mod config;
mod dpop;
mod facade;
mod id_token;
mod introspection;
mod issuer;
mod keys;
mod preset;
mod strict_json;
#[cfg(test)]
mod tests;
mod token;
mod verification;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::future::{join_all, select_all};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

pub(crate) use config::EndpointAudiences;
pub use config::{
    DpopConfig, IntrospectionConfig, IntrospectionMethod, IssuerConfig, OAuthConfig,
    OAuthSetupError,
};
pub use dpop::{DPOP_ALGORITHMS, DpopNonces, DpopProof, DpopRequest, DpopVerifier};
pub use facade::{AllowConfig, FacadeClientConfig, FacadeConfig, FacadeSetupError};
pub use facade::{CheckedProvider, ProviderKind};
pub use id_token::{
    AssertionDemands, IdTokenDemands, IdTokenFault, IssuerKeys, IssuerKeysError, strict_object,
    verify_id_token, verify_identity_assertion,
};
pub use preset::Preset;

use super::Principal;
use super::credential_cache::Epoch;
use super::scopes::Implied;
use crate::net::{Client, Deadlines, Guard};
use crate::telemetry;
use config::{issuer_url, url};
use introspection::Introspection;
#[cfg(feature = "cli")]
pub use issuer::IssuerReport;
use issuer::{Issuer, IssuerState};
use keys::SET_MAX_BYTES;

/// Maximum number of cached tokens of usual size.
const VERIFIED_MAX: usize = 10_000;
/// Maximum memory of the token cache: tokens have up to 16 KiB, and their claims are kept.
const VERIFIED_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Timeout of requests to an issuer.
const DEADLINE: Duration = Duration::from_secs(3);

/// Fetches the keys of each configured issuer, for configuration checks. Returns each name with its report or error.
#[cfg(feature = "cli")]
pub async fn examine_issuers(config: &OAuthConfig) -> Vec<(String, Result<IssuerReport, String>)> {
    if !config.is_configured() {
        return Vec::new();
    }
    // The audience does not matter here.
    let tokens = match Tokens::new(config, &Implied::default(), Some("https://localhost/mcp")) {
        Ok(tokens) => tokens,
        Err(error) => return vec![("settings".to_owned(), Err(error.to_string()))],
    };
    let each = tokens.0.with_keys().map(|issuer| async {
        let found = issuer.examine(&tokens.0.client).await;
        (
            issuer.names[0].clone(),
            found.map_err(|error| error.to_string()),
        )
    });
    join_all(each).await
}

/// Asks the introspection endpoint about a made-up token, for configuration checks. Returns its URL with the
/// problem, if there is one; `None` if introspection is not configured.
#[cfg(feature = "cli")]
pub async fn examine_introspection(config: &OAuthConfig) -> Option<(String, Result<(), String>)> {
    let url = config.introspection.url.clone()?;
    let introspection = match Introspection::new(&config.introspection) {
        Ok(introspection) => introspection?,
        Err(error) => return Some((url, Err(error.to_string()))),
    };
    Some((url, introspection.examine().await))
}

/// The access token authentication method.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    issuers: Vec<Arc<Issuer>>,
    client: Client,
    leeway: u64,
    /// Scopes that imply others. Cached results hold only while it is this very value.
    implied: ArcSwap<Implied>,
    /// Endpoints besides `/mcp`.
    endpoints: Vec<EndpointAudiences>,
    /// Records changes of `implied`.
    changes: Epoch,
    /// Introspection of the tokens of one issuer, and the index of that issuer.
    introspection: Option<(usize, Arc<Introspection>)>,
    /// Verified tokens by digest, so that memory contains no token unless `keeps_tokens` is set.
    verified: Cache<[u8; 32], Arc<Verified>, BySize>,
    /// True if principals hold their token, for sources that exchange it.
    keeps_tokens: AtomicBool,
    /// True if tokens that are not bound to a key of the client are rejected.
    requires_dpop: bool,
    /// Verifier of DPoP proofs; one of its own if the server gives none.
    dpop: OnceLock<DpopVerifier>,
}

/// Weighs a verified token by its size.
#[derive(Clone, Debug)]
struct BySize;

impl Weighter<[u8; 32], Arc<Verified>> for BySize {
    fn weight(&self, _: &[u8; 32], verified: &Arc<Verified>) -> u64 {
        verified.bytes
    }
}

/// A verified token.
#[derive(Debug)]
struct Verified {
    /// Approximate memory size.
    bytes: u64,
    principal: Arc<Principal>,
    issuer: usize,
    /// Edition of the issuer's keys at verification.
    edition: u64,
    /// Implied scopes at verification.
    implied: Arc<Implied>,
    /// Expiry, in seconds of Unix time.
    until: u64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("issuers", &self.issuers)
            .field("verified", &self.verified.len())
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns the issuers whose keys verify tokens: all whose tokens are not introspected.
    fn with_keys(&self) -> impl Iterator<Item = &Arc<Issuer>> {
        let issuers = self.issuers.iter();
        issuers.filter(|issuer| !issuer.is_introspected)
    }
}

impl Tokens {
    /// Signature algorithms of DPoP proofs.
    pub(super) const DPOP_ALGORITHMS: &'static [&'static str] = &DPOP_ALGORITHMS;

    /// Builds the method from settings. `resource` is the URL of the endpoint, if known.
    pub(crate) fn new(
        config: &OAuthConfig,
        implied: &Implied,
        resource: Option<&str>,
    ) -> Result<Self, OAuthSetupError> {
        config.check()?;
        let mut issuers: Vec<Arc<Issuer>> = Vec::new();
        if config.facade.is_configured() {
            issuers.push(Arc::new(Self::own_issuer(resource)?));
        }
        let mut guard = Guard::public();
        for (setting, one) in config.all() {
            let written = one.issuer.clone();
            let issuer = Self::issuer(config, (&setting, one), resource)?;
            guard = guard.trust(&issuer.url);
            if let Some(jwks_url) = &issuer.jwks_url {
                guard = guard.trust(jwks_url);
            }
            let is_same = |other: &Arc<Issuer>| {
                let has_same_name = other.name == issuer.name;
                has_same_name && issuer_name(&other.url) == issuer_name(&issuer.url)
                    || other.names.iter().any(|known| issuer.names.contains(known))
            };
            if issuers.iter().any(is_same) {
                return Err(OAuthSetupError::Twice { issuer: written });
            }
            let is_taken = issuers.iter().any(|other| other.name == issuer.name);
            if is_taken || issuer.name.contains('#') {
                return Err(OAuthSetupError::Name {
                    setting: beside(&setting, "name"),
                    name: issuer.name,
                });
            }
            issuers.push(Arc::new(issuer));
        }
        let introspection = Introspection::new(&config.introspection)?;
        let at = issuers.iter().position(|issuer| issuer.is_introspected);
        let at = match (&introspection, at) {
            (Some(_), None) => {
                return Err(OAuthSetupError::Introspection {
                    setting: "url",
                    problem: "auth.oauth.issuer is not set; set it to the issuer whose tokens are introspected",
                });
            }
            (_, at) => at.unwrap_or_default(),
        };
        let client = Client::builder(guard)
            .redirects(0)
            .max_body(SET_MAX_BYTES)
            .deadlines(Deadlines::total(DEADLINE))
            .build()
            .map_err(|error| OAuthSetupError::Client(error.to_string()))?;
        Ok(Self(Arc::new(Inner {
            issuers,
            client,
            leeway: config.leeway_seconds,
            implied: ArcSwap::from_pointee(implied.clone()),
            endpoints: Vec::new(),
            changes: Epoch::default(),
            introspection: introspection.map(|introspection| (at, Arc::new(introspection))),
            verified: Cache::with_weighter(VERIFIED_MAX, VERIFIED_MAX_BYTES, BySize),
            keeps_tokens: AtomicBool::new(false),
            requires_dpop: config.dpop.required,
            dpop: OnceLock::new(),
        })))
    }

    /// Reads the settings of one issuer.
    fn issuer(
        config: &OAuthConfig,
        (setting, one): (&str, IssuerConfig),
        resource: Option<&str>,
    ) -> Result<Issuer, OAuthSetupError> {
        let mut audiences = one.audience;
        if audiences.is_empty() {
            audiences.clone_from(&config.audience);
        }
        let derives_audiences = audiences.is_empty();
        if derives_audiences {
            let Some(resource) = resource else {
                return Err(OAuthSetupError::NoAudience { issuer: one.issuer });
            };
            // RFC 8707: clients write the URL with or without a trailing slash.
            audiences = vec![resource.to_owned(), format!("{resource}/")];
        }
        let address = issuer_url(setting, &one.issuer)?;
        let read_url = |text: &String| url(&beside(setting, "jwks_url"), text);
        let jwks_url = one.jwks_url.as_ref().map(read_url).transpose()?;
        let preset = one.preset.unwrap_or_else(|| Preset::of(&address));
        let name = one.name.unwrap_or_else(|| issuer_name(&address));
        Ok(Issuer {
            name,
            names: preset.issuer_names(&one.issuer),
            preset,
            audiences,
            derives_audiences,
            group_claims: preset.group_claims(one.groups_claim.as_deref()),
            jwks_url,
            url: address,
            is_introspected: config.introspection.url.is_some()
                && config.issuer.as_ref() == Some(&one.issuer),
            is_local: false,
            state: IssuerState::default(),
        })
    }

    /// The issuer that is this server itself. Its keys are given by [`hold`](Self::hold).
    fn own_issuer(resource: Option<&str>) -> Result<Issuer, OAuthSetupError> {
        let resource = resource.ok_or(FacadeSetupError::NoPublicUrl)?;
        let root = resource.strip_suffix("/mcp").unwrap_or(resource);
        let address = issuer_url("http.public_url", root)?;
        Ok(Issuer {
            name: issuer_name(&address),
            names: vec![root.to_owned()],
            preset: Preset::Generic,
            audiences: vec![resource.to_owned(), format!("{resource}/")],
            derives_audiences: true,
            group_claims: vec!["groups".to_owned()],
            jwks_url: None,
            url: address,
            is_introspected: false,
            is_local: true,
            state: IssuerState::default(),
        })
    }

    /// Accepts tokens for endpoints besides `/mcp`.
    #[must_use]
    pub(crate) fn with_endpoints(mut self, endpoints: Vec<EndpointAudiences>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.endpoints = endpoints;
        }
        self
    }

    /// Sets the epoch to advance when an issuer's keys or the implied scopes change.
    #[must_use]
    pub(super) fn noting(mut self, changes: &Epoch) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.changes = changes.clone();
            for issuer in inner.issuers.iter_mut().filter_map(Arc::get_mut) {
                issuer.state.changes = changes.clone();
            }
        }
        self
    }

    /// Replaces the scopes that imply others. Results that were cached with the previous ones are not reused.
    pub fn set_implied_scopes(&self, implied: &BTreeMap<String, Vec<String>>) {
        let implied = Implied::new(implied);
        if **self.0.implied.load() != implied {
            self.0.implied.store(Arc::new(implied));
            self.0.changes.note();
        }
    }

    /// Makes principals hold their access token from now on, so that it can be exchanged.
    pub(crate) fn keep_tokens(&self) {
        self.0.keeps_tokens.store(true, Ordering::Relaxed);
    }

    /// Sets the verifier of DPoP proofs. Only the first call has an effect.
    pub(crate) fn verify_proofs_by(&self, verifier: DpopVerifier) {
        let _ = self.0.dpop.set(verifier);
    }

    /// Installs keys for the first issuer: this server's own authorization server, or that of a benchmark.
    pub fn hold(&self, keys: &str) {
        if let Some(issuer) = self.0.issuers.first() {
            issuer.hold(keys);
        }
    }

    /// Returns true if the keys of every issuer are available.
    pub fn is_ready(&self) -> bool {
        self.0.with_keys().all(|issuer| issuer.keys().is_some())
    }

    /// Returns the canonical names of the issuers.
    pub fn issuers(&self) -> Vec<String> {
        let issuers = self.0.issuers.iter();
        issuers.map(|issuer| issuer.names[0].clone()).collect()
    }

    /// Registers a metric for the age of each issuer's keys.
    pub fn show(&self, metrics: &telemetry::Metrics) {
        if let Some((_, introspection)) = &self.0.introspection {
            introspection.show(metrics);
        }
        for issuer in self.0.with_keys() {
            let labels = [("issuer", &*issuer.names[0])];
            let issuer = Arc::clone(issuer);
            metrics.read(&telemetry::KEYS_AGE, &labels, move || {
                issuer.keys_age().as_secs_f64()
            });
        }
    }

    /// Keeps the keys up to date, for as long as it is polled, and says whether they are there.
    pub async fn refresh_keys(
        &self,
        gate: Option<&telemetry::ReadinessGate>,
    ) -> std::convert::Infallible {
        let telling = async {
            match gate {
                Some(gate) => self.send_report(gate).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = self.keep_keys() => never,
            never = telling => never,
        }
    }

    /// Says whenever it may have changed whether the keys are there.
    async fn send_report(&self, gate: &telemetry::ReadinessGate) -> std::convert::Infallible {
        /// Keys expire without a notification.
        const AT_LEAST_EVERY: Duration = Duration::from_secs(30);
        let issuers = self.0.issuers.iter();
        let mut attempts: Vec<_> = issuers.map(|issuer| issuer.ask_for_first()).collect();
        loop {
            if self.is_ready() {
                gate.open();
            } else {
                gate.close();
            }
            let changed = attempts
                .iter_mut()
                .map(|attempts| Box::pin(attempts.changed()));
            let _ = tokio::time::timeout(AT_LEAST_EVERY, select_all(changed)).await;
        }
    }

    async fn keep_keys(&self) -> std::convert::Infallible {
        let keeping = self
            .0
            .issuers
            .iter()
            .map(|i| i.refresh_keys(&self.0.client));
        join_all(keeping).await;
        std::future::pending().await
    }
}

/// Name of a setting beside that of an issuer's URL.
fn beside(issuer: &str, name: &str) -> String {
    format!("{}{name}", issuer.trim_end_matches("issuer"))
}

/// Returns the name of an issuer in principal names: its host and path.
fn issuer_name(address: &url::Url) -> String {
    let host = address.host_str().unwrap_or_default();
    let port = address.port().map(|port| format!(":{port}"));
    let path = address.path().trim_end_matches('/');
    format!("{host}{}{path}", port.unwrap_or_default())
}
