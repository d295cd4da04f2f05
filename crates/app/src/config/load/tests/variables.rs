//! Settings from environment variables.

use super::*;

#[test]
fn platforms_set_the_port() {
    let variables = [
        ("LONGSHORE_PORT", "2"),
        ("LONGSHORE_HTTP__PORT", "1"),
        ("PORT", "8080"),
    ];
    assert_eq!(valid(&variables).http.port, 8080);
    assert_eq!(valid(&variables[..2]).http.port, 2);
}

#[test]
fn what_kubernetes_sets_for_a_service_of_our_name_is_ignored() {
    let variables = [
        ("LONGSHORE_PORT", "tcp://10.0.0.1:3000"),
        ("LONGSHORE_PORT_3000_TCP", "tcp://10.0.0.1:3000"),
        ("LONGSHORE_SERVICE_HOST", "10.0.0.1"),
        ("LONGSHORE_SERVICE_PORT_HTTP", "3000"),
        ("LONGSHORE_DEMO_SERVICE_HOST", "10.0.0.1"),
        ("LONGSHORE_DEMO_SERVICE_PORT", "3000"),
        ("LONGSHORE_DEMO_PORT", "tcp://10.0.0.1:3000"),
        ("LONGSHORE_DEMO_PORT_3000_TCP_ADDR", "10.0.0.1"),
    ];
    assert_eq!(valid(&variables).http.port, 3000);
}

#[test]
fn what_looks_like_kubernetes_and_is_not_is_no_less_a_mistake() {
    for name in ["LONGSHORE_DEMO_PORT", "LONGSHORE_PORT_MAPPING"] {
        let message = refused(&[(name, "3000")]);
        assert!(message.contains("unknown setting"), "{message}");
    }
    let message = load(
        &Flags::default(),
        &[("LONGSHORE_HTTP__PORT", "tcp://10.0.0.1:3000")],
    );
    assert!(
        message
            .expect_err("refused")
            .contains("LONGSHORE_HTTP__PORT")
    );
}

#[test]
fn the_level_of_the_log_has_the_usual_names() {
    let level = |variables: &[(&str, &str)]| valid(variables).log.level;
    assert_eq!(
        level(&[("LONGSHORE_LOG", "debug"), ("RUST_LOG", "warn")]),
        "debug"
    );
    assert_eq!(
        level(&[("RUST_LOG", "warn,hyper=info"), ("MCP_LOG_LEVEL", "error")]),
        "warn,hyper=info"
    );
    assert_eq!(level(&[("MCP_LOG_LEVEL", "WARNING")]), "warn");
    let config = valid(&[("MCP_LOG_FORMAT", "JSON")]);
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn names_of_other_products_are_understood_and_outdone() {
    let of = |variables: &[(&str, &str)]| load(&Flags::default(), variables);
    let config = of(&[
        ("MCP_RATE_LIMIT_RPS", "5"),
        ("MCP_RATE_LIMIT_BURST", "7"),
        ("MCP_OTEL_ENDPOINT", "http://collector:4318"),
        ("MCP_PROXY_REQUEST_TIMEOUT", "45"),
        ("LONGSHORE_LIMITS__PRINCIPAL__BURST", "9"),
    ])
    .expect("valid");
    assert_eq!(config.limits.principal.per_second, 5.0);
    assert_eq!(config.limits.principal.burst, 9);
    let endpoint = config.telemetry.endpoint.as_deref();
    assert_eq!(endpoint, Some("http://collector:4318"));
    assert_eq!(config.upstreams_timeout_seconds, Some(45));
    for (word, proof) in [
        ("bearer", Some(AuthMethodKind::ApiKey)),
        ("JWT", Some(AuthMethodKind::OAuth)),
        ("oauth", Some(AuthMethodKind::OAuth)),
        ("forwarded", Some(AuthMethodKind::Forwarded)),
        ("none", None),
        ("Off", None),
    ] {
        let config = of(&[("MCP_AUTH", word)]).expect("valid");
        assert_eq!(
            config.auth.methods,
            proof.into_iter().collect::<Vec<_>>(),
            "{word}"
        );
    }
    let refused = of(&[("MCP_AUTH", "magic")])
        .expect_err("no proof")
        .to_string();
    assert!(refused.contains("MCP_AUTH"), "{refused}");
    let refused = of(&[("MCP_RATE_LIMIT_RPS", "many")]).expect_err("no number");
    assert!(
        refused.to_string().contains("MCP_RATE_LIMIT_RPS"),
        "{refused}"
    );
}

#[test]
fn a_boolean_may_be_any_usual_word() {
    for (word, expected) in [
        ("True", true),
        ("1", true),
        ("yes", true),
        ("OFF", false),
        ("0", false),
    ] {
        let variables = [
            ("LONGSHORE_HTTP__INSECURE", word),
            ("LONGSHORE_SERVER__NAME", word),
        ];
        let config = load(&Flags::default(), &variables).expect(word);
        assert_eq!(config.http.insecure, expected, "{word}");
        assert_eq!(config.server.name, word);
    }
    let variables = [("LONGSHORE_HTTP__INSECURE", "2")];
    assert!(load(&Flags::default(), &variables).is_err());
}

#[cfg(feature = "sources")]
#[test]
fn variables_of_a_program_keep_their_names() {
    let variables = [
        ("LONGSHORE_UPSTREAMS__TIME__COMMAND", "b"),
        ("LONGSHORE_UPSTREAMS__TIME__ENV__API_KEY", "7"),
        ("LONGSHORE_UPSTREAMS__TIME__ENV__http_proxy", "http://proxy"),
    ];
    let config = valid(&variables);
    let names: Vec<&String> = config.upstreams["time"].env.keys().collect();
    assert_eq!(names, ["API_KEY", "http_proxy"]);
}

#[test]
fn variables_have_the_type_of_their_setting() {
    let variables = [
        ("LONGSHORE_SERVER__VERSION", "1.0"),
        ("LONGSHORE_TOOLSET", "demo, other"),
        ("LONGSHORE_HTTP__ALLOWED_HOSTS", "a.example,b.example"),
        ("LONGSHORE_HTTP__LIMITS__BODY_BYTES", "1000"),
        ("LONGSHORE_TRANSPORT", "stdio"),
    ];
    let config = valid(&variables);
    assert_eq!(config.server.version, "1.0");
    assert_eq!(config.toolsets, ["demo", "other"]);
    assert_eq!(config.http.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(config.http.limits.body_bytes, 1000);
    assert_eq!(config.transport, Transport::Stdio);
}

#[test]
fn a_file_may_refer_to_variables_that_stand_for_anything() {
    let text = "http:\n  port: ${WEB_PORT}\n  allowed_hosts: ['${HOST_NAME}', b]\nserver:\n  version: ${VERSION:-1.0}\n  name: a-${HOST_NAME}\n";
    let (_folder, flags) = file("a.yaml", text);
    let config = load(&flags, &[("WEB_PORT", "8081"), ("HOST_NAME", "a.example")]).expect("valid");
    assert_eq!(config.http.port, 8081);
    assert_eq!(config.http.allowed_hosts, ["a.example", "b"]);
    assert_eq!(
        (&*config.server.version, &*config.server.name),
        ("1.0", "a-a.example")
    );
    // A variable may hold a misplaced secret.
    let message = load(
        &flags,
        &[("WEB_PORT", "swordfish"), ("HOST_NAME", "a.example")],
    )
    .expect_err("refused");
    assert!(
        message.contains("a.yaml:2:3")
            && message.contains("65535")
            && !message.contains("swordfish"),
        "{message}"
    );
    let message = load(&flags, &[("WEB_PORT", "1")]).expect_err("refused");
    assert!(message.contains("HOST_NAME is not set"), "{message}");
    // A variable that is not set gives one error, not two.
    let message = load(&flags, &[("HOST_NAME", "a.example")]).expect_err("refused");
    assert!(
        message.contains("a.yaml:2:3") && message.contains("WEB_PORT is not set"),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
    let (_folder, flags) = file(
        "a.yaml",
        "env_missing: empty\nserver:\n  name: a-${HOST_NAME}\n",
    );
    let config = load(&flags, &[]).expect("valid");
    assert_eq!(config.server.name, "a-");
}

#[test]
fn secrets_may_be_in_files_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    let path = path.to_str().expect("UTF-8");
    let one = "one secret that is long enough for a key";
    let two = format!("{one},another {one}");
    for (text, keys) in [
        (format!("{one}\n"), 1),
        (format!("{one}\n\nanother {one}\n"), 2),
        (two, 2),
    ] {
        std::fs::write(path, text).expect("written");
        let config = valid(&[("LONGSHORE_SEAL__KEYS_FILE", path)]);
        assert_eq!(config.seal.keys.len(), keys);
    }
    std::fs::write(path, format!("\u{feff}{one}\r\n")).expect("written");
    let config = valid(&[("LONGSHORE_SEAL__KEYS_FILE", path)]);
    assert_eq!(config.seal.keys[0].expose(), one);
    std::fs::write(path, "\n").expect("written");
    for (variables, part) in [
        (("LONGSHORE_SEAL__KEYS_FILE", path), "is empty"),
        (
            ("LONGSHORE_SEAL__KEYS_FILE", "/no/such/file"),
            "cannot read /no/such/file",
        ),
        (
            ("LONGSHORE_HTTP__PORT_FILE", path),
            "set LONGSHORE_HTTP__PORT to the value itself",
        ),
        (
            ("LONGSHORE_HTTP__ZEBRA_FILE", path),
            "unknown setting http.zebra_file",
        ),
    ] {
        let message = refused(&[variables]);
        assert!(message.contains(part), "{message}");
    }
    std::fs::write(path, one).expect("written");
    let both = [
        ("LONGSHORE_SEAL__KEYS_FILE", path),
        ("LONGSHORE_SEAL__KEYS", one),
    ];
    let message = refused(&both);
    assert!(
        message.contains("LONGSHORE_SEAL__KEYS is set too"),
        "{message}"
    );
}

#[test]
fn names_of_other_servers_are_understood_and_outdone() {
    let variables = [
        ("MCP_PORT", "1"),
        ("MCP_HOST", "::1"),
        ("MCP_TRANSPORT", "streamable-http"),
        ("MCP_UNKNOWN", "x"),
    ];
    let config = valid(&variables);
    assert_eq!(
        (config.http.port, config.http.host.to_string()),
        (1, "::1".to_owned())
    );
    let config = valid(&[("MCP_PORT", "1"), ("LONGSHORE_HTTP__PORT", "2")]);
    assert_eq!(config.http.port, 2);
    let config = valid(&[("MCP_PORT", "tcp://10.0.0.1:80")]);
    assert_eq!(config.http.port, 3000);
    let (_folder, flags) = file("a.toml", "[http]\nport = 7\n");
    let path = flags.config.expect("a path");
    let config = valid(&[("MCP_CONFIG_PATH", path.to_str().expect("UTF-8"))]);
    assert_eq!(config.http.port, 7);
}
