//! Messages about settings that cannot be used.

use super::*;

#[test]
fn mistakes_are_told_with_their_place_and_a_way_out() {
    for (name, text, expected) in [
        (
            "a.toml",
            "[http]\nprot = 1\n",
            "a.toml:2:1: unknown setting http.prot; did you mean http.port?",
        ),
        (
            "a.yaml",
            "http:\n  prot: 1\n",
            "a.yaml:2:3: unknown setting http.prot; did you mean http.port?",
        ),
        (
            "a.json",
            "{\n\"http\": {\"port\": \"x\"}}",
            "a.json:2:10: http.port: invalid type: string \"x\", expected a whole number from 0 to 65535",
        ),
        (
            "a.yml",
            "http:\n  host: nowhere\n",
            "a.yml:2:3: http.host: invalid value: \"nowhere\", expected an IP address",
        ),
        (
            "a.toml",
            "[http]\nport = 1\n[server]\n\nname = 5\n",
            "a.toml:5:1: server.name: invalid type: integer `5`, expected a string; put it in quotes",
        ),
        (
            "a.yaml",
            "transport: htpp\n",
            "a.yaml:1:1: transport cannot be \"htpp\"; did you mean http? it can be http, stdio",
        ),
        (
            "a.yaml",
            "http: 8080\n",
            "a.yaml:1:1: http: a single value was found where a table of settings is expected",
        ),
        (
            "a.yaml",
            "http:\n  - port: 1\n",
            "a.yaml:1:1: http: a list was found where a table of settings is expected",
        ),
        ("a.yaml", "http\n", "a.yaml:1:1: a single value was found"),
        (
            "a.yaml",
            "zebra: 1\n",
            "a.yaml:1:1: unknown setting zebra; the settings here are transport,",
        ),
        (
            "a.json",
            "{\"servers\": {}}",
            "a.json:1:2: unknown setting servers; did you mean mcpServers?",
        ),
        (
            "a.yaml",
            "sources: [{name: a, htp: {}}]\n",
            "a.yaml:1:21: unknown setting sources[0].htp; did you mean sources[0].http?",
        ),
        (
            "a.yaml",
            "seal: {keys: [\"${KEY}\"]}\n",
            "seal.keys[0]: the variable KEY is not set; set it, or write ${KEY:-default}",
        ),
        ("a.yaml", "http: {port: [}\n", "a.yaml:1:"),
    ] {
        let (_folder, flags) = file(name, text);
        let message = load(&flags, &[]).expect_err("refused");
        assert!(message.contains(expected), "{message}\n{expected}");
    }
    for (variable, value, part) in [
        (
            "LONGSHORE_HTTP__PROT",
            "1",
            "unknown setting http.prot; did you mean LONGSHORE_HTTP__PORT?",
        ),
        (
            "LONGSHORE_HTTP__PORT",
            "many",
            "expected a whole number from 0 to 65535",
        ),
        (
            "LONGSHORE_HTTP__INSECURE",
            "maybe",
            "expected true or false",
        ),
        ("LONGSHORE_HTTP__HOST", "nowhere", "expected an IP address"),
        (
            "LONGSHORE_PROT",
            "1",
            "unknown setting; did you mean LONGSHORE_PORT?",
        ),
        (
            "LONGSHORE_HTTP_PORT",
            "1",
            "unknown setting; did you mean LONGSHORE_PORT?",
        ),
        (
            "LONGSHORE_HTTP_LIMITS_BODY_BYTES",
            "1",
            "unknown setting; did you mean LONGSHORE_HTTP__LIMITS__BODY_BYTES?",
        ),
        ("PORT", "http", "invalid type"),
        ("MCP_TRANSPORT", "pigeon", "it can be http, stdio"),
    ] {
        let message = refused(&[(variable, value)]);
        assert!(
            message.starts_with(&format!("environment variable {variable}: "))
                && message.contains(part),
            "{message}"
        );
    }
    let host = Flags {
        host: Some("nowhere".to_owned()),
        ..Flags::default()
    };
    assert!(
        load(&host, &[])
            .expect_err("refused")
            .starts_with("--host: ")
    );
    let (_folder, flags) = file("a.ini", "");
    assert!(
        load(&flags, &[])
            .expect_err("refused")
            .contains("the format is unknown")
    );
}

#[test]
fn all_mistakes_are_told_at_once() {
    let (_folder, flags) = file(
        "a.yaml",
        "http:\n  prot: 1\n  port: many\n  allowed_hosts: [a, 1]\nserver:\n  nmae: ${NO_SUCH_NAME}\n",
    );
    let variables = [("LONGSHORE_PROT", "1"), ("LONGSHORE_HTTP__WORKERS", "x")];
    let message = load(&flags, &variables).expect_err("refused");
    let places = [
        "a.yaml:2:3",
        "a.yaml:3:3",
        "a.yaml:4:22",
        "a.yaml:6:3",
        "NO_SUCH_NAME",
        "LONGSHORE_PROT",
        "LONGSHORE_HTTP__WORKERS",
    ];
    for place in places {
        assert!(message.contains(place), "{place} is not in {message}");
    }
    // A file's mistake is one even where the environment outdoes it.
    let (_folder, flags) = file("a.yaml", "http:\n  port: many\n");
    assert!(load(&flags, &[("PORT", "80")]).is_err());
}

#[test]
fn secrets_are_not_repeated() {
    for (name, text) in [
        ("a.toml", "seal = \"swordfish\""),
        ("a.toml", "[seal]\nkeys = [\"swordfish\", 1]"),
        ("a.toml", "[seal]\nkeys = \"swordfish"),
        ("a.json", "{\"seal\": \"swordfish\"}"),
        ("a.json", "{\"seal\": {\"keys\": [\"swordfish\", 1]}}"),
        ("a.json", "{\"seal\": {\"keys\": {\"swordfish\": 1}}}"),
        ("a.yaml", "seal:\n  keys: {a: swordfish}\n"),
        ("a.yaml", "seal:\n  keys: [swordfish\n"),
        ("a.yaml", "seal: swordfish\n"),
        ("a.yaml", "log: {format: '${KEY}'}\n"),
        ("a.yaml", "http: {port: '${KEY}'}\n"),
    ] {
        let (_folder, flags) = file(name, text);
        let message = load(&flags, &[("KEY", "swordfish")]).expect_err("refused");
        assert!(
            message.contains(name) && !message.contains("swordfish"),
            "{message}"
        );
    }
}

#[test]
fn names_in_the_style_of_people_are_addresses_too() {
    let host = Flags {
        host: Some("localhost".to_owned()),
        ..Flags::default()
    };
    assert!(load(&host, &[]).expect("valid").http.host.is_loopback());
}

#[test]
fn settings_that_would_stop_everything_are_refused() {
    for (variable, value, part) in [
        (
            "LONGSHORE_TOOLSET",
            "demo,demo",
            "toolsets has \"demo\" twice; name it once",
        ),
        ("LONGSHORE_WORKERS", "0", "http.workers is 0"),
        ("LONGSHORE_WORKERS", "100000", "at most 1024"),
        (
            "LONGSHORE_HTTP__LIMITS__IDLE_SECONDS",
            "0",
            "http.limits.idle_seconds is 0",
        ),
        (
            "LONGSHORE_HTTP__TLS__HANDSHAKE_SECONDS",
            "0",
            "http.tls.handshake_seconds is 0",
        ),
        (
            "LONGSHORE_HTTP__LIMITS__HEADER_BYTES",
            "65537",
            "at most 65536",
        ),
    ] {
        let message = refused(&[(variable, value)]);
        assert!(message.contains(part), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn files_with_secrets_that_others_can_read_are_refused_where_there_are_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().display().to_string();
    let open_to = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(file.path(), permissions).expect("ours");
    };
    for variable in [
        "LONGSHORE_AUTH__API_KEYS_FILE",
        "LONGSHORE_AUDIT__FILE",
        "LONGSHORE_HTTP__TLS__KEY",
    ] {
        open_to(0o644);
        let message = refused(&[(variable, &path)]);
        assert!(
            message.contains(&path) && message.contains("chmod o-rwx"),
            "{message}"
        );
        let in_container = [(variable, &*path), ("KUBERNETES_SERVICE_HOST", "10.0.0.1")];
        assert!(load(&Flags::default(), &in_container).is_ok());
        open_to(0o640);
        assert!(load(&Flags::default(), &[(variable, &path)]).is_ok());
    }
}

#[test]
fn proxies_that_may_be_anybody_are_refused() {
    for network in ["0.0.0.0/0", "::/0", "10.0.0.0/8,0.0.0.0/1"] {
        let wide = ("LONGSHORE_HTTP__TRUSTED_PROXIES", network);
        let message = refused(&[wide]);
        assert!(message.contains("such as 10.0.0.0/8"), "{message}");
    }
}

#[test]
fn http_02_without_authentication_only_loopback_is_listened_on() {
    let usual = load(&Flags::default(), &[]).expect("valid");
    assert!(usual.http.host.is_loopback());
    let public = |insecure| Flags {
        host: Some("0.0.0.0".to_owned()),
        insecure,
        ..Flags::default()
    };
    let message = load(&public(false), &[]).expect_err("refused");
    assert!(message.contains("--insecure"), "{message}");
    assert!(load(&public(true), &[]).is_ok());
    assert!(load(&public(false), &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).is_ok());
}
