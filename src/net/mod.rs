//! Bytes and sockets. Nothing here knows the protocol.

mod body;

pub use body::{Body, BodyError};
pub(crate) use body::{ReadError, read_capped};
