mod cost;
mod messages;
mod sound;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn refused(schema: &Value) -> String {
    Compiled::input(schema).expect_err("is refused").to_string()
}

fn accepted(schema: &Value) -> Compiled {
    Compiled::input(schema).expect("is accepted")
}

/// What a model is told about `value`.
fn reported(schema: &Value, value: &Value) -> String {
    accepted(schema)
        .check(value)
        .expect_err("is refused")
        .to_string()
}

/// Objects of keywords, right and wrong ones.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-1_i64..3).prop_map(Value::from),
        prop::sample::select(vec![
            "",
            "#",
            "#a",
            "a",
            "/",
            "#/",
            "#/$defs/a",
            "#/properties/a",
            "a#a",
            "#a/b",
            "%",
            "#%",
            "urn:a:b",
            "urn:",
            "https://example.com/",
            "//x",
            "?",
            "::",
            "[",
            "object",
            "array",
            "http://json-schema.org/draft-07/schema#",
            "http://json-schema.org/draft-04/schema",
            "^(a|b",
            "\\d+",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let keywords = prop::sample::select(vec![
            "$id",
            "id",
            "$ref",
            "$dynamicRef",
            "$recursiveRef",
            "$anchor",
            "$dynamicAnchor",
            "$recursiveAnchor",
            "$defs",
            "definitions",
            "properties",
            "items",
            "anyOf",
            "allOf",
            "not",
            "if",
            "then",
            "pattern",
            "patternProperties",
            "type",
            "enum",
            "const",
            "unevaluatedProperties",
            "dependencies",
            "dependentSchemas",
            "$schema",
            "a",
            "minimum",
            "x-mcp-header",
            "required",
            "additionalProperties",
            "prefixItems",
            "contains",
        ]);
        prop_oneof![
            2 => prop::collection::btree_map(keywords, inner.clone(), 0..6)
                .prop_map(|m| Value::from_iter(m.into_iter().map(|(k, v)| (k.to_owned(), v)))),
            1 => prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

proptest! {
    #[test]
    fn no_schema_and_no_value_makes_it_panic(schema in schemas(), value in schemas()) {
        let _ = header_parameters(&schema);
        let _ = says_no_more_than_type(&schema);
        if let Ok(compiled) = Compiled::output(&schema) {
            let _ = compiled.check(&value);
            let _ = compiled.check(&schema);
            let _ = explain::explain(&schema, &value);
        }
    }
}

#[test]
fn what_types_say_is_told_from_what_says_more() {
    for harmless in [
        json!(true),
        json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255}),
        json!({"type": "integer", "format": "uint64", "minimum": 0}),
        json!({"type": "string", "enum": ["a", "b"], "description": "x", "default": "a"}),
        json!({"type": ["string", "null"], "enum": ["a", null]}),
        json!({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
        json!({"oneOf": [{"type": "string", "const": "a", "description": "x"}]}),
        json!({"type": "array", "items": {"type": "string", "format": "date-time"}}),
        json!({"type": "array", "prefixItems": [true, true], "minItems": 2, "maxItems": 2}),
        json!({"type": "object", "additionalProperties": {"type": "boolean"}}),
    ] {
        assert!(says_no_more_than_type(&harmless), "{harmless}");
    }
    for more in [
        json!(false),
        json!({"type": "integer", "format": "uint8", "minimum": 0, "maximum": 10}),
        json!({"type": "integer", "format": "int64", "minimum": 0}),
        json!({"type": "integer", "minimum": 0}),
        json!({"type": "integer", "multipleOf": 2}),
        json!({"type": "integer", "enum": [1, 2]}),
        json!({"type": "string", "minLength": 1}),
        json!({"type": "string", "pattern": "a"}),
        json!({"type": "array", "maxItems": 3, "minItems": 3, "items": true}),
        json!({"type": "array", "uniqueItems": true}),
        json!({"type": "object", "patternProperties": {"a": true}}),
        json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"oneOf": [{"type": "object", "properties": {}}]}),
        json!({"properties": {"a": {"items": {"maxLength": 1}}}}),
        json!({"$defs": {"a": {"minimum": 1}}}),
        json!({"$ref": "https://example.com"}),
        json!({"what-is-this": 1}),
    ] {
        assert!(!says_no_more_than_type(&more), "{more}");
    }
}
