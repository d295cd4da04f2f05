mod changes;
mod problems;
mod variables;

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
fn sections_that_are_empty_say_nothing() {
    let (_folder, flags) = file("a.yaml", "$schema: x\nhttp:\nserver:\n  name:\n");
    assert_eq!(load(&flags, &[]).expect("valid").http.port, 3000);
    let (_folder, flags) = file("a.yaml", "# nothing yet\n");
    assert!(load(&flags, &[]).is_ok());
}
