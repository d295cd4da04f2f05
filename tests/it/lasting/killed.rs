//! Two programs that share a state on Redis, of which one is killed.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{RedisServer, Served, Stateless, longshore, request};

/// Timeout of a call or task whose replica must respond.
const CALL: Duration = Duration::from_secs(60);
const TASK: Duration = Duration::from_secs(90);

fn replica(redis: &RedisServer) -> Served {
    let arguments = [
        "run",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--toolset",
        "everything",
    ];
    let url = redis.url();
    let variables = [
        ("LONGSHORE_STATE__URL", &*url),
        ("LONGSHORE_STATE__TIMEOUT_MS", "2000"),
        (
            "LONGSHORE_SEAL__KEYS",
            r#"["a key that both of these servers have"]"#,
        ),
        ("LONGSHORE_LOG__FORMAT", "text"),
    ];
    Served::start(longshore(&arguments, &variables))
}

fn able(request: Stateless) -> Stateless {
    let extensions = json!({"io.modelcontextprotocol/tasks": {}});
    request.meta("clientCapabilities", json!({ "extensions": extensions }))
}

#[test]
fn what_a_replica_was_doing_that_was_killed_is_over_for_those_who_wait_elsewhere() {
    let Some(redis) = RedisServer::start() else {
        return;
    };
    let mut killed = replica(&redis);
    let other = replica(&redis);
    // A task runs on one replica, and a client listens on another.
    let begin = able(Stateless::call("slow_compute", json!({"seconds": 60})));
    let task = begin.send_on(&mut killed.connect()).result();
    let filter = json!({"notifications": {"taskIds": [task["taskId"]]}});
    let mut listening = other.connect();
    listening.send(able(Stateless::new("subscriptions/listen", filter)).text());
    assert_eq!(listening.receive_head().status, 200);
    let honoured = listening.event().expect("an acknowledgement");
    assert_eq!(
        honoured["params"]["notifications"]["taskIds"],
        json!([task["taskId"]])
    );
    // A call of a session that waits for an elicitation.
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let begun = killed.connect().post(&[], &request("initialize", &params));
    let session = begun
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let headers = [
        ("mcp-session-id", &*session),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let params = json!({"name": "test_elicitation", "arguments": {"message": "Who?"}});
    let mut calling = killed.connect();
    calling.send(crate::support::post(
        &headers,
        &request("tools/call", &params),
    ));
    assert_eq!(calling.receive_head().status, 200);
    let (last, question) = loop {
        let event = calling.any_event().expect("an event");
        if let Some(message) = event.message {
            break (event.id.expect("an id"), message);
        }
    };
    assert_eq!(question["method"], "elicitation/create");

    killed.process.kill().expect("killed");
    let since = Instant::now();
    // Another replica accepts the answer before it knows of the failure.
    let content = json!({"username": "ada", "email": "ada@example.com"});
    let answer = json!({
        "jsonrpc": "2.0", "id": question["id"],
        "result": {"action": "accept", "content": content},
    });
    let taken = other.connect().post(&headers, &answer.to_string());
    assert_eq!(taken.status, 202);
    let mut resumed = other.connect();
    let told = resumed.stream().set_read_timeout(Some(CALL));
    told.expect("a socket");
    let resuming = [headers[0], headers[1], ("last-event-id", &*last)];
    assert_eq!(resumed.get(&resuming).status, 200);
    let answer = resumed.event().expect("an answer");
    assert!(since.elapsed() < CALL, "{:?}", since.elapsed());
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
    assert_eq!(resumed.any_event(), None);

    let told = listening.stream().set_read_timeout(Some(TASK));
    told.expect("a socket");
    let failed = listening.event().expect("a notification");
    assert!(since.elapsed() < TASK, "{:?}", since.elapsed());
    assert_eq!(failed["method"], "notifications/tasks");
    assert_eq!(failed["params"]["status"], "failed");
}
