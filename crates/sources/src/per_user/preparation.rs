//! Prepares logins: the issuer's metadata and the client's registration.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use super::super::credentials::issuer_client;
use super::super::login::{
    self, Issuer, LoginError, LoginRequest, PreparedLogin, endpoint, prepare,
};
use super::super::tokens::Grant;
use super::{METADATA_LIFE, UserLogins};
use crate::net::Guard;

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
        let issuer = match (&config.authorize_url, &config.token_url) {
            (Some(authorize), Some(token)) => {
                let origin = Url::parse(token).map(|url| url.origin().ascii_serialization());
                Issuer {
                    issuer: origin.unwrap_or_default(),
                    authorization_endpoint: Some(authorize.clone()),
                    token_endpoint: Some(token.clone()),
                    revocation_endpoint: config.revoke_url.clone(),
                    ..Issuer::default()
                }
            }
            _ => self.metadata().await?,
        };
        let authorize = issuer.authorization_endpoint.as_ref();
        let authorize = endpoint(authorize, "authorization_endpoint")?;
        let grant = Grant {
            resource: config.resource.clone().unwrap_or_default(),
            secret_in_form: issuer.takes_secret_in_form(),
            issuer: issuer.issuer,
            token_endpoint: issuer.token_endpoint.unwrap_or_default(),
            revocation_endpoint: issuer.revocation_endpoint,
            client_id: config.client_id.clone().unwrap_or_default(),
            scopes: config.scopes.clone(),
            is_configured: true,
            ..Grant::default()
        };
        Ok(PreparedLogin {
            authorize,
            grant,
            names_itself: issuer.authorization_response_iss_parameter_supported,
        })
    }

    /// Returns the metadata of the configured issuer. While it cannot be fetched, the latest is used.
    async fn metadata(&self) -> Result<Issuer, LoginError> {
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
            (Err(error), Some(known)) if !matches!(error, LoginError::OtherIssuer { .. }) => {
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
    async fn fetch_metadata(&self) -> Result<Issuer, LoginError> {
        let name = self.config.issuer.as_deref().unwrap_or_default();
        let url: Url = name
            .parse()
            .map_err(|_| LoginError::NoIssuer(name.to_owned()))?;
        let client = issuer_client(Guard::public().trust(&url))?;
        let found = login::issuer(&client, name).await?;
        found.endpoints(&client)?;
        Ok(found)
    }
}
