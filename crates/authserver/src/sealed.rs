//! Values that travel with clients and browsers instead of lying in a database.
//!
//! Each is JSON, encrypted and authenticated by the key ring for one purpose and one issuer. A value of one purpose does
//! not open as one of another.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::seal::{KeyRing, Purpose};

/// A value with a purpose.
pub(super) trait Sealed: Serialize + DeserializeOwned {
    /// Purpose, with the version of the layout.
    const KIND: &'static str;

    /// End of validity, in seconds of Unix time. `None` for values without an end.
    fn expires(&self) -> Option<u64>;
}

/// Seals a value for an issuer.
pub(super) fn seal<T: Sealed>(ring: &KeyRing, issuer: &str, value: &T) -> Option<String> {
    let plain = serde_json::to_vec(value).ok()?;
    Some(ring.seal(purpose::<T>(issuer), &plain))
}

/// Opens a value. `None` if no key of the ring sealed it for this purpose and issuer, or if it has expired.
pub(super) fn open<T: Sealed>(ring: &KeyRing, issuer: &str, sealed: &str, now: u64) -> Option<T> {
    let plain = ring.open(purpose::<T>(issuer), sealed.as_bytes())?;
    let value: T = serde_json::from_slice(&plain).ok()?;
    match value.expires() {
        Some(expires) if expires <= now => None,
        _ => Some(value),
    }
}

fn purpose<T: Sealed>(issuer: &str) -> Purpose<'_> {
    Purpose {
        kind: T::KIND,
        endpoint: issuer,
    }
}

/// A dynamically registered client: its client ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegisteredClient {
    #[serde(rename = "n")]
    pub(super) name: String,
    #[serde(rename = "r")]
    pub(super) redirect_uris: Vec<String>,
    #[serde(rename = "t")]
    pub(super) issued: u64,
    /// True if the client uses DPoP only.
    #[serde(rename = "d", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_dpop: bool,
}

impl Sealed for RegisteredClient {
    const KIND: &'static str = "oauth-client-1";

    fn expires(&self) -> Option<u64> {
        None
    }
}

/// A checked authorization request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AuthorizationRequest {
    #[serde(rename = "c")]
    pub(super) client_id: String,
    #[serde(rename = "u")]
    pub(super) redirect_uri: String,
    /// PKCE challenge by S256 (RFC 7636).
    #[serde(rename = "p")]
    pub(super) challenge: String,
    #[serde(rename = "s")]
    pub(super) scopes: Vec<String>,
    /// The endpoint that the token is for (RFC 8707).
    #[serde(rename = "r")]
    pub(super) resource: String,
    /// The client's `state`, returned unchanged.
    #[serde(rename = "t")]
    pub(super) state: Option<String>,
    /// Thumbprint of the key that the code is bound to (RFC 9449, section 10).
    #[serde(rename = "j", default, skip_serializing_if = "Option::is_none")]
    pub(super) thumbprint: Option<String>,
}

/// An authorization request whose consent page was shown. Travels in the page's form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ConsentForm {
    #[serde(rename = "q")]
    pub(super) request: AuthorizationRequest,
    /// Digest of the browser's cookie.
    #[serde(rename = "b")]
    pub(super) browser: String,
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// A login that began at the provider. Travels as the `state` of the provider's authorization request.
///
/// Its subject is the request of a client, or the value that `recognize` was given for a page of this server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoginState<T> {
    #[serde(rename = "q")]
    pub(super) subject: T,
    /// Digest of the browser's cookie.
    #[serde(rename = "b")]
    pub(super) browser: String,
    /// `nonce` of the ID token.
    #[serde(rename = "n")]
    pub(super) nonce: String,
    /// PKCE verifier towards the provider.
    #[serde(rename = "v")]
    pub(super) verifier: String,
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// A user whom the provider has recognized in a browser.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Recognized {
    #[serde(rename = "q")]
    pub(super) visit: String,
    #[serde(rename = "s")]
    pub(super) subject: String,
    #[serde(rename = "b")]
    pub(super) browser: String,
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// A user whom the provider logged in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct User {
    #[serde(rename = "s")]
    pub(super) subject: String,
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    pub(super) username: Option<String>,
    /// Email address, unless the provider says that it is not verified.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub(super) email: Option<String>,
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
}

/// An authorization code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Code {
    #[serde(rename = "q")]
    pub(super) request: AuthorizationRequest,
    #[serde(rename = "w")]
    pub(super) user: User,
    /// Names the login: the code and all refresh tokens that follow from it.
    #[serde(rename = "i")]
    pub(super) login: String,
    /// Time of the login, in seconds of Unix time.
    #[serde(rename = "a")]
    pub(super) authenticated: u64,
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// A refresh token. Each use replaces it by one with the next serial number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RefreshToken {
    #[serde(rename = "c")]
    pub(super) client_id: String,
    #[serde(rename = "s")]
    pub(super) scopes: Vec<String>,
    #[serde(rename = "r")]
    pub(super) resource: String,
    #[serde(rename = "w")]
    pub(super) user: User,
    #[serde(rename = "i")]
    pub(super) login: String,
    #[serde(rename = "n")]
    pub(super) serial: u64,
    #[serde(rename = "a")]
    pub(super) authenticated: u64,
    /// End of the login, which no refresh prolongs.
    #[serde(rename = "e")]
    pub(super) expires: u64,
    /// Thumbprint of the client's key, to which the tokens of the login are bound (RFC 9449).
    #[serde(rename = "j", default, skip_serializing_if = "Option::is_none")]
    pub(super) thumbprint: Option<String>,
}

macro_rules! expiring {
    ($($value:ty: $kind:literal,)*) => {$(
        impl Sealed for $value {
            const KIND: &'static str = $kind;

            fn expires(&self) -> Option<u64> {
                Some(self.expires)
            }
        }
    )*};
}

expiring! {
    ConsentForm: "oauth-consent-1",
    LoginState<AuthorizationRequest>: "oauth-login-1",
    LoginState<String>: "oauth-visit-1",
    Recognized: "oauth-visitor-1",
    Code: "oauth-code-1",
    RefreshToken: "oauth-refresh-1",
}
