//! The trace context that tools pass on.

use std::sync::Arc;

use http::HeaderMap;
use longshore::telemetry::ExportProtocol;
use longshore::{CallContext, Definition, ToolError, tool_fn};
use serde_json::{Map, Value, json};

use crate::support::collector::{Collector, TRACE, hex, span_named};
use crate::support::{Serve, Stateless};

/// A tool that returns the trace context it would propagate.
fn sees() -> impl longshore::IntoTool {
    tool_fn(
        Definition::new("sees"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let mut headers = HeaderMap::new();
            context.propagate(&mut headers);
            let said = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII")));
            let current = longshore::telemetry::current_trace();
            assert_eq!(
                current.is_some(),
                context.trace().is_some() && current == context.trace()
            );
            Ok::<_, ToolError>(said.collect::<Vec<_>>().join("\n"))
        },
    )
}

#[test]
fn tools_pass_the_trace_on_with_their_own_place_in_it() {
    let collector = Collector::start(ExportProtocol::Http);
    let server = collector.serve(ExportProtocol::Http).tool(sees()).start();
    let call = Stateless::call("sees", json!({})).params(|params| {
        params["_meta"]["traceparent"] = format!("00-{TRACE}-b7ad6b7169203331-01").into();
        params["_meta"]["baggage"] = "user=7".into();
    });
    let result = call.send(&server).result();
    let said = result["content"][0]["text"]
        .as_str()
        .expect("text")
        .to_owned();
    drop(server);
    let received = collector.take();
    let span = span_named(&received.spans, "tools/call sees");
    let traceparent = format!("traceparent: 00-{TRACE}-{}-01", hex(&span.span_id));
    assert_eq!(said, format!("{traceparent}\nbaggage: user=7"));
}

#[test]
fn trc_01_where_nothing_is_traced_the_callers_trace_is_passed_on_as_it_came() {
    let server = Serve::new().tool(sees()).start();
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let in_meta = Stateless::call("sees", json!({})).params(|params| {
        params["_meta"]["traceparent"] = traceparent.clone().into();
        params["_meta"]["tracestate"] = "a=b".into();
    });
    let in_header = Stateless::call("sees", json!({}))
        .and("traceparent", &traceparent)
        .and("tracestate", "a=b");
    for call in [in_meta, in_header] {
        let result = call.send(&server).result();
        let expected = format!("traceparent: {traceparent}\ntracestate: a=b");
        assert_eq!(result["content"][0]["text"], expected);
    }
    let none = Stateless::call("sees", json!({}));
    let bad = none
        .clone()
        .params(|params| params["_meta"]["traceparent"] = "00-nonsense".into());
    let odd = none
        .clone()
        .params(|params| params["_meta"]["traceparent"] = 7.into());
    for call in [none, bad, odd] {
        let result = call.send(&server).result();
        assert_eq!(result["content"][0]["text"], "");
    }
}
