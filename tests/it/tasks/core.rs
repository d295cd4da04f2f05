//! The experimental tasks of 2025-11-25.

use serde_json::{Value, json};

use super::{accept, app, replicas, serve, text};
use crate::support::{Connection, Running, Serve, Session, until};

const RELATED: &str = "io.modelcontextprotocol/related-task";

fn session(server: &Running) -> Session<'_> {
    server.session_of("2025-11-25", &json!({"elicitation": {}}))
}

fn call(session: &Session<'_>, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "task": {"ttl": 60_000}});
    session.request("tools/call", &params).result()["task"].take()
}

fn begin(session: &Session<'_>, tool: &str, arguments: Value) -> String {
    let task = call(session, tool, arguments);
    task["taskId"]
        .as_str()
        .unwrap_or_else(|| panic!("no task: {task}"))
        .to_owned()
}

fn get(session: &Session<'_>, task: &str) -> Value {
    session
        .request("tasks/get", &json!({"taskId": task}))
        .result()
}

fn wait(session: &Session<'_>, task: &str, status: &str) -> Value {
    until(|| Some(get(session, task)).filter(|shown| shown["status"] == status))
}

#[test]
fn tkl_02_05_a_call_that_asks_to_be_a_task_is_one() {
    let server = serve();
    let session = session(&server);
    let tasks = &session.initialized["capabilities"]["tasks"];
    assert_eq!(
        tasks,
        &json!({"cancel": {}, "requests": {"tools": {"call": {}}}})
    );
    assert!(
        session.initialized["capabilities"]
            .get("extensions")
            .is_none()
    );
    let task = call(&session, "compute", json!({"label": "x"}));
    assert_eq!(
        (&task["status"], &task["ttl"]),
        (&json!("working"), &json!(60_000))
    );
    assert!(task["createdAt"].is_string() && task["lastUpdatedAt"].is_string());
    let id = task["taskId"].as_str().expect("an id");
    let done = wait(&session, id, "completed");
    assert!(done.get("result").is_none() && done.get("resultType").is_none());
    // TKL-03.
    let result = session
        .request("tasks/result", &json!({"taskId": id}))
        .result();
    assert_eq!(text(&result), "computed x");
    assert_eq!(result["_meta"][RELATED], json!({"taskId": id}));
}

#[test]
fn tkl_01_tools_say_whether_they_run_as_tasks() {
    let server = serve();
    let session = session(&server);
    let tools = session.request("tools/list", &json!({})).result();
    let support = |name: &str| {
        let tools = tools["tools"].as_array().expect("tools");
        let tool = tools
            .iter()
            .find(|tool| tool["name"] == name)
            .expect("the tool");
        tool["execution"]["taskSupport"].clone()
    };
    assert_eq!(support("greet"), Value::Null);
    assert_eq!(support("compute"), "optional");
    assert_eq!(support("failing_job"), "required");
    let refuse = |params: Value| {
        session
            .request("tools/call", &params)
            .error(200, -32601, "1")
    };
    refuse(json!({"name": "greet", "arguments": {"name": "a"}, "task": {}}));
    refuse(json!({"name": "failing_job"}));
    refuse(json!({"name": "failing_job", "task": null}));
    let greeted = json!({"name": "greet", "arguments": {"name": "a"}, "task": null});
    session.request("tools/call", &greeted).result();
    let plain = session.call("compute", &json!({"label": "x"})).result();
    assert_eq!(text(&plain), "computed x");
    let wrong = json!({"name": "compute", "arguments": {"label": "x"}, "task": {"ttl": -1}});
    session
        .request("tools/call", &wrong)
        .error(200, -32602, "1");
    // Sessions of revisions without tasks get results.
    let older = server.session("2025-06-18");
    let params = json!({"name": "compute", "arguments": {"label": "x"}, "task": {}});
    assert_eq!(
        text(&older.request("tools/call", &params).result()),
        "computed x"
    );
    let refused = older.request("tools/call", &json!({"name": "failing_job"}));
    let message = refused.error(200, -32601, "1");
    assert!(message.contains("2025-11-25"), "{message}");
    older
        .request("tasks/get", &json!({"taskId": "x"}))
        .error(200, -32601, "1");
    session
        .request("tasks/update", &json!({"taskId": "x"}))
        .error(200, -32601, "1");
    session
        .request("tasks/list", &json!({}))
        .error(200, -32601, "1");
}

#[test]
fn tkl_04_what_is_over_is_not_cancelled() {
    let server = serve();
    let session = session(&server);
    let task = begin(&session, "endless", json!({}));
    let cancel = || session.request("tasks/cancel", &json!({"taskId": task}));
    assert_eq!(cancel().result()["status"], "cancelled");
    cancel().error(200, -32602, "1");
    assert_eq!(get(&session, &task)["status"], "cancelled");
    session
        .request("tasks/result", &json!({"taskId": task}))
        .error(200, -32602, "1");
    session
        .request("tasks/get", &json!({"taskId": "x"}))
        .error(200, -32602, "1");
}

#[test]
fn tkl_05_a_task_ends_with_its_time_and_is_forgotten_after_it() {
    let server = serve();
    let session = session(&server);
    let params = json!({"name": "endless", "task": {"ttl": 50}});
    let task = session.request("tools/call", &params).result()["task"].take();
    assert_eq!(task["ttl"], 50);
    let id = task["taskId"].as_str().expect("an id").to_owned();
    let look = || session.request("tasks/get", &json!({"taskId": id}));
    // The timeout came first.
    until(|| (look().result()["status"] == "failed").then_some(()));
    until(|| {
        let shown = look().json();
        (shown["error"]["code"] == -32602).then_some(())
    });
    session
        .request("tasks/result", &json!({"taskId": id}))
        .error(200, -32602, "1");
}

#[test]
fn tkl_08_a_tool_that_fails_has_failed() {
    let server = serve();
    let session = session(&server);
    let task = begin(&session, "failing_job", json!({}));
    wait(&session, &task, "failed");
    let result = session
        .request("tasks/result", &json!({"taskId": task}))
        .result();
    assert_eq!(
        (&result["isError"], text(&result)),
        (&json!(true), "it did not work")
    );
    let task = begin(&session, "protocol_error_job", json!({}));
    wait(&session, &task, "failed");
    session
        .request("tasks/result", &json!({"taskId": task}))
        .error(200, -32603, "1");
}

#[test]
fn tkl_07_what_a_task_asks_is_asked_by_whoever_waits_for_its_result() {
    for replicas in [replicas(), replicas()] {
        let [one, other] = &replicas;
        let here = session(one);
        let task = begin(&here, "confirm_delete", json!({"filename": "a.txt"}));
        wait(&here, &task, "input_required");
        // The session is good on the other replica too, and so is the task.
        let headers = here.headers();
        let request = crate::support::request("tasks/result", &json!({"taskId": task}));
        let mut connection = other.connect();
        connection
            .send(crate::support::post(&headers, &request))
            .receive_head();
        let question = connection.event().expect("a question");
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(
            question["params"]["_meta"][RELATED],
            json!({"taskId": task})
        );
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": accept(json!({"confirm": false}))});
        other.post(&headers, &answer.to_string()).accepted();
        let result = connection.event().expect("an answer")["result"].take();
        assert_eq!(text(&result), "a.txt stays");
    }
}

#[test]
fn a_task_whose_client_responds_with_too_much_does_not_wait_for_ever() {
    let server = serve();
    let session = session(&server);
    let task = begin(&session, "confirm_delete", json!({"filename": "a.txt"}));
    wait(&session, &task, "input_required");
    let headers = session.headers();
    let request = crate::support::request("tasks/result", &json!({"taskId": task}));
    let mut connection = server.connect();
    connection
        .send(crate::support::post(&headers, &request))
        .receive_head();
    let question = connection.event().expect("a question");
    let large = accept(json!({"confirm": true, "reason": "x".repeat(300_000)}));
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": large});
    server.post(&headers, &answer.to_string()).accepted();
    let result = connection.event().expect("an answer")["result"].take();
    assert_eq!(result["isError"], true);
    assert!(text(&result).contains("more than 262144 bytes"), "{result}");
}

#[test]
fn eli_01_tkl_07_clients_that_cannot_answer_leave_a_request_of_a_task_to_others() {
    let server = serve();
    let session = session(&server);
    let task = begin(&session, "confirm_delete", json!({"filename": "a.txt"}));
    wait(&session, &task, "input_required");
    let request = crate::support::request("tasks/result", &json!({"taskId": task}));
    let wait_for_result = |session: &Session<'_>| {
        let mut connection = server.connect();
        connection.send(crate::support::post(&session.headers(), &request));
        connection
    };
    // It has declared no elicitation, so it is not asked.
    let incapable = server.session("2025-11-25");
    let mut without = wait_for_result(&incapable);
    // It has, but has no such method.
    let mut asked = wait_for_result(&session);
    asked.receive_head();
    let question = asked.event().expect("a question");
    let error = json!({"code": -32601, "message": "Method not found"});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "error": error});
    session.post(&answer.to_string()).accepted();
    let other = self::session(&server);
    let mut connection = wait_for_result(&other);
    connection.receive_head();
    let question = connection.event().expect("a question");
    assert_eq!(question["method"], "elicitation/create");
    let result = accept(json!({"confirm": false}));
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    other.post(&answer.to_string()).accepted();
    for connection in [&mut asked, &mut connection] {
        let result = connection.event().expect("a response")["result"].take();
        assert_eq!(text(&result), "a.txt stays");
    }
    assert_eq!(text(&without.receive().result()), "a.txt stays");
}

/// Waits for the result of a task that asks for input, and reads on until it is asked.
fn asked(server: &Running, session: &Session<'_>, task: &str) -> (Connection, Value) {
    let request = crate::support::request("tasks/result", &json!({"taskId": task}));
    let mut connection = server.connect();
    connection
        .send(crate::support::post(&session.headers(), &request))
        .receive_head();
    let question = connection.event().expect("a question");
    assert_eq!(question["method"], "elicitation/create");
    (connection, question)
}

fn decline(session: &Session<'_>, question: &Value) {
    let result = accept(json!({"confirm": false}));
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    session.post(&answer.to_string()).accepted();
}

#[test]
fn tasks_that_wait_for_input_and_requests_for_results_need_no_permits() {
    let server = Serve::new()
        .app(|_| app())
        .configured(|c| c.limits.calls = Some(1))
        .start();
    let session = session(&server);
    let [task, _] = ["a.txt", "b.txt"].map(|name| {
        let task = begin(&session, "confirm_delete", json!({"filename": name}));
        wait(&session, &task, "input_required");
        task
    });
    let running = begin(&session, "endless", json!({}));
    let (mut connection, question) = asked(&server, &session, &task);
    decline(&session, &question);
    // The task goes on once there is a permit.
    session
        .request("tasks/cancel", &json!({"taskId": running}))
        .result();
    let result = connection.event().expect("an answer")["result"].take();
    assert_eq!(text(&result), "a.txt stays");
}

#[test]
fn a_question_of_a_task_that_another_client_has_answered_is_taken_back() {
    let server = serve();
    let [session, other] = [(); 2].map(|()| session(&server));
    let task = begin(&session, "confirm_delete", json!({"filename": "a.txt"}));
    wait(&session, &task, "input_required");
    let (mut first, open) = asked(&server, &session, &task);
    let (mut second, question) = asked(&server, &other, &task);
    decline(&other, &question);
    let cancelled = first.event().expect("a notification");
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], open["id"]);
    for connection in [&mut first, &mut second] {
        let result = connection.event().expect("a response")["result"].take();
        assert_eq!(text(&result), "a.txt stays");
    }
}
