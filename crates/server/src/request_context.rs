//! A request with its caller and its headers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap};

use super::inflight::{OnDisconnect, Resumption};
use super::param_headers::McpHeaders;
use super::rounds::Reach;
use crate::auth::Principal;
use crate::catalog::{Asking, CallContext, Client, LogLevel, Outlet, RequestId, Room, Wanted};
use crate::limit::share_of;
use crate::net::ShareKey;
use crate::protocol::message::{self, Request};
use crate::protocol::{ClientCapabilities, Revision};
use crate::telemetry::{Propagation, Watch};

/// A request on its way to the handler of its method.
pub(super) struct RequestContext<'a> {
    pub(super) caller: Caller<'a>,
    /// Headers of the HTTP request; `None` over stdio.
    pub(super) headers: Option<Headers<'a>>,
    /// Bytes of the message. Arguments are kept as slices of them.
    pub(super) body: &'a Bytes,
    pub(super) request: &'a Request<'a>,
}

impl RequestContext<'_> {
    /// Headers that MCP defines.
    #[inline]
    pub(super) fn mcp(&self) -> Option<&McpHeaders> {
        self.headers.as_ref().and_then(|headers| headers.mcp)
    }
}

/// Headers of an HTTP request.
pub(super) struct Headers<'a> {
    /// Headers that MCP defines; `None` for REST requests.
    pub(super) mcp: Option<&'a McpHeaders>,
    /// All headers. A call takes them out and gives them back.
    pub(super) all: &'a mut HeaderMap,
    /// Values that layers of the application have put into the request, if there are any.
    pub(super) extensions: Option<&'a Arc<Extensions>>,
}

impl Headers<'_> {
    pub(super) fn reborrow(&mut self) -> Headers<'_> {
        Headers {
            mcp: self.mcp,
            all: self.all,
            extensions: self.extensions,
        }
    }
}

/// Sender of a request, and how it can be reached.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub(super) principal: &'a Arc<Principal>,
    /// Address of the client, over HTTP.
    pub(super) address: Option<IpAddr>,
    pub(super) revision: Revision,
    /// Name of the session in logs.
    pub(super) session: Option<&'a Arc<str>>,
    pub(super) on_disconnect: OnDisconnect,
    /// Delay after which a response becomes a stream; `None` if the caller accepts no streams.
    pub(super) stream_after: Option<Duration>,
    /// Resumption of interrupted streams.
    pub(super) resumption: Resumption,
    /// Capabilities declared in the session. In the stateless era, the request declares them.
    pub(super) capabilities: ClientCapabilities,
    /// Channel for requests to the client.
    pub(super) reach: Reach,
    /// Limits of the queue of outgoing messages of a call.
    pub(super) room: Room,
    /// Unix time in seconds.
    pub(super) now: u64,
    /// Metrics, trace and audit of the request, if enabled.
    pub(super) watch: Option<&'a Watch<'a>>,
    /// Trace fields that are propagated to upstreams.
    pub(super) propagation: Propagation,
}

impl Caller<'_> {
    /// Key of the caller's share of shared resources.
    #[inline]
    pub(super) fn share(self) -> ShareKey {
        share_of(self.principal, self.address)
    }

    /// Creates the context of a tool, resource or prompt, with a queue for its notifications.
    #[inline]
    pub(super) fn context(
        self,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        log_level: Option<LogLevel>,
        asking: Asking,
        timeout: Duration,
    ) -> Arc<CallContext> {
        let outlet = Outlet::new(Wanted {
            progress_token: progress_token(request),
            progress_messages: self.revision.has_annotations(),
            log_level,
            room: self.room,
        });
        self.context_with(outlet, headers, request, asking, Some(timeout))
    }

    /// Creates a context without a channel to the client: its notifications are dropped, and it can send no requests.
    pub(super) fn mute_context(
        self,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        why_nobody: &'static str,
    ) -> Arc<CallContext> {
        let asking = Asking::new(Client::Nobody(why_nobody));
        self.context_with(Outlet::default(), headers, request, asking, None)
    }

    #[inline]
    fn context_with(
        self,
        outlet: Outlet,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        asking: Asking,
        timeout: Option<Duration>,
    ) -> Arc<CallContext> {
        let extensions = headers.as_ref().and_then(|headers| headers.extensions);
        Arc::new(CallContext {
            onward: self.onward(request),
            principal: Arc::clone(self.principal),
            share: self.share(),
            address: self.address,
            session: self.session.cloned(),
            request_id: RequestId::from_json(request.id),
            meta: request.params.rare().own_meta.map(Box::from),
            extensions: extensions.cloned(),
            timeout,
            headers: headers.map(|headers| std::mem::take(headers.all)),
            outlet,
            asking,
        })
    }
}

/// Progress token of the request, as JSON.
fn progress_token(request: &Request<'_>) -> Option<Box<str>> {
    let token = request.params.meta.progress_token?;
    message::is_id(token).then(|| token.into())
}
