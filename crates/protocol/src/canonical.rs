//! Canonical JSON: one text per value.

use serde_json::Value;

/// A JSON text with its members sorted, without white space, and with numbers that are integers written as such.
/// Clients that write a request a second time may write it differently; this stays the same.
///
/// `None` if it is not JSON.
pub fn canonical(json: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(json).ok()?;
    settle(&mut value);
    Some(value.to_string())
}

fn settle(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(settle);
            members.sort_keys();
        }
        Value::Array(elements) => elements.iter_mut().for_each(settle),
        Value::Number(number) => {
            // Beyond that a float does not say which integer is meant.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            if let Some(float) = number.as_f64()
                && number.is_f64()
                && float.fract() == 0.0
                && float.abs() < EXACT
            {
                *value = Value::from(float as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_the_same_is_the_same() {
        let same = [
            r#"{"b": [1, {"y": "\u00e9", "x": null}], "a": 2.0}"#,
            r#"{"a":2,"b":[1.0,{"x":null,"y":"é"}]}"#,
            r#"{"a":2e0,"b":[10e-1,{"x":null,"y":"é"}]}"#,
        ];
        for text in same {
            assert_eq!(
                canonical(text).as_deref(),
                Some(r#"{"a":2,"b":[1,{"x":null,"y":"é"}]}"#)
            );
        }
        for other in [
            r#"{"a":2.5}"#,
            r#"{"a":"2"}"#,
            "[]",
            "-0.5",
            "18446744073709551615",
        ] {
            assert_eq!(canonical(other).as_deref(), Some(other));
        }
        assert_eq!(canonical("{"), None);
    }
}
