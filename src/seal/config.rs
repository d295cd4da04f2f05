//! Where sealing keys come from.

use std::fmt;

use serde::Deserialize;

/// How session ids and cursors are sealed.
///
/// ```toml
/// [seal]
/// keys = ["a long random secret shared by all replicas"]
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SealConfig {
    /// Secrets of at least 32 bytes that all replicas share. The first seals, all of them open: to rotate, put a
    /// new one in front, and take the last away a day later. Default: one made at start, which other replicas
    /// do not have.
    #[serde(deserialize_with = "crate::environment::list")]
    pub keys: Vec<Secret>,
}

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself. Do not log it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// Why a key cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Too little to be hard to guess.
    #[error(
        "seal.keys[{index}] has {bytes} bytes; a key needs at least 32, for example from `openssl rand -base64 32`"
    )]
    TooShort {
        /// Which one, from 0.
        index: usize,
        /// How long it is.
        bytes: usize,
    },
}
