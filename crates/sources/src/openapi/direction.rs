//! Properties that values of one direction do not have: read-only ones are not sent, write-only ones are not returned.
//!
//! A property can be marked in one part of an `allOf` and required in another. It is then required in the other
//! direction only (OpenAPI 3.0.3, Schema Object).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::document::{Document, Version};

/// Direction of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Input,
    Output,
}

/// Names of properties that values do not have.
pub(super) type Absent = BTreeSet<String>;

/// Maximum nesting depth of the parts of a schema that are searched.
const DEPTH_MAX: usize = 16;
/// Maximum number of schemas and properties that are searched for one schema.
const STEPS_MAX: usize = 2_000;

impl Direction {
    fn mark(self) -> &'static str {
        match self {
            Self::Input => "readOnly",
            Self::Output => "writeOnly",
        }
    }

    /// Returns true if a property belongs to the other direction only.
    fn excludes(self, document: &Document, property: &Value) -> bool {
        let is_marked = |schema: &Value| schema.get(self.mark()) == Some(&Value::Bool(true));
        // In 3.0, keywords beside a reference have no effect.
        let has_siblings = document.version == Version::V3_1 || property.get("$ref").is_none();
        has_siblings && is_marked(property) || document.resolve(property).is_ok_and(is_marked)
    }

    /// Returns those of these properties that belong to the other direction only.
    pub(super) fn absent(self, document: &Document, properties: Option<&Value>) -> Absent {
        let properties = properties.and_then(Value::as_object);
        let absent = properties
            .into_iter()
            .flatten()
            .filter(|(_, property)| self.excludes(document, property));
        absent.map(|(name, _)| name.clone()).collect()
    }

    /// Adds the marked properties of a schema and of the parts of its `allOf`, which apply to the same value.
    pub(super) fn add_absent(self, document: &Document, schema: &Value, absent: &mut Absent) {
        Search {
            document,
            steps: STEPS_MAX,
            found: absent,
        }
        .walk(schema, 0, false, &|search, schema| {
            let properties = search.properties_of(schema);
            search.found.extend(self.absent(document, properties));
        });
    }
}

/// Returns which of these properties a schema requires in any part that applies to the same value, although it does not
/// mark them itself.
pub(super) fn required_of(
    document: &Document,
    schema: &Value,
    (direction, absent): (Direction, &Absent),
) -> Absent {
    let mut found = Absent::new();
    if absent.is_empty() {
        return found;
    }
    Search {
        document,
        steps: STEPS_MAX,
        found: &mut found,
    }
    .walk(schema, 0, true, &|search, schema| {
        let required = schema.get("required").and_then(Value::as_array);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        let names = names.filter(|name| absent.contains(*name));
        search.found.extend(names.map(str::to_owned));
    });
    if !found.is_empty() {
        let mut own = Absent::new();
        direction.add_absent(document, schema, &mut own);
        found.retain(|name| !own.contains(name));
    }
    found
}

/// Removes absent properties from the required ones.
pub(super) fn without_absent(copied: &mut Map<String, Value>, absent: &Absent) {
    if let Some(Value::Array(required)) = copied.get_mut("required") {
        required.retain(|name| name.as_str().is_none_or(|name| !absent.contains(name)));
    }
}

/// A search through the parts of a schema that apply to the same value.
struct Search<'s> {
    document: &'s Document,
    steps: usize,
    found: &'s mut Absent,
}

impl<'s> Search<'s> {
    /// Visits a schema and its parts. With `alternatives`, those of `anyOf` and `oneOf` are among them.
    fn walk(
        &mut self,
        schema: &'s Value,
        depth: usize,
        alternatives: bool,
        visit: &dyn Fn(&mut Self, &'s Value),
    ) {
        if DEPTH_MAX < depth || !self.takes(1) {
            return;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            if let Ok(target) = self.document.target(reference) {
                self.walk(target, depth + 1, alternatives, visit);
            }
            if self.document.version == Version::V3_0 {
                return;
            }
        }
        visit(self, schema);
        let keywords = match alternatives {
            true => &["allOf", "anyOf", "oneOf"][..],
            false => &["allOf"],
        };
        let parts = keywords.iter().filter_map(|keyword| schema.get(*keyword));
        for part in parts.filter_map(Value::as_array).flatten() {
            self.walk(part, depth + 1, alternatives, visit);
        }
    }

    fn properties_of(&mut self, schema: &'s Value) -> Option<&'s Value> {
        let properties = self.document.resolve(schema.get("properties")?).ok()?;
        let count = properties.as_object().map_or(0, Map::len);
        self.takes(count).then_some(properties)
    }

    /// Takes a number of steps, if they are left.
    fn takes(&mut self, steps: usize) -> bool {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(0);
        left.is_some()
    }
}
