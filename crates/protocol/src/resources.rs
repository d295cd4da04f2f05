//! Cache scope of `resources/read`.

use serde::{Deserialize, Serialize};

crate::named_enum! {
    /// Scope in which a result may be cached (2026-07-28). A hint to caches, not access control.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CacheScope {
        /// Only the caller may cache it.
        #[default]
        Private = "private",
        /// Shared caches may store it: it does not depend on the caller.
        Public = "public",
    }
    /// The word on the wire.
    pub fn as_str;
}
