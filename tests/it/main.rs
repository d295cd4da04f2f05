//! The one integration binary.

#[cfg(feature = "cli")]
mod cli;
mod docs;
mod library;
mod prompts;
mod resources;
mod revisions;
mod streams;
mod support;
mod tool_attribute;
