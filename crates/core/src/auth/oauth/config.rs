//! What can be set about access tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(feature = "oauth")]
use url::Url;

use super::facade::{FacadeConfig, FacadeSetupError};
use super::preset::Preset;

/// Access tokens of OAuth 2.1: this server is a resource server, and others issue the tokens.
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
    /// The issuer whose tokens are accepted, as it writes its own name: `https://id.example.com`. Default: none.
    pub issuer: Option<String>,
    /// What is known of the issuer's product. Default: by the issuer's URL, else `generic`.
    pub preset: Option<Preset>,
    /// Whom tokens have to be issued for: one of these. Default: the URL of the endpoint, by `http.public_url`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub audience: Vec<String>,
    /// Where the issuer has its keys. Default: discovered from the issuer.
    pub jwks_url: Option<String>,
    /// The claim that names the caller's groups; a dot goes into an object: `realm_access.roles`. Default: by preset,
    /// else `groups`.
    pub groups_claim: Option<String>,
    /// Scopes that every access token needs. Those of other credentials are not asked for them; what every request to an
    /// endpoint needs, whatever the credential, is `endpoints.<name>.scopes`. Default: none.
    #[serde(deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// By how many seconds the issuer's clock may differ, 60 at most. Default: 60.
    pub leeway_seconds: u64,
    /// The URL of the resource's metadata, where clients learn whom to ask for a token. Default: by `http.public_url`,
    /// else by the request.
    pub metadata_url: Option<String>,
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
            issuers: Vec::new(),
            facade: FacadeConfig::default(),
        }
    }
}

/// By how many seconds clocks may differ.
const LEEWAY_MAX: u64 = 60;
/// How many issuers there may be.
const ISSUERS_MAX: usize = 32;

/// One of several issuers.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The issuer, as it writes its own name.
    pub issuer: String,
    /// What it is called in the names of principals. Default: its host and path.
    #[serde(default)]
    pub name: Option<String>,
    /// What is known of its product. Default: by its URL, else `generic`.
    #[serde(default)]
    pub preset: Option<Preset>,
    /// Whom its tokens have to be issued for. Default: as for the first issuer.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub audience: Vec<String>,
    /// Where it has its keys. Default: discovered.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// The claim that names groups. Default: by preset, else `groups`.
    #[serde(default)]
    pub groups_claim: Option<String>,
}

/// Why access tokens cannot be accepted as it was configured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OAuthSetupError {
    /// No issuer's name.
    #[error(
        "{setting} is {text:?}; write the issuer's URL as it writes it itself: https, no query and no fragment (http is for issuers on this machine only)"
    )]
    Issuer {
        /// Which setting.
        setting: String,
        /// What it says.
        text: String,
    },
    /// One issuer twice.
    #[error("the issuer {issuer:?} is configured twice; configure it once")]
    Twice {
        /// Which one.
        issuer: String,
    },
    /// Too many.
    #[error("there are more than 32 issuers")]
    TooMany,
    /// No URL.
    #[error("{setting} is {text:?}; write a URL with https (http is for this machine only)")]
    Url {
        /// Which setting.
        setting: String,
        /// What it says.
        text: String,
    },
    /// Nobody knows whom tokens are to be for.
    #[error(
        "whom tokens of {issuer} have to be issued for is not known; set http.public_url to the URL that clients use, or auth.oauth.audience to what the issuer writes into tokens"
    )]
    NoAudience {
        /// Of which issuer.
        issuer: String,
    },
    /// An audience that no token can have.
    #[error(
        "auth.oauth.audience has {text:?}, which no token says; write one audience exactly as the issuer puts it into `aud`"
    )]
    Audience {
        /// What it says.
        text: String,
    },
    /// What should be a scope is none.
    #[error(
        "auth.oauth.scopes has {text:?}, which is no scope to ask for; a scope has visible ASCII characters, no quotation mark and no backslash, and offline_access is between clients and issuers"
    )]
    Scope {
        /// What it says.
        text: String,
    },
    /// Clocks that differ by more than anybody should accept.
    #[error("auth.oauth.leeway_seconds is {0}; give it at most 60")]
    Leeway(u64),
    /// The authorization server cannot be built.
    #[error(transparent)]
    Facade(#[from] FacadeSetupError),
    /// This build verifies no access tokens.
    #[error(
        "auth.oauth requires the feature `oauth`, which this build does not have; enable the feature, or remove the setting"
    )]
    NotBuilt,
    /// Nothing can be asked.
    #[error("the client that asks issuers for their keys cannot be made: {0}")]
    Client(String),
}

impl OAuthConfig {
    /// Whether it is written down whom tokens have to be for.
    pub(crate) fn names_audiences(&self) -> bool {
        !self.audience.is_empty() || self.all().any(|(_, one)| !one.audience.is_empty())
    }

    /// Whether any issuer is configured.
    pub fn is_configured(&self) -> bool {
        self.issuer.is_some() || !self.issuers.is_empty() || self.facade.is_configured()
    }

    /// A setting that means nothing without an issuer, of those that are set.
    pub fn said_without_issuer(&self) -> Option<&'static str> {
        [
            (self.preset.is_some(), "preset"),
            (!self.audience.is_empty(), "audience"),
            (self.jwks_url.is_some(), "jwks_url"),
            (self.groups_claim.is_some(), "groups_claim"),
            (!self.scopes.is_empty(), "scopes"),
            (self.metadata_url.is_some(), "metadata_url"),
        ]
        .into_iter()
        .find_map(|(is_set, setting)| is_set.then_some(setting))
    }

    /// All issuers, the one that is written in short first.
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

    /// What does not depend on anything else.
    #[cfg(feature = "oauth")]
    pub(super) fn check(&self) -> Result<(), OAuthSetupError> {
        if LEEWAY_MAX < self.leeway_seconds {
            return Err(OAuthSetupError::Leeway(self.leeway_seconds));
        }
        if ISSUERS_MAX < self.all().count() {
            return Err(OAuthSetupError::TooMany);
        }
        // AUTH-11
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

/// An issuer's name as a URL. What is compared with tokens is the text.
#[cfg(feature = "oauth")]
pub(super) fn issuer_url(setting: &str, text: &str) -> Result<Url, OAuthSetupError> {
    let fault = || OAuthSetupError::Issuer {
        setting: setting.to_owned(),
        text: text.to_owned(),
    };
    let url = Url::parse(text).map_err(|_| fault())?;
    let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if is_safe(&url) && plain && url.password().is_none() {
        Ok(url)
    } else {
        Err(fault())
    }
}

#[cfg(feature = "oauth")]
pub(super) fn url(setting: &str, text: &str) -> Result<Url, OAuthSetupError> {
    let parsed = Url::parse(text).ok().filter(is_safe);
    parsed.ok_or_else(|| OAuthSetupError::Url {
        setting: setting.to_owned(),
        text: text.to_owned(),
    })
}

/// `https`, or `http` on this machine.
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
