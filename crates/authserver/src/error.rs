//! Errors of the endpoints, in the words of OAuth.

use std::borrow::Cow;

use http::StatusCode;

/// An error response of OAuth (RFC 6749, sections 4.1.2.1 and 5.2; RFC 7591, section 3.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OAuthError {
    /// The error code.
    pub(super) code: &'static str,
    /// Explanation for developers. Holds no secret.
    pub(super) description: Cow<'static, str>,
    pub(super) status: StatusCode,
}

impl OAuthError {
    pub(super) fn new(code: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            description: description.into(),
            status: StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn invalid_request(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new("invalid_request", description)
    }

    pub(super) fn invalid_grant(description: &'static str) -> Self {
        Self::new("invalid_grant", description)
    }

    pub(super) fn invalid_client(description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            ..Self::new("invalid_client", description)
        }
    }

    pub(super) fn access_denied(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new("access_denied", description)
    }

    /// The provider or the shared state does not respond.
    pub(super) fn unavailable(description: &'static str) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..Self::new("temporarily_unavailable", description)
        }
    }

    pub(super) fn server_error(description: &'static str) -> Self {
        Self {
            status: StatusCode::BAD_GATEWAY,
            ..Self::new("server_error", description)
        }
    }
}
