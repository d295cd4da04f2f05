//! Trace propagation to other servers: the context that a call passes on, and CLIENT spans for its outgoing
//! requests.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::trace::{
    BAGGAGE, Baggage, Propagation, Span, SpanDetails, TOLD_MAX_BYTES, TRACEPARENT, TRACESTATE,
    TraceContext, Tracer, list_header, new_span_id, of_headers, tracestate_of_headers,
};

/// Trace context of a call, for the requests that it sends.
#[derive(Debug, Default)]
pub struct TraceLink {
    /// The place of its own span, or what its message said where nothing is traced here.
    pub place: Option<TraceContext>,
    /// The message said where it belongs, so that its HTTP request does not count.
    pub in_message: bool,
    /// Other members of the message's trace context.
    pub carried: Option<Box<Baggage>>,
    pub propagation: Propagation,
    /// Recorder of outgoing spans. `None` if the call is not sampled.
    pub tracer: Option<Arc<Tracer>>,
}

impl TraceLink {
    /// Reads the trace context of a call. `headers` are those of its HTTP request.
    pub fn place(&self, headers: Option<&HeaderMap>) -> Option<TraceContext> {
        self.place.or_else(|| of_headers(headers?))
    }

    /// Adds the propagated context to the headers of a request.
    pub fn add_to(&self, headers: Option<&HeaderMap>, to: &mut HeaderMap) {
        let Some(place) = self.place(headers) else {
            return;
        };
        let Propagation {
            trace_context,
            baggage,
        } = self.propagation;
        if trace_context {
            add(to, &TRACEPARENT, &place.traceparent());
            add(to, &TRACESTATE, &self.tracestate(headers));
        }
        if baggage {
            let of_request = || list_header(headers?, &BAGGAGE);
            add(
                to,
                &BAGGAGE,
                &self.said(|c| c.baggage.as_deref(), of_request),
            );
        }
    }

    /// Returns the caller's `tracestate`, or an empty string if it is invalid (W3C Trace Context, 3.3.1). Validation
    /// is required because it is passed on to other servers and to environment variables.
    fn tracestate(&self, headers: Option<&HeaderMap>) -> Box<str> {
        let of_request = || tracestate_of_headers(headers?);
        let said = self.said(|c| c.tracestate.as_deref(), of_request);
        if said.split(',').all(is_member) {
            said.into()
        } else {
            Box::default()
        }
    }

    /// Returns the fields to propagate for this context.
    fn passed(
        &self,
        traceparent: TraceContext,
        headers: Option<&HeaderMap>,
    ) -> Option<PropagatedFields> {
        self.propagation.trace_context.then(|| PropagatedFields {
            traceparent,
            tracestate: self.tracestate(headers),
        })
    }

    /// Returns `traceparent` and `tracestate` for code that runs in the call's own span, such as a child process.
    pub fn here(
        &self,
        headers: Option<&HeaderMap>,
    ) -> impl Iterator<Item = (&'static str, String)> {
        let place = self.place(headers);
        let passed = place.and_then(|place| self.passed(place, headers));
        passed.into_iter().flat_map(|passed| passed.pairs())
    }

    /// Reads a field from the message, or else from its HTTP request. An empty string counts as absent.
    fn said<'a>(
        &'a self,
        in_message: fn(&Baggage) -> Option<&str>,
        of_request: impl FnOnce() -> Option<Cow<'a, str>>,
    ) -> Cow<'a, str> {
        if !self.in_message {
            return of_request().unwrap_or_default();
        }
        let carried = self.carried.as_deref().and_then(in_message);
        carried.unwrap_or_default().into()
    }

    /// Begins a request to another server. `asked` says what the span tells of it.
    pub fn hop(&self, headers: Option<&HeaderMap>, asked: impl FnOnce() -> SpanInfo) -> ClientSpan {
        let Some(place) = self.place(headers) else {
            return ClientSpan::default();
        };
        let Some(tracer) = &self.tracer else {
            return ClientSpan {
                passed: self.passed(place, headers),
                draft: None,
            };
        };
        let context = TraceContext {
            span_id: new_span_id(),
            ..place
        };
        let tracestate = self.tracestate(headers);
        ClientSpan {
            passed: self.passed(context, headers),
            draft: Some(Box::new(SpanDraft {
                tracer: Arc::clone(tracer),
                context,
                parent_span_id: place.span_id,
                tracestate: (!tracestate.is_empty()).then_some(tracestate),
                start: SystemTime::now(),
                begun: Instant::now(),
                asked: asked(),
            })),
        }
    }
}

/// Returns true if `text` is a valid member of `tracestate`. An empty member is allowed.
fn is_member(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let Some((key, value)) = text.split_once('=') else {
        return text.is_empty();
    };
    let is_of_key =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    !key.is_empty()
        && key.bytes().all(is_of_key)
        && !value.is_empty()
        && value
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

fn add(headers: &mut HeaderMap, name: &HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value)
        && !value.is_empty()
    {
        headers.insert(name, value);
    }
}

/// Attributes of an outgoing request, for its span.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub struct SpanInfo {
    pub name: String,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    pub error_type: Option<Cow<'static, str>>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "otlp"), allow(dead_code))]
pub enum AttributeValue {
    Text(Cow<'static, str>),
    Number(i64),
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

/// A CLIENT span of an outgoing request, if its call is recorded. Dropping it unfinished records a cancellation.
#[derive(Debug, Default)]
pub struct ClientSpan {
    passed: Option<PropagatedFields>,
    draft: Option<Box<SpanDraft>>,
}

/// Fields to propagate to the other server.
#[derive(Debug)]
struct PropagatedFields {
    traceparent: TraceContext,
    /// Empty if the request has none.
    tracestate: Box<str>,
}

impl PropagatedFields {
    fn pairs(&self) -> impl Iterator<Item = (&'static str, String)> + use<> {
        let tracestate = (!self.tracestate.is_empty()).then(|| self.tracestate.to_string());
        let traceparent = ("traceparent", self.traceparent.traceparent());
        iter::once(traceparent).chain(tracestate.map(|text| ("tracestate", text)))
    }
}

#[derive(Debug)]
struct SpanDraft {
    tracer: Arc<Tracer>,
    context: TraceContext,
    parent_span_id: u64,
    tracestate: Option<Box<str>>,
    start: SystemTime,
    begun: Instant,
    asked: SpanInfo,
}

/// Outcome of an outgoing request.
#[derive(Debug, Default)]
pub struct SpanEnd {
    /// Attributes that became known during the request.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// `None` if it went well.
    pub error_type: Option<Cow<'static, str>>,
    /// Error message of the other server.
    pub message: Option<String>,
}

impl ClientSpan {
    /// `traceparent` and `tracestate` of the request, as far as there are any.
    pub fn passed(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.passed.iter().flat_map(PropagatedFields::pairs)
    }

    /// Adds them to the headers of a request, unless the author of the request has set them.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        if headers.contains_key(&TRACEPARENT) {
            return;
        }
        if let Some(passed) = &self.passed {
            add(headers, &TRACEPARENT, &passed.traceparent.traceparent());
            add(headers, &TRACESTATE, &passed.tracestate);
        }
    }

    /// Ends the span. `end` is called only if the span is recorded.
    pub fn ends(mut self, end: impl FnOnce() -> SpanEnd) {
        if let Some(draft) = self.draft.take() {
            draft.finish(end());
        }
    }
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        if let Some(draft) = self.draft.take() {
            draft.finish(SpanEnd {
                error_type: Some("cancelled".into()),
                ..SpanEnd::default()
            });
        }
    }
}

impl SpanDraft {
    fn finish(self, end: SpanEnd) {
        let Self {
            tracer,
            context,
            parent_span_id,
            tracestate,
            start,
            begun,
            mut asked,
        } = self;
        asked.attributes.extend(end.attributes);
        for (_, value) in &mut asked.attributes {
            if let AttributeValue::Text(text) = value
                && TOLD_MAX_BYTES < text.len()
            {
                *value = longshore_protocol::prefix(text, TOLD_MAX_BYTES)
                    .to_owned()
                    .into();
            }
        }
        asked.error_type = end.error_type;
        tracer.take(Span {
            context,
            parent_span_id,
            link: None,
            tracestate,
            start,
            elapsed: begun.elapsed(),
            error: end
                .message
                .map(|text| longshore_protocol::prefix(&text, TOLD_MAX_BYTES).to_owned()),
            about: SpanDetails::Asked(asked),
        });
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;

    use super::super::export_queue::BatchQueue;
    use super::super::metrics::Counter;
    use super::super::trace::Sampler;
    use super::*;

    const TRACEPARENT_TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    fn asked() -> SpanInfo {
        SpanInfo {
            name: "GET".to_owned(),
            attributes: vec![("http.request.method", "GET".into())],
            error_type: None,
        }
    }

    fn recorded() -> (TraceLink, BatchQueue<Box<Span>>) {
        let spans = BatchQueue::new(10, 10);
        let onward = TraceLink {
            place: TraceContext::parse(TRACEPARENT_TEXT),
            tracer: Some(Arc::new(Tracer {
                sampler: Sampler::new(true, 1.0),
                arguments: None,
                results: None,
                secrets: ArcSwap::default(),
                spans: spans.clone(),
                dropped: Counter::default(),
            })),
            ..TraceLink::default()
        };
        (onward, spans)
    }

    #[test]
    fn where_nothing_is_recorded_the_callers_place_is_passed_on() {
        let of_request = headers(&[
            ("traceparent", TRACEPARENT_TEXT),
            ("tracestate", "a=b"),
            ("baggage", "user=7"),
        ]);
        let onward = TraceLink::default();
        let hop = onward.hop(Some(&of_request), asked);
        let mut to = HeaderMap::new();
        hop.add_to(&mut to);
        // TRC-01: what callers say of themselves is not for those whom they do not know.
        let expected = [("traceparent", TRACEPARENT_TEXT), ("tracestate", "a=b")];
        assert_eq!(to, headers(&expected));
        let passed: Vec<_> = hop.passed().collect();
        assert_eq!(passed, expected.map(|(name, text)| (name, text.to_owned())));
    }

    #[test]
    fn what_the_message_says_counts_alone() {
        let of_request = headers(&[("tracestate", "a=b"), ("baggage", "user=7")]);
        let onward = TraceLink {
            place: TraceContext::parse(TRACEPARENT_TEXT),
            in_message: true,
            ..TraceLink::default()
        };
        let mut to = HeaderMap::new();
        onward.add_to(Some(&of_request), &mut to);
        assert_eq!(to, headers(&[("traceparent", TRACEPARENT_TEXT)]));
    }

    #[test]
    fn a_tracestate_in_parts_is_passed_on_whole_and_none_without_its_trace() {
        // TRC-01
        let parent = ("traceparent", TRACEPARENT_TEXT);
        let (one, two) = (("tracestate", "a=b"), ("tracestate", "c=d"));
        for (said, expected) in [
            (vec![parent, one, two], "a=b,c=d"),
            (vec![one], ""),
            (vec![("traceparent", "00-1-2-01"), one], ""),
            (vec![parent, parent, one], ""),
        ] {
            let mut of_request = HeaderMap::new();
            for (name, value) in &said {
                of_request.append(*name, HeaderValue::from_static(value));
            }
            let (onward, _spans) = recorded();
            let mut to = HeaderMap::new();
            onward.hop(Some(&of_request), asked).add_to(&mut to);
            let passed = to
                .get("tracestate")
                .map(|value| value.to_str().expect("ASCII"));
            assert_eq!(passed.unwrap_or_default(), expected, "{said:?}");
        }
    }

    #[test]
    fn what_is_no_tracestate_is_not_passed_on() {
        // TRC-01
        for (said, is_one) in [
            ("a=b", true),
            ("fw529a3039@dt=FfAg; x, congo=t61rcWkgMzE,,", true),
            ("() { :;}; id", false),
            ("A=b", false),
            ("a=", false),
            ("=b", false),
            ("a=b=c", false),
            ("a=ü", false),
            ("a=b\0", false),
            ("a", false),
        ] {
            let onward = TraceLink {
                place: TraceContext::parse(TRACEPARENT_TEXT),
                in_message: true,
                carried: Some(Box::new(Baggage {
                    tracestate: Some(said.into()),
                    baggage: None,
                })),
                ..TraceLink::default()
            };
            assert_eq!(onward.here(None).nth(1).is_some(), is_one, "{said}");
        }
    }

    #[test]
    fn nothing_is_passed_on_where_that_is_not_wanted() {
        let (mut onward, spans) = recorded();
        onward.propagation = Propagation {
            trace_context: false,
            baggage: false,
        };
        let mut to = HeaderMap::new();
        onward.add_to(None, &mut to);
        let hop = onward.hop(None, asked);
        hop.add_to(&mut to);
        assert!(to.is_empty() && hop.passed().next().is_none());
        drop(hop);
        assert_eq!(spans.take_some().len(), 1, "it is told of nevertheless");
    }

    #[test]
    fn a_request_is_a_child_of_its_call_and_says_how_it_ended() {
        let (onward, spans) = recorded();
        let place = onward.place.expect("one");
        let hop = onward.hop(None, asked);
        let (_, passed) = hop.passed().next().expect("a traceparent");
        hop.ends(|| SpanEnd {
            attributes: vec![("http.response.status_code", 204_u16.into())],
            ..SpanEnd::default()
        });
        drop(onward.hop(None, asked));
        let [ended, given_up] = spans.take_some().try_into().expect("two");
        assert_eq!(ended.context.traceparent(), passed);
        assert_eq!(ended.parent_span_id, place.span_id);
        assert_eq!(ended.context.trace_id, place.trace_id);
        assert_ne!(ended.context.span_id, place.span_id);
        let SpanDetails::Asked(reported) = &ended.about else {
            panic!("{ended:?}");
        };
        assert_eq!(reported.error_type, None);
        let status = ("http.response.status_code", AttributeValue::Number(204));
        assert_eq!(reported.attributes[1], status);
        let SpanDetails::Asked(reported) = &given_up.about else {
            panic!("{given_up:?}");
        };
        assert_eq!(reported.error_type.as_deref(), Some("cancelled"));
    }

    #[test]
    fn texts_without_end_are_cut() {
        let (onward, spans) = recorded();
        let hop = onward.hop(None, || SpanInfo {
            attributes: vec![("mcp.resource.uri", "ü".repeat(10_000).into())],
            ..asked()
        });
        hop.ends(|| SpanEnd {
            message: Some("x".repeat(10_000)),
            ..SpanEnd::default()
        });
        let [span] = spans.take_some().try_into().expect("one");
        let SpanDetails::Asked(reported) = &span.about else {
            panic!("{span:?}");
        };
        let uri = ("mcp.resource.uri", "ü".repeat(TOLD_MAX_BYTES / 2).into());
        assert_eq!(reported.attributes, [uri]);
        let message = span.error.as_ref().map(String::len);
        assert_eq!(message, Some(TOLD_MAX_BYTES));
    }

    #[test]
    fn who_writes_a_traceparent_means_it() {
        let (onward, _spans) = recorded();
        let own = headers(&[("traceparent", TRACEPARENT_TEXT)]);
        let mut to = own.clone();
        onward.hop(None, asked).add_to(&mut to);
        assert_eq!(to, own);
    }
}
