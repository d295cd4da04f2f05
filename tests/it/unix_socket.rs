//! A socket in the file system instead of a port.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Served, Stateless, assert_contains, becomes, longshore, said};

fn program(arguments: &[&str], socket: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = longshore(arguments, variables);
    command
        .env("LONGSHORE_HTTP__UNIX_SOCKET", socket)
        .env("LONGSHORE_LOG", "info")
        .env("LONGSHORE_LOG__FORMAT", "json");
    command
}

struct Server {
    program: Served,
    socket: PathBuf,
}

impl Server {
    fn start(socket: &Path, variables: &[(&str, &str)]) -> Self {
        let mut program = Served::spawn(program(&["run"], socket, variables));
        program.wait_for("serving");
        Self {
            program,
            socket: socket.to_owned(),
        }
    }

    fn ask(&self, text: &str) -> String {
        let mut stream = UnixStream::connect(&self.socket).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a socket");
        stream.write_all(text.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn stop(&mut self) -> Option<i32> {
        self.program.process.signal("TERM");
        self.program.process.exit_code()
    }
}

fn call() -> String {
    Stateless::call("echo", serde_json::json!({"message": "through a file"}))
        .and("connection", "close")
        .text()
}

#[test]
fn calls_and_health_checks_go_through_a_file_that_is_gone_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("longshore.sock");
    let mut server = Server::start(&socket, &[]);
    let mode = std::fs::metadata(&socket)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    let answer = server.ask(&call());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("through a file"), "{answer}");
    let (code, text) = said(&mut program(&["healthcheck"], &socket, &[]));
    assert_eq!(code, Some(0), "{text}");
    // A second server leaves it alone.
    let (code, text) = said(&mut program(&["run"], &socket, &[]));
    assert_eq!(code, Some(1));
    assert_contains(&text, &["longshore.sock", "http.unix_socket"]);
    assert_eq!(server.stop(), Some(0));
    assert!(!socket.exists());
    let (code, _) = said(&mut program(&["healthcheck"], &socket, &[]));
    assert_eq!(code, Some(1));
}

#[test]
fn what_a_server_that_is_gone_has_left_is_taken_over_and_nothing_else_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("longshore.sock");
    // A killed process leaves its socket.
    drop(UnixListener::bind(&socket).expect("bound"));
    assert!(socket.exists());
    let mut server = Server::start(&socket, &[("LONGSHORE_HTTP__UNIX_SOCKET_MODE", "600")]);
    let mode = std::fs::metadata(&socket)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(server.ask(&call()).contains("through a file"));
    // Another process has created its own socket in the meantime.
    std::fs::remove_file(&socket).expect("removed");
    let _other = UnixListener::bind(&socket).expect("bound");
    assert_eq!(server.stop(), Some(0));
    assert!(socket.exists(), "what is somebody else's stays");

    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "dear diary").expect("written");
    let (code, _) = said(&mut program(&["run"], &file, &[]));
    assert_eq!(code, Some(1));
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "dear diary");
    for mode in ["rw", "888", "1777"] {
        let variables = [("LONGSHORE_HTTP__UNIX_SOCKET_MODE", mode)];
        let (code, text) = said(&mut program(&["run"], &socket, &variables));
        assert_eq!(code, Some(1));
        assert!(text.contains("digits of chmod"), "{text}");
    }
}

#[test]
fn a_signal_before_anything_is_served_ends_it_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let started = folder.path().join("started");
    let script = folder.path().join("upstream.sh");
    // It never responds, so that the server never starts to serve.
    let text = format!("#!/bin/sh\ntouch {}\nexec sleep 600\n", started.display());
    std::fs::write(&script, text).expect("written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let socket = folder.path().join("longshore.sock");
    let variables = [
        (
            "LONGSHORE_UPSTREAMS__SLOW__COMMAND",
            script.to_str().expect("UTF-8"),
        ),
        ("LONGSHORE_UPSTREAMS_WAIT_SECONDS", "60"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let mut server = Server {
        program: Served::spawn(program(&["run"], &socket, &variables)),
        socket,
    };
    becomes(|| started.exists());
    assert!(!server.socket.exists());
    let told = Instant::now();
    assert_eq!(server.stop(), Some(0));
    // The start would wait for the upstream server for 60 s.
    assert!(
        told.elapsed() < Duration::from_secs(30),
        "{:?}",
        told.elapsed()
    );
}
