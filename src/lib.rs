//! Longshore.

// `#[tool]` writes paths that begin with `::longshore`, for the tools of this crate too.
#[allow(unused_extern_crates)]
extern crate self as longshore;

// The rooms, in the order in which to read them. A room uses only rooms above it.
pub mod app;
pub mod auth;
#[doc(hidden)]
pub mod bench;
pub mod catalog;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod environment;
pub mod harness;
pub mod net;
pub mod protocol;
pub mod seal;
pub mod server;
pub mod source;
pub mod transport;

pub use app::{App, AppError, Bound, Result};
#[doc(hidden)]
pub use catalog::attribute as __private;
pub use catalog::{
    Arguments, CallContext, Definition, IntoOutput, IntoTool, InvalidArguments, LogLevel, Output,
    Tool, ToolError, collected_tools, tool_fn,
};
pub use config::Config;
pub use harness::Harness;
pub use protocol::{Content, Icon, ToolAnnotations};

#[doc = include_str!("catalog/tool.md")]
pub use longshore_macros::tool;

#[doc(no_inline)]
pub use schemars::{self, JsonSchema};
#[doc(no_inline)]
pub use serde;
