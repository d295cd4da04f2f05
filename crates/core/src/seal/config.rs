//! Sources of sealing keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;

/// How session ids and cursors are sealed.
///
/// A session id is not a key into a table: it is the session, sealed. A server that has the key opens it, whichever
/// server issued it. So replicas that share `seal.keys` answer each other's sessions, and sessions outlive a restart. With
/// a key made at start they end with the process; clients then get 404 and begin a new one.
///
/// Replicas that share a state (`state.url`) seal what lies there with the same keys.
///
/// Make a key with `openssl rand -base64 32`. The first seals, all of them open, and no session lives longer than a day. So
/// to rotate keys, first add the new one at the end on all replicas, then put it in front, and take the old one away a day
/// later; a server that is alone can begin with the second step.
///
/// ```toml
/// [seal]
/// keys = ["a long random secret shared by all replicas"]
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SealConfig {
    /// Secrets of at least 32 bytes that all replicas share. The first seals, all of them open: to rotate, add a new
    /// one at the end everywhere, then put it in front, and take the old one away a day later. Default: one made at start,
    /// which other replicas do not have.
    #[serde(deserialize_with = "crate::environment::list")]
    pub keys: Vec<Secret>,
}

/// Error of an unusable key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Too little to be hard to guess.
    #[error(
        "seal.keys[{index}] has {bytes} bytes; a key needs at least 32, for example from `openssl rand -base64 32`"
    )]
    TooShort {
        /// Index of the key, from 0.
        index: usize,
        /// Length of the key, in bytes.
        bytes: usize,
    },
    /// The key is a sample key of the documentation.
    #[error(
        "seal.keys[{index}] is a sample from the documentation, which everybody knows; make a key with `openssl rand -base64 32`"
    )]
    Sample {
        /// Index of the key, from 0.
        index: usize,
    },
}
