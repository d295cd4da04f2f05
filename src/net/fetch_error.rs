//! Why something could not be fetched.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Why a request to another server came to nothing.
///
/// Messages can be shown to whoever caused the request: they name the host that was asked for, and neither its
/// addresses, nor the rest of the URL, nor anything that was sent. The cause is for the log.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The URL is none, or of a kind that is not asked for.
    #[error("this URL cannot be used: {0}")]
    Url(&'static str),
    /// The host is not among those that may be reached.
    #[error("{host} is not among the hosts that may be reached from here")]
    Host {
        /// The host.
        host: String,
    },
    /// An address of the host is not one that may be reached.
    #[error("{host} is at an address that may not be reached from here")]
    Address {
        /// The host.
        host: String,
    },
    /// The host's address is not known.
    #[error("there is no address for {host}")]
    Resolve {
        /// The host.
        host: String,
        /// What the resolver said.
        #[source]
        source: Cause,
    },
    /// No connection came about.
    #[error("{host} cannot be connected to")]
    Connect {
        /// The host.
        host: String,
        /// What the system said.
        #[source]
        source: Cause,
    },
    /// The host could not prove who it is, or does not speak TLS.
    #[error("no secure connection to {host} came about")]
    Tls {
        /// The host.
        host: String,
        /// What is wrong.
        #[source]
        source: Cause,
    },
    /// It took too long.
    #[error("{host} took longer than {} s {phase}", (limit.as_secs_f64() * 100.0).round() / 100.0)]
    Timeout {
        /// The host.
        host: String,
        /// Doing what.
        phase: Phase,
        /// How long it could have taken.
        limit: Duration,
    },
    /// The answer is too large.
    #[error("the answer of {host} is larger than {max} bytes")]
    TooLarge {
        /// The host.
        host: String,
        /// How large it could have been, after inflating.
        max: usize,
    },
    /// The answer is encoded in a way that was not asked for, or not in the way it says.
    #[error("the answer of {host} is encoded in a way that cannot be read")]
    Encoding {
        /// The host.
        host: String,
    },
    /// It was redirected too often.
    #[error("{host} redirects further than {max} times")]
    Redirects {
        /// The host.
        host: String,
        /// How often it could have been.
        max: usize,
    },
    /// It was redirected to where it cannot go.
    #[error("{host} redirects to where this request cannot go: {problem}")]
    Redirect {
        /// The host.
        host: String,
        /// Why not.
        problem: &'static str,
    },
    /// The connection broke, or what came over it was no HTTP.
    #[error("the connection to {host} broke")]
    Broken {
        /// The host.
        host: String,
        /// What is wrong.
        #[source]
        source: Cause,
    },
}

/// What lies behind a [`FetchError`].
pub type Cause = Arc<dyn Error + Send + Sync>;

/// An error with all that lies behind it: for the log, and for whoever runs this program.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some repeat in their own words what lies behind them.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Looking up addresses.
    Resolve,
    /// Connecting.
    Connect,
    /// Agreeing on keys.
    Tls,
    /// Waiting for an answer to begin.
    FirstByte,
    /// Waiting for more of an answer.
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
            Self::FirstByte => "to begin its answer",
            Self::Body => "to go on with its answer",
            Self::Total => "to answer",
        })
    }
}

impl FetchError {
    /// Whether the request may have been acted on: some of it was sent before this went wrong.
    ///
    /// What has not been sent can be tried again without the danger that something happens twice.
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
            | Self::Encoding { .. }
            | Self::Redirects { .. }
            | Self::Redirect { .. }
            | Self::Broken { .. } => true,
        }
    }

    /// What went wrong, in one word of a small set.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Url(_) | Self::Host { .. } | Self::Address { .. } => "not_allowed",
            Self::Resolve { .. } => "name_resolution_error",
            Self::Connect { .. } | Self::Broken { .. } => "connection_error",
            Self::Tls { .. } => "tls_error",
            Self::Timeout { .. } => "timeout",
            Self::TooLarge { .. } => "too_large",
            Self::Encoding { .. } => "encoding",
            Self::Redirects { .. } | Self::Redirect { .. } => "redirect",
        }
    }

    /// Returns true if no connection came about, so that it cannot be due to what was asked for.
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

    /// Whether the fault lies with the other server or the way to it, and not with what was asked for. This is what
    /// a [`Breaker`](super::Breaker) counts.
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
