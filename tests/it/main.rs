//! The one integration binary.

mod library;
mod revisions;
mod streams;
mod support;
mod tool_attribute;
