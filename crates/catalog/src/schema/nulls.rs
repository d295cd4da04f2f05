//! Nulls where a schema does not allow them: numbers that JSON does not have (NaN and the infinities are serialized as null), and
//! arguments that a client sends although the model left them out.

use std::cell::Cell;
use std::fmt::Write as _;
use std::iter;

use serde_json::Value;

use super::{is_data, parts};

/// Maximum number of references from one schema to the next for the same value.
const REFERENCES_MAX: usize = 32;

/// Maximum number of combinations, one within the other, that are searched for null.
const COMBINATIONS_MAX: usize = 2;

/// Maximum number of schemas that are searched for null.
const STEPS_MAX: u32 = 100_000;

/// Maximum number of parts of an `allOf` whose properties are considered.
const PARTS_MAX: usize = 8;

/// Returns true if a part of a schema has the type `number`, and null is not valid there.
#[doc(hidden)]
pub fn requires_number(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(keyword, member)| {
            match (&**keyword, member) {
                // Names of members are no keywords.
                ("properties" | "$defs", Value::Object(schemas)) => {
                    schemas.values().any(requires_number)
                }
                ("type", name) => name == "number",
                (keyword, member) => !is_data(keyword) && requires_number(member),
            }
        }),
        Value::Array(schemas) => schemas.iter().any(requires_number),
        _ => false,
    }
}

/// Returns the path of the first null in a value where the schema of its type requires a number; empty for the value itself.
///
/// The schema [says no more than the type](super::says_no_more_than_type), so that few keywords are possible.
#[doc(hidden)]
pub fn null_for_number(schema: &Value, value: &Value) -> Option<String> {
    let search = Search::new(schema);
    let mut path = String::new();
    search.finds(schema, value, &mut path).then_some(path)
}

/// Removes members that are null, not required, and of a schema that does not allow null. Returns true if there were any.
///
/// Some clients send null for each optional argument that the model leaves out.
#[doc(hidden)]
pub fn omit_nulls(schema: &Value, value: &mut Value) -> bool {
    has_null(value) && Search::new(schema).omits(schema, value)
}

fn has_null(value: &Value) -> bool {
    value.is_null() || parts(value).any(has_null)
}

struct Search<'s> {
    root: &'s Value,
    /// Number of schemas that may still be searched for null.
    steps: Cell<u32>,
}

impl<'s> Search<'s> {
    fn new(root: &'s Value) -> Self {
        let steps = Cell::new(STEPS_MAX);
        Self { root, steps }
    }

    /// Returns true if it finds a null. The path then leads to it.
    fn finds(&self, schema: &'s Value, value: &Value, path: &mut String) -> bool {
        let schema = self.target(schema);
        let length = path.len();
        match value {
            Value::Null => return schema["type"] == "number",
            Value::Array(items) => {
                let schema = self.some(schema);
                for (index, item) in items.iter().enumerate() {
                    let part = schema["prefixItems"].get(index);
                    let part = part.or_else(|| schema.get("items"));
                    let _ = write!(path, "[{index}]");
                    if part.is_some_and(|part| self.finds(part, item, path)) {
                        return true;
                    }
                    path.truncate(length);
                }
            }
            Value::Object(members) => {
                let schema = self.some(schema);
                for (name, member) in members {
                    let part = schema["properties"].get(name);
                    let part = part.or_else(|| schema.get("additionalProperties"));
                    let dot = if length == 0 { "" } else { "." };
                    let _ = write!(path, "{dot}{name}");
                    if part.is_some_and(|part| self.finds(part, member, path)) {
                        return true;
                    }
                    path.truncate(length);
                }
            }
            _ => {}
        }
        false
    }

    /// Returns true if it removes a member.
    fn omits(&self, schema: &'s Value, value: &mut Value) -> bool {
        let mut schema = self.target(schema);
        if schema.get("properties").is_none() {
            schema = self.some(schema);
        }
        match value {
            Value::Array(items) => {
                let items = items.iter_mut();
                items.fold(false, |any, item| self.omits(&schema["items"], item) | any)
            }
            Value::Object(members) => {
                let parts = self.parts(schema);
                let property =
                    |name: &str| parts.iter().find_map(|part| part["properties"].get(name));
                let is_required = |name: &str| {
                    let names = parts.iter().filter_map(|part| part["required"].as_array());
                    names.flatten().any(|other| other == name)
                };
                let before = members.len();
                members.retain(|name, member| {
                    !member.is_null()
                        || property(name).is_none_or(|schema| self.allows_null(schema, 0))
                        || is_required(name)
                });
                let is_shorter = members.len() < before;
                members.iter_mut().fold(is_shorter, |any, (name, member)| {
                    property(name).is_some_and(|schema| self.omits(schema, member)) | any
                })
            }
            _ => false,
        }
    }

    /// Returns the schemas that have the properties of an object: the schema itself, and the parts of its `allOf`.
    fn parts(&self, schema: &'s Value) -> Vec<&'s Value> {
        let parts = schema["allOf"].as_array().into_iter().flatten();
        let parts = parts.take(PARTS_MAX).map(|part| self.target(part));
        iter::once(schema).chain(parts).collect()
    }

    /// Returns true unless null is certainly not valid.
    fn allows_null(&self, schema: &'s Value, depth: usize) -> bool {
        let Some(left) = self.steps.get().checked_sub(1) else {
            return true;
        };
        self.steps.set(left);
        let schema = self.target(schema);
        let of_type = match &schema["type"] {
            Value::String(name) => name == "null",
            Value::Array(names) => names.iter().any(|name| name == "null"),
            _ => true,
        };
        let values = schema["enum"].as_array();
        let combined = |keyword: &str| {
            let schemas = schema[keyword].as_array();
            schemas.filter(|_| depth <= COMBINATIONS_MAX)
        };
        let allows = |one: &'s Value| self.allows_null(one, depth + 1);
        let some_allows =
            |keyword: &str| combined(keyword).is_none_or(|all| all.iter().any(allows));
        of_type
            && schema.get("const").is_none_or(Value::is_null)
            && values.is_none_or(|values| values.contains(&Value::Null))
            && combined("allOf").is_none_or(|all| all.iter().all(allows))
            && some_allows("anyOf")
            && some_allows("oneOf")
    }

    /// Follows references.
    fn target(&self, mut schema: &'s Value) -> &'s Value {
        for _ in 0..REFERENCES_MAX {
            let reference = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#'));
            match reference.and_then(|pointer| self.root.pointer(pointer)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    /// Returns the schema of `T` in that of an `Option<T>`.
    fn some(&self, schema: &'s Value) -> &'s Value {
        match schema["anyOf"].get(0) {
            Some(some) => self.target(some),
            None => schema,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::catalog::schema::{of_output, says_no_more_than_type};

    #[derive(Clone, Copy, Serialize, JsonSchema)]
    struct Point {
        x: f64,
        y: Option<f32>,
    }

    #[derive(Serialize, JsonSchema)]
    struct Report {
        name: Option<String>,
        mean: f64,
        pair: (u8, f32),
        points: Vec<Option<Point>>,
        by_name: BTreeMap<String, Point>,
        best: Option<Box<Report>>,
    }

    fn path_of<T: Serialize + JsonSchema>(value: &T) -> Option<String> {
        let schema = of_output::<T>();
        assert!(says_no_more_than_type(&schema), "{schema}");
        assert!(requires_number(&schema), "{schema}");
        null_for_number(&schema, &serde_json::to_value(value).expect("JSON"))
    }

    #[test]
    fn a_null_is_found_where_the_type_has_a_number() {
        let point = |x| Point {
            x,
            y: Some(f32::NAN),
        };
        let report = |mean| Report {
            name: None,
            mean,
            pair: (1, 1.0),
            points: vec![None, Some(point(1.0))],
            by_name: BTreeMap::from([("a".to_owned(), point(0.5))]),
            best: None,
        };
        assert_eq!(path_of(&report(1.0)), None);
        assert_eq!(path_of(&report(f64::NAN)).as_deref(), Some("mean"));
        let mut inner = report(1.0);
        inner.pair.1 = f32::INFINITY;
        let mut outer = report(1.0);
        outer.best = Some(Box::new(inner));
        assert_eq!(path_of(&outer).as_deref(), Some("best.pair[1]"));
        let mut listed = report(1.0);
        listed.points.push(Some(point(f64::NEG_INFINITY)));
        assert_eq!(path_of(&listed).as_deref(), Some("points[2].x"));
        let mut named = report(1.0);
        named.by_name.insert("b".to_owned(), point(f64::NAN));
        assert_eq!(path_of(&named).as_deref(), Some("by_name.b.x"));
        assert_eq!(path_of(&f64::NAN).as_deref(), Some(""));
        assert_eq!(path_of(&vec![1.0, f64::NAN]).as_deref(), Some("[1]"));
    }

    #[test]
    fn nulls_of_optional_members_are_omitted_where_they_are_not_allowed() {
        let schema = json!({
            "type": "object",
            "$defs": {"unit": {"enum": ["c", "f"]}, "loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"$ref": "#/$defs/loop"}]}},
            "properties": {
                "name": {"type": "string"},
                "count": {"type": "integer"},
                "unit": {"$ref": "#/$defs/unit"},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "listed": {"type": ["string", "null"]},
                "any": {},
                "loop": {"$ref": "#/$defs/loop"},
                "filter": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["b"]},
                "rows": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
                "default_unit": {"allOf": [{"$ref": "#/$defs/unit"}], "description": "Unit."},
                "kind": {"const": "a"},
                "whole": {"allOf": [
                    {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
                    {"properties": {"c": {"type": "integer"}}, "required": ["b"]},
                ]},
            },
            "required": ["name"],
        });
        let omitted = |mut value: Value| (omit_nulls(&schema, &mut value), value);
        for (sent, left) in [
            (json!({"name": "a", "count": null}), json!({"name": "a"})),
            (json!({"unit": null, "either": null}), json!({})),
            (
                json!({"filter": {"a": null, "b": null}}),
                json!({"filter": {"b": null}}),
            ),
            (
                json!({"rows": [{"x": null}, {"x": 1}]}),
                json!({"rows": [{}, {"x": 1}]}),
            ),
            (json!({"count": null, "any": null}), json!({"any": null})),
            (json!({"default_unit": null, "kind": null}), json!({})),
            (
                json!({"whole": {"a": null, "b": null, "c": null}}),
                json!({"whole": {"b": null}}),
            ),
        ] {
            assert_eq!(omitted(sent), (true, left));
        }
        for kept in [
            json!({"name": null}),
            json!({"or_null": null, "listed": null, "any": null, "loop": null, "unknown": null}),
            json!({"rows": [null], "filter": 1}),
        ] {
            assert_eq!(omitted(kept.clone()), (false, kept));
        }
    }

    #[test]
    fn nulls_are_kept_where_the_search_ends() {
        let any_of = |schema: Value| json!({"anyOf": vec![schema; 100]});
        let wide = any_of(any_of(json!({"type": "string"})));
        let names = (0..20).map(|number| format!("p{number}"));
        let properties = names.clone().map(|name| (name, wide.clone()));
        let properties: serde_json::Map<String, Value> = properties.collect();
        let schema = json!({"type": "object", "properties": properties});
        let mut value: Value = names.map(|name| (name, Value::Null)).collect();
        assert!(omit_nulls(&schema, &mut value));
        let left = value.as_object().map(serde_json::Map::len);
        assert!(left.is_some_and(|left| (1..20).contains(&left)), "{left:?}");
    }

    #[test]
    fn members_may_be_named_as_keywords() {
        #[derive(Serialize, JsonSchema)]
        struct Reading {
            r#type: f64,
        }
        let found = path_of(&Reading { r#type: f64::NAN });
        assert_eq!(found.as_deref(), Some("type"));
    }

    #[test]
    fn optional_numbers_and_integers_require_no_number() {
        for schema in [
            of_output::<Option<f64>>(),
            of_output::<Vec<Option<f32>>>(),
            of_output::<u64>(),
            of_output::<Option<String>>(),
        ] {
            assert!(!requires_number(&schema), "{schema}");
        }
    }
}
