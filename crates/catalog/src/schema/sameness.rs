//! Comparison of a schema with the type that it was generated from.

use serde_json::{Map, Value};

/// Returns true if deserialisation alone checks everything that a schema, generated from a type, requires.
///
/// True if the schema consists of what types say: member names and whether they may be left out, types of
/// values, enumerated strings, and the ranges that integer formats stand for. Lengths, patterns, other
/// ranges, `uniqueItems`, alternatives and whatever is not known here make it false.
///
/// Ranges are told by the formats that `schemars` gives to integers, such as `uint8`. Tools offer their schemas without those,
/// so this is asked before they are removed.
///
/// It looks at the schema alone. A schema that was bent by hand, with `#[schemars(with = ...)]`,
/// `#[schemars(extend("enum" = ...))]` or a `JsonSchema` of one's own, may say in these same words what the
/// type does not; such a type has to refuse it in its own `Deserialize`.
pub fn says_no_more_than_type(schema: &Value) -> bool {
    match schema {
        Value::Bool(anything) => *anything,
        Value::Object(members) => members
            .iter()
            .all(|(keyword, value)| is_harmless(keyword, value, members)),
        _ => false,
    }
}

fn is_harmless(keyword: &str, value: &Value, schema: &Map<String, Value>) -> bool {
    match keyword {
        // Words for readers.
        "$schema" | "$comment" | "title" | "description" | "default" | "examples"
        | "deprecated" | "readOnly" | "writeOnly" | "format" | "x-mcp-header" => true,
        // Keywords of types. `required` is absent for optional members; `enum` is a Rust enum.
        "type" | "required" => true,
        "enum" => has_type(schema, "string"),
        "additionalProperties" => value == false || says_no_more_than_type(value),
        "properties" | "$defs" => value
            .as_object()
            .is_some_and(|schemas| schemas.values().all(says_no_more_than_type)),
        "items" => says_no_more_than_type(value),
        "prefixItems" => value
            .as_array()
            .is_some_and(|schemas| schemas.iter().all(says_no_more_than_type)),
        "minItems" | "maxItems" => is_length_of_tuple(value, schema),
        "minimum" | "maximum" => is_range_of_format(keyword, value, schema),
        "$ref" => value
            .as_str()
            .is_some_and(|reference| reference == "#" || reference.starts_with("#/$defs/")),
        "anyOf" => is_option(value),
        "oneOf" => is_enumeration(value),
        _ => false,
    }
}

fn has_type(schema: &Map<String, Value>, name: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == name,
        Some(Value::Array(names)) => names.iter().all(|n| n == name || n == "null"),
        _ => false,
    }
}

/// `(A, B)` has two items and no other number of them.
fn is_length_of_tuple(length: &Value, schema: &Map<String, Value>) -> bool {
    schema
        .get("prefixItems")
        .and_then(Value::as_array)
        .is_some_and(|items| length == items.len())
        && schema.contains_key("minItems")
        && schema.contains_key("maxItems")
}

/// `u8` has the format `uint8` and goes from 0 to 255; a range set by hand lies within.
fn is_range_of_format(bound: &str, value: &Value, schema: &Map<String, Value>) -> bool {
    let (minimum, maximum) = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => (0, Some(255)),
        Some("uint16") => (0, Some(65_535)),
        Some("uint32" | "uint64" | "uint128" | "uint") => (0, None),
        Some("int8") => (-128, Some(127)),
        Some("int16") => (-32_768, Some(32_767)),
        _ => return false,
    };
    match bound {
        "minimum" => value.as_i64() == Some(minimum),
        _ => maximum.is_some_and(|maximum| value.as_i64() == Some(maximum)),
    }
}

/// `Option<T>`, where the schema of `T` has a place of its own: `T` or `null`.
fn is_option(branches: &Value) -> bool {
    let is_null = |schema: &Value| schema.get("type").is_some_and(|t| t == "null");
    matches!(branches.as_array().map(Vec::as_slice), Some([some, none])
        if is_null(none) && !is_null(some) && says_no_more_than_type(some))
}

/// A Rust enum without data whose variants have documentation: strings, one or some in each branch.
fn is_enumeration(branches: &Value) -> bool {
    branches.as_array().is_some_and(|branches| {
        branches.iter().all(|branch| {
            branch.as_object().is_some_and(|branch| {
                has_type(branch, "string")
                    && (branch.contains_key("const") || branch.contains_key("enum"))
                    && branch.keys().all(|keyword| {
                        matches!(
                            keyword.as_str(),
                            "type" | "const" | "enum" | "title" | "description" | "deprecated"
                        )
                    })
            })
        })
    })
}
