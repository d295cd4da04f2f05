//! Sources of sealing keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Secret;

/// Encryption of session IDs and cursors.
///
/// A session ID is not a key of a table: it contains the encrypted session. Any server with the key can decrypt it,
/// so replicas with the same `seal.keys` accept each other's sessions, and sessions survive a restart. With a key
/// generated at start, sessions end with the process; clients then get 404 and initialize again.
///
/// Replicas with a shared state (`state.url`) encrypt its entries with the same keys.
///
/// Generate a key with `openssl rand -base64 32`. The first key encrypts, all keys decrypt, and sessions live at most
/// one day. To rotate keys, add the new key at the end on all replicas, then move it to the front, and remove the old
/// key a day later. A single server can begin with the second step.
///
/// ```toml
/// [seal]
/// keys = ["a long random secret shared by all replicas"]
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SealConfig {
    /// Secrets of at least 32 bytes that all replicas share. The first encrypts, all decrypt: to rotate, add a new
    /// one at the end everywhere, then move it to the front, and remove the old one a day later. If unset: a key that
    /// is generated at start, which other replicas do not have.
    #[serde(deserialize_with = "crate::environment::list")]
    pub keys: Vec<Secret>,
}

/// Error of an unusable key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key is too short to be secure.
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
        "seal.keys[{index}] is a sample from the documentation, which is public; make a key with `openssl rand -base64 32`"
    )]
    Sample {
        /// Index of the key, from 0.
        index: usize,
    },
}
