//! Requests for items of a source that is still starting.
//!
//! The catalog lists sources that have not reported their items yet. A request for an unknown name waits if such a
//! source may provide it. When the source has reported, the request is dispatched again. Other requests never get
//! here.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap};
use serde_json::json;

use super::inflight::{BoxedCall, OnDisconnect, Resumption};
use super::instrument::speaks;
use super::param_headers::McpHeaders;
use super::reply::Reply;
use super::resources::offers_uri;
use super::rounds::Reach;
use super::search::called_tool;
use super::snapshot::Snapshot;
use super::tools::internal_error;
use super::worker_state::unix_seconds;
use super::{Caller, Headers, MaybeReady, RequestContext, Server};
use crate::auth::{Access, Kind, Principal, Shelf, Target};
use crate::catalog::{Room, StartingSource};
use crate::net::{Peer, ShareKey};
use crate::protocol::message::{self, Message, MessageBounds, Params, Payload, Request};
use crate::protocol::{ClientCapabilities, ErrorCode, ErrorObject, Method, Revision};
use crate::telemetry::{Propagation, Seen, Succession, Watch};

/// Maximum number of waiting requests, in total and for one caller.
const WAITERS_MAX: usize = 256;
const WAITERS_OF_ONE: usize = 64;

/// Retry delay reported to clients whose request timed out.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Error for client requests of a request that waits.
const WAITS: &str = "the call has not begun";

/// Name or URI in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestedItem {
    Tool(String),
    Prompt(String),
    Resource(String),
}

impl RequestedItem {
    /// Item named by a request. Returns `None` if no source could provide it.
    fn of(method: Method, request: &Request<'_>) -> Option<Self> {
        let params = &request.params;
        let text = |json: Option<&str>| Some(message::string(json?)?.into_owned());
        match method {
            Method::ToolsCall => {
                let name = text(params.name)?;
                // The number of tools is not known yet, so the tool search may become active.
                Some(Self::Tool(match called_tool(&name, params.arguments) {
                    Some((called, _)) => called.into_owned(),
                    None => name,
                }))
            }
            Method::PromptsGet => text(params.name).map(Self::Prompt),
            Method::ResourcesRead => text(params.uri).map(Self::Resource),
            _ => None,
        }
    }

    /// Sources that are starting and may provide the item.
    fn starting<'g>(&'g self, snapshot: &'g Snapshot) -> impl Iterator<Item = &'g StartingSource> {
        let starting = snapshot.catalog.starting.iter();
        starting.filter(move |source| match self {
            Self::Tool(name) | Self::Prompt(name) => source.may_offer(name),
            // URIs have no prefix known in advance.
            Self::Resource(_) => true,
        })
    }

    /// Returns true if the principal can use the item.
    fn is_offered(&self, snapshot: &Snapshot, principal: &Principal) -> bool {
        let catalog = &snapshot.catalog;
        match self {
            Self::Tool(name) => {
                catalog.tool(name).is_some()
                    && snapshot.sees_key(principal, Shelf::Tools, &catalog.tools, name)
            }
            Self::Prompt(name) => {
                catalog.prompts.get(name).is_some()
                    && snapshot.sees_key(principal, Shelf::Prompts, &catalog.prompts, name)
            }
            Self::Resource(uri) => offers_uri(snapshot, principal, uri),
        }
    }

    /// Returns true if the principal may learn that a source exists. This must not reveal anything that a rule hides:
    /// a principal who may use the source's prefix learns of it for all names, others only for names that they may
    /// use.
    fn may_reveal(
        &self,
        source: &StartingSource,
        snapshot: &Snapshot,
        principal: &Principal,
    ) -> bool {
        let Some(seen) = &snapshot.policy_view else {
            return true;
        };
        let (kind, name) = match self {
            Self::Tool(name) => (Kind::Tool, name),
            Self::Prompt(name) => (Kind::Prompt, name),
            Self::Resource(_) => return false,
        };
        let class = seen.policy.class_of(principal);
        // Names contain no space, so no rule matches this name alone.
        let any = format!("{} ", source.prefix);
        let allows = |name: &str, access| {
            let target = Target { kind, name, access };
            seen.policy.decide(&class, target).allowed
        };
        [name, &any]
            .into_iter()
            .any(|name| allows(name, Access::Read) || allows(name, Access::Write))
    }
}

impl Server {
    /// Waits for a starting source that may provide the requested item. Otherwise returns `unknown`.
    ///
    /// Neither the response nor its timing depends on hidden items.
    #[cold]
    pub(super) fn wait_for_source(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        method: Method,
        request_context: RequestContext<'_>,
        unknown: Reply,
    ) -> MaybeReady {
        if snapshot.catalog.starting.is_empty() {
            return MaybeReady::Ready(unknown);
        }
        let (caller, request) = (request_context.caller, request_context.request);
        let Some(named) = RequestedItem::of(method, request) else {
            return MaybeReady::Ready(unknown);
        };
        let patience = named.starting(snapshot).map(|source| source.patience);
        let Some(patience) = patience.max() else {
            return MaybeReady::Ready(unknown);
        };
        let Some(place) = Waiters::enter(&self.waiters, caller.share()) else {
            return MaybeReady::Ready(too_many(request.id));
        };
        let context = caller.mute_context(None, request, WAITS);
        let runs_on = caller.on_disconnect == OnDisconnect::RunOn;
        let Some(deferred) = DeferredRequest::new(method, request_context, self.bounds) else {
            return MaybeReady::Ready(unknown);
        };
        let limit = patience.min(Duration::from_secs(self.config.call_timeout_seconds));
        let server = Arc::clone(self);
        let answer: BoxedCall<Reply> = Box::pin(async move {
            let principal = &deferred.principal;
            if !server.has_started(&named, principal, limit).await {
                let snapshot = server.snapshot.load();
                let mut late = named.starting(&snapshot);
                let late = late.find(|late| named.may_reveal(late, &snapshot, principal));
                return late.map_or(unknown, |late| still_starting(&deferred.id, &late.name));
            }
            drop(place);
            let mut deferred = Some(deferred);
            let dispatched = poll_fn(|cx| {
                let handled = deferred
                    .take()
                    .map(|deferred| deferred.dispatch(&server, cx));
                Poll::Ready(handled.unwrap_or(MaybeReady::Ready(Reply::Cancelled)))
            });
            dispatched.await.reply().await
        });
        MaybeReady::Pending(match runs_on {
            true => self.inflight.cancellable(&context, answer),
            false => self.inflight.stoppable(&context, answer),
        })
    }

    /// Waits until the item is available or all sources that may provide it have reported. Returns false after
    /// `limit`.
    async fn has_started(
        &self,
        named: &RequestedItem,
        principal: &Principal,
        limit: Duration,
    ) -> bool {
        let mut deadline = pin!(tokio::time::sleep(limit));
        loop {
            // Registered before the catalog is read, so that no update is missed.
            let installed = self.installed.notified();
            let snapshot = self.snapshot.load_full();
            if named.starting(&snapshot).next().is_none() || named.is_offered(&snapshot, principal)
            {
                return true;
            }
            drop(snapshot);
            tokio::select! {
                () = installed => {}
                () = &mut deadline => return false,
            }
        }
    }
}

fn still_starting(id: &str, source: &str) -> Reply {
    let message = format!(
        "upstream `{source}` is still starting and has not said what it offers; try again in {} s",
        RETRY_AFTER.as_secs()
    );
    unavailable(id, message)
}

fn too_many(id: &str) -> Reply {
    let message = format!(
        "too many requests wait for upstreams that are still starting; try again in {} s",
        RETRY_AFTER.as_secs()
    );
    unavailable(id, message)
}

fn unavailable(id: &str, message: String) -> Reply {
    let error = ErrorObject::new(ErrorCode::Http(503), message);
    let retry_after_ms = RETRY_AFTER.as_secs() * 1000;
    Reply::error(
        id,
        &error.with_data(json!({ "retryAfterMs": retry_after_ms })),
    )
}

/// A request that is dispatched later, with owned data.
struct DeferredRequest {
    method: Method,
    id: String,
    text: RequestText,
    headers: Option<(Option<McpHeaders>, HeaderMap)>,
    extensions: Option<Arc<Extensions>>,
    principal: Arc<Principal>,
    address: Option<IpAddr>,
    revision: Revision,
    session: Option<Arc<str>>,
    on_disconnect: OnDisconnect,
    stream_after: Option<Duration>,
    resumption: Resumption,
    capabilities: ClientCapabilities,
    reach: Reach,
    room: Room,
    propagation: Propagation,
    /// `None` if no hooks are enabled.
    succession: Option<Succession>,
}

/// Source of the parsed request.
enum RequestText {
    /// A JSON-RPC message.
    Message(Bytes),
    /// A REST call: the tool's name as JSON, and its arguments.
    Plain {
        name: Option<String>,
        arguments: Option<Bytes>,
        arguments_repeat: bool,
    },
}

impl DeferredRequest {
    /// Returns `None` if the request cannot be parsed again.
    fn new(
        method: Method,
        request_context: RequestContext<'_>,
        bounds: MessageBounds,
    ) -> Option<Self> {
        let RequestContext {
            caller,
            headers,
            body,
            request,
        } = request_context;
        let params = &request.params;
        let text = match caller.reach {
            Reach::Plain => RequestText::Plain {
                name: params.name.map(str::to_owned),
                arguments: params.arguments.map(|text| body.slice_ref(text.as_bytes())),
                arguments_repeat: params.arguments_repeat,
            },
            Reach::Batch => RequestText::Message(element(body, request.id, bounds)?),
            Reach::Stream | Reach::NoStream | Reach::OldRevision => {
                RequestText::Message(body.clone())
            }
        };
        Some(Self {
            method,
            id: request.id.to_owned(),
            text,
            extensions: headers
                .as_ref()
                .and_then(|headers| headers.extensions.cloned()),
            headers: headers.map(|headers| {
                let mcp = headers.mcp.map(McpHeaders::to_keep);
                (mcp, std::mem::take(headers.all))
            }),
            principal: Arc::clone(caller.principal),
            address: caller.address,
            revision: caller.revision,
            session: caller.session.cloned(),
            on_disconnect: caller.on_disconnect,
            stream_after: caller.stream_after,
            resumption: caller.resumption,
            capabilities: caller.capabilities,
            reach: caller.reach,
            room: caller.room,
            propagation: caller.propagation,
            succession: caller.watch.map(Watch::hand_over),
        })
    }

    /// Dispatches the request as if it arrived now. Its hooks are handed over.
    fn dispatch(mut self, server: &Arc<Server>, cx: &mut Context<'_>) -> MaybeReady {
        let mut headers = self.headers.take();
        let (body, request) = match &self.text {
            RequestText::Message(text) => {
                let read = std::str::from_utf8(text).ok();
                let read = read.and_then(|text| Message::within(text, server.bounds).ok());
                match read {
                    Some(Message::Request(request)) => (text.clone(), request),
                    _ => return MaybeReady::Ready(internal_error(&self.id)),
                }
            }
            RequestText::Plain {
                name,
                arguments,
                arguments_repeat,
            } => {
                let text = arguments.as_deref();
                let request = Request {
                    id: &self.id,
                    method: self.method.as_str().into(),
                    params: Params {
                        name: name.as_deref(),
                        arguments: text.and_then(|text| std::str::from_utf8(text).ok()),
                        arguments_repeat: *arguments_repeat,
                        ..Params::default()
                    },
                };
                (arguments.clone().unwrap_or_default(), request)
            }
        };
        let watch = self.succession.as_ref().and_then(|succession| {
            let seen = Seen {
                wire: succession.wire,
                headers: headers.as_ref().map(|(_, all)| all),
                peer: self.address.map(Peer::from),
            };
            let watch = server.observe(&succession.cells, &self.principal, seen, &request)?;
            Some(watch.taking_over(succession))
        });
        speaks(watch.as_ref(), self.revision, self.session.as_ref());
        let caller = Caller {
            principal: &self.principal,
            address: self.address,
            revision: self.revision,
            session: self.session.as_ref(),
            on_disconnect: self.on_disconnect,
            stream_after: self.stream_after,
            resumption: self.resumption,
            capabilities: self.capabilities,
            reach: self.reach,
            room: self.room,
            now: unix_seconds(),
            watch: watch.as_ref(),
            propagation: self.propagation,
        };
        let headers = headers.as_mut().map(|(mcp, all)| Headers {
            mcp: mcp.as_ref(),
            all,
            extensions: self.extensions.as_ref(),
        });
        let request_context = RequestContext {
            caller,
            headers,
            body: &body,
            request: &request,
        };
        let handled = server.dispatch(cx, self.method, request_context);
        server.observed(watch, &request, handled)
    }
}

/// The element of a batch that contains an id.
fn element(body: &Bytes, id: &str, bounds: MessageBounds) -> Option<Bytes> {
    let Ok(Payload::Batch(elements)) = Payload::within(body, bounds) else {
        return None;
    };
    let at = id.as_ptr();
    let found = elements
        .into_iter()
        .find(|text| text.as_bytes().as_ptr_range().contains(&at))?;
    Some(body.slice_ref(found.as_bytes()))
}

/// Number of waiting requests, by caller. They run nothing, so they hold no concurrency permits.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    each: HashMap<ShareKey, usize>,
}

/// Registration of a waiting request; removed on drop.
#[derive(Debug)]
struct WaiterSlot {
    waiters: Arc<Waiters>,
    key: ShareKey,
}

impl Waiters {
    /// Registers a request. Returns `None` if a maximum is reached.
    fn enter(waiters: &Arc<Self>, key: ShareKey) -> Option<WaiterSlot> {
        let mut counts = waiters.counts();
        if WAITERS_MAX <= counts.all {
            return None;
        }
        if !key.is_none() {
            let own = counts.each.entry(key).or_default();
            if WAITERS_OF_ONE <= *own {
                return None;
            }
            *own += 1;
        }
        counts.all += 1;
        drop(counts);
        Some(WaiterSlot {
            waiters: Arc::clone(waiters),
            key,
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        let mut counts = self.waiters.counts();
        counts.all -= 1;
        if let Some(own) = counts.each.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                counts.each.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_room_for_others_and_all_together_have_a_bound() {
        let waiters = Arc::new(Waiters::default());
        let callers = ["a", "b", "c", "d", "e"].map(ShareKey::of_principal);
        let mut places = Vec::new();
        for caller in &callers[..4] {
            for _ in 0..WAITERS_OF_ONE {
                places.push(Waiters::enter(&waiters, *caller).expect("room"));
            }
            assert!(Waiters::enter(&waiters, *caller).is_none());
        }
        assert_eq!(places.len(), WAITERS_MAX);
        for caller in [callers[4], ShareKey::NONE] {
            assert!(Waiters::enter(&waiters, caller).is_none());
        }
        places.truncate(1);
        assert!(Waiters::enter(&waiters, ShareKey::NONE).is_some());
        places.clear();
        assert_eq!(waiters.counts().all, 0);
        assert!(waiters.counts().each.is_empty());
    }

    #[test]
    fn a_message_of_an_array_is_found_by_its_id() {
        let body = Bytes::from_static(br#"[{"id":1}, {"id":1,"method":"x"}]"#);
        let text = std::str::from_utf8(&body).expect("UTF-8");
        let at = text.rfind("\"id\":1").expect("an id") + 5;
        let found = element(&body, &text[at..=at], MessageBounds::default());
        assert_eq!(found.as_deref(), Some(&br#"{"id":1,"method":"x"}"#[..]));
        let elsewhere = String::from("1");
        assert_eq!(element(&body, &elsewhere, MessageBounds::default()), None);
    }
}
