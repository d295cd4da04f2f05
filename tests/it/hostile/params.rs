//! Parameters that a method does not take.

use super::{Case, ERAS, Lifecycle, META, Sessions, bytes, run_on, server, stateless};

const INVALID_PARAMS: i64 = -32602;

/// A request with parameters as JSON text without braces; the stateless lifecycle adds what it needs.
fn case(
    sessions: &Sessions,
    lifecycle: Lifecycle,
    method: &str,
    name: Option<&str>,
    params: &str,
) -> Case {
    let meta = lifecycle.meta();
    let params = match (params, meta.as_str()) {
        ("", "") => String::new(),
        ("", _) => META.to_owned(),
        (params, meta) => format!("{params}{meta}"),
    };
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#);
    let bytes = sessions.post(lifecycle, method, name, body);
    Case::new(format!("{method} {params:.80}, {lifecycle:?}"), bytes)
}

#[test]
fn tool_05_calls_of_nothing_and_of_what_there_is_not_are_errors_of_the_protocol() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for lifecycle in ERAS {
        for params in [
            "",
            r#""name":null"#,
            r#""name":1"#,
            r#""name":true"#,
            r#""name":[]"#,
            r#""name":["say"]"#,
            r#""name":{}"#,
            r#""Name":"say""#,
            r#""tool":"say""#,
            r#""arguments":{"message":"x"}"#,
        ] {
            let case = case(&sessions, lifecycle, "tools/call", None, params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
        let long = "x".repeat(10_000);
        for name in [
            "none",
            "Say",
            "SAY",
            "say2",
            "sa",
            "say/",
            "../say",
            "say,anything",
            "*",
            "__proto__",
            "constructor",
            "null",
            "0",
            "tools/call",
            "<script>",
            &long,
        ] {
            let params = format!(r#""name":"{name}","arguments":{{}}"#);
            let case = case(&sessions, lifecycle, "tools/call", Some(name), &params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
        for arguments in [
            "[1]", "[{}]", "\"x\"", "\"{}\"", "1", "0", "true", "false", "1.5",
        ] {
            let params = format!(r#""name":"say","arguments":{arguments}"#);
            let case = case(&sessions, lifecycle, "tools/call", Some("say"), &params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
    }
    // Names that only a session can say, since no header could mirror them as they are.
    for name in ["", " say", "say ", "say\\u0000", "säy", "😀", "say\\n"] {
        let params = format!(r#""name":"{name}""#);
        let case = case(&sessions, ERAS[0], "tools/call", None, &params);
        cases.push(case.error(200, INVALID_PARAMS, "1"));
    }
    assert!(run_on(&server, cases) >= 70);
}

#[test]
fn mh_05_a_name_in_a_header_needs_one_in_the_body() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for method in ["tools/call", "prompts/get", "resources/read"] {
        for params in ["", r#""name":null,"uri":null"#, r#""name":1,"uri":["a"]"#] {
            for name in ["say", "", "=?base64?c2F5?="] {
                let case = case(&sessions, Lifecycle::Stateless, method, Some(name), params);
                cases.push(case.error(400, -32020, "1"));
            }
            // The error states the true reason.
            let none = case(&sessions, Lifecycle::Stateless, method, None, params);
            cases.push(none.error(200, INVALID_PARAMS, "1"));
        }
    }
    assert_eq!(run_on(&server, cases), 36);
}

#[test]
fn tool_06_arguments_that_do_not_fit_are_told_to_the_model_or_by_an_error_as_the_revision_has_it() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for arguments in [
        "{}",
        r#"{"small":null}"#,
        r#"{"small":"1"}"#,
        r#"{"small":true}"#,
        r#"{"small":[1]}"#,
        r#"{"small":{}}"#,
        r#"{"small":1.5}"#,
        r#"{"small":-1}"#,
        r#"{"small":256}"#,
        r#"{"small":1e3}"#,
        r#"{"small":99999999999999999999}"#,
        r#"{"small":1,"wide":9223372036854775808}"#,
        r#"{"small":1,"wide":"x"}"#,
        r#"{"small":1,"wide":1e300}"#,
        r#"{"small":1,"real":"NaN"}"#,
        r#"{"small":1,"real":true}"#,
        r#"{"small":1,"unknown":1}"#,
        r#"{"Small":1}"#,
        r#"{"small":1,"small ":1}"#,
    ] {
        for revision in ["2024-11-05", "2025-03-26", "2025-06-18"] {
            let lifecycle = Lifecycle::Handshake(revision);
            let params = format!(r#""name":"numbers","arguments":{arguments}"#);
            let case = case(&sessions, lifecycle, "tools/call", None, &params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
        for lifecycle in ERAS {
            let params = format!(r#""name":"numbers","arguments":{arguments}"#);
            cases.push(case(
                &sessions,
                lifecycle,
                "tools/call",
                Some("numbers"),
                &params,
            ));
        }
    }
    for arguments in [
        r#"{"small":0}"#,
        r#"{"small":255}"#,
        r#"{"small":1,"wide":-9223372036854775808}"#,
        r#"{"small":1,"wide":null,"real":null}"#,
        r#"{"small":1,"real":5e-324}"#,
        r#"{"small":1,"real":3}"#,
    ] {
        for lifecycle in ERAS {
            let params = format!(r#""name":"numbers","arguments":{arguments}"#);
            cases.push(case(
                &sessions,
                lifecycle,
                "tools/call",
                Some("numbers"),
                &params,
            ));
        }
    }
    assert!(run_on(&server, cases) >= 100);
}

#[test]
fn page_02_cursors_that_are_none_are_invalid_parameters() {
    let server = server();
    let sessions = Sessions::of(&server);
    let long = format!("\"{}\"", "x".repeat(100_000));
    let mut cases = Vec::new();
    for method in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        for lifecycle in ERAS {
            for cursor in [
                "\"\"",
                "\"x\"",
                "\"0\"",
                "\"say\"",
                "\"../..\"",
                "\"\\u0000\"",
                "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"",
                "\"é\"",
                "\"' or 1=1\"",
                &long,
                "1",
                "-1",
                "true",
                "[]",
                "{}",
            ] {
                let params = format!("\"cursor\":{cursor}");
                let case = case(&sessions, lifecycle, method, None, &params);
                cases.push(case.error(200, INVALID_PARAMS, "1"));
            }
            cases.push(case(&sessions, lifecycle, method, None, ""));
            cases.push(case(
                &sessions,
                lifecycle,
                method,
                None,
                r#""limit":1,"offset":-1"#,
            ));
        }
    }
    assert!(run_on(&server, cases) >= 120);
}

#[test]
fn res_05_resources_that_are_none_are_not_found() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for lifecycle in ERAS {
        for params in [
            "",
            r#""uri":null"#,
            r#""uri":1"#,
            r#""uri":[]"#,
            r#""uri":{}"#,
            r#""URI":"longshore://about""#,
            r#""name":"longshore://about""#,
        ] {
            let case = case(&sessions, lifecycle, "resources/read", None, params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
        let not_found = if lifecycle.is_stateless() {
            INVALID_PARAMS
        } else {
            -32002
        };
        for uri in [
            "longshore://nothing",
            "longshore://about/",
            "longshore://about?x",
            "longshore://about#x",
            "file:///etc/passwd",
            "file:///../../etc/passwd",
            "http://169.254.169.254/latest/meta-data",
            "http://localhost/",
            "data:text/plain,x",
            "javascript:alert(1)",
            "verb:x",
            "a:b",
        ] {
            let params = format!(r#""uri":"{uri}""#);
            let case = case(&sessions, lifecycle, "resources/read", Some(uri), &params);
            cases.push(case.error(200, not_found, "1"));
        }
        for uri in [
            "nothing",
            "about",
            "/etc/passwd",
            "../x",
            "//x",
            "1:2",
            ":",
            "a b",
        ] {
            let params = format!(r#""uri":"{uri}""#);
            let case = case(&sessions, lifecycle, "resources/read", Some(uri), &params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
    }
    // Longer than the limit of a header.
    for text in ["verb://", "longshore://", "a:"] {
        for filler in ["x", ",", "/", "%20", "{", "../"] {
            let uri = format!("{text}{}", filler.repeat(1 << 20));
            let params = format!(r#""uri":"{uri}""#);
            let case = case(&sessions, ERAS[0], "resources/read", None, &params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
    }
    assert!(run_on(&server, cases) >= 60);
}

#[test]
fn prompt_03_comp_01_log_01_other_methods_say_what_they_miss() {
    let server = server();
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for lifecycle in ERAS {
        for params in [
            "",
            r#""name":null"#,
            r#""name":1"#,
            r#""name":[]"#,
            r#""arguments":{}"#,
        ] {
            let case = case(&sessions, lifecycle, "prompts/get", None, params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
        for (name, arguments) in [
            ("none", "{}"),
            ("practise_verb", "{}"),
            ("practise_verb", "null"),
            ("practise_verb", "[]"),
            ("practise_verb", "1"),
            ("practise_verb", r#"{"verb":1}"#),
            ("practise_verb", r#"{"verb":null}"#),
            ("practise_verb", r#"{"verb":{}}"#),
        ] {
            let params = format!(r#""name":"{name}","arguments":{arguments}"#);
            let case = case(&sessions, lifecycle, "prompts/get", Some(name), &params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
        for params in [
            "",
            r#""ref":null,"argument":{"name":"verb","value":""}"#,
            r#""ref":{},"argument":{"name":"verb","value":""}"#,
            r#""ref":{"type":"ref/prompt"},"argument":{"name":"verb","value":""}"#,
            r#""ref":{"type":"ref/resource"},"argument":{"name":"verb","value":""}"#,
            r#""ref":{"type":"ref/nothing","name":"practise_verb"},"argument":{"name":"verb","value":""}"#,
            r#""ref":{"type":1,"name":"practise_verb"},"argument":{"name":"verb","value":""}"#,
            r#""ref":{"type":"ref/prompt","name":"none"},"argument":{"name":"verb","value":""}"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"}"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":null"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":{}"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":{"name":"verb"}"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":{"name":"verb","value":1}"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":{"name":"none","value":""}"#,
            r#""ref":{"type":"ref/resource","uri":"none://x"},"argument":{"name":"verb","value":""}"#,
            // An array is not an object, whatever its items are.
            r#""ref":["ref/prompt","practise_verb"],"argument":{"name":"verb","value":""}"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":["verb",""]"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":{"name":"verb","value":""},"context":[]"#,
            r#""ref":{"type":"ref/prompt","name":"practise_verb"},"argument":{"name":"verb","value":""},"context":[{}]"#,
        ] {
            let case = case(&sessions, lifecycle, "completion/complete", None, params);
            cases.push(case.error(200, INVALID_PARAMS, "1"));
        }
    }
    for params in [
        "",
        r#""level":null"#,
        r#""level":1"#,
        r#""level":"""#,
        r#""level":"loud""#,
        r#""level":"INFO""#,
        r#""level":"info ""#,
        r#""level":["info"]"#,
        r#""Level":"info""#,
    ] {
        let case = case(&sessions, ERAS[0], "logging/setLevel", None, params);
        cases.push(case.error(200, INVALID_PARAMS, "1"));
    }
    for params in [
        "",
        r#""protocolVersion":null"#,
        r#""protocolVersion":1"#,
        r#""protocolVersion":[]"#,
        r#""protocolVersion":{}"#,
        r#""ProtocolVersion":"2025-11-25""#,
        r#""protocolVersion":"2025-11-25","capabilities":1"#,
        r#""protocolVersion":"2025-11-25","capabilities":"x""#,
        r#""protocolVersion":"2025-11-25","clientInfo":1"#,
        r#""protocolVersion":"2025-11-25","clientInfo":{"name":1}"#,
        r#""protocolVersion":"2025-11-25","clientInfo":[]"#,
        r#""protocolVersion":"2025-11-25","clientInfo":["a","1"]"#,
        r#""protocolVersion":"2025-11-25","capabilities":[1]"#,
    ] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{{params}}}}}"#);
        let case = Case::new(format!("initialize {params}"), bytes(&[], body));
        cases.push(case.error(200, INVALID_PARAMS, "1"));
    }
    assert!(run_on(&server, cases) >= 70);
}

#[test]
fn meta_01_ver_02_what_a_request_without_a_session_has_to_say_of_itself() {
    let server = server();
    let mut cases = Vec::new();
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let post = |params: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{params}}}"#);
        Case::new(
            format!("params {params}"),
            stateless("tools/list", None, body),
        )
    };
    for params in [
        "{}".to_owned(),
        r#"{"_meta":{}}"#.to_owned(),
        r#"{"_meta":null}"#.to_owned(),
        r#"{"_meta":[]}"#.to_owned(),
        r#"{"_meta":"x"}"#.to_owned(),
        r#"{"_meta":1}"#.to_owned(),
        format!("{{\"_meta\":{{{version}}}}}"),
        format!("{{\"_meta\":{{{capabilities}}}}}"),
        format!("{{\"_meta\":{{{version},\"io.modelcontextprotocol/clientCapabilities\":null}}}}"),
        format!("{{\"_meta\":{{{version},\"io.modelcontextprotocol/clientCapabilities\":[]}}}}"),
        format!("{{\"_meta\":{{{version},\"io.modelcontextprotocol/clientCapabilities\":\"x\"}}}}"),
        format!("{{\"_meta\":{{{version},\"io.modelcontextprotocol/clientCapabilities\":1}}}}"),
        format!("{{\"_meta\":{{{version},\"io.modelcontextprotocol/clientCapabilities\":true}}}}"),
        format!(
            "{{\"_meta\":{{{capabilities},\"io.modelcontextprotocol/protocolVersion\":null}}}}"
        ),
        format!("{{\"_meta\":{{{capabilities},\"io.modelcontextprotocol/protocolVersion\":1}}}}"),
        format!("{{\"_meta\":{{{capabilities},\"io.modelcontextprotocol/protocolVersion\":[]}}}}"),
        format!(
            "{{\"_meta\":{{{capabilities},\"io.modelcontextprotocol/protocolVersion\":{{}}}}}}"
        ),
        format!(
            "{{\"_meta\":{{{capabilities},\"IO.MODELCONTEXTPROTOCOL/protocolVersion\":\"2026-07-28\"}}}}"
        ),
        format!("{{\"_meta\":{{{capabilities},\"protocolVersion\":\"2026-07-28\"}}}}"),
        format!("{{{version},{capabilities}}}"),
    ] {
        cases.push(post(&params).error(400, INVALID_PARAMS, "1"));
    }
    for level in [
        "null", "1", "\"\"", "\"loud\"", "\"INFO\"", "[]", "{}", "true",
    ] {
        let params = format!(
            "{{\"_meta\":{{{version},{capabilities},\"io.modelcontextprotocol/logLevel\":{level}}}}}"
        );
        cases.push(post(&params).error(200, INVALID_PARAMS, "1"));
    }
    for token in ["null", "1", "\"x\"", "1.5", "[]", "{}"] {
        let params =
            format!("{{\"_meta\":{{{version},{capabilities},\"progressToken\":{token}}}}}");
        cases.push(post(&params));
    }
    // The version that the body says, with the same in the header.
    for version in [
        "1900-01-01",
        "2024-11-05",
        "2025-03-26",
        "2025-06-18",
        "2025-11-25",
        "2026-07-29",
        "9999-12-31",
        "2026-7-28",
        "draft",
        "latest",
        "2026-07-28-rc",
        "v2026-07-28",
        "1",
        "*",
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}",{capabilities}}}}}}}"#
        );
        let headers = [
            ("mcp-protocol-version", version),
            ("mcp-method", "tools/list"),
        ];
        let case = Case::new(format!("version {version}"), bytes(&headers, body));
        cases.push(case.error(400, -32022, "1"));
    }
    run_on(&server, cases);
}
