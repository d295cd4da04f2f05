//! Configuration of the server, independent of the transport.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::streams::StreamsConfig;
use super::{ClientRequestConfig, MessagesConfig, SearchConfig, TaskConfig};
use crate::environment::Conflicts;
use crate::protocol::Implementation;

/// The server itself.
///
/// ```toml
/// [server]
/// name = "weather"
/// call_timeout_seconds = 30
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// What the server calls itself. Default: `longshore`.
    #[schemars(extend("x-reload" = "live"))]
    pub name: String,
    /// Its version. Default: Longshore's own.
    #[schemars(extend("x-reload" = "live"))]
    pub version: String,
    /// A name for people.
    #[schemars(extend("x-reload" = "live"))]
    pub title: Option<String>,
    /// What the model should know before it uses the tools.
    #[schemars(extend("x-reload" = "live"))]
    pub instructions: Option<String>,
    /// How long one call may take, in seconds, unless its tool says otherwise. Default: 60.
    pub call_timeout_seconds: u64,
    /// After how many seconds without an answer it becomes an event stream with signs of life, for clients that take
    /// one, so that nobody in between gives the connection up. Default: 10.
    pub stream_after_seconds: u64,
    /// How long a session lasts, in seconds from its `initialize` on; 60 at least, and a day at most, after which keys that
    /// were replaced may be taken away. Default: 86400, a day; beyond: 404.
    pub session_seconds: u64,
    /// How many entries a list gives at once. Default: 1000.
    pub page_size: usize,
    /// How long clients may keep listings, in milliseconds (2026-07-28). Default: 300000, five minutes.
    #[schemars(extend("x-reload" = "live"))]
    pub list_ttl_ms: u64,
    /// How much is kept in memory of what resources with a time to live said, in bytes. 0 keeps nothing. Default:
    /// 16777216, 16 MiB.
    #[schemars(extend("x-reload" = "live"))]
    pub contents_cache_bytes: usize,
    /// Listing many tools by way of a search.
    pub search: SearchConfig,
    /// Questions that tools ask the client.
    pub client_requests: ClientRequestConfig,
    /// Calls that outlive their request.
    pub tasks: TaskConfig,
    /// How much one message may hold.
    pub messages: MessagesConfig,
    /// When several messages may come in one array. Default: `auto`.
    pub batch: BatchPolicy,
    /// How arguments that do not fit a schema are reported. Default: `auto`.
    pub validation_errors: ValidationErrors,
    /// Keep from the model what errors say that were not written for it: those that a tool passes on with `?`, of a database
    /// or a file system. They are logged instead. What a tool says by `ToolError::new` is always told. Default: false.
    pub mask_errors: bool,
    /// What becomes of requests whose session is not known here, or is older than `session_seconds`. Default:
    /// `refuse`.
    pub stale_sessions: StaleSessions,
    /// Streams that stay open, and what is kept of those that break.
    pub streams: StreamsConfig,
}

/// When several messages may come in one array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BatchPolicy {
    /// From clients whose revision has batches, which is 2025-03-26 alone.
    #[default]
    Auto,
    /// From every client that has a session.
    Always,
    /// From nobody.
    Never,
}

/// How arguments that do not fit a tool's schema are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ValidationErrors {
    /// As the caller's revision has it: by a JSON-RPC error up to 2025-06-18, by a result that the model can
    /// correct itself from after that.
    #[default]
    Auto,
    /// Always by the JSON-RPC error -32602.
    Protocol,
    /// Always by a result with `isError: true`.
    Tool,
}

/// What becomes of requests whose session is not known, or has ended by its age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StaleSessions {
    /// 404, as the specification has it: a client then begins another one.
    #[default]
    Refuse,
    /// They are served all the same, for clients that do not begin another one: as those of a client of the revision that
    /// `MCP-Protocol-Version` names, or of 2025-03-26, that has declared nothing. A session of somebody else's, and one that
    /// its client has ended, stays unknown.
    Accept,
}

impl ServerConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        self.messages.validate(conflicts);
        self.tasks.validate(conflicts);
        self.client_requests.validate(conflicts);
        self.streams.validate(conflicts);
        conflicts.nonzero([
            ("server.page_size", self.page_size as u64),
            ("server.call_timeout_seconds", self.call_timeout_seconds),
        ]);
        conflicts.within([(
            "server.session_seconds",
            self.session_seconds,
            60..=24 * 60 * 60,
        )]);
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            name: "longshore".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            title: None,
            instructions: None,
            call_timeout_seconds: 60,
            stream_after_seconds: 10,
            session_seconds: 24 * 60 * 60,
            page_size: 1000,
            list_ttl_ms: 300_000,
            contents_cache_bytes: 16 * 1024 * 1024,
            search: SearchConfig::default(),
            client_requests: ClientRequestConfig::default(),
            tasks: TaskConfig::default(),
            messages: MessagesConfig::default(),
            batch: BatchPolicy::Auto,
            validation_errors: ValidationErrors::Auto,
            mask_errors: false,
            stale_sessions: StaleSessions::Refuse,
            streams: StreamsConfig::default(),
        }
    }
}

impl ServerConfig {
    /// Name and version of the server, for clients.
    pub(crate) fn implementation(&self) -> Implementation {
        let mut implementation = Implementation::new(&self.name, &self.version);
        implementation.title.clone_from(&self.title);
        implementation
    }
}
