//! Records of tasks: one of their start, and one of their end.

use serde_json::{Value, json};

use super::{Audited, assert_says};
use crate::support::{Stateless, becomes};

#[test]
fn a_task_is_recorded_when_it_starts_and_when_it_ends() {
    let none = json!({"upstream": null, "upstream_identity": null});
    a_task_is_recorded("chore", &none);
    // Of a tool that calls another server, both records name it.
    let orders = json!({"upstream": "orders", "upstream_identity": "service"});
    a_task_is_recorded("errand", &orders);
}

#[test]
fn a_task_that_runs_out_of_time_is_recorded_as_such() {
    let audited = Audited::start(|c| c.server.tasks.ttl_seconds = 1);
    run_as_task(&audited, "idle");
    let mut records = audited.records();
    records.sort_by_key(|record| record["event"].to_string());
    assert_says(
        &records[1],
        json!({"event": "task", "tool": "idle", "outcome": "timeout"}),
    );
}

/// Calls a tool as a task, and waits for the record of its end.
fn run_as_task(audited: &Audited, tool: &str) {
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let call = Stateless::call(tool, json!({})).meta("clientCapabilities", tasks.clone());
    let task = call.send(audited.server()).result()["taskId"].clone();
    let is_recorded = || {
        let text = std::fs::read_to_string(&audited.file).expect("a file");
        text.contains(r#""event":"task""#)
    };
    becomes(|| {
        Stateless::new("tasks/get", json!({ "taskId": task }))
            .and("mcp-name", task.as_str().expect("an id"))
            .meta("clientCapabilities", tasks.clone())
            .send(audited.server());
        is_recorded()
    });
}

fn a_task_is_recorded(tool: &str, upstream: &Value) {
    let audited = Audited::start(|_| {});
    run_as_task(&audited, tool);
    let mut records = audited.records();
    // A short task may end before it is said that it was begun.
    records.sort_by_key(|record| record["event"].to_string());
    assert_says(
        &records[0],
        json!({"event": "call", "tool": tool, "outcome": "started"}),
    );
    assert_says(
        &records[1],
        json!({"event": "task", "tool": tool, "outcome": "ok", "principal": "anonymous", "client": "127.0.0.1"}),
    );
    for record in &records[..2] {
        assert_says(record, upstream.clone());
    }
}

#[test]
fn a_task_begins_only_if_its_end_can_be_recorded() {
    let audited = Audited::start(|c| {
        c.audit.required = true;
        // The record of the request takes all of it.
        c.audit.queue = 1;
    });
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let call = Stateless::call("chore", json!({})).meta("clientCapabilities", tasks);
    let refused = call.send(audited.server());
    assert_eq!(refused.json()["error"]["data"]["setting"], "audit.required");
}
