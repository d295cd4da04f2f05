//! Toolsets shipped with the program, by name.

mod demo;
mod demo_verbs;

use std::sync::Arc;

use crate::catalog::Tool;

/// There is no toolset of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("toolsets has {name:?}, which is no built-in toolset; there is {}", NAMES.join(", "))]
pub struct UnknownToolset {
    name: String,
}

const NAMES: [&str; 1] = ["demo"];

/// The tools of a built-in toolset.
///
/// # Errors
///
/// There is none of that name.
pub fn builtin(name: &str) -> Result<Vec<Arc<dyn Tool>>, UnknownToolset> {
    match name {
        "demo" => Ok(demo::tools()),
        _ => Err(UnknownToolset {
            name: name.to_owned(),
        }),
    }
}
