//! Size and time limits. The timeout sweep runs once a second, so the tests allow three seconds for limits of one
//! second.

use longshore::tool;
use longshore::transport::http::HttpLimits;
use serde_json::json;

use crate::support::{Gate, Running, Serve, Stateless, post, request};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// Returns a text that fits into no socket's buffers.
#[tool]
async fn flood() -> String {
    "x".repeat(32 * 1024 * 1024)
}

fn limited(change: impl FnOnce(&mut HttpLimits)) -> Running {
    Serve::new().tool(echo).tool(flood).limits(change).start()
}

fn echoing(message: &str) -> Stateless {
    Stateless::call("echo", json!({"message": message}))
}

/// The head of a POST without the fields that frame its body.
const HEAD: &str = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

// === How much ===

#[test]
fn a_body_has_its_limit_to_the_byte() {
    let ping = request("ping", &json!({}));
    let server = limited(|l| l.body_bytes = ping.len());
    server.post(&[], &ping).error(400, -32600, "1");
    let mut connection = server.connect();
    let response = connection.post(&[], &(ping.clone() + " "));
    response.error(413, 413, "");
    assert_eq!(
        response.json()["error"]["data"],
        json!({"setting": "http.limits.body_bytes"})
    );
    assert_eq!(response.header("connection"), Some("close"));
    connection.assert_closed();
    // The same in chunks, without a declared length.
    let chunks = |body: &str| {
        let (one, other) = body.split_at(7);
        let (m, n) = (one.len(), other.len());
        format!(
            "{HEAD}transfer-encoding: chunked\r\n\r\n{m:x}\r\n{one}\r\n{n:x}\r\n{other}\r\n0\r\n\r\n"
        )
    };
    server
        .connect()
        .send(chunks(&ping))
        .receive()
        .error(400, -32600, "1");
    let mut connection = server.connect();
    connection
        .send(chunks(&(ping + " ")))
        .receive()
        .error(413, 413, "");
    connection.assert_closed();
}

#[test]
fn a_gibibyte_that_is_announced_is_refused_at_once() {
    let server = limited(|_| {});
    for length in [1 << 30, u64::MAX / 2] {
        let mut connection = server.connect();
        connection.send(format!("{HEAD}content-length: {length}\r\n\r\n"));
        let response = connection.receive();
        response.error(413, 413, "");
        assert_eq!(response.header("connection"), Some("close"));
        connection.assert_closed();
    }
}

#[test]
fn a_body_without_end_is_cut_off() {
    let server = limited(|l| l.body_bytes = 100_000);
    let mut connection = server.connect();
    connection.send(format!("{HEAD}transfer-encoding: chunked\r\n\r\n"));
    let chunk = format!("2710\r\n{}\r\n", " ".repeat(10_000));
    // The server may close while more is on its way.
    while connection.try_send(&chunk).is_ok() {}
    connection.assert_ends();
    echoing("still here").send(&server).result();
}

#[test]
fn a_target_has_its_limit_to_the_byte() {
    let server = limited(|l| l.target_bytes = 100);
    let mut connection = server.connect();
    let target = |length: usize| format!("/mcp?{}", "x".repeat(length - 5));
    let ask = |length| {
        echoing("hi")
            .text()
            .replace("POST /mcp ", &format!("POST {} ", target(length)))
    };
    connection.send(ask(100)).receive().result();
    connection.send(ask(101)).receive().error(414, 414, "");
    // A head above the buffer size is rejected earlier.
    let mut connection = server.connect();
    connection.send(ask(70_000));
    assert!(matches!(connection.receive_head().status, 414 | 431));
}

#[test]
fn header_fields_have_a_limit() {
    let server = limited(|l| l.header_bytes = 2000);
    let mut connection = server.connect();
    echoing("hi")
        .and("x-filler", &"x".repeat(1000))
        .send_on(&mut connection)
        .result();
    echoing("hi")
        .and("x-filler", &"x".repeat(2000))
        .send_on(&mut connection)
        .error(431, 431, "");
    let fields = (0..100).fold(echoing("hi"), |call, n| call.and(&format!("x-{n}"), "y"));
    let mut connection = server.connect();
    connection.send(fields.text());
    assert_eq!(connection.receive_head().status, 431);
    let mut connection = server.connect();
    connection.send(echoing("hi").and("x-filler", &"x".repeat(70_000)).text());
    assert_eq!(connection.receive_head().status, 431);
}

#[test]
fn a_connection_is_closed_after_so_many_requests() {
    let server = limited(|l| l.connection_requests = 3);
    let mut connection = server.connect();
    for last in [false, false, true] {
        let answer = echoing("hi").send_on(&mut connection);
        assert_eq!(answer.header("connection"), last.then_some("close"));
        answer.result();
    }
    connection.assert_closed();
}

#[test]
fn connections_beyond_the_limit_wait_while_none_is_idle() {
    let (gate, tool) = Gate::new();
    let server = Serve::new()
        .tool(echo)
        .tool(tool)
        .limits(|l| l.connections = 1)
        .start();
    let mut first = server.connect();
    first.send(Stateless::call("gate", json!({})).text());
    gate.begun();
    let mut second = server.connect();
    second.send(echoing("second").text());
    gate.assert_running();
    gate.open();
    first.receive().result();
    drop(first);
    assert_eq!(second.receive().result()["content"][0]["text"], "second");
}

#[test]
fn the_connection_that_is_idle_for_longest_makes_room_for_a_new_one() {
    let server = limited(|l| l.connections = 2);
    let (mut oldest, mut busy) = (server.connect(), server.connect());
    echoing("oldest").send_on(&mut oldest).result();
    // Part of a head is not nothing.
    busy.send("POST /mcp HTTP/1.1\r\n");
    let mut new = server.connect();
    echoing("new").send_on(&mut new).result();
    oldest.assert_closed();
    let rest = echoing("busy").text();
    busy.send(&rest["POST /mcp HTTP/1.1\r\n".len()..]);
    assert_eq!(busy.receive().result()["content"][0]["text"], "busy");
}

#[test]
fn an_address_has_its_number_of_connections() {
    let (gate, tool) = Gate::new();
    let server = Serve::new()
        .tool(echo)
        .tool(tool)
        .limits(|l| l.connections_per_address = Some(2))
        .start();
    let mut calling = [server.connect(), server.connect()];
    for connection in &mut calling {
        connection.send(Stateless::call("gate", json!({})).text());
        gate.begun();
    }
    // Neither of the two is idle, so the third is the one to go.
    server.connect().assert_closed();
    for connection in &mut calling {
        gate.open();
        connection.receive().result();
    }
    // A connection that has been idle for a second makes room.
    let mut byte = [0];
    while !matches!(
        server
            .connect()
            .send(echoing("third").text())
            .stream()
            .peek(&mut byte),
        Ok(1)
    ) {}
}

// === How long ===

#[test]
fn a_body_that_stops_half_way_is_answered_408() {
    let server = limited(|l| l.body_seconds = 1);
    let text = echoing("hi").text();
    let mut connections = [server.connect(), server.connect(), server.connect()];
    // A second request on a connection has as much time as the first.
    connections[0].send(&text).receive().result();
    for (connection, missing) in connections.iter_mut().zip([1, 1, 50]) {
        connection.send(&text[..text.len() - missing]);
    }
    for mut connection in connections {
        let response = connection.receive();
        response.error(408, 408, "");
        let setting = json!({"setting": "http.limits.body_seconds"});
        assert_eq!(response.json()["error"]["data"], setting);
        assert_eq!(response.header("connection"), Some("close"));
        connection.assert_closed();
    }
}

#[test]
fn a_body_whose_client_has_gone_is_nobodys() {
    let server = limited(|_| {});
    let text = echoing("hi").text();
    let mut connection = server.connect();
    connection.send(&text[..text.len() - 1]).finish();
    connection.assert_ends();
    echoing("still here").send(&server).result();
}

#[test]
fn a_head_that_does_not_end_closes_the_connection() {
    let server = limited(|l| l.header_seconds = 1);
    let beginnings = [
        "",
        "P",
        "PRI * HT",
        "POST /mcp HTTP/1.1\r\n",
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ",
    ];
    let connections = beginnings.map(|beginning| {
        let mut connection = server.connect();
        if beginning.is_empty() {
            // Also after a request that was good.
            echoing("hi").send_on(&mut connection).result();
            connection.send("POST /mcp HTTP/1.1\r\n");
        }
        connection.send(beginning);
        connection
    });
    for mut connection in connections {
        connection.assert_closed();
    }
}

#[test]
fn half_a_head_behind_an_answered_request_has_a_heads_time() {
    let server = limited(|l| {
        l.header_seconds = 1;
        l.idle_seconds = 600;
    });
    let mut connection = server.connect();
    connection.send(echoing("hi").text() + "POST /mcp HTTP/1.1\r\nhost: local");
    connection.receive().result();
    connection.assert_closed();
}

#[test]
fn a_client_that_goes_away_at_the_first_byte_leaves_nothing_behind() {
    let server = limited(|l| l.connections = 1);
    for beginning in ["", "P", "PRI * HTTP/2", "POST"] {
        let mut gone = server.connect();
        gone.send(beginning);
        drop(gone);
        // Its place is free again.
        echoing("next").send(&server).result();
    }
}

#[test]
fn a_connection_that_does_nothing_is_closed() {
    let server = limited(|l| l.idle_seconds = 1);
    let (mut fresh, mut used) = (server.connect(), server.connect());
    echoing("hi").send_on(&mut used).result();
    fresh.assert_closed();
    used.assert_closed();
}

#[test]
fn a_connection_whose_call_takes_long_is_not_idle() {
    let (gate, tool) = Gate::new();
    let server = Serve::new()
        .tool(tool)
        .limits(|l| {
            l.idle_seconds = 1;
            l.header_seconds = 1;
            l.body_seconds = 1;
            l.write_stall_seconds = 1;
        })
        .start();
    let mut connection = server.connect();
    connection.send(Stateless::call("gate", json!({})).text());
    gate.begun();
    // A connection that becomes idle is closed, and this one is not.
    server.connect().assert_closed();
    gate.assert_running();
    gate.open();
    connection.receive().result();
}

#[test]
fn a_connection_is_not_idle_during_a_call_before_which_something_was_sent() {
    let call = || Stateless::call("gate", json!({}));
    for (text, before) in [
        (echoing("hi").text() + &call().text(), 200),
        (call().and("expect", "100-continue").text(), 100),
    ] {
        let (gate, tool) = Gate::new();
        let server = Serve::new()
            .tool(echo)
            .tool(tool)
            .limits(|l| {
                l.idle_seconds = 1;
                l.header_seconds = 1;
            })
            .start();
        let mut connection = server.connect();
        connection.send(text);
        assert_eq!(connection.receive().status, before);
        gate.begun();
        // The next request waits until the call is done.
        connection.send(echoing("next").text());
        server.connect().assert_closed();
        gate.assert_running();
        gate.open();
        connection.receive().result();
        connection.receive().result();
    }
}

#[test]
fn an_answer_that_nobody_takes_is_given_up() {
    let server = limited(|l| {
        l.write_stall_seconds = 1;
        l.connections = 1;
    });
    let mut deaf = server.connect();
    deaf.send(Stateless::call("flood", json!({})).text());
    // There is room for another connection only once this one is gone.
    let mut next = server.connect();
    next.send(echoing("next").text());
    next.receive().result();
    drop(deaf);
}

#[test]
fn an_answer_that_is_taken_slowly_comes_whole() {
    let server = limited(|_| {});
    let mut connection = server.connect();
    connection.send(Stateless::call("flood", json!({})).text() + &post(&[], "x"));
    let answer = connection.receive();
    assert!(answer.body.len() > 32 * 1024 * 1024);
    connection.receive().error(400, -32700, "");
}
