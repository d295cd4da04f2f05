//! Built-in toolsets, by name. A toolset's section of [`BuiltinConfig`] grants the access that it needs; without that
//! it does not start, or offers less.

// Only the crate `longshore` is a documented API.
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links
)]

// Paths in this crate begin with the name of a room, as if all rooms were modules of one crate: `crate::net::Body`. So the rooms of
// other crates are imported here.
use longshore_catalog as catalog;
use longshore_core::{auth, limit, seal, telemetry};
use longshore_net::{environment, net};
use longshore_protocol as protocol;

mod source {
    pub use crate as builtin;
    #[cfg(feature = "sql")]
    pub use longshore_sources::tool_plan;
    pub use longshore_sources::{argument, limits, media_type};
}

// For the tests of the workspace, which prepare repositories and databases.
#[doc(hidden)]
#[cfg(feature = "git")]
pub use gix;
#[doc(hidden)]
#[cfg(feature = "sql")]
pub use {rusqlite, tokio_postgres};

mod blocking;
mod config;
mod fetch;
mod filesystem;
mod memory;
mod git;
mod sql;
mod text;
mod time;

use std::sync::Arc;

pub use config::BuiltinConfig;
pub use fetch::FetchConfig;
pub use filesystem::{FilesystemConfig, FilesystemLimits};
pub use git::{AuthorConfig, GitConfig, GitLimits};
pub use memory::MemoryConfig;
pub use sql::{DatabaseConfig, QueryConfig, SqlConfig, SqlLimits};
pub use time::TimeConfig;

use crate::blocking::{Blocking, Stop};
use crate::catalog::{Announcer, AnyResource, Prompt, Skill, Tool};
use crate::limit::SectionHits;
use crate::net::Background;
use crate::telemetry::Metrics;

/// A toolset cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsetError {
    /// There is no toolset of this name.
    #[error("toolsets has {name:?}, which is not a built-in toolset; there is {}", NAMES.join(", "))]
    Unknown {
        /// Requested name.
        name: String,
    },
    /// A setting has an invalid value.
    #[error("{setting} {problem}")]
    Setting {
        /// Path of the setting: `builtin.time.local_zone`.
        setting: String,
        /// Description of the problem and its solution.
        problem: String,
    },
}

impl ToolsetError {
    /// Creates an error for an invalid setting. The problem continues a sentence that begins with the setting's name,
    /// and says how to correct it.
    pub fn setting(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting {
            setting: setting.into(),
            problem: problem.into(),
        }
    }
}

pub const NAMES: [&str; 8] = [
    "demo",
    "everything",
    "fetch",
    "filesystem",
    "git",
    "memory",
    "sql",
    "time",
];

/// Items of a toolset, each kind in listing order.
#[derive(Default)]
pub struct Toolset {
    pub tools: Vec<Arc<dyn Tool>>,
    pub resources: Vec<AnyResource>,
    pub prompts: Vec<Arc<dyn Prompt>>,
    pub skills: Vec<Skill>,
}

/// Context in which toolsets are created.
#[derive(Clone, Copy)]
pub struct ToolsetContext<'a> {
    /// Notifier for changes in a toolset.
    pub announcer: &'a Announcer,
    pub settings: &'a BuiltinConfig,
    /// Registry for the counters of limit hits.
    pub metrics: &'a Metrics,
    /// Registry of background tasks; connections that outlive a call live on its runtime.
    pub background: &'a Background,
}

impl ToolsetContext<'_> {
    /// Returns counters for the limits in a section of `builtin`.
    fn hits(&self, section: &str, limits: &[&'static str]) -> SectionHits {
        SectionHits::new(self.metrics, &format!("builtin.{section}"), limits)
    }
}

/// Creates a built-in toolset, at startup and for each reload of the configuration.
pub fn builtin(name: &str, grounds: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    match name {
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

/// Returns the error for a toolset that this program was built without.
#[cfg(not(all(feature = "git", feature = "sql")))]
fn lacking(name: &str) -> ToolsetError {
    let problem = format!(
        "has {name}, which this build does not contain; use the image, or build with --features {name}"
    );
    ToolsetError::setting("toolsets", problem)
}
