//! The one integration binary.

#[cfg(feature = "cli")]
mod cli;
mod docs;
mod layers;
mod library;
mod revisions;
#[cfg(feature = "cli")]
mod stdio;
mod streamable_http;
mod streams;
mod support;
mod tool_attribute;
