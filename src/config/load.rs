//! From detectors, a file, the environment and flags to a configuration, with the place of each mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::error::ConfigError;
use super::expand::{Expanded, expand};
use super::flags::{Flags, flag_values};
use super::mistake::Mistake;
use super::tree::{Content, Node, Origin, parts};
use super::typed::{mistakes_within, read_as};
use super::variables::ConfigFile;
use super::{Config, Reload, check, file, schema, variables};
use crate::environment::{Environment, Probe};

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
            // By itself, so that a mistake is told even where the environment outdoes it. What is missing may still come.
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

#[cfg(test)]
mod tests;
