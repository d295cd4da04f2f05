use super::*;

fn request(body: &str) -> Request<'_> {
    match Payload::read(body.as_bytes()) {
        Ok(Payload::Single(Message::Request(request))) => request,
        other => panic!("{body} was read as {other:?}"),
    }
}

fn refusal(body: &[u8]) -> (MalformedKind, String, Option<String>) {
    let malformed = Payload::read(body).expect_err("should be refused");
    (
        malformed.kind,
        malformed.reason.into_owned(),
        malformed.id.map(str::to_owned),
    )
}

#[test]
fn takes_a_call_apart() {
    let request = request(
        r#" {"jsonrpc":"2.0", "id":"a\"b", "method":"tools/call", "params":{"name":"echo",
            "arguments":{"message":"hi"}, "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":{}, "progressToken":1}}} "#,
    );
    assert_eq!(request.id, r#""a\"b""#);
    assert_eq!(request.method, "tools/call");
    assert_eq!(request.params.name, Some(r#""echo""#));
    assert_eq!(request.params.arguments, Some(r#"{"message":"hi"}"#));
    assert_eq!(
        request.params.meta.protocol_version,
        Some(r#""2026-07-28""#)
    );
    assert_eq!(request.params.meta.client_capabilities, Some("{}"));
    assert!(
        request
            .params
            .object
            .is_some_and(|o| o.starts_with("{\"name\"") && o.ends_with("}}"))
    );
}

#[test]
fn arguments_that_are_null_or_an_empty_list_are_none() {
    let read = |arguments: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{arguments}"name":"echo"}}}}"#
        );
        request(&body).params.arguments.map(str::to_owned)
    };
    assert_eq!(read(r#""arguments": null ,"#), None);
    assert_eq!(read(r#""arguments":[],"#), None);
    assert_eq!(read(""), None);
    for other in ["{}", "[1]", r#""null""#] {
        let member = format!(r#""arguments":{other},"#);
        assert_eq!(read(&member).as_deref(), Some(other));
    }
    let twice = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":null,"arguments":{}}}"#;
    assert_eq!(refusal(twice.as_bytes()).1, "a member appears twice");
}

#[test]
fn params_that_are_an_empty_list_are_none() {
    let read =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{params}}}"#);
    assert_eq!(request(&read("[]")).params.object, None);
    assert_eq!(refusal(read("[1]").as_bytes()).1, "params is an object");
}

#[test]
fn rpc_02_ids_are_integers_or_strings() {
    for id in [
        "0",
        "-7",
        "18446744073709551615",
        "-9223372036854775808",
        r#""""#,
        r#""7""#,
        r#""\u0000""#,
        // Integers to JSON Schema.
        "1.0",
        "-1.0",
        "-0.0",
        "1e3",
        "10e-1",
        "9007199254740991.0",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(request(&body).id, id);
    }
    for id in [
        "null",
        "1.5",
        "1e-1",
        "1e16",
        "1e400",
        "9007199254740993.0",
        "true",
        "[]",
        "{}",
        "18446744073709551616",
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let (kind, _, echoed) = refusal(body.as_bytes());
        assert_eq!((kind, echoed), (MalformedKind::Invalid, None), "{id}");
    }
    let long = "x".repeat(ID_MAX_BYTES);
    assert_eq!(
        request(&format!(
            r#"{{"jsonrpc":"2.0","id":"{long}","method":"ping"}}"#
        ))
        .id
        .len(),
        1026
    );
    let (kind, ..) =
        refusal(format!(r#"{{"jsonrpc":"2.0","id":"{long}x","method":"ping"}}"#).as_bytes());
    assert_eq!(kind, MalformedKind::Invalid);
}

#[test]
fn a_member_that_appears_twice_is_refused_even_in_disguise() {
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","m\u0065thod":"b"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":null,"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":"x","name":"y"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{},"_meta":{}}}"#,
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"a"}"#,
    ] {
        let (kind, reason, id) = refusal(body.as_bytes());
        assert_eq!(
            (kind, &*reason, id.as_deref()),
            (MalformedKind::Invalid, "a member appears twice", Some("1")),
            "{body}"
        );
    }
}

#[test]
fn keys_are_compared_byte_for_byte() {
    let (kind, ..) = refusal(br#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#);
    assert_eq!(kind, MalformedKind::Invalid);
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping","method\u0000":"tools/call"}"#;
    assert_eq!(request(body).method, "ping");
    assert_eq!(
        request(r#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"p\u0069ng"}"#).method,
        "ping"
    );
}

#[test]
fn bounds_are_kept_to_and_it_is_known_which_one_was_not() {
    let bounds = MessageBounds::new(8, 16, u32::MAX, 36);
    let read = |body: &str| match Payload::within(body.as_bytes(), bounds) {
        Ok(_) => Ok(()),
        Err(problem) => Err((problem.kind, problem.excess)),
    };
    let with = |id: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a","params":{params}}}"#)
    };
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let wide = |members: usize| {
        let all: Vec<_> = (0..members).map(|n| format!("\"{n}\":0")).collect();
        format!("{{{}}}", all.join(","))
    };
    let id = |bytes: usize| format!("\"{}\"", "x".repeat(bytes));
    for (body, expected) in [
        (with("1", &nested(6)), Ok(())),
        (
            with("1", &nested(7)),
            Err((MalformedKind::Parse, Some(Excess::Depth))),
        ),
        (with("1", &wide(16)), Ok(())),
        (
            with("1", &wide(17)),
            Err((MalformedKind::Invalid, Some(Excess::Members))),
        ),
        (with(&id(36), "{}"), Ok(())),
        (
            with(&id(37), "{}"),
            Err((MalformedKind::Invalid, Some(Excess::Id))),
        ),
        (with("1.5", "{}"), Err((MalformedKind::Invalid, None))),
        (
            format!("[{}]", with("1", &nested(6))),
            Err((MalformedKind::Parse, Some(Excess::Depth))),
        ),
        ("{".to_owned(), Err((MalformedKind::Parse, None))),
    ] {
        assert_eq!(read(&body), expected, "{body}");
    }
}

#[test]
fn rpc_12_what_is_no_message_is_told_apart_from_what_is_no_json() {
    use MalformedKind::{Invalid, Parse};
    let one = Some("1");
    for (body, kind, id) in [
        (&b"{"[..], Parse, None),
        (b"", Parse, None),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"} x",
            Parse,
            None,
        ),
        (b"\xff\xfe{\0}\0", Parse, None),
        (b"{\"a\":\"\xff\"}", Parse, None),
        (b"\xef\xbb\xbf{}", Parse, None),
        (br#"{"id":1,"x":NaN}"#, Parse, None),
        (b"1", Invalid, None),
        (b"null", Invalid, None),
        (b"{}", Invalid, None),
        (br#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, Invalid, one),
        (br#"{"jsonrpc":2.0,"id":1,"method":"a"}"#, Invalid, one),
        (br#"{"id":"x","method":"a"}"#, Invalid, Some("\"x\"")),
        (br#"{"jsonrpc":"2.0","method":1,"id":1}"#, Invalid, one),
        (
            br#"{"jsonrpc":"2.0","method":"a","params":[1],"id":1}"#,
            Invalid,
            one,
        ),
        (br#"{"jsonrpc":"2.0","id":1}"#, Invalid, one),
        (
            br#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            Invalid,
            one,
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"a","result":{}}"#,
            Invalid,
            one,
        ),
    ] {
        let (found, reason, echoed) = refusal(body);
        assert_eq!(
            (found, echoed.as_deref()),
            (kind, id),
            "{} ({reason})",
            body.escape_ascii()
        );
    }
}

#[test]
fn arrays_are_split_and_responses_recognised() {
    let Ok(Payload::Batch(elements)) = Payload::read(br#" [ {"a":1}, 2 ,[] ] "#) else {
        panic!("not read as a batch");
    };
    assert_eq!(elements, [r#"{"a":1}"#, "2", "[]"]);
    assert!(matches!(Payload::read(b"[]"), Ok(Payload::Batch(elements)) if elements.is_empty()));
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}"#,
    ] {
        assert!(matches!(
            Payload::read(body.as_bytes()),
            Ok(Payload::Single(Message::Response(_)))
        ));
    }
    // RPC-04
    for body in [
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":[-1,"no"]}"#,
    ] {
        assert!(Payload::read(body.as_bytes()).is_err(), "{body}");
    }
    assert!(matches!(
        Payload::read(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
        Ok(Payload::Single(Message::Notification(_)))
    ));
}
