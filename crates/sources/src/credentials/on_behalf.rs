//! Tokens with the caller's own rights: the caller's access token is exchanged at its issuer for one that the other server
//! accepts (RFC 8693). The caller's token itself is sent to that issuer only.
//!
//! Exchanged tokens are cached by the digest of the caller's token, and one request is under way for each at any time.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use url::Url;

use super::assertion::{ACCESS_TOKEN, AssertionGrant, IdentityAssertionConfig, JWT_BEARER};
use super::error::{CredentialError, Rejection};
use super::header_value::bearer_value;
use super::oauth::TOKEN_EXCHANGE;
use super::token_request::{
    ISSUER_TIMEOUT, read_answer, read_token, token_endpoint, token_request,
};
use crate::auth::{Principal, PrincipalKind};
use crate::environment::Secret;
use crate::environment::unix_seconds;
use crate::net::{Client, OutgoingRequest};
use crate::seal::digest;
use crate::source::tokens::Granted;
use crate::telemetry::{Counter, EXCHANGES, Metrics};

/// Exchange of the caller's access token for one with the caller's rights at the other server.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OnBehalfOfConfig {
    /// URL of the token endpoint of the issuer of the callers' tokens.
    pub token_url: String,
    /// OAuth client ID of this server at the issuer.
    pub client_id: String,
    /// OAuth client secret.
    pub client_secret: Option<Secret>,
    /// Form of the request: `token_exchange` (RFC 8693), or `entra` (the on-behalf-of flow of Microsoft Entra ID).
    pub form: ExchangeForm,
    /// Requested scopes, such as `https://graph.microsoft.com/.default`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// Audience of the token, for issuers that require the parameter `audience`. Only with `token_exchange`.
    pub audience: Option<String>,
    /// Resource that the token is for (RFC 8707, `resource`). Only with `token_exchange`.
    pub resource: Option<String>,
    /// File with a token of this server, sent as `actor_token`, so that the issuer can name this server as the actor
    /// (`act`). It is read for each request. Only with `token_exchange`.
    #[schemars(extend("x-path" = "file"))]
    pub actor_token_file: Option<std::path::PathBuf>,
    /// Type of the actor's token. Default: `urn:ietf:params:oauth:token-type:access_token`.
    pub actor_token_type: Option<String>,
    /// Type of the caller's token. Default: `urn:ietf:params:oauth:token-type:access_token`. Only with `token_exchange`.
    pub subject_token_type: Option<String>,
    /// Exchange the caller's token for an identity assertion, and redeem that at the issuer of the other server. Only with
    /// `token_exchange`.
    pub identity_assertion: Option<IdentityAssertionConfig>,
}

/// Form of the request for a token on behalf of a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExchangeForm {
    /// RFC 8693.
    #[default]
    TokenExchange,
    /// The on-behalf-of flow of Microsoft Entra ID: RFC 7523 with `requested_token_use=on_behalf_of`.
    Entra,
}

/// Maximum number of cached tokens of usual size, and the memory of all.
const CACHED_MAX: usize = 10_000;
const CACHED_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of concurrent requests to the issuer.
const REQUESTS_MAX: usize = 32;
/// Assumed lifetime of a token if the issuer does not state one, and the maximum cache time, in seconds.
const LIFE_SECONDS: u64 = 60;
const LIFE_MAX_SECONDS: u64 = 3600;
/// Time before its expiry from which a token is not used any more, in seconds.
const MARGIN_SECONDS: u64 = 10;
/// Cache time of a rejection, and of a failure, in seconds.
const REJECTED_SECONDS: u64 = 5;
const FAILED_SECONDS: u64 = 2;

/// The exchange at one issuer.
pub struct OnBehalfOf {
    config: OnBehalfOfConfig,
    url: Url,
    client: Client,
    /// The issuer of the other server, if `url` is that of an identity provider.
    assertion: Option<AssertionGrant>,
    permits: Semaphore,
    cache: Cache<[u8; 32], Arc<Exchanged>, BySize>,
    counts: Counts,
}

/// Number of exchanges by outcome.
struct Counts {
    exchanged: Counter,
    rejected: Counter,
    failed: Counter,
}

impl Counts {
    fn new(source: &str, metrics: &Metrics) -> Self {
        let of = |outcome| {
            let labels = [("upstream", source), ("outcome", outcome)];
            metrics.counter(&EXCHANGES, &labels)
        };
        Self {
            exchanged: of("exchanged"),
            rejected: of("rejected"),
            failed: of("failed"),
        }
    }
}

/// Cached result of an exchange.
struct Exchanged {
    /// Approximate memory size.
    bytes: u64,
    /// Time until which it is used, in seconds of Unix time.
    until: u64,
    result: Result<HeaderValue, Arc<CredentialError>>,
}

#[derive(Clone, Debug)]
struct BySize;

impl Weighter<[u8; 32], Arc<Exchanged>> for BySize {
    fn weight(&self, _: &[u8; 32], exchanged: &Arc<Exchanged>) -> u64 {
        exchanged.bytes
    }
}

impl OnBehalfOf {
    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// Describes the invalid setting and how to correct it.
    pub(crate) fn new(
        config: &OnBehalfOfConfig,
        (source, server): (&str, Option<&Url>),
        metrics: &Metrics,
    ) -> Result<Self, String> {
        let of = |setting: &str, problem: String| format!("on_behalf_of.{setting}: {problem}");
        let (url, client) = token_endpoint(&config.token_url)
            .map_err(|problem| format!("on_behalf_of.{problem}"))?;
        if config.client_id.is_empty() {
            let problem = "it is not set; set it to the ID of this server at the issuer";
            return Err(of("client_id", problem.to_owned()));
        }
        if config.form == ExchangeForm::Entra {
            let unused = [
                ("audience", config.audience.is_some()),
                ("resource", config.resource.is_some()),
                ("actor_token_file", config.actor_token_file.is_some()),
                ("subject_token_type", config.subject_token_type.is_some()),
                ("identity_assertion", config.identity_assertion.is_some()),
            ];
            if let Some((setting, _)) = unused.iter().find(|(_, is_set)| *is_set) {
                let problem =
                    "it has no effect with form: entra; remove it, and name the API in scopes";
                return Err(of(setting, problem.to_owned()));
            }
            if config.scopes.is_empty() {
                let problem = "they are empty; name the API, such as api://ID/.default";
                return Err(of("scopes", problem.to_owned()));
            }
        }
        if let Some(file) = &config.actor_token_file {
            let read = read_token(file);
            read.map_err(|error| of("actor_token_file", format!("{}: {error}", file.display())))?;
        }
        let assertion = match &config.identity_assertion {
            None => None,
            Some(_) if config.audience.is_some() || config.resource.is_some() => {
                let problem = "it names the audience and the resource itself; remove on_behalf_of.audience and .resource";
                return Err(of("identity_assertion", problem.to_owned()));
            }
            Some(assertion) => {
                let grant = AssertionGrant::new(assertion, server);
                Some(grant.map_err(|problem| format!("on_behalf_of.{problem}"))?)
            }
        };
        Ok(Self {
            config: config.clone(),
            url,
            client,
            assertion,
            permits: Semaphore::new(REQUESTS_MAX),
            cache: Cache::with_weighter(CACHED_MAX, CACHED_MAX_BYTES, BySize),
            counts: Counts::new(source, metrics),
        })
    }

    /// Returns the header value for a caller. Concurrent calls with the same token share one request.
    pub(crate) async fn token(&self, caller: &Principal) -> Result<HeaderValue, CredentialError> {
        let Some(token) = caller.access_token() else {
            return Err(CredentialError::NoCallerToken(match caller.kind() {
                // It is of auth.oauth.facade, or tokens are exchanged from the next start on.
                PrincipalKind::Token => "a token that cannot be exchanged",
                kind => kind.as_str(),
            }));
        };
        let key = digest(&[token.as_bytes()]);
        loop {
            let now = unix_seconds();
            match self.cache.get_value_or_guard_async(&key).await {
                Ok(cached) if now < cached.until => return cached.result(),
                Ok(_) => {
                    self.cache.remove(&key);
                }
                Err(guard) => {
                    let exchanged = Arc::new(self.exchange(token, caller).await);
                    let _ = guard.insert(Arc::clone(&exchanged));
                    return exchanged.result();
                }
            }
        }
    }

    /// Caches a token for the holder of an access token, for benchmarks.
    pub(crate) fn remember(&self, access_token: &str, value: HeaderValue) {
        let exchanged = Exchanged {
            bytes: 512,
            until: u64::MAX,
            result: Ok(value),
        };
        self.cache
            .insert(digest(&[access_token.as_bytes()]), Arc::new(exchanged));
    }

    /// Drops a token that the other server rejected. Returns true if there was one.
    pub(super) fn refused(&self, caller: &Principal) -> bool {
        let token = caller.access_token();
        token.is_some_and(|token| self.cache.remove(&digest(&[token.as_bytes()])).is_some())
    }

    /// Exchanges a token. The result is cached, also a failure: calls that wait for it would repeat it one after another.
    async fn exchange(&self, token: &str, caller: &Principal) -> Exchanged {
        let mut size = token.len();
        let granted = self.granted(token, &mut size).await;
        let now = unix_seconds();
        let (count, until, result) = match granted {
            Ok((value, expires_in)) => {
                let until = until(now, expires_in, caller.expires());
                (&self.counts.exchanged, until, Ok(value))
            }
            Err(error @ CredentialError::Exchange(_)) => {
                let until = now + REJECTED_SECONDS;
                (&self.counts.rejected, until, Err(Arc::new(error)))
            }
            Err(error) => {
                let until = now + FAILED_SECONDS;
                (&self.counts.failed, until, Err(Arc::new(error)))
            }
        };
        count.add(1);
        Exchanged {
            // Parsed values take more memory than their text.
            bytes: 512 + 2 * size as u64,
            until,
            result,
        }
    }

    /// Requests a token. Adds the size of the response to `size`.
    async fn granted(
        &self,
        token: &str,
        size: &mut usize,
    ) -> Result<(HeaderValue, Option<f64>), CredentialError> {
        let permit = tokio::time::timeout(ISSUER_TIMEOUT, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(CredentialError::Busy);
        };
        let mut answer = self.client.fetch(self.request(token)?).await?;
        let mut issuer = &self.url;
        if let Some(assertion) = &self.assertion
            && Rejection::of(&answer).is_none()
        {
            answer = assertion.redeem(&answer, None).await?;
            issuer = assertion.url();
        }
        *size += answer.body.len();
        let granted: Granted = match read_answer(&answer) {
            Err(CredentialError::Refused(rejection)) if rejection.is_denial() => {
                tracing::warn!(
                    url = %issuer,
                    error = %rejection,
                    setting = "auth.on_behalf_of",
                    "the issuer rejected the exchange of a caller's token; check that this client may act for users at the other server"
                );
                return Err(CredentialError::Exchange(rejection));
            }
            granted => granted?,
        };
        if !granted.is_usable(false) {
            return Err(CredentialError::NoToken);
        }
        let value = bearer_value(&granted.access_token).map_err(|_| CredentialError::NotText)?;
        Ok((value, granted.expires_in))
    }

    fn request(&self, token: &str) -> Result<OutgoingRequest, CredentialError> {
        let config = &self.config;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        match config.form {
            ExchangeForm::TokenExchange => {
                form.append_pair("grant_type", TOKEN_EXCHANGE);
                form.append_pair("subject_token", token);
                let kind = config.subject_token_type.as_deref();
                form.append_pair("subject_token_type", kind.unwrap_or(ACCESS_TOKEN));
                AssertionGrant::request_token(self.assertion.as_ref(), &mut form);
                if let Some(file) = &config.actor_token_file {
                    let actor = read_token(file).map_err(CredentialError::File)?;
                    let kind = config.actor_token_type.as_deref();
                    form.append_pair("actor_token", &actor);
                    form.append_pair("actor_token_type", kind.unwrap_or(ACCESS_TOKEN));
                }
                for (name, value) in [
                    ("audience", &config.audience),
                    ("resource", &config.resource),
                ] {
                    if let Some(value) = value {
                        form.append_pair(name, value);
                    }
                }
            }
            ExchangeForm::Entra => {
                form.append_pair("grant_type", JWT_BEARER);
                form.append_pair("assertion", token);
                form.append_pair("requested_token_use", "on_behalf_of");
            }
        }
        if !config.scopes.is_empty() {
            form.append_pair("scope", &config.scopes.join(" "));
        }
        let secret = config.client_secret.as_ref().map(Secret::expose);
        // Entra takes the secret in the form only, in this flow.
        let in_form = config.form == ExchangeForm::Entra;
        token_request(self.url.clone(), form, (&config.client_id, secret, in_form))
    }
}

impl Exchanged {
    fn result(&self) -> Result<HeaderValue, CredentialError> {
        self.result.clone().map_err(|error| match &*error {
            CredentialError::Exchange(rejection) => CredentialError::Exchange(rejection.clone()),
            _ => CredentialError::Shared(error),
        })
    }
}

/// Returns the time until which a token is used: before its own expiry and that of the caller's token.
fn until(now: u64, expires_in: Option<f64>, caller_expires: Option<u64>) -> u64 {
    let life = expires_in.filter(|seconds| seconds.is_finite() && 0.0 <= *seconds);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is finite and not negative, and `as` saturates"
    )]
    let life = life.map_or(LIFE_SECONDS, |seconds| seconds as u64);
    let life = life.min(LIFE_MAX_SECONDS);
    let own = now + life.saturating_sub(MARGIN_SECONDS.min(life / 2));
    own.min(caller_expires.unwrap_or(u64::MAX))
}

impl fmt::Debug for OnBehalfOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnBehalfOf")
            .field("url", &self.url.as_str())
            .field("cached", &self.cache.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchanged_token_is_used_no_longer_than_it_and_the_callers_token_are_valid() {
        assert_eq!(until(1000, Some(300.0), None), 1290);
        assert_eq!(until(1000, Some(300.0), Some(1100)), 1100);
        assert_eq!(until(1000, Some(4.0), None), 1002);
        assert_eq!(until(1000, Some(1e30), None), 1000 + LIFE_MAX_SECONDS - 10);
        for odd in [None, Some(f64::NAN), Some(-1.0), Some(f64::INFINITY)] {
            assert_eq!(until(1000, odd, None), 1050, "{odd:?}");
        }
    }

    #[test]
    fn settings_without_effect_are_refused() {
        let config = |text: &str| serde_json::from_str(text).expect("settings");
        let refused = |text: &str| {
            OnBehalfOf::new(&config(text), ("a", None), &Metrics::default()).expect_err("refused")
        };
        assert!(refused(r#"{"token_url": "nowhere"}"#).starts_with("on_behalf_of.token_url: "));
        let url = "https://idp.example.com/token";
        assert!(
            refused(&format!(r#"{{"token_url": "{url}"}}"#))
                .starts_with("on_behalf_of.client_id: ")
        );
        let entra = format!(r#""token_url": "{url}", "client_id": "a", "form": "entra""#);
        assert!(refused(&format!("{{{entra}}}")).starts_with("on_behalf_of.scopes: "));
        let odd = format!(r#"{{{entra}, "scopes": ["s"], "audience": "b"}}"#);
        assert!(refused(&odd).starts_with("on_behalf_of.audience: "));
        let assertion = format!(
            r#""token_url": "{url}", "client_id": "a", "identity_assertion": {{"issuer": "https://as.example", "token_url": "https://as.example/token", "client_id": "b"}}"#
        );
        let without = refused(&format!("{{{assertion}}}"));
        assert!(without.starts_with("on_behalf_of.identity_assertion.resource: "));
        let twice = refused(&format!(r#"{{{assertion}, "audience": "c"}}"#));
        assert!(twice.starts_with("on_behalf_of.identity_assertion: "));
    }
}
