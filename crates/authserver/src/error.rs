//! Errors of the endpoints, in the words of OAuth.

use std::borrow::Cow;

use http::StatusCode;

use crate::auth::AuthError;

/// An error response of OAuth (RFC 6749, sections 4.1.2.1 and 5.2; RFC 7591, section 3.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OAuthError {
    /// The error code.
    pub(super) code: &'static str,
    /// Explanation for developers. Holds no secret.
    pub(super) description: Cow<'static, str>,
    pub(super) status: StatusCode,
    /// Nonce for the next DPoP proof.
    pub(super) nonce: Option<Box<str>>,
    /// Value of `Retry-After`, in seconds.
    pub(super) retry_after: Option<u64>,
}

impl OAuthError {
    pub(super) fn new(code: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            description: description.into(),
            status: StatusCode::BAD_REQUEST,
            nonce: None,
            retry_after: None,
        }
    }

    /// The DPoP proof of a token request is not acceptable (RFC 9449, sections 5 and 8).
    pub(super) fn dpop(error: AuthError) -> Self {
        match error {
            AuthError::UseDpopNonce(nonce) => Self {
                nonce: Some(nonce),
                ..Self::new(
                    "use_dpop_nonce",
                    "the DPoP proof needs the nonce of the header DPoP-Nonce",
                )
            },
            AuthError::Unavailable(reason) => Self {
                description: reason,
                ..Self::unavailable("")
            },
            error => Self::new("invalid_dpop_proof", error.to_string()),
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

    /// Too many attempts to authenticate failed at the client's address.
    pub(super) fn limited(seconds: u64) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            retry_after: Some(seconds),
            ..Self::unavailable(
                "too many attempts with a wrong client secret; try again after Retry-After",
            )
        }
    }

    /// The provider, a client's metadata document or the shared state is not available.
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
