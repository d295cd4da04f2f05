//! The one integration binary.

#[cfg(feature = "cli")]
mod cli;
mod docs;
mod tool_attribute;
