//! The filesystem toolset: files and directories below those that are configured. Names, arguments and results are those
//! of the official reference server.
//!
//! What keeps callers inside is in three files: `roots.rs` says which directory a path means, `spot.rs` follows it from
//! handle to handle, and `handle.rs` has every call to the system by which something is opened.

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
mod spot;
#[cfg(unix)]
mod tools;
#[cfg(unix)]
mod write;

pub use config::{FilesystemConfig, FilesystemLimits};
#[cfg(unix)]
pub(super) use tools::toolset;

/// There are no handles of directories here to work from.
#[cfg(not(unix))]
pub(super) fn toolset(_: &FilesystemConfig) -> Result<super::Toolset, super::ToolsetError> {
    Err(super::ToolsetError::setting(
        "toolsets",
        "has filesystem, which needs Linux, macOS or another Unix; take it out",
    ))
}
