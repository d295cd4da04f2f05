//! Unsolicited notifications about tasks.

use serde_json::{Value, json};

use super::{accept, replicas, serve, text};
use crate::lasting::open;
use crate::support::{Connection, Running, Serve, Session, Stateless, until};

const RELATED: &str = "io.modelcontextprotocol/related-task";

fn able(request: Stateless) -> Stateless {
    let extensions = json!({"io.modelcontextprotocol/tasks": {}});
    request.meta(
        "clientCapabilities",
        json!({"elicitation": {}, "extensions": extensions}),
    )
}

fn begin(server: &Running, tool: &str, arguments: Value) -> String {
    let created = able(Stateless::call(tool, arguments)).send(server).result();
    created["taskId"].as_str().expect("an id").to_owned()
}

fn about(method: &str, task: &str, more: Value) -> Stateless {
    let mut params = more;
    params["taskId"] = task.into();
    able(Stateless::new(method, params)).and("mcp-name", task)
}

/// Listens to tasks, and says which are honoured.
fn listen(server: &Running, tasks: &[&str]) -> (Connection, Value) {
    let filter = json!({"notifications": {"taskIds": tasks}});
    let mut request = able(Stateless::new("subscriptions/listen", filter));
    request.id = json!("of-tasks");
    let mut connection = server.connect();
    connection.send(request.text());
    assert_eq!(connection.receive_head().status, 200);
    let first = connection.event().expect("an acknowledgement");
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    (connection, first["params"]["notifications"].clone())
}

/// The next that a stream tells of a task.
fn told(connection: &mut Connection) -> Value {
    let mut message = connection.event().expect("a notification");
    assert_eq!(message["method"], "notifications/tasks");
    let params = message["params"].take();
    assert_eq!(
        params["_meta"],
        json!({"io.modelcontextprotocol/subscriptionId": "of-tasks"})
    );
    params
}

#[test]
fn sub_07_a_task_is_told_of_with_all_that_asking_for_it_would_say() {
    for [one, other] in [replicas(), replicas()] {
        let task = begin(&one, "confirm_delete", json!({"filename": "a.txt"}));
        until(|| {
            let shown = about("tasks/get", &task, json!({})).send(&one).result();
            (shown["status"] == "input_required").then_some(())
        });
        // Also on a replica that does not run the task. The current status is sent immediately.
        let (mut connection, honoured) =
            listen(&other, &[&task, "00000000000000000000000000000000", &task]);
        assert_eq!(honoured, json!({"taskIds": [task]}));
        let asking = told(&mut connection);
        assert_eq!(
            (&asking["taskId"], &asking["status"]),
            (&json!(task), &json!("input_required"))
        );
        assert!(asking["inputRequests"]["sure"].is_object(), "{asking}");
        let sure = json!({"inputResponses": {"sure": accept(json!({"confirm": true}))}});
        about("tasks/update", &task, sure).send(&one).result();
        let last = loop {
            let params = told(&mut connection);
            assert!(params.get("requestState").is_none(), "TSK-11");
            if params["status"] != "working" {
                break params;
            }
        };
        assert_eq!(last["status"], "completed");
        assert_eq!(text(&last["result"]), "a.txt is gone");
        let mut shown = about("tasks/get", &task, json!({})).send(&one).result();
        for (member, value) in last.as_object().expect("an object") {
            if member != "_meta" {
                assert_eq!(shown[member].take(), *value, "{member}");
            }
        }
    }
}

#[test]
fn sub_07_what_is_over_before_anybody_listens_is_told_all_the_same() {
    let server = serve();
    let task = begin(&server, "compute", json!({"label": "x"}));
    until(|| {
        let shown = about("tasks/get", &task, json!({})).send(&server).result();
        (shown["status"] == "completed").then_some(())
    });
    let (mut connection, _) = listen(&server, &[&task]);
    assert_eq!(told(&mut connection)["status"], "completed");
}

#[test]
fn tsk_10_nobody_listens_to_the_tasks_of_somebody_else() {
    use crate::auth::{BOB, CI, bearer, with_keys};
    let server = Serve::new()
        .app(|_| super::app())
        .configured(with_keys)
        .start();
    let call = able(Stateless::call("compute", json!({"label": "x"})));
    let created = call.and("authorization", &bearer(CI)).send(&server);
    let task = created.result()["taskId"].clone();
    let filter = json!({"notifications": {"taskIds": [task]}});
    for (key, honoured) in [(BOB, json!({})), (CI, json!({"taskIds": [task]}))] {
        let request = able(Stateless::new("subscriptions/listen", filter.clone()));
        let mut connection = server.connect();
        connection.send(request.and("authorization", &bearer(key)).text());
        connection.receive_head();
        let first = connection.event().expect("an acknowledgement");
        assert_eq!(first["params"]["notifications"], honoured);
    }
}

#[test]
fn tasks_that_are_listened_to_are_bounded() {
    let server = Serve::new()
        .app(|_| super::app())
        .configured(|c| c.server.streams.subscriptions = 2)
        .start();
    let tasks: Vec<_> = (0..3)
        .map(|n| begin(&server, "compute", json!({"label": n.to_string()})))
        .collect();
    let listen_to = |tasks: &[String]| {
        let filter = json!({"notifications": {"taskIds": tasks}});
        let request = able(Stateless::new("subscriptions/listen", filter));
        let mut connection = server.connect();
        connection.send(request.text());
        (connection.receive_head().status, connection)
    };
    let refused = json!({"notifications": {"taskIds": tasks}});
    able(Stateless::new("subscriptions/listen", refused))
        .send(&server)
        .error(200, -32602, "1");
    assert_eq!(listen_to(&tasks[..2]).0, 200);
}

#[test]
fn tkl_07_the_session_that_made_a_task_is_told_of_its_status() {
    for [one, other] in [replicas(), replicas()] {
        let session = one.session_of("2025-11-25", &json!({"elicitation": {}}));
        let stranger = one.session("2025-11-25");
        let there = session.at(&other);
        let mut standing = open(&other, &there);
        standing.any_event().expect("its beginning");
        let mut strangers = open(&one, &stranger);
        strangers.any_event().expect("its beginning");
        let params = json!({"name": "endless", "task": {}});
        let task = session.request("tools/call", &params).result()["task"]["taskId"].clone();
        let cancelled = session
            .request("tasks/cancel", &json!({"taskId": task}))
            .result();
        let mut told = standing.event().expect("a notification");
        assert_eq!(told["method"], "notifications/tasks/status");
        let mut params = told["params"].take();
        assert_eq!(params["_meta"].take(), json!({RELATED: {"taskId": task}}));
        params.as_object_mut().expect("an object").remove("_meta");
        assert_eq!(params, cancelled);
        // Sessions of others hear of other things only.
        begins_and_ends(&stranger);
        let told = strangers.event().expect("a notification");
        assert_ne!(told["params"]["taskId"], task);
    }
}

fn begins_and_ends(session: &Session<'_>) {
    let params = json!({"name": "endless", "task": {}});
    let task = session.request("tools/call", &params).result()["task"]["taskId"].clone();
    session
        .request("tasks/cancel", &json!({"taskId": task}))
        .result();
}

#[test]
fn tsk_11_a_task_says_nothing_of_its_progress_and_has_no_state() {
    let server = serve();
    let token = |request: Stateless| {
        request
            .params(|params| params["_meta"]["progressToken"] = json!("p"))
            .meta("logLevel", json!("debug"))
    };
    let call = able(Stateless::call(
        "confirm_delete",
        json!({"filename": "a.txt"}),
    ));
    let response = token(call).send(&server);
    // The tool reports progress, and there is a token for it.
    assert_eq!(response.header("content-type"), Some("application/json"));
    let created = response.result();
    assert!(created.get("requestState").is_none());
    let task = created["taskId"].as_str().expect("an id");
    let shown = until(|| {
        let response = token(about("tasks/get", task, json!({}))).send(&server);
        let shown = response.result();
        assert!(shown.get("requestState").is_none());
        (shown["status"] == "input_required").then_some(shown)
    });
    assert_eq!(shown["resultType"], "complete");
}

#[test]
fn what_a_call_says_before_it_is_a_task_is_said_and_nothing_after() {
    let server = serve();
    let call = able(Stateless::call("reports_first", json!({})))
        .params(|params| params["_meta"]["progressToken"] = json!("p"));
    let mut connection = server.connect();
    connection.send(call.text());
    let head = connection.receive_head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    let progress = connection.event().expect("progress");
    assert_eq!(
        progress["params"],
        json!({"progressToken": "p", "progress": 1, "total": 3, "message": "before"})
    );
    let created = connection.event().expect("an answer")["result"].take();
    assert_eq!(created["resultType"], "task", "{created}");
    assert_eq!(connection.event(), None);
    let task = created["taskId"].as_str().expect("an id");
    until(|| {
        let shown = about("tasks/get", task, json!({})).send(&server).result();
        (shown["status"] == "completed").then_some(())
    });
}

#[tokio::test(start_paused = true)]
async fn can_01_what_is_no_task_yet_is_cancelled_like_a_call() {
    use crate::support::Checked as _;
    let server = std::sync::Arc::new(super::app().checked_harness().expect("valid"));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        },
    });
    let call = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "hesitates", "_meta": meta},
    });
    let waiting = tokio::spawn({
        let server = std::sync::Arc::clone(&server);
        async move { server.send_and_listen(&call.to_string()).await }
    });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let params = json!({"_meta": meta, "requestId": 7});
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    assert_eq!(server.send(&cancelled.to_string()).await, None);
    assert_eq!(waiting.await.expect("no panic"), Vec::<Value>::new());
}

#[test]
fn tsk_13_a_task_goes_on_when_its_client_goes() {
    let server = serve();
    let task = {
        let mut connection = server.connect();
        let call = able(Stateless::call(
            "confirm_delete",
            json!({"filename": "a.txt"}),
        ));
        let created = call.send_on(&mut connection).result();
        created["taskId"].as_str().expect("an id").to_owned()
        // The connection is closed here.
    };
    // Nor does a notification end it, which HTTP has no use for in this lifecycle.
    let cancelled = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"_meta": crate::support::meta(), "requestId": 1},
    });
    server
        .post(
            &[("mcp-protocol-version", "2026-07-28")],
            &cancelled.to_string(),
        )
        .accepted();
    until(|| {
        let shown = about("tasks/get", &task, json!({})).send(&server).result();
        assert_ne!(shown["status"], "cancelled");
        (shown["status"] == "input_required").then_some(())
    });
    let sure = json!({"inputResponses": {"sure": accept(json!({"confirm": true}))}});
    about("tasks/update", &task, sure).send(&server).result();
    let done = until(|| {
        let shown = about("tasks/get", &task, json!({})).send(&server).result();
        (shown["status"] == "completed").then_some(shown)
    });
    assert_eq!(text(&done["result"]), "a.txt is gone");
}
