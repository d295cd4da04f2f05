//! Message handling: one JSON-RPC message in, one reply out, independent of transport and sockets.
//!
//! `http.rs`, `stdio.rs` and `rest_calls.rs` are the entry points. They choose the lifecycle of a message:
//! `handshake.rs` for revisions up to 2025-11-25, `stateless.rs` for 2026-07-28. Both lifecycles end in `dispatch.rs`,
//! which calls the handler of the method.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]
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
mod errors;
mod execute;
mod handshake;
mod http;
mod http_head;
mod http_sse_2024;
mod inflight;
mod instrument;
mod listings;
mod lists;
mod liveness;
mod log_levels;
mod logging;
mod messages;
mod method;
mod mount;
mod notifications;
mod observability;
mod operations;
mod param_headers;
mod parts;
mod peer;
mod prompts;
mod reply;
mod request_context;
mod resource_cache;
mod resources;
mod rest_calls;
mod replay;
mod running_call;
mod search;
mod sessions;
mod share;
mod skills;
mod snapshot;
mod snapshots;
mod source_startup;
mod sse_sessions;
mod stateless;
mod stdio;
mod streams;
mod target;
mod tasks;
mod text;
mod tool_response;
mod tool_result;
mod tool_search;
mod tools;
mod visibility;
mod waiters;
mod worker_state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use ::http::{Extensions, HeaderMap};
use bytes::Bytes;
use serde_json::Value;

pub use client_requests::{ClientRequestConfig, ClientRequestCounts};
pub use config::{BatchPolicy, ServerConfig, StaleSessions, ValidationErrors};
pub use http_head::HttpHead;
pub use inflight::next_heartbeat;
pub use messages::MessagesConfig;
pub use method::{MethodFuture, MethodHandler};
pub use mount::EndpointConfig;
pub use mount::{EndpointFilter, endpoint_name_problem};
#[cfg(any(fuzzing, test, feature = "testing"))]
pub use param_headers::{HeaderValueState, read as read_header};
pub use param_headers::{McpHeaders, VersionHeader};
pub use parts::Server;
pub use peer::{StdioPeer, TestHttpRequest};
pub use reply::{JsonResponse, MaybeReady, RejectReason, Reply, limited};
pub use search::SearchConfig;
pub use search::VERBS as SEARCH_VERBS;
pub use share::STATE_KINDS;
pub use snapshot::{Admission, ListChanges, Snapshot};
pub use streams::StreamsConfig;
pub use streams::{EventData, EventSource, StreamEvent};
pub use tasks::TaskConfig;
pub use text::truncated;
pub use worker_state::{WorkerState, unix_seconds};

use crate::audit::Audit;
use crate::auth::Principal;
use crate::catalog::{Announcer, Catalog, QueueLimits, RejectedItem};
use crate::limit::Limits;
use crate::seal::{KeyRing, random_bytes};
use crate::state::SharedState;
use crate::telemetry::{OPEN_STREAMS, RequestOrigin, Telemetry};
use execute::Calls;
use http_sse_2024::ReplyTask;
use inflight::Inflight;
use liveness::Liveness;
use observability::Observability;
use request_context::CallerDefaults;
use sessions::Sessions;
use snapshots::Snapshots;
use streams::{OpenFuture, Streams};
use tasks::Tasks;
use worker_state::MAIN_ENDPOINT;

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
    /// Builds the parts of a server.
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
        let labels: Vec<_> = shared.mount.iter().map(|name| ("mount", &**name)).collect();
        let mount = match &shared.mount {
            None => MAIN_ENDPOINT.to_owned(),
            // Endpoint names contain no colon, so the result is unambiguous.
            Some(name) => format!("{MAIN_ENDPOINT}:{name}"),
        };
        let mount = mount.as_str();
        let replica = u64::from_ne_bytes(random_bytes());
        catalog.count_in(metrics);
        telemetry.mark_secret(&catalog.secret_arguments());
        let snapshot = Snapshot::new(catalog, &config, admission);
        let identity = (&keys, mount, replica);
        let hits = Arc::clone(&limits.hits);
        let sessions = Sessions::new(identity, config.session_seconds, hits, metrics);
        let inflight = Arc::new(Inflight::new(
            config.client_requests.clone(),
            replica,
            metrics.gauge(&OPEN_STREAMS, &[]),
            Arc::clone(&limits.hits),
        ));
        inflight.client_requests.show(metrics, &labels);
        let liveness = Liveness::new(shared.state.clone(), mount, replica);
        let streams = Arc::new(Streams::new(
            config.streams.clone(),
            (shared.state.clone(), shared.is_shared),
            (mount, Arc::clone(&liveness)),
            Arc::clone(&inflight),
            shared.announcer,
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
            bounds: config.messages.bounds(),
            caller_defaults: CallerDefaults {
                stream_after: Duration::from_secs(config.stream_after_seconds),
                room: QueueLimits {
                    messages: config.streams.queue_messages,
                    bytes: config.streams.queue_bytes,
                },
                propagation: telemetry.propagation(),
            },
            calls: Calls {
                timeout: Duration::from_secs(config.call_timeout_seconds),
                client_request_timeout: Duration::from_secs(config.client_requests.timeout_seconds),
                limits: Arc::clone(&limits),
                inflight,
                streams: Arc::clone(&streams),
            },
            snapshots: Snapshots::new(snapshot, metrics, &labels),
            observability: Observability::new(telemetry.clone(), &methods),
            config,
            keys,
            mount: mount.into(),
            replica,
            methods,
            sessions,
            streams,
            tasks,
            limits,
            state: shared.state,
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
        catalog.count_in(&self.telemetry().metrics);
        PreparedSnapshot(Snapshot::new(catalog, config, admission))
    }

    /// Serves a prepared snapshot from the next request on. Requests in progress keep the snapshot that they started
    /// with.
    pub fn install(&self, prepared: PreparedSnapshot) -> ListChanges {
        let PreparedSnapshot(snapshot) = prepared;
        let secrets = snapshot.catalog.secret_arguments();
        self.telemetry().mark_secret(&secrets);
        self.snapshots.install(snapshot)
    }

    /// Handles the body of one POST. Returns `Ready` if nothing has to wait; otherwise registers with `cx`.
    #[inline]
    pub fn handle_http(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        worker: &WorkerState,
        head: &mut HttpHead<'_>,
        body: &Bytes,
    ) -> MaybeReady {
        http::handle(self, cx, worker, head, body)
    }

    /// Ends the session named by a DELETE request (LH-09).
    pub fn end_session(
        &self,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<(), Reply> {
        http::end_session(self, worker, head, version)
    }

    /// Handles one message that arrived over stdio, as `seen` describes.
    pub fn handle_stdio(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, RequestOrigin<'_>),
        peer: &StdioPeer,
        principal: &Arc<Principal>,
        body: &Bytes,
    ) -> MaybeReady {
        stdio::handle(self, cx, by, peer, principal, body)
    }

    /// The stream of notifications of a session. Returns it once, as soon as there is a session.
    pub fn stdio_notifications(
        self: &Arc<Self>,
        peer: &StdioPeer,
        principal: &Arc<Principal>,
    ) -> Option<Box<dyn EventSource>> {
        stdio::notifications(self, peer, principal)
    }

    /// Calls a tool with the arguments in `body`: a JSON object, or nothing. The reply is a response to `tools/call` of
    /// the newest revision.
    pub fn call_tool_rest(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, RequestOrigin<'_>),
        principal: &Arc<Principal>,
        headers: (&mut HeaderMap, Option<&Arc<Extensions>>),
        name: &str,
        body: &Bytes,
    ) -> MaybeReady {
        rest_calls::call_tool(self, cx, by, principal, headers, name, body)
    }

    /// Returns one page of the tools, as a response to `tools/list` of the newest revision.
    pub fn list_tools_rest(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        principal: &Arc<Principal>,
        cursor: Option<&str>,
    ) -> MaybeReady {
        rest_calls::list_tools(self, cx, principal, cursor)
    }

    /// Server information for REST clients.
    pub fn info(&self) -> Value {
        rest_calls::info(self)
    }

    /// Name and version of the server and of the runtime.
    pub fn version(&self) -> Value {
        rest_calls::version(self)
    }

    /// Opens an HTTP+SSE session and its stream. `path` is the path to which the client posts messages (SSE24-01).
    pub fn open_sse_session(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        address: Option<IpAddr>,
        path: &str,
    ) -> Result<Box<dyn EventSource>, Reply> {
        http_sse_2024::open(self, principal, address, path)
    }

    /// Handles a message posted to an HTTP+SSE session.
    pub fn post_sse_message(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        by: (&WorkerState, RequestOrigin<'_>),
        principal: &Arc<Principal>,
        id: &str,
        body: &Bytes,
    ) -> Result<ReplyTask, Reply> {
        http_sse_2024::post(self, cx, by, principal, id, body)
    }

    /// Returns true if sessions can have notification streams.
    pub fn has_standing_streams(&self) -> bool {
        streams::has_standing_streams(self)
    }

    /// Handles GET (LH-03, LH-04, LH-13).
    pub fn open_stream(
        self: &Arc<Self>,
        worker: &WorkerState,
        head: &HttpHead<'_>,
        version: VersionHeader,
    ) -> Result<OpenFuture, Reply> {
        streams::open_stream(self, worker, head, version)
    }

    /// Delivers notifications and coordinates with other replicas, until it is dropped. It must run once.
    pub async fn run_notifications(self: Arc<Self>) {
        streams::run(&self).await;
    }

    /// Waits until no call is left that outlives its request.
    pub async fn idle(&self) {
        self.calls.inflight.idle().await;
    }

    /// Aborts running calls. Their callers get an error that says that the server stops.
    pub fn stop_calls(&self) {
        self.calls.inflight.stop();
    }

    /// Closes all streams at shutdown, in the way that makes their clients reconnect elsewhere.
    pub fn end_streams(&self) {
        self.streams.stop();
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

    /// Number of tools.
    pub fn tool_count(&self) -> usize {
        self.snapshots.load().catalog.len()
    }
}
