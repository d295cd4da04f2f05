//! The one integration binary.

mod revisions;
mod support;
mod tool_attribute;
