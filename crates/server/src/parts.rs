//! The parts of a server. Each owns its state; the handlers of methods combine them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::config::ServerConfig;
use super::execute::Calls;
use super::method::MethodHandler;
use super::observability::Observability;
use super::replicas::Replicas;
use super::request_context::CallerDefaults;
use super::sessions::Sessions;
use super::snapshots::Snapshots;
use super::streams::Streams;
use super::tasks::Tasks;
use crate::audit::Audit;
use crate::limit::Limits;
use crate::protocol::message::MessageBounds;
use crate::seal::KeyRing;
use crate::state::SharedState;

/// An MCP server: the catalog that it serves and the state that it keeps for its clients.
pub struct Server {
    pub(super) config: ServerConfig,
    pub(super) caller_defaults: CallerDefaults,
    /// Size limits of one message.
    pub(super) bounds: MessageBounds,
    pub(super) keys: Arc<KeyRing>,
    /// Name of the endpoint; bound into everything that is sealed.
    pub(super) endpoint: Box<str>,
    /// Random identifier of this process, stored in the sessions that it issues.
    pub(super) replica: u64,
    /// Custom methods of the application, by name.
    pub(super) methods: HashMap<String, Arc<dyn MethodHandler>>,
    /// The catalog and everything derived from it.
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) sessions: Sessions,
    /// Execution and cancellation of calls.
    pub(super) calls: Calls,
    /// Notification streams, resumable streams and the other replicas.
    pub(super) streams: Arc<Streams>,
    pub(super) tasks: Arc<Tasks>,
    /// Other replicas, for operators.
    pub(super) replicas: Replicas,
    pub(super) observability: Observability,
    pub limits: Arc<Limits>,
    pub state: SharedState,
    /// Audit log, if one is configured.
    pub audit: Option<Arc<Audit>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
