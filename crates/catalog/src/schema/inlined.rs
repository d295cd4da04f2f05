//! Schemas without references.

use serde_json::{Map, Value};

/// Maximum growth of a schema, in bytes.
const GROWTH_MAX: usize = 512;
/// Maximum number of definitions within each other. Recursive schemas exceed it.
const DEPTH_MAX: usize = 16;

/// Returns an equivalent schema with its definitions in the places of their references, for clients and model APIs that
/// do not resolve references. `None` if the schema has none, is recursive, or would become much larger.
pub(super) fn inlined(schema: &Value) -> Option<Value> {
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
    let mut inliner = Inliner {
        definitions,
        left: text.len() + GROWTH_MAX,
    };
    let mut root = Value::Object(root);
    inliner.expand(&mut root, 0)?;
    // The names of some properties are those of keywords whose values are not schemas.
    (!root.to_string().contains("\"$ref\"")).then_some(root)
}

struct Inliner {
    definitions: Map<String, Value>,
    /// Bytes of definitions that may still be inserted.
    left: usize,
}

impl Inliner {
    fn expand(&mut self, value: &mut Value, depth: usize) -> Option<()> {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let name = reference.strip_prefix("#/$defs/")?.to_owned();
                    self.insert(&name, members)?;
                    return (depth < DEPTH_MAX).then(|| self.expand(value, depth + 1))?;
                }
                let schemas = members.iter_mut().filter(|(keyword, _)| {
                    !matches!(keyword.as_str(), "const" | "enum" | "default" | "examples")
                });
                for (_, schema) in schemas {
                    self.expand(schema, depth)?;
                }
                Some(())
            }
            Value::Array(items) => items
                .iter_mut()
                .try_for_each(|item| self.expand(item, depth)),
            _ => Some(()),
        }
    }

    /// Puts a definition in the place of a reference. Only annotations may stand beside it, and override its own.
    fn insert(&mut self, name: &str, members: &mut Map<String, Value>) -> Option<()> {
        let definition = self.definitions.get(name)?;
        self.left = self.left.checked_sub(definition.to_string().len())?;
        members.shift_remove("$ref");
        if !members.keys().all(|keyword| is_annotation(keyword)) {
            return None;
        }
        for (keyword, value) in definition.as_object()? {
            members
                .entry(keyword.as_str())
                .or_insert_with(|| value.clone());
        }
        Some(())
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
