//! Upstream servers that do what they should not: the others are not disturbed, and nothing is left behind.

use std::path::Path;

use serde_json::{Value, json};

use super::{behind, everything, http, stdio};
use crate::support::{Running, becomes};

/// A server that puts down its own number and that of a child, and misbehaves when its tool is called.
fn misbehaving(folder: &Path, how: &str) -> String {
    format!(
        r#"sleep 1000 & echo $! >> {folder}/processes
        echo $$ >> {folder}/processes
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            case "$line" in
            *server/discover*) echo '{{"jsonrpc":"2.0","id":'$id',"error":{{"code":-32601,"message":"no"}}}}' ;;
            *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"protocolVersion":"2025-11-25","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"x","version":"0"}}}}}}' ;;
            *tools/list*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"tools":[{{"name":"try","inputSchema":{{"type":"object"}}}}]}}}}' ;;
            *tools/call*) {how} ;;
            esac
        done"#,
        folder = folder.display()
    )
}

fn processes(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("processes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn is_alive(process: &str) -> bool {
    // A zombie is dead, and only waits to be asked for its status.
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| {
        let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
        !state.starts_with(['Z', 'X'])
    })
}

fn nothing_is_left(folder: &Path) {
    let processes = processes(folder);
    assert!(!processes.is_empty());
    becomes(|| !processes.iter().any(|process| is_alive(process)));
}

/// A good upstream, and one that misbehaves.
struct Pair {
    folder: tempfile::TempDir,
    server: Running,
    _good: Running,
}

/// Starts both. Calls have this many seconds, of which a busy machine may need more than a few.
fn pair(how: &str, seconds: u64) -> Pair {
    let folder = tempfile::tempdir().expect("a folder");
    let good = everything();
    let mut bad = stdio(&misbehaving(folder.path(), how));
    bad.bulkhead.breaker_failures = 3;
    let both = behind([("bad", bad), ("good", http(&good))]);
    let both = both.configured(|c| c.upstreams_timeout_seconds = Some(seconds));
    let server = both.start();
    Pair {
        folder,
        server,
        _good: good,
    }
}

impl Pair {
    /// Begins a call of the bad one, and has calls of the other answered before that is.
    fn others_are_not_held_up(&self) -> Value {
        let session = self.server.session("2025-11-25");
        let mut bad = self.server.connect();
        bad.send(session.text("tools/call", &json!({"name": "bad__try"})));
        for _ in 0..20 {
            let called = session.call("good__test_simple_text", &json!({})).result();
            assert_eq!(called["isError"], false, "{called}");
        }
        bad.receive().result()
    }

    fn ends_without_a_trace(self) {
        drop(self.server);
        nothing_is_left(self.folder.path());
    }
}

fn said(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().expect("a text")
}

#[test]
fn one_that_hangs_holds_up_its_own_calls_and_no_others() {
    let pair = pair(":", 2);
    let result = pair.others_are_not_held_up();
    assert_eq!(
        said(&result),
        "the upstream server bad did not respond within 2 s"
    );
    pair.ends_without_a_trace();
}

#[test]
fn one_that_answers_garbage_fails_its_own_calls_and_no_others() {
    let garbage = r#"echo 'Hello!'; echo '{"jsonrpc": "2.0"'; echo '[]]'; printf '\377\376\000\n'; echo '{"id":'$id',"result":{"content":"text"}}'"#;
    let pair = pair(garbage, 60);
    let result = pair.others_are_not_held_up();
    assert_eq!(
        said(&result),
        "the response of the upstream server bad is not a tool result"
    );
    pair.ends_without_a_trace();
}

#[test]
fn one_that_sends_an_endless_line_is_ended() {
    let pair = pair("tr '\\0' x < /dev/zero", 60);
    let result = pair.others_are_not_held_up();
    assert_eq!(
        said(&result),
        "the response of the upstream server bad is not readable or too large; the call may have been executed"
    );
    // While the server runs on, and without another call.
    nothing_is_left(pair.folder.path());
    pair.ends_without_a_trace();
}

#[test]
fn an_answer_that_is_too_long_fails_its_request_and_no_other() {
    for (bytes, is_good) in [(60_000, true), (70_000, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let how = format!(
            r#"echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"content":[{{"type":"text","text":"'$(head -c {bytes} /dev/zero | tr '\0' x)'"}}]}}}}'"#
        );
        let mut bad = stdio(&misbehaving(folder.path(), &how));
        bad.message_bytes = 65_536;
        let server = behind([("bad", bad)]).start();
        let session = server.session("2025-11-25");
        let result = session.call("bad__try", &json!({})).result();
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert_eq!(text.len() == bytes, is_good, "{text:.100}");
        assert_eq!(result["isError"] == true, !is_good, "{text:.100}");
        assert!(
            is_good
                || text.contains("is not readable or too large; the call may have been executed"),
            "{text:.100}"
        );
        session.call("bad__try", &json!({})).result();
        assert_eq!(
            processes(folder.path()).len(),
            2,
            "it was not started again"
        );
    }
}

#[test]
fn one_that_crashes_again_and_again_is_left_alone_for_a_while() {
    let pair = pair("exit 3", 60);
    let session = pair.server.session("2025-11-25");
    for nth in 0..3 {
        let result = pair.others_are_not_held_up();
        // It may have been tried for other reasons meanwhile.
        let is_enough = nth > 0
            && said(&result).starts_with("its circuit breaker is open after repeated failures");
        assert!(
            is_enough
                || said(&result)
                    == "the upstream server bad disconnected before it responded; the call may have been executed",
            "{result}"
        );
    }
    nothing_is_left(pair.folder.path());
    let started = processes(pair.folder.path()).len();
    for _ in 0..10 {
        let result = session.call("bad__try", &json!({})).result();
        assert!(
            said(&result).starts_with("its circuit breaker is open after repeated failures"),
            "{result}"
        );
    }
    assert_eq!(
        processes(pair.folder.path()).len(),
        started,
        "it was not started for calls that could not succeed"
    );
    pair.ends_without_a_trace();
}

#[test]
fn what_was_killed_from_outside_is_started_again() {
    let pair = pair(
        r#"echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}'"#,
        60,
    );
    let session = pair.server.session("2025-11-25");
    session.call("bad__try", &json!({})).result();
    let before = processes(pair.folder.path());
    // The one that serves, which has put itself down after its child.
    let killed = std::process::Command::new("kill")
        .args(["-9", &before[1]])
        .status();
    assert!(killed.expect("there is kill").success());
    nothing_is_left(pair.folder.path());
    let connected = || pair.server.page("/health").json()["upstreams_connected"].clone();
    becomes(|| connected() == 1);
    let called = session.call("bad__try", &json!({})).result();
    assert_eq!(called["isError"], false, "{called}");
    assert_eq!(processes(pair.folder.path()).len(), 4);
    pair.ends_without_a_trace();
}

#[test]
fn a_call_that_is_cancelled_leaves_the_upstream_to_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = misbehaving(
        folder.path(),
        r#"case "$line" in *wait*) : ;; *) echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[]}}' ;; esac"#,
    );
    let server = behind([("bad", stdio(&script))]).start();
    let waiting = crate::support::Stateless::call("bad__try", json!({"a": "wait"}));
    let mut connection = server.connect();
    connection.send(waiting.text());
    let session = server.session("2025-11-25");
    for _ in 0..5 {
        session.call("bad__try", &json!({})).result();
    }
    // The peer's end cancels it, and the program runs on for others.
    drop(connection);
    for _ in 0..5 {
        session.call("bad__try", &json!({})).result();
    }
    assert_eq!(
        processes(folder.path()).len(),
        2,
        "one program, and its child"
    );
    drop(server);
    nothing_is_left(folder.path());
}
