//! Removal of characters that hide or reorder text, from untrusted text.

use serde_json::{Map, Value};

/// Removes characters that hide or reorder text from every string in a document.
pub(super) fn all_shown(document: &mut Value) {
    match document {
        Value::String(text) => *text = shown(text),
        Value::Array(items) => items.iter_mut().for_each(all_shown),
        Value::Object(members) => members.values_mut().for_each(all_shown),
        _ => {}
    }
}

/// Removes characters that hide or reorder text from the titles and descriptions of a schema. Lists in place of empty
/// objects, as PHP writes them, become objects.
pub(super) fn schema_shown(schema: &Value) -> Value {
    let mut schema = schema.clone();
    show_schema(&mut schema);
    schema
}

fn show_schema(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(show_schema),
        Value::Object(members) => {
            for (key, value) in members {
                match (key.as_str(), &mut *value) {
                    ("title" | "description" | "$comment", Value::String(text)) => {
                        *text = shown(text);
                    }
                    // These are values, which are compared exactly.
                    ("default" | "const" | "enum" | "examples", value) if !is_schema(value) => {}
                    ("properties" | "patternProperties" | "$defs" | "definitions", value)
                        if value.as_array().is_some_and(Vec::is_empty) =>
                    {
                        *value = Value::Object(Map::new());
                    }
                    (_, value) => show_schema(value),
                }
            }
        }
        _ => {}
    }
}

/// Returns true for the schema of a property that has the name of a keyword.
fn is_schema(value: &Value) -> bool {
    value.get("type").is_some() || value.get("description").is_some()
}

/// Removes characters that hide or reorder text from untrusted text.
pub(super) fn shown(text: &str) -> String {
    let hides = |c: &char| {
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
            || c.is_control() && !matches!(c, '\n' | '\t')
    };
    text.chars().filter(|c| !hides(c)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::schema_shown;

    #[test]
    fn an_empty_list_of_properties_is_an_object() {
        let inner = json!({"type": "object", "properties": [], "required": []});
        let schema =
            json!({"properties": {"a": inner, "properties": {"type": "array", "default": []}}});
        let inner = json!({"type": "object", "properties": {}, "required": []});
        let expected =
            json!({"properties": {"a": inner, "properties": {"type": "array", "default": []}}});
        assert_eq!(schema_shown(&schema), expected);
    }
}
