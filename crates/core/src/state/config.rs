//! Settings of the shared state.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::{Conflicts, Secret};

/// State that replicas share.
///
/// ```toml
/// [state]
/// url = "redis://redis:6379"
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateConfig {
    /// URL of a Redis or Valkey server (version 7 or later) that all replicas share, such as `redis://redis:6379`, or
    /// with TLS `rediss://user:password@host:6379/0`. For Sentinel:
    /// `redis+sentinel://user:password@one:26379,two:26379/name/0`. For a cluster:
    /// `redis+cluster://user:password@one:6379,two:6379`. If unset: in memory.
    pub url: Option<Secret>,
    /// Prefix of all keys on the server.
    pub prefix: String,
    /// Maximum size of the in-memory state, in bytes.
    pub memory_bytes: usize,
    /// Maximum share of `memory_bytes` that running tasks, unread messages to tasks and pending elicitations of one
    /// principal, or of one unauthenticated client address, may take, in per cent from 1 to 100. Default: 25.
    pub share_percent: u8,
    /// Timeout of a request to the store, in milliseconds.
    pub timeout_ms: u64,
    /// TLS for the Redis connection.
    pub tls: StateTlsConfig,
}

/// TLS for the Redis connection: trusted CA certificates and the client certificate.
///
/// The files are read at start. They apply to `rediss` addresses, Sentinel and cluster nodes included.
///
/// ```toml
/// [state]
/// url = "rediss://redis:6379"
///
/// [state.tls]
/// ca = "/etc/longshore/redis-ca.pem"
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateTlsConfig {
    /// File with the CA certificates of the store, in PEM. If unset: public CA certificates.
    #[schemars(extend("x-path" = "file"))]
    pub ca: Option<PathBuf>,
    /// File with the client certificate and its chain, in PEM. If unset, no client certificate is sent.
    #[schemars(extend("x-path" = "file"))]
    pub certificate: Option<PathBuf>,
    /// File with the client certificate's private key, in PEM.
    #[schemars(extend("x-path" = "file"))]
    pub key: Option<PathBuf>,
}

impl StateConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        conflicts.nonzero([
            ("state.memory_bytes", self.memory_bytes as u64),
            ("state.timeout_ms", self.timeout_ms),
            ("state.share_percent", self.share_percent.into()),
        ]);
        if 100 < self.share_percent {
            conflicts.add(
                format!("state.share_percent is {}", self.share_percent),
                "it is too large; set it to at most 100",
            );
        }
    }
}

impl Default for StateConfig {
    fn default() -> Self {
        Self {
            url: None,
            prefix: "longshore:".to_owned(),
            memory_bytes: 64 * 1024 * 1024,
            share_percent: 25,
            timeout_ms: 100,
            tls: StateTlsConfig::default(),
        }
    }
}

impl StateConfig {
    /// Returns true if other replicas have the same state.
    pub fn is_shared(&self) -> bool {
        self.url.is_some()
    }
}
