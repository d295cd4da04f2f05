//! Message handling: one JSON-RPC message in, one reply out, independent of transport and sockets.
//!
//! `http.rs`, `stdio.rs` and `rest_calls.rs` are the entry points. They choose the lifecycle of a message:
//! `handshake.rs` for revisions up to 2025-11-25, `stateless.rs` for 2026-07-28. Both lifecycles end in `dispatch.rs`,
//! which calls the handler of the method.

// Only the crate `longshore` is a documented API.
#![allow(missing_docs, missing_debug_implementations)]
// Without some features the items that only those use are unused. The default build still finds dead code.
#![cfg_attr(not(all(feature = "cli")), allow(dead_code, unused_imports))]

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use crate as server;
use longshore_catalog as catalog;
use longshore_core::{audit, auth, limit, seal, state, telemetry};
use longshore_net::{environment, net};
use longshore_protocol as protocol;

pub mod harness;
pub mod transport;

mod audit_record;
mod batch;
mod call_stream;
mod catalog_metrics;
mod client_requests;
mod completion;
mod config;
mod content;
mod custom;
mod dispatch;
mod execute;
mod handshake;
mod http;
mod http_sse_2024;
mod inflight;
mod instrument;
mod lists;
mod liveness;
mod logging;
mod messages;
mod method;
mod mount;
mod notifications;
mod param_headers;
mod prompts;
mod reply;
mod request_context;
mod resource_cache;
mod resources;
mod rest_calls;
mod rounds;
mod search;
mod share;
mod skills;
mod snapshot;
mod starting;
mod stateless;
mod stdio;
mod streams;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;
mod visibility;
mod worker_state;

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

pub use client_requests::{ClientRequestConfig, ClientRequestCounts};
pub use config::{BatchPolicy, ServerConfig, StaleSessions, ValidationErrors};
pub use http::HttpHead;
pub use inflight::next_heartbeat;
pub use messages::MessagesConfig;
pub use method::{MethodFuture, MethodHandler};
pub use mount::EndpointConfig;
pub use mount::{EndpointFilter, endpoint_name_problem};
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use param_headers::{HeaderValueState, read as read_header};
pub use param_headers::{McpHeaders, VersionHeader};
pub use reply::{JsonResponse, Refusal, Reply, limited};
pub use search::SearchConfig;
pub use search::VERBS as SEARCH_VERBS;
pub use share::STATE_KINDS;
pub(crate) use stdio::{StdioPeer, TestHttpRequest};
pub use streams::StreamsConfig;
pub use streams::{EventData, EventSource, StreamEvent};
pub use tasks::TaskConfig;
pub use worker_state::{WorkerState, unix_seconds};

use crate::audit::Audit;
use crate::auth::Policy;
use crate::catalog::{Announcer, Catalog, Refused, Room};
use crate::limit::Limits;
use crate::protocol::message::MessageBounds;
use crate::protocol::{ErrorCode, Revision};
use crate::seal::{KeyRing, Revoked};
use crate::state::SharedState;
use crate::telemetry::{
    Counter, OPEN_STREAMS, SESSION_DURATION, SESSIONS_OPENED, Telemetry, Timing,
};
use catalog_metrics::CatalogMetrics;
use client_requests::ClientRequests;
use http_sse_2024::SseSessions;
use inflight::Inflight;
use instrument::Operations;
use liveness::Liveness;
use logging::SessionLogLevels;
use request_context::{Caller, Headers, RequestContext};
pub(crate) use snapshot::ListChanges;
use snapshot::Snapshot;
use starting::Waiters;
use streams::Streams;
use tasks::Tasks;

/// An MCP server: the catalog that it serves and the state that it keeps for its clients.
pub struct Server {
    snapshot: ArcSwap<Snapshot>,
    /// Notified after a new snapshot is installed.
    installed: Notify,
    /// Requests that wait for a source to finish starting.
    waiters: Arc<Waiters>,
    config: ServerConfig,
    /// Size limits of one message.
    bounds: MessageBounds,
    keys: Arc<KeyRing>,
    revoked: Revoked,
    methods: HashMap<String, Arc<dyn MethodHandler>>,
    /// Name of the endpoint; bound into everything that is sealed.
    mount: Box<str>,
    catalog_metrics: CatalogMetrics,
    /// Random identifier of this process, stored in the sessions that it issues.
    replica: u64,
    inflight: Arc<Inflight>,
    /// Maximum time that a client with a session has to answer a client request.
    question_timeout: Duration,
    levels: SessionLogLevels,
    pub limits: Arc<Limits>,
    streams: Arc<Streams>,
    legacy: SseSessions,
    announcer: Announcer,
    tasks: Arc<Tasks>,
    /// True if other replicas can be reached through the shared state.
    reaches_others: bool,
    telemetry: Telemetry,
    operations: Operations,
    /// Number of sessions opened, by revision.
    sessions_opened: [Counter; Revision::ALL.len()],
    session_life: Timing,
    pub state: SharedState,
    /// Audit log, if one is configured.
    pub audit: Option<Arc<Audit>>,
}

/// A complete snapshot that is not served yet.
#[derive(Debug)]
pub struct PreparedSnapshot(Snapshot);

/// State that a server shares with its application and with other replicas.
#[derive(Debug, Default)]
pub struct ServerContext {
    pub state: SharedState,
    /// True if other replicas may use the same state.
    pub is_shared: bool,
    pub announcer: Announcer,
    /// Name of the endpoint; `None` for `/mcp`.
    pub mount: Option<Box<str>>,
}

/// Name of the endpoint `/mcp` in sealed data.
pub(crate) const MAIN_ENDPOINT: &str = "mcp";

/// A reply, or the future that produces it.
pub enum MaybeReady {
    /// The usual case: no stage had to wait.
    Ready(Reply),
    Pending(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// Access rules and authentication requirement of an endpoint.
#[derive(Debug, Default)]
pub struct Admission {
    pub policy: Option<Policy>,
    /// True if callers must authenticate.
    pub proved: bool,
}

/// Dependencies of a server, built by other modules.
pub struct ServerParts {
    pub config: ServerConfig,
    pub keys: Arc<KeyRing>,
    pub shared: ServerContext,
    pub catalog: Catalog,
    /// Custom methods of the application, by name.
    pub methods: HashMap<String, Arc<dyn MethodHandler>>,
    pub telemetry: Telemetry,
    pub admission: Admission,
    pub limits: Arc<Limits>,
    pub audit: Option<Arc<Audit>>,
}

impl Server {
    pub fn new(parts: ServerParts) -> Self {
        let ServerParts {
            config,
            keys,
            shared,
            mut catalog,
            methods,
            telemetry,
            admission,
            limits,
            audit,
        } = parts;
        let metrics = &telemetry.metrics;
        catalog.count_in(metrics);
        let operations = Operations::new(metrics, &methods);
        let sessions_opened = Revision::ALL.map(|revision| {
            let labels = [("mcp.protocol.version", revision.as_str())];
            match revision.has_sessions() {
                true => metrics.counter(&SESSIONS_OPENED, &labels),
                false => Counter::default(),
            }
        });
        let session_life = metrics.timing(&SESSION_DURATION, &[("network.protocol.name", "http")]);
        let labels: Vec<_> = shared.mount.iter().map(|name| ("mount", &**name)).collect();
        telemetry.mark_secret(&catalog.secret_arguments());
        let snapshot = Arc::new(Snapshot::new(catalog, &config, admission));
        let catalog_metrics = CatalogMetrics::new(&snapshot);
        catalog_metrics.show(metrics, &labels);
        let mount = match &shared.mount {
            None => MAIN_ENDPOINT.to_owned(),
            // Endpoint names contain no colon, so the result is unambiguous.
            Some(name) => format!("{MAIN_ENDPOINT}:{name}"),
        };
        let mount = mount.as_str();
        let replica = u64::from_ne_bytes(crate::seal::random_bytes());
        let client_requests = config.client_requests.clone();
        let question_timeout = Duration::from_secs(client_requests.timeout_seconds);
        let open_streams = metrics.gauge(&OPEN_STREAMS, &[]);
        let hits = Arc::clone(&limits.hits);
        let inflight = Arc::new(Inflight::new(client_requests, replica, open_streams, hits));
        ClientRequests::show(&inflight, metrics, &labels);
        let liveness = Liveness::new(shared.state.clone(), mount, replica);
        let streams = Arc::new(Streams::new(
            config.streams.clone(),
            (shared.state.clone(), shared.is_shared),
            (mount, Arc::clone(&liveness)),
            Arc::clone(&inflight),
            shared.announcer.interest(),
        ));
        Streams::show(&streams, metrics, &labels);
        let tasks = Tasks::new(
            (shared.state.clone(), shared.is_shared),
            config.tasks.clone(),
            mount,
            Arc::clone(&streams),
            liveness,
        );
        tasks.show(metrics, &labels);
        Self {
            snapshot: ArcSwap::new(snapshot),
            installed: Notify::new(),
            waiters: Arc::default(),
            bounds: config.messages.bounds(),
            config,
            keys,
            revoked: Revoked::default(),
            methods,
            mount: mount.into(),
            catalog_metrics,
            replica,
            question_timeout,
            inflight,
            levels: SessionLogLevels::default(),
            limits,
            streams,
            legacy: SseSessions::default(),
            announcer: shared.announcer,
            state: shared.state,
            tasks,
            reaches_others: shared.is_shared,
            telemetry,
            operations,
            sessions_opened,
            session_life,
            audit,
        }
    }

    /// Builds a snapshot of another catalog and configuration. Only settings that can be reloaded are taken from
    /// `config`.
    pub fn prepare(
        &self,
        mut catalog: Catalog,
        config: &ServerConfig,
        admission: Admission,
    ) -> PreparedSnapshot {
        catalog.count_in(&self.telemetry.metrics);
        PreparedSnapshot(Snapshot::new(catalog, config, admission))
    }

    /// Serves a prepared snapshot from the next request on. Requests in progress keep the snapshot that they started
    /// with.
    pub fn install(&self, prepared: PreparedSnapshot) -> ListChanges {
        let snapshot = Arc::new(prepared.0);
        let secrets = snapshot.catalog.secret_arguments();
        self.telemetry.mark_secret(&secrets);
        self.catalog_metrics.replace(&snapshot);
        let before = self.snapshot.swap(Arc::clone(&snapshot));
        self.installed.notify_waiters();
        snapshot.changes(&before)
    }

    /// Limits of the queue of outgoing messages of one call.
    #[inline]
    fn room(&self) -> Room {
        let streams = &self.config.streams;
        Room {
            messages: streams.queue_messages,
            bytes: streams.queue_bytes,
        }
    }

    /// Waits until no call is left that outlives its request.
    pub async fn idle(&self) {
        self.inflight.idle().await;
    }

    /// Aborts running calls. Their callers get an error that says that the server stops.
    pub fn stop_calls(&self) {
        self.inflight.stop();
    }

    /// Counters of the requests sent to clients.
    pub(crate) fn client_request_counts(&self) -> ClientRequestCounts {
        self.inflight.client_requests.counts()
    }

    /// Telemetry of this server.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// The snapshot that is served now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Configured items that are not served, with the reasons.
    pub fn refusals(&self) -> Vec<Refused> {
        self.snapshot.load().catalog.refused().to_vec()
    }

    /// Source and location of each configured item that is not served. The reasons are in the log.
    pub fn refused(&self) -> Vec<serde_json::Value> {
        let snapshot = self.snapshot.load();
        let refused = snapshot.catalog.refused().iter();
        refused
            .map(|refused| serde_json::json!({"source": refused.source, "place": refused.place}))
            .collect()
    }

    /// Messages about configured items that cannot be served, for operators.
    #[cfg(feature = "cli")]
    pub fn problems(&self) -> Vec<String> {
        let snapshot = self.snapshot.load();
        let refused = snapshot.catalog.refused().iter();
        refused.map(ToString::to_string).collect()
    }

    /// Number of tools.
    pub fn tool_count(&self) -> usize {
        self.snapshot.load().catalog.len()
    }

    /// Closes all streams at shutdown, in the way that makes their clients reconnect elsewhere.
    pub fn end_streams(&self) {
        self.streams.stop();
    }
}

impl MaybeReady {
    /// Waits for the reply.
    pub async fn reply(self) -> Reply {
        match self {
            Self::Ready(reply) => reply,
            Self::Pending(reply) => reply.await,
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("mount", &self.mount)
            .finish_non_exhaustive()
    }
}

fn malformed(message: &'static str) -> Reply {
    Reply::refuse(Refusal::Malformed, None, ErrorCode::InvalidRequest, message)
}

/// Untrusted text, shortened to fit into an error message.
pub fn truncated(text: &str) -> Cow<'_, str> {
    const MAX_BYTES: usize = 200;
    if text.len() <= MAX_BYTES {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!(
        "{}...",
        &text[..text.floor_char_boundary(MAX_BYTES)]
    ))
}
