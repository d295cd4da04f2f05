//! Authentication settings.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::certificate::CertificateConfig;
use super::oauth::{OAuthConfig, OAuthSetupError};
use super::scopes::{SCOPE_ADVICE, is_scope};
use crate::environment::{Conflicts, Secret};

/// Authentication.
///
/// Without any method, callers are not authenticated. [security.md](security.md) describes the methods and their
/// setup.
///
/// ```toml
/// [auth]
/// api_keys = [{ name = "ci", keys = ["sha256:..."], scopes = ["files:read"] }]
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Accepted authentication methods, in order of precedence. If unset, all configured methods are accepted, in the
    /// order of this list.
    #[serde(deserialize_with = "methods")]
    pub methods: Vec<AuthMethodKind>,
    /// Principal name of unauthenticated callers. If unset, they are rejected once any authentication method is
    /// configured.
    pub anonymous: Option<String>,
    /// API keys: tables with `name`, `keys`, `scopes` and `groups`, or strings `name=key`. A key is given itself or
    /// as the hash that `longshore key new` prints.
    #[schemars(extend("x-reload" = "live"))]
    #[serde(deserialize_with = "api_keys")]
    #[schemars(with = "Vec<ApiKeyConfig>")]
    pub api_keys: Vec<ApiKeyConfig>,
    /// File of API keys, reloaded when it changes. Each line has a name, a key or hash, then scopes, and groups
    /// prefixed with `@`.
    #[schemars(extend("x-path" = "file"))]
    pub api_keys_file: Option<PathBuf>,
    /// Folder of API keys, such as a mounted secret, reloaded when it changes. Each file is named after a holder and
    /// has a key or hash in each line.
    #[schemars(extend("x-path" = "file"))]
    pub api_keys_dir: Option<PathBuf>,
    /// Maximum length of an API key, in bytes: 64 to 512. A longer one is rejected with 401.
    pub key_bytes: usize,
    /// Maximum length of an access token, in bytes: 1024 to 16384. A longer one is rejected with 401.
    pub token_bytes: usize,
    /// OAuth 2.1 access tokens.
    pub oauth: OAuthConfig,
    /// Certificates of clients.
    pub certificate: CertificateConfig,
    /// Users that a trusted proxy names.
    pub forwarded: ForwardedConfig,
    /// Scopes that imply other scopes: `{ admin = ["files:read", "files:write"] }`.
    #[schemars(extend("x-reload" = "live"))]
    pub implied_scopes: BTreeMap<String, Vec<String>>,
}

/// An authentication method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuthMethodKind {
    /// API keys.
    ApiKey,
    /// OAuth 2.1 access tokens.
    #[serde(rename = "oauth")]
    OAuth,
    /// Certificates of clients.
    Certificate,
    /// Users that a trusted proxy names.
    Forwarded,
}

/// An API key holder.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// Name of the holder; the principal is `key:` and this name.
    pub name: String,
    /// Keys, or their hashes: `sha256:` and 64 hexadecimal digits. To rotate a key, add the new one, and remove the
    /// old one later.
    #[serde(deserialize_with = "crate::environment::list")]
    pub keys: Vec<Secret>,
    /// Scopes of the holder.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Groups of the holder.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// Users that a proxy has authenticated. The headers are accepted from `http.trusted_proxies`, and from proxies with
/// one of `certificates`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardedConfig {
    /// Header with the user name, such as `X-Forwarded-User`. If unset, user names are not accepted.
    pub user_header: Option<String>,
    /// Header with the user's groups, separated by commas.
    pub groups_header: Option<String>,
    /// Certificate names of proxies to trust at any address, each prefixed with its kind; `*` and `?` are wildcards:
    /// `uri:spiffe://example.org/*`, `dns:proxy.example.com`. Other kinds are `email:`, `common_name:`, `subject:`
    /// and `fingerprint:`. Requires `http.tls.client_ca`.
    #[serde(deserialize_with = "crate::environment::list")]
    pub certificates: Vec<String>,
}

/// Error in the authentication settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthSetupError {
    /// A file or folder cannot be read.
    #[error("cannot read API keys from {}; name a file or folder that exists and that this process may read", path.display())]
    Read {
        /// Name of the setting.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line of a key file is invalid.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Description of the error.
        problem: &'static str,
    },
    /// A configured key is invalid.
    #[error("auth.api_keys, {name:?}: {problem}")]
    Key {
        /// Name of the holder.
        name: String,
        /// Description of the error.
        problem: &'static str,
    },
    /// Two holders have the same key.
    #[error(
        "auth.api_keys: a key of {name:?} also belongs to another name; make another one with `longshore key new`"
    )]
    SharedKey {
        /// Name of one of them.
        name: String,
    },
    /// API keys are configured, but the list is empty.
    #[error("there is no API key, so no client could call; make one with `longshore key new`")]
    NoKeys,
    /// A proof that is listed and not configured.
    #[error("auth.methods has {kind:?}, but {setting} is not set; set it, or remove {kind:?}")]
    NotConfigured {
        /// Name of the setting.
        kind: &'static str,
        /// The setting that it needs.
        setting: &'static str,
    },
    /// The access token settings are invalid.
    #[error(transparent)]
    OAuth(#[from] OAuthSetupError),
    /// Forwarded users need a trusted proxy.
    #[error(
        "auth.forwarded.user_header is set, but no proxy is trusted; name the networks of your proxies in http.trusted_proxies, or their certificates in auth.forwarded.certificates"
    )]
    ForwardedByNobody,
    /// Certificates are used but TLS clients are not asked for any.
    #[error(
        "{setting} is set, but clients are not asked for certificates; name the CA certificates of clients in http.tls.client_ca"
    )]
    NoCertificates {
        /// The setting.
        setting: &'static str,
    },
    /// The setting for the holder's name of a certificate has an invalid value.
    #[error("{setting} has {name:?}, which is not a valid name; `*` and `?` match anything")]
    CertificateName {
        /// Name of the setting.
        setting: String,
        /// Its value.
        name: String,
    },
    /// A certificate name has no kind.
    #[error(
        "{setting} has {name:?}, whose kind is missing; begin it with uri:, dns:, email:, common_name:, subject: or fingerprint:, as in dns:proxy.example.com"
    )]
    CertificateKind {
        /// Name of the setting.
        setting: String,
        /// Its value.
        name: String,
    },
    /// A header name is invalid.
    #[error(
        "auth.forwarded: {name:?} is not a header name that can arrive; names have letters, digits and hyphens, and requests with underscores in names are rejected"
    )]
    Header {
        /// Its value.
        name: String,
    },
    /// The name is reserved for other principals.
    #[error(
        "auth.anonymous is {name:?}; use a name of 1 to 64 visible characters without ':', other than \"local\""
    )]
    Anonymous {
        /// The name.
        name: String,
    },
}

impl AuthConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        let implied = self.implied_scopes.iter();
        let scopes = implied.flat_map(|(scope, implied)| [scope].into_iter().chain(implied));
        for scope in scopes.filter(|scope| !is_scope(scope)) {
            conflicts.add(
                format!("auth.implied_scopes has {scope:?}, which is not a valid scope"),
                SCOPE_ADVICE,
            );
        }
        conflicts.within([
            ("auth.key_bytes", self.key_bytes as u64, 64..=512),
            (
                "auth.token_bytes",
                self.token_bytes as u64,
                1024..=16 * 1024,
            ),
        ]);
        for holder in &self.api_keys {
            for key in holder.keys.iter().map(|key| key.expose()) {
                if !key.starts_with("sha256:") && self.key_bytes < key.len() {
                    conflicts.add(
                        format!(
                            "auth.api_keys, {:?}: a key is longer than auth.key_bytes, which is {}",
                            holder.name, self.key_bytes
                        ),
                        "make a shorter one with `longshore key new`, or raise the limit",
                    );
                }
            }
        }
        if !self.oauth.is_configured()
            && let Some(setting) = self.oauth.said_without_issuer()
        {
            conflicts.add(
                format!(
                    "auth.oauth.{setting} is set, and auth.oauth.issuer is not: no token would be asked for"
                ),
                "set auth.oauth.issuer or auth.oauth.issuers to the issuer whose tokens are accepted, or remove it; an empty variable counts as absent",
            );
        }
    }
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            methods: Vec::new(),
            anonymous: None,
            api_keys: Vec::new(),
            api_keys_file: None,
            api_keys_dir: None,
            key_bytes: 512,
            token_bytes: 16 * 1024,
            oauth: OAuthConfig::default(),
            certificate: CertificateConfig::default(),
            forwarded: ForwardedConfig::default(),
            implied_scopes: BTreeMap::new(),
        }
    }
}

impl AuthConfig {
    /// Returns the accepted methods in order.
    pub fn kinds(&self) -> Vec<AuthMethodKind> {
        if !self.methods.is_empty() {
            return self.methods.clone();
        }
        let all = AuthMethodKind::ALL.into_iter();
        all.filter(|kind| self.has(*kind)).collect()
    }

    /// Returns true if the method is configured.
    pub fn has(&self, kind: AuthMethodKind) -> bool {
        match kind {
            AuthMethodKind::ApiKey => {
                !self.api_keys.is_empty()
                    || self.api_keys_file.is_some()
                    || self.api_keys_dir.is_some()
            }
            AuthMethodKind::OAuth => self.oauth.is_configured(),
            AuthMethodKind::Certificate => self.certificate.name.is_some(),
            AuthMethodKind::Forwarded => self.forwarded.user_header.is_some(),
        }
    }

    /// Returns true if any method is configured.
    pub fn proves_anything(&self) -> bool {
        !self.kinds().is_empty()
    }
}

impl AuthMethodKind {
    const ALL: [Self; 4] = [
        Self::ApiKey,
        Self::OAuth,
        Self::Certificate,
        Self::Forwarded,
    ];

    /// Returns the name of the method and the setting that configures it.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ApiKey => (
                "api_key",
                "auth.api_keys, auth.api_keys_file or auth.api_keys_dir",
            ),
            Self::OAuth => ("oauth", "auth.oauth.issuer"),
            Self::Certificate => ("certificate", "auth.certificate.name"),
            Self::Forwarded => ("forwarded", "auth.forwarded.user_header"),
        }
    }
}

fn methods<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AuthMethodKind>, D::Error> {
    let names: Vec<String> = crate::environment::list(deserializer)?;
    let kind = |name: &String| {
        let mut kinds = AuthMethodKind::ALL.into_iter();
        kinds.find(|kind| kind.names().0 == name).ok_or_else(|| {
            let known = AuthMethodKind::ALL.map(|kind| format!("`{}`", kind.names().0));
            D::Error::custom(format_args!(
                "unknown variant `{name}`, expected {}",
                known.join(" or ")
            ))
        })
    };
    names.iter().map(kind).collect()
}

/// A list of tables or strings, or one string with commas. Error messages omit the value because it can be a key.
fn api_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ApiKeyConfig>, D::Error> {
    struct Entries;
    struct Entry(ApiKeyConfig);
    const FORM: &str = "expected a table with a name and keys, or a text: name=key";

    fn entry<E: serde::de::Error>(text: &str) -> Result<ApiKeyConfig, E> {
        let Some((name, key)) = text.split_once('=') else {
            return Err(E::custom(FORM));
        };
        Ok(ApiKeyConfig {
            name: name.trim().to_owned(),
            keys: vec![Secret::from(key.trim().to_owned())],
            ..ApiKeyConfig::default()
        })
    }

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<ApiKeyConfig>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of API keys")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
            let parts = text
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty());
            parts.map(entry).collect()
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(Entry(entry)) = parts.next_element()? {
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    impl<'de> Deserialize<'de> for Entry {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct One;
            impl<'de> Visitor<'de> for One {
                type Value = ApiKeyConfig;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(FORM)
                }

                fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                    entry(text)
                }

                fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                    ApiKeyConfig::deserialize(MapAccessDeserializer::new(map))
                }
            }
            deserializer.deserialize_any(One).map(Self)
        }
    }

    deserializer.deserialize_any(Entries)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: serde_json::Value) -> Result<AuthConfig, String> {
        serde_json::from_value(config).map_err(|e| e.to_string())
    }

    #[test]
    fn keys_are_tables_or_texts() {
        let forms = [
            json!({"api_keys": [{"name": "ci", "keys": ["k1"]}, {"name": "bob", "keys": ["k2"], "scopes": ["s"]}]}),
            json!({"api_keys": ["ci=k1", "bob = k2"]}),
            json!({"api_keys": "ci=k1, bob=k2,"}),
        ];
        for form in forms {
            let config = read(form).expect("sound");
            let keys: Vec<_> = config
                .api_keys
                .iter()
                .map(|entry| (entry.name.as_str(), entry.keys[0].expose()))
                .collect();
            assert_eq!(keys, [("ci", "k1"), ("bob", "k2")]);
        }
    }

    #[test]
    fn sec_12_what_does_not_fit_is_not_repeated() {
        for form in [
            json!({"api_keys": "canary"}),
            json!({"api_keys": ["canary"]}),
            json!({"api_keys": [{"name": "ci", "key": "canary"}]}),
        ] {
            let error = read(form).expect_err("refused");
            assert!(!error.contains("canary"), "{error}");
        }
        let form = json!({"api_keys": [{"name": "ci", "keys": "canary"}]});
        assert!(!format!("{:?}", read(form).expect("sound")).contains("canary"));
    }

    #[test]
    fn proofs_are_those_that_are_configured_or_those_that_are_listed() {
        let kinds = |config| read(config).expect("sound").kinds();
        assert_eq!(kinds(json!({})), []);
        let both = json!({"api_keys": "a=b", "forwarded": {"user_header": "x-user"}});
        assert_eq!(
            kinds(both),
            [AuthMethodKind::ApiKey, AuthMethodKind::Forwarded]
        );
        let listed = json!({"methods": "forwarded,api_key"});
        assert_eq!(
            kinds(listed),
            [AuthMethodKind::Forwarded, AuthMethodKind::ApiKey]
        );
        let error = read(json!({"methods": ["apikey"]})).expect_err("refused");
        assert!(error.contains("`api_key`"), "{error}");
    }
}
