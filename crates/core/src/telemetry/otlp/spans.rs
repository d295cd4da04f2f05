//! Conversion of spans, after the semantic conventions for MCP.

use std::borrow::Cow;
use std::str::FromStr as _;

use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::telemetry::config::SpanNames;
use crate::telemetry::operation_ids::{Names, OTHER, Operation, Target};
use crate::telemetry::propagation::{AttributeValue, SpanInfo};
use crate::telemetry::trace::{Span, SpanDetails, SpanExtras, TraceContext};
use crate::telemetry::worker_counters::OperationKey;

/// Converts a span. `known` maps operation IDs to names.
pub(super) fn span_data(
    span: Span,
    known: &Names,
    names: SpanNames,
    scope: &InstrumentationScope,
) -> SpanData {
    let tracestate = span.tracestate.as_deref();
    let (kind, name, attributes, error_type) = match span.about {
        SpanDetails::Served {
            operation,
            key,
            said,
        } => {
            let operation = known.get(operation);
            let error_type = key.verdict.error_type();
            let attributes = served(&key, said, &operation);
            let name = name(&operation, names);
            (SpanKind::Server, name, attributes, error_type)
        }
        SpanDetails::Asked(asked) => {
            let error_type = asked.error_type.as_deref().map(str::to_owned);
            let name = asked.name.clone().into();
            (SpanKind::Client, name, attributes_of(asked), error_type)
        }
    };
    let mut links = SpanLinks::default();
    if let Some(link) = span.link {
        links
            .links
            .push(Link::new(context(link, None, true), Vec::new(), 0));
    }
    let status = match error_type {
        None => Status::Unset,
        Some(_) => Status::Error {
            description: span.error.unwrap_or_default().into(),
        },
    };
    SpanData {
        span_context: context(span.context, tracestate, false),
        parent_span_id: SpanId::from(span.parent_span_id),
        parent_span_is_remote: kind == SpanKind::Server && span.parent_span_id != 0,
        span_kind: kind,
        name,
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

/// Returns the span name: method and tool or prompt, or the tool alone for some dashboards.
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

/// Span of a request to another server.
fn attributes_of(asked: SpanInfo) -> Vec<KeyValue> {
    let error_type = asked
        .error_type
        .map(|text| ("error.type", AttributeValue::Text(text)));
    let all = asked.attributes.into_iter().chain(error_type);
    all.map(|(name, value)| match value {
        AttributeValue::Text(text) => KeyValue::new(name, text),
        AttributeValue::Number(number) => KeyValue::new(name, number),
    })
    .collect()
}

/// Span of a request that this server handled.
fn served(key: &OperationKey, said: SpanExtras, operation: &Operation) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("mcp.method.name", operation.method.to_string()),
        KeyValue::new("jsonrpc.request.id", said.request_id),
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
    // Stateless protocol versions have no session ID.
    if key.revision.is_some_and(|revision| revision.has_sessions()) {
        add(
            "mcp.session.id",
            said.session.as_ref().map(ToString::to_string),
        );
    }
    add("mcp.resource.uri", said.resource_uri);
    add("gen_ai.tool.call.arguments", said.arguments);
    add("gen_ai.tool.call.result", said.result);
    add("error.type", key.verdict.error_type());
    add("rpc.response.status_code", key.verdict.status_code());
    if let Some(version) = key.wire.http_version() {
        add("network.protocol.name", Some("http".to_owned()));
        add("network.protocol.version", Some(version.to_owned()));
    }
    let address = said.peer.map(|peer| peer.address.to_string());
    add("client.address", address);
    let port = said.peer.and_then(|peer| peer.port);
    attributes.extend(port.map(|port| KeyValue::new("client.port", i64::from(port))));
    attributes
}
