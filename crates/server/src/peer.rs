//! State of a client with a connection of its own: over stdio, or over HTTP+SSE.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwapOption;
use http::{Extensions, HeaderMap};

use crate::net::Mutex;
use crate::protocol::Revision;
use crate::seal::Session;

/// State of the one client of a process or of an HTTP+SSE session.
#[derive(Debug, Default)]
pub struct StdioPeer {
    session: ArcSwapOption<Session>,
    /// Held while a session begins.
    beginning: Mutex<()>,
    pub(super) listens: AtomicBool,
    /// For HTTP+SSE clients, which have no stateless lifecycle: the revision of one that goes on without `initialize`.
    pub(super) assumed: Option<Revision>,
    /// Simulated HTTP request of each message, in tests.
    pub(super) http: Option<TestHttpRequest>,
}

/// Headers and extensions of a simulated HTTP request.
#[derive(Clone, Debug, Default)]
pub struct TestHttpRequest {
    pub headers: HeaderMap,
    pub extensions: Arc<Extensions>,
}

impl StdioPeer {
    /// Creates the state of a client of the 2024-11-05 HTTP+SSE transport.
    pub(super) fn for_http_sse(assumed: Revision) -> Self {
        Self {
            assumed: Some(assumed),
            ..Self::default()
        }
    }

    /// A client whose messages come with headers and extensions.
    pub fn with_http(http: Option<TestHttpRequest>) -> Self {
        Self {
            http,
            ..Self::default()
        }
    }

    /// The session, after `initialize`.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        self.session.load_full()
    }

    /// Begins a session. A further one takes the place of the first and has its name, so that its subscriptions and calls
    /// are kept: bridges that serve several clients from one process pass on `initialize` of each.
    pub(super) fn begin_session(&self, session: Session) -> Arc<Session> {
        let _one_at_a_time = self.beginning.lock();
        let session = Arc::new(match self.session() {
            Some(first) => session.in_place_of(&first),
            None => session,
        });
        self.session.store(Some(Arc::clone(&session)));
        session
    }

    /// Returns the session, which begins if there is none.
    pub(super) fn session_or(&self, begin: impl FnOnce() -> Session) -> Arc<Session> {
        let _one_at_a_time = self.beginning.lock();
        self.session().unwrap_or_else(|| {
            let session = Arc::new(begin());
            self.session.store(Some(Arc::clone(&session)));
            session
        })
    }

    /// Returns true after `initialize`.
    pub fn has_session(&self) -> bool {
        self.session.load().is_some()
    }
}
