//! Configuration of streams.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;

/// Delay after which official clients reopen a stream that named none, in milliseconds.
const CLIENT_RETRY_MS: u32 = 1000;

/// Long-lived streams, and their resumption.
///
/// ```toml
/// [server.streams]
/// per_session = 4
/// poll_after_seconds = 25
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsConfig {
    /// Maximum number of open notification streams of a session, which GET opens; notifications go to the newest. 0
    /// disables them. Resumed streams of calls do not count. Beyond it: 429.
    pub per_session: usize,
    /// Maximum number of long-lived streams of an authenticated caller. Beyond it: 429.
    pub per_principal: usize,
    /// Maximum number of long-lived streams of unauthenticated clients at one address. If unset: 1000 for public
    /// addresses. Beyond it: 429.
    pub per_address: Option<usize>,
    /// Maximum number of long-lived streams of all callers. Beyond it: 429.
    pub total: usize,
    /// Maximum number of subscribed resources of a session, or of a stream of `subscriptions/listen`.
    pub subscriptions: usize,
    /// Maximum age of a long-lived stream, in seconds, randomised by a tenth. The client then opens a new one.
    /// Streams of HTTP+SSE have none, since their clients cannot go on in another one.
    pub max_age_seconds: u64,
    /// Delay before a client of 2025-11-25 should reopen a stream that was ended, in milliseconds. The default is that of the
    /// official clients, and is named only at the end of a stream, since the Java SDK rejects a stream that names a delay.
    /// Clients of earlier revisions wait for their own delay.
    pub retry_ms: u32,
    /// Seconds after which the stream of a running call is ended, for clients of 2025-11-25, which resume it for the
    /// rest. 0 for never. Clients that cannot resume, such as mcp-go, the PHP SDK and rmcp 1, lose the result.
    pub poll_after_seconds: u64,
    /// Maximum number of unsent notifications of a call, such as progress, at most 65536. Further ones are dropped,
    /// but never the response.
    pub queue_messages: u32,
    /// Maximum total size of these notifications, in bytes, at most 67108864.
    pub queue_bytes: u32,
    /// Maximum number of events of a call's stream to keep for resumption.
    pub replay_events: usize,
    /// Maximum size of these events, in bytes, at most 262144.
    pub replay_bytes: usize,
    /// Time to keep these events after the end of the call, in seconds.
    pub replay_seconds: u64,
}

impl StreamsConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.nonzero([
            ("server.streams.max_age_seconds", self.max_age_seconds),
            ("server.streams.per_principal", self.per_principal as u64),
            ("server.streams.replay_events", self.replay_events as u64),
        ]);
        conflicts.within([
            (
                "server.streams.queue_messages",
                self.queue_messages.into(),
                1..=65_536,
            ),
            (
                "server.streams.queue_bytes",
                self.queue_bytes.into(),
                1024..=64 * 1024 * 1024,
            ),
        ]);
    }

    /// Returns the delay that the first event of a stream names.
    pub(super) fn first_retry(&self) -> Option<Duration> {
        let is_named = self.retry_ms != CLIENT_RETRY_MS;
        is_named.then(|| Duration::from_millis(self.retry_ms.into()))
    }
}

impl Default for StreamsConfig {
    fn default() -> Self {
        Self {
            per_session: 4,
            per_principal: 100,
            per_address: None,
            total: 10_000,
            subscriptions: 256,
            max_age_seconds: 3600,
            retry_ms: CLIENT_RETRY_MS,
            poll_after_seconds: 0,
            queue_messages: 256,
            queue_bytes: 1024 * 1024,
            replay_events: 100,
            replay_bytes: 256 * 1024,
            replay_seconds: 300,
        }
    }
}
