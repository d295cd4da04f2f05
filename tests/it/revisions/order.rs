//! The order in which a request of the stateless lifecycle is checked. Each test spoils a request in all the ways that
//! come after the one it is about, so that it passes only if that one is found first.

use longshore::tool;
use serde_json::{Value, json};

use super::{
    HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND, PARSE, UNSUPPORTED_VERSION, WITH_SESSIONS,
};
use crate::support::{Response, Serve, Stateless};

/// Runs a query where the data is.
#[tool]
async fn query(#[arg(header = "Region")] region: Option<String>, sql: u32) -> String {
    format!("{region:?} {sql}")
}

/// A call with everything wrong that can be, from the first step to the last.
struct Spoiled {
    call: Stateless,
    host: &'static str,
    content_type: &'static str,
    cut: bool,
}

impl Spoiled {
    fn new() -> Self {
        let mut call = Stateless::call("query", json!({"region": "x", "sql": "not a number"}))
            .meta("logLevel", json!("loud"))
            .meta("clientCapabilities", Value::Null)
            .meta("protocolVersion", json!("1900-01-01"))
            .with("mcp-method", "tools/list")
            .with("mcp-name", "other")
            .params(|p| p["name"] = json!("unknown"));
        call.method = "tools/mangle".to_owned();
        Self {
            call,
            host: "evil.example.com",
            content_type: "text/plain",
            cut: true,
        }
    }

    fn send(&self) -> Response {
        let server = Serve::new().tool(query).start();
        let call = self
            .call
            .clone()
            .and("host", self.host)
            .and("content-type", self.content_type);
        let mut text = call.text();
        if self.cut {
            text = text.replace(r#"{"jsonrpc""#, r#"["jsonrpc""#);
        }
        server.connect().send(text).receive()
    }

    /// Mends the steps up to a number.
    fn up_to(mut self, step: u32) -> Self {
        let mends: [(u32, fn(&mut Self)); 11] = [
            (1, |s| s.host = "localhost"),
            (3, |s| s.content_type = "application/json"),
            (4, |s| s.cut = false),
            (6, |s| {
                s.call = s.call.clone().meta("clientCapabilities", json!({}));
            }),
            (7, |s| {
                s.call = s.call.clone().with("mcp-protocol-version", "1900-01-01");
            }),
            (8, |s| {
                s.call = s.call.clone().meta("protocolVersion", json!("2026-07-28"));
                s.call = s.call.clone().with("mcp-protocol-version", "2026-07-28");
            }),
            (9, |s| {
                s.call = s.call.clone().with("mcp-method", &s.call.method);
            }),
            (10, |s| {
                s.call.method = "tools/call".to_owned();
                s.call = s.call.clone().with("mcp-method", "tools/call");
            }),
            (11, |s| s.call = s.call.clone().with("mcp-name", "unknown")),
            (12, |s| {
                s.call = s.call.clone().meta("logLevel", json!("debug"));
            }),
            (13, |s| {
                s.call = s.call.clone().params(|p| p["name"] = json!("query"));
                s.call = s.call.clone().with("mcp-name", "query");
            }),
        ];
        for (number, mend) in mends {
            if number <= step {
                mend(&mut self);
            }
        }
        self
    }
}

#[test]
fn step_01_http_08_the_host_comes_first() {
    Spoiled::new().send().error(403, 403, "");
}

#[test]
fn step_03_http_07_then_the_content_type() {
    Spoiled::new().up_to(1).send().error(415, 415, "");
}

#[test]
fn step_04_rpc_12_then_the_message() {
    Spoiled::new().up_to(3).send().error(400, PARSE, "");
}

#[test]
fn step_06_meta_01_then_meta() {
    let message = Spoiled::new()
        .up_to(4)
        .send()
        .error(400, INVALID_PARAMS, "1");
    assert!(
        message.ends_with("clientCapabilities is required"),
        "{message}"
    );
}

#[test]
fn step_07_ver_03_then_the_header_and_meta_agree_on_the_version() {
    let message = Spoiled::new()
        .up_to(6)
        .send()
        .error(400, HEADER_MISMATCH, "1");
    assert_eq!(
        message,
        "Header mismatch: mcp-protocol-version is '2026-07-28', but the body has '1900-01-01'"
    );
}

#[test]
fn step_08_ver_02_then_the_version_is_one_that_is_served() {
    Spoiled::new()
        .up_to(7)
        .send()
        .error(400, UNSUPPORTED_VERSION, "1");
}

#[test]
fn step_09_mh_04_then_the_header_and_the_body_agree_on_the_method() {
    let message = Spoiled::new()
        .up_to(8)
        .send()
        .error(400, HEADER_MISMATCH, "1");
    assert_eq!(
        message,
        "Header mismatch: mcp-method is 'tools/list', but the body has 'tools/mangle'"
    );
}

#[test]
fn step_10_mh_13_then_the_method_exists() {
    Spoiled::new()
        .up_to(9)
        .send()
        .error(404, METHOD_NOT_FOUND, "1");
}

#[test]
fn step_11_mh_05_then_the_header_and_the_body_agree_on_the_name() {
    let message = Spoiled::new()
        .up_to(10)
        .send()
        .error(400, HEADER_MISMATCH, "1");
    assert_eq!(
        message,
        "Header mismatch: mcp-name is 'other', but the body has 'unknown'"
    );
}

#[test]
fn step_12_log_03_then_the_log_level() {
    let message = Spoiled::new()
        .up_to(11)
        .send()
        .error(200, INVALID_PARAMS, "1");
    assert!(message.contains("log level"), "{message}");
}

#[test]
fn step_13_tool_02_then_the_tool_exists() {
    let message = Spoiled::new()
        .up_to(12)
        .send()
        .error(200, INVALID_PARAMS, "1");
    assert_eq!(message, "Unknown tool: unknown");
}

#[test]
fn step_13_mh_10_then_the_mirrored_arguments() {
    let message = Spoiled::new()
        .up_to(13)
        .send()
        .error(400, HEADER_MISMATCH, "1");
    assert!(message.contains("mcp-param-region"), "{message}");
}

#[test]
fn step_13_tool_04_and_the_arguments_last() {
    let mut spoiled = Spoiled::new().up_to(13);
    spoiled.call = spoiled.call.and("mcp-param-region", "x");
    assert_eq!(spoiled.send().result()["isError"], true);
}

#[test]
fn meta_01_version_and_capabilities_are_required_and_of_the_right_type() {
    let server = Serve::demo();
    let good = Stateless::new("tools/list", json!({}));
    for (key, value, problem) in [
        (
            "protocolVersion",
            Value::Null,
            "protocolVersion is required",
        ),
        (
            "protocolVersion",
            json!(20260728),
            "protocolVersion is a string",
        ),
        (
            "protocolVersion",
            json!(["2026-07-28"]),
            "protocolVersion is a string",
        ),
        (
            "clientCapabilities",
            Value::Null,
            "clientCapabilities is required",
        ),
        (
            "clientCapabilities",
            json!([]),
            "clientCapabilities is an object",
        ),
        (
            "clientCapabilities",
            json!("{}"),
            "clientCapabilities is an object",
        ),
    ] {
        let message = good
            .clone()
            .meta(key, value)
            .send(&server)
            .error(400, INVALID_PARAMS, "1");
        assert_eq!(
            message,
            format!("Invalid params: _meta.io.modelcontextprotocol/{problem}")
        );
    }
    let null =
        good.params(|p| p["_meta"]["io.modelcontextprotocol/clientCapabilities"] = Value::Null);
    null.send(&server).error(400, INVALID_PARAMS, "1");
}

#[test]
fn meta_02_and_06_clients_need_not_say_who_they_are() {
    let server = Serve::demo();
    let list = Stateless::new("tools/list", json!({}));
    let anonymous = list.clone().meta("clientInfo", Value::Null).send(&server);
    anonymous.result();
    let odd = list
        .clone()
        .meta("clientInfo", json!(["odd"]))
        .send(&server);
    assert_eq!(anonymous.body, list.send(&server).body);
    assert_eq!(anonymous.body, odd.body);
}

#[test]
fn meta_05_and_07_every_result_says_what_it_is_and_who_the_server_is() {
    let server = Serve::demo();
    for call in [
        Stateless::new("server/discover", json!({})),
        Stateless::new("tools/list", json!({})),
        Stateless::call("echo", json!({"message": ""})),
        Stateless::call("calculate", json!({"operation": "add", "a": 1, "b": 2})),
        Stateless::call("fail", json!({})),
        Stateless::call("echo", json!({"wrong": 1})),
    ] {
        let result = call.send(&server).result();
        assert_eq!(result["resultType"], "complete");
        let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info, &json!({"name": "test", "version": "1"}));
    }
    // Earlier versions do not know these members.
    for revision in WITH_SESSIONS {
        let session = server.session(revision);
        for result in [
            session.call("echo", &json!({"message": ""})).result(),
            session.request("tools/list", &json!({})).result(),
        ] {
            for member in ["resultType", "_meta", "ttlMs", "cacheScope"] {
                assert!(result.get(member).is_none(), "{revision} {member}");
            }
        }
    }
}

#[test]
fn ver_02_and_04_versions_that_are_not_served_statelessly_are_refused_with_those_that_are() {
    let server = Serve::demo();
    let discovered = Stateless::new("server/discover", json!({}))
        .send(&server)
        .result();
    let supported = &discovered["supportedVersions"];
    assert_eq!(
        supported[0], "2026-07-28",
        "what clients choose from comes first"
    );
    for version in ["1900-01-01", "2025-11-25", "2024-11-05", "2026-07-29", ""] {
        let response = Stateless::new("tools/list", json!({}))
            .meta("protocolVersion", json!(version))
            .with("mcp-protocol-version", version)
            .send(&server);
        let message = response.error(400, UNSUPPORTED_VERSION, "1");
        assert_eq!(message, "Unsupported protocol version");
        let data = &response.json()["error"]["data"];
        assert_eq!(data, &json!({"supported": supported, "requested": version}));
    }
}

#[test]
fn log_03_a_log_level_is_one_of_eight_whatever_the_method() {
    let server = Serve::demo();
    let requests = [
        Stateless::new("tools/list", json!({})),
        Stateless::new("server/discover", json!({})),
        Stateless::call("echo", json!({"message": ""})),
    ];
    for request in requests {
        for level in [
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ] {
            request
                .clone()
                .meta("logLevel", json!(level))
                .send(&server)
                .result();
        }
        for level in [
            json!("loud"),
            json!("Debug"),
            json!(""),
            json!(7),
            json!({}),
        ] {
            request
                .clone()
                .meta("logLevel", level)
                .send(&server)
                .error(200, INVALID_PARAMS, "1");
        }
    }
}
