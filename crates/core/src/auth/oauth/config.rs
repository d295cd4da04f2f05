//! Access token settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(feature = "oauth")]
use url::Url;

use super::facade::{FacadeConfig, FacadeSetupError};
use super::preset::Preset;
use crate::environment::Secret;
#[cfg(feature = "oauth")]
use crate::environment::without_user;

/// OAuth 2.1 access tokens: this server is a resource server, and other servers issue the tokens.
///
/// ```toml
/// [http]
/// public_url = "https://mcp.example.com"
///
/// [auth.oauth]
/// issuer = "https://id.example.com"
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OAuthConfig {
    /// Issuer of accepted tokens, exactly as in their `iss` claim: `https://id.example.com`.
    pub issuer: Option<String>,
    /// Product of the issuer. If unset: derived from the issuer's URL, else `generic`.
    pub preset: Option<Preset>,
    /// Accepted audiences of tokens. If empty: the URL of the endpoint, derived from `http.public_url`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub audience: Vec<String>,
    /// URL of the issuer's keys. If unset: discovered.
    pub jwks_url: Option<String>,
    /// Claim with the caller's groups; a dot selects a member of an object: `realm_access.roles`. If unset: by
    /// `preset`, else `groups`.
    pub groups_claim: Option<String>,
    /// Scopes that every access token needs. Other credentials do not need them; `endpoints.<name>.scopes` applies to
    /// all credentials.
    #[serde(deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// Tolerated clock difference to the issuer, in seconds; at most 60.
    pub leeway_seconds: u64,
    /// URL of the protected resource metadata that clients are directed to. If unset: derived from
    /// `http.public_url`, else from the request.
    pub metadata_url: Option<String>,
    /// Introspection of the tokens of `issuer` (RFC 7662), for tokens that only the issuer can read.
    pub introspection: IntrospectionConfig,
    /// Access tokens that are bound to a key of the client (DPoP).
    pub dpop: DpopConfig,
    /// Further issuers.
    pub issuers: Vec<IssuerConfig>,
    /// Authorization server of this server's own, in front of an identity provider.
    pub facade: FacadeConfig,
}

impl Default for OAuthConfig {
    fn default() -> Self {
        Self {
            issuer: None,
            preset: None,
            audience: Vec::new(),
            jwks_url: None,
            groups_claim: None,
            scopes: Vec::new(),
            leeway_seconds: LEEWAY_MAX,
            metadata_url: None,
            introspection: IntrospectionConfig::default(),
            dpop: DpopConfig::default(),
            issuers: Vec::new(),
            facade: FacadeConfig::default(),
        }
    }
}

/// Access tokens that are bound to a key of the client (DPoP, RFC 9449): a stolen token cannot be used without the key.
///
/// Bound tokens are always accepted, and always need a DPoP proof. These settings ask for more.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DpopConfig {
    /// Reject access tokens that are not bound to a key of the client.
    pub required: bool,
    /// Require a nonce of this server in each DPoP proof, so that none can be made in advance. Replicas need the same
    /// `seal.keys`.
    pub nonces: bool,
}

/// Introspection of access tokens at their issuer (RFC 7662).
///
/// All tokens of `auth.oauth.issuer` are then verified by the issuer, and none by its signature.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IntrospectionConfig {
    /// URL of the issuer's introspection endpoint. Setting it enables introspection.
    pub url: Option<String>,
    /// Client ID of this server at the issuer.
    pub client_id: String,
    /// Client secret of this server at the issuer.
    pub client_secret: Option<Secret>,
    /// Way to send the client ID and secret.
    pub method: IntrospectionMethod,
    /// Maximum time for which a result is reused, in seconds; from 1 to 300. A revoked token is accepted for at most
    /// that long.
    pub cache_seconds: u64,
    /// Reject tokens whose introspection response has no `aud`. Without it, a token that was issued for another server
    /// is accepted.
    pub require_audience: bool,
}

impl Default for IntrospectionConfig {
    fn default() -> Self {
        Self {
            url: None,
            client_id: String::new(),
            client_secret: None,
            method: IntrospectionMethod::default(),
            cache_seconds: 60,
            require_audience: true,
        }
    }
}

impl IntrospectionConfig {
    /// Returns true if any part of it is set.
    #[cfg(feature = "oauth")]
    pub(super) fn is_set(&self) -> bool {
        self.url.is_some() || !self.client_id.is_empty() || self.client_secret.is_some()
    }
}

/// Way to send client ID and secret (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum IntrospectionMethod {
    /// In the header `Authorization`.
    #[default]
    Basic,
    /// In the body.
    Post,
}

/// Maximum clock difference, in seconds.
const LEEWAY_MAX: u64 = 60;
/// Maximum number of issuers.
const ISSUERS_MAX: usize = 32;

/// An additional token issuer.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// Issuer, exactly as in the `iss` claim of its tokens.
    pub issuer: String,
    /// Name of the issuer in principal names. If unset: its host and path.
    #[serde(default)]
    pub name: Option<String>,
    /// Product of the issuer. If unset: derived from its URL, else `generic`.
    #[serde(default)]
    pub preset: Option<Preset>,
    /// Accepted audiences of its tokens. If empty: those of the first issuer.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub audience: Vec<String>,
    /// URL of its keys. If unset: discovered.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Claim with the caller's groups. If unset: by `preset`, else `groups`.
    #[serde(default)]
    pub groups_claim: Option<String>,
}

/// Error in the access token settings.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OAuthSetupError {
    /// The issuer is not a valid URL.
    #[error(
        "{setting} is {text:?}; write an https URL without a query, a fragment or a user name, exactly as the issuer writes it (http is for this machine only)"
    )]
    Issuer {
        /// Name of the setting.
        setting: String,
        /// Its value.
        text: String,
    },
    /// An issuer is configured twice.
    #[error("the issuer {issuer:?} is configured twice; configure it once")]
    Twice {
        /// The issuer.
        issuer: String,
    },
    /// The name of an issuer cannot be used.
    #[error("{setting} is {name:?}; write a name without # that no other issuer has")]
    Name {
        /// Name of the setting.
        setting: String,
        /// The name.
        name: String,
    },
    /// There are too many issuers.
    #[error("there are more than 32 issuers")]
    TooMany,
    /// No URL.
    #[error(
        "{setting} is {text:?}; write a URL with https and without a user name (http is for this machine only)"
    )]
    Url {
        /// Name of the setting.
        setting: String,
        /// Its value.
        text: String,
    },
    /// The audience is unknown.
    #[error(
        "the audience of tokens of {issuer} is unknown; set http.public_url to the URL that clients use, or auth.oauth.audience to the value that the issuer writes into tokens"
    )]
    NoAudience {
        /// The issuer.
        issuer: String,
    },
    /// The audience is invalid.
    #[error(
        "auth.oauth.audience has {text:?}, which cannot be in a token; write one audience exactly as the issuer writes it into `aud`"
    )]
    Audience {
        /// Its value.
        text: String,
    },
    /// The scope is invalid.
    #[error(
        "auth.oauth.scopes has {text:?}, which is not a valid scope; a scope has visible ASCII characters without quotation marks and backslashes. offline_access cannot be required, because it concerns only clients and issuers"
    )]
    Scope {
        /// Its value.
        text: String,
    },
    /// The introspection of tokens is not set up correctly.
    #[error("auth.oauth.introspection.{setting}: {problem}")]
    Introspection {
        /// Name of the setting below `auth.oauth.introspection`.
        setting: &'static str,
        /// Description of the error.
        problem: &'static str,
    },
    /// The clock difference is too large.
    #[error("auth.oauth.leeway_seconds is {0}; set it to at most 60")]
    Leeway(u64),
    /// The authorization server cannot be built.
    #[error(transparent)]
    Facade(#[from] FacadeSetupError),
    /// This build has no access token verification.
    #[error(
        "auth.oauth requires the feature `oauth`, which this build does not have; enable the feature, or remove the setting"
    )]
    NotBuilt,
    /// The HTTP client that fetches the issuers' keys cannot be created.
    #[error("the client that asks issuers for their keys cannot be made: {0}")]
    Client(String),
}

/// Accepted token audiences of an endpoint besides `/mcp`.
#[derive(Clone, Debug)]
pub(crate) struct EndpointAudiences {
    pub(crate) name: Box<str>,
    /// Audiences from the endpoint's settings.
    pub(crate) configured: Vec<String>,
    /// The endpoint's URL, with and without a trailing slash (RFC 8707).
    pub(crate) derived: Vec<String>,
}

impl OAuthConfig {
    /// Returns true if any issuer is configured.
    pub fn is_configured(&self) -> bool {
        self.issuer.is_some() || !self.issuers.is_empty() || self.facade.is_configured()
    }

    /// Returns a setting that has no effect without an issuer, if one is set.
    pub fn said_without_issuer(&self) -> Option<&'static str> {
        [
            (self.preset.is_some(), "preset"),
            (!self.audience.is_empty(), "audience"),
            (self.jwks_url.is_some(), "jwks_url"),
            (self.groups_claim.is_some(), "groups_claim"),
            (!self.scopes.is_empty(), "scopes"),
            (self.metadata_url.is_some(), "metadata_url"),
            (self.introspection.url.is_some(), "introspection"),
        ]
        .into_iter()
        .find_map(|(is_set, setting)| is_set.then_some(setting))
    }

    /// Returns all issuers, the short form first.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, IssuerConfig)> + '_ {
        let short = self.issuer.as_ref().map(|issuer| {
            let config = IssuerConfig {
                issuer: issuer.clone(),
                name: None,
                preset: self.preset,
                audience: self.audience.clone(),
                jwks_url: self.jwks_url.clone(),
                groups_claim: self.groups_claim.clone(),
            };
            ("auth.oauth.issuer".to_owned(), config)
        });
        let others = self.issuers.iter().enumerate();
        let others =
            others.map(|(at, config)| (format!("auth.oauth.issuers[{at}].issuer"), config.clone()));
        short.into_iter().chain(others)
    }

    /// Checks that do not depend on other settings.
    #[cfg(feature = "oauth")]
    pub(super) fn check(&self) -> Result<(), OAuthSetupError> {
        if LEEWAY_MAX < self.leeway_seconds {
            return Err(OAuthSetupError::Leeway(self.leeway_seconds));
        }
        if ISSUERS_MAX < self.all().count() {
            return Err(OAuthSetupError::TooMany);
        }
        // Scopes are announced to clients, and `offline_access` is not a scope of a resource (AUTH-11).
        let is_good = |scope: &&String| crate::auth::is_scope(scope) && **scope != "offline_access";
        if let Some(scope) = self.scopes.iter().find(|scope| !is_good(scope)) {
            return Err(OAuthSetupError::Scope {
                text: scope.clone(),
            });
        }
        if self.facade.is_configured() {
            self.facade.check()?;
        } else if self.facade.is_set_without_provider() {
            return Err(FacadeSetupError::NoProvider.into());
        }
        if let Some(text) = &self.metadata_url {
            url("auth.oauth.metadata_url", text)?;
        }
        let audiences = self.issuers.iter().flat_map(|issuer| &issuer.audience);
        for text in self.audience.iter().chain(audiences) {
            let with_fragment = Url::parse(text).is_ok_and(|url| url.fragment().is_some());
            if text.is_empty() || text.contains(char::is_whitespace) || with_fragment {
                return Err(OAuthSetupError::Audience { text: text.clone() });
            }
        }
        Ok(())
    }
}

/// Parses an issuer as a URL. Tokens are compared with the text.
#[cfg(feature = "oauth")]
pub(super) fn issuer_url(setting: &str, text: &str) -> Result<Url, OAuthSetupError> {
    let fault = || OAuthSetupError::Issuer {
        setting: setting.to_owned(),
        text: without_user(text),
    };
    let is_plain = |url: &Url| url.query().is_none() && url.fragment().is_none();
    let url = url(setting, text).map_err(|_| fault())?;
    Some(url).filter(is_plain).ok_or_else(fault)
}

#[cfg(feature = "oauth")]
pub(super) fn url(setting: &str, text: &str) -> Result<Url, OAuthSetupError> {
    let is_usable =
        |url: &Url| is_safe(url) && url.username().is_empty() && url.password().is_none();
    let parsed = Url::parse(text).ok().filter(is_usable);
    parsed.ok_or_else(|| OAuthSetupError::Url {
        setting: setting.to_owned(),
        text: without_user(text),
    })
}

/// Returns true for `https`, or for `http` on this machine.
#[cfg(feature = "oauth")]
pub(super) fn is_safe(url: &Url) -> bool {
    let local = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => return false,
    };
    url.scheme() == "https" || url.scheme() == "http" && local
}
