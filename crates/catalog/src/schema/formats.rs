//! Formats that JSON Schema does not have.

use serde_json::{Map, Value};

use super::is_data;

/// Removes the formats that `schemars` and OpenAPI have for numbers, of which validators warn. What they say of the range of
/// integers of up to 32 bits is said by `minimum` and `maximum` instead.
///
/// [`says_no_more_than_type`](super::says_no_more_than_type) needs the formats; so it is asked before they are removed.
pub fn without_rust_formats(schema: &mut Value) {
    walk(schema, true);
}

/// Removes the same formats, and says nothing instead: for schemas of others, which may not mean a range.
pub fn without_number_formats(schema: &mut Value) {
    walk(schema, false);
}

fn walk(schema: &mut Value, with_ranges: bool) {
    match schema {
        Value::Object(members) => {
            if is_numeric(members) {
                remove_format(members, with_ranges);
            }
            for (keyword, member) in members {
                match (&**keyword, member) {
                    ("properties" | "patternProperties" | "$defs", Value::Object(schemas)) => {
                        schemas
                            .values_mut()
                            .for_each(|schema| walk(schema, with_ranges));
                    }
                    (keyword, _) if is_data(keyword) => {}
                    (_, member) => walk(member, with_ranges),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, with_ranges)),
        _ => {}
    }
}

fn is_numeric(schema: &Map<String, Value>) -> bool {
    let is_number = |name: &Value| name == "integer" || name == "number";
    match schema.get("type") {
        Some(Value::Array(names)) => names.iter().any(is_number),
        Some(name) => is_number(name),
        None => false,
    }
}

fn remove_format(schema: &mut Map<String, Value>, with_ranges: bool) {
    let Some(format) = schema.get("format").and_then(Value::as_str) else {
        return;
    };
    let range = match format {
        "uint8" => Some((0, i64::from(u8::MAX))),
        "uint16" => Some((0, i64::from(u16::MAX))),
        "uint32" => Some((0, i64::from(u32::MAX))),
        "int8" => Some((i64::from(i8::MIN), i64::from(i8::MAX))),
        "int16" => Some((i64::from(i16::MIN), i64::from(i16::MAX))),
        "int32" => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
        "uint" | "uint64" | "uint128" | "int" | "int64" | "int128" | "float" | "double" => None,
        _ => return,
    };
    schema.shift_remove("format");
    if let Some((minimum, maximum)) = range.filter(|_| with_ranges) {
        for (bound, exclusive, value) in [
            ("minimum", "exclusiveMinimum", minimum),
            ("maximum", "exclusiveMaximum", maximum),
        ] {
            if !schema.contains_key(exclusive) {
                schema.entry(bound).or_insert_with(|| value.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_of_numbers_become_ranges_and_others_stay() {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "format": {"type": "string", "format": "date-time"},
                "default": {"type": "integer", "format": "int64"},
                "byte": {"type": "integer", "format": "uint8", "minimum": 0, "maximum": 255},
                "word": {"type": ["integer", "null"], "format": "uint32", "minimum": 1},
                "signed": {"type": "integer", "format": "int32", "exclusiveMinimum": 0},
                "long": {"type": "integer", "format": "uint64", "minimum": 0},
                "ratio": {"type": "number", "format": "double", "default": {"type": "number", "format": "double"}},
                "list": {"type": "array", "prefixItems": [{"type": "integer", "format": "int64"}]},
                "own": {"type": "integer", "format": "seconds"},
            },
        });
        without_rust_formats(&mut schema);
        assert_eq!(
            schema["properties"],
            json!({
                "format": {"type": "string", "format": "date-time"},
                "default": {"type": "integer"},
                "byte": {"type": "integer", "minimum": 0, "maximum": 255},
                "word": {"type": ["integer", "null"], "minimum": 1, "maximum": 4_294_967_295_u32},
                "signed": {"type": "integer", "exclusiveMinimum": 0, "maximum": 2_147_483_647},
                "long": {"type": "integer", "minimum": 0},
                "ratio": {"type": "number", "default": {"type": "number", "format": "double"}},
                "list": {"type": "array", "prefixItems": [{"type": "integer"}]},
                "own": {"type": "integer", "format": "seconds"},
            })
        );
        let mut schema = json!({"type": "integer", "format": "int32", "minimum": 0});
        without_number_formats(&mut schema);
        assert_eq!(schema, json!({"type": "integer", "minimum": 0}));
    }
}
