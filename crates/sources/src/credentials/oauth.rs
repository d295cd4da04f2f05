//! Tokens that an issuer grants to this program by its configured credentials.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::assertion::{AssertionGrant, JWT_BEARER};
use super::config::OAuthConfig;
use super::dpop_key::{AccessToken, DpopKey, demanded_nonce};
use super::error::CredentialError;
use super::token_request::{read_answer, read_token, token_endpoint, token_request};
use crate::net::{Client, OutgoingRequest};
use crate::source::tokens::{Grant, Granted, Name};

/// An issuer, and the credentials for it.
pub(crate) struct Issuer {
    config: OAuthConfig,
    url: Url,
    client: Client,
    /// The issuer of the other server, if `url` is that of an identity provider.
    assertion: Option<AssertionGrant>,
    /// The key that tokens are bound to.
    key: Option<Arc<DpopKey>>,
}

/// Assumed lifetime of a token if the issuer does not state one.
const TOKEN_LIFE: Duration = Duration::from_secs(300);
/// Time for which calls share a failure: those that waited for it, and one that needs the token again at once.
const SHARED: Duration = Duration::from_secs(1);
/// Maximum time between renewals, for tokens with a longer lifetime.
const TOKEN_LIFE_MAX: Duration = Duration::from_secs(24 * 3600);

impl Issuer {
    pub(super) fn new(config: &OAuthConfig, server: Option<&Url>) -> Result<Self, String> {
        let (url, client) = token_endpoint(&config.token_url)?;
        let grants = [
            ("refresh_token", config.refresh_token.is_some()),
            ("subject_token_file", config.subject_token_file.is_some()),
            ("assertion_file", config.assertion_file.is_some()),
        ];
        let mut set = grants.iter().filter(|(_, is_set)| *is_set);
        match (set.next(), set.next()) {
            (Some((one, _)), Some((other, _))) => {
                return Err(format!("oauth has a {one} and a {other}; keep one of them"));
            }
            (None, _) if config.client_secret.is_none() && config.client_key.is_none() => {
                return Err(
                    "oauth needs a client_secret, a client_key, a refresh_token, a subject_token_file or an assertion_file"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if let Some(key) = &config.client_key {
            if config.client_secret.is_some() {
                return Err(
                    "oauth has a client_secret and a client_key; keep one of them".to_owned(),
                );
            }
            key.check()
                .map_err(|e| format!("oauth.client_key.file {}: {e}", key.file.display()))?;
        }
        let assertion = match &config.identity_assertion {
            None => None,
            Some(_) if config.subject_token_file.is_none() => {
                return Err(
                    "oauth.identity_assertion needs a subject_token_file: the token to exchange for an assertion"
                        .to_owned(),
                );
            }
            Some(_) if config.audience.is_some() || config.resource.is_some() => {
                return Err(
                    "oauth has an identity_assertion, which names audience and resource; remove oauth.audience and oauth.resource"
                        .to_owned(),
                );
            }
            Some(assertion) => {
                let grant = AssertionGrant::new(assertion, server);
                Some(grant.map_err(|problem| format!("oauth.{problem}"))?)
            }
        };
        if config.dpop && config.refresh_token.is_some() {
            return Err(
                "oauth.dpop is for credentials that can be used again; remove it, or use `longshore login` instead of a refresh_token"
                    .to_owned(),
            );
        }
        let key = match config.dpop {
            true => Some(DpopKey::generate().and_then(|key| DpopKey::read(&key))),
            false => None,
        };
        let key = key.transpose().map_err(|error| error.to_string())?;
        let key = key.map(Arc::new);
        Ok(Self {
            config: config.clone(),
            url,
            client,
            assertion,
            key,
        })
    }

    /// Returns the name under which tokens from a refresh token are stored. All others can be requested again and are
    /// not stored.
    pub(super) fn name(&self) -> Option<Name> {
        let config = &self.config;
        let first = config.refresh_token.as_ref()?.expose();
        let resource = config.resource.as_deref().unwrap_or_default();
        Some(Name::of_token(
            &self.url,
            &config.client_id,
            resource,
            first,
        ))
    }

    /// Returns the grant before any token was requested.
    pub(super) fn first(&self) -> Grant {
        let config = &self.config;
        Grant {
            resource: config.resource.clone().unwrap_or_default(),
            issuer: self.url.as_str().to_owned(),
            token_endpoint: self.url.as_str().to_owned(),
            // The secret comes from the configuration and may change, so it is left out.
            client_id: config.client_id.clone(),
            refresh_token: config
                .refresh_token
                .as_ref()
                .map(|first| first.expose().to_owned()),
            scopes: config.scopes.clone(),
            ..Grant::default()
        }
    }

    /// Requests a token: with a refresh token if there is one, else with the configured credentials.
    pub(super) async fn ask(
        &self,
        refresh_token: Option<&str>,
    ) -> Result<Granted, CredentialError> {
        let request = self.request(refresh_token)?;
        let key = self.key.as_deref();
        let answer = match (&self.assertion, key) {
            (Some(assertion), key) => {
                let answer = self.client.fetch(request).await?;
                assertion.redeem(&answer, key).await?
            }
            (None, Some(key)) => key.fetch(&self.client, request).await?,
            (None, None) => self.client.fetch(request).await?,
        };
        let mut granted: Granted = read_answer(&answer)?;
        if !granted.has_token() {
            return Err(CredentialError::NoToken);
        }
        if key.is_some() && !granted.is_bound() {
            return Err(CredentialError::NotBound);
        }
        let life = granted.expires_in;
        let life = life.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let life = life.filter(|life| !life.is_zero() || refresh_token.is_some());
        let life = life.unwrap_or(TOKEN_LIFE).min(TOKEN_LIFE_MAX);
        granted.expires_in = Some(life.as_secs_f64());
        Ok(granted)
    }

    fn request(&self, refresh_token: Option<&str>) -> Result<OutgoingRequest, CredentialError> {
        let config = &self.config;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        if let Some(refresh_token) = refresh_token {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("refresh_token", refresh_token);
        } else if let Some(file) = &config.subject_token_file {
            let subject = read_token(file).map_err(CredentialError::File)?;
            let kind = config.subject_token_type.as_deref();
            form.append_pair("grant_type", TOKEN_EXCHANGE);
            form.append_pair("subject_token", &subject);
            form.append_pair("subject_token_type", kind.unwrap_or(JWT));
            AssertionGrant::request_token(self.assertion.as_ref(), &mut form);
        } else if let Some(file) = &config.assertion_file {
            let assertion = read_token(file).map_err(CredentialError::File)?;
            form.append_pair("grant_type", JWT_BEARER);
            form.append_pair("assertion", &assertion);
        } else {
            form.append_pair("grant_type", "client_credentials");
        }
        if !config.scopes.is_empty() {
            form.append_pair("scope", &config.scopes.join(" "));
        }
        if let Some(audience) = &config.audience {
            form.append_pair("audience", audience);
        }
        if let Some(resource) = &config.resource {
            form.append_pair("resource", resource);
        }
        if let Some(key) = &config.client_key {
            key.sign(&config.client_id, &config.token_url, &mut form)?;
        }
        let secret = config.client_secret.as_ref().map(|secret| secret.expose());
        let proof = (config.client_id.as_str(), secret, false);
        token_request(self.url.clone(), form, proof)
    }
}

/// Token cache for reusable credentials, with one request at a time. Tokens are not stored.
pub struct OAuth {
    issuer: Issuer,
    cached: Mutex<Cached>,
}

#[derive(Default)]
struct Cached {
    token: Option<(Grant, AccessToken)>,
    /// Latest failed request, and its end.
    failed: Option<(Instant, Arc<CredentialError>)>,
}

impl Cached {
    /// Returns the token that is due for a renewal, if it has not expired; else the reason why there is no other.
    fn without(&self, error: &Arc<CredentialError>) -> Result<AccessToken, CredentialError> {
        match &self.token {
            Some((grant, known)) if grant.is_valid(SystemTime::now()) => Ok(known.clone()),
            _ => Err(CredentialError::Shared(Arc::clone(error))),
        }
    }
}

impl OAuth {
    pub(super) fn new(issuer: Issuer) -> Self {
        Self {
            issuer,
            cached: Mutex::default(),
        }
    }

    /// Returns a valid token. Concurrent callers wait for the request under way, and share its failure.
    pub(super) async fn token(&self) -> Result<AccessToken, CredentialError> {
        let began = Instant::now();
        let mut cached = self.cached.lock().await;
        if let Some((grant, known)) = &cached.token
            && grant.is_fresh(SystemTime::now())
        {
            return Ok(known.clone());
        }
        if let Some((at, error)) = &cached.failed
            && began < *at + SHARED
        {
            return cached.without(error);
        }
        match self.request().await {
            Ok((grant, new)) => {
                cached.token = Some((grant, new.clone()));
                cached.failed = None;
                Ok(new)
            }
            Err(error) => {
                let error = Arc::new(error);
                cached.failed = Some((Instant::now(), Arc::clone(&error)));
                cached.without(&error)
            }
        }
    }

    async fn request(&self) -> Result<(Grant, AccessToken), CredentialError> {
        let mut grant = self.issuer.first();
        grant.take(self.issuer.ask(None).await?, SystemTime::now());
        let token = AccessToken::new(&grant.access_token, self.issuer.key.clone())?;
        Ok((grant, token))
    }

    /// Drops a token that the server rejected, unless the server only demands a nonce. `response` has the headers of the
    /// rejection.
    pub(super) async fn refused(&self, used: Option<&HeaderValue>, response: &HeaderMap) {
        let mut cached = self.cached.lock().await;
        if demanded_nonce(response).is_some() {
            if let Some((_, token)) = &cached.token {
                token.takes_nonce(response);
            }
            return;
        }
        // Another call may have requested a new one already.
        if cached.token.as_ref().map(|(_, token)| &token.value) == used {
            cached.token = None;
        }
    }
}

pub(super) const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
