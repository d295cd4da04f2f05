//! Conversion of the copies of schemas to valid 2020-12, and correction of frequent mistakes.

use std::collections::{BTreeSet, HashSet};

use serde::Deserialize as _;
use serde_json::{Map, Number, Value, json};

use super::document::{Document, Version};
use super::form::parts;
use crate::source::argument::ArgumentType;

/// Keywords that hold one schema.
pub(super) const ONE: [&str; 9] = [
    "items",
    "not",
    "additionalProperties",
    "contains",
    "propertyNames",
    "if",
    "then",
    "else",
    "unevaluatedProperties",
];
/// Keywords whose values are numbers.
const NUMBERS: [&str; 13] = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// Maximum number of schemas that are compared with a default.
const STEPS_MAX: usize = 200;

/// Returns a copied schema with the keywords of its document's version converted, and without mistakes. `schema` is the
/// one in the document.
pub(super) fn corrected(
    mut copied: Map<String, Value>,
    schema: &Value,
    document: &Document,
) -> Map<String, Value> {
    exclusive(&mut copied);
    any_of(&mut copied);
    well_formed(&mut copied);
    satisfiable(&mut copied);
    fit_default(&mut copied, schema, document);
    if document.version == Version::V3_0 {
        modernise(schema, &mut copied);
    }
    copied
}

/// Converts the boolean exclusive bounds of 3.0, which many documents of 3.1 still use, to numeric ones.
fn exclusive(copied: &mut Map<String, Value>) {
    for (exclusive, bound) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        let Some(Value::Bool(is_exclusive)) = copied.get(exclusive) else {
            continue;
        };
        let value = match is_exclusive {
            true => copied.remove(bound),
            false => None,
        };
        match value {
            Some(value) => copied.insert(exclusive.to_owned(), value),
            None => copied.remove(exclusive),
        };
    }
}

/// Converts keywords that are specific to 3.0 to their equivalents in 2020-12.
fn modernise(schema: &Value, copied: &mut Map<String, Value>) {
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        match copied.get("type").cloned() {
            Some(Value::String(name)) => {
                copied.insert("type".to_owned(), json!([name, "null"]));
                if let Some(Value::Array(values)) = copied.get_mut("enum")
                    && !values.contains(&Value::Null)
                {
                    values.push(Value::Null);
                }
            }
            // Without a type, null becomes an alternative.
            _ if !copied.is_empty() => {
                let description = copied.remove("description");
                let inner = Value::Object(std::mem::take(copied));
                copied.insert("anyOf".to_owned(), json!([inner, { "type": "null" }]));
                if let Some(description) = description {
                    copied.insert("description".to_owned(), description);
                }
            }
            _ => {}
        }
    }
    if copied.get("format").is_some_and(|format| format == "byte") {
        copied.insert("contentEncoding".to_owned(), "base64".into());
    }
}

/// Replaces `oneOf` by `anyOf`. The alternatives in documents often overlap, and the API accepts a value that matches
/// two of them. Clients and models also know `anyOf` better.
fn any_of(copied: &mut Map<String, Value>) {
    if copied.contains_key("anyOf") {
        return;
    }
    if let Some(one_of) = copied.remove("oneOf") {
        copied.insert("anyOf".to_owned(), one_of);
    }
}

/// Corrects or removes keywords whose values are not valid. One of them would make the whole schema unusable.
fn well_formed(copied: &mut Map<String, Value>) {
    for keyword in NUMBERS {
        if let Some(value) = copied.get_mut(keyword)
            && let Some(number) = value.as_str().and_then(number)
        {
            *value = number.into();
        }
    }
    if let Some(types) = copied.get_mut("type") {
        *types = known_types(types.take());
    }
    if let Some(Value::String(pattern)) = copied.get_mut("pattern")
        && let Some((inner, flags)) = delimited(pattern)
    {
        match flags.is_empty() {
            true => *pattern = inner,
            false => drop(copied.shift_remove("pattern")),
        }
    }
    copied.retain(|keyword, value| is_valid(keyword, value));
    if let Some(Value::Array(required)) = copied.get_mut("required") {
        let mut seen = HashSet::new();
        required.retain(|name| {
            name.as_str()
                .is_some_and(|name| seen.insert(name.to_owned()))
        });
    }
}

fn is_valid(keyword: &str, value: &Value) -> bool {
    match keyword {
        "title" | "description" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => {
            value.is_string()
        }
        "type" => !value.is_null() && value.as_array().is_none_or(|types| !types.is_empty()),
        "enum" | "required" => value.is_array(),
        "uniqueItems" => value.is_boolean(),
        "dependentRequired" => value.is_object(),
        keyword if ONE.contains(&keyword) => value.is_object() || value.is_boolean(),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => value.is_number(),
        "multipleOf" => value.as_f64().is_some_and(|number| 0.0 < number),
        keyword if NUMBERS.contains(&keyword) => value
            .as_f64()
            .is_some_and(|number| 0.0 <= number && number.fract() == 0.0),
        _ => true,
    }
}

/// Returns the types of JSON Schema for those of a document; null if one is unknown.
fn known_types(written: Value) -> Value {
    match written {
        Value::String(name) => known_type(&name).map_or(Value::Null, Value::from),
        Value::Array(names) => {
            let known = names.iter().map(|name| known_type(name.as_str()?));
            let known: Option<BTreeSet<&str>> = known.collect();
            known.map_or(Value::Null, |known| known.into_iter().collect())
        }
        _ => Value::Null,
    }
}

/// Returns the type that a name in a document means. Formats and types of programming languages stand there too.
fn known_type(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "object" => "object",
        "array" => "array",
        "string" | "date" | "datetime" | "date-time" | "time" | "uuid" | "email" | "uri"
        | "url" | "text" => "string",
        "integer" | "int" | "int32" | "int64" | "long" => "integer",
        "number" | "float" | "double" | "decimal" => "number",
        "boolean" | "bool" => "boolean",
        "null" => "null",
        _ => return None,
    })
}

/// Returns a pattern without the delimiters of Perl or JavaScript, and its flags. Nothing matches `/^`.
fn delimited(pattern: &str) -> Option<(String, String)> {
    let inner = pattern
        .strip_prefix('/')
        .filter(|inner| inner.starts_with('^'))?;
    let (inner, flags) = inner.rsplit_once('/')?;
    let are_flags = flags.chars().all(|c| c.is_ascii_lowercase());
    are_flags.then(|| (inner.to_owned(), flags.to_owned()))
}

/// Corrects mistakes that make a schema unsatisfiable.
fn satisfiable(copied: &mut Map<String, Value>) {
    // A property that is both required and forbidden would reject every value.
    let is_closed = copied.get("additionalProperties") == Some(&Value::Bool(false))
        && !copied.contains_key("patternProperties");
    let known: Option<HashSet<String>> = copied
        .get("properties")
        .and_then(Value::as_object)
        .filter(|_| is_closed)
        .map(|properties| properties.keys().cloned().collect());
    if let Some(known) = known
        && let Some(Value::Array(required)) = copied.get_mut("required")
    {
        required.retain(|name| name.as_str().is_some_and(|name| known.contains(name)));
    }
    let kind = copied.get("type").and_then(Value::as_str);
    let kind = kind.unwrap_or_default().to_owned();
    let Some(Value::Array(values)) = copied.get_mut("enum") else {
        return;
    };
    for value in values.iter_mut() {
        if let Some(meant) = of_type(&kind, value) {
            *value = meant;
        }
    }
    let mut seen = HashSet::new();
    values.retain(|value| seen.insert(value.to_string()));
    let is_of_items = kind == "array" && !values.iter().any(Value::is_array);
    if values.is_empty() || is_of_items {
        let values = std::mem::take(values);
        copied.shift_remove("enum");
        if !values.is_empty()
            && let Value::Object(items) = copied.entry("items").or_insert_with(|| json!({}))
        {
            items.entry("enum").or_insert_with(|| values.into());
        }
    }
}

/// Corrects or removes a default that does not match its schema. Clients send defaults, and this one would be rejected.
pub(super) fn fit_default(copied: &mut Map<String, Value>, schema: &Value, document: &Document) {
    let may_be = |value: &Value| {
        let mut steps = STEPS_MAX;
        may_match(document, schema, value, &mut steps)
    };
    let Some(default) = copied.get("default").filter(|default| !may_be(default)) else {
        return;
    };
    let kind = copied.get("type").and_then(Value::as_str);
    let meant = of_type(kind.unwrap_or_default(), default);
    match meant.filter(may_be) {
        Some(meant) => copied.insert("default".to_owned(), meant),
        None => copied.shift_remove("default"),
    };
}

/// Returns false if a value certainly does not match a schema of the document. `steps` is the number of schemas to examine.
fn may_match(document: &Document, schema: &Value, value: &Value, steps: &mut usize) -> bool {
    let (Ok(schema), Some(left)) = (document.resolve(schema), steps.checked_sub(1)) else {
        return true;
    };
    *steps = left;
    if value.is_null() && schema.get("nullable") == Some(&Value::Bool(true)) {
        return true;
    }
    let is_of = |kind: &Value| match ArgumentType::deserialize(kind) {
        Ok(kind) => kind.has(value),
        Err(_) => value.is_null(),
    };
    let kinds = schema
        .get("type")
        .map_or(Value::Null, |kinds| known_types(kinds.clone()));
    let has_type = match &kinds {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(is_of),
        kind => is_of(kind),
    };
    let kind = kinds.as_str().unwrap_or_default();
    let listed: Vec<&Value> = parts(schema, "enum").collect();
    let is = |value: &Value| {
        let mut listed = listed.iter();
        listed.any(|one| *one == value || of_type(kind, one).as_ref() == Some(value))
    };
    let is_listed = match value {
        // The values of its items.
        Value::Array(items) if !listed.iter().any(|one| one.is_array()) => items.iter().all(is),
        value => is(value),
    };
    if !has_type || !listed.is_empty() && !is_listed {
        return false;
    }
    let mut is_match = |part: &Value| may_match(document, part, value, steps);
    parts(schema, "allOf").all(&mut is_match)
        && ["anyOf", "oneOf"].iter().all(|keyword| {
            parts(schema, keyword).next().is_none() || parts(schema, keyword).any(&mut is_match)
        })
}

fn number(text: &str) -> Option<Number> {
    serde_json::from_str(text).ok()
}

/// Returns the value of a type that a value of another type means.
fn of_type(kind: &str, value: &Value) -> Option<Value> {
    match (kind, value) {
        ("string", Value::Number(_) | Value::Bool(_)) => Some(value.to_string().into()),
        ("integer" | "number", Value::String(text)) => Some(number(text)?.into()),
        ("boolean", Value::String(text)) => Some(text.parse::<bool>().ok()?.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: &Value) -> Value {
        let root = json!({
            "openapi": "3.1.0", "paths": {},
            "components": {"schemas": {"Color": {"type": "string", "enum": ["red", "blue"]}}},
        });
        let document = Document::new(root, None).expect("a document");
        let members = schema.as_object().expect("an object");
        corrected(members.clone(), schema, &document).into()
    }

    #[test]
    fn keywords_that_are_not_valid_are_corrected_or_left_out() {
        for (written, expected) in [
            (json!({"type": "int"}), json!({"type": "integer"})),
            (json!({"type": "String"}), json!({"type": "string"})),
            (json!({"type": "datetime"}), json!({"type": "string"})),
            (json!({"type": "file"}), json!({})),
            (json!({"type": ["x", "null"]}), json!({})),
            (json!({"type": []}), json!({})),
            (json!({"type": null, "description": null}), json!({})),
            (
                json!({"type": ["bool", "null"]}),
                json!({"type": ["boolean", "null"]}),
            ),
            (
                json!({"minLength": "3", "maxLength": -1}),
                json!({"minLength": 3}),
            ),
            (json!({"maximum": "x", "multipleOf": 0}), json!({})),
            (
                json!({"items": [{}], "enum": "a", "uniqueItems": "yes"}),
                json!({}),
            ),
            (
                json!({"pattern": "/^[a-z]+$/"}),
                json!({"pattern": "^[a-z]+$"}),
            ),
            (json!({"pattern": "/^[a-z]+$/i"}), json!({})),
            (json!({"pattern": "/a/"}), json!({"pattern": "/a/"})),
        ] {
            assert_eq!(of(&written), expected, "{written}");
        }
    }

    #[test]
    fn values_have_the_type_of_their_schema() {
        for (written, expected) in [
            (
                json!({"type": "string", "enum": [1, true, "a"]}),
                json!({"type": "string", "enum": ["1", "true", "a"]}),
            ),
            (
                json!({"type": "integer", "enum": ["1", "2"]}),
                json!({"type": "integer", "enum": [1, 2]}),
            ),
            (
                json!({"type": "boolean", "enum": ["true"]}),
                json!({"type": "boolean", "enum": [true]}),
            ),
            (
                json!({"type": "array", "enum": ["a"], "items": {"type": "string"}}),
                json!({"type": "array", "items": {"type": "string", "enum": ["a"]}}),
            ),
            (
                json!({"type": "array", "enum": ["a"], "default": ["a"]}),
                json!({"type": "array", "items": {"enum": ["a"]}, "default": ["a"]}),
            ),
            (json!({"enum": []}), json!({})),
            (
                json!({"type": "integer", "default": "10"}),
                json!({"type": "integer", "default": 10}),
            ),
            (
                json!({"type": "integer", "default": "the last one"}),
                json!({"type": "integer"}),
            ),
            (
                json!({"type": "string", "default": null}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": ["null", "string"], "default": null}),
                json!({"type": ["null", "string"], "default": null}),
            ),
            (json!({"default": [1]}), json!({"default": [1]})),
            (
                json!({"type": "string", "enum": ["a"], "default": "b"}),
                json!({"type": "string", "enum": ["a"]}),
            ),
            (
                json!({"type": "integer", "enum": ["1", "2"], "default": 2}),
                json!({"type": "integer", "enum": [1, 2], "default": 2}),
            ),
        ] {
            assert_eq!(of(&written), expected, "{written}");
        }
    }

    #[test]
    fn a_default_matches_one_of_the_alternatives_and_all_of_the_parts() {
        let color = json!({"$ref": "#/components/schemas/Color"});
        let any_of = json!([color, {"type": "null"}, {"type": "integer"}]);
        for (keyword, parts, default, stays) in [
            ("anyOf", &any_of, json!("red"), true),
            ("anyOf", &any_of, json!(null), true),
            ("anyOf", &any_of, json!(3), true),
            ("anyOf", &any_of, json!("green"), false),
            ("anyOf", &any_of, json!(3.5), false),
            ("allOf", &json!([color]), json!("blue"), true),
            (
                "allOf",
                &json!([color, {"enum": ["red"]}]),
                json!("blue"),
                false,
            ),
            ("anyOf", &json!([{"$ref": "#/nowhere"}]), json!(1), true),
        ] {
            let kept = of(&json!({(keyword): parts, "default": default}));
            assert_eq!(kept.get("default").is_some(), stays, "{keyword}: {default}");
        }
    }
}
