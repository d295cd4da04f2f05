//! Filesystem toolset: files and directories below the configured ones. Names, arguments and results are those of the
//! official reference server.
//!
//! Three files confine callers: `roots.rs` maps a path to a directory, `resolved_path.rs` follows it from handle to handle,
//! and `handle.rs` has every system call that opens something.

mod config;
#[cfg(unix)]
mod edit;
#[cfg(unix)]
mod handle;
#[cfg(unix)]
mod info;
#[cfg(unix)]
mod list;
#[cfg(unix)]
mod pattern;
#[cfg(unix)]
mod read;
#[cfg(unix)]
mod refusal;
#[cfg(unix)]
mod roots;
#[cfg(unix)]
mod resolved_path;
#[cfg(unix)]
mod tools;
#[cfg(unix)]
mod write;

pub use config::{FilesystemConfig, FilesystemLimits};
#[cfg(unix)]
pub use tools::toolset;

/// This platform has no directory handles to work from.
#[cfg(not(unix))]
pub fn toolset(_: &super::ToolsetContext<'_>) -> Result<super::Toolset, super::ToolsetError> {
    Err(super::ToolsetError::setting(
        "toolsets",
        "has filesystem, which needs Linux, macOS or another Unix; remove it",
    ))
}
