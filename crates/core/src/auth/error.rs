//! Why nobody was let in.

use std::borrow::Cow;
use std::fmt;

/// Why a request was refused for what it shows, or does not show, of its sender.
///
/// Nothing in it repeats a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// Nothing was shown. 401.
    #[error("no credential was presented")]
    Missing,
    /// Credentials in a form that may mean several things. 400.
    #[error("{0}")]
    Malformed(&'static str),
    /// A credential that is not known, has ended, or is for somebody else. 401. The caller is told the text, in which
    /// there is nothing but ASCII without quotation marks and backslashes.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// A credential that is longer than any may be, by `auth.token_bytes` or `auth.key_bytes`. 401.
    #[error("the {0} is too long")]
    TooLong(Credential),
    /// The credential is good, but lacks scopes that are needed. 403.
    #[error("the credential lacks a scope that is needed: {}", .required.join(" "))]
    InsufficientScope {
        /// All that are needed.
        required: Vec<String>,
    },
    /// Whether the credential is good cannot be found out at this time. 503.
    #[error("{0}")]
    Unavailable(Cow<'static, str>),
}

/// What a request shows to say who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// What `Authorization: Bearer` has.
    Token,
    /// What `X-API-Key` has.
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
