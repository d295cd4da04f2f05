//! From detectors, a file, the environment and flags to a configuration, with the place of each mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::check::{self, Finding};
use super::expand::{Expanded, expand};
use super::mistake::{self, Mistake};
use super::tree::{Content, Node, Origin, parts};
use super::{Config, Reload, Transport, file, schema, variables};
use crate::environment::{Environment, Probe};

/// What was said on the command line. It outdoes everything else.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Flags {
    /// The file to read.
    pub config: Option<PathBuf>,
    /// `http.host`.
    pub host: Option<String>,
    /// `http.port`.
    pub port: Option<u16>,
    /// `http.workers`.
    pub workers: Option<usize>,
    /// `transport`.
    pub transport: Option<Transport>,
    /// `toolsets`; empty means not given.
    pub toolsets: Vec<String>,
    /// `http.insecure`.
    pub insecure: bool,
    /// `toolsets` where nobody says anything of them, nor of sources or upstreams.
    pub toolsets_otherwise: Vec<String>,
    /// The application asks callers for a proof of its own, whatever the configuration says.
    pub proved: bool,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read configuration file {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file is of no kind that is known.
    #[error("configuration file {} ends in none of .yaml, .yml, .toml, .json and .jsonc; name it after what is in it", path.display())]
    Kind {
        /// Which file.
        path: PathBuf,
    },
    /// The file is not written as files of its kind are.
    #[error("configuration file {place}: {message}")]
    File {
        /// Which file, line and column.
        place: String,
        /// What is wrong.
        message: String,
    },
    /// Settings that do not exist, or that cannot have their values.
    #[error("{}", in_lines(.0))]
    Mistakes(Vec<Mistake>),
    /// Settings that contradict one another.
    #[error("{}", in_lines(.0))]
    Contradictions(Vec<Finding>),
}

fn in_lines(items: &[impl fmt::Display]) -> String {
    let lines: Vec<_> = items.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A configuration, and where each of its values comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What all of it comes to. It is valid.
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// Where the process found itself.
    pub environment: Environment,
    flags: Flags,
    pub(super) tree: Node,
    /// Further files that were read, such as those with secrets.
    pub(super) other_files: Vec<PathBuf>,
}

impl Config {
    /// What [`Loaded::read`] comes to.
    ///
    /// # Errors
    ///
    /// All mistakes, each with its place and what would be right.
    pub fn load(flags: &Flags, probe: &Probe) -> Result<Self, ConfigError> {
        Loaded::read(flags, probe).map(|loaded| loaded.config)
    }
}

impl Loaded {
    /// Reads everything again, as it was read before.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_again(&self, probe: &Probe) -> Result<Self, ConfigError> {
        Self::read(&self.flags, probe)
    }

    /// The settings that have another value in another configuration, and when that takes effect.
    pub fn changes(&self, other: &Self) -> Vec<(String, Reload)> {
        let by_setting = |loaded: &Self| -> BTreeMap<String, (Value, Reload)> {
            let explained = loaded.explain().into_iter();
            explained
                .map(|one| (one.setting, (one.value, one.reload)))
                .collect()
        };
        let (before, after) = (by_setting(self), by_setting(other));
        let is_other = |setting: &String| {
            let value = |all: &BTreeMap<String, (Value, Reload)>| {
                all.get(setting).map(|(value, _)| value.clone())
            };
            value(&before) != value(&after)
        };
        // Secrets look alike once they are masked.
        let is_other_secret = |path: &[String]| {
            let said = |loaded: &Self| loaded.tree.get(path).map(Node::to_value);
            said(self) != said(other)
        };
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let changed = names.into_iter().filter(|setting| {
            is_other(setting) || {
                let path = parts(setting);
                schema::is_secret(&path) && is_other_secret(&path)
            }
        });
        let reload = |setting: &String| {
            before
                .get(setting)
                .or(after.get(setting))
                .map(|(_, reload)| *reload)
        };
        changed
            .map(|setting| (setting.clone(), reload(setting).unwrap_or_default()))
            .collect()
    }

    /// The files that were read: the configuration, and those with secrets.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.file
            .iter()
            .chain(&self.other_files)
            .map(PathBuf::as_path)
    }

    /// Looks where the process is; reads the file that the flags or `LONGSHORE_CONFIG` name, if any; then the environment;
    /// then the flags.
    ///
    /// Variables are `LONGSHORE_` and the setting's path in capitals, its parts joined by two underscores:
    /// `LONGSHORE_HTTP__PORT`. Short forms are `LONGSHORE_HOST`, `LONGSHORE_PORT`, `LONGSHORE_WORKERS`,
    /// `LONGSHORE_TRANSPORT` and `LONGSHORE_TOOLSET`. `PORT`, which platforms set, comes before all of them. A secret is
    /// also read from the file that its variable with `_FILE` at the end names.
    ///
    /// # Errors
    ///
    /// All mistakes, each with its place and what would be right.
    pub fn read(flags: &Flags, probe: &Probe) -> Result<Self, ConfigError> {
        let path = flags
            .config
            .clone()
            .or_else(|| variables::config_file(probe));
        let mut mistakes = Vec::new();
        let environment = Environment::detect(probe);
        let mut tree = detected(&environment);
        if !flags.toolsets_otherwise.is_empty() {
            let toolsets = flags.toolsets_otherwise.clone().into();
            tree.overlay(Node::single(&parts("toolsets"), &Origin::Default, toolsets));
        }
        if let Some(path) = &path {
            let mut file = file::read(path)?;
            // For editors.
            file.remove(&parts("$schema"));
            drop_nulls(&mut file);
            substitute(&mut file, probe, path, &mut mistakes);
            // By itself, so that a mistake is told even where the environment outdoes it. What is missing may still come.
            let read = read_as::<Config>(&mut file, Some(path));
            mistakes.extend(
                read.err()
                    .into_iter()
                    .flatten()
                    .filter(|(_, missing)| !missing)
                    .map(|(mistake, _)| mistake),
            );
            tree.overlay(file);
        }
        let mut other_files = Vec::new();
        for variable in variables::settings(probe, &mut mistakes) {
            other_files.extend(variable.file);
            tree.overlay(variable.tree);
        }
        for (setting, flag, value) in flag_values(flags) {
            let path = parts(setting);
            let origin = Origin::Flag {
                name: format!("--{flag}"),
            };
            let alone = Node::single(&path, &origin, value);
            mistakes.extend(mistakes_within::<Config>(&alone, &path));
            tree.overlay(alone);
        }
        if !mistakes.is_empty() {
            return Err(ConfigError::Mistakes(mistakes));
        }
        speak_http_where_it_is_set_up(&mut tree);
        trust_nobody_with_users_unasked(&mut tree);
        let has_some = |setting: &&str| {
            let node = tree.get(&parts(setting)).map(Node::to_value);
            node.is_some_and(|node| match node {
                Value::Array(all) => !all.is_empty(),
                Value::Object(all) => !all.is_empty(),
                _ => false,
            })
        };
        let names_something = ["sources", "upstreams", "mcpServers"].iter().any(has_some);
        let toolsets = parts("toolsets");
        if names_something
            && tree
                .get(&toolsets)
                .is_some_and(|node| node.origin == Origin::Default)
        {
            tree.remove(&toolsets);
        }
        let config: Config = read_as(&mut tree, path.as_deref()).map_err(|mistakes| {
            ConfigError::Mistakes(mistakes.into_iter().map(|(mistake, _)| mistake).collect())
        })?;
        let findings = check::errors(&config, probe, flags.proved);
        if !findings.is_empty() {
            return Err(ConfigError::Contradictions(findings));
        }
        Ok(Self {
            config,
            file: path,
            environment,
            flags: flags.clone(),
            tree,
            other_files,
        })
    }
}

/// What the detectors say.
fn detected(environment: &Environment) -> Node {
    let mut tree = Node::empty();
    for detected in environment.settings() {
        let path = parts(detected.setting);
        let origin = Origin::Detected {
            evidence: detected.evidence,
        };
        tree.overlay(Node::single(&path, &origin, detected.value));
    }
    tree
}

/// Whoever says something of HTTP wants it, whatever standard input looks like.
fn speak_http_where_it_is_set_up(tree: &mut Node) {
    let path = parts("transport");
    let is_guess = tree.get(&path).is_some_and(|node| {
        matches!(node.origin, Origin::Detected { .. }) && node.to_value() == "stdio"
    });
    let Some(Content::Table(http)) = tree.get(&parts("http")).map(|http| &http.content) else {
        return;
    };
    let is_said = |node: &Node| !matches!(node.origin, Origin::Detected { .. } | Origin::Default);
    if is_guess && http.iter().any(|(_, node)| is_said(node)) {
        tree.remove(&path);
    }
}

/// A platform's proxies say truly where a request came from. But they pass on what a client says of its user: whoever
/// has users forwarded has to name the proxies that see to it.
fn trust_nobody_with_users_unasked(tree: &mut Node) {
    let path = parts("http.trusted_proxies");
    let is_guess = tree
        .get(&path)
        .is_some_and(|node| matches!(node.origin, Origin::Detected { .. }));
    if is_guess && tree.get(&parts("auth.forwarded.user_header")).is_some() {
        tree.remove(&path);
    }
}

/// An empty section, and a setting without a value, say nothing.
fn drop_nulls(node: &mut Node) {
    if let Content::Table(entries) = &mut node.content {
        entries.retain(|(_, node)| !matches!(node.content, Content::Leaf(Value::Null)));
        entries.iter_mut().for_each(|(_, node)| drop_nulls(node));
    }
}

/// Replaces `${...}` in all texts of a file.
fn substitute(tree: &mut Node, probe: &Probe, file: &Path, mistakes: &mut Vec<Mistake>) {
    let in_file = tree.get(&parts("env_missing")).map(Node::to_value);
    let lenient = match probe.variable("LONGSHORE_ENV_MISSING") {
        Some(text) => text == "empty",
        None => in_file.is_some_and(|value| value == "empty"),
    };
    tree.each_text(&mut Vec::new(), &mut |path, node| {
        let Content::Leaf(Value::String(text)) = &node.content else {
            return;
        };
        match expand(text, probe, lenient) {
            Ok(Expanded::Unchanged) => {}
            Ok(Expanded::Text { text, substituted }) => {
                node.content = Content::Leaf(text.into());
                node.substituted = substituted;
            }
            Err(message) => mistakes.push(Mistake::new(
                path,
                &node.origin,
                Some(file),
                format!("{}: {message}", path.join(".")),
            )),
        }
    });
}

/// Reads a tree as a type. What is wrong is taken away and the rest read again, so that all mistakes are found; each comes
/// with whether it is about something that is missing.
///
/// A text that came from a variable may turn out to be a number, a list, or whatever else fits.
pub(super) fn read_as<T: DeserializeOwned>(
    tree: &mut Node,
    file: Option<&Path>,
) -> Result<T, Vec<(Mistake, bool)>> {
    const MISTAKES_MAX: usize = 20;
    let mut mistakes = Vec::new();
    let mut rest = tree.clone();
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(rest.to_value()) {
            Ok(read) if mistakes.is_empty() => return Ok(read),
            Ok(_) => return Err(mistakes),
            Err(error) => error,
        };
        let path = path_of(error.path());
        if let Some(node) = rest.get_mut(&path)
            && let Some(meant) = meant(node)
        {
            node.content = Content::Leaf(meant.clone());
            node.substituted = false;
            if let Some(node) = tree.get_mut(&path) {
                node.content = Content::Leaf(meant);
            }
            continue;
        }
        let refusal = error.inner().to_string();
        let missing = mistake::is_missing(&refusal);
        let mistake = Mistake::of_value(&path, &rest, file, &refusal, schema::is_secret(&path));
        mistakes.push((mistake, missing));
        if MISTAKES_MAX <= mistakes.len() || !rest.remove(&path) {
            return Err(mistakes);
        }
    }
}

/// What a text from a variable says as JSON, if that is something else than a text.
fn meant(node: &Node) -> Option<Value> {
    match &node.content {
        Content::Leaf(Value::String(text)) if node.substituted => serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_string()),
        _ => None,
    }
}

/// What is wrong with one setting by itself. That others are missing beside it is not.
pub(super) fn mistakes_within<T: DeserializeOwned>(
    alone: &Node,
    path: &[String],
) -> Option<Mistake> {
    let error = serde_path_to_error::deserialize::<_, T>(alone.to_value()).err()?;
    let at = path_of(error.path());
    let refusal = error.inner().to_string();
    let is_elsewhere = !at.starts_with(path) && mistake::is_missing(&refusal);
    (!is_elsewhere).then(|| {
        let is_secret = schema::is_secret(&at) || schema::is_secret(path);
        Mistake::of_value(&at, alone, None, &refusal, is_secret)
    })
}

fn path_of(path: &serde_path_to_error::Path) -> Vec<String> {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

fn flag_values(flags: &Flags) -> Vec<(&'static str, &'static str, Value)> {
    let mut values = Vec::new();
    if let Some(host) = &flags.host {
        values.push(("http.host", "host", host.clone().into()));
    }
    if let Some(port) = flags.port {
        values.push(("http.port", "port", port.into()));
    }
    if let Some(workers) = flags.workers {
        values.push(("http.workers", "workers", workers.into()));
    }
    if let Some(transport) = flags.transport {
        let name = match transport {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
        };
        values.push(("transport", "transport", name.into()));
    }
    if !flags.toolsets.is_empty() {
        values.push(("toolsets", "toolset", flags.toolsets.clone().into()));
    }
    if flags.insecure {
        values.push(("http.insecure", "insecure", true.into()));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::ProofKind;
    use crate::config::LogFormat;

    fn load(flags: &Flags, variables: &[(&str, &str)]) -> Result<Config, String> {
        let probe = Probe::of(variables.iter().copied());
        Config::load(flags, &probe).map_err(|e| e.to_string())
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
    fn platforms_set_the_port() {
        let variables = [
            ("LONGSHORE_PORT", "2"),
            ("LONGSHORE_HTTP__PORT", "1"),
            ("PORT", "8080"),
        ];
        assert_eq!(
            load(&Flags::default(), &variables)
                .expect("valid")
                .http
                .port,
            8080
        );
        assert_eq!(
            load(&Flags::default(), &variables[..2])
                .expect("valid")
                .http
                .port,
            2
        );
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
        assert_eq!(
            load(&Flags::default(), &variables)
                .expect("valid")
                .http
                .port,
            3000
        );
    }

    #[test]
    fn what_looks_like_kubernetes_and_is_not_is_no_less_a_mistake() {
        for name in ["LONGSHORE_DEMO_PORT", "LONGSHORE_PORT_MAPPING"] {
            let message = load(&Flags::default(), &[(name, "3000")]).expect_err("refused");
            assert!(message.contains("no such setting"), "{message}");
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
        let level = |variables: &[(&str, &str)]| {
            load(&Flags::default(), variables).expect("valid").log.level
        };
        assert_eq!(
            level(&[("LONGSHORE_LOG", "debug"), ("RUST_LOG", "warn")]),
            "debug"
        );
        assert_eq!(
            level(&[("RUST_LOG", "warn,hyper=info"), ("MCP_LOG_LEVEL", "error")]),
            "warn,hyper=info"
        );
        assert_eq!(level(&[("MCP_LOG_LEVEL", "WARNING")]), "warn");
        let config = load(&Flags::default(), &[("MCP_LOG_FORMAT", "JSON")]).expect("valid");
        assert_eq!(config.log.format, LogFormat::Json);
    }

    #[test]
    fn names_of_other_products_are_understood_and_outdone() {
        let of = |variables: &[(&str, &str)]| load(&Flags::default(), variables);
        let config = of(&[
            ("MCP_RATE_LIMIT_RPS", "5"),
            ("MCP_RATE_LIMIT_BURST", "7"),
            ("MCP_OTEL_ENDPOINT", "http://collector:4318"),
            ("LONGSHORE_LIMITS__PRINCIPAL__BURST", "9"),
        ])
        .expect("valid");
        assert_eq!(config.limits.principal.per_second, 5.0);
        assert_eq!(config.limits.principal.burst, 9);
        let endpoint = config.telemetry.endpoint.as_deref();
        assert_eq!(endpoint, Some("http://collector:4318"));
        for (word, proof) in [
            ("bearer", Some(ProofKind::ApiKey)),
            ("JWT", Some(ProofKind::OAuth)),
            ("oauth", Some(ProofKind::OAuth)),
            ("forwarded", Some(ProofKind::Forwarded)),
            ("none", None),
            ("Off", None),
        ] {
            let config = of(&[("MCP_AUTH", word)]).expect("valid");
            assert_eq!(
                config.auth.proofs,
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
        let config = load(&Flags::default(), &[("MCP_SERVERS_CONFIG", path)]).expect("valid");
        assert!(config.upstreams.contains_key("time"));
        let other = folder.path().join("longshore.toml");
        std::fs::write(&other, "").expect("written");
        let other = other.to_str().expect("UTF-8");
        let variables = [("MCP_SERVERS_CONFIG", path), ("MCP_CONFIG_PATH", other)];
        let config = load(&Flags::default(), &variables).expect("valid");
        assert!(config.upstreams.is_empty());
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
        // Whoever names a port wants HTTP, also from a program that holds all of the streams.
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
        let config = load(&Flags::default(), &[platform]).expect("valid");
        assert!(!config.http.trusted_proxies.is_empty());
        let header = ("LONGSHORE_AUTH__FORWARDED__USER_HEADER", "x-user");
        let probe = Probe::of([platform, header]);
        if let Ok(loaded) = Loaded::read(&Flags::default(), &probe) {
            assert!(loaded.config.http.trusted_proxies.is_empty());
        }
        let named = ("LONGSHORE_HTTP__TRUSTED_PROXIES", "10.1.2.3");
        let config = load(&Flags::default(), &[platform, header, named]).expect("valid");
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
    fn every_setting_that_is_detected_exists() {
        let probe = Probe::of([("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("A", "b")])
            .with_file("/proc/self/cgroup", "0::/\n")
            .with_file("/sys/fs/cgroup/cpu.max", "200000 100000")
            .with_file("/sys/fs/cgroup/memory.max", "67108864");
        for probe in [probe, Probe::of([("K_SERVICE", "a")])] {
            for detected in Environment::detect(&probe).settings() {
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
        let config = load(&Flags::default(), &variables).expect("valid");
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
                "a.toml:2:1: there is no setting http.prot; did you mean http.port?",
            ),
            (
                "a.yaml",
                "http:\n  prot: 1\n",
                "a.yaml:2:3: there is no setting http.prot; did you mean http.port?",
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
                "a.yaml:1:1: http: there is a single value where a table of settings should be",
            ),
            ("a.yaml", "http\n", "a.yaml:1:1: there is a single value"),
            (
                "a.yaml",
                "zebra: 1\n",
                "a.yaml:1:1: there is no setting zebra; there are transport,",
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
                "there is no setting http.prot; did you mean LONGSHORE_HTTP__PORT?",
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
                "no such setting; did you mean LONGSHORE_PORT?",
            ),
            ("PORT", "http", "invalid type"),
            ("MCP_TRANSPORT", "pigeon", "it can be http, stdio"),
        ] {
            let message = load(&Flags::default(), &[(variable, value)]).expect_err("refused");
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
        assert!(load(&flags, &[]).expect_err("refused").contains("none of"));
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
        let config =
            load(&flags, &[("WEB_PORT", "8081"), ("HOST_NAME", "a.example")]).expect("valid");
        assert_eq!(config.http.port, 8081);
        assert_eq!(config.http.allowed_hosts, ["a.example", "b"]);
        assert_eq!(
            (&*config.server.version, &*config.server.name),
            ("1.0", "a-a.example")
        );
        // What a variable holds may be a secret that was put in the wrong place.
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
        let two = "two secrets, which are long enough for keys";
        for (text, keys) in [
            (format!("{one}\n"), 1),
            (format!("{one}\n\nanother {one}\n"), 2),
            (two.to_owned(), 1),
        ] {
            std::fs::write(path, text).expect("written");
            let config =
                load(&Flags::default(), &[("LONGSHORE_SEAL__KEYS_FILE", path)]).expect("valid");
            assert_eq!(config.seal.keys.len(), keys);
        }
        std::fs::write(path, "\n").expect("written");
        for (variables, part) in [
            (("LONGSHORE_SEAL__KEYS_FILE", path), "is empty"),
            (
                ("LONGSHORE_SEAL__KEYS_FILE", "/no/such/file"),
                "cannot read /no/such/file",
            ),
            (
                ("LONGSHORE_HTTP__PORT_FILE", path),
                "LONGSHORE_HTTP__PORT takes the value itself",
            ),
            (
                ("LONGSHORE_HTTP__ZEBRA_FILE", path),
                "no setting http.zebra_file",
            ),
        ] {
            let message = load(&Flags::default(), &[variables]).expect_err("refused");
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn names_of_other_servers_are_understood_and_outdone() {
        let variables = [
            ("MCP_PORT", "1"),
            ("MCP_HOST", "::1"),
            ("MCP_TRANSPORT", "streamable-http"),
            ("MCP_UNKNOWN", "x"),
        ];
        let config = load(&Flags::default(), &variables).expect("valid");
        assert_eq!(
            (config.http.port, config.http.host.to_string()),
            (1, "::1".to_owned())
        );
        let config = load(
            &Flags::default(),
            &[("MCP_PORT", "1"), ("LONGSHORE_HTTP__PORT", "2")],
        )
        .expect("valid");
        assert_eq!(config.http.port, 2);
        let config = load(&Flags::default(), &[("MCP_PORT", "tcp://10.0.0.1:80")]).expect("valid");
        assert_eq!(config.http.port, 3000);
        let (_folder, flags) = file("a.toml", "[http]\nport = 7\n");
        let path = flags.config.expect("a path");
        let config = load(
            &Flags::default(),
            &[("MCP_CONFIG_PATH", path.to_str().expect("UTF-8"))],
        )
        .expect("valid");
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
                "LONGSHORE_HTTP__LIMITS__HEADER_BYTES",
                "65537",
                "at most 65536",
            ),
        ] {
            let message = load(&Flags::default(), &[(variable, value)]).expect_err("refused");
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
            let message = load(&Flags::default(), &[(variable, &path)]).expect_err("refused");
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
            let message = load(&Flags::default(), &[wide]).expect_err("refused");
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
}
