//! No secret is ever printed, exported or sent: each credential of the program contains a canary, and all output is
//! searched for them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::support::{Served, Stateless, longshore, said, tls_file};

/// All canaries, by where they were planted.
const PLANTED: [&str; 26] = [
    "api-key",
    "api-key-in-a-file",
    "seal-key-in-a-file",
    "redis-password",
    "upstream-header",
    "upstream-environment",
    "tool-bearer",
    "tool-password",
    "tool-query",
    "tool-header",
    "tool-client-secret",
    "issued-token",
    "refresh-token",
    "issued-refresh-token",
    "command-environment",
    "collector-header",
    "wrong-key",
    "signed-token",
    "token-in-the-query",
    "cookie",
    "proxy-authorization",
    "forwarded-token",
    "argument",
    "marked-argument",
    "wrong-argument",
    "tls-key",
];

/// Returns the canary for a place.
fn canary(place: &str) -> String {
    assert!(PLANTED.contains(&place), "{place}");
    format!("canary-{place}-0b5cf2a71e94")
}

/// Asserts that a text contains no canary, in any encoding.
#[track_caller]
fn assert_says_nothing(what: &str, text: &str) {
    for place in PLANTED {
        let canary = canary(place);
        let encoded = STANDARD.encode(format!("me:{canary}"));
        for form in [&canary, &encoded] {
            if let Some(at) = text.find(form.as_str()) {
                let from = longshore_protocol::floor_char_boundary(text, at.saturating_sub(300));
                let to = longshore_protocol::floor_char_boundary(text, at + 100);
                panic!("{what} shows {place}: ...{}", &text[from..to]);
            }
        }
    }
}

/// Everything outside of the program: an API, an issuer, a collector, an MCP server. It keeps what it is sent.
struct World {
    port: u16,
    heads: Arc<Mutex<String>>,
    /// Data that the collector received.
    exported: Arc<Mutex<Vec<u8>>>,
}

impl World {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (heads, exported) = (
            Arc::<Mutex<String>>::default(),
            Arc::<Mutex<Vec<u8>>>::default(),
        );
        let (all_heads, all_exported) = (Arc::clone(&heads), Arc::clone(&exported));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heads, exported) = (Arc::clone(&all_heads), Arc::clone(&all_exported));
                std::thread::spawn(move || answer(stream, &heads, &exported));
            }
        });
        Self {
            port,
            heads,
            exported,
        }
    }
}

fn answer(mut stream: TcpStream, heads: &Mutex<String>, exported: &Mutex<Vec<u8>>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let field = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(n, _)| n.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.to_owned())
    };
    let length = field("content-length")
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let (status, text) = match path.split('?').next()? {
        "/v1/traces" | "/v1/metrics" | "/v1/logs" => {
            exported.lock().expect("not poisoned").extend(body);
            ("200 OK", String::new())
        }
        "/token" => {
            heads
                .lock()
                .expect("not poisoned")
                .push_str(&String::from_utf8_lossy(&body));
            let token = json!({
                "access_token": canary("issued-token"), "token_type": "Bearer", "expires_in": 60,
                "refresh_token": canary("issued-refresh-token"),
            });
            ("200 OK", token.to_string())
        }
        "/api/fine" => ("200 OK", r#"{"fine":true}"#.to_owned()),
        "/api/moved" => ("500 Internal Server Error", "it broke".to_owned()),
        _ => ("404 Not Found", String::new()),
    };
    heads.lock().expect("not poisoned").push_str(&head);
    let length = text.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    );
    stream.write_all(answer.as_bytes()).ok()
}

/// The configuration, with a canary in each secret that a file can hold.
fn settings(port: u16, folder: &Path) -> String {
    let world = format!("http://127.0.0.1:{port}");
    let source = |name: &str, auth: serde_json::Value| {
        json!({"name": name, "prefix": format!("{name}__"), "http": {
            "base_url": format!("{world}/api"), "auth": auth, "headers": {"x-static": canary("tool-header")},
            "limits": {"retries": 0},
            "tools": [
                {"name": "fine", "url": "/fine", "arguments": {
                    "password": {"optional": true}, "key": {"type": "string", "optional": true},
                }},
                {"name": "broken", "url": "/moved"},
            ],
        }})
    };
    let secret = canary;
    json!({
        "http": {"port": 0},
        "log": {"level": "trace"},
        "auth": {
            "api_keys": [{"name": "me", "keys": [secret("api-key")]}],
            "api_keys_file": folder.join("keys"),
            "oauth": {"issuer": world, "audience": ["somebody"]},
            "anonymous": null,
        },
        "state": {"url": format!("redis://me:{}@127.0.0.1:1/0", secret("redis-password"))},
        "telemetry": {"record_arguments": true, "record_results": true},
        "audit": {"stderr": true, "otlp": true, "arguments": true, "all_methods": true},
        "sources": [
            source("bearer", json!({"bearer": secret("tool-bearer")})),
            source("basic", json!({"basic": {"username": "me", "password": secret("tool-password")}})),
            source("query", json!({"query": {"name": "key", "value": secret("tool-query")}})),
            source("oauth", json!({"oauth": {
                "token_url": format!("{world}/token"), "client_id": "me", "client_secret": secret("tool-client-secret"),
            }})),
            source("renewed", json!({"oauth": {
                "token_url": format!("{world}/token"), "client_id": "me", "refresh_token": secret("refresh-token"),
            }})),
            json!({"name": "away", "prefix": "away__", "http": {
                "base_url": "http://127.0.0.1:1", "limits": {"retries": 0},
                "auth": {"query": {"name": "key", "value": secret("tool-query")}},
                "tools": [{"name": "call", "url": "/"}],
            }}),
            json!({"name": "run", "prefix": "run__", "command": {
                "environment": {"TOKEN": secret("command-environment")},
                "tools": [{
                    "name": "slow", "argv": ["sleep", "3"], "stdin": "{{ password }}",
                    "arguments": {"password": {}},
                }],
            }}),
        ],
        "upstreams": {
            "elsewhere": {
                "url": format!("{world}/mcp"), "connect_seconds": 1,
                "headers": {"Authorization": format!("Bearer {}", secret("upstream-header"))},
            },
            "program": {
                "command": "sh", "args": ["-c", "exec sleep 60"], "connect_seconds": 1,
                "env": {"TOKEN": secret("upstream-environment")},
            },
        },
    })
    .to_string()
}

fn variables(port: u16, folder: &Path) -> BTreeMap<String, String> {
    let text = |path: &str| folder.join(path).display().to_string();
    [
        ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
        ("LONGSHORE_CONFIG".to_owned(), text("longshore.json")),
        ("LONGSHORE_SEAL__KEYS_FILE".to_owned(), text("seal")),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
            format!("http://127.0.0.1:{port}"),
        ),
        (
            "OTEL_EXPORTER_OTLP_HEADERS".to_owned(),
            format!("authorization={}", canary("collector-header")),
        ),
        ("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "20".to_owned()),
        ("OTEL_BLRP_SCHEDULE_DELAY".to_owned(), "20".to_owned()),
        ("OTEL_METRIC_EXPORT_INTERVAL".to_owned(), "50".to_owned()),
    ]
    .into()
}

/// Everything that can be asked, with a canary wherever a caller can put one.
fn ask_everything(program: &Served) -> String {
    let key = canary("api-key");
    let with_key = |call: Stateless| {
        call.and("x-api-key", &key)
            .and("cookie", &format!("session={}", canary("cookie")))
            .and(
                "proxy-authorization",
                &format!("Basic {}", canary("proxy-authorization")),
            )
            .and("x-forwarded-access-token", &canary("forwarded-token"))
    };
    let mut answers = String::new();
    let arguments = json!({"password": canary("argument"), "key": "fine"});
    for tool in [
        "bearer__fine",
        "basic__fine",
        "query__fine",
        "oauth__fine",
        "renewed__fine",
    ] {
        let answer = program.ask(&with_key(Stateless::call(tool, arguments.clone())).text());
        assert!(answer.contains("fine\\\":true"), "{answer}");
        answers += &answer;
    }
    for (tool, arguments) in [
        ("bearer__broken", json!({})),
        ("query__broken", json!({})),
        ("away__call", json!({})),
        (
            "bearer__fine",
            json!({"password": [canary("wrong-argument")]}),
        ),
        ("nothing", json!({"token": canary("argument")})),
    ] {
        answers += &program.ask(&with_key(Stateless::call(tool, arguments)).text());
    }
    let signed = format!(
        "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJpc3MiOiJ4In0.{}",
        canary("signed-token")
    );
    for token in [canary("wrong-key"), signed] {
        let call = Stateless::call("bearer__fine", json!({}));
        answers += &program.ask(&call.and("authorization", &format!("Bearer {token}")).text());
    }
    let query = with_key(Stateless::call("bearer__fine", json!({}))).text();
    answers += &program.ask(&query.replacen(
        "POST /mcp ",
        &format!("POST /mcp?access_token={} ", canary("token-in-the-query")),
        1,
    ));
    for path in [
        "/metrics",
        "/health",
        "/health/detailed",
        "/readyz",
        "/info",
        "/version",
        "/tools",
        "/openapi.json",
        "/.well-known/oauth-protected-resource",
        "/nothing",
    ] {
        answers += &program.ask(&format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\n\r\n"
        ));
    }
    answers
}

/// Command lines of a process and its children.
#[cfg(target_os = "linux")]
fn command_lines(of: u32) -> String {
    let mut lines = fs::read_to_string(format!("/proc/{of}/cmdline")).expect("it runs");
    for entry in fs::read_dir("/proc").expect("a folder").flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        if parent == Some(of) {
            lines += &fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        }
    }
    lines
}

#[test]
fn sec_12_no_secret_is_printed_exported_or_answered() {
    for format in ["json", "text"] {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::start();
        let write =
            |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("longshore.json", &settings(world.port, folder.path()));
        write("keys", &format!("other {}\n", canary("api-key-in-a-file")));
        write("seal", &canary("seal-key-in-a-file"));
        for name in ["keys", "seal", "longshore.json"] {
            close(&folder.path().join(name));
        }
        let mut variables = variables(world.port, folder.path());
        variables.insert("LONGSHORE_LOG__FORMAT".to_owned(), format.to_owned());
        let mut command = longshore(&["run", "--host", "127.0.0.1"], &[]);
        command.envs(&variables);
        let mut program = Served::start(command);
        let printed = program.read_to_end();
        let answers = ask_everything(&program);
        assert_says_nothing("an answer", &answers);
        #[cfg(target_os = "linux")]
        {
            let slow = Stateless::call("run__slow", json!({"password": canary("argument")}));
            let slow = slow.and("x-api-key", &canary("api-key")).text();
            let command = ["sleep", "3", ""].join("\0");
            let lines = std::thread::scope(|scope| {
                let call = scope.spawn(|| program.ask(&slow));
                let mut seen = String::new();
                while !call.is_finished() && !seen.contains(&command) {
                    seen = command_lines(program.process.id());
                }
                let answer = call.join().expect("answered");
                assert!(answer.contains(r#""isError":false"#), "{answer}");
                seen
            });
            assert!(lines.contains(&command), "the command was running");
            assert_says_nothing("a command line", &lines);
        }
        // Everything that is written or exported later than it is answered.
        program.process.signal("TERM");
        assert_eq!(program.process.exit_code(), Some(0));
        let printed = printed.join().expect("read");
        assert!(printed.contains(r#""event":"stop""#), "{printed}");
        assert_says_nothing("the log", &printed);
        assert!(
            printed.contains("TRACE") && printed.contains("[redacted]"),
            "{format}: {printed}"
        );
        let exported = world.exported.lock().expect("not poisoned").clone();
        assert_says_nothing("what was exported", &String::from_utf8_lossy(&exported));
        for part in ["tools/call", "longshore.refusals", "audit"] {
            assert!(
                exported.windows(part.len()).any(|w| w == part.as_bytes()),
                "{part} was exported"
            );
        }
        // The credentials must have been used, or their absence would prove nothing.
        let heads = world.heads.lock().expect("not poisoned").clone();
        for place in [
            "tool-bearer",
            "tool-query",
            "tool-header",
            "issued-token",
            "refresh-token",
            "upstream-header",
            "collector-header",
        ] {
            assert!(heads.contains(&canary(place)), "{place} was not used");
        }
        for place in [
            "api-key",
            "cookie",
            "proxy-authorization",
            "forwarded-token",
        ] {
            assert!(
                !heads.contains(&canary(place)),
                "{place} of a caller was passed on"
            );
        }
    }
}

#[cfg(unix)]
fn close(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
}

#[cfg(not(unix))]
fn close(_: &Path) {}

#[test]
fn sec_12_no_secret_is_told_by_those_who_explain_or_check_a_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.json");
    fs::write(&file, settings(1, folder.path())).expect("written");
    fs::write(
        folder.path().join("keys"),
        format!("other {}\n", canary("api-key-in-a-file")),
    )
    .expect("written");
    fs::write(folder.path().join("seal"), canary("seal-key-in-a-file")).expect("written");
    close(&folder.path().join("keys"));
    let variables = variables(1, folder.path());
    let say = |arguments: &[&str]| {
        let (code, text) = said(longshore(arguments, &[]).envs(&variables));
        (code == Some(0), text)
    };
    for arguments in [
        &["config", "explain"][..],
        &["config", "explain", "--json"],
        &["config", "explain", "--set"],
    ] {
        let (good, said) = say(arguments);
        assert!(good && said.contains("[secret]"), "{said}");
        assert_says_nothing("an explanation", &said);
    }
    // Secrets where they do not belong, or of the wrong form.
    let secret = canary("argument");
    for wrong in [
        json!({"auth": {"api_keys": secret}}),
        json!({"auth": {"api_keys": [secret]}}),
        json!({"auth": {"api_keys": [{"name": "x", "keys": {"a": secret}}]}}),
        json!({"auth": {"api_keys": [{"name": "x", "keys": [secret], "scopes": 5}]}}),
        json!({"seal": {"keys": {"key": secret}}}),
        json!({"seal": {"keys": [{"key": secret}]}}),
        json!({"state": {"url": [secret]}}),
        json!({"state": {"url": format!("http://me:{secret}@host")}}),
        json!({"state": {"url": format!("redis://me:{secret}@:x")}}),
        json!({"upstreams": {"x": {"url": "http://host", "headers": secret}}}),
        json!({"upstreams": {"x": {"url": "http://host", "headers": {"Authorization": [secret]}}}}),
        json!({"upstreams": {"x": {"command": "x", "env": {"A": {"b": secret}}}}}),
        json!({"upstreams": {"x": {"url": "http://host", "headers": {"bad name": secret}}}}),
        json!({"upstreams": {"x": {"url": "http://host", "headers": {"a": format!("{secret}\n")}}}}),
        json!({"sources": [{"name": "x", "http": {"auth": {"bearer": [secret]}}}]}),
        json!({"sources": [{"name": "x", "http": {"auth": secret}}]}),
        json!({"sources": [{"name": "x", "http": {"auth": {"basic": secret}}}]}),
        json!({"sources": [{"name": "x", "http": {"auth": {"bearer": format!("{secret}\n")}}}]}),
        json!({"sources": [{"name": "x", "command": {"environment": {"A": [secret]}}}]}),
    ] {
        fs::write(&file, wrong.to_string()).expect("written");
        let (_, said) = say(&["config", "check"]);
        assert_says_nothing(&wrong.to_string(), &said);
    }
}

#[test]
fn sec_12_debug_output_of_a_configuration_shows_no_secret() {
    let text = settings(1, Path::new("/nowhere"));
    let config: longshore::Config = serde_json::from_str(&text).expect("sound");
    assert_says_nothing("debug output", &format!("{config:#?}"));
    assert_says_nothing(
        "what is serialised",
        &serde_json::to_string(&config).expect("JSON"),
    );
}

#[test]
fn sec_12_the_key_of_tls_is_not_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = fs::read_to_string(tls_file("server.key")).expect("a key");
    // Beside the key, and inside of what claims to be one.
    for (text, good) in [
        (format!("{}\n{key}", canary("tls-key")), true),
        (
            format!(
                "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
                canary("tls-key")
            ),
            false,
        ),
    ] {
        let path = folder.path().join("tls.key");
        fs::write(&path, text).expect("written");
        close(&path);
        let variables = [("LONGSHORE_LOG__LEVEL", "trace"), ("LONGSHORE_PORT", "0")];
        let mut process = longshore(&["run"], &variables)
            .env("LONGSHORE_HTTP__TLS__CERTIFICATE", tls_file("server.crt"))
            .env("LONGSHORE_HTTP__TLS__KEY", &path)
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stderr = process.stderr.take().expect("piped");
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            said.extend_from_slice(&buffer[..count]);
            if String::from_utf8_lossy(&said).contains("/mcp") {
                let _ = process.kill();
            }
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        let _ = process.wait();
        assert_eq!(said.contains("https://"), good, "{said}");
        assert_says_nothing("a server with TLS", &said);
    }
}
