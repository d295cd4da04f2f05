//! What `resources/read` says beside contents.

use serde::{Deserialize, Serialize};

/// Who may keep a result for later (2026-07-28). A hint to caches, not a control of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Whoever asked, for itself.
    #[default]
    Private,
    /// Anybody, for everybody: it holds nothing that depends on who asked.
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
