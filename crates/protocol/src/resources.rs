//! Cache scope of `resources/read`.

use serde::{Deserialize, Serialize};

/// Scope in which a result may be cached (2026-07-28). A hint to caches, not access control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Only the caller may cache it.
    #[default]
    Private,
    /// Shared caches may store it: it does not depend on the caller.
    Public,
}

impl CacheScope {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Public => "public",
        }
    }
}
