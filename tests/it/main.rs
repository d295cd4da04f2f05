//! The one integration binary.

mod library;
mod revisions;
#[cfg(feature = "cli")]
mod stdio;
mod streamable_http;
mod support;
mod tool_attribute;
