//! The one integration binary.

mod library;
mod revisions;
mod support;
mod tool_attribute;
