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
    /// How long a task may run, and how long what it gave is kept after its end, in seconds. A client may ask for
    /// less. Default: 3600, one hour.
    pub ttl_seconds: u64,
    /// How often clients are told to look, in milliseconds. Default: 1000.
    pub poll_interval_ms: u64,
    /// How many tasks of one caller may run at once. Default: 32.
    pub per_principal: usize,
    /// How many tasks may run at once in all. Default: 1000.
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
