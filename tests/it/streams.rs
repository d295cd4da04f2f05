//! Notifications of a call before its response, and cancellation.

use std::sync::Arc;
use std::time::Duration;

use crate::support::Checked as _;
use longshore::{App, CallContext, Config, Harness, LogLevel, tool};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Counts to three, and says so.
#[tool]
async fn count(context: &CallContext) -> String {
    for step in 1..=3 {
        context
            .progress(f64::from(step), Some(3.0), "counting")
            .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    "counted".to_owned()
}

/// Logs at two levels.
#[tool]
async fn chatter(context: &CallContext) -> String {
    context.log(LogLevel::Debug, "a detail").await;
    context
        .log(LogLevel::Warning, &json!({"disk": "full"}))
        .await;
    "chattered".to_owned()
}

/// Never ends.
#[tool]
async fn hang() -> String {
    std::future::pending().await
}

fn server() -> Harness {
    let app = App::new().config(Config::default());
    app.tool(count)
        .tool(chatter)
        .tool(hang)
        .checked_harness()
        .expect("valid")
}

fn stateless(id: u32, tool: &str, mut meta: Value) -> String {
    meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "_meta": meta}})
        .to_string()
}

async fn handshake(server: &Harness, revision: &str) {
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let answer = server.send(&message.to_string()).await.expect("an answer");
    assert_eq!(answer["result"]["protocolVersion"], revision);
}

fn methods(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|m| m["method"].as_str().unwrap_or("answer"))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn prog_01_progress_comes_before_the_answer_under_the_callers_token() {
    let server = server();
    let said = server
        .send_and_listen(&stateless(1, "count", json!({"progressToken": "abc"})))
        .await;
    let reports: Vec<_> = said[..3].iter().map(|m| m["params"].clone()).collect();
    let expected = [1, 2, 3]
        .map(|n| json!({"progressToken": "abc", "progress": n, "total": 3, "message": "counting"}));
    assert_eq!(reports, expected);
    assert_eq!(said[3]["id"], 1);
    assert_eq!(said[3]["result"]["content"][0]["text"], "counted");
    assert_eq!(said.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn prog_01_nobody_is_told_who_did_not_ask() {
    let said = server()
        .send_and_listen(&stateless(1, "count", json!({})))
        .await;
    assert_eq!(methods(&said), ["answer"]);
}

#[tokio::test(start_paused = true)]
async fn progress_has_no_message_before_2025_03_26() {
    let server = server();
    handshake(&server, "2024-11-05").await;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "count", "_meta": {"progressToken": 7}}});
    let said = server.send_and_listen(&call.to_string()).await;
    assert_eq!(
        said[0]["params"],
        json!({"progressToken": 7, "progress": 1, "total": 3})
    );
}

#[tokio::test(start_paused = true)]
async fn log_02_the_stateless_era_gets_logs_at_the_level_of_the_request_only() {
    let server = server();
    let silent = server
        .send_and_listen(&stateless(1, "chatter", json!({})))
        .await;
    assert_eq!(methods(&silent), ["answer"]);
    let level = json!({"io.modelcontextprotocol/logLevel": "warning"});
    let said = server
        .send_and_listen(&stateless(2, "chatter", level))
        .await;
    assert_eq!(methods(&said), ["notifications/message", "answer"]);
    assert_eq!(
        said[0]["params"],
        json!({"level": "warning", "data": {"disk": "full"}})
    );
    let wrong = json!({"io.modelcontextprotocol/logLevel": "loud"});
    let refused = server
        .send(&stateless(3, "chatter", wrong))
        .await
        .expect("an answer");
    assert_eq!(refused["error"]["code"], -32602);
}

#[tokio::test(start_paused = true)]
async fn log_03_sessions_set_their_level() {
    let server = server();
    handshake(&server, "2025-06-18").await;
    let call =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "chatter"}})
            .to_string();
    assert_eq!(
        methods(&server.send_and_listen(&call).await),
        ["notifications/message", "answer"]
    );
    for (level, said) in [("debug", 3), ("error", 1), ("info", 2)] {
        let set = json!({"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": level}});
        let answer = server.send(&set.to_string()).await.expect("an answer");
        assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
        assert_eq!(server.send_and_listen(&call).await.len(), said, "{level}");
    }
    let wrong = json!({"jsonrpc": "2.0", "id": 3, "method": "logging/setLevel", "params": {"level": "loud"}});
    assert_eq!(
        server.send(&wrong.to_string()).await.expect("an answer")["error"]["code"],
        -32602
    );
}

#[tokio::test(start_paused = true)]
async fn can_01_a_cancelled_call_is_dropped_and_gets_no_answer() {
    // STD-05: in either lifecycle.
    let server = Arc::new(server());
    handshake(&server, "2025-11-25").await;
    for (call, cancel) in [
        (json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "hang"}}).to_string(), "x"),
        (stateless(5, "hang", json!({})), "5"),
    ] {
        let asked = Arc::new(Notify::new());
        let waiting = tokio::spawn({
            let (server, asked) = (Arc::clone(&server), Arc::clone(&asked));
            async move {
                asked.notify_one();
                server.send_and_listen(&call).await
            }
        });
        asked.notified().await;
        let id: Value = cancel.parse::<u32>().map_or(cancel.into(), Into::into);
        // Unknown and malformed IDs have no effect (CAN-01).
        for params in [json!({"requestId": "nobody"}), json!({}), json!({"requestId": id})] {
            let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            assert_eq!(server.send(&cancelled.to_string()).await, None);
        }
        assert_eq!(waiting.await.expect("no panic"), Vec::<Value>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn can_01_a_call_in_the_queue_can_be_cancelled() {
    let mut config = Config::default();
    config.limits.calls = Some(1);
    config.limits.queue_ms = 5_000;
    let server = App::new().config(config).tool(hang).checked_harness();
    let server = Arc::new(server.expect("valid"));
    handshake(&server, "2025-11-25").await;
    let call = |id: u32| {
        let server = Arc::clone(&server);
        let call =
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "hang"}});
        tokio::spawn(async move { server.send_and_listen(&call.to_string()).await })
    };
    let running = call(1);
    tokio::task::yield_now().await;
    let queued = call(2);
    tokio::task::yield_now().await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    assert_eq!(server.send(&cancelled.to_string()).await, None);
    assert_eq!(queued.await.expect("no panic"), Vec::<Value>::new());
    assert!(!running.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_fails_as_a_result() {
    let answer = server()
        .send(&stateless(1, "hang", json!({})))
        .await
        .expect("an answer");
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(
        answer["result"]["content"][0]["text"],
        "the tool did not respond within 60 s"
    );
}
