//! Builds a server out of its parts, and replaces the snapshot that it serves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::Audit;
use crate::catalog::{Announcer, Catalog, QueueLimits};
use crate::config::ServerConfig;
use crate::execute::Calls;
use crate::inflight::Inflight;
use crate::limit::Limits;
use crate::liveness::Liveness;
use crate::method::MethodHandler;
use crate::observability::Observability;
use crate::parts::Server;
use crate::replicas::Replicas;
use crate::request_context::CallerDefaults;
use crate::seal::{KeyRing, random_bytes};
use crate::sessions::Sessions;
use crate::snapshot::{Admission, ListChanges, Snapshot};
use crate::snapshots::Snapshots;
use crate::state::SharedState;
use crate::streams::Streams;
use crate::tasks::Tasks;
use crate::telemetry::{OPEN_STREAMS, Telemetry};
use crate::worker_state::MAIN_ENDPOINT;

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
    /// Name of this replica, such as that of its host, for operators.
    pub name: Option<Box<str>>,
    /// Name of the endpoint; `None` for `/mcp`.
    pub endpoint: Option<Box<str>>,
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
        let config = config.within_bounds();
        let metrics = &telemetry.metrics;
        let labels: Vec<_> = shared
            .endpoint
            .iter()
            .map(|name| ("endpoint", &**name))
            .collect();
        let endpoint = match &shared.endpoint {
            None => MAIN_ENDPOINT.to_owned(),
            // Endpoint names contain no colon, so the result is unambiguous.
            Some(name) => format!("{MAIN_ENDPOINT}:{name}"),
        };
        let endpoint = endpoint.as_str();
        let replica = u64::from_ne_bytes(random_bytes());
        catalog.count_in(metrics);
        telemetry.mark_secret(&catalog.secret_arguments());
        let snapshot = Snapshot::new(catalog, &config, admission);
        let identity = (&keys, endpoint, replica);
        let hits = Arc::clone(&limits.hits);
        let sessions = Sessions::new(identity, config.session_seconds, hits, metrics);
        let inflight = Arc::new(Inflight::new(
            config.client_requests.clone(),
            replica,
            metrics.gauge(&OPEN_STREAMS, &[]),
            Arc::clone(&limits.hits),
        ));
        inflight.client_requests.show(metrics, &labels);
        let liveness = Liveness::new(shared.state.clone(), endpoint, replica);
        let snapshots = Arc::new(Snapshots::new(snapshot, metrics, &labels));
        let streams = Arc::new(Streams::new(
            config.streams.clone(),
            (shared.state.clone(), shared.is_shared),
            (endpoint, Arc::clone(&liveness)),
            Arc::clone(&inflight),
            shared.announcer,
            Arc::clone(&snapshots),
        ));
        Streams::show(&streams, metrics, &labels);
        let tasks = Tasks::new(
            (shared.state.clone(), shared.is_shared),
            config.tasks.clone(),
            endpoint,
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
            snapshots,
            observability: Observability::new(telemetry.clone(), &methods),
            config,
            keys,
            endpoint: endpoint.into(),
            replica,
            methods,
            sessions,
            streams,
            tasks,
            replicas: Replicas::new(shared.name.as_deref()),
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
}
