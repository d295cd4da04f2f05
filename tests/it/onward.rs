//! Traces go on to those whom a call asks: upstreams, APIs and commands.

use std::sync::Arc;

use http::HeaderMap;
use longshore::source::UpstreamConfig;
use longshore::telemetry::ExportProtocol;
use longshore::{CallContext, Definition, ResourceDefinition, StaticResource, ToolError, tool_fn};
use opentelemetry_proto::tonic::metrics::v1::metric;
use opentelemetry_proto::tonic::trace::v1::{Span, span, status};
use serde_json::{Map, Value, json};

use crate::support::collector::{Collector, Received, TRACE, expected, hex, span_named, texts};
use crate::support::{Running, Serve, Site, Stateless, Told};

const CALLER: &str = "b7ad6b7169203331";

/// A call of a traced caller.
fn traced(request: Stateless) -> Stateless {
    request.params(|params| {
        params["_meta"]["traceparent"] = format!("00-{TRACE}-{CALLER}-01").into();
        params["_meta"]["tracestate"] = "vendor=value".into();
        params["_meta"]["baggage"] = "user=7".into();
    })
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("text")
}

/// A server whose tools and resources return the trace context that they receive.
fn upstream() -> Running {
    let sees = tool_fn(
        Definition::new("sees"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let mut headers = HeaderMap::new();
            context.propagate(&mut headers);
            // The message says the same as its HTTP request.
            let of_request = context.headers().expect("HTTP");
            for name in ["traceparent", "tracestate"] {
                assert_eq!(headers.get(name), of_request.get(name));
            }
            let said = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII")));
            Ok::<_, ToolError>(said.collect::<Vec<_>>().join("\n"))
        },
    );
    let fails = tool_fn(
        Definition::new("fails"),
        |_: Arc<CallContext>, _: Map<String, Value>| async move {
            Err::<String, _>(ToolError::new("it went wrong"))
        },
    );
    let one = StaticResource::text(ResourceDefinition::new("memo://one", "one"), "text");
    Serve::new()
        .tool(sees)
        .tool(fails)
        .app(|app| app.resource(one))
        .start()
}

fn before(upstream: &Running, serve: Serve) -> Serve {
    let url = format!("http://{}/mcp", upstream.address());
    let config: UpstreamConfig = serde_json::from_value(json!({"url": url})).expect("valid");
    serve.configured(|c| {
        c.upstreams.insert("up".to_owned(), config);
    })
}

/// Checks that a span is the child of the other span's call.
#[track_caller]
fn check_child(span: &Span, parent: &Span, pairs: &[(&str, &str)]) {
    assert_eq!(span.kind, span::SpanKind::Client as i32, "{}", span.name);
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(span.trace_id, parent.trace_id);
    assert_eq!(span.parent_span_id, parent.span_id);
    assert_eq!(span.trace_state, "vendor=value");
    assert!(parent.start_time_unix_nano <= span.start_time_unix_nano);
    let mut found = texts(&span.attributes);
    // Counted by the connection, which has asked other things before.
    found.remove("jsonrpc.request.id");
    assert_eq!(found, expected(pairs), "{}", span.name);
    let failed = pairs.iter().any(|(name, _)| *name == "error.type");
    let code = span.status.as_ref().map_or(0, |status| status.code);
    let error = status::StatusCode::Error as i32;
    assert_eq!(code == error, failed, "{}", span.name);
}

#[test]
fn trc_01_what_an_upstream_is_asked_is_a_span_whose_place_it_is_told() {
    let upstream = upstream();
    let collector = Collector::start(ExportProtocol::Http);
    let server = before(&upstream, collector.serve(ExportProtocol::Http)).start();
    let sees = traced(Stateless::call("up__sees", json!({})));
    let result = sees.send(&server).result();
    traced(Stateless::call("up__fails", json!({})))
        .send(&server)
        .result();
    traced(Stateless::new(
        "resources/read",
        json!({"uri": "memo://one"}),
    ))
    .send(&server)
    .result();
    drop(server);
    let received = collector.take();
    let port = upstream.address().port().to_string();
    let all = [
        ("mcp.protocol.version", "2026-07-28"),
        ("network.transport", "tcp"),
        ("network.protocol.name", "http"),
        ("server.address", "127.0.0.1"),
        ("server.port", &port),
    ];
    let tool = |name| {
        [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.tool.name", name),
            ("gen_ai.operation.name", "execute_tool"),
        ]
    };
    let spans = &received.spans;
    let seen = span_named(spans, "tools/call sees");
    let parent = span_named(spans, "tools/call up__sees");
    check_child(seen, parent, &[&all[..], &tool("sees")].concat());
    assert!(
        texts(&seen.attributes)["jsonrpc.request.id"]
            .parse::<u64>()
            .is_ok()
    );
    // Baggage is a stranger's word, and stays here.
    let traceparent = format!("traceparent: 00-{TRACE}-{}-01", hex(&seen.span_id));
    assert_eq!(
        text(&result),
        format!("{traceparent}\ntracestate: vendor=value")
    );

    let failed = span_named(spans, "tools/call fails");
    let parent = span_named(spans, "tools/call up__fails");
    let error = [("error.type", "tool_error")];
    check_child(failed, parent, &[&all[..], &tool("fails"), &error].concat());

    let kind = |kind: span::SpanKind| move |span: &&Span| span.kind == kind as i32;
    let reads = || spans.iter().filter(|span| span.name == "resources/read");
    let read = reads().find(kind(span::SpanKind::Client)).expect("one");
    let parent = reads().find(kind(span::SpanKind::Server)).expect("one");
    let resource = [
        ("mcp.method.name", "resources/read"),
        ("mcp.resource.uri", "memo://one"),
    ];
    check_child(read, parent, &[&all[..], &resource].concat());
    assert_eq!(spans.len(), 6);
}

#[test]
fn an_upstream_is_told_of_its_callers_trace_where_none_is_recorded_here() {
    let upstream = upstream();
    let server = before(&upstream, Serve::new()).start();
    let result = traced(Stateless::call("up__sees", json!({})))
        .send(&server)
        .result();
    let said = format!("traceparent: 00-{TRACE}-{CALLER}-01\ntracestate: vendor=value");
    assert_eq!(text(&result), said);
    let nothing = Stateless::call("up__sees", json!({}));
    assert_eq!(text(&nothing.send(&server).result()), "");
}

#[test]
fn a_session_with_an_upstream_is_timed() {
    let script = r#"while read -r line; do
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        case "$line" in
        *server/discover*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
        *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"0"}}}' ;;
        *tools/list*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"die","inputSchema":{"type":"object"}}]}}' ;;
        *tools/call*) exit 1 ;;
        esac
    done"#;
    let config: UpstreamConfig =
        serde_json::from_value(json!({"command": "sh", "args": ["-c", script]})).expect("valid");
    let collector = Collector::start(ExportProtocol::Http);
    let server = collector
        .serve(ExportProtocol::Http)
        .configured(|c| {
            c.upstreams.insert("up".to_owned(), config);
        })
        .start();
    let result = traced(Stateless::call("up__die", json!({})))
        .send(&server)
        .result();
    assert_eq!(result["isError"], true);
    drop(server);
    let received = collector.take();
    let failed = span_named(&received.spans, "tools/call die");
    let parent = span_named(&received.spans, "tools/call up__die");
    let attributes = [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "die"),
        ("gen_ai.operation.name", "execute_tool"),
        ("network.transport", "pipe"),
        ("error.type", "connection_error"),
    ];
    check_child(failed, parent, &attributes);
    let sessions = &received.metrics["mcp.client.session.duration"];
    assert_eq!(sessions.unit, "s");
    let Some(metric::Data::Histogram(histogram)) = &sessions.data else {
        panic!("{sessions:?}");
    };
    let of_lost = [
        ("mcp.protocol.version", "2024-11-05"),
        ("network.transport", "pipe"),
        ("error.type", "connection_error"),
    ];
    let lost = histogram.data_points.iter();
    let lost = lost.filter(|point| texts(&point.attributes) == expected(&of_lost));
    assert_eq!(
        lost.map(|point| point.count).sum::<u64>(),
        1,
        "{histogram:?}"
    );
}

/// Two tools that ask a site for the same, one that a document describes and one that the configuration does.
fn asking(site: &Site, serve: Serve) -> Serve {
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": site.url}],
        "paths": {"/pets/{id}": {"get": {
            "operationId": "pet",
            "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
            "responses": {"200": {"description": "A pet."}},
        }}},
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pets.json");
    std::fs::write(&file, document.to_string()).expect("written");
    let sources = json!([
        {"name": "pets", "openapi": {"document": file, "server": site.url}},
        {"name": "plain", "http": {"base_url": site.url, "tools": [
            {"name": "plain", "url": "/plain?secret={{ word }}", "arguments": {"word": {}}},
            {"name": "own", "url": "/own", "headers": {"traceparent": "mine"}},
        ]}},
    ]);
    let sources = serde_json::from_value(sources).expect("sources");
    serve.configured(|c| {
        c.sources = sources;
        // The document is read when the server starts.
        std::mem::forget(folder);
    })
}

fn site() -> Site {
    Site::start(|_, asked| match &*asked.target {
        "/pets/7" => Told::json(404, json!({"detail": "there is no such pet"})),
        _ => Told::json(200, json!({"ok": true})),
    })
}

#[test]
fn what_an_api_is_asked_is_a_span_whose_place_it_is_told() {
    let site = site();
    let collector = Collector::start(ExportProtocol::Http);
    let server = asking(&site, collector.serve(ExportProtocol::Http)).start();
    for (tool, arguments) in [
        ("pets__pet", json!({"id": "7"})),
        ("plain", json!({"word": "sesame"})),
        ("own", json!({})),
    ] {
        traced(Stateless::call(tool, arguments))
            .send(&server)
            .result();
    }
    drop(server);
    let received: Received = collector.take();
    let spans = &received.spans;
    let port = site.url.rsplit(':').next().expect("a port");
    let all = [
        ("http.request.method", "GET"),
        ("network.protocol.name", "http"),
        ("url.scheme", "http"),
        ("server.address", "127.0.0.1"),
        ("server.port", port),
    ];
    let told = |path: &str| site.asked(path).pop().expect("asked").headers;

    let pet = span_named(spans, "GET /pets/{id}");
    let parent = span_named(spans, "tools/call pets__pet");
    let not_found = [
        ("url.template", "/pets/{id}"),
        ("http.response.status_code", "404"),
        ("error.type", "404"),
    ];
    check_child(pet, parent, &[&all[..], &not_found].concat());
    let headers = told("/pets/7");
    let traceparent = |span: &Span| format!("00-{TRACE}-{}-01", hex(&span.span_id));
    assert_eq!(headers["traceparent"], traceparent(pet));
    assert_eq!(headers["tracestate"], "vendor=value");
    assert!(!headers.contains_key("baggage"));

    let of = |tool: &str| {
        let parent = span_named(spans, &format!("tools/call {tool}"));
        let of_parent = |span: &&Span| span.parent_span_id == parent.span_id;
        (spans.iter().find(of_parent).expect("a child"), parent)
    };
    let fine = [("http.response.status_code", "200")];
    let (plain, parent) = of("plain");
    assert_eq!(plain.name, "GET", "neither the URL nor its arguments");
    check_child(plain, parent, &[&all[..], &fine].concat());
    assert_eq!(told("/plain")["traceparent"], traceparent(plain));

    let (own, parent) = of("own");
    check_child(own, parent, &[&all[..], &fine].concat());
    assert_eq!(
        told("/own")["traceparent"],
        "mine",
        "who writes it means it"
    );
}

#[test]
fn commands_have_the_trace_in_their_environment() {
    let sources = json!([
        {"name": "plain", "command": {"tools": [
            {"name": "place", "argv": ["sh", "-c", "echo $TRACEPARENT $TRACESTATE $BAGGAGE"]},
        ]}},
        {"name": "own", "command": {"environment": {"TRACEPARENT": "mine"}, "tools": [
            {"name": "own", "argv": ["sh", "-c", "echo $TRACEPARENT"]},
        ]}},
    ]);
    let sources = serde_json::from_value(sources).expect("sources");
    let server = Serve::new().configured(|c| c.sources = sources).start();
    let said = |request: Stateless| text(&request.send(&server).result()).trim().to_owned();
    let place = Stateless::call("place", json!({}));
    let expected = format!("00-{TRACE}-{CALLER}-01 vendor=value");
    assert_eq!(said(traced(place.clone())), expected);
    assert_eq!(said(place), "the command wrote no output");
    assert_eq!(said(traced(Stateless::call("own", json!({})))), "mine");
}
