//! From files, the environment and flags to a configuration, with the place of each mistake.

use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::check;
use super::{Config, Transport};
use crate::environment::Probe;

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
    #[error("configuration file {} ends in neither .toml nor .json; name it after what is in it", path.display())]
    Kind {
        /// Which file.
        path: PathBuf,
    },
    /// The file says something that means nothing.
    #[error("configuration file {}: {message}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// A variable says something that means nothing.
    #[error("environment variable {name}: {message}")]
    Variable {
        /// Which variable.
        name: String,
        /// What is wrong with it.
        message: String,
    },
    /// A flag says something that means nothing.
    #[error("{message}")]
    Flag {
        /// What is wrong, and with which flag.
        message: String,
    },
    /// Settings that contradict one another.
    #[error("{0}")]
    Contradiction(check::Finding),
}

/// Variables with short names, and the setting each stands for.
const SHORT: [(&str, &str); 5] = [
    ("LONGSHORE_HOST", "http.host"),
    ("LONGSHORE_PORT", "http.port"),
    ("LONGSHORE_WORKERS", "http.workers"),
    ("LONGSHORE_TRANSPORT", "transport"),
    ("LONGSHORE_TOOLSET", "toolsets"),
];

const PREFIX: &str = "LONGSHORE_";
const FILE: &str = "LONGSHORE_CONFIG";
/// How much is logged. Not a setting of the configuration: it is read before there is one.
const LOG: &str = "LONGSHORE_LOG";

impl Config {
    /// Reads the file that the flags or `LONGSHORE_CONFIG` name, if any; then the environment; then the flags.
    ///
    /// Variables are `LONGSHORE_` and the setting's path in capitals, its parts joined by two underscores:
    /// `LONGSHORE_HTTP__PORT`. Short forms are `LONGSHORE_HOST`, `LONGSHORE_PORT`, `LONGSHORE_WORKERS`,
    /// `LONGSHORE_TRANSPORT` and `LONGSHORE_TOOLSET`. `PORT`, which platforms set, comes before all of them.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place and what would be right.
    pub fn load(flags: &Flags, probe: &Probe) -> Result<Self, ConfigError> {
        let mut tree = Map::new();
        let file = flags
            .config
            .clone()
            .or_else(|| probe.variable(FILE).map(PathBuf::from));
        if let Some(path) = file {
            tree = read_file(&path)?;
        }
        for (name, path, value) in variables(probe)? {
            // What one variable says has to make sense by itself; so a mistake is told by the variable's name.
            let value =
                typed(&path, value).map_err(|message| ConfigError::Variable { name, message })?;
            put(&mut tree, &path, value);
        }
        for (path, value) in flag_values(flags) {
            let path: Vec<&str> = path.split('.').collect();
            let path: Vec<String> = path.into_iter().map(str::to_owned).collect();
            try_alone(&path, &value).map_err(|message| ConfigError::Flag {
                message: format!("--{}: {message}", path.last().map_or("", String::as_str)),
            })?;
            put(&mut tree, &path, value);
        }
        let config = Self::deserialize(Value::Object(tree)).map_err(|e| ConfigError::Flag {
            message: e.to_string(),
        })?;
        match check::errors(&config, probe, flags.proved)
            .into_iter()
            .next()
        {
            Some(finding) => Err(ConfigError::Contradiction(finding)),
            None => Ok(config),
        }
    }
}

fn read_file(path: &Path) -> Result<Map<String, Value>, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    let failed = |message: String| ConfigError::File {
        path: path.to_owned(),
        message: message.trim_end().to_owned(),
    };
    // Read as a configuration first, since that knows the place of each mistake; then as a tree, to be overlaid.
    match path.extension().and_then(|e| e.to_str()) {
        Some("toml") => {
            toml::from_str::<Config>(&text).map_err(|e| failed(toml_message(&text, &e)))?;
            toml::from_str(&text).map_err(|e| failed(toml_message(&text, &e)))
        }
        Some("json") => {
            serde_json::from_str::<Config>(&text).map_err(|e| failed(in_words(&e.to_string())))?;
            serde_json::from_str(&text).map_err(|e| failed(e.to_string()))
        }
        _ => Err(ConfigError::Kind {
            path: path.to_owned(),
        }),
    }
}

/// The message and its place, without the line itself: there may be a secret in it.
fn toml_message(text: &str, error: &toml::de::Error) -> String {
    let place = error.span().and_then(|span| text.get(..span.start));
    match place {
        Some(before) => format!(
            "line {}: {}",
            before.matches('\n').count() + 1,
            in_words(error.message())
        ),
        None => in_words(error.message()),
    }
}

type Setting = (String, Vec<String>, String);

/// The variables that are settings, least important first.
fn variables(probe: &Probe) -> Result<Vec<Setting>, ConfigError> {
    let path = |text: &str, separator| {
        text.split(separator)
            .map(str::to_ascii_lowercase)
            .collect::<Vec<_>>()
    };
    let mut long = Vec::new();
    let mut short = Vec::new();
    for (name, value) in probe.variables(PREFIX) {
        if [FILE, LOG].contains(&name) || is_from_kubernetes(name, value) {
            continue;
        }
        if let Some((_, setting)) = SHORT.iter().find(|(short, _)| *short == name) {
            short.push((name.to_owned(), path(setting, "."), value.to_owned()));
        } else if name[PREFIX.len()..].contains("__") {
            long.push((
                name.to_owned(),
                path(&name[PREFIX.len()..], "__"),
                value.to_owned(),
            ));
        } else {
            let known: Vec<_> = SHORT.iter().map(|(short, _)| *short).collect();
            return Err(ConfigError::Variable {
                name: name.to_owned(),
                message: format!(
                    "there is no such setting; there are {}, {FILE}, {LOG}, and LONGSHORE_<PART>__<NAME> for all others, such as LONGSHORE_HTTP__PORT; \
                     unset it, or correct its name",
                    known.join(", ")
                ),
            });
        }
    }
    if let Some(port) = probe.variable("PORT") {
        short.push(("PORT".to_owned(), path("http.port", "."), port.to_owned()));
    }
    long.append(&mut short);
    Ok(long)
}

/// Whether Kubernetes put a variable there for a Service whose name begins with `longshore`: for one called
/// `longshore-demo` it sets `LONGSHORE_DEMO_SERVICE_HOST`, `LONGSHORE_DEMO_PORT=tcp://...` and so on in every pod.
fn is_from_kubernetes(name: &str, value: &str) -> bool {
    if name[PREFIX.len()..].contains("__") {
        return false;
    }
    let of_a_port = name.split_once("_PORT_").is_some_and(|(_, rest)| {
        let mut parts = rest.split('_');
        parts.next().is_some_and(|port| port.parse::<u16>().is_ok())
            && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    });
    of_a_port
        || name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT") && value.contains("://")
}

/// A variable's text as the type that its setting has.
fn typed(path: &[String], text: String) -> Result<Value, String> {
    let as_text = Value::String(text);
    let as_json = as_text
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    match as_json.filter(|value| try_alone(path, value).is_ok()) {
        Some(value) => Ok(value),
        None => try_alone(path, &as_text).map(|()| as_text),
    }
}

/// Whether a setting can have a value.
fn try_alone(path: &[String], value: &Value) -> Result<(), String> {
    let mut tree = Map::new();
    put(&mut tree, path, value.clone());
    Config::deserialize(Value::Object(tree))
        .map(drop)
        .map_err(|e| in_words(&e.to_string()))
}

/// A message of serde's with the names of types in words.
fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 5] = [
        ("expected u16", "expected a whole number from 0 to 65535"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected a boolean", "expected true or false"),
    ];
    // The value is left out: where a table should be, somebody may have put the secret that belongs into it.
    if let Some((_, rest)) = message.split_once("expected struct ") {
        let place = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        return format!("there is a single value where a table of settings should be{place}");
    }
    WORDS
        .iter()
        .fold(message.to_owned(), |message, (type_name, words)| {
            message.replace(type_name, words)
        })
}

fn put(tree: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        tree.insert(first.clone(), value);
        return;
    }
    let inner = tree
        .entry(first.clone())
        .or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    if let Value::Object(inner) = inner {
        put(inner, rest, value);
    }
}

fn flag_values(flags: &Flags) -> Vec<(&'static str, Value)> {
    let mut values = Vec::new();
    if let Some(host) = &flags.host {
        values.push(("http.host", host.clone().into()));
    }
    if let Some(port) = flags.port {
        values.push(("http.port", port.into()));
    }
    if let Some(workers) = flags.workers {
        values.push(("http.workers", workers.into()));
    }
    if let Some(transport) = flags.transport {
        let name = match transport {
            Transport::Http => "http",
            Transport::Stdio => "stdio",
        };
        values.push(("transport", name.into()));
    }
    if !flags.toolsets.is_empty() {
        values.push(("toolsets", flags.toolsets.clone().into()));
    }
    if flags.insecure {
        values.push(("http.insecure", true.into()));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_level_of_the_log_is_no_setting() {
        assert!(load(&Flags::default(), &[("LONGSHORE_LOG", "debug")]).is_ok());
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
    fn mistakes_are_told_with_their_place() {
        let (_folder, flags) = file("a.toml", "[http]\nprot = 1\n");
        let message = load(&flags, &[]).expect_err("refused");
        assert!(
            message.contains("a.toml")
                && message.contains("line 2")
                && message.contains("unknown field `prot`"),
            "{message}"
        );
        let (_folder, flags) = file("a.json", "{\n\"http\": {\"port\": \"x\"}}");
        let message = load(&flags, &[]).expect_err("refused");
        assert!(message.contains("line 2"), "{message}");
        for (variable, value, part) in [
            ("LONGSHORE_HTTP__PROT", "1", "unknown field `prot`"),
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
            ("LONGSHORE_PROT", "1", "no such setting"),
            ("PORT", "http", "invalid type"),
        ] {
            let message = load(&Flags::default(), &[(variable, value)]).expect_err("refused");
            assert!(
                message.starts_with(&format!("environment variable {variable}: "))
                    && message.contains(part),
                "{message}"
            );
        }
        let (_folder, flags) = file("a.toml", "[http]\nport = 1\n[server]\n\nname = 5\n");
        let message = load(&flags, &[]).expect_err("refused");
        assert!(message.contains("line 5"), "{message}");
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
        assert!(load(&flags, &[]).expect_err("refused").contains("neither"));
    }

    #[test]
    fn secrets_are_not_repeated() {
        for (name, text) in [
            ("a.toml", "seal = \"swordfish\""),
            ("a.toml", "[seal]\nkeys = [\"swordfish\", 1]"),
            ("a.toml", "[seal]\nkeys = \"swordfish"),
            ("a.json", "{\"seal\": \"swordfish\"}"),
            ("a.json", "{\"seal\": {\"keys\": [\"swordfish\", 1]}}"),
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
