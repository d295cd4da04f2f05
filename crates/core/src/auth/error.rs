//! Authentication errors.

use std::borrow::Cow;
use std::fmt;

/// Reason for which a request's credentials were rejected.
///
/// Messages never contain a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The request has no credentials (401).
    #[error("no credential was presented")]
    Missing,
    /// Ambiguous or malformed credentials (400).
    #[error("{0}")]
    Malformed(&'static str),
    /// Unknown credential, or one issued for another server (401). The client receives the text, which
    /// must be ASCII without quotation marks and backslashes.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// Expired access token with a valid signature (401). It is not counted as a failed authentication: many clients learn
    /// from the response that they have to refresh.
    #[error("the token has expired")]
    Expired,
    /// Credential longer than `auth.token_bytes` or `auth.key_bytes` (401).
    #[error("the {0} is too long")]
    TooLong(Credential),
    /// Missing or invalid DPoP proof (401, RFC 9449). The client receives the text.
    #[error("{0}")]
    InvalidDpopProof(Cow<'static, str>),
    /// The DPoP proof has no valid nonce of this server (401). The client repeats the request with this one.
    #[error("the DPoP proof needs the nonce of the header DPoP-Nonce")]
    UseDpopNonce(Box<str>),
    /// The credential is good, but lacks scopes that are needed. 403.
    #[error("the credential lacks a scope that is needed: {}", .required.join(" "))]
    InsufficientScope {
        /// All required scopes.
        required: Vec<String>,
    },
    /// The credential cannot be verified at this time (503).
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}

/// Kind of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// The token of `Authorization: Bearer`.
    Token,
    /// The value of `X-API-Key`.
    ApiKey,
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "token",
            Self::ApiKey => "API key",
        })
    }
}
