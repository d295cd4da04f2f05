//! Longshore.

// `#[tool]` writes paths that begin with `::longshore`, for the tools of this crate too.
#[allow(unused_extern_crates)]
extern crate self as longshore;

pub mod auth;
pub mod catalog;
pub mod protocol;

#[doc(hidden)]
pub use catalog::attribute as __private;
pub use catalog::{
    Arguments, CallContext, Definition, IntoOutput, IntoTool, InvalidArguments, LogLevel, Output,
    Tool, ToolError, collected_tools, tool_fn,
};
pub use protocol::{Content, Icon, ToolAnnotations};

#[doc = include_str!("catalog/tool.md")]
pub use longshore_macros::tool;

#[doc(no_inline)]
pub use schemars::{self, JsonSchema};
#[doc(no_inline)]
pub use serde;
