//! A message in, a reply out. No sockets here.
//!
//! `http.rs` and `stdio.rs` decide for each message which of the two lifecycles it belongs to (`handshake.rs` up to
//! 2025-11-25, `stateless.rs` for 2026-07-28), and hand what both agree on to
//! one dispatcher. Everything after that is shared.

mod audited;
mod batch;
mod call;
mod completion;
mod config;
mod content;
mod custom;
mod dispatch;
mod generation;
mod handshake;
mod heard;
mod http;
mod incoming;
mod kept;
mod legacy;
mod lists;
mod liveness;
mod local;
mod logging;
mod messages;
mod method;
mod mirror;
mod mount;
mod offered;
mod plain;
mod prompts;
mod questions;
mod reply;
mod resources;
mod rounds;
mod run;
mod search;
mod seen;
mod share;
mod skills;
mod starting;
mod stateless;
mod stdio;
mod stream;
mod streams;
mod tasks;
#[cfg(test)]
mod tests;
mod tools;
mod watched;

use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

pub(crate) use call::next_heartbeat;
pub use config::{BatchPolicy, ServerConfig, StaleSessions, ValidationErrors};
pub(crate) use http::HttpHead;
pub(crate) use local::{Local, unix_seconds};
pub use messages::MessagesConfig;
pub use method::{MethodFuture, MethodHandler};
pub(crate) use mirror::{McpHeaders, VersionHeader};
#[cfg(any(fuzzing, test))]
pub(crate) use mirror::{Mirrored, read as read_mirrored};
pub use mount::EndpointConfig;
pub(crate) use mount::{Chosen, fault_of_mount};
pub use questions::{ClientRequestConfig, ClientRequestCounts};
pub(crate) use reply::{Answer, Refusal, Reply, limited};
pub use search::SearchConfig;
pub(crate) use search::VERBS as SEARCH_VERBS;
pub(crate) use share::STATE_KINDS;
pub(crate) use stdio::StdioPeer;
pub use streams::StreamsConfig;
pub(crate) use streams::{Part, Parts, Said};
pub use tasks::TaskConfig;

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
use call::Inflight;
pub(crate) use generation::Changes;
use generation::Generation;
use incoming::{Caller, Headers, Incoming};
use legacy::LegacySessions;
use liveness::Liveness;
use logging::Levels;
use offered::Offered;
use questions::Questions;
use starting::Waiters;
use streams::Streams;
use tasks::Tasks;
use watched::Operations;

/// One MCP server: a catalog, and what it takes to answer for it.
pub(crate) struct Server {
    generation: ArcSwap<Generation>,
    /// Notified after another generation was installed.
    installed: Notify,
    /// Requests that wait for a generation in which more is offered.
    waiters: Arc<Waiters>,
    config: ServerConfig,
    /// How much one message may hold.
    bounds: MessageBounds,
    keys: Arc<KeyRing>,
    revoked: Revoked,
    methods: HashMap<String, Arc<dyn MethodHandler>>,
    /// The name of the endpoint; bound into everything that is sealed.
    mount: Box<str>,
    offered: Offered,
    /// Names this process in the sessions that it issues.
    replica: u64,
    inflight: Arc<Inflight>,
    /// How long a client with a session has to answer a question.
    question_timeout: Duration,
    levels: Levels,
    pub(crate) limits: Arc<Limits>,
    streams: Arc<Streams>,
    legacy: LegacySessions,
    announcer: Announcer,
    tasks: Arc<Tasks>,
    /// Whether other replicas can be reached by way of the state.
    reaches_others: bool,
    telemetry: Telemetry,
    operations: Operations,
    /// Sessions that were opened, by revision.
    sessions_opened: [Counter; Revision::ALL.len()],
    session_life: Timing,
    pub(crate) state: SharedState,
    /// Who is told what happens, if anybody is.
    pub(crate) audit: Option<Arc<Audit>>,
}

/// A generation that is complete and not served yet.
#[derive(Debug)]
pub(crate) struct Prepared(Generation);

/// What a server shares with its application and with other replicas.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) state: SharedState,
    /// Whether other replicas may have the same state.
    pub(crate) is_shared: bool,
    pub(crate) announcer: Announcer,
    /// The name of the endpoint, if it is another than `/mcp`.
    pub(crate) mount: Option<Box<str>>,
}

/// What the endpoint at `/mcp` is called where it is sealed in.
pub(crate) const MAIN: &str = "mcp";

/// What comes of a message.
pub(crate) enum Handled {
    /// The usual case: nothing had to wait.
    Now(Reply),
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
}

/// What is known of who is let in, and of what they may.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    pub(crate) policy: Option<Policy>,
    /// Whether callers have to say who they are.
    pub(crate) proved: bool,
}

/// What a server is made of, by those who have it from other rooms.
pub(crate) struct ServerParts {
    pub(crate) config: ServerConfig,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) shared: Shared,
    pub(crate) catalog: Catalog,
    /// Methods of the application's own, by name.
    pub(crate) methods: HashMap<String, Arc<dyn MethodHandler>>,
    pub(crate) telemetry: Telemetry,
    pub(crate) admission: Admission,
    pub(crate) limits: Arc<Limits>,
    pub(crate) audit: Option<Arc<Audit>>,
}

impl Server {
    pub(crate) fn new(parts: ServerParts) -> Self {
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
        let generation = Arc::new(Generation::new(catalog, &config, admission));
        let offered = Offered::new(&generation);
        offered.show(metrics, &labels);
        let mount = match &shared.mount {
            None => MAIN.to_owned(),
            // No name of an endpoint has a colon in it.
            Some(name) => format!("{MAIN}:{name}"),
        };
        let mount = mount.as_str();
        let replica = u64::from_ne_bytes(crate::seal::random_bytes());
        let questions = config.client_requests.clone();
        let question_timeout = Duration::from_secs(questions.timeout_seconds);
        let open_streams = metrics.gauge(&OPEN_STREAMS, &[]);
        let hits = Arc::clone(&limits.hits);
        let inflight = Arc::new(Inflight::new(questions, replica, open_streams, hits));
        Questions::show(&inflight, metrics, &labels);
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
            generation: ArcSwap::new(generation),
            installed: Notify::new(),
            waiters: Arc::default(),
            bounds: config.messages.bounds(),
            config,
            keys,
            revoked: Revoked::default(),
            methods,
            mount: mount.into(),
            offered,
            replica,
            question_timeout,
            inflight,
            levels: Levels::default(),
            limits,
            streams,
            legacy: LegacySessions::default(),
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

    /// What would be served with another catalog and other settings. Of the settings only those count that are live.
    pub(crate) fn prepare(
        &self,
        mut catalog: Catalog,
        config: &ServerConfig,
        admission: Admission,
    ) -> Prepared {
        catalog.count_in(&self.telemetry.metrics);
        Prepared(Generation::new(catalog, config, admission))
    }

    /// Serves what was prepared, from the next request on. Those that are under way end as they began.
    pub(crate) fn install(&self, prepared: Prepared) -> Changes {
        let generation = Arc::new(prepared.0);
        let secrets = generation.catalog.secret_arguments();
        self.telemetry.mark_secret(&secrets);
        self.offered.replace(&generation);
        let before = self.generation.swap(Arc::clone(&generation));
        self.installed.notify_waiters();
        generation.changes(&before)
    }

    /// How much of what a call says may wait to be sent.
    #[inline]
    fn room(&self) -> Room {
        let streams = &self.config.streams;
        Room {
            messages: streams.queue_messages,
            bytes: streams.queue_bytes,
        }
    }

    /// Waits until no call is left that outlives its request.
    pub(crate) async fn idle(&self) {
        self.inflight.idle().await;
    }

    /// Ends the calls that still run; their callers are told that the server stops.
    pub(crate) fn stop_calls(&self) {
        self.inflight.stop();
    }

    /// What has become of the questions that were asked.
    pub(crate) fn client_request_counts(&self) -> ClientRequestCounts {
        self.inflight.questions.counts()
    }

    /// What is watched of this server.
    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// What is served now.
    pub(crate) fn generation(&self) -> Arc<Generation> {
        self.generation.load_full()
    }

    /// What is configured and not offered.
    pub(crate) fn refusals(&self) -> Vec<Refused> {
        self.generation.load().catalog.refused().to_vec()
    }

    /// What is configured and not offered: of each the source and the place. What is wrong with it is in the log.
    pub(crate) fn refused(&self) -> Vec<serde_json::Value> {
        let generation = self.generation.load();
        let refused = generation.catalog.refused().iter();
        refused
            .map(|refused| serde_json::json!({"source": refused.source, "place": refused.place}))
            .collect()
    }

    /// What is configured and cannot be offered, with the reasons, for whoever runs the server.
    #[cfg(feature = "cli")]
    pub(crate) fn problems(&self) -> Vec<String> {
        let generation = self.generation.load();
        let refused = generation.catalog.refused().iter();
        refused.map(ToString::to_string).collect()
    }

    /// How many tools there are.
    pub(crate) fn tool_count(&self) -> usize {
        self.generation.load().catalog.len()
    }

    /// The server stops: streams are ended, each in the way that has its client come back elsewhere.
    pub(crate) fn end_streams(&self) {
        self.streams.stop();
    }
}

impl Handled {
    /// The reply, once there is one.
    pub(crate) async fn reply(self) -> Reply {
        match self {
            Self::Now(reply) => reply,
            Self::Later(reply) => reply.await,
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

/// A stranger's text, cut to what fits into an error message.
pub(crate) fn truncated(text: &str) -> Cow<'_, str> {
    const MAX_BYTES: usize = 200;
    if text.len() <= MAX_BYTES {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!(
        "{}...",
        &text[..text.floor_char_boundary(MAX_BYTES)]
    ))
}
