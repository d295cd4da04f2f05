//! The one integration binary.

mod tool_attribute;
