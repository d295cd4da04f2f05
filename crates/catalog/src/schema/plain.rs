//! Schemas whose soundness can be seen without their meta-schema.
//!
//! To compile the meta-schema of 2020-12 takes a third of all that a server does to start. Nearly all schemas of tools
//! consist of a few words, though, whose meaning needs no more than a look.

use serde_json::{Map, Value};

/// Returns true if a schema is evidently valid in 2020-12, apart from patterns and the targets of references. A schema
/// may be valid even if the result is false. The caller has bounded the depth.
///
/// What it goes down into has to be bounded already.
pub(super) fn is_plainly_valid(schema: &Value) -> bool {
    match schema {
        Value::Bool(_) => true,
        Value::Object(members) => members.iter().all(|(word, value)| is_plain(word, value)),
        _ => false,
    }
}

fn is_plain(word: &str, value: &Value) -> bool {
    match word {
        "$schema" => value == "https://json-schema.org/draft/2020-12/schema",
        "$ref" => value.as_str().is_some_and(is_plain_reference),
        "$comment" | "title" | "description" | "format" | "contentEncoding"
        | "contentMediaType" => value.is_string(),
        "default" | "const" => true,
        "enum" | "examples" => value.is_array(),
        "deprecated" | "readOnly" | "writeOnly" | "uniqueItems" => value.is_boolean(),
        "type" => match value {
            Value::String(name) => is_type(name),
            Value::Array(names) => {
                !names.is_empty()
                    && names.iter().all(|name| name.as_str().is_some_and(is_type))
                    && are_different(names)
            }
            _ => false,
        },
        "required" => value
            .as_array()
            .is_some_and(|names| names.iter().all(Value::is_string) && are_different(names)),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|number| 0.0 < number),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.is_u64()
        }
        "items" | "additionalProperties" | "not" => is_plainly_valid(value),
        "properties" | "$defs" => value.as_object().is_some_and(are_plainly_valid),
        "prefixItems" | "allOf" | "anyOf" | "oneOf" => value
            .as_array()
            .is_some_and(|all| !all.is_empty() && all.iter().all(is_plainly_valid)),
        // A dialect does not restrict unknown keywords.
        word => word.starts_with("x-"),
    }
}

fn are_plainly_valid(schemas: &Map<String, Value>) -> bool {
    schemas.values().all(is_plainly_valid)
}

fn is_type(name: &str) -> bool {
    matches!(
        name,
        "array" | "boolean" | "integer" | "null" | "number" | "object" | "string"
    )
}

/// A reference into the schema itself, with nothing in it that would have to be decoded.
fn is_plain_reference(reference: &str) -> bool {
    let is_plain =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'.' | b'$');
    reference
        .strip_prefix('#')
        .is_some_and(|pointer| pointer.bytes().all(is_plain))
}

/// There are few of them.
fn are_different(names: &[Value]) -> bool {
    const FEW: usize = 64;
    let is_first = |(at, name): (usize, &Value)| !names[..at].contains(name);
    names.len() <= FEW && names.iter().enumerate().all(is_first)
}

#[cfg(test)]
mod tests {
    use jsonschema::Draft;
    use jsonschema::draft202012::meta;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::survey::Patterns;
    use super::super::{options, survey};
    use super::*;

    #[test]
    fn schemas_of_ordinary_tools_need_no_meta_schema() {
        let ordinary = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Place", "type": "object", "additionalProperties": false,
            "properties": {
                "city": {"type": "string", "minLength": 1, "x-mcp-header": "City"},
                "unit": {"enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "format": "uint8", "minimum": 0, "maximum": 7},
                "at": {"$ref": "#/$defs/Point"},
                "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
                "either": {"anyOf": [{"const": 1}, {"type": "null"}], "not": false},
            },
            "required": ["city"],
            "$defs": {"Point": {"prefixItems": [true, {"multipleOf": 0.5}], "maxItems": 2}},
        });
        assert!(is_plainly_valid(&ordinary));
        assert!(meta::is_valid(&ordinary));
    }

    /// Values that are right for some word, or nearly.
    fn values() -> impl Strategy<Value = Value> {
        let few = prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(1),
            json!(-1),
            json!(0.5),
            json!(1.0),
            json!("string"),
            json!("object"),
            json!("strings"),
            json!(""),
            json!("#"),
            json!("#/$defs/a"),
            json!("#/%zz"),
            json!("other#"),
            json!("^[a-z"),
            json!([]),
            json!({}),
            json!(["string", "null"]),
            json!(["string", "string"]),
            json!([1]),
            json!(["a", 1]),
            json!("https://json-schema.org/draft/2020-12/schema"),
        ]);
        few.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((words(), inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn words() -> impl Strategy<Value = String> {
        let words = "$schema $ref $id $anchor $dynamicRef $comment $defs title description format pattern default const \
            enum examples deprecated readOnly uniqueItems type required minimum exclusiveMaximum multipleOf minLength \
            maxItems minProperties items additionalProperties not properties patternProperties prefixItems allOf anyOf \
            oneOf if dependentRequired contains unevaluatedItems contentEncoding contentSchema definitions x-own a";
        let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
        prop::sample::select(words)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn what_is_plainly_valid_is_valid(
            members in prop::collection::vec((words(), values()), 0..4)
        ) {
            let schema = Value::Object(members.into_iter().collect());
            if is_plainly_valid(&schema) {
                prop_assert!(meta::is_valid(&schema), "{schema}");
                let references = survey::check_references(Draft::Draft202012, &schema, Patterns::Compiled);
                if references.is_ok() {
                    let built = options(Draft::Draft202012).build(&schema);
                    prop_assert!(built.is_ok(), "{schema}");
                }
            }
        }
    }
}
