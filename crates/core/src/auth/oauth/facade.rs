//! Settings of the authorization server in front of an identity provider.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;

/// Authorization server in front of an identity provider that supports neither dynamic client registration nor client ID
/// metadata documents, such as Entra, Google, Okta or GitHub.
///
/// MCP clients register here and receive tokens of this server. Users log in at the provider, where this server is one
/// registered client. Register the redirect URI `<http.public_url>/oauth/callback` there.
///
/// ```toml
/// [http]
/// public_url = "https://mcp.example.com"
///
/// [auth.oauth.facade]
/// provider = "https://login.microsoftonline.com/TENANT/v2.0"
/// client_id = "b1c2…"
/// client_secret = "${ENTRA_SECRET}"
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FacadeConfig {
    /// Identity provider: the issuer URL of an OpenID provider as it writes it, or `https://github.com`. Setting it turns
    /// the authorization server on.
    pub provider: Option<String>,
    /// Client ID of this server at the provider.
    pub client_id: Option<String>,
    /// Client secret of this server at the provider.
    pub client_secret: Option<Secret>,
    /// Scopes to request from the provider. Default: `openid profile email`; for GitHub `read:user user:email`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub provider_scopes: Vec<String>,
    /// Claim that lists the user's groups, in the ID token or else at the provider's userinfo endpoint; a dot goes into an object.
    /// Default: by provider, else `groups`.
    pub groups_claim: Option<String>,
    /// Groups to copy into tokens. Default: all.
    #[serde(deserialize_with = "crate::environment::list")]
    pub groups: Vec<String>,
    /// Accounts that may log in. Default: every account of the provider; Google and GitHub need it set.
    pub allow: AllowConfig,
    /// Scopes that clients may request, in addition to those of `auth.oauth.scopes`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// Accept dynamic client registration (RFC 7591).
    pub registration: bool,
    /// Accept client ID metadata documents.
    pub metadata_documents: bool,
    /// Accept identity assertions of the provider (ID-JAG) from `clients` that have a secret, so that an organization's
    /// users need not log in here (enterprise-managed authorization). Only with an OpenID provider.
    pub identity_assertions: bool,
    /// Clients that are known in advance.
    pub clients: Vec<FacadeClientConfig>,
    /// Validity of access tokens, in seconds, from 60 to 3600.
    pub access_seconds: u64,
    /// Time after which users log in again, in seconds, from 600 to 7776000 (90 days). A user whom the provider has locked
    /// out keeps access for at most this long.
    pub login_seconds: u64,
}

impl Default for FacadeConfig {
    fn default() -> Self {
        Self {
            provider: None,
            client_id: None,
            client_secret: None,
            provider_scopes: Vec::new(),
            groups_claim: None,
            groups: Vec::new(),
            allow: AllowConfig::default(),
            scopes: Vec::new(),
            registration: true,
            metadata_documents: true,
            identity_assertions: false,
            clients: Vec::new(),
            access_seconds: 600,
            login_seconds: 7 * 24 * 3600,
        }
    }
}

/// Accounts that may log in. An account needs to match one entry of any list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AllowConfig {
    /// Admit every account of the provider.
    pub anyone: bool,
    /// Email addresses that the provider has verified.
    #[serde(deserialize_with = "crate::environment::list")]
    pub emails: Vec<String>,
    /// Domains of verified email addresses.
    #[serde(deserialize_with = "crate::environment::list")]
    pub domains: Vec<String>,
    /// Groups.
    #[serde(deserialize_with = "crate::environment::list")]
    pub groups: Vec<String>,
    /// Subjects: the provider's stable IDs of accounts.
    #[serde(deserialize_with = "crate::environment::list")]
    pub subjects: Vec<String>,
}

/// A client that is known in advance.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FacadeClientConfig {
    /// Client ID.
    pub id: String,
    /// Name to show on the consent page. Default: the client ID.
    #[serde(default)]
    pub name: Option<String>,
    /// Redirect URIs. On the loopback interface, the port is not compared. May be empty for a client that only shows
    /// identity assertions.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub redirect_uris: Vec<String>,
    /// Secret of a confidential client, with at least 16 characters. Default: none; the client is public.
    #[serde(default)]
    pub secret: Option<Secret>,
}

/// Error of `auth.oauth.facade`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FacadeSetupError {
    /// A required setting is missing.
    #[error("auth.oauth.facade.{0} is not set; auth.oauth.facade.provider requires it")]
    Missing(&'static str),
    /// A setting requires the provider.
    #[error(
        "auth.oauth.facade has settings, but no provider; set auth.oauth.facade.provider, or remove them"
    )]
    NoProvider,
    /// No public URL.
    #[error(
        "auth.oauth.facade requires http.public_url: the URL at which browsers and clients reach this server"
    )]
    NoPublicUrl,
    /// The provider's URL is not usable.
    #[error(
        "auth.oauth.facade.provider is {0:?}; write the issuer URL of an OpenID provider (https, no query), or https://github.com"
    )]
    Provider(String),
    /// The provider's URL is valid for accounts of every organization.
    #[error(
        "auth.oauth.facade.provider is {0:?}, which accepts accounts of every organization; write your tenant's ID in place of its last part but one"
    )]
    Tenant(String),
    /// Everybody could log in.
    #[error(
        "at {0} anyone can have an account; set auth.oauth.facade.allow.emails, .domains, .groups or .subjects, or .anyone to admit every account"
    )]
    Anyone(String),
    /// A number is out of bounds.
    #[error("auth.oauth.facade.{setting} is {value}; it must be from {min} to {max}")]
    Bounds {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: u64,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
    /// A client is not usable.
    #[error("auth.oauth.facade.clients[{index}]: {problem}")]
    Client {
        /// Index of the client, from 0.
        index: usize,
        /// Description of the error and of its correction.
        problem: &'static str,
    },
    /// Nobody could use identity assertions.
    #[error("auth.oauth.facade.identity_assertions is set, but {0}")]
    Assertions(&'static str),
    /// A scope is not valid.
    #[error(
        "auth.oauth.facade.scopes has {0:?}, which is not a valid scope: visible ASCII characters without quotation marks and backslashes"
    )]
    Scope(String),
}

impl AllowConfig {
    fn is_set(&self) -> bool {
        self.anyone || self.restricts()
    }

    fn restricts(&self) -> bool {
        [&self.emails, &self.domains, &self.groups, &self.subjects]
            .iter()
            .any(|list| !list.is_empty())
    }

    /// Returns true if an account may log in. `email` is a verified address.
    pub fn admits(&self, subject: &str, email: Option<&str>, groups: &[String]) -> bool {
        if self.anyone || !self.restricts() {
            return true;
        }
        let same = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
        let domain = email
            .and_then(|email| email.rsplit_once('@'))
            .map(|(_, domain)| domain);
        self.subjects.iter().any(|known| known == subject)
            || self.groups.iter().any(|known| groups.contains(known))
            || email.is_some_and(|email| self.emails.iter().any(|known| same(known, email)))
            || domain.is_some_and(|domain| {
                let bare = |known: &str| known.trim_start_matches('@').to_owned();
                self.domains.iter().any(|known| same(&bare(known), domain))
            })
    }
}

impl FacadeConfig {
    /// Returns true if the authorization server is on.
    pub fn is_configured(&self) -> bool {
        self.provider.is_some()
    }

    /// Returns true if any setting is set although the authorization server is off.
    pub fn is_set_without_provider(&self) -> bool {
        let has_settings = self.client_id.is_some()
            || self.client_secret.is_some()
            || !self.clients.is_empty()
            || !self.scopes.is_empty()
            || self.allow.is_set();
        self.provider.is_none() && has_settings
    }
}

#[cfg(feature = "oauth")]
pub use built::{CheckedProvider, ProviderKind};

#[cfg(feature = "oauth")]
mod built {
    use url::{Host, Url};

    use super::super::preset::Preset;
    use super::{FacadeConfig, FacadeSetupError};
    use crate::environment::{Secret, without_user};

    /// Minimum length of a client's secret.
    const SECRET_MIN_BYTES: usize = 16;

    /// Protocol of a provider.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProviderKind {
        /// OpenID Connect.
        OpenId,
        /// GitHub: OAuth 2 without ID tokens.
        Plain,
    }

    /// The provider of a valid configuration.
    #[derive(Debug)]
    pub struct CheckedProvider {
        pub issuer: String,
        pub url: Url,
        pub kind: ProviderKind,
        pub preset: Preset,
        pub client_id: String,
        pub client_secret: Secret,
        pub scopes: Vec<String>,
        pub group_claims: Vec<String>,
    }

    impl FacadeConfig {
        /// Checks everything that does not depend on other settings.
        ///
        /// # Errors
        ///
        /// A setting is missing or wrong.
        pub fn check(&self) -> Result<(), FacadeSetupError> {
            self.provider()?;
            let within = |setting, value: u64, min, max| match (min..=max).contains(&value) {
                true => Ok(()),
                false => Err(FacadeSetupError::Bounds {
                    setting,
                    value,
                    min,
                    max,
                }),
            };
            within("access_seconds", self.access_seconds, 60, 3600)?;
            within("login_seconds", self.login_seconds, 600, 90 * 24 * 3600)?;
            if self.identity_assertions {
                if matches!(self.provider()?.kind, ProviderKind::Plain) {
                    return Err(FacadeSetupError::Assertions(
                        "the provider does not issue them; use an OpenID provider",
                    ));
                }
                if self.clients.iter().all(|client| client.secret.is_none()) {
                    return Err(FacadeSetupError::Assertions(
                        "no client of auth.oauth.facade.clients has a secret; list the clients that may use them",
                    ));
                }
            }
            let is_good = |scope: &&String| crate::auth::is_scope(scope);
            if let Some(scope) = self.scopes.iter().find(|scope| !is_good(scope)) {
                return Err(FacadeSetupError::Scope(scope.clone()));
            }
            for (index, client) in self.clients.iter().enumerate() {
                let problem = if client.id.is_empty() || client.id.contains("://") {
                    "id is empty or a URL; write a name"
                } else if self.clients[..index]
                    .iter()
                    .any(|other| other.id == client.id)
                {
                    "another client has the same ID; choose another one"
                } else if client.redirect_uris.is_empty()
                    && !(self.identity_assertions && client.secret.is_some())
                {
                    "redirect_uris is empty; list every redirect URI of the client"
                } else if client
                    .redirect_uris
                    .iter()
                    .any(|uri| Url::parse(uri).is_err())
                {
                    "a redirect URI is not an absolute URI"
                } else if client
                    .secret
                    .as_ref()
                    .is_some_and(|secret| secret.expose().len() < SECRET_MIN_BYTES)
                {
                    "secret has fewer than 16 characters, so it could be guessed; make one with `openssl rand -base64 32`"
                } else {
                    continue;
                };
                return Err(FacadeSetupError::Client { index, problem });
            }
            Ok(())
        }

        /// Returns the provider.
        ///
        /// # Errors
        ///
        /// A setting of the provider is missing or wrong.
        pub fn provider(&self) -> Result<CheckedProvider, FacadeSetupError> {
            let Some(text) = &self.provider else {
                return Err(FacadeSetupError::NoProvider);
            };
            let wrong = || FacadeSetupError::Provider(without_user(text));
            let url = super::super::config::issuer_url("provider", text).map_err(|_| wrong())?;
            let is_github = matches!(url.host(), Some(Host::Domain("github.com")));
            let preset = Preset::of(&url);
            let is_shared = |part: &str| matches!(part, "common" | "organizations" | "consumers");
            if preset == Preset::Entra
                && url
                    .path_segments()
                    .is_some_and(|mut parts| parts.any(is_shared))
            {
                return Err(FacadeSetupError::Tenant(text.clone()));
            }
            if (is_github || preset == Preset::Google) && !self.allow.is_set() {
                let host = url.host_str().unwrap_or_default();
                return Err(FacadeSetupError::Anyone(host.to_owned()));
            }
            let client_id = self.client_id.clone().filter(|id| !id.is_empty());
            let client_id = client_id.ok_or(FacadeSetupError::Missing("client_id"))?;
            let client_secret = self.client_secret.clone();
            let client_secret = client_secret.ok_or(FacadeSetupError::Missing("client_secret"))?;
            let (kind, scopes): (_, &[&str]) = match is_github {
                true => (ProviderKind::Plain, &["read:user", "user:email"]),
                false => (ProviderKind::OpenId, &["openid", "profile", "email"]),
            };
            Ok(CheckedProvider {
                issuer: text.clone(),
                kind,
                preset,
                client_id,
                client_secret,
                scopes: match self.provider_scopes.is_empty() {
                    true => scopes.iter().map(ToString::to_string).collect(),
                    false => self.provider_scopes.clone(),
                },
                group_claims: preset.group_claims(self.groups_claim.as_deref()),
                url,
            })
        }
    }
}

#[cfg(all(test, feature = "oauth"))]
mod tests {
    use super::*;

    fn config(provider: &str) -> FacadeConfig {
        FacadeConfig {
            provider: Some(provider.to_owned()),
            client_id: Some("id".to_owned()),
            client_secret: Some("secret".to_owned().into()),
            ..FacadeConfig::default()
        }
    }

    #[test]
    fn providers_where_everybody_has_an_account_need_a_list() {
        for provider in ["https://accounts.google.com", "https://github.com"] {
            let mut config = config(provider);
            let error = config.check().expect_err("anyone could log in");
            assert!(matches!(error, FacadeSetupError::Anyone(_)), "{error}");
            config.allow.domains = vec!["example.com".to_owned()];
            assert_eq!(config.check(), Ok(()));
        }
    }

    #[test]
    fn a_tenant_of_entra_is_required() {
        let good = config("https://login.microsoftonline.com/6a5f/v2.0");
        assert_eq!(good.check(), Ok(()));
        let shared = config("https://login.microsoftonline.com/common/v2.0");
        assert!(matches!(shared.check(), Err(FacadeSetupError::Tenant(_))));
    }

    #[test]
    fn accounts_match_by_any_list() {
        let allow = AllowConfig {
            domains: vec!["example.com".to_owned()],
            groups: vec!["ops".to_owned()],
            ..AllowConfig::default()
        };
        assert!(allow.admits("1", Some("a@Example.com"), &[]));
        assert!(allow.admits("1", None, &["ops".to_owned()]));
        assert!(!allow.admits("1", Some("a@example.com.evil.example"), &[]));
        assert!(!allow.admits("1", Some("a@notexample.com"), &[]));
        assert!(!allow.admits("1", None, &[]));
        assert!(AllowConfig::default().admits("1", None, &[]));
    }

    #[test]
    fn secrets_of_clients_that_can_be_guessed_are_rejected() {
        let mut config = config("https://id.example.com");
        config.clients = vec![FacadeClientConfig {
            id: "console".to_owned(),
            redirect_uris: vec!["https://console.example/cb".to_owned()],
            secret: Some("x".repeat(15).into()),
            ..FacadeClientConfig::default()
        }];
        let error = config.check().expect_err("too short").to_string();
        assert!(
            error.starts_with("auth.oauth.facade.clients[0]: secret has fewer than 16 characters"),
            "{error}"
        );
        config.clients[0].secret = Some("x".repeat(16).into());
        assert_eq!(config.check(), Ok(()));
    }
}
