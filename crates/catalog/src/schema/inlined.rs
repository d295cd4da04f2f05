//! Schemas without references.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::is_data;

/// Maximum growth of a schema, in bytes.
const GROWTH_MAX: usize = 512;
/// Maximum number of definitions within each other. Recursive schemas exceed it.
const DEPTH_MAX: usize = 16;

/// Returns an equivalent schema with its definitions in the places of their references, for clients and model APIs that
/// do not resolve references. `None` if the schema has none, is recursive, or would become much larger.
pub(super) fn inlined(schema: &Value) -> Option<Value> {
    expanded(schema, false)
}

/// Returns a schema without references that accepts all that this one accepts. A definition within itself, and one for
/// which there is no space, accept any value. `None` if there are no definitions, or if a schema that accepts more would
/// reject others.
pub(super) fn simplified(schema: &Value) -> Option<Value> {
    let text = schema.to_string();
    let is_named = |keyword: &&str| text.contains(*keyword);
    let reversing = ["\"not\"", "\"if\"", "\"maxContains\"", "\"unevaluated"];
    (!reversing.iter().any(is_named)).then(|| expanded(schema, true))?
}

fn expanded(schema: &Value, simplifies: bool) -> Option<Value> {
    let mut root = schema.as_object()?.clone();
    let Some(Value::Object(definitions)) = root.shift_remove("$defs") else {
        return None;
    };
    // In older dialects, other keywords beside a reference are ignored.
    let is_current = |dialect: &Value| dialect.as_str().is_some_and(|uri| uri.contains("2020-12"));
    if !root.get("$schema").is_none_or(is_current) {
        return None;
    }
    let text = schema.to_string();
    let is_named = |keyword: &&str| text.contains(*keyword);
    if ["\"$id\"", "\"$anchor\"", "\"$dynamic"]
        .iter()
        .any(is_named)
    {
        return None;
    }
    let bytes = definitions.iter();
    let bytes = bytes.map(|(name, definition)| (name.clone(), definition.to_string().len()));
    let mut inliner = Inliner {
        bytes: bytes.collect(),
        definitions,
        left: text.len() + GROWTH_MAX,
        simplifies,
        open: Vec::new(),
    };
    let mut root = Value::Object(root);
    inliner.expand(&mut root)?;
    // The names of some properties are those of keywords whose values are not schemas.
    (!root.to_string().contains("\"$ref\"")).then_some(root)
}

struct Inliner {
    definitions: Map<String, Value>,
    /// Lengths of the definitions, in bytes.
    bytes: HashMap<String, usize>,
    /// Bytes of definitions that may still be inserted.
    left: usize,
    /// Replaces definitions that cannot be inserted by schemas that accept any value.
    simplifies: bool,
    /// Names of the definitions that the current schema is within.
    open: Vec<String>,
}

impl Inliner {
    fn expand(&mut self, value: &mut Value) -> Option<()> {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let name = reference.strip_prefix("#/$defs/")?.to_owned();
                    let is_within_itself = self.open.contains(&name);
                    if is_within_itself && !self.simplifies || DEPTH_MAX <= self.open.len() {
                        return None;
                    }
                    if !self.insert(&name, members, is_within_itself)? {
                        return Some(());
                    }
                    self.open.push(name);
                    self.expand(value)?;
                    self.open.pop();
                    return Some(());
                }
                // Alternatives that accept more can both accept a value.
                if self.simplifies
                    && members.get("oneOf").is_some_and(Value::is_array)
                    && let Some(alternatives) = members.shift_remove("oneOf")
                    && members.insert("anyOf".to_owned(), alternatives).is_some()
                {
                    return None;
                }
                let mut schemas = members.iter_mut().filter(|(keyword, _)| !is_data(keyword));
                schemas.try_for_each(|(_, schema)| self.expand(schema))
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.expand(item)),
            _ => Some(()),
        }
    }

    /// Puts a definition in the place of a reference. Only annotations may stand beside it, and override its own. Returns
    /// false if the reference was removed instead.
    fn insert(
        &mut self,
        name: &str,
        members: &mut Map<String, Value>,
        is_within_itself: bool,
    ) -> Option<bool> {
        let definition = self.definitions.get(name)?;
        members.shift_remove("$ref");
        if !members.keys().all(|keyword| is_annotation(keyword)) {
            return None;
        }
        let left = self.left.checked_sub(*self.bytes.get(name)?);
        if self.simplifies && (is_within_itself || left.is_none()) {
            return Some(false);
        }
        self.left = left?;
        for (keyword, value) in definition.as_object()? {
            members
                .entry(keyword.as_str())
                .or_insert_with(|| value.clone());
        }
        Some(true)
    }
}

pub(super) fn is_annotation(keyword: &str) -> bool {
    matches!(
        keyword,
        "title"
            | "description"
            | "default"
            | "examples"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
            | "$comment"
    ) || keyword.starts_with("x-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_stand_where_they_are_referred_to() {
        let schema = json!({
            "type": "object",
            "properties": {
                "unit": {"$ref": "#/$defs/Unit", "default": "c"},
                "place": {"$ref": "#/$defs/Place", "description": "Where."},
                "units": {"type": "array", "items": {"$ref": "#/$defs/Unit"}},
                "either": {"anyOf": [{"$ref": "#/$defs/Alias"}, {"type": "null"}]},
            },
            "required": ["unit"],
            "$defs": {
                "Unit": {"type": "string", "enum": ["c", "f"]},
                "Alias": {"$ref": "#/$defs/Unit"},
                "Place": {
                    "description": "A place.", "type": "object",
                    "properties": {"unit": {"$ref": "#/$defs/Unit"}},
                },
            },
        });
        let unit = json!({"type": "string", "enum": ["c", "f"]});
        assert_eq!(
            inlined(&schema),
            Some(json!({
                "type": "object",
                "properties": {
                    "unit": {"default": "c", "type": "string", "enum": ["c", "f"]},
                    "place": {"description": "Where.", "type": "object", "properties": {"unit": unit}},
                    "units": {"type": "array", "items": unit},
                    "either": {"anyOf": [unit, {"type": "null"}]},
                },
                "required": ["unit"],
            }))
        );
    }

    #[test]
    fn others_keep_their_references() {
        let with = |property: Value, definition: Value| {
            json!({
                "type": "object",
                "properties": {"a": property},
                "$defs": {"A": definition},
            })
        };
        let reference = || json!({"$ref": "#/$defs/A"});
        let list = json!({"type": "array", "items": {"$ref": "#/$defs/A"}});
        let large = json!({"type": "string", "description": "x".repeat(600)});
        let thrice = json!({"allOf": [reference(), reference(), reference()]});
        let mut draft_7 = with(reference(), json!({"type": "string"}));
        draft_7["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        for kept in [
            with(reference(), list),
            with(thrice, large),
            with(
                json!({"$ref": "#/$defs/A", "type": "string"}),
                json!({"minLength": 1}),
            ),
            with(json!({"$ref": "#/$defs/A/items"}), json!({"items": {}})),
            with(json!({"$ref": "#/$defs/B"}), json!({})),
            with(json!({"$ref": "#"}), json!({})),
            with(reference(), json!({"$anchor": "a"})),
            with(reference(), json!(true)),
            with(
                json!({"properties": {"default": {"$ref": "#/$defs/A"}}}),
                json!({}),
            ),
            draft_7,
            json!({"type": "object"}),
        ] {
            assert_eq!(inlined(&kept), None, "{kept}");
        }
        let value = with(json!({"const": {"$ref": "a"}}), json!({}));
        assert_eq!(inlined(&value), None);
    }

    #[test]
    fn recursive_definitions_are_simplified_where_that_rejects_nothing() {
        let with = |node: Value| {
            json!({
                "type": "object",
                "properties": {"tree": {"$ref": "#/$defs/Node"}, "unit": {"$ref": "#/$defs/Unit"}},
                "$defs": {"Node": node, "Unit": {"type": "string"}},
            })
        };
        let children =
            json!({"type": "array", "items": {"$ref": "#/$defs/Node", "title": "Child"}});
        let node = json!({"type": "object", "properties": {"children": children}});
        assert_eq!(
            simplified(&with(node)),
            Some(json!({
                "type": "object",
                "properties": {
                    "tree": {"type": "object", "properties": {"children": {"type": "array", "items": {"title": "Child"}}}},
                    "unit": {"type": "string"},
                },
            }))
        );
        let either =
            json!({"oneOf": [{"const": 1}, {"type": "array", "items": {"$ref": "#/$defs/Node"}}]});
        assert_eq!(
            simplified(&with(either)).expect("simplified")["properties"]["tree"],
            json!({"anyOf": [{"const": 1}, {"type": "array", "items": {}}]})
        );
        let reversed = json!({"not": {"$ref": "#/$defs/Node"}});
        assert_eq!(simplified(&with(reversed)), None);
        let both = json!({"oneOf": [{"$ref": "#/$defs/Node"}], "anyOf": [{"const": 1}]});
        assert_eq!(simplified(&with(both)), None);
        let large = json!({"description": "x".repeat(600)});
        let mut many = with(large);
        for at in 0..9 {
            many["properties"][format!("p{at}")] = json!({"$ref": "#/$defs/Node"});
        }
        let simplified = simplified(&many).expect("simplified");
        assert_eq!(simplified["properties"]["p8"], json!({}));
        assert_ne!(simplified["properties"]["tree"], json!({}));
    }

    #[test]
    fn definitions_that_refer_to_each_other_many_times_are_given_up_early() {
        let mut schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A0"}}});
        for at in 0..40 {
            let next = json!({"$ref": format!("#/$defs/A{}", at + 1)});
            schema["$defs"][format!("A{at}")] = json!({"anyOf": [next, next]});
        }
        schema["$defs"]["A40"] = json!({});
        assert_eq!(inlined(&schema), None);
    }
}
