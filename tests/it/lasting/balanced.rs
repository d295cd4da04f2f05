//! Two replicas with one key and one state behind a balancer without affinity: each request lands on the other one.

use std::net::SocketAddr;
use std::sync::Arc;

use longshore::state::{Memory, State};
use longshore::{App, CallContext, JsonSchema, ToolError, tool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{id_of, resume};
use crate::support::{Connection, RoundRobin, Running, Serve, Session, Stateless, post, request};

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Asks who is there, twice.
#[tool]
async fn greet(context: &CallContext) -> Result<String, ToolError> {
    context.progress(0.5, None, "asking").await;
    let mut names = Vec::new();
    for question in ["Who are you?", "And who else?"] {
        let answer = context.elicit::<Name>(question).await?.accepted();
        names.push(answer.map_or(String::new(), |Name { name }| name));
    }
    Ok(format!("Hello {}.", names.join(" and ")))
}

/// Takes its time, and says so.
#[tool]
async fn slow(context: &CallContext) -> String {
    context.progress(0.5, None, "half").await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    "at last".to_owned()
}

struct Pair {
    balancer: RoundRobin,
    replicas: Vec<Running>,
    state: Arc<dyn State>,
}

fn replica(state: &Arc<dyn State>) -> Running {
    let state = Arc::clone(state);
    let names = (0..7).map(|n| {
        longshore::IntoTool::into_tool(longshore::tool_fn(
            longshore::Definition::new(format!("tool_{n}")),
            |_: Arc<CallContext>, _: serde_json::Map<String, Value>| async {
                Ok::<_, ToolError>("done".to_owned())
            },
        ))
    });
    let names: Vec<_> = names.collect();
    Serve::new()
        .app(|_| App::new().tool(greet).tool(slow).tools(names).store(state))
        .page_size(2)
        .shared_key()
        .start()
}

fn pair() -> Pair {
    let state: Arc<dyn State> = Arc::new(Memory::default());
    let replicas = vec![replica(&state), replica(&state)];
    let addresses: Vec<SocketAddr> = replicas.iter().map(Running::address).collect();
    Pair {
        balancer: RoundRobin::before(&addresses),
        replicas,
        state,
    }
}

impl Pair {
    fn front(&self) -> &Running {
        self.balancer.front()
    }

    /// Asserts that each request has gone to the other replica than the one before it.
    fn assert_alternating(&self, at_least: usize) {
        let sent = self.balancer.sent();
        assert!(at_least <= sent.len(), "{sent:?}");
        for two in sent.windows(2) {
            assert_ne!(two[0], two[1], "{sent:?}");
        }
    }

    /// Ends a replica and starts another in its place.
    fn restart(&mut self, which: usize) {
        let old = self.replicas.remove(which);
        let address = old.address();
        drop(old);
        let new = replica(&self.state);
        self.balancer.replace(address, new.address());
        self.replicas.insert(which, new);
    }
}

/// All pages of the list of tools.
fn list(mut page: impl FnMut(Value) -> Value) -> Vec<String> {
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let result = page(params);
        for tool in result["tools"].as_array().expect("tools") {
            names.push(tool["name"].as_str().expect("a name").to_owned());
        }
        match result.get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return names,
        }
    }
}

fn accept(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

fn calling(front: &Running, session: &Session<'_>, tool: &str) -> Connection {
    let mut connection = front.connect();
    let params = json!({"name": tool, "_meta": {"progressToken": "p"}});
    connection.send(post(&session.headers(), &request("tools/call", &params)));
    assert_eq!(connection.receive_head().status, 200);
    connection
}

fn next_question(connection: &mut Connection) -> Value {
    loop {
        let message = connection.event().expect("a question");
        if message.get("id").is_some() {
            return message;
        }
    }
}

#[test]
fn meta_10_a_session_is_served_by_whichever_replica_a_request_lands_on() {
    let pair = pair();
    let front = pair.front();
    for revision in ["2025-06-18", "2025-11-25"] {
        let session = front.session_of(revision, &json!({"elicitation": {}}));
        session
            .post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
            .accepted();
        let names = list(|params| session.request("tools/list", &params).result());
        assert_eq!(names.len(), 9);
        assert_eq!(
            session.call("tool_3", &json!({})).result()["content"][0]["text"],
            "done"
        );
        // The question is asked on one replica, and answered on the other.
        let mut connection = calling(front, &session, "greet");
        for name in ["Ada", "Bob"] {
            let question = next_question(&mut connection);
            let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": accept(name)});
            session.post(&answer.to_string()).accepted();
        }
        let answer = connection.event().expect("an answer");
        assert_eq!(answer["result"]["content"][0]["text"], "Hello Ada and Bob.");
        pair.assert_alternating(8);
    }
}

#[test]
fn lh_13_a_stream_that_broke_is_taken_up_on_the_other_replica() {
    let pair = pair();
    let front = pair.front();
    let session = front.session("2025-11-25");
    let mut connection = calling(front, &session, "slow");
    let first = connection.any_event().expect("its beginning");
    drop(connection);
    let mut back = resume(front, &session, id_of(&first));
    assert_eq!(
        back.event().expect("progress")["method"],
        "notifications/progress"
    );
    let answer = back.event().expect("an answer");
    assert_eq!(answer["result"]["content"][0]["text"], "at last");
    pair.assert_alternating(3);
}

#[test]
fn mrtr_10_requests_without_sessions_go_wherever_they_land() {
    let pair = pair();
    let front = pair.front();
    let discovered = Stateless::new("server/discover", json!({}))
        .send(front)
        .result();
    assert_eq!(discovered["resultType"], "complete");
    let names = list(|params| Stateless::new("tools/list", params).send(front).result());
    assert_eq!(names.len(), 9);
    let called = Stateless::call("tool_3", json!({})).send(front).result();
    assert_eq!(called["content"][0]["text"], "done");
    let call =
        Stateless::call("greet", json!({})).meta("clientCapabilities", json!({"elicitation": {}}));
    let mut result = call.send(front).result();
    for name in ["Ada", "Bob"] {
        assert_eq!(result["resultType"], "input_required");
        let asked = result["inputRequests"].as_object().expect("questions");
        let answers: serde_json::Map<String, Value> = asked
            .keys()
            .map(|key| (key.clone(), accept(name)))
            .collect();
        let again = call.clone().params(|params| {
            params["inputResponses"] = answers.into();
            params["requestState"] = result["requestState"].clone();
        });
        result = again.send(front).result();
    }
    assert_eq!(result["content"][0]["text"], "Hello Ada and Bob.");
    pair.assert_alternating(10);
}

#[test]
fn that_a_replica_is_replaced_is_noticed_by_nobody() {
    let mut pair = pair();
    let id = {
        let front = pair.front();
        front
            .session_of("2025-11-25", &json!({"elicitation": {}}))
            .id
            .clone()
    };
    let mut cursor = Value::Null;
    for which in [0, 1, 0, 1] {
        pair.restart(which);
        let headers = [("mcp-session-id", &*id)];
        let params = match cursor.take() {
            Value::Null => json!({}),
            cursor => json!({ "cursor": cursor }),
        };
        for _ in 0..2 {
            let page = pair
                .front()
                .post(&headers, &request("tools/list", &params))
                .result();
            cursor = page["nextCursor"].clone();
            let call = request("tools/call", &json!({"name": "tool_1"}));
            let called = pair.front().post(&headers, &call).result();
            assert_eq!(called["content"][0]["text"], "done");
        }
    }
    assert!(cursor.is_string());
}
