//! Invalid JSON, and JSON of the wrong type, at every place of a message.

use super::{Case, ERAS, Lifecycle, Sessions, run_on, server};

/// A place for a value in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The message itself.
    Whole,
    Id,
    Params,
    Arguments,
    /// The value of an argument of a tool that takes anything.
    Argument,
    /// An unknown member of `_meta`.
    Meta,
    /// An unknown member of the message.
    Unknown,
    /// An element of an array in an argument.
    Element,
}

const PLACES: [Place; 8] = [
    Place::Whole,
    Place::Id,
    Place::Params,
    Place::Arguments,
    Place::Argument,
    Place::Meta,
    Place::Unknown,
    Place::Element,
];

/// Type of a valid document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    /// A string or an integer, which are valid IDs.
    Id,
    Other,
}

/// Not JSON (RPC-12): -32700 wherever it stands.
const BROKEN: &[(&str, &[u8])] = &[
    ("array, comma before the first", b"[,1]"),
    ("array, comma after the last", b"[1,]"),
    ("array, two commas", b"[1,,2]"),
    ("array, only a comma", b"[,]"),
    ("array, colon for a comma", b"[1:2]"),
    ("array, no comma", b"[1 true]"),
    ("array, closed twice", b"[1]]"),
    ("array, closed by a brace", b"[1}"),
    ("array, not closed", b"[1"),
    ("array, not closed after a comma", b"[1,"),
    ("array, only opened", b"["),
    ("array, not closed, in another", b"[[1]"),
    ("array, a star", b"[*]"),
    ("array, a minus", b"[-]"),
    ("array, a member", b"[\"a\":1]"),
    ("array, line break in a string", b"[\"a\n\"]"),
    ("array, a parenthesis", b"(1)"),
    ("object, comma after the last", b"{\"a\":1,}"),
    ("object, two commas", b"{\"a\":1,,\"b\":2}"),
    ("object, comma before the first", b"{,\"a\":1}"),
    ("object, only a comma", b"{,}"),
    ("object, no colon", b"{\"a\" 1}"),
    ("object, two colons", b"{\"a\"::1}"),
    ("object, comma for a colon", b"{\"a\",1}"),
    ("object, no value", b"{\"a\":}"),
    ("object, no value, more follows", b"{\"a\":,\"b\":1}"),
    ("object, key alone", b"{\"a\"}"),
    ("object, no key", b"{:1}"),
    ("object, key without quotes", b"{a:1}"),
    ("object, key in single quotes", b"{'a':1}"),
    ("object, key is a number", b"{1:1}"),
    ("object, key is null", b"{null:1}"),
    ("object, key is an array", b"{[]:1}"),
    ("object, key with a bad escape", b"{\"\\x\":1}"),
    ("object, no comma", b"{\"a\":1 \"b\":2}"),
    ("object, semicolon", b"{\"a\":1;\"b\":2}"),
    ("object, closed by a bracket", b"{\"a\":1]"),
    ("object, equals sign", b"{\"a\"=1}"),
    ("object, comment in it", b"{/**/\"a\":1}"),
    ("object, line comment in it", b"{//\n\"a\":1}"),
    ("object, value is a comma", b"{\"a\":,}"),
    ("object, emoji for a key", "{🇨🇭}".as_bytes()),
    ("number, leading zero", b"01"),
    ("number, negative leading zero", b"-01"),
    ("number, two zeros", b"00"),
    ("number, plus", b"+1"),
    ("number, two minus", b"--1"),
    ("number, minus alone", b"-"),
    ("number, minus and letter", b"-a"),
    ("number, point at the end", b"1."),
    ("number, point at the end, negative", b"-1."),
    ("number, point at the beginning", b".5"),
    ("number, point at the beginning, negative", b"-.5"),
    ("number, point and exponent", b"1.e3"),
    ("number, two points", b"1.2.3"),
    ("number, exponent without digits", b"1e"),
    ("number, exponent with plus only", b"1e+"),
    ("number, exponent with minus only", b"1E-"),
    ("number, two exponents", b"1e2e3"),
    ("number, exponent of a fraction", b"1e2.5"),
    ("number, exponent alone", b"e5"),
    ("number, hexadecimal", b"0x1F"),
    ("number, hexadecimal without digits", b"0x"),
    ("number, octal", b"0o17"),
    ("number, binary", b"0b11"),
    ("number, underscores", b"1_000"),
    ("number, space in it", b"1 000"),
    ("number, space after the minus", b"- 1"),
    ("number, letter after it", b"1a"),
    ("number, big suffix", b"1n"),
    ("number, sum", b"1+2"),
    ("number, full width digit", "１".as_bytes()),
    ("number, arabic digit", "١".as_bytes()),
    ("number, NaN", b"NaN"),
    ("number, negative NaN", b"-NaN"),
    ("number, Infinity", b"Infinity"),
    ("number, negative Infinity", b"-Infinity"),
    ("number, Inf", b"Inf"),
    ("literal, True", b"True"),
    ("literal, FALSE", b"FALSE"),
    ("literal, Null", b"Null"),
    ("literal, cut true", b"tru"),
    ("literal, cut false", b"fals"),
    ("literal, cut null", b"nul"),
    ("literal, long true", b"truee"),
    ("literal, undefined", b"undefined"),
    ("literal, nil", b"nil"),
    ("literal, a word", b"abc"),
    ("string, not closed", b"\"abc"),
    ("string, only opened", b"\""),
    ("string, single quotes", b"'abc'"),
    ("string, backticks", b"`abc`"),
    ("string, backslash at the end", b"\"abc\\"),
    ("string, escaped quote at the end", b"\"abc\\\""),
    ("string, escape x", b"\"\\x41\""),
    ("string, escape a", b"\"\\a\""),
    ("string, escape 0", b"\"\\0\""),
    ("string, escape apostrophe", b"\"\\'\""),
    ("string, escape U", b"\"\\U0041\""),
    ("string, escape space", b"\"\\ \""),
    ("string, escaped line break", b"\"\\\n\""),
    ("string, escape u without digits", b"\"\\u\""),
    ("string, escape u with three digits", b"\"\\u004\""),
    ("string, escape u with a bad digit", b"\"\\u00G1\""),
    ("string, escape u in braces", b"\"\\u{41}\""),
    ("string, escape u with a plus", b"\"\\u+041\""),
    ("string, escape emoji", "\"\\😀\"".as_bytes()),
    ("string, high surrogate alone", b"\"\\ud800\""),
    ("string, low surrogate alone", b"\"\\udc00\""),
    ("string, two high surrogates", b"\"\\ud800\\ud800\""),
    (
        "string, surrogates in the wrong order",
        b"\"\\udc00\\ud800\"",
    ),
    ("string, surrogate and letter", b"\"\\ud800A\""),
    ("string, surrogate and half an escape", b"\"\\ud800\\u\""),
    ("string, surrogate and another escape", b"\"\\ud800\\n\""),
    ("string, zero byte", b"\"a\0b\""),
    ("string, control character", b"\"a\x01b\""),
    ("string, unit separator", b"\"a\x1fb\""),
    ("string, tab", b"\"a\tb\""),
    ("string, line feed", b"\"a\nb\""),
    ("string, carriage return", b"\"a\rb\""),
    ("string, escape character", b"\"a\x1bb\""),
    ("text, two documents", b"{} {}"),
    ("text, two arrays", b"[][]"),
    ("text, bracket behind it", b"1]"),
    ("text, letters behind it", b"[]x"),
    ("text, hash behind it", b"{}#"),
    ("text, semicolon behind it", b"{};"),
    ("text, comment before it", b"/**/{}"),
    ("text, comment behind it", b"{}/**/"),
    ("text, line comment before it", b"//\n{}"),
    ("text, hash comment", b"# x\n{}"),
    ("text, closing bracket", b"]"),
    ("text, closing brace", b"}"),
    ("text, comma", b","),
    ("text, colon", b":"),
    ("text, backslash", b"\\"),
    ("text, angle bracket", b"<.>"),
    ("text, ampersand", b"&"),
    ("text, XML", b"<?xml version=\"1.0\"?><a/>"),
    ("text, HTML", b"<!doctype html>"),
    ("text, YAML", b"a: 1\nb: 2"),
    ("text, form", b"a=1&b=2"),
    ("text, prefix against hijacking", b")]}',\n{}"),
    ("text, callback", b"callback({})"),
    ("space, form feed", b"\x0c1"),
    ("space, vertical tab", b"\x0b1"),
    ("space, no-break", b"\xc2\xa01"),
    ("space, line separator", b"\xe2\x80\xa81"),
    ("space, ideographic", b"\xe3\x80\x801"),
    ("space, zero byte", b"\x001"),
    ("space, byte order mark", b"\xef\xbb\xbf{}"),
    ("space, next line", b"\xc2\x851"),
    ("UTF-8, lone continuation", b"\"\x80\""),
    ("UTF-8, bad first byte", b"\"\xff\""),
    ("UTF-8, fe", b"\"\xfe\""),
    ("UTF-8, overlong slash", b"\"\xc0\xaf\""),
    ("UTF-8, overlong zero", b"\"\xc0\x80\""),
    ("UTF-8, overlong in three", b"\"\xe0\x80\xaf\""),
    ("UTF-8, overlong in four", b"\"\xf0\x80\x80\xaf\""),
    ("UTF-8, surrogate", b"\"\xed\xa0\x80\""),
    ("UTF-8, surrogate pair", b"\"\xed\xa0\xbd\xed\xb8\x80\""),
    ("UTF-8, beyond the last", b"\"\xf4\x90\x80\x80\""),
    ("UTF-8, five bytes", b"\"\xf8\x88\x80\x80\x80\""),
    ("UTF-8, cut in two", b"\"\xc3\""),
    ("UTF-8, cut in three", b"\"\xe2\x82\""),
    ("UTF-8, cut in four", b"\"\xf0\x9f\x98\""),
    ("UTF-8, Latin-1", b"\"caf\xe9\""),
    ("UTF-8, bad byte in a key", b"{\"\xff\":1}"),
    ("UTF-8, bad byte outside of strings", b"[\xff]"),
    ("UTF-16, little endian", b"\xff\xfe{\0}\0"),
    ("UTF-16, big endian", b"\xfe\xff\0{\0}"),
    ("UTF-16, no mark", b"{\0}\0"),
    ("UTF-32", b"{\0\0\0}\0\0\0"),
];

/// Valid JSON.
const WHOLE: &[(&str, &[u8], Kind)] = &[
    ("empty object", b"{}", Kind::Object),
    ("object", b"{\"v\":1}", Kind::Object),
    ("object, empty key", b"{\"\":1}", Kind::Object),
    (
        "object, key with an escape",
        b"{\"\\u0000\":1}",
        Kind::Object,
    ),
    ("object, key of space", b"{\" \":1}", Kind::Object),
    ("object, space everywhere", b" { \"v\" : 1 } ", Kind::Object),
    (
        "object, prototype",
        b"{\"__proto__\":{\"admin\":true}}",
        Kind::Object,
    ),
    (
        "object, other case",
        b"{\"JSONRPC\":\"2.0\",\"ID\":1,\"METHOD\":\"ping\"}",
        Kind::Object,
    ),
    (
        "object, nested",
        b"{\"a\":{\"b\":{\"c\":[{}]}}}",
        Kind::Object,
    ),
    ("empty array", b"[]", Kind::Array),
    ("array", b"[1,\"a\",null,true,false,{}]", Kind::Array),
    ("array, space everywhere", b"\t[\r\n1 ,\t2 ]\n", Kind::Array),
    ("array of arrays", b"[[[[[[[[[[]]]]]]]]]]", Kind::Array),
    ("array of empty strings", b"[\"\",\"\"]", Kind::Array),
    ("true", b"true", Kind::Other),
    ("false", b"false", Kind::Other),
    ("null", b"null", Kind::Other),
    ("zero", b"0", Kind::Id),
    ("negative", b"-1", Kind::Id),
    ("integer", b"123456789", Kind::Id),
    ("largest i64", b"9223372036854775807", Kind::Id),
    ("smallest i64", b"-9223372036854775808", Kind::Id),
    ("largest u64", b"18446744073709551615", Kind::Id),
    ("beyond u64", b"18446744073709551616", Kind::Other),
    ("below i64", b"-9223372036854775809", Kind::Other),
    ("fraction", b"1.5", Kind::Other),
    ("whole fraction", b"1.0", Kind::Id),
    ("negative zero fraction", b"-0.0", Kind::Id),
    ("exponent", b"1e3", Kind::Id),
    ("exponent, capital and plus", b"1E+3", Kind::Id),
    ("exponent, negative", b"1e-3", Kind::Other),
    ("smallest", b"5e-324", Kind::Other),
    ("largest f64", b"1.7976931348623157e308", Kind::Other),
    (
        "many digits",
        b"0.1234567890123456789012345678901234567890",
        Kind::Other,
    ),
    ("empty string", b"\"\"", Kind::Id),
    ("string", b"\"abc\"", Kind::Id),
    (
        "string, escapes",
        b"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        Kind::Id,
    ),
    ("string, escaped zero", b"\"\\u0000\"", Kind::Id),
    (
        "string, escaped controls",
        b"\"\\u0001\\u001f\\u007f\"",
        Kind::Id,
    ),
    ("string, surrogate pair", b"\"\\ud83d\\ude00\"", Kind::Id),
    (
        "string, capital digits",
        b"\"\\u00E9\\uD83D\\uDE00\"",
        Kind::Id,
    ),
    ("string, delete character", b"\"\x7f\"", Kind::Id),
    ("string, emoji", "\"😀\"".as_bytes(), Kind::Id),
    (
        "string, right to left",
        "\"\u{202e}abc\"".as_bytes(),
        Kind::Id,
    ),
    (
        "string, byte order mark",
        "\"\u{feff}\"".as_bytes(),
        Kind::Id,
    ),
    (
        "string, line separator",
        "\"\u{2028}\"".as_bytes(),
        Kind::Id,
    ),
    (
        "string, non-character",
        "\"\u{ffff}\u{10ffff}\"".as_bytes(),
        Kind::Id,
    ),
    (
        "string, noncharacter escape",
        b"\"\\uffff\\ufdd0\"",
        Kind::Id,
    ),
    ("string, comment", b"\"/* */ // #\"", Kind::Id),
    (
        "string, looks like an object",
        b"\"{\\\"a\\\":1}\"",
        Kind::Id,
    ),
    (
        "string, escaped backslash and u",
        b"\"\\\\u0041\"",
        Kind::Id,
    ),
];

/// A message with a value in a place.
fn message(lifecycle: Lifecycle, place: Place, value: &[u8]) -> Vec<u8> {
    if place == Place::Whole {
        return value.to_vec();
    }
    let template = match place {
        Place::Id => {
            r#"{"jsonrpc":"2.0","id":@,"method":"tools/call","params":{"name":"anything","arguments":{"v":1}META}}"#
        }
        Place::Params => r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":@}"#,
        Place::Arguments => {
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"anything","arguments":@META}}"#
        }
        Place::Argument => {
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"anything","arguments":{"v":@}META}}"#
        }
        Place::Element => {
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"anything","arguments":{"v":[1,@,2]}META}}"#
        }
        Place::Meta if lifecycle.is_stateless() => {
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"anything","arguments":{"v":1},"_meta":{"x":@,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#
        }
        Place::Meta => {
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"anything","arguments":{"v":1},"_meta":{"x":@}}}"#
        }
        Place::Unknown | Place::Whole => {
            r#"{"jsonrpc":"2.0","extra":@,"id":1,"method":"tools/call","params":{"name":"anything","arguments":{"v":1}META}}"#
        }
    };
    let template = template.replace("META", &lifecycle.meta());
    let (before, after) = template.split_once('@').expect("a place");
    [before.as_bytes(), value, after.as_bytes()].concat()
}

fn case(sessions: &Sessions, lifecycle: Lifecycle, place: Place, name: &str, value: &[u8]) -> Case {
    let body = message(lifecycle, place, value);
    let bytes = sessions.post(lifecycle, "tools/call", Some("anything"), body);
    Case::new(format!("{name} as {place:?}, {lifecycle:?}"), bytes)
}

#[test]
fn rpc_12_what_is_no_json_is_a_parse_error_wherever_it_stands() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for (name, value) in BROKEN {
        for lifecycle in ERAS {
            for place in PLACES {
                cases.push(case(&sessions, lifecycle, place, name, value).error(400, -32700, ""));
            }
        }
    }
    assert!(run_on(&server, cases) >= 2000);
}

#[test]
fn rpc_02_03_values_of_every_kind_are_taken_where_they_may_stand_and_refused_elsewhere() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for (name, value, kind) in WHOLE {
        let text = std::str::from_utf8(value).expect("UTF-8").trim();
        for lifecycle in ERAS {
            for place in PLACES {
                let case = case(&sessions, lifecycle, place, name, value);
                cases.push(match (place, kind) {
                    (Place::Argument | Place::Element | Place::Meta | Place::Unknown, _) => case,
                    (Place::Id, Kind::Id) => case.result(text),
                    (Place::Id, _) => case.error(400, -32600, ""),
                    (Place::Whole, Kind::Object) if text.contains("\"ID\"") => {
                        case.error(400, -32600, "")
                    }
                    (Place::Whole, _) => case.error(400, -32600, ""),
                    // The member is missing, or the call names no tool. Null and an empty list are the same as no parameters.
                    (Place::Params, kind)
                        if *kind == Kind::Object || matches!(text, "null" | "[]") =>
                    {
                        let status = if lifecycle.is_stateless() { 400 } else { 200 };
                        case.error(status, -32602, "1")
                    }
                    (Place::Params, _) => case.error(400, -32600, "1"),
                    // A tool reports invalid arguments to the model itself.
                    (Place::Arguments, Kind::Object) => case,
                    // The same as no arguments.
                    (Place::Arguments, _) if matches!(text, "null" | "[]") => case,
                    (Place::Arguments, _) => case.error(200, -32602, "1"),
                });
            }
        }
    }
    assert!(run_on(&server, cases) >= 800);
}

#[test]
fn depth_and_number_of_members_have_limits_to_the_one() {
    let server = server();
    let sessions = Sessions::of(&server);
    // The message, its parameters and the arguments are three levels.
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let objects = |levels: usize| "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
    let members = |n: usize| {
        let members: Vec<_> = (0..n).map(|n| format!("\"{n}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let mut cases = Vec::new();
    for lifecycle in ERAS {
        let case = |name: &str, value: String| {
            case(
                &sessions,
                lifecycle,
                Place::Argument,
                name,
                value.as_bytes(),
            )
        };
        cases.push(case("61 arrays", deep(61)));
        cases.push(case("61 objects", objects(61)));
        cases.push(case("10000 members", members(10_000)));
        for levels in [62, 100, 1000, 100_000] {
            let name = format!("{levels} arrays");
            cases.push(case(&name, deep(levels)).error(400, -32700, ""));
            let name = format!("{levels} objects");
            cases.push(case(&name, objects(levels)).error(400, -32700, ""));
            let name = format!("{levels} arrays that are not closed");
            cases.push(case(&name, "[".repeat(levels)).error(400, -32700, ""));
        }
        for n in [10_001, 50_000] {
            cases.push(case(&format!("{n} members"), members(n)).error(400, -32600, ""));
        }
        cases.push(case(
            "100000 elements",
            format!("[{}0]", "0,".repeat(99_999)),
        ));
        cases.push(case(
            "a megabyte of text",
            format!("\"{}\"", "x".repeat(1 << 20)),
        ));
        cases.push(case(
            "a megabyte of escapes",
            format!("\"{}\"", "\\n".repeat(1 << 19)),
        ));
        cases.push(case(
            "a megabyte of space",
            format!("{}1", " ".repeat(1 << 20)),
        ));
        let long = format!("0.{}", "1".repeat(100_000));
        cases.push(case("a long number", long));
        cases.push(case(
            "a long key",
            format!("{{\"{}\":1}}", "k".repeat(100_000)),
        ));
    }
    run_on(&server, cases);
}

#[test]
fn a_body_that_is_nothing_is_no_json() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for lifecycle in ERAS {
        for (name, value) in [
            ("nothing", ""),
            ("a space", " "),
            ("line breaks", "\r\n\r\n"),
        ] {
            let case = case(&sessions, lifecycle, Place::Whole, name, value.as_bytes());
            cases.push(case.error(400, -32700, ""));
        }
    }
    run_on(&server, cases);
}
