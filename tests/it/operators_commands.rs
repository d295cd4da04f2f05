//! The commands `key` and `policy`, and start-up warnings about settings that admit no caller, or every caller.

use std::io::Write as _;
use std::process::Stdio;

use longshore::auth::KeyHash;

use crate::support::{self, Served, assert_contains, longshore};

/// Runs a command. Returns its exit code and output.
fn said(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    support::said(&mut longshore(arguments, variables))
}

#[test]
fn a_new_key_is_printed_once_with_its_hash_and_opens_the_server() {
    let (code, text) = said(&["key", "new", "ci"], &[]);
    assert_eq!(code, Some(0));
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.expect("a line").trim().to_owned()
    };
    let (key, hash) = (field("key "), field("hash"));
    assert_eq!(KeyHash::of(&key).to_string(), hash);
    assert!(
        text.contains(&format!("LONGSHORE_AUTH__API_KEYS=ci={hash}")),
        "{text}"
    );
    assert_eq!(text.matches(&key).count(), 1);
    let (_, another) = said(&["key", "new"], &[]);
    assert!(!another.contains(&key), "each is new");
    let (_, yaml) = said(&["key", "new", "ci"], &[]);
    assert!(
        yaml.contains("  auth:\n    api_keys:\n      - { name: \"ci\", keys: [\"sha256:"),
        "{yaml}"
    );
    let (_, toml) = said(&["key", "new", "ci", "--format", "toml"], &[]);
    assert!(
        toml.contains("  [auth]\n  api_keys = [{ name = \"ci\", keys = [\"sha256:"),
        "{toml}"
    );
    // The printed value can be used as configuration.
    let keys = format!("ci={hash}");
    let (code, text) = said(&["config", "check"], &[("LONGSHORE_AUTH__API_KEYS", &keys)]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn the_hash_of_a_key_is_made_from_standard_input() {
    let hash = |input: &str| {
        let mut process = longshore(&["key", "hash"], &[])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut stdin = process.stdin.take().expect("piped");
        stdin.write_all(input.as_bytes()).expect("it reads");
        drop(stdin);
        let output = process.wait_with_output().expect("ends");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8(text).expect("UTF-8"),
        )
    };
    let key = "a-key-that-is-long-enough-to-be-one";
    let (good, text) = hash(&format!("{key}\n"));
    assert!(
        good && text.trim() == KeyHash::of(key).to_string(),
        "{text}"
    );
    let (good, text) = hash("short\n");
    assert!(
        !good && !text.contains("short\n") && text.len() > 20,
        "{text}"
    );
}

const RULES: &str = r#"
auth:
  api_keys:
    - { name: ci, keys: [a-key-that-is-long-enough-to-be-one], groups: [robots] }
policy:
  rules:
    - { name: all read, effect: allow, access: read }
    - { name: robots calculate, effect: allow, groups: [robots], tools: [calculate], requires: [math] }
    - { name: nobody waits, effect: deny, tools: [wait] }
    - { name: about, effect: deny, resources: ["demo://*"] }
"#;

#[test]
fn the_policy_is_asked_on_the_command_line_and_the_exit_code_is_the_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.yaml");
    std::fs::write(&file, RULES).expect("written");
    let file = file.to_str().expect("UTF-8");
    for (arguments, code, parts) in [
        (
            &["--as", "user:alice", "echo"][..],
            0,
            &["yes", "all read"][..],
        ),
        (&["--as", "user:alice", "wait"], 1, &["no", "nobody waits"]),
        (
            &["--as", "key:ci", "calculate"],
            1,
            &["lacks math", "all read"],
        ),
        (
            &["--as", "key:ci", "--scope", "math", "calculate"],
            0,
            &["yes"],
        ),
        (
            &["--as", "user:alice", "--group", "robots", "calculate"],
            1,
            &["lacks math"],
        ),
        (
            &["--as", "key:ci", "nothing"],
            1,
            &["the tool does not exist"],
        ),
        (
            &["--as", "user:alice", "--resource", "demo://about"],
            1,
            &["no", "about"],
        ),
        (
            &["--as", "local", "--prompt", "nothing"],
            1,
            &["the prompt does not exist"],
        ),
    ] {
        let mut all = vec!["policy", "--config", file, "check"];
        all.extend(arguments);
        let (found, text) = said(&all, &[]);
        assert_eq!(found, Some(code), "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
    let (code, text) = said(&["policy", "classify", "--config", file], &[]);
    assert_eq!(code, Some(0));
    let echo = text.lines().find(|line| line.starts_with("echo "));
    assert!(echo.is_some_and(|line| line.contains(" read ")), "{text}");
    let (code, _) = said(&["policy", "check", "echo"], &[]);
    assert_eq!(code, Some(2), "as whom?");
    // With sources, a server does not add the demo tools.
    let sources = r#"{"sources": [{"name": "pets", "http": {"base_url": "https://api.example.com", "tools": [
        {"name": "list", "description": "Lists all pets.", "url": "/pets"}
    ]}}]}"#;
    let file = folder.path().join("sources.json");
    std::fs::write(&file, sources).expect("written");
    let file = file.to_str().expect("UTF-8");
    let (code, text) = said(&["policy", "classify", "--config", file], &[]);
    assert_eq!((code, text.lines().count()), (Some(0), 1), "{text}");
}

#[test]
fn rules_for_what_there_is_not_are_told_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.yaml");
    let check = |rules: &str| {
        std::fs::write(&file, format!("policy: {{rules: [{rules}]}}\n")).expect("written");
        said(
            &["config", "check", "--config", file.to_str().expect("UTF-8")],
            &[],
        )
    };
    let (code, text) = check("{effect: allow, tools: [delete_*]}");
    assert_eq!(code, Some(1));
    assert_contains(&text, &["policy.rules[0].tools", "\"delete_*\""]);
    let (code, text) = check("{effect: deny, prompts: [nothing]}");
    assert_eq!(code, Some(1));
    assert!(text.contains("policy.rules[0].prompts"), "{text}");
    let (code, text) = check("{effect: allow, requires: [\"two words\"]}");
    assert_eq!(code, Some(1));
    assert!(text.contains("policy.rules[0].requires"), "{text}");
    let (code, text) = check("{effect: deny, resources: [\"verb://{verb}\"]}");
    assert_eq!(code, Some(1));
    assert_contains(&text, &["policy.rules[0].resources", "is a template"]);
}

/// Returns the log up to a line that contains the text.
fn logged(variables: &[(&str, &str)], part: &str) -> String {
    let mut command = longshore(&["run", "--host", "127.0.0.1", "--port", "0"], variables);
    command.env("LONGSHORE_LOG__FORMAT", "text");
    Served::spawn(command).wait_for(part)
}

#[test]
fn an_issuer_that_answers_nonsense_is_told_at_start_with_what_to_do() {
    // The response is not HTTP.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let issuer = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nnonsense");
        }
    });
    let line = logged(
        &[
            ("LONGSHORE_AUTH__OAUTH__ISSUER", &issuer),
            ("LONGSHORE_AUTH__OAUTH__AUDIENCE", "x"),
        ],
        "the keys of an issuer cannot be fetched; fetching is retried. Until keys are there, tokens get status 503. Check that auth.oauth.issuer is written exactly as in the issuer's metadata, or set jwks_url",
    );
    assert!(
        line.contains(&issuer) && line.contains("auth.oauth.issuer") && line.contains("503"),
        "{line}"
    );
}

#[test]
fn audiences_that_no_token_can_have_are_told_at_start() {
    for audience in ["two words", "https://mcp.example.com/mcp#fragment"] {
        let variables = [
            ("LONGSHORE_AUTH__OAUTH__ISSUER", "https://id.example.com"),
            ("LONGSHORE_AUTH__OAUTH__AUDIENCE", audience),
        ];
        let (code, text) = said(&["config", "check"], &variables);
        assert_eq!(code, Some(1));
        assert_contains(&text, &["auth.oauth.audience", "`aud`"]);
    }
}

#[test]
fn rules_for_holders_of_keys_that_there_are_not_are_told_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("longshore.yaml");
    let text = "auth: {api_keys: [\"ci=a-key-that-is-long-enough-to-be-one\"]}\n\
        policy: {rules: [{effect: deny, principals: [\"key:ci\", \"key:cl\", \"ci\"]}]}\n";
    std::fs::write(&file, text).expect("written");
    let file = file.to_str().expect("UTF-8");
    let line = logged(
        &[("LONGSHORE_CONFIG", file)],
        "no API key has that name, so the rule has no effect until one is added to auth.api_keys",
    );
    assert_contains(&line, &["policy.rules[0].principals", "key:cl"]);
    let line = logged(
        &[("LONGSHORE_CONFIG", file)],
        "the rule does not apply to the API key of that name; write key: in front of it",
    );
    assert_contains(&line, &["policy.rules[0].principals", "ci"]);
}
