//! Sources whose files, documents and settings change while the program runs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{KEY, OTHER_KEY, Program, settings};
use crate::support::{assert_contains, becomes};

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
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = format!("http://{}/pets.json", listener.local_addr().expect("bound"));
    let is_there = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&is_there);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let (status, body) = match answers.load(Ordering::SeqCst) {
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
    is_there.store(true, Ordering::SeqCst);
    program.wait_for("a source that was unavailable is loaded");
    // The log line precedes the new configuration.
    becomes(|| program.get("/tools", KEY).contains("pets__late"));
}

/// An API, and the head of the last request that it got. It does not answer with that, since answers do not have secrets in them.
fn mirror() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
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
