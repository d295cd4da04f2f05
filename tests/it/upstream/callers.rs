//! Messages of an upstream for one caller are not sent to another.

use std::path::Path;

use longshore::client::Lifecycle;
use longshore::source::UpstreamConfig;
use serde_json::{Value, json};

use super::{behind, stdio};
use crate::auth::{bearer, holder};
use crate::support::{Connection, Running, Serve, Stateless, becomes, post, request};

const ALICE: &str = "lsk_the-key-of-the-one-that-is-called-alice";
const BOB: &str = "lsk_the-key-of-the-one-that-is-called-bob";
const EVE: &str = "lsk_the-key-of-the-one-that-is-called-eve";

/// A bank whose `transfer` never responds. `wait` makes it log and ask about that transfer, and returns the answer.
fn bank(folder: &Path) -> UpstreamConfig {
    let script = format!(
        r#"while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":"*\([a-z0-9]*\)"*[,}}].*/\1/')
            case "$line" in
            *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}},"logging":{{}}}},"serverInfo":{{"name":"bank","version":"0"}}}}}}' ;;
            *tools/list*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"tools":[{{"name":"transfer","inputSchema":{{"type":"object"}}}},{{"name":"wait","inputSchema":{{"type":"object"}}}}]}}}}' ;;
            *logging/setLevel*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{}}}}' ;;
            *notifications/cancelled*) echo x >> {folder}/cancelled ;;
            *'"transfer"'*) echo x >> {folder}/transfers ;;
            *'"wait"'*)
                waits=$id
                echo '{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"log about ALICE-DE89"}}}}'
                echo '{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{"message":"Confirm ALICE-DE89","requestedSchema":{{"type":"object","properties":{{}}}}}}}}' ;;
            *'"id":"q"'*accept*) echo '{{"jsonrpc":"2.0","id":'$waits',"result":{{"content":[{{"type":"text","text":"accepted"}}]}}}}' ;;
            *'"id":"q"'*error*) echo '{{"jsonrpc":"2.0","id":'$waits',"result":{{"content":[{{"type":"text","text":"refused"}}]}}}}' ;;
            esac
        done"#,
        folder = folder.display()
    );
    UpstreamConfig {
        protocol: Lifecycle::Legacy,
        ..stdio(&script)
    }
}

struct Bank {
    folder: tempfile::TempDir,
    server: Running,
}

impl Bank {
    fn open(change: impl FnOnce(Serve) -> Serve) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let serve = behind([("bank", bank(folder.path()))]);
        let serve = serve.configured(|c| {
            c.auth.api_keys = [("alice", ALICE), ("bob", BOB), ("eve", EVE)]
                .map(|(name, key)| holder(name, key))
                .into();
        });
        Self {
            server: change(serve).start(),
            folder,
        }
    }

    fn count(&self, file: &str) -> usize {
        let text = std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default();
        text.lines().count()
    }

    /// Calls `transfer` and disconnects.
    fn abandons(&self, key: &str) {
        let before = (self.count("transfers"), self.count("cancelled"));
        let mut connection = self.server.connect();
        connection.send(stateless("bank__transfer", key).text());
        becomes(|| self.count("transfers") == before.0 + 1);
        drop(connection);
        becomes(|| self.count("cancelled") == before.1 + 1);
    }

    fn withheld(&self) -> Value {
        let health = self.server.admin_page("/health/detailed").json();
        let upstream = &health["upstreams"][0];
        json!([upstream["withheld_logs"], upstream["withheld_requests"]])
    }
}

fn stateless(tool: &str, key: &str) -> Stateless {
    Stateless::call(tool, json!({}))
        .meta("logLevel", json!("debug"))
        .meta(
            "clientCapabilities",
            json!({"elicitation": {}, "sampling": {}, "roots": {}}),
        )
        .and("authorization", &bearer(key))
}

/// Everything that the answer to a request brings.
fn heard(connection: &mut Connection, text: &str) -> Vec<Value> {
    let head = connection.send(text).receive_head();
    assert_eq!(head.status, 200, "{head:?}");
    if head.header("content-type") == Some("application/json") {
        let length = head.header("content-length").expect("a length");
        let body = connection.body(length.parse().expect("a number"));
        return vec![serde_json::from_str(&body).expect("JSON")];
    }
    std::iter::from_fn(|| connection.event()).collect()
}

/// Asserts that messages contain no data of another caller, and that the upstream did not wait.
fn heard_nothing(said: &[Value]) {
    let [answer] = said else {
        panic!("more than an answer: {said:?}");
    };
    assert_eq!(
        answer["result"]["content"][0]["text"], "refused",
        "{answer}"
    );
    assert!(!answer.to_string().contains("ALICE"), "{answer}");
}

/// Opens a session for a caller.
fn session(bank: &Bank, key: &str) -> String {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let authorization = bearer(key);
    let headers = [("authorization", &*authorization)];
    let response = bank.server.post(&headers, &request("initialize", &params));
    let id = response
        .header("mcp-session-id")
        .expect("a session id")
        .to_owned();
    let headers = [("authorization", &*authorization), ("mcp-session-id", &*id)];
    let level = request("logging/setLevel", &json!({"level": "debug"}));
    bank.server.post(&headers, &level).result();
    id
}

fn in_session(id: &str, key: &str, method: &str, params: &Value) -> String {
    let headers = [("authorization", &*bearer(key)), ("mcp-session-id", id)];
    post(&headers, &request(method, params))
}

#[test]
fn a_call_that_was_abandoned_is_told_of_to_nobody_else_in_either_era() {
    let bank = Bank::open(Serve::admin);
    let (bobs, eves) = (session(&bank, BOB), session(&bank, EVE));
    bank.abandons(ALICE);
    let wait = stateless("bank__wait", BOB).text();
    heard_nothing(&heard(&mut bank.server.connect(), &wait));
    assert_eq!(bank.withheld(), json!([1, 1]));
    for (id, key) in [(&bobs, BOB), (&eves, EVE)] {
        let call = in_session(id, key, "tools/call", &json!({"name": "bank__wait"}));
        heard_nothing(&heard(&mut bank.server.connect(), &call));
    }
    assert_eq!(bank.withheld(), json!([3, 3]));
}

#[test]
fn a_call_that_is_cancelled_in_a_session_is_told_of_to_no_other_session() {
    let bank = Bank::open(|serve| serve);
    let (alices, others) = (session(&bank, ALICE), session(&bank, ALICE));
    let mut connection = bank.server.connect();
    let transfer = json!({"name": "bank__transfer"});
    connection.send(in_session(&alices, ALICE, "tools/call", &transfer));
    becomes(|| bank.count("transfers") == 1);
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let authorization = bearer(ALICE);
    let headers = [
        ("authorization", &*authorization),
        ("mcp-session-id", &*alices),
    ];
    bank.server
        .post(&headers, &cancelled.to_string())
        .accepted();
    becomes(|| bank.count("cancelled") == 1);
    let wait = json!({"name": "bank__wait"});
    let call = in_session(&others, ALICE, "tools/call", &wait);
    heard_nothing(&heard(&mut bank.server.connect(), &call));
    // The other session was answered less than a moment ago.
    let call = in_session(&alices, ALICE, "tools/call", &wait);
    heard_nothing(&heard(&mut bank.server.connect(), &call));
}

#[test]
fn a_caller_who_answers_by_calling_again_is_asked_and_others_are_not() {
    let bank = Bank::open(|serve| serve);
    let call = stateless("bank__wait", ALICE);
    let first = heard(&mut bank.server.connect(), &call.text());
    let asked = &first.last().expect("an answer")["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    // Alice's call was abandoned with her question.
    heard_nothing(&heard(
        &mut bank.server.connect(),
        &stateless("bank__wait", BOB).text(),
    ));
    let again = accepting(call, asked);
    // Bob was answered less than a moment ago.
    heard_nothing(&heard(&mut bank.server.connect(), &again.text()));
}

/// Returns the call again, with consent to all that its client was asked.
fn accepting(call: Stateless, asked: &Value) -> Stateless {
    let questions = asked["inputRequests"]
        .as_object()
        .unwrap_or_else(|| panic!("{asked}"));
    let answers: serde_json::Map<_, _> = questions
        .keys()
        .map(|name| (name.clone(), json!({"action": "accept", "content": {}})))
        .collect();
    call.params(|params| {
        params["inputResponses"] = answers.into();
        params["requestState"] = asked["requestState"].clone();
    })
}

#[test]
fn a_caller_who_is_alone_is_asked_and_answers() {
    let bank = Bank::open(|serve| serve);
    bank.abandons(ALICE);
    let call = stateless("bank__wait", ALICE);
    let first = heard(&mut bank.server.connect(), &call.text());
    assert_eq!(
        first[0]["params"]["data"], "log about ALICE-DE89",
        "{first:?}"
    );
    let asked = &first.last().expect("an answer")["result"];
    let again = accepting(call, asked);
    let answer = heard(&mut bank.server.connect(), &again.text());
    let answer = answer.last().expect("an answer");
    assert_eq!(
        answer["result"]["content"][0]["text"], "accepted",
        "{answer}"
    );
}
