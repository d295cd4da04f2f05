//! Deserialization of a tree of settings that reports all errors.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::diagnostic::{self, Diagnostic};
use super::schema;
use super::value::{Content, Node};
use crate::catalog::path_deserializer::{self, PathSegment, TypeMismatch};

/// Deserializes a tree. Invalid settings are removed and the rest is read again, so that all errors are found. Each is
/// paired with true if it reports a missing setting.
///
/// A string that was substituted from a variable is also tried as a number, a list or a table.
pub(super) fn read_as<T: DeserializeOwned>(
    tree: &mut Node,
    file: Option<&Path>,
) -> Result<T, Vec<(Diagnostic, bool)>> {
    const DIAGNOSTICS_MAX: usize = 20;
    let mut diagnostics = Vec::new();
    let mut rest = tree.clone();
    loop {
        let misfit = match path_deserializer::read::<T>(&rest.to_value()) {
            Ok(read) if diagnostics.is_empty() => return Ok(read),
            Ok(_) => return Err(diagnostics),
            Err(misfit) => misfit,
        };
        let path = path_of(&misfit);
        let refusal = misfit.cause.to_string();
        if let Some(node) = rest.get_mut(&path)
            && let Some(meant) = meant(node).or_else(|| truth(node, &refusal))
        {
            node.content = Content::Leaf(meant.clone());
            node.written = None;
            if let Some(node) = tree.get_mut(&path) {
                node.content = Content::Leaf(meant);
            }
            continue;
        }
        let missing = diagnostic::is_missing(&refusal);
        let diagnostic =
            Diagnostic::of_value(&path, &rest, file, &refusal, schema::is_secret(&path));
        diagnostics.push((diagnostic, missing));
        if DIAGNOSTICS_MAX <= diagnostics.len() || !rest.remove(&path) {
            return Err(diagnostics);
        }
    }
}

/// Parses a variable's value as JSON; `None` if it is a plain string.
fn meant(node: &Node) -> Option<Value> {
    match &node.content {
        Content::Leaf(Value::String(text)) if node.written.is_some() => serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_string()),
        _ => None,
    }
}

/// Returns the boolean for `yes`, `no`, `on` and `off` of YAML 1.1, where a boolean is expected.
fn truth(node: &Node, refusal: &str) -> Option<Value> {
    let Content::Leaf(Value::String(word)) = &node.content else {
        return None;
    };
    if !refusal.contains("expected a boolean") {
        return None;
    }
    match &*word.to_ascii_lowercase() {
        "yes" | "on" => Some(true.into()),
        "no" | "off" => Some(false.into()),
        _ => None,
    }
}

/// Returns the errors of one setting by itself, without missing siblings.
pub(super) fn diagnostic_within<T: DeserializeOwned>(
    alone: &Node,
    path: &[String],
) -> Option<Diagnostic> {
    let misfit = path_deserializer::read::<T>(&alone.to_value()).err()?;
    let at = path_of(&misfit);
    let refusal = misfit.cause.to_string();
    let is_elsewhere = !at.starts_with(path) && diagnostic::is_missing(&refusal);
    (!is_elsewhere).then(|| {
        let is_secret = schema::is_secret(&at) || schema::is_secret(path);
        Diagnostic::of_value(&at, alone, None, &refusal, is_secret)
    })
}

fn path_of(misfit: &TypeMismatch) -> Vec<String> {
    misfit
        .path
        .pieces()
        .filter_map(|piece| match piece {
            PathSegment::Member(name) => Some(name.clone()),
            PathSegment::Item(index) => Some(index.to_string()),
            PathSegment::Variant(_) => None,
        })
        .collect()
}
