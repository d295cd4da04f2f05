//! Settings of credentials for other servers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assertion::IdentityAssertionConfig;
use super::client_key::ClientKeyConfig;
use super::on_behalf::OnBehalfOfConfig;
use crate::environment::Secret;
use crate::source::per_user::PerUserConfig;

/// Credentials for another server. At most one method can be set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Token sent as `Authorization: Bearer`.
    pub bearer: Option<Secret>,
    /// File with such a token. It is read for every call, so the token can be rotated.
    #[schemars(extend("x-path" = "file"))]
    pub bearer_file: Option<PathBuf>,
    /// User name and password for HTTP Basic authentication.
    pub basic: Option<BasicConfig>,
    /// Header that carries a secret.
    pub header: Option<NamedSecret>,
    /// Query parameter that carries a secret.
    pub query: Option<NamedSecret>,
    /// Token requested from an OAuth issuer, and renewed before it expires and after a 401 response.
    pub oauth: Option<OAuthConfig>,
    /// Use the token that `longshore login` obtained for this server, and refresh it.
    ///
    /// The token is stored as configured in `tokens`. Available for servers with a URL.
    pub login: bool,
    /// URL of the issuer whose login is used, if there are logins at several issuers. Default: the issuer of the
    /// latest login.
    pub login_issuer: Option<String>,
    /// Exchange the caller's access token for one with the caller's rights at the other server (RFC 8693).
    ///
    /// Only callers with an access token can use it. With `auth.oauth.facade`, callers have tokens of this server, which
    /// other issuers do not exchange.
    pub on_behalf_of: Option<OnBehalfOfConfig>,
    /// Use each user's own login at the other server. A user without one is asked for it with a link.
    pub per_user: Option<PerUserConfig>,
}

impl AuthConfig {
    /// Returns true if requests carry credentials of the caller.
    pub(crate) fn is_of_caller(&self) -> bool {
        self.on_behalf_of.is_some() || self.per_user.is_some()
    }

    /// Returns true if each user logs in to the other server.
    #[doc(hidden)]
    pub fn has_user_logins(&self) -> bool {
        self.per_user.is_some()
    }

    /// Returns true if each caller's access token is exchanged.
    #[doc(hidden)]
    pub fn exchanges_tokens(&self) -> bool {
        self.on_behalf_of.is_some()
    }

    /// Returns true if any method is configured.
    pub fn is_some(&self) -> bool {
        0 < self.methods()
    }

    /// Returns the number of configured methods.
    pub(super) fn methods(&self) -> usize {
        let Self {
            bearer,
            bearer_file,
            basic,
            header,
            query,
            oauth,
            login,
            login_issuer: _,
            on_behalf_of,
            per_user,
        } = self;
        let methods = [
            bearer.is_some(),
            bearer_file.is_some(),
            basic.is_some(),
            header.is_some(),
            query.is_some(),
            oauth.is_some(),
            *login,
            on_behalf_of.is_some(),
            per_user.is_some(),
        ];
        methods.into_iter().filter(|is_set| *is_set).count()
    }
}

/// User name and password.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// User name.
    pub username: String,
    /// Password.
    pub password: Secret,
}

/// Secret with a name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedSecret {
    /// Name of the header or parameter.
    pub name: String,
    /// The secret.
    pub value: Secret,
}

/// OAuth 2 client. Uses client credentials (RFC 6749, 4.4), a refresh token (RFC 6749, 6), token exchange (RFC 8693) or a
/// workload's assertion (RFC 7523), depending on the settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OAuthConfig {
    /// URL of the token endpoint.
    pub token_url: String,
    /// OAuth client ID.
    pub client_id: String,
    /// OAuth client secret. Without one, only `client_id` is sent, as public clients do.
    #[serde(default)]
    pub client_secret: Option<Secret>,
    /// Private key with which this server authenticates itself at the issuer, instead of a secret (`private_key_jwt`).
    #[serde(default)]
    pub client_key: Option<ClientKeyConfig>,
    /// Initial refresh token, obtained by a user's consent.
    ///
    /// If the issuer rotates it, the new one is stored as configured in `tokens` and used instead.
    #[serde(default)]
    pub refresh_token: Option<Secret>,
    /// File with a token to exchange for one for the other server, such as a service account token. It is read
    /// each time.
    #[serde(default)]
    #[schemars(extend("x-path" = "file"))]
    pub subject_token_file: Option<PathBuf>,
    /// File with a signed JWT that is the credential itself, such as a service account token of Kubernetes (RFC 7523,
    /// `jwt-bearer`). Its audience must be the issuer. It is read for each request.
    #[serde(default)]
    #[schemars(extend("x-path" = "file"))]
    pub assertion_file: Option<PathBuf>,
    /// Type of the exchanged token. Default: `urn:ietf:params:oauth:token-type:jwt`.
    #[serde(default)]
    pub subject_token_type: Option<String>,
    /// Requested scopes.
    #[serde(default, deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// Audience of the token, for issuers that require the parameter `audience`.
    #[serde(default)]
    pub audience: Option<String>,
    /// Resource that the token is for (RFC 8707, `resource`).
    #[serde(default)]
    pub resource: Option<String>,
    /// Exchange the token of `subject_token_file` for an identity assertion, and redeem that at the issuer of the other
    /// server.
    #[serde(default)]
    pub identity_assertion: Option<IdentityAssertionConfig>,
    /// Bind tokens to a key that this process generates, and sign each request with it (DPoP, RFC 9449).
    #[serde(default)]
    pub dpop: bool,
}
