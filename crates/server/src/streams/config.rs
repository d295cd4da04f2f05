//! Configuration of streams.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;

/// Streams that stay open, and what is kept of those that break.
///
/// ```toml
/// [server.streams]
/// per_session = 4
/// poll_after_seconds = 25
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamsConfig {
    /// How many streams a session may hold open by GET; what there is to say goes to the newest. 0 offers none.
    /// Default: 4; beyond: 429.
    pub per_session: usize,
    /// How many standing streams one caller may hold open, if it has a name. Default: 100; beyond: 429.
    pub per_principal: usize,
    /// Maximum number of standing streams of one address whose callers have no name. Default: 1000 for public addresses;
    /// beyond: 429.
    pub per_address: Option<usize>,
    /// How many streams may stand open in all, whoever holds them. Default: 10000; beyond: 429.
    pub total: usize,
    /// How many resources a session, or a stream of `subscriptions/listen`, may subscribe to. Default: 256.
    pub subscriptions: usize,
    /// After how many seconds a standing stream is ended, so that its client begins a new one; a tenth more or less
    /// is drawn for each. Default: 3600.
    pub max_age_seconds: u64,
    /// After how many milliseconds a client should come back to a stream that was ended. Default: 1000.
    pub retry_ms: u32,
    /// After how many seconds the stream of a call that is still running is ended, for clients of 2025-11-25, who
    /// come back for the rest of it. 0 never ends one. Default: 0.
    pub poll_after_seconds: u64,
    /// How many messages of a call, such as reports of its progress, may wait until its client takes them, 65536 at most.
    /// Default: 256; what comes beyond is left out, and never the answer.
    pub queue_messages: u32,
    /// How many bytes they may have together, 67108864 at most. Default: 1048576, 1 MiB.
    pub queue_bytes: u32,
    /// How many events of a call's stream are kept for clients that come back. Default: 100.
    pub replay_events: usize,
    /// How many bytes of a call's stream are kept, at most 262144. Default: 262144.
    pub replay_bytes: usize,
    /// How many seconds they are kept after the call's end. Default: 300.
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

    /// Maximum number of streams of one address.
    pub(super) fn of_address(&self) -> usize {
        self.per_address.unwrap_or(1000)
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
            retry_ms: 1000,
            poll_after_seconds: 0,
            queue_messages: 256,
            queue_bytes: 1024 * 1024,
            replay_events: 100,
            replay_bytes: 256 * 1024,
            replay_seconds: 300,
        }
    }
}
