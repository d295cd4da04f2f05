//! Many abusive clients beside a good one. The tests check that the good one is served and the others are
//! disconnected, never how long that takes.

use std::time::Duration;

use longshore::tool;
use serde_json::json;

use crate::support::{Connection, Running, Serve, Served, Stateless, becomes, longshore};

/// Returns the message it was given.
#[tool]
async fn echo(message: String) -> String {
    message
}

/// Returns a text that fits into no socket's buffers.
#[tool]
async fn flood() -> String {
    "x".repeat(FLOOD_BYTES)
}

const FLOOD_BYTES: usize = 8 * 1024 * 1024;

const HEAD: &str = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
const MANY: usize = 150;
/// The program says its address in a line of text.
const LOG: (&str, &str) = ("LONGSHORE_LOG__FORMAT", "text");

/// A server that is patient for a second.
fn impatient() -> Running {
    Serve::new()
        .tool(echo)
        .tool(flood)
        .admin()
        .limits(|l| {
            l.header_seconds = 1;
            l.body_seconds = 1;
            l.idle_seconds = 1;
            l.write_stall_seconds = 1;
        })
        .start()
}

fn good_call() -> Stateless {
    Stateless::call("echo", json!({"message": "hi"}))
}

/// Sends a good call on a new connection, and on another one if that was closed unread: a busy machine may not read it within
/// the second that the server waits.
fn good_call_is_served(server: &Running) {
    let served = (0..10).any(|_| {
        let mut connection = server.connect();
        connection.send(good_call().text());
        let begins = matches!(connection.stream().peek(&mut [0]), Ok(1));
        if begins {
            connection.receive().result();
        }
        begins
    });
    assert!(served, "each connection was closed");
}

/// Bad clients that have all begun, while a good one is served on new connections and on one that is kept.
fn beside(server: &Running, many: usize, begin: impl Fn(&mut Connection)) -> Vec<Connection> {
    let mut kept = server.connect();
    let mut bad = Vec::new();
    for n in 0..many {
        let mut connection = server.connect();
        begin(&mut connection);
        bad.push(connection);
        if n % 10 == 0 {
            good_call_is_served(server);
            // The connection may have been closed because it was idle.
            if kept.try_send(good_call().text()).is_err() {
                kept = server.connect();
                kept.send(good_call().text());
            }
            let mut byte = [0];
            match kept.stream().peek(&mut byte) {
                Ok(1) => drop(kept.receive().result()),
                _ => kept = server.connect(),
            }
        }
    }
    good_call_is_served(server);
    bad
}

#[test]
fn slow_heads_are_let_go_of_and_hold_nobody_up() {
    let server = impatient();
    let bad = beside(&server, MANY, |connection| {
        connection.send(HEAD);
    });
    for mut connection in bad {
        // A field now and then is no progress: the head has its time as a whole.
        let _ = connection.try_send("x: y\r\n");
        connection.assert_ends();
    }
    good_call_is_served(&server);
}

#[test]
fn slow_bodies_are_let_go_of_and_hold_nobody_up() {
    let server = impatient();
    let bad = beside(&server, MANY, |connection| {
        connection.send(format!("{HEAD}content-length: 1000000\r\n\r\n{{"));
    });
    for mut connection in bad {
        connection.receive().error(408, 408, "");
        connection.assert_closed();
    }
    good_call_is_served(&server);
}

#[test]
fn slow_readers_are_let_go_of_and_hold_nobody_up() {
    let server = impatient();
    let call = Stateless::call("flood", json!({})).text();
    // No more than `limits.response_bytes` admits for one address.
    let bad = beside(&server, 10, |connection| {
        connection.send(&call);
    });
    // Nothing is read until all of them have stalled.
    let limit = "http.limits.write_stall_seconds";
    becomes(|| server.admin_page("/metrics").limit_hits(limit) == bad.len() as u64);
    for mut connection in bad {
        let arrived = connection.assert_ends();
        assert!(arrived < FLOOD_BYTES, "{arrived} bytes: the whole response");
    }
    good_call_is_served(&server);
}

#[test]
fn those_that_do_nothing_are_let_go_of_and_hold_nobody_up() {
    let server = impatient();
    for mut connection in beside(&server, MANY, |_| {}) {
        connection.assert_closed();
    }
    good_call_is_served(&server);
}

#[test]
fn connections_that_come_and_go_leave_nothing_behind() {
    let server = Serve::new()
        .tool(echo)
        .limits(|l| l.connections = 8)
        .start();
    for n in 0..300 {
        let mut gone = server.connect();
        match n % 4 {
            0 => {}
            1 => drop(gone.try_send("P")),
            2 => drop(gone.try_send(HEAD)),
            _ => drop(gone.try_send(good_call().text())),
        }
        drop(gone);
    }
    // All places are free again.
    let mut connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for connection in &mut connections {
        good_call().send_on(connection).result();
    }
}

/// The server is a process of its own, because other tests need memory too.
#[cfg(target_os = "linux")]
#[test]
fn an_endless_body_costs_its_connection_and_no_memory() {
    let program = Served::start(longshore(&["run", "--port", "0"], &[LOG]));
    let good_call_is_served = || drop(good_call().send_on(&mut program.connect()).result());
    let resident = || {
        let status = format!("/proc/{}/status", program.process.id());
        let status = std::fs::read_to_string(status).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kilobytes: u64 = kilobytes.and_then(|k| k.parse().ok()).expect("a number");
        kilobytes
    };
    good_call_is_served();
    let before = resident();
    let mut bad: Vec<_> = (0..20).map(|_| program.connect()).collect();
    for connection in &mut bad {
        // Four gibibytes are announced; nothing of that is set aside.
        connection.send(format!(
            "{HEAD}transfer-encoding: chunked\r\n\r\nffffffff\r\n"
        ));
    }
    good_call_is_served();
    for mut connection in bad {
        // The server discards some of it, so that the client can read the response.
        let chunk = " ".repeat(64 * 1024);
        let is_cut = (0..4096).any(|_| connection.try_send(&chunk).is_err());
        assert!(is_cut, "256 MiB were accepted");
        connection.assert_ends();
    }
    good_call_is_served();
    let grown = resident().saturating_sub(before);
    assert!(grown < 200_000, "{grown} KiB");
}

/// Almost without free file descriptors, the server neither spins nor stops: new connections replace idle ones.
#[cfg(unix)]
#[test]
fn without_files_idle_connections_make_room() {
    let command = format!(
        "ulimit -n 48; exec '{}' run --port 0 --workers 1",
        env!("CARGO_BIN_EXE_longshore")
    );
    let mut sh = std::process::Command::new("sh");
    sh.args(["-c", &command]).env_clear().envs([LOG]);
    let program = Served::start(sh);
    let connect = || std::net::TcpStream::connect(program.address);
    // More than it may have open, and all of them idle.
    let idle: Vec<_> = (0..80).filter_map(|_| connect().ok()).collect();
    assert!(idle.len() > 60);
    for _ in 0..5 {
        // A client that is rejected because no connection was idle long enough tries again.
        let call = Stateless::call("echo", json!({"message": "hi"})).text();
        let served = (0..200).any(|_| {
            let answered = connect().ok().is_some_and(|stream| {
                let mut connection = Connection::new(stream);
                let mut byte = [0];
                connection.try_send(&call).is_ok()
                    && matches!(connection.stream().peek(&mut byte), Ok(1))
                    && connection.receive().status == 200
            });
            if !answered {
                std::thread::sleep(Duration::from_millis(50));
            }
            answered
        });
        assert!(served, "nobody made room");
    }
    drop(idle);
}
