//! Valid messages, with IDs and methods of all kinds, and notifications.

use super::{Case, ERAS, INVALID, Lifecycle, Sessions, body, run_on, server, stateless};

const NOT_FOUND: i64 = -32601;

#[test]
fn rpc_03_ids_come_back_to_the_letter() {
    let server = server();
    let sessions = Sessions::of(&server);
    let long = format!("\"{}\"", "x".repeat(1024));
    let mut cases = Vec::new();
    for lifecycle in ERAS {
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
            let bytes = sessions.post(lifecycle, "tools/list", None, body(lifecycle, &members));
            cases.push(Case::new(format!("id {id:.30}, {lifecycle:?}"), bytes).result(id));
            // An error has it too.
            let members = format!(
                r#""jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"none"{}}}"#,
                lifecycle.meta()
            );
            let bytes = sessions.post(
                lifecycle,
                "tools/call",
                Some("none"),
                body(lifecycle, &members),
            );
            let case = Case::new(format!("error for id {id:.30}, {lifecycle:?}"), bytes);
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
        for lifecycle in ERAS {
            let members = format!(r#""jsonrpc":"2.0","id":1,"method":"{method}""#);
            let bytes = sessions.post(lifecycle, method, None, body(lifecycle, &members));
            let status = if lifecycle.is_stateless() { 404 } else { 200 };
            let case = Case::new(format!("method {method:.30}, {lifecycle:?}"), bytes);
            cases.push(case.error(status, NOT_FOUND, "1"));
        }
    }
    // Methods that cannot be written in a header cannot be called in the stateless lifecycle; sessions get the same error.
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
        let lifecycle = ERAS[0];
        let members = format!(r#""jsonrpc":"2.0","id":1,"method":"{method}""#);
        let bytes = sessions.post(lifecycle, method, None, body(lifecycle, &members));
        let case = Case::new(format!("method {method:?}, {lifecycle:?}"), bytes);
        cases.push(case.error(200, NOT_FOUND, "1"));
        let bytes = stateless("tools/list", None, body(Lifecycle::Stateless, &members));
        let case = Case::new(format!("method {method:?}, stateless"), bytes);
        cases.push(case.error(400, -32020, "1"));
    }
    // ERA-04: what only sessions have, with or without the mark of the stateless lifecycle.
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ] {
        let members = format!(r#""jsonrpc":"2.0","id":1,"method":"{method}""#);
        let bytes = stateless(method, None, body(Lifecycle::Stateless, &members));
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
    for lifecycle in ERAS {
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
            let bytes = sessions.post(lifecycle, "notifications/initialized", None, body);
            cases.push(Case::new(format!("{name}, {lifecycle:?}"), bytes).status(&[202]));
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
            let bytes = sessions.post(lifecycle, "tools/list", None, body);
            let case = Case::new(format!("{name}, {lifecycle:?}"), bytes);
            cases.push(if lifecycle.is_stateless() {
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
    for lifecycle in ERAS {
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
            let bytes = sessions.post(lifecycle, "tools/list", None, body);
            let case = Case::new(format!("{members}, {lifecycle:?}"), bytes);
            cases.push(case.error(400, INVALID, id));
        }
    }
    assert_eq!(run_on(&server, cases), 30);
}
