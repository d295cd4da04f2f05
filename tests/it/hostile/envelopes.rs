//! Envelopes: JSON that is not a JSON-RPC message, or is ambiguous.

use super::{Case, ERAS, INVALID, Lifecycle, Sessions, body, run_on, server};

/// Invalid values of `jsonrpc`.
const VERSIONS: &[&str] = &[
    r#""1.0""#,
    r#""2""#,
    r#""2.00""#,
    r#""2.1""#,
    r#""2.0 ""#,
    r#""""#,
    "2.0",
    "2",
    "null",
    "true",
    r#"["2.0"]"#,
    "{}",
    r#""2.0\u0000""#,
];

/// Invalid IDs.
const IDS: &[&str] = &[
    "null",
    "true",
    "false",
    "1.5",
    "1e-1",
    "1e16",
    "1e400",
    "[1]",
    r#"{"a":1}"#,
    "18446744073709551616",
    "-9223372036854775809",
    "1234567890123456789012345678901234567890",
];

/// Invalid values of `method`.
const METHODS: &[&str] = &["null", "1", "true", r#"["tools/list"]"#, "{}"];

/// Invalid values of `params`.
const PARAMS: &[&str] = &["false", r#""a""#, "1", "true", "[1]", "[{}]"];

/// Members of a message, and the id that can be read; no members named `params` where the lifecycle's own are to be there.
const OTHERS: &[(&str, &str, &str)] = &[
    ("no version", r#""id":1,"method":"tools/list""#, "1"),
    (
        "version key in capitals",
        r#""JSONRPC":"2.0","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version key mixed",
        r#""jsonRpc":"2.0","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version key with a space",
        r#""jsonrpc ":"2.0","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version twice",
        r#""jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version twice, differing",
        r#""jsonrpc":"1.0","jsonrpc":"2.0","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version twice, escaped",
        "\"jsonrpc\":\"2.0\",\"\\u006asonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"",
        "1",
    ),
    (
        "the protocol has no client method",
        r#""jsonrpc":"2.0","id":1"#,
        "1",
    ),
    (
        "method key in capitals",
        r#""jsonrpc":"2.0","id":1,"METHOD":"tools/list""#,
        "1",
    ),
    (
        "method key capitalised",
        r#""jsonrpc":"2.0","id":1,"Method":"tools/list""#,
        "1",
    ),
    (
        "method key with a zero",
        "\"jsonrpc\":\"2.0\",\"id\":1,\"method\\u0000\":\"tools/list\"",
        "1",
    ),
    (
        "method twice",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/list""#,
        "1",
    ),
    (
        "method twice, differing",
        r#""jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list""#,
        "1",
    ),
    (
        "method twice, escaped",
        "\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"m\\u0065thod\":\"tools/call\"",
        "1",
    ),
    (
        "id twice",
        r#""jsonrpc":"2.0","id":1,"id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "id twice, differing",
        r#""jsonrpc":"2.0","id":1,"id":2,"method":"tools/list""#,
        "",
    ),
    (
        "id twice, once a text",
        r#""jsonrpc":"2.0","id":1,"id":"1","method":"tools/list""#,
        "",
    ),
    (
        "id thrice, the first and the last the same",
        r#""jsonrpc":"2.0","id":1,"id":2,"id":1,"method":"tools/list""#,
        "",
    ),
    (
        "id twice, escaped",
        "\"jsonrpc\":\"2.0\",\"\\u0069d\":1,\"id\":1,\"method\":\"tools/list\"",
        "1",
    ),
    (
        "params twice",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":{},"params":{}"#,
        "1",
    ),
    (
        "params twice, one null",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":null,"params":{}"#,
        "1",
    ),
    (
        "params twice, escaped",
        "\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{},\"p\\u0061rams\":{}",
        "1",
    ),
    (
        "name twice",
        r#""jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","name":"anything"}"#,
        "1",
    ),
    (
        "name twice, escaped",
        "\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"say\",\"n\\u0061me\":\"anything\"}",
        "1",
    ),
    (
        "uri twice",
        r#""jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b","uri":"a:c"}"#,
        "1",
    ),
    (
        "arguments twice",
        r#""jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{},"arguments":{}}"#,
        "1",
    ),
    (
        "_meta twice",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{},"_meta":{}}"#,
        "1",
    ),
    (
        "progress token twice",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":1,"progressToken":2}}"#,
        "1",
    ),
    (
        "version in _meta twice",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/protocolVersion":"2025-11-25"}}"#,
        "1",
    ),
    (
        "result and method",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","result":{}"#,
        "1",
    ),
    (
        "error and method",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","error":{}"#,
        "1",
    ),
    (
        "result and error",
        r#""jsonrpc":"2.0","id":1,"result":{},"error":{}"#,
        "1",
    ),
    (
        "result twice",
        r#""jsonrpc":"2.0","id":1,"result":{},"result":{}"#,
        "1",
    ),
    (
        "error twice",
        r#""jsonrpc":"2.0","id":1,"error":{},"error":{}"#,
        "1",
    ),
    ("only an id", r#""id":1"#, "1"),
    ("only a version", r#""jsonrpc":"2.0""#, ""),
    ("version and params", r#""jsonrpc":"2.0","params":{}"#, ""),
    (
        "notification without version",
        r#""method":"notifications/initialized""#,
        "",
    ),
    (
        "notification with params false",
        r#""jsonrpc":"2.0","method":"notifications/initialized","params":false"#,
        "",
    ),
    (
        "notification with params array",
        r#""jsonrpc":"2.0","method":"notifications/initialized","params":[1]"#,
        "",
    ),
    (
        "notification with method twice",
        r#""jsonrpc":"2.0","method":"a","method":"b""#,
        "",
    ),
    (
        "notification with a number for method",
        r#""jsonrpc":"2.0","method":1"#,
        "",
    ),
    (
        "response with id null",
        r#""jsonrpc":"2.0","id":null,"result":{}"#,
        "",
    ),
    (
        "response with a fraction for id",
        r#""jsonrpc":"2.0","id":1.5,"result":{}"#,
        "",
    ),
    ("response without version", r#""id":1,"result":{}"#, "1"),
];

/// All of them: what they are called, their members, and the id that can be read.
fn invalid() -> Vec<(String, String, &'static str)> {
    let kinds: [(&str, &[&str], fn(&str) -> String, &str); 4] = [
        (
            "version",
            VERSIONS,
            |it| format!(r#""jsonrpc":{it},"id":1,"method":"tools/list""#),
            "1",
        ),
        (
            "id",
            IDS,
            |it| format!(r#""jsonrpc":"2.0","id":{it},"method":"tools/list""#),
            "",
        ),
        (
            "method",
            METHODS,
            |it| format!(r#""jsonrpc":"2.0","id":1,"method":{it}"#),
            "1",
        ),
        (
            "params",
            PARAMS,
            |it| format!(r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":{it}"#),
            "1",
        ),
    ];
    let of_kinds = kinds.into_iter().flat_map(|(kind, all, members, id)| {
        all.iter()
            .map(move |it| (format!("{kind} {it}"), members(it), id))
    });
    let others = OTHERS.iter();
    let others = others.map(|(name, members, id)| ((*name).to_owned(), (*members).to_owned(), *id));
    of_kinds.chain(others).collect()
}

#[test]
fn rpc_01_12_envelopes_that_are_none_are_refused_with_the_id_where_it_can_be_read() {
    let server = server();
    let sessions = Sessions::of(&server);
    let revisions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let lifecycles = revisions
        .map(Lifecycle::Handshake)
        .into_iter()
        .chain([Lifecycle::Stateless]);
    let mut cases = Vec::new();
    for lifecycle in lifecycles {
        for (name, members, id) in invalid() {
            let body = body(lifecycle, &members);
            // Some are rejected before this header is compared with the body.
            let bytes = sessions.post(lifecycle, "tools/list", None, body);
            cases.push(Case::new(format!("{name}, {lifecycle:?}"), bytes).error(400, INVALID, id));
        }
        let long = format!(
            r#""jsonrpc":"2.0","id":"{}","method":"tools/list""#,
            "x".repeat(1025)
        );
        let bytes = sessions.post(lifecycle, "tools/list", None, body(lifecycle, &long));
        cases.push(Case::new(format!("long id, {lifecycle:?}"), bytes).error(400, INVALID, ""));
    }
    assert!(run_on(&server, cases) >= 350);
}

#[test]
fn meta_09_members_that_nobody_knows_are_tolerated() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for lifecycle in ERAS {
        for extra in [
            r#""extra":1"#,
            r#""extra":1,"extra":2"#,
            r#""":null"#,
            r#""Id":2"#,
            r#""ID":2"#,
            r#""METHOD":"x""#,
            r#""Params":{}"#,
            r#""id ":2"#,
            "\"id\\u0000\":2",
            r#""$schema":"x""#,
            r#""results":{}"#,
            r#""__proto__":{"id":2}"#,
        ] {
            let members = format!(r#""jsonrpc":"2.0",{extra},"id":1,"method":"tools/list""#);
            let bytes = sessions.post(lifecycle, "tools/list", None, body(lifecycle, &members));
            cases.push(Case::new(format!("{extra}, {lifecycle:?}"), bytes));
        }
        // The order of members does not matter, nor does space between them.
        for text in [
            format!(
                "{{\"method\":\"tools/list\",\"id\":1,\"params\":{{{}}},\"jsonrpc\":\"2.0\"}}",
                lifecycle.meta().trim_start_matches(',')
            ),
            format!(
                "\r\n\t {{ \"jsonrpc\" : \"2.0\" ,\n\"id\" : 1 , \"method\" : \"tools/list\" , \"params\" : {{ {} }} }} \n",
                lifecycle.meta().trim_start_matches(',')
            ),
            format!(
                "{{\"\\u006a\\u0073onrpc\":\"\\u0032.0\",\"id\":1,\"method\":\"tools\\/list\",\"params\":{{{}}}}}",
                lifecycle.meta().trim_start_matches(',')
            ),
        ] {
            let bytes = sessions.post(lifecycle, "tools/list", None, &text);
            cases.push(Case::new(format!("{text:.60}, {lifecycle:?}"), bytes));
        }
    }
    run_on(&server, cases);
}
