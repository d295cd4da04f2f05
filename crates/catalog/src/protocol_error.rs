//! JSON-RPC errors of other servers.

use crate::protocol::ErrorObject;

/// JSON-RPC error of another server, with the code and the data for the caller. It is the source of an error whose
/// kind is `Protocol`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{} ({})", .0.message, .0.code.number())]
pub struct ProtocolError(pub ErrorObject);
