//! A configuration that changes while the program runs.

use crate::support::{KillOnDrop, assert_contains};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The program with a configuration file in a folder of its own.
struct Program {
    process: KillOnDrop,
    log: BufReader<ChildStderr>,
    address: String,
    folder: tempfile::TempDir,
}

const KEY: &str = "a-key-that-is-long-enough-to-be-one";
const OTHER_KEY: &str = "another-key-that-is-long-enough";

impl Program {
    fn start(text: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("longshore.yaml");
        fs::write(&file, text).expect("written");
        Self::start_with(
            folder,
            &file,
            Path::new(env!("CARGO_BIN_EXE_longshore")),
            arguments,
        )
    }

    fn start_with(
        folder: tempfile::TempDir,
        file: &Path,
        program: &Path,
        arguments: &[&str],
    ) -> Self {
        let mut program = Self::spawn(folder, file, program, arguments);
        program.wait_for_address();
        program
    }

    /// Starts the program without waiting until it serves.
    fn spawn(folder: tempfile::TempDir, file: &Path, program: &Path, arguments: &[&str]) -> Self {
        let mut process = Command::new(program)
            .args(["run", "--host", "127.0.0.1", "--config"])
            .arg(file)
            .args(arguments)
            .env_clear()
            .env("LONGSHORE_LOG__FORMAT", "text")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let log = BufReader::new(process.stderr.take().expect("piped"));
        Self {
            process: KillOnDrop(process),
            log,
            address: String::new(),
            folder,
        }
    }

    fn wait_for_address(&mut self) {
        let line = self.wait_for("http://127.0.0.1:");
        let (_, rest) = line.split_once("http://").expect("an address");
        self.address = rest.split("/mcp").next().expect("a first part").to_owned();
    }

    /// The next line of the log with this in it.
    fn wait_for(&mut self, part: &str) -> String {
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.log.read_line(&mut line).expect("UTF-8"),
                0,
                "it ended without {part:?}: {said}"
            );
            if line.contains(part) {
                return line;
            }
            said.push_str(&line);
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("longshore.yaml")
    }

    /// As editors do it: a new file in the old one's place.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.file()).expect("renamed");
    }

    fn get(&self, path: &str, key: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\nConnection: close\r\n\r\n"
        )
        .expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        answer
    }

    fn call(&self, tool: &str) -> String {
        self.call_with(tool, "{}")
    }

    fn call_with(&self, tool: &str, arguments: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(
            stream,
            "POST /tools/{tool} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{arguments}",
            arguments.len()
        )
        .expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        answer
    }
}

fn settings(name: &str, key: &str, more: &str) -> String {
    format!("server:\n  name: {name}\nhttp:\n  port: 0\nauth:\n  api_keys: ['me={key}']\n{more}")
}

#[test]
fn what_changes_in_the_file_takes_effect_together_and_what_is_wrong_does_not() {
    let mut program = Program::start(&settings("one", KEY, ""), &[]);
    assert!(program.get("/info", KEY).contains("\"name\":\"one\""));
    assert!(
        program.get("/tools", KEY).contains("add"),
        "the demo toolset"
    );

    program.write(&settings("two", OTHER_KEY, "toolsets: [everything]\n"));
    let line = program.wait_for("is in force");
    for setting in ["auth.api_keys", "server.name", "toolsets"] {
        assert!(line.contains(setting), "{setting} is not in {line}");
    }
    assert!(program.get("/info", OTHER_KEY).contains("\"name\":\"two\""));
    assert!(
        program
            .get("/tools", OTHER_KEY)
            .contains("test_simple_text")
    );
    assert!(program.get("/tools", KEY).starts_with("HTTP/1.1 401"));

    program.write("server:\n  nmae: three\n");
    let line = program.wait_for("stays in force");
    assert_contains(&line, &["did you mean server.name?", ":2:3"]);
    let failed = "longshore_config_last_reload_failed";
    assert!(
        program
            .get("/metrics", OTHER_KEY)
            .contains(&format!("{failed} 1"))
    );
    assert!(program.get("/info", OTHER_KEY).contains("\"name\":\"two\""));

    // The settings are valid, but the toolset does not exist.
    program.write(&settings("four", OTHER_KEY, "toolsets: [nothing]\n"));
    program.wait_for("stays in force");
    assert!(program.get("/info", OTHER_KEY).contains("\"name\":\"two\""));

    program.write(&settings(
        "two",
        OTHER_KEY,
        "toolsets: [everything]\nstdio:\n  message_bytes: 1000\n",
    ));
    let line = program.wait_for("changed settings need a restart");
    assert!(line.contains("stdio.message_bytes"), "{line}");
}

#[test]
fn changed_implied_scopes_and_scopes_of_rules_take_effect() {
    let settings = |implied: &str, required: &str| {
        format!(
            "toolsets: [demo]\nhttp: {{port: 0, public_url: 'http://127.0.0.1:1'}}\n\
             policy: {{rules: [{{effect: allow, tools: ['*'], requires: [{required}]}}]}}\n\
             auth:\n  implied_scopes: {{other: [x], {implied}}}\n  \
             api_keys: [{{name: me, keys: [{KEY}], scopes: [admin]}}]\n  \
             oauth: {{facade: {{provider: 'https://id.example.com', client_id: a, client_secret: b}}}}\n"
        )
    };
    let mut program = Program::start(&settings("admin: [no]", "special"), &[]);
    assert!(program.call("echo").starts_with("HTTP/1.1 403"));
    program.write(&settings("admin: [special]", "special"));
    let line = program.wait_for("is in force");
    assert!(line.contains("auth.implied_scopes.admin"), "{line}");
    let answer = program.call("echo");
    assert!(answer.starts_with("HTTP/1.1 400"), "no arguments: {answer}");
    let offers = |program: &Program, scope: &str| {
        let metadata = program.get("/.well-known/oauth-authorization-server", KEY);
        let (_, rest) = metadata.split_once("scopes_supported").expect("scopes");
        rest.contains(scope)
    };
    assert!(offers(&program, "special"));
    program.write(&settings("admin: [special]", "newscope"));
    program.wait_for("is in force");
    assert!(offers(&program, "newscope") && !offers(&program, "special"));
}

#[test]
fn keys_of_a_server_that_asked_for_none_need_a_restart() {
    let open = "http: {port: 0}\nserver: {name: one}\n";
    let mut program = Program::start(open, &[]);
    program.write(&settings("two", KEY, ""));
    let line = program.wait_for("is in force");
    assert!(
        line.contains("server.name") && !line.contains("auth"),
        "{line}"
    );
    let line = program.wait_for("changed settings need a restart");
    assert!(line.contains("auth.api_keys"), "{line}");
}

#[test]
fn sighup_reads_the_configuration_again_and_does_not_end_the_program() {
    let mut program = Program::start(&settings("one", KEY, ""), &[]);
    program.process.signal("HUP");
    program.wait_for("SIGHUP");
    program.wait_for("no setting that applies to a running server has changed");
    assert!(program.get("/health", KEY).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_change_or_sighup_during_the_start_takes_effect_after_it() {
    for hangs_up in [false, true] {
        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = upstream.local_addr().expect("an address").port();
        let more = format!(
            "upstreams_wait_seconds: 2\nupstreams:\n  slow: {{url: 'http://localhost:{port}/mcp'}}\n"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("longshore.yaml");
        fs::write(&file, settings("one", KEY, &more)).expect("written");
        let path = Path::new(env!("CARGO_BIN_EXE_longshore"));
        let mut program = Program::spawn(folder, &file, path, &[]);
        // The start waits for the upstream server, which does not respond.
        let held = upstream.accept().expect("a connection");
        if hangs_up {
            program.process.signal("HUP");
        } else {
            program.write(&settings("two", KEY, &more));
        }
        program.wait_for_address();
        if hangs_up {
            program.wait_for("SIGHUP");
            program.wait_for("no setting that applies to a running server has changed");
        } else {
            let line = program.wait_for("is in force");
            assert!(line.contains("server.name"), "{line}");
            assert!(program.get("/info", KEY).contains("\"name\":\"two\""));
        }
        drop(held);
    }
}

#[test]
fn a_moved_audit_log_is_opened_again_by_sighup_and_new_rules_are_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.jsonl");
    let audit = format!("audit:\n  file: {}\n", log.display());
    let mut program = Program::start(&settings("one", KEY, &audit), &[]);
    let rules = "policy:\n  rules:\n    - {effect: deny, tools: [echo]}\n";
    program.write(&settings("one", KEY, &format!("{audit}{rules}")));
    program.wait_for("is in force");
    let old = folder.path().join("audit.jsonl.1");
    fs::rename(&log, &old).expect("moved");
    program.process.signal("HUP");
    // Lines from before the signal may be in either file.
    while !log.exists() {
        std::thread::yield_now();
    }
    assert!(program.get("/mcp", "wrong").starts_with("HTTP/1.1 401"));
    program.process.signal("TERM");
    assert!(program.process.wait().expect("ends").success());
    let (old, new) = (fs::read_to_string(old), fs::read_to_string(log));
    let (old, new) = (old.expect("UTF-8"), new.expect("UTF-8"));
    assert!(
        old.contains(r#""event":"start""#) && !old.contains("credential_invalid"),
        "{old}"
    );
    assert!(
        format!("{old}{new}").contains(r#""event":"policy","rules":1"#),
        "{old}{new}"
    );
    assert!(
        new.contains("credential_invalid") && new.contains(r#""event":"stop""#),
        "{new}"
    );
}

#[test]
fn in_development_it_starts_again_when_a_setting_takes_that_or_the_program_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.yaml");
    fs::write(&file, settings("one", KEY, "")).expect("written");
    let copy = folder.path().join("longshore");
    fs::copy(env!("CARGO_BIN_EXE_longshore"), &copy).expect("copied");
    let mut program = Program::start_with(folder, &file, &copy, &["--reload"]);
    program.write(&settings("one", KEY, "stdio:\n  message_bytes: 1000\n"));
    program.wait_for("starting again");
    program.wait_for_address();
    assert!(program.get("/health", KEY).starts_with("HTTP/1.1 200"));

    let new = copy.with_extension("new");
    fs::copy(env!("CARGO_BIN_EXE_longshore"), &new).expect("copied");
    fs::rename(&new, &copy).expect("renamed");
    program.wait_for("the program has changed");
    program.wait_for_address();
    assert!(program.get("/health", KEY).starts_with("HTTP/1.1 200"));
    program.process.signal("TERM");
    assert_eq!(program.process.exit_code(), Some(0));
}

#[test]
fn changed_limits_hold_without_a_new_start() {
    let text = |more: &str| format!("http:\n  port: 0\nlog:\n  level: info\n{more}");
    let mut program = Program::start(&text(""), &[]);
    assert!((0..5).all(|_| program.get("/tools", KEY).starts_with("HTTP/1.1 200")));
    program.write(&text(
        "limits:\n  address:\n    per_second: 0.001\n    burst: 2\n",
    ));
    let line = program.wait_for("is in force");
    assert!(line.contains("limits.address"), "{line}");
    let statuses: Vec<_> = (0..3)
        .map(|_| program.get("/tools", KEY)[9..12].to_owned())
        .collect();
    assert_eq!(statuses, ["200", "200", "429"]);
    program.write(&text(""));
    program.wait_for("is in force");
    assert!(program.get("/tools", KEY).starts_with("HTTP/1.1 200"));
}

#[cfg(feature = "wasm")]
#[test]
fn a_component_that_is_another_is_served_after_the_file_is_read_again() {
    let component = |name: &str| {
        format!(
            "(component (core module $m (func (export \"f\") (result i32) (i32.const 7)))
               (core instance $m (instantiate $m))
               (func (export \"{name}\") (result u8) (canon lift (core func $m \"f\"))))"
        )
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("c.wasm");
    fs::write(&file, component("first")).expect("written");
    let sources = |more: &str| {
        let path = file.display();
        let sources = format!("sources:\n  - {{name: c, component: {{path: {path}{more}}}}}\n");
        settings("one", KEY, &sources)
    };
    let mut program = Program::start(&sources(""), &[]);
    assert!(program.get("/tools", KEY).contains("c__first"));
    fs::write(&file, component("second")).expect("written");
    program.write(&sources(", limits: {timeout_seconds: 5}"));
    program.wait_for("is in force");
    let tools = program.get("/tools", KEY);
    assert!(
        tools.contains("c__second") && !tools.contains("c__first"),
        "{tools}"
    );
    // Settings that cannot be served leave the running ones unchanged.
    fs::write(&file, "nothing").expect("written");
    program.write(&sources(""));
    program.wait_for("stays in force");
    assert!(program.get("/tools", KEY).contains("c__second"));
}

/// An OpenAPI document with one operation.
fn document(operation: &str) -> String {
    format!(
        r#"{{"openapi": "3.1.0", "info": {{"title": "Pets", "version": "1"}}, "servers": [{{"url": "http://localhost:1"}}],
            "paths": {{"/pets": {{"get": {{"operationId": "{operation}", "responses": {{}}}}}}}}}}"#
    )
}

fn source(document: &str) -> String {
    format!(
        "toolsets: [demo]\nsources:\n  - name: pets\n    openapi: {{document: \"{document}\"}}\n"
    )
}

#[test]
fn a_document_that_changes_is_served_as_it_is_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pets.json");
    fs::write(&path, document("first")).expect("written");
    let place = path.to_str().expect("UTF-8");
    let mut program = Program::start(&settings("one", KEY, &source(place)), &[]);
    assert!(program.get("/tools", KEY).contains("pets__first"));
    fs::write(&path, document("second")).expect("written");
    program.wait_for("the files that the configuration names were reloaded");
    let tools = program.get("/tools", KEY);
    assert!(
        tools.contains("pets__second") && !tools.contains("pets__first"),
        "{tools}"
    );
    // An invalid document removes nothing, and the log describes the error.
    fs::write(&path, "{").expect("written");
    program.wait_for("its previous tools stay listed");
    program.wait_for("skipped");
    program.wait_for("the files that the configuration names were reloaded");
    assert!(program.get("/tools", KEY).contains("pets__second"));
    assert!(program.get("/health", KEY).contains("openapi.document"));
}

/// A server of a document, which responds to the first request only. Others are accepted, and never get a response.
fn document_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            if held.is_empty() {
                let _ = stream.read(&mut [0; 4096]);
                let body = document("first");
                let length = body.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
            held.push(stream);
        }
    });
    format!("http://{address}/pets.json")
}

#[test]
fn a_reload_does_not_wait_for_servers_of_documents() {
    let more = source(&document_server());
    let mut program = Program::start(&settings("one", KEY, &more), &[]);
    assert!(program.get("/tools", KEY).contains("pets__first"));
    let began = std::time::Instant::now();
    program.write(&settings("one", OTHER_KEY, &more));
    program.wait_for("is in force");
    assert!(program.get("/tools", KEY).starts_with("HTTP/1.1 401"));
    // Their documents are fetched again on SIGHUP, and another change is applied meanwhile.
    program.process.signal("HUP");
    program.wait_for("the files that the configuration names were reloaded");
    program.write(&settings("two", OTHER_KEY, &more));
    program.wait_for("is in force");
    assert!(program.get("/tools", OTHER_KEY).contains("pets__first"));
    // The timeout of a document is 20 s.
    let took = began.elapsed();
    assert!(took < std::time::Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_source_whose_settings_stay_the_same_keeps_its_circuit_breaker_and_counters() {
    let sources = "sources:\n  - name: api\n    http:\n      base_url: http://127.0.0.1:1\n      \
                   limits: {retries: 0, bulkhead: {breaker_failures: 1, breaker_pause_ms: 60000}}\n      \
                   tools: [{name: show, description: Shows., url: /show}]\n";
    let other = "  - name: other\n    http:\n      base_url: http://127.0.0.1:1\n      \
                 tools: [{name: other, description: Shows., url: /show}]\n";
    let both = settings("one", KEY, &format!("{sources}{other}"));
    let mut program = Program::start(&both, &[]);
    let is_open = |answer: &str| answer.contains("circuit breaker");
    assert!(!is_open(&program.call("show")));
    assert!(is_open(&program.call("show")));
    let count = |program: &Program, reason: &str| {
        let page = program.get("/metrics", KEY);
        let start = "longshore_upstream_failures_total{upstream=\"api\"";
        let reason = format!("reason=\"{reason}\"}} ");
        let mut lines = page.lines().filter(|line| line.starts_with(start));
        lines.find_map(|line| line.split_once(&reason).map(|(_, count)| count.to_owned()))
    };
    assert_eq!(count(&program, "tripped").as_deref(), Some("1"));
    assert!(program.get("/metrics", KEY).contains("upstream=\"other\""));
    program.write(&settings("two", KEY, sources));
    program.wait_for("is in force");
    assert!(is_open(&program.call("show")));
    assert_eq!(count(&program, "error").as_deref(), Some("1"));
    assert_eq!(count(&program, "tripped").as_deref(), Some("2"));
    let page = program.get("/metrics", KEY);
    assert!(
        !page.contains("upstream=\"other\""),
        "a removed source: {page}"
    );
    // Other settings are another API.
    program.write(&settings(
        "two",
        KEY,
        &sources.replace("retries: 0", "retries: 1"),
    ));
    program.wait_for("is in force");
    assert!(!is_open(&program.call("show")));
}

#[test]
fn a_document_whose_absence_stopped_a_reload_is_loaded_when_it_appears() {
    let mut program = Program::start(&settings("one", KEY, ""), &[]);
    let path = program.folder.path().join("pets.json");
    let only = source(path.to_str().expect("UTF-8")).replace("[demo]", "[]");
    program.write(&settings("two", KEY, &only));
    let line = program.wait_for("stays in force");
    assert_contains(&line, &["pets.json", "LS-CATALOG-03"]);
    assert!(program.get("/info", KEY).contains("\"name\":\"one\""));
    fs::write(&path, document("first")).expect("written");
    program.wait_for("is in force");
    assert!(program.get("/tools", KEY).contains("pets__first"));
}

#[test]
fn sighup_opens_the_directories_of_the_filesystem_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = folder.path().join("served");
    let write = |text: &str| {
        fs::create_dir(&served).expect("created");
        fs::write(served.join("a.txt"), text).expect("written");
    };
    write("of yesterday");
    let toolset = format!(
        "toolsets: [filesystem]\nbuiltin: {{filesystem: {{directories: ['{}']}}}}\n",
        served.display()
    );
    let mut program = Program::start(&settings("one", KEY, &toolset), &[]);
    let read = |program: &Program| program.call_with("read_text_file", r#"{"path": "a.txt"}"#);
    assert!(read(&program).contains("of yesterday"));
    fs::rename(&served, folder.path().join("old")).expect("renamed");
    write("of today");
    program.process.signal("HUP");
    program.wait_for("the files that the configuration names were reloaded");
    let answer = read(&program);
    assert!(answer.contains("of today"), "{answer}");
}

#[test]
fn the_server_card_has_the_present_title_and_an_endpoint_the_one_of_the_start() {
    let text = |title: &str| {
        format!(
            "toolsets: [demo]\nserver: {{title: {title}}}\nendpoints: {{small: {{tools: [echo], title: {title}}}}}\n\
             http: {{port: 0, public_url: 'http://localhost', server_card: {{name: com.example/a}}}}\n"
        )
    };
    let mut program = Program::start(&text("One"), &[]);
    let titles = |program: &Program| {
        ["/mcp/server-card", "/mcp/small/server-card"].map(|path| {
            let card = program.get(path, KEY);
            let (_, rest) = card.split_once("\"title\":\"").expect("a title");
            rest[..3].to_owned()
        })
    };
    assert_eq!(titles(&program), ["One", "One"]);
    program.write(&text("Two"));
    let line = program.wait_for("is in force");
    assert!(line.contains("server.title"), "{line}");
    assert_eq!(titles(&program), ["Two", "One"]);
}

#[test]
fn a_file_that_a_document_refers_to_is_reloaded_when_it_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pets.json");
    let part = folder.path().join("parts/list.yaml");
    let whole = document("first").replace(
        r#"{"operationId": "first", "responses": {}}"#,
        r#"{"$ref": "parts/list.yaml"}"#,
    );
    fs::create_dir(folder.path().join("parts")).expect("created");
    fs::write(&path, whole).expect("written");
    fs::write(&part, "operationId: first\nresponses: {}\n").expect("written");
    let place = path.to_str().expect("UTF-8");
    let mut program = Program::start(&settings("one", KEY, &source(place)), &[]);
    assert!(program.get("/tools", KEY).contains("pets__first"));
    fs::write(&part, "operationId: second\nresponses: {}\n").expect("written");
    program.wait_for("the files that the configuration names were reloaded");
    assert!(program.get("/tools", KEY).contains("pets__second"));
}

#[test]
fn a_document_that_cannot_be_had_at_start_is_asked_for_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = format!("http://{}/pets.json", listener.local_addr().expect("bound"));
    let is_there = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let answers = std::sync::Arc::clone(&is_there);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let (status, body) = match answers.load(std::sync::atomic::Ordering::SeqCst) {
                true => ("200 OK", document("late")),
                false => ("503 Service Unavailable", String::new()),
            };
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    // Rules for items that do not exist yet are not an error.
    let rules = "policy:\n  rules:\n    - {effect: allow, tools: [pets__late, echo]}\n";
    let more = format!("{}{rules}", source(&place));
    let mut program = Program::start(&settings("one", KEY, &more), &[]);
    assert!(!program.get("/tools", KEY).contains("pets__late"));
    is_there.store(true, std::sync::atomic::Ordering::SeqCst);
    program.wait_for("a source that was unavailable is loaded");
    // The log line precedes the new configuration.
    while !program.get("/tools", KEY).contains("pets__late") {
        std::thread::yield_now();
    }
}

#[test]
fn streams_of_a_key_that_is_taken_away_end_and_those_of_others_go_on() {
    let settings = |keys: &str| {
        format!(
            "server:\n  name: one\nhttp:\n  port: 0\n  legacy_sse: true\nauth:\n  api_keys: [{keys}]\n"
        )
    };
    let both = format!("'me={KEY}', 'other={OTHER_KEY}'");
    let mut program = Program::start(&settings(&both), &[]);
    let listen = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let streams = |key: &str| {
        let accept = "Accept: application/json, text/event-stream\r\n";
        let post = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n{accept}Content-Type: application/json\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{listen}",
            listen.len()
        );
        let legacy = format!(
            "GET /sse HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n{accept}Connection: close\r\n\r\n"
        );
        [post, legacy].map(|request| {
            let mut stream = TcpStream::connect(&program.address).expect("it listens");
            stream.write_all(request.as_bytes()).expect("written");
            let mut begun = BufReader::new(stream);
            let mut head = String::new();
            begun.read_line(&mut head).expect("a head");
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            begun
        })
    };
    let (mine, theirs) = (streams(KEY), streams(OTHER_KEY));
    program.write(&settings(&format!("'other={OTHER_KEY}'")));
    program.wait_for("is in force");
    let changed = std::time::Instant::now();
    for mut stream in mine {
        let mut rest = String::new();
        let end = stream.read_to_string(&mut rest);
        assert!(end.is_ok(), "{end:?}");
    }
    let took = changed.elapsed();
    assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    for stream in theirs {
        let socket = stream.get_ref();
        socket.set_nonblocking(true).expect("a setting");
        let mut byte = [0];
        let end = socket.peek(&mut byte);
        let is_open = end.as_ref().is_ok_and(|bytes| 0 < *bytes)
            || end.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(is_open);
    }
}

/// An API, and the head of the last request that it got. It does not answer with that, since answers do not have secrets in them.
fn mirror() -> (String, Arc<Mutex<String>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let last = Arc::new(Mutex::new(String::new()));
    let said = Arc::clone(&last);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap_or_default();
            *said.lock().expect("not poisoned") =
                String::from_utf8_lossy(&head[..read]).into_owned();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
            );
        }
    });
    (address, last)
}

#[test]
fn a_secret_of_a_source_that_is_replaced_is_in_force_and_the_old_one_is_not() {
    let (api, last) = mirror();
    let text = |[bearer, header, query, variable, argument]: [&str; 5]| {
        let sources = format!(
            "sources:
  - name: api
    http:
      base_url: http://{api}
      auth: {{bearer: {bearer}}}
      headers: {{x-key: {header}}}
      tools: [{{name: show, description: Shows., url: '/show?token={query}'}}]
  - name: shell
    command:
      environment: {{TOKEN: {variable}}}
      tools: [{{name: tell, description: Tells., argv: [sh, -c, 'echo $TOKEN $0 | tr - _', '--token={argument}']}}]
"
        );
        settings("one", KEY, &sources)
    };
    let mut secrets = [
        "bearer-1",
        "header-1",
        "query-1",
        "variable-1",
        "argument-1",
    ];
    let mut program = Program::start(&text(secrets), &[]);
    let names = [
        "sources[0].http.auth.bearer",
        "sources[0].http.headers.x-key",
        "sources[0].http.tools[0].url",
        "sources[1].command.environment.TOKEN",
        "sources[1].command.tools[0].argv",
    ];
    let fresh = [
        "bearer-2",
        "header-2",
        "query-2",
        "variable-2",
        "argument-2",
    ];
    for (at, name) in names.into_iter().enumerate() {
        let said = |program: &Program| {
            program.call("show");
            let told = program.call("tell").replace('_', "-");
            last.lock().expect("not poisoned").clone() + &told
        };
        let before = said(&program);
        assert!(before.contains(secrets[at]), "{name}: {before}");
        let old = std::mem::replace(&mut secrets[at], fresh[at]);
        program.write(&text(secrets));
        let line = program.wait_for("configuration ");
        assert!(
            line.contains("is in force") && line.contains(name),
            "{line}"
        );
        assert!(!line.contains(old) && !line.contains(fresh[at]), "{line}");
        let said = said(&program);
        assert!(
            said.contains(fresh[at]) && !said.contains(old),
            "{name}: {said}"
        );
    }
}

#[test]
fn the_last_key_is_revoked_when_it_is_taken_away() {
    let mut program = Program::start(&settings("one", KEY, ""), &[]);
    assert!(program.get("/tools", KEY).starts_with("HTTP/1.1 200"));
    program.write("server:\n  name: one\nhttp:\n  port: 0\n");
    let line = program.wait_for("no API key is left");
    assert_contains(&line, &["ERROR", "auth.api_keys"]);
    program.wait_for("is in force");
    for key in [KEY, ""] {
        let answer = program.get("/tools", key);
        assert!(answer.starts_with("HTTP/1.1 401"), "{key:?}: {answer}");
    }
    program.write(&settings("one", OTHER_KEY, ""));
    program.wait_for("is in force");
    assert!(program.get("/tools", OTHER_KEY).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_setting_with_which_the_server_would_not_start_again_is_rejected_at_the_reload() {
    let mut program = Program::start(&settings("one", KEY, ""), &[]);
    let file = program.folder.path().join("none.pem");
    let tls = format!(
        "  tls: {{certificate: '{0}', key: '{0}'}}\n",
        file.display()
    );
    for (name, more, code) in [
        ("two", "seal: {keys: [short]}\n".to_owned(), "LS-SEAL-01"),
        (
            "three",
            "  forwarded: {user_header: X-User}\n".to_owned(),
            "LS-AUTH-",
        ),
        ("four", format!("http:\n  port: 0\n{tls}"), "LS-TLS-01"),
    ] {
        let text = match code {
            "LS-TLS-01" => settings(name, KEY, "").replace("http:\n  port: 0\n", &more),
            _ => settings(name, KEY, &more),
        };
        program.write(&text);
        let line = program.wait_for("stays in force");
        assert!(line.contains(code), "{code} is not in {line}");
        assert!(program.get("/info", KEY).contains("\"name\":\"one\""));
    }
    program.write(&settings("five", KEY, ""));
    program.wait_for("is in force");
    assert!(program.get("/info", KEY).contains("\"name\":\"five\""));
}

#[cfg(feature = "oauth")]
#[test]
fn the_resource_metadata_has_the_present_title() {
    let text = |title: &str| {
        format!(
            "server: {{title: {title}}}\nhttp: {{port: 0, public_url: 'http://localhost'}}\n\
             auth: {{oauth: {{issuer: 'http://127.0.0.2:1'}}}}\n"
        )
    };
    let mut program = Program::start(&text("One"), &[]);
    let has = |program: &Program, title: &str| {
        let document = program.get("/.well-known/oauth-protected-resource", KEY);
        document.contains(&format!("\"resource_name\":\"{title}\""))
    };
    assert!(has(&program, "One"));
    program.write(&text("Two"));
    program.wait_for("is in force");
    assert!(has(&program, "Two"));
}
