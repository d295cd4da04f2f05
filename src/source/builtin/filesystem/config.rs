//! Settings of the filesystem toolset.

use std::path::PathBuf;
use std::time::Duration;

use crate::source::config::TIMEOUT_SECONDS_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The toolset `filesystem`: files in directories that are named here, and nowhere else.
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
    /// The directories, with all that is below them. They have to exist. No client can add to them: a client's roots
    /// change nothing. Default: none, with which the toolset does not start.
    #[serde(deserialize_with = "crate::environment::list")]
    #[schemars(extend("x-path" = "file"))]
    pub directories: Vec<PathBuf>,
    /// Whether anything can be changed: files written and edited, directories made, both moved. Default: false, and
    /// the tools for that are not listed.
    pub write: bool,
    /// How far one call may go.
    pub limits: FilesystemLimits,
}

/// How far one call of the filesystem toolset may go.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesystemLimits {
    /// How many bytes of files a call may read, or write. Default: 10485760, 10 MiB.
    pub bytes: usize,
    /// How many levels of directories a tree or a search goes down. Default: 32.
    pub depth: usize,
    /// How many entries a listing or a tree has. Default: 10000.
    pub entries: usize,
    /// How many entries a search looks at. Default: 200000.
    pub searched: usize,
    /// How many matches a search returns. Default: 1000.
    pub matches: usize,
    /// How long one call may take, in seconds. Default: 30.
    pub timeout_seconds: u64,
    /// How many calls may be at work at once; others wait for their turn, within their time. Default: 16.
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
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.min(TIMEOUT_SECONDS_MAX))
    }

    /// The first limit with which nothing could be done, or too much.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let least = [
            ("bytes", self.bytes),
            ("depth", self.depth),
            ("entries", self.entries),
            ("searched", self.searched),
            ("matches", self.matches),
            (
                "timeout_seconds",
                usize::try_from(self.timeout_seconds).unwrap_or(usize::MAX),
            ),
            ("concurrency", self.concurrency),
        ];
        // Each level of a walk keeps a directory open.
        let most = [
            ("depth", self.depth, DEPTH_MAX),
            ("concurrency", self.concurrency, CONCURRENCY_MAX),
        ];
        let zero = least
            .into_iter()
            .find(|(_, value)| *value == 0)
            .map(|(name, _)| {
                let advice = "is 0; give it at least 1, or leave it out for the default".to_owned();
                (name, advice)
            });
        zero.or_else(|| {
            most.into_iter()
                .find(|(_, value, max)| max < value)
                .map(|(name, value, max)| (name, format!("is {value}; give it at most {max}")))
        })
    }
}

const DEPTH_MAX: usize = 128;
const CONCURRENCY_MAX: usize = 64;
