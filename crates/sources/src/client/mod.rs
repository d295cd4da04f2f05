//! Client for MCP servers: programs that serve over standard input and output, and servers reached over HTTP, of
//! every supported protocol version.
//!
//! A [`Client`] is one connection. Concurrent requests share it, and each has its own listener for the messages about
//! it. It begins with `server/discover` of 2026-07-28. For legacy servers it falls back to the `initialize`
//! handshake, and finally to HTTP+SSE of 2024-11-05. The lifecycle of a server is cached ([`LifecycleCache`]).

mod attribution;
mod challenge;
mod credentials;
mod error;
mod http;
mod legacy;
mod lifecycle;
mod pages;
mod shared;
mod stdio;
mod watch;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};
use url::Url;

pub use attribution::Caller;
pub use credentials::Credentials;
pub use error::ClientError;
pub use lifecycle::{Lifecycle, LifecycleCache};
pub use pages::ListBudget;
pub use shared::{Events, Listener};
pub use wire::{Params, RpcError};

use crate::catalog::path_deserializer;
use crate::net::{self, Client as HttpClient, Program};
use crate::protocol::{Implementation, Revision};
use http::{HeaderInfo, Subscription};
use lifecycle::{DetectedLifecycle, Discovered, DiscoveryOutcome, judge};
use shared::{Expected, Shared};
use wire::RequestMeta;

/// Location of a server.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program to start, which serves over its standard input and output.
    Program(Program),
    /// A server reached over HTTP.
    Url {
        /// URL of its endpoint.
        url: Url,
        /// Headers of each request, mostly credentials.
        headers: HeaderMap,
        /// HTTP client. It must not limit the total time of a request, since streams are endless.
        client: HttpClient,
    },
}

/// Options of a connection.
#[derive(Clone)]
pub struct Options {
    /// Name of the server in the log.
    pub name: String,
    /// Client implementation declared to the server.
    pub implementation: Implementation,
    /// Client capabilities declared to the server, as the protocol's `ClientCapabilities`.
    pub capabilities: Map<String, Value>,
    /// Connect timeout. Default: 30 s.
    pub connect_timeout: Duration,
    /// Default timeout of a request. Default: 120 s.
    pub request_timeout: Duration,
    /// Maximum size of one message, in bytes. Default: 8 MiB.
    pub message_bytes: usize,
    /// Renewable credentials, over HTTP.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Receiver of messages outside of requests.
    pub events: Option<Arc<dyn Events>>,
    /// Protocol lifecycle to begin with. Default: `Auto`.
    pub lifecycle: Lifecycle,
    /// Cached lifecycle of the server. Share clones of one cache between all connections to a server.
    pub lifecycle_cache: LifecycleCache,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "upstream".to_owned(),
            implementation: Implementation::new("longshore", env!("CARGO_PKG_VERSION")),
            capabilities: Map::new(),
            connect_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(120),
            message_bytes: 8 * 1024 * 1024,
            credentials: None,
            events: None,
            lifecycle: Lifecycle::Auto,
            lifecycle_cache: LifecycleCache::default(),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Information that a server declares about itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Protocol version of the connection.
    pub revision: Revision,
    /// Server implementation.
    pub implementation: Implementation,
    /// Server capabilities, as the protocol's `ServerCapabilities`.
    pub capabilities: Map<String, Value>,
    /// Instructions for the model.
    pub instructions: Option<String>,
}

/// A connection to an MCP server. Dropping it closes the connection and ends a program that was started for it.
///
/// ```no_run
/// use longshore::client::{Client, Options, Params, Target};
/// use longshore::net::Program;
///
/// # async fn example() -> Result<(), longshore::client::ClientError> {
/// let target = Target::Program(Program::new("mcp-server-time"));
/// let client = Client::connect(target, Options::default()).await?;
/// for tool in client.list("tools/list", "tools").await? {
///     println!("{}", tool["name"]);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Client {
    link: Link,
    shared: Arc<Shared>,
    /// Protocol version of the connection.
    revision: Revision,
    server: Arc<ArcSwap<ServerInfo>>,
    options: Options,
    /// Members of each request's `_meta` that describe the client, in 2026-07-28.
    introduction: String,
    background: Vec<AbortHandle>,
    /// Subscribed resources.
    watching: tokio::sync::Mutex<watch::Subscriptions>,
}

enum Link {
    Stdio(stdio::Link),
    Http(Arc<http::Link>),
    Legacy(Box<legacy::Link>),
}

const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Method that subscribes to changes, in 2026-07-28.
const LISTEN: &str = "subscriptions/listen";
/// Result type of a result that contains client requests.
const INPUT_REQUIRED: &str = "input_required";
const DISCOVER: &str = "server/discover";
/// Timeout of `server/discover` over stdio. Legacy programs may never respond to it.
const PROGRAM_PROBE: Duration = Duration::from_secs(3);
/// Time to wait for the standalone GET stream of a legacy server. Some send no response headers before the first
/// event.
const OPENS: Duration = Duration::from_millis(300);
/// Maximum number of `server/discover` requests to a server that rejects a version which it lists as supported.
const PROBES_MAX: usize = 2;
/// Maximum number of rounds of client requests in one request.
const ROUNDS_MAX: usize = 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: String,
    #[serde(default)]
    capabilities: Map<String, Value>,
    #[serde(default)]
    server_info: Implementation,
    instructions: Option<String>,
}

impl Client {
    /// Connects to a server and negotiates the protocol version.
    ///
    /// # Errors
    ///
    /// The server is not reachable, or does not speak MCP.
    pub async fn connect(target: Target, options: Options) -> Result<Self, ClientError> {
        let limit = options.connect_timeout;
        timeout(limit, Self::open(&target, options))
            .await
            .unwrap_or(Err(ClientError::Timeout(limit)))
    }

    async fn open(target: &Target, options: Options) -> Result<Self, ClientError> {
        // Slightly less than the whole timeout, which leaves time to report the problem.
        let deadline = Instant::now() + options.connect_timeout.mul_f64(0.9);
        let mut client = Self::start(target, options)?;
        match client.options.lifecycle {
            Lifecycle::Modern => client.open_modern(deadline).await?,
            Lifecycle::Legacy => {
                client.open_legacy(target, None, deadline).await?;
            }
            Lifecycle::Auto => {
                let remembered = match client.options.lifecycle_cache.get() {
                    Some(DetectedLifecycle::Legacy) => client.initialize(deadline).await,
                    Some(DetectedLifecycle::HttpSse) => {
                        client.open_http_sse(target, deadline).await
                    }
                    Some(DetectedLifecycle::Modern) | None => {
                        return client.detect(target, deadline).await;
                    }
                };
                match remembered {
                    Ok(()) => {}
                    Err(error) if lifecycle::refutes_legacy(&error) => {
                        client.options.lifecycle_cache.forget();
                        let client = Self::start(target, client.options.clone())?;
                        return client.detect(target, deadline).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(client)
    }

    /// Creates a client whose protocol version is not negotiated yet.
    fn start(target: &Target, options: Options) -> Result<Self, ClientError> {
        let shared = Arc::new(Shared::new(options.events.clone()));
        let link = match target {
            Target::Program(program) => Link::Stdio(stdio::Link::start(
                program,
                &options.name,
                &options,
                &shared,
            )?),
            Target::Url {
                url,
                headers,
                client,
            } => Link::Http(Arc::new(http::Link::new(
                client.clone(),
                url.clone(),
                headers.clone(),
                &options,
            )?)),
        };
        let server = ServerInfo {
            revision: Revision::NEWEST_WITH_SESSIONS,
            implementation: Implementation::default(),
            capabilities: Map::new(),
            instructions: None,
        };
        Ok(Self {
            link,
            shared,
            revision: server.revision,
            server: Arc::new(ArcSwap::from_pointee(server)),
            options,
            introduction: String::new(),
            background: Vec::new(),
            watching: tokio::sync::Mutex::default(),
        })
    }

    /// Probes with `server/discover`, and falls back to `initialize` for a legacy server.
    async fn detect(mut self, target: &Target, deadline: Instant) -> Result<Self, ClientError> {
        self.speak(Revision::V2026_07_28);
        let limit = self.probe_time(deadline);
        let mut late = None;
        let mut verdict = DiscoveryOutcome::Again;
        for _ in 0..PROBES_MAX {
            (verdict, late) = self.probe(limit).await;
            if !matches!(verdict, DiscoveryOutcome::Again) {
                break;
            }
        }
        let (revision, is_certain) = match verdict {
            DiscoveryOutcome::Modern(discovered) => {
                self.options.lifecycle_cache.set(DetectedLifecycle::Modern);
                self.begin_modern(*discovered).await?;
                return Ok(self);
            }
            DiscoveryOutcome::Failed(error) => return Err(error),
            DiscoveryOutcome::Again => {
                return Err(ClientError::Protocol(
                    "it rejects a protocol version that it lists as supported".to_owned(),
                ));
            }
            DiscoveryOutcome::Legacy {
                revision,
                is_certain,
            } => (revision, is_certain),
            DiscoveryOutcome::Silent => (None, false),
        };
        // Some programs end when they receive an unknown request.
        let has_died = matches!(self.link, Link::Stdio(_)) && self.shared.is_closed();
        if has_died {
            tracing::debug!(
                upstream = self.options.name,
                "the program ended at server/discover; starting it again with initialize"
            );
            self = Self::start(target, self.options.clone())?;
        }
        let began = Instant::now();
        let opened = self.open_legacy(target, revision, deadline).await;
        // A program that was slow to start may have responded meanwhile.
        let late = late.and_then(|mut late: Expected| late.answer().now_or_never());
        let (answered_late, late) = match late.map(judge) {
            Some(DiscoveryOutcome::Modern(discovered)) => (true, Some(discovered)),
            Some(_) => (true, None),
            None => (false, None),
        };
        match (opened, late) {
            (Ok(_), Some(_)) => self.options.lifecycle_cache.set(DetectedLifecycle::Modern),
            (Ok(lifecycle), None) => {
                // A server that handled `initialize` much faster had time to respond to the probe, so it ignores that
                // method.
                let knows_it = is_certain
                    || has_died
                    || answered_late
                    || limit.is_some_and(|limit| began.elapsed() < limit / 2);
                if knows_it {
                    self.options.lifecycle_cache.set(lifecycle);
                }
            }
            (Err(_), Some(discovered)) => {
                self.speak(Revision::V2026_07_28);
                self.options.lifecycle_cache.set(DetectedLifecycle::Modern);
                self.begin_modern(*discovered).await?;
            }
            (Err(error), None) => return Err(error),
        }
        Ok(self)
    }

    /// Timeout of one probe; leaves time for `initialize`.
    fn probe_time(&self, deadline: Instant) -> Option<Duration> {
        let third = deadline.saturating_duration_since(Instant::now()) / 3;
        Some(match self.link {
            Link::Stdio(_) => third.min(PROGRAM_PROBE),
            Link::Http(_) | Link::Legacy(_) => third,
        })
    }

    /// Sends one `server/discover` request. Returns the pending response too if a program did not respond in time.
    async fn probe(&self, limit: Option<Duration>) -> (DiscoveryOutcome, Option<Expected>) {
        let Link::Stdio(link) = &self.link else {
            let params = Params::new();
            let outcome = Box::pin(self.exchange(DISCOVER, &params, None, limit)).await;
            return (judge(outcome), None);
        };
        let limit = limit.unwrap_or(self.options.connect_timeout);
        let mut expected = match self.shared.expect(None) {
            Ok(expected) => expected,
            Err(error) => return (judge(Err(error)), None),
        };
        let extra = RequestMeta {
            introduction: &self.introduction,
            ..RequestMeta::default()
        };
        let message = wire::request_with(expected.id, DISCOVER, &Params::new(), &extra);
        if let Err(error) = link.send(message.into()).await {
            return (judge(Err(error)), None);
        }
        match timeout(limit, expected.answer()).await {
            Ok(outcome) => (judge(outcome), None),
            Err(_) => (DiscoveryOutcome::Silent, Some(expected)),
        }
    }

    /// Connects with revision 2026-07-28 only.
    async fn open_modern(&mut self, deadline: Instant) -> Result<(), ClientError> {
        self.speak(Revision::V2026_07_28);
        for _ in 0..PROBES_MAX {
            let limit = deadline.saturating_duration_since(Instant::now());
            let params = Params::new();
            let outcome = Box::pin(self.exchange(DISCOVER, &params, None, Some(limit))).await;
            let error = outcome.as_ref().err().cloned();
            match judge(outcome) {
                DiscoveryOutcome::Modern(discovered) => {
                    return self.begin_modern(*discovered).await;
                }
                DiscoveryOutcome::Again => {}
                DiscoveryOutcome::Failed(error) => return Err(error),
                DiscoveryOutcome::Silent => {
                    return Err(ClientError::Timeout(self.options.connect_timeout));
                }
                DiscoveryOutcome::Legacy { .. } => {
                    let why = error.map_or_else(
                        || "its response to server/discover is not valid".to_owned(),
                        |error| format!("server/discover: {error}"),
                    );
                    return Err(ClientError::Protocol(format!(
                        "it does not speak revision 2026-07-28, and no other is allowed (protocol is modern): {why}"
                    )));
                }
            }
        }
        Err(ClientError::Protocol(
            "it rejects a protocol version that it lists as supported".to_owned(),
        ))
    }

    /// Connects with `initialize`, and over HTTP+SSE if the server refuses that.
    async fn open_legacy(
        &mut self,
        target: &Target,
        revision: Option<Revision>,
        deadline: Instant,
    ) -> Result<DetectedLifecycle, ClientError> {
        self.speak(revision.unwrap_or(Revision::NEWEST_WITH_SESSIONS));
        let error = match self.initialize(deadline).await {
            Ok(()) => return Ok(DetectedLifecycle::Legacy),
            Err(error) => error,
        };
        if !lifecycle::may_be_http_sse(&error) {
            return Err(error);
        }
        match self.link_by_http_sse(target).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return Err(error),
        }
        self.initialize(deadline).await?;
        Ok(DetectedLifecycle::HttpSse)
    }

    async fn open_http_sse(
        &mut self,
        target: &Target,
        deadline: Instant,
    ) -> Result<(), ClientError> {
        self.link_by_http_sse(target).await?;
        self.initialize(deadline).await
    }

    /// Opens the HTTP+SSE stream of 2024-11-05. Returns false if the server is a program.
    async fn link_by_http_sse(&mut self, target: &Target) -> Result<bool, ClientError> {
        let Target::Url {
            url,
            headers,
            client,
        } = target
        else {
            return Ok(false);
        };
        let (client, url, headers) = (client.clone(), url.clone(), headers.clone());
        let link = legacy::Link::open(client, url, headers, &self.options, &self.shared).await?;
        self.link = Link::Legacy(Box::new(link));
        Ok(true)
    }

    /// Sets the protocol version of later requests.
    fn speak(&mut self, revision: Revision) {
        self.revision = revision;
        self.introduction.clear();
        if !revision.has_sessions() {
            let said = self.introduced(Params::new()).meta;
            if let Ok(said) = serde_json::to_string(&said) {
                said[1..said.len() - 1].clone_into(&mut self.introduction);
            }
        }
        if let Link::Http(link) = &self.link {
            // A handshake begins without a version.
            link.speak((!revision.has_sessions()).then_some(revision));
        }
    }

    /// Connects with `initialize`, for versions up to 2025-11-25.
    async fn initialize(&mut self, deadline: Instant) -> Result<(), ClientError> {
        let params = Params::new()
            .with("protocolVersion", self.revision.as_str())
            .with(
                "capabilities",
                Value::Object(self.options.capabilities.clone()),
            )
            .with("clientInfo", json!(self.options.implementation));
        let limit = self.options.connect_timeout;
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = self.exchange("initialize", &params, None, Some(left));
        let result = match asked.await {
            Err(ClientError::Timeout(_)) if self.garbage() > 0 => {
                return Err(ClientError::Protocol(
                    "it writes lines that are not messages, and does not respond; check that the command starts an MCP server over standard input and output"
                        .to_owned(),
                ));
            }
            Err(ClientError::Timeout(_)) => return Err(ClientError::Timeout(limit)),
            result => result?,
        };
        let result: Initialized = serde_json::from_str(result.get()).map_err(|error| {
            ClientError::Protocol(format!("invalid response to initialize: {error}"))
        })?;
        let revision = Revision::parse(&result.protocol_version)
            .filter(|revision| revision.has_sessions())
            .ok_or_else(|| {
                ClientError::Protocol(format!("it speaks revision {:?}", result.protocol_version))
            })?;
        self.revision = revision;
        self.server.store(Arc::new(ServerInfo {
            revision,
            implementation: result.server_info,
            capabilities: result.capabilities,
            instructions: result.instructions,
        }));
        if let Link::Http(link) = &self.link {
            link.speak(Some(revision));
        }
        self.notify("notifications/initialized", &Params::new())
            .await?;
        // Without either, every message on that stream would be ignored.
        let is_heard = self.options.events.is_some() || !self.options.capabilities.is_empty();
        if let Link::Http(link) = &self.link
            && is_heard
        {
            let opened = Arc::new(Notify::new());
            let listening = Arc::clone(link).listen(Arc::clone(&self.shared), Arc::clone(&opened));
            self.background.push(net::spawn(listening).abort_handle());
            // Some servers lose client requests for a stream that is not open yet.
            if !self.options.capabilities.is_empty() {
                let _ = timeout(OPENS, opened.notified()).await;
            }
        }
        Ok(())
    }

    /// Sets up a connection of version 2026-07-28.
    async fn begin_modern(&mut self, discovered: Discovered) -> Result<(), ClientError> {
        self.server.store(Arc::new(discovered.into_info()));
        self.subscribe().await
    }

    /// Returns the server info. It can change during the connection, when a server of 2026-07-28 is restarted.
    pub fn server(&self) -> Arc<ServerInfo> {
        self.server.load_full()
    }

    /// Returns true if headers have to mirror the arguments that tool schemas mark with `x-mcp-header`: over HTTP in
    /// 2026-07-28.
    #[cfg(feature = "cli")]
    pub fn mirrors_arguments(&self) -> bool {
        !self.revision.has_sessions() && matches!(self.link, Link::Http(_))
    }

    /// Returns the protocol version of the connection.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns true if no further request is possible.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Returns true if a message was withheld from its caller that a new connection would deliver. The message named
    /// no request, and requests of other callers were abandoned on this connection.
    pub fn is_hindered(&self) -> bool {
        self.shared.is_hindered()
    }

    /// Returns the number of lines of a program's standard output that were not messages.
    pub fn garbage(&self) -> u64 {
        match &self.link {
            Link::Stdio(link) => link.garbage(),
            Link::Http(_) | Link::Legacy(_) => 0,
        }
    }

    /// Makes a request and waits for its result. Dropping the future cancels the request at the server.
    ///
    /// The client requests of the server go to `listener`, in every protocol version; so do progress and log
    /// messages.
    ///
    /// # Errors
    ///
    /// The server rejects the request, disconnects, or does not respond in time.
    pub async fn request(
        &self,
        method: &'static str,
        params: Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        self.ask(method, &params, listener, limit).await
    }

    /// Makes a request whose parameters can be used again.
    pub async fn ask(
        &self,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        if self.revision.has_sessions() {
            return self.exchange(method, params, listener, limit).await;
        }
        let result = self
            .exchange(method, params, listener.clone(), limit)
            .await?;
        // Few results contain client requests. The backslash is checked because the marker can be escaped.
        let text = result.get();
        if !text.contains(INPUT_REQUIRED) && !text.contains("\\u") {
            return Ok(result);
        }
        Box::pin(self.answer_questions(method, params, result, listener, limit)).await
    }

    /// In 2026-07-28, a result can contain client requests, and the request is repeated with the responses (MRTR).
    async fn answer_questions(
        &self,
        method: &'static str,
        params: &Params,
        mut result: Box<RawValue>,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ClientRound {
            #[serde(default)]
            result_type: String,
            #[serde(default)]
            input_requests: Map<String, Value>,
            request_state: Option<Box<RawValue>>,
        }
        #[derive(Deserialize)]
        struct Question {
            method: String,
            params: Option<Box<RawValue>>,
        }
        for _ in 0..ROUNDS_MAX {
            let round: ClientRound = match serde_json::from_str(result.get()) {
                Ok(round) => round,
                Err(_) => return Ok(result),
            };
            if round.result_type != INPUT_REQUIRED {
                return Ok(result);
            }
            let mut answers = Map::new();
            for (key, question) in round.input_requests {
                let question: Question = path_deserializer::read(&question).map_err(|misfit| {
                    ClientError::Protocol(format!("a question of its: {}", misfit.cause))
                })?;
                let asked = match &listener {
                    Some(listener) => listener.question(question.method, question.params).await,
                    None => Err(RpcError::new(-32601, "no client can be asked")),
                };
                answers.insert(key, asked.map_err(ClientError::Rpc)?);
            }
            let mut again = params.clone();
            if !answers.is_empty() {
                again = again.with("inputResponses", Value::Object(answers));
            }
            if let Some(state) = round.request_state {
                again = again.raw("requestState", state);
            }
            result = self
                .exchange(method, &again, listener.clone(), limit)
                .await?;
        }
        Err(ClientError::Protocol(format!(
            "it asked more than {ROUNDS_MAX} times about one request"
        )))
    }

    async fn exchange(
        &self,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        let stateless = !self.revision.has_sessions();
        let mut extra = RequestMeta::default();
        if let Some(listener) = &listener {
            extra.progress = listener.wants_progress();
            extra.log_level = listener.wants_log().filter(|_| stateless);
        }
        // Parameters that declare capabilities of their own also contain the introduction.
        if stateless && !params.meta.contains_key(CLIENT_CAPABILITIES) {
            extra.introduction = &self.introduction;
        }
        let mut expected = self.shared.expect(listener.clone())?;
        let id = expected.id;
        if let Some(listener) = listener {
            listener.sent(id);
        }
        let message = Bytes::from(wire::request_with(id, method, params, &extra));
        let mut abandoned = Abandoned {
            client: self,
            id,
            // `initialize` cannot be cancelled. In the stateless lifecycle, closing the connection is sufficient.
            tells: !(matches!(method, "initialize" | DISCOVER)
                || stateless && matches!(self.link, Link::Http(_))),
        };
        let limit = limit.unwrap_or(self.options.request_timeout);
        // Pinned in place, so that the timeout does not move the whole future.
        let exchanged = std::pin::pin!(async {
            match &self.link {
                Link::Stdio(link) => link.send(message).await?,
                Link::Legacy(link) => link.send(message).await?,
                Link::Http(link) => {
                    // Headers mirror it in versions without sessions.
                    let name = stateless
                        .then(|| {
                            let mut named = ["name", "uri", "taskId"].into_iter();
                            named.find_map(|member| params.text(member))
                        })
                        .flatten();
                    let about = HeaderInfo {
                        method,
                        name: name.as_deref(),
                        arguments: &params.headers,
                        meta: (!params.meta.is_empty()).then_some(&params.meta),
                    };
                    link.exchange(message, Some(id), about, &self.shared)
                        .await?;
                }
            }
            expected.answer().await
        });
        let answered = timeout(limit, exchanged).await;
        let answered = answered.map_err(|_| ClientError::Timeout(limit))?;
        abandoned.tells = false;
        if answered.as_ref().is_err_and(ClientError::is_refusal) {
            self.shared.over(id);
        }
        match answered {
            Err(ClientError::RevisionRefused { said }) => {
                Err(Box::pin(self.has_left_era(method, said)).await)
            }
            answered => answered,
        }
    }

    /// Probes again, to distinguish a server that has left its lifecycle from one that rejects a single request.
    async fn has_left_era(&self, method: &str, said: Box<ClientError>) -> ClientError {
        if method != DISCOVER {
            if !self.revision.has_sessions() {
                let limit = Some(self.options.connect_timeout);
                if let (DiscoveryOutcome::Modern(_), _) = Box::pin(self.probe(limit)).await {
                    return *said;
                }
            }
            self.options.lifecycle_cache.forget();
        }
        ClientError::RevisionRefused { said }
    }

    /// Returns request parameters that include the client's introduction.
    fn introduced(&self, params: Params) -> Params {
        params
            .meta(
                "io.modelcontextprotocol/protocolVersion",
                self.revision.as_str(),
            )
            .meta(
                "io.modelcontextprotocol/clientInfo",
                json!(self.options.implementation),
            )
            .meta(
                CLIENT_CAPABILITIES,
                Value::Object(self.options.capabilities.clone()),
            )
    }

    /// Returns request parameters that declare one more extension than usual, in 2026-07-28.
    pub(crate) fn declaring(&self, params: Params, extension: &str) -> Params {
        let mut capabilities = Value::Object(self.options.capabilities.clone());
        capabilities["extensions"][extension] = json!({});
        self.introduced(params)
            .meta(CLIENT_CAPABILITIES, capabilities)
    }

    /// Subscribes to list changes of a server without sessions, if it supports them and there is a receiver (SUB-03).
    async fn subscribe(&mut self) -> Result<(), ClientError> {
        let mut wanted = Map::new();
        let mut notices = Vec::new();
        for (list, notice, method) in [
            (
                "tools",
                "toolsListChanged",
                "notifications/tools/list_changed",
            ),
            (
                "resources",
                "resourcesListChanged",
                "notifications/resources/list_changed",
            ),
            (
                "prompts",
                "promptsListChanged",
                "notifications/prompts/list_changed",
            ),
        ] {
            let server = self.server();
            let tells = server.capabilities.get(list);
            if tells.is_some_and(|tells| tells["listChanged"] == true) {
                wanted.insert(notice.to_owned(), true.into());
                notices.push((method, None));
            }
        }
        if wanted.is_empty() || self.options.events.is_none() {
            return Ok(());
        }
        match &self.link {
            Link::Http(link) => {
                let subscription = self.subscription(Value::Object(wanted), notices);
                let subscribed = Arc::clone(link).subscribe(subscription, Arc::clone(&self.shared));
                self.background.push(net::spawn(subscribed).abort_handle());
                Ok(())
            }
            // The response ends the subscription, and is not needed.
            Link::Stdio(link) => {
                let params = Params::new().with("notifications", Value::Object(wanted));
                let params = self.introduced(params);
                let id = self.shared.expect(None)?.id;
                link.send(wire::request(id, LISTEN, &params).into()).await
            }
            Link::Legacy(_) => Ok(()),
        }
    }

    /// Builds a `subscriptions/listen` request over HTTP. `notices`: see [`Subscription::notices`].
    fn subscription(
        &self,
        notifications: Value,
        notices: Vec<(&'static str, Option<String>)>,
    ) -> Subscription {
        Subscription {
            listen: self.introduced(Params::new().with("notifications", notifications)),
            discover: self.introduced(Params::new()),
            server: Arc::clone(&self.server),
            patience: self.options.connect_timeout,
            notices,
        }
    }

    /// Sends a notification.
    ///
    /// # Errors
    ///
    /// The notification cannot be sent.
    pub async fn notify(&self, method: &'static str, params: &Params) -> Result<(), ClientError> {
        let message = Bytes::from(wire::notification(method, params));
        match &self.link {
            Link::Stdio(link) => link.send(message).await,
            Link::Legacy(link) => link.send(message).await,
            Link::Http(link) => {
                link.exchange(message, None, HeaderInfo::default(), &self.shared)
                    .await
            }
        }
    }

    /// Returns all entries of a paginated list: `tools/list` has `tools`.
    ///
    /// # Errors
    ///
    /// The server rejects the request, or its list is endless or larger than a [`ListBudget`] allows.
    pub async fn list(
        &self,
        method: &'static str,
        member: &str,
    ) -> Result<Vec<Value>, ClientError> {
        self.list_within(method, member, &mut self.list_budget())
            .await
    }

    /// Reads one of several lists that share a budget.
    ///
    /// # Errors
    ///
    /// The same as for [`list`](Self::list).
    pub async fn list_within(
        &self,
        method: &'static str,
        member: &str,
        budget: &mut ListBudget,
    ) -> Result<Vec<Value>, ClientError> {
        let mut entries = Vec::new();
        let mut cursor: Option<Box<RawValue>> = None;
        loop {
            let mut params = Params::new();
            if let Some(cursor) = &cursor {
                params = params.raw("cursor", cursor.clone());
            }
            let page = self.request(method, params, None, None).await?;
            let next = budget.take(page.get(), method, member, &mut entries)?;
            match next {
                None => return Ok(entries),
                Some(next) if cursor.as_ref().is_some_and(|last| last.get() == next.get()) => {
                    return Err(ClientError::Protocol(format!(
                        "{method} returned the same cursor twice"
                    )));
                }
                next => cursor = next,
            }
        }
    }

    /// Budget for the lists of this server, derived from `message_bytes`.
    pub fn list_budget(&self) -> ListBudget {
        ListBudget::new(self.options.message_bytes)
    }

    /// Closes the connection as the protocol requires: a session is ended, and a program is asked to end before it is
    /// killed.
    pub async fn close(self, grace: Duration) {
        self.shared
            .close(&ClientError::Gone("the connection was closed".to_owned()));
        match &self.link {
            Link::Stdio(link) => link.stop(grace).await,
            Link::Http(link) => link.stop(grace).await,
            Link::Legacy(_) => {}
        }
    }
}

impl Discovered {
    fn into_info(mut self) -> ServerInfo {
        let info = self
            .meta
            .remove("io.modelcontextprotocol/serverInfo")
            .unwrap_or_default();
        ServerInfo {
            revision: Revision::V2026_07_28,
            implementation: path_deserializer::read(&info)
                .ok()
                .or(self.server_info)
                .unwrap_or_default(),
            capabilities: self.capabilities,
            instructions: self.instructions,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for task in &self.background {
            task.abort();
        }
        self.shared
            .close(&ClientError::Gone("the connection was closed".to_owned()));
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.options.name)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

/// Guard that cancels an abandoned request at the server.
struct Abandoned<'a> {
    client: &'a Client,
    id: u64,
    tells: bool,
}

/// Time that a server has to respond to an abandoned request with open client requests, before the request is
/// cancelled. A response shows that the request is over, but a cancelled request mostly gets none.
const WINDS_UP: Duration = Duration::from_secs(2);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Self { client, id, tells } = *self;
        let asked = client.shared.abandon(id);
        if !tells {
            return;
        }
        let params = Params::new().with("requestId", id);
        let message = Bytes::from(wire::notification("notifications/cancelled", &params));
        let send = match &client.link {
            Link::Stdio(link) if !asked => return link.try_send(message),
            Link::Legacy(link) if !asked => return link.send_soon(message),
            // The response would come on a stream that is no longer read.
            Link::Http(link) => return link.send_soon(message, &client.shared),
            Link::Stdio(link) => link.sender(),
            Link::Legacy(link) => link.sender(),
        };
        let shared = Arc::clone(&client.shared);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            net::spawn_on(&runtime, async move {
                tokio::time::sleep(WINDS_UP).await;
                if shared.is_abandoned(id) {
                    send(message).await;
                }
            });
        }
    }
}
