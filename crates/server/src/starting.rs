//! Requests for something of a source that is still starting.
//!
//! A catalog names the sources of which it is not known yet what they offer. A request for a name that is not in the
//! catalog, and that one of these sources may offer, waits for a catalog in which they are known. Then it is dispatched
//! again, as if it had come then. All other requests never get here.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;

use super::call::{BoxedCall, OnDisconnect, Resumption};
use super::generation::Generation;
use super::local::unix_seconds;
use super::mirror::McpHeaders;
use super::reply::Reply;
use super::resources::offers_uri;
use super::rounds::Reach;
use super::search::called_tool;
use super::tools::internal_error;
use super::watched::speaks;
use super::{Caller, Handled, Headers, Incoming, Server};
use crate::auth::{Access, Kind, Principal, Shelf, Target};
use crate::catalog::{Room, StartingSource};
use crate::net::{Peer, ShareKey};
use crate::protocol::message::{self, Message, MessageBounds, Params, Payload, Request};
use crate::protocol::{ClientCapabilities, ErrorCode, ErrorObject, Method, Revision};
use crate::telemetry::{Propagation, Seen, Succession, Watch};

/// Maximum number of requests that wait for sources to start, of all callers together and of one.
const WAITERS_MAX: usize = 256;
const WAITERS_OF_ONE: usize = 64;

/// When a client should send a request again that has waited for nothing.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a request that waits cannot ask its client for anything.
const WAITS: &str = "the call has not begun";

/// What a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Tool(String),
    Prompt(String),
    Resource(String),
}

impl Named {
    /// What a request names; `None` if that is nothing that a source could offer.
    fn of(method: Method, request: &Request<'_>) -> Option<Self> {
        let params = &request.params;
        let text = |json: Option<&str>| Some(message::string(json?)?.into_owned());
        match method {
            Method::ToolsCall => {
                let name = text(params.name)?;
                // Until there are many tools, it is not known whether they are searched.
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

    /// The sources that are starting and may offer it.
    fn starting<'g>(
        &'g self,
        generation: &'g Generation,
    ) -> impl Iterator<Item = &'g StartingSource> {
        let starting = generation.catalog.starting.iter();
        starting.filter(move |source| match self {
            Self::Tool(name) | Self::Prompt(name) => source.may_offer(name),
            // URIs have no prefix that is known before.
            Self::Resource(_) => true,
        })
    }

    /// Returns true if it is offered to this principal.
    fn is_offered(&self, generation: &Generation, principal: &Principal) -> bool {
        let catalog = &generation.catalog;
        match self {
            Self::Tool(name) => {
                catalog.tool(name).is_some()
                    && generation.sees_key(principal, Shelf::Tools, &catalog.tools, name)
            }
            Self::Prompt(name) => {
                catalog.prompts.get(name).is_some()
                    && generation.sees_key(principal, Shelf::Prompts, &catalog.prompts, name)
            }
            Self::Resource(uri) => offers_uri(generation, principal, uri),
        }
    }

    /// Returns true if this principal may learn that a source is there. Nothing that a rule hides makes a difference: who
    /// may use names with the source's prefix learns it for all of them, and others for names that they may use.
    fn may_learn_of(
        &self,
        source: &StartingSource,
        generation: &Generation,
        principal: &Principal,
    ) -> bool {
        let Some(seen) = &generation.seen else {
            return true;
        };
        let (kind, name) = match self {
            Self::Tool(name) => (Kind::Tool, name),
            Self::Prompt(name) => (Kind::Prompt, name),
            Self::Resource(_) => return false,
        };
        let class = seen.policy.class_of(principal);
        // No name has a blank in it, so no rule is about this one alone.
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
    /// Answers a request for something that is not offered: with `unknown`, unless a source that is starting may offer
    /// it. Then the request waits for that source.
    ///
    /// Whether a rule hides something changes neither the answer nor the time that it takes.
    #[cold]
    pub(super) fn unless_starting(
        self: &Arc<Self>,
        generation: &Generation,
        method: Method,
        incoming: Incoming<'_>,
        unknown: Reply,
    ) -> Handled {
        if generation.catalog.starting.is_empty() {
            return Handled::Now(unknown);
        }
        let (caller, request) = (incoming.caller, incoming.request);
        let Some(named) = Named::of(method, request) else {
            return Handled::Now(unknown);
        };
        let patience = named.starting(generation).map(|source| source.patience);
        let Some(patience) = patience.max() else {
            return Handled::Now(unknown);
        };
        let Some(place) = Waiters::enter(&self.waiters, caller.share()) else {
            return Handled::Now(too_many(request.id));
        };
        let context = caller.mute_context(None, request, WAITS);
        let runs_on = caller.on_disconnect == OnDisconnect::RunOn;
        let Some(deferred) = Deferred::new(method, incoming, self.bounds) else {
            return Handled::Now(unknown);
        };
        let limit = patience.min(Duration::from_secs(self.config.call_timeout_seconds));
        let server = Arc::clone(self);
        let answer: BoxedCall<Reply> = Box::pin(async move {
            let principal = &deferred.principal;
            if !server.has_started(&named, principal, limit).await {
                let generation = server.generation.load();
                let mut late = named.starting(&generation);
                let late = late.find(|late| named.may_learn_of(late, &generation, principal));
                return late.map_or(unknown, |late| still_starting(&deferred.id, &late.name));
            }
            drop(place);
            let mut deferred = Some(deferred);
            let dispatched = poll_fn(|cx| {
                let handled = deferred
                    .take()
                    .map(|deferred| deferred.dispatch(&server, cx));
                Poll::Ready(handled.unwrap_or(Handled::Now(Reply::Cancelled)))
            });
            dispatched.await.reply().await
        });
        Handled::Later(match runs_on {
            true => self.inflight.cancellable(&context, answer),
            false => self.inflight.stoppable(&context, answer),
        })
    }

    /// Waits until something is offered, or until each source that may offer it has said what it does. Returns false if
    /// one has not within `limit`.
    async fn has_started(&self, named: &Named, principal: &Principal, limit: Duration) -> bool {
        let mut deadline = pin!(tokio::time::sleep(limit));
        loop {
            // Before the catalog is looked at, so that none is missed.
            let installed = self.installed.notified();
            let generation = self.generation.load_full();
            if named.starting(&generation).next().is_none()
                || named.is_offered(&generation, principal)
            {
                return true;
            }
            drop(generation);
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

/// A request that is dispatched later: everything of it that would be gone by then.
struct Deferred {
    method: Method,
    id: String,
    text: Text,
    headers: Option<(Option<McpHeaders>, HeaderMap)>,
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
    /// `None` if nobody watches.
    succession: Option<Succession>,
}

/// What a request is read from.
enum Text {
    /// A message.
    Message(Bytes),
    /// No message: a tool's name as JSON text, and its arguments.
    Plain {
        name: Option<String>,
        arguments: Option<Bytes>,
        arguments_repeat: bool,
    },
}

impl Deferred {
    /// `None` if the request cannot be read again.
    fn new(method: Method, incoming: Incoming<'_>, bounds: MessageBounds) -> Option<Self> {
        let Incoming {
            caller,
            headers,
            body,
            request,
        } = incoming;
        let params = &request.params;
        let text = match caller.reach {
            Reach::Plain => Text::Plain {
                name: params.name.map(str::to_owned),
                arguments: params.arguments.map(|text| body.slice_ref(text.as_bytes())),
                arguments_repeat: params.arguments_repeat,
            },
            Reach::Batch => Text::Message(element(body, request.id, bounds)?),
            Reach::Stream | Reach::NoStream | Reach::OldRevision => Text::Message(body.clone()),
        };
        Some(Self {
            method,
            id: request.id.to_owned(),
            text,
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

    /// Dispatches it as a request that comes now. Whoever has watched it until now does no longer.
    fn dispatch(mut self, server: &Arc<Server>, cx: &mut Context<'_>) -> Handled {
        let mut headers = self.headers.take();
        let (body, request) = match &self.text {
            Text::Message(text) => {
                let read = std::str::from_utf8(text).ok();
                let read = read.and_then(|text| Message::within(text, server.bounds).ok());
                match read {
                    Some(Message::Request(request)) => (text.clone(), request),
                    _ => return Handled::Now(internal_error(&self.id)),
                }
            }
            Text::Plain {
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
            let watch = server.watch(&succession.cells, &self.principal, seen, &request)?;
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
        });
        let incoming = Incoming {
            caller,
            headers,
            body: &body,
            request: &request,
        };
        let handled = server.dispatch(cx, self.method, incoming);
        server.watched(watch, &request, handled)
    }
}

/// The element of an array of messages that an id lies in.
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

/// Requests that wait for sources to start, by caller. They run nothing, so they hold no permits of calls.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    each: HashMap<ShareKey, usize>,
}

/// One request's entry among those that wait, until it is dropped.
#[derive(Debug)]
struct WaiterPlace {
    waiters: Arc<Waiters>,
    key: ShareKey,
}

impl Waiters {
    /// Enters one more. `None` if there are as many as there may be.
    fn enter(waiters: &Arc<Self>, key: ShareKey) -> Option<WaiterPlace> {
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
        Some(WaiterPlace {
            waiters: Arc::clone(waiters),
            key,
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaiterPlace {
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
