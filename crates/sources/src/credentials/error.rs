//! Reasons why a request cannot be authenticated.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;

use super::client_key::ClientKeyError;
use crate::client::ClientError;
use crate::net::{FetchError, FetchedResponse};
use crate::source::tokens::KeepError;

/// Reason why a request cannot be authenticated. The messages hold no secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("the credentials for it cannot be read")]
    File(#[source] std::io::Error),
    #[error("the token request cannot be signed with client_key.file")]
    ClientKey(#[from] ClientKeyError),
    #[error("its credentials contain characters that a header cannot hold")]
    NotText,
    #[error("cannot reach its issuer of tokens: {0}")]
    Fetch(#[from] FetchError),
    #[error("its issuer of tokens rejected the request: {0}")]
    Refused(Rejection),
    #[error("the response of its issuer is not a token")]
    NoToken,
    #[error("cannot reach its issuer of tokens: {0}")]
    Client(String),
    #[error("its token cannot be read or stored: {0}")]
    Kept(#[from] KeepError),
    #[error(
        "the key that the token is bound to cannot be used; log in again with `longshore login`"
    )]
    DpopKey,
    #[error(
        "the issuer did not bind the token to a key (RFC 9449); remove oauth.dpop, or change the client's settings there"
    )]
    NotBound,
    #[error("too many tokens are being requested; try again in a moment")]
    Busy,
    /// The error of a request that several calls have waited for.
    #[error(transparent)]
    Shared(Arc<CredentialError>),
    #[error("this process is ending")]
    Ending,
    #[error("no user has logged in; run `longshore login`")]
    NoLogin,
    #[error("the login has ended; log in again with `longshore login`")]
    LoginEnded,
    #[error(
        "its issuer rejects the refresh token; configure a new one, obtained by a user's consent"
    )]
    RefreshEnded,
    #[error("there is no caller whose rights could be used")]
    NoCaller,
    #[error(
        "it is used with your own rights, for which you need an access token; you authenticated otherwise ({0})"
    )]
    NoCallerToken(&'static str),
    #[error(
        "your access token was not exchanged for one that it accepts ({0}); log in again, or ask the operator of this server to check your rights there"
    )]
    Exchange(Rejection),
    #[error("log in to {} first: open {} in a browser, then call again", .0.host, .0.url)]
    LoginNeeded(LoginNeeded),
    #[error(
        "it is used with your own login, and this server cannot recognize you in a browser; you authenticated as {0}, and it needs a login by auth.oauth.facade or an API key"
    )]
    NotRecognized(&'static str),
}

impl CredentialError {
    /// Returns true if the reason lies with the caller, so that others are not affected and the caller can act on the
    /// message.
    pub(crate) fn concerns_caller(&self) -> bool {
        matches!(
            self,
            Self::NoCallerToken(_)
                | Self::Exchange(_)
                | Self::LoginNeeded(_)
                | Self::NotRecognized(_)
        )
    }

    /// Returns true for a failure that calls which waited for the same request share. A login that is missing or has ended
    /// is none.
    pub(super) fn is_failure(&self) -> bool {
        !matches!(self, Self::NoLogin | Self::LoginEnded | Self::RefreshEnded)
    }

    /// Returns true if the issuer rejects this server as its client.
    pub(super) fn is_of_client(&self) -> bool {
        match self {
            Self::Refused(rejection) => rejection.is_of_client(),
            Self::Shared(error) => error.is_of_client(),
            _ => false,
        }
    }

    /// Converts it to an error of the MCP client.
    pub(crate) fn into_client_error(self) -> ClientError {
        match self {
            Self::LoginNeeded(needed) => ClientError::LoginNeeded {
                url: needed.url.into(),
            },
            error if error.concerns_caller() => ClientError::CallerCredentials(error.to_string()),
            error => ClientError::Credentials(error.to_string()),
        }
    }
}

/// An error response of the issuer (RFC 6749, section 5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    pub(super) status: StatusCode,
    /// The `error` member, shortened and without control characters.
    pub(super) code: Box<str>,
}

/// Longest error code that messages contain, in characters.
const CODE_MAX_CHARS: usize = 60;

impl Rejection {
    /// Reads the rejection in a response: an unsuccessful status or, as GitHub does it, an error with status 200.
    pub(super) fn of(answer: &FetchedResponse) -> Option<Self> {
        #[derive(Deserialize)]
        struct Body {
            error: String,
        }
        let body: Option<Body> = serde_json::from_slice(&answer.body).ok();
        let code = body.map(|body| body.error).unwrap_or_default();
        let is_plain = |c: &char| c.is_ascii_graphic();
        let code: Box<str> = code.chars().filter(is_plain).take(CODE_MAX_CHARS).collect();
        (!answer.status.is_success() || !code.is_empty()).then_some(Self {
            status: answer.status,
            code,
        })
    }

    /// Returns true if the issuer denies the request (RFC 6749, section 5.2), rather than having a failure of its own.
    pub(super) fn is_denial(&self) -> bool {
        let is_denied = matches!(
            self.status,
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        );
        let is_passing = matches!(
            &*self.code,
            "server_error" | "temporarily_unavailable" | "slow_down"
        );
        (is_denied || self.status.is_success()) && !is_passing
    }

    /// Returns true if the issuer denies requests of this server, whoever the user is.
    pub(super) fn is_of_client(&self) -> bool {
        matches!(
            &*self.code,
            "invalid_client" | "unauthorized_client" | "incorrect_client_credentials"
        )
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.code {
            "" => write!(f, "status {}", self.status.as_u16()),
            code => write!(f, "{code}, status {}", self.status.as_u16()),
        }
    }
}

/// A login that a user has to make first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginNeeded {
    pub(crate) source: Box<str>,
    pub(crate) host: Box<str>,
    /// The page for the user. The link alone grants nothing.
    pub(crate) url: Box<str>,
}
