//! A client of MCP servers: programs that serve over standard input and output, and servers reached over HTTP, whichever
//! revision they speak.
//!
//! A [`Client`] is one connection. It is shared by as many requests at once as there are; each knows who listens to
//! what is said about it. It begins with a handshake, since nearly every server has one, and without it where the server
//! has none; what needs HTTP+SSE of 2024-11-05 gets that.

mod attribution;
mod credentials;
mod error;
mod http;
mod legacy;
mod shared;
mod stdio;
mod watch;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::http::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use url::Url;

pub use attribution::Caller;
pub use credentials::Credentials;
pub use error::ClientError;
pub use shared::{Events, Listener};
pub use wire::{Params, RpcError};

use crate::catalog::located;
use crate::net::{self, Client as HttpClient, Program};
use crate::protocol::{Implementation, Revision};
use http::About;
use shared::Shared;
use wire::Extra;

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started, and serves over its standard input and output.
    Program(Program),
    /// A server that is reached over HTTP.
    Url {
        /// Its endpoint.
        url: Url,
        /// Headers of each request; credentials, mostly.
        headers: HeaderMap,
        /// What reaches it. It must not limit the whole time of a request, since streams have no end.
        client: HttpClient,
    },
}

/// How a connection is made and used.
#[derive(Clone)]
pub struct Options {
    /// A name for the log.
    pub name: String,
    /// Who the server is told is calling.
    pub implementation: Implementation,
    /// What the server is told that it may ask for, as the protocol's `ClientCapabilities`.
    pub capabilities: Map<String, Value>,
    /// How long making the connection may take. Default: 30 s.
    pub connect_timeout: Duration,
    /// How long a request may take, unless it says otherwise. Default: 120 s.
    pub request_timeout: Duration,
    /// How large one message may be. Default: 8 MiB.
    pub message_bytes: usize,
    /// What proves who calls, where that changes; over HTTP.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// Who hears what is said outside of requests.
    pub events: Option<Arc<dyn Events>>,
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

/// What a server said of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerInfo {
    /// What is spoken with it.
    pub revision: Revision,
    /// Who it says it is.
    pub implementation: Implementation,
    /// What it offers, as the protocol's `ServerCapabilities`.
    pub capabilities: Map<String, Value>,
    /// What the model should know before it uses it.
    pub instructions: Option<String>,
}

/// A connection to an MCP server. Dropping it ends it; a program that was started ends with it.
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
    server: ServerInfo,
    options: Options,
    /// What each request says of who sends it, in 2026-07-28: members of its `_meta`.
    introduction: String,
    background: Vec<AbortHandle>,
    /// Resources that it is to tell of.
    watching: tokio::sync::Mutex<watch::Watching>,
}

enum Link {
    Stdio(stdio::Link),
    Http(Arc<http::Link>),
    Legacy(Box<legacy::Link>),
}

const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// What asks to be told of changes, in 2026-07-28.
const LISTEN: &str = "subscriptions/listen";
/// What a result says of itself that asks something.
const INPUT_REQUIRED: &str = "input_required";
/// Entries and pages that one listing may have.
const ENTRIES_MAX: usize = 100_000;
const PAGES_MAX: usize = 10_000;
/// How often one request may be answered by questions.
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Discovered {
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Map<String, Value>,
    instructions: Option<String>,
    #[serde(default, rename = "_meta")]
    meta: Map<String, Value>,
}

impl Client {
    /// Connects, and agrees on a revision.
    ///
    /// # Errors
    ///
    /// Nobody is there, or whoever is does not speak MCP.
    pub async fn connect(target: Target, options: Options) -> Result<Self, ClientError> {
        let limit = options.connect_timeout;
        timeout(limit, Self::open(target, options))
            .await
            .unwrap_or(Err(ClientError::Timeout(limit)))
    }

    async fn open(target: Target, options: Options) -> Result<Self, ClientError> {
        let shared = Arc::new(Shared::new(options.events.clone()));
        let link = match &target {
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
        let mut client = Self {
            link,
            shared,
            server: ServerInfo {
                revision: Revision::NEWEST_WITH_SESSIONS,
                implementation: Implementation::default(),
                capabilities: Map::new(),
                instructions: None,
            },
            options,
            introduction: String::new(),
            background: Vec::new(),
            watching: tokio::sync::Mutex::default(),
        };
        match client.initialize().await {
            Ok(()) => {}
            Err(error) if has_no_handshake(&error) => match client.discover().await {
                Ok(()) => {}
                Err(_) => {
                    let Target::Url {
                        url,
                        headers,
                        client: http,
                    } = target
                    else {
                        return Err(error);
                    };
                    client.server.revision = Revision::NEWEST_WITH_SESSIONS;
                    let link =
                        legacy::Link::open(http, url, headers, &client.options, &client.shared)
                            .await;
                    client.link = Link::Legacy(Box::new(link.map_err(|_| error)?));
                    client.initialize().await?;
                }
            },
            Err(error) => return Err(error),
        }
        Ok(client)
    }

    /// Revisions up to 2025-11-25.
    async fn initialize(&mut self) -> Result<(), ClientError> {
        let params = Params::new()
            .with("protocolVersion", self.server.revision.as_str())
            .with(
                "capabilities",
                Value::Object(self.options.capabilities.clone()),
            )
            .with("clientInfo", json!(self.options.implementation));
        let limit = self.options.connect_timeout;
        // A little less, so that there is time to say what is wrong.
        let asked = self.exchange("initialize", &params, None, Some(limit.mul_f64(0.9)));
        let result = match asked.await {
            Err(ClientError::Timeout(_)) if self.garbage() > 0 => {
                return Err(ClientError::Protocol(
                    "it writes lines that are no messages, and answers nothing; is this its command for serving over \
                     standard input and output?"
                        .to_owned(),
                ));
            }
            Err(ClientError::Timeout(_)) => return Err(ClientError::Timeout(limit)),
            result => result?,
        };
        let result: Initialized = serde_json::from_str(result.get())
            .map_err(|error| ClientError::Protocol(format!("its answer to initialize: {error}")))?;
        let revision = Revision::parse(&result.protocol_version)
            .filter(|revision| revision.has_sessions())
            .ok_or_else(|| {
                ClientError::Protocol(format!("it speaks revision {:?}", result.protocol_version))
            })?;
        self.server = ServerInfo {
            revision,
            implementation: result.server_info,
            capabilities: result.capabilities,
            instructions: result.instructions,
        };
        if let Link::Http(link) = &self.link {
            link.speak(revision);
        }
        self.notify("notifications/initialized", &Params::new())
            .await?;
        if let Link::Http(link) = &self.link {
            let listening = net::spawn(Arc::clone(link).listen(Arc::clone(&self.shared)));
            self.background.push(listening.abort_handle());
        }
        Ok(())
    }

    /// Revision 2026-07-28.
    async fn discover(&mut self) -> Result<(), ClientError> {
        let revision = Revision::V2026_07_28;
        self.server.revision = revision;
        let said = self.introduced(Params::new()).meta;
        if let Ok(said) = serde_json::to_string(&said) {
            self.introduction = said[1..said.len() - 1].to_owned();
        }
        if let Link::Http(link) = &self.link {
            link.speak(revision);
        }
        let result = self
            .exchange("server/discover", &Params::new(), None, None)
            .await?;
        let mut result: Discovered = serde_json::from_str(result.get()).map_err(|error| {
            ClientError::Protocol(format!("its answer to server/discover: {error}"))
        })?;
        if !result
            .supported_versions
            .iter()
            .any(|version| version == revision.as_str())
        {
            return Err(ClientError::Protocol(format!(
                "it speaks only revisions {:?}",
                result.supported_versions
            )));
        }
        let info = result
            .meta
            .remove("io.modelcontextprotocol/serverInfo")
            .unwrap_or_default();
        self.server = ServerInfo {
            revision,
            implementation: located::read(&info).unwrap_or_default(),
            capabilities: result.capabilities,
            instructions: result.instructions,
        };
        self.subscribe().await
    }

    /// What the server said of itself.
    pub fn server(&self) -> &ServerInfo {
        &self.server
    }

    /// Whether no request can be made any more.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Returns true if a message was withheld from its caller that a new connection would deliver: it named no request,
    /// and requests of other callers were abandoned on this connection.
    pub fn is_hindered(&self) -> bool {
        self.shared.is_hindered()
    }

    /// Lines of a program's standard output that were no messages.
    pub fn garbage(&self) -> u64 {
        match &self.link {
            Link::Stdio(link) => link.garbage(),
            Link::Http(_) | Link::Legacy(_) => 0,
        }
    }

    /// Makes a request and waits for its result. Dropping the future tells the server that nobody waits any more.
    ///
    /// Questions that the server asks go to `listener`, in every revision; so do progress and log messages.
    ///
    /// # Errors
    ///
    /// The server refuses, goes away, or does not answer in time.
    pub async fn request(
        &self,
        method: &'static str,
        params: Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        self.ask(method, &params, listener, limit).await
    }

    /// The same, for those who may ask again.
    pub(crate) async fn ask(
        &self,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, ClientError> {
        if self.server.revision.has_sessions() {
            return self.exchange(method, params, listener, limit).await;
        }
        let result = self
            .exchange(method, params, listener.clone(), limit)
            .await?;
        // Nearly no result asks anything; a character that is escaped may be one of these.
        let text = result.get();
        if !text.contains(INPUT_REQUIRED) && !text.contains("\\u") {
            return Ok(result);
        }
        Box::pin(self.answer_questions(method, params, result, listener, limit)).await
    }

    /// In 2026-07-28 a server asks by its result, and is asked again with the answers (MRTR).
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
        struct Round {
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
            let round: Round = match serde_json::from_str(result.get()) {
                Ok(round) => round,
                Err(_) => return Ok(result),
            };
            if round.result_type != INPUT_REQUIRED {
                return Ok(result);
            }
            let mut answers = Map::new();
            for (key, question) in round.input_requests {
                let question: Question = located::read(&question).map_err(|misfit| {
                    ClientError::Protocol(format!("a question of its: {}", misfit.cause))
                })?;
                let asked = match &listener {
                    Some(listener) => listener.question(question.method, question.params).await,
                    None => Err(RpcError::new(-32601, "nobody can be asked")),
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
        let stateless = !self.server.revision.has_sessions();
        let mut extra = Extra::default();
        if let Some(listener) = &listener {
            extra.progress = listener.wants_progress();
            extra.log_level = listener.wants_log().filter(|_| stateless);
        }
        // Parameters that declare more say all of it.
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
            // `initialize` cannot be cancelled, and a closed connection says enough in the stateless era.
            tells: method != "initialize" && !(stateless && matches!(self.link, Link::Http(_))),
        };
        let limit = limit.unwrap_or(self.options.request_timeout);
        // Where it is, so that the deadline does not move all of it.
        let exchanged = std::pin::pin!(async {
            match &self.link {
                Link::Stdio(link) => link.send(message).await?,
                Link::Legacy(link) => link.send(message).await?,
                Link::Http(link) => {
                    // Headers repeat it where there are no sessions.
                    let name = stateless
                        .then(|| {
                            let mut named = ["name", "uri", "taskId"].into_iter();
                            named.find_map(|member| params.text(member))
                        })
                        .flatten();
                    let about = About {
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
        answered
    }

    /// Parameters of a request that says who sends it.
    fn introduced(&self, params: Params) -> Params {
        params
            .meta(
                "io.modelcontextprotocol/protocolVersion",
                self.server.revision.as_str(),
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

    /// Parameters of a request that declares one more extension than others do, in 2026-07-28.
    pub(crate) fn declaring(&self, params: Params, extension: &str) -> Params {
        let mut capabilities = Value::Object(self.options.capabilities.clone());
        capabilities["extensions"][extension] = json!({});
        self.introduced(params)
            .meta(CLIENT_CAPABILITIES, capabilities)
    }

    /// Asks a server without sessions to be told of changes in its lists, where it tells of any and somebody wants to
    /// know (SUB-03).
    async fn subscribe(&mut self) -> Result<(), ClientError> {
        let mut wanted = Map::new();
        for (list, notice) in [
            ("tools", "toolsListChanged"),
            ("resources", "resourcesListChanged"),
            ("prompts", "promptsListChanged"),
        ] {
            let tells = self.server.capabilities.get(list);
            if tells.is_some_and(|tells| tells["listChanged"] == true) {
                wanted.insert(notice.to_owned(), true.into());
            }
        }
        if wanted.is_empty() || self.options.events.is_none() {
            return Ok(());
        }
        let params = Params::new().with("notifications", Value::Object(wanted));
        let params = self.introduced(params);
        match &self.link {
            Link::Http(link) => {
                let subscribed = Arc::clone(link).subscribe(params, Arc::clone(&self.shared));
                self.background.push(net::spawn(subscribed).abort_handle());
                Ok(())
            }
            // Its answer is the end of what it tells, which nobody waits for.
            Link::Stdio(link) => {
                let id = self.shared.expect(None)?.id;
                link.send(wire::request(id, LISTEN, &params).into()).await
            }
            Link::Legacy(_) => Ok(()),
        }
    }

    /// Tells the server something that it does not answer.
    ///
    /// # Errors
    ///
    /// It cannot be told.
    pub async fn notify(&self, method: &'static str, params: &Params) -> Result<(), ClientError> {
        let message = Bytes::from(wire::notification(method, params));
        match &self.link {
            Link::Stdio(link) => link.send(message).await,
            Link::Legacy(link) => link.send(message).await,
            Link::Http(link) => {
                link.exchange(message, None, About::default(), &self.shared)
                    .await
            }
        }
    }

    /// All entries of a list, page by page: `tools/list` has `tools`.
    ///
    /// # Errors
    ///
    /// The server refuses, or its list has no end.
    pub async fn list(
        &self,
        method: &'static str,
        member: &str,
    ) -> Result<Vec<Value>, ClientError> {
        let mut entries = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..PAGES_MAX {
            let mut params = Params::new();
            if let Some(cursor) = &cursor {
                params = params.with("cursor", cursor.clone());
            }
            let page = self.request(method, params, None, None).await?;
            let mut page: Map<String, Value> =
                serde_json::from_str(page.get()).map_err(|error| {
                    ClientError::Protocol(format!("its answer to {method}: {error}"))
                })?;
            let Some(Value::Array(more)) = page.remove(member) else {
                return Err(ClientError::Protocol(format!(
                    "its answer to {method} has no {member}"
                )));
            };
            entries.extend(more);
            if ENTRIES_MAX < entries.len() {
                return Err(ClientError::Protocol(format!(
                    "{method} has more than {ENTRIES_MAX} entries"
                )));
            }
            match page.remove("nextCursor").filter(|cursor| !cursor.is_null()) {
                None => return Ok(entries),
                next if next == cursor => {
                    return Err(ClientError::Protocol(format!(
                        "{method} gives the same cursor again"
                    )));
                }
                next => cursor = next,
            }
        }
        Err(ClientError::Protocol(format!(
            "{method} has more than {PAGES_MAX} pages"
        )))
    }

    /// Ends the connection as the protocol wants it: a session is ended, a program is asked to go before it is made to.
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
            .field("revision", &self.server.revision)
            .finish_non_exhaustive()
    }
}

/// Tells the server that nobody waits for an answer any more.
struct Abandoned<'a> {
    client: &'a Client,
    id: u64,
    tells: bool,
}

/// How long a server has to answer a request that was abandoned while it asked something, before it is cancelled. A
/// request that is answered is known to be over, and one that is cancelled mostly is never answered.
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
            // The response would come on a stream that nobody reads any more.
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

/// A server that knows no `initialize`, or nothing that is newer than HTTP+SSE.
fn has_no_handshake(error: &ClientError) -> bool {
    match error {
        ClientError::Rpc(error) => matches!(
            error.code,
            -32601 | -32602 | -32600 | -32022 | -32020 | -32021
        ),
        ClientError::Status { status, .. } => matches!(status, 400 | 404 | 405 | 406 | 415),
        _ => false,
    }
}
