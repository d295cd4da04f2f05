//! The real program, told to stop while it is busy.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{
    Connection, KillOnDrop, Served, Stateless, assert_contains, becomes, free_port, longshore, run,
};

/// `longshore run` with the demo toolset.
fn start(variables: &[(&str, &str)]) -> Served {
    let logs = [
        ("LONGSHORE_LOG__LEVEL", "warn"),
        ("LONGSHORE_LOG__FORMAT", "text"),
    ];
    let arguments = ["run", "--host", "127.0.0.1", "--port", "0"];
    let mut command = longshore(&arguments, &logs);
    command.envs(variables.iter().copied());
    Served::start(command)
}

/// Starts the program with a port for operators too, which is returned.
fn start_with_admin(variables: &[(&str, &str)]) -> (Served, u16) {
    let admin = free_port();
    let port = admin.to_string();
    let port = ("LONGSHORE_HTTP__ADMIN__PORT", &*port);
    (start(&[&[port], variables].concat()), admin)
}

/// Waits until the program with this port for operators has begun as many calls.
fn until_it_calls(admin: u16, calls: f64) {
    becomes(|| {
        let stream = TcpStream::connect(("127.0.0.1", admin)).expect("it listens");
        let metrics = Connection::new(stream).page("/metrics");
        metrics.metric("mcp_inflight_requests") == calls
    });
}

fn waits(seconds: f64) -> Stateless {
    Stateless::call("wait", json!({ "seconds": seconds }))
}

/// Sends a request over its own connection. Returns `None` if the connection is refused, and `Err` if it ends before
/// the response.
fn ask(address: SocketAddr, text: &str) -> Option<Result<Value, String>> {
    let mut stream = TcpStream::connect(address).ok()?;
    let asked = stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .and_then(|()| stream.write_all(text.as_bytes()));
    match asked {
        Ok(()) => {}
        // The system accepted the connection, but the server did not.
        Err(error) if is_gone(&error) => return None,
        Err(error) => return Some(Err(error.to_string())),
    }
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&part[..length]),
            Err(error) if answer.is_empty() && is_gone(&error) => {}
            Err(error) => return Some(Err(error.to_string())),
        }
        if answer.is_empty() {
            break;
        }
    }
    if answer.is_empty() {
        // Accepted by the system after the program had stopped to look.
        return None;
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    Some(serde_json::from_str(body.unwrap_or_default()).map_err(|e| format!("{e}: {answer}")))
}

fn is_gone(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

#[test]
fn no_call_that_ends_before_the_deadline_fails_when_the_program_is_told_to_stop() {
    let mut program = start(&[
        ("LONGSHORE_DRAIN__GRACE_SECONDS", "20"),
        ("LONGSHORE_DRAIN__DELAY_SECONDS", "1"),
    ]);
    let address = program.address;
    let told: Arc<OnceLock<Instant>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let (told, stop) = (Arc::clone(&told), Arc::clone(&stop));
            let answered = Arc::clone(&answered);
            // Some take no time, some go on for a while.
            let seconds = f64::from(number % 4) * 0.3;
            let text = waits(seconds).and("connection", "close").text();
            thread::spawn(move || {
                let mut after = 0;
                while !stop.load(Ordering::Relaxed) {
                    match ask(address, &text) {
                        Some(Ok(answer)) => {
                            assert_eq!(answer["result"]["isError"], false, "{answer}");
                            answered.fetch_add(1, Ordering::Relaxed);
                            after += usize::from(told.get().is_some());
                        }
                        Some(Err(error)) => panic!("a call failed: {error}"),
                        // The listener is closed: never before the signal, and not within the first second after it.
                        None => {
                            let since = told.get().map(Instant::elapsed);
                            assert!(Some(Duration::from_secs(1)) <= since, "{since:?}");
                            break;
                        }
                    }
                }
                after
            })
        })
        .collect();
    // A call that began before the signal, and takes longer than the delay.
    let mut long = program.connect();
    long.send(waits(3.0).text());
    becomes(|| answered.load(Ordering::Relaxed) >= 50);
    let _ = told.set(Instant::now());
    program.process.signal("TERM");
    let response = long.receive();
    assert_eq!(response.result()["isError"], false);
    assert_eq!(program.process.exit_code(), Some(0));
    stop.store(true, Ordering::Relaxed);
    let after: usize = clients
        .into_iter()
        .map(|c| c.join().expect("no call failed"))
        .sum();
    assert!(after > 0, "calls were served while it drained");
}

#[test]
fn readiness_ends_with_the_signal_and_a_call_that_never_ends_is_told() {
    let (mut program, admin) = start_with_admin(&[
        ("LONGSHORE_DRAIN__GRACE_SECONDS", "5"),
        ("LONGSHORE_DRAIN__DELAY_SECONDS", "0"),
    ]);
    let mut endless = program.connect();
    endless.send(waits(60.0).text());
    // A client that never reads must not keep it.
    let mut deaf = program.connect();
    deaf.send(
        waits(60.0)
            .params(|p| p["_meta"]["progressToken"] = json!(1))
            .text(),
    );
    until_it_calls(admin, 2.0);
    let mut probe = program.connect();
    let ready = "GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(probe.send(ready).receive().status, 200);
    let start = Instant::now();
    program.process.signal("TERM");
    let message = endless.receive().json()["error"]["message"].to_string();
    assert!(message.contains("stopping"), "{message}");
    assert_eq!(program.process.exit_code(), Some(0));
    // Five seconds of grace; the rest is the patience of a busy machine.
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (second, code) in [("TERM", 143), ("INT", 130)] {
        let (mut program, admin) = start_with_admin(&[]);
        let mut endless = program.connect();
        endless.send(waits(60.0).text());
        until_it_calls(admin, 1.0);
        program.process.signal("TERM");
        // The first signal has been handled once nobody listens any more.
        becomes(|| TcpStream::connect(program.address).is_err());
        program.process.signal(second);
        assert_eq!(program.process.exit_code(), Some(code), "{second}");
    }
}

#[test]
fn a_client_of_http_2_that_confirms_nothing_does_not_delay_a_stop() {
    let grace = ("LONGSHORE_DRAIN__GRACE_SECONDS", "60");
    let mut program = start(&[grace]);
    let mut client = TcpStream::connect(program.address).expect("it listens");
    // The preface and empty SETTINGS. Pings get no response.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    client.write_all(preface).expect("sent");
    let mut head = [0; 9];
    client.read_exact(&mut head).expect("the server's SETTINGS");
    program.process.signal("TERM");
    assert_eq!(program.process.exit_code(), Some(0));
}

#[test]
fn a_client_that_sends_part_of_a_head_does_not_delay_a_stop() {
    let mut program = start(&[
        ("LONGSHORE_HTTP__LIMITS__HEADER_SECONDS", "600"),
        ("LONGSHORE_DRAIN__GRACE_SECONDS", "600"),
    ]);
    let mut slow = TcpStream::connect(program.address).expect("it listens");
    slow.write_all(b"POST /mcp HTTP/1.1\r\nhost: ")
        .expect("sent");
    // Only a serving program handles signals.
    let ready = "GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(program.connect().send(ready).receive().status, 200);
    program.process.signal("TERM");
    assert_eq!(program.process.exit_code(), Some(0));
}

#[test]
fn a_client_that_does_not_begin_its_tls_handshake_does_not_delay_a_stop() {
    let file = |name| format!("{}/tests/it/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let port = free_port();
    let arguments = ["run", "--host", "127.0.0.1", "--port", &port.to_string()];
    let variables = [
        ("LONGSHORE_HTTP__TLS__CERTIFICATE", &*file("server.crt")),
        ("LONGSHORE_HTTP__TLS__KEY", &file("server.key")),
        ("LONGSHORE_HTTP__TLS__HANDSHAKE_SECONDS", "600"),
        ("LONGSHORE_DRAIN__GRACE_SECONDS", "600"),
    ];
    let mut program = Served::spawn(longshore(&arguments, &variables));
    program.wait_for("https://");
    let connect = || TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    // Only a serving program handles signals.
    let mut first = connect();
    first.write_all(b"not TLS\r\n\r\n").expect("sent");
    first.read_exact(&mut [0]).expect("an alert");
    let _silent = connect();
    program.process.signal("TERM");
    assert_eq!(program.process.exit_code(), Some(0));
}

#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    // The pipe is never read beyond the greeting, and each call is logged several times.
    let program = start(&[("LONGSHORE_LOG__LEVEL", "trace")]);
    let mut connection = program.connect();
    for _ in 0..2_000 {
        let response = connection
            .send(Stateless::call("fail", json!({})).text())
            .receive();
        assert_eq!(response.status, 200);
    }
}

#[test]
fn healthcheck_says_by_its_exit_code_how_the_server_is() {
    let program = start(&[]);
    let check = |arguments: &[&str]| run(longshore(&["healthcheck"], &[]).args(arguments));
    let port = program.address.port().to_string();
    let url = format!("http://127.0.0.1:{port}");
    let (code, ..) = check(&["--url", &format!("{url}/readyz")]);
    assert_eq!(code, Some(0));
    let (code, _, said) = check(&["--url", &format!("{url}/nowhere")]);
    assert_eq!(code, Some(1), "{said}");
    assert_contains(&said, &["404"]);
    for arguments in [&["--port", &port][..], &["--port", &port, "--live"]] {
        let (code, stdout, stderr) = check(arguments);
        assert_eq!(code, Some(0), "{stderr}");
        let said: Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(said["ok"], true);
    }
    let (code, _, said) = check(&["--port", &free_port().to_string()]);
    assert_eq!(code, Some(1));
    assert_contains(&said, &["does not respond"]);
}

/// Starts the program with a socket that is handed over as by systemd: it is file 3, and the variables name the process
/// that it is for.
fn start_on(socket: impl Into<OwnedFd>, arguments: &str) -> KillOnDrop {
    let script =
        format!(r#"exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" run {arguments}"#);
    let child = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_longshore")])
        .stdin(socket.into())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    KillOnDrop(child.expect("it starts"))
}

#[test]
fn a_socket_that_was_handed_over_is_listened_on() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let _program = start_on(listener, "--port 1");
    // The system takes the connection before the program does.
    let mut connection = Connection::new(TcpStream::connect(address).expect("it listens"));
    let ready = "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    assert_eq!(connection.send(ready).receive().status, 200);
}

#[test]
fn what_is_local_is_said_by_the_socket_that_was_handed_over_and_not_by_the_settings() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let _program = start_on(listener, "--host 0.0.0.0 --insecure");
    let status = |path: &str, host: &str| {
        let mut connection = Connection::new(TcpStream::connect(address).expect("it listens"));
        let get = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        connection.send(get).receive().status
    };
    let statuses = [
        status("/tools", "localhost"),
        // The guard against DNS rebinding, and the playground.
        status("/tools", "mcp.example.com"),
        status("/", "localhost"),
    ];
    assert_eq!(statuses, [200, 403, 200]);
}

#[cfg(unix)]
#[test]
fn a_socket_in_the_file_system_that_was_handed_over_is_listened_on_and_left() {
    use std::os::unix::net::{UnixListener, UnixStream};

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mcp.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let mut program = start_on(listener, "--port 1");
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("a socket");
    // A proxy forwards the original host name.
    let ready = "GET /livez HTTP/1.1\r\nhost: mcp.example.com\r\nconnection: close\r\n\r\n";
    stream.write_all(ready.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    program.signal("TERM");
    assert_eq!(program.exit_code(), Some(0));
    assert!(path.exists(), "whoever made it removes it");
}
