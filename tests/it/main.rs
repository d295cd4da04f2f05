//! The one integration binary.

#[cfg(feature = "cli")]
mod cli;
mod docs;
mod streams;
mod tool_attribute;
