//! The audit log: one record for each call and each rejected request.

mod tasks;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore::auth::{Effect, RuleConfig};
use longshore::catalog::{CallFuture, TaskSupport, UpstreamIdentity};
use longshore::net::TrustedProxies;
use longshore::{Arguments, CallContext, Config, Definition, Output, Tool, ToolError, tool};
use serde_json::{Value, json};

use crate::auth::{BOB, CI, bearer, with_keys};
use crate::support::{Running, Serve, Stateless, request};

/// Returns what it is given, or fails.
#[tool]
async fn echo(message: String, password: Option<String>) -> Result<String, ToolError> {
    let _ = password;
    match &*message {
        "fail" => Err(ToolError::new("it failed")),
        _ => Ok(message),
    }
}

/// Returns a result that is an error, like the tool of an upstream that fails.
#[tool]
async fn broken(length: usize) -> Output {
    Output::text("x".repeat(length)).into_error()
}

/// Is hidden from some.
#[tool]
async fn hidden() -> &'static str {
    "found"
}

/// Needs a scope.
#[tool(scopes("vault:open"))]
async fn vault() -> &'static str {
    "open"
}

/// Says something before its end.
#[tool]
async fn talk(context: &CallContext) -> &'static str {
    context.progress(1.0, None, "going").await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    "done"
}

/// Takes its time.
#[tool(task)]
async fn idle() -> &'static str {
    std::future::pending().await
}

#[tool(task)]
async fn chore() -> &'static str {
    "did it"
}

/// A task that calls another server.
struct Errand(Definition);

impl Tool for Errand {
    fn definition(&self) -> &Definition {
        &self.0
    }

    fn call(&self, _: Arc<CallContext>, _: Arguments) -> CallFuture {
        Box::pin(async { Ok(Output::text("done")) })
    }

    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        let (name, identity) = ("orders", "service");
        Some(UpstreamIdentity { name, identity })
    }
}

/// A server with an audit log, and where that is.
struct Audited {
    server: Option<Running>,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Audited {
    fn start(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("audit.jsonl");
        let server = Serve::new()
            .tool(echo)
            .tool(broken)
            .tool(hidden)
            .tool(vault)
            .tool(talk)
            .tool(chore)
            .tool(idle)
            .tool(Errand(
                Definition::new("errand").task(TaskSupport::Optional),
            ))
            .configured(|c| c.audit.file = Some(file.clone()))
            .configured(change)
            .start();
        Self {
            server: Some(server),
            file,
            _folder: folder,
        }
    }

    fn server(&self) -> &Running {
        self.server.as_ref().expect("runs")
    }

    /// Stops the server, and reads what it has recorded between its start and its end.
    fn records(mut self) -> Vec<Value> {
        drop(self.server.take());
        let text = std::fs::read_to_string(&self.file).expect("a file");
        let mut records: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object"))
            .collect();
        assert_eq!(records.remove(0)["event"], "start");
        assert_eq!(records.pop().expect("an end")["event"], "stop");
        records
    }
}

fn said(message: &str) -> Stateless {
    Stateless::call("echo", json!({"message": message}))
}

/// Checks some fields of a record; `null` stands for absent fields.
#[track_caller]
fn assert_says(record: &Value, expected: Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&record[name], value, "{name} of {record}");
    }
}

#[test]
fn each_call_has_one_record_of_who_and_what_and_how_it_ended() {
    let audited = Audited::start(with_keys);
    let server = audited.server();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let by_ci = |call: Stateless| call.and("authorization", &bearer(CI));
    for call in [
        said("hi").and("traceparent", trace),
        said("fail"),
        Stateless::call("echo", json!({"message": 1})),
        Stateless::call("nothing", json!({})),
        Stateless::call("vault", json!({})),
        Stateless::call("talk", json!({})).params(|p| p["_meta"]["progressToken"] = json!(1)),
        Stateless::call("broken", json!({"length": 1})),
        Stateless::call("broken", json!({"length": 100_000})),
    ] {
        let mut connection = server.connect();
        let answer = connection.send(by_ci(call).text()).receive_head();
        if answer.header("content-type") == Some("text/event-stream") {
            while connection.event().is_some() {}
        }
    }
    // Read-only requests are not recorded.
    by_ci(Stateless::new("tools/list", json!({}))).send(server);
    let post = "POST /tools/echo HTTP/1.1\r\nhost: localhost\r\nx-api-key: KEY\r\n\
        content-type: application/json\r\ncontent-length: 16\r\n\r\n{\"message\":\"hi\"}";
    let rest = server.connect().send(post.replace("KEY", BOB)).receive();
    assert_eq!(rest.status, 200);
    let records = audited.records();
    let outcomes: Vec<_> = records
        .iter()
        .map(|r| (r["event"].as_str().unwrap(), r["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(
        outcomes,
        [
            ("call", "ok"),
            ("call", "tool_error"),
            ("call", "refused"),
            ("call", "refused"),
            ("call", "denied"),
            ("call", "ok"),
            ("call", "tool_error"),
            ("call", "tool_error"),
            ("call", "ok"),
        ]
    );
    assert_says(
        &records[0],
        json!({
            "principal": "key:ci", "principal_kind": "api_key", "client": "127.0.0.1", "endpoint": "mcp",
            "method": "tools/call", "tool": "echo", "rule": null, "reason": null, "arguments": null,
            "trace_id": "0af7651916cd43dd8448eb211c80319c",
        }),
    );
    assert!(
        records[0]["duration_ms"]
            .as_f64()
            .is_some_and(|ms| ms >= 0.0)
    );
    assert!(
        records[0]["time"]
            .as_str()
            .is_some_and(|t| t.ends_with('Z'))
    );
    assert_says(&records[2], json!({"tool": "echo", "reason": "arguments"}));
    assert_says(
        &records[3],
        json!({"tool": "nothing", "reason": "tool", "code": -32602}),
    );
    assert_says(
        &records[4],
        json!({"tool": "vault", "reason": "scope", "code": 403}),
    );
    assert_says(&records[5], json!({"tool": "talk"}));
    assert_says(
        &records[8],
        json!({"tool": "echo", "principal": "key:bob", "client": "127.0.0.1"}),
    );
}

#[test]
fn messages_of_a_batch_and_of_a_session_are_recorded_one_by_one() {
    let audited = Audited::start(|_| {});
    let session = audited.server().session("2025-03-26");
    let call = |id: u64, name: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": {"message": "a"}}});
    let batch = json!([call(7, "echo"), call(8, "nothing")]).to_string();
    session.post(&batch);
    let records = audited.records();
    let tools: Vec<_> = records
        .iter()
        .map(|r| r["tool"].as_str().unwrap())
        .collect();
    assert_eq!(tools, ["echo", "nothing"]);
    assert_says(
        &records[0],
        json!({"client": "127.0.0.1", "principal": "anonymous"}),
    );
    assert!(
        records[0]["session"]
            .as_str()
            .is_some_and(|s| !s.is_empty())
    );
}

#[test]
fn messages_of_a_batch_beyond_a_rate_are_recorded() {
    let audited = Audited::start(|c| {
        c.limits.address.per_second = 0.001;
        c.limits.address.burst = 3;
    });
    let session = audited.server().session("2025-03-26");
    let call = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "echo", "arguments": {"message": "a"}}});
    session.post(&json!([call(1), call(2), call(3)]).to_string());
    let mut records = audited.records();
    // A rejection is recorded before the calls have ended.
    records.sort_by_key(|record| record["event"].to_string());
    assert_eq!(records.len(), 3, "{records:?}");
    for record in &records[..2] {
        assert_says(record, json!({"event": "call", "outcome": "ok"}));
    }
    assert_says(
        &records[2],
        json!({"event": "refusal", "outcome": "limited", "reason": "limits.address", "client": "127.0.0.1", "principal": "anonymous"}),
    );
}

#[test]
fn what_the_rules_hide_is_recorded_as_denied_with_the_rule() {
    let audited = Audited::start(|c| {
        with_keys(c);
        c.policy.rules = vec![
            rule("all", Effect::Allow, &["*"]),
            rule("not for ci", Effect::Deny, &["hidden"]),
        ];
        c.policy.rules[0].resources = vec!["*".to_owned()];
        c.policy.rules[1].principals = vec!["key:ci".to_owned()];
        c.policy.rules[1].resources = vec!["*secret".to_owned()];
    });
    for key in [CI, BOB] {
        let call = Stateless::call("hidden", json!({})).and("authorization", &bearer(key));
        call.send(audited.server());
    }
    let uri = format!("test://{}secret", "a".repeat(2_000));
    let read = Stateless::new("resources/read", json!({ "uri": uri }));
    read.and("authorization", &bearer(CI))
        .send(audited.server());
    let records = audited.records();
    assert_says(
        &records[2],
        json!({"event": "call", "outcome": "denied", "rule": "not for ci", "reason": "policy"}),
    );
    assert_says(
        &records[0],
        json!({"event": "call", "outcome": "denied", "tool": "hidden", "rule": "not for ci", "reason": "policy"}),
    );
    assert_says(
        &records[1],
        json!({"event": "call", "outcome": "ok", "tool": "hidden", "rule": "all", "reason": null}),
    );
}

#[test]
fn a_call_by_way_of_call_tool_is_recorded_as_one_of_the_tool_that_is_executed() {
    /// Takes an argument that only its schema marks as secret.
    #[tool]
    async fn unlock(#[schemars(extend("writeOnly" = true))] phrase: String) -> String {
        let _ = phrase;
        "open".to_owned()
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let server = Serve::new()
        .tool(echo)
        .tool(hidden)
        .tool(unlock)
        .configured(with_keys)
        .configured(|c| {
            c.server.search.above = Some(1);
            c.audit.file = Some(file.clone());
            c.audit.arguments = true;
            c.policy.rules = vec![
                rule("all", Effect::Allow, &["*"]),
                rule("not for ci", Effect::Deny, &["hidden"]),
            ];
        })
        .start();
    let call = |arguments: Value| {
        let call = Stateless::call("call_tool", arguments);
        call.and("authorization", &bearer(CI)).send(&server);
    };
    call(json!({"name": "unlock", "arguments": {"phrase": "canary"}}));
    call(json!({"name": "hidden"}));
    call(json!({"name": "nothing", "arguments": {}}));
    call(json!({"arguments": {}}));
    drop(server);
    let text = std::fs::read_to_string(file).expect("a file");
    let records = text.lines().map(serde_json::from_str::<Value>);
    let records: Vec<_> = records.map(|record| record.expect("an object")).collect();
    assert!(!text.contains("canary"), "{text}");
    for (record, expected) in records[1..].iter().zip([
        json!({"outcome": "ok", "tool": "unlock", "via": "call_tool", "rule": "all", "arguments": {"phrase": "[redacted]"}}),
        json!({"outcome": "denied", "tool": "hidden", "via": "call_tool", "rule": "not for ci", "reason": "policy"}),
        json!({"outcome": "refused", "tool": "nothing", "via": "call_tool", "reason": "tool"}),
        json!({"tool": "call_tool", "via": null}),
    ]) {
        assert_says(record, expected);
    }
}

fn rule(name: &str, effect: Effect, tools: &[&str]) -> RuleConfig {
    let mut rule: RuleConfig = serde_json::from_value(json!({"effect": "allow"})).expect("a rule");
    rule.name = Some(name.to_owned());
    rule.effect = effect;
    rule.tools = tools.iter().map(|t| (*t).to_owned()).collect();
    rule
}

#[test]
fn completions_that_a_rule_denies_are_recorded_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("audit.jsonl");
    let denied = json!({
        "name": "no verbs", "effect": "deny", "prompts": ["practise_verb"], "resources": ["verb://*"],
    });
    let server = Serve::new()
        .configured(with_keys)
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            c.audit.file = Some(file.clone());
            c.policy.rules = vec![serde_json::from_value(denied).expect("a rule")];
        })
        .start();
    let audited = Audited {
        server: Some(server),
        file,
        _folder: folder,
    };
    for reference in [
        json!({"type": "ref/prompt", "name": "practise_verb"}),
        json!({"type": "ref/prompt", "name": "none"}),
        json!({"type": "ref/resource", "uri": "verb://{verb}"}),
    ] {
        let params = json!({"ref": reference, "argument": {"name": "verb", "value": ""}});
        Stateless::new("completion/complete", params)
            .and("authorization", &bearer(CI))
            .send(audited.server());
    }
    let records = audited.records();
    assert_eq!(records.len(), 2, "{records:?}");
    for (record, (kind, name)) in records
        .iter()
        .zip([("prompt", "practise_verb"), ("resource", "verb://{verb}")])
    {
        assert_says(
            record,
            json!({
                "event": "refusal", "outcome": "denied", "principal": "key:ci", "method": "completion/complete",
                kind: name, "rule": "no verbs", "reason": "policy",
            }),
        );
    }
}

#[test]
fn whoever_is_turned_away_is_recorded_whatever_it_was_for() {
    let audited = Audited::start(|c| {
        with_keys(c);
        c.limits.principal.per_second = 0.001;
        c.limits.principal.burst = 1;
        c.http.trusted_proxies =
            TrustedProxies::from_iter(["127.0.0.0/8".parse().expect("a network")]);
    });
    let server = audited.server();
    let far = "x-forwarded-for";
    said("hi").and(far, "203.0.113.7").send(server);
    said("hi")
        .and("authorization", "Bearer nobody-knows-this-key")
        .send(server);
    said("hi")
        .and("authorization", &bearer(CI))
        .and("x-api-key", CI)
        .send(server);
    said("hi")
        .and("origin", "https://evil.example")
        .send(server);
    said("hi").with("host", "evil.example").send(server);
    let by_ci = said("hi")
        .and("authorization", &bearer(CI))
        .and(far, "203.0.113.8");
    by_ci.send(server).result();
    assert_eq!(by_ci.send(server).status, 429);
    let records = audited.records();
    let expected = [
        json!({"event": "refusal", "outcome": "denied", "reason": "credential_missing", "client": "203.0.113.7", "principal": null}),
        json!({"event": "refusal", "outcome": "denied", "reason": "credential_invalid", "client": "127.0.0.1"}),
        json!({"event": "refusal", "outcome": "denied", "reason": "credential_malformed"}),
        json!({"event": "refusal", "outcome": "denied", "reason": "origin"}),
        json!({"event": "refusal", "outcome": "denied", "reason": "host_foreign"}),
        json!({"event": "call", "outcome": "ok", "client": "203.0.113.8"}),
        json!({"event": "refusal", "outcome": "limited", "reason": "limits.principal", "principal": "key:ci", "client": "203.0.113.8"}),
    ];
    assert_eq!(records.len(), expected.len(), "{records:?}");
    for (record, expected) in records.iter().zip(expected) {
        assert_says(record, expected);
    }
    let all = serde_json::to_string(&records).expect("JSON");
    assert!(!all.contains("nobody-knows-this-key") && !all.contains(CI));
}

#[test]
fn framings_that_the_http_library_rejects_are_recorded_too() {
    let audited = Audited::start(|_| {});
    let heads = [
        "x: a\r\n b\r\ncontent-length: 0\r\n",
        "content-length: 3\r\ncontent-length: 4\r\n",
        "content-length: +3\r\n",
    ];
    for fields in heads {
        let text = format!("POST /mcp HTTP/1.1\r\nhost: localhost\r\n{fields}\r\n");
        let response = audited.server().connect().send(text).receive();
        assert_eq!(response.status, 400, "{fields}");
    }
    let records = audited.records();
    assert_eq!(records.len(), heads.len(), "{records:?}");
    for record in &records {
        let expected = json!({"event": "refusal", "outcome": "denied", "reason": "head", "client": "127.0.0.1"});
        assert_says(record, expected);
    }
}

#[test]
fn arguments_are_recorded_if_somebody_asks_for_them_and_never_secrets() {
    for asked in [false, true] {
        let audited = Audited::start(|c| c.audit.arguments = asked);
        let arguments = json!({"message": "hi", "password": "canary"});
        Stateless::call("echo", arguments)
            .send(audited.server())
            .result();
        let records = audited.records();
        let expected = match asked {
            true => json!({"message": "hi", "password": "[redacted]"}),
            false => Value::Null,
        };
        assert_eq!(records[0]["arguments"], expected);
    }
}

#[test]
fn all_methods_are_recorded_if_somebody_wants_that() {
    let audited = Audited::start(|c| c.audit.all_methods = true);
    Stateless::new("tools/list", json!({})).send(audited.server());
    audited
        .server()
        .post(&[("mcp-session-id", "none")], &request("ping", &json!({})));
    let get = "GET /tools HTTP/1.1\r\nhost: localhost\r\n\r\n";
    audited.server().connect().send(get).receive();
    let records = audited.records();
    assert_says(
        &records[0],
        json!({"method": "tools/list", "outcome": "ok"}),
    );
    assert_says(
        &records[1],
        json!({"method": "ping", "reason": "session_unknown"}),
    );
    assert_says(
        &records[2],
        json!({"method": "tools/list", "outcome": "ok", "client": "127.0.0.1"}),
    );
}

#[cfg(target_os = "linux")]
#[test]
fn what_has_to_be_recorded_and_cannot_be_is_not_done() {
    let server = Serve::new()
        .tool(echo)
        .admin()
        .configured(|c| {
            c.audit.file = Some("/dev/full".into());
            c.audit.required = true;
        })
        .start();
    let get = |path: &str| server.admin_page(path);
    // The first record reports the start of the server. When it fails is not deterministic.
    while get("/readyz").status == 200 {}
    let refused = said("hi").send(&server);
    refused.error(503, 503, "1");
    assert_eq!(refused.header("retry-after"), Some("2"));
    assert_eq!(refused.json()["error"]["data"]["setting"], "audit.required");
    // Requests that call nothing are answered.
    Stateless::new("tools/list", json!({}))
        .send(&server)
        .result();
    let metrics = get("/metrics").body;
    assert!(metrics.contains("longshore_audit_failing 1\n"), "{metrics}");
    assert!(
        metrics.contains("longshore_refusals_total{reason=\"audit\"} 1\n"),
        "{metrics}"
    );
    assert!(get("/health/detailed").body.contains("the audit log"));
}

#[test]
fn refusals_are_counted_by_their_reason() {
    let server = Serve::new()
        .tool(echo)
        .admin()
        .configured(with_keys)
        .start();
    said("hi").send(&server);
    said("hi")
        .and("origin", "https://evil.example")
        .send(&server);
    let by_ci = |call: Stateless| call.and("authorization", &bearer(CI));
    by_ci(said("hi"))
        .with("content-type", "text/plain")
        .send(&server);
    by_ci(said("hi")).without("mcp-method").send(&server);
    by_ci(said("hi")).with("mcp-name", "other").send(&server);
    let metrics = server.admin_page("/metrics").body;
    for (reason, count) in [
        ("credential_missing", 1),
        ("origin", 1),
        ("media_type", 1),
        ("header", 2),
        ("scope", 0),
    ] {
        let line = format!("longshore_refusals_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}
