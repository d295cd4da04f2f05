//! Calls: their results, their requests to clients, and tasks.

use super::*;

#[test]
fn tool_10_a_large_text_is_sent_without_a_copy_and_reserves_memory_until_then() {
    let echo = |_, arguments: Map<String, Value>| async move {
        Ok::<_, ToolError>(arguments["text"].as_str().unwrap_or_default().to_owned())
    };
    let tool = tool_fn(Definition::new("echo"), echo).into_tool();
    let limits = LimitConfig {
        response_bytes: Some(4 * LARGE_BYTES as u64),
        ..LimitConfig::default()
    };
    let server = Arc::new(Server::new(ServerParts {
        limits: Limits::new(&limits, &Metrics::default()).into(),
        ..of(Catalog::new([tool]).expect("a good tool"))
    }));
    let worker = at(START);
    let id = session(&server, &worker);
    let call = |text: &str| {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": text}}});
        match post(&server, &worker, Some(&id), &call) {
            Reply::Response(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    for (sent, pieces) in [
        ("x".repeat(LARGE_BYTES - 1), 1),
        ("x".repeat(LARGE_BYTES), 2),
        ("\u{e9}".repeat(LARGE_BYTES / 2), 2),
        ("x".repeat(LARGE_BYTES) + "\n", 1),
    ] {
        let answer = call(&sent);
        assert_eq!(answer.rest.pieces().len(), pieces);
        let document: Value = serde_json::from_slice(&answer.to_bytes()).expect("JSON");
        let result = json!({"content": [{"type": "text", "text": sent}], "isError": false});
        assert!(document["result"] == result);
    }
    let large = "x".repeat(LARGE_BYTES);
    let unread = [(); 4].map(|()| call(&large));
    let refused = call(&large);
    assert!(matches!(refused.refusal, Some(RejectReason::Limited(_))));
    drop(unread);
    assert_eq!(call(&large).refusal, None);
}

#[test]
fn gemini_cli_gets_an_object_where_the_text_of_a_result_is_another_json_value() {
    let tool = tool_fn(
        Definition::new("list"),
        |_: Arc<CallContext>, _: Map<String, Value>| async { Ok::<_, ToolError>("[1]".to_owned()) },
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("good tools");
    let (server, worker) = (Arc::new(Server::new(of(catalog))), at(START));
    for (name, structured) in [
        ("gemini-cli-mcp-client", json!({"result": [1]})),
        ("test", Value::Null),
    ] {
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": name, "version": "1"}});
        let initialize =
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let Reply::Response(answer) = post(&server, &worker, None, &initialize) else {
            panic!("a stream");
        };
        let session = answer.session.expect("a session");
        let call =
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list"}});
        let document = text(post(&server, &worker, Some(&session), &call));
        assert_eq!(document["result"]["content"][0]["text"], "[1]");
        assert_eq!(
            document["result"]["structuredContent"], structured,
            "{name}"
        );
    }
}

/// Creates a server with a tool that requests roots.
fn asking_server() -> Arc<Server> {
    Arc::new(Server::new(of(asking_catalog())))
}

fn asking_catalog() -> Catalog {
    let tool = tool_fn(
        Definition::new("ask"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            let roots = context.roots().await?;
            Ok::<_, ToolError>(roots[0].uri.clone())
        },
    );
    Catalog::new([tool.into_tool()]).expect("good tools")
}

/// The call runs for at most a minute, and its events are kept for five minutes after its end.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_client_can_be_resumed_for_as_long_as_it_waits() {
    let mut parts = of(asking_catalog());
    parts.config.client_requests.timeout_seconds = 7200;
    let (server, worker) = (Arc::new(Server::new(parts)), at(START));
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}},
        "clientInfo": {"name": "test", "version": "1"}});
    let session = session_of(&server, &worker, &params);
    let call =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ask"}});
    let caller = Principal::anonymous();
    let begun = begin_post(caller, &server, &worker, Some(&session), &call);
    let Reply::Stream(mut stream) = begun.reply().await else {
        panic!("no stream");
    };
    let first = std::future::poll_fn(|cx| stream.poll_next(cx)).await;
    let first = first.and_then(|event| event.id).expect("an id");
    let request = std::future::poll_fn(|cx| stream.poll_next(cx)).await;
    assert!(request.is_some_and(|event| matches!(event.data, EventData::Message(_))));
    drop(stream);
    tokio::time::advance(Duration::from_secs(7000)).await;
    let (mut headers, mcp) = headers_of(&[
        ("mcp-session-id", &session),
        ("last-event-id", &first.to_string()),
    ]);
    let principal = Arc::new(Principal::anonymous());
    let head = head(&principal, &mut headers, &mcp);
    let opened = server.open_stream(&worker, &head, VersionHeader::WithSessions);
    let reply = opened.unwrap_or_else(|refusal| panic!("{refusal:?}")).await;
    assert!(matches!(reply, Reply::Stream(_)), "{reply:?}");
}

#[test]
fn mrtr_06_a_state_is_good_for_its_principal_and_for_a_quarter_of_an_hour() {
    // ELI-06
    let server = asking_server();
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .expect("later")
        .as_secs();
    let call = |extra: Value| {
        let mut params = json!({
            "name": "ask",
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
            },
        });
        params
            .as_object_mut()
            .expect("an object")
            .extend(extra.as_object().expect("an object").clone());
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    };
    let send = |principal: Principal, now: u64, body: &Value| {
        at_once(over_stdio(
            &server,
            principal,
            &StdioPeer::default(),
            now,
            body,
        ))
    };
    let asked = send(Principal::local(), now, &call(json!({})));
    let again = call(json!({
        "requestState": asked["result"]["requestState"],
        "inputResponses": {"roots-1": {"roots": [{"uri": "file:///x"}]}},
    }));
    let good = send(Principal::local(), now + 890, &again);
    assert_eq!(good["result"]["content"][0]["text"], "file:///x");
    for bad in [
        send(Principal::anonymous(), now, &again),
        send(Principal::local(), now + 910, &again),
    ] {
        assert_eq!(bad["error"]["code"], -32602, "{bad}");
    }
    let counts = server.client_request_counts();
    assert_eq!(
        (counts.asked, counts.resumed, counts.states_refused),
        (1, 1, 2)
    );
}

#[tokio::test]
async fn tsk_10_a_task_is_there_for_its_own_principal_only() {
    let tool = tool_fn(
        Definition::new("work").task(TaskSupport::Required),
        |_, _: Map<String, Value>| std::future::pending::<Result<String, ToolError>>(),
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("good tools");
    let server = Arc::new(Server::new(of(catalog)));
    let send = async |principal: Principal, method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities":
                {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let handled = over_stdio(&server, principal, &StdioPeer::default(), START, &body);
        text(handled.reply().await)
    };
    let created = send(Principal::local(), "tools/call", json!({"name": "work"})).await;
    let task = &created["result"]["taskId"];
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": task, "inputResponses": {}});
        let refused = send(Principal::anonymous(), method, params).await;
        assert_eq!(refused["error"]["code"], -32602, "{method}: {refused}");
    }
    let own = send(Principal::local(), "tasks/get", json!({"taskId": task})).await;
    assert_eq!(own["result"]["status"], "working");
}

#[tokio::test]
async fn rpc_08_a_call_in_a_batch_over_stdio_that_reports_progress_is_answered() {
    let tool = tool_fn(
        Definition::new("reports"),
        |context: Arc<CallContext>, _: Map<String, Value>| async move {
            context.progress(1.0, None, "half").await;
            Ok::<_, ToolError>(String::new())
        },
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("good tools");
    let server = Arc::new(Server::new(of(catalog)));
    let peer = StdioPeer::default();
    let send = async |body: Value| -> Vec<Value> {
        let handled = over_stdio(&server, Principal::local(), &peer, START, &body);
        let read = |text: &[u8]| serde_json::from_slice(text).expect("JSON");
        let mut stream = match handled.reply().await {
            Reply::Response(response) => return vec![read(&response.to_bytes())],
            Reply::Stream(stream) => stream,
            other => panic!("{other:?}"),
        };
        let mut messages = Vec::new();
        while let Some(event) = std::future::poll_fn(|cx| stream.poll_next(cx)).await {
            match event.data {
                EventData::Message(message) => messages.push(read(&message)),
                EventData::Response(response) => messages.push(read(&response.to_bytes())),
                EventData::Empty => {}
            }
        }
        messages
    };
    let params = json!({"protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
    let params = json!({"name": "reports", "_meta": {"progressToken": "token"}});
    let messages =
        send(json!([{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}])).await;
    let [progress, responses] = &messages[..] else {
        panic!("{messages:?}");
    };
    assert_eq!(progress["params"]["progressToken"], "token");
    assert_eq!(responses[0]["id"], 2, "{responses}");
    assert_eq!(responses[0]["result"]["isError"], false);
}

#[tokio::test]
async fn a_request_for_the_result_of_a_task_fails_with_the_reason_when_the_server_stops() {
    let hang = |_, _: Map<String, Value>| std::future::pending::<Result<String, ToolError>>();
    let tool = tool_fn(Definition::new("work").task(TaskSupport::Required), hang);
    let catalog = Catalog::new([tool.into_tool()]).expect("a good tool");
    let (server, worker) = (Arc::new(Server::new(of(catalog))), at(START));
    let session = session_of(&server, &worker, &json!({"protocolVersion": "2025-11-25"}));
    let send = |method: &str, params: Value| {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let principal = Principal::anonymous();
        begin_post(principal, &server, &worker, Some(&session), &request).reply()
    };
    let begun = text(send("tools/call", json!({"name": "work", "task": {}})).await);
    let task = &begun["result"]["task"]["taskId"];
    let mut result = std::pin::pin!(send("tasks/result", json!({"taskId": task})));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(result.as_mut().poll(&mut cx).is_pending());
    server.stop_calls();
    assert_eq!(text(result.await)["error"]["code"], 503);
}
