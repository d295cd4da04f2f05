//! Differences between products that issue tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
#[cfg(feature = "oauth")]
use url::{Host, Url};

/// A product that issues tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Preset {
    /// Tokens as in RFC 9068: `aud`, `scope`, `client_id`.
    #[default]
    Generic,
    /// Google. Its access tokens are opaque, so clients send ID tokens, whose audience is the client ID. Tokens can
    /// name the issuer without `https://`.
    Google,
    /// Microsoft Entra ID. Scopes are in `scp`, groups in `groups` and `roles`, and the client in `azp` or `appid`.
    /// The audience is the application ID, a GUID, or `api://` and that.
    Entra,
    /// Auth0. The issuer ends with a slash; `permissions` are scopes too.
    Auth0,
    /// Okta. Scopes are a list in `scp`, the client is `cid`.
    Okta,
    /// Keycloak. Groups are the roles of the realm, the client is `azp`.
    Keycloak,
    /// Amazon Cognito. Access tokens have no `aud`; `client_id` stands in for it, and `audience` must be that ID.
    Cognito,
}

impl Preset {
    /// Detects the product from an issuer's URL.
    #[cfg(feature = "oauth")]
    pub(super) fn of(issuer: &Url) -> Self {
        let Some(Host::Domain(host)) = issuer.host() else {
            return Self::of_path(issuer);
        };
        let within = |domain: &str| {
            host == domain
                || host
                    .strip_suffix(domain)
                    .is_some_and(|rest| rest.ends_with('.'))
        };
        if host == "accounts.google.com" {
            Self::Google
        } else if within("login.microsoftonline.com") || within("login.microsoftonline.us") {
            Self::Entra
        } else if within("auth0.com") {
            Self::Auth0
        } else if within("okta.com") || within("oktapreview.com") {
            Self::Okta
        } else if within("amazonaws.com") && host.starts_with("cognito-idp.") {
            Self::Cognito
        } else {
            Self::of_path(issuer)
        }
    }

    #[cfg(feature = "oauth")]
    fn of_path(issuer: &Url) -> Self {
        if issuer.path().contains("/realms/") {
            Self::Keycloak
        } else {
            Self::Generic
        }
    }

    /// Returns the `iss` values of an issuer's tokens.
    pub fn issuer_names(self, issuer: &str) -> Vec<String> {
        let mut names = vec![issuer.to_owned()];
        if self == Self::Google
            && let Some(bare) = issuer.strip_prefix("https://")
        {
            names.push(bare.to_owned());
        }
        names
    }

    /// Returns the claim with the audience.
    pub(super) fn audience_claim(self) -> &'static str {
        match self {
            Self::Cognito => "client_id",
            _ => "aud",
        }
    }

    /// Returns false if a claim shows that the token is not an access token.
    pub(super) fn is_for_calls(self, claims: &Map<String, Value>) -> bool {
        match self {
            Self::Cognito => claims.get("token_use").is_some_and(|kind| kind == "access"),
            // Refresh and ID tokens of Keycloak have another `typ`.
            Self::Keycloak => claims.get("typ").is_none_or(|kind| kind == "Bearer"),
            _ => true,
        }
    }

    /// Returns the claims with scopes.
    pub(super) fn scope_claims(self) -> &'static [&'static str] {
        match self {
            Self::Auth0 => &["scope", "permissions"],
            _ => &["scope", "scp"],
        }
    }

    /// Returns the claims with groups: the configured one, or those of the product.
    pub(super) fn group_claims(self, configured: Option<&str>) -> Vec<String> {
        if let Some(claim) = configured {
            return vec![claim.to_owned()];
        }
        let claims: &[&str] = match self {
            Self::Entra => &["groups", "roles"],
            Self::Keycloak => &["groups", "realm_access.roles"],
            Self::Cognito => &["cognito:groups"],
            _ => &["groups"],
        };
        claims.iter().map(ToString::to_string).collect()
    }
}

#[cfg(all(test, feature = "oauth"))]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_known_by_its_url() {
        for (issuer, preset) in [
            ("https://accounts.google.com", Preset::Google),
            (
                "https://login.microsoftonline.com/tenant/v2.0",
                Preset::Entra,
            ),
            ("https://example.eu.auth0.com/", Preset::Auth0),
            ("https://example.okta.com/oauth2/default", Preset::Okta),
            ("https://id.example.com/realms/main", Preset::Keycloak),
            (
                "https://cognito-idp.eu-west-1.amazonaws.com/pool",
                Preset::Cognito,
            ),
            ("https://id.example.com", Preset::Generic),
            ("https://notauth0.com", Preset::Generic),
            ("http://127.0.0.1:8080/realms/main", Preset::Keycloak),
        ] {
            let url = Url::parse(issuer).expect("a URL");
            assert_eq!(Preset::of(&url), preset, "{issuer}");
        }
    }
}
