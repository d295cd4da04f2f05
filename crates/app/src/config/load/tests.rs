use super::*;
use crate::auth::AuthMethodKind;
use crate::config::{LogFormat, Transport};

fn load(flags: &Flags, variables: &[(&str, &str)]) -> Result<Config, String> {
    let probe = Probe::of(variables.iter().copied());
    Config::load(flags, &probe).map_err(|e| e.to_string())
}

/// The configuration of variables alone.
fn valid(variables: &[(&str, &str)]) -> Config {
    load(&Flags::default(), variables).expect("valid")
}

/// The problems of variables alone.
fn refused(variables: &[(&str, &str)]) -> String {
    load(&Flags::default(), variables).expect_err("refused")
}

fn file(name: &str, text: &str) -> (tempfile::TempDir, Flags) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("written");
    let flags = Flags {
        config: Some(path),
        ..Flags::default()
    };
    (folder, flags)
}

#[test]
fn flags_outdo_the_environment_which_outdoes_the_file() {
    let (_folder, mut flags) = file(
        "a.toml",
        "[http]\nport = 1\nworkers = 1\n[server]\nname = \"file\"",
    );
    let variables = [
        ("LONGSHORE_HTTP__PORT", "2"),
        ("LONGSHORE_HTTP__WORKERS", "2"),
    ];
    let config = load(&flags, &variables).expect("valid");
    assert_eq!(
        (config.http.port, config.http.workers, &*config.server.name),
        (2, Some(2), "file")
    );
    flags.port = Some(3);
    assert_eq!(load(&flags, &variables).expect("valid").http.port, 3);
}

#[test]
fn variables_in_command_lines_and_paths_of_urls_are_explained_as_written() {
    let (_folder, flags) = file(
        "a.yaml",
        "upstreams:\n  x: { command: x, args: [--user, '${KEY}', 'k=${KEY}', plain] }\n  y: { command: y, args: '${LIST}' }\nsources:\n  - name: s\n    command: { tools: [{ name: t, argv: [z, ['${KEY}'], plain] }] }\n  - name: h\n    http: { base_url: 'https://${HOST}/bot${KEY}', tools: [{ name: t, url: 'https://${HOST}/' }] }\n",
    );
    let probe = Probe::of([
        ("KEY", "swordfish"),
        ("LIST", r#"["swordfish"]"#),
        ("HOST", "a.example"),
    ]);
    let explained = Loaded::read(&flags, &probe).expect("valid").explain();
    let value_of = |setting: &str| {
        let found = explained.iter().find(|one| one.setting == setting);
        found.expect(setting).value.clone()
    };
    let args = serde_json::json!(["--user", "${KEY}", "k=${KEY}", "plain"]);
    assert_eq!(value_of("upstreams.x.args"), args);
    assert_eq!(value_of("upstreams.y.args"), "${LIST}");
    let argv = &value_of("sources")[0]["command"]["tools"][0]["argv"];
    assert_eq!(*argv, serde_json::json!(["z", ["${KEY}"], "plain"]));
    let http = &value_of("sources")[1]["http"];
    assert_eq!(http["base_url"], "https://${HOST}/bot${KEY}");
    assert_eq!(http["tools"][0]["url"], "https://a.example/");
}

#[test]
fn variables_that_can_contain_the_path_of_a_url_are_explained_as_written() {
    let (_folder, flags) = file(
        "a.yaml",
        "upstreams:\n  x: { url: '${API}' }\n  y: { httpUrl: '${API}' }\n  z: { serverUrl: '${API}' }\nsources:\n  - name: h\n    http: { base_url: '${API}/bot${KEY}', tools: [{ name: t, url: '/bot${KEY}/getMe' }, { name: u, url: 'https://${HOST}' }, { name: v, url: '${API}?k=swordfish' }, { name: w, url: '${API:-https://u:swordfish@a.example}' }] }\n",
    );
    let probe = Probe::of([
        ("KEY", "swordfish"),
        ("API", "https://a.example/swordfish"),
        ("HOST", "a.example/swordfish"),
    ]);
    let explained = Loaded::read(&flags, &probe).expect("valid").explain();
    let text = serde_json::to_string(&explained).expect("serialises");
    assert!(!text.contains("swordfish"), "{text}");
    for upstream in ["x", "y", "z"] {
        let setting = format!("upstreams.{upstream}.url");
        let found = explained.iter().find(|one| one.setting == setting);
        let found = found.expect(&setting);
        assert_eq!(found.value, "${API}");
        assert!(found.from.contains("a.yaml:"), "{}", found.from);
    }
}

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
fn a_file_with_other_servers_is_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("servers.json");
    let text = r#"{"mcpServers": {"time": {"command": "mcp-server-time"}}}"#;
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("UTF-8");
    let config = valid(&[("MCP_SERVERS_CONFIG", path)]);
    assert!(config.upstreams.contains_key("time"));
    // Some have it in the variable itself.
    let config = valid(&[("MCP_SERVERS_CONFIG", text)]);
    assert!(config.upstreams.contains_key("time"));
    let wrong = r#"{"mcpServers": {"time": {"command": 5}}}"#;
    let refused = load(&Flags::default(), &[("MCP_SERVERS_CONFIG", wrong)]);
    let refused = refused.expect_err("no command").to_string();
    assert!(refused.contains("MCP_SERVERS_CONFIG:1:26"), "{refused}");
    let other = folder.path().join("longshore.toml");
    std::fs::write(&other, "").expect("written");
    let other = other.to_str().expect("UTF-8");
    let variables = [("MCP_SERVERS_CONFIG", path), ("MCP_CONFIG_PATH", other)];
    let config = valid(&variables);
    assert!(config.upstreams.is_empty());
}

#[test]
fn servers_under_the_name_of_other_products_are_masked_overridden_and_explained_as_upstreams() {
    // The variables of a server as a string, which is a mistake that shows them.
    let wrong = r#"{"mcpServers": {"time": {"command": "a", "env": "API_KEY=swordfish"}}}"#;
    let (_folder, flags) = file("a.json", wrong);
    let refused = load(&flags, &[]).expect_err("a table is expected");
    assert!(refused.contains("upstreams.time.env"), "{refused}");
    assert!(!refused.contains("swordfish"), "{refused}");

    let text = r#"{"mcpServers": {"time": {"command": "a", "env": {"API_KEY": "swordfish"}}}}"#;
    let (_folder, flags) = file("a.json", text);
    let probe = Probe::of([("LONGSHORE_UPSTREAMS__TIME__COMMAND", "b")]);
    let loaded = Loaded::read(&flags, &probe).expect("valid");
    let command = loaded.config.upstreams["time"].command.as_deref();
    assert_eq!(command, Some("b"));
    let explained = loaded.explain();
    let from = |setting: &str| {
        let one = explained.iter().find(|one| one.setting == setting);
        one.map(|one| one.from.rsplit('/').next().unwrap_or_default())
    };
    assert_eq!(
        from("upstreams.time.command"),
        Some("LONGSHORE_UPSTREAMS__TIME__COMMAND")
    );
    assert_eq!(from("upstreams.time.env.API_KEY"), Some("a.json:1:50"));

    let twice = "upstreams: {a: {command: a}}\nmcpServers: {b: {command: b}}\n";
    let (_folder, flags) = file("a.yaml", twice);
    let refused = load(&flags, &[]).expect_err("two names of one setting");
    assert!(
        refused.contains("a.yaml:2:1: mcpServers is another name of upstreams"),
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
fn what_is_detected_is_outdone_by_what_is_said() {
    use crate::environment::StandardStreams;

    let explained = |variables: &[(&str, &str)], flags: &Flags| {
        let probe =
            Probe::of(variables.iter().copied()).with_standard_streams(StandardStreams::Pipes);
        let loaded = Loaded::read(flags, &probe).expect("valid");
        ["transport", "http.host", "http.port"].map(|setting| {
            let all = loaded.explain();
            let one = all
                .iter()
                .find(|one| one.setting == setting)
                .expect("it is there");
            let value = one
                .value
                .as_str()
                .map_or_else(|| one.value.to_string(), str::to_owned);
            format!(
                "{value} {}",
                one.from.split([':', ' ']).next().unwrap_or_default()
            )
        })
    };
    let none = Flags::default();
    assert_eq!(
        explained(&[("HOME", "/")], &none),
        ["stdio detected", "127.0.0.1 default", "3000 default"]
    );
    assert_eq!(
        explained(&[("K_SERVICE", "a"), ("PORT", "9000")], &none),
        ["http detected", "0.0.0.0 detected", "9000 PORT"]
    );
    assert_eq!(
        explained(&[("FLY_APP_NAME", "a"), ("LONGSHORE_HOST", "::")], &none),
        ["http detected", ":: LONGSHORE_HOST", "8080 detected"]
    );
    // A configured port selects HTTP, also with all standard streams open.
    let port = Flags {
        port: Some(4000),
        ..Flags::default()
    };
    assert_eq!(
        explained(&[("HOME", "/")], &port),
        ["http default", "127.0.0.1 default", "4000 --port"]
    );
}

#[test]
fn a_platforms_proxies_are_not_trusted_with_users_unless_they_are_named() {
    let platform = ("K_SERVICE", "weather");
    let config = valid(&[platform]);
    assert!(!config.http.trusted_proxies.is_empty());
    let header = ("LONGSHORE_AUTH__FORWARDED__USER_HEADER", "x-user");
    let probe = Probe::of([platform, header]);
    if let Ok(loaded) = Loaded::read(&Flags::default(), &probe) {
        assert!(loaded.config.http.trusted_proxies.is_empty());
    }
    let named = ("LONGSHORE_HTTP__TRUSTED_PROXIES", "10.1.2.3");
    let config = valid(&[platform, header, named]);
    assert_eq!(config.http.trusted_proxies.networks().len(), 1);
}

#[test]
fn changes_are_told_with_when_they_take_effect_also_those_of_secrets() {
    let (folder, flags) = file(
        "a.yaml",
        "server: {name: a}\nhttp: {port: 1}\nseal: {keys: [one one one one one one one one one]}\n",
    );
    let probe = Probe::of([("HOME", "/")]);
    let before = Loaded::read(&flags, &probe).expect("valid");
    std::fs::write(
        folder.path().join("a.yaml"),
        "server: {name: b}\nhttp: {port: 2}\nseal: {keys: [two two two two two two two two two]}\n",
    )
    .expect("written");
    let after = before.read_again(&probe).expect("valid");
    let expected = [
        ("http.port", Reload::Restart),
        ("seal.keys", Reload::Restart),
        ("server.name", Reload::Live),
    ];
    assert_eq!(
        before.changes(&after),
        expected.map(|(name, reload)| (name.to_owned(), reload))
    );
    assert_eq!(after.changes(&after), []);
}

#[test]
fn an_entry_of_a_map_takes_effect_when_the_map_does() {
    let probe = Probe::of([("HOME", "/")]);
    let read = |text: &str| {
        let (folder, flags) = file("a.yaml", text);
        let loaded = Loaded::read(&flags, &probe).expect("valid");
        drop(folder);
        loaded
    };
    let all = [
        "auth: {}",
        "auth: {implied_scopes: {admin: [a]}}",
        "auth: {implied_scopes: {admin: [a, b]}}",
        "auth: {implied_scopes: {admin: [a, b], other: [c]}}",
    ];
    for pair in all.map(read).windows(2) {
        let changes = pair[0].changes(&pair[1]);
        let is_live = |(name, reload): &(String, Reload)| {
            name.starts_with("auth.implied_scopes") && *reload == Reload::Live
        };
        assert!(
            !changes.is_empty() && changes.iter().all(is_live),
            "{changes:?}"
        );
    }
}

#[test]
fn a_secret_that_changes_is_named_however_deep_it_is_and_what_is_said_otherwise_is_none() {
    let text = |secret: &str| {
        format!(
            "upstreams:\n  a: {{command: a, env: {{TOKEN: {secret}}}}}\nbuiltin:\n  sql: {{databases: [{{name: d, postgres: 'postgres://u:{secret}@h/d'}}]}}\n\
             sources:\n  - name: s\n    http:\n      base_url: https://a.example\n      headers: {{a: {secret}, b: x}}\n      \
             tools: [{{name: t, description: T., url: '/?key={secret}'}}]\n"
        )
    };
    let probe = Probe::of([("HOME", "/")]);
    let read = |text: &str| {
        let (folder, flags) = file("a.yaml", text);
        let loaded = Loaded::read(&flags, &probe).expect("valid");
        drop(folder);
        loaded
    };
    let (before, after) = (read(&text("swordfish")), read(&text("haddock")));
    let names: Vec<_> = before.changes(&after).into_iter().map(|c| c.0).collect();
    let expected = [
        "builtin.sql.databases[0].postgres",
        "sources[0].http.headers.a",
        "sources[0].http.tools[0].url",
        "upstreams.a.env.TOKEN",
    ];
    assert_eq!(names, expected);
    // An equivalent file, with a default written out.
    let same = text("swordfish").replace("upstreams:", "mcpServers:") + "http: {port: 3000}\n";
    assert_eq!(before.changes(&read(&same)), []);
}

#[test]
fn the_last_key_may_be_taken_away_from_a_server_that_runs() {
    let key = "auth: {api_keys: ['me=a-key-that-is-long-enough-to-be-one']}\n";
    let public = "http: {host: 0.0.0.0}\n";
    let (folder, flags) = file("a.yaml", &format!("{public}{key}"));
    let probe = Probe::of([("HOME", "/")]);
    let before = Loaded::read(&flags, &probe).expect("valid");
    std::fs::write(folder.path().join("a.yaml"), public).expect("written");
    let after = before.read_again(&probe).expect("valid");
    assert!(after.config.auth.api_keys.is_empty());
    assert_eq!(before.changes(&after)[0].0, "auth.api_keys");
    // And stays away.
    assert!(after.read_again(&probe).is_ok());
    let refused = Loaded::read(&flags, &probe).expect_err("authentication is off");
    assert!(refused.to_string().contains("authentication is off"));
}

#[test]
fn paths_begin_at_the_file_that_they_are_written_in_and_others_where_the_process_is() {
    let text = "
http: {tls: {certificate: tls/a.crt, key: ./tls/a.key}, unix_socket: '${RUN}/mcp.sock'}
auth: {api_keys_file: /etc/keys}
audit: {file: ../audit.jsonl}
builtin:
  filesystem: {directories: [docs, /srv]}
  git: {repositories: '., /x, y'}
mcpServers:
  a: {command: ./server, args: [./data], cwd: work}
  b: {command: server}
sources:
  - {name: o, openapi: {document: ./petstore.yaml}}
  - {name: u, openapi: {document: 'https://a.example/petstore.yaml'}}
  - name: c
    command: {directory: here, tools: [{name: t, description: T., argv: [bin/run, ./x]}]}
ca_file: tls/ca.pem
";
    let (folder, flags) = file("a.yaml", text);
    let here = folder.path();
    let variables = [("LONGSHORE_TOKENS__FOLDER", "tokens"), ("RUN", "run")];
    let probe = Probe::of(variables);
    let loaded = Loaded::read(&flags, &probe).expect("valid");
    let config = &loaded.config;
    assert_eq!(config.ca_file, Some(here.join("tls/ca.pem")));
    let tls = &config.http.tls;
    assert_eq!(tls.certificate, Some(here.join("tls/a.crt")));
    assert_eq!(tls.key, Some(here.join("tls/a.key")));
    assert_eq!(config.http.unix_socket, Some(here.join("run/mcp.sock")));
    assert_eq!(config.auth.api_keys_file, Some("/etc/keys".into()));
    assert_eq!(config.audit.file, Some(here.join("../audit.jsonl")));
    let directories = &config.builtin.filesystem.directories;
    assert_eq!(directories[..], [here.join("docs"), "/srv".into()]);
    let repositories = &config.builtin.git.repositories;
    assert_eq!(
        repositories[..],
        [here.to_owned(), "/x".into(), here.join("y")]
    );
    let a = &config.upstreams["a"];
    assert_eq!(a.command.as_deref(), here.join("server").to_str());
    assert_eq!(a.args[..], ["./data"]);
    assert_eq!(a.cwd, Some(here.join("work")));
    assert_eq!(config.upstreams["b"].command.as_deref(), Some("server"));
    let document = |at: usize| {
        let openapi = config.sources[at].openapi.as_ref();
        openapi.map(|openapi| openapi.document.as_str())
    };
    assert_eq!(document(0), here.join("petstore.yaml").to_str());
    assert_eq!(document(1), Some("https://a.example/petstore.yaml"));
    let command = config.sources[2].command.as_ref().expect("a command");
    assert_eq!(command.directory, Some(here.join("here")));
    let argv = &command.tools[0].argv;
    assert_eq!(argv[0].as_str(), here.join("bin/run").to_str());
    assert_eq!(argv[1], "./x");
    // Paths in variables are relative to the working directory.
    assert_eq!(config.tokens.folder, Some("tokens".into()));
    // The path of the file can be relative.
    assert!(folder_of(Path::new("a.yaml")).is_some_and(|folder| folder.is_absolute()));

    let at = |setting: &str| {
        let place = loaded.place(setting)?;
        Some(place.rsplit('/').next().unwrap_or_default().to_owned())
    };
    for (setting, place) in [
        ("http.tls.key", Some("a.yaml:2:38")),
        ("sources[0].openapi.document", Some("a.yaml:12:25")),
        ("upstreams.a.cwd", Some("a.yaml:9:42")),
        ("tokens.folder", Some("LONGSHORE_TOKENS__FOLDER")),
        ("audit.redact", Some("a.yaml:4:1")),
        ("log.level", None),
    ] {
        assert_eq!(at(setting).as_deref(), place, "{setting}");
    }
}

#[test]
fn every_setting_that_is_detected_exists() {
    let probe = Probe::of([("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("A", "b")])
        .with_file("/proc/self/cgroup", "0::/\n")
        .with_file("/sys/fs/cgroup/cpu.max", "200000 100000")
        .with_file("/sys/fs/cgroup/memory.max", "67108864");
    for probe in [probe, Probe::of([("K_SERVICE", "a")])] {
        for detected in probe.environment().settings() {
            let exists = schema::setting(&parts(detected.setting)).is_some();
            assert!(exists, "{}", detected.setting);
        }
        assert!(Loaded::read(&Flags::default(), &probe).is_ok());
    }
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
fn sections_that_are_empty_say_nothing() {
    let (_folder, flags) = file("a.yaml", "$schema: x\nhttp:\nserver:\n  name:\n");
    assert_eq!(load(&flags, &[]).expect("valid").http.port, 3000);
    let (_folder, flags) = file("a.yaml", "# nothing yet\n");
    assert!(load(&flags, &[]).is_ok());
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
    ] {
        let (_folder, flags) = file(name, text);
        let message = load(&flags, &[]).expect_err("refused");
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
fn listening_to_everybody_without_a_proof_has_to_be_said() {
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
