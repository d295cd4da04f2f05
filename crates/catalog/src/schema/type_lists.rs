//! Schemas with one type each.

use serde_json::{Map, Value, json};

use super::inlined::is_annotation;

/// Turns a list of types into alternatives with one type each, which mean the same.
///
/// Many clients and model APIs take the type for a string: they reject the tool, or all tools, for
/// `"type": ["string", "null"]`. What Pydantic and Zod generate for the same, `anyOf` with `null`, is known everywhere.
/// A schema with keywords that do not belong to one type stays as it is.
pub(super) fn split(members: &mut Map<String, Value>) {
    let Some(Value::Array(kinds)) = members.get("type") else {
        return;
    };
    // A mirrored argument must not be inside of an alternative.
    let properties = members.get("properties").map(Value::to_string);
    if properties.is_some_and(|text| text.contains("\"x-mcp-header\"")) {
        return;
    }
    let kinds: Option<Vec<&str>> = kinds.iter().map(Value::as_str).collect();
    let branches = kinds.and_then(|kinds| branches(members, &kinds));
    let Some(mut branches) = branches else {
        return;
    };
    let mut split = Map::new();
    for (keyword, value) in std::mem::take(members) {
        match (keyword.as_str(), &mut branches[..]) {
            ("type", [only]) => split.append(only),
            ("type", _) => {
                let branches = std::mem::take(&mut branches);
                split.insert("anyOf".to_owned(), branches.into());
            }
            (annotation, _) if is_annotation(annotation) => {
                split.insert(keyword, value);
            }
            _ => {}
        }
    }
    *members = split;
}

/// Returns the schema of each type. `None` if the keywords cannot be divided among them, or no value is valid.
fn branches(members: &Map<String, Value>, kinds: &[&str]) -> Option<Vec<Map<String, Value>>> {
    let mut branches = Vec::new();
    for kind in kinds {
        let mut branch = Map::from_iter([("type".to_owned(), json!(kind))]);
        let mut is_possible = true;
        for (keyword, value) in members {
            if keyword == "type" || is_annotation(keyword) {
                continue;
            }
            let value = match (keyword.as_str(), value) {
                ("enum", Value::Array(values)) => {
                    let values: Vec<_> = values.iter().filter(|v| is_of(v, kind)).collect();
                    is_possible &= !values.is_empty();
                    json!(values)
                }
                ("const", value) => {
                    is_possible &= is_of(value, kind);
                    value.clone()
                }
                (keyword, value) if applies_to(keyword, kinds)? == group(kind) => value.clone(),
                _ => continue,
            };
            branch.insert(keyword.clone(), value);
        }
        // The type says the same.
        if *kind == "null" {
            branch.retain(|keyword, _| keyword == "type");
        }
        if is_possible {
            branches.push(branch);
        }
    }
    (!branches.is_empty()).then_some(branches)
}

/// Returns the type for which a keyword has a meaning. `None` if that is not a single one.
fn applies_to(keyword: &str, kinds: &[&str]) -> Option<&'static str> {
    Some(match keyword {
        "format" if !kinds.contains(&"string") => "number",
        "format" | "minLength" | "maxLength" | "pattern" | "contentEncoding"
        | "contentMediaType" | "contentSchema" => "string",
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => "number",
        "items" | "prefixItems" | "contains" | "minContains" | "maxContains" | "minItems"
        | "maxItems" | "uniqueItems" | "unevaluatedItems" | "additionalItems" => "array",
        "properties"
        | "patternProperties"
        | "additionalProperties"
        | "propertyNames"
        | "required"
        | "minProperties"
        | "maxProperties"
        | "dependentRequired"
        | "dependentSchemas"
        | "unevaluatedProperties" => "object",
        _ => return None,
    })
}

/// Returns the name under which [`applies_to`] has a type.
fn group(kind: &str) -> &str {
    match kind {
        "integer" => "number",
        other => other,
    }
}

/// Returns true if a value has the type of this name.
pub(super) fn is_of(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => {
            let is_whole = || number.as_f64().is_some_and(|number| number.fract() == 0.0);
            kind == "number" || kind == "integer" && is_whole()
        }
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_of(schema: &Value) -> Value {
        let mut members = schema.as_object().expect("an object").clone();
        split(&mut members);
        members.into()
    }

    #[test]
    fn each_alternative_has_the_keywords_of_its_type() {
        for (schema, expected) in [
            (
                json!({"description": "A name.", "type": ["string", "null"], "minLength": 1, "default": null}),
                json!({"description": "A name.", "anyOf": [{"type": "string", "minLength": 1}, {"type": "null"}], "default": null}),
            ),
            (
                json!({"type": ["array", "null"], "items": {"type": "string"}, "x-a": 1}),
                json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "x-a": 1}),
            ),
            (
                json!({"type": ["object", "null"], "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}),
                json!({"anyOf": [{"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}, {"type": "null"}]}),
            ),
            (
                json!({"type": ["integer", "null"], "format": "int64", "minimum": 0}),
                json!({"anyOf": [{"type": "integer", "format": "int64", "minimum": 0}, {"type": "null"}]}),
            ),
            (
                json!({"type": ["string", "integer"], "format": "date", "minimum": 0}),
                json!({"anyOf": [{"type": "string", "format": "date"}, {"type": "integer", "minimum": 0}]}),
            ),
            (
                json!({"type": ["string", "null"], "enum": ["a", null]}),
                json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
            ),
            (
                json!({"type": ["string", "null"], "enum": ["a"]}),
                json!({"type": "string", "enum": ["a"]}),
            ),
            (
                json!({"type": ["integer", "string"], "const": 2.0}),
                json!({"type": "integer", "const": 2.0}),
            ),
            (
                json!({"title": "T", "type": ["string"], "pattern": "^a"}),
                json!({"title": "T", "type": "string", "pattern": "^a"}),
            ),
        ] {
            assert_eq!(split_of(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn schemas_with_other_keywords_stay_as_they_are() {
        for schema in [
            json!({"type": "string", "minLength": 1}),
            json!({"type": ["string", "null"], "anyOf": [{"minLength": 1}]}),
            json!({"type": ["string", "null"], "$ref": "#/$defs/A"}),
            json!({"type": ["string", "null"], "not": {"const": "a"}}),
            json!({"type": ["string", "null"], "enum": [1]}),
            json!({"type": ["object", "null"], "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}),
            json!({"type": []}),
            json!({"anyOf": [{}]}),
        ] {
            assert_eq!(split_of(&schema), schema);
        }
    }
}
