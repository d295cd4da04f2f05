//! Configuration of the server, independent of the transport.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client_requests::ClientRequestConfig;
use super::messages::MessagesConfig;
use super::search::SearchConfig;
use super::streams::StreamsConfig;
use super::tasks::TaskConfig;
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
    /// Name of the server.
    #[schemars(extend("x-reload" = "live"))]
    pub name: String,
    /// Version of the server. If unset: Longshore's version.
    #[schemars(extend("x-reload" = "live"))]
    pub version: String,
    /// A name for people.
    #[schemars(extend("x-reload" = "live"))]
    pub title: Option<String>,
    /// Instructions for the model.
    #[schemars(extend("x-reload" = "live"))]
    pub instructions: Option<String>,
    /// Timeout of a call, in seconds, for tools without their own.
    pub call_timeout_seconds: u64,
    /// Seconds without a response after which the response becomes an event stream with keep-alives, for clients that
    /// accept one. This prevents idle timeouts of proxies.
    pub stream_after_seconds: u64,
    /// Maximum age of a session, in seconds: 60 to 86400. Replaced keys can be removed after this time. An older
    /// session gets 404.
    pub session_seconds: u64,
    /// Maximum number of entries in a page of a list.
    pub page_size: usize,
    /// Cache time of lists for clients, in milliseconds (2026-07-28).
    #[schemars(extend("x-reload" = "live"))]
    pub list_ttl_ms: u64,
    /// Maximum size of the cache for resources with a time to live, in bytes. 0 disables it.
    #[schemars(extend("x-reload" = "live"))]
    pub contents_cache_bytes: usize,
    /// Listing many tools by way of a search.
    pub search: SearchConfig,
    /// Client requests of tools: elicitation, sampling and roots.
    pub client_requests: ClientRequestConfig,
    /// Calls that outlive their request.
    pub tasks: TaskConfig,
    /// Limits of a message.
    pub messages: MessagesConfig,
    /// Clients that may send several messages in an array.
    pub batch: BatchPolicy,
    /// Form of the error for invalid arguments.
    pub validation_errors: ValidationErrors,
    /// Hide errors that were not written for the caller: those that a tool, resource or prompt propagates with `?`, such as
    /// database or file system errors. They are logged instead. Messages of `ToolError::new` and the like are always sent.
    pub mask_errors: bool,
    /// Handling of requests with an unknown session, or one older than `session_seconds`.
    pub stale_sessions: StaleSessions,
    /// Long-lived streams, and their resumption.
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
    /// Arrays are rejected.
    Never,
}

/// Form of the error for arguments that do not match a tool's schema.
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

/// Handling of requests with an unknown or expired session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StaleSessions {
    /// Reject with 404, as the specification requires: the client then starts another session.
    #[default]
    Refuse,
    /// Accept, for clients that do not start another session: the request is treated as one of protocol version
    /// `MCP-Protocol-Version`, or 2025-03-26, without declared capabilities. Sessions of other callers, and sessions
    /// that their client has ended, stay unknown.
    Accept,
}

/// Longest time that a setting means, in seconds: a hundred years.
const SECONDS_MAX: u64 = 100 * 365 * 24 * 60 * 60;

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
    /// Limits times that are too long to be added to others, or to a point in time.
    #[must_use]
    pub(crate) fn within_bounds(mut self) -> Self {
        for seconds in [
            &mut self.call_timeout_seconds,
            &mut self.stream_after_seconds,
            &mut self.client_requests.timeout_seconds,
            &mut self.client_requests.state_seconds,
            &mut self.tasks.ttl_seconds,
            &mut self.streams.max_age_seconds,
            &mut self.streams.poll_after_seconds,
            &mut self.streams.replay_seconds,
        ] {
            *seconds = SECONDS_MAX.min(*seconds);
        }
        self
    }

    /// Name and version of the server, for clients.
    pub(crate) fn implementation(&self) -> Implementation {
        let mut implementation = Implementation::new(&self.name, &self.version);
        implementation.title.clone_from(&self.title);
        implementation
    }
}
