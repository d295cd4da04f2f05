//! Answers in parts that broke off and are taken up again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longshore::state::{Memory, StateError, StateFuture};
use longshore::{App, CallContext, ToolError, tool};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{announcing, begin_call, changed, id_of, notification, open, resume};
use crate::support::{
    AskedState, Connection, End, Event, Fronted, Running, Serve, Session, StandIn, becomes,
};

/// Closes the stream, so that the client has to resume.
#[tool]
async fn patient(context: &CallContext) -> String {
    context.release_connection().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    "worth the wait".to_owned()
}

/// Lets `releases` go on.
static RELEASE: Notify = Notify::const_new();

/// Releases its connection when it is told to.
#[tool]
async fn releases(context: &CallContext) -> String {
    context.progress(0.5, None, "waits").await;
    RELEASE.notified().await;
    context.release_connection().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    "released".to_owned()
}

/// Asks for the client's roots twice.
#[tool]
async fn asks_twice(context: &CallContext) -> Result<String, ToolError> {
    context.send_request("roots/list", json!({})).await?;
    context.send_request("roots/list", json!({})).await?;
    Ok("asked".to_owned())
}

/// Says more than is kept.
#[tool]
async fn verbose(context: &CallContext) -> String {
    context.release_connection().await;
    "x".repeat(300 * 1024)
}

#[test]
fn lh_02_lh_14_an_answer_is_there_for_those_who_come_back() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    let first = connection.any_event().expect("an event");
    assert_eq!((first.data.as_deref(), first.retry), (Some(""), None));
    assert_eq!(first.event, None);
    let progress = connection.any_event().expect("an event");
    assert_eq!(progress.event.as_deref(), Some("message"));
    let stream = |id: &str| id.split('-').next().map(str::to_owned);
    assert_eq!(stream(id_of(&first)), stream(id_of(&progress)));
    drop(connection);
    it.gate.begun();
    session.request("ping", &json!({})).result();
    it.gate.open();
    assert_eq!(it.gate.end(), End::Done);
    for (id, messages) in [(&progress, 1), (&first, 2)] {
        let mut back = resume(&it.server, &session, id_of(id));
        let again = back.any_event().expect("an event");
        assert_eq!(again.id, Some(format!("{}a", id_of(id))), "where it was");
        for _ in 1..messages {
            assert_eq!(back.any_event(), Some(progress.clone()));
        }
        let answer = back.any_event().expect("an event");
        assert_eq!(stream(id_of(&answer)), stream(id_of(&first)));
        let message = answer.message.expect("JSON");
        assert_eq!(
            (&message["id"], &message["result"]["isError"]),
            (&json!(1), &json!(false))
        );
        assert_eq!(back.any_event(), None);
        // LH-04: nothing comes after the end of a stream.
        let _standing = open(&it.server, &session);
        let [header] = session.headers();
        let last = answer.id.as_deref().expect("an id");
        let response = it.server.connect().get(&[header, ("last-event-id", last)]);
        assert_eq!(
            (response.status, response.header("allow")),
            (405, Some("POST, DELETE"))
        );
    }
}

#[test]
fn lh_13_a_call_is_followed_while_it_runs_and_by_one_reader_at_a_time() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-06-18");
    let mut connection = begin_call(&it.server, &session);
    let progress = connection.any_event().expect("an event");
    assert_eq!(
        progress.message.as_ref().expect("JSON")["method"],
        "notifications/progress"
    );
    // The old connection may still be open; the resumed one gets the rest.
    let mut second = resume(&it.server, &session, id_of(&progress));
    assert_eq!(connection.any_event(), None);
    let mut third = resume(&it.server, &session, id_of(&progress));
    assert_eq!(second.any_event(), None);
    it.gate.open();
    let answer = third.event().expect("an answer");
    assert_eq!(answer["result"]["isError"], false);
    assert_eq!(third.any_event(), None);
}

#[test]
fn other_sessions_streams_are_as_unknown_as_those_that_never_were() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    let first = connection.any_event().expect("an event");
    let other = it.server.session("2025-11-25");
    let mut theirs = it.server.connect();
    let [header] = other.headers();
    let head = theirs.get(&[header, ("last-event-id", id_of(&first))]);
    assert_eq!(head.status, 400);
    // And nothing was taken away by that.
    it.gate.open();
    connection.any_event().expect("progress");
    assert!(connection.any_event().expect("an answer").message.is_some());
}

#[test]
fn lh_15_a_tool_can_have_its_client_come_back_later() {
    let server = Serve::new().tool(patient).start();
    let session = server.session("2025-11-25");
    let mut connection = server.connect();
    connection.send(session.text("tools/call", &json!({"name": "patient"})));
    assert_eq!(connection.receive_head().status, 200);
    let first = connection.any_event().expect("an event");
    let last = connection.any_event().expect("an event");
    assert!(last.retry.is_some() && last.data.is_none(), "{last:?}");
    assert_eq!(connection.any_event(), None);
    let answer = resume(&server, &session, id_of(&first)).event();
    assert_eq!(
        answer.expect("an answer")["result"]["content"][0]["text"],
        "worth the wait"
    );
    // A client that does not support resumption just waits.
    let session = server.session("2025-06-18");
    let mut connection = server.connect();
    connection.send(session.text("tools/call", &json!({"name": "patient"})));
    connection.receive_head();
    let answer = connection.any_event().expect("an answer");
    assert!(answer.message.is_some() && answer.id.is_some());
}

#[test]
fn lh_15_a_server_can_end_the_streams_of_long_calls() {
    let it = announcing(|s| s.configured(|c| c.server.streams.poll_after_seconds = 1));
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    let first = connection.any_event().expect("an event");
    connection.any_event().expect("progress");
    assert!(connection.any_event().expect("an event").retry.is_some());
    assert_eq!(connection.any_event(), None);
    it.gate.assert_running();
    // Over and over, and each time with a new id.
    let mut back = resume(&it.server, &session, id_of(&first));
    back.any_event().expect("an event");
    let mut last = back.any_event().expect("progress");
    for _ in 0..3 {
        assert!(back.any_event().expect("an event").retry.is_some());
        assert_eq!(back.any_event(), None);
        back = resume(&it.server, &session, id_of(&last));
        let next = back.any_event().expect("an event");
        assert_ne!(next.id, last.id);
        last = next;
    }
    it.gate.open();
    let mut back = resume(&it.server, &session, id_of(&first));
    assert_eq!(back.event().expect("progress")["params"]["progress"], 0.5);
    assert_eq!(back.event().expect("an answer")["result"]["isError"], false);
}

#[test]
fn lh_15_resumed_calls_do_not_count_as_notification_streams() {
    let it = announcing(|s| s.configured(|c| c.server.streams.per_session = 1));
    let session = it.server.session("2025-11-25");
    let _standing = open(&it.server, &session);
    let calls = [(); 2].map(|()| begin_call(&it.server, &session));
    let mut resumed = calls.map(|mut connection| {
        let first = connection.any_event().expect("an event");
        drop(connection);
        resume(&it.server, &session, id_of(&first))
    });
    for connection in &mut resumed {
        it.gate.open();
        connection.event().expect("progress");
    }
    for mut connection in resumed {
        assert_eq!(
            connection.event().expect("a response")["result"]["isError"],
            false
        );
    }
}

#[test]
fn lh_03_lh_13_calls_are_resumed_where_sessions_have_no_notification_streams() {
    let it = announcing(|s| s.configured(|c| c.server.streams.per_session = 0));
    let session = it.server.session("2025-11-25");
    let get = |headers: &[(&str, &str)]| it.server.connect().get(headers).status;
    let [header] = session.headers();
    assert_eq!(get(&[header]), 405);
    assert_eq!(get(&[header, ("last-event-id", "s-1")]), 400);
    let mut connection = begin_call(&it.server, &session);
    let first = connection.any_event().expect("an event");
    drop(connection);
    it.gate.open();
    let mut back = resume(&it.server, &session, id_of(&first));
    back.event().expect("progress");
    assert_eq!(
        back.event().expect("a response")["result"]["isError"],
        false
    );
}

#[test]
fn lh_13_a_resumed_call_is_followed_to_its_response_while_the_server_stops() {
    let mut it = announcing(|serve| serve);
    let session = it.server.session("2025-06-18");
    let mut connection = begin_call(&it.server, &session);
    let progress = connection.any_event().expect("an event");
    let mut standing = open(&it.server, &session);
    let mut back = resume(&it.server, &session, id_of(&progress));
    it.server.begin_to_stop();
    // Its end shows that the streams know of the stop.
    while standing.any_event().is_some() {}
    it.gate.open();
    let response = back.event().expect("a response");
    assert_eq!(response["result"]["isError"], false);
    assert_eq!(back.any_event(), None);
}

#[test]
fn lh_15_a_stopping_server_without_replicas_keeps_streams_of_calls_open() {
    let mut it = announcing(|serve| serve.tool(releases));
    let session = it.server.session("2025-11-25");
    let mut connection = it.server.connect();
    let params = json!({"name": "releases", "_meta": {"progressToken": 7}});
    connection.send(session.text("tools/call", &params));
    assert_eq!(connection.receive_head().status, 200);
    connection.event().expect("progress");
    let mut standing = open(&it.server, &session);
    it.server.begin_to_stop();
    while standing.any_event().is_some() {}
    RELEASE.notify_one();
    let response = connection.event().expect("a response");
    assert_eq!(response["result"]["isError"], false);
}

#[test]
fn an_answer_that_is_too_large_to_keep_is_not_lost_without_a_word() {
    let server = Serve::new().tool(verbose).start();
    let session = server.session("2025-11-25");
    let mut connection = server.connect();
    connection.send(session.text("tools/call", &json!({"name": "verbose"})));
    connection.receive_head();
    let first = connection.any_event().expect("an event");
    let answer = resume(&server, &session, id_of(&first))
        .event()
        .expect("an answer");
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
}

#[test]
fn what_is_kept_of_a_call_is_bounded_in_bytes_too() {
    // Progress takes 104 bytes, its answer about as many more than that.
    let it = announcing(|s| {
        s.configured(|c| c.server.streams.replay_bytes = 150)
            .admin()
    });
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    let first = connection.any_event().expect("an event");
    let progress = connection.any_event().expect("progress");
    it.gate.open();
    let answer = connection.any_event().expect("an answer");
    assert!(answer.message.is_some());
    // The first events were evicted, so a client that has not read them cannot resume.
    let [header] = session.headers();
    let resumes = |id: &str| {
        let mut connection = it.server.connect();
        connection.get(&[header, ("last-event-id", id)]).status
    };
    assert_eq!(resumes(id_of(&first)), 400);
    assert_eq!(resumes(id_of(&progress)), 200);
    let metrics = it.server.admin_page("/metrics");
    let kept = metrics.metric("longshore_streams_replay_bytes_total");
    assert!(kept > 100.0, "{kept}");
}

#[test]
fn what_is_kept_of_a_call_is_bounded() {
    let it = announcing(|s| s.configured(|c| c.server.streams.replay_events = 2));
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    let first = connection.any_event().expect("an event");
    let progress = connection.any_event().expect("progress");
    it.gate.open();
    connection.any_event().expect("an answer");
    let [header] = session.headers();
    let head = it
        .server
        .connect()
        .get(&[header, ("last-event-id", id_of(&first))]);
    assert_eq!(head.status, 200, "only the beginning itself is gone");
    let mut back = resume(&it.server, &session, id_of(&progress));
    assert!(back.event().expect("an answer")["result"].is_object());
}

#[test]
fn can_01_a_call_that_nobody_reads_can_still_be_cancelled() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    let first = connection.any_event().expect("an event");
    drop(connection);
    it.gate.begun();
    let cancelled = notification("notifications/cancelled", &json!({"requestId": 1}));
    session.post(&cancelled).accepted();
    assert_eq!(it.gate.end(), End::Dropped);
    // The stream had sent some events before it became silent.
    let mut back = resume(&it.server, &session, id_of(&first));
    let mut messages = 0;
    while let Some(message) = back.event() {
        assert_eq!(message["method"], "notifications/progress");
        messages += 1;
    }
    assert_eq!(messages, 1);
}

#[test]
fn clients_that_resume_a_cancelled_call_get_one_stream_of_notifications() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    connection.any_event().expect("its beginning");
    let progress = connection.any_event().expect("progress");
    it.gate.begun();
    let cancelled = notification("notifications/cancelled", &json!({"requestId": 1}));
    session.post(&cancelled).accepted();
    assert_eq!(connection.any_event(), None);
    let mut back = resume(&it.server, &session, id_of(&progress));
    back.any_event().expect("its beginning");
    it.announcer.tools_changed();
    assert_eq!(back.event(), Some(changed("tools")));
    let [header] = session.headers();
    let response = it
        .server
        .connect()
        .get(&[header, ("last-event-id", id_of(&progress))]);
    assert_eq!(response.status, 405);
}

/// Keeps nothing that is appended, while it is away.
#[derive(Debug, Default)]
pub(super) struct Away {
    store: Memory,
    pub(super) is_away: Arc<AtomicBool>,
    /// True once something was not kept.
    pub(super) failed: Arc<AtomicBool>,
}

impl StandIn for Away {
    fn store(&self) -> &Memory {
        &self.store
    }

    fn instead<'a, T: Send + 'a>(&'a self, asked: AskedState) -> Option<StateFuture<'a, T>> {
        if asked != AskedState::Log || !self.is_away.load(Ordering::SeqCst) {
            return None;
        }
        self.failed.store(true, Ordering::SeqCst);
        Some(Box::pin(async {
            Err(StateError::Unreachable {
                reason: "away".to_owned(),
            })
        }))
    }
}

#[test]
fn an_answer_that_nobody_waits_for_is_kept_once_the_state_is_back() {
    let away = Away::default();
    let (is_away, failed) = (Arc::clone(&away.is_away), Arc::clone(&away.failed));
    let it = announcing(|serve| serve.app(|app| app.store(Arc::new(Fronted(away)))));
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    connection.any_event().expect("an event");
    let progress = connection.any_event().expect("progress");
    drop(connection);
    let mut back = resume(&it.server, &session, id_of(&progress));
    back.any_event().expect("its beginning");
    is_away.store(true, Ordering::SeqCst);
    it.gate.open();
    becomes(|| failed.load(Ordering::SeqCst));
    is_away.store(false, Ordering::SeqCst);
    assert_eq!(back.event().expect("an answer")["result"]["isError"], false);
}

#[test]
fn an_answer_is_kept_once_the_state_is_back_since_its_connection_may_be_broken() {
    let away = Away::default();
    let is_away = Arc::clone(&away.is_away);
    let it = announcing(|serve| serve.app(|app| app.store(Arc::new(Fronted(away)))));
    let session = it.server.session("2025-11-25");
    let mut connection = begin_call(&it.server, &session);
    connection.any_event().expect("an event");
    let progress = connection.any_event().expect("progress");
    is_away.store(true, Ordering::SeqCst);
    it.gate.open();
    // The server cannot tell whether this arrives. The stream does not wait for the state.
    let answer = connection.event().expect("an answer");
    assert_eq!(connection.event(), None);
    is_away.store(false, Ordering::SeqCst);
    let mut back = resume(&it.server, &session, id_of(&progress));
    assert_eq!(back.event(), Some(answer));
}

/// Calls `asks_twice`. Returns the first question on its stream.
fn begin_asking(server: &Running) -> (Session<'_>, Connection, Event) {
    let session = server.session_of("2025-11-25", &json!({"roots": {}}));
    let mut connection = server.connect();
    let call = session.text("tools/call", &json!({"name": "asks_twice"}));
    connection.send(call).receive_head();
    connection.any_event().expect("its beginning");
    let first = connection.any_event().expect("a question");
    (session, connection, first)
}

#[test]
fn a_question_is_kept_once_the_state_is_back_since_its_connection_may_be_broken() {
    let away = Away::default();
    let is_away = Arc::clone(&away.is_away);
    let app = App::new().tool(asks_twice).store(Arc::new(Fronted(away)));
    let server = Serve::new().app(|_| app).start();
    let (session, mut connection, first) = begin_asking(&server);
    let answer = |question: &Value| {
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
        session.post(&answer.to_string()).accepted();
    };
    is_away.store(true, Ordering::SeqCst);
    answer(first.message.as_ref().expect("a question"));
    // The server cannot tell whether this arrives.
    let second = connection.event().expect("another question");
    drop(connection);
    is_away.store(false, Ordering::SeqCst);
    let mut back = resume(&server, &session, id_of(&first));
    assert_eq!(back.event(), Some(second.clone()));
    answer(&second);
    let result = back.event().expect("an answer")["result"].take();
    assert_eq!(result["isError"], false);
}

#[test]
fn a_question_that_nobody_reads_is_kept_once_the_state_is_back() {
    let away = Away::default();
    let (is_away, failed) = (Arc::clone(&away.is_away), Arc::clone(&away.failed));
    let app = App::new().tool(asks_twice).store(Arc::new(Fronted(away)));
    let server = Serve::new().app(|_| app).start();
    let (session, mut connection, first) = begin_asking(&server);
    let answer = |question: &Value| {
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}});
        session.post(&answer.to_string()).accepted();
    };
    let mut back = resume(&server, &session, id_of(&first));
    back.any_event().expect("its beginning");
    assert_eq!(connection.any_event(), None, "it has no reader now");
    is_away.store(true, Ordering::SeqCst);
    answer(first.message.as_ref().expect("a question"));
    becomes(|| failed.load(Ordering::SeqCst));
    is_away.store(false, Ordering::SeqCst);
    let second = back.event().expect("another question");
    assert_eq!(second["method"], "roots/list");
    answer(&second);
    let result = back.event().expect("an answer")["result"].take();
    assert_eq!(result["isError"], false);
}
