//! Operator functions: health, the admin port, metrics, and shutdown.

use std::collections::BTreeMap;

use longshore::CallContext;
use longshore::telemetry::MetricsPolicy;
use serde_json::{Value, json};

use crate::support::{Connection, End, Gate, Response, Running, Serve, Stateless, becomes};

fn demo() -> Serve {
    Serve::new().toolset("demo")
}

fn sum() -> Value {
    json!({"operation": "add", "a": 1, "b": 2})
}

fn get(connection: &mut Connection, path: &str) -> Response {
    let text = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.send(text).receive()
}

/// The metrics page by line: name and labels, and the value.
fn metrics(server: &Running) -> BTreeMap<String, f64> {
    let page = get(&mut server.connect_to_admin(), "/metrics");
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let lines = page.body.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    pairs.collect()
}

/// The sum of all series of a name that have these labels.
fn total(metrics: &BTreeMap<String, f64>, name: &str, labels: &[&str]) -> f64 {
    let fits = |line: &str| {
        let (found, rest) = line.split_once('{').unwrap_or((line, ""));
        found == name && labels.iter().all(|label| rest.contains(label))
    };
    let found = metrics.iter().filter(|(line, _)| fits(line));
    found.map(|(_, value)| value).sum()
}

#[test]
fn health_says_what_is_served() {
    let server = Serve::demo();
    let health = get(&mut server.connect(), "/health");
    assert_eq!(health.status, 200);
    assert_eq!(health.header("cache-control"), Some("no-store"));
    let mut health = health.json();
    assert!(health["uptime_seconds"].take().is_u64());
    let tools = health["tools"].take();
    assert_eq!(health["tools_registered"].take(), tools);
    assert_eq!(
        health,
        json!({
            "status": "ok",
            "ok": true,
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_seconds": null,
            "revisions": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
            "tools_registered": null,
            "tools": null,
            "refused": [],
            "upstreams_configured": 0,
            "upstreams_connected": 0,
            "upstreams_down": 0,
            "active_clients": 1,
            "draining": false,
            "config_generation": 1,
        })
    );
}

#[test]
fn probes_are_answered_under_any_host_and_operators_pages_are_not() {
    let server = Serve::new().admin().start();
    for path in ["/livez", "/readyz", "/startupz", "/health", "/health/ready"] {
        let text = format!("GET {path} HTTP/1.1\r\nhost: 10.1.2.3:8080\r\n\r\n");
        let response = server.connect().send(text).receive();
        assert_eq!(
            (response.status, response.json()["ok"].as_bool()),
            (200, Some(true)),
            "{path}"
        );
        let text = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
        let response = server.connect().send(text).receive();
        assert_eq!(
            (response.status, response.header("allow")),
            (405, Some("GET, HEAD")),
            "{path}"
        );
    }
    for path in ["/metrics", "/health/detailed"] {
        let refused = get(&mut server.connect(), path);
        assert_eq!(refused.status, 403, "nobody proved anything: {path}");
        assert!(refused.body.contains("http.admin.port"), "{refused:?}");
        assert_eq!(get(&mut server.connect_to_admin(), path).status, 200);
        let text = format!("GET {path} HTTP/1.1\r\nhost: rebound.example\r\n\r\n");
        assert_eq!(server.connect_to_admin().send(text).receive().status, 403);
    }
    let nothing = get(&mut server.connect_to_admin(), "/mcp");
    assert_eq!(nothing.status, 404);
    let details = get(&mut server.connect_to_admin(), "/health/detailed").json();
    assert_eq!(
        (&details["ready"], &details["waits_for"]),
        (&json!(true), &json!([]))
    );
}

#[test]
fn calls_are_counted_by_tool_and_outcome_and_strangers_names_are_not() {
    let server = demo().admin().start();
    let session = server.session("2025-06-18");
    for _ in 0..3 {
        session.call("calculate", &sum()).result();
    }
    session.call("calculate", &json!({"a": "one"}));
    session.call("made-up-by-a-stranger", &json!({}));
    session.request("made/up", &json!({}));
    Stateless::call("calculate", sum()).send(&server).result();
    server.post(&[], "not JSON");

    let metrics = metrics(&server);
    let count = "mcp_server_operation_duration_seconds_count";
    let add = r#"gen_ai_tool_name="calculate""#;
    let call = r#"mcp_method_name="tools/call""#;
    assert_eq!(
        total(
            &metrics,
            count,
            &[
                call,
                add,
                "2025-06-18",
                r#"gen_ai_operation_name="execute_tool""#
            ]
        ),
        4.0
    );
    assert_eq!(
        total(
            &metrics,
            count,
            &[call, add, "2026-07-28", r#"network_protocol_version="1.1""#]
        ),
        1.0
    );
    assert_eq!(
        total(
            &metrics,
            count,
            &[
                add,
                r#"error_type="-32602""#,
                r#"rpc_response_status_code="-32602""#
            ]
        ),
        1.0
    );
    assert_eq!(
        total(&metrics, count, &[call, r#"gen_ai_tool_name="_OTHER""#]),
        1.0
    );
    assert_eq!(
        total(&metrics, count, &[r#"mcp_method_name="_OTHER""#]),
        1.0
    );
    assert_eq!(
        total(&metrics, count, &[r#"mcp_method_name="initialize""#]),
        1.0
    );
    assert!(
        metrics.keys().all(|line| !line.contains("made")),
        "{metrics:?}"
    );

    // Four good ones and a bad one, without the other labels.
    assert_eq!(
        total(
            &metrics,
            "longshore_operation_latency_seconds_count",
            &[add]
        ),
        5.0
    );
    let within = r#"le="300""#;
    assert_eq!(
        total(
            &metrics,
            "longshore_operation_latency_seconds_bucket",
            &[add, within]
        ),
        5.0
    );

    let http = "http_server_request_duration_seconds_count";
    let post = [r#"http_request_method="POST""#, r#"http_route="/mcp""#];
    assert_eq!(total(&metrics, http, &post), 9.0);
    assert_eq!(
        total(&metrics, http, &[r#"http_response_status_code="400""#]),
        1.0
    );
    assert_eq!(
        total(&metrics, "longshore_sessions_opened_total", &["2025-06-18"]),
        1.0
    );
    assert_eq!(total(&metrics, "mcp_inflight_requests", &[]), 0.0);
    assert_eq!(total(&metrics, "longshore_draining", &[]), 0.0);
    assert_eq!(total(&metrics, "longshore_ready", &[]), 1.0);
    assert_eq!(total(&metrics, "longshore_build_info", &["version="]), 1.0);
    assert!(total(&metrics, "process_memory_usage_bytes", &[]) > 1e6);
}

#[test]
fn results_that_are_errors_and_calls_that_nobody_waits_for_are_told_apart() {
    let (gate, tool) = Gate::new();
    let fails = longshore::tool_fn(
        longshore::Definition::new("fails"),
        |_: std::sync::Arc<CallContext>, _: serde_json::Map<String, Value>| async {
            Err::<String, _>(longshore::ToolError::new("no"))
        },
    );
    let server = Serve::new().tool(tool).tool(fails).admin().start();
    Stateless::call("fails", json!({})).send(&server).result();
    let mut waiting = server.connect();
    waiting.send(Stateless::call("gate", json!({})).text());
    gate.begun();
    assert_eq!(total(&metrics(&server), "mcp_inflight_requests", &[]), 1.0);
    drop(waiting);
    assert_eq!(gate.end(), End::Dropped);

    let count = "mcp_server_operation_duration_seconds_count";
    let seen = metrics(&server);
    assert_eq!(
        total(&seen, count, &[r#"error_type="tool_error""#, "fails"]),
        1.0
    );
    // The future is dropped, and with it what watches it; both happen in one drop.
    let cancelled = || {
        total(
            &metrics(&server),
            count,
            &[r#"error_type="cancelled""#, "gate"],
        )
    };
    becomes(|| cancelled() == 1.0);
    becomes(|| total(&metrics(&server), "mcp_inflight_requests", &[]) == 0.0);
}

#[test]
fn streams_are_counted_while_they_are_open() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(tool).admin().start();
    let call =
        Stateless::call("gate", json!({})).params(|p| p["_meta"]["progressToken"] = json!(1));
    let mut connection = server.connect();
    connection.send(call.text());
    assert_eq!(connection.receive_head().status, 200);
    gate.begun();
    assert_eq!(total(&metrics(&server), "mcp_open_streams", &[]), 1.0);
    gate.open();
    while connection.event().is_some() {}
    becomes(|| total(&metrics(&server), "mcp_open_streams", &[]) == 0.0);
    let count = "mcp_server_operation_duration_seconds_count";
    assert_eq!(total(&metrics(&server), count, &["gate"]), 1.0);
}

#[test]
fn requests_are_not_counted_where_that_is_switched_off() {
    let server = demo()
        .admin()
        .configured(|c| c.telemetry.metrics = MetricsPolicy::Off)
        .start();
    Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let metrics = metrics(&server);
    assert!(
        metrics
            .keys()
            .all(|line| !line.starts_with("mcp_server_operation")),
        "{metrics:?}"
    );
    assert!(total(&metrics, "longshore_tools", &[]) > 0.0);
}

#[test]
fn the_list_of_tools_is_measured_as_clients_get_it() {
    let measured = |above| {
        let server = demo()
            .admin()
            .configured(move |c| c.server.search.above = above)
            .start();
        let list = Stateless::new("tools/list", json!({}))
            .send(&server)
            .result();
        let tools = list["tools"].as_array().expect("tools");
        let size: usize = tools.iter().map(|tool| tool.to_string().len() + 1).sum();
        let metrics = metrics(&server);
        assert_eq!(
            total(&metrics, "longshore_tools_size_bytes", &[]),
            size as f64
        );
        size
    };
    assert_ne!(measured(None), measured(Some(1)));
}

#[test]
fn while_it_drains_it_is_not_ready_and_serves_for_its_delay() {
    let mut server = Serve::new()
        .admin()
        .configured(|c| {
            c.drain.grace_seconds = Some(30);
            c.drain.delay_seconds = Some(2);
        })
        .start();
    let mut probe = server.connect();
    assert_eq!(get(&mut probe, "/readyz").status, 200);
    server.begin_to_stop();
    becomes(|| {
        let ready = get(&mut server.connect(), "/readyz");
        ready.status == 503 && ready.json()["status"] == "draining"
    });
    assert_eq!(
        get(&mut server.connect(), "/livez").status,
        200,
        "the process lives"
    );
    assert_eq!(total(&metrics(&server), "longshore_draining", &[]), 1.0);
    // A connection of before and a new one are both served, and told to go.
    for mut connection in [probe, server.connect()] {
        let response = connection.post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        assert_eq!(response.header("connection"), Some("close"));
        connection.assert_closed();
    }
}

#[test]
fn an_application_answers_paths_of_its_own_behind_the_same_checks() {
    use bytes::Bytes;
    use http::{Request, Response};
    use longshore::net::Body;

    let server = Serve::new()
        .limits(|limits| limits.body_bytes = 100)
        .app(|app| {
            app.route("/echo", |request: Request<Bytes>| async move {
                let words = format!("{} {:?}", request.method(), request.body());
                Response::new(Body::from(words))
            })
            .route("/broken", |request: Request<Bytes>| async move {
                assert!(request.body().is_empty(), "no way");
                panic!("as planned")
            })
            .route("/health", |_| async { Response::new(Body::from("mine")) })
        })
        .start();
    let ask = |text: &str| server.connect().send(text).receive();
    let post = ask("POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi");
    assert_eq!((post.status, post.body.as_str()), (200, "POST b\"hi\""));
    let foreign = ask("GET /echo HTTP/1.1\r\nhost: elsewhere.example\r\n\r\n");
    assert_eq!(foreign.status, 403);
    let long = format!(
        "POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 101\r\n\r\n{}",
        "x".repeat(101)
    );
    assert_eq!(ask(&long).status, 413);
    assert_eq!(
        ask("GET /broken HTTP/1.1\r\nhost: localhost\r\n\r\n").status,
        500
    );
    // The server's own paths stay what they are.
    assert_eq!(
        ask("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").json()["status"],
        "ok"
    );
    assert_eq!(
        ask("GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n").status,
        404
    );
}

#[test]
fn paths_of_the_application_are_also_below_that_of_the_public_url() {
    use bytes::Bytes;
    use http::{Request, Response};
    use longshore::net::Body;

    let path = |request: Request<Bytes>| async move {
        Response::new(Body::from(request.uri().path().to_owned()))
    };
    let server = Serve::new()
        .configured(|c| c.http.public_url = Some("http://localhost/base".to_owned()))
        .app(|app| app.route("/echo", path).route("/base/own", path))
        .start();
    for (path, status) in [
        ("/echo", 200),
        ("/base/echo", 200),
        ("/base/own", 200),
        ("/other/echo", 404),
        ("/own", 404),
    ] {
        let response = server.page(path);
        assert_eq!(response.status, status, "{path}");
        if status == 200 {
            assert_eq!(response.body, path, "the request is passed on as it came");
        }
    }
}

#[test]
fn answers_say_how_long_they_took_if_that_is_wanted() {
    let silent = Serve::demo();
    assert_eq!(silent.post(&[], "{}").header("server-timing"), None);
    let telling = Serve::demo_with(|c| c.http.server_timing = true);
    for response in [
        get(&mut telling.connect(), "/livez"),
        telling.session("2025-11-25").call("calculate", &sum()),
        telling.post(&[], "{"),
    ] {
        let said = response.header("server-timing").expect("a time");
        let milliseconds = said.strip_prefix("longshore;dur=").expect("ours");
        let milliseconds: f64 = milliseconds.parse().expect("a number");
        assert!((0.0..60_000.0).contains(&milliseconds), "{said}");
    }
}

#[test]
fn clients_that_do_not_read_do_not_keep_the_admin_port_from_others() {
    let server = Serve::new().admin().start();
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // More responses than the sockets hold.
    let mut idle: Vec<Connection> = (0..64).map(|_| server.connect_to_admin()).collect();
    for connection in &mut idle {
        connection.send(request.repeat(800));
    }
    for _ in 0..3 {
        assert_eq!(get(&mut server.connect_to_admin(), "/readyz").status, 200);
    }
}

#[test]
fn probes_that_close_their_sending_side_get_a_response() {
    let server = demo().admin().start();
    for mut connection in [server.connect_to_admin(), server.connect()] {
        connection.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(connection.finish().receive().status, 200);
        connection.assert_closed();
    }
}

#[test]
fn the_admin_port_has_a_live_page_that_only_reads() {
    let server = Serve::new().admin().start();
    let page = get(&mut server.connect_to_admin(), "/");
    assert_eq!(page.status, 200);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("connect-src 'self'; "), "{policy}");
    assert!(page.body.contains("health/detailed"));
    let post = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(server.connect_to_admin().send(post).receive().status, 405);
    let foreign = "GET / HTTP/1.1\r\nhost: evil.example.com\r\n\r\n";
    assert_eq!(
        server.connect_to_admin().send(foreign).receive().status,
        403
    );
}
