//! Boundaries between requests on a connection.

use longshore::tool;
use serde_json::json;

use crate::support::{Gate, Serve, Stateless};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

fn echoing(message: &str) -> Stateless {
    Stateless::call("echo", json!({"message": message}))
}

/// A request whose body is framed in another way: instead of `content-length: n`, and the body with it.
fn framed(header: &str, frame: impl FnOnce(&str) -> String) -> String {
    let text = echoing("hi").text();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let (head, length) = head.rsplit_once("\r\n").expect("several fields");
    assert!(length.starts_with("content-length: "));
    let header = header.replace("LENGTH", &body.len().to_string());
    format!("{head}\r\n{header}\r\n\r\n{}", frame(body))
}

/// A body in two chunks.
fn chunked(body: &str) -> String {
    let (one, other) = body.split_at(10);
    format!(
        "a\r\n{one}\r\n{:X};name=\"value\"\r\n{other}\r\n0\r\n\r\n",
        other.len()
    )
}

#[test]
fn chunked_bodies_are_put_together_again() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for _ in 0..2 {
        let answer = connection
            .send(framed("transfer-encoding: chunked", chunked))
            .receive();
        assert_eq!(answer.result()["content"][0]["text"], "hi");
    }
    let with_trailers = framed("Transfer-Encoding: Chunked", |body| {
        chunked(body).replace("0\r\n\r\n", "0\r\nmcp-name: other\r\n\r\n")
    });
    assert_eq!(
        connection.send(with_trailers).receive().result()["isError"],
        false
    );
    assert_eq!(
        echoing("again").send_on(&mut connection).result()["isError"],
        false
    );
}

#[test]
fn a_connection_goes_on_in_however_many_pieces_its_requests_come() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    let long = "x".repeat(300_000);
    let chunks = framed("transfer-encoding: chunked", chunked);
    for (text, said) in [
        (echoing("hi").text(), "hi"),
        (chunks, "hi"),
        (echoing(&long).text(), &long),
    ] {
        let body = text.find("\r\n\r\n").expect("a head") + 4;
        for cuts in [
            vec![],
            vec![body],
            vec![body - 2],
            vec![body, body + 20],
            vec![body + 20, text.len() - 1],
        ] {
            // The next one comes in one piece with the end of this one.
            let both = text.clone() + &text;
            let mut sent = 0;
            for cut in cuts {
                connection.send(&both[sent..cut]);
                std::thread::yield_now();
                sent = cut;
            }
            connection.send(&both[sent..]);
            for _ in 0..2 {
                assert_eq!(connection.receive().result()["content"][0]["text"], said);
            }
        }
    }
}

#[test]
fn a_rejection_before_the_body_announces_the_end_of_the_connection() {
    let server = Serve::new().tool(echo).start();
    let good = echoing("hi").text();
    let json = "content-type: application/json\r\n";
    for (name, wrong, status) in [
        (
            "type",
            good.replace(json, "content-type: text/plain\r\n"),
            415,
        ),
        ("path", good.replace("POST /mcp ", "POST /nothing "), 404),
        ("method", good.replace("POST /mcp ", "PUT /mcp "), 405),
        (
            "host",
            good.replace("host: localhost", "host: evil.example.com"),
            403,
        ),
    ] {
        let body = wrong.find("\r\n\r\n").expect("a head") + 4;
        for part in [body, body + 10] {
            let mut connection = server.connect();
            let response = connection.send(&wrong[..part]).receive();
            let found = (response.status, response.header("connection"));
            assert_eq!(found, (status, Some("close")), "{name}");
            connection.assert_closed();
        }
        // A whole body is dropped, and the connection stays open.
        let mut connection = server.connect();
        let response = connection.send(&wrong).receive();
        let found = (response.status, response.header("connection"));
        assert_eq!(found, (status, None), "{name}");
        let next = echoing("hi").send_on(&mut connection).result();
        assert_eq!(next["isError"], false);
    }
}

#[test]
fn framings_that_can_be_read_in_two_ways_are_refused_and_the_connection_closed() {
    let server = Serve::new().tool(echo).start();
    for header in [
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: gzip",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: identity",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: chunked, chunked",
        "content-length: LENGTH\r\ncontent-length: 5",
        "content-length: +5",
        "content-length: 5, 5",
        "content-length: 0x5",
        "content-length: -1",
        "content-length: ",
        "content-length: 99999999999999999999999",
        "content-length : LENGTH",
        "transfer-encoding : chunked",
    ] {
        let mut connection = server.connect();
        connection.send(framed(header, chunked));
        let response = connection.receive();
        assert_eq!(response.status, 400, "{header:?} {response:?}");
        connection.assert_closed();
    }
    let old = framed("transfer-encoding: chunked", chunked).replace("HTTP/1.1", "HTTP/1.0");
    let mut connection = server.connect();
    assert_eq!(connection.send(old).receive().status, 400);
    connection.assert_closed();
    let long_target = format!("POST /mcp?{} ", "a".repeat(9_000));
    let framed = framed("transfer-encoding: gzip, chunked", chunked);
    let mut connection = server.connect();
    connection.send(framed.replace("POST /mcp ", &long_target));
    assert_eq!(connection.receive().status, 400);
    connection.assert_closed();
}

#[test]
fn a_length_beside_chunks_is_refused_also_behind_a_good_request() {
    let server = Serve::new().tool(echo).start();
    let smuggled = echoing("smuggled").text();
    for header in [
        "content-length: LENGTH\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: LENGTH",
        "content-length: 3\r\ntransfer-encoding: chunked",
        "content-length: 0\r\ntransfer-encoding: chunked",
    ] {
        let mut connection = server.connect();
        let good = echoing("good").text() + &framed("transfer-encoding: chunked", chunked);
        connection.send(good + &framed(header, chunked) + &smuggled);
        assert_eq!(connection.receive().result()["content"][0]["text"], "good");
        assert_eq!(connection.receive().result()["content"][0]["text"], "hi");
        assert_eq!(connection.receive().status, 400, "{header:?}");
        // The rest is not taken as a request.
        connection.assert_closed();
    }
}

#[test]
fn a_length_beside_chunks_is_seen_in_whatever_pieces_it_comes() {
    let server = Serve::new().tool(echo).start();
    let text = framed(
        "content-length: LENGTH\r\ntransfer-encoding: chunked",
        chunked,
    );
    let fields = text.find("content-length").expect("is there");
    for cut in (fields..fields + 60).step_by(7) {
        let mut connection = server.connect();
        let (one, other) = text.split_at(cut);
        connection.send(one);
        // The server reads the first piece before the other is sent.
        echoing("meanwhile").send(&server).result();
        let _ = connection.try_send(other);
        assert_eq!(connection.receive_head().status, 400, "cut at {cut}");
    }
}

#[test]
fn a_rejected_body_in_chunks_that_has_arrived_leaves_the_connection_open() {
    let server = Serve::new().tool(echo).start();
    // Rejected for its path, and for its head alone.
    for (line, status) in [
        ("/nowhere HTTP/1.1\r\nhost: localhost", 404),
        ("/mcp HTTP/1.1\r\nhost: other.example", 403),
    ] {
        let head = format!("POST {line}\r\ntransfer-encoding: chunked\r\n\r\n");
        let mut connection = server.connect();
        for chunks in ["2\r\n{}\r\n", "1\r\n{\r\n1\r\n}\r\n", ""] {
            let response = connection
                .send(format!("{head}{chunks}0\r\n\r\n"))
                .receive();
            assert_eq!(
                (response.status, response.header("connection")),
                (status, None)
            );
        }
        let response = connection.send(format!("{head}2\r\n{{}}\r\n")).receive();
        assert_eq!(response.header("connection"), Some("close"));
        connection.assert_closed();
    }
}

#[test]
fn chunks_that_are_none_are_refused_and_the_connection_closed() {
    let server = Serve::new().tool(echo).start();
    for chunks in [
        "x\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc",
        "\r\nabc",
    ] {
        let mut connection = server.connect();
        connection.send(framed("transfer-encoding: chunked", |_| chunks.to_owned()));
        let response = connection.receive();
        response.error(400, 400, "");
        connection.assert_closed();
    }
}

#[test]
fn what_is_no_http_is_refused_and_the_connection_closed() {
    let server = Serve::new().tool(echo).start();
    for text in [
        "nonsense\r\n\r\n",
        "POST /mcp\r\n\r\n",
        "POST /mcp HTTP/1.1\r\nhost localhost\r\n\r\n",
        "POST /mcp HTTP/1.1\r\nho st: localhost\r\n\r\n",
        "POST /mcp HTTP/1.1\r\nhost: local\0host\r\n\r\n",
        "POST /m cp HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00",
    ] {
        let mut connection = server.connect();
        connection.send(text).finish();
        let response = connection.receive_head();
        assert_eq!(response.status, 400, "{text:?}");
    }
}

#[test]
fn a_client_that_closes_only_its_sending_side_gets_the_whole_response() {
    let server = Serve::new().tool(echo).start();
    // The large one does not fit into the socket's buffers.
    for (message, times) in [("hi".to_owned(), 20), ("x".repeat(3_000_000), 2)] {
        for _ in 0..times {
            let mut connection = server.connect();
            connection.send(echoing(&message).text()).finish();
            let result = connection.receive().result();
            assert!(result["content"][0]["text"] == message);
            connection.assert_closed();
        }
    }
    let mut connection = server.connect();
    let ping = "GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.send(ping.repeat(3)).finish();
    for _ in 0..3 {
        assert_eq!(connection.receive().status, 200);
    }
    connection.assert_closed();
}

#[test]
fn a_response_before_the_body_announces_the_end_of_the_connection() {
    let server = Serve::new().tool(echo).start();
    for (body, end) in [("", Some("close")), ("hello", None)] {
        let mut connection = server.connect();
        let head = "GET /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n";
        connection.send(format!("{head}{body}"));
        let response = connection.receive();
        assert_eq!((response.status, response.header("connection")), (200, end));
    }
}

#[test]
fn a_connection_is_kept_for_many_requests() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for n in 0..100 {
        let message = n.to_string();
        let answer = echoing(&message).send_on(&mut connection);
        assert_eq!(answer.header("connection"), None);
        assert_eq!(answer.result()["content"][0]["text"], message);
    }
}

#[test]
fn a_client_may_ask_for_the_connection_to_be_closed() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    let answer = echoing("hi")
        .and("connection", "close")
        .send_on(&mut connection);
    assert_eq!(answer.header("connection"), Some("close"));
    connection.assert_closed();
    let mut old = server.connect();
    old.send(echoing("hi").text().replace("HTTP/1.1", "HTTP/1.0"));
    old.receive().result();
    old.assert_closed();
}

#[test]
fn requests_that_come_together_are_answered_in_their_order() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    let many: String = (0..50).map(|n| echoing(&n.to_string()).text()).collect();
    connection.send(many);
    for n in 0..50 {
        let answer = connection.receive().result();
        assert_eq!(answer["content"][0]["text"], n.to_string());
    }
}

#[test]
fn a_request_and_a_half_is_answered_once_and_then_again() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(echo).tool(tool).start();
    let mut connection = server.connect();
    for cut in [1, 20, 200] {
        let (call, next) = (
            Stateless::call("gate", json!({})).text(),
            echoing("half").text(),
        );
        let (half, rest) = next.split_at(cut);
        connection.send(call + half);
        gate.begun();
        gate.open();
        // The response is sent although the next request has begun, and its bytes are not lost.
        assert_eq!(
            connection.receive().result()["content"][0]["text"],
            "through"
        );
        connection.send(rest);
        assert_eq!(connection.receive().result()["content"][0]["text"], "half");
    }
}

#[test]
fn a_body_is_waited_for_and_said_to_be_welcome() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.body_bytes = 1000)
        .start();
    let text = echoing("hi").and("expect", "100-continue").text();
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let mut connection = server.connect();
    connection.send(format!("{head}\r\n\r\n"));
    assert_eq!(connection.receive_head().status, 100);
    assert_eq!(connection.send(body).receive().result()["isError"], false);
    // A head above the limit is rejected.
    let (head, _) = head.rsplit_once("\r\n").expect("several fields");
    connection.send(format!("{head}\r\ncontent-length: 1001\r\n\r\n"));
    connection.receive().error(413, 413, "");
    connection.assert_closed();
}

#[test]
fn offers_to_speak_another_protocol_are_not_taken_up() {
    let server = Serve::new().tool(echo).start();
    let mut connection = server.connect();
    for protocol in ["websocket", "h2c", "TLS/1.0"] {
        let upgrade = echoing("hi")
            .and("connection", "upgrade")
            .and("upgrade", protocol);
        assert_eq!(upgrade.send_on(&mut connection).result()["isError"], false);
    }
}
