//! Configuration of the toolset `git`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The toolset `git`: repositories that can be inspected, and changed if `write` is set.
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
    /// Folders that are repositories or contain them. Nothing outside of them is accessed.
    #[serde(deserialize_with = "crate::environment::list")]
    #[schemars(with = "Vec<String>")]
    #[schemars(extend("x-path" = "file"))]
    pub repositories: Vec<PathBuf>,
    /// Offer `git_add`, `git_reset`, `git_commit`, `git_create_branch` and `git_checkout`.
    pub write: bool,
    /// Committer of new commits.
    pub author: AuthorConfig,
    /// Allow repositories whose owner is neither this process's user nor the superuser.
    pub allow_other_owners: bool,
    /// Limits of one call.
    pub limits: GitLimits,
}

/// Committer of new commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthorConfig {
    /// Name of the committer. Default: `user.name` of the repository's own configuration.
    pub name: String,
    /// E-mail address of the committer. Default: `user.email` of the repository's own configuration.
    pub email: String,
}

/// Limits of one call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitLimits {
    /// Maximum size of a result, in bytes; a longer one is cut, with a note.
    pub output_bytes: usize,
    /// Maximum size of a file to show, compare or add, in bytes.
    pub file_bytes: usize,
    /// Maximum number of files in a commit or a working tree.
    pub files: usize,
    /// Maximum number of commits that `git_log` shows.
    pub log_commits: usize,
    /// Maximum number of commits to walk, for `git_log` and to find the branches that contain a commit.
    pub walked_commits: usize,
    /// Maximum number of context lines around a change.
    pub context_lines: usize,
    /// Timeout of a call, in seconds.
    pub timeout_seconds: u64,
    /// Maximum number of concurrent calls.
    pub concurrency: usize,
    /// Maximum number of repositories kept open.
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
