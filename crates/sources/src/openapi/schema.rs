//! Conversion of a document's schemas to self-contained schemas.
//!
//! The targets of references are copied into `$defs` once each, so recursive schemas stay recursive. The dialect of
//! 3.0 is converted to 2020-12. Keywords that do not constrain or describe values are dropped.
//!
//! In documents of large services, a schema can refer to half of the document. A copy therefore has a size limit. The
//! nearest schemas are copied first, and the rest accept any value, since the API validates its own input.

use std::collections::{HashMap, VecDeque};

use serde_json::{Map, Value, json};

use super::composition::{Surroundings, allow_additional, is_closed, open};
use super::corrected::{ONE, corrected, fit_default};
use super::direction::{Direction, required_of, without_absent};
use super::discriminator::name_types;
use super::document::{Document, Version};
use crate::source::name::sanitized;

/// Copies schemas with the targets of their references.
#[derive(Debug)]
pub(super) struct SchemaInliner<'a> {
    document: &'a Document,
    direction: Direction,
    /// References found so far, with the names of their targets in the definitions. A target is copied for each of the
    /// surroundings in which it differs.
    names: HashMap<(String, Surroundings), String>,
    /// References whose targets are still to be copied, the nearest first.
    pending: VecDeque<(String, String, Surroundings)>,
    definitions: Map<String, Value>,
    /// True for references whose targets reject unknown properties.
    closed: HashMap<String, bool>,
    /// Counters to make definition names unique.
    numbers: HashMap<String, usize>,
    /// Number of schemas copied so far, and their approximate size in bytes.
    schemas: usize,
    bytes: usize,
    bytes_max: usize,
    /// True if something was left out because of the size limit.
    cut: bool,
}

/// Maximum number of schemas in one tool, besides the size limit. The catalog would reject more.
const SCHEMAS_MAX: usize = 5_000;
const DEPTH_MAX: usize = 40;
/// Maximum number of characters of a title or a description.
pub(super) const TEXT_CHARACTERS: usize = 4000;
/// Maximum number of characters of the description of a schema that is cut off.
const CUT_CHARACTERS: usize = 200;

/// Keywords that hold lists of schemas, and schemas by name.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const NAMED: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
/// Keywords whose schemas apply to the same value as the schema that they are in.
const APPLIED_IN_PLACE: [&str; 5] = ["allOf", "anyOf", "oneOf", "then", "else"];
/// Keywords that are copied unchanged.
const KEPT: [&str; 26] = [
    "title",
    "description",
    "default",
    "enum",
    "const",
    "type",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "required",
    "minContains",
    "maxContains",
    "dependentRequired",
    "contentEncoding",
    "contentMediaType",
];

impl<'a> SchemaInliner<'a> {
    /// Creates a copier with an approximate size limit of `bytes_max` in total.
    pub(super) fn new(document: &'a Document, direction: Direction, bytes_max: usize) -> Self {
        Self {
            document,
            direction,
            names: HashMap::new(),
            pending: VecDeque::new(),
            definitions: Map::new(),
            closed: HashMap::new(),
            numbers: HashMap::new(),
            schemas: 0,
            bytes: 0,
            bytes_max,
            cut: false,
        }
    }

    /// Copies a schema. Once all are copied, [`definitions`](Self::definitions) returns the targets of their
    /// references.
    ///
    /// # Errors
    ///
    /// A reference cannot be resolved.
    pub(super) fn copy(&mut self, schema: &Value) -> Result<Value, String> {
        self.copy_at(schema, 0, &Surroundings::default())
    }

    /// Returns the definitions that the copied schemas refer to, and true if something was left out because of the
    /// size limit.
    ///
    /// # Errors
    ///
    /// The same as for [`copy`](Self::copy).
    pub(super) fn definitions(mut self) -> Result<(Map<String, Value>, bool), String> {
        while let Some((name, reference, around)) = self.pending.pop_front() {
            let target = self.document.target(&reference)?;
            let copied = self.copy_at(target, 0, &around)?;
            self.definitions.insert(name, copied);
        }
        Ok((self.definitions, self.cut))
    }

    /// Copies a schema in the surroundings of those that it is a part of.
    fn copy_at(
        &mut self,
        schema: &Value,
        depth: usize,
        around: &Surroundings,
    ) -> Result<Value, String> {
        self.schemas += 1;
        let Value::Object(members) = schema else {
            // In 3.1 a schema can be `true` or `false`.
            return Ok(schema.clone());
        };
        if SCHEMAS_MAX < self.schemas || DEPTH_MAX < depth || self.bytes_max < self.bytes {
            self.cut = true;
            return Ok(self.cut_off(schema));
        }
        let mut inner = around.of_parts(members);
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            if self.document.version == Version::V3_0 || members.len() == 1 {
                return self.reference(reference, around);
            }
            self.direction
                .add_absent(self.document, schema, &mut inner.absent);
            let target = self.reference(reference, &inner)?;
            let mut rest = members.clone();
            rest.remove("$ref");
            allow_additional(&mut rest);
            let mut copied = self.copy_at(&Value::Object(rest), depth + 1, &inner)?;
            if let (Some(copied), Some(reference)) = (copied.as_object_mut(), target.get("$ref")) {
                fit_default(copied, schema, self.document);
                copied.insert("$ref".to_owned(), reference.clone());
            }
            return Ok(copied);
        }
        let properties = members.get("properties");
        let properties = properties.and_then(|all| self.document.resolve(all).ok());
        let own_absent = self.direction.absent(self.document, properties);
        inner.absent.extend(own_absent.iter().cloned());
        if members.contains_key("allOf") {
            self.direction
                .add_absent(self.document, schema, &mut inner.absent);
        }
        let alternatives = around.of_alternatives(members, &inner.absent);
        let mut copied = Map::new();
        for keyword in KEPT {
            if let Some(value) = members.get(keyword)
                && let Some(value) = self.kept(keyword, value)
            {
                copied.insert(keyword.to_owned(), value);
            }
        }
        let nothing = Surroundings::default();
        for (keyword, value) in members {
            let keyword = keyword.as_str();
            let around = match keyword {
                "allOf" => &inner,
                keyword if APPLIED_IN_PLACE.contains(&keyword) => &alternatives,
                _ => &nothing,
            };
            if matches!(keyword, "not" | "if") && self.bytes_max < self.bytes {
                // A simplified subschema would match more values, so negating it would reject valid ones.
                self.cut = true;
            } else if ONE.contains(&keyword) {
                copied.insert(keyword.to_owned(), self.copy_at(value, depth + 1, around)?);
            } else if LISTS.contains(&keyword) {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                // A part of the list would have another meaning.
                if SCHEMAS_MAX < self.schemas + items.len() {
                    self.cut = true;
                    continue;
                }
                let items = items
                    .iter()
                    .map(|item| self.copy_at(item, depth + 1, around));
                let items: Vec<Value> = items.collect::<Result<_, _>>()?;
                // An empty list is invalid, and constrains nothing.
                if !items.is_empty() {
                    copied.insert(keyword.to_owned(), items.into());
                }
            } else if NAMED.contains(&keyword) {
                copied.insert(keyword.to_owned(), self.copy_named(value, depth)?.into());
            }
        }
        let count = |of: Option<&Value>| of.and_then(Value::as_object).map_or(0, Map::len);
        if count(copied.get("properties")) < count(properties) {
            // Some properties were not copied.
            copied.remove("additionalProperties");
            copied.remove("unevaluatedProperties");
        }
        if let Some(Value::Object(properties)) = copied.get_mut("properties") {
            properties.retain(|name, _| !own_absent.contains(name));
        }
        without_absent(&mut copied, &inner.absent);
        open(members, &mut copied, around);
        self.bytes += name_types(members, &mut copied);
        let copied = corrected(copied, schema, self.document);
        Ok(Value::Object(copied))
    }

    /// Returns the value of a keyword that is copied unchanged, if it fits.
    fn kept(&mut self, keyword: &str, value: &Value) -> Option<Value> {
        let left = self.bytes_max.saturating_sub(self.bytes);
        match value {
            // Descriptive text can be shortened without a change of meaning.
            Value::String(text)
                if TEXT_CHARACTERS.min(left) < text.len()
                    && matches!(keyword, "title" | "description") =>
            {
                let short: String = text.chars().take(TEXT_CHARACTERS.min(left)).collect();
                self.cut |= short.len() < text.len();
                self.bytes += keyword.len() + short.len();
                Some(short.into())
            }
            value => {
                let bytes = keyword.len() + bytes_of(value, left);
                if left < bytes {
                    self.cut = true;
                    return None;
                }
                self.bytes += bytes;
                Some(value.clone())
            }
        }
    }

    /// Returns the replacement for a schema that does not fit.
    fn cut_off(&self, schema: &Value) -> Value {
        let target = self.document.resolve(schema).unwrap_or(schema);
        let mut left = Map::new();
        if let Some(kind @ ("object" | "array" | "string" | "number" | "integer" | "boolean")) =
            target.get("type").and_then(Value::as_str)
            && target.get("nullable") != Some(&Value::Bool(true))
        {
            left.insert("type".to_owned(), kind.into());
        }
        let description = target.get("description").and_then(Value::as_str);
        if let Some(description) = description {
            let short: String = description.chars().take(CUT_CHARACTERS).collect();
            left.insert("description".to_owned(), short.into());
        }
        Value::Object(left)
    }

    fn copy_named(&mut self, value: &Value, depth: usize) -> Result<Map<String, Value>, String> {
        let mut copied = Map::new();
        // Documents in many files have references here too, although OpenAPI does not allow them.
        let value = self.document.resolve(value)?;
        for (name, schema) in value.as_object().into_iter().flatten() {
            if self.bytes_max < self.bytes {
                self.cut = true;
                break;
            }
            self.bytes += name.len() + 8;
            copied.insert(
                name.clone(),
                self.copy_at(schema, depth + 1, &Surroundings::default())?,
            );
        }
        Ok(copied)
    }

    /// Returns true if the target of a reference rejects unknown properties.
    fn is_closed(&mut self, reference: &str, target: &Value) -> bool {
        if let Some(is_closed) = self.closed.get(reference) {
            return *is_closed;
        }
        let is_closed = is_closed(self.document, target);
        self.closed.insert(reference.to_owned(), is_closed);
        is_closed
    }

    /// Returns a reference to the future position of its target in the definitions.
    fn reference(&mut self, reference: &str, around: &Surroundings) -> Result<Value, String> {
        let target = match self.document.target(reference) {
            Err(problem) if reference.starts_with('#') => {
                tracing::debug!(problem, "a schema accepts any value instead");
                self.cut = true;
                return Ok(json!({}));
            }
            target => target?,
        };
        let around = Surroundings {
            absent: required_of(self.document, target, (self.direction, &around.absent)),
            has_others: around.has_others && self.is_closed(reference, target),
        };
        let key = (reference.to_owned(), around);
        if let Some(name) = self.names.get(&key) {
            return Ok(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        self.bytes += reference.len();
        let last = reference.rsplit('/').next().unwrap_or_default();
        let base = match sanitized(last) {
            name if name.is_empty() => "schema".to_owned(),
            name => name,
        };
        let mut name = base.clone();
        while self.definitions.contains_key(&name) {
            let number = self.numbers.entry(base.clone()).or_insert(2_usize);
            name = format!("{base}_{number}");
            *number += 1;
        }
        self.names.insert(key.clone(), name.clone());
        let (reference, around) = key;
        self.pending.push_back((name.clone(), reference, around));
        self.definitions.insert(name.clone(), Value::Bool(true));
        Ok(json!({ "$ref": format!("#/$defs/{name}") }))
    }
}

/// Estimates the length of a value as text. Counting stops once it exceeds `max`.
pub(super) fn bytes_of(value: &Value, max: usize) -> usize {
    let mut bytes: usize = 4;
    match value {
        Value::String(text) => bytes += text.len(),
        Value::Array(items) => {
            for item in items {
                if max < bytes {
                    break;
                }
                bytes += bytes_of(item, max - bytes);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                if max < bytes {
                    break;
                }
                bytes += name.len() + 4 + bytes_of(value, max - bytes);
            }
        }
        _ => bytes += 4,
    }
    bytes
}

/// Removes patterns for another regular expression engine, which make an otherwise valid schema unusable.
pub(super) fn without_patterns(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (keyword, member) in members.iter_mut() {
                match keyword.as_str() {
                    "properties" | "$defs" => {
                        for schema in member
                            .as_object_mut()
                            .into_iter()
                            .flat_map(|m| m.values_mut())
                        {
                            without_patterns(schema);
                        }
                    }
                    "default" | "enum" | "const" => {}
                    _ => without_patterns(member),
                }
            }
            members.remove("pattern");
            members.remove("patternProperties");
        }
        Value::Array(items) => items.iter_mut().for_each(without_patterns),
        _ => {}
    }
}
