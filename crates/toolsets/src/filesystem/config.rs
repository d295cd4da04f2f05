//! Settings of the filesystem toolset.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The toolset `filesystem`: files in the directories that are named here, and nowhere else.
///
/// ```yaml
/// toolsets: [filesystem]
/// builtin:
///   filesystem:
///     directories: [/srv/documents]
///     write: true
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesystemConfig {
    /// Accessible directories, including everything below them. They have to exist. A client's roots do not add to
    /// them. Default: none, and the toolset does not start.
    #[serde(deserialize_with = "crate::environment::list")]
    #[schemars(extend("x-path" = "file"))]
    pub directories: Vec<PathBuf>,
    /// Allow changes: writing, editing and moving files, and creating and moving directories. Without it, the tools
    /// for that are not listed.
    pub write: bool,
    /// Limits of one call.
    pub limits: FilesystemLimits,
}

/// Limits of one call of the filesystem toolset.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesystemLimits {
    /// Maximum number of file bytes that a call reads or writes.
    pub bytes: usize,
    /// Maximum depth of a tree or a search, in directory levels.
    pub depth: usize,
    /// Maximum number of entries of a listing or a tree.
    pub entries: usize,
    /// Maximum number of entries that a search examines.
    pub searched: usize,
    /// Maximum number of matches that a search returns.
    pub matches: usize,
    /// Timeout of one call, in seconds.
    pub timeout_seconds: u64,
    /// Maximum number of concurrent calls; others wait in a queue, within their timeout.
    pub concurrency: usize,
}

impl Default for FilesystemLimits {
    fn default() -> Self {
        Self {
            bytes: 10 * 1024 * 1024,
            depth: 32,
            entries: 10_000,
            searched: 200_000,
            matches: 1_000,
            timeout_seconds: 30,
            concurrency: 16,
        }
    }
}

impl FilesystemLimits {
    /// Returns the first limit with an invalid value, and the problem.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let timeout_seconds = usize::try_from(self.timeout_seconds).unwrap_or(usize::MAX);
        let limits = [
            ("bytes", self.bytes, usize::MAX),
            // A walk keeps a directory open for each level.
            ("depth", self.depth, DEPTH_MAX),
            ("entries", self.entries, usize::MAX),
            ("searched", self.searched, usize::MAX),
            ("matches", self.matches, usize::MAX),
            ("timeout_seconds", timeout_seconds, usize::MAX),
            ("concurrency", self.concurrency, CONCURRENCY_MAX),
        ];
        limits.into_iter().find_map(|(name, value, max)| {
            let problem = match value {
                0 => "is 0; set it to at least 1, or remove it for the default".to_owned(),
                _ if max < value => format!("is {value}; set it to at most {max}"),
                _ => return None,
            };
            Some((name, problem))
        })
    }
}

const DEPTH_MAX: usize = 128;
const CONCURRENCY_MAX: usize = 64;
