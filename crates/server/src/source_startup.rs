//! Requests for items of a source that is still starting.
//!
//! The catalog lists sources that have not reported their items yet. A request for an unknown name waits if such a
//! source may provide it. When the source has reported, the request is dispatched again. Other requests never get
//! here.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap};
use serde_json::json;

use super::errors::internal_error;
use super::inflight::BoxedCall;
use super::param_headers::McpHeaders;
use super::parts::Server;
use super::reply::{MaybeReady, Reply};
use super::request_context::{
    Caller, CallerProfile, ClientReachability, Headers, Origin, RequestContext,
};
use super::resources::offers_uri;
use super::running_call::OnDisconnect;
use super::search::called_tool;
use super::snapshot::Snapshot;
use super::{dispatch, instrument};
use crate::auth::{Access, ItemKind, Kind, Principal, Target};
use crate::catalog::StartingSource;
use crate::environment::unix_seconds;
use crate::net::Peer;
use crate::protocol::message::{self, Message, MessageBounds, Params, Payload, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method};
use crate::telemetry::{RequestOrigin, RequestScope, Succession};

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
                    && snapshot.sees_key(principal, ItemKind::Tools, &catalog.tools, name)
            }
            Self::Prompt(name) => {
                catalog.prompts.get(name).is_some()
                    && snapshot.sees_key(principal, ItemKind::Prompts, &catalog.prompts, name)
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

/// Waits for a starting source that may provide the requested item. Otherwise returns `unknown`.
///
/// Neither the response nor its timing depends on hidden items.
#[cold]
pub(super) fn wait_for_source(
    server: &Arc<Server>,
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
    let Some(place) = server.snapshots.enter_queue(caller.share()) else {
        return MaybeReady::Ready(too_many(request.id));
    };
    let context = caller.mute_context(None, request, WAITS);
    let runs_on = caller.on_disconnect == OnDisconnect::RunOn;
    let Some(deferred) = DeferredRequest::new(method, request_context, server.bounds) else {
        return MaybeReady::Ready(unknown);
    };
    let limit = patience.min(Duration::from_secs(server.config.call_timeout_seconds));
    let inflight = &server.calls.inflight;
    let server = Arc::clone(server);
    let answer: BoxedCall<Reply> = Box::pin(async move {
        let principal = &deferred.principal;
        if !has_started(&server, &named, principal, limit).await {
            let snapshot = server.snapshots.load();
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
        true => inflight.cancellable(&context, answer),
        false => inflight.stoppable(&context, answer),
    })
}

/// Waits until the item is available or all sources that may provide it have reported. Returns false after `limit`.
async fn has_started(
    server: &Server,
    named: &RequestedItem,
    principal: &Principal,
    limit: Duration,
) -> bool {
    let started = server.snapshots.wait_until(|snapshot| {
        named.starting(snapshot).next().is_none() || named.is_offered(snapshot, principal)
    });
    tokio::time::timeout(limit, started).await.is_ok()
}

fn still_starting(id: &str, source: &str) -> Reply {
    let message = format!(
        "upstream `{source}` is still starting, and its items are not known yet; try again in {} s",
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
    session: Option<Arc<str>>,
    profile: CallerProfile,
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
            ClientReachability::Plain => RequestText::Plain {
                name: params.name.map(str::to_owned),
                arguments: params
                    .arguments
                    .map(|text| body.bytes.slice_ref(text.as_bytes())),
                arguments_repeat: params.arguments_repeat,
            },
            ClientReachability::Reachable | ClientReachability::NoStream => {
                let is_batch = body.bytes.trim_ascii_start().starts_with(b"[");
                RequestText::Message(match is_batch {
                    true => element(body.bytes, request.id, bounds)?,
                    false => body.bytes.clone(),
                })
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
            session: caller.session.cloned(),
            profile: caller.profile,
            succession: caller.watch.map(RequestScope::hand_over),
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
            let seen = RequestOrigin {
                wire: succession.wire,
                headers: headers.as_ref().map(|(_, all)| all),
                peer: self.profile.address.map(Peer::from),
            };
            let watch =
                instrument::observe(server, &succession.cells, &self.principal, seen, &request)?;
            Some(watch.taking_over(succession))
        });
        let origin = Origin {
            principal: &self.principal,
            address: self.profile.address,
            now: unix_seconds(),
            watch: watch.as_ref(),
        };
        let caller = Caller::with_profile(origin, self.session.as_ref(), self.profile);
        let headers = headers.as_mut().map(|(mcp, all)| Headers {
            mcp: mcp.as_ref(),
            all,
            extensions: self.extensions.as_ref(),
        });
        let request_context = RequestContext {
            caller,
            headers,
            body: (&body).into(),
            request: &request,
        };
        let handled = dispatch::dispatch(server, cx, self.method, request_context);
        instrument::observed(server, watch, &request, handled)
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

#[cfg(test)]
mod tests {
    use super::*;

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
