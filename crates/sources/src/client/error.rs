//! Errors of requests to other servers.

use std::time::Duration;

use url::Url;

use super::RpcError;
use crate::net::FetchError;
use crate::source::redact::without_query;

/// Reason why a request to another MCP server failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server responded with an error.
    #[error("{0}")]
    Rpc(#[from] RpcError),
    /// The server's program cannot be started.
    #[error("cannot start `{program}`: {reason}")]
    Start {
        /// Name of the program.
        program: String,
        /// Reason for the failure.
        reason: String,
    },
    /// The server disconnected, or was not reachable.
    #[error("{0}")]
    Gone(String),
    /// There was no response in time.
    #[error("no response within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The HTTP request failed.
    #[error(transparent)]
    Http(#[from] FetchError),
    /// The server responded with an HTTP error status.
    #[error("HTTP {status}{}", of_what(.said))]
    Status {
        /// HTTP status.
        status: u16,
        /// Beginning of the response body.
        said: String,
    },
    /// The server redirects to another URL.
    #[error("it redirects to {}; if that is the server, use that URL", without_query(.to))]
    Redirected {
        /// The URL to use.
        to: Url,
    },
    /// No credentials are available for the server.
    #[error("{0}")]
    Credentials(String),
    /// The caller has no credentials of its own for the server. The message is for the caller.
    #[error("{0}")]
    CallerCredentials(String),
    /// The user who calls has to log in to the server first.
    #[error("log in first: open {url} in a browser, then call again")]
    LoginNeeded {
        /// The page for the user.
        url: String,
    },
    /// The server requires authentication.
    #[error("it requires authentication (HTTP 401){}", of_what(.challenge))]
    Unauthorized {
        /// Value of `WWW-Authenticate`.
        challenge: String,
    },
    /// The credentials do not allow the request (HTTP 403, `insufficient_scope` of RFC 6750).
    #[error("the token lacks a scope (HTTP 403, insufficient_scope){}", of_what(.scope))]
    InsufficientScope {
        /// Required scopes, separated by spaces; empty if the server named none.
        scope: String,
    },
    /// The server needs the response to a client request (2026-07-28), and there is none.
    #[error("it needs a response of the client: {0}")]
    Unanswered(RpcError),
    /// The session has ended, and a new one has to be opened.
    #[error("the session has ended")]
    SessionEnded,
    /// The server no longer supports the protocol version of this connection. A new connection detects the lifecycle again.
    #[error("the server no longer supports the protocol version of this connection: {said}")]
    RevisionRefused {
        /// The server's rejection.
        said: Box<ClientError>,
    },
    /// The response exceeds the size limit of a message. The connection stays usable.
    #[error("response larger than {max} bytes (message_bytes)")]
    TooLarge {
        /// Maximum size of a message, in bytes.
        max: usize,
    },
    /// The response is not valid MCP.
    #[error("it does not speak MCP: {0}")]
    Protocol(String),
}

/// Returns what follows a colon in a message; nothing if there is nothing.
pub(super) fn of_what(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

impl ClientError {
    /// Returns true if the server may have executed the request although there is no response.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Rpc(_)
            | Self::Start { .. }
            | Self::SessionEnded
            | Self::RevisionRefused { .. }
            | Self::Redirected { .. }
            | Self::Credentials(_)
            | Self::CallerCredentials(_)
            | Self::LoginNeeded { .. }
            | Self::InsufficientScope { .. }
            | Self::Unauthorized { .. } => false,
            Self::Http(error) => error.may_have_happened(),
            Self::Gone(_)
            | Self::Timeout(_)
            | Self::Status { .. }
            | Self::TooLarge { .. }
            | Self::Unanswered(_)
            | Self::Protocol(_) => true,
        }
    }

    /// Returns true if the server is not working on the request: it was not reached, or has responded with this
    /// error.
    pub(super) fn is_refusal(&self) -> bool {
        !self.may_have_happened() || matches!(self, Self::Status { .. } | Self::Unanswered(_))
    }

    /// Returns the HTTP error status of the response, if it has one.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Rpc(error) => error.status,
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns true if no connection to the server came about, for whichever caller.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Http(error) if error.is_unreachable())
    }

    /// Returns true if the reason lies with the caller, so that others are not affected.
    pub(crate) fn concerns_caller(&self) -> bool {
        matches!(
            self,
            Self::CallerCredentials(_) | Self::LoginNeeded { .. } | Self::Unanswered(_)
        )
    }

    /// Returns the error of a request that carried the credentials of its caller: if the server denied it, it is the
    /// caller's right that is missing. The message contains nothing of the response but the scope.
    pub(crate) fn for_caller(self) -> Self {
        let message = match &self {
            Self::Unauthorized { .. } | Self::Status { status: 401, .. } => {
                "it does not accept your credentials (HTTP 401)".to_owned()
            }
            Self::Status { status: 403, .. } => {
                "you have no right to do this there (HTTP 403)".to_owned()
            }
            Self::InsufficientScope { scope } => format!(
                "your access token lacks a scope there (HTTP 403, insufficient_scope){}",
                of_what(scope)
            ),
            _ => return self,
        };
        Self::CallerCredentials(message)
    }

    /// Returns true if the next request needs a new connection.
    pub fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Gone(_)
                | Self::SessionEnded
                | Self::RevisionRefused { .. }
                | Self::Redirected { .. }
                | Self::Protocol(_)
                | Self::Start { .. }
        )
    }
}

/// Returns the beginning of untrusted text, on one line.
pub(super) fn beginning(said: &[u8]) -> String {
    const MAX: usize = 200;
    let text = String::from_utf8_lossy(&said[..said.len().min(4 * MAX)]);
    let mut line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX)
        .collect();
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_of_a_request_with_the_callers_credentials_is_the_callers() {
        let status = |status| ClientError::Status {
            status,
            said: "internal".to_owned(),
        };
        let denials = [
            ClientError::Unauthorized {
                challenge: "Bearer realm=internal".to_owned(),
            },
            ClientError::InsufficientScope {
                scope: "write".to_owned(),
            },
            status(401),
            status(403),
        ];
        for denial in denials {
            assert!(!denial.concerns_caller(), "{denial}");
            let error = denial.for_caller();
            assert!(error.concerns_caller(), "{error}");
            assert!(!error.to_string().contains("internal"), "{error}");
        }
        for other in [status(404), status(503), ClientError::Gone("x".to_owned())] {
            assert!(!other.for_caller().concerns_caller());
        }
    }
}
