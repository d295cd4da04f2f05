//! The authorization server and its parts.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use url::Url;

use super::attempts::SecretAttempts;
use super::document::Documents;
use super::metadata;
use super::once::SingleUse;
use super::provider::Provider;
use super::visit::BrowserCookie;
use crate::auth::{DisplayName, DpopVerifier, FacadeConfig, FacadeSetupError};
use crate::net::{Client, ClientError, Deadlines, Guard};
use crate::seal::{KeyRing, SigningKeys};
use crate::state::SharedState;
use crate::telemetry::Metrics;

/// Time limit for requests to the provider and for client metadata documents.
const DEADLINE: Duration = Duration::from_secs(10);
/// Maximum size of their responses, in bytes.
const RESPONSE_MAX_BYTES: usize = 256 * 1024;
pub(super) const CALLBACK: &str = "/oauth/callback";

/// An OAuth authorization server in front of an identity provider.
#[derive(Debug)]
pub struct AuthorizationServer {
    pub(super) config: FacadeConfig,
    /// Issuer identifier: the public URL of the server's root, without a slash at its end.
    pub(super) issuer: String,
    /// Scheme, host and port of the issuer.
    pub(super) origin: String,
    pub(super) name: DisplayName,
    /// URLs of the MCP endpoints, the main one first.
    pub(super) resources: Vec<String>,
    pub(super) offer: ArcSwap<Offer>,
    /// The redirect URI that is registered at the provider.
    pub(super) callback: String,
    /// The cookie that binds logins to a browser.
    pub(super) cookie: BrowserCookie,
    /// True if the server is reached on this machine only, as in tests.
    pub(super) is_local: bool,
    pub(super) ring: Arc<KeyRing>,
    pub(super) keys: SigningKeys,
    pub(super) once: SingleUse,
    pub(super) provider: Provider,
    pub(super) documents: Documents,
    pub(super) attempts: SecretAttempts,
    /// Client for documents of strangers: public addresses only.
    pub(super) web: Client,
    /// Verifies the DPoP proofs of token requests.
    pub(super) dpop: DpopVerifier,
    /// True if every client must use DPoP.
    pub(super) requires_dpop: bool,
    pub(super) metrics: Metrics,
}

/// Scopes that clients may ask for, and the metadata documents with them.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) scopes: Vec<String>,
    pub(super) metadata: metadata::Documents,
}

impl Offer {
    fn new(issuer: &str, mut scopes: Vec<String>, config: &FacadeConfig) -> Self {
        scopes.extend_from_slice(&config.scopes);
        scopes.sort();
        scopes.dedup();
        Self {
            metadata: metadata::Documents::new(issuer, &scopes, config),
            scopes,
        }
    }
}

/// Parts that an authorization server is made of.
#[derive(Debug)]
pub struct Parts {
    pub config: FacadeConfig,
    /// Public URL of the server's root, without a slash at its end.
    pub issuer: String,
    pub name: DisplayName,
    /// URLs of the MCP endpoints, the main one first.
    pub resources: Vec<String>,
    /// Scopes that access rules name, which clients may ask for.
    pub scopes: Vec<String>,
    pub ring: Arc<KeyRing>,
    pub state: SharedState,
    pub metrics: Metrics,
    /// Verifies the DPoP proofs of token requests.
    pub dpop: DpopVerifier,
    /// True if every access token must be bound to a key of the client (DPoP).
    pub requires_dpop: bool,
}

/// Reason why an authorization server cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorizationServerError {
    #[error(transparent)]
    Config(#[from] FacadeSetupError),
    #[error("http.public_url {0:?} is not a valid URL for auth.oauth.facade")]
    PublicUrl(String),
    #[error("auth.oauth.facade cannot derive its signing keys from seal.keys")]
    Keys,
    #[error("auth.oauth.facade: cannot build the client for requests to the provider: {0}")]
    Client(#[from] ClientError),
}

impl AuthorizationServer {
    /// Builds the server. Nothing is fetched before the first login.
    ///
    /// # Errors
    ///
    /// A setting is missing or wrong.
    pub fn new(parts: Parts) -> Result<Self, AuthorizationServerError> {
        let Parts {
            config,
            issuer,
            name,
            resources,
            scopes,
            ring,
            state,
            metrics,
            dpop,
            requires_dpop,
        } = parts;
        config.check()?;
        let public = || AuthorizationServerError::PublicUrl(issuer.clone());
        let url = Url::parse(&issuer).map_err(|_| public())?;
        if resources.is_empty() {
            return Err(public());
        }
        let is_local = url.scheme() != "https";
        let provider = config.provider()?.url;
        let web = |guard: Guard| {
            Client::builder(guard)
                .redirects(0)
                .max_body(RESPONSE_MAX_BYTES)
                .deadlines(Deadlines::total(DEADLINE))
                .build()
        };
        let strangers = match is_local {
            true => Guard::public().allow_loopback(),
            false => Guard::public().https_only(),
        };
        let offer = Offer::new(&issuer, scopes, &config);
        Ok(Self {
            origin: url.origin().ascii_serialization(),
            callback: format!("{issuer}{CALLBACK}"),
            keys: SigningKeys::derive(&ring, metadata::SIGNING)
                .ok_or(AuthorizationServerError::Keys)?,
            provider: Provider::new(&config, web(Guard::public().trust(&provider))?)?,
            web: web(strangers)?,
            once: SingleUse::new(state),
            documents: Documents::new(),
            attempts: SecretAttempts::new(),
            config,
            issuer,
            name,
            resources,
            offer: ArcSwap::from_pointee(offer),
            cookie: BrowserCookie::new(!is_local),
            is_local,
            ring,
            metrics,
            dpop,
            requires_dpop,
        })
    }

    /// Replaces the scopes that access rules name. Clients may ask for them at once.
    pub fn offer_scopes(&self, scopes: Vec<String>) {
        let offer = Offer::new(&self.issuer, scopes, &self.config);
        self.offer.store(Arc::new(offer));
    }

    /// The public keys as a JWK set, in JSON.
    pub fn public_keys(&self) -> &str {
        self.keys.public()
    }
}
