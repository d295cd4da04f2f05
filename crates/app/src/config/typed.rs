//! A tree read as a type, with all its mistakes.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::mistake::{self, Diagnostic};
use super::schema;
use super::tree::{Content, Node};
use crate::catalog::located::{self, Misfit, Piece};

/// Reads a tree as a type. What is wrong is taken away and the rest read again, so that all mistakes are found; each comes
/// with whether it is about something that is missing.
///
/// A text that came from a variable may turn out to be a number, a list, or whatever else fits.
pub(super) fn read_as<T: DeserializeOwned>(
    tree: &mut Node,
    file: Option<&Path>,
) -> Result<T, Vec<(Diagnostic, bool)>> {
    const MISTAKES_MAX: usize = 20;
    let mut mistakes = Vec::new();
    let mut rest = tree.clone();
    loop {
        let misfit = match located::read::<T>(&rest.to_value()) {
            Ok(read) if mistakes.is_empty() => return Ok(read),
            Ok(_) => return Err(mistakes),
            Err(misfit) => misfit,
        };
        let path = path_of(&misfit);
        let refusal = misfit.cause.to_string();
        if let Some(node) = rest.get_mut(&path)
            && let Some(meant) = meant(node).or_else(|| truth(node, &refusal))
        {
            node.content = Content::Leaf(meant.clone());
            node.substituted = false;
            if let Some(node) = tree.get_mut(&path) {
                node.content = Content::Leaf(meant);
            }
            continue;
        }
        let missing = mistake::is_missing(&refusal);
        let mistake = Diagnostic::of_value(&path, &rest, file, &refusal, schema::is_secret(&path));
        mistakes.push((mistake, missing));
        if MISTAKES_MAX <= mistakes.len() || !rest.remove(&path) {
            return Err(mistakes);
        }
    }
}

/// Parses a variable's text as JSON; `None` if it is just a string.
fn meant(node: &Node) -> Option<Value> {
    match &node.content {
        Content::Leaf(Value::String(text)) if node.substituted => serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_string()),
        _ => None,
    }
}

/// Returns the boolean that a word of older YAML means, where a boolean is expected. Elsewhere it stays a string.
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
pub(super) fn mistakes_within<T: DeserializeOwned>(
    alone: &Node,
    path: &[String],
) -> Option<Diagnostic> {
    let misfit = located::read::<T>(&alone.to_value()).err()?;
    let at = path_of(&misfit);
    let refusal = misfit.cause.to_string();
    let is_elsewhere = !at.starts_with(path) && mistake::is_missing(&refusal);
    (!is_elsewhere).then(|| {
        let is_secret = schema::is_secret(&at) || schema::is_secret(path);
        Diagnostic::of_value(&at, alone, None, &refusal, is_secret)
    })
}

fn path_of(misfit: &Misfit) -> Vec<String> {
    misfit
        .path
        .pieces()
        .filter_map(|piece| match piece {
            Piece::Member(name) => Some(name.clone()),
            Piece::Item(index) => Some(index.to_string()),
            Piece::Variant(_) => None,
        })
        .collect()
}
