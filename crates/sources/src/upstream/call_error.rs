//! Reasons why a request to an upstream failed.

use crate::client::ClientError;
use crate::net::BulkheadError;

/// Reason why a request to an upstream failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    BulkheadError(#[from] BulkheadError),
    /// There is no connection, so the request was not sent.
    #[error(transparent)]
    Apart(ClientError),
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Each caller has a connection of its own, and there are too many.
    #[error("too many callers use it at the moment; try again in a moment")]
    TooManyCallers,
}
