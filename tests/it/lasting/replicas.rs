//! Two servers that share a key and a state: each does for the other's sessions what it does for its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore::state::{Memory, Retention, State};
use serde_json::{Value, json};

use super::held::Held;
use super::resume::Away;
use super::{
    Announcing, announcing, begin_call, changed, id_of, notification, open, resume, updated,
};
use crate::support::{End, Fronted, Running, Session, Stateless, becomes};

fn pair() -> (Announcing, Announcing) {
    let state: Arc<dyn State> = Arc::new(Memory::default());
    let replica = || {
        let state = Arc::clone(&state);
        announcing(|serve| serve.shared_key().app(|app| app.store(state)))
    };
    (replica(), replica())
}

/// Returns the same session at the other server.
fn at<'s>(server: &'s Running, session: &Session<'_>) -> Session<'s> {
    session.at(server)
}

#[test]
fn list_03_what_one_announces_clients_of_the_other_hear() {
    let (one, other) = pair();
    let session = one.server.session("2025-11-25");
    let mut standing = open(&other.server, &at(&other.server, &session));
    standing.any_event().expect("its beginning");
    let mut listening = other.server.connect();
    let filter = json!({"notifications": {"toolsListChanged": true}});
    listening.send(Stateless::new("subscriptions/listen", filter).text());
    listening.receive_head();
    listening.event().expect("an acknowledgement");
    one.announcer.tools_changed();
    assert_eq!(standing.event(), Some(changed("tools")));
    assert_eq!(
        listening.event().expect("a notification")["method"],
        "notifications/tools/list_changed"
    );
}

#[test]
fn list_03_the_first_thing_that_is_ever_announced_is_heard_elsewhere() {
    let (one, other) = pair();
    let mut listening = other.server.connect();
    let filter = json!({"notifications": {"resourceSubscriptions": ["test://watched"]}});
    listening.send(Stateless::new("subscriptions/listen", filter).text());
    listening.receive_head();
    listening.event().expect("an acknowledgement");
    // The other replica receives bus messages: it knows a session that ended here.
    let session = one.server.session("2025-11-25");
    session.end();
    let there = at(&other.server, &session);
    becomes(|| there.request("ping", &json!({})).status == 404);
    one.announcer.resource_changed("test://watched");
    let told = listening.event().expect("a notification");
    assert_eq!(told["params"]["uri"], "test://watched");
}

#[test]
fn sub_08_a_subscription_counts_wherever_the_stream_is() {
    let (one, other) = pair();
    let session = one.server.session("2025-11-25");
    let mut standing = open(&other.server, &at(&other.server, &session));
    standing.any_event().expect("its beginning");
    session
        .request("resources/subscribe", &json!({"uri": "test://watched"}))
        .result();
    let heard = std::thread::spawn(move || (standing.event(), standing));
    becomes(|| {
        one.announcer.resource_changed("test://watched");
        heard.is_finished()
    });
    let (event, _) = heard.join().expect("no panic");
    assert_eq!(event, Some(updated("test://watched")));
}

#[test]
fn lh_13_a_stream_is_taken_up_where_its_client_lands() {
    let (one, other) = pair();
    let session = one.server.session("2025-11-25");
    let mut standing = open(&one.server, &session);
    let first = standing.any_event().expect("its beginning");
    drop(standing);
    other.announcer.prompts_changed();
    one.announcer.tools_changed();
    let there = at(&other.server, &session);
    let mut told = Vec::new();
    becomes(|| {
        let mut back = resume(&other.server, &there, id_of(&first));
        back.any_event().expect("its beginning");
        one.announcer.resources_changed();
        told.clear();
        // The last of the three is new each time, so there is something to be told in any case.
        while told.last() != Some(&changed("resources")) {
            told.push(back.event().expect("a notification"));
        }
        told.len() == 3
    });
    assert!(told.contains(&changed("prompts")) && told.contains(&changed("tools")));
}

#[test]
fn lh_05_late_word_of_an_older_stream_does_not_silence_the_newest() {
    let shared = Arc::new(Memory::default());
    let held = Held::new(Arc::clone(&shared));
    let late = Arc::clone(&held);
    let one = announcing(|serve| serve.shared_key().app(|app| app.store(late)));
    let other = announcing(|serve| serve.shared_key().app(|app| app.store(shared)));
    let session = one.server.session("2025-11-25");
    let mut older = open(&one.server, &session);
    older.any_event().expect("its beginning");
    becomes(|| held.0.waiting() > 0);
    let mut newest = open(&other.server, &at(&other.server, &session));
    newest.any_event().expect("its beginning");
    held.0.release_connection();
    // Its news comes after that word.
    one.announcer.tools_changed();
    becomes(|| held.0.waiting() > 0);
    held.0.release_connection();
    assert_eq!(newest.event(), Some(changed("tools")));
}

#[test]
fn lh_02_a_call_that_runs_on_one_is_followed_on_the_other() {
    let (one, other) = pair();
    let session = one.server.session("2025-11-25");
    let mut connection = begin_call(&one.server, &session);
    let first = connection.any_event().expect("an event");
    connection.any_event().expect("progress");
    let there = at(&other.server, &session);
    let mut back = resume(&other.server, &there, id_of(&first));
    assert_eq!(
        back.event().expect("progress")["method"],
        "notifications/progress"
    );
    // LH-05: the first stream receives nothing any more.
    assert_eq!(connection.any_event(), None);
    one.gate.open();
    assert_eq!(back.event().expect("an answer")["result"]["isError"], false);
    assert_eq!(back.any_event(), None);
    // A session of another caller.
    let stranger = other.server.session("2025-11-25");
    let [header] = stranger.headers();
    let head = other
        .server
        .connect()
        .get(&[header, ("last-event-id", id_of(&first))]);
    assert_eq!(head.status, 400);
}

#[test]
fn can_01_a_call_is_cancelled_from_anywhere() {
    let (one, other) = pair();
    let session = one.server.session("2025-11-25");
    let mut connection = begin_call(&one.server, &session);
    connection.any_event().expect("its beginning");
    connection.any_event().expect("progress");
    let cancelled = notification("notifications/cancelled", &json!({"requestId": 1}));
    at(&other.server, &session).post(&cancelled).accepted();
    assert_eq!(one.gate.end(), End::Dropped);
    assert_eq!(connection.any_event(), None);
}

#[test]
fn lh_08_a_session_that_was_ended_at_one_is_ended_at_the_other() {
    let (one, other) = pair();
    let session = one.server.session("2025-11-25");
    let there = at(&other.server, &session);
    let mut standing = open(&other.server, &there);
    standing.any_event().expect("its beginning");
    session.end();
    assert_eq!(standing.any_event(), None, "its streams end");
    there.request("ping", &json!({})).error(404, 404, "");
    // A replica that starts later knows too.
}

#[test]
fn a_replica_that_starts_later_knows_what_was_ended_before() {
    let state: Arc<dyn State> = Arc::new(Memory::default());
    let replica = || {
        let state = Arc::clone(&state);
        announcing(|serve| serve.shared_key().app(|app| app.store(state)))
    };
    let one = replica();
    let (ended, lasting) = (
        one.server.session("2025-11-25"),
        one.server.session("2025-11-25"),
    );
    ended.end();
    let second = replica();
    becomes(|| {
        at(&second.server, &ended)
            .request("ping", &json!({}))
            .status
            == 404
    });
    at(&second.server, &lasting)
        .request("ping", &json!({}))
        .result();
}

#[test]
fn what_a_key_that_is_gone_had_sealed_keeps_nobody_from_what_comes_after_it() {
    let state: Arc<dyn State> = Arc::new(Memory::default());
    let keep = Retention {
        entries: 10_000,
        bytes: 1 << 20,
        life: std::time::Duration::from_secs(3600),
        may_go: false,
    };
    // More than is read at once.
    for log in ["1/mcp/facts", "1/mcp/notices"] {
        for _ in 0..1200 {
            let sealed = bytes::Bytes::from_static(b"by another key");
            let append = state.append(log, sealed, keep);
            futures_util::FutureExt::now_or_never(append)
                .expect("at once")
                .expect("kept");
        }
    }
    let replica = || {
        let state = Arc::clone(&state);
        announcing(|serve| serve.shared_key().app(|app| app.store(state)))
    };
    let (one, other) = (replica(), replica());
    let session = one.server.session("2025-11-25");
    let there = at(&other.server, &session);
    let mut standing = open(&other.server, &there);
    standing.any_event().expect("its beginning");
    one.announcer.tools_changed();
    assert_eq!(standing.event(), Some(changed("tools")));
    session.end();
    becomes(|| there.request("ping", &json!({})).status == 404);
}

#[test]
fn log_03_a_level_counts_wherever_a_call_lands() {
    let (one, other) = pair();
    let session = one.server.session("2025-11-25");
    let there = at(&other.server, &session);
    let speaks = |session: &Session<'_>| -> bool {
        let response = session.request("tools/call", &json!({"name": "whisper"}));
        assert_eq!(response.status, 200);
        response.header("content-type") == Some("text/event-stream")
    };
    assert!(!speaks(&session) && !speaks(&there));
    let level = |level: &str| -> Value {
        session
            .request("logging/setLevel", &json!({ "level": level }))
            .result()
    };
    level("debug");
    assert!(speaks(&session));
    becomes(|| speaks(&there));
    level("error");
    becomes(|| !speaks(&there));
}

#[test]
fn lh_05_the_newest_stream_counts_wherever_it_is() {
    let (one, other) = pair();
    let session = one.server.session("2025-06-18");
    let mut here = open(&one.server, &session);
    one.announcer.tools_changed();
    assert_eq!(here.event(), Some(changed("tools")));
    let mut there = open(&other.server, &at(&other.server, &session));
    // The message of the other replica arrives soon.
    let heard = std::thread::spawn(move || (there.event(), there));
    becomes(|| {
        one.announcer.prompts_changed();
        heard.is_finished()
    });
    let (event, there) = heard.join().expect("no panic");
    assert_eq!(event, Some(changed("prompts")));
    drop(there);
    let heard = std::thread::spawn(move || {
        // Earlier notifications are skipped.
        while here.event().expect("a notification") != changed("resources") {}
    });
    becomes(|| {
        one.announcer.resources_changed();
        heard.is_finished()
    });
    heard.join().expect("no panic");
}

#[test]
fn a_session_that_ends_during_an_outage_ends_elsewhere_although_its_server_stops() {
    let away = Away::default();
    let (is_away, failed) = (Arc::clone(&away.is_away), Arc::clone(&away.failed));
    let state: Arc<dyn State> = Arc::new(Fronted(away));
    let replica = || {
        let state = Arc::clone(&state);
        announcing(|serve| serve.shared_key().app(|app| app.store(state)))
    };
    let (one, other) = (replica(), replica());
    let session = one.server.session("2025-11-25");
    let there = at(&other.server, &session);
    there.request("ping", &json!({})).result();
    is_away.store(true, Ordering::SeqCst);
    session.end();
    becomes(|| failed.load(Ordering::SeqCst));
    let stops = std::thread::spawn(move || drop(one));
    is_away.store(false, Ordering::SeqCst);
    becomes(|| there.request("ping", &json!({})).status == 404);
    stops.join().expect("no panic");
}
