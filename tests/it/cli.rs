//! The program, as an operator meets it.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Output, Stdio};

use crate::support::{KillOnDrop, Served, assert_contains, free_port, longshore, run, said};

/// Returns the error of a failed start, with the exit code.
fn complaint(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let (code, stdout, stderr) = run(&mut longshore(arguments, variables));
    assert_eq!(stdout, "");
    (code, stderr.replace("\\\"", "\""))
}

#[test]
fn what_cannot_be_done_is_said_with_its_place_and_a_way_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("longshore.toml");
    std::fs::write(&path, "[http]\nport = \"many\"\n").expect("written");
    let path = path.to_str().expect("UTF-8");
    let missing = format!("{path}.bak");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    for (arguments, variables, parts) in [
        (
            &["run", "--host", "127.0.0.1", "--port", &port][..],
            &[][..],
            &["127.0.0.1", "in use", "--port"][..],
        ),
        (
            &["run", "--config", path],
            &[],
            &["longshore.toml:2:1", "from 0 to 65535"],
        ),
        (
            &["run", "--config", &missing],
            &[],
            &["longshore.toml.bak", "No such file", "--config"],
        ),
        (
            &["run", "--host", "192.0.2.1", "--insecure"],
            &[],
            &[
                "192.0.2.1",
                "this machine does not have this address: choose another one with --host or LONGSHORE_HOST (0.0.0.0 for all interfaces)",
            ],
        ),
        (
            &["run", "--host", "nowhere"],
            &[],
            &["--host", "nowhere", "127.0.0.1"],
        ),
        (
            &["run", "--toolset", "demon"],
            &[],
            &["toolsets", "\"demon\"", "demo"],
        ),
        (
            &["run"],
            &[("LONGSHORE_PROT", "1")],
            &["LONGSHORE_PROT", "mean LONGSHORE_PORT", "unset"],
        ),
        (
            &["run"],
            &[("LONGSHORE_SEAL__KEYS", "short")],
            &["seal.keys[0]", "5 bytes", "openssl"],
        ),
    ] {
        let (code, text) = complaint(arguments, variables);
        assert_eq!(code, Some(1), "{text}");
        let last = text.lines().last().unwrap_or_default();
        for part in parts {
            assert!(last.contains(part), "{part:?} is not in: {text}");
        }
    }
}

#[test]
fn a_command_line_that_makes_no_sense_is_told_from_a_server_that_fails() {
    for (arguments, part) in [
        (&["run", "--prot", "1"][..], "--port"),
        (&["run", "--port", "65536"], "65535"),
        (&["serve"], "serve"),
        (&["run", "--transport", "sse"], "stdio"),
        (&["--port", "1", "run"], "--port"),
        (&["lst", "http://127.0.0.1:1/mcp"], "Did you mean 'list'?"),
        (&["list", "127.0.0.1:1", "--timeout", "0"], "1.."),
        (
            &["doctor", "--url", "https://host/mcp", "--port", "1"],
            "--port",
        ),
        (
            &["registry", "show", "a", "--json", "--unpack", "b"],
            "--unpack",
        ),
    ] {
        let (code, text) = complaint(arguments, &[]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(part) && text.contains("--help"), "{text}");
    }
}

#[test]
fn a_closed_standard_error_is_no_reason_to_panic() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut failing = longshore(&["key", "new", "a b"], &[]);
    let status = failing.stderr(writer).status().expect("started");
    assert_eq!(status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn a_path_that_is_not_utf_8_before_an_unknown_command_is_no_reason_to_panic() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut command = longshore(&["--config"], &[]);
    command
        .arg(std::ffi::OsStr::from_bytes(b"a\xff"))
        .arg("lst");
    let Output { status, stderr, .. } = command.output().expect("started");
    let text = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(2), "{text}");
    assert!(text.contains("Did you mean 'list'?"), "{text}");
}

#[test]
fn what_a_command_cannot_use_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mcp.json");
    let upstreams = serde_json::json!({"mcpServers": {
        "nothing": {},
        "broken": {"command": "/bin/sh", "args": ["-c", "echo why >&2; exit 3"]},
    }});
    std::fs::write(&path, upstreams.to_string()).expect("written");
    let path = path.to_str().expect("UTF-8");
    for (arguments, part) in [
        (
            &["config", "check", "--offline", "--config", path][..],
            "upstreams.nothing: it needs a command",
        ),
        (&["list", "broken", "--config", path], "why"),
        (
            &["list", "broken", "--config", path],
            "check its command, args and env",
        ),
        (
            &["list", "ftp://host/mcp"],
            "longshore: ftp://host/mcp: this URL cannot be used",
        ),
    ] {
        let (code, text) = complaint(arguments, &[]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

/// The exit code 1 of these commands is a result.
#[test]
fn invalid_arguments_of_commands_have_an_exit_code_of_their_own() {
    for (arguments, part) in [
        (
            &[
                "policy", "check", "--as", "local", "--claim", "team", "echo",
            ][..],
            "NAME=VALUE",
        ),
        (&["policy", "check", "--as", "team:a", "echo"], "--as"),
        (&["doctor", "--url", "host"], "--url"),
        (&["doctor", "--url", "ftp://host/mcp"], "ftp"),
        (
            &["doctor", "--url", "https://host/mcp", "--ca", "/none.pem"],
            "/none.pem",
        ),
        (
            &["doctor", "--url", "https://me:s3cret@host/mcp"],
            "user name or password",
        ),
        (
            &["doctor", "--url", "https://host/mcp", "--origin", "app"],
            "https://app.example.com",
        ),
        (&["connect", "cursor", "host"], "is not a URL"),
        // The server would reject the settings that are printed with a key.
        (&["key", "new", "CI bot"], "A-Z"),
        (&["registry", "search", "a", "--url", "ftp://a"], "--url"),
        (&["registry", "search", "a", "--limit", "0"], "1..=2000"),
        (&["call", "127.0.0.1:1", "echo", "{"], "not valid JSON"),
        (&["prompt", "127.0.0.1:1", "greeting", "x"], "name=value"),
        (&["call", "127.0.0.1:1", "echo", "=x"], "name=value"),
        (
            &["list", "http://me:s3cret@127.0.0.1:1/mcp"],
            "user name or password",
        ),
    ] {
        let (code, text) = complaint(arguments, &[]);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(part), "{part:?} is not in: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn a_token_that_no_header_can_have_is_told() {
    for arguments in [
        ["doctor", "--url", "https://host/mcp"],
        ["list", "https://host/mcp", "--json"],
    ] {
        let (_, text) = complaint(&arguments, &[("LONGSHORE_TOKEN", "lsk_\u{7}")]);
        assert!(text.contains("that no header can have"), "{text}");
    }
}

#[test]
fn arguments_at_standard_input_that_are_not_text_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("arguments");
    std::fs::write(&path, b"{\xff}").expect("written");
    let mut command = longshore(&["call", "127.0.0.1:1", "echo", "-"], &[]);
    command.stdin(std::fs::File::open(&path).expect("opened"));
    let (code, text) = said(&mut command);
    assert_eq!(code, Some(2), "{text}");
    assert_contains(&text, &["standard input cannot be read", "UTF-8"]);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_not_passed_over() {
    use std::os::unix::ffi::OsStrExt as _;
    for name in ["LONGSHORE_CONFIG", "LONGSHORE_AUTH__API_KEYS", "PORT"] {
        let mut command = longshore(&["config", "check"], &[]);
        command.env(name, std::ffi::OsStr::from_bytes(b"ci=\xff"));
        let (code, text) = said(&mut command);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(name) && text.contains("UTF-8"), "{text}");
    }
}

#[test]
fn a_timeout_may_be_any_number() {
    let most = u64::MAX.to_string();
    let (code, text) = complaint(&["list", "http://127.0.0.1:1/mcp", "--timeout", &most], &[]);
    assert_eq!(code, Some(1), "{text}");
    assert_contains(&text, &["cannot connect", "start the server"]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_command_leaves_no_process() {
    use crate::support::{becomes, until};
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("mcp.json");
    let number = folder.path().join("number");
    // The second process is no child of the program, and in a session of its own.
    let script = format!(
        "setsid sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait",
        number.display()
    );
    let upstream = serde_json::json!({"command": "/bin/sh", "args": ["-c", script]});
    let upstreams = serde_json::json!({"mcpServers": {"up": upstream}});
    std::fs::write(&config, upstreams.to_string()).expect("written");
    let config = config.to_str().expect("UTF-8");
    let mut command = longshore(
        &["list", "up", "--config", config],
        &[("PATH", "/usr/bin:/bin")],
    );
    let mut running = KillOnDrop(command.spawn().expect("started"));
    let process = until(|| {
        let number = std::fs::read_to_string(&number).ok()?;
        number.strip_suffix('\n').map(str::to_owned)
    });
    let state = || std::fs::read_to_string(format!("/proc/{process}/stat"));
    assert!(state().is_ok(), "process {process} runs");
    running.signal("INT");
    assert_eq!(running.exit_code(), Some(130));
    becomes(|| state().is_ok_and(|stat| stat.contains(") Z ")) || state().is_err());
}

#[test]
fn every_mistake_of_a_file_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("longshore.yaml");
    std::fs::write(&path, "http:\n  prot: 1\n  workers: many\n").expect("written");
    let path = path.to_str().expect("UTF-8");
    for arguments in [
        &["config", "check", "--config", path][..],
        &["run", "--config", path],
    ] {
        let (code, text) = complaint(arguments, &[]);
        assert_eq!(code, Some(1), "{text}");
        for part in [
            "longshore.yaml:2:3",
            "mean http.port?",
            "longshore.yaml:3:3",
            "http.workers",
        ] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}

/// Returns what a command prints that succeeds and has nothing to complain about.
fn printed(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let (code, stdout, stderr) = run(&mut longshore(arguments, variables));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    stdout
}

#[test]
fn settings_are_explained_and_described() {
    let variables = [
        ("PORT", "8123"),
        (
            "LONGSHORE_SEAL__KEYS",
            "a key that is long enough to be one and secret",
        ),
    ];
    let text = printed(
        &["config", "explain", "--set", "--workers", "3"],
        &variables,
    );
    for line in [
        "http.port 8123 restart PORT",
        "http.workers 3 restart --workers",
        "seal.keys [\"[secret]\"] restart LONGSHORE_SEAL__KEYS",
    ] {
        let found = text
            .lines()
            .any(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") == line);
        assert!(found, "{line} is not in\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["config", "explain", "--json"], &variables)).expect("JSON");
    let settings = json["settings"].as_array().expect("a list");
    let port = settings
        .iter()
        .find(|s| s["setting"] == "http.port")
        .expect("a port");
    assert_eq!(
        (&port["value"], &port["origin"], &port["detail"]),
        (&8123.into(), &"environment".into(), &"PORT".into())
    );
    assert!(!json.to_string().contains("long enough"));
    let schema: serde_json::Value =
        serde_json::from_str(&printed(&["config", "schema"], &[])).expect("JSON");
    assert_eq!(schema["properties"]["transport"]["x-reload"], "restart");
    assert!(printed(&["config", "check", "--host", "127.0.0.1"], &[]).contains("valid"));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = printed(&["completions", shell], &[]);
        assert!(script.contains("_LONGSHORE_COMPLETE"), "{shell}");
    }
    let explained = printed(&["config", "explain"], &[]);
    let first = explained.lines().next().unwrap_or_default();
    assert!(first.contains("--set shows these alone"), "{first}");
    let page = printed(&["man"], &[]);
    assert_contains(&page, &[".TH longshore 1", "healthcheck"]);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let text = printed(&["--version"], &[]);
    assert_eq!(text, format!("longshore {}\n", env!("CARGO_PKG_VERSION")));
    for arguments in [&["--help"][..], &["run", "--help"]] {
        let text = printed(arguments, &[]);
        assert_contains(&text, &["--config", "--host", "--port", "--transport"]);
        assert_contains(&text, &["--toolset", "--workers", "--insecure"]);
    }
}

#[test]
#[cfg(unix)]
fn it_serves_without_a_command_and_stops_when_told() {
    for (arguments, signal) in [
        (&["--port", "0"][..], "TERM"),
        (&["run", "--port", "0", "--toolset", "demo"], "INT"),
    ] {
        let mut serving = Served::start(longshore(arguments, &[]));
        let greeting = &serving.greeting;
        assert!(
            greeting.contains("7 tools") || greeting.contains("\"tools\":7"),
            "{greeting}"
        );
        assert_eq!(serving.connect().page("/health").status, 200);
        serving.process.signal(signal);
        assert_eq!(serving.process.exit_code(), Some(0));
    }
}

#[test]
fn variables_that_kubernetes_and_platforms_set_are_understood() {
    let free = free_port();
    let variables = [
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("LONGSHORE_PORT", "tcp://10.0.0.2:3000"),
        ("LONGSHORE_SERVICE_PORT", "3000"),
        ("LONGSHORE_HOST", "0.0.0.0"),
        ("LONGSHORE_LOG", "info"),
        ("PORT", &free.to_string()),
    ];
    let serving = Served::start(longshore(&[], &variables));
    assert_eq!(serving.address, (Ipv4Addr::UNSPECIFIED, free).into());
    for line in serving.greeting.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a container's log is JSON");
    }
    for setting in ["http.allowed_hosts", "seal.keys"] {
        assert!(serving.greeting.contains(setting), "{}", serving.greeting);
    }
}

#[test]
fn garbage_on_standard_input_is_answered_and_nothing_else_is_said() {
    let mut process = longshore(
        &["run", "--transport", "stdio"],
        &[("LONGSHORE_LOG", "warn")],
    )
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("started");
    let mut input = process.stdin.take().expect("piped");
    input
        .write_all(b"hello\n\xff\xfe\n{}\n{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n")
        .expect("written");
    drop(input);
    let Output {
        status,
        stdout,
        stderr,
    } = process.wait_with_output().expect("it ends");
    assert_eq!((status.code(), stderr.as_slice()), (Some(0), &b""[..]));
    let stdout = String::from_utf8(stdout).expect("UTF-8");
    let mut codes: Vec<_> = stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON")["error"]["code"].as_i64())
        .collect();
    codes.sort();
    assert_eq!(codes, [None, Some(-32700), Some(-32700), Some(-32600)]);
    assert!(
        stdout.contains(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#),
        "{stdout}"
    );
}

#[test]
#[cfg(unix)]
fn the_page_for_trying_is_opened_where_somebody_asks_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (opener, told) = (folder.path().join("opener"), folder.path().join("told"));
    // Reading a pipe blocks until it has a writer.
    let made = Command::new("mkfifo").arg(&told).status();
    assert!(made.expect("there is mkfifo").success());
    let script = format!("#!/bin/sh\nprintf %s \"$1\" > {}\n", told.display());
    std::fs::write(&opener, script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&opener, mode).expect("set");
    let inspect = format!("--inspect={}", opener.display());
    let path = [("PATH", "/usr/bin:/bin")];
    let arguments = ["run", "--host", "127.0.0.1", "--port", "0", &inspect];
    let serving = Served::start(longshore(&arguments, &path));
    let page = std::fs::read_to_string(&told).expect("opened");
    assert_eq!(page, format!("http://{}/", serving.address));
}
