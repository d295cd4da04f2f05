//! Values of settings as written, each with its origin.

use std::path::Path;

use serde_json::{Map, Value};

/// Origin of a setting's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The default.
    Default,
    /// The detected environment.
    Detected {
        /// Evidence.
        evidence: String,
    },
    /// The configuration file.
    File {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// An environment variable.
    Variable {
        /// Name of the variable.
        name: String,
    },
    /// The command line.
    Flag {
        /// Name of the flag, with its dashes.
        name: String,
    },
}

impl Origin {
    /// Describes the origin for messages. `file` is the configuration file.
    pub fn describe(&self, file: Option<&Path>) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Detected { evidence } => format!("detected: {evidence}"),
            Self::File { line, column } => {
                let file = file.map_or_else(|| "file".into(), Path::to_string_lossy);
                format!("{file}:{line}:{column}")
            }
            Self::Variable { name } => name.clone(),
            Self::Flag { name } => name.clone(),
        }
    }
}

/// A setting, or a table of them.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) origin: Origin,
    /// The string as written, if it was substituted from a variable by `${...}`. It is masked, and can hold a number.
    pub(super) written: Option<String>,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Leaf(Value),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Node {
    pub(super) fn new(origin: Origin, content: Content) -> Self {
        Self {
            origin,
            written: None,
            content,
        }
    }

    /// Creates a table without settings.
    pub(super) fn empty() -> Self {
        Self::new(Origin::Default, Content::Table(Vec::new()))
    }

    /// Creates the tree of one setting.
    pub(super) fn single(path: &[String], origin: &Origin, value: Value) -> Self {
        let leaf = Self::new(origin.clone(), Content::Leaf(value));
        path.iter().rev().fold(leaf, |inner, name| {
            Self::new(origin.clone(), Content::Table(vec![(name.clone(), inner)]))
        })
    }

    /// Lays another tree over this one. Tables are merged; everything else is replaced.
    pub(super) fn overlay(&mut self, over: Self) {
        match (&mut self.content, over.content) {
            (Content::Table(below), Content::Table(above)) => {
                for (name, node) in above {
                    match below.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => known.overlay(node),
                        None => below.push((name, node)),
                    }
                }
            }
            (content, above) => {
                *content = above;
                self.origin = over.origin;
                self.written = over.written;
            }
        }
    }

    /// Returns the node at a path.
    pub(super) fn get(&self, path: &[String]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else {
            return Some(self);
        };
        match &self.content {
            Content::Leaf(_) => None,
            Content::List(items) => items.get(first.parse::<usize>().ok()?)?.get(rest),
            Content::Table(entries) => {
                let (_, node) = entries.iter().find(|(name, _)| name == first)?;
                node.get(rest)
            }
        }
    }

    pub(super) fn get_mut(&mut self, path: &[String]) -> Option<&mut Self> {
        let Some((first, rest)) = path.split_first() else {
            return Some(self);
        };
        match &mut self.content {
            Content::Leaf(_) => None,
            Content::List(items) => items.get_mut(first.parse::<usize>().ok()?)?.get_mut(rest),
            Content::Table(entries) => {
                let (_, node) = entries.iter_mut().find(|(name, _)| name == first)?;
                node.get_mut(rest)
            }
        }
    }

    /// Returns the node at a path, or its nearest ancestor.
    pub(super) fn nearest(&self, path: &[String]) -> &Self {
        (0..=path.len())
            .rev()
            .find_map(|length| self.get(&path[..length]))
            .unwrap_or(self)
    }

    /// Removes the node at a path; lists are removed whole. Returns true if there was one.
    pub(super) fn remove(&mut self, path: &[String]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        let Content::Table(entries) = &mut self.content else {
            return false;
        };
        let Some(at) = entries.iter().position(|(name, _)| name == first) else {
            return false;
        };
        if !entries[at].1.remove(rest) {
            entries.remove(at);
        }
        true
    }

    pub(super) fn to_value(&self) -> Value {
        match &self.content {
            Content::Leaf(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::to_value).collect(),
            Content::Table(entries) => {
                let entries = entries
                    .iter()
                    .map(|(name, node)| (name.clone(), node.to_value()));
                Value::Object(Map::from_iter(entries))
            }
        }
    }

    /// Visits every string.
    pub(super) fn each_text(
        &mut self,
        path: &mut Vec<String>,
        visit: &mut dyn FnMut(&[String], &mut Self),
    ) {
        match &mut self.content {
            Content::Leaf(Value::String(_)) => visit(path, self),
            Content::Leaf(_) => {}
            Content::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    path.push(index.to_string());
                    item.each_text(path, visit);
                    path.pop();
                }
            }
            Content::Table(entries) => {
                for (name, node) in entries {
                    path.push(name.clone());
                    node.each_text(path, visit);
                    path.pop();
                }
            }
        }
    }
}

/// Splits `http.port` into its parts.
pub(super) fn parts(setting: &str) -> Vec<String> {
    setting.split('.').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(setting: &str, value: Value, line: usize) -> Node {
        Node::single(&parts(setting), &Origin::File { line, column: 1 }, value)
    }

    #[test]
    fn tables_are_merged_and_everything_else_is_replaced() {
        let mut tree = one("http.port", json!(1), 1);
        tree.overlay(one("http.workers", json!(2), 2));
        tree.overlay(one("http.port", json!(3), 3));
        tree.overlay(one("http.allowed_hosts", json!(["a"]), 4));
        assert_eq!(
            tree.to_value(),
            json!({"http": {"port": 3, "workers": 2, "allowed_hosts": ["a"]}})
        );
        let line = |setting: &str| match tree.nearest(&parts(setting)).origin {
            Origin::File { line, .. } => line,
            _ => 0,
        };
        assert_eq!((line("http.port"), line("http.workers")), (3, 2));
        assert_eq!(line("http.port.nothing"), 3);
    }

    #[test]
    fn what_is_taken_away_leaves_the_rest() {
        let mut tree = one("http.port", json!(1), 1);
        tree.overlay(one("http.workers", json!(2), 2));
        assert!(tree.remove(&parts("http.port.deeper")));
        assert_eq!(tree.to_value(), json!({"http": {"workers": 2}}));
        assert!(!tree.remove(&parts("nothing")));
        assert!(!tree.remove(&[]));
    }
}
