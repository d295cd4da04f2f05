//! Workloads: requests to send, and the expected responses.

mod answer;
mod request;

use clap::ValueEnum;
use clap::builder::PossibleValue;

pub(crate) use answer::{Check, WrongAnswer, other_version};
pub(crate) use request::{Session, initialize, initialized, post};

/// A frequent client operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// `tools/call` of `echo` with a short message, in a session of 2025-06-18.
    Call,
    /// `tools/call` in 2026-07-28: no session, mirrored headers, `_meta`.
    CallStateless,
    /// `tools/list` of 50 tools, in a session.
    List50,
    /// `tools/list` of 500 tools, in a session.
    List500,
    /// `tools/list` of the 109 tools of 10,000 that a role has, in a session.
    ListRole,
    /// `ping`, in a session.
    Ping,
    /// `server/discover` of 2026-07-28.
    Discover,
    /// `initialize`, each time a new session.
    Initialize,
    /// `tools/call` of `echo` with a message of 64 KiB, in a session.
    Echo64k,
}

impl Workload {
    /// The name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::CallStateless => "call-stateless",
            Self::List50 => "list-50",
            Self::List500 => "list-500",
            Self::ListRole => "list-role",
            Self::Ping => "ping",
            Self::Discover => "discover",
            Self::Initialize => "initialize",
            Self::Echo64k => "echo-64k",
        }
    }

    /// Returns true if requests need a session.
    pub(crate) fn has_session(self) -> bool {
        !matches!(
            self,
            Self::CallStateless | Self::Discover | Self::Initialize
        )
    }

    /// Returns the number of tools that the server needs; `None` if the demo toolset is sufficient.
    pub(crate) fn tools(self) -> Option<usize> {
        match self {
            Self::List50 => Some(50),
            Self::List500 => Some(500),
            Self::ListRole => Some(109),
            _ => None,
        }
    }

    /// About how long an answer is, for a comparison that has no product to ask.
    pub(crate) fn usual_answer(self) -> usize {
        match self {
            Self::Call => 103,
            Self::CallStateless => 230,
            Self::List50 => 50 * 576,
            Self::List500 => 500 * 576,
            Self::ListRole => 109 * 576,
            Self::Ping => 39,
            Self::Discover | Self::Initialize => 300,
            Self::Echo64k => (64 << 10) + 100,
        }
    }

    /// Returns the default number of connections. With 64 of them, responses of 300 KB would measure the socket
    /// buffers.
    pub(crate) fn connections(self) -> u32 {
        if self == Self::List500 { 8 } else { 64 }
    }
}

impl ValueEnum for Workload {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Call,
            Self::CallStateless,
            Self::List50,
            Self::List500,
            Self::ListRole,
            Self::Ping,
            Self::Discover,
            Self::Initialize,
            Self::Echo64k,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}
