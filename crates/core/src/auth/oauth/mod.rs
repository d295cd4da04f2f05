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
mod config;
mod dpop;
mod facade;
mod id_token;
mod introspection;
mod issuer;
mod keys;
mod preset;
mod strict;
#[cfg(test)]
mod tests;
mod token;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::future::{join_all, select_all};
use http::HeaderName;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use serde_json::{Map, Value};

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

use super::presented::DPOP_HEADER;
use super::principal::{AccessToken, Facts};
use super::scopes::Implied;
use super::shown::{Changes, FOREVER, Lasting};
use super::{AuthError, AuthMethod, AuthOutcome, Credentials, Principal, PrincipalKind};
use crate::net::{Client, Deadlines, Guard};
use crate::telemetry;
use binding::Possession;
use config::{issuer_url, url};
use introspection::Introspection;
#[cfg(feature = "cli")]
pub use issuer::Found;
use issuer::{Issuer, IssuerState};
use keys::SET_MAX_BYTES;
use token::{Demands, Fault, Token, UNKNOWN_KEY};

/// Maximum number of cached tokens of usual size.
const VERIFIED_MAX: usize = 10_000;
/// Maximum memory of the token cache: tokens have up to 16 KiB, and their claims are kept.
const VERIFIED_MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum cache time, in seconds.
const VERIFIED_SECONDS: u64 = 300;
/// Timeout of requests to an issuer.
const DEADLINE: Duration = Duration::from_secs(3);
/// Maximum number of scopes and of groups in a token.
const WORDS_MAX: usize = 1024;

/// Fetches the keys of each configured issuer, for configuration checks. Returns each name with its report or error.
#[cfg(feature = "cli")]
pub async fn examine_issuers(config: &OAuthConfig) -> Vec<(String, Result<Found, String>)> {
    if !config.is_configured() {
        return Vec::new();
    }
    // The audience does not matter here.
    let tokens = match Tokens::new(config, &Implied::default(), Some("https://localhost/mcp")) {
        Ok(tokens) => tokens,
        Err(error) => return vec![("settings".to_owned(), Err(error.to_string()))],
    };
    let with_keys = tokens
        .0
        .issuers
        .iter()
        .filter(|issuer| !issuer.is_introspected);
    let each = with_keys.map(|issuer| async {
        let found = issuer.examine(&tokens.0.client).await;
        (
            issuer.names[0].clone(),
            found.map_err(|error| error.to_string()),
        )
    });
    join_all(each).await
}

/// The access token authentication method.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    issuers: Vec<Arc<Issuer>>,
    client: Client,
    leeway: u64,
    required: Vec<String>,
    implied: Implied,
    /// Endpoints besides `/mcp`, if audiences differ by endpoint. `None` means the audience of `/mcp`.
    endpoints: Vec<(Box<str>, Option<Vec<String>>)>,
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
    /// Expiry, in seconds of Unix time.
    until: u64,
}

/// Result of a token's verification.
enum Looked {
    Good(Arc<Principal>),
    Bad(AuthError),
    /// The issuer has no keys yet.
    NoKeys(Arc<Issuer>),
    /// The issuer has no such key.
    UnknownKey(Arc<Issuer>),
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("issuers", &self.issuers)
            .field("verified", &self.verified.len())
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// Signature algorithms of DPoP proofs.
    pub(super) const DPOP_ALGORITHMS: &'static [&'static str] = &DPOP_ALGORITHMS;

    /// Builds the method from settings. `resource` is the URL of the endpoint, if known.
    pub fn new(
        config: &OAuthConfig,
        implied: &Implied,
        resource: Option<&str>,
    ) -> Result<Self, OAuthSetupError> {
        config.check()?;
        let mut issuers: Vec<Arc<Issuer>> = Vec::new();
        let mut guard = Guard::public();
        for (setting, one) in config.all() {
            let mut audiences = one.audience;
            if audiences.is_empty() {
                audiences.clone_from(&config.audience);
            }
            if audiences.is_empty() {
                let Some(resource) = resource else {
                    return Err(OAuthSetupError::NoAudience { issuer: one.issuer });
                };
                // RFC 8707: clients write the URL with or without a trailing slash.
                audiences = vec![resource.to_owned(), format!("{resource}/")];
            }
            let address = issuer_url(&setting, &one.issuer)?;
            guard = guard.trust(&address);
            let jwks_url = match &one.jwks_url {
                None => None,
                Some(text) => {
                    let jwks = url(&setting.replace("issuer", "jwks_url"), text)?;
                    guard = guard.trust(&jwks);
                    Some(jwks)
                }
            };
            let preset = one.preset.unwrap_or_else(|| Preset::of(&address));
            let name = one.name.unwrap_or_else(|| {
                let host = address.host_str().unwrap_or_default();
                let port = address.port().map(|port| format!(":{port}"));
                let path = address.path().trim_end_matches('/');
                format!("{host}{}{path}", port.unwrap_or_default())
            });
            let group_claims = match one.groups_claim {
                Some(claim) => vec![claim],
                None => preset
                    .group_claims()
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            };
            let names = preset.issuer_names(&one.issuer);
            let known = issuers.iter().any(|other| {
                other.name == name || other.names.iter().any(|known| names.contains(known))
            });
            if known || name.contains('#') {
                return Err(OAuthSetupError::Twice { issuer: one.issuer });
            }
            issuers.push(Arc::new(Issuer {
                name,
                names,
                preset,
                audiences,
                group_claims,
                jwks_url,
                url: address,
                is_introspected: config.introspection.url.is_some()
                    && config.issuer.as_ref() == Some(&one.issuer),
                is_local: false,
                state: IssuerState::default(),
            }));
        }
        if config.facade.is_configured() {
            issuers.insert(0, Arc::new(Self::own_issuer(resource)?));
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
            required: config.scopes.clone(),
            implied: implied.clone(),
            endpoints: Vec::new(),
            introspection: introspection
                .map(Arc::new)
                .map(|introspection| (at, introspection)),
            verified: Cache::with_weighter(VERIFIED_MAX, VERIFIED_MAX_BYTES, BySize),
            keeps_tokens: AtomicBool::new(false),
            requires_dpop: config.dpop.required,
            dpop: OnceLock::new(),
        })))
    }

    /// The issuer that is this server itself. Its keys are given by [`hold`](Self::hold).
    fn own_issuer(resource: Option<&str>) -> Result<Issuer, OAuthSetupError> {
        let resource = resource.ok_or(FacadeSetupError::NoPublicUrl)?;
        let root = resource.strip_suffix("/mcp").unwrap_or(resource);
        let address = issuer_url("http.public_url", root)?;
        let host = address.host_str().unwrap_or_default();
        let port = address.port().map(|port| format!(":{port}"));
        Ok(Issuer {
            name: format!("{host}{}", port.unwrap_or_default()),
            names: vec![root.to_owned()],
            preset: Preset::Generic,
            audiences: vec![resource.to_owned(), format!("{resource}/")],
            group_claims: vec!["groups".to_owned()],
            jwks_url: None,
            url: address,
            is_introspected: false,
            is_local: true,
            state: IssuerState::default(),
        })
    }

    /// Accepts tokens for endpoints besides `/mcp`: the name and the audiences of each.
    #[must_use]
    pub(crate) fn with_endpoints(
        mut self,
        endpoints: Vec<(Box<str>, Option<Vec<String>>)>,
    ) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.endpoints = endpoints;
        }
        self
    }

    /// Sets the epoch to advance when an issuer's keys change.
    #[must_use]
    pub(super) fn noting(mut self, changes: &Changes) -> Self {
        let issuers = Arc::get_mut(&mut self.0).map(|inner| &mut inner.issuers);
        for issuer in issuers.into_iter().flatten() {
            if let Some(issuer) = Arc::get_mut(issuer) {
                issuer.state.changes = changes.clone();
            }
        }
        self
    }

    /// Makes principals hold their access token from now on, so that it can be exchanged.
    pub(crate) fn keep_tokens(&self) {
        self.0.keeps_tokens.store(true, Ordering::Relaxed);
    }

    /// Sets the verifier of DPoP proofs. Only the first call has an effect.
    pub(crate) fn verify_proofs_by(&self, verifier: DpopVerifier) {
        let _ = self.0.dpop.set(verifier);
    }

    /// Installs keys for the first issuer, for benchmarks.
    pub fn hold(&self, keys: &str) {
        if let Some(issuer) = self.0.issuers.first() {
            issuer.hold(keys);
        }
    }

    /// Returns true if the keys of every issuer are available.
    pub fn is_ready(&self) -> bool {
        let mut issuers = self.0.issuers.iter();
        issuers.all(|issuer| issuer.is_introspected || issuer.keys().is_some())
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
        let with_keys = self
            .0
            .issuers
            .iter()
            .filter(|issuer| !issuer.is_introspected);
        for issuer in with_keys {
            let labels = [("issuer", &*issuer.names[0])];
            let issuer = Arc::clone(issuer);
            metrics.read(&telemetry::KEYS_AGE, &labels, move || {
                issuer.keys_age().as_secs_f64()
            });
        }
    }

    /// Keeps the keys up to date, for as long as it is polled, and says whether they are there.
    pub async fn keep_up(&self, told: Option<&telemetry::Gate>) -> std::convert::Infallible {
        let telling = async {
            match told {
                Some(told) => self.tell(told).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = self.keep_keys() => never,
            never = telling => never,
        }
    }

    /// Says whenever it may have changed whether the keys are there.
    async fn tell(&self, told: &telemetry::Gate) -> std::convert::Infallible {
        /// Keys expire without a notification.
        const AT_LEAST_EVERY: Duration = Duration::from_secs(30);
        let issuers = self.0.issuers.iter();
        let mut attempts: Vec<_> = issuers.map(|issuer| issuer.ask_for_first()).collect();
        loop {
            if self.is_ready() {
                told.open();
            } else {
                told.close();
            }
            let changed = attempts
                .iter_mut()
                .map(|attempts| Box::pin(attempts.changed()));
            let _ = tokio::time::timeout(AT_LEAST_EVERY, select_all(changed)).await;
        }
    }

    async fn keep_keys(&self) -> std::convert::Infallible {
        let keeping = self.0.issuers.iter().map(|i| i.keep_up(&self.0.client));
        join_all(keeping).await;
        std::future::pending().await
    }
}

impl AuthMethod for Tokens {
    fn judge(&self, presented: &Credentials<'_>) -> AuthOutcome {
        let now = presented.now();
        let shown = Possession::of(presented);
        if let Some((text, at, introspection)) = self.0.introspected(presented) {
            return self.introspect((text, shown), at, introspection, now);
        }
        let Some(text) = presented.access_token().filter(|text| Token::is_one(text)) else {
            return AuthOutcome::Absent;
        };
        let hash = hash(text);
        if let Some(principal) = self.0.remembered(&hash, now) {
            return self.0.proven(principal, &shown, now);
        }
        match self.0.look(text, hash, now) {
            Looked::Good(principal) => self.0.proven(principal, &shown, now),
            Looked::Bad(error) => AuthOutcome::Refused(error),
            Looked::NoKeys(issuer) => self.later((text, shown), hash, now, issuer.ask_for_first()),
            Looked::UnknownKey(issuer) => match issuer.ask_for_unknown() {
                Some(waiting) => self.later((text, shown), hash, now, waiting),
                None => AuthOutcome::Refused(refused(UNKNOWN_KEY)),
            },
        }
    }

    fn headers(&self) -> Vec<HeaderName> {
        vec![DPOP_HEADER]
    }
}

/// Other keys of issuers are noted.
impl Lasting for Tokens {
    fn holds_until(&self, presented: &Credentials<'_>) -> Option<u64> {
        // Each request has a proof of its own.
        if presented.dpop().is_some() {
            return None;
        }
        if let Some((text, _, introspection)) = self.0.introspected(presented) {
            let result = introspection.cached(&hash(text), presented.now())?;
            return Some(result.until());
        }
        let Some(text) = presented.access_token().filter(|text| Token::is_one(text)) else {
            return Some(FOREVER);
        };
        let verified = self.0.verified.get(&hash(text))?;
        let keys = self.0.issuers[verified.issuer].holds_for(verified.edition)?;
        Some(verified.until.min(presented.now() + keys))
    }
}

/// Waits for an outcome, so that it is not [`AuthOutcome::Later`].
async fn settled(outcome: AuthOutcome) -> AuthOutcome {
    match outcome {
        AuthOutcome::Later(later) => later.await,
        outcome => outcome,
    }
}

/// Cache key of a token.
fn hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

impl Tokens {
    /// Introspects a token, unless the result is cached.
    fn introspect(
        &self,
        (text, shown): (&str, Possession<'_>),
        at: usize,
        introspection: &Arc<Introspection>,
        now: u64,
    ) -> AuthOutcome {
        let hash = hash(text);
        if let Some(result) = introspection.cached(&hash, now) {
            return self.0.bound(result.outcome(), &shown, now);
        }
        let (inner, introspection) = (Arc::clone(&self.0), Arc::clone(introspection));
        let (text, shown) = (text.to_owned(), shown.into_owned());
        AuthOutcome::Later(Box::pin(async move {
            let accept = |claims| {
                let claims = inner.completed(claims, at, &introspection, now)?;
                inner.accept(&inner.issuers[at], Token::introspected(claims), &text, now)
            };
            let result = introspection.introspect(&text, hash, now, accept).await;
            settled(inner.bound(result.outcome(), &shown, now)).await
        }))
    }

    /// Checks a token again after a fetch of the keys.
    fn later(
        &self,
        (text, shown): (&str, Possession<'_>),
        hash: [u8; 32],
        now: u64,
        waiting: tokio::sync::watch::Receiver<u64>,
    ) -> AuthOutcome {
        let (inner, text) = (Arc::clone(&self.0), text.to_owned());
        let shown = shown.into_owned();
        AuthOutcome::Later(Box::pin(async move {
            Issuer::wait(waiting).await;
            match inner.look(&text, hash, now) {
                Looked::Good(principal) => settled(inner.proven(principal, &shown, now)).await,
                Looked::Bad(error) => AuthOutcome::Refused(error),
                Looked::UnknownKey(_) => AuthOutcome::Refused(refused(UNKNOWN_KEY)),
                Looked::NoKeys(_) => AuthOutcome::Refused(AuthError::Unavailable(
                    "tokens cannot be checked now: their issuer's keys are not there".into(),
                )),
            }
        }))
    }
}

impl Inner {
    /// Returns the outcome for the principal of a valid token, whose client has to have the key that it is bound to.
    fn proven(
        self: &Arc<Self>,
        principal: Arc<Principal>,
        shown: &Possession<'_>,
        now: u64,
    ) -> AuthOutcome {
        let claims = principal.claims();
        let is_bound = claims
            .get("cnf")
            .is_some_and(|cnf| cnf.get("jkt").is_some());
        if self.requires_dpop && !is_bound {
            return AuthOutcome::Refused(refused(Fault(
                "the token is not bound to a key; this server requires DPoP",
            )));
        }
        let verifier = self.dpop.get_or_init(DpopVerifier::default);
        match shown.check(claims, verifier, now) {
            Ok(None) => AuthOutcome::Proven(principal),
            Ok(Some(proof)) => {
                let verifier = verifier.clone();
                AuthOutcome::Later(Box::pin(async move {
                    match verifier.use_once(&proof, principal.id()).await {
                        Ok(()) => AuthOutcome::Proven(principal),
                        Err(error) => AuthOutcome::Refused(error),
                    }
                }))
            }
            Err(error) => AuthOutcome::Refused(error),
        }
    }

    /// Applies [`proven`](Self::proven) to an outcome.
    fn bound(
        self: &Arc<Self>,
        outcome: AuthOutcome,
        shown: &Possession<'_>,
        now: u64,
    ) -> AuthOutcome {
        match outcome {
            AuthOutcome::Proven(principal) => self.proven(principal, shown, now),
            outcome => outcome,
        }
    }

    /// Returns the token of a request that is to be introspected: every one that is not a JWT, and those that name the
    /// introspected issuer.
    fn introspected<'p>(
        &self,
        presented: &Credentials<'p>,
    ) -> Option<(&'p str, usize, &Arc<Introspection>)> {
        let (at, introspection) = self.introspection.as_ref()?;
        let text = presented.access_token()?;
        let is_of_issuer = match Token::is_one(text) {
            true => Token::read(text).is_ok_and(|token| {
                let names = &self.issuers[*at].names;
                token
                    .issuer()
                    .is_some_and(|issuer| names.iter().any(|name| name == issuer))
            }),
            false => !is_api_key(text) && text.len() <= token::TOKEN_MAX_BYTES,
        };
        is_of_issuer.then_some((text, *at, introspection))
    }

    /// Adds the members that are optional in an introspection response and required in a token.
    fn completed(
        &self,
        mut claims: Map<String, Value>,
        at: usize,
        introspection: &Introspection,
        now: u64,
    ) -> Result<Map<String, Value>, AuthError> {
        /// Validity of a token without an expiry, in seconds. Its result is cached for a shorter time.
        const VALID_SECONDS: u64 = 3600;
        let issuer = &self.issuers[at];
        let mut add = |name: &str, value: Value| {
            claims.entry(name).or_insert(value);
        };
        add("iss", issuer.names[0].clone().into());
        add("exp", (now + VALID_SECONDS).into());
        if let Some(client) = claims.get("client_id").cloned() {
            claims.entry("sub").or_insert(client);
        }
        let audience = issuer.preset.audience_claim();
        if !claims.contains_key(audience) {
            if introspection.requires_audience {
                return Err(refused(Fault(
                    "the issuer does not say whom the token was issued for",
                )));
            }
            let own = issuer.audiences.first().cloned().unwrap_or_default();
            claims.insert(audience.to_owned(), own.into());
        }
        Ok(claims)
    }

    fn remembered(&self, hash: &[u8; 32], now: u64) -> Option<Arc<Principal>> {
        let verified = self.verified.get(hash)?;
        let keys = self.issuers[verified.issuer].keys()?;
        let good = now < verified.until && keys.edition == verified.edition;
        good.then(|| Arc::clone(&verified.principal))
    }

    fn look(&self, text: &str, hash: [u8; 32], now: u64) -> Looked {
        let token = match Token::read(text) {
            Ok(token) => token,
            Err(fault) => return Looked::Bad(refused(fault)),
        };
        let of = |name: &str| {
            let is_of = |issuer: &Arc<Issuer>| issuer.names.iter().any(|known| known == name);
            self.issuers.iter().position(is_of)
        };
        let Some(at) = token.issuer().and_then(of) else {
            let fault = match token.issuer() {
                None => Fault("the token has no issuer"),
                Some(_) => Fault("the token is of another issuer"),
            };
            return Looked::Bad(refused(fault));
        };
        let issuer = &self.issuers[at];
        let Some(held) = issuer.keys() else {
            return Looked::NoKeys(Arc::clone(issuer));
        };
        match token.check_signature(&held.keys) {
            Ok(()) => {}
            Err(UNKNOWN_KEY) => return Looked::UnknownKey(Arc::clone(issuer)),
            Err(fault) => return Looked::Bad(refused(fault)),
        }
        match self.accept(issuer, token, text, now) {
            Ok((principal, expires)) => {
                self.verified.insert(
                    hash,
                    Arc::new(Verified {
                        // Parsed claims take more memory than the encoded token.
                        bytes: 512 + 4 * text.len() as u64,
                        principal: Arc::clone(&principal),
                        issuer: at,
                        edition: held.edition,
                        until: expires
                            .saturating_add(self.leeway)
                            .min(now + VERIFIED_SECONDS),
                    }),
                );
                Looked::Good(principal)
            }
            Err(error) => Looked::Bad(error),
        }
    }

    /// Checks the claims of a token with a valid signature, and builds the principal. `text` is the token.
    fn accept(
        &self,
        issuer: &Issuer,
        token: Token<'_>,
        text: &str,
        now: u64,
    ) -> Result<(Arc<Principal>, u64), AuthError> {
        let mut demands = Demands {
            issuers: &issuer.names,
            audiences: &issuer.audiences,
            audience_claim: issuer.preset.audience_claim(),
            now,
            leeway: self.leeway,
        };
        let mut good_for: Vec<Box<str>> = Vec::new();
        let mut checked = token.check_claims(demands);
        if checked.is_ok() {
            good_for.push(Box::default());
        }
        for (endpoint, audiences) in &self.endpoints {
            demands.audiences = audiences.as_ref().unwrap_or(&issuer.audiences);
            let is_for = token.check_claims(demands);
            if is_for.is_ok() {
                good_for.push(endpoint.clone());
            }
            checked = checked.or(is_for);
        }
        checked.map_err(refused)?;
        let claims = token.claims();
        if !issuer.preset.is_for_calls(claims) {
            return Err(refused(Fault("the token is not an access token")));
        }
        let scopes = words_of(claims, issuer.preset.scope_claims(), true)?;
        let group_claims: Vec<_> = issuer.group_claims.iter().map(String::as_str).collect();
        let groups = words_of(claims, &group_claims, false)?;
        let client = issuer.preset.client_claims().iter();
        let client = client.copied().find_map(|name| claims.get(name)?.as_str());
        let subject = token.subject().map_err(refused)?;
        let own_name = &issuer.names[0];
        let name = format!("oauth:{}#{subject}", issuer.name);
        let marks = [own_name.as_str(), subject, client.unwrap_or_default()];
        let principal = Principal::of(PrincipalKind::Token, &name, &marks);
        let facts = Facts {
            subject: Some(subject.into()),
            issuer: Some(own_name.as_str().into()),
            client: client.map(Into::into),
            scopes: self.implied.expand(scopes.iter().map(String::as_str)),
            groups: groups.into_iter().map(String::into_boxed_str).collect(),
            claims: Arc::default(),
            endpoints: (!self.endpoints.is_empty()).then(|| good_for.into()),
            expires: Some(token.expires().saturating_add(self.leeway)),
            token: self
                .keeps_tokens
                .load(Ordering::Relaxed)
                .then(|| AccessToken(text.into())),
        };
        let expires = token.expires();
        let principal = principal.with_facts(facts).with_claims(token.into_claims());
        if !self.required.iter().all(|scope| principal.has_scope(scope)) {
            return Err(AuthError::InsufficientScope {
                required: self.required.clone(),
            });
        }
        Ok((Arc::new(principal), expires))
    }
}

/// Returns true for API keys, which are not sent to an issuer.
fn is_api_key(text: &str) -> bool {
    text.starts_with(super::api_key::PREFIX)
}

fn refused(fault: Fault) -> AuthError {
    AuthError::Invalid(fault.0.into())
}

/// Collects words from several claims: strings or lists of strings, split at spaces where the claim allows it.
fn words_of(
    claims: &Map<String, Value>,
    names: &[&str],
    spaced: bool,
) -> Result<Vec<String>, AuthError> {
    let odd = || refused(Fault("the scopes or groups in the token are no texts"));
    let mut words = Vec::new();
    for name in names {
        match claim(claims, name) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if spaced => {
                words.extend(text.split_ascii_whitespace().map(str::to_owned));
            }
            Some(Value::String(text)) => words.push(text.clone()),
            Some(Value::Array(list)) => {
                for word in list {
                    words.push(word.as_str().ok_or_else(odd)?.to_owned());
                }
            }
            Some(_) => return Err(odd()),
        }
        if WORDS_MAX < words.len() {
            return Err(refused(Fault("the token has too many scopes or groups")));
        }
    }
    Ok(words)
}

/// Returns a claim by name or by path.
fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    claim(claims.get(first)?.as_object()?, rest)
}
