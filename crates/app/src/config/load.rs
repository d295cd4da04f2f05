//! Loads a configuration from detectors, a file, the environment and flags. Errors carry their location.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::diagnostic::{Diagnostic, setting_name};
use super::error::ConfigError;
use super::expand::{Expanded, expand};
use super::flags::{Flags, flag_values};
use super::schema::PathKind;
use super::typed::{diagnostic_within, read_as};
use super::value::{Content, Node, Origin, parts};
use super::variables::ConfigFile;
use super::{Config, Reload, file, schema, validate, variables};
use crate::environment::{Environment, MASK, Probe};

/// A configuration, and where each of its values comes from.
#[derive(Debug)]
pub struct Loaded {
    /// The valid result.
    pub config: Config,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    /// True if that file has no bytes.
    is_file_empty: bool,
    /// The detected environment.
    pub environment: Environment,
    flags: Flags,
    pub(super) tree: Node,
    /// Further files that were read, such as those with secrets.
    pub(super) other_files: Vec<PathBuf>,
}

impl Config {
    /// Reads the configuration, as [`Loaded::read`] does.
    ///
    /// # Errors
    ///
    /// All errors in the settings, each with its location and the expected value.
    pub fn load(flags: &Flags, probe: &Probe) -> Result<Self, ConfigError> {
        Loaded::read(flags, probe).map(|loaded| loaded.config.clone())
    }
}

impl Loaded {
    /// Reads everything again, in the same way. A server with authentication keeps it, even if the new configuration has none:
    /// the removal of the last API key is not an error here.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read), and a file that has become empty: it may be incomplete, and without access rules all is allowed.
    pub fn read_again(&self, probe: &Probe) -> Result<Arc<Self>, ConfigError> {
        let mut flags = self.flags.clone();
        flags.proved |= self.config.auth.proves_anything();
        let again = Self::read(&flags, probe)?;
        match &again.file {
            Some(file) if again.is_file_empty && !self.is_file_empty => Err(ConfigError::File {
                place: file.display().to_string(),
                message: "it is empty, as while it is written; to remove all settings, leave a comment in it".to_owned(),
            }),
            _ => Ok(again),
        }
    }

    /// Returns the settings whose values differ in another configuration, and when a change takes effect. The name of a
    /// setting in a list contains its index: `sources[0].http.auth.bearer`. An entry of a map that only one of them has is named
    /// as a whole: `upstreams.bank`.
    pub fn changes(&self, other: &Self) -> Vec<(String, Reload)> {
        let (before, after) = (self.values(), other.values());
        let settings: BTreeSet<&Vec<String>> = before.keys().chain(after.keys()).collect();
        let mut changes = Vec::new();
        for path in settings {
            let (one, two) = match (before.get(path), after.get(path)) {
                (Some(one), Some(two)) => (one, two),
                (one, _) => {
                    let lacking = if one.is_some() { &after } else { &before };
                    let mut parts = (1..=path.len()).map(|length| &path[..length]);
                    if let Some(entry) = parts.find(|part| !has_below(lacking, part)) {
                        changes.push((entry.join("."), reload_of(entry)));
                    }
                    continue;
                }
            };
            let name = path.join(".");
            let mut names = BTreeSet::new();
            differences(one, two, &name, &mut names);
            // Serialized secrets are equal; the written values differ.
            if hides(one) || hides(two) {
                differences(&self.written(path), &other.written(path), &name, &mut names);
            }
            if NAMES_MAX < names.len() {
                names = BTreeSet::from([name]);
            }
            changes.extend(names.into_iter().map(|name| (name, reload_of(path))));
        }
        changes.dedup();
        changes
    }

    /// Returns the value written at a path, including secrets, or `null`.
    fn written(&self, path: &[String]) -> Value {
        self.tree.get(path).map(Node::to_value).unwrap_or_default()
    }

    /// Returns the location of a setting or of its nearest ancestor, such as `longshore.yaml:3:5`; `None` if it has its
    /// default. The name can contain indices, such as `sources[0].openapi.document`.
    pub fn place(&self, setting: &str) -> Option<String> {
        let path: Vec<_> = setting
            .split(['.', '[', ']'])
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        let node = (1..=path.len())
            .rev()
            .find_map(|length| self.tree.get(&path[..length]))?;
        match &node.origin {
            Origin::Default | Origin::Detected { .. } => None,
            origin => Some(origin.describe(self.file.as_deref())),
        }
    }

    /// Returns the files that were read: the configuration, and files with secrets.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.file
            .iter()
            .chain(&self.other_files)
            .map(PathBuf::as_path)
    }

    /// Detects the environment, and reads the file that the flags or `LONGSHORE_CONFIG` name, the variables and the flags.
    /// Later ones override earlier ones.
    ///
    /// Variables are `LONGSHORE_` and the setting's path in capitals, its parts joined by two underscores:
    /// `LONGSHORE_HTTP__PORT`. Short forms are `LONGSHORE_HOST`, `LONGSHORE_PORT`, `LONGSHORE_WORKERS`,
    /// `LONGSHORE_TRANSPORT` and `LONGSHORE_TOOLSET`. `PORT`, which platforms set, overrides all of them. A secret is
    /// also read from the file that its variable with the suffix `_FILE` names.
    ///
    /// # Errors
    ///
    /// All errors in the settings, each with its location and the expected value.
    pub fn read(flags: &Flags, probe: &Probe) -> Result<Arc<Self>, ConfigError> {
        let named = flags.config.clone().map(ConfigFile::At);
        let named = named.or_else(|| variables::config_file(probe));
        let name = named.as_ref().map(ConfigFile::name);
        let mut diagnostics = Vec::new();
        let environment = probe.environment();
        let mut tree = detected(environment);
        if !flags.toolsets_otherwise.is_empty() {
            let toolsets = flags.toolsets_otherwise.clone().into();
            tree.overlay(Node::single(&parts("toolsets"), &Origin::Default, toolsets));
        }
        if let Some(named) = &named {
            tree.overlay(read_file(named, probe, &mut diagnostics)?);
        }
        let mut other_files = Vec::new();
        for variable in variables::settings(probe, &mut diagnostics) {
            other_files.extend(variable.file);
            tree.overlay(variable.tree);
        }
        for (setting, flag, value) in flag_values(flags) {
            let path = parts(setting);
            let origin = Origin::Flag {
                name: format!("--{flag}"),
            };
            let alone = Node::single(&path, &origin, value);
            diagnostics.extend(diagnostic_within::<Config>(&alone, &path));
            tree.overlay(alone);
        }
        if !diagnostics.is_empty() {
            return Err(ConfigError::Diagnostics(diagnostics));
        }
        prefer_configured_http(&mut tree);
        remove_detected_users(&mut tree);
        remove_default_toolsets(&mut tree);
        let config: Config = read_as(&mut tree, name).map_err(|diagnostics| {
            ConfigError::Diagnostics(
                diagnostics
                    .into_iter()
                    .map(|(diagnostic, _)| diagnostic)
                    .collect(),
            )
        })?;
        let conflicts = validate::conflicts(&config, probe, flags.proved);
        if !conflicts.is_empty() {
            return Err(ConfigError::Conflicts(conflicts));
        }
        let file = named.as_ref().and_then(ConfigFile::path);
        let is_empty = |file| std::fs::metadata(file).is_ok_and(|found| found.len() == 0);
        Ok(Arc::new(Self {
            config,
            is_file_empty: file.is_some_and(is_empty),
            file: file.map(Path::to_owned),
            environment: environment.clone(),
            flags: flags.clone(),
            tree,
            other_files,
        }))
    }
}

/// Reads a configuration file, and checks it by itself, so that an error shows even if the environment overrides the setting.
fn read_file(
    named: &ConfigFile,
    probe: &Probe,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Node, ConfigError> {
    let name = named.name();
    let mut file = match named {
        ConfigFile::At(path) => file::read(path)?,
        ConfigFile::Within { name, text } => file::read_json(text, name)?,
    };
    // For editors.
    file.remove(&parts("$schema"));
    drop_nulls(&mut file);
    diagnostics.extend(rename_aliases(&mut file, name));
    substitute(&mut file, probe, name, diagnostics);
    if let Some(folder) = named.path().and_then(folder_of) {
        resolve_paths(&mut file, &folder, &mut Vec::new());
    }
    let read = read_as::<Config>(&mut file, Some(name));
    let misfits = read.err().into_iter().flatten();
    let misfits: Vec<_> = misfits
        .filter(|(misfit, is_missing)| {
            // Missing settings may follow, and an unresolved reference was reported already.
            let is_reported = |known: &Diagnostic| known.setting == misfit.setting;
            !is_missing && !diagnostics.iter().any(is_reported)
        })
        .map(|(misfit, _)| misfit)
        .collect();
    diagnostics.extend(misfits);
    Ok(file)
}

/// Removes default toolsets if the configuration has sources or upstreams.
fn remove_default_toolsets(tree: &mut Node) {
    let has_some = |setting: &&str| {
        let node = tree.get(&parts(setting)).map(Node::to_value);
        node.is_some_and(|node| match node {
            Value::Array(all) => !all.is_empty(),
            Value::Object(all) => !all.is_empty(),
            _ => false,
        })
    };
    let names_something = ["sources", "upstreams"].iter().any(has_some);
    let toolsets = parts("toolsets");
    let node = tree.get(&toolsets);
    if names_something && node.is_some_and(|node| node.origin == Origin::Default) {
        tree.remove(&toolsets);
    }
}

/// Maximum number of changed settings named within one; beyond it, the outer one is named.
const NAMES_MAX: usize = 4;

/// Returns true if there is a value at a path or below it.
fn has_below(values: &BTreeMap<Vec<String>, Value>, path: &[String]) -> bool {
    let from = (Bound::Included(path), Bound::Unbounded);
    let next = values.range::<[String], _>(from).next();
    next.is_some_and(|(found, _)| found.starts_with(path))
}

/// Returns when a change at a path takes effect. Entries of a map have no setting of their own.
fn reload_of(path: &[String]) -> Reload {
    let mut nearest = (1..=path.len()).rev().map(|length| &path[..length]);
    let setting = nearest.find_map(schema::setting);
    setting.map(|setting| setting.reload).unwrap_or_default()
}

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

/// Selects HTTP if its settings are written, even if stdio was detected.
fn prefer_configured_http(tree: &mut Node) {
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
fn remove_detected_users(tree: &mut Node) {
    let path = parts("http.trusted_proxies");
    let is_guess = tree
        .get(&path)
        .is_some_and(|node| matches!(node.origin, Origin::Detected { .. }));
    if is_guess && tree.get(&parts("auth.forwarded.user_header")).is_some() {
        tree.remove(&path);
    }
}

/// Removes empty sections and settings without a value.
fn drop_nulls(node: &mut Node) {
    if let Content::Table(entries) = &mut node.content {
        entries.retain(|(_, node)| !matches!(node.content, Content::Leaf(Value::Null)));
        entries.iter_mut().for_each(|(_, node)| drop_nulls(node));
    }
}

/// Renames the section of upstream servers if it has the name that other products use. Everything that follows, such as
/// masking of secrets, knows the setting by its own name only.
fn rename_aliases(tree: &mut Node, file: &Path) -> Option<Diagnostic> {
    const ALIAS: &str = "mcpServers";
    const SETTING: &str = "upstreams";
    let Content::Table(entries) = &mut tree.content else {
        return None;
    };
    let alias = entries.iter().position(|(name, _)| name == ALIAS)?;
    if entries.iter().all(|(name, _)| name != SETTING) {
        SETTING.clone_into(&mut entries[alias].0);
        return None;
    }
    let (_, node) = entries.remove(alias);
    let message =
        "mcpServers is another name of upstreams, which the file has too; move its entries there";
    Some(Diagnostic::new(
        &parts(ALIAS),
        &node.origin,
        Some(file),
        message,
    ))
}

/// Replaces `${...}` in all strings of a file.
fn substitute(tree: &mut Node, probe: &Probe, file: &Path, diagnostics: &mut Vec<Diagnostic>) {
    let in_file = tree.get(&parts("env_missing")).map(Node::to_value);
    let lenient = match probe.variable("LONGSHORE_ENV_MISSING") {
        Some(text) => text == "empty",
        None => in_file.is_some_and(|value| value == "empty"),
    };
    tree.each_text(&mut Vec::new(), &mut |path, node| {
        let Content::Leaf(Value::String(written)) = &node.content else {
            return;
        };
        match expand(written, probe, lenient) {
            Ok(Expanded::Unchanged) => {}
            Ok(Expanded::Text { text, substituted }) => {
                node.written = substituted.then(|| written.clone());
                node.content = Content::Leaf(text.into());
            }
            Err(message) => diagnostics.push(Diagnostic::new(
                path,
                &node.origin,
                Some(file),
                format!("{}: {message}", setting_name(path)),
            )),
        }
    });
}

/// Returns the absolute path of the folder of a file.
fn folder_of(file: &Path) -> Option<PathBuf> {
    let file = std::path::absolute(file).ok()?;
    file.parent().map(Path::to_owned)
}

/// Resolves relative paths against the folder of the file that contains them.
fn resolve_paths(node: &mut Node, folder: &Path, path: &mut Vec<String>) {
    if let Some(setting) = schema::setting(path)
        && let Some(kind) = setting.path_kind
    {
        // A list can be written as a string.
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

/// Resolves the paths of a setting, or of each item of a list.
fn resolve(node: &mut Node, folder: &Path, kind: PathKind) {
    match &mut node.content {
        Content::Leaf(Value::String(text)) => {
            let path = Path::new(&*text);
            let is_path = match kind {
                PathKind::File => true,
                PathKind::Place => !text.contains("://"),
                // A string that begins with a placeholder is known only at the call.
                PathKind::Program => text.contains('/') && !text.starts_with("{{"),
            };
            if is_path && !text.is_empty() && path.is_relative() {
                // Components `.` are removed, so that messages are easier to read.
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
