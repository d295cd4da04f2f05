//! Errors of outgoing requests.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Failure of a request to another server.
///
/// Messages are safe to show to the caller that caused the request. They name the requested host, but not its
/// addresses, the rest of the URL, or any sent data. The cause is meant for the log.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The URL is malformed or its scheme is not supported.
    #[error("this URL cannot be used: {0}")]
    Url(&'static str),
    /// The host is not permitted.
    #[error("{host} is not among the hosts that may be reached from here")]
    Host {
        /// The host.
        host: String,
    },
    /// An address of the host is not permitted.
    #[error("{host} is at an address that may not be reached from here")]
    Address {
        /// The host.
        host: String,
    },
    /// The host's address is not known.
    #[error("{host} has no address")]
    Resolve {
        /// The host.
        host: String,
        /// Error of the resolver.
        #[source]
        source: Cause,
    },
    /// No connection came about.
    #[error("cannot connect to {host}:{port}")]
    Connect {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Error of the operating system.
        #[source]
        source: Cause,
    },
    /// The host failed TLS authentication or does not support TLS.
    #[error("no TLS connection to {host} could be established")]
    Tls {
        /// The host.
        host: String,
        /// Underlying error.
        #[source]
        source: Cause,
    },
    /// The request timed out.
    #[error("{host} took longer than {} s {phase}", (limit.as_secs_f64() * 100.0).round() / 100.0)]
    Timeout {
        /// The host.
        host: String,
        /// Doing what.
        phase: Phase,
        /// Time limit that was exceeded.
        limit: Duration,
    },
    /// The response is too large.
    #[error("the response of {host} is larger than {max} bytes")]
    TooLarge {
        /// The host.
        host: String,
        /// Maximum size in bytes, after decompression.
        max: usize,
    },
    /// The process has no memory for the response.
    #[error("there is no memory for the response of {host} (limits.memory_bytes); try again later")]
    Memory {
        /// The host.
        host: String,
    },
    /// The content encoding was not requested, or the data does not match it.
    #[error(
        "the response of {host} has an unsupported content encoding, or is incomplete or damaged"
    )]
    Encoding {
        /// The host.
        host: String,
    },
    /// The number of redirects exceeds the limit.
    #[error("{host} redirects further than {max} times")]
    Redirects {
        /// The host.
        host: String,
        /// Maximum number of redirects.
        max: usize,
    },
    /// The target of a redirect is not permitted.
    #[error("{host} redirects to where this request cannot go: {problem}")]
    Redirect {
        /// The host.
        host: String,
        /// Reason for the rejection.
        problem: &'static str,
    },
    /// The connection broke, or what came over it was no HTTP.
    #[error("the connection to {host} broke")]
    Broken {
        /// The host.
        host: String,
        /// Underlying error.
        #[source]
        source: Cause,
    },
}

/// Source error of a [`FetchError`].
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Formats an error with its chain of sources, for the log and the operator.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some errors already include the text of their source.
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

/// Phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Looking up addresses.
    Resolve,
    /// Connecting.
    Connect,
    /// Agreeing on keys.
    Tls,
    /// Waiting for the response to begin.
    FirstByte,
    /// Waiting for more of the response.
    Body,
    /// All of it together.
    Total,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Resolve => "to look up",
            Self::Connect => "to connect to",
            Self::Tls => "to agree on keys",
            Self::FirstByte => "to begin its response",
            Self::Body => "to continue its response",
            Self::Total => "to answer",
        })
    }
}

impl FetchError {
    /// Returns true if the server may have processed the request, because part of it was sent before the failure.
    ///
    /// A request that was not sent can be retried without the risk of a duplicate effect.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Url(_)
            | Self::Host { .. }
            | Self::Address { .. }
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Tls { .. } => false,
            Self::Timeout { phase, .. } => {
                matches!(phase, Phase::FirstByte | Phase::Body | Phase::Total)
            }
            Self::TooLarge { .. }
            | Self::Memory { .. }
            | Self::Encoding { .. }
            | Self::Redirects { .. }
            | Self::Redirect { .. }
            | Self::Broken { .. } => true,
        }
    }

    /// Error kind, from a small fixed set of labels.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Url(_) | Self::Host { .. } | Self::Address { .. } => "not_allowed",
            Self::Resolve { .. } => "name_resolution_error",
            Self::Connect { .. } | Self::Broken { .. } => "connection_error",
            Self::Tls { .. } => "tls_error",
            Self::Timeout { .. } => "timeout",
            Self::TooLarge { .. } => "too_large",
            Self::Memory { .. } => "memory",
            Self::Encoding { .. } => "encoding",
            Self::Redirects { .. } | Self::Redirect { .. } => "redirect",
        }
    }

    /// Returns true if no connection was established, so that the content of the request cannot be the cause.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Resolve { .. }
                | Self::Connect { .. }
                | Self::Tls { .. }
                | Self::Timeout {
                    phase: Phase::Resolve | Phase::Connect | Phase::Tls,
                    ..
                }
        )
    }

    /// Returns true if the fault lies with the other server or the network, and not with the request. A
    /// [`Breaker`](super::Breaker) counts these errors.
    pub fn is_fault_of_server(&self) -> bool {
        matches!(
            self,
            Self::Resolve { .. }
                | Self::Connect { .. }
                | Self::Tls { .. }
                | Self::Timeout { .. }
                | Self::Encoding { .. }
                | Self::Broken { .. }
        )
    }
}
