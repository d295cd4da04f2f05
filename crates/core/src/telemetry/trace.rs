//! Trace context as W3C has it, and which requests are traced.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::cells::{OperationKey, Verdict};
use super::metrics::Counter;
use super::names::OperationId;
use super::onward::Asked;
use super::outbox::Outbox;
use super::redact::Redaction;
use crate::net::Peer;
use crate::protocol::Method;
use crate::protocol::message::{self, Meta, Params, Request};

/// Where a piece of work belongs in a trace: what `traceparent` says.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

const SAMPLED: u8 = 1;

impl TraceContext {
    /// Reads `traceparent`. Versions to come may say more behind what is known; anything else is nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let version = hex(parts.next()?, 2)?;
        let trace_id = hex(parts.next()?, 32)?;
        let span_id = hex(parts.next()?, 16)?;
        let flags = hex(parts.next()?, 2)?;
        let says_more = parts.next().is_some();
        if version == 0xff || version == 0 && says_more || trace_id == 0 || span_id == 0 {
            return None;
        }
        Some(Self {
            trace_id,
            // Of 16 and 2 digits.
            span_id: span_id as u64,
            flags: flags as u8,
        })
    }

    /// The trace, in 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// The piece of work, in 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span_id)
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The value of `traceparent` that says the same.
    pub fn traceparent(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            span_id,
            flags,
        } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Lower-case digits, so many of them.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (text.len() == digits && text.bytes().all(is_digit))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

/// What goes along with a trace context, and is passed on as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub tracestate: Option<Box<str>>,
    pub(crate) baggage: Option<Box<str>>,
}

/// More than this is not passed on.
pub(crate) const CARRIED_MAX_BYTES: usize = 8 * 1024;

/// Who decides whether a trace is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// Whether a caller's decision counts.
    pub(crate) follows_parent: bool,
    /// Which share of the others is recorded, in parts of 2^63.
    bound: u64,
}

impl Sampler {
    /// `share` is from 0 to 1.
    #[cfg(any(feature = "otlp", test))]
    pub fn new(follows_parent: bool, share: f64) -> Self {
        let all = (1_u64 << 63) as f64;
        Self {
            follows_parent,
            // What is below 0 or above 1 is taken for that; casts do the same.
            bound: (share.clamp(0.0, 1.0) * all) as u64,
        }
    }

    /// Whether to record. Others who look at the same trace id with the same share decide alike.
    #[inline]
    pub fn samples(self, parent: Option<&TraceContext>, trace_id: u128) -> bool {
        match parent {
            Some(parent) if self.follows_parent => parent.is_sampled(),
            _ => ((trace_id as u64) >> 1) < self.bound,
        }
    }
}

/// A number that nobody needs to be unable to guess, from a generator of the thread's own.
#[inline]
pub(crate) fn random_u64() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(seed());
    }
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mut z = next;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cold]
fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without the system's help the address of a local has to do.
    if getrandom::fill(&mut bytes).is_err() {
        return std::ptr::from_ref(&bytes) as u64;
    }
    u64::from_ne_bytes(bytes)
}

#[inline]
pub(crate) fn new_span_id() -> u64 {
    random_u64().max(1)
}

#[inline]
pub(crate) fn new_trace_id() -> u128 {
    let id = (u128::from(random_u64()) << 64) | u128::from(random_u64());
    id.max(1)
}

thread_local! {
    static CURRENT: Cell<Option<TraceContext>> = const { Cell::new(None) };
}

/// What the thread works on right now.
pub fn current() -> Option<TraceContext> {
    CURRENT.with(Cell::get)
}

/// Says what the thread works on, until what is returned is dropped.
#[inline]
pub fn enter(context: TraceContext) -> Entered {
    Entered(CURRENT.with(|current| current.replace(Some(context))))
}

/// Ends with it.
#[derive(Debug)]
pub struct Entered(Option<TraceContext>);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}

/// What is read from callers and passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Propagation {
    pub(crate) trace_context: bool,
    pub(crate) baggage: bool,
}

impl Default for Propagation {
    fn default() -> Self {
        Self {
            trace_context: true,
            baggage: true,
        }
    }
}

impl Propagation {
    /// What is said of a word that means nothing here.
    pub const UNKNOWN: &str =
        "of which only tracecontext, baggage and none are known; it is ignored";

    /// Reads `OTEL_PROPAGATORS`, and tells of words that mean nothing here. Default: both.
    pub fn read(list: Option<&str>, mut doubt: impl FnMut(&str)) -> Self {
        let Some(list) = list else {
            return Self::default();
        };
        let mut propagation = Self {
            trace_context: false,
            baggage: false,
        };
        for word in list.to_ascii_lowercase().split(',').map(str::trim) {
            match word {
                "tracecontext" => propagation.trace_context = true,
                "baggage" => propagation.baggage = true,
                "none" | "" => {}
                other => doubt(other),
            }
        }
        propagation
    }
}

impl Carried {
    /// What `_meta` says. It is read again for that, since hardly any request says it.
    pub fn of(params: &Params<'_>, propagation: Propagation) -> Option<Box<Self>> {
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow, rename = "_meta")]
            meta: Inner<'a>,
        }
        #[derive(Deserialize)]
        struct Inner<'a> {
            #[serde(borrow, default)]
            tracestate: Option<&'a RawValue>,
            #[serde(borrow, default)]
            baggage: Option<&'a RawValue>,
        }
        let Outer { meta } = serde_json::from_str(params.object?).ok()?;
        let text = |json: Option<&RawValue>| {
            let text = message::string(json?.get())?;
            (text.len() <= CARRIED_MAX_BYTES).then(|| text.into())
        };
        let carried = Self {
            tracestate: text(meta.tracestate.filter(|_| propagation.trace_context)),
            baggage: text(meta.baggage.filter(|_| propagation.baggage)),
        };
        (carried != Self::default()).then(|| Box::new(carried))
    }
}

/// The context that `_meta` says.
pub fn of_meta(meta: &Meta<'_>) -> Option<TraceContext> {
    TraceContext::parse(&message::string(meta.traceparent?)?)
}

// By name and not by text, which takes seven times as long.
pub(super) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
pub(super) static BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// The context that HTTP headers say.
#[inline]
pub fn of_headers(headers: &HeaderMap) -> Option<TraceContext> {
    TraceContext::parse(headers.get(&TRACEPARENT)?.to_str().ok()?)
}

/// Traces requests.
#[derive(Debug)]
pub struct Tracer {
    pub(crate) sampler: Sampler,
    /// How arguments of calls are shown; `None` if they are not.
    pub arguments: Option<Redaction>,
    /// The same of their results.
    pub results: Option<Redaction>,
    /// Names of arguments that schemas call secret.
    pub secrets: ArcSwap<BTreeSet<String>>,
    pub spans: Outbox<Box<Span>>,
    pub dropped: Counter,
}

/// A request that is being traced, if only by its ids.
#[derive(Debug)]
pub struct Traced {
    pub context: TraceContext,
    /// What will be told of it; `None` if it is not recorded.
    pub draft: Option<Box<Draft>>,
}

/// What will be told of a request.
#[derive(Debug)]
pub struct Draft {
    tracer: Arc<Tracer>,
    parent_span_id: u64,
    link: Option<TraceContext>,
    tracestate: Option<Box<str>>,
    start: SystemTime,
    said: Said,
}

/// More of a call's arguments, or of its result, is not told.
#[cfg(feature = "otlp")]
pub(crate) const SHOWN_MAX_BYTES: usize = 4 * 1024;
/// More of a URI, or of what another server says, is not told.
pub(super) const TOLD_MAX_BYTES: usize = 1024;

impl Tracer {
    /// Decides whether a request is recorded, before anything is made that only a recorded one needs. What the message
    /// says comes before what its HTTP request says, which is linked to then.
    #[inline]
    pub fn begin(
        self: &Arc<Self>,
        propagation: Propagation,
        request: &Request<'_>,
        headers: Option<&HeaderMap>,
        peer: Option<Peer>,
    ) -> Traced {
        let meta = &request.params.meta;
        let (said, ambient) = match propagation.trace_context {
            true => (of_meta(meta), headers.and_then(of_headers)),
            false => (None, None),
        };
        let parent = said.or(ambient);
        let trace_id = parent.map_or_else(new_trace_id, |parent| parent.trace_id);
        let records = self.sampler.samples(parent.as_ref(), trace_id);
        let others = parent.map_or(0, |parent| parent.flags & !SAMPLED);
        let context = TraceContext {
            trace_id,
            span_id: new_span_id(),
            flags: others | (u8::from(records) * SAMPLED),
        };
        let draft = records.then(|| {
            Box::new(Draft {
                tracer: Arc::clone(self),
                parent_span_id: parent.map_or(0, |parent| parent.span_id),
                link: said.and(ambient).filter(|ambient| Some(*ambient) != said),
                tracestate: tracestate(propagation, &request.params, said.is_some(), headers),
                start: SystemTime::now(),
                said: self.said(request, peer),
            })
        });
        Traced { context, draft }
    }

    fn said(&self, request: &Request<'_>, peer: Option<Peer>) -> Said {
        let id = request.id;
        let id = message::string(id).map_or_else(|| id.to_owned(), |id| id.into_owned());
        let is_of_resources = request.method.starts_with("resources/");
        let uri = request.params.uri.filter(|_| is_of_resources);
        let is_call = request.method == Method::ToolsCall.as_str();
        let arguments = request.params.arguments.filter(|_| is_call);
        let arguments = self.arguments.as_ref().zip(arguments);
        Said {
            request_id: id,
            resource_uri: uri
                .and_then(message::string)
                .map(|uri| cut(&uri, TOLD_MAX_BYTES).to_owned()),
            session: None,
            peer,
            arguments: arguments.map(|(redaction, arguments)| {
                redaction.show(arguments, &self.secrets.load()).to_string()
            }),
            is_call,
            result: None,
        }
    }

    /// The result of a call as it may be read, if it is told and there is one.
    fn result(&self, answer: &[u8]) -> Option<String> {
        #[derive(Deserialize)]
        struct Envelope<'a> {
            #[serde(borrow)]
            result: &'a RawValue,
        }
        let redaction = self.results.as_ref()?;
        let Envelope { result } = serde_json::from_slice(answer).ok()?;
        let shown = redaction.show(result.get(), &self.secrets.load());
        Some(shown.to_string())
    }

    /// Has a span sent, if there is room for it.
    pub fn take(&self, span: Span) {
        if !self.spans.put(Box::new(span)) {
            self.dropped.add(1);
        }
    }
}

/// The message of the error that an answer is.
fn message_of(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Envelope {
        error: Problem,
    }
    #[derive(Deserialize)]
    struct Problem {
        message: String,
    }
    let envelope: Envelope = serde_json::from_slice(answer).ok()?;
    Some(envelope.error.message)
}

/// What systems of tracing have said of the context, at the place that says it.
fn tracestate(
    propagation: Propagation,
    params: &Params<'_>,
    in_meta: bool,
    headers: Option<&HeaderMap>,
) -> Option<Box<str>> {
    if in_meta {
        let wanted = Propagation {
            baggage: false,
            ..propagation
        };
        return Carried::of(params, wanted)?.tracestate;
    }
    let header = headers?.get(&TRACESTATE)?.to_str().ok()?;
    (propagation.trace_context && header.len() <= CARRIED_MAX_BYTES).then(|| header.into())
}

pub(super) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes.min(text.len()))]
}

impl Draft {
    /// Whether something is told of what the client gets.
    pub(crate) fn asks_for_answer(&self, verdict: Verdict) -> bool {
        let asks_for_result = self.said.is_call && self.tracer.results.is_some();
        asks_for_result || matches!(verdict, Verdict::Error(_))
    }

    /// The request has ended.
    pub fn finish(self, ending: Ending) {
        let Self {
            tracer,
            parent_span_id,
            link,
            tracestate,
            start,
            mut said,
        } = self;
        said.session = ending.session;
        let answer = ending.answer.as_deref();
        let error = answer.filter(|_| matches!(ending.key.verdict, Verdict::Error(_)));
        said.result = answer
            .filter(|_| said.is_call)
            .and_then(|answer| tracer.result(answer));
        tracer.take(Span {
            context: ending.context,
            parent_span_id,
            link,
            tracestate,
            start,
            elapsed: ending.elapsed,
            error: error.and_then(message_of),
            about: About::Served {
                operation: ending.operation,
                key: ending.key,
                said,
            },
        });
    }

    /// Who is told of it.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }
}

/// What is known of a request at its end.
#[derive(Debug)]
pub struct Ending {
    pub context: TraceContext,
    pub elapsed: Duration,
    pub operation: OperationId,
    pub key: OperationKey,
    /// What the client gets, as JSON, if that was asked for.
    pub answer: Option<Bytes>,
    pub session: Option<Arc<str>>,
}

/// One request that was traced to its end.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub struct Span {
    pub context: TraceContext,
    /// 0 if it is the first of its trace.
    pub(crate) parent_span_id: u64,
    /// What else it has to do with: the trace of the HTTP request, where the message belongs to another.
    pub link: Option<TraceContext>,
    pub tracestate: Option<Box<str>>,
    pub start: SystemTime,
    pub elapsed: Duration,
    /// What is said of what went wrong, such as the message of a JSON-RPC error.
    pub error: Option<String>,
    pub about: About,
}

/// Whose request a span is of.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub enum About {
    /// A request of the protocol that was answered here.
    Served {
        operation: OperationId,
        key: OperationKey,
        said: Said,
    },
    /// A request of another server.
    Asked(Asked),
}

/// What a span tells of its request, beside what is counted.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub struct Said {
    /// Text of the id, without quotes.
    pub request_id: String,
    pub resource_uri: Option<String>,
    pub session: Option<Arc<str>>,
    pub peer: Option<Peer>,
    pub arguments: Option<String>,
    /// Whether it is a call of a tool.
    pub(crate) is_call: bool,
    pub result: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_contexts_read_back_and_nothing_else_is_one() {
        // TRC-01
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = TraceContext::parse(text).expect("a context");
        assert_eq!(context.traceparent(), text);
        assert!(context.is_sampled());
        assert_eq!(context.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span_id(), "b7ad6b7169203331");
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-what-comes";
        assert!(TraceContext::parse(later).is_some_and(|c| !c.is_sampled()));
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_caller_decides_if_it_may_and_else_the_share_does() {
        let mut parent = TraceContext {
            trace_id: 1,
            span_id: 1,
            flags: SAMPLED,
        };
        assert!(Sampler::new(true, 0.0).samples(Some(&parent), 1));
        assert!(!Sampler::new(false, 0.0).samples(Some(&parent), 1));
        parent.flags = 0;
        assert!(!Sampler::new(true, 1.0).samples(Some(&parent), 1));
        assert!(Sampler::new(false, 1.0).samples(Some(&parent), 1));
        assert!(Sampler::new(true, 1.0).samples(None, u128::MAX));
        let one_percent = Sampler::new(true, 0.01);
        let sampled = (0..100_000).filter(|_| one_percent.samples(None, new_trace_id()));
        let sampled = sampled.count();
        assert!((800..1200).contains(&sampled), "{sampled}");
    }

    #[test]
    fn what_a_thread_works_on_is_known_until_it_is_done() {
        let outer = TraceContext {
            trace_id: 1,
            span_id: 1,
            flags: 0,
        };
        let inner = TraceContext {
            trace_id: 2,
            ..outer
        };
        assert_eq!(current(), None);
        let entered = enter(outer);
        {
            let _inner = enter(inner);
            assert_eq!(current(), Some(inner));
        }
        assert_eq!(current(), Some(outer));
        drop(entered);
        assert_eq!(current(), None);
    }
}
