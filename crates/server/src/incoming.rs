//! A request, who sent it, and what came with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use super::call::{OnDisconnect, Resumption};
use super::mirror::McpHeaders;
use super::rounds::Reach;
use crate::auth::Principal;
use crate::catalog::{Asking, CallContext, Client, LogLevel, Outlet, RequestId, Room, Wanted};
use crate::limit::share_of;
use crate::net::ShareKey;
use crate::protocol::message::{self, Request};
use crate::protocol::{ClientCapabilities, Revision};
use crate::telemetry::{Propagation, Watch};

/// A request whose lifecycle is known, on its way to the method that answers it.
pub(super) struct Incoming<'a> {
    pub(super) caller: Caller<'a>,
    /// Those of the HTTP request that it came in, if it did.
    pub(super) headers: Option<Headers<'a>>,
    /// The bytes that the request lies in; what is kept of it is a part of them.
    pub(super) body: &'a Bytes,
    pub(super) request: &'a Request<'a>,
}

impl Incoming<'_> {
    /// The headers that the protocol gives a meaning to, if the request came with any.
    #[inline]
    pub(super) fn mcp(&self) -> Option<&McpHeaders> {
        self.headers.as_ref().and_then(|headers| headers.mcp)
    }
}

/// The headers of an HTTP request.
pub(super) struct Headers<'a> {
    /// Those that the protocol gives a meaning to; `None` where no message came that they could belong to.
    pub(super) mcp: Option<&'a McpHeaders>,
    /// All of them; a call takes them along.
    pub(super) all: &'a mut HeaderMap,
}

impl Headers<'_> {
    pub(super) fn reborrow(&mut self) -> Headers<'_> {
        Headers {
            mcp: self.mcp,
            all: self.all,
        }
    }
}

/// Who sent a request, once its lifecycle has settled that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) principal: &'a Arc<Principal>,
    /// The client's address, over HTTP.
    pub(super) address: Option<IpAddr>,
    pub(super) revision: Revision,
    /// The session's name for logs.
    pub(super) session: Option<&'a Arc<str>>,
    pub(super) on_disconnect: OnDisconnect,
    /// After how long an answer becomes a stream; `None` if the caller takes none.
    pub(super) stream_after: Option<Duration>,
    /// Whether it can come back to a stream that broke off.
    pub(super) resumption: Resumption,
    /// What the client can do, if it has a session; in the stateless era the request says it.
    pub(super) capabilities: ClientCapabilities,
    /// Whether the client can be asked something.
    pub(super) reach: Reach,
    /// How much of what a call says may wait to be sent.
    pub(super) room: Room,
    /// Seconds of Unix time.
    pub(super) now: u64,
    /// Who watches, if anybody does.
    pub(super) watch: Option<&'a Watch<'a>>,
    /// What of a trace is passed on.
    pub(super) propagation: Propagation,
}

impl Caller<'_> {
    /// The share of what callers use together that is this caller's.
    #[inline]
    pub(super) fn share(self) -> ShareKey {
        share_of(self.principal, self.address)
    }

    /// What a tool, a resource or a prompt may ask about the request, and how it is heard.
    #[inline]
    pub(super) fn context(
        self,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        log_level: Option<LogLevel>,
        asking: Asking,
    ) -> Arc<CallContext> {
        let outlet = Outlet::new(Wanted {
            progress_token: progress_token(request),
            progress_messages: self.revision.has_annotations(),
            log_level,
            room: self.room,
        });
        self.context_with(outlet, headers, request, asking)
    }

    /// The same for what is not heard: nothing that it says on its way is sent, and it can ask nothing.
    pub(super) fn mute_context(
        self,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        why_nobody: &'static str,
    ) -> Arc<CallContext> {
        let asking = Asking::new(Client::Nobody(why_nobody));
        self.context_with(Outlet::default(), headers, request, asking)
    }

    #[inline]
    fn context_with(
        self,
        outlet: Outlet,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        asking: Asking,
    ) -> Arc<CallContext> {
        Arc::new(CallContext {
            onward: self.onward(request),
            principal: Arc::clone(self.principal),
            share: self.share(),
            address: self.address,
            session: self.session.cloned(),
            request_id: RequestId::from_json(request.id),
            meta: request.params.rare().own_meta.map(Box::from),
            headers: headers.map(|headers| std::mem::take(headers.all)),
            outlet,
            asking,
        })
    }
}

/// The token that the caller wants progress reported under, as JSON text.
fn progress_token(request: &Request<'_>) -> Option<Box<str>> {
    let token = request.params.meta.progress_token?;
    message::is_id(token).then(|| token.into())
}
