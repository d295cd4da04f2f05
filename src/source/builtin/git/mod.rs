//! The toolset `git`: repositories, looked into and changed without the program of that name.
//!
//! What lies in a repository is never trusted: its configuration starts no programs, its hooks and filters do not run,
//! and whatever points out of the configured folders is refused.

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
mod date;
#[cfg(feature = "git")]
mod diff;
#[cfg(feature = "git")]
mod index;
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
pub(super) use tools::toolset;
