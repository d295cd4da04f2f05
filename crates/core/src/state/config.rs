//! Settings of the shared state.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::{Conflicts, Secret};

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
    /// Maximum share of `memory_bytes` that running tasks, unread messages to tasks and pending elicitations of one
    /// principal, or of one unauthenticated client address, may take, in per cent from 1 to 100. Default: 25.
    pub share_percent: u8,
    /// How long one call of the store may take, in milliseconds. Default: 100.
    pub timeout_ms: u64,
    /// Certificates for servers that are reached over TLS.
    pub tls: StateTlsConfig,
}

/// Whom a store over TLS is believed to be, and what is shown to it.
///
/// The files are read at start. They are for addresses that begin with `rediss`, of sentinels and nodes too.
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
    /// A file with the certificates of the authorities that vouch for the store, in PEM. Default: none, and those are
    /// believed that the web trusts.
    #[schemars(extend("x-path" = "file"))]
    pub ca: Option<PathBuf>,
    /// A file with the certificate that is shown to the store and those that lead to its authority, in PEM. Default:
    /// none, nothing is shown.
    #[schemars(extend("x-path" = "file"))]
    pub certificate: Option<PathBuf>,
    /// A file with that certificate's private key, in PEM.
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
                "give it at most 100",
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
