//! Export to a collector: spans, metrics and log records, compared with the semantic conventions.

mod propagation;

use std::collections::BTreeSet;

use http::HeaderMap;
use longshore::net::TrustedProxies;
use longshore::telemetry::{ExportProtocol, SpanNames};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::metrics::v1::metric;
use opentelemetry_proto::tonic::trace::v1::{Span, span, status};
use serde_json::{Value, json};

use crate::support::collector::{
    Collector, Manner, Received, TRACE, expected, hex, span_named, texts,
};
use crate::support::{End, Gate, Serve, Stateless, becomes};

const AMBIENT: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn sum() -> Value {
    json!({"operation": "add", "a": 1, "b": 2})
}

/// Everything that a server with a collector is asked, and what the collector has of it.
fn observe(protocol: ExportProtocol) -> Received {
    let collector = Collector::start(protocol);
    let (gate, tool) = Gate::new();
    let reads = longshore::StaticResource::text(
        longshore::ResourceDefinition::new("memo://one", "one"),
        "text",
    );
    let server = collector
        .serve(protocol)
        .tool(tool)
        .app(|app| app.resource(reads))
        .start();

    let session = server.session("2025-06-18");
    session.call("calculate", &sum()).result();
    session.call("fail", &json!({}));
    session.call("made-up", &json!({}));
    session.request("made/up", &json!({}));
    let traced = Stateless::call("echo", json!({"message": "x"})).params(|params| {
        params["_meta"]["traceparent"] = format!("00-{TRACE}-b7ad6b7169203331-01").into();
        params["_meta"]["tracestate"] = "vendor=value".into();
    });
    let ambient = format!("00-{AMBIENT}-00f067aa0ba902b7-01");
    traced
        .clone()
        .and("traceparent", &ambient)
        .send(&server)
        .result();
    Stateless::new("resources/read", json!({"uri": "memo://one"}))
        .and("traceparent", &ambient)
        .send(&server)
        .result();
    // Its caller does not record the trace, so neither does the server.
    let unsampled = format!("00-{TRACE}-b7ad6b7169203331-00");
    Stateless::new("tools/list", json!({}))
        .and("traceparent", &unsampled)
        .send(&server)
        .result();
    let mut gone = server.connect();
    gone.send(Stateless::call("gate", json!({})).text());
    gate.begun();
    drop(gone);
    assert_eq!(gate.end(), End::Dropped);
    // Pending items are exported at shutdown.
    drop(server);
    collector.take()
}

#[track_caller]
fn check_spans(received: &Received) {
    let spans = &received.spans;
    let http = [
        ("network.transport", "tcp"),
        ("network.protocol.name", "http"),
        ("network.protocol.version", "1.1"),
        ("client.address", "127.0.0.1"),
    ];
    let attributes = |span: &Span, pairs: &[(&str, &str)]| {
        let mut found = texts(&span.attributes);
        // Named, but not known before.
        if let Some(session) = found.get_mut("mcp.session.id") {
            assert_eq!(session.len(), 32, "a name that opens nothing");
            session.clear();
        }
        let port = found.remove("client.port").map(|port| port.parse());
        assert!(matches!(port, Some(Ok(1..=u16::MAX))), "{port:?}");
        assert_eq!(found, expected(&[&http, pairs].concat()), "{}", span.name);
        assert_eq!(span.kind, span::SpanKind::Server as i32);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
    };
    let in_session = [
        ("mcp.protocol.version", "2025-06-18"),
        ("mcp.session.id", ""),
        ("jsonrpc.request.id", "1"),
    ];
    let alone = [
        ("mcp.protocol.version", "2026-07-28"),
        ("jsonrpc.request.id", "1"),
    ];

    let calculate = span_named(spans, "tools/call calculate");
    let tool = |name| {
        [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.tool.name", name),
            ("gen_ai.operation.name", "execute_tool"),
        ]
    };
    attributes(calculate, &[&in_session[..], &tool("calculate")].concat());
    assert!(calculate.parent_span_id.is_empty());
    assert_eq!(calculate.trace_id.len(), 16);
    assert_eq!(
        calculate.status.as_ref().map_or(0, |s| s.code),
        status::StatusCode::Unset as i32
    );

    let fail = span_named(spans, "tools/call fail");
    attributes(
        fail,
        &[
            &in_session[..],
            &tool("fail"),
            &[("error.type", "tool_error")],
        ]
        .concat(),
    );
    let failed = fail.status.as_ref().expect("a status");
    assert_eq!(
        (failed.code, failed.message.as_str()),
        (status::StatusCode::Error as i32, "")
    );

    let unknown = span_named(spans, "tools/call");
    let invalid = [
        ("error.type", "-32602"),
        ("rpc.response.status_code", "-32602"),
    ];
    attributes(
        unknown,
        &[&in_session[..], &tool("_OTHER"), &invalid].concat(),
    );
    let failed = unknown.status.as_ref().expect("a status");
    assert_eq!(failed.message, "Unknown tool: made-up");

    let other = span_named(spans, "_OTHER");
    let no_method = [
        ("mcp.method.name", "_OTHER"),
        ("error.type", "-32601"),
        ("rpc.response.status_code", "-32601"),
    ];
    attributes(other, &[&in_session[..], &no_method].concat());

    let initialize = span_named(spans, "initialize");
    attributes(
        initialize,
        &[
            ("mcp.method.name", "initialize"),
            ("mcp.protocol.version", "2025-06-18"),
            ("mcp.session.id", ""),
            ("jsonrpc.request.id", "1"),
        ],
    );

    // The context of the message is the parent; the one of its HTTP request is linked.
    let echo = span_named(spans, "tools/call echo");
    attributes(echo, &[&alone[..], &tool("echo")].concat());
    assert_eq!(hex(&echo.trace_id), TRACE);
    assert_eq!(hex(&echo.parent_span_id), "b7ad6b7169203331");
    assert_eq!(echo.trace_state, "vendor=value");
    assert_eq!(echo.links.len(), 1);
    assert_eq!(hex(&echo.links[0].trace_id), AMBIENT);
    assert_eq!(hex(&echo.links[0].span_id), "00f067aa0ba902b7");

    // Without `_meta` the HTTP request's context is the parent.
    let read = span_named(spans, "resources/read");
    let resource = [
        ("mcp.method.name", "resources/read"),
        ("mcp.resource.uri", "memo://one"),
    ];
    attributes(read, &[&alone[..], &resource].concat());
    assert_eq!(hex(&read.trace_id), AMBIENT);
    assert_eq!(hex(&read.parent_span_id), "00f067aa0ba902b7");
    assert!(read.links.is_empty());

    let gone = span_named(spans, "tools/call gate");
    attributes(
        gone,
        &[&alone[..], &tool("gate"), &[("error.type", "cancelled")]].concat(),
    );
    assert!(
        spans.iter().all(|span| span.name != "tools/list"),
        "not sampled"
    );
    assert_eq!(spans.len(), 8);
}

#[track_caller]
fn check_metrics(received: &Received) {
    let duration = &received.metrics["mcp.server.operation.duration"];
    assert_eq!(duration.unit, "s");
    let Some(metric::Data::Histogram(histogram)) = &duration.data else {
        panic!("{duration:?}");
    };
    // Cumulative.
    assert_eq!(histogram.aggregation_temporality, 2);
    let bounds = [
        0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    ];
    for point in &histogram.data_points {
        assert_eq!(point.explicit_bounds, bounds);
        assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
    }
    let of_calculate = histogram
        .data_points
        .iter()
        .find(|point| {
            texts(&point.attributes)
                .get("gen_ai.tool.name")
                .is_some_and(|n| n == "calculate")
        })
        .expect("calls of calculate");
    let attributes = [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "calculate"),
        ("gen_ai.operation.name", "execute_tool"),
        ("mcp.protocol.version", "2025-06-18"),
        ("network.transport", "tcp"),
        ("network.protocol.name", "http"),
        ("network.protocol.version", "1.1"),
    ];
    assert_eq!(texts(&of_calculate.attributes), expected(&attributes));
    assert_eq!(of_calculate.count, 1);
    let Some(metric::Data::Sum(sessions)) = &received.metrics["longshore.sessions.opened"].data
    else {
        panic!("no sum");
    };
    assert!(sessions.is_monotonic);
    assert!(matches!(
        received.metrics["mcp.inflight_requests"].data,
        Some(metric::Data::Gauge(_))
    ));
}

#[track_caller]
fn check_resources(received: &Received) {
    assert!(received.resources.len() >= 2, "spans and metrics");
    for resource in &received.resources {
        let attributes = texts(&resource.attributes);
        assert_eq!(attributes["service.name"], "test");
        assert_eq!(attributes["service.version"], "1");
        assert_eq!(attributes["telemetry.sdk.language"], "rust");
        for name in ["telemetry.sdk.name", "telemetry.sdk.version"] {
            assert!(!attributes[name].is_empty(), "{name}");
        }
    }
}

#[track_caller]
fn check_all(protocol: ExportProtocol, content_type: &str) {
    let received = observe(protocol);
    check_spans(&received);
    check_metrics(&received);
    check_resources(&received);
    let mut headers = received.headers.iter();
    assert!(headers.all(|h| h["content-type"] == content_type));
}

#[test]
fn spans_and_metrics_over_http_are_what_the_conventions_say() {
    check_all(ExportProtocol::Http, "application/x-protobuf");
}

#[test]
fn spans_and_metrics_over_grpc_are_the_same() {
    check_all(ExportProtocol::Grpc, "application/grpc");
}

#[test]
fn spans_have_other_names_arguments_and_results_where_that_is_wanted() {
    let collector = Collector::start(ExportProtocol::Http);
    let server = collector
        .serve(ExportProtocol::Http)
        .configured(|c| {
            c.telemetry.span_names = SpanNames::Tool;
            c.telemetry.record_arguments = true;
            c.telemetry.record_results = true;
        })
        .start();
    Stateless::call("calculate", sum()).send(&server).result();
    Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    drop(server);
    let received = collector.take();
    let span = span_named(&received.spans, "tool.calculate");
    let attributes = texts(&span.attributes);
    let arguments: Value =
        serde_json::from_str(&attributes["gen_ai.tool.call.arguments"]).expect("JSON");
    assert_eq!(arguments, sum());
    let result: Value = serde_json::from_str(&attributes["gen_ai.tool.call.result"]).expect("JSON");
    assert_eq!(result["structuredContent"], json!({"result": 3.0}));
    let list = span_named(&received.spans, "tools/list");
    assert!(!texts(&list.attributes).contains_key("gen_ai.tool.call.result"));
}

#[test]
fn behind_a_proxy_spans_have_the_clients_address_and_nobodys_port() {
    let collector = Collector::start(ExportProtocol::Http);
    let server = collector
        .serve(ExportProtocol::Http)
        .configured(|c| {
            c.http.trusted_proxies =
                TrustedProxies::from_iter(["127.0.0.0/8".parse().expect("a network")]);
        })
        .start();
    Stateless::call("calculate", sum())
        .and("x-forwarded-for", "203.0.113.7")
        .send(&server)
        .result();
    drop(server);
    let received = collector.take();
    let span = span_named(&received.spans, "tools/call calculate");
    let attributes = texts(&span.attributes);
    assert_eq!(attributes["client.address"], "203.0.113.7");
    assert!(!attributes.contains_key("client.port"), "{attributes:?}");
}

#[test]
fn nothing_is_recorded_of_what_is_not_sampled() {
    let collector = Collector::start(ExportProtocol::Http);
    let server = collector
        .serve(ExportProtocol::Http)
        .configured(|c| c.telemetry.sample = Some(0.0))
        .start();
    for _ in 0..20 {
        Stateless::call("calculate", sum()).send(&server).result();
    }
    drop(server);
    let received = collector.take();
    assert!(received.spans.is_empty());
    assert!(
        received
            .metrics
            .contains_key("mcp.server.operation.duration"),
        "all are counted"
    );
}

#[test]
fn a_collector_that_is_not_there_costs_no_call_and_no_second_at_the_end() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("an address");
    // It accepts connections and never responds.
    let server = Serve::new()
        .configured(|c| {
            c.telemetry.endpoint = Some(format!("http://{address}"));
            c.toolsets.push("demo".to_owned());
        })
        .start();
    for _ in 0..100 {
        Stateless::call("calculate", sum()).send(&server).result();
    }
    let start = std::time::Instant::now();
    drop(server);
    // A second for the collector; the rest is the patience of a busy machine.
    assert!(start.elapsed().as_secs() < 8, "{:?}", start.elapsed());
}

#[test]
fn metrics_do_not_wait_for_who_takes_spans() {
    for protocol in [ExportProtocol::Http, ExportProtocol::Grpc] {
        let collector = Collector::with(protocol, Manner::HoldsSpans);
        let server = collector.serve(protocol).start();
        Stateless::call("calculate", sum()).send(&server).result();
        drop(server);
        let received = collector.take();
        assert!(received.spans.is_empty());
        let counted = &received.metrics["mcp.server.operation.duration"];
        assert!(counted.data.is_some());
    }
}

#[test]
fn what_a_collector_says_that_it_did_not_take_is_counted() {
    let collector = Collector::with(ExportProtocol::Http, Manner::RejectsTwo);
    let server = collector.serve(ExportProtocol::Http).admin().start();
    let mut connection = server.connect();
    // A batch is sent at once.
    for _ in 0..512 {
        connection.send(Stateless::call("calculate", sum()).text());
        assert_eq!(connection.receive().status, 200);
    }
    becomes(|| {
        let text = server.admin_page("/metrics").body;
        text.contains(r#"longshore_export_dropped_total{signal="spans"} 2"#)
    });
}

#[test]
fn spans_are_sent_again_to_a_collector_that_is_not_available_for_some_seconds() {
    for protocol in [ExportProtocol::Http, ExportProtocol::Grpc] {
        let collector = Collector::with(protocol, Manner::IsStarting);
        let server = collector.serve(protocol).start();
        let mut connection = server.connect();
        // A batch is sent at once.
        for _ in 0..512 {
            connection.send(Stateless::call("calculate", sum()).text());
            assert_eq!(connection.receive().status, 200);
        }
        becomes(|| collector.span_count() == 512);
    }
}

/// Resource attributes of each signal, for a program that detects Cloud Run; with optional compression.
#[cfg(all(feature = "cli", unix))]
fn check_senders(protocol: ExportProtocol, word: &str, compression: &str) {
    use crate::support::{Served, longshore};

    let collector = Collector::start(protocol);
    let endpoint = format!("http://{}", collector.address);
    let arguments = ["run", "--host", "127.0.0.1", "--port", "0"];
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", word),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", compression),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=tests"),
        ("K_SERVICE", "weather"),
        ("K_REVISION", "weather-00001"),
        ("K_CONFIGURATION", "weather"),
        ("LONGSHORE_LOG", "info"),
    ];
    let mut program = Served::start(longshore(&arguments, &variables));
    let call = Stateless::call("echo", json!({"message": "x"}));
    call.send_on(&mut program.connect()).result();
    let id = program.process.id().to_string();
    program.process.signal("TERM");
    assert_eq!(program.process.exit_code(), Some(0));
    let received = collector.take();
    let signals: Vec<_> = received.by_signal.keys().copied().collect();
    assert_eq!(signals, ["logs", "metrics", "traces"]);
    let mut instances = BTreeSet::new();
    for (signal, resources) in &received.by_signal {
        for resource in resources {
            let found = texts(&resource.attributes);
            for (name, value) in [
                ("service.version", env!("CARGO_PKG_VERSION")),
                ("cloud.provider", "gcp"),
                ("cloud.platform", "gcp_cloud_run"),
                ("faas.name", "weather"),
                ("faas.version", "weather-00001"),
                ("deployment.environment.name", "serverless"),
                ("process.pid", &id),
                ("team", "tests"),
            ] {
                assert_eq!(
                    found.get(name).map(String::as_str),
                    Some(value),
                    "{signal} {name}"
                );
            }
            let number = resource.attributes.iter().find_map(|attribute| {
                let is_pid = attribute.key == "process.pid";
                attribute.value.as_ref()?.value.clone().filter(|_| is_pid)
            });
            let pid = id.parse().map(any_value::Value::IntValue).ok();
            assert_eq!(number, pid, "{signal}");
            instances.insert(found["service.instance.id"].clone());
        }
    }
    assert_eq!(instances.len(), 1, "{instances:?}");
    assert!(
        received
            .log_lines
            .iter()
            .any(|line| line.contains("serving")),
        "{:?}",
        received.log_lines
    );
    assert!(
        received
            .spans
            .iter()
            .any(|span| span.name == "tools/call echo")
    );
    let coded = |headers: &HeaderMap| {
        ["content-encoding", "grpc-encoding"]
            .iter()
            .any(|name| headers.get(*name).is_some_and(|coding| coding == "gzip"))
    };
    assert!(!received.headers.is_empty());
    let all_coded = received.headers.iter().all(coded);
    assert_eq!(all_coded, compression == "gzip", "{:?}", received.headers);
}

#[cfg(all(feature = "cli", unix))]
#[test]
fn every_signal_says_where_it_comes_from() {
    check_senders(ExportProtocol::Http, "http/protobuf", "none");
}

#[cfg(all(feature = "cli", unix))]
#[test]
fn what_is_sent_is_compressed_if_that_is_asked_for() {
    check_senders(ExportProtocol::Http, "http/protobuf", "gzip");
    check_senders(ExportProtocol::Grpc, "grpc", "gzip");
}
