//! `longshore doctor`, on this machine and against servers that are well and that are not.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longshore::seal::Secret;
use serde_json::{Value, json};

use crate::support::{Running, Serve, Site, Told, free_port};

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
    let output = Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(["doctor", "--json"])
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&output.stdout);
    Said {
        code: output.status.code(),
        json: serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!(
                "{error}: {text} {}",
                String::from_utf8_lossy(&output.stderr)
            )
        }),
    }
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
fn certificates_are_looked_at_as_clients_do() {
    let file = |name: &str| format!("{}/tests/it/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let server = demo()
        .configured(|c| {
            c.http.tls.certificate = Some(file("server.crt").into());
            c.http.tls.key = Some(file("server.key").into());
        })
        .start();
    let url = format!("https://localhost:{}/mcp", server.address().port());
    let said = doctor(&["--url", &url, "--hold", "1"], &[]);
    assert_eq!(said.code, Some(1));
    said.assert("tls", "chain", "failure", &["--ca", "whole chain"]);
    said.assert("streams", "subscriptions/listen", "ok", &[]);
    let said = doctor(
        &["--url", &url, "--hold", "1", "--ca", &file("ca.crt")],
        &[],
    );
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("tls", "chain", "ok", &[]);
    said.assert("tls", "expiry", "ok", &["not before 2"]);
    said.assert("tls", "versions", "ok", &["TLS 1.3 and 1.2; HTTP/2"]);
    said.assert("tls", "old versions", "ok", &["rejected"]);
}

/// The version in the first message of a client that speaks TLS.
fn hello_version(stream: &TcpStream) -> Option<[u8; 2]> {
    let mut said = [0; 11];
    loop {
        match stream.peek(&mut said).ok()? {
            0 => return None,
            11 => return Some([said[9], said[10]]),
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn versions_of_tls_that_nobody_should_speak_are_told() {
    let file = |name: &str| format!("{}/tests/it/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let server = demo()
        .configured(|c| {
            c.http.tls.certificate = Some(file("server.crt").into());
            c.http.tls.key = Some(file("server.key").into());
        })
        .start();
    let address = server.address();
    let front = in_front(move |mut stream| match hello_version(&stream) {
        // It continues in TLS 1.1, and rejects TLS 1.0.
        Some([3, 2]) => {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(&[22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2]);
            let _ = stream.write_all(&[0; 36]);
        }
        Some([3, 1]) => {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(&[21, 3, 1, 0, 2, 2, 70]);
        }
        _ => pass_on(stream, address, |_| Filter::Pass),
    });
    let url = format!("https://localhost:{}/mcp", front.port());
    let said = doctor(
        &["--url", &url, "--hold", "1", "--ca", &file("ca.crt")],
        &[],
    );
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("tls", "versions", "ok", &[]);
    said.assert(
        "tls",
        "old versions",
        "warning",
        &["TLS 1.1 is accepted", "ssl_protocols"],
    );
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
}

#[test]
fn who_asks_for_a_proof_is_asked_with_one() {
    const KEY: &str = "a-key-that-is-long-enough-for-everybody";
    let server = demo()
        .configured(|c| {
            c.auth.api_keys = vec![longshore::auth::ApiKeyConfig {
                name: "ci".to_owned(),
                keys: vec![Secret::from(KEY.to_owned())],
                ..longshore::auth::ApiKeyConfig::default()
            }];
        })
        .start();
    let url = at(server.address());
    let said = doctor(&["--url", &url], &[]);
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("protocol", "everything", "skipped", &[]);
    assert!(said.finding("protocol", "everything")["seen"].is_string());
    // As read from a file.
    let token = format!("{KEY}\n");
    let said = doctor(
        &["--url", &url, "--hold", "1"],
        &[("LONGSHORE_TOKEN", &token)],
    );
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("sessions", "replicas", "ok", &[]);
    assert!(!said.json.to_string().contains(KEY));
}

#[test]
fn pages_that_are_to_call_are_tried_as_a_browser_would() {
    let server = demo()
        .configured(|c| c.http.allowed_origins = vec!["https://app.example.com".to_owned()])
        .start();
    let url = at(server.address());
    let with = |origin: &str| doctor(&["--url", &url, "--hold", "1", "--origin", origin], &[]);
    with("https://app.example.com").assert(
        "guards",
        "preflight",
        "ok",
        &["may call, and can read the needed headers"],
    );
    with("https://other.example.com").assert(
        "guards",
        "preflight",
        "failure",
        &["http.allowed_origins", "https://other.example.com"],
    );
}

#[test]
fn this_machine_and_its_settings_are_examined() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let away = nobody();
    let collector = format!("http://{away}");
    let redis = format!("redis://:a-password@{away}");
    let said = doctor(
        &["--port", &port],
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector),
            ("LONGSHORE_STATE__URL", &redis),
            ("LONGSHORE_UPSTREAMS__X__COMMAND", "no-such-program"),
        ],
    );
    assert_eq!(said.code, Some(1), "{:#}", said.json);
    said.assert(
        "machine",
        "port",
        "failure",
        &["http.port", "LONGSHORE_PORT"],
    );
    said.assert(
        "programs",
        "upstreams.x",
        "failure",
        &["no-such-program", "image.variant"],
    );
    said.assert(
        "collector",
        "traces",
        "failure",
        &["telemetry.endpoint", "OTEL_TRACES_EXPORTER=none"],
    );
    said.assert("collector", "logs", "failure", &[]);
    said.assert("state", "store", "failure", &["state.url"]);
    assert!(!said.json.to_string().contains("a-password"));
    for check in ["open files", "CPU", "memory", "clock", "callers"] {
        assert!(said.find("machine", check).is_some(), "{check}");
    }
}

#[test]
fn settings_with_which_the_server_does_not_start_are_failures() {
    let missing = "/nowhere/keys";
    for (variable, value) in [
        ("LONGSHORE_AUTH__API_KEYS_FILE", missing),
        ("LONGSHORE_AUTH__API_KEYS_DIR", missing),
        // The audience of its tokens is unknown.
        ("LONGSHORE_AUTH__OAUTH__ISSUER", "http://127.0.0.1:1"),
    ] {
        let said = doctor(&["--port", "0"], &[(variable, value)]);
        assert_eq!(said.code, Some(1), "{variable}");
        said.assert("configuration", "server", "failure", &[]);
    }
    let said = doctor(&["--port", "0"], &[("LONGSHORE_LOG__LEVEL", "loud")]);
    said.assert("configuration", "settings", "failure", &["log.level"]);
}

#[test]
fn files_and_folders_of_the_server_are_not_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let said = doctor(
        &["--port", "0"],
        &[
            ("LONGSHORE_AUDIT__FILE", &path("audit.log")),
            ("LONGSHORE_ARTIFACTS__ABOVE_BYTES", "1000"),
            ("LONGSHORE_ARTIFACTS__FOLDER", &path("artifacts")),
            ("LONGSHORE_TOKENS__FOLDER", &path("tokens")),
            ("LONGSHORE_UPSTREAMS_FOLDER", &path("upstreams")),
        ],
    );
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    let left = std::fs::read_dir(folder.path()).expect("a folder");
    assert_eq!(left.count(), 0);
}

#[test]
fn introspection_is_tried_with_the_configured_client() {
    let issuer = Site::start(|_, asked| {
        let expected = format!("Basic {}", STANDARD.encode("longshore:s3cret-of-it"));
        match asked.headers.get("authorization") == Some(&expected) {
            true => Told::json(200, json!({"active": false})),
            false => Told::json(401, json!({"error": "invalid_client"})),
        }
    });
    let url = format!("{}/introspect", issuer.url);
    for (secret, status, part) in [
        ("s3cret-of-it", "ok", "rejects a made-up token"),
        (
            "another-s3cret",
            "failure",
            "auth.oauth.introspection.client_id",
        ),
    ] {
        let said = doctor(
            &["--port", "0"],
            &[
                ("LONGSHORE_AUTH__OAUTH__ISSUER", &issuer.url),
                (
                    "LONGSHORE_AUTH__OAUTH__AUDIENCE",
                    "https://mcp.example.com/mcp",
                ),
                ("LONGSHORE_AUTH__OAUTH__INTROSPECTION__URL", &url),
                (
                    "LONGSHORE_AUTH__OAUTH__INTROSPECTION__CLIENT_ID",
                    "longshore",
                ),
                (
                    "LONGSHORE_AUTH__OAUTH__INTROSPECTION__CLIENT_SECRET",
                    secret,
                ),
            ],
        );
        said.assert("introspection", &url, status, &[part]);
        assert!(!said.json.to_string().contains(secret));
    }
}

#[test]
fn a_machine_where_all_is_well_needs_no_more_than_warnings() {
    let said = doctor(&["--port", "0"], &[]);
    assert_eq!(said.code, Some(0), "{:#}", said.json);
    said.assert("machine", "port", "ok", &[]);
    said.assert("documentation", "tools", "ok", &["all"]);
    said.assert("documentation", "listing", "ok", &["tokens"]);
    let wrong = doctor(&[], &[("LONGSHORE_PROT", "1")]);
    assert_eq!(wrong.code, Some(1));
    wrong.assert("configuration", "settings", "failure", &["LONGSHORE_PORT"]);
}

#[cfg(feature = "redis")]
#[test]
fn a_store_that_throws_things_away_is_told() {
    let Some(redis) = crate::support::RedisServer::start() else {
        return;
    };
    let url = redis.url();
    let examined = || {
        doctor(
            &[],
            &[
                ("LONGSHORE_STATE__URL", &url),
                ("LONGSHORE_HTTP__PORT", "0"),
            ],
        )
    };
    let said = examined();
    said.assert("state", "store", "ok", &["written, read and removed"]);
    said.assert("state", "server", "ok", &["version ", "noeviction"]);
    redis.say(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.say(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    examined().assert(
        "state",
        "server",
        "warning",
        &["volatile-lru", "maxmemory-policy noeviction"],
    );
    redis.say(&["ACL", "SETUSER", "default", "-info"]);
    examined().assert("state", "server", "skipped", &["INFO"]);
}

/// A server in front of an identity provider whose login page responds so.
fn in_front_of_provider(page: &'static str) -> (Running, Site) {
    let provider = Site::start(move |issuer, asked| match &*asked.target {
        "/.well-known/openid-configuration" => Told::json(
            200,
            json!({
                "issuer": issuer, "authorization_endpoint": format!("{issuer}/login"),
                "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
            }),
        ),
        "/keys" => Told::json(
            200,
            json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}),
        ),
        _ => Told::html(page),
    });
    let url = provider.url.clone();
    let port = free_port();
    let server = Serve::new()
        .configured(move |c| {
            c.toolsets.push("demo".to_owned());
            c.http.public_url = Some(format!("http://127.0.0.1:{port}"));
            c.http.port = port;
            let facade = &mut c.auth.oauth.facade;
            facade.provider = Some(url);
            facade.client_id = Some("longshore".to_owned());
            facade.client_secret = Some("secret".to_owned().into());
        })
        .shared_key()
        .start();
    (server, provider)
}

#[test]
fn a_login_is_walked_up_to_the_page_of_the_provider() {
    let (server, provider) = in_front_of_provider("<h1>Log in</h1>");
    let url = at(server.address());
    let said = doctor(&["--url", &url, "--login"], &[]);
    said.assert("login", "registration", "ok", &[]);
    said.assert("login", "login page", "ok", &["127.0.0.1"]);
    let asked = provider.asked("/login").pop().expect("the login page");
    assert!(asked.target.contains("client_id=longshore"), "{asked:?}");
    let without = doctor(&["--url", &url], &[]);
    assert!(without.find("login", "registration").is_none());

    let (server, _provider) =
        in_front_of_provider("<title>Sign in</title> AADSTS50011: The redirect URI");
    let said = doctor(&["--url", &at(server.address()), "--login"], &[]);
    said.assert(
        "login",
        "login page",
        "failure",
        &["AADSTS50011", "/oauth/callback", "register"],
    );
}
