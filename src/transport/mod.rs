//! Bytes to messages and back: HTTP, and standard input and output.

pub mod http;
pub mod stdio;
