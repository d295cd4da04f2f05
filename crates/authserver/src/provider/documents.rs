//! Metadata and keys of the provider: fetched on first use, and again when they are old or lack a key.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::{OAuthError, Provider};
use crate::auth::{IssuerKeys, ProviderKind, strict_object};
use crate::net::OutgoingRequest;

/// Time for which metadata and keys are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// Time for which old ones are used without another attempt after a failed one.
const KEPT_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// Shortest time between two fetches of the keys because of an unknown key.
const UNKNOWN_KEY_EVERY: Duration = Duration::from_secs(60);

/// Metadata and keys of a provider.
#[derive(Debug)]
pub(super) struct ProviderDocuments {
    pub(super) authorization: Url,
    pub(super) token: Url,
    pub(super) keys: IssuerKeys,
    /// The userinfo endpoint, or the API for the user.
    pub(super) user: Option<Url>,
    pub(super) sends_issuer: bool,
    pub(super) basic: bool,
    since: Instant,
}

/// A failed fetch.
#[derive(Debug)]
pub(super) struct FailedFetch {
    at: Instant,
    error: OAuthError,
}

impl Provider {
    /// Returns metadata and keys, fetched at most once an hour.
    pub(super) async fn known(&self) -> Result<Arc<ProviderDocuments>, OAuthError> {
        let fresh = |known: &Arc<ProviderDocuments>| known.since.elapsed() < KEPT;
        let known = self.known.load_full();
        if let Some(known) = known.filter(fresh) {
            return Ok(known);
        }
        let began = Instant::now();
        let mut failed = self.fetching.lock().await;
        let stale = self.known.load_full();
        if let Some(known) = stale.clone().filter(fresh) {
            return Ok(known);
        }
        // Stale metadata is better than no login. Logins that waited for a failed fetch would otherwise repeat it one after
        // another.
        let is_recent = |failed: &&FailedFetch| {
            began <= failed.at || (stale.is_some() && failed.at.elapsed() < KEPT_AFTER_FAILURE)
        };
        if let Some(failed) = failed.as_ref().filter(is_recent) {
            return stale.ok_or_else(|| failed.error.clone());
        }
        match self.fetch_documents(&mut failed).await {
            Ok(known) => Ok(known),
            Err(error) => stale.ok_or(error),
        }
    }

    /// Fetches the keys again because one is unknown.
    pub(super) async fn newer_keys(
        &self,
        known: &Arc<ProviderDocuments>,
    ) -> Result<Arc<ProviderDocuments>, OAuthError> {
        let began = Instant::now();
        let mut failed = self.fetching.lock().await;
        let current = self.known.load_full();
        if let Some(current) = current
            && (!Arc::ptr_eq(&current, known) || current.since.elapsed() < UNKNOWN_KEY_EVERY)
        {
            return Ok(current);
        }
        if let Some(failed) = failed.as_ref().filter(|failed| began <= failed.at) {
            return Err(failed.error.clone());
        }
        self.fetch_documents(&mut failed).await
    }

    async fn fetch_documents(
        &self,
        failed: &mut Option<FailedFetch>,
    ) -> Result<Arc<ProviderDocuments>, OAuthError> {
        match self.discover().await {
            Ok(known) => {
                let known = Arc::new(known);
                self.known.store(Some(Arc::clone(&known)));
                *failed = None;
                Ok(known)
            }
            Err(error) => {
                *failed = Some(FailedFetch {
                    at: Instant::now(),
                    error: error.clone(),
                });
                Err(error)
            }
        }
    }

    async fn discover(&self) -> Result<ProviderDocuments, OAuthError> {
        if let ProviderKind::Plain = self.kind {
            let url = |text: &str| Url::parse(text).map_err(|_| self.odd("a URL is not valid"));
            return Ok(ProviderDocuments {
                authorization: url("https://github.com/login/oauth/authorize")?,
                token: url("https://github.com/login/oauth/access_token")?,
                keys: IssuerKeys::default(),
                user: Some(url("https://api.github.com/user")?),
                sends_issuer: false,
                basic: false,
                since: Instant::now(),
            });
        }
        let base = self.issuer.trim_end_matches('/');
        let document = format!("{base}/.well-known/openid-configuration");
        let document = Url::parse(&document).map_err(|_| self.odd("its URL is not valid"))?;
        let answer = self
            .fetch(OutgoingRequest::get(document), "metadata")
            .await?;
        let found = strict_object(&answer.body).filter(|_| answer.status == StatusCode::OK);
        let found = found.ok_or_else(|| self.odd("it has no OpenID metadata"))?;
        let text = |name: &str| found.get(name).and_then(Value::as_str);
        if text("issuer") != Some(&self.issuer) {
            return Err(self.odd(
                "its metadata names another issuer; write auth.oauth.facade.provider as it does",
            ));
        }
        let url = |name: &str| -> Result<Url, OAuthError> {
            let url = text(name).and_then(|text| Url::parse(text).ok());
            let url = url.ok_or_else(|| self.odd("its metadata lacks an endpoint"))?;
            self.web
                .guard()
                .check_url(&url)
                .map_err(|_| self.odd("an endpoint in its metadata is not allowed"))?;
            Ok(url)
        };
        let keys_url = url("jwks_uri")?;
        let answer = self.fetch(OutgoingRequest::get(keys_url), "keys").await?;
        let keys = IssuerKeys::read(&answer.body).map_err(|error| {
            tracing::warn!(provider = self.host, %error, "cannot read the keys of the identity provider");
            self.odd("its keys cannot be used")
        })?;
        let methods = found
            .get("token_endpoint_auth_methods_supported")
            .and_then(Value::as_array);
        Ok(ProviderDocuments {
            authorization: url("authorization_endpoint")?,
            token: url("token_endpoint")?,
            keys,
            user: found
                .get("userinfo_endpoint")
                .and_then(|_| url("userinfo_endpoint").ok()),
            sends_issuer: found.get("authorization_response_iss_parameter_supported")
                == Some(&Value::Bool(true)),
            // The default of OpenID Connect Discovery.
            basic: methods.is_none_or(|list| list.iter().any(|one| one == "client_secret_basic")),
            since: Instant::now(),
        })
    }
}
