//! A configuration that changes while the program runs.

mod keys;
mod sources;

use std::fs;
use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::{Served, assert_contains, becomes};

/// The program with a configuration file in a folder of its own.
struct Program {
    served: Served,
    folder: TempDir,
}

const KEY: &str = "a-key-that-is-long-enough-to-be-one";
const OTHER_KEY: &str = "another-key-that-is-long-enough";

impl Deref for Program {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Served {
        &mut self.served
    }
}

impl Program {
    fn start(text: &str, arguments: &[&str]) -> Self {
        let mut program = Self::spawn(text, arguments);
        program.wait_until_served();
        program
    }

    /// Starts the program without waiting until it serves.
    fn spawn(text: &str, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = Path::new(env!("CARGO_BIN_EXE_longshore"));
        Self::spawn_copy(program, folder, text, arguments)
    }

    fn spawn_copy(program: &Path, folder: TempDir, text: &str, arguments: &[&str]) -> Self {
        let file = folder.path().join("longshore.yaml");
        fs::write(&file, text).expect("written");
        let mut command = Command::new(program);
        command
            .args(["run", "--host", "127.0.0.1", "--config"])
            .arg(file)
            .args(arguments)
            .env_clear()
            .env("LONGSHORE_LOG__FORMAT", "text");
        let served = Served::spawn(command);
        Self { served, folder }
    }

    /// As editors do it: a new file in the old one's place.
    fn write(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.folder.path().join("longshore.yaml")).expect("renamed");
    }

    fn get(&self, path: &str, key: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n\r\n"
        ))
    }

    fn call(&self, tool: &str) -> String {
        self.call_with(tool, "{}")
    }

    fn call_with(&self, tool: &str, arguments: &str) -> String {
        self.ask(&format!(
            "POST /tools/{tool} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{arguments}",
            arguments.len()
        ))
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
        let mut program = Program::spawn(&settings("one", KEY, &more), &[]);
        // The start waits for the upstream server, which does not respond.
        let held = upstream.accept().expect("a connection");
        if hangs_up {
            program.process.signal("HUP");
        } else {
            program.write(&settings("two", KEY, &more));
        }
        program.wait_until_served();
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
    becomes(|| log.exists());
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
    let copy = folder.path().join("longshore");
    fs::copy(env!("CARGO_BIN_EXE_longshore"), &copy).expect("copied");
    let text = settings("one", KEY, "");
    let mut program = Program::spawn_copy(&copy, folder, &text, &["--reload"]);
    program.wait_until_served();
    program.write(&settings("one", KEY, "stdio:\n  message_bytes: 1000\n"));
    program.wait_for("starting again");
    program.wait_until_served();
    assert!(program.get("/health", KEY).starts_with("HTTP/1.1 200"));

    let new = copy.with_extension("new");
    fs::copy(env!("CARGO_BIN_EXE_longshore"), &new).expect("copied");
    fs::rename(&new, &copy).expect("renamed");
    program.wait_for("the program has changed");
    program.wait_until_served();
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
        (
            "audited",
            format!("audit: {{file: '{}'}}\n", file.join("log").display()),
            "LS-AUDIT-01",
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
