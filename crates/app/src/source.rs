//! Tools without code: the kinds of sources, the built-in toolsets, and those that show what the protocol can do.

pub use longshore_sources::*;
pub use longshore_toolsets::{BuiltinConfig, Toolset, ToolsetContext, ToolsetError};

/// Creates a toolset, at startup and for each reload of the configuration.
pub(crate) fn builtin(name: &str, grounds: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    match name {
        "demo" => Ok(longshore_demo::demo()),
        "everything" => Ok(longshore_demo::everything(grounds.announcer)),
        _ => longshore_toolsets::builtin(name, grounds),
    }
}
