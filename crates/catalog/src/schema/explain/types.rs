//! Types of JSON values.

use serde_json::Value;

use crate::catalog::schema::type_lists::is_of;

pub(super) fn has_type(expected: &Value, value: &Value) -> bool {
    match expected {
        Value::String(name) => is_of(value, name),
        Value::Array(names) => names.iter().any(|name| has_type(name, value)),
        _ => true,
    }
}

pub(super) fn types(expected: &Value) -> String {
    let one = |name: &Value| match name.as_str() {
        Some("null") => "null".to_owned(),
        Some(name @ ("integer" | "array" | "object")) => format!("an {name}"),
        Some(name) => format!("a {name}"),
        None => name.to_string(),
    };
    match expected {
        Value::Array(names) => names.iter().map(one).collect::<Vec<_>>().join(" or "),
        name => one(name),
    }
}

/// Equal as JSON Schema has it: `1` and `1.0` are the same.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}
