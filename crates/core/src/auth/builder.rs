//! Builds the authenticator from settings.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::api_key::ApiKeys;
use super::authenticator::ConfiguredMethod;
use super::certificate::Certificates;
use super::config::{AuthConfig, AuthMethodKind, AuthSetupError};
use super::credential_cache::Epoch;
use super::forwarded::Forwarded;
use super::oauth::{EndpointAudiences, Tokens};
use super::resource::{PublicUrl, Resource};
use super::scopes::Implied;
use super::{AuthMethod, Authenticator, DisplayName, Principal};
use crate::net::{self, TrustedProxies};
use crate::telemetry::{self, Metrics, ServerLifecycle};

/// Interval between checks of the key files.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The authenticator and its background work.
#[derive(Debug)]
pub struct Authentication {
    pub gate: Arc<Authenticator>,
    keys: Option<Arc<ApiKeys>>,
    tokens: Option<Tokens>,
}

/// Facts about the server that authentication needs.
#[derive(Clone, Copy, Debug)]
pub struct ServerFacts<'p> {
    /// Name of the server.
    pub name: &'p str,
    /// The public URL of the server.
    pub public_url: Option<&'p str>,
    pub trusted: &'p TrustedProxies,
    /// Its endpoints beside `/mcp`.
    pub endpoints: &'p [EndpointScopes],
    /// True if the server itself serves HTTPS.
    pub serves_tls: bool,
    /// True if clients are asked for certificates.
    pub asks_for_certificates: bool,
}

/// Facts about an endpoint besides `/mcp`.
#[derive(Clone, Debug)]
pub struct EndpointScopes {
    pub name: Box<str>,
    /// Accepted token audiences. Empty to derive them from the other settings.
    pub audience: Vec<String>,
    /// Scopes that each request to the endpoint needs.
    pub scopes: Vec<String>,
}

/// Builds the verification of access tokens.
fn access_tokens(
    config: &AuthConfig,
    server: &ServerFacts<'_>,
    public: Option<&PublicUrl>,
) -> Result<Tokens, AuthSetupError> {
    let implied = Implied::new(&config.implied_scopes);
    let endpoint = public.map(PublicUrl::endpoint);
    let tokens = Tokens::new(&config.oauth, &implied, endpoint.as_deref())?;
    let each = server.endpoints.iter().map(|named| EndpointAudiences {
        name: named.name.clone(),
        configured: named.audience.clone(),
        derived: endpoint.as_ref().map_or_else(Vec::new, |endpoint| {
            let url = format!("{endpoint}/{}", named.name);
            vec![format!("{url}/"), url]
        }),
    });
    Ok(tokens.with_endpoints(each.collect()))
}

impl Authentication {
    /// Builds the authenticator. `custom` are methods of the application, which run first.
    pub fn new(
        config: &AuthConfig,
        server: ServerFacts<'_>,
        custom: Vec<Arc<dyn AuthMethod>>,
    ) -> Result<Self, AuthSetupError> {
        let mut methods: Vec<_> = custom.into_iter().map(ConfiguredMethod::Each).collect();
        let changes = Epoch::default();
        let mut keys = None;
        let mut tokens = None;
        let public = server.public_url.and_then(PublicUrl::parse);
        for kind in config.kinds() {
            let (name, setting) = kind.names();
            if !config.has(kind) {
                return Err(AuthSetupError::NotConfigured {
                    kind: name,
                    setting,
                });
            }
            match kind {
                AuthMethodKind::ApiKey => {
                    let known = Arc::new(ApiKeys::new(config)?.noting(changes.clone()));
                    methods.push(ConfiguredMethod::Lasting(Arc::<ApiKeys>::clone(&known)));
                    keys = Some(known);
                }
                AuthMethodKind::OAuth => {
                    let method = access_tokens(config, &server, public.as_ref())?.noting(&changes);
                    methods.push(ConfiguredMethod::Lasting(Arc::new(method.clone())));
                    tokens = Some(method);
                }
                AuthMethodKind::Certificate => {
                    if !server.asks_for_certificates {
                        return Err(AuthSetupError::NoCertificates {
                            setting: "auth.certificate.name",
                        });
                    }
                    if let Some(certificates) = Certificates::new(&config.certificate)? {
                        methods.push(ConfiguredMethod::Lasting(Arc::new(certificates)));
                    }
                }
                AuthMethodKind::Forwarded => {
                    if !config.forwarded.certificates.is_empty() && !server.asks_for_certificates {
                        return Err(AuthSetupError::NoCertificates {
                            setting: "auth.forwarded.certificates",
                        });
                    }
                    if let Some(forwarded) = Forwarded::new(&config.forwarded, server.trusted)? {
                        methods.push(ConfiguredMethod::Each(Arc::new(forwarded)));
                    }
                }
            }
        }
        let anonymous = config.anonymous.as_deref();
        if let Some(name) = anonymous.filter(|name| !is_free(name)) {
            return Err(AuthSetupError::Anonymous {
                name: name.to_owned(),
            });
        }
        let resource = Resource {
            issuers: tokens.as_ref().map(Tokens::issuers).unwrap_or_default(),
            scopes: match tokens {
                Some(_) => config.oauth.scopes.clone(),
                None => Vec::new(),
            },
            public,
            trusted: server.trusted.clone(),
            serves_tls: server.serves_tls,
            endpoints: server
                .endpoints
                .iter()
                .map(|endpoint| (endpoint.name.clone(), endpoint.scopes.clone()))
                .collect(),
            metadata_url: config.oauth.metadata_url.clone(),
            checks_certificates: server.asks_for_certificates,
            dpop_algorithms: match tokens {
                Some(_) => Tokens::DPOP_ALGORITHMS,
                None => &[],
            },
            requires_dpop: tokens.is_some() && config.oauth.dpop.required,
            name: DisplayName::new(server.name),
        };
        Ok(Self {
            gate: Arc::new(
                Authenticator::new(methods, anonymous)
                    .noticing(changes)
                    .with_resource(resource)
                    .with_sizes(config.token_bytes, config.key_bytes),
            ),
            keys,
            tokens,
        })
    }

    /// Returns the API keys for a configuration reload, or `None` if keys are not a method.
    pub fn keys(&self) -> Option<Arc<ApiKeys>> {
        self.keys.clone()
    }

    /// Returns the verification of access tokens for a configuration reload, or `None` if tokens are not a method.
    pub fn tokens(&self) -> Option<Tokens> {
        self.tokens.clone()
    }

    /// Returns the server's name for people, which a configuration reload can change.
    pub fn display_name(&self) -> DisplayName {
        self.gate.display_name()
    }

    /// Returns the principal of an API key's holder.
    pub fn holder(&self, name: &str) -> Option<Arc<Principal>> {
        self.keys.as_ref()?.principal(name)
    }

    /// Installs a fixed key set for token verification, without fetching it.
    pub fn hold(&self, keys: &str) {
        if let Some(tokens) = &self.tokens {
            tokens.hold(keys);
        }
    }

    /// Makes principals hold their access token, for sources and upstream servers that exchange it.
    pub fn keep_tokens(&self) {
        if let Some(tokens) = &self.tokens {
            tokens.keep_tokens();
        }
    }

    /// Sets the verifier of DPoP proofs, so that replicas share what they have seen.
    #[cfg(feature = "oauth")]
    pub fn verify_proofs_by(&self, verifier: super::DpopVerifier) {
        if let Some(tokens) = &self.tokens {
            tokens.verify_proofs_by(verifier);
        }
    }

    /// Condition for readiness, if there is one.
    pub fn awaited(&self, life: &ServerLifecycle) -> Option<Arc<telemetry::ReadinessGate>> {
        let tokens = self.tokens.as_ref();
        tokens.map(|_| life.gate("keys of the issuers of tokens"))
    }

    /// Registers metrics for the age of issuer keys.
    pub fn show(&self, metrics: &Metrics) {
        if let Some(tokens) = &self.tokens {
            tokens.show(metrics);
        }
    }

    /// Reads again what may have changed, for as long as it is polled.
    /// `gate` is what [`awaited`](Self::awaited) returned.
    pub async fn refresh_keys(&self, gate: Option<&telemetry::ReadinessGate>) -> Infallible {
        let keys = async {
            match &self.keys {
                Some(keys) if keys.is_watched() => look_again(keys).await,
                _ => std::future::pending().await,
            }
        };
        let tokens = async {
            match &self.tokens {
                Some(tokens) => tokens.refresh_keys(gate).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = keys => never,
            never = tokens => never,
        }
    }
}

async fn look_again(keys: &Arc<ApiKeys>) -> Infallible {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let keys = Arc::clone(keys);
        // File systems can be slow, and this thread serves other tasks.
        let _ = net::spawn_blocking(move || keys.refresh()).await;
    }
}

/// Returns true if the name has none of the reserved prefixes.
fn is_free(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_graphic() && b != b':';
    (1..=64).contains(&name.len()) && name.bytes().all(good) && name != "local"
}
