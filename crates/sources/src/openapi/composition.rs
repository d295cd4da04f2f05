//! Schemas that are composed of several, and base schemas of subtypes.
//!
//! Many documents close such schemas (`additionalProperties: false`), which rejects the properties of the other parts, or
//! of the subtypes. Their APIs accept these, so they are allowed.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::direction::Absent;
use super::document::Document;
use super::form::parts;

/// Maximum number of schemas that are examined for one reference.
const STEPS_MAX: usize = 500;
/// Maximum number of references in a chain in which loops are found.
const CHAIN_MAX: usize = 100;
/// Keywords that hold lists of schemas for the same value.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Properties that a value can or cannot have besides those of one of its schemas, because of the schemas that this one
/// is a part of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Surroundings {
    /// Properties that the value does not have.
    pub(super) absent: Absent,
    /// True if the value can have properties of other parts.
    pub(super) has_others: bool,
}

impl Surroundings {
    /// Returns those of the alternatives of a schema, whose values do not have the `absent` properties.
    pub(super) fn of_alternatives(&self, schema: &Map<String, Value>, absent: &Absent) -> Self {
        let is_shared = ["properties", "allOf"]
            .iter()
            .any(|keyword| schema.contains_key(*keyword));
        Self {
            absent: absent.clone(),
            has_others: self.has_others || is_shared,
        }
    }

    /// Returns those of the parts of a schema. Several of them can have properties of the value.
    pub(super) fn of_parts(&self, schema: &Map<String, Value>) -> Self {
        let parts = schema.get("allOf").and_then(Value::as_array);
        let own = ["$ref", "properties"].iter();
        let own = own.filter(|keyword| schema.contains_key(**keyword));
        Self {
            absent: self.absent.clone(),
            has_others: self.has_others || 1 < parts.map_or(0, Vec::len) + own.count(),
        }
    }
}

/// Returns true if subtypes of a schema add properties to its own.
pub(super) fn is_base(schema: &Map<String, Value>) -> bool {
    let has = |keyword: &str| schema.contains_key(keyword);
    has("discriminator") && !has("oneOf") && !has("anyOf")
}

/// Allows the properties of other parts, and of subtypes, in the copy of a schema.
pub(super) fn open(
    schema: &Map<String, Value>,
    copied: &mut Map<String, Value>,
    surroundings: &Surroundings,
) {
    let is_open = surroundings.has_others || is_base(schema);
    let parts = schema.get("allOf").and_then(Value::as_array);
    if is_open || parts.is_some_and(|parts| !parts.is_empty()) {
        allow_additional(copied);
    }
    if is_open {
        allow(copied, "unevaluatedProperties");
    }
}

/// Allows properties that only other schemas of the same value have.
pub(super) fn allow_additional(schema: &mut Map<String, Value>) {
    allow(schema, "additionalProperties");
}

fn allow(schema: &mut Map<String, Value>, keyword: &str) {
    if schema.get(keyword) == Some(&Value::Bool(false)) {
        schema.remove(keyword);
    }
}

/// Returns true if a schema or one of its parts rejects unknown properties.
pub(super) fn is_closed(document: &Document, schema: &Value) -> bool {
    let mut steps = STEPS_MAX;
    rejects_unknown(document, schema, &mut steps)
}

/// `steps` is the number of schemas to examine. A schema of more counts as closed.
fn rejects_unknown(document: &Document, schema: &Value, steps: &mut usize) -> bool {
    let Some(left) = steps.checked_sub(1) else {
        return true;
    };
    *steps = left;
    let rejects = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(false));
    if rejects("additionalProperties") || rejects("unevaluatedProperties") {
        return schema.as_object().is_some_and(|schema| !is_base(schema));
    }
    let target = schema.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|reference| document.target(reference).ok());
    let parts = LISTS.iter().flat_map(|keyword| parts(schema, keyword));
    let mut all = target.into_iter().chain(parts);
    all.any(|part| rejects_unknown(document, part, steps))
}

/// Removes references that lead back to the definition that they are in, which makes a schema invalid. Typical ones are
/// those of subtypes to a base (`allOf`) that lists its subtypes (`oneOf`).
pub(super) fn without_loops(schema: &mut Value) {
    let Some(Value::Object(definitions)) = schema.get_mut("$defs") else {
        return;
    };
    let known = definitions.clone();
    let mut loops = Loops {
        definitions: &known,
        chain: Vec::new(),
        done: HashSet::new(),
        found: Vec::new(),
    };
    // The definitions nearest to the root come first, and keep their references.
    for name in known.keys() {
        loops.follow(name);
    }
    for (from, to) in loops.found {
        if let Some(definition) = definitions.get_mut(from) {
            unlink(definition, to);
        }
    }
}

/// Search for loops of references.
struct Loops<'d> {
    definitions: &'d Map<String, Value>,
    chain: Vec<&'d str>,
    done: HashSet<&'d str>,
    /// Definitions with a reference that leads back, and its target.
    found: Vec<(&'d str, &'d str)>,
}

impl<'d> Loops<'d> {
    fn follow(&mut self, name: &'d str) {
        if CHAIN_MAX <= self.chain.len() || !self.done.insert(name) {
            return;
        }
        self.chain.push(name);
        let mut links = Vec::new();
        add_links(
            self.definitions.get(name).unwrap_or(&Value::Null),
            &mut links,
        );
        for target in links {
            match self.chain.contains(&target) {
                true => self.found.push((name, target)),
                false => self.follow(target),
            }
        }
        self.chain.pop();
    }
}

/// Returns the name of the definition that a schema refers to.
fn link_of(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// Adds the names of the definitions that a schema and its parts for the same value refer to.
fn add_links<'s>(schema: &'s Value, links: &mut Vec<&'s str>) {
    links.extend(link_of(schema));
    for part in LISTS.iter().flat_map(|keyword| parts(schema, keyword)) {
        add_links(part, links);
    }
}

/// Removes the references to a definition from a schema and its parts for the same value.
fn unlink(schema: &mut Value, name: &str) {
    let is_linked = link_of(schema) == Some(name);
    let Some(members) = schema.as_object_mut() else {
        return;
    };
    if is_linked {
        members.shift_remove("$ref");
    }
    for keyword in LISTS {
        let list = members.get_mut(keyword).and_then(Value::as_array_mut);
        list.into_iter()
            .flatten()
            .for_each(|part| unlink(part, name));
    }
}
