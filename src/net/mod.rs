//! Bytes and sockets. Nothing here knows the protocol.

mod body;
mod proxies;

pub use body::{Body, BodyError};
pub(crate) use body::{ReadError, read_capped};
pub use proxies::TrustedProxies;
