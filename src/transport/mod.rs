//! Bytes to messages and back: HTTP, and standard input and output.

pub mod drain;
pub mod http;
pub mod stdio;
