//! Why a request to another server came to nothing.

use std::time::Duration;

use super::RpcError;
use crate::net::FetchError;

/// Why a request to another MCP server came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The server answered with an error.
    #[error("{0}")]
    Rpc(#[from] RpcError),
    /// The program that serves cannot be started.
    #[error("cannot start `{program}`: {reason}")]
    Start {
        /// Which program.
        program: String,
        /// Why not.
        reason: String,
    },
    /// The server went away, or was never there.
    #[error("{0}")]
    Gone(String),
    /// No answer came in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// It cannot be reached over HTTP.
    #[error(transparent)]
    Http(#[from] FetchError),
    /// It answered with a status that means no.
    #[error("HTTP {status}{}", of_what(.said))]
    Status {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        said: String,
    },
    /// There are no credentials for it.
    #[error("{0}")]
    Credentials(String),
    /// It wants to know who calls.
    #[error("it wants to know who calls (HTTP 401){}", of_what(.challenge))]
    Unauthorized {
        /// Its `WWW-Authenticate`.
        challenge: String,
    },
    /// The credentials do not allow the request (HTTP 403, `insufficient_scope` of RFC 6750).
    #[error("the token lacks a scope (HTTP 403, insufficient_scope){}", of_what(.scope))]
    InsufficientScope {
        /// Required scopes, separated by spaces; empty if the server named none.
        scope: String,
    },
    /// The session has ended; a new one has to be opened.
    #[error("the session has ended")]
    SessionEnded,
    /// The server no longer supports the protocol version of this connection. A new connection detects the era again.
    #[error("the server no longer supports the protocol version of this connection: {said}")]
    RevisionRefused {
        /// The refusal.
        said: Box<ClientError>,
    },
    /// The response exceeds the size limit of a message. The connection stays usable.
    #[error("response larger than {max} bytes (message_bytes)")]
    TooLarge {
        /// Maximum size of a message, in bytes.
        max: usize,
    },
    /// What it says is not MCP.
    #[error("it does not speak MCP: {0}")]
    Protocol(String),
}

fn of_what(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

impl ClientError {
    /// Whether the server may have done what it was asked to do, though no answer tells.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Rpc(_)
            | Self::Start { .. }
            | Self::SessionEnded
            | Self::RevisionRefused { .. }
            | Self::Credentials(_)
            | Self::InsufficientScope { .. }
            | Self::Unauthorized { .. } => false,
            Self::Http(error) => error.may_have_happened(),
            Self::Gone(_)
            | Self::Timeout(_)
            | Self::Status { .. }
            | Self::TooLarge { .. }
            | Self::Protocol(_) => true,
        }
    }

    /// Returns true if the server is not working on the request: it was not reached, or has answered with this.
    pub(super) fn is_refusal(&self) -> bool {
        !self.may_have_happened() || matches!(self, Self::Status { .. })
    }

    /// Whether a new connection is needed before the next request.
    pub fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Gone(_)
                | Self::SessionEnded
                | Self::RevisionRefused { .. }
                | Self::Protocol(_)
                | Self::Start { .. }
        )
    }
}

/// The beginning of what a stranger said, on one line.
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
