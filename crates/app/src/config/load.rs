//! From detectors, a file, the environment and flags to a configuration, with the place of each mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::expand::{Expanded, expand};
use super::flags::{Flags, flag_values};
use super::mistake::Diagnostic;
use super::schema::PathKind;
use super::tree::{Content, Node, Origin, parts};
use super::typed::{mistakes_within, read_as};
use super::variables::ConfigFile;
use super::{Config, Reload, check, file, schema, variables};
use crate::environment::{Environment, MASK, Probe};

/// A configuration, and where each of its values comes from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The valid result.
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// The detected environment.
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
    /// Reads everything again, as it was read before. A server that asks for credentials goes on asking for them, whatever
    /// the configuration says by now: that its last API key was taken away is not an error here.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    pub fn read_again(&self, probe: &Probe) -> Result<Self, ConfigError> {
        let mut flags = self.flags.clone();
        flags.proved |= self.config.auth.proves_anything();
        Self::read(&flags, probe)
    }

    /// The settings that have another value in another configuration, and when that takes effect. A setting within a list is
    /// named by its place: `sources[0].http.auth.bearer`.
    pub fn changes(&self, other: &Self) -> Vec<(String, Reload)> {
        let (before, after) = (self.values(), other.values());
        let settings: BTreeSet<&Vec<String>> = before.keys().chain(after.keys()).collect();
        let mut changes = Vec::new();
        for path in settings {
            let of =
                |all: &BTreeMap<Vec<String>, Value>| all.get(path).cloned().unwrap_or_default();
            let name = path.join(".");
            let (one, two) = (of(&before), of(&after));
            let mut names = BTreeSet::new();
            differences(&one, &two, &name, &mut names);
            // Serialized secrets are equal; the written values differ.
            if hides(&one) || hides(&two) {
                differences(&self.written(path), &other.written(path), &name, &mut names);
            }
            if NAMES_MAX < names.len() {
                names = BTreeSet::from([name]);
            }
            let setting = schema::setting(path);
            let reload = setting.map(|setting| setting.reload).unwrap_or_default();
            changes.extend(names.into_iter().map(|name| (name, reload)));
        }
        changes
    }

    /// Returns the value written at a path, secrets included; `null` if there is none.
    fn written(&self, path: &[String]) -> Value {
        self.node(path).map(Node::to_value).unwrap_or_default()
    }

    fn node(&self, path: &[String]) -> Option<&Node> {
        self.tree.get(path).or_else(|| {
            let (first, rest) = path.split_first()?;
            let alias = (first == "upstreams").then(|| self.tree.get(&parts("mcpServers")))??;
            alias.get(rest)
        })
    }

    /// Where a setting was said, as in `longshore.yaml:3:5`, or what is nearest to it on the way there. `None` if nobody said
    /// it. The name may have places in lists, as in `sources[0].openapi.document`.
    pub(crate) fn place(&self, setting: &str) -> Option<String> {
        let path: Vec<_> = setting
            .split(['.', '[', ']'])
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        let node = (1..=path.len())
            .rev()
            .find_map(|length| self.node(&path[..length]))?;
        match &node.origin {
            Origin::Default | Origin::Detected { .. } => None,
            origin => Some(origin.describe(self.file.as_deref())),
        }
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
        let named = flags.config.clone().map(ConfigFile::At);
        let named = named.or_else(|| variables::config_file(probe));
        let name = named.as_ref().map(ConfigFile::name);
        let mut mistakes = Vec::new();
        let environment = Environment::detect(probe);
        let mut tree = detected(&environment);
        if !flags.toolsets_otherwise.is_empty() {
            let toolsets = flags.toolsets_otherwise.clone().into();
            tree.overlay(Node::single(&parts("toolsets"), &Origin::Default, toolsets));
        }
        if let Some(named) = &named {
            let name = named.name();
            let mut file = match named {
                ConfigFile::At(path) => file::read(path)?,
                ConfigFile::Within { name, text } => file::read_json(text, name)?,
            };
            // For editors.
            file.remove(&parts("$schema"));
            drop_nulls(&mut file);
            substitute(&mut file, probe, name, &mut mistakes);
            if let Some(folder) = named.path().and_then(folder_of) {
                resolve_paths(&mut file, &folder, &mut Vec::new());
            }
            // Each file is checked by itself, so that an error shows even if the environment overrides the setting.
            // Missing settings may still follow.
            let read = read_as::<Config>(&mut file, Some(name));
            let misfits = read.err().into_iter().flatten();
            let misfits: Vec<_> = misfits
                .filter(|(misfit, missing)| {
                    // A reference that could not be replaced is no number either, which is no news.
                    !missing && mistakes.iter().all(|told| told.setting != misfit.setting)
                })
                .map(|(misfit, _)| misfit)
                .collect();
            mistakes.extend(misfits);
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
        let config: Config = read_as(&mut tree, name).map_err(|mistakes| {
            ConfigError::Mistakes(mistakes.into_iter().map(|(mistake, _)| mistake).collect())
        })?;
        let findings = check::errors(&config, probe, flags.proved);
        if !findings.is_empty() {
            return Err(ConfigError::Contradictions(findings));
        }
        Ok(Self {
            config,
            file: named
                .as_ref()
                .and_then(ConfigFile::path)
                .map(Path::to_owned),
            environment,
            flags: flags.clone(),
            tree,
            other_files,
        })
    }
}

/// Maximum number of changed settings named within one; beyond it, the outer one is named.
const NAMES_MAX: usize = 4;

/// Returns true if a serialized value contains a masked secret.
fn hides(value: &Value) -> bool {
    match value {
        Value::String(text) => text == MASK,
        Value::Array(items) => items.iter().any(hides),
        Value::Object(members) => members.values().any(hides),
        _ => false,
    }
}

/// Collects the names of what differs between two values of a setting. Lists are compared item by item if they are lists of
/// tables and equally long.
fn differences(one: &Value, two: &Value, name: &str, names: &mut BTreeSet<String>) {
    match (one, two) {
        _ if one == two => {}
        (Value::Object(before), Value::Object(after)) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let of = |all: &Map<String, Value>| all.get(key).cloned().unwrap_or_default();
                differences(&of(before), &of(after), &format!("{name}.{key}"), names);
            }
        }
        (Value::Array(before), Value::Array(after))
            if before.len() == after.len() && before.iter().chain(after).all(Value::is_object) =>
        {
            for (at, (one, two)) in before.iter().zip(after).enumerate() {
                differences(one, two, &format!("{name}[{at}]"), names);
            }
        }
        _ => {
            names.insert(name.to_owned());
        }
    }
}

/// Settings from the detected environment.
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

/// Settings of HTTP select HTTP, whatever standard input is connected to.
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

/// The platform's proxies are trusted for client addresses only. They pass on user headers of clients, so proxies
/// that set those must be named.
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
fn substitute(tree: &mut Node, probe: &Probe, file: &Path, mistakes: &mut Vec<Diagnostic>) {
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
            Err(message) => mistakes.push(Diagnostic::new(
                path,
                &node.origin,
                Some(file),
                format!("{}: {message}", path.join(".")),
            )),
        }
    });
}

/// The folder that a file is in, from the root of the file system.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    file.parent().map(Path::to_owned)
}

/// Resolves relative paths against the folder of the file that contains them.
fn resolve_paths(node: &mut Node, folder: &Path, path: &mut Vec<String>) {
    let setting = schema::setting(&canonical_names(path));
    if let Some(setting) = setting
        && let Some(kind) = setting.path_kind
    {
        // A list may be written as a string.
        if let Content::Leaf(Value::String(text)) = &node.content
            && setting.default.is_array()
        {
            let items = text.split(',').map(|item| {
                let item = Value::from(item.trim());
                Node::new(node.origin.clone(), Content::Leaf(item))
            });
            node.content = Content::List(items.collect());
        }
        return resolve(node, folder, kind);
    }
    match &mut node.content {
        Content::Leaf(_) => {}
        Content::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push(index.to_string());
                resolve_paths(item, folder, path);
                path.pop();
            }
        }
        Content::Table(entries) => {
            for (name, node) in entries {
                path.push(name.clone());
                resolve_paths(node, folder, path);
                path.pop();
            }
        }
    }
}

/// A path of settings with the names that they have here, where other products have others for them.
fn canonical_names(path: &[String]) -> Vec<String> {
    let mut path = path.to_vec();
    if let Some(first) = path.first_mut()
        && first == "mcpServers"
    {
        "upstreams".clone_into(first);
    }
    path
}

/// Resolves the paths of a setting, or of each item of a list.
fn resolve(node: &mut Node, folder: &Path, kind: PathKind) {
    match &mut node.content {
        Content::Leaf(Value::String(text)) => {
            let path = Path::new(&*text);
            let is_path = match kind {
                PathKind::File => true,
                PathKind::Place => !text.contains("://"),
                // A text that begins with a placeholder is known only at the call.
                PathKind::Program => text.contains('/') && !text.starts_with("{{"),
            };
            if is_path && !text.is_empty() && path.is_relative() {
                // Without needless dots, which only make messages harder to read.
                let written = path.components();
                let plain: PathBuf = written.filter(|part| *part != Component::CurDir).collect();
                let absolute = match plain.as_os_str().is_empty() {
                    true => folder.to_owned(),
                    false => folder.join(plain),
                };
                if let Some(absolute) = absolute.to_str() {
                    *text = absolute.to_owned();
                }
            }
        }
        Content::List(items) => {
            let count = match kind {
                PathKind::Program => 1,
                PathKind::File | PathKind::Place => items.len(),
            };
            for item in items.iter_mut().take(count) {
                resolve(item, folder, kind);
            }
        }
        Content::Leaf(_) | Content::Table(_) => {}
    }
}

#[cfg(test)]
mod tests;
