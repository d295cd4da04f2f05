//! `longshore list`, `call`, `read` and `prompt` in a terminal and in scripts.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use longshore::{JsonSchema, ResourceDefinition, StaticResource, prompt, tool};
use serde_json::{Value, json};

use crate::auth::{CI, with_keys};
use crate::support::{self, Asked, Running, Serve, Site, Told, assert_contains, longshore};

#[derive(Debug, serde::Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(Debug, serde::Deserialize, serde::Serialize, JsonSchema)]
struct Place {
    town: String,
}

/// Returns its arguments.
#[tool]
async fn describe(
    text: String,
    count: Option<i64>,
    exact: Option<bool>,
    #[arg(default = Vec::new())] tags: Vec<String>,
    unit: Option<Unit>,
    place: Option<Place>,
) -> String {
    json!({"text": text, "count": count, "exact": exact, "tags": tags, "unit": unit, "place": place}).to_string()
}

/// Calculates.
#[tool]
async fn calculate() -> &'static str {
    "42"
}

/// Greets a person.
#[prompt]
async fn greeting(name: String) -> String {
    format!("Greet {name}.")
}

fn serve() -> Running {
    let notes = ResourceDefinition::new("notes://today", "today");
    Serve::new()
        .app(|app| {
            app.tool(describe)
                .tool(calculate)
                .prompt(greeting)
                .resource(StaticResource::text(notes, "Buy milk."))
        })
        .start()
}

fn url(server: &Running) -> String {
    format!("http://{}/mcp", server.address())
}

/// The exit code, standard output and standard error.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    support::run(&mut longshore(arguments, variables))
}

#[test]
fn arguments_have_the_types_of_the_input_schema() {
    let server = serve();
    let url = url(&server);
    let call = |words: &[&str]| run(&[&["call", &url, "describe"], words].concat(), &[]);
    let (code, printed, said) = call(&[
        "text=01234",
        "count=7",
        "exact=true",
        "tags=1",
        "tags=two",
        "unit=celsius",
        "place={\"town\": \"Rome\"}",
    ]);
    assert_eq!(code, Some(0), "{said}");
    let result: Value = serde_json::from_str(&printed).expect("JSON");
    let echoed = result["content"][0]["text"].as_str().expect("text");
    let echoed: Value = serde_json::from_str(echoed).expect("JSON");
    assert_eq!(
        echoed,
        json!({
            "text": "01234", "count": 7, "exact": true, "tags": ["1", "two"], "unit": "celsius",
            "place": {"town": "Rome"},
        })
    );
    for (word, told) in [
        (
            "count=seven",
            "count: \"seven\" is not an integer; write for example count=1",
        ),
        ("unit=kelvin", "is not one of \"celsius\", \"fahrenheit\""),
        ("count:=seven", "is not valid JSON, which `:=` requires"),
        (
            "place=Rome",
            "write for example 'place:={\"town\":\"text\"}'",
        ),
    ] {
        let (code, printed, said) = call(&["text=x", word]);
        assert_eq!((code, &*printed), (Some(2), ""), "{said}");
        assert!(said.contains(told), "{said}");
    }
    // A raw value is validated by the server.
    let (_, printed, _) = call(&["text=x", "count:=\"seven\""]);
    assert!(printed.contains("\"isError\": true"), "{printed}");
}

#[test]
fn a_name_that_is_not_there_is_told_with_the_nearest() {
    let server = serve();
    let url = url(&server);
    for (words, told) in [
        (
            ["call", "calc"],
            "Unknown tool: calc (-32602); did you mean calculate?",
        ),
        (["prompt", "greting"], "did you mean greeting?"),
        (["read", "notes://todya"], "did you mean notes://today?"),
    ] {
        let (code, printed, said) = run(&[words[0], &url, words[1]], &[]);
        assert_eq!((code, &*printed), (Some(1), ""), "{said}");
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn a_server_may_be_named_by_host_and_port() {
    let server = serve();
    let address = server.address().to_string();
    for named in [
        address.clone(),
        format!("http://{address}"),
        format!("{address}/"),
    ] {
        let (code, printed, said) = run(&["call", &named, "calculate"], &[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(printed.contains("42"), "{printed}");
        assert!(
            said.contains(&format!("trying http://{address}/mcp")),
            "{said}"
        );
    }
    let (code, printed, _) = run(&[&address], &[]);
    assert!(
        code == Some(0) && printed.contains("calculate"),
        "{printed}"
    );
    let (code, _, said) = run(&["list", &format!("{address}/mcp")], &[]);
    assert_eq!((code, &*said), (Some(0), ""));
    // A server name without a scheme must not cause a token to be sent in plain text.
    let token = [("LONGSHORE_TOKEN", "token")];
    let (code, _, said) = run(&["list", "192.0.2.1:80"], &token);
    assert_eq!(code, Some(1));
    assert!(said.contains("would be sent unencrypted"), "{said}");
    let nothing =
        Site::start(|_, _| Told::json(404, json!({"detail": "This page does not exist."})));
    let (code, _, said) = run(&["list", &nothing.url], &[]);
    assert_eq!(code, Some(1));
    let told = format!("no MCP endpoint at {0}/ or {0}/mcp", nothing.url);
    assert!(said.contains(&told), "{said}");
    let (code, _, said) = run(&["list", &format!("{}/health", nothing.url)], &[]);
    assert_eq!(code, Some(1));
    assert_contains(&said, &["HTTP 404", "give the URL of the MCP endpoint"]);
}

#[test]
fn a_credential_that_is_rejected_is_told_apart_from_one_that_is_missing() {
    let server = Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            with_keys(c);
        })
        .start();
    let url = url(&server);
    let (code, _, said) = run(&["list", &url], &[]);
    assert_eq!(code, Some(1));
    for part in [
        "the server asks for credentials (HTTP 401)",
        "LONGSHORE_TOKEN",
        &format!("longshore login {url}"),
    ] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    let (code, _, said) = run(&["list", &url], &[("LONGSHORE_TOKEN", "bad")]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("the server rejects the token in the variable LONGSHORE_TOKEN (HTTP 401"),
        "{said}"
    );
    assert!(
        !said.contains("asks for credentials") && !said.contains("bad\""),
        "{said}"
    );
    let (code, _, _) = run(&["list", &url], &[("LONGSHORE_TOKEN", CI)]);
    assert_eq!(code, Some(0));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.json");
    let upstreams = json!({"upstreams": {
        "up": {"url": url, "headers": {"Authorization": "Bearer bad"}},
        "bare": {"url": url},
    }});
    std::fs::write(&file, upstreams.to_string()).expect("written");
    let file = file.to_str().expect("UTF-8");
    let (_, _, said) = run(&["list", "up", "--config", file], &[]);
    assert!(
        said.contains("up: the server rejects the credentials that the configuration has"),
        "{said}"
    );
    let (_, _, said) = run(&["list", "bare", "--config", file], &[]);
    let login = format!("`longshore login bare --config {file}`");
    assert!(said.contains(&login), "{said}");
    for command in ["list", "call", "read", "prompt"] {
        let (_, help, _) = run(&[command, "--help"], &[]);
        assert!(help.contains("LONGSHORE_TOKEN"), "{help}");
    }
}

#[test]
fn a_scope_that_is_missing_is_named() {
    let site = Site::start(|_, asked: &Asked| {
        match &*asked.target {
        "/mcp" => Told::json(403, json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "insufficient_scope"}}))
            .header("www-authenticate", "Bearer error=\"insufficient_scope\", scope=\"files:write files:read\""),
        _ => Told::json(404, json!({})),
    }
    });
    let url = format!("{}/mcp", site.url);
    let (code, _, said) = run(&["list", &url], &[("LONGSHORE_TOKEN", "token")]);
    assert_eq!(code, Some(1));
    assert_contains(&said, &["lacks the scope files:write files:read (HTTP 403"]);
}

#[test]
fn a_word_that_is_no_server_is_told_in_plain_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.json");
    std::fs::write(
        &file,
        r#"{"upstreams": {"tracker": {"url": "http://127.0.0.1:1/mcp"}}}"#,
    )
    .expect("written");
    let file = file.to_str().expect("UTF-8");
    let (code, _, said) = run(&["list", "/path/to/server"], &[]);
    assert_eq!(code, Some(1));
    assert_contains(&said, &["neither a URL nor the name of an upstream"]);
    let (_, _, said) = run(&["list", "traker", "--config", file], &[]);
    assert!(said.contains("did you mean tracker?"), "{said}");
    // Options before the command cause a specific error.
    let (code, _, said) = run(&["--config", file, "list", "tracker"], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains(&format!(
            "options come after the command: longshore list --config {file} tracker"
        )),
        "{said}"
    );
}

#[test]
fn a_server_without_oauth_metadata_has_no_login() {
    let server = Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            with_keys(c);
        })
        .start();
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().to_str().expect("UTF-8");
    let (code, _, said) = run(&["login", &url(&server), "--folder", tokens], &[]);
    assert_eq!(code, Some(1));
    for part in ["OAuth metadata", "LONGSHORE_TOKEN"] {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

/// Runs the program in a terminal with input. Returns `None` without the `script` program.
fn at_terminal(
    command: &str,
    variables: &[(&str, &str)],
    typed: &str,
) -> Option<(Option<i32>, String)> {
    let script = Path::new("/usr/bin/script");
    if !script.exists() {
        return None;
    }
    let command = format!(
        "stty cols 100; {} {command}",
        env!("CARGO_BIN_EXE_longshore")
    );
    let mut process = Command::new(script)
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TERM", "xterm")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = process.stdin.take().expect("piped");
    input.write_all(typed.as_bytes()).expect("written");
    let output = process.wait_with_output().expect("ends");
    drop(input);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Some((output.status.code(), text))
}

#[test]
fn somebody_at_a_terminal_is_offered_to_log_in_and_may_type_a_token() {
    let server = Serve::new()
        .configured(|c| {
            c.toolsets.push("demo".to_owned());
            with_keys(c);
        })
        .start();
    let url = url(&server);
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = [("LONGSHORE_TOKENS", folder.path().to_str().expect("UTF-8"))];
    let call = format!("call {url} echo message=hello");
    let Some((code, shown)) = at_terminal(&call, &tokens, "n\n") else {
        return;
    };
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("Log in now? [y/N]"), "{shown}");
    let typed = format!("y\n{CI}\n");
    let (code, shown) = at_terminal(&call, &tokens, &typed).expect("there is script");
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["publishes no OAuth metadata", "hello"]);
    // A program is never prompted.
    let (code, shown) =
        at_terminal(&format!("{call} --json"), &tokens, "").expect("there is script");
    assert_eq!(code, Some(1), "{shown}");
    assert!(!shown.contains("Log in now?"), "{shown}");
}

#[test]
fn a_key_is_asked_for_at_a_terminal() {
    let typed = format!("{CI}\n");
    let Some((code, shown)) = at_terminal("key hash", &[], &typed) else {
        return;
    };
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["Key (not shown): ", "sha256:"]);
}

#[test]
fn listings_are_coloured_at_a_terminal_unless_that_is_not_wanted() {
    let server = serve();
    let list = format!("list {}", url(&server));
    let Some((code, shown)) = at_terminal(&list, &[], "") else {
        return;
    };
    assert_eq!(code, Some(0), "{shown}");
    assert_contains(&shown, &["\u{1b}[", "TOOLS"]);
    let plain = [
        at_terminal(&list, &[("NO_COLOR", "1")], ""),
        at_terminal(&format!("{list} --color never"), &[], ""),
    ];
    for (_, shown) in plain.into_iter().flatten() {
        assert!(
            !shown.contains("\u{1b}[3") && !shown.contains("\u{1b}[1m"),
            "{shown}"
        );
    }
    let always = at_terminal(&format!("{list} --color always"), &[("NO_COLOR", "1")], "");
    assert!(always.is_some_and(|(_, shown)| shown.contains("\u{1b}[")));
}
