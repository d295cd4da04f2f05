//! Bytes to messages and back: HTTP, and standard input and output.

pub mod drain;
#[path = "../../../http/src/lib.rs"]
pub mod http;
pub mod stdio;
