//! W3C trace context, sampling and server spans.

mod baggage;

use std::borrow::Cow;
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

use super::export_queue::BatchQueue;
use super::metrics::Counter;
use super::operation_ids::OperationId;
use super::propagation::SpanInfo;
use super::redact::Redaction;
use super::worker_counters::{OperationKey, OperationOutcome};
use crate::net::Peer;
use crate::protocol::Method;
use crate::protocol::message::{self, Meta, Request};
use baggage::tracestate;
pub use baggage::{Baggage, Propagation};

/// A trace context: the content of a `traceparent` header.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

const SAMPLED: u8 = 1;

impl TraceContext {
    /// Parses `traceparent`. Fields that a later version appends are ignored; any other deviation is an error.
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
            // The casts are lossless: the texts have 16 and 2 digits.
            span_id: span_id as u64,
            flags: flags as u8,
        })
    }

    /// Returns the trace ID in 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// Returns the span ID in 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span_id)
    }

    /// Returns true if the trace is recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the value of `traceparent`.
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

/// Parses exactly `digits` lower-case hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    (text.len() == digits && text.bytes().all(is_digit))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

/// Larger values are not passed on.
pub(crate) const CARRIED_MAX_BYTES: usize = 8 * 1024;

/// Sampler: decides which traces are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// True if the caller's sampling decision is followed.
    pub(crate) follows_parent: bool,
    /// Threshold for new traces, in parts of 2^63.
    bound: u64,
}

impl Sampler {
    /// `share` is from 0 to 1.
    #[cfg(any(feature = "otlp", test))]
    pub fn new(follows_parent: bool, share: f64) -> Self {
        let all = (1_u64 << 63) as f64;
        Self {
            follows_parent,
            // Values outside of 0 to 1 are clamped; the cast saturates.
            bound: (share.clamp(0.0, 1.0) * all) as u64,
        }
    }

    /// Decides whether to record. Samplers with the same share decide alike for the same trace ID.
    #[inline]
    pub fn samples(self, parent: Option<&TraceContext>, trace_id: u128) -> bool {
        match parent {
            Some(parent) if self.follows_parent => parent.is_sampled(),
            _ => ((trace_id as u64) >> 1) < self.bound,
        }
    }
}

/// Returns a random number that need not be unpredictable, from a generator of the thread.
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
    // Without random bytes from the system, the address of a local variable is the seed.
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

/// Returns the trace context of the work on the current thread.
pub fn current() -> Option<TraceContext> {
    CURRENT.with(Cell::get)
}

/// Sets the current trace context until the returned guard is dropped.
#[inline]
pub fn enter(context: TraceContext) -> TraceGuard {
    TraceGuard(CURRENT.with(|current| current.replace(Some(context))))
}

/// Restores the previous trace context when dropped.
#[derive(Debug)]
pub struct TraceGuard(Option<TraceContext>);

impl Drop for TraceGuard {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.0));
    }
}

/// Reads the trace context in `_meta`.
pub fn of_meta(meta: &Meta<'_>) -> Option<TraceContext> {
    TraceContext::parse(&message::string(meta.traceparent?)?)
}

// A constant header name: a look-up by string takes seven times as long.
pub(super) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
pub(super) static BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// Reads the trace context in HTTP headers. Two of them are none.
#[inline]
pub fn of_headers(headers: &HeaderMap) -> Option<TraceContext> {
    let mut all = headers.get_all(&TRACEPARENT).iter();
    let only = all.next()?;
    match all.next() {
        None => TraceContext::parse(only.to_str().ok()?),
        Some(_) => None,
    }
}

/// Reads `tracestate` in HTTP headers. Without a valid `traceparent` it belongs to no trace (W3C Trace Context, 4.2).
pub(super) fn tracestate_of_headers(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let list = list_header(headers, &TRACESTATE)?;
    of_headers(headers).map(|_| list)
}

/// Returns the values of a header that is a list, and may be sent in parts.
pub(super) fn list_header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Cow<'h, str>> {
    let mut all = headers.get_all(name).iter();
    let mut list = Cow::Borrowed(all.next()?.to_str().ok()?);
    for part in all {
        let list = list.to_mut();
        list.push(',');
        list.push_str(part.to_str().ok()?);
    }
    Some(list)
}

/// Creates server spans.
#[derive(Debug)]
pub struct Tracer {
    pub(crate) sampler: Sampler,
    /// Redaction of call arguments. `None` if they are not recorded.
    pub arguments: Option<Redaction>,
    /// Redaction of call results. `None` if they are not recorded.
    pub results: Option<Redaction>,
    /// Names of arguments that a schema marks as secret.
    pub secrets: ArcSwap<BTreeSet<String>>,
    pub spans: BatchQueue<Box<Span>>,
    pub dropped: Counter,
}

/// A traced request. An unsampled one has only its IDs.
#[derive(Debug)]
pub struct Traced {
    /// Context of the request's span. That of the caller, if it has one and the request is not recorded.
    pub context: TraceContext,
    /// Span builder; `None` if the request is not recorded.
    pub draft: Option<Box<SpanBuilder>>,
}

/// A span under construction.
#[derive(Debug)]
pub struct SpanBuilder {
    tracer: Arc<Tracer>,
    parent_span_id: u64,
    link: Option<TraceContext>,
    tracestate: Option<Box<str>>,
    start: SystemTime,
    said: SpanExtras,
}

/// Arguments and results are cut to this length.
#[cfg(feature = "otlp")]
pub(crate) const SHOWN_MAX_BYTES: usize = 4 * 1024;
/// URIs and messages of other servers are cut to this length.
pub(super) const TOLD_MAX_BYTES: usize = 1024;

impl Tracer {
    /// Makes the sampling decision before anything is allocated for a span. A trace context in the message takes
    /// precedence over the one in its HTTP request, which becomes a link.
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
        let context = match parent {
            // Other servers continue the caller's span: none of this server is exported.
            Some(parent) if !records => parent,
            _ => TraceContext {
                trace_id,
                span_id: new_span_id(),
                flags: parent.map_or(0, |parent| parent.flags & !SAMPLED)
                    | (u8::from(records) * SAMPLED),
            },
        };
        let draft = records.then(|| {
            Box::new(SpanBuilder {
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

    fn said(&self, request: &Request<'_>, peer: Option<Peer>) -> SpanExtras {
        let id = request.id;
        let id = message::string(id).map_or_else(|| id.to_owned(), |id| id.into_owned());
        let is_of_resources = request.method.starts_with("resources/");
        let uri = request.params.uri.filter(|_| is_of_resources);
        let is_call = request.method == Method::ToolsCall.as_str();
        let arguments = request.params.arguments.filter(|_| is_call);
        let arguments = self.arguments.as_ref().zip(arguments);
        SpanExtras {
            request_id: id,
            resource_uri: uri
                .and_then(message::string)
                .map(|uri| longshore_protocol::prefix(&uri, TOLD_MAX_BYTES).to_owned()),
            session: None,
            peer,
            arguments: arguments.map(|(redaction, arguments)| {
                redaction.show(arguments, &self.secrets.load()).to_string()
            }),
            is_call,
            result: None,
        }
    }

    /// Returns the redacted result of a call, if results are recorded.
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

    /// Queues a span for export, or drops it if the queue is full.
    pub fn take(&self, span: Span) {
        if !self.spans.put(Box::new(span)) {
            self.dropped.add(1);
        }
    }
}

/// Returns the message of the JSON-RPC error in a response, cut if it is long.
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
    let message = envelope.error.message;
    Some(longshore_protocol::prefix(&message, TOLD_MAX_BYTES).to_owned())
}

impl SpanBuilder {
    /// Returns true if the span needs the response's content: the result of a call, or an error.
    pub(crate) fn asks_for_answer(&self, verdict: OperationOutcome) -> bool {
        let asks_for_result = self.said.is_call && self.tracer.results.is_some();
        asks_for_result || matches!(verdict, OperationOutcome::Error(_))
    }

    /// The request has ended.
    pub fn finish(self, ending: SpanResult) {
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
        let error = answer.filter(|_| matches!(ending.key.verdict, OperationOutcome::Error(_)));
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
            about: SpanDetails::Served {
                operation: ending.operation,
                key: ending.key,
                said,
            },
        });
    }

    /// Returns the tracer.
    pub fn tracer(&self) -> &Arc<Tracer> {
        &self.tracer
    }
}

/// Facts that are known at the end of a request.
#[derive(Debug)]
pub struct SpanResult {
    pub context: TraceContext,
    pub elapsed: Duration,
    pub operation: OperationId,
    pub key: OperationKey,
    /// The response as JSON, if the span needs it.
    pub answer: Option<Bytes>,
    pub session: Option<Arc<str>>,
}

/// A finished span.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub struct Span {
    pub context: TraceContext,
    /// 0 for a root span.
    pub(crate) parent_span_id: u64,
    /// Trace context of the HTTP request, if the message belongs to another trace.
    pub link: Option<TraceContext>,
    pub tracestate: Option<Box<str>>,
    pub start: SystemTime,
    pub elapsed: Duration,
    /// Error description, such as the message of a JSON-RPC error.
    pub error: Option<String>,
    pub about: SpanDetails,
}

/// Details by span kind.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub enum SpanDetails {
    /// A request of the protocol that was answered here.
    Served {
        operation: OperationId,
        key: OperationKey,
        said: SpanExtras,
    },
    /// A request of another server.
    Asked(SpanInfo),
}

/// Attributes of a request span that are not metric labels.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub struct SpanExtras {
    /// Text of the id, without quotes.
    pub request_id: String,
    pub resource_uri: Option<String>,
    pub session: Option<Arc<str>>,
    pub peer: Option<Peer>,
    pub arguments: Option<String>,
    /// True for a tool call.
    pub(crate) is_call: bool,
    pub result: Option<String>,
}

#[cfg(test)]
mod tests;
