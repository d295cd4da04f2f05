//! Subscriptions to resources of upstream servers.

use std::path::Path;

use serde_json::{Value, json};

use super::{behind, http, stdio};
use crate::lasting::open;
use crate::support::{Running, Serve, Session, Stateless, becomes};

const WATCHED: &str = "test://watched-resource";

fn subscribe(session: &Session<'_>, method: &str, uri: &str) {
    let answer = session.request(&format!("resources/{method}"), &json!({ "uri": uri }));
    assert!(answer.json().get("error").is_none());
}

/// Returns the number of subscriptions of a server's streams.
pub(super) fn subscriptions(server: &Running) -> f64 {
    server
        .admin_page("/metrics")
        .metric("longshore_subscriptions")
}

fn updated(event: Option<Value>) -> String {
    let event = event.expect("an event");
    assert_eq!(
        event["method"], "notifications/resources/updated",
        "{event}"
    );
    event["params"]["uri"].as_str().expect("a URI").to_owned()
}

#[test]
fn sub_08_many_who_listen_are_one_subscription_that_ends_with_the_last() {
    let upstream = Serve::new().toolset("everything").admin().start();
    let server = behind([("up", http(&upstream))]).start();
    let sessions = [(); 2].map(|()| server.session("2025-11-25"));
    let mut streams = Vec::new();
    for session in &sessions {
        subscribe(session, "subscribe", WATCHED);
        streams.push(open(&server, session));
    }
    let mut listening = server.connect();
    let filter = json!({"notifications": {"resourceSubscriptions": [WATCHED]}});
    listening.send(Stateless::new("subscriptions/listen", filter).text());
    assert_eq!(listening.receive_head().status, 200);
    assert_eq!(
        listening.event().expect("an event")["method"],
        "notifications/subscriptions/acknowledged"
    );
    streams.push(listening);
    becomes(|| subscriptions(&upstream) == 1.0);
    upstream
        .session("2025-11-25")
        .call("touch_watched_resource", &json!({}))
        .result();
    for stream in &mut streams {
        assert_eq!(updated(stream.event()), WATCHED);
    }
    // The one that is left is enough, and none is too few.
    streams.truncate(1);
    subscribe(&sessions[1], "unsubscribe", WATCHED);
    upstream
        .session("2025-11-25")
        .call("touch_watched_resource", &json!({}))
        .result();
    assert_eq!(updated(streams[0].event()), WATCHED);
    subscribe(&sessions[0], "unsubscribe", WATCHED);
    becomes(|| subscriptions(&upstream) == 0.0);
}

/// A program with two resources, in a revision with sessions or in that without. It notes what it is asked, and says that
/// the first has changed whenever it is asked to tell of it.
fn telling(folder: &Path, modern: bool) -> String {
    let no = r#""error":{"code":-32601,"message":"no"}"#;
    let (discover, initialize) = match modern {
        true => (
            r#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true}}}"#,
            no,
        ),
        false => (
            no,
            r#""result":{"protocolVersion":"2025-06-18","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"x","version":"0"}}"#,
        ),
    };
    let updated =
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x://a"}}"#;
    let acknowledged =
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}"#;
    format!(
        r#"echo started >> {folder}/starts
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            case "$line" in
            *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":'$id',{initialize}}}' ;;
            *server/discover*) echo '{{"jsonrpc":"2.0","id":'$id',{discover}}}' ;;
            *templates/list*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"resultType":"complete","resourceTemplates":[]}}}}' ;;
            *resources/list*) echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"resultType":"complete","resources":[{{"uri":"x://a","name":"a"}},{{"uri":"x://b","name":"b"}}]}}}}' ;;
            *resources/read*) [ -e {folder}/died ] || {{ : > {folder}/died; exit 1; }}
                echo '{{"jsonrpc":"2.0","id":'$id',"result":{{"contents":[]}}}}' ;;
            *resources/subscribe*x://b*) [ -e {folder}/refuses ] && answer='{no}' || answer='"result":{{}}'
                printf '%s\n' "$line" >> {folder}/asked; echo '{{"jsonrpc":"2.0","id":'$id','"$answer"'}}' ;;
            *resources/subscribe*|*resources/unsubscribe*) printf '%s\n' "$line" >> {folder}/asked; echo '{{"jsonrpc":"2.0","id":'$id',"result":{{}}}}'
                case "$line" in *subscribe*x://a*) echo '{updated}' ;; esac ;;
            *subscriptions/listen*) printf '%s\n' "$line" >> {folder}/asked; echo '{acknowledged}'; echo '{updated}' ;;
            *notifications/cancelled*) echo cancelled >> {folder}/asked ;;
            esac
        done"#,
        folder = folder.display()
    )
}

fn asked(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("asked")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn sub_01_one_without_sessions_is_asked_for_all_that_anybody_listens_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = behind([("x", stdio(&telling(folder.path(), true)))]).start();
    let session = server.session("2025-11-25");
    let mut stream = open(&server, &session);
    subscribe(&session, "subscribe", "x://a");
    assert_eq!(updated(stream.event()), "x://a");
    subscribe(&session, "subscribe", "x://b");
    becomes(|| asked(folder.path()).len() == 4);
    let lines = asked(folder.path());
    // The first shows whether the program still responds meanwhile.
    let subscribed = [r#"[]"#, r#"["x://a"]"#, r#"["x://a","x://b"]"#];
    for (line, uris) in lines.iter().zip(subscribed) {
        let expected = format!(r#""resourceSubscriptions":{uris}"#);
        assert!(line.contains(&expected), "{lines:?}");
    }
    assert_eq!(lines[3], "cancelled", "it is not needed any more");
    drop(stream);
    becomes(|| asked(folder.path()).len() == 5);
    assert_eq!(asked(folder.path())[4], "cancelled");
}

#[test]
fn a_resource_whose_subscription_is_rejected_is_not_reported_as_updated() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("refuses"), "").expect("written");
    let server = behind([("x", stdio(&telling(folder.path(), false)))]).start();
    let session = server.session("2025-11-25");
    let mut stream = open(&server, &session);
    subscribe(&session, "subscribe", "x://b");
    becomes(|| asked(folder.path()).len() == 1);
    subscribe(&session, "subscribe", "x://a");
    assert_eq!(updated(stream.event()), "x://a");
    subscribe(&session, "unsubscribe", "x://b");
    subscribe(&session, "unsubscribe", "x://a");
    becomes(|| asked(folder.path()).len() == 3);
    let lines = asked(folder.path());
    assert!(
        lines[2].contains("resources/unsubscribe") && lines[2].contains("x://a"),
        "there is no subscription to end: {lines:?}"
    );
}

#[test]
fn who_listens_is_told_of_what_may_have_been_missed_when_an_upstream_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = behind([("x", stdio(&telling(folder.path(), false)))]).start();
    let session = server.session("2025-11-25");
    let mut stream = open(&server, &session);
    for uri in ["x://b", "unknown://c"] {
        subscribe(&session, "subscribe", uri);
    }
    becomes(|| asked(folder.path()).len() == 1);
    // It may have changed before the upstream had the subscription.
    assert_eq!(updated(stream.event()), "x://b");
    // It exits, and nothing calls it again.
    let _ = session.request("resources/read", &json!({"uri": "x://a"}));
    assert_eq!(updated(stream.event()), "x://b");
    let lines = asked(folder.path());
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines
            .iter()
            .all(|line| line.contains("resources/subscribe") && line.contains("x://b"))
    );
}
