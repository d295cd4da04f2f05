//! The stream that a session opens by GET.

use serde_json::{Value, json};

use super::{announcing, changed, id_of, open, resume, updated};
use crate::support::{Connection, Serve, assert_contains, becomes};

#[test]
fn lh_14_lh_16_a_stream_begins_with_an_id_for_clients_that_know_of_that() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let first = open(&it.server, &session).any_event().expect("an event");
    assert!(id_of(&first).starts_with("s-"), "{first:?}");
    // The Java SDK rejects a stream with a delay.
    assert_eq!((first.data.as_deref(), first.retry), (Some(""), None));
    let session = it.server.session("2025-06-18");
    let mut connection = open(&it.server, &session);
    it.announcer.tools_changed();
    let first = connection.any_event().expect("an event");
    assert_eq!(first.message, Some(changed("tools")));
    assert!(first.id.is_some());
}

#[test]
fn a_stream_begins_with_a_delay_that_is_configured() {
    let it = announcing(|s| s.configured(|c| c.server.streams.retry_ms = 2500));
    let session = it.server.session("2025-11-25");
    let first = open(&it.server, &session).any_event().expect("an event");
    assert!(id_of(&first).starts_with("s-"), "{first:?}");
    assert_eq!((first.data.as_deref(), first.retry), (Some(""), Some(2500)));
}

#[test]
fn list_03_a_session_hears_of_every_list_that_changes() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    for capability in ["tools", "resources", "prompts"] {
        let declared = &session.initialized["capabilities"][capability];
        assert_eq!(declared["listChanged"], true, "{capability}");
    }
    let mut connection = open(&it.server, &session);
    it.announcer.tools_changed();
    assert_eq!(connection.event(), Some(changed("tools")));
    it.announcer.prompts_changed();
    assert_eq!(connection.event(), Some(changed("prompts")));
    it.announcer.resources_changed();
    assert_eq!(connection.event(), Some(changed("resources")));
}

#[test]
fn sub_08_updates_go_to_the_session_that_has_subscribed_and_to_no_other() {
    let it = announcing(|serve| serve);
    let (one, other) = (
        it.server.session("2025-11-25"),
        it.server.session("2025-03-26"),
    );
    assert_eq!(
        one.initialized["capabilities"]["resources"]["subscribe"],
        true
    );
    let mut connections = [open(&it.server, &one), open(&it.server, &other)];
    let watched = json!({"uri": "test://watched"});
    assert_eq!(
        one.request("resources/subscribe", &watched).result(),
        json!({})
    );
    it.announcer.resource_changed("test://watched");
    it.announcer.resource_changed("test://other");
    it.announcer.tools_changed();
    let [of_one, of_other] = &mut connections;
    assert_eq!(of_one.event(), Some(updated("test://watched")));
    assert_eq!(of_one.event(), Some(changed("tools")));
    assert_eq!(of_other.event(), Some(changed("tools")));
    // A stream that is opened later knows too.
    let mut later = open(&it.server, &one);
    it.announcer.resource_changed("test://watched");
    assert_eq!(later.event(), Some(updated("test://watched")));
    for uri in ["test://watched", "test://never"] {
        let gone = one.request("resources/unsubscribe", &json!({ "uri": uri }));
        assert_eq!(gone.result(), json!({}));
    }
    it.announcer.resource_changed("test://watched");
    it.announcer.prompts_changed();
    assert_eq!(later.event(), Some(changed("prompts")));
}

#[test]
fn what_can_be_subscribed_to_is_bounded_and_has_a_scheme() {
    let server = announcing(|s| s.configured(|c| c.server.streams.subscriptions = 3)).server;
    let session = server.session("2025-11-25");
    let subscribe = |params: Value| session.request("resources/subscribe", &params);
    for n in 0..3 {
        subscribe(json!({"uri": format!("x://{n}")})).result();
    }
    let message = subscribe(json!({"uri": "x://3"})).error(200, -32602, "1");
    assert_contains(&message, &["server.streams.subscriptions"]);
    // An existing subscription takes no further room.
    subscribe(json!({"uri": "x://2"})).result();
    for wrong in [
        json!({}),
        json!({"uri": 1}),
        json!({"uri": "no scheme"}),
        json!({"uri": format!("x://{}", "a".repeat(9000))}),
    ] {
        subscribe(wrong).error(200, -32602, "1");
    }
}

#[test]
fn lh_05_what_there_is_to_say_goes_to_the_newest_stream_only() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-06-18");
    let mut older = open(&it.server, &session);
    let mut newer = open(&it.server, &session);
    it.announcer.tools_changed();
    assert_eq!(newer.event(), Some(changed("tools")));
    drop(newer);
    // The server hears of that soon.
    let heard = std::thread::spawn(move || older.event());
    becomes(|| {
        it.announcer.prompts_changed();
        heard.is_finished()
    });
    assert_eq!(heard.join().expect("no panic"), Some(changed("prompts")));
}

#[test]
fn there_are_so_many_streams_and_no_more_whoever_has_them() {
    use crate::support::Stateless;
    let server = announcing(|s| s.configured(|c| c.server.streams.total = 2)).server;
    let listen = Stateless::new("subscriptions/listen", json!({"notifications": {}}));
    let session = server.session("2025-11-25");
    let one = open(&server, &session);
    let mut two = server.connect();
    two.send(listen.text());
    assert_eq!(two.receive_head().status, 200);
    let refused = || {
        let mut connection = server.connect();
        connection.send(listen.text());
        let head = connection.receive_head();
        (head.status == 429).then(|| {
            let length = head.header("content-length").expect("a length");
            connection.body(length.parse().expect("a length"))
        })
    };
    let body = refused().expect("a refusal");
    assert_contains(&body, &["\"setting\":\"server.streams.total\""]);
    drop(one);
    becomes(|| refused().is_none());
}

#[test]
fn a_caller_with_a_name_has_so_many_streams_over_all_its_sessions() {
    use crate::auth::{BOB, CI, bearer, with_keys};
    use crate::support::Stateless;
    let server = announcing(|s| {
        s.configured(|c| {
            with_keys(c);
            c.server.streams.per_principal = 1;
        })
    })
    .server;
    let listen = |key: &str| {
        let listen = Stateless::new("subscriptions/listen", json!({"notifications": {}}));
        let mut connection = server.connect();
        connection.send(listen.and("authorization", &bearer(key)).text());
        let head = connection.receive_head();
        (head.status, connection)
    };
    let (status, one) = listen(CI);
    assert_eq!((status, listen(CI).0, listen(BOB).0), (200, 429, 200));
    drop(one);
    becomes(|| listen(CI).0 == 200);
}

#[test]
fn a_session_has_so_many_streams_and_no_more() {
    let server = announcing(|s| s.configured(|c| c.server.streams.per_session = 2)).server;
    let session = server.session("2025-11-25");
    let other = server.session("2025-11-25");
    let one = open(&server, &session);
    let _two = open(&server, &session);
    let refused = || {
        let mut connection = server.connect();
        let mut head = connection.get(&session.headers());
        (head.status == 429).then(|| {
            let length = head.header("content-length").expect("a length");
            head.body = connection.body(length.parse().expect("a length"));
            head
        })
    };
    let refusal = refused().expect("a refusal");
    assert_eq!(refusal.header("retry-after"), Some("5"));
    let body = refusal.json();
    assert_eq!(
        body["error"]["data"]["setting"],
        "server.streams.per_session"
    );
    assert_eq!(body["error"]["code"], 429);
    let _theirs = open(&server, &other);
    drop(one);
    becomes(|| refused().is_none());
}

#[test]
fn lh_13_a_stream_that_broke_is_told_what_it_missed_once_each() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    session
        .request("resources/subscribe", &json!({"uri": "test://watched"}))
        .result();
    let mut connection = open(&it.server, &session);
    let first = connection.any_event().expect("an event");
    it.announcer.tools_changed();
    let told = connection.any_event().expect("an event");
    drop(connection);
    for _ in 0..3 {
        it.announcer.resource_changed("test://watched");
        it.announcer.resource_changed("test://other");
    }
    it.announcer.prompts_changed();
    // Once another client has received the notification, it has been delivered.
    let other = it.server.session("2025-06-18");
    let mut witness = resume(&it.server, &other, id_of(&first));
    while witness.event() != Some(changed("prompts")) {}
    let mut back = resume(&it.server, &session, id_of(&told));
    let events: Vec<_> = std::iter::from_fn(|| back.any_event()).take(3).collect();
    let begins = Some(format!("{}a", id_of(&told)));
    assert_eq!(events[0].id, begins, "where it was");
    let messages: Vec<_> = events[1..].iter().map(|e| e.message.clone()).collect();
    assert_eq!(
        messages,
        [Some(updated("test://watched")), Some(changed("prompts"))]
    );
    // And from its very beginning.
    let mut back = resume(&it.server, &session, id_of(&first));
    assert_eq!(back.event(), Some(changed("tools")));
    assert_eq!(back.event(), Some(updated("test://watched")));
    assert_eq!(back.event(), Some(changed("prompts")));
    it.announcer.resources_changed();
    assert_eq!(back.event(), Some(changed("resources")));
}

/// Reads a refusal of a GET.
fn refused(connection: &mut Connection, headers: &[(&str, &str)]) -> crate::support::Response {
    let mut head = connection.get(headers);
    let length = head.header("content-length").expect("a length");
    head.body = connection.body(length.parse().expect("a length"));
    head
}

#[test]
fn an_id_that_is_none_of_this_stream_is_no_place_to_begin() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut connection = it.server.connect();
    for unknown in [
        "x".to_owned(),
        "s-".to_owned(),
        format!("s-{}", "9".repeat(30)),
        "0123456789abcdef-1".to_owned(),
        "9".repeat(1000),
    ] {
        let [session] = session.headers();
        let headers = [session, ("last-event-id", unknown.as_str())];
        refused(&mut connection, &headers).error(400, 400, "");
    }
    // The session still works.
    session.request("ping", &json!({})).result();
}

/// Clients that come back after a restart, or after the store lost its data, must not do without notifications.
#[test]
fn after_an_event_that_is_forgotten_everything_may_have_changed() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let watched = json!({"uri": "test://watched"});
    session.request("resources/subscribe", &watched).result();
    let id = open(&it.server, &session).any_event().expect("an event");
    let number: u64 = id_of(&id)["s-".len()..].parse().expect("a number");
    for forgotten in [0, number - 1000, number + 1000] {
        let mut back = resume(&it.server, &session, &format!("s-{forgotten}"));
        let first = back.any_event().expect("an event");
        assert_eq!(id_of(&first), id_of(&id), "{forgotten}");
        for list in ["tools", "prompts", "resources"] {
            assert_eq!(back.event(), Some(changed(list)), "{forgotten}");
        }
        assert_eq!(back.event(), Some(updated("test://watched")), "{forgotten}");
    }
}

#[test]
fn lh_07_lh_08_http_07_who_may_open_a_stream() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut connection = it.server.connect();
    refused(&mut connection, &[]).error(400, -32600, "");
    refused(&mut connection, &[("mcp-session-id", "made-up")]).error(404, 404, "");
    let [id] = session.headers();
    let json_only = [id, ("accept", "application/json")];
    let message = refused(&mut connection, &json_only).error(406, 406, "");
    assert!(
        message.ends_with("must allow text/event-stream"),
        "{message}"
    );
    let unknown = [id, ("mcp-protocol-version", "2031-01-01")];
    refused(&mut connection, &unknown).error(400, -32022, "");
    let stateless = [id, ("mcp-protocol-version", "2026-07-28")];
    refused(&mut connection, &stateless).error(405, 405, "");
}

#[test]
fn lh_09_a_session_that_ends_takes_its_streams_along() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut connection = open(&it.server, &session);
    connection.any_event().expect("an event");
    session.end();
    assert_eq!(connection.any_event(), None);
    let mut connection = it.server.connect();
    refused(&mut connection, &session.headers()).error(404, 404, "");
}

#[test]
fn lh_15_a_server_that_stops_has_its_clients_come_back() {
    let mut it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let (mut one, mut two) = (open(&it.server, &session), {
        let other = it.server.session("2025-06-18");
        open(&it.server, &other)
    });
    one.any_event().expect("an event");
    it.server.begin_to_stop();
    let last = one.any_event().expect("an event");
    let retry = last.retry.expect("a time");
    assert!((500..=3000).contains(&retry), "{retry}");
    assert_eq!((last.id, last.data), (None, None));
    assert_eq!(one.any_event(), None, "a proper end");
    // The Go SDK 1.2 reads any event as a message, and closes its session for one without data.
    assert_eq!(two.any_event(), None, "a proper end");
}

#[test]
fn a_stream_lives_only_so_long() {
    let server = announcing(|s| s.configured(|c| c.server.streams.max_age_seconds = 1)).server;
    let session = server.session("2025-11-25");
    let mut connection = open(&server, &session);
    connection.any_event().expect("an event");
    let last = connection.any_event().expect("an event");
    assert!(last.retry.is_some() && last.data.is_none(), "{last:?}");
    assert_eq!(connection.any_event(), None);
    session.request("ping", &json!({})).result();
}

/// The Go SDK closes its session after six streams that end without a new id.
#[test]
fn an_idle_stream_that_is_resumed_again_and_again_begins_with_a_new_id() {
    let it = announcing(|serve| serve);
    let session = it.server.session("2025-11-25");
    let mut last = open(&it.server, &session).any_event().expect("an event");
    for _ in 0..3 {
        let next = resume(&it.server, &session, id_of(&last)).any_event();
        let next = next.expect("an event");
        assert_ne!(next.id, last.id);
        last = next;
    }
    it.announcer.tools_changed();
    let mut back = resume(&it.server, &session, id_of(&last));
    assert_eq!(back.event(), Some(changed("tools")));
}

#[test]
fn lh_03_a_server_without_streams_says_so() {
    let server = Serve::demo_with(|c| c.server.streams.per_session = 0);
    let session = server.session("2025-11-25");
    let mut connection = server.connect();
    let response = refused(&mut connection, &session.headers());
    response.error(405, 405, "");
    assert_eq!(response.header("allow"), Some("POST, DELETE"));
}

#[test]
fn one_address_without_a_name_has_so_many_streams() {
    use crate::support::Stateless;
    let server = announcing(|s| s.configured(|c| c.server.streams.per_address = Some(1))).server;
    let session = server.session("2025-11-25");
    let one = open(&server, &session);
    let listen = Stateless::new("subscriptions/listen", json!({"notifications": {}}));
    let refused = listen.send(&server);
    assert_eq!(refused.status, 429);
    let setting = &refused.json()["error"]["data"]["setting"];
    assert_eq!(setting, "server.streams.per_address");
    drop(one);
    becomes(|| {
        let mut again = server.connect();
        again.send(listen.text());
        again.receive_head().status == 200
    });
}
