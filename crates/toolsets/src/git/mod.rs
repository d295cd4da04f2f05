//! Toolset `git`: inspects and changes repositories without the git program.
//!
//! The content of a repository is never trusted. Its configuration starts no programs, and its hooks and filters do
//! not run. Paths that lead out of the configured folders are rejected.

mod config;
#[cfg(feature = "git")]
mod add;
#[cfg(feature = "git")]
mod branch;
#[cfg(feature = "git")]
mod change;
#[cfg(feature = "git")]
mod checkout;
#[cfg(feature = "git")]
mod commit;
#[cfg(feature = "git")]
mod convert;
#[cfg(feature = "git")]
mod date;
#[cfg(feature = "git")]
mod diff;
#[cfg(feature = "git")]
mod encoding;
#[cfg(feature = "git")]
mod format;
#[cfg(feature = "git")]
mod index;
#[cfg(feature = "git")]
mod links;
#[cfg(feature = "git")]
mod log;
#[cfg(feature = "git")]
mod patch;
#[cfg(feature = "git")]
mod repository;
#[cfg(feature = "git")]
mod show;
#[cfg(feature = "git")]
mod status;
#[cfg(feature = "git")]
mod text;
#[cfg(feature = "git")]
mod tools;
#[cfg(feature = "git")]
mod tree;
#[cfg(feature = "git")]
mod worktree;

pub use config::{AuthorConfig, GitConfig, GitLimits};
#[cfg(feature = "git")]
pub use tools::toolset;
