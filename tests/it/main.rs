//! The one integration binary.

mod streams;
mod tool_attribute;
