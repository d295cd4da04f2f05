//! Settings of the built-in toolsets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fetch::FetchConfig;
use super::filesystem::FilesystemConfig;
use super::git::GitConfig;
use super::memory::MemoryConfig;
use super::sql::SqlConfig;
use super::time::TimeConfig;

/// Settings of the built-in toolsets: resources and limits. A section does not enable anything by itself: its toolset
/// is off until `toolsets` names it.
///
/// ```yaml
/// toolsets: [time]
/// builtin:
///   time:
///     local_zone: Europe/Berlin
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuiltinConfig {
    /// The toolset `fetch`.
    pub fetch: FetchConfig,
    /// The toolset `filesystem`.
    pub filesystem: FilesystemConfig,
    /// The toolset `memory`.
    pub memory: MemoryConfig,
    /// The toolset `git`.
    pub git: GitConfig,
    /// The toolset `sql`.
    pub sql: SqlConfig,
    /// The toolset `time`.
    pub time: TimeConfig,
}

impl BuiltinConfig {
    /// Returns the toolsets that have settings although `toolsets` does not name them.
    pub fn unused<'a>(
        &self,
        toolsets: &'a [String],
    ) -> impl Iterator<Item = &'static str> + use<'a> {
        let unset = Self::default();
        let set = [
            ("fetch", self.fetch != unset.fetch),
            ("filesystem", self.filesystem != unset.filesystem),
            ("memory", self.memory != unset.memory),
            ("git", self.git != unset.git),
            ("sql", self.sql != unset.sql),
            ("time", self.time != unset.time),
        ];
        set.into_iter()
            .filter(|(name, is_set)| *is_set && !toolsets.iter().any(|named| named == name))
            .map(|(name, _)| name)
    }
}
