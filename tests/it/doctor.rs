//! `longshore doctor`, on this machine and against servers that are well and that are not.

mod access;
mod machine;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use crate::support::{Running, Serve, free_port, longshore, run};

/// Output and exit code of `doctor`.
struct Said {
    code: Option<i32>,
    json: Value,
}

impl Said {
    /// The finding of a check, which has to be there.
    fn finding(&self, area: &str, check: &str) -> &Value {
        self.find(area, check)
            .unwrap_or_else(|| panic!("there is no {area}: {check} in {:#}", self.json))
    }

    fn find(&self, area: &str, check: &str) -> Option<&Value> {
        let findings = self.json["findings"].as_array().expect("findings");
        findings
            .iter()
            .find(|finding| finding["area"] == area && finding["check"] == check)
    }

    fn assert(&self, area: &str, check: &str, status: &str, parts: &[&str]) {
        let finding = self.finding(area, check);
        assert_eq!(finding["status"], status, "{finding:#}");
        let text = finding.to_string();
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {finding:#}");
        }
        let needs_advice = matches!(status, "warning" | "failure");
        assert_eq!(finding["code"].is_string(), needs_advice, "{finding:#}");
        let has_advice = finding["advice"]
            .as_array()
            .is_some_and(|all| !all.is_empty());
        assert!(has_advice || !needs_advice, "{finding:#}");
        assert!(status != "ok" || !has_advice, "{finding:#}");
    }
}

fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Said {
    let mut command = longshore(&["doctor", "--json"], variables);
    command
        .args(arguments)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let (code, stdout, stderr) = run(&mut command);
    let json = serde_json::from_str(&stdout);
    let json = json.unwrap_or_else(|error| panic!("{error}: {stdout} {stderr}"));
    Said { code, json }
}

/// Examines a server that stands alone.
fn examine(address: SocketAddr) -> Said {
    doctor(&["--url", &at(address)], &[])
}

/// The same, and watches its stream for a second.
fn watch(address: SocketAddr) -> Said {
    doctor(&["--url", &at(address), "--hold", "1"], &[])
}

fn at(address: SocketAddr) -> String {
    format!("http://{address}/mcp")
}

/// An address at which nobody listens.
fn nobody() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// A server that others may stand in front of.
fn demo() -> Serve {
    Serve::new().configured(|c| {
        c.toolsets.push("demo".to_owned());
        c.http.allowed_hosts = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    })
}

/// Starts a proxy between `doctor` and its server: each connection is passed to a function.
fn in_front(each: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let each = Arc::new(each);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let each = Arc::clone(&each);
            std::thread::spawn(move || each(stream));
        }
    });
    address
}

/// Modification of a response, depending on what has arrived.
enum Filter {
    Pass,
    /// Forwards at most this many bytes.
    HoldAfter(usize),
}

/// Passes on both ways, what the server says through a filter.
fn pass_on(client: TcpStream, server: SocketAddr, filter: impl Fn(&[u8]) -> Filter) {
    let Ok(mut server) = TcpStream::connect(server) else {
        return;
    };
    let (Ok(mut up), Ok(mut to_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut up, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let mut client = client;
    let (mut said, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        let before = said.len();
        said.extend_from_slice(&buffer[..read]);
        let until = match filter(&said) {
            Filter::Pass => said.len(),
            Filter::HoldAfter(bytes) => bytes.max(before),
        };
        if client
            .write_all(&said[before..until.min(said.len())])
            .is_err()
        {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn is_stream(said: &[u8]) -> bool {
    String::from_utf8_lossy(said).contains("text/event-stream")
}

/// Answers everything alike.
fn answering(head: &'static str) -> SocketAddr {
    in_front(move |mut stream| {
        let mut buffer = [0; 16 * 1024];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(head.as_bytes());
    })
}

#[test]
fn a_stream_that_never_pauses_is_given_up() {
    let front = in_front(|mut stream| {
        let _ = stream.read(&mut [0; 16 * 1024]);
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        let mut sent = stream.write_all(head);
        while sent.is_ok() {
            sent = stream.write_all(&b": x\n\n".repeat(10_000));
        }
    });
    let said = doctor(&["--url", &at(front), "--patience", "1"], &[]);
    said.assert("access", "endpoint", "failure", &["not complete within 1s"]);
}

#[test]
fn nothing_is_wrong_with_a_server_of_ours() {
    let server = demo().start();
    let said = watch(server.address());
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    assert_eq!(said.json["failures"], 0, "{:#}", said.json);
    assert_eq!(said.json["warnings"], 0, "{:#}", said.json);
    for (area, check) in [
        ("tls", "encryption"),
        ("network", "clock"),
        ("health", "pages"),
        ("protocol", "sessions"),
        ("protocol", "stateless"),
        ("protocol", "negotiation"),
        ("protocol", "Accept"),
        ("protocol", "trailing slash"),
        ("protocol", "content type"),
        ("protocol", "large messages"),
        ("guards", "Host"),
        ("guards", "Origin"),
        ("guards", "preflight"),
        ("sessions", "replicas"),
        ("sessions", "unknown session"),
        ("sessions", "end"),
        ("streams", "subscriptions/listen"),
        ("streams", "headers"),
        ("streams", "compression"),
        ("streams", "cut-off"),
    ] {
        said.assert(area, check, "ok", &[]);
    }
}

#[test]
fn streams_that_are_held_back_are_told_with_what_to_change() {
    let server = demo().start();
    let behind = server.address();
    let front = in_front(move |client| {
        // Everything but what follows the head of a stream.
        pass_on(client, behind, |said| {
            let head = said.windows(4).position(|part| part == b"\r\n\r\n");
            match head {
                Some(head) if is_stream(said) => Filter::HoldAfter(head + 4),
                _ => Filter::Pass,
            }
        });
    });
    let said = watch(front);
    assert_eq!(said.code, Some(1), "{:#}", said.json);
    said.assert(
        "streams",
        "subscriptions/listen",
        "failure",
        &[
            "a proxy buffers streams (in front",
            "proxy_buffering off",
            "nginx.ingress.kubernetes.io/proxy-buffering",
        ],
    );
}

#[test]
fn streams_that_are_cut_off_are_told_with_when() {
    let server = demo().start();
    let behind = server.address();
    let front = in_front(move |client| {
        // As a balancer whose time is over.
        let watched = client.try_clone().expect("a handle");
        pass_on(client, behind, move |said| {
            if is_stream(said) && said.ends_with(b"\n\n\r\n") {
                let watched = watched.try_clone().expect("a handle");
                std::thread::spawn(move || {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    let _ = watched.shutdown(Shutdown::Both);
                });
            }
            Filter::Pass
        });
    });
    let said = doctor(&["--url", &at(front), "--hold", "5"], &[]);
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("streams", "subscriptions/listen", "ok", &[]);
    said.assert(
        "streams",
        "cut-off",
        "warning",
        &["after 0 s", "proxy_read_timeout", "idle_timeout"],
    );
}

/// Two servers that are taken in turns.
fn in_turns(servers: [&Running; 2]) -> SocketAddr {
    let behind = servers.map(Running::address);
    let turn = AtomicUsize::new(0);
    in_front(move |client| {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        pass_on(client, behind[turn % behind.len()], |_| Filter::Pass);
    })
}

#[test]
fn replicas_that_do_not_share_a_key_are_found_and_those_that_do_are_fine() {
    let (one, other) = (demo().start(), demo().start());
    let said = watch(in_turns([&one, &other]));
    assert_eq!(said.code, Some(1));
    said.assert(
        "sessions",
        "replicas",
        "failure",
        &["404", "seal.keys", "mcp_session_id"],
    );
    let (one, other) = (demo().shared_key().start(), demo().shared_key().start());
    let said = watch(in_turns([&one, &other]));
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("sessions", "replicas", "ok", &["8 connections"]);
}

const LOGIN_PAGE: &str = "HTTP/1.1 302 Found\r\nlocation: /oauth2/start?rd=%2Fmcp\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[test]
fn a_way_that_does_not_lead_to_the_server_is_told() {
    for (response, parts) in [
        (
            "HTTP/1.1 301 Moved\r\nlocation: /elsewhere/mcp\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            &[
                "301",
                "/elsewhere/mcp",
                "and most clients then send a GET instead of the POST",
            ][..],
        ),
        (
            "HTTP/1.1 502 Bad Gateway\r\nserver: nginx\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            &["502", "targetPort"],
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
            &["/mcp at its end", "text/html"],
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 17\r\nconnection: close\r\n\r\n{\"hello\":\"world\"}",
            &["application/json", "which is not an MCP response"],
        ),
        (
            LOGIN_PAGE,
            &[
                "302",
                "a proxy redirects to a login page, which MCP clients cannot use: exempt the endpoint and /.well-known/ (oauth2-proxy: --skip-auth-route), and let the server check tokens itself (auth.oauth.issuer)",
            ],
        ),
        (
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 72\r\nconnection: close\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":503,\"message\":\"it is stopping\"}}",
            &[
                "the server rejects requests: it is starting, stopping or overloaded; see its log and /readyz",
            ],
        ),
    ] {
        let said = examine(answering(response));
        assert_eq!(said.code, Some(1));
        said.assert("access", "endpoint", "failure", parts);
        if response == LOGIN_PAGE {
            let text = said.json.to_string();
            assert!(!text.contains("give clients"), "{text}");
        }
    }
    let said = examine(nobody());
    assert_eq!(said.code, Some(1));
    said.assert("network", "connection", "failure", &["refused"]);
}

#[test]
fn nothing_is_concluded_from_answers_that_are_none() {
    let refusing = answering(
        "HTTP/1.1 403 Forbidden\r\nserver: Google Frontend\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let said = examine(refusing);
    assert_eq!(said.code, Some(1));
    said.assert(
        "protocol",
        "sessions",
        "failure",
        &["403", "LONGSHORE_TOKEN", "roles/run.invoker"],
    );
    said.assert("protocol", "everything else", "skipped", &["no protocol version works with these credentials, so guards, sessions and streams cannot be checked"]);
    said.assert("authorization", "authentication", "skipped", &["403"]);
    let full = answering(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    let limited = examine(full);
    limited.assert("protocol", "sessions", "failure", &["429"]);
    limited.assert("protocol", "stateless", "skipped", &["429"]);
    for said in [&said, &limited] {
        for area in ["guards", "sessions", "streams"] {
            let findings = said.json["findings"].as_array().expect("findings");
            assert!(
                findings.iter().all(|finding| finding["area"] != area),
                "{:#}",
                said.json
            );
        }
    }
    let empty = answering(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 36\r\nconnection: close\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
    );
    let said = examine(empty);
    said.assert("protocol", "sessions", "failure", &["protocolVersion"]);
    said.assert("protocol", "stateless", "warning", &["supportedVersions"]);
    let error = answering(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 73\r\nconnection: close\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"out of order\"}}",
    );
    let said = examine(error);
    said.assert("protocol", "sessions", "failure", &["out of order"]);
    said.assert("protocol", "everything else", "skipped", &["no protocol version works with these credentials, so guards, sessions and streams cannot be checked"]);
}

#[test]
fn a_server_that_answers_everybody_is_told() {
    // The proxy repeats this response for every message.
    let body = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"naive","version":"0"}}}"#;
    let head: &'static str = Box::leak(
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: x\r\naccess-control-allow-origin: *\r\n\
             access-control-allow-credentials: true\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
        .into_boxed_str(),
    );
    let said = watch(answering(head));
    assert_eq!(said.code, Some(1));
    said.assert(
        "protocol",
        "sessions",
        "warning",
        &["2025-06-18", "not 2025-11-25"],
    );
    said.assert("protocol", "content type", "warning", &["text/plain"]);
    said.assert("guards", "Host", "failure", &["http.allowed_hosts"]);
    said.assert("guards", "Origin", "failure", &["http.allowed_origins"]);
    said.assert("guards", "preflight", "failure", &["cookies"]);
    said.assert("sessions", "unknown session", "warning", &["404"]);
}

#[test]
fn messages_that_are_refused_for_their_size_are_told() {
    let server = demo()
        .configured(|c| c.http.limits.body_bytes = 200 * 1024)
        .start();
    let said = watch(server.address());
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert(
        "protocol",
        "large messages",
        "warning",
        &[
            "1088 KiB is rejected",
            "128 KiB is accepted",
            "client_max_body_size",
            "http.limits.body_bytes",
        ],
    );
    let server = demo()
        .configured(|c| c.http.limits.body_bytes = 8 * 1024)
        .start();
    watch(server.address()).assert(
        "protocol",
        "large messages",
        "warning",
        &["1088 KiB is rejected", "a body of 16 KiB too"],
    );
}
