//! The form in which schemas are listed.

use serde_json::{Map, Value, json};

use super::inlined::{inlined, simplified};
use super::portable_pattern::has_portable_patterns;
use super::type_lists;

/// Returns an equivalent input schema in the form that clients and model APIs read.
///
/// Many of them require `properties` in the schema of an object, `items` in that of an array, and objects instead of
/// `true` and `false` as the schemas of properties and items, and one type for each schema. A single tool in another form
/// makes the whole list unusable to them. Some do not resolve references, and leave such tools or arguments out.
#[doc(hidden)]
pub fn listed_input(schema: &Value) -> Value {
    adapted(inlined(schema).unwrap_or_else(|| schema.clone()))
}

/// Returns the output schema to list, in the same form. `None` if it has a pattern that clients may not be able to compile.
///
/// The TypeScript SDK 1.22.0 fails on the whole list if an output schema refers to a definition. A recursive or large schema
/// is therefore listed in a form that accepts more, where that is possible.
#[doc(hidden)]
pub fn listed_output(schema: &Value) -> Option<Value> {
    let without_references = || inlined(schema).or_else(|| simplified(schema));
    has_portable_patterns(schema)
        .then(|| adapted(without_references().unwrap_or_else(|| schema.clone())))
}

/// Allows other members of the arguments by a boolean, which the Java SDK before 2.0 requires: it fails on the whole list
/// otherwise. The description says what the schema of these members was.
#[doc(hidden)]
pub fn allow_other_members(listed: &mut Value) {
    if !listed["additionalProperties"].is_object()
        || listed.to_string().contains("\"#/additionalProperties")
    {
        return;
    }
    let note = format!(
        "Schema of other members: {}",
        listed["additionalProperties"]
    );
    let description = match &listed["description"] {
        Value::String(text) => format!("{text}\n\n{note}"),
        _ => note,
    };
    listed["description"] = description.into();
    listed["additionalProperties"] = Value::Bool(true);
}

fn adapted(mut schema: Value) -> Value {
    let Value::Object(members) = &mut schema else {
        adapt_schema(&mut schema, true);
        return schema;
    };
    if members.get("type").is_some_and(|kind| kind == "object") {
        members.entry("properties").or_insert_with(|| json!({}));
    }
    // The Java SDK before 2.0 requires a boolean here.
    if let Some(additional) = members.get_mut("additionalProperties")
        && *additional == json!({})
    {
        *additional = Value::Bool(true);
    }
    let splits_types = !has_inner_references(members);
    adapt(members, splits_types);
    schema
}

/// Returns true if a reference leads into another schema. Such a place must not be moved.
fn has_inner_references(members: &Map<String, Value>) -> bool {
    let is_inner = |reference: &str| {
        let definition = ["#/$defs/", "#/definitions/"]
            .iter()
            .find_map(|start| reference.strip_prefix(start));
        reference.starts_with("#/") && definition.is_none_or(|name| name.contains('/'))
    };
    members.iter().any(|(keyword, value)| match value {
        Value::String(reference) => keyword == "$ref" && is_inner(reference),
        Value::Object(members) => has_inner_references(members),
        Value::Array(schemas) => {
            let mut objects = schemas.iter().filter_map(Value::as_object);
            objects.any(has_inner_references)
        }
        _ => false,
    })
}

fn adapt(members: &mut Map<String, Value>, splits_types: bool) {
    // Without `items`, the keywords for other elements would apply to all elements.
    let has_elements = ["items", "prefixItems", "unevaluatedItems"]
        .iter()
        .any(|keyword| members.contains_key(*keyword));
    if is_array(members) && !has_elements {
        members.insert("items".to_owned(), json!({}));
    }
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(schemas),
            ) => {
                let schemas = schemas.values_mut();
                schemas.for_each(|schema| adapt_schema(schema, splits_types));
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                let schemas = schemas.iter_mut();
                schemas.for_each(|schema| adapt_schema(schema, splits_types));
            }
            ("items", schema) if *schema == Value::Bool(true) => *schema = json!({}),
            (
                "items"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "contains"
                | "not"
                | "if"
                | "then"
                | "else",
                Value::Object(members),
            ) => adapt_inner(members, splits_types),
            _ => {}
        }
    }
}

/// Adapts a schema within another one. The type of the root is not an alternative.
fn adapt_inner(members: &mut Map<String, Value>, splits_types: bool) {
    add_type(members);
    if splits_types {
        type_lists::split(members);
    }
    adapt(members, splits_types);
}

/// Adds the type that all values of an `enum` or a `const` have. Some clients reject properties without a type.
fn add_type(members: &mut Map<String, Value>) {
    if members.contains_key("type") || members.contains_key("$ref") {
        return;
    }
    let values = match (members.get("enum"), members.get("const")) {
        (Some(Value::Array(values)), _) => values.as_slice(),
        (_, Some(value)) => std::slice::from_ref(value),
        _ => return,
    };
    let kind = match values.first() {
        Some(Value::String(_)) if values.iter().all(Value::is_string) => "string",
        Some(Value::Bool(_)) if values.iter().all(Value::is_boolean) => "boolean",
        Some(Value::Number(_)) if values.iter().all(Value::is_number) => "number",
        _ => return,
    };
    members.insert("type".to_owned(), kind.into());
}

fn adapt_schema(schema: &mut Value, splits_types: bool) {
    match schema {
        Value::Bool(true) => *schema = json!({}),
        Value::Bool(false) => *schema = json!({"not": {}}),
        Value::Object(members) => adapt_inner(members, splits_types),
        _ => {}
    }
}

fn is_array(members: &Map<String, Value>) -> bool {
    match members.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_properties_and_arrays_have_items() {
        let closed = json!({"type": "object", "additionalProperties": false});
        assert_eq!(
            adapted(closed),
            json!({"type": "object", "additionalProperties": false, "properties": {}})
        );
        let arrays = json!({"type": "object", "properties": {
            "a": {"type": "array"},
            "b": {"type": ["array", "null"]},
            "c": {"anyOf": [{"type": "array"}, {"type": "string"}]},
            "pair": {"type": "array", "prefixItems": [true, {"type": "array"}], "items": false},
            "none": {"type": "array", "unevaluatedItems": false},
        }});
        assert_eq!(
            adapted(arrays)["properties"],
            json!({
                "a": {"type": "array", "items": {}},
                "b": {"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]},
                "c": {"anyOf": [{"type": "array", "items": {}}, {"type": "string"}]},
                "pair": {"type": "array", "prefixItems": [{}, {"type": "array", "items": {}}], "items": false},
                "none": {"type": "array", "unevaluatedItems": false},
            })
        );
    }

    #[test]
    fn schemas_of_properties_and_items_are_objects() {
        let schema = json!({
            "type": "object",
            "properties": {"any": true, "never": false, "list": {"type": "array", "items": true}},
            "$defs": {"Any": true, "Map": {"type": "object", "additionalProperties": {"properties": {"a": true}}}},
        });
        assert_eq!(
            adapted(schema),
            json!({
                "type": "object",
                "properties": {
                    "any": {},
                    "never": {"not": {}},
                    "list": {"type": "array", "items": {}},
                },
                "$defs": {"Any": {}, "Map": {"type": "object", "additionalProperties": {"properties": {"a": {}}}}},
            })
        );
    }

    #[test]
    fn the_schema_of_any_result_is_an_object() {
        assert_eq!(listed_output(&json!(true)), Some(json!({})));
        assert_eq!(listed_output(&json!(false)), Some(json!({"not": {}})));
    }

    #[test]
    fn values_of_one_type_have_that_type() {
        let schema = json!({"type": "object", "properties": {
            "text": {"enum": ["a", "b"]},
            "number": {"const": 1},
            "flag": {"enum": [true]},
            "mixed": {"enum": ["a", null]},
            "typed": {"type": "integer", "enum": [1]},
        }});
        assert_eq!(
            adapted(schema)["properties"],
            json!({
                "text": {"enum": ["a", "b"], "type": "string"},
                "number": {"const": 1, "type": "number"},
                "flag": {"enum": [true], "type": "boolean"},
                "mixed": {"enum": ["a", null]},
                "typed": {"type": "integer", "enum": [1]},
            })
        );
    }

    #[test]
    fn places_that_references_name_stay() {
        let children =
            json!({"type": ["array", "null"], "items": {"$ref": "#/properties/children/items"}});
        let schema = json!({"type": "object", "properties": {"children": children}});
        assert_eq!(adapted(schema.clone()), schema);
        let note = json!({"type": ["string", "null"]});
        let of_definition =
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}, "note": note}});
        let listed = adapted(of_definition);
        assert!(listed["properties"]["note"]["anyOf"].is_array(), "{listed}");
    }

    #[test]
    fn definitions_of_results_stand_where_they_are_referred_to() {
        let schema = json!({
            "type": "object",
            "properties": {"unit": {"$ref": "#/$defs/Unit"}},
            "$defs": {"Unit": {"type": "string", "enum": ["c", "f"]}},
        });
        let unit = json!({"type": "string", "enum": ["c", "f"]});
        let listed = json!({"type": "object", "properties": {"unit": unit}});
        assert_eq!(listed_output(&schema), Some(listed));
    }

    #[test]
    fn other_members_of_the_root_are_allowed_by_a_boolean() {
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": {}});
        assert_eq!(adapted(schema)["additionalProperties"], true);
        let schema =
            json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}});
        assert_eq!(adapted(schema.clone()), schema);
    }

    #[test]
    fn the_schema_of_other_members_is_in_the_description() {
        let listed = |mut schema: Value| {
            allow_other_members(&mut schema);
            schema
        };
        let others = json!({"type": "string"});
        assert_eq!(
            listed(json!({"type": "object", "additionalProperties": others})),
            json!({"type": "object", "additionalProperties": true,
                "description": "Schema of other members: {\"type\":\"string\"}"})
        );
        let described = json!({"description": "Labels.", "additionalProperties": others});
        assert_eq!(
            listed(described)["description"],
            "Labels.\n\nSchema of other members: {\"type\":\"string\"}"
        );
        let inner = json!({"properties": {"labels": {"additionalProperties": others}}});
        let closed = json!({"additionalProperties": false});
        let named = json!({
            "properties": {"a": {"$ref": "#/additionalProperties"}},
            "additionalProperties": others,
        });
        for schema in [inner, closed, named] {
            assert_eq!(listed(schema.clone()), schema);
        }
    }

    #[test]
    fn values_and_other_schemas_stay_as_they_are() {
        let schema = json!({
            "type": "object",
            "properties": {
                "properties": {"const": {"properties": {"a": true}}},
                "choice": {"enum": [true, {"type": "array"}], "default": {"type": "array"}},
                "open": {"type": "object", "additionalProperties": true},
            },
            "additionalProperties": false,
            "required": ["choice"],
        });
        assert_eq!(adapted(schema.clone()), schema);
        assert_eq!(
            adapted(json!({"type": "string"})),
            json!({"type": "string"})
        );
    }
}
