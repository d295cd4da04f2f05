//! The one integration binary.

mod library;
mod revisions;
mod streamable_http;
mod support;
mod tool_attribute;
