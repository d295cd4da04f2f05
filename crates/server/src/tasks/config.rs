//! Configuration of tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;

/// Calls that outlive their request.
///
/// ```toml
/// [server.tasks]
/// ttl_seconds = 600
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskConfig {
    /// Maximum duration of a task, and retention time of its result, in seconds. A client may ask for less.
    pub ttl_seconds: u64,
    /// Polling interval that is recommended to clients, in milliseconds.
    pub poll_interval_ms: u64,
    /// Maximum number of concurrent tasks of one caller.
    pub per_principal: usize,
    /// Maximum number of concurrent tasks of all callers.
    pub total: usize,
}

impl TaskConfig {
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.nonzero([
            ("server.tasks.ttl_seconds", self.ttl_seconds),
            ("server.tasks.poll_interval_ms", self.poll_interval_ms),
        ]);
    }
}

impl Default for TaskConfig {
    fn default() -> Self {
        Self {
            ttl_seconds: 3600,
            poll_interval_ms: 1000,
            per_principal: 32,
            total: 1000,
        }
    }
}
