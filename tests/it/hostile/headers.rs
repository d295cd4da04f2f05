//! Header fields: host, origin, content, and headers that mirror the body.

use super::{Case, Lifecycle, META, bytes, run_on, server};

fn body() -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#)
}

const GOOD: [(&str, &str); 2] = [
    ("mcp-protocol-version", "2026-07-28"),
    ("mcp-method", "tools/list"),
];

/// A good request with further headers, or others in the place of those it has.
fn with(headers: &[(&str, &str)]) -> Vec<u8> {
    let kept = GOOD
        .into_iter()
        .filter(|(name, _)| !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name)));
    let all: Vec<_> = kept.chain(headers.iter().copied()).collect();
    bytes(&all, body())
}

fn case(headers: &[(&str, &str)]) -> Case {
    Case::new(format!("{headers:.120?}"), with(headers))
}

#[test]
fn http_08_hosts_that_are_not_ours_are_refused_before_anything_else() {
    let server = server();
    let mut cases = Vec::new();
    for host in [
        "localhost",
        "LOCALHOST",
        "localhost:1",
        "localhost:65535",
        "127.0.0.1",
        "127.0.0.1:80",
        "[::1]",
        "[::1]:8080",
        "localhost:",
        "[::1]:",
    ] {
        cases.push(case(&[("host", host)]));
    }
    for host in [
        "evil.example.com",
        "evil.example.com:80",
        "localhost.evil.example.com",
        "evil-localhost",
        "127.0.0.1.evil.example.com",
        "127.0.0.2",
        "127.1",
        "0.0.0.0",
        "0",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "localhost.",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:0:0:1]",
        "169.254.169.254",
        "192.168.0.1",
        "example",
        "xn--nxasmq6b",
        "[fe80::1%eth0]:80",
        "[fe80::1%25eth0]",
    ] {
        cases.push(case(&[("host", host)]).error(403, 403, ""));
    }
    for host in [
        "",
        ":",
        ":80",
        "localhost:80:80",
        "localhost:x",
        "localhost:-1",
        "localhost:99999",
        "localhost:+80",
        "localhost:80@evil.example.com",
        "evil@localhost",
        "user:password@localhost",
        "localhost,evil.example.com",
        "localhost evil.example.com",
        "localhost/",
        "localhost/evil",
        "localhost?x",
        "localhost#x",
        "localhost\\evil",
        "http://localhost",
        "[::1",
        "::1",
        "[]",
        "[%eth0]",
        "[::1%]",
        "[::1%/]",
        "[localhost]",
        "[::1]x",
        "[::1]:x",
        "local%68ost",
        "*",
        "localhost;",
        "\"localhost\"",
    ] {
        cases.push(case(&[("host", host)]).error(400, 400, ""));
    }
    for (one, other) in [
        ("localhost", "localhost"),
        ("localhost", "evil.example.com"),
        ("evil.example.com", "localhost"),
    ] {
        cases.push(case(&[("host", one), ("host", other)]).error(400, 400, ""));
    }
    let text = String::from_utf8(with(&[])).expect("UTF-8");
    let none = text.replace("host: localhost\r\n", "");
    cases.push(Case::new("no host", none).error(400, 400, ""));
    for (target, case_of) in [
        ("http://localhost/mcp", 200),
        ("http://127.0.0.1:1/mcp", 200),
        ("http://evil.example.com/mcp", 403),
        ("https://evil.example.com/mcp", 403),
        ("http://localhost.evil.example.com/mcp", 403),
    ] {
        let text = text.replace("POST /mcp ", &format!("POST {target} "));
        let case = Case::new(format!("target {target}"), text);
        cases.push(if case_of == 200 {
            case
        } else {
            case.error(403, 403, "")
        });
    }
    for target in [
        "ftp://localhost/mcp",
        "file://localhost/mcp",
        "ws://localhost/mcp",
    ] {
        let text = text.replace("POST /mcp ", &format!("POST {target} "));
        cases.push(Case::new(format!("target {target}"), text).error(400, 400, ""));
    }
    // Forwarding headers count only from trusted proxies.
    for name in [
        "x-forwarded-host",
        "forwarded",
        "x-host",
        "x-original-host",
        "x-forwarded-server",
    ] {
        cases.push(case(&[(name, "evil.example.com")]));
        cases.push(case(&[("host", "evil.example.com"), (name, "localhost")]).error(403, 403, ""));
    }
    assert!(run_on(&server, cases) >= 75);
}

#[test]
fn http_08_open_paths_take_any_host_that_can_be_one() {
    let server = server();
    let mut cases = Vec::new();
    for path in [
        "/health",
        "/livez",
        "/readyz",
        "/startupz",
        "/.well-known/oauth-protected-resource",
    ] {
        let case = |what: &str, version: &str, fields: &str| {
            let text = format!("GET {path} HTTP/{version}\r\n{fields}\r\n");
            Case::new(format!("{path} with {what}"), text)
        };
        // Probes use an address or any host name.
        let good: &[u16] = if path.starts_with("/.") {
            &[404]
        } else {
            &[200]
        };
        for host in ["10.0.0.7:8080", "[fd00::7]:8080", "pod-7.example.com", ""] {
            cases.push(case(host, "1.1", &format!("host: {host}\r\n")).status(good));
        }
        cases.push(case("none, 1.0", "1.0", "").status(good).abandoned());
        // RFC 9112 section 3.2.
        cases.push(case("none", "1.1", "").status(&[400]));
        cases.push(case("two", "1.1", "host: localhost\r\nhost: localhost\r\n").status(&[400]));
        for host in ["a b", "a@b", "a,b", "a/b", "localhost:x", "[::1", "\"a\""] {
            cases.push(case(host, "1.1", &format!("host: {host}\r\n")).status(&[400]));
        }
    }
    assert_eq!(run_on(&server, cases), 70);
}

#[test]
fn http_01_origins_that_are_not_ours_are_refused_whatever_is_asked() {
    let server = server();
    let mut cases = Vec::new();
    for origin in [
        "http://localhost",
        "http://localhost:6274",
        "https://localhost",
        "http://127.0.0.1:5173",
        "http://[::1]:3000",
        "http://localhost/",
    ] {
        cases.push(case(&[("origin", origin)]));
    }
    for origin in [
        "http://evil.example.com",
        "https://evil.example.com",
        "http://localhost.evil.example.com",
        "http://evil.example.com/localhost",
        "http://evil.example.com#localhost",
        "http://evil.example.com?localhost",
        "http://localhost@evil.example.com",
        "http://evil.example.com:80@localhost/",
        "http://localhost:3000@evil.example.com",
        "http://127.0.0.1.evil.example.com",
        "http://0.0.0.0",
        "http://127.1",
        "null",
        "NULL",
        "",
        "*",
        "localhost",
        "//localhost",
        "http:localhost",
        "http:/localhost",
        "http://",
        "http://localhost, http://evil.example.com",
        "http://evil.example.com http://localhost",
        "ftp://localhost",
        "file://",
        "file:///etc/passwd",
        "data:text/html,x",
        "javascript:alert(1)",
        "chrome-extension://abcdef",
        "about:blank",
        "http://[::1",
        "http://localhost:x",
        "http://localhost:99999",
        "http://192.168.0.1",
        "http://169.254.169.254",
    ] {
        cases.push(case(&[("origin", origin)]).error(403, 403, ""));
        for method in ["GET", "DELETE", "OPTIONS", "PUT"] {
            let text =
                format!("{method} /mcp HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n\r\n");
            cases.push(Case::new(format!("{method} of {origin}"), text).error(403, 403, ""));
        }
    }
    for (one, other) in [
        ("http://localhost", "http://localhost"),
        ("http://localhost", "http://evil.example.com"),
        ("http://evil.example.com", "http://localhost"),
    ] {
        cases.push(case(&[("origin", one), ("origin", other)]).error(400, 400, ""));
    }
    assert!(run_on(&server, cases) >= 180);
}

#[test]
fn http_07_bodies_of_other_types_are_refused_and_answers_are_of_two() {
    let server = server();
    let mut cases = Vec::new();
    for media in [
        "application/json",
        "APPLICATION/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json ; charset=\"utf-8\"",
        "application/json; x=y",
        "application/json;",
        "application/json; charset=utf8",
    ] {
        cases.push(case(&[("content-type", media)]));
    }
    for media in [
        "",
        "text/plain",
        "text/plain;charset=utf-8",
        "text/json",
        "text/html",
        "text/event-stream",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "application/octet-stream",
        "application/jsonp",
        "application/json5",
        "application/jsonx",
        "application/ld+json",
        "application/vnd.api+json",
        "application/json-rpc",
        "application/json-patch+json",
        "application/json, text/plain",
        "text/plain, application/json",
        "application/json/x",
        "application/",
        "application",
        "/json",
        "*/*",
        "json",
        "application/json; charset=utf-16",
        "application/json; charset=latin1",
        "application/json; charset=utf-7",
        "image/png",
    ] {
        cases.push(case(&[("content-type", media)]).error(415, 415, ""));
    }
    let text = String::from_utf8(with(&[])).expect("UTF-8");
    let none = text.replace("content-type: application/json\r\n", "");
    cases.push(Case::new("no content type", none).error(415, 415, ""));
    cases.push(
        case(&[
            ("content-type", "application/json"),
            ("content-type", "text/plain"),
        ])
        .error(400, 400, ""),
    );
    for coding in [
        "gzip",
        "deflate",
        "br",
        "zstd",
        "compress",
        "x-gzip",
        "gzip, gzip",
        "identity, gzip",
        "unknown",
        "aws-chunked",
    ] {
        cases.push(case(&[("content-encoding", coding)]).error(415, 415, ""));
    }
    cases.push(case(&[("content-encoding", "identity")]));
    for accept in [
        "application/json, text/event-stream",
        "application/json",
        "*/*",
        "application/*",
        "text/html, */*;q=0.1",
        "APPLICATION/JSON",
        "application/json;q=0.5",
    ] {
        cases.push(case(&[("accept", accept)]));
    }
    // The answer is an event then.
    for accept in ["text/event-stream", "text/*"] {
        cases.push(case(&[("accept", accept)]).status(&[200]));
    }
    for accept in [
        "text/html",
        "text/plain",
        "application/xml",
        "image/*",
        "application/jsonp",
        "application/json5",
        "text/html, application/xhtml+xml, application/xml;q=0.9",
        "*/*;q=0",
        "*/*;Q=0",
        "application/json ; q = 0.0",
        "application/json;q=0, text/event-stream;q=0.000",
    ] {
        cases.push(case(&[("accept", accept)]).error(406, 406, ""));
    }
    assert!(run_on(&server, cases) >= 65);
}

#[test]
fn mh_03_to_09_headers_that_say_something_else_than_the_body_are_refused() {
    const MISMATCH: i64 = -32020;
    let server = server();
    let mut cases = Vec::new();
    for version in [
        "2025-11-25",
        "2025-06-18",
        "2025-03-26",
        "2024-11-05",
        "1900-01-01",
        "2026-07-29",
        "",
        "x",
        "2026-07-28, 2026-07-28",
        "2026-07-28;",
        "\"2026-07-28\"",
    ] {
        cases.push(case(&[("mcp-protocol-version", version)]).error(400, MISMATCH, "1"));
    }
    for twice in ["2026-07-28", "2025-11-25"] {
        let twice = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-protocol-version", twice),
        ];
        cases.push(case(&twice).error(400, MISMATCH, "1"));
    }
    for method in [
        "",
        "tools/call",
        "Tools/list",
        "tools/list/",
        "tools/list, tools/call",
        "tools/listx",
        "tools",
        "=?base64?dG9vbHMvbGlzdA==?=",
        "\"tools/list\"",
        "ping",
    ] {
        cases.push(case(&[("mcp-method", method)]).error(400, MISMATCH, "1"));
    }
    let twice = [("mcp-method", "tools/list"), ("mcp-method", "tools/list")];
    cases.push(case(&twice).error(400, MISMATCH, "1"));
    for missing in ["mcp-protocol-version", "mcp-method"] {
        let text = String::from_utf8(with(&[])).expect("UTF-8");
        let text: String = text
            .split_inclusive("\r\n")
            .filter(|line| !line.starts_with(missing))
            .collect();
        cases.push(Case::new(format!("no {missing}"), text).error(400, MISMATCH, "1"));
    }
    // Blanks around values do not count (HTTP-09), nor does the case of names.
    for (name, value) in [
        ("mcp-method", "  tools/list\t "),
        ("MCP-METHOD", "tools/list"),
        ("Mcp-Protocol-Version", " 2026-07-28 "),
    ] {
        cases.push(case(&[(name, value)]));
    }
    let call = |name: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"say","arguments":{{"message":"x"}},{META}}}}}"#
        );
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", name),
        ];
        Case::new(format!("name {name:.60}"), bytes(&headers, body))
    };
    for name in ["say", " say ", "=?base64?c2F5?="] {
        cases.push(call(name));
    }
    for name in [
        "",
        "Say",
        "anything",
        "say, say",
        "say2",
        "sa",
        "\"say\"",
        "=?base64?c2F5",
        "c2F5?=",
        "=?BASE64?c2F5?=",
        "=?base64?c2F5=?=",
        "=?base64?c2F?=",
        "=?base64?c2F 5?=",
        "=?base64?c2F5\t?=",
        "=?base64??=",
        "=?base64?YW55dGhpbmc=?=",
        "=?base64?YW55dGhpbmc?=",
        "=?base64?_-8=?=",
        "=?base64?/w==?=",
        "=?utf-8?q?say?=",
        "%73ay",
    ] {
        cases.push(call(name).error(400, MISMATCH, "1"));
    }
    // Bytes that are no text.
    for bad in [&b"caf\xe9"[..], b"\xff", b"s\xc3\xa4y"] {
        for header in ["mcp-name", "mcp-method", "mcp-protocol-version"] {
            let call = String::from_utf8(Lifecycle::Stateless.call("say", r#"{"message":"x"}"#));
            let call = call.expect("UTF-8");
            let at = call.find(&format!("{header}: ")).expect("has it") + header.len() + 2;
            let end = at + call[at..].find("\r\n").expect("a line");
            let bytes = [&call.as_bytes()[..at], bad, &call.as_bytes()[end..]].concat();
            let name = format!("{header} {}", bad.escape_ascii());
            cases.push(Case::new(name, bytes).error(400, MISMATCH, "1"));
        }
    }
    // Old clients may send what they like in headers that are not theirs (HTTP-10).
    let server_session = server.session("2025-11-25").id;
    for (name, value) in [
        ("mcp-method", "tools/call"),
        ("mcp-name", "none"),
        ("mcp-param-x", "y"),
    ] {
        let headers = [("mcp-session-id", &*server_session), (name, value)];
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        cases.push(Case::new(
            format!("session and {name}"),
            bytes(&headers, body),
        ));
    }
    assert!(run_on(&server, cases) >= 65);
}

#[test]
fn names_that_others_may_take_for_another_one_are_refused() {
    let server = server();
    let mut cases = Vec::new();
    for name in [
        "x_y",
        "_",
        "content_length",
        "transfer_encoding",
        "x_forwarded_user",
        "X_Api_Key",
        "mcp_session_id",
        "mcp-session_id",
        "mcp_param-x",
    ] {
        cases.push(case(&[(name, "1")]).error(400, 400, ""));
        let text = format!("GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n{name}: 1\r\n\r\n");
        cases.push(Case::new(format!("GET with {name}"), text).status(&[400]));
    }
    // Parameters that a tool's author has named so; values may have what they like.
    for (name, value) in [("mcp-param-tenant_id", "1"), ("x-y", "a_b")] {
        cases.push(case(&[(name, value)]));
    }
    assert_eq!(run_on(&server, cases), 20);
}

#[test]
fn paths_and_methods_that_there_are_not() {
    let server = server();
    let mut cases = Vec::new();
    let text = String::from_utf8(with(&[])).expect("UTF-8");
    for path in [
        "/",
        "/MCP",
        "/mcp2",
        "/mcp/x",
        "/mcp//",
        "//mcp",
        "/mcp/..",
        "/mcp/../mcp",
        "/./mcp",
        "/x/../mcp",
        "/%6dcp",
        "/mcp%00",
        "/mcp%2f",
        "/mcp;x",
        "/.env",
        "/.git/config",
        "/etc/passwd",
        "/../../../etc/passwd",
        "/admin",
        "/debug/pprof",
        "/actuator",
        "/favicon.ico",
        "/robots.txt",
        "/api/v1",
    ] {
        let text = text.replace("POST /mcp ", &format!("POST {path} "));
        cases.push(Case::new(format!("path {path}"), text).status(&[404]));
    }
    // Targets with a host and without a path are for proxies (RFC 9112 section 3.2.3).
    for (method, target) in [
        ("POST", "mcp"),
        ("POST", "localhost:80"),
        ("CONNECT", "localhost:80"),
        ("CONNECT", "evil.example.com:443"),
    ] {
        let text = text.replace("POST /mcp ", &format!("{method} {target} "));
        let case = Case::new(format!("{method} {target}"), text);
        cases.push(case.status(&[400]).abandoned());
    }
    for path in [
        "/mcp",
        "/mcp/",
        "/mcp?",
        "/mcp?x=1",
        "/mcp?token=secret",
        "/mcp/?x",
    ] {
        let text = text.replace("POST /mcp ", &format!("POST {path} "));
        cases.push(Case::new(format!("path {path}"), text));
    }
    for method in [
        "PUT", "PATCH", "TRACE", "PROPFIND", "BREW", "get", "post", "Post", "OPTIONS",
    ] {
        let text = format!("{method} /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n");
        cases.push(Case::new(format!("method {method}"), text).error(405, 405, ""));
    }
    for method in ["GET", "DELETE"] {
        let text = format!(
            "{method} /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-protocol-version: 2026-07-28\r\n\r\n"
        );
        cases.push(Case::new(format!("{method}, stateless"), text).error(405, 405, ""));
    }
    assert!(run_on(&server, cases) >= 40);
}
