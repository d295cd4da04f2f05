//! Routes besides the MCP endpoint: REST tools, and operator pages.

use longshore::transport::http::{Route, routes};
use longshore::{Definition, Output, TaskSupport, ToolError, tool, tool_fn};
use serde_json::{Map, Value, json};

use super::support::{Gate, Response, Running, Serve};

/// Sends a request over its own connection.
fn send(
    server: &Running,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text += "host: localhost\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    let mut connection = server.connect();
    connection.send(text);
    if method == "HEAD" {
        connection.receive_head()
    } else {
        connection.receive()
    }
}

fn get(server: &Running, path: &str) -> Response {
    send(server, "GET", path, &[], "")
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

fn call(server: &Running, tool: &str, body: &str) -> Response {
    send(server, "POST", &format!("/tools/{tool}"), &JSON, body)
}

/// Asserts a problem document, and returns its detail.
#[track_caller]
fn problem(response: &Response, status: u16) -> String {
    assert_eq!(response.status, status, "{response:?}");
    let media = response.header("content-type");
    assert_eq!(media, Some("application/problem+json"), "{response:?}");
    let problem: Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string(), "{problem}");
    problem["detail"].as_str().expect("a detail").to_owned()
}

#[test]
fn caches_keep_no_response_for_other_callers() {
    let server = Serve::demo();
    for path in ["/tools", "/openapi.json", "/info"] {
        let response = get(&server, path);
        let caching = response.header("cache-control");
        assert_eq!(caching, Some("private, no-cache"), "{path}");
    }
}

#[test]
fn documents_are_sent_again_only_if_they_have_changed() {
    let server = Serve::demo();
    for path in ["/tools", "/openapi.json"] {
        let first = get(&server, path);
        let tag = first.header("etag").expect("an entity tag").to_owned();
        let again = send(&server, "GET", path, &[("if-none-match", &*tag)], "");
        assert_eq!((again.status, &*again.body), (304, ""), "{path}");
        assert_eq!(again.header("etag"), Some(&*tag));
        let other = send(&server, "GET", path, &[("if-none-match", "\"a\"")], "");
        assert_eq!((other.status, other.body), (200, first.body), "{path}");
    }
}

#[test]
fn a_proxy_may_keep_or_remove_the_path_of_the_public_url() {
    for prefix in ["/base", "/tools"] {
        let url = format!("http://localhost{prefix}");
        let server = Serve::demo_with(|c| {
            let small = serde_json::from_value(json!({"tools": ["echo"]}));
            c.endpoints
                .insert("small".to_owned(), small.expect("valid"));
            c.http.public_url = Some(url);
        });
        for before in ["", prefix] {
            let call = |name: &str| {
                let body = json!({"message": "hi"}).to_string();
                send(
                    &server,
                    "POST",
                    &format!("{before}/tools/{name}"),
                    &JSON,
                    &body,
                )
                .status
            };
            assert_eq!(call("echo"), 200, "{before} {prefix}");
            assert_eq!(call("nothing"), 404, "{before} {prefix}");
            let list = get(&server, &format!("{before}/tools"));
            assert_eq!(list.status, 200, "{before} {prefix}");
            for endpoint in ["/mcp", "/mcp/small"] {
                let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"},
                }});
                let path = format!("{before}{endpoint}");
                let response = send(&server, "POST", &path, &JSON, &hello.to_string());
                assert_eq!(response.status, 200, "{path} {prefix}");
            }
        }
    }
}

/// A path that fits a route.
fn path_of(route: &Route) -> String {
    route.path.replace("{name}", "echo")
}

/// Checks that every route must perform. Each has a request that must be rejected on all but public routes.
type Check = (&'static str, &'static [(&'static str, &'static str)], u16);
const CHECKS: [Check; 3] = [
    (
        "HTTP-08: a foreign host",
        &[("host", "evil.example.com")],
        403,
    ),
    (
        "HTTP-01: a foreign origin",
        &[("origin", "http://evil.example.com")],
        403,
    ),
    ("a host that is none", &[("host", "local host")], 400),
];

/// Routes whose rejections are JSON-RPC errors.
const SPEAK_RPC: [&str; 6] = [
    "/mcp",
    "/mcp/{name}",
    "/mcp/respond",
    "/sse",
    "/mcp/sse",
    "/messages",
];

/// Starts a server with optional routes enabled.
fn with_everything() -> Running {
    Serve::demo_with(|c| {
        c.http.legacy_sse = true;
        c.http.respond_alias = true;
    })
}

#[test]
fn http_01_http_08_every_route_that_is_not_open_refuses_what_the_endpoint_refuses() {
    let server = with_everything();
    for route in routes().iter().filter(|route| !route.is_open()) {
        for method in route.methods.split(", ").filter(|m| *m != "HEAD") {
            for (check, headers, status) in CHECKS {
                let headers = [headers, &JSON].concat();
                let response = send(&server, method, &path_of(route), &headers, "{}");
                assert_eq!(response.status, status, "{check}, {method} {}", route.path);
                if !SPEAK_RPC.contains(&route.path) {
                    problem(&response, status);
                }
            }
        }
    }
}

#[test]
fn open_routes_answer_whatever_the_host() {
    let server = Serve::demo();
    for route in routes().iter().filter(|route| route.is_open()) {
        let response = send(
            &server,
            "GET",
            &path_of(route),
            &[("host", "10.0.0.7:8080")],
            "",
        );
        let expected = match route.path {
            // A page that asks the server for more is for browsers that mean it.
            "/" => 403,
            // Without tokens there is no metadata.
            path if path.starts_with("/.well-known/") => 404,
            _ => 200,
        };
        assert_eq!(response.status, expected, "{}", route.path);
    }
}

#[test]
fn other_methods_are_refused_with_those_that_a_path_has() {
    let server = with_everything();
    // Additional endpoints depend on the configuration, which has none here. A POST to the root returns the path of
    // the endpoint.
    let elsewhere = |path: &str| matches!(path, "/mcp/{name}" | "/");
    for route in routes().iter().filter(|route| !elsewhere(route.path)) {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            if route.methods.split(", ").any(|has| has == method) {
                continue;
            }
            let response = send(&server, method, &path_of(route), &JSON, "{}");
            let found = (response.status, response.header("allow"));
            assert_eq!(found, (405, Some(route.methods)), "{method} {}", route.path);
        }
    }
}

#[test]
fn tools_are_listed_page_by_page() {
    let server = Serve::new().toolset("demo").page_size(3).start();
    let mut names = Vec::new();
    let mut path = "/tools".to_owned();
    loop {
        let response = get(&server, &path);
        assert_eq!(response.status, 200);
        let page = response.json();
        let tools = page["tools"].as_array().expect("tools");
        assert!(!tools.is_empty() && tools.len() <= 3);
        names.extend(tools.iter().map(|tool| tool["name"].clone()));
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("/tools?cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(names.len(), 7);
    assert!(names.contains(&json!("echo")));
    problem(&get(&server, "/tools?cursor=forged"), 400);
    problem(&get(&server, "/tools?page=2"), 400);
}

#[test]
fn a_tool_is_called_by_its_path() {
    let server = Serve::demo();
    let result = call(&server, "echo", r#"{"message": "gr\u00fc\u00df dich"}"#).json();
    assert_eq!(
        result["content"],
        json!([{"type": "text", "text": "gr\u{fc}\u{df} dich"}])
    );
    assert_eq!(result["isError"], false);
    let result = call(
        &server,
        "calculate",
        r#"{"operation": "add", "a": 1, "b": 2}"#,
    )
    .json();
    assert_eq!(result["structuredContent"], json!({"result": 3.0}));
    let encoded = call(&server, "%65cho", r#"{"message": "x"}"#);
    assert_eq!(encoded.status, 200);
}

/// Over stdio, a message ends with its line, and in an event stream its data.
#[test]
fn json_of_several_lines_is_sent_on_one() {
    let definition = Definition::new("spread");
    let spread = tool_fn(definition, |_, _: Map<String, Value>| async {
        let json = "{\r\n  \"a\": [\n    1\n  ]\n}".to_owned();
        let raw = serde_json::value::RawValue::from_string(json)?;
        Ok::<_, ToolError>(Output::structured(&raw)?)
    });
    let server = Serve::new().tool(spread).start();
    let response = call(&server, "spread", "{}");
    assert!(!response.body.contains(['\r', '\n']), "{response:?}");
    assert_eq!(response.json()["structuredContent"], json!({"a": [1]}));
}

#[test]
fn a_tool_without_required_arguments_needs_no_body_and_no_media_type() {
    #[tool]
    async fn hello() -> &'static str {
        "hello"
    }
    let server = Serve::new().tool(hello).start();
    let response = send(&server, "POST", "/tools/hello", &[], "");
    assert_eq!(response.json()["content"][0]["text"], "hello");
}

#[test]
fn what_goes_wrong_is_a_problem_with_its_status() {
    let server = Serve::demo();
    let detail = problem(&call(&server, "ecko", "{}"), 404);
    assert!(detail.contains("did you mean echo?"), "{detail}");
    let detail = problem(&call(&server, "echo", r#"{"message": 7}"#), 400);
    assert!(detail.contains("message"), "{detail}");
    let detail = problem(&call(&server, "fail", r#"{"reason": "no paper"}"#), 422);
    assert_eq!(detail, "no paper");
    for body in [
        "[]",
        "7",
        "{",
        "{}{}",
        "\"echo\"",
        "{\"message\": \"\u{0}\"}",
    ] {
        problem(&call(&server, "echo", body), 400);
    }
    let detail = problem(&call(&server, "echo", r#"{"message": "\ud800"}"#), 400);
    assert!(detail.contains("lone surrogate"), "{detail}");
    let deep = format!(r#"{{"message": {}{}}}"#, "[".repeat(70), "]".repeat(70));
    let response = call(&server, "echo", &deep);
    let body: Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(body["setting"], "server.messages.depth");
    let text = send(
        &server,
        "POST",
        "/tools/echo",
        &[("content-type", "text/plain")],
        "{}",
    );
    problem(&text, 415);
    problem(&get(&server, "/tool"), 404);
    problem(&call(&server, "a/b", "{}"), 404);
    problem(&call(&server, "%ff", "{}"), 404);
}

#[test]
fn a_tool_that_runs_only_as_a_task_needs_mcp() {
    let definition = Definition::new("job").task(TaskSupport::Required);
    let job = tool_fn(definition, |_, _: Map<String, Value>| async {
        Ok::<_, ToolError>("done")
    });
    let server = Serve::new().tool(job).start();
    assert_eq!(
        problem(&call(&server, "job", "{}"), 422),
        "this tool runs as a task only; call it over MCP"
    );
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let server = Serve::new()
        .toolset("demo")
        .limits(|limits| limits.body_bytes = 100)
        .start();
    let body = |length: usize| format!("{{\"message\": \"{}\"}}", "a".repeat(length - 15));
    assert_eq!(call(&server, "echo", &body(100)).status, 200);
    problem(&call(&server, "echo", &body(101)), 413);
}

#[test]
fn a_call_that_takes_too_long_or_panics_is_a_problem_of_the_server() {
    #[tool(timeout = "50ms")]
    async fn slow() -> &'static str {
        std::future::pending().await
    }
    let broken = tool_fn(
        Definition::new("broken"),
        |_, _: Map<String, Value>| async {
            if true {
                panic!("on purpose");
            }
            Ok::<_, ToolError>(String::new())
        },
    );
    let server = Serve::new().tool(slow).tool(broken).start();
    let detail = problem(&call(&server, "slow", "{}"), 504);
    assert!(detail.contains("0.05 s"), "{detail}");
    let detail = problem(&call(&server, "broken", "{}"), 500);
    assert_eq!(detail, "Internal error");
}

#[test]
fn a_call_ends_when_its_caller_has_gone() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(tool).start();
    let mut connection = server.connect();
    connection.send("POST /tools/gate HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
    gate.begun();
    drop(connection);
    assert_eq!(gate.end(), super::support::End::Dropped);
}

#[test]
fn the_description_fits_what_is_served() {
    let server = Serve::demo();
    let document = get(&server, "/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"], json!({"title": "test", "version": "1"}));
    let listed = get(&server, "/tools").json();
    for tool in listed["tools"].as_array().expect("tools") {
        let name = tool["name"].as_str().expect("a name");
        let post = &document["paths"][format!("/tools/{name}")]["post"];
        assert_eq!(post["operationId"], name);
        assert_eq!(post["description"], tool["description"]);
        let schema = &post["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(
            schema["properties"].as_object().map(Map::len),
            tool["inputSchema"]["properties"].as_object().map(Map::len)
        );
    }
    let paths = document["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 8);
    assert_references_lead_somewhere(&document, &document);
}

fn assert_references_lead_somewhere(value: &Value, document: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let pointer = reference.strip_prefix('#').expect("a local reference");
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
            for member in members.values() {
                assert_references_lead_somewhere(member, document);
            }
        }
        Value::Array(items) => {
            for item in items {
                assert_references_lead_somewhere(item, document);
            }
        }
        _ => {}
    }
}

#[test]
fn the_server_says_what_it_is() {
    let server = Serve::new()
        .configured(|c| c.server.instructions = Some("Be kind.".to_owned()))
        .start();
    let info = get(&server, "/info").json();
    assert_eq!(
        (&info["name"], &info["version"]),
        (&json!("test"), &json!("1"))
    );
    assert_eq!(info["instructions"], "Be kind.");
    assert_eq!(info["protocolVersions"].as_array().map(Vec::len), Some(5));
    assert!(info["capabilities"]["tools"].is_object());
    let version = get(&server, "/version").json();
    assert_eq!(
        (&version["name"], &version["version"]),
        (&json!("test"), &json!("1"))
    );
    assert_eq!(version["longshore"], env!("CARGO_PKG_VERSION"));
    assert_eq!(get(&server, "/ping/").json(), json!({"status": "ok"}));
    let head = send(&server, "HEAD", "/ping", &[], "");
    assert_eq!(head.status, 200);
}

#[test]
fn tools_without_mcp_can_be_taken_away() {
    let server = Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            c.http.rest = false;
        })
        .start();
    problem(&get(&server, "/tools"), 404);
    problem(&get(&server, "/openapi.json"), 404);
    problem(&call(&server, "echo", r#"{"message": "x"}"#), 404);
    assert_eq!(get(&server, "/ping").status, 200);
}
