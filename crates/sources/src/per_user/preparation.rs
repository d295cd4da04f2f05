//! Prepares logins: the issuer's metadata and the client's registration.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use super::super::credentials::issuer_client;
use super::super::login::{LoginError, LoginRequest, PreparedLogin, cut, prepare};
use super::super::tokens::{Grant, is_same_issuer};
use super::{METADATA_LIFE, UserLogins};
use crate::net::{Guard, OutgoingRequest};

/// Endpoints of an issuer.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

impl UserLogins {
    pub(super) async fn prepare(&self, redirect: &str) -> Result<PreparedLogin, LoginError> {
        let config = &self.config;
        match &self.server {
            Some(server) if config.authorize_url.is_none() => {
                let request = LoginRequest {
                    server: server.clone(),
                    tokens: self.tokens.clone(),
                    client_id: config.client_id.clone(),
                    client_secret: config.client_secret.clone(),
                    client_metadata: None,
                    issuer: config.issuer.clone(),
                    scopes: config.scopes.clone(),
                    port: 0,
                    networks: Vec::new(),
                    patience: Duration::ZERO,
                };
                let mut prepared = prepare(&request, None, redirect, &self.registrations).await?;
                if config.client_secret.is_some() {
                    prepared.grant.client_secret = None;
                }
                Ok(prepared)
            }
            _ => self.prepare_configured().await,
        }
    }

    /// Prepares a login at an issuer that the configuration names.
    async fn prepare_configured(&self) -> Result<PreparedLogin, LoginError> {
        let config = &self.config;
        let metadata = match (&config.authorize_url, &config.token_url) {
            (Some(authorize), Some(token)) => {
                let origin = Url::parse(token).map(|url| url.origin().ascii_serialization());
                Metadata {
                    issuer: origin.unwrap_or_default(),
                    authorization_endpoint: authorize.clone(),
                    revocation_endpoint: config.revoke_url.clone(),
                    token_endpoint: token.clone(),
                    authorization_response_iss_parameter_supported: false,
                    token_endpoint_auth_methods_supported: Vec::new(),
                }
            }
            _ => self.metadata().await?,
        };
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let takes = |method: &str| methods.iter().any(|known| known == method);
        let grant = Grant {
            resource: config.resource.clone().unwrap_or_default(),
            issuer: metadata.issuer,
            token_endpoint: metadata.token_endpoint,
            revocation_endpoint: metadata.revocation_endpoint,
            client_id: config.client_id.clone().unwrap_or_default(),
            secret_in_form: takes("client_secret_post") && !takes("client_secret_basic"),
            scopes: config.scopes.clone(),
            is_configured: true,
            ..Grant::default()
        };
        Ok(PreparedLogin {
            authorize: metadata
                .authorization_endpoint
                .parse()
                .map_err(|_| LoginError::NoEndpoint("authorization_endpoint"))?,
            grant,
            names_itself: metadata.authorization_response_iss_parameter_supported,
        })
    }

    /// Returns the metadata of the configured issuer. While it cannot be fetched, the latest is used.
    async fn metadata(&self) -> Result<Metadata, LoginError> {
        let known = self.metadata.load_full();
        if let Some(known) = &known
            && known.0.elapsed() < METADATA_LIFE
        {
            return Ok(known.1.clone());
        }
        match (self.fetch_metadata().await, known) {
            (Ok(metadata), _) => {
                let known = Arc::new((Instant::now(), metadata.clone()));
                self.metadata.store(Some(known));
                Ok(metadata)
            }
            (Err(LoginError::Fetch(error)), Some(known)) => {
                tracing::info!(
                    source = %self.source,
                    %error,
                    "the metadata of an issuer cannot be fetched; the latest is used"
                );
                Ok(known.1.clone())
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Fetches the metadata of the configured issuer (RFC 8414, OpenID Connect Discovery).
    async fn fetch_metadata(&self) -> Result<Metadata, LoginError> {
        let issuer = self.config.issuer.as_deref().unwrap_or_default();
        let none = || LoginError::NoIssuer(issuer.to_owned());
        let url: Url = issuer.parse().map_err(|_| none())?;
        let client = issuer_client(Guard::public().trust(&url))?;
        let path = url.path().trim_end_matches('/');
        let paths = [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("{path}/.well-known/openid-configuration"),
        ];
        for path in paths {
            let mut document = url.clone();
            document.set_path(&path);
            document.set_query(None);
            let answer = client.fetch(OutgoingRequest::get(document)).await?;
            let found = serde_json::from_slice::<Metadata>(&answer.body);
            let Some(found) = found.ok().filter(|_| answer.status.is_success()) else {
                continue;
            };
            if !is_same_issuer(&found.issuer, issuer) {
                return Err(LoginError::OtherIssuer {
                    found: cut(&found.issuer),
                    wanted: issuer.to_owned(),
                });
            }
            for endpoint in [&found.authorization_endpoint, &found.token_endpoint] {
                let url = Url::parse(endpoint).map_err(|_| none())?;
                client.guard().check_url(&url)?;
            }
            return Ok(found);
        }
        Err(none())
    }
}
