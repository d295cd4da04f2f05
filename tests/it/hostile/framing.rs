//! HTTP framing: boundaries of requests, and invalid requests.

use super::{Case, Lifecycle, run_on, server};

const SMUGGLED: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A good call in its parts: everything up to the length, and the body.
fn parts() -> (String, String) {
    let text = String::from_utf8(Lifecycle::Stateless.call("say", r#"{"message":"hi"}"#));
    let text = text.expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let (head, length) = head.rsplit_once("\r\n").expect("several fields");
    assert!(length.starts_with("content-length"));
    (head.to_owned(), body.to_owned())
}

/// The call with other fields for its length, and its body in another form.
fn framed(fields: &str, body: &str) -> String {
    let (head, _) = parts();
    format!("{head}\r\n{fields}\r\n\r\n{body}")
}

fn chunked() -> String {
    let (_, body) = parts();
    format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

#[test]
fn lengths_that_are_none_or_two_are_refused() {
    let server = server();
    let (_, body) = parts();
    let n = body.len();
    let mut cases = Vec::new();
    for fields in [
        "content-length: +5".to_owned(),
        format!("content-length: +{n}"),
        "content-length: -1".to_owned(),
        "content-length: -0".to_owned(),
        "content-length: ".to_owned(),
        "content-length: x".to_owned(),
        "content-length: 0x10".to_owned(),
        "content-length: 1e2".to_owned(),
        "content-length: 1.0".to_owned(),
        "content-length: 1_0".to_owned(),
        "content-length: 1 0".to_owned(),
        "content-length: 1;0".to_owned(),
        "content-length: \"5\"".to_owned(),
        "content-length: 5 bytes".to_owned(),
        "content-length: ٥".to_owned(),
        format!("content-length: {n}, {n}"),
        format!("content-length: {n},"),
        format!("content-length: {n}, 5"),
        format!("content-length: {n}\r\ncontent-length: 5"),
        format!("content-length: 5\r\ncontent-length: {n}"),
        format!("content-length: {n}\r\ncontent-length: x"),
        format!("content-length: 0\r\nContent-Length: {n}"),
        "content-length: 18446744073709551616".to_owned(),
        "content-length: 99999999999999999999999999999999".to_owned(),
        "content-length: -9223372036854775808".to_owned(),
        format!("content-length : {n}"),
        format!("content-length\t: {n}"),
        format!(" content-length: {n}"),
        format!("content-length:\r\n {n}"),
        format!("content-length: {n}\0"),
    ] {
        let text = framed(&fields, &body) + SMUGGLED;
        cases.push(
            Case::new(format!("{fields:?}"), text)
                .status(&[400])
                .closes(),
        );
    }
    // A repeated identical value is one value.
    let same = format!("content-length: {n}\r\ncontent-length: {n}");
    cases.push(Case::new("the same length twice", framed(&same, &body)).status(&[200, 400]));
    for fields in [
        format!("content-length: {n} "),
        format!("content-length:{n}"),
        format!("content-length:\t{n}"),
        format!("Content-Length: {n}"),
        format!("CONTENT-LENGTH: {n}"),
        format!("content-length: 000{n}"),
    ] {
        cases.push(Case::new(format!("{fields:?}"), framed(&fields, &body)));
    }
    for length in [
        4_194_305_u64,
        1 << 30,
        1 << 40,
        i64::MAX as u64,
        u64::MAX - 2,
    ] {
        let fields = format!("content-length: {length}");
        let case = Case::new(format!("{fields:?}"), framed(&fields, ""));
        cases.push(case.error(413, 413, "").closes());
    }
    run_on(&server, cases);
}

#[test]
fn a_length_beside_chunks_is_refused_in_either_order() {
    let server = server();
    let (_, body) = parts();
    let n = body.len();
    let mut cases = Vec::new();
    for fields in [
        format!("content-length: {n}\r\ntransfer-encoding: chunked"),
        format!("transfer-encoding: chunked\r\ncontent-length: {n}"),
        "content-length: 0\r\ntransfer-encoding: chunked".to_owned(),
        "transfer-encoding: chunked\r\ncontent-length: 0".to_owned(),
        "content-length: 4\r\ntransfer-encoding: chunked".to_owned(),
        "Transfer-Encoding: chunked\r\nContent-Length: 4".to_owned(),
        "TRANSFER-ENCODING: chunked\r\nCONTENT-LENGTH: 4".to_owned(),
        "content-length: 4\r\nx: y\r\ntransfer-encoding: Chunked".to_owned(),
        "transfer-encoding:chunked\r\ncontent-length:4".to_owned(),
        "content-length: 4\r\ncontent-length: 4\r\ntransfer-encoding: chunked".to_owned(),
        "transfer-encoding: chunked\r\ncontent-length: x".to_owned(),
        "content-length: 4\r\ntransfer-encoding: identity".to_owned(),
        "content-length: 4\r\ntransfer-encoding: gzip".to_owned(),
        "content-length: 4\r\ntransfer-encoding: ".to_owned(),
    ] {
        let text = framed(&fields, &chunked()) + SMUGGLED;
        cases.push(
            Case::new(format!("{fields:?}"), text)
                .status(&[400])
                .closes(),
        );
    }
    assert!(run_on(&server, cases) >= 14);
}

#[test]
fn transfers_that_are_not_simply_chunked_are_refused() {
    let server = server();
    let mut cases = Vec::new();
    for fields in [
        "transfer-encoding: gzip",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, gzip",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: identity",
        "transfer-encoding: identity, chunked",
        "transfer-encoding: deflate",
        "transfer-encoding: xchunked",
        "transfer-encoding: chunkedx",
        "transfer-encoding: x-chunked",
        "transfer-encoding: chunked;",
        "transfer-encoding: chunked; q=1",
        "transfer-encoding: \"chunked\"",
        "transfer-encoding: 'chunked'",
        "transfer-encoding: chunk",
        "transfer-encoding: ",
        "transfer-encoding: ,chunked",
        "transfer-encoding: chunked,",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked",
        "transfer-encoding: x\r\ntransfer-encoding: chunked",
        "transfer-encoding : chunked",
        "transfer-encoding\t: chunked",
        " transfer-encoding: chunked",
        "transfer-encoding:\r\n chunked",
        "transfer-encoding: chunked\0",
        "transfer-encoding: \x0bchunked",
        "x: y\r\n\ttransfer-encoding: chunked",
    ] {
        let text = framed(fields, &chunked()) + SMUGGLED;
        cases.push(
            Case::new(format!("{fields:?}"), text)
                .status(&[400, 501])
                .closes(),
        );
    }
    let old = framed("transfer-encoding: chunked", &chunked()).replace("HTTP/1.1", "HTTP/1.0");
    cases.push(
        Case::new("chunks over HTTP/1.0", old + SMUGGLED)
            .status(&[400])
            .closes(),
    );
    for fields in [
        "transfer-encoding: chunked",
        "transfer-encoding: Chunked",
        "transfer-encoding: CHUNKED",
        "Transfer-Encoding:chunked",
        "transfer-encoding: chunked ",
    ] {
        cases.push(Case::new(format!("{fields:?}"), framed(fields, &chunked())));
    }
    assert!(run_on(&server, cases) >= 35);
}

#[test]
fn chunks_that_are_none_are_refused() {
    let server = server();
    let (_, body) = parts();
    let n = body.len();
    let mut cases = Vec::new();
    for chunks in [
        "x\r\nabc\r\n0\r\n\r\n".to_owned(),
        "0x3\r\nabc\r\n0\r\n\r\n".to_owned(),
        "+3\r\nabc\r\n0\r\n\r\n".to_owned(),
        "-3\r\nabc\r\n0\r\n\r\n".to_owned(),
        "3 3\r\nabc\r\n0\r\n\r\n".to_owned(),
        "3_0\r\nabc\r\n0\r\n\r\n".to_owned(),
        "3.0\r\nabc\r\n0\r\n\r\n".to_owned(),
        "3,\r\nabc\r\n0\r\n\r\n".to_owned(),
        "\r\nabc\r\n0\r\n\r\n".to_owned(),
        ";x\r\nabc\r\n0\r\n\r\n".to_owned(),
        "g\r\nabc".to_owned(),
        "３\r\nabc\r\n0\r\n\r\n".to_owned(),
        "3\r\nabcd\r\n0\r\n\r\n".to_owned(),
        "3\r\nabcX\r\n0\r\n\r\n".to_owned(),
        "3\r\nabc0\r\n\r\n".to_owned(),
        "3\nabcX\n0\r\n\r\n".to_owned(),
        "fffffffffffffffff\r\nabc".to_owned(),
        "10000000000000000\r\nabc".to_owned(),
        "ffffffffffffffffffffffffffffffff\r\nabc".to_owned(),
        "text that is no chunk at all".to_owned(),
        "{}".to_owned(),
        "3;x=\"a\nb\"\r\nabc\r\n0\r\n\r\n".to_owned(),
        "\0\r\n".to_owned(),
        "3;\0\r\nabc\r\n0\r\n\r\n".to_owned(),
        "3;x=\x07\r\nabc\r\n0\r\n\r\n".to_owned(),
        "3\0\r\nabc\r\n0\r\n\r\n".to_owned(),
    ] {
        let text = framed("transfer-encoding: chunked", &chunks);
        let case = Case::new(format!("{chunks:?}"), text);
        cases.push(case.status(&[400]).closes());
    }
    for size in ["400001", "7fffffff", "ffffffff", "7fffffffffffffff"] {
        // Rejected when it is parsed, or when too much has arrived.
        let text = framed(
            "transfer-encoding: chunked",
            &format!("{size}\r\n{}", " ".repeat(4_194_400)),
        );
        let case = Case::new(format!("a chunk of {size}"), text);
        cases.push(case.status(&[413, 400]).closes());
    }
    let long = format!("{n:x};{}\r\n{body}\r\n0\r\n\r\n", "x".repeat(20_000));
    let case = Case::new(
        "a long extension",
        framed("transfer-encoding: chunked", &long),
    );
    cases.push(case.status(&[400]).closes());
    for chunks in [
        format!("{n:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("{n:X}\r\n{body}\r\n0\r\n\r\n"),
        format!("00{n:x}\r\n{body}\r\n000\r\n\r\n"),
        format!("{n:x};name=value\r\n{body}\r\n0\r\n\r\n"),
        format!("{n:x};name=\"value\"\r\n{body}\r\n0;x\r\n\r\n"),
        format!("{n:x}\r\n{body}\r\n0\r\nx: y\r\n\r\n"),
        format!("{n:x}\r\n{body}\r\n0\r\nmcp-name: other\r\ncontent-length: 5\r\n\r\n"),
        body.chars()
            .map(|c| format!("1\r\n{c}\r\n"))
            .collect::<String>()
            + "0\r\n\r\n",
    ] {
        let text = framed("transfer-encoding: chunked", &chunks);
        cases.push(Case::new(format!("{chunks:.40?}"), text));
    }
    run_on(&server, cases);
}

#[test]
fn heads_that_are_none_are_refused_and_the_connection_closed() {
    let server = server();
    let (head, _) = parts();
    let end = "content-length: 0\r\n\r\n";
    let mut cases = Vec::new();
    for text in [
        "\0",
        "GET\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / \r\n\r\n",
        "GET  / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET / HTTP/1.1 x\r\nhost: localhost\r\n\r\n",
        "GET / HTTP/1.2\r\nhost: localhost\r\n\r\n",
        "GET / HTTP/2.0\r\nhost: localhost\r\n\r\n",
        "GET / HTTP/0.9\r\n\r\n",
        "GET / HTTP/1\r\n\r\n",
        "GET / HTTP/11\r\n\r\n",
        "GET / http/1.1\r\nhost: localhost\r\n\r\n",
        "GET / HTTPS/1.1\r\n\r\n",
        "GET / FTP/1.1\r\n\r\n",
        "G\0T / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /a b HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "G(T / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        " / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "nonsense\r\n\r\n",
        "{\"jsonrpc\":\"2.0\"}\r\n\r\n",
        "<policy-file-request/>\0",
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "EHLO example.com\r\n\r\n",
        "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03",
        "GET / HTTP/1.1\r\nhost localhost\r\n\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\nho st: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nhost : localhost\r\n\r\n",
        "GET / HTTP/1.1\r\n host: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: local\0host\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: local\x01host\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: local\x7fhost\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nx: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nx@y: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\n\"x\": a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nx(y): a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nx\0y: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nxäy: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: localhost\r\nx{y}: a\r\n\r\n",
    ] {
        let case = Case::new(format!("{text:?}"), text).status(&[400, 404, 505]);
        cases.push(case.finished().closes());
    }
    for n in [101, 1000, 5000] {
        let fields: String = (0..n).map(|n| format!("x-{n}: y\r\n")).collect();
        let case = Case::new(format!("{n} fields"), format!("{head}\r\n{fields}{end}"));
        cases.push(case.status(&[431]).closes());
    }
    for n in [40_000, 70_000, 1_000_000] {
        let filler = "x".repeat(n);
        for (what, text, statuses) in [
            (
                "field",
                format!("{head}\r\nx: {filler}\r\n{end}"),
                [431, 431],
            ),
            (
                "name",
                format!("{head}\r\n{filler}: x\r\n{end}"),
                [431, 400],
            ),
            (
                "target",
                format!("{head}\r\n{end}").replace("POST /mcp ", &format!("POST /mcp?{filler} ")),
                [414, 431],
            ),
        ] {
            let case = Case::new(format!("a {what} of {n} bytes"), text).status(&statuses);
            cases.push(match n {
                // The buffer holds it, and the connection can go on.
                40_000 => case,
                // The buffer may or may not.
                70_000 => case.abandoned(),
                _ => case.closes(),
            });
        }
    }
    run_on(&server, cases);
}

#[test]
fn lines_that_end_with_a_line_feed_alone_are_refused() {
    let server = server();
    let (head, body) = parts();
    let whole = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let head_len = whole.len() - body.len();
    let mut cases = Vec::new();
    for (at, _) in whole[..head_len].match_indices("\r\n") {
        let text = format!("{}{}{SMUGGLED}", &whole[..at], &whole[at + 1..]);
        cases.push(
            Case::new(format!("a bare LF at {at}"), text)
                .status(&[400])
                .closes(),
        );
    }
    for text in [
        whole[..head_len].replace("\r\n", "\n") + &body,
        whole.replacen("\r\n\r\n", "\n\n", 1),
        format!("\n{whole}"),
        format!("\r\n\n{whole}"),
        "GET /health HTTP/1.1\nhost: localhost\n\n".to_owned(),
    ] {
        cases.push(
            Case::new(format!("{text:.30?}"), text)
                .status(&[400])
                .closes(),
        );
    }
    for chunks in [
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3;x\nabc\r\n0\r\n\r\n",
    ] {
        let text = framed("transfer-encoding: chunked", chunks) + SMUGGLED;
        cases.push(
            Case::new(format!("{chunks:?}"), text)
                .status(&[400])
                .closes(),
        );
    }
    // After requests with each kind of end, and in trailers.
    let good = framed("transfer-encoding: chunked", &chunked());
    let bare = whole.replacen("\r\n", "\n", 1);
    for (name, first) in [("a length", &whole), ("chunks", &good)] {
        let mut wire = super::Wire::open(&server);
        let both = Case::new("", format!("{first}{bare}"));
        let answer = wire.exchange(&both).expect("an answer to the first");
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(wire.answer().expect("an answer").status, 400, "{name}");
        wire.ends().expect("closed");
    }
    for trailer in ["x: y\n\r\n", "x: y\nz: a\r\n\r\n", "x: y\n\n\n"] {
        let chunks = chunked();
        let text = framed(
            "transfer-encoding: chunked",
            &(chunks[..chunks.len() - 2].to_owned() + trailer),
        );
        let case = Case::new(format!("{trailer:?} as trailer"), text);
        cases.push(case.status(&[400]).closes());
    }
    // In a body they are white space.
    let body = body.replace(',', ",\n\n");
    let text = framed(&format!("content-length: {}", body.len()), &body);
    cases.push(Case::new("line feeds in a body", text));
    assert!(run_on(&server, cases) >= 14);
}

#[test]
fn what_can_be_read_in_one_way_only_is_read() {
    let server = server();
    let (head, body) = parts();
    let n = body.len();
    let whole = format!("{head}\r\ncontent-length: {n}\r\n\r\n{body}");
    let mut cases = Vec::new();
    for (name, text) in [
        ("an empty line before it", format!("\r\n{whole}")),
        ("HTTP/1.0 that is kept", whole.replace("HTTP/1.1\r\n", "HTTP/1.0\r\nconnection: keep-alive\r\n")),
        ("an offer of websocket", whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n")),
        ("an offer of HTTP/2", whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n")),
        ("Expect", whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nexpect: 100-continue\r\n")),
        ("a connection header of names", whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nconnection: keep-alive, host\r\n")),
        ("a proxy's header", whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nproxy-connection: close\r\n")),
        ("Latin-1 in a value", whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nx: caf\u{e9}\r\n")),
        ("an empty value", whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nx:\r\n")),
        ("a long token", whole.replace("HTTP/1.1\r\n", &format!("HTTP/1.1\r\nauthorization: Bearer {}\r\n", "x".repeat(16_000)))),
        ("eighty fields", whole.replace("HTTP/1.1\r\n", &format!("HTTP/1.1\r\n{}", (0..80).map(|n| format!("x-{n}: y\r\n")).collect::<String>()))),
    ] {
        cases.push(Case::new(name, text));
    }
    let close = whole.replace("HTTP/1.1\r\n", "HTTP/1.1\r\nconnection: close\r\n");
    cases.push(Case::new("close", close + SMUGGLED).closes());
    let old = whole.replace("HTTP/1.1", "HTTP/1.0");
    cases.push(Case::new("HTTP/1.0", old + SMUGGLED).closes());
    cases.push(
        Case::new("cut in the body", &whole.as_bytes()[..whole.len() - 3])
            .status(&[400])
            .finished(),
    );
    run_on(&server, cases);
}
