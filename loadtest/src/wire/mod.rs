//! A prepared request that is sent repeatedly, and its responses.
//!
//! [`Wire`] abstracts over the transport. HTTP/1.1 uses one connection for each wire and is hand-written, so that the
//! generator costs less than any server it drives. HTTP/2 uses a stream of a shared connection.

mod http1;
mod http2;
mod response;

use std::io;
use std::net::SocketAddr;

pub(crate) use http2::Multiplexed;
pub(crate) use response::Malformed;

/// The parts of a POST request that do not depend on the HTTP version.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    /// Target address, also used for `Host`.
    pub(crate) address: SocketAddr,
    /// The path of the endpoint.
    pub(crate) path: String,
    /// Headers beside `Host`, `Content-Type`, `Accept` and `Content-Length`; names in lower case.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// A JSON document.
    pub(crate) body: String,
}

/// Received response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The `Mcp-Session-Id` header.
    pub(crate) session: Option<&'a [u8]>,
    /// The whole body.
    pub(crate) body: &'a [u8],
}

/// Reason why there is no response. The connection is no longer usable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the connection failed")]
    Socket(#[from] io::Error),
    #[error("the server closed the connection before its response was complete")]
    Closed,
    #[error("the response is not HTTP/1.1 as this client reads it")]
    Malformed(#[from] Malformed),
    #[error("the HTTP/2 stream or connection failed")]
    Http2(#[from] h2::Error),
    #[error("the request cannot be written as HTTP")]
    Unwritable(#[from] http::Error),
    #[error("the response is longer than {MAX_BODY} bytes")]
    TooLong,
}

/// A way to one server, which carries one request at a time.
#[derive(Debug)]
pub(crate) enum Wire {
    /// A keep-alive connection.
    Http1(http1::Connection),
    /// A stream, again and again, of a connection shared with others.
    Http2(http2::Stream),
}

impl Wire {
    /// A connection of its own.
    pub(crate) async fn http1(address: SocketAddr) -> Result<Self, WireError> {
        Ok(Self::Http1(http1::Connection::open(address).await?))
    }

    /// A share of `connection`.
    pub(crate) fn http2(connection: &Multiplexed) -> Self {
        Self::Http2(connection.stream())
    }

    /// Makes `post` the request that [`exchange`](Self::exchange) sends from now on.
    pub(crate) fn prepare(&mut self, post: &Post) -> Result<(), WireError> {
        match self {
            Self::Http1(connection) => connection.prepare(post),
            Self::Http2(stream) => stream.prepare(post)?,
        }
        Ok(())
    }

    /// Sends the prepared request and reads the complete response.
    ///
    /// # Errors
    ///
    /// After an error, or if the future is dropped before completion, the wire must not be used again.
    pub(crate) async fn exchange(&mut self) -> Result<Answer<'_>, WireError> {
        match self {
            Self::Http1(connection) => connection.exchange().await,
            Self::Http2(stream) => stream.exchange().await,
        }
    }
}

/// The longest body that is read. The longest a workload asks for is a listing of some 300 KB.
const MAX_BODY: usize = 16 << 20;
