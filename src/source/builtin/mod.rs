//! Toolsets shipped with the program, by name. What one of them may do beyond its own memory stands in its section of
//! [`BuiltinConfig`]; without that it does not start, or does less.

mod blocking;
mod config;
mod demo;
mod demo_verbs;
mod everything;
mod fetch;
mod filesystem;
mod memory;
mod git;
mod sql;
mod time;

use std::sync::Arc;

pub(crate) use blocking::{Blocking, Stop};
pub use config::BuiltinConfig;
pub use fetch::FetchConfig;
pub use filesystem::{FilesystemConfig, FilesystemLimits};
pub use git::{AuthorConfig, GitConfig, GitLimits};
pub use memory::MemoryConfig;
pub use sql::{DatabaseConfig, QueryConfig, SqlConfig, SqlLimits};
pub use time::TimeConfig;

use crate::catalog::{Announcer, AnyResource, Prompt, Skill, Tool};
use crate::limit::SectionHits;
use crate::telemetry::Metrics;

/// A toolset cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsetError {
    /// There is none of this name.
    #[error("toolsets has {name:?}, which is no built-in toolset; there is {}", NAMES.join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// It cannot work with a setting as it is.
    #[error("{setting} {problem}")]
    Setting {
        /// Which one: `builtin.time.local_zone`.
        setting: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
}

impl ToolsetError {
    /// A setting is not what it has to be. The problem goes on after the setting's name, and says what to do.
    pub(crate) fn setting(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting {
            setting: setting.into(),
            problem: problem.into(),
        }
    }
}

pub(crate) const NAMES: [&str; 8] = [
    "demo",
    "everything",
    "fetch",
    "filesystem",
    "git",
    "memory",
    "sql",
    "time",
];

/// What a toolset has, each in the order in which it is listed.
#[derive(Default)]
pub(crate) struct Toolset {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) resources: Vec<AnyResource>,
    pub(crate) prompts: Vec<Arc<dyn Prompt>>,
    pub(crate) skills: Vec<Skill>,
}

/// What toolsets are given.
#[derive(Clone, Copy)]
pub(crate) struct Grounds<'a> {
    /// For what changes in a toolset.
    pub(crate) announcer: &'a Announcer,
    pub(crate) settings: &'a BuiltinConfig,
    /// Where it is counted how often limits were hit.
    pub(crate) metrics: &'a Metrics,
}

impl Grounds<'_> {
    /// Counters of the limits in a section of `builtin`.
    fn hits(&self, section: &str, limits: &[&'static str]) -> SectionHits {
        SectionHits::new(self.metrics, &format!("builtin.{section}"), limits)
    }
}

/// A built-in toolset. It is made at start, and anew when the configuration is read again.
pub(crate) fn builtin(name: &str, grounds: &Grounds<'_>) -> Result<Toolset, ToolsetError> {
    match name {
        "demo" => Ok(demo::toolset()),
        "everything" => Ok(everything::toolset(grounds.announcer)),
        "fetch" => fetch::toolset(grounds),
        "filesystem" => filesystem::toolset(grounds),
        "memory" => memory::toolset(grounds),
        #[cfg(feature = "git")]
        "git" => git::toolset(grounds),
        #[cfg(not(feature = "git"))]
        "git" => Err(lacking("git")),
        #[cfg(feature = "sql")]
        "sql" => sql::toolset(grounds),
        #[cfg(not(feature = "sql"))]
        "sql" => Err(lacking("sql")),
        "time" => time::toolset(&grounds.settings.time),
        _ => Err(ToolsetError::Unknown {
            name: name.to_owned(),
        }),
    }
}

/// For a toolset that this program was built without.
#[cfg(not(all(feature = "git", feature = "sql")))]
fn lacking(name: &str) -> ToolsetError {
    let problem = format!(
        "has {name}, which this program was built without; take the image, or build with --features {name}"
    );
    ToolsetError::setting("toolsets", problem)
}
