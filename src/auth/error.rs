//! Why nobody was let in.

use std::borrow::Cow;

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
