//! HTTP/2 that no good client speaks, frame by frame: what each gets first, and that everybody else is served beside it.

use std::io::Write as _;

use super::{Case, Lifecycle, META, Wire, run_on, serve};

/// First frame that concerns the request or the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// An answer of this status.
    Status(u16),
    /// A response with a status that HPACK has no index for.
    Other,
    /// The stream is reset with this code.
    Reset(u32),
    /// The connection ends with this code.
    Goaway(u32),
}

const PROTOCOL: u32 = 1;
const FLOW: u32 = 3;
const SIZE: u32 = 6;
const CALM: u32 = 11;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// Fields as HPACK has them that is neither indexed nor compressed.
fn fields(all: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in all {
        out.push(0);
        for text in [name, value] {
            let mut length = text.len();
            if length < 127 {
                out.push(length as u8);
            } else {
                out.push(127);
                length -= 127;
                while 128 <= length {
                    out.push((length % 128 + 128) as u8);
                    length /= 128;
                }
                out.push(length as u8);
            }
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

const GOOD: [(&str, &str); 8] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/mcp"),
    (":authority", "localhost"),
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-method", "tools/list"),
];

fn body() -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#).into_bytes()
}

/// A request of these fields, with a good body.
fn request_of(stream: u32, head: &[(&str, &str)]) -> Vec<u8> {
    let mut out = frame(HEADERS, END_HEADERS, stream, &fields(head));
    out.extend(frame(DATA, END_STREAM, stream, &body()));
    out
}

/// A good one with further fields.
fn and(more: &[(&str, &str)]) -> Vec<u8> {
    request_of(1, &[&GOOD, more].concat())
}

/// A good one with a field changed; `None` takes it away.
fn but(name: &str, value: Option<&str>) -> Vec<u8> {
    let kept = GOOD
        .into_iter()
        .filter_map(|(n, v)| match (n == name, value) {
            (false, _) => Some((n, v)),
            (true, value) => value.map(|value| (n, value)),
        });
    request_of(1, &kept.collect::<Vec<_>>())
}

/// Good fields, and no end yet.
fn begun() -> Vec<u8> {
    frame(HEADERS, END_HEADERS, 1, &fields(&GOOD))
}

fn repeated(part: &[u8], times: usize) -> Vec<u8> {
    part.repeat(times)
}

fn first(wire: &mut Wire) -> Result<First, String> {
    loop {
        let mut rest = &wire.1[..];
        while let Some((head, more)) = rest.split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some((payload, more)) = more.split_at_checked(length) else {
                break;
            };
            let code = |at: usize| {
                let code = payload
                    .get(at..at + 4)
                    .and_then(|code| code.try_into().ok());
                code.map(u32::from_be_bytes).ok_or("no code".to_owned())
            };
            match head[3] {
                HEADERS => {
                    return Ok(match payload.first() {
                        Some(0x88) => First::Status(200),
                        Some(0x8c) => First::Status(400),
                        Some(0x8d) => First::Status(404),
                        _ => First::Other,
                    });
                }
                RESET => return code(0).map(First::Reset),
                GOAWAY => return code(4).map(First::Goaway),
                _ => rest = more,
            }
        }
        wire.more()?;
    }
}

#[test]
fn http_2_what_breaks_its_rules_ends_the_stream_or_the_connection_and_nothing_else() {
    // Each of the two limits for reset streams.
    let server = serve().limits(|l| l.http2_resets_per_second = 50).start();
    let big = "y".repeat(8000);
    let cases: Vec<(&str, Vec<u8>, First)> = vec![
        ("a good one", and(&[]), First::Status(200)),
        (
            "te: trailers",
            and(&[("te", "trailers")]),
            First::Status(200),
        ),
        (
            "no host at all",
            but(":authority", None),
            First::Status(400),
        ),
        (
            "another authority",
            but(":authority", Some("evil.example.com")),
            First::Other,
        ),
        (
            "a user in the authority",
            but(":authority", Some("a@localhost")),
            First::Status(400),
        ),
        (
            "two that differ",
            and(&[("host", "evil.example.com")]),
            First::Status(400),
        ),
        (
            "capitals in a name",
            and(&[("X-Y", "z")]),
            First::Goaway(PROTOCOL),
        ),
        ("an underscore", and(&[("x_y", "z")]), First::Status(400)),
        (
            "connection",
            and(&[("connection", "close")]),
            First::Reset(PROTOCOL),
        ),
        (
            "keep-alive",
            and(&[("keep-alive", "1")]),
            First::Reset(PROTOCOL),
        ),
        (
            "transfer-encoding",
            and(&[("transfer-encoding", "chunked")]),
            First::Reset(PROTOCOL),
        ),
        ("te: gzip", and(&[("te", "gzip")]), First::Reset(PROTOCOL)),
        (
            "upgrade",
            and(&[("upgrade", "websocket")]),
            First::Reset(PROTOCOL),
        ),
        (
            "two paths",
            and(&[(":path", "/mcp")]),
            First::Reset(PROTOCOL),
        ),
        (
            "an unknown pseudo field",
            and(&[(":x", "y")]),
            First::Goaway(PROTOCOL),
        ),
        (
            "a status",
            and(&[(":status", "200")]),
            First::Reset(PROTOCOL),
        ),
        (
            "the protocol has no client method",
            but(":method", None),
            First::Reset(PROTOCOL),
        ),
        ("no path", but(":path", None), First::Reset(PROTOCOL)),
        (
            "an empty path",
            but(":path", Some("")),
            First::Reset(PROTOCOL),
        ),
        (
            "a path with a space",
            but(":path", Some("/mcp x")),
            First::Reset(PROTOCOL),
        ),
        (
            "a path with a line",
            but(":path", Some("/mcp\r\nx: y")),
            First::Reset(PROTOCOL),
        ),
        (
            "another scheme",
            but(":scheme", Some("ftp")),
            First::Status(400),
        ),
        (
            "a line in a value",
            and(&[("x", "a\r\nb: c")]),
            First::Goaway(PROTOCOL),
        ),
        (
            "a zero in a value",
            and(&[("x", "a\0b")]),
            First::Goaway(PROTOCOL),
        ),
        (
            "a colon in a name",
            and(&[("x:y", "a")]),
            First::Goaway(PROTOCOL),
        ),
        ("an empty name", and(&[("", "a")]), First::Goaway(PROTOCOL)),
        (
            "too short a length",
            and(&[("content-length", "5")]),
            First::Reset(PROTOCOL),
        ),
        (
            "too long a length",
            and(&[("content-length", "5000")]),
            First::Reset(PROTOCOL),
        ),
        (
            "no length",
            and(&[("content-length", "+5")]),
            First::Reset(PROTOCOL),
        ),
        (
            "two tokens of one name",
            and(&[("mcp-method", "tools/call")]),
            First::Status(400),
        ),
        (
            "a tunnel",
            frame(
                HEADERS,
                5,
                1,
                &fields(&[(":method", "CONNECT"), (":authority", "localhost:80")]),
            ),
            First::Status(400),
        ),
        (
            "more fields than there may be",
            request_of(1, &[&GOOD[..], &[("x", "y"); 120]].concat()),
            First::Other,
        ),
        (
            "a head that is too large",
            [
                frame(HEADERS, 0, 1, &fields(&GOOD)),
                frame(CONTINUATION, 0, 1, &fields(&[("x", &big)])),
                frame(CONTINUATION, 0, 1, &fields(&[("x", &big)])),
                frame(CONTINUATION, 0, 1, &fields(&[("x", &big)])),
                frame(CONTINUATION, 0, 1, &fields(&[("x", &big)])),
                frame(CONTINUATION, END_HEADERS, 1, &fields(&[("x", &big)])),
            ]
            .concat(),
            First::Other,
        ),
        (
            "a head without end",
            [
                frame(HEADERS, 0, 1, &fields(&GOOD)),
                repeated(&frame(CONTINUATION, 0, 1, b""), 10_000),
            ]
            .concat(),
            First::Goaway(CALM),
        ),
        (
            "nothing, again and again",
            [begun(), repeated(&frame(DATA, 0, 1, b""), 10_000)].concat(),
            First::Goaway(CALM),
        ),
        (
            "a bomb of references",
            [
                b"\x40\x01x\x7f\xa1\x1e".as_slice(),
                "y".repeat(4000).as_bytes(),
                &repeated(b"\xbe", 8000),
            ]
            .concat(),
            First::Goaway(CALM),
        ),
        (
            "a reference to nothing",
            frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\x0f"),
            First::Goaway(PROTOCOL),
        ),
        (
            "padding beyond the frame",
            frame(HEADERS, 5 | PADDED, 1, b"\xffx"),
            First::Goaway(PROTOCOL),
        ),
        (
            "a window beyond all",
            repeated(&frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), 2),
            First::Goaway(FLOW),
        ),
        (
            "a window of nothing",
            frame(WINDOW, 0, 0, b"\0\0\0\0"),
            First::Goaway(PROTOCOL),
        ),
        (
            "a stream that waits for itself",
            frame(PRIORITY, 0, 1, b"\0\0\0\x01\x10"),
            First::Reset(PROTOCOL),
        ),
        (
            "data of nobody",
            frame(DATA, END_STREAM, 5, b"x"),
            First::Goaway(PROTOCOL),
        ),
        (
            "a stream of the server's",
            request_of(2, &GOOD),
            First::Goaway(PROTOCOL),
        ),
        (
            "a push",
            frame(PUSH, END_HEADERS, 1, b"\0\0\0\x02"),
            First::Goaway(PROTOCOL),
        ),
        (
            "a frame that is too large",
            frame(DATA, 0, 1, &[b'x'; 20_000]),
            First::Goaway(SIZE),
        ),
        (
            "a push that is allowed",
            frame(SETTINGS, 0, 0, b"\0\x02\0\0\0\x05"),
            First::Goaway(PROTOCOL),
        ),
        (
            "a setting cut in two",
            frame(SETTINGS, 0, 0, b"\0\x02\0"),
            First::Goaway(PROTOCOL),
        ),
        (
            "half a ping",
            frame(PING, 0, 0, b"1234"),
            First::Goaway(PROTOCOL),
        ),
        (
            "a ping on a stream",
            frame(PING, 0, 1, b"12345678"),
            First::Goaway(PROTOCOL),
        ),
        (
            "an unknown frame before a good one",
            [frame(0x55, 0, 0, b"x"), and(&[])].concat(),
            First::Status(200),
        ),
        (
            "many pings before a good one",
            [repeated(&frame(PING, 0, 0, b"12345678"), 500), and(&[])].concat(),
            First::Status(200),
        ),
        (
            "streams that are taken back",
            (0..100)
                .flat_map(|n| {
                    let id = 2 * n + 1;
                    let head = frame(HEADERS, 5, id, &fields(&GOOD));
                    [head, frame(RESET, 0, id, b"\0\0\0\x08")].concat()
                })
                .collect(),
            First::Goaway(CALM),
        ),
    ];
    let number = cases.len();
    let mut failures = Vec::new();
    for (name, frames, expected) in cases {
        let frames = match name {
            // Its length goes with what it is made of.
            "a bomb of references" => frame(HEADERS, 5, 1, &frames),
            _ => frames,
        };
        let mut wire = Wire::open(&server);
        let opening = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(),
            &frame(SETTINGS, 0, 0, b""),
            &frames,
        ]
        .concat();
        // The server may have ended it before it was all sent.
        let _ = wire.0.write_all(&opening);
        let found = first(&mut wire);
        if found != Ok(expected) {
            failures.push(format!("{name}: {found:?} instead of {expected:?}"));
        }
        let call = Lifecycle::Stateless.call("say", r#"{"message":"still here"}"#);
        assert_eq!(run_on(&server, [Case::new(name, call)]), 1);
    }
    assert!(
        failures.is_empty(),
        "{} of {number}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(50 <= number, "{number}");
}

#[test]
fn http_2_a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let server = serve().start();
    let head = fields(&[&GOOD[..], &[("expect", "100-continue")]].concat());
    let opening = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(),
        &frame(SETTINGS, 0, 0, b""),
        &frame(HEADERS, END_HEADERS, 1, &head),
    ]
    .concat();
    let mut wire = Wire::open(&server);
    wire.0.write_all(&opening).expect("a socket");
    assert_eq!(first(&mut wire), Ok(First::Other));
    wire.1.clear();
    let body = frame(DATA, END_STREAM, 1, &body());
    wire.0.write_all(&body).expect("a socket");
    assert_eq!(first(&mut wire), Ok(First::Status(200)));
}
