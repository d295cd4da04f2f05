//! A request with its caller and its headers.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap};

use super::context_pool;
use super::param_headers::McpHeaders;
use super::running_call::{OnDisconnect, Resumption};
use super::worker_state::WorkerState;
use crate::auth::Principal;
use crate::catalog::{
    Arguments, CallContext, Client, LogLevel, NotifyOptions, QueueLimits, ReplaySession, RequestId,
    SharedText,
};
use crate::limit::share_of;
use crate::net::{Peer, ShareKey};
use crate::protocol::message::{self, Request};
use crate::protocol::{ClientCapabilities, Revision};
use crate::seal::Session;
use crate::telemetry::{
    Baggage, CountedTransport, OperationId, Propagation, RequestScope, TraceLink, trace_of_meta,
};

/// A request on its way to the handler of its method.
pub(super) struct RequestContext<'a> {
    pub(super) caller: Caller<'a>,
    /// Headers of the HTTP request; `None` over stdio.
    pub(super) headers: Option<Headers<'a>>,
    pub(super) body: MessageBody<'a>,
    pub(super) request: &'a Request<'a>,
}

impl RequestContext<'_> {
    /// Lends the request to a handler, so that it can be dispatched again.
    #[inline]
    pub(super) fn reborrow(&mut self) -> RequestContext<'_> {
        RequestContext {
            caller: self.caller,
            headers: self.headers.as_mut().map(Headers::reborrow),
            body: self.body,
            request: self.request,
        }
    }

    /// Headers that MCP defines.
    #[inline]
    pub(super) fn mcp(&self) -> Option<&McpHeaders> {
        self.headers.as_ref().and_then(|headers| headers.mcp)
    }
}

/// The message of a request. Arguments are kept as parts of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageBody<'a> {
    pub(super) bytes: &'a Bytes,
    /// The same bytes as text, of long messages over HTTP.
    pub(super) text: Option<&'a SharedText>,
}

impl<'a> From<&'a Bytes> for MessageBody<'a> {
    fn from(bytes: &'a Bytes) -> Self {
        Self { bytes, text: None }
    }
}

impl MessageBody<'_> {
    /// The arguments of a call, whose text is a part of this message.
    #[inline]
    pub(super) fn arguments(self, object: &str) -> Arguments {
        match self.text.and_then(|text| text.slice_ref(object)) {
            Some(text) => Arguments::from_checked_text(text),
            None => Arguments::from_checked(self.bytes.slice_ref(object.as_bytes())),
        }
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

/// Origin of a request in either lifecycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub(super) principal: &'a Arc<Principal>,
    /// Address of the client, over HTTP.
    pub(super) address: Option<IpAddr>,
    /// Unix time in seconds.
    pub(super) now: u64,
    /// Metrics, trace and audit of the request, if enabled.
    pub(super) watch: Option<&'a RequestScope<'a>>,
}

/// Sender of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) principal: &'a Arc<Principal>,
    /// Name of the session in logs.
    pub(super) session: Option<&'a Arc<str>>,
    /// Unix time in seconds.
    pub(super) now: u64,
    /// Metrics, trace and audit of the request, if enabled.
    pub(super) watch: Option<&'a RequestScope<'a>>,
    pub(super) profile: CallerProfile,
}

/// Properties of a caller that do not borrow from its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerProfile {
    /// Address of the client, over HTTP.
    pub(super) address: Option<IpAddr>,
    pub(super) revision: Revision,
    pub(super) on_disconnect: OnDisconnect,
    /// Delay after which a response becomes a stream; `None` if the caller accepts no streams.
    pub(super) stream_after: Option<Duration>,
    /// Resumption of interrupted streams.
    pub(super) resumption: Resumption,
    /// Capabilities declared in the session. In the stateless lifecycle, the request declares them.
    pub(super) capabilities: ClientCapabilities,
    /// Channel for requests to the client.
    pub(super) reach: ClientReachability,
    /// Limits of the queue of outgoing messages of a call.
    pub(super) room: QueueLimits,
    /// Trace fields that are propagated to upstreams.
    pub(super) propagation: Propagation,
    /// The client parses the text of tool results.
    pub(super) parses_text: bool,
}

/// Name with which clients that are built on Gemini CLI begin their own.
const GEMINI_CLI: &str = "gemini-cli";

/// Transport of a request, as far as it determines the properties of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// A single message in a POST.
    Http {
        accepts_stream: bool,
    },
    /// An element of a batch in a POST. Its stream cannot be resumed.
    Batch {
        accepts_stream: bool,
    },
    Stdio,
    /// A REST call: no stream, no progress, no requests to the client.
    Rest,
}

/// Possibility to send requests to the client of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientReachability {
    Reachable,
    /// The client accepts no event stream.
    NoStream,
    /// The caller does not use the protocol.
    Plain,
}

impl ClientReachability {
    /// Returns the error for requests to a client that cannot be reached.
    pub(super) fn problem(self) -> Option<&'static str> {
        match self {
            Self::Reachable => None,
            Self::NoStream => Some(
                "it accepts no event stream; add text/event-stream to the Accept header of the call",
            ),
            Self::Plain => Some("the call does not use MCP; call the tool over MCP"),
        }
    }
}

/// Settings of the server that apply to all callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallerDefaults {
    pub(super) stream_after: Duration,
    pub(super) room: QueueLimits,
    pub(super) propagation: Propagation,
}

impl CallerProfile {
    /// Properties of a caller; `session` is `None` in the stateless lifecycle.
    #[inline]
    pub(super) fn new(
        channel: Channel,
        session: Option<&Session>,
        address: Option<IpAddr>,
        defaults: CallerDefaults,
    ) -> Self {
        let is_http = matches!(channel, Channel::Http { .. });
        let accepts_stream = match channel {
            Channel::Http { accepts_stream } | Channel::Batch { accepts_stream } => accepts_stream,
            Channel::Stdio => true,
            Channel::Rest => false,
        };
        Self {
            address,
            revision: session.map_or(Revision::V2026_07_28, |session| session.revision),
            // A pipe cannot be closed for one request only. A session can outlive its connections (LH-02).
            on_disconnect: match channel {
                Channel::Http { .. } | Channel::Rest if session.is_none() => OnDisconnect::Cancel,
                _ => OnDisconnect::RunOn,
            },
            stream_after: accepts_stream.then_some(defaults.stream_after),
            resumption: match session {
                Some(session) if is_http => Resumption::of(session.revision),
                _ => Resumption::No,
            },
            capabilities: session.map_or_else(Default::default, |session| session.capabilities),
            reach: match (channel, session) {
                (Channel::Rest, _) => ClientReachability::Plain,
                // Also with 2024-11-05, which the first clients of Streamable HTTP negotiate.
                (Channel::Http { .. } | Channel::Batch { .. }, Some(_)) if !accepts_stream => {
                    ClientReachability::NoStream
                }
                _ => ClientReachability::Reachable,
            },
            room: match channel {
                Channel::Rest => QueueLimits::default(),
                _ => defaults.room,
            },
            propagation: defaults.propagation,
            parses_text: session.is_some_and(|session| session.client_name.starts_with(GEMINI_CLI)),
        }
    }
}

impl Deref for Caller<'_> {
    type Target = CallerProfile;

    #[inline]
    fn deref(&self) -> &CallerProfile {
        &self.profile
    }
}

impl<'a> Caller<'a> {
    /// Creates the caller of a request; `session` is `None` in the stateless lifecycle.
    #[inline]
    pub(super) fn new(
        channel: Channel,
        origin: Origin<'a>,
        session: Option<&'a Session>,
        defaults: CallerDefaults,
    ) -> Self {
        let profile = CallerProfile::new(channel, session, origin.address, defaults);
        let session = session.map(|session| &session.log_name);
        Self::with_profile(origin, session, profile)
    }

    /// Creates a caller with known properties, and reports its revision and session to the hooks of the request.
    #[inline]
    pub(super) fn with_profile(
        origin: Origin<'a>,
        session: Option<&'a Arc<str>>,
        profile: CallerProfile,
    ) -> Self {
        report_lifecycle(origin.watch, profile.revision, session);
        Self {
            principal: origin.principal,
            session,
            now: origin.now,
            watch: origin.watch,
            profile,
        }
    }

    /// Reports the target of the request.
    #[inline]
    pub(super) fn names(self, operation: OperationId) {
        if let Some(watch) = self.watch {
            watch.names(operation);
        }
    }

    /// Returns true if the request must not run because it cannot be recorded.
    #[inline]
    pub(super) fn is_barred(self) -> bool {
        self.watch.is_some_and(RequestScope::is_barred)
    }

    /// Key of the caller's share of shared resources.
    #[inline]
    pub(super) fn share(self) -> ShareKey {
        share_of(self.principal, self.address)
    }

    /// Position of the request in its trace, and the fields to propagate. Fields in the message take precedence over
    /// HTTP headers, which the call context carries.
    #[inline]
    pub(super) fn onward(self, request: &Request<'_>) -> TraceLink {
        let onward = TraceLink {
            place: self.watch.and_then(RequestScope::context),
            tracer: self.watch.and_then(RequestScope::tracer).cloned(),
            propagation: self.propagation,
            ..TraceLink::default()
        };
        match trace_of_meta(&request.params.meta) {
            None => onward,
            Some(said) => TraceLink {
                place: onward.place.or(Some(said)),
                in_message: true,
                carried: Baggage::of(&request.params, self.propagation),
                ..onward
            },
        }
    }

    /// Creates the context of a tool, resource or prompt, with a queue for its notifications.
    #[inline]
    pub(super) fn context(
        self,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        log_level: Option<LogLevel>,
        replay: ReplaySession,
        timeout: Duration,
    ) -> Arc<CallContext> {
        let wanted = NotifyOptions {
            progress_token: progress_token(request),
            progress_messages: self.revision.has_annotations(),
            log_level,
            room: self.room,
        };
        self.context_with(wanted, headers, request, replay, Some(timeout))
    }

    /// Creates a context without a channel to the client: its notifications are dropped, and it can send no requests.
    pub(super) fn mute_context(
        self,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        why_nobody: &'static str,
    ) -> Arc<CallContext> {
        let replay = ReplaySession::new(Client::Unreachable(why_nobody));
        self.context_with(NotifyOptions::default(), headers, request, replay, None)
    }

    #[inline]
    fn context_with(
        self,
        wanted: NotifyOptions,
        headers: Option<Headers<'_>>,
        request: &Request<'_>,
        replay: ReplaySession,
        timeout: Option<Duration>,
    ) -> Arc<CallContext> {
        context_pool::take(self.principal, |context| {
            context.onward = self.onward(request);
            context.share = self.share();
            context.address = self.address;
            context.session = self.session.cloned();
            context.request_id = RequestId::from_json(request.id);
            context.meta = request.params.rare().own_meta.map(Box::from);
            if let Some(headers) = headers {
                context.extensions = headers.extensions.cloned();
                context.headers = Some(std::mem::take(headers.all));
            }
            context.timeout = timeout;
            context.outlet.request(wanted);
            context.replay = replay;
        })
    }
}

/// Reports the revision and the session of a request.
#[inline]
pub(super) fn report_lifecycle(
    watch: Option<&RequestScope<'_>>,
    revision: Revision,
    session: Option<&Arc<str>>,
) {
    if let Some(watch) = watch {
        watch.speaks(revision);
        if let Some(session) = session {
            watch.is_in(session);
        }
    }
}

/// Progress token of the request, as JSON.
fn progress_token(request: &Request<'_>) -> Option<Box<str>> {
    let token = request.params.meta.progress_token?;
    message::is_id(token).then(|| token.into())
}
