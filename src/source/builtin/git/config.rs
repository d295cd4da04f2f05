//! What the toolset `git` may touch.

use std::path::PathBuf;
use std::time::Duration;

use crate::source::config::TIMEOUT_SECONDS_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Repositories that can be looked into, and changed where that is configured.
///
/// ```yaml
/// toolsets: [git]
/// builtin:
///   git:
///     repositories: [/srv/project]
///     write: true
///     author: { name: Assistant, email: assistant@example.com }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitConfig {
    /// Folders that are repositories, or have repositories in them. Nothing outside of these is touched.
    #[serde(deserialize_with = "crate::environment::list")]
    #[schemars(with = "Vec<String>")]
    #[schemars(extend("x-path" = "file"))]
    pub repositories: Vec<PathBuf>,
    /// Whether there are `git_add`, `git_reset`, `git_commit`, `git_create_branch` and `git_checkout`. Default: false.
    pub write: bool,
    /// Who commits.
    pub author: AuthorConfig,
    /// Whether repositories may be used that belong to somebody else than the user this runs as, or the superuser.
    /// Default: false.
    pub allow_other_owners: bool,
    /// How much and how long.
    pub limits: GitLimits,
}

/// Who commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthorConfig {
    /// Their name. Default: `user.name` of the repository's own configuration.
    pub name: String,
    /// Their address. Default: `user.email` of the repository's own configuration.
    pub email: String,
}

/// How much one call may look at, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitLimits {
    /// How many bytes a result may have; it is cut there, and says so. Default: 1048576, 1 MiB.
    pub output_bytes: usize,
    /// How many bytes a file may have to be shown, compared line by line or added. Default: 8388608, 8 MiB.
    pub file_bytes: usize,
    /// How many files a commit or a working tree may have. Default: 500000.
    pub files: usize,
    /// How many commits `git_log` shows at most. Default: 1000.
    pub log_commits: usize,
    /// How many commits are walked through at most, for `git_log` and to find which branches contain one. Default: 1000000.
    pub walked_commits: usize,
    /// How many lines around a change are shown at most. Default: 100.
    pub context_lines: usize,
    /// How long a call may take, in seconds. Default: 30.
    pub timeout_seconds: u64,
    /// How many calls run at once. Default: 4.
    pub concurrency: usize,
    /// How many repositories are kept open. Default: 16.
    pub open_repositories: usize,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            output_bytes: 1024 * 1024,
            file_bytes: 8 * 1024 * 1024,
            files: 500_000,
            log_commits: 1000,
            walked_commits: 1_000_000,
            context_lines: 100,
            timeout_seconds: 30,
            concurrency: 4,
            open_repositories: 16,
        }
    }
}

impl GitLimits {
    #[cfg_attr(not(feature = "git"), expect(dead_code, reason = "nobody asks"))]
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.clamp(1, TIMEOUT_SECONDS_MAX))
    }
}
