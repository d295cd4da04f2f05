//! Envelopes: JSON that is no message of JSON-RPC, or one that nobody can tell the meaning of.

use super::{Case, ERAS, Era, META, Sessions, bytes, run_on, server, stateless};

const INVALID: i64 = -32600;
const NOT_FOUND: i64 = -32601;

/// A body whose members are given, with `params` as the era needs them unless they are among those.
fn body(era: Era, members: &str) -> String {
    if members.contains("\"params\"") {
        format!("{{{members}}}")
    } else if era.is_stateless() {
        format!("{{{members},\"params\":{{{META}}}}}")
    } else {
        format!("{{{members}}}")
    }
}

/// Members of a message, and the id that can be read; no members named `params` where the era's own are to be there.
const INVALID_ENVELOPES: &[(&str, &str, &str)] = &[
    ("no version", r#""id":1,"method":"tools/list""#, "1"),
    (
        "version 1.0",
        r#""jsonrpc":"1.0","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version 2",
        r#""jsonrpc":"2","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version 2.00",
        r#""jsonrpc":"2.00","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version 2.1",
        r#""jsonrpc":"2.1","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version with a space",
        r#""jsonrpc":"2.0 ","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version empty",
        r#""jsonrpc":"","id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version is a number",
        r#""jsonrpc":2.0,"id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version is an integer",
        r#""jsonrpc":2,"id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version is null",
        r#""jsonrpc":null,"id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version is true",
        r#""jsonrpc":true,"id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version is an array",
        r#""jsonrpc":["2.0"],"id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version is an object",
        r#""jsonrpc":{},"id":1,"method":"tools/list""#,
        "1",
    ),
    (
        "version with a zero",
        "\"jsonrpc\":\"2.0\\u0000\",\"id\":1,\"method\":\"tools/list\"",
        "1",
    ),
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
    ("no method", r#""jsonrpc":"2.0","id":1"#, "1"),
    (
        "method null",
        r#""jsonrpc":"2.0","id":1,"method":null"#,
        "1",
    ),
    ("method number", r#""jsonrpc":"2.0","id":1,"method":1"#, "1"),
    (
        "method true",
        r#""jsonrpc":"2.0","id":1,"method":true"#,
        "1",
    ),
    (
        "method array",
        r#""jsonrpc":"2.0","id":1,"method":["tools/list"]"#,
        "1",
    ),
    (
        "method object",
        r#""jsonrpc":"2.0","id":1,"method":{}"#,
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
        "id null",
        r#""jsonrpc":"2.0","id":null,"method":"tools/list""#,
        "",
    ),
    (
        "id true",
        r#""jsonrpc":"2.0","id":true,"method":"tools/list""#,
        "",
    ),
    (
        "id false",
        r#""jsonrpc":"2.0","id":false,"method":"tools/list""#,
        "",
    ),
    (
        "id fraction",
        r#""jsonrpc":"2.0","id":1.5,"method":"tools/list""#,
        "",
    ),
    (
        "id whole fraction",
        r#""jsonrpc":"2.0","id":1.0,"method":"tools/list""#,
        "",
    ),
    (
        "id exponent",
        r#""jsonrpc":"2.0","id":1e3,"method":"tools/list""#,
        "",
    ),
    (
        "id huge exponent",
        r#""jsonrpc":"2.0","id":1e400,"method":"tools/list""#,
        "",
    ),
    (
        "id array",
        r#""jsonrpc":"2.0","id":[1],"method":"tools/list""#,
        "",
    ),
    (
        "id object",
        r#""jsonrpc":"2.0","id":{"a":1},"method":"tools/list""#,
        "",
    ),
    (
        "id beyond u64",
        r#""jsonrpc":"2.0","id":18446744073709551616,"method":"tools/list""#,
        "",
    ),
    (
        "id below i64",
        r#""jsonrpc":"2.0","id":-9223372036854775809,"method":"tools/list""#,
        "",
    ),
    (
        "id of forty digits",
        r#""jsonrpc":"2.0","id":1234567890123456789012345678901234567890,"method":"tools/list""#,
        "",
    ),
    (
        "params null",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":null"#,
        "1",
    ),
    (
        "params string",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":"a""#,
        "1",
    ),
    (
        "params number",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":1"#,
        "1",
    ),
    (
        "params true",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":true"#,
        "1",
    ),
    (
        "params array",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":[]"#,
        "1",
    ),
    (
        "params array of an object",
        r#""jsonrpc":"2.0","id":1,"method":"tools/list","params":[{}]"#,
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
        "notification with params null",
        r#""jsonrpc":"2.0","method":"notifications/initialized","params":null"#,
        "",
    ),
    (
        "notification with params array",
        r#""jsonrpc":"2.0","method":"notifications/initialized","params":[]"#,
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

#[test]
fn rpc_01_12_envelopes_that_are_none_are_refused_with_the_id_where_it_can_be_read() {
    let server = server();
    let sessions = Sessions::of(&server);
    let revisions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let eras = revisions
        .map(Era::Handshake)
        .into_iter()
        .chain([Era::Stateless]);
    let mut cases = Vec::new();
    for era in eras {
        for (name, members, id) in INVALID_ENVELOPES {
            let body = body(era, members);
            // Some are refused before anybody compares this header with the body.
            let bytes = sessions.post(era, "tools/list", None, body);
            cases.push(Case::new(format!("{name}, {era:?}"), bytes).error(400, INVALID, id));
        }
        let long = format!(
            r#""jsonrpc":"2.0","id":"{}","method":"tools/list""#,
            "x".repeat(1025)
        );
        let bytes = sessions.post(era, "tools/list", None, body(era, &long));
        cases.push(Case::new(format!("long id, {era:?}"), bytes).error(400, INVALID, ""));
    }
    assert!(run_on(&server, cases) >= 350);
}

#[test]
fn rpc_03_ids_come_back_to_the_letter() {
    let server = server();
    let sessions = Sessions::of(&server);
    let long = format!("\"{}\"", "x".repeat(1024));
    let mut cases = Vec::new();
    for era in ERAS {
        for id in [
            "0",
            "1",
            "-1",
            "42",
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551615",
            r#""""#,
            r#""1""#,
            r#""-1""#,
            r#""null""#,
            r#"" ""#,
            r#""a b""#,
            r#""\"""#,
            r#""\\""#,
            r#""\/""#,
            r#""\u0041""#,
            r#""\u0000""#,
            r#""\ud83d\ude00""#,
            r#""é""#,
            r#""😀""#,
            r#""</script>""#,
            r#""'; drop table""#,
            r#""__proto__""#,
            r#""{\"id\":2}""#,
            &long,
        ] {
            let members = format!(r#""jsonrpc":"2.0","id":{id},"method":"tools/list""#);
            let bytes = sessions.post(era, "tools/list", None, body(era, &members));
            cases.push(Case::new(format!("id {id:.30}, {era:?}"), bytes).result(id));
            // An error has it too.
            let members = format!(
                r#""jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"none"{}}}"#,
                era.meta()
            );
            let bytes = sessions.post(era, "tools/call", Some("none"), body(era, &members));
            let case = Case::new(format!("error for id {id:.30}, {era:?}"), bytes);
            cases.push(case.error(200, -32602, id));
        }
    }
    assert!(run_on(&server, cases) >= 100);
}

#[test]
fn mh_13_methods_that_there_are_not_are_not_found() {
    let server = server();
    let sessions = Sessions::of(&server);
    let long = "x".repeat(5000);
    let mut cases = Vec::new();
    for method in [
        "tools",
        "tools/",
        "tools/List",
        "Tools/list",
        "TOOLS/LIST",
        "tools/list/",
        "/tools/list",
        "tools//list",
        "tools.list",
        "tools/list2",
        "tools/mangle",
        "rpc.discover",
        "system.listMethods",
        "__proto__",
        "constructor",
        "toString",
        "../tools/list",
        "notifications/initialized",
        "notifications/cancelled",
        "sampling/createMessage",
        "roots/list",
        "elicitation/create",
        "tasks/list",
        "tasks/result",
        "resources/mangle",
        "prompts/mangle",
        "completion",
        "logging",
        "null",
        "0",
        "*",
        "a b",
        "<script>",
        "%74ools/list",
        &long,
    ] {
        for era in ERAS {
            let members = format!(r#""jsonrpc":"2.0","id":1,"method":"{method}""#);
            let bytes = sessions.post(era, method, None, body(era, &members));
            let status = if era.is_stateless() { 404 } else { 200 };
            let case = Case::new(format!("method {method:.30}, {era:?}"), bytes);
            cases.push(case.error(status, NOT_FOUND, "1"));
        }
    }
    // What no header can say, no request of the stateless era can ask; sessions may, and get the same.
    for method in [
        "",
        " tools/list",
        "tools/list ",
        "tools/list\\u0000",
        "tools\\u0000/list",
        "tools/list\\n",
        "tools/list\\r\\nx: y",
        "täols/list",
        "😀",
        "\\ud83d\\ude00",
        "tools/list\\u200b",
        "\\ufefftools/list",
    ] {
        let era = ERAS[0];
        let members = format!(r#""jsonrpc":"2.0","id":1,"method":"{method}""#);
        let bytes = sessions.post(era, method, None, body(era, &members));
        let case = Case::new(format!("method {method:?}, {era:?}"), bytes);
        cases.push(case.error(200, NOT_FOUND, "1"));
        let bytes = stateless("tools/list", None, body(Era::Stateless, &members));
        let case = Case::new(format!("method {method:?}, stateless"), bytes);
        cases.push(case.error(400, -32020, "1"));
    }
    // ERA-04: what only sessions have, with or without the mark of the stateless era.
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        let members = format!(r#""jsonrpc":"2.0","id":1,"method":"{method}""#);
        let bytes = stateless(method, None, body(Era::Stateless, &members));
        let case = Case::new(format!("{method} without a session"), bytes);
        cases.push(case.error(404, NOT_FOUND, "1"));
    }
    for method in ["server/discover", "subscriptions/listen"] {
        let members = format!(r#""jsonrpc":"2.0","id":1,"method":"{method}""#);
        let bytes = sessions.post(ERAS[0], method, None, body(ERAS[0], &members));
        let case = Case::new(format!("{method} in a session"), bytes);
        cases.push(case.error(200, NOT_FOUND, "1"));
    }
    assert!(run_on(&server, cases) >= 100);
}

#[test]
fn rpc_05_http_05_what_is_no_request_is_heard_and_not_answered() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for era in ERAS {
        for (name, members) in [
            ("initialized", r#""method":"notifications/initialized""#),
            (
                "initialized with params",
                r#""method":"notifications/initialized","params":{}"#,
            ),
            (
                "cancelled of nothing",
                r#""method":"notifications/cancelled","params":{"requestId":99}"#,
            ),
            (
                "cancelled of a string",
                r#""method":"notifications/cancelled","params":{"requestId":"x"}"#,
            ),
            (
                "cancelled without an id",
                r#""method":"notifications/cancelled","params":{}"#,
            ),
            (
                "cancelled of null",
                r#""method":"notifications/cancelled","params":{"requestId":null}"#,
            ),
            (
                "cancelled of an object",
                r#""method":"notifications/cancelled","params":{"requestId":{}}"#,
            ),
            (
                "cancelled without params",
                r#""method":"notifications/cancelled""#,
            ),
            (
                "progress of nothing",
                r#""method":"notifications/progress","params":{"progressToken":1,"progress":1}"#,
            ),
            (
                "roots have changed",
                r#""method":"notifications/roots/list_changed""#,
            ),
            ("unknown", r#""method":"notifications/unknown""#),
            ("a request's method", r#""method":"tools/list""#),
            (
                "a call that wants no answer",
                r#""method":"tools/call","params":{"name":"say","arguments":{}}"#,
            ),
            ("empty", r#""method":"""#),
            ("a member that nobody knows", r#""method":"a","x":1"#),
        ] {
            let body = format!("{{\"jsonrpc\":\"2.0\",{members}}}");
            let bytes = sessions.post(era, "notifications/initialized", None, body);
            cases.push(Case::new(format!("{name}, {era:?}"), bytes).status(&[202]));
        }
        for (name, members) in [
            ("a result", r#""id":1,"result":{}"#),
            ("a result for a string", r#""id":"x","result":{}"#),
            ("an error", r#""id":1,"error":{"code":-1,"message":"no"}"#),
            (
                "an error for nobody",
                r#""error":{"code":-1,"message":"no"}"#,
            ),
        ] {
            let body = format!("{{\"jsonrpc\":\"2.0\",{members}}}");
            let bytes = sessions.post(era, "tools/list", None, body);
            let case = Case::new(format!("{name}, {era:?}"), bytes);
            cases.push(if era.is_stateless() {
                // MH-21
                case.error(400, INVALID, "")
            } else {
                case.status(&[202])
            });
        }
    }
    assert!(run_on(&server, cases) >= 38);
}

#[test]
fn rpc_04_responses_that_are_none_are_refused() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for era in ERAS {
        for (members, id) in [
            (r#""result":{}"#, ""),
            (r#""result":null"#, ""),
            (r#""id":1,"error":null"#, "1"),
            (r#""id":1,"error":"no""#, "1"),
            (r#""id":1,"error":-1"#, "1"),
            (r#""id":1,"error":[-1,"no"]"#, "1"),
            (r#""id":1,"error":{}"#, "1"),
            (r#""id":1,"error":{"code":-1}"#, "1"),
            (r#""id":1,"error":{"message":"no"}"#, "1"),
            (r#""id":1,"error":{"code":"-1","message":"no"}"#, "1"),
            (r#""id":1,"error":{"code":-1.5,"message":"no"}"#, "1"),
            (r#""id":1,"error":{"code":null,"message":"no"}"#, "1"),
            (r#""id":1,"error":{"code":-1,"message":null}"#, "1"),
            (
                r#""id":1,"error":{"code":-1,"code":-2,"message":"no"}"#,
                "1",
            ),
            (r#""error":{"code":-1}"#, ""),
        ] {
            let body = format!("{{\"jsonrpc\":\"2.0\",{members}}}");
            let bytes = sessions.post(era, "tools/list", None, body);
            let case = Case::new(format!("{members}, {era:?}"), bytes);
            cases.push(case.error(400, INVALID, id));
        }
    }
    assert_eq!(run_on(&server, cases), 30);
}

#[test]
fn meta_09_members_that_nobody_knows_are_tolerated() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for era in ERAS {
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
            let bytes = sessions.post(era, "tools/list", None, body(era, &members));
            cases.push(Case::new(format!("{extra}, {era:?}"), bytes));
        }
        // The order of members does not matter, nor does space between them.
        for text in [
            format!(
                "{{\"method\":\"tools/list\",\"id\":1,\"params\":{{{}}},\"jsonrpc\":\"2.0\"}}",
                era.meta().trim_start_matches(',')
            ),
            format!(
                "\r\n\t {{ \"jsonrpc\" : \"2.0\" ,\n\"id\" : 1 , \"method\" : \"tools/list\" , \"params\" : {{ {} }} }} \n",
                era.meta().trim_start_matches(',')
            ),
            format!(
                "{{\"\\u006a\\u0073onrpc\":\"\\u0032.0\",\"id\":1,\"method\":\"tools\\/list\",\"params\":{{{}}}}}",
                era.meta().trim_start_matches(',')
            ),
        ] {
            let bytes = sessions.post(era, "tools/list", None, &text);
            cases.push(Case::new(format!("{text:.60}, {era:?}"), bytes));
        }
    }
    run_on(&server, cases);
}

#[test]
fn rpc_06_08_arrays_are_for_one_revision() {
    let server = server();
    let sessions = Sessions::of(&server);
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let many = format!("[{}]", vec![ping; 51].join(","));
    let mut cases = Vec::new();
    for (name, body) in [
        ("an array of a request", format!("[{ping}]")),
        ("an array of a notification", format!("[{note}]")),
        ("an empty array", "[]".to_owned()),
        ("an array of numbers", "[1,2,3]".to_owned()),
        ("an array of an array", format!("[[{ping}]]")),
        ("too many", many.clone()),
    ] {
        for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
            let bytes = sessions.post(Era::Handshake(revision), "", None, &body);
            let case = Case::new(format!("{name}, {revision}"), bytes);
            cases.push(case.error(400, INVALID, ""));
        }
        let bytes = stateless("ping", None, &body);
        cases.push(Case::new(format!("{name}, stateless"), bytes).error(400, INVALID, ""));
        // Who names no session is told of that, or of the array.
        let case = Case::new(format!("{name}, nobody"), bytes_of(&body));
        cases.push(case.error(400, INVALID, ""));
    }
    let batches = Era::Handshake("2025-03-26");
    let post = |body: &str| sessions.post(batches, "", None, body);
    for (name, body, ids) in [
        ("one", format!("[{ping}]"), 1),
        ("with a notification", format!("[{note},{ping}]"), 1),
        (
            "with a response",
            format!(r#"[{{"jsonrpc":"2.0","id":9,"result":{{}}}},{ping}]"#),
            1,
        ),
        ("with space", format!(" [ {ping} ] "), 1),
    ] {
        assert_eq!(ids, 1);
        cases.push(Case::new(format!("batch, {name}"), post(&body)).status(&[200]));
    }
    for (name, body) in [
        ("of notifications", format!("[{note},{note}]")),
        (
            "of responses",
            r#"[{"jsonrpc":"2.0","id":9,"result":{}}]"#.to_owned(),
        ),
    ] {
        cases.push(Case::new(format!("batch, {name}"), post(&body)).status(&[202]));
    }
    for (name, body) in [("empty", "[]".to_owned()), ("too many", many)] {
        let case = Case::new(format!("batch, {name}"), post(&body));
        cases.push(case.error(400, INVALID, ""));
    }
    for (name, body) in [("cut", format!("[{ping}")), ("comma", format!("[{ping},]"))] {
        let case = Case::new(format!("batch, {name}"), post(&body));
        cases.push(case.error(400, -32700, ""));
    }
    // What is wrong with one is said of that one.
    for body in [
        format!("[1,{ping}]"),
        format!("[null,{ping}]"),
        format!("[\"x\",{ping}]"),
        format!("[[],{ping}]"),
        format!("[{{}},{ping}]"),
        format!(r#"[{{"jsonrpc":"2.0","id":5,"method":"initialize","params":{{}}}},{ping}]"#),
        format!(r#"[{{"jsonrpc":"2.0","id":5,"method":"unknown"}},{ping}]"#),
        format!(r#"[{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{{{META}}}}},{ping}]"#),
    ] {
        cases.push(Case::new(format!("batch, {body:.60}"), post(&body)).status(&[200]));
    }
    run_on(&server, cases);
}

fn bytes_of(body: &str) -> Vec<u8> {
    bytes(&[], body)
}
