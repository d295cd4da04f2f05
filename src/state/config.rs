//! What can be set about the shared state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What replicas share.
///
/// ```toml
/// [state]
/// memory_bytes = 33554432
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// How much the state may take in memory, in bytes, where it is kept there. Default: 67108864, 64 MiB.
    pub memory_bytes: usize,
    /// How long one call of the store may take, in milliseconds. Default: 100.
    pub timeout_ms: u64,
}

impl Default for StateConfig {
    fn default() -> Self {
        Self {
            memory_bytes: 64 * 1024 * 1024,
            timeout_ms: 100,
        }
    }
}
