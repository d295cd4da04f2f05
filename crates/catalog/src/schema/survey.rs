//! A schema read as a graph: every subschema, which of them apply to one and the same value, and which to its parts.

use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::{Draft, Uri, uri};
use serde_json::{Map, Value};

use super::cost::{Bound, Graph};
use super::{SchemaError, SchemaProblem, options, parts, push};
use crate::protocol::percent_decoded;

const DEPTH: usize = 64;
const SUBSCHEMAS: usize = 10_000;
const APPLIED: usize = 10_000;
const CHAIN: usize = 32;

/// Rejects documents that are too deep or too large to be inspected.
pub(super) fn check_size(schema: &Value) -> Result<(), SchemaError> {
    // A subschema is two levels below the one it is in: within a keyword, within its list or map.
    if json_depth(schema, 2 * DEPTH + 2).is_none() {
        return Err(too_large("", DEPTH, "subschemas within subschemas"));
    }
    Ok(())
}

/// Treatment of the patterns of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patterns {
    /// They have to be usable here.
    Compiled,
    /// They are not used here.
    Ignored,
}

/// Refuses references that lead out or nowhere, patterns that cannot be used, and what costs too much. Returns the
/// bound of the comparisons with a value.
pub(super) fn check_references(
    dialect: Draft,
    schema: &Value,
    patterns: Patterns,
) -> Result<Bound, SchemaError> {
    let survey = Survey::of(dialect, schema, patterns)?;
    Ok(Graph::of(&survey.nodes).bound())
}

/// Returns the graph of a schema that [`check_references`] has accepted.
pub(super) fn graph(dialect: Draft, schema: &Value) -> Option<Graph> {
    let survey = Survey::of(dialect, schema, Patterns::Ignored).ok()?;
    Some(Graph::of(&survey.nodes))
}

/// Placeholder address of a schema without `$id`.
const BASE: &str = "longshore:///";

struct Survey<'s> {
    dialect: Draft,
    patterns: Patterns,
    nodes: Vec<Node<'s>>,
    /// Subschemas by their address in memory.
    index: HashMap<*const Value, usize>,
    /// Subschemas with an `$id`, and the root, by URI.
    resources: HashMap<String, usize>,
    /// Subschemas by the URI of their resource and their anchor.
    anchors: HashMap<(String, String), usize>,
    /// Subschemas by dynamic anchor, in any resource.
    dynamic: HashMap<&'s str, Vec<usize>>,
}

/// A subschema.
pub(super) struct Node<'s> {
    pub(super) schema: &'s Value,
    pointer: String,
    base: Arc<Uri<String>>,
    /// Other subschemas that apply to the same value.
    pub(super) applied: Vec<usize>,
    /// Subschemas that apply to parts of the value.
    pub(super) parts: Vec<(Part<'s>, usize)>,
    weight: Weight,
}

/// The parts of a value that a subschema applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'s> {
    /// The member of this name.
    Member(&'s str),
    /// Members that no `properties` names.
    OtherMembers,
    /// Members or their names, for this pattern if there is one.
    Members(Option<&'s str>),
    /// The item at this index.
    Item(usize),
    /// Items behind those with an index.
    OtherItems,
    Items,
}

/// Number of subschemas that apply to one value, counted once for each path to them.
#[derive(Clone, Copy)]
enum Weight {
    Unknown,
    BeingWeighed,
    Known(usize),
}

impl<'s> Survey<'s> {
    fn of(dialect: Draft, schema: &'s Value, patterns: Patterns) -> Result<Self, SchemaError> {
        let mut survey = Self::new(dialect, patterns);
        let root = uri::from_str(BASE).map_err(|_| unresolved("", BASE))?;
        let mut pointer = String::new();
        survey.add(schema, &mut pointer, &Arc::new(root), 0)?;
        // Resolving may add subschemas: a pointer may lead to a place that is no keyword's.
        let mut next = 0;
        while next < survey.nodes.len() {
            survey.resolve(next)?;
            next += 1;
        }
        for node in 0..survey.nodes.len() {
            survey.weigh(node, 0)?;
        }
        Ok(survey)
    }

    fn new(dialect: Draft, patterns: Patterns) -> Self {
        Self {
            dialect,
            patterns,
            nodes: Vec::new(),
            index: HashMap::new(),
            resources: HashMap::new(),
            anchors: HashMap::new(),
            dynamic: HashMap::new(),
        }
    }

    /// Adds a subschema and all that are within it.
    fn add(
        &mut self,
        schema: &'s Value,
        pointer: &mut String,
        base: &Arc<Uri<String>>,
        depth: usize,
    ) -> Result<usize, SchemaError> {
        if let Some(known) = self.index.get(&std::ptr::from_ref(schema)) {
            return Ok(*known);
        }
        if depth > DEPTH {
            return Err(too_large(pointer, DEPTH, "subschemas within subschemas"));
        }
        if self.nodes.len() == SUBSCHEMAS {
            return Err(too_large(pointer, SUBSCHEMAS, "subschemas"));
        }
        let members = match schema {
            Value::Object(members) => Some(members),
            Value::Bool(_) => None,
            _ => return Err(SchemaError::at(pointer, SchemaProblem::NotSchema)),
        };
        let node = self.nodes.len();
        let base = match members {
            Some(members) => self.name(node, members, pointer, base)?,
            None => Arc::clone(base),
        };
        self.index.insert(std::ptr::from_ref(schema), node);
        self.nodes.push(Node {
            schema,
            pointer: pointer.clone(),
            base: Arc::clone(&base),
            applied: Vec::new(),
            parts: Vec::new(),
            weight: Weight::Unknown,
        });
        for (keyword, value) in members.into_iter().flatten() {
            if self.patterns == Patterns::Compiled {
                self.check_patterns(keyword, value, pointer)?;
            }
            for child in children(keyword, value) {
                let length = pointer.len();
                push(pointer, keyword);
                for step in child.steps.iter().flatten() {
                    push(pointer, step);
                }
                let within = self.add(child.schema, pointer, &base, depth + 1)?;
                pointer.truncate(length);
                match child.target {
                    Target::Here => self.nodes[node].applied.push(within),
                    Target::Part(part) => self.nodes[node].parts.push((part, within)),
                    Target::Nothing => {}
                }
            }
        }
        Ok(node)
    }

    /// Notes the names that a subschema gives itself. Its base is the nearest `$id`.
    fn name(
        &mut self,
        node: usize,
        members: &'s Map<String, Value>,
        pointer: &str,
        base: &Arc<Uri<String>>,
    ) -> Result<Arc<Uri<String>>, SchemaError> {
        let id = members
            .get(self.dialect.id_keyword())
            .and_then(Value::as_str)
            // Up to draft 7, keywords beside a `$ref` have no effect.
            .filter(|_| self.dialect >= Draft::Draft201909 || !members.contains_key("$ref"));
        let mut base = Arc::clone(base);
        let mut own_anchor = None;
        if let Some(id) = id {
            let (address, fragment) = id.split_once('#').unwrap_or((id, ""));
            if !address.is_empty() {
                let absolute = uri::resolve_against(&base.borrow(), address)
                    .map_err(|e| SchemaError::at(pointer, SchemaProblem::Invalid(e.to_string())))?;
                base = Arc::new(absolute);
            }
            // Up to draft 7, this is how an anchor is written.
            own_anchor = (!fragment.is_empty()).then_some(fragment);
        }
        if id.is_some() || node == 0 {
            self.resources
                .entry(base.as_str().to_owned())
                .or_insert(node);
        }
        let dynamic = members.get("$dynamicAnchor").and_then(Value::as_str);
        let anchors = [
            members.get("$anchor").and_then(Value::as_str),
            dynamic,
            own_anchor,
        ];
        for anchor in anchors.into_iter().flatten() {
            self.anchors
                .insert((base.as_str().to_owned(), anchor.to_owned()), node);
        }
        if let Some(anchor) = dynamic {
            self.dynamic.entry(anchor).or_default().push(node);
        }
        if members.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
            self.dynamic.entry("").or_default().push(node);
        }
        Ok(base)
    }

    /// The validator itself decides whether a pattern is usable.
    fn check_patterns(
        &self,
        keyword: &str,
        value: &Value,
        pointer: &str,
    ) -> Result<(), SchemaError> {
        let check = |pattern: &str, at: &[&str]| {
            let schema = Value::from_iter([("pattern", pattern)]);
            options(self.dialect).build(&schema).map(drop).map_err(|_| {
                let mut pointer = pointer.to_owned();
                for step in at {
                    push(&mut pointer, step);
                }
                SchemaError::at(&pointer, SchemaProblem::Pattern(pattern.to_owned()))
            })
        };
        match (keyword, value) {
            ("pattern", Value::String(pattern)) => check(pattern, &["pattern"]),
            ("patternProperties", Value::Object(patterns)) => patterns
                .keys()
                .try_for_each(|pattern| check(pattern, &["patternProperties", pattern])),
            _ => Ok(()),
        }
    }

    /// Follows the references of a subschema.
    fn resolve(&mut self, node: usize) -> Result<(), SchemaError> {
        let Value::Object(members) = self.nodes[node].schema else {
            return Ok(());
        };
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(reference) = members.get(keyword).and_then(Value::as_str) else {
                continue;
            };
            let mut pointer = self.nodes[node].pointer.clone();
            push(&mut pointer, keyword);
            let target = self.target(reference, &self.nodes[node].base.clone(), &pointer)?;
            self.nodes[node].applied.push(target);
            if keyword != "$ref" {
                // The target of a dynamic reference depends on the path to it, so all candidates count.
                let anchor = reference.split_once('#').map_or("", |(_, anchor)| anchor);
                for target in self.dynamic.get(anchor).cloned().unwrap_or_default() {
                    if !self.nodes[node].applied.contains(&target) {
                        self.nodes[node].applied.push(target);
                    }
                }
            }
        }
        Ok(())
    }

    fn target(
        &mut self,
        reference: &str,
        base: &Uri<String>,
        pointer: &str,
    ) -> Result<usize, SchemaError> {
        let absolute = uri::resolve_against(&base.borrow(), reference)
            .map_err(|_| unresolved(pointer, reference))?;
        let (address, fragment) = absolute
            .as_str()
            .split_once('#')
            .unwrap_or((absolute.as_str(), ""));
        let Some(&resource) = self.resources.get(address) else {
            return Err(SchemaError::at(
                pointer,
                SchemaProblem::Remote(reference.to_owned()),
            ));
        };
        if fragment.is_empty() {
            return Ok(resource);
        }
        if !fragment.starts_with('/') {
            return self
                .anchors
                .get(&(address.to_owned(), fragment.to_owned()))
                .copied()
                .ok_or_else(|| unresolved(pointer, reference));
        }
        let path = percent_decoded(fragment).ok_or_else(|| unresolved(pointer, reference))?;
        let target = self.nodes[resource]
            .schema
            .pointer(&path)
            .ok_or_else(|| unresolved(pointer, reference))?;
        let base = Arc::clone(&self.nodes[resource].base);
        let mut at = self.nodes[resource].pointer.clone() + &*path;
        self.add(target, &mut at, &base, 0)
    }

    fn weigh(&mut self, node: usize, chain: usize) -> Result<usize, SchemaError> {
        match self.nodes[node].weight {
            Weight::Known(weight) => return Ok(weight),
            Weight::BeingWeighed => {
                return Err(SchemaError::at(
                    &self.nodes[node].pointer,
                    SchemaProblem::Endless,
                ));
            }
            Weight::Unknown => {}
        }
        if chain > CHAIN {
            let what = "references and combinations within one another";
            return Err(too_large(&self.nodes[node].pointer, CHAIN, what));
        }
        self.nodes[node].weight = Weight::BeingWeighed;
        let mut weight = 1_usize;
        for i in 0..self.nodes[node].applied.len() {
            let applied = self.nodes[node].applied[i];
            weight = weight.saturating_add(self.weigh(applied, chain + 1)?);
        }
        if weight > APPLIED {
            let what = "subschemas that apply to one value";
            return Err(too_large(&self.nodes[node].pointer, APPLIED, what));
        }
        self.nodes[node].weight = Weight::Known(weight);
        Ok(weight)
    }
}

/// A subschema within another: in a keyword, by up to one further step.
struct Child<'s> {
    steps: Option<Vec<String>>,
    schema: &'s Value,
    target: Target<'s>,
}

/// What a subschema applies to.
#[derive(Clone, Copy)]
enum Target<'s> {
    /// The same value as the subschema around it.
    Here,
    Part(Part<'s>),
    /// Definitions apply where a reference leads to them.
    Nothing,
}

/// The subschemas in a keyword. Keywords of all dialects are read in each: where one is unknown, its value is
/// hardly a schema, and if it is one, it does no harm.
fn children<'s>(keyword: &str, value: &'s Value) -> Vec<Child<'s>> {
    match (keyword, value) {
        (
            "additionalProperties"
            | "additionalItems"
            | "items"
            | "contains"
            | "not"
            | "if"
            | "then"
            | "else"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "contentSchema",
            Value::Object(_) | Value::Bool(_),
        ) => vec![Child {
            steps: None,
            schema: value,
            target: target_of(keyword),
        }],
        ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => schemas
            .iter()
            .enumerate()
            .map(|(i, schema)| Child {
                steps: Some(vec![i.to_string()]),
                schema,
                target: match keyword {
                    "prefixItems" | "items" => Target::Part(Part::Item(i)),
                    _ => Target::Here,
                },
            })
            .collect(),
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies",
            Value::Object(schemas),
        ) => schemas
            .iter()
            // In `dependencies`, a value may be a list of names instead of a schema.
            .filter(|(_, schema)| !schema.is_array())
            .map(|(name, schema)| Child {
                steps: Some(vec![name.clone()]),
                schema,
                target: match keyword {
                    "properties" => Target::Part(Part::Member(name)),
                    "patternProperties" => Target::Part(Part::Members(Some(name))),
                    keyword => target_of(keyword),
                },
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn target_of(keyword: &str) -> Target<'static> {
    match keyword {
        "additionalProperties" => Target::Part(Part::OtherMembers),
        "propertyNames" | "unevaluatedProperties" => Target::Part(Part::Members(None)),
        "items" | "additionalItems" => Target::Part(Part::OtherItems),
        "contains" | "unevaluatedItems" => Target::Part(Part::Items),
        "contentSchema" | "$defs" | "definitions" => Target::Nothing,
        _ => Target::Here,
    }
}

fn json_depth(value: &Value, limit: usize) -> Option<()> {
    let limit = limit.checked_sub(1)?;
    parts(value).try_for_each(|part| json_depth(part, limit))
}

fn too_large(pointer: &str, limit: usize, what: &'static str) -> SchemaError {
    SchemaError::at(pointer, SchemaProblem::TooLarge { limit, what })
}

fn unresolved(pointer: &str, reference: &str) -> SchemaError {
    SchemaError::at(pointer, SchemaProblem::Unresolved(reference.to_owned()))
}
