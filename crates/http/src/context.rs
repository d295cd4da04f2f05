//! Context of a request: where it came from, who sent it, and what its handler returns.

use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, Response, Uri};

use super::connection::{ConnectionState, SharedConn};
use super::headers::Summary;
use super::layers::McpService;
use super::rejection::Rejection;
use super::router::Router;
use crate::auth::{Principal, RequestTarget};
use crate::limit::share_of;
use crate::net::{Body, Peer, ShareKey};
use crate::server::{HttpHead, MaybeReady, Reply, WorkerState};
use crate::telemetry::{self, CountedTransport};

/// The service for the requests of one worker: the router, inside any configured layers.
#[derive(Debug)]
pub(crate) struct WorkerService {
    pub(super) router: Arc<Router>,
    pub(super) local: Arc<WorkerState>,
    /// The layers with everything inside of them, if there are any. `tower` services are called by exclusive reference;
    /// this one is cloned for each request.
    pub(super) layered: Option<McpService>,
}

/// A connection with the service for its requests; each request future holds one.
#[derive(Debug)]
pub struct ConnService {
    pub(super) service: Rc<WorkerService>,
    pub(super) connection: Rc<ConnectionState>,
}

impl ConnService {
    /// The origin of a request of this connection.
    #[inline]
    pub(super) fn origin<'r>(&'r self, summary: &'r Summary, client: Peer) -> Origin<'r> {
        Origin {
            router: &self.service.router,
            worker: &self.service.local,
            connection: RequestConn::Local(&self.connection),
            client: Some(client),
            summary,
        }
    }
}

/// Where a request is served, the connection that brought it, and what its headers say.
pub(super) struct Origin<'r> {
    pub(super) router: &'r Arc<Router>,
    pub(super) worker: &'r Arc<WorkerState>,
    pub(super) connection: RequestConn<'r>,
    /// Address of the client, which a trusted proxy may have named.
    pub(super) client: Option<Peer>,
    pub(super) summary: &'r Summary,
}

/// The connection of a request.
#[derive(Clone, Copy)]
pub(super) enum RequestConn<'r> {
    Local(&'r ConnectionState),
    Layered(&'r LayeredConn),
    /// A layer of the application has replaced the request.
    Unknown,
}

/// The connection of a request inside the layers of the application, which may run on other threads.
#[derive(Clone)]
pub(super) struct LayeredConn {
    pub(super) shared: Arc<SharedConn>,
    /// Number of the request on its connection.
    request: u32,
}

impl LayeredConn {
    pub(super) fn new(connection: &ConnectionState) -> Self {
        Self {
            shared: Arc::clone(connection.shared()),
            request: connection.request_number(),
        }
    }
}

impl<'r> RequestConn<'r> {
    #[inline]
    pub(super) fn shared(self) -> Option<&'r Arc<SharedConn>> {
        match self {
            Self::Local(connection) => Some(connection.shared()),
            Self::Layered(connection) => Some(&connection.shared),
            Self::Unknown => None,
        }
    }

    /// The connection itself, if this thread serves it.
    #[inline]
    pub(super) fn local(self) -> Option<&'r ConnectionState> {
        match self {
            Self::Local(connection) => Some(connection),
            Self::Layered(_) | Self::Unknown => None,
        }
    }

    /// Returns true if the request can be framed in two ways.
    #[inline]
    pub(super) fn is_ambiguous(self) -> bool {
        match self {
            Self::Local(connection) => connection.is_ambiguous(),
            Self::Layered(connection) => connection.shared.is_ambiguous(connection.request),
            Self::Unknown => false,
        }
    }
}

impl Origin<'_> {
    /// The parts of a request that challenges and metadata name.
    pub(super) fn seen<'h>(&self, headers: &'h HeaderMap, uri: &'h Uri) -> RequestTarget<'h> {
        RequestTarget {
            headers,
            uri,
            peer: self.connection.shared().map(|shared| shared.peer().address),
        }
    }
}

/// An authenticated request without its headers, as all handlers see it.
pub(super) struct RequestContext<'r> {
    pub(super) origin: &'r Origin<'r>,
    pub(super) principal: &'r Arc<Principal>,
    pub(super) wire: CountedTransport,
}

impl<'r> RequestContext<'r> {
    /// Transport and client, for metrics and traces.
    pub(super) fn telemetry(&self) -> telemetry::RequestOrigin<'static> {
        telemetry::RequestOrigin {
            wire: self.wire,
            headers: None,
            peer: self.origin.client,
        }
    }

    /// Whose share of memory the response takes.
    pub(super) fn share(&self) -> ShareKey {
        let address = self.origin.client.map(|client| client.address);
        share_of(self.principal, address)
    }

    /// The head of a message.
    #[inline]
    pub(super) fn head<'h>(&'h self, headers: &'h mut HeaderMap) -> HttpHead<'h> {
        let summary = self.origin.summary;
        HttpHead {
            principal: self.principal,
            headers,
            mcp: &summary.mcp,
            extensions: summary.extensions.as_ref(),
            takes_streams: summary.takes_streams(),
            wire: self.wire,
            peer: self.origin.client,
        }
    }
}

/// Future in which a stage waits.
pub(super) type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Result of a request before its rejection becomes a response.
pub(super) type Outcome = Result<Response<Body>, Rejection>;

/// What a handler returns.
pub(super) enum Dispatched {
    /// Reply of the server, from which the response is built in the format of the route.
    Reply(MaybeReady),
    Response(Waiting<Outcome>),
}

impl Dispatched {
    /// A complete response.
    pub(super) fn done(response: Response<Body>) -> Self {
        Self::Response(Box::pin(ready(Ok(response))))
    }
}

impl From<MaybeReady> for Dispatched {
    #[inline]
    fn from(reply: MaybeReady) -> Self {
        Self::Reply(reply)
    }
}

impl From<Reply> for Dispatched {
    fn from(reply: Reply) -> Self {
        Self::Reply(MaybeReady::Ready(reply))
    }
}
