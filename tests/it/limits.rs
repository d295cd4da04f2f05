//! Rate and concurrency limits from a client's view.

use std::sync::Arc;
use std::time::Duration;

use longshore::{CallContext, Config, tool};
use serde_json::{Value, json};

use crate::auth::{BOB, CI, holder};
use crate::support::{Gate, Response, Running, Serve, Stateless, becomes, request};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// Returns the message in capitals.
#[tool]
async fn shout(message: String) -> String {
    message.to_uppercase()
}

fn echoing() -> Stateless {
    Stateless::call("echo", json!({"message": "hi"}))
}

fn limited(change: impl FnOnce(&mut Config)) -> Running {
    Serve::new().tool(echo).configured(change).start()
}

/// Asserts that a request was refused for a limit, and that everybody can read when to come back.
#[track_caller]
fn refused(response: &Response, status: u16, setting: &str, id: &str) {
    response.error(status, i64::from(status), id);
    let data = &response.json()["error"]["data"];
    assert_eq!(data["setting"], setting);
    assert!(data["retryAfterMs"].as_u64().is_some_and(|ms| ms > 0));
    let seconds = response.header("retry-after").expect("says when");
    assert!(seconds.parse::<u64>().is_ok_and(|s| s > 0), "{seconds}");
    let is_a_rate = status == 429;
    assert_eq!(response.header("ratelimit").is_some(), is_a_rate);
    assert_eq!(response.header("ratelimit-policy").is_some(), is_a_rate);
}

#[test]
fn an_address_that_asks_too_often_is_told_when_to_come_back() {
    let server = limited(|c| {
        c.limits.address.per_second = 0.01;
        c.limits.address.burst = 3;
    });
    let mut connection = server.connect();
    for _ in 0..3 {
        echoing().send_on(&mut connection).result();
    }
    let response = echoing().send_on(&mut connection);
    refused(&response, 429, "limits.address", "");
    let policy = response.header("ratelimit-policy");
    assert_eq!(policy, Some("\"limits.address\";q=3;w=300"));
    // Probes are not counted, nor refused.
    connection.send("GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(connection.receive().status, 200);
}

#[test]
fn everybody_together_has_a_rate() {
    let server = limited(|c| {
        c.limits.server.per_second = 0.01;
        c.limits.server.burst = 1;
    });
    echoing().send(&server).result();
    refused(&echoing().send(&server), 429, "limits.server", "");
}

#[test]
fn a_tool_has_a_rate_and_others_have_not() {
    let server = Serve::new()
        .tool(echo)
        .tool(shout)
        .configured(|c| {
            c.limits = serde_json::from_value(json!({
                "tools": {"shout": {"per_second": 0.01, "burst": 1}}
            }))
            .expect("settings");
        })
        .start();
    let call = || Stateless::call("shout", json!({"message": "hi"}));
    call().send(&server).result();
    refused(&call().send(&server), 429, "limits.tools", "1");
    let session = server.session("2025-11-25");
    let response = session.call("shout", &json!({"message": "hi"}));
    refused(&response, 429, "limits.tools", "1");
    for _ in 0..10 {
        echoing().send(&server).result();
    }
}

#[test]
fn sessions_of_an_address_begin_at_a_rate() {
    let server = limited(|c| c.limits.initialize_per_minute = Some(2));
    let initialize = request("initialize", &json!({"protocolVersion": "2025-11-25"}));
    for _ in 0..2 {
        server.post(&[], &initialize).result();
    }
    let response = server.post(&[], &initialize);
    refused(&response, 429, "limits.initialize_per_minute", "1");
    // Requests without a session are not affected.
    echoing().send(&server).result();
}

#[test]
#[cfg(target_os = "linux")]
fn where_memory_is_short_no_session_begins_and_connections_are_not_kept() {
    let server = limited(|c| {
        c.limits.memory_bytes = 1 << 40;
        c.limits.memory_high_percent = 0;
    });
    let initialize = request("initialize", &json!({"protocolVersion": "2025-11-25"}));
    becomes(|| server.post(&[], &initialize).status == 503);
    let response = server.post(&[], &initialize);
    refused(&response, 503, "limits.memory_bytes", "1");
    let mut connection = server.connect();
    becomes(|| {
        let response = echoing().send_on(&mut connection);
        response.result();
        response.header("connection") == Some("close")
    });
    assert_eq!(server.page("/readyz").status, 200);
}

#[test]
#[cfg(target_os = "linux")]
fn where_memory_is_nearly_used_up_all_is_refused_but_what_says_so_or_gives_some_back() {
    let server = Serve::new()
        .tool(echo)
        .configured(|c| {
            c.limits.memory_bytes = 1 << 20;
            crate::auth::with_keys(c);
        })
        .start();
    let key = crate::auth::bearer(CI);
    becomes(|| server.page("/readyz").status == 503);
    for path in ["/readyz", "/health"] {
        assert_eq!(server.page(path).json()["waits_for"], json!(["memory"]));
    }
    let call = echoing().and("authorization", &key);
    refused(&call.send(&server), 503, "limits.memory_bytes", "");
    assert_eq!(server.page("/livez").status, 200);
    let with_key = |method: &str, path: &str| {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {key}\r\nmcp-session-id: x\r\n\r\n"
        );
        server.connect().send(text).receive()
    };
    assert_eq!(with_key("DELETE", "/mcp").status, 404);
    assert_eq!(with_key("GET", "/tools").status, 503);
    let metrics = with_key("GET", "/metrics");
    assert_eq!(metrics.status, 200);
    let hits = metrics.limit_hits("limits.memory_bytes");
    assert!(2 <= hits, "{hits}");
}

#[test]
fn a_principal_that_was_proved_has_a_rate_of_its_own() {
    let server = limited(|c| {
        c.auth.api_keys = vec![holder("ci", CI), holder("bob", BOB)];
        c.limits.principal.per_second = 0.01;
        c.limits.principal.burst = 2;
    });
    let call = |key: &str| {
        let bearer = format!("Bearer {key}");
        echoing().and("authorization", &bearer).send(&server)
    };
    call(CI).result();
    call(CI).result();
    refused(&call(CI), 429, "limits.principal", "");
    // Other callers are not affected: a rate belongs to the caller.
    call(BOB).result();
    let tools =
        format!("GET /tools HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {CI}\r\n\r\n");
    let response = server.connect().send(tools).receive();
    assert_eq!(response.status, 429);
    assert!(response.header("retry-after").is_some());
}

#[test]
fn rpc_06_each_message_of_an_array_counts_as_if_it_had_come_alone() {
    let server = limited(|c| {
        c.limits.address.per_second = 0.01;
        c.limits.address.burst = 20;
    });
    let session = server.session("2025-03-26");
    let pings: Vec<_> = (0..30)
        .map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
        .collect();
    let response = session.post(&Value::from(pings).to_string());
    assert_eq!(response.status, 200);
    let answers = response.json();
    let answers = answers.as_array().expect("an array");
    for (id, answer) in answers.iter().enumerate() {
        assert_eq!(answer["id"], id);
    }
    let served = answers.iter().take_while(|a| a.get("result").is_some());
    let served = served.count();
    // Beginning the session took some.
    assert!((15..20).contains(&served), "{served}");
    assert_eq!(answers.len(), 30);
    for answer in &answers[served..] {
        assert_eq!(answer["error"]["code"], 429, "{answer}");
        let data = &answer["error"]["data"];
        assert_eq!(data["setting"], "limits.address");
        assert!(data["retryAfterMs"].as_u64().is_some_and(|ms| ms > 0));
    }
    let alone = session.post(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    refused(&alone, 429, "limits.address", "");
}

#[test]
fn who_fails_to_prove_itself_too_often_is_told_to_wait_and_others_are_not_kept_out() {
    let server = limited(|c| {
        c.auth.api_keys = vec![holder("ci", CI)];
        c.limits.failed_authentications_per_minute = Some(2);
    });
    let call = |key: &str| {
        let bearer = format!("Bearer {key}");
        echoing().and("authorization", &bearer).send(&server)
    };
    for _ in 0..2 {
        assert_eq!(call("lsk_wrong").status, 401);
    }
    let setting = "limits.failed_authentications_per_minute";
    refused(&call("lsk_wrong"), 429, setting, "");
    call(CI).result();
    // A request without a credential is not a failed attempt.
    assert_eq!(echoing().send(&server).status, 401);
}

#[test]
fn calls_beyond_their_number_wait_in_line_and_the_last_is_refused() {
    let (gate, tool) = Gate::new();
    let server = Serve::new()
        .tool(echo)
        .tool(tool)
        .configured(|c| {
            c.limits.calls = Some(1);
            c.limits.queue = 1;
            c.limits.queue_ms = 20_000;
        })
        .start();
    let call = || Stateless::call("gate", json!({})).text();
    let mut first = server.connect();
    first.send(call());
    gate.begun();
    let mut second = server.connect();
    second.send(call());
    // Whichever of the two came first waits; the other is refused.
    let mut third = server.connect();
    third.send(call());
    let both = [&mut second, &mut third];
    for connection in &both {
        let timeout = Some(Duration::from_millis(20));
        connection
            .stream()
            .set_read_timeout(timeout)
            .expect("a socket");
    }
    let refused_one = loop {
        let mut byte = [0];
        let answered = both
            .iter()
            .position(|connection| matches!(connection.stream().peek(&mut byte), Ok(1)));
        if let Some(answered) = answered {
            break answered;
        }
    };
    for connection in &both {
        let timeout = Some(Duration::from_secs(20));
        connection
            .stream()
            .set_read_timeout(timeout)
            .expect("a socket");
    }
    refused(&both[refused_one].receive(), 503, "limits.calls", "1");
    // Other requests than calls do not wait.
    Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    gate.open();
    first.receive().result();
    gate.begun();
    gate.open();
    both[1 - refused_one].receive().result();
}

#[test]
fn a_tool_has_its_number_of_calls() {
    let (gate, tool) = Gate::new();
    let server = Serve::new()
        .tool(echo)
        .tool(tool)
        .configured(|c| {
            c.limits = serde_json::from_value(json!({
                "queue": 0, "tools": {"gate": {"calls": 1}}
            }))
            .expect("settings");
        })
        .start();
    let mut first = server.connect();
    first.send(Stateless::call("gate", json!({})).text());
    gate.begun();
    let second = Stateless::call("gate", json!({})).send(&server);
    refused(&second, 503, "limits.tools.calls", "1");
    echoing().send(&server).result();
    gate.open();
    first.receive().result();
}

#[test]
fn a_call_that_outlives_its_client_keeps_its_place() {
    let (gate, tool) = Gate::new();
    let server = Serve::new()
        .tool(tool)
        .configured(|c| {
            c.limits.calls = Some(1);
            c.limits.queue = 0;
        })
        .start();
    let session = server.session("2025-11-25");
    let mut gone = server.connect();
    gone.send(session.text("tools/call", &json!({"name": "gate"})));
    gate.begun();
    drop(gone);
    refused(&session.call("gate", &json!({})), 503, "limits.calls", "1");
    gate.open();
    gate.end();
}

#[test]
fn methods_of_the_application_have_a_time_and_a_place_too() {
    let forever = |_: Arc<CallContext>, _: Value| std::future::pending();
    let server = Serve::new()
        .app(|app| app.method("com.example/forever", forever))
        .configured(|c| c.server.call_timeout_seconds = 1)
        .start();
    let session = server.session("2025-11-25");
    let response = session.request("com.example/forever", &json!({}));
    let message = response.error(200, -32603, "1");
    assert_eq!(message, "the method did not respond within 1 s");
    let response = Stateless::new("com.example/forever", json!({})).send(&server);
    response.error(200, -32603, "1");
}

// === Browsers ===

const PAGE: &str = "https://app.example.com";

fn for_pages() -> Running {
    limited(|c| c.http.allowed_origins = vec![PAGE.to_owned()])
}

#[test]
fn pages_of_configured_origins_may_read_answers() {
    let server = for_pages();
    let response = echoing().and("origin", PAGE).send(&server);
    response.result();
    assert_eq!(response.header("access-control-allow-origin"), Some(PAGE));
    assert_eq!(response.header("access-control-allow-credentials"), None);
    assert_eq!(response.header("vary"), Some("origin"));
    let exposed = response.header("access-control-expose-headers");
    assert!(exposed.is_some_and(|names| names.contains("mcp-session-id")));
    // An allowed origin can read the error; other origins cannot.
    let response = echoing()
        .without("mcp-method")
        .and("origin", PAGE)
        .send(&server);
    response.error(400, -32020, "1");
    assert_eq!(response.header("access-control-allow-origin"), Some(PAGE));
    for headers in [&[][..], &[("origin", "https://evil.example.com")]] {
        let call = headers
            .iter()
            .fold(echoing(), |call, (name, value)| call.and(name, value));
        let response = call.send(&server);
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
}

#[test]
fn browsers_are_told_what_they_may_ask() {
    let server = for_pages();
    let ask = |origin: &str, headers: &str| {
        let text = format!(
            "OPTIONS /mcp HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\naccess-control-request-headers: {headers}\r\n\r\n"
        );
        server.connect().send(text).receive_head()
    };
    let response = ask(PAGE, "content-type,mcp-param-region,x-evil");
    assert_eq!(response.status, 204);
    assert_eq!(response.header("access-control-allow-origin"), Some(PAGE));
    let methods = response.header("access-control-allow-methods");
    assert_eq!(methods, Some("GET, POST, PUT, PATCH, DELETE"));
    let allowed = response
        .header("access-control-allow-headers")
        .expect("some");
    for name in [
        "authorization",
        "content-type",
        "mcp-session-id",
        "mcp-param-region",
        "user-agent",
        "baggage",
        "if-none-match",
    ] {
        assert!(allowed.contains(name), "{allowed}");
    }
    assert!(
        !allowed.contains("x-evil") && !allowed.contains('*'),
        "{allowed}"
    );
    let foreign = ask("https://evil.example.com", "content-type");
    assert_eq!(foreign.status, 403);
    assert_eq!(foreign.header("access-control-allow-origin"), None);
}

#[test]
fn without_configured_origins_no_page_is_told_anything() {
    let server = limited(|_| {});
    let response = echoing()
        .and("origin", "http://localhost:5173")
        .send(&server);
    response.result();
    assert_eq!(response.header("access-control-allow-origin"), None);
    assert_eq!(response.header("vary"), None);
    // A rejected preflight request names the setting, for people who look at developer tools.
    let asked = "OPTIONS /mcp HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost:5173\r\n\
                 access-control-request-method: POST\r\n\r\n";
    let refused = server.connect().send(asked).receive();
    assert_eq!(refused.status, 403);
    assert_eq!(refused.header("access-control-allow-origin"), None);
    assert_eq!(
        refused.json()["error"]["data"]["setting"],
        "http.allowed_origins"
    );
}

/// Returns many bytes.
#[tool]
async fn many(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[test]
fn large_responses_that_nobody_reads_are_bounded_and_small_ones_go_on() {
    const BYTES: usize = 16 * 1024 * 1024;
    let server = Serve::new()
        .tool(echo)
        .tool(many)
        .configured(|c| c.limits.response_bytes = Some(40 * 1024 * 1024))
        .admin()
        .start();
    let large = || Stateless::call("many", json!({"bytes": BYTES}));
    let mut unread = server.connect();
    unread.send(large().text());
    let length = unread.receive_head();
    let length = length
        .header("content-length")
        .expect("a length")
        .to_owned();
    // An address may use half of it, over any number of connections.
    refused(&large().send(&server), 503, "limits.response_bytes", "1");
    echoing().send(&server).result();
    let metrics = server.admin_page("/metrics");
    let waits = metrics.metric("longshore_responses_unread_bytes");
    assert!(
        BYTES as f64 <= waits && waits < 1.1 * BYTES as f64,
        "{waits}"
    );
    assert_eq!(metrics.limit_hits("limits.response_bytes"), 1);
    // Without MCP it is a problem document.
    let body = json!({"bytes": BYTES}).to_string();
    let plain = format!(
        "POST /tools/many HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let problem = server.connect().send(&*plain).receive();
    assert_eq!(problem.status, 503);
    let problem_body: Value = serde_json::from_str(&problem.body).expect("JSON");
    assert_eq!(problem_body["setting"], "limits.response_bytes");
    assert!(problem.header("retry-after").is_some());
    // Once it is read there is room again.
    unread.body(length.parse().expect("a number"));
    let text = large().send(&server).result()["content"][0]["text"].clone();
    assert_eq!(text.as_str().map(str::len), Some(BYTES));
    // Responses without MCP count as well.
    let mut unread = server.connect();
    unread.send(plain);
    assert_eq!(unread.receive_head().status, 200);
    refused(&large().send(&server), 503, "limits.response_bytes", "1");
}

#[test]
fn calls_of_one_address_without_a_name_run_so_many_at_once() {
    let (gate, tool) = Gate::new();
    let server = Serve::new()
        .tool(tool)
        .configured(|c| {
            c.limits.calls_per_address = Some(1);
            c.limits.queue = 0;
        })
        .start();
    let call = || Stateless::call("gate", json!({}));
    let mut first = server.connect();
    first.send(call().text());
    gate.begun();
    refused(&call().send(&server), 503, "limits.calls_per_address", "1");
    gate.open();
    first.receive().result();
}

#[test]
fn one_caller_does_not_take_a_tool_from_the_others() {
    let source = json!({"name": "c", "command": {
        "limits": {"concurrency": 4, "queue_ms": 20_000},
        "tools": [{"name": "wait", "argv": ["sleep", "{{ seconds }}"], "arguments": {"seconds": {"type": "string"}}}],
    }});
    let server = Serve::new()
        .configured(|c| {
            c.sources = vec![serde_json::from_value(source).expect("valid")];
            crate::auth::with_keys(c);
        })
        .start();
    let wait = |key: &str, seconds: &str| {
        Stateless::call("wait", json!({"seconds": seconds}))
            .and("authorization", &crate::auth::bearer(key))
    };
    let theirs: Vec<_> = (0..8)
        .map(|_| {
            let mut connection = server.connect();
            connection.send(wait(CI, "60").text());
            connection
        })
        .collect();
    // Their calls have begun once a fourth of them waits.
    becomes(|| {
        let metrics = server
            .connect()
            .send(format!(
                "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: {}\r\n\r\n",
                crate::auth::bearer(BOB)
            ))
            .receive()
            .body;
        metrics
            .contains("longshore_upstream_waiting_requests{upstream=\"wait\",kind=\"command\"} 5")
    });
    // It would be rejected after 20 s in the queue if theirs had to end first.
    wait(BOB, "0").send(&server).result();
    drop(theirs);
}
