//! `longshore config check`, and what a start says of that which it cannot offer.

use std::fs;
use std::path::Path;

use crate::support::{assert_contains, longshore, said};

/// Runs the program on a configuration in a temporary folder, from another working directory.
fn checked(text: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("there.json"), document()).expect("written");
    in_folder(folder.path(), text, arguments)
}

fn in_folder(folder: &Path, text: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let file = folder.join("longshore.yaml");
    fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let arguments = [&["config", "check", "--config", file], arguments].concat();
    let variables = [("PATH", "/usr/bin:/bin"), ("LONGSHORE_LOG__FORMAT", "text")];
    said(&mut longshore(&arguments, &variables))
}

fn document() -> &'static str {
    r#"{"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "servers": [{"url": "http://localhost:1"}],
        "paths": {"/pets": {"get": {"operationId": "list", "responses": {}}}}}"#
}

const TOOL: &str = "{name: a, description: A., argv: [echo]}";

#[test]
fn a_configuration_of_which_a_part_would_not_be_offered_is_not_valid() {
    for (text, parts) in [
        (
            "sources: [{name: pets, openapi: {document: ./missing.json}}, {name: there, openapi: {document: there.json}}]\n",
            // The searched paths, and the setting.
            &[
                "sources[0].openapi.document",
                "/missing.json cannot be read",
                "longshore.yaml:1:34",
            ][..],
        ),
        (
            &format!(
                "sources: [{{name: one, command: {{tools: [{TOOL}]}}}}, {{name: two, command: {{tools: [{TOOL}]}}}}]\n"
            ),
            &["source \"one\" already offers a tool \"a\"", "source=two"],
        ),
        (
            &format!(
                "sources: [{{name: one, command: {{tools: [{TOOL}]}}}}, {{name: one, prefix: b_, command: {{tools: [{TOOL}]}}}}]\n"
            ),
            &[
                "sources[1].name",
                "sources[0] has the same name",
                "longshore.yaml:1:87",
            ],
        ),
        (
            "toolsets: [demo]\nupstreams:\n  gone: {command: sh, args: ['-c', 'exit 1']}\n  nowhere: {command: ./no-such-program}\n",
            &["upstreams.gone", "upstreams.nowhere", "longshore.yaml:3:3"],
        ),
        (
            "http: {public_url: 'https://mcp.example.com', server_card: {name: com.example/a}}\nendpoints: {server-card: {tools: [echo]}}\n",
            &["an endpoint is called server-card"],
        ),
        (
            "telemetry: {endpoint: 'collector:4318'}\n",
            &[
                "the endpoint for traces (telemetry.endpoint, OTEL_EXPORTER_OTLP_ENDPOINT) is not an http:// or https:// URL",
                "see above: telemetry.endpoint",
            ],
        ),
        (
            "toolsets: [demo, everything]\n",
            &[
                "the toolset demo already offers a tool \"echo\"",
                "toolset everything",
                "name only one of the two in toolsets",
            ],
        ),
    ] {
        let (code, said) = checked(text, &[]);
        assert_eq!(code, Some(1), "{text}{said}");
        for part in parts {
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
        assert!(!said.contains("is valid"), "{said}");
    }
}

#[test]
fn what_is_on_other_machines_can_be_left_out_of_the_check() {
    let text = "toolsets: [demo]\npolicy: {rules: [{effect: deny, tools: [far__x]}]}\n\
                upstreams: {far: {url: 'http://127.0.0.1:1/mcp'}}\n\
                sources: [{name: there, openapi: {document: ./there.json}}, {name: doc, openapi: {document: 'http://127.0.0.1:1/a.json'}}]\n";
    let (code, said) = checked(text, &["--offline"]);
    assert_eq!(code, Some(0), "{said}");
    assert_contains(&said, &["is valid", "not checked: far, doc"]);
    let (code, said) = checked(text, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert_contains(&said, &["upstreams.far", "sources[1].openapi.document"]);
}

#[test]
fn one_tool_is_one_tool_and_none_are_not_valid() {
    let text = format!("sources: [{{name: one, command: {{tools: [{TOOL}]}}}}]\n");
    let (code, said) = checked(&text, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("; 1 tool)"), "{said}");
    let (code, said) = checked("toolsets: []\n", &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("the server would start without any tools, resources or prompts ("),
        "{said}"
    );
}

#[test]
fn a_file_that_is_missing_is_told_with_where_it_is_named_and_where_it_was_looked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = folder.path().display();
    for (text, setting, file) in [
        (
            "http:\n  tls:\n    certificate: tls.crt\n    key: tls.key\n",
            "longshore.yaml:3:5: http.tls.certificate = ",
            "tls.crt",
        ),
        (
            "auth:\n  api_keys_file: keys\n",
            "longshore.yaml:2:3: ",
            "keys",
        ),
        (
            "toolsets: [filesystem]\nbuiltin:\n  filesystem:\n    directories: [docs]\n",
            "longshore.yaml:4:19: ",
            "docs",
        ),
    ] {
        let (code, said) = in_folder(folder.path(), text, &[]);
        assert_eq!(code, Some(1), "{said}");
        let path = format!("{here}/{file}");
        assert!(said.contains(setting) && said.contains(&path), "{said}");
        assert!(said.contains("No such file"), "{said}");
        assert!(!said.contains("I/O error"), "{said}");
    }
}

#[test]
fn two_toolsets_with_a_tool_of_one_name_are_served_and_one_tool_is_lost() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    let arguments = [
        "run",
        "--port",
        "0",
        "--host",
        "127.0.0.1",
        "--toolset",
        "demo",
        "--toolset",
        "everything",
    ];
    let mut process = longshore(&arguments, &[("LONGSHORE_LOG__FORMAT", "text")])
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let log = BufReader::new(process.stderr.take().expect("piped"));
    let mut said = String::new();
    for line in log.lines().map_while(Result::ok) {
        said.push_str(&line);
        said.push('\n');
        if line.contains("/mcp") {
            break;
        }
    }
    let _ = process.kill();
    let _ = process.wait();
    assert_contains(&said, &["name only one of the two in toolsets"]);
    assert_contains(&said, &["(demo, everything) at http://127.0.0.1:"]);
}
