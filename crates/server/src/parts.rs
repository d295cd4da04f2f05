//! The parts of a server. Each owns its state; the handlers of methods combine them. What transports ask of a server is beside
//! its handling: in `http.rs`, `stdio.rs`, `rest_calls.rs`, `http_sse_2024.rs` and `streams`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::client_requests::ClientRequestCounts;
use super::config::ServerConfig;
use super::execute::Calls;
use super::method::MethodHandler;
use super::observability::Observability;
use super::replicas::Replicas;
use super::request_context::CallerDefaults;
use super::sessions::Sessions;
use super::snapshot::Snapshot;
use super::snapshots::Snapshots;
use super::streams::Streams;
use super::tasks::Tasks;
use crate::audit::Audit;
use crate::catalog::RejectedItem;
use crate::limit::Limits;
use crate::protocol::message::MessageBounds;
use crate::seal::KeyRing;
use crate::state::SharedState;
use crate::telemetry::Telemetry;

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

impl Server {
    /// Waits until no call is left that outlives its request.
    pub async fn idle(&self) {
        self.calls.inflight.idle().await;
    }

    /// Aborts running calls. Their callers get an error that says that the server stops.
    pub fn stop_calls(&self) {
        self.calls.inflight.stop();
    }

    /// Closes all streams at shutdown, in the way that makes their clients reconnect elsewhere. Without other replicas,
    /// which could receive the responses of clients, pending requests to clients fail.
    pub fn end_streams(&self) {
        self.streams.stop();
        if !self.streams.is_shared() {
            self.fail_client_requests();
        }
    }

    /// Fails the requests to clients that wait for a response, and those that follow, since no response can arrive any more.
    pub fn fail_client_requests(&self) {
        self.calls.inflight.client_requests.stop();
    }

    /// Counters of the requests sent to clients.
    pub fn client_request_counts(&self) -> ClientRequestCounts {
        self.calls.inflight.client_requests.counts()
    }

    /// Telemetry of this server.
    pub fn telemetry(&self) -> &Telemetry {
        &self.observability.telemetry
    }

    /// The snapshot that is served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.load_full()
    }

    /// Configured items that are not served, with the reasons.
    pub fn refusals(&self) -> Vec<RejectedItem> {
        self.snapshots.load().catalog.refused().to_vec()
    }

    /// Source and location of each configured item that is not served. The reasons are in the log.
    pub fn refused(&self) -> Vec<Value> {
        let snapshot = self.snapshots.load();
        let refused = snapshot.catalog.refused().iter();
        refused
            .map(|refused| serde_json::json!({"source": refused.source, "place": refused.place}))
            .collect()
    }

    /// Messages about configured items that cannot be served, for operators.
    #[cfg(feature = "cli")]
    pub fn problems(&self) -> Vec<String> {
        let snapshot = self.snapshots.load();
        let refused = snapshot.catalog.refused().iter();
        refused.map(ToString::to_string).collect()
    }

    /// Other replicas that were seen lately; none without a shared state.
    pub fn replicas(&self) -> Vec<Value> {
        self.replicas.described()
    }

    /// Number of tools.
    pub fn tool_count(&self) -> usize {
        self.snapshots.load().catalog.len()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
