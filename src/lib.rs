//! Longshore.

pub mod auth;
pub mod seal;
pub mod catalog;
pub mod protocol;

pub use catalog::{
    Arguments, CallContext, Definition, InvalidArguments, LogLevel, Output, Tool, ToolError,
};
pub use protocol::{Content, Icon, ToolAnnotations};
