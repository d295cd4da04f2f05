//! Toolsets shipped with the program, by name.

mod demo;
mod demo_verbs;
mod everything;

use std::sync::Arc;

use crate::catalog::{Announcer, AnyResource, Prompt, Skill, Tool};

/// There is no toolset of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("toolsets has {name:?}, which is no built-in toolset; there is {}", NAMES.join(", "))]
pub struct UnknownToolset {
    name: String,
}

const NAMES: [&str; 2] = ["demo", "everything"];

/// What a toolset has, each in the order in which it is listed.
#[derive(Default)]
pub(crate) struct Toolset {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) resources: Vec<AnyResource>,
    pub(crate) prompts: Vec<Arc<dyn Prompt>>,
    pub(crate) skills: Vec<Skill>,
}

/// A built-in toolset; `announcer` is for what changes in it.
pub(crate) fn builtin(name: &str, announcer: &Announcer) -> Result<Toolset, UnknownToolset> {
    match name {
        "demo" => Ok(demo::toolset()),
        "everything" => Ok(everything::toolset(announcer)),
        _ => Err(UnknownToolset {
            name: name.to_owned(),
        }),
    }
}
