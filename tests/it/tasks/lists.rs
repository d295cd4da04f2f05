//! Lists of tasks, and whose they are.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{app, replicas};
use crate::auth::{BOB, CI, bearer, with_keys};
use crate::support::{Response, Running, Serve, request, until};

/// A session of the holder of a key.
struct Of<'s> {
    server: &'s Running,
    key: &'s str,
    session: String,
    initialized: Value,
}

impl<'s> Of<'s> {
    fn begin(server: &'s Running, key: &'s str) -> Self {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let key_header = bearer(key);
        let response = server.post(
            &[("authorization", &key_header)],
            &request("initialize", &params),
        );
        Self {
            server,
            key,
            session: response.header("mcp-session-id").expect("an id").to_owned(),
            initialized: response.result(),
        }
    }

    fn request(&self, method: &str, params: &Value) -> Response {
        let key = bearer(self.key);
        let headers = [("authorization", &*key), ("mcp-session-id", &self.session)];
        self.server.post(&headers, &request(method, params))
    }

    fn task(&self, label: &str) -> String {
        let params = json!({"name": "compute", "arguments": {"label": label}, "task": {}});
        let created = self.request("tools/call", &params).result();
        created["task"]["taskId"]
            .as_str()
            .expect("an id")
            .to_owned()
    }

    /// All pages, and how many there were.
    fn list(&self) -> (Vec<Value>, usize) {
        let (mut tasks, mut pages, mut params) = (Vec::new(), 0, json!({}));
        loop {
            let page = self.request("tasks/list", &params).result();
            tasks.extend(page["tasks"].as_array().expect("tasks").iter().cloned());
            pages += 1;
            match page.get("nextCursor") {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return (tasks, pages),
            }
        }
    }
}

fn ids(tasks: &[Value]) -> Vec<&str> {
    tasks
        .iter()
        .map(|task| task["taskId"].as_str().expect("an id"))
        .collect()
}

fn serve() -> Serve {
    Serve::new().app(|_| app()).configured(with_keys)
}

#[test]
fn tkl_06_a_list_shows_the_callers_own_tasks_only() {
    let server = serve().start();
    let (ci, bob) = (Of::begin(&server, CI), Of::begin(&server, BOB));
    assert_eq!(
        ci.initialized["capabilities"]["tasks"],
        json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
    );
    assert_eq!(ci.list(), (Vec::new(), 1));
    let mine = [ci.task("a"), ci.task("b")];
    let his = bob.task("c");
    assert_eq!(ids(&ci.list().0), mine);
    assert_eq!(ids(&bob.list().0), [&*his]);
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        bob.request(method, &json!({"taskId": mine[0]}))
            .error(200, -32602, "1");
    }
    // Another session of the same caller sees them, as they are.
    let again = Of::begin(&server, CI);
    until(|| {
        let (tasks, _) = again.list();
        let done = tasks.iter().all(|task| task["status"] == "completed");
        assert!(tasks.iter().all(|task| task.get("result").is_none()));
        done.then_some(())
    });
}

#[test]
fn tkl_06_who_nobody_knows_has_no_list() {
    let server = super::serve();
    let session = server.session("2025-11-25");
    let announced = &session.initialized["capabilities"]["tasks"];
    assert!(announced.get("list").is_none(), "{announced}");
    session
        .request("tasks/list", &json!({}))
        .error(200, -32601, "1");
}

#[test]
fn pages_of_tasks_go_on_where_they_stopped_and_for_their_caller_only() {
    let server = serve().page_size(2).start();
    let (ci, bob) = (Of::begin(&server, CI), Of::begin(&server, BOB));
    let mine: Vec<_> = (0..5).map(|n| ci.task(&n.to_string())).collect();
    bob.task("his");
    let (tasks, pages) = ci.list();
    assert_eq!(
        (ids(&tasks), pages),
        (mine.iter().map(String::as_str).collect(), 3)
    );
    let first = ci.request("tasks/list", &json!({})).result();
    let cursor = first["nextCursor"].as_str().expect("a cursor").to_owned();
    for forged in [
        cursor.clone(),
        String::new(),
        "x".to_owned(),
        cursor[1..].to_owned(),
    ] {
        bob.request("tasks/list", &json!({ "cursor": forged }))
            .error(200, -32602, "1");
    }
    ci.request("tasks/list", &json!({"cursor": 1}))
        .error(200, -32602, "1");
    let flipped = cursor.replace(&cursor[20..24], "AAAA");
    ci.request("tasks/list", &json!({ "cursor": flipped }))
        .error(200, -32602, "1");
}

#[test]
fn any_replica_lists_what_began_on_another() {
    let state = std::sync::Arc::new(longshore::state::Memory::default());
    let [one, other] = [(); 2].map(|()| {
        let state = std::sync::Arc::clone(&state);
        Serve::new()
            .app(|_| app().store(state))
            .configured(with_keys)
            .shared_key()
            .start()
    });
    let here = Of::begin(&one, CI);
    let there = Of {
        server: &other,
        session: here.session.clone(),
        ..Of::begin(&other, CI)
    };
    let tasks = [here.task("a"), there.task("b")];
    for of in [&here, &there] {
        let (listed, _) = of.list();
        let listed: BTreeSet<_> = ids(&listed).into_iter().collect();
        assert_eq!(listed, tasks.iter().map(String::as_str).collect());
    }
    drop(replicas());
}

#[test]
fn tasks_of_a_tool_that_is_hidden_are_hidden() {
    let policy = json!({"rules": [
        {"effect": "allow", "principals": ["key:*"], "tools": ["*"]},
        {"effect": "deny", "principals": ["key:bob"], "tools": ["compute"]},
    ]});
    let state = std::sync::Arc::new(longshore::state::Memory::default());
    let replica = |policy: Option<Value>| {
        let state = std::sync::Arc::clone(&state);
        Serve::new()
            .app(|_| app().store(state))
            .configured(with_keys)
            .configured(|c| {
                if let Some(policy) = policy {
                    c.policy = serde_json::from_value(policy).expect("sound rules");
                }
            })
            .shared_key()
            .start()
    };
    // The other replica has newer rules, which no longer allow the item.
    let (before, after) = (replica(None), replica(Some(policy)));
    let bob = Of::begin(&before, BOB);
    let task = bob.task("x");
    assert_eq!(ids(&bob.list().0), [&*task]);
    let bob = Of::begin(&after, BOB);
    assert_eq!(bob.list(), (Vec::new(), 1));
    bob.request("tasks/get", &json!({"taskId": task}))
        .error(200, -32602, "1");
}
