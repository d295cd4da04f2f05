//! The one integration binary.

mod docs;
mod tool_attribute;
