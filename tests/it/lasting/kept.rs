//! Data that is stored for sessions, and its expiry.

use std::sync::Arc;

use longshore::state::Memory;
use serde_json::json;

use super::{Announcing, announcing, begin_call};
use crate::support::{End, Session, becomes};

fn serve(memory_bytes: usize) -> (Arc<Memory>, Announcing) {
    let state = Arc::new(Memory::new(memory_bytes));
    let shared = Arc::clone(&state);
    let it = announcing(|serve| serve.shared_key().app(|app| app.store(shared)));
    (state, it)
}

fn entries(state: &Memory, kind: &str) -> usize {
    use longshore::state::State as _;
    let usage = state.usage();
    let found = usage.iter().find(|usage| usage.kind == kind);
    found.map_or(0, |usage| usage.entries)
}

fn subscribe(session: &Session<'_>, uri: &str) {
    let asked = session.request("resources/subscribe", &json!({ "uri": uri }));
    asked.result();
}

#[test]
fn lh_09_what_was_kept_for_a_session_goes_with_it() {
    let (state, it) = serve(1 << 24);
    let [ended, other] = [(); 2].map(|()| it.server.session("2025-11-25"));
    for session in [&ended, &other] {
        subscribe(session, "test://watched");
        // A call whose stream was read to its end, and can be resumed for minutes.
        let mut connection = begin_call(&it.server, session);
        it.gate.open();
        while connection.any_event().is_some() {}
    }
    assert_eq!(entries(&state, "subscription"), 2);
    assert_eq!(entries(&state, "stream"), 2);
    // And one that still runs.
    let mut running = begin_call(&it.server, &ended);
    for _ in 0..2 {
        running.any_event().expect("an event");
    }
    assert_eq!(entries(&state, "stream"), 3);
    ended.end();
    becomes(|| entries(&state, "subscription") == 1 && entries(&state, "stream") == 1);
    assert_eq!(running.any_event(), None);
    let ends = [(); 3].map(|()| it.gate.end());
    assert_eq!(ends, [End::Done, End::Done, End::Dropped]);
    assert_eq!(entries(&state, "stream"), 1, "nobody can come back for it");
}

#[test]
fn subscriptions_that_were_all_taken_back_are_soon_forgotten() {
    let (state, it) = serve(1 << 24);
    let session = it.server.session("2025-11-25");
    subscribe(&session, "test://watched");
    let uri = json!({"uri": "test://watched"});
    session.request("resources/unsubscribe", &uri).result();
    becomes(|| entries(&state, "subscription") == 0);
}

#[test]
fn sessions_that_come_and_go_do_not_fill_the_state() {
    const BYTES: usize = 1 << 20;
    let (state, it) = serve(BYTES);
    let uris: Vec<String> = (0..8)
        .map(|n| format!("test://{n}/{}", "x".repeat(7_900)))
        .collect();
    // Half of them are abandoned: 20 of these have nearly 1.3 MiB.
    for n in 0..40 {
        let session = it.server.session("2025-11-25");
        for uri in &uris {
            subscribe(&session, uri);
        }
        if n % 2 == 0 {
            session.end();
        }
        assert!(state.bytes() <= BYTES, "{}", state.bytes());
    }
    // Other entries still fit.
    let session = it.server.session("2025-11-25");
    subscribe(&session, "test://watched");
    let mut connection = begin_call(&it.server, &session);
    it.gate.open();
    while connection.any_event().is_some() {}
    assert_eq!(entries(&state, "stream"), 1);
}
