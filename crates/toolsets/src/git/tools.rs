//! Tools of the git toolset, with the names and arguments of the reference server.

use std::sync::Arc;

use jiff::Zoned;
use schemars::JsonSchema;
use serde::Deserialize;

use super::config::GitConfig;
use super::repository::{OpenRepository, Repositories};
use super::{add, branch, checkout, commit, diff, log, show, status};
use crate::catalog::{Definition, Tool, ToolError, tool_fn};
use crate::source::builtin::{Blocking, Toolset, ToolsetContext, ToolsetError};
use crate::source::limits::{GRACE, time_limit};

/// Limits whose hits are counted.
const LIMITS: [&str; 8] = [
    "output_bytes",
    "file_bytes",
    "files",
    "log_commits",
    "walked_commits",
    "context_lines",
    "timeout_seconds",
    "concurrency",
];

/// Creates the tools for the configured repositories.
pub fn toolset(grounds: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    let config: &GitConfig = &grounds.settings.git;
    if config.repositories.is_empty() {
        return Err(ToolsetError::setting(
            "builtin.git.repositories",
            "is empty, but toolsets has git; name the folders of repositories, or remove git",
        ));
    }
    for (setting, text) in [
        ("name", &config.author.name),
        ("email", &config.author.email),
    ] {
        if !text.is_empty() && !commit::is_sound(text.as_str().into()) {
            return Err(ToolsetError::setting(
                format!("builtin.git.author.{setting}"),
                "is blank, or has an angle bracket or a line break in it; write it plainly",
            ));
        }
    }
    let repositories = Repositories::new(config).map_err(|(position, problem)| {
        ToolsetError::setting(format!("builtin.git.repositories[{position}]"), problem)
    })?;
    let shared = Arc::new(Shared {
        repositories,
        pool: Blocking::new(
            config.limits.concurrency,
            time_limit(config.limits.timeout_seconds),
        )
        .counting(grounds.hits("git.limits", &LIMITS)),
    });
    let mut tools = reading(&shared);
    if config.write {
        tools.extend(writing(&shared));
    }
    Ok(Toolset {
        tools,
        ..Toolset::default()
    })
}

struct Shared {
    repositories: Repositories,
    pool: Blocking,
}

fn reading(shared: &Arc<Shared>) -> Vec<Arc<dyn Tool>> {
    let reads = |name: &str, title: &str| {
        let definition = definition(shared, name, title).read_only(true);
        definition.destructive(false).idempotent(true)
    };
    vec![
        tool(
            shared,
            reads("git_status", "Status").description("Shows the working tree status"),
            |place, _: &OfRepository| status::status(place),
        ),
        tool(
            shared,
            reads("git_diff_unstaged", "Unstaged changes").description("Shows changes in the working directory that are not yet staged"),
            |place, of: &OfContext| diff::unstaged(place, of.context_lines),
        ),
        tool(
            shared,
            reads("git_diff_staged", "Staged changes").description("Shows changes that are staged for commit"),
            |place, of: &OfContext| diff::staged(place, of.context_lines),
        ),
        tool(
            shared,
            reads("git_diff", "Differences").description("Shows differences between branches or commits"),
            |place, of: &OfDiff| diff::diff(place, &of.target, of.context_lines),
        ),
        tool(
            shared,
            reads("git_log", "History").description("Shows the commit logs"),
            |place, of: &OfLog| {
                let (start, end) = (of.start_timestamp.as_deref(), of.end_timestamp.as_deref());
                log::log(place, of.max_count, start, end, &Zoned::now())
            },
        ),
        tool(
            shared,
            reads("git_show", "Contents").description("Shows the contents of a commit, or of a file or directory given as <revision>:<path>"),
            |place, of: &OfShow| show::show(place, &of.revision),
        ),
        tool(
            shared,
            reads("git_branch", "Branches").description("List Git branches"),
            |place, of: &OfBranch| {
                let (with, without) = (of.contains.as_deref(), of.not_contains.as_deref());
                branch::list(place, &of.branch_type, with, without)
            },
        ),
    ]
}

fn writing(shared: &Arc<Shared>) -> Vec<Arc<dyn Tool>> {
    let writes = |name: &str, title: &str, destructive: bool, idempotent: bool| {
        let definition = definition(shared, name, title).read_only(false);
        definition.destructive(destructive).idempotent(idempotent)
    };
    vec![
        tool(
            shared,
            writes("git_add", "Stage", false, true)
                .description("Adds file contents to the staging area"),
            |place, of: &OfAdd| add::add(place, &of.files),
        ),
        tool(
            shared,
            writes("git_reset", "Unstage", true, true).description("Unstages all staged changes"),
            |place, _: &OfRepository| add::reset(place),
        ),
        tool(
            shared,
            writes("git_commit", "Commit", false, false)
                .description("Records changes to the repository"),
            |place, of: &OfCommit| commit::commit(place, &of.message),
        ),
        tool(
            shared,
            writes("git_create_branch", "New branch", false, false)
                .description("Creates a new branch from an optional base branch"),
            |place, of: &OfCreateBranch| {
                branch::create(place, &of.branch_name, of.base_branch.as_deref())
            },
        ),
        tool(
            shared,
            writes("git_checkout", "Switch branches", false, false)
                .description("Switches branches"),
            |place, of: &OfCheckout| checkout::checkout(place, &of.branch_name),
        ),
    ]
}

fn definition(shared: &Shared, name: &str, title: &str) -> Definition {
    Definition::new(name)
        .title(title)
        .open_world(false)
        .timeout(time_limit(shared.repositories.config.limits.timeout_seconds) + GRACE)
}

/// Common properties of all argument types.
trait Of: for<'de> Deserialize<'de> + JsonSchema + Send + 'static {
    fn repository(&self) -> &str;
}

fn tool<A: Of>(
    shared: &Arc<Shared>,
    definition: Definition,
    work: fn(&OpenRepository<'_>, &A) -> Result<String, ToolError>,
) -> Arc<dyn Tool> {
    let shared = Arc::clone(shared);
    Arc::new(tool_fn(definition, move |_, of: A| {
        let shared = Arc::clone(&shared);
        async move {
            let inner = Arc::clone(&shared);
            let done = shared.pool.run(move |stop| {
                let place = inner.repositories.at(of.repository(), stop)?;
                work(&place, &of)
            });
            done.await
        }
    }))
}

macro_rules! of_repository {
    ($($arguments:ty),*) => {
        $(impl Of for $arguments {
            fn repository(&self) -> &str {
                &self.repo_path
            }
        })*
    };
}

of_repository!(
    OfRepository,
    OfContext,
    OfDiff,
    OfLog,
    OfShow,
    OfBranch,
    OfAdd,
    OfCommit,
    OfCreateBranch,
    OfCheckout
);

fn context_lines() -> usize {
    3
}

fn max_count() -> i64 {
    10
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfRepository {
    /// The path to the repository.
    repo_path: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfContext {
    /// The path to the repository.
    repo_path: String,
    /// Number of context lines around a change.
    #[serde(default = "context_lines")]
    context_lines: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfDiff {
    /// The path to the repository.
    repo_path: String,
    /// A branch or commit to compare the working tree with, or two of them to compare: A..B.
    target: String,
    /// Number of context lines around a change.
    #[serde(default = "context_lines")]
    context_lines: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfLog {
    /// The path to the repository.
    repo_path: String,
    /// Maximum number of commits.
    #[serde(default = "max_count")]
    max_count: i64,
    /// Show commits since this time: a time (2024-01-15T14:30:25), a date (2024-01-15, Jan 15 2024), or a relative
    /// time (2 weeks ago, yesterday).
    #[serde(default)]
    start_timestamp: Option<String>,
    /// Show commits until this time, in the same forms.
    #[serde(default)]
    end_timestamp: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfShow {
    /// The path to the repository.
    repo_path: String,
    /// A commit, or a file or folder in one: <revision>:<path>.
    revision: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfBranch {
    /// The path to the Git repository.
    repo_path: String,
    /// List local branches ('local'), remote branches ('remote') or all branches ('all').
    branch_type: String,
    /// Only list branches that contain this commit.
    #[serde(default)]
    contains: Option<String>,
    /// Only list branches that do not contain this commit.
    #[serde(default)]
    not_contains: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfAdd {
    /// The path to the repository.
    repo_path: String,
    /// Files and folders to stage, from the root of the working tree; ['.'] for everything.
    #[schemars(length(min = 1))]
    files: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfCommit {
    /// The path to the repository.
    repo_path: String,
    /// The commit message.
    message: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfCreateBranch {
    /// The path to the repository.
    repo_path: String,
    /// The name of the new branch.
    branch_name: String,
    /// The branch to start from. Default: the current one.
    #[serde(default)]
    base_branch: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OfCheckout {
    /// The path to the repository.
    repo_path: String,
    /// The branch to switch to. A tag or a commit detaches HEAD.
    branch_name: String,
}
