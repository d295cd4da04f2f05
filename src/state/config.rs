//! What can be set about the shared state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;

/// What replicas share.
///
/// ```toml
/// [state]
/// url = "redis://redis:6379"
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// Address of a Redis or Valkey server (version 7 or later) that all replicas share, such as
    /// `redis://redis:6379` or, with TLS, `rediss://user:password@host:6379/0`; of sentinels and the name of their master,
    /// `redis+sentinel://user:password@one:26379,two:26379/name/0`; or of nodes of a cluster,
    /// `redis+cluster://user:password@one:6379,two:6379`. Default: none, the state is kept in memory.
    pub url: Option<Secret>,
    /// What the keys on that server begin with. Default: `longshore:`.
    pub prefix: String,
    /// How much the state may take in memory, in bytes, where it is kept there. Default: 67108864, 64 MiB.
    pub memory_bytes: usize,
    /// How long one call of the store may take, in milliseconds. Default: 100.
    pub timeout_ms: u64,
}

impl Default for StateConfig {
    fn default() -> Self {
        Self {
            url: None,
            prefix: "longshore:".to_owned(),
            memory_bytes: 64 * 1024 * 1024,
            timeout_ms: 100,
        }
    }
}

impl StateConfig {
    /// Whether other replicas have the same state.
    pub(crate) fn is_shared(&self) -> bool {
        self.url.is_some()
    }
}
