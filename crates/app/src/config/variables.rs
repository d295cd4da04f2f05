//! Settings in environment variables.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::diagnostic::{Diagnostic, nearest, variable_of};
use super::typed::diagnostic_within;
use super::value::{Node, Origin, parts};
use super::{Config, file, schema};
use crate::environment::Probe;

const PREFIX: &str = "LONGSHORE_";
const FILE: &str = "LONGSHORE_CONFIG";
/// Variables that only client commands of the program read.
const OF_CLIENTS: [&str; 3] = [
    "LONGSHORE_TOKEN",
    "LONGSHORE_TOKENS",
    "LONGSHORE_CLIENT_SECRET",
];
/// At the end of a name: the value is in a file.
const IN_FILE: &str = "_FILE";

/// Short variables and their settings; later ones override earlier ones.
const SHORT: [(&str, &str); 6] = [
    ("LONGSHORE_HOST", "http.host"),
    ("LONGSHORE_PORT", "http.port"),
    ("LONGSHORE_WORKERS", "http.workers"),
    ("LONGSHORE_TRANSPORT", "transport"),
    ("LONGSHORE_TOOLSET", "toolsets"),
    ("LONGSHORE_LOG", "log.level"),
];

/// Variables of other MCP servers with the same meaning, which deployments may already set. `LONGSHORE_` variables override them.
const ALIASES: [(&str, &str); 11] = [
    ("MCP_HOST", "http.host"),
    ("MCP_PORT", "http.port"),
    ("MCP_TRANSPORT", "transport"),
    ("MCP_AUTH", "auth.methods"),
    ("MCP_RATE_LIMIT_RPS", "limits.principal.per_second"),
    ("MCP_RATE_LIMIT_BURST", "limits.principal.burst"),
    ("MCP_OTEL_ENDPOINT", "telemetry.endpoint"),
    ("MCP_PROXY_REQUEST_TIMEOUT", "upstreams_timeout_seconds"),
    ("MCP_LOG_LEVEL", "log.level"),
    ("MCP_LOG_FORMAT", "log.format"),
    ("RUST_LOG", "log.level"),
];
/// Aliases of the variable for the file: our own format, and lists of servers.
const FILE_ALIASES: [&str; 2] = ["MCP_CONFIG_PATH", "MCP_SERVERS_CONFIG"];
/// Values of `MCP_AUTH` that ask for nothing.
const NO_PROOF: [&str; 5] = ["none", "off", "false", "no", "disabled"];

/// A setting that a variable has.
pub(super) struct Variable {
    pub(super) tree: Node,
    /// The file in which its value was.
    pub(super) file: Option<PathBuf>,
}

/// Location of the configuration, from the environment.
#[derive(Clone, Debug)]
pub(super) enum ConfigFile {
    /// In a file.
    At(PathBuf),
    /// In a variable, as JSON.
    Within { name: PathBuf, text: String },
}

impl ConfigFile {
    /// Path of the file.
    pub(super) fn name(&self) -> &Path {
        match self {
            Self::At(name) | Self::Within { name, .. } => name,
        }
    }

    /// Its place in the file system, if it has one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::At(path) => Some(path),
            Self::Within { .. } => None,
        }
    }
}

/// The configuration file that the environment names, or has in it.
pub(super) fn config_file(probe: &Probe) -> Option<ConfigFile> {
    let mut names = [FILE].into_iter().chain(FILE_ALIASES);
    let (name, text) = names.find_map(|name| Some((name, probe.variable(name)?)))?;
    Some(match text.trim_start().starts_with('{') {
        true => ConfigFile::Within {
            name: name.into(),
            text: text.to_owned(),
        },
        false => ConfigFile::At(text.into()),
    })
}

/// The short name of a setting's variable, if it has one, else the long one.
pub(super) fn name_for(setting: &str) -> String {
    let short = SHORT.iter().find(|(_, known)| *known == setting);
    match short {
        Some((name, _)) => (*name).to_owned(),
        None if setting.contains(['[', '<']) => String::new(),
        None => variable_of(setting),
    }
}

/// Returns settings from variables, least important first. Invalid ones are reported and left out.
pub(super) fn settings(probe: &Probe, diagnostics: &mut Vec<Diagnostic>) -> Vec<Variable> {
    let is_read = |name: &&str| {
        name.starts_with(PREFIX)
            || *name == "PORT"
            || ALIASES.iter().any(|(alias, _)| alias == name)
            || FILE_ALIASES.contains(name)
    };
    diagnostics.extend(probe.not_text().filter(is_read).map(|name| {
        let message = "its value is not valid UTF-8; correct it, or unset the variable";
        Diagnostic::new(&[], &origin(name), None, message)
    }));
    let mut found = Vec::new();
    let aliases = ALIASES.iter().filter(|(name, _)| {
        probe.variable(name).is_some_and(|value| match *name {
            // For a Service called `mcp`, Kubernetes sets `MCP_PORT=tcp://...`.
            "MCP_PORT" => !value.contains("://"),
            "MCP_AUTH" => !NO_PROOF.contains(&&*value.trim().to_ascii_lowercase()),
            _ => true,
        })
    });
    found.extend(aliases.map(|(name, setting)| (*name, parts(setting))));
    let mut short = Vec::new();
    for (name, value) in probe.variables(PREFIX) {
        if name == FILE || OF_CLIENTS.contains(&name) || is_from_kubernetes(name, value) {
            continue;
        }
        match setting_of(name) {
            Ok((setting, true)) => short.push((name, setting)),
            Ok((setting, false)) => found.push((name, setting)),
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    found.append(&mut short);
    if probe.variable("PORT").is_some() {
        found.push(("PORT", parts("http.port")));
    }
    let mut read = Vec::new();
    for (name, path) in found {
        if let Some(itself) = name.strip_suffix(IN_FILE)
            && probe.variable(itself).is_some()
            && schema::setting(&path).is_none()
        {
            let message = format!("{itself} is set too; unset one of them");
            diagnostics.push(Diagnostic::new(&[], &origin(name), None, message));
            continue;
        }
        let value = probe.variable(name).unwrap_or_default();
        let value = if name.starts_with(PREFIX) {
            value.to_owned()
        } else {
            translated(name, value)
        };
        match variable(name, &path, &value) {
            Ok(variable) => read.push(variable),
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    read
}

/// A value of another product's as ours.
fn translated(name: &str, value: &str) -> String {
    match (name, &*value.to_ascii_lowercase()) {
        ("MCP_TRANSPORT", "streamable-http" | "streamable_http") => "http".to_owned(),
        ("MCP_AUTH", "bearer" | "token" | "apikey" | "api-key" | "true") => "api_key".to_owned(),
        ("MCP_AUTH", "jwt" | "oidc" | "oauth2") => "oauth".to_owned(),
        ("MCP_LOG_LEVEL", "warning") => "warn".to_owned(),
        ("MCP_LOG_LEVEL", "critical" | "fatal") => "error".to_owned(),
        ("MCP_LOG_FORMAT", "pretty" | "console" | "plain") => "text".to_owned(),
        ("MCP_AUTH" | "MCP_LOG_LEVEL" | "MCP_LOG_FORMAT" | "MCP_TRANSPORT", lower) => {
            lower.to_owned()
        }
        _ => value.to_owned(),
    }
}

/// Returns the setting of a variable's name, and true if the name is a short one.
fn setting_of(name: &str) -> Result<(Vec<String>, bool), Diagnostic> {
    if let Some((_, setting)) = SHORT.iter().find(|(short, _)| *short == name) {
        return Ok((parts(setting), true));
    }
    let written: Vec<_> = name[PREFIX.len()..].split("__").collect();
    let mut path: Vec<_> = written
        .iter()
        .map(|part| part.to_ascii_lowercase())
        .collect();
    // Variables of a program are passed on under the names that they have here.
    if let [section, _, setting, name] = &mut path[..]
        && (section.as_str(), setting.as_str()) == ("upstreams", "env")
    {
        written[3].clone_into(name);
    }
    if 1 < path.len() || schema::setting(&path).is_some() {
        return Ok((path, false));
    }
    let long: Vec<_> = schema::settings()
        .map(|setting| name_for(&setting.path))
        .collect();
    let known: Vec<_> = long.iter().map(String::as_str).chain([FILE]).collect();
    // Most often one underscore is where two have to be.
    let squeezed = |name: &str| name.replace('_', "");
    let meant = schema::settings()
        .find(|setting| squeezed(&variable_of(&setting.path)) == squeezed(name))
        .map(|setting| name_for(&setting.path));
    let near = meant.as_deref().filter(|name| !name.is_empty());
    let message = match near.or_else(|| nearest(name, &known)) {
        Some(near) => {
            format!("unknown setting; did you mean {near}? Correct the name, or unset the variable")
        }
        None => format!(
            "unknown setting; names are {PREFIX}<PART>__<NAME>, such as LONGSHORE_HTTP__PORT, and a few short ones, such as LONGSHORE_PORT; correct the name, or unset the variable"
        ),
    };
    Err(Diagnostic::new(&[], &origin(name), None, message))
}

fn origin(name: &str) -> Origin {
    Origin::Variable {
        name: name.to_owned(),
    }
}

/// Reads a setting from a variable, or from the file that it names.
fn variable(name: &str, path: &[String], value: &str) -> Result<Variable, Diagnostic> {
    let origin = origin(name);
    let in_file = path.last().and_then(|last| last.strip_suffix("_file"));
    // A setting whose own name ends like this is meant before a secret in a file.
    if let Some(last) = in_file
        && schema::setting(path).is_none()
    {
        let mut secret = path[..path.len() - 1].to_vec();
        secret.push(last.to_owned());
        match schema::setting(&secret) {
            Some(setting) if setting.is_secret => return from_file(&secret, &origin, value),
            Some(_) => {
                let message = format!(
                    "only secrets can be read from files; set {} to the value itself",
                    name.trim_end_matches(IN_FILE)
                );
                return Err(Diagnostic::new(&secret, &origin, None, message));
            }
            None => {}
        }
    }
    typed(path, &origin, value).map(|tree| Variable { tree, file: None })
}

fn from_file(path: &[String], origin: &Origin, file: &str) -> Result<Variable, Diagnostic> {
    let text = file::read_text(file.as_ref()).map_err(|error| {
        let message = format!("cannot read {file}: {error}");
        Diagnostic::new(path, origin, None, message)
    })?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        let message = format!("{file} is empty; put the secret in it");
        return Err(Diagnostic::new(path, origin, None, message));
    }
    // Lists of secrets use the same separators as variables.
    let secrets = text.split([',', '\n']).map(str::trim);
    let secrets: Vec<_> = secrets.filter(|secret| !secret.is_empty()).collect();
    let tree =
        checked(path, origin, secrets.into()).or_else(|_| checked(path, origin, text.into()))?;
    Ok(Variable {
        tree,
        file: Some(file.into()),
    })
}

/// Parses a variable's text as the type of its setting.
///
/// Each variable must be valid by itself, so that the error can name it.
fn typed(path: &[String], origin: &Origin, text: &str) -> Result<Node, Diagnostic> {
    let as_json = serde_json::from_str::<Value>(text).ok();
    let mut values = as_json.into_iter().chain(truth(text));
    values
        .find_map(|value| checked(path, origin, value).ok())
        .map_or_else(|| checked(path, origin, text.into()), Ok)
}

/// Returns the tree of one setting, if it can have the value.
fn checked(path: &[String], origin: &Origin, value: Value) -> Result<Node, Diagnostic> {
    let tree = Node::single(path, origin, value);
    match diagnostic_within::<Config>(&tree, path) {
        None => Ok(tree),
        Some(diagnostic) => Err(diagnostic),
    }
}

/// Returns the boolean that a word commonly stands for in variables.
fn truth(text: &str) -> Option<Value> {
    match &*text.trim().to_ascii_lowercase() {
        "true" | "yes" | "on" | "1" => Some(true.into()),
        "false" | "no" | "off" | "0" => Some(false.into()),
        _ => None,
    }
}

/// Returns true if Kubernetes set the variable for a Service whose name begins with `longshore`. For `longshore-demo` it
/// sets `LONGSHORE_DEMO_SERVICE_HOST`, `LONGSHORE_DEMO_PORT=tcp://...` and others in every pod.
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
