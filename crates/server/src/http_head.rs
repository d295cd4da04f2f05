//! Head of an HTTP request.

use std::sync::Arc;

use http::{Extensions, HeaderMap};

use super::param_headers::McpHeaders;
use super::request_context::{Headers, Origin};
use super::worker_state::WorkerState;
use crate::auth::Principal;
use crate::net::Peer;
use crate::telemetry::{CountedTransport, RequestScope};

/// The parts of an HTTP request head that the server needs.
#[derive(Debug)]
pub struct HttpHead<'a> {
    pub principal: &'a Arc<Principal>,
    /// All headers. A call takes them out and gives them back.
    pub headers: &'a mut HeaderMap,
    /// Headers that MCP defines.
    pub mcp: &'a McpHeaders,
    /// Values that layers of the application have put into the request, if there are any.
    pub extensions: Option<&'a Arc<Extensions>>,
    /// True if the client accepts an event stream as the response.
    pub takes_streams: bool,
    /// Protocol of the connection, for metrics.
    pub wire: CountedTransport,
    /// Address of the client.
    pub peer: Option<Peer>,
}

impl<'a> HttpHead<'a> {
    /// Origin of the request, for its caller.
    pub(super) fn origin<'o>(
        &self,
        worker: &WorkerState,
        watch: Option<&'o RequestScope<'o>>,
    ) -> Origin<'o>
    where
        'a: 'o,
    {
        Origin {
            principal: self.principal,
            address: self.peer.map(|peer| peer.address),
            now: worker.now(),
            watch,
        }
    }

    pub(super) fn headers(&mut self) -> Headers<'_> {
        Headers {
            mcp: Some(self.mcp),
            all: self.headers,
            extensions: self.extensions,
        }
    }
}
