//! Members that appear twice in an object of the arguments: readers differ in which of the two they take.

use longshore::source::{SourceConfig, UpstreamConfig};
use longshore::{Definition, ToolError, tool, tool_fn};
use serde_json::{Map, Value, json};

use crate::support::{Response, Running, Serve, assert_contains};

/// A typed tool of the simplest form.
#[tool]
async fn say(message: String) -> String {
    message
}

/// Takes anything.
#[tool]
async fn anything(v: Value) -> String {
    v.to_string()
}

/// Mirrors an argument.
#[tool]
async fn query(#[arg(header = "Region")] region: Option<String>) -> String {
    region.unwrap_or_default()
}

const REPEATED: &str = "the member appears more than once; send it once";

/// A server with a tool of each kind; an upstream, a command and the audit log each leave what they got in a folder.
fn server(folder: &tempfile::TempDir) -> Running {
    let path = folder.path().display();
    let upstream = format!(
        r#"while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            case "$line" in
            *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"protocolVersion":"2024-11-05","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"x","version":"0"}}}}}}' ;;
            *tools/list*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"tools":[{{"name":"take","inputSchema":{{"type":"object"}}}}]}}}}' ;;
            *tools/call*) printf '%s\n' "$line" >> {path}/upstream; echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"content":[]}}}}' ;;
            esac
        done"#
    );
    let upstream: UpstreamConfig =
        serde_json::from_value(json!({"command": "sh", "args": ["-c", upstream]})).expect("valid");
    let source: SourceConfig = serde_json::from_value(json!({
        "name": "shell",
        "command": {"tools": [{
            "name": "run", "description": "Runs.", "arguments": {"a": {}},
            "argv": ["sh", "-c", format!("echo $0 >> {path}/command"), "{{ a }}"],
        }]},
    }))
    .expect("valid");
    let schema = json!({"type": "object", "additionalProperties": true});
    let loose = tool_fn(
        Definition::new("loose").input_schema(schema),
        |_, arguments: Map<String, Value>| async move {
            Ok::<_, ToolError>(Value::from(arguments).to_string())
        },
    );
    let audit = folder.path().join("audit");
    Serve::new()
        .tool(say)
        .tool(anything)
        .tool(query)
        .tool(loose)
        .configured(|c| {
            c.upstreams.insert("up".to_owned(), upstream);
            c.sources.push(source);
            c.audit.file = Some(audit);
            c.audit.arguments = true;
        })
        .start()
}

/// Arguments, and where in them a member appears twice.
const CASES: [(&str, &str, &str); 12] = [
    ("say", r#"{"message":"a","message":"b"}"#, "message"),
    ("say", r#"{"message":"a","\u006dessage":"b"}"#, "message"),
    (
        "anything",
        r#"{"v":{"a":1,"b":{"c":[0,{"d":1,"d":1}]}}}"#,
        "v.b.c[1].d",
    ),
    ("anything", r#"{"v":[[{"":1,"":2}]]}"#, "v[0][0]."),
    ("anything", r#"{"v":{"a":1e400,"b":1,"b":2}}"#, "v.b"),
    (
        "anything",
        r#"{"v":[[[[[[[[[[[[{"a":1,"a":1}]]]]]]]]]]]]}"#,
        "v[0][0][0][0][0][0][0][0][0][0][0][0].a",
    ),
    ("query", r#"{"region":"evil","region":"b"}"#, "region"),
    ("loose", r#"{"a":1,"b":2,"a":3}"#, "a"),
    (
        "loose",
        r#"{"a":{"x":1},"b":[{"x":1},{"x":1,"x":2}]}"#,
        "b[1].x",
    ),
    ("up__take", r#"{"region":"evil","region":"b"}"#, "region"),
    (
        "up__take",
        r#"{"a":{"b":[{"c":1,"\u0063":2}]}}"#,
        "a.b[0].c",
    ),
    ("run", r#"{"a":"x","a":"y"}"#, "a"),
];

fn message_of(response: &Response) -> String {
    let answer = response.json();
    let result = &answer["result"];
    assert!(
        answer["error"]["code"] == -32602 || result["isError"] == true,
        "{answer}"
    );
    let text = answer["error"]["message"].as_str();
    let text = text.or_else(|| result["content"][0]["text"].as_str());
    text.unwrap_or_default().to_owned()
}

#[test]
fn a_member_that_appears_twice_has_the_call_refused_before_anybody_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = server(&folder);
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let sessions = ["2025-06-18", "2025-11-25"].map(|revision| server.session(revision));
    for (tool, arguments, path) in CASES {
        let expected = format!("Invalid arguments for tool {tool}: {path}: {REPEATED}");
        // The header says what the last of the two does.
        let headers = [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", tool),
            ("mcp-param-region", "b"),
        ];
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},{meta}}}}}"#
        );
        let response = server.connect().post(&headers, &body);
        assert_eq!(message_of(&response), expected);
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{arguments},"name":"{tool}"}}}}"#
        );
        for session in &sessions {
            assert_eq!(message_of(&session.post(&body)), expected);
        }
        let length = arguments.len();
        let plain = format!(
            "POST /tools/{tool} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{arguments}"
        );
        let response = server.connect().send(plain).receive();
        assert!(response.body.contains(REPEATED), "{response:?}");
    }
    // Similar names, and equal names in two objects, are not duplicates.
    let fine =
        r#"{"v":{"ab":1,"ba":1,"aab":[{"x":1},{"x":1}],"x":{"x":{"x":1}},"x1":"x","x2":"x","":0}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{fine},"name":"anything"}}}}"#
    );
    assert_eq!(sessions[0].post(&body).result()["isError"], false);
    drop(sessions);
    drop(server);
    for name in ["upstream", "command"] {
        assert!(!folder.path().join(name).exists(), "{name} was called");
    }
    let audit = std::fs::read_to_string(folder.path().join("audit")).expect("a log");
    let refused = audit.lines().filter(|line| line.contains("\"refused\""));
    let mut count = 0;
    for line in refused {
        assert_contains(&line, &["omitted_bytes", "\"reason\":\"arguments\""]);
        count += 1;
    }
    assert_eq!(count, 4 * CASES.len());
}

#[test]
fn a_member_that_appears_twice_is_found_by_way_of_call_tool_too() {
    let server = Serve::new()
        .tool(say)
        .tool(anything)
        .configured(|c| c.server.search.above = Some(1))
        .start();
    let session = server.session("2025-11-25");
    for (arguments, expected) in [
        (
            r#"{"name":"anything","arguments":{"v":{"a":1,"a":2}}}"#,
            format!("Invalid arguments for tool anything: v.a: {REPEATED}"),
        ),
        (
            r#"{"name":"say","name":"anything","arguments":{"v":1}}"#,
            "Invalid arguments for tool call_tool: ".to_owned(),
        ),
        (
            r#"{"name":"anything","arguments":{"v":1},"arguments":{"v":2}}"#,
            "Invalid arguments for tool call_tool: ".to_owned(),
        ),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"call_tool","arguments":{arguments}}}}}"#
        );
        let message = message_of(&session.post(&body));
        assert!(message.starts_with(&expected), "{message}");
    }
}

#[test]
fn a_prompts_arguments_appear_once() {
    let server = Serve::new().toolset("everything").start();
    let session = server.session("2025-11-25");
    let params = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{{"name":"test_prompt_with_arguments","arguments":{arguments}}}}}"#
        )
    };
    let twice = params(r#"{"arg1":"a","arg2":"b","arg1":"c"}"#);
    let message = session.post(&twice).error(200, -32602, "1");
    assert!(
        message.contains("arg1") && message.contains(REPEATED),
        "{message}"
    );
    session.post(&params(r#"{"arg1":"a","arg2":"b"}"#)).result();
}
