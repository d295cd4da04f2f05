//! Spans as the conventions for MCP have them.

use std::borrow::Cow;
use std::str::FromStr as _;

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::telemetry::config::SpanNames;
use crate::telemetry::names::{OTHER, Operation, Target};
use crate::telemetry::trace::{Span, TraceContext};

/// One span, of an operation of this name.
pub(super) fn span_data(
    span: Span,
    operation: &Operation,
    names: SpanNames,
    scope: &InstrumentationScope,
) -> SpanData {
    let tracestate = span.tracestate.as_deref();
    let attributes = attributes(&span, operation);
    let mut links = SpanLinks::default();
    if let Some(link) = span.link {
        links
            .links
            .push(Link::new(context(link, None, true), Vec::new(), 0));
    }
    let error_type = span.key.verdict.error_type();
    let status = match error_type {
        None => Status::Unset,
        Some(_) => Status::Error {
            description: span.error.unwrap_or_default().into(),
        },
    };
    SpanData {
        span_context: context(span.context, tracestate, false),
        parent_span_id: SpanId::from(span.parent_span_id),
        parent_span_is_remote: span.parent_span_id != 0,
        span_kind: SpanKind::Server,
        name: name(operation, names),
        start_time: span.start,
        end_time: span.start + span.elapsed,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status,
        instrumentation_scope: scope.clone(),
    }
}

fn context(context: TraceContext, tracestate: Option<&str>, is_remote: bool) -> SpanContext {
    let state = tracestate.and_then(|text| TraceState::from_str(text).ok());
    SpanContext::new(
        TraceId::from(context.trace_id),
        SpanId::from(context.span_id),
        TraceFlags::new(context.flags),
        is_remote,
        state.unwrap_or_default(),
    )
}

/// The method, and the tool or prompt if it is known; or the tool's name alone, as some dashboards want it.
fn name(operation: &Operation, names: SpanNames) -> Cow<'static, str> {
    let method = &operation.method;
    match &operation.target {
        Some((Target::Tool, tool)) if names == SpanNames::Tool && **tool != *OTHER => {
            format!("tool.{tool}").into()
        }
        Some((_, name)) if **name != *OTHER => format!("{method} {name}").into(),
        _ => method.to_string().into(),
    }
}

fn attributes(span: &Span, operation: &Operation) -> Vec<KeyValue> {
    let (key, said) = (&span.key, &span.said);
    let mut attributes = vec![
        KeyValue::new("mcp.method.name", operation.method.to_string()),
        KeyValue::new("jsonrpc.request.id", said.request_id.clone()),
        KeyValue::new("network.transport", key.wire.transport()),
    ];
    let mut add = |name: &'static str, value: Option<String>| {
        attributes.extend(value.map(|value| KeyValue::new(name, value)));
    };
    if let Some((target, name)) = &operation.target {
        add(target.attribute(), Some(name.to_string()));
        if *target == Target::Tool {
            add("gen_ai.operation.name", Some("execute_tool".to_owned()));
        }
    }
    add(
        "mcp.protocol.version",
        key.revision.map(|r| r.as_str().to_owned()),
    );
    // Where there are no sessions there is no id of one either.
    if key.revision.is_some_and(|revision| revision.has_sessions()) {
        add(
            "mcp.session.id",
            said.session.as_ref().map(ToString::to_string),
        );
    }
    add("mcp.resource.uri", said.resource_uri.clone());
    add("gen_ai.tool.call.arguments", said.arguments.clone());
    add("error.type", key.verdict.error_type());
    add("rpc.response.status_code", key.verdict.status_code());
    if let Some(version) = key.wire.http_version() {
        add("network.protocol.name", Some("http".to_owned()));
        add("network.protocol.version", Some(version.to_owned()));
    }
    add("client.address", said.peer.map(|peer| peer.to_string()));
    attributes
}
