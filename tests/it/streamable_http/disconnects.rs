//! Ownership of a call whose client disconnects, whose tool panics or blocks, or whose server stops.

use std::net::TcpStream;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use longshore::{Definition, tool, tool_fn};
use serde_json::{Map, Value, json};
use socket2::SockRef;

use crate::support::{End, Gate, Serve, Stateless, becomes};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// Panics, at once or after a while.
#[tool]
async fn panics(later: bool) -> String {
    if later {
        tokio::task::yield_now().await;
    }
    panic!("on purpose")
}

fn echoing() -> Stateless {
    Stateless::call("echo", json!({"message": "hi"}))
}

fn passing() -> Stateless {
    Stateless::call("gate", json!({}))
}

/// Ways to disconnect.
const GOODBYES: [fn(&TcpStream); 2] = [
    |_| {},
    // Without a linger, closing sends a reset.
    |stream| {
        let now = Some(std::time::Duration::ZERO);
        SockRef::from(stream).set_linger(now).expect("a socket");
    },
];

#[test]
fn mh_16_a_stateless_call_ends_when_its_client_goes() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(tool).tool(echo).start();
    for goodbye in GOODBYES {
        let mut connection = server.connect();
        connection.send(passing().text());
        gate.begun();
        goodbye(connection.stream());
        drop(connection);
        assert_eq!(gate.end(), End::Dropped);
    }
    echoing().send(&server).result();
}

#[test]
fn mh_16_also_when_others_call_at_the_same_time() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(tool).start();
    let mut stays = server.connect();
    stays.send(passing().text());
    gate.begun();
    let mut goes = server.connect();
    goes.send(passing().text());
    gate.begun();
    drop(goes);
    assert_eq!(gate.end(), End::Dropped);
    gate.open();
    stays.receive().result();
    assert_eq!(gate.end(), End::Done);
}

#[test]
fn lh_02_a_call_of_a_session_runs_on_when_its_client_goes() {
    let (gate, tool) = Gate::new();
    let server = Serve::new().tool(tool).tool(echo).start();
    let session = server.session("2025-11-25");
    for goodbye in GOODBYES {
        let mut connection = server.connect();
        connection.send(session.text("tools/call", &json!({"name": "gate"})));
        gate.begun();
        goodbye(connection.stream());
        drop(connection);
        // The server handles the closed connection before it responds to this request.
        session.request("ping", &json!({})).result();
        gate.assert_running();
        gate.open();
        assert_eq!(gate.end(), End::Done);
    }
}

#[test]
fn a_tool_that_panics_answers_that_one_call_with_an_error() {
    let server = Serve::new().tool(panics).tool(echo).start();
    let session = server.session("2025-06-18");
    let mut connection = server.connect();
    for later in [false, true] {
        let call = Stateless::call("panics", json!({"later": later}));
        assert_eq!(
            call.send_on(&mut connection).error(200, -32603, "1"),
            "Internal error"
        );
        connection.send(session.text(
            "tools/call",
            &json!({"name": "panics", "arguments": {"later": later}}),
        ));
        assert_eq!(
            connection.receive().error(200, -32603, "1"),
            "Internal error"
        );
        echoing().send_on(&mut connection).result();
    }
}

#[test]
fn a_tool_that_blocks_holds_up_no_other() {
    let (release, released) = mpsc::channel::<()>();
    let (tell_begun, begun) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let blocks = tool_fn(
        Definition::new("blocks"),
        move |_, _: Map<String, Value>| {
            let (released, begun) = (Arc::clone(&released), tell_begun.clone());
            async move {
                let blocked = tokio::task::spawn_blocking(move || {
                    let _ = begun.send(());
                    let _ = released.lock().map(|r| r.recv());
                });
                blocked.await?;
                Ok("done".to_owned())
            }
        },
    );
    // On one worker.
    let server = Serve::new().tool(blocks).tool(echo).start();
    let mut blocked = server.connect();
    blocked.send(Stateless::call("blocks", json!({})).text());
    begun.recv().expect("the call begins");
    for _ in 0..10 {
        echoing().send(&server).result();
    }
    drop(release);
    assert_eq!(blocked.receive().result()["content"][0]["text"], "done");
}

/// Waits for a lock.
#[tool(blocking)]
fn waits_for_a_lock() -> String {
    let _guard = LOCK.lock();
    "done".to_owned()
}

static LOCK: Mutex<()> = Mutex::new(());

#[test]
fn a_blocking_function_has_a_thread_of_its_own() {
    let held = LOCK.lock().expect("nobody panicked");
    let server = Serve::new().tool(waits_for_a_lock).tool(echo).start();
    let mut blocked = server.connect();
    blocked.send(Stateless::call("waits_for_a_lock", json!({})).text());
    echoing().send(&server).result();
    drop(held);
    assert_eq!(blocked.receive().result()["content"][0]["text"], "done");
}

#[test]
fn a_server_that_stops_lets_running_calls_finish_and_takes_no_others() {
    for revision in [None, Some("2025-11-25")] {
        let (gate, tool) = Gate::new();
        let mut server = Serve::new().tool(tool).tool(echo).start();
        let mut idle = server.connect();
        echoing().send_on(&mut idle).result();
        let mut silent = server.connect();
        let mut connection = server.connect();
        let text = match revision {
            None => passing().text(),
            Some(revision) => {
                let session = server.session(revision);
                session.text("tools/call", &json!({"name": "gate"}))
            }
        };
        connection.send(text);
        gate.begun();
        server.begin_to_stop();
        idle.assert_closed();
        silent.assert_closed();
        becomes(|| TcpStream::connect(server.address()).is_err());
        gate.assert_running();
        gate.open();
        let answer = connection.receive();
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(answer.result()["content"][0]["text"], "through");
        connection.assert_closed();
    }
}

#[test]
fn a_server_that_stops_waits_for_calls_whose_clients_are_gone() {
    let (gate, tool) = Gate::new();
    let mut server = Serve::new().tool(tool).start();
    let mut connection = server.connect();
    let text = server
        .session("2025-06-18")
        .text("tools/call", &json!({"name": "gate"}));
    connection.send(text);
    gate.begun();
    drop(connection);
    server.begin_to_stop();
    becomes(|| TcpStream::connect(server.address()).is_err());
    gate.open();
    drop(server);
    assert_eq!(gate.end(), End::Done);
}
