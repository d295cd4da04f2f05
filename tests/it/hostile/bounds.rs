//! Limits of messages and credentials at their edges, and the metric of each limit.

use std::io::Write as _;
use std::sync::Arc;

use longshore::{CallContext, Config, Definition, LogLevel, tool_fn};
use serde_json::{Map, Value, json};

use super::http2::frame;
use super::{Case, Lifecycle, META, Sessions, bytes, run_on, say, stateless};
use crate::support::{Running, Serve, Stateless, becomes, longshore, said};

fn narrow(change: impl FnOnce(&mut Config)) -> Running {
    Serve::new().tool(say).admin().configured(change).start()
}

/// Asserts how often a limit was hit. The metric may lag slightly behind a closed connection.
#[track_caller]
fn counted(server: &Running, limit: &str, times: u64) {
    becomes(|| {
        let found = server.admin_page("/metrics").limit_hits(limit);
        assert!(found <= times, "{limit}: {found}, not {times}");
        found == times
    });
}

fn nested(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

fn members(number: usize) -> String {
    let all: Vec<_> = (0..number).map(|n| format!("\"{n}\":0")).collect();
    all.join(",")
}

#[test]
fn rpc_03_12_messages_have_narrower_bounds_where_they_are_set() {
    let server = narrow(|c| {
        c.server.messages.depth = 8;
        c.server.messages.members = 16;
        c.server.messages.id_bytes = 36;
    });
    let sessions = Sessions::of(&server);
    let mut cases = Vec::new();
    for lifecycle in super::ERAS {
        let meta = lifecycle.meta();
        let body = |id: &str, more: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"x":{more}{meta}}}}}"#
            )
        };
        let id = |n: usize| format!("\"{}\"", "x".repeat(n));
        let mut add = |name: &str, id: &str, more: &str, expected: Option<(i64, &str)>| {
            let post = sessions.post(lifecycle, "tools/list", None, body(id, more));
            let case = Case::new(format!("{name}, {lifecycle:?}"), post);
            cases.push(match expected {
                None => case.result(id),
                Some((code, id)) => case.error(400, code, id),
            });
        };
        // The message and its parameters are two levels.
        add("six levels more", "1", &nested(6), None);
        add("seven levels more", "1", &nested(7), Some((-32700, "")));
        add("16 members", "1", &format!("{{{}}}", members(16)), None);
        let crowd = format!("{{{}}}", members(17));
        add("17 members", "1", &crowd, Some((-32600, "")));
        add("an id of 36", &id(36), "1", None);
        add("an id of 37", &id(37), "1", Some((-32600, "")));
        add("a large number", "18446744073709551615", "1", None);
    }
    assert_eq!(run_on(&server, cases), 14);
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}}"#,
        nested(9)
    );
    let told = server.post(&[], &deep).json();
    assert_eq!(told["error"]["data"]["setting"], "server.messages.depth");
    for (limit, times) in [("depth", 3), ("members", 2), ("id_bytes", 2)] {
        counted(&server, &format!("server.messages.{limit}"), times);
    }
}

#[test]
fn rpc_12_a_message_holds_so_many_values_wherever_they_are() {
    let server = narrow(|c| c.server.messages.values = 1000);
    let sessions = Sessions::of(&server);
    let zeros = |n: usize| format!("[{}]", vec!["0"; n].join(","));
    let wrapped = |n: usize| format!("[{}]", vec![r#"{"a":[[]]}"#; n].join(","));
    let mut cases = Vec::new();
    let mut refused = 0;
    for lifecycle in super::ERAS {
        let meta = lifecycle.meta();
        // The client's capabilities count as a value in the stateless lifecycle, and so does the array.
        let room = 1000 - 1 - usize::from(lifecycle.is_stateless());
        for (more, fits) in [
            (zeros(room), true),
            (zeros(room + 1), false),
            // An object and two arrays each.
            (wrapped(room / 3), true),
            (wrapped(room / 3 + 1), false),
        ] {
            for place in ["x", "arguments"] {
                let body = format!(
                    r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"{place}":{more}{meta}}}}}"#
                );
                let post = sessions.post(lifecycle, "tools/list", None, body);
                let name = format!("{} bytes as {place}, {fits}, {lifecycle:?}", more.len());
                let case = Case::new(name, post);
                refused += u64::from(!fits);
                cases.push(if fits {
                    case
                } else {
                    case.error(400, -32600, "")
                });
            }
        }
    }
    assert_eq!(run_on(&server, cases), 16);
    // Without the protocol too.
    let body = format!(r#"{{"message":{}}}"#, zeros(1000));
    let head = "POST /tools/say HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(run_on(&server, [Case::new("REST", text).status(&[400])]), 1);
    counted(&server, "server.messages.values", refused + 1);
}

#[test]
fn rpc_06_arrays_and_their_answers_have_bounds_to_the_one() {
    let server = narrow(|c| {
        c.server.messages.batch = 3;
        c.server.messages.batch_bytes = 1024;
    });
    let sessions = Sessions::of(&server);
    let lifecycle = Lifecycle::Handshake("2025-03-26");
    let ping = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let array = |all: &[String]| sessions.post(lifecycle, "", None, format!("[{}]", all.join(",")));
    let same = |n: usize| vec![ping("1"); n];
    // Two answers of 500 bytes or so, each by the length of its id.
    let around = r#"{"jsonrpc":"2.0","id":"","result":{}}"#.len();
    let answer = |bytes: usize| ping(&format!("\"{}\"", "x".repeat(bytes - around)));
    // Brackets and a comma are three.
    let (half, rest) = (510, 1024 - 3 - 510);
    let fits = [answer(half), answer(rest)];
    let exceeds = [answer(half), answer(rest + 1)];
    let cases = [
        Case::new("three", array(&same(3))).status(&[200]),
        Case::new("four", array(&same(4))).error(400, -32600, ""),
        Case::new("answers that fit", array(&fits)).status(&[200]),
        Case::new("answers that do not", array(&exceeds)).error(400, -32600, ""),
    ];
    assert_eq!(run_on(&server, cases), 4);
    counted(&server, "server.messages.batch", 1);
    counted(&server, "server.messages.batch_bytes", 1);
}

#[test]
fn heads_have_as_many_fields_as_are_allowed() {
    let server = narrow(|c| c.http.limits.header_fields = 16);
    let call = Lifecycle::Stateless.call("say", r#"{"message":"hi"}"#);
    let call = String::from_utf8(call).expect("UTF-8");
    let has = call
        .split("\r\n\r\n")
        .next()
        .expect("a head")
        .lines()
        .count()
        - 1;
    let with = |fields: usize| {
        let more: String = (has..fields).map(|n| format!("x-{n}: y\r\n")).collect();
        call.replacen("\r\n", &format!("\r\n{more}"), 1)
    };
    let cases = [
        Case::new("16 fields", with(16)),
        Case::new("17 fields", with(17)).error(431, 431, ""),
        Case::new("100 fields", with(100)).error(431, 431, ""),
        // This is as much as is read at all.
        Case::new("101 fields", with(101)).status(&[431]).closes(),
    ];
    assert_eq!(run_on(&server, cases), 4);
    counted(&server, "http.limits.header_fields", 3);
    let long = call.replacen("\r\n", &format!("\r\nx: {}\r\n", "y".repeat(70_000)), 1);
    let case = Case::new("a long field", long).status(&[431]).abandoned();
    assert_eq!(run_on(&server, [case]), 1);
    counted(&server, "http.limits.header_bytes", 1);
}

#[test]
fn auth_04_credentials_have_a_length_to_the_byte() {
    const KEY: &str = "a-key-that-somebody-made-up-and-that-has-exactly-64-characters..";
    assert_eq!(KEY.len(), 64);
    let server = narrow(|c| {
        c.auth.api_keys =
            serde_json::from_value(json!([{"name": "ci", "keys": [KEY]}])).expect("settings");
        c.auth.key_bytes = 64;
        c.auth.token_bytes = 1024;
    });
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
    let with = |name: &str, value: &str| {
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/list"),
            (name, value),
        ];
        Case::new(format!("{name} of {}", value.len()), bytes(&headers, &body))
    };
    let bearer = |n: usize| format!("Bearer {}", "x".repeat(n));
    let cases = [
        with("x-api-key", KEY),
        with("authorization", &format!("Bearer {KEY}")),
        with("x-api-key", &KEY[1..]).error(401, 401, ""),
        with("x-api-key", &format!("{KEY}x")).error(401, 401, ""),
        with("authorization", &bearer(1024)).error(401, 401, ""),
        with("authorization", &bearer(1025)).error(401, 401, ""),
        with("authorization", &bearer(17_000)).error(401, 401, ""),
    ];
    let cases = cases.map(Case::abandoned);
    assert_eq!(run_on(&server, cases), 7);
    counted(&server, "auth.key_bytes", 1);
    counted(&server, "auth.token_bytes", 2);
}

#[test]
fn what_a_reader_does_not_take_is_bounded_and_counted() {
    let talks = || {
        let definition = Definition::new("talks");
        tool_fn(
            definition,
            |context: Arc<CallContext>, _: Map<String, Value>| async move {
                // All are sent before the first is read.
                let texts: Vec<_> = (0..30).map(|n| format!("{n:0100}")).collect();
                let logs = texts.iter().map(|text| context.log(LogLevel::Info, text));
                futures_util::future::join_all(logs).await;
                Ok::<_, longshore::ToolError>("done".to_owned())
            },
        )
    };
    for (limit, sent) in [("queue_messages", 8), ("queue_bytes", 6)] {
        let server = Serve::new()
            .tool(talks())
            .admin()
            .configured(|c| match limit {
                "queue_messages" => c.server.streams.queue_messages = 8,
                _ => c.server.streams.queue_bytes = 1200,
            })
            .start();
        let response = Stateless::call("talks", json!({}))
            .meta("logLevel", json!("debug"))
            .send(&server);
        let said = response.body.matches("notifications/message").count();
        assert_eq!(said, sent, "{limit}: {}", response.body);
        assert!(response.body.contains("done"));
        counted(
            &server,
            &format!("server.streams.{limit}"),
            30 - sent as u64,
        );
    }
}

#[test]
fn bounds_that_cannot_be_meant_are_told_of_at_start() {
    for (setting, value, least_or_most) in [
        ("http.limits.header_fields", 101, "16 to 100"),
        ("http.limits.http2_resets", 0, "1 to 1000"),
        ("http.limits.http2_resets_per_second", 0, "1 to 1000000"),
        (
            "http.limits.http2_control_frames_per_second",
            99,
            "100 to 1000000",
        ),
        ("auth.key_bytes", 63, "64 to 512"),
        ("auth.token_bytes", 16_385, "1024 to 16384"),
        ("upstreams_reap_seconds", 0, "1 to 3600"),
        ("upstreams_reap_seconds", 3601, "1 to 3600"),
        ("server.session_seconds", 59, "60 to 86400"),
        ("server.session_seconds", 86_401, "60 to 86400"),
        ("server.streams.queue_messages", 0, "1 to 65536"),
        ("server.streams.queue_bytes", 1023, "1024 to 67108864"),
        ("log.line_bytes", 511, "512 to 1048576"),
        ("server.messages.depth", 65, "8 to 64"),
        ("server.messages.members", 15, "16 to 10000"),
        ("server.messages.id_bytes", 1025, "36 to 1024"),
        ("server.messages.values", 999, "at least 1000"),
        ("server.messages.batch", 1001, "1 to 1000"),
        ("server.messages.batch_bytes", 1, "at least 1024"),
    ] {
        let mut settings = json!(value);
        for part in setting.rsplit('.') {
            settings = json!({ part: settings });
        }
        let complaint = checked(&settings);
        assert!(
            complaint.contains(setting) && complaint.contains(least_or_most),
            "{setting}: {complaint}"
        );
    }
}

/// Returns the output of `longshore config check` for settings.
fn checked(settings: &Value) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("longshore.json");
    let mut file = std::fs::File::create(&path).expect("a file");
    write!(file, "{settings}").expect("written");
    let (code, text) = said(longshore(&["config", "check", "--config"], &[]).arg(&path));
    assert_eq!(code, Some(1), "{settings} is taken");
    text
}

#[test]
fn sub_03_streams_have_their_number_of_resources_and_it_is_counted() {
    let server = narrow(|c| {
        c.toolsets.push("demo".to_owned());
        c.server.streams.subscriptions = 1;
    });
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"resourceSubscriptions":["a:1","a:2"]}},{META}}}}}"#
    );
    let two = stateless("subscriptions/listen", None, body);
    let case = Case::new("two resources", two).error(200, -32602, "1");
    assert_eq!(run_on(&server, [case]), 1);
    counted(&server, "server.streams.subscriptions", 1);
}

/// Returns the GOAWAY code for a client that opens and resets this many HTTP/2 streams, or nothing.
fn told_for_resets(server: &Running, resets: u32) -> Option<u32> {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    // GET, http, / and the authority, in the form that everybody begins with.
    let head = b"\x82\x86\x84\x41\x09localhost";
    let frames = (0..resets).flat_map(|n| {
        let reset = frame(RESET, 0, 2 * n + 1, &8_u32.to_be_bytes());
        [frame(HEADERS, 5, 2 * n + 1, head), reset].concat()
    });
    told_for(server, frames)
}

/// Returns the GOAWAY code for a client that sends these frames of HTTP/2, or nothing.
fn told_for(server: &Running, frames: impl IntoIterator<Item = u8>) -> Option<u32> {
    const SETTINGS: u8 = 4;
    const GOAWAY: u8 = 7;
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, b""));
    sent.extend(frames);
    // PING, whose answer comes behind everything before it.
    sent.extend(frame(6, 0, 0, b"12345678"));
    let mut wire = super::Wire::open(server);
    wire.0.write_all(&sent).expect("sent");
    let told = loop {
        let mut rest = &wire.1[..];
        let found = loop {
            let Some((head, more)) = rest.split_first_chunk::<9>() else {
                break None;
            };
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some((payload, more)) = more.split_at_checked(length) else {
                break None;
            };
            match (head[3], head[4]) {
                (GOAWAY, _) => {
                    let code = payload[4..8].try_into().expect("four bytes");
                    break Some(Some(u32::from_be_bytes(code)));
                }
                (6, 1) => break Some(None),
                _ => rest = more,
            }
        };
        match found {
            Some(told) => break told,
            None => wire.more().expect("an answer"),
        }
    };
    if told.is_some() {
        while wire.more().is_ok() {}
    }
    told
}

const ENHANCE_YOUR_CALM: u32 = 11;

#[test]
fn http_2_clients_that_take_all_back_are_told_to_calm_down_and_counted() {
    for (resets, ends) in [(5, false), (60, true)] {
        let server = narrow(|c| c.http.limits.http2_resets = 10);
        let mut beside = server.connect();
        let told = told_for_resets(&server, resets);
        assert_eq!(told, ends.then_some(ENHANCE_YOUR_CALM), "{resets}");
        counted(&server, "http.limits.http2_resets", u64::from(ends));
        let call = Stateless::call("say", json!({"message": "hi"}));
        call.send_on(&mut beside).result();
    }
}

#[test]
fn http_2_clients_that_send_too_many_frames_of_no_request_are_told_to_calm_down_and_counted() {
    const PRIORITY: u8 = 2;
    let limit = "http.limits.http2_control_frames_per_second";
    for (frames, ends) in [(50, false), (1000, true)] {
        let server = narrow(|c| c.http.limits.http2_control_frames_per_second = 100);
        let told = told_for(&server, frame(PRIORITY, 0, 1, &[0; 5]).repeat(frames));
        assert_eq!(told, ends.then_some(ENHANCE_YOUR_CALM), "{frames}");
        counted(&server, limit, u64::from(ends));
    }
}

#[test]
fn http_2_clients_that_take_back_too_much_in_a_second_are_told_to_calm_down_and_counted() {
    for (resets, ends) in [(10, false), (11, true)] {
        let server = narrow(|c| {
            c.http.limits.http2_resets = 1000;
            c.http.limits.http2_resets_per_second = 10;
        });
        let told = told_for_resets(&server, resets);
        assert_eq!(told, ends.then_some(ENHANCE_YOUR_CALM), "{resets}");
        let limit = "http.limits.http2_resets_per_second";
        counted(&server, limit, u64::from(ends));
        counted(&server, "http.limits.http2_resets", 0);
    }
}

#[test]
fn names_that_strangers_make_up_are_no_labels() {
    let server = narrow(|_| {});
    let page = || server.admin_page("/metrics").body;
    let asked = |round: usize| {
        let made_up = format!("canary{round}");
        let list = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{made_up}","params":{{"name":"{made_up}",{META}}}}}"#
        );
        let call = list.replacen(
            &format!("\"method\":\"{made_up}\""),
            "\"method\":\"tools/call\"",
            1,
        );
        let get = |head: &str| format!("{head}\r\nhost: localhost\r\n\r\n");
        vec![
            stateless(&made_up, Some(&made_up), &list),
            stateless("tools/call", Some(&made_up), call),
            get(&format!("GET /{made_up} HTTP/1.1")).into_bytes(),
            get(&format!("{made_up} /mcp HTTP/1.1")).into_bytes(),
            get(&format!("GET /tools/{made_up} HTTP/1.1")).into_bytes(),
            get(&format!("GET /mcp/{made_up} HTTP/1.1")).into_bytes(),
            get(&format!(
                "GET /mcp HTTP/1.1\r\nmcp-protocol-version: {made_up}"
            ))
            .into_bytes(),
            get(&format!("GET /mcp HTTP/1.1\r\nmcp-session-id: {made_up}")).into_bytes(),
            get(&format!("GET /mcp HTTP/1.1\r\norigin: http://{made_up}")).into_bytes(),
            get(&format!("GET /mcp HTTP/1.1\r\nuser-agent: {made_up}")).into_bytes(),
        ]
    };
    let ask = |rounds: std::ops::Range<usize>| {
        let all = rounds.flat_map(asked);
        let cases = all
            .enumerate()
            .map(|(n, bytes)| Case::new(n.to_string(), bytes).status(&[200, 400, 403, 404, 405]));
        run_on(&server, cases)
    };
    ask(0..1);
    let before = page();
    assert_eq!(ask(1..20), 190);
    let after = page();
    assert!(!after.contains("canary"), "{after}");
    assert_eq!(before.lines().count(), after.lines().count());
}
