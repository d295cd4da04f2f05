//! The extension of 2026-07-28.

use serde_json::{Value, json};

use super::{accept, replicas, serve, text};
use crate::support::{Running, Serve, Stateless, until};

fn able(request: Stateless) -> Stateless {
    let extensions = json!({"io.modelcontextprotocol/tasks": {}});
    request.meta(
        "clientCapabilities",
        json!({"elicitation": {}, "extensions": extensions}),
    )
}

fn call(tool: &str, arguments: Value) -> Stateless {
    able(Stateless::call(tool, arguments))
}

pub(super) fn about(method: &str, task: &str, more: Value) -> Stateless {
    let mut params = more;
    params["taskId"] = task.into();
    able(Stateless::new(method, params)).and("mcp-name", task)
}

pub(super) fn begin(server: &Running, tool: &str, arguments: Value) -> String {
    let created = call(tool, arguments).send(server).result();
    assert_eq!(created["resultType"], "task", "{created}");
    created["taskId"].as_str().expect("an id").to_owned()
}

pub(super) fn get(server: &Running, task: &str) -> Value {
    let shown = about("tasks/get", task, json!({})).send(server).result();
    assert_eq!(shown["resultType"], "complete");
    shown
}

/// Waits for a status.
pub(super) fn wait(server: &Running, task: &str, status: &str) -> Value {
    until(|| Some(get(server, task)).filter(|shown| shown["status"] == status))
}

pub(super) fn update(server: &Running, task: &str, responses: Value) {
    let params = json!({"inputResponses": responses});
    let ack = about("tasks/update", task, params).send(server).result();
    assert_acknowledged(&ack);
}

fn cancel(server: &Running, task: &str) {
    let ack = about("tasks/cancel", task, json!({})).send(server).result();
    assert_acknowledged(&ack);
}

fn assert_acknowledged(ack: &Value) {
    let mut members: Vec<_> = ack.as_object().expect("an object").keys().collect();
    members.sort();
    assert_eq!(members, ["_meta", "resultType"]);
    assert_eq!(ack["resultType"], "complete");
}

#[test]
fn tsk_02_03_a_call_is_answered_with_a_task_that_is_there_already() {
    let server = serve();
    let created = call("compute", json!({"label": "x"}))
        .send(&server)
        .result();
    let mut members: Vec<_> = created.as_object().expect("an object").keys().collect();
    members.sort();
    assert_eq!(
        members,
        [
            "_meta",
            "createdAt",
            "lastUpdatedAt",
            "pollIntervalMs",
            "resultType",
            "status",
            "taskId",
            "ttlMs"
        ]
    );
    assert_eq!(
        (&created["status"], &created["ttlMs"]),
        (&json!("working"), &json!(3_600_000))
    );
    assert!(
        created["createdAt"]
            .as_str()
            .is_some_and(|t| t.ends_with('Z'))
    );
    let task = created["taskId"].as_str().expect("an id");
    let done = wait(&server, task, "completed");
    assert_eq!(text(&done["result"]), "computed x");
    assert_eq!(done["result"]["resultType"], "complete");
    assert!(
        done["result"]["_meta"]
            .get("io.modelcontextprotocol/related-task")
            .is_none()
    );
}

#[test]
fn tsk_01_12_without_the_extension_there_are_no_tasks() {
    let server = serve();
    let result = Stateless::call("compute", json!({"label": "x"}))
        .send(&server)
        .result();
    assert_eq!(
        (text(&result), &result["resultType"]),
        ("computed x", &json!("complete"))
    );
    // The parameter of 2025-11-25 says nothing.
    let asked =
        Stateless::call("compute", json!({"label": "x"})).params(|p| p["task"] = json!({"ttl": 1}));
    assert_eq!(asked.send(&server).result()["resultType"], "complete");
    let response = Stateless::call("failing_job", json!({})).send(&server);
    response.error(400, -32021, "1");
    let required = &response.json()["error"]["data"]["requiredCapabilities"];
    assert_eq!(
        required,
        &json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
    );
    let result = call("greet", json!({"name": "Ada"})).send(&server).result();
    assert_eq!(text(&result), "Hello, Ada!");
}

#[test]
fn tsk_09_the_methods_too_need_the_extension() {
    let server = serve();
    let task = begin(&server, "endless", json!({}));
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": task, "inputResponses": {}});
        Stateless::new(method, params)
            .send(&server)
            .error(400, -32021, "1");
    }
    for method in ["tasks/list", "tasks/result"] {
        about(method, &task, json!({}))
            .send(&server)
            .error(404, -32601, "1");
    }
    cancel(&server, &task);
}

#[test]
fn tsk_04_a_task_shows_what_it_wants_to_know() {
    let server = serve();
    let task = begin(&server, "confirm_delete", json!({"filename": "a.txt"}));
    let asking = wait(&server, &task, "input_required");
    assert_eq!(
        asking["inputRequests"]["sure"]["method"],
        "elicitation/create"
    );
    assert_eq!(
        asking["inputRequests"]["sure"]["params"]["message"],
        "Delete a.txt?"
    );
    update(&server, &task, json!({"unknown": {"ignored": true}}));
    update(
        &server,
        &task,
        json!({"sure": accept(json!({"confirm": true}))}),
    );
    let done = wait(&server, &task, "completed");
    assert_eq!(text(&done["result"]), "a.txt is gone");
    assert!(done.get("inputRequests").is_none());
    // TSK-07: a late update gets the same response.
    update(
        &server,
        &task,
        json!({"sure": accept(json!({"confirm": false}))}),
    );
    cancel(&server, &task);
    assert_eq!(get(&server, &task)["status"], "completed");
}

/// Returns the names of the client requests that a task waits for.
fn questions(asking: &Value) -> Vec<&String> {
    let requests = asking["inputRequests"].as_object().expect("questions");
    requests.keys().collect()
}

#[test]
fn tsk_06_questions_are_answered_one_by_one_and_no_name_is_used_twice() {
    let server = serve();
    let task = begin(&server, "multi_input", json!({}));
    let asking = wait(&server, &task, "input_required");
    assert_eq!(questions(&asking), ["elicitation", "elicitation-2"]);
    update(
        &server,
        &task,
        json!({"elicitation": accept(json!({"name": "a"}))}),
    );
    let asking = get(&server, &task);
    assert_eq!(questions(&asking), ["elicitation-2"], "at once");
    update(
        &server,
        &task,
        json!({"elicitation-2": accept(json!({"name": "b"}))}),
    );
    let asking = wait(&server, &task, "input_required");
    assert!(
        asking["inputRequests"].get("elicitation-3").is_some(),
        "{asking}"
    );
    update(
        &server,
        &task,
        json!({"elicitation-3": accept(json!({"name": "c"}))}),
    );
    assert_eq!(text(&wait(&server, &task, "completed")["result"]), "a b c");
}

#[test]
fn tsk_05_a_tool_that_fails_has_completed_and_one_that_breaks_has_failed() {
    let server = serve();
    let task = begin(&server, "failing_job", json!({}));
    let done = wait(&server, &task, "completed");
    assert_eq!(
        (&done["result"]["isError"], done.get("error")),
        (&json!(true), None)
    );
    let task = begin(&server, "protocol_error_job", json!({}));
    let failed = wait(&server, &task, "failed");
    assert_eq!(failed["error"]["code"], -32603);
    assert!(failed.get("result").is_none() && !failed.to_string().contains("secret"));
}

#[test]
fn tsk_07_a_task_that_is_cancelled_stays_so() {
    let server = serve();
    let task = begin(&server, "endless", json!({}));
    for _ in 0..2 {
        cancel(&server, &task);
        assert_eq!(get(&server, &task)["status"], "cancelled");
    }
}

#[test]
fn tsk_08_unknown_tasks_are_refused() {
    let server = serve();
    for task in [
        "00000000000000000000000000000000",
        "x",
        "",
        "../../x",
        "\u{fc}",
    ] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({"taskId": task, "inputResponses": {}});
            able(Stateless::new(method, params))
                .send(&server)
                .error(200, -32602, "1");
        }
    }
    able(Stateless::new("tasks/get", json!({})))
        .send(&server)
        .error(200, -32602, "1");
    let task = begin(&server, "endless", json!({}));
    about("tasks/update", &task, json!({"inputResponses": 7}))
        .send(&server)
        .error(200, -32602, "1");
    // MH-06.
    about("tasks/get", &task, json!({}))
        .with("mcp-name", "other")
        .send(&server)
        .error(400, -32020, "1");
    about("tasks/get", &task, json!({}))
        .without("mcp-name")
        .send(&server)
        .result();
    cancel(&server, &task);
}

#[test]
fn what_is_asked_before_a_task_begins_is_asked_as_in_any_call() {
    let server = serve();
    let first = call("asks_first", json!({}));
    let asked = first.send(&server).result();
    assert_eq!(asked["resultType"], "input_required");
    assert!(asked.get("taskId").is_none());
    let again = first.params(|params| {
        params["inputResponses"] = json!({"user_name": accept(json!({"name": "Alice"}))});
        params["requestState"] = asked["requestState"].clone();
    });
    let created = again.send(&server).result();
    assert_eq!(created["resultType"], "task", "{created}");
    let task = created["taskId"].as_str().expect("an id");
    assert_eq!(
        text(&wait(&server, task, "completed")["result"]),
        "Hello, Alice! (async)"
    );
}

#[test]
fn any_replica_knows_a_task_and_reaches_it() {
    let [one, other] = replicas();
    let task = begin(&one, "confirm_delete", json!({"filename": "a.txt"}));
    wait(&other, &task, "input_required");
    update(
        &other,
        &task,
        json!({"sure": accept(json!({"confirm": true}))}),
    );
    assert_eq!(
        text(&wait(&other, &task, "completed")["result"]),
        "a.txt is gone"
    );
    let task = begin(&one, "endless", json!({}));
    cancel(&other, &task);
    assert_eq!(get(&one, &task)["status"], "cancelled");
}

#[test]
fn tasks_are_bounded_and_make_room_when_they_end() {
    let server = Serve::new()
        .app(|_| super::app())
        .admin()
        .configured(|c| c.server.tasks.per_principal = 1)
        .start();
    let task = begin(&server, "endless", json!({}));
    let refused = call("compute", json!({"label": "x"})).send(&server);
    refused.error(200, 429, "1");
    let metrics = server.admin_page("/metrics");
    assert_eq!(metrics.limit_hits("server.tasks.per_principal"), 1);
    assert_eq!(
        refused.json()["error"]["data"]["setting"],
        "server.tasks.per_principal"
    );
    cancel(&server, &task);
    until(|| {
        let again = call("compute", json!({"label": "x"})).send(&server).json();
        (again["result"]["resultType"] == "task").then_some(())
    });
}

#[test]
fn tasks_of_all_callers_together_are_bounded_too() {
    use crate::auth::{BOB, CI, bearer, with_keys};
    let server = Serve::new()
        .app(|_| super::app())
        .configured(|c| {
            with_keys(c);
            c.server.tasks.total = 1;
        })
        .start();
    let begin = |key: &str| {
        let call = call("endless", json!({})).and("authorization", &bearer(key));
        call.send(&server)
    };
    let task = begin(CI).result()["taskId"].clone();
    let refused = begin(BOB);
    refused.error(200, 429, "1");
    assert_eq!(
        refused.json()["error"]["data"]["setting"],
        "server.tasks.total"
    );
    let task = task.as_str().expect("an id");
    about("tasks/cancel", task, json!({}))
        .and("authorization", &bearer(CI))
        .send(&server)
        .result();
    until(|| begin(BOB).json().get("result").map(drop));
}

#[test]
fn what_a_task_gives_is_kept_whole_up_to_a_bound() {
    let server = serve();
    let task = begin(&server, "large", json!({"bytes": 1_000_000}));
    let done = wait(&server, &task, "completed");
    assert_eq!(text(&done["result"]).len(), 1_000_000);
    let task = begin(&server, "large", json!({"bytes": 5_000_000}));
    let failed = wait(&server, &task, "failed");
    assert_eq!(failed["error"]["code"], -32603);
}

#[test]
fn a_response_that_is_too_large_for_a_task_is_rejected_and_the_task_waits() {
    let server = serve();
    let task = begin(&server, "confirm_delete", json!({"filename": "a.txt"}));
    wait(&server, &task, "input_required");
    let large = accept(json!({"confirm": true, "reason": "x".repeat(300_000)}));
    let params = json!({"inputResponses": {"sure": large}});
    let refused = about("tasks/update", &task, params).send(&server).json();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let problem = refused["error"]["message"].as_str().expect("a message");
    assert!(problem.contains("262144 bytes"), "{problem}");
    assert_eq!(get(&server, &task)["status"], "input_required");
}

#[test]
fn disc_02_tasks_are_announced_in_the_eras_own_place() {
    let server = serve();
    let discovered = Stateless::new("server/discover", json!({}))
        .send(&server)
        .result();
    let capabilities = &discovered["capabilities"];
    assert_eq!(
        capabilities["extensions"]["io.modelcontextprotocol/tasks"],
        json!({})
    );
    // VER-07.
    assert!(capabilities.get("tasks").is_none());
    let without = Serve::new().tool(super::greet).start();
    let discovered = Stateless::new("server/discover", json!({}))
        .send(&without)
        .result();
    assert!(discovered["capabilities"].get("extensions").is_none());
    about("tasks/get", "x", json!({}))
        .send(&without)
        .error(404, -32601, "1");
}

#[test]
fn a_task_takes_a_place_among_the_calls_for_as_long_as_it_runs() {
    let server = Serve::new()
        .app(|_| super::app())
        .configured(|c| {
            c.limits.calls = Some(1);
            c.limits.queue = 0;
        })
        .start();
    let first = begin(&server, "endless", json!({}));
    let refused = call("compute", json!({"label": "x"})).send(&server);
    refused.error(503, 503, "1");
    assert_eq!(refused.json()["error"]["data"]["setting"], "limits.calls");
    cancel(&server, &first);
    // Its place is free once it has heard of that.
    until(|| {
        let answer = call("compute", json!({"label": "x"})).send(&server);
        (answer.status == 200).then_some(())
    });
}
