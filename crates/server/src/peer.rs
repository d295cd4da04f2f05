//! State of a client with a connection of its own: over stdio, or over HTTP+SSE.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use crate::seal::Session;

/// State of the one client of a process or of an HTTP+SSE session.
#[derive(Debug, Default)]
pub(crate) struct StdioPeer {
    pub(super) session: OnceLock<Session>,
    pub(super) listens: AtomicBool,
    /// True for HTTP+SSE clients, which have no stateless era.
    pub(super) has_sessions_only: bool,
}

impl StdioPeer {
    /// Creates the state of a client of the 2024-11-05 HTTP+SSE transport.
    pub(super) fn for_http_sse() -> Self {
        Self {
            has_sessions_only: true,
            ..Self::default()
        }
    }

    /// The session, after `initialize`.
    pub(super) fn session(&self) -> Option<&Session> {
        self.session.get()
    }

    /// Returns true after `initialize`.
    pub(crate) fn has_session(&self) -> bool {
        self.session.get().is_some()
    }
}
