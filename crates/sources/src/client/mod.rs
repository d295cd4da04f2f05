//! Client for MCP servers: programs that serve over standard input and output, and servers reached over HTTP, of
//! every supported protocol version.
//!
//! A [`Client`] is one connection. Concurrent requests share it, and each has its own listener for the messages about
//! it. It begins with `server/discover` of 2026-07-28. For legacy servers it falls back to the `initialize`
//! handshake, and finally to HTTP+SSE of 2024-11-05. The lifecycle of a server is cached ([`LifecycleCache`]).

mod exchange;
mod negotiation;
mod asked_time;
mod attribution;
mod credentials;
mod error;
mod event_stream;
mod http;
mod introduction;
mod legacy;
mod lifecycle;
mod listener;
mod logs;
mod pages;
mod shared;
mod stdio;
mod watch;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use url::Url;

use crate::catalog::path_deserializer;
use crate::net::{self, AbortOnDrop, Client as HttpClient, Program};
use crate::protocol::{Implementation, Revision};
use ::http::HeaderMap;
pub use attribution::Caller;
pub use credentials::Credentials;
pub use error::ClientError;
pub(crate) use exchange::ClientRequest;
use http::HeaderInfo;
use lifecycle::Discovered;
pub(crate) use lifecycle::is_temporary;
pub use lifecycle::{Lifecycle, LifecycleCache};
pub use listener::{Events, Listener};
pub use pages::ListBudget;
use shared::{Send1, Shared};
pub(crate) use wire::{
    HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY,
};
pub use wire::{Params, RpcError};

/// Location of a server.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each connection"
)]
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
    /// Default timeout of a request, without the time of the server's client requests. Default: 120 s.
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

/// Longest timeout: a later point in time can exceed the range of a clock.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

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

/// A connection to an MCP server. Dropping it closes the connection, and ends its session or the program that was started
/// for it.
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
    /// Description of the client in each request of 2026-07-28.
    introduction: introduction::Introduction,
    background: Vec<AbortOnDrop>,
    logs: logs::RequestedLevel,
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
/// Time in which a program that does not respond can end by itself before it is killed.
const STOPS: Duration = Duration::from_millis(500);
/// Time to wait for the standalone GET stream of a legacy server. Some send no response headers before the first
/// event.
const OPENS: Duration = Duration::from_millis(300);
/// Time to wait for the acknowledgement of a subscription. Some servers send updates without one.
const ACKNOWLEDGES: Duration = Duration::from_secs(5);
/// Maximum number of `server/discover` requests to a server that rejects a version which it lists as supported.
const PROBES_MAX: usize = 2;
/// Maximum number of redirects of one connection.
const REDIRECTS_MAX: usize = 3;
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

    /// Returns a function that sends messages without waiting for the outcome.
    fn sender(&self) -> Send1 {
        match &self.link {
            Link::Stdio(link) => link.sender(),
            Link::Http(link) => link.sender(&self.shared),
            Link::Legacy(link) => link.poster.sender(),
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
            Link::Legacy(link) => link.poster.send(message).await,
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
            Link::Http(link) => {
                if let Some(ending) = link.end_session(grace) {
                    ending.await;
                }
            }
            Link::Legacy(_) => {}
        }
    }
}

impl Discovered {
    /// Returns the newest version with sessions that both support.
    fn version_with_sessions(&self) -> Option<Revision> {
        let known = self.supported_versions.iter();
        let known = known.filter_map(|version| Revision::parse(version));
        known.filter(|revision| revision.has_sessions()).max()
    }

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
        let waits = match &client.link {
            Link::Stdio(link) if !asked => return link.try_send(message),
            Link::Stdio(_) | Link::Legacy(_) => asked,
            // The response would come on a stream that is no longer read.
            Link::Http(_) => false,
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (send, shared) = (client.sender(), Arc::clone(&client.shared));
        if !waits {
            net::spawn_on(&runtime, send(message));
            return;
        }
        net::spawn_on(&runtime, async move {
            tokio::time::sleep(WINDS_UP).await;
            if shared.is_abandoned(id) {
                send(message).await;
            }
        });
    }
}
