//! Connections and the threads that serve them.

use std::collections::BTreeMap;

use longshore::tool;
use serde_json::json;

use crate::support::{Connection, Running, Serve, Stateless};

/// Names the thread that runs it.
#[tool]
async fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

fn two_workers() -> Running {
    Serve::new()
        .tool(thread)
        .configured(|c| c.http.workers = Some(2))
        .start()
}

fn thread_of(connection: &mut Connection) -> String {
    let answer = Stateless::call("thread", json!({})).send_on(connection);
    answer.result()["content"][0]["text"]
        .as_str()
        .expect("a name")
        .to_owned()
}

#[test]
fn few_connections_are_spread_as_evenly_as_many() {
    for count in [4, 8, 64] {
        let server = two_workers();
        let mut connections: Vec<_> = (0..count).map(|_| server.connect()).collect();
        let mut threads = BTreeMap::<_, usize>::new();
        for connection in &mut connections {
            *threads.entry(thread_of(connection)).or_default() += 1;
        }
        let expected =
            ["longshore-worker-0", "longshore-worker-1"].map(|name| (name.to_owned(), count / 2));
        assert_eq!(threads, expected.into());
    }
}

#[test]
fn a_connection_stays_where_it_is() {
    let server = two_workers();
    let mut connections = [server.connect(), server.connect(), server.connect()];
    let first = connections.each_mut().map(thread_of);
    for _ in 0..5 {
        assert_eq!(connections.each_mut().map(thread_of), first);
    }
}

#[test]
fn a_place_that_is_given_up_is_given_to_the_next() {
    let server = two_workers();
    let mut stays = server.connect();
    let mut goes = server.connect();
    let (kept, freed) = (thread_of(&mut stays), thread_of(&mut goes));
    assert_ne!(kept, freed);
    goes.finish().assert_closed();
    drop(goes);
    // The client sees the end a moment before the place is free.
    let is_given_again = (0..1_000).any(|_| thread_of(&mut server.connect()) == freed);
    assert!(is_given_again, "{freed} was left by its connection");
    assert_eq!(thread_of(&mut stays), kept);
}

#[test]
fn a_session_is_known_to_all_workers() {
    let server = two_workers();
    let session = server.session("2025-06-18");
    let call = session.text("tools/call", &json!({"name": "thread"}));
    let mut connections = [server.connect(), server.connect()];
    let threads = connections.each_mut().map(|connection| {
        let answer = connection.send(&call).receive().result();
        answer["content"][0]["text"].to_string()
    });
    assert_ne!(threads[0], threads[1]);
    // And so is its end.
    let delete = format!(
        "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {}\r\n\r\n",
        session.id
    );
    assert_eq!(connections[0].send(delete).receive().status, 200);
    for connection in &mut connections {
        connection.send(&call).receive().error(404, 404, "");
    }
}
