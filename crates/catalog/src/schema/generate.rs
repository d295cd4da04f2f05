//! Schemas from types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::says_no_more_than_type;
use super::variants::{DeserializeError, flatten};
use crate::catalog::Arguments;

/// Generates the schema of a tool's arguments from its type.
///
/// Members that may be left out lose the `null` that `Option` adds: deserialising takes `null` for nothing
/// all the same, and models are told one way instead of two. Where the arguments are checked against the
/// schema itself the `null` stays, so that it is accepted there as well.
pub fn of_arguments<A: JsonSchema + DeserializeOwned>() -> Value {
    finished_arguments(&A::schema_name(), A::json_schema, refusal::<A>)
}

/// Error of a type that cannot describe arguments.
fn refusal<A: DeserializeOwned>(sample: Value) -> Option<String> {
    let Value::Object(sample) = sample else {
        return None;
    };
    let refused = Arguments::from(sample).parse::<A>().err()?;
    Some(refused.to_string())
}

/// The schema of what a tool returns.
pub fn of_output<R: JsonSchema>() -> Value {
    finished_output(&R::schema_name(), R::json_schema)
}

/// The part that does not depend on the type.
#[inline(never)]
fn finished_output(type_name: &str, generate: fn(&mut SchemaGenerator) -> Schema) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = root(settings, type_name, generate);
    flatten(&mut schema, None);
    schema
}

/// Separate from the generic function, so that it is compiled once for all types.
#[inline(never)]
fn finished_arguments(
    type_name: &str,
    generate: fn(&mut SchemaGenerator) -> Schema,
    refusal: DeserializeError,
) -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut schema = root(settings, type_name, generate);
    flatten(&mut schema, Some(refusal));
    inline_mirrored(&mut schema);
    let mut without_null = schema.clone();
    for_each_optional(&mut without_null, |_| true);
    if says_no_more_than_type(&without_null) {
        return without_null;
    }
    // A mirrored parameter has one type of its own, by the rules of `x-mcp-header`.
    for_each_optional(&mut schema, |property| {
        property.contains_key("x-mcp-header")
    });
    schema
}

/// Without `$schema`, which is the default, and without a title that is the name of a Rust type.
///
/// `SchemaGenerator::root_schema_for` would be another kilobyte and a half of code for each type.
#[inline(never)]
fn root(
    settings: SchemaSettings,
    type_name: &str,
    generate: fn(&mut SchemaGenerator) -> Schema,
) -> Value {
    let mut generator = settings
        .with(|settings| settings.meta_schema = None)
        .into_generator();
    let mut schema = generate(&mut generator);
    let mut definitions = generator.take_definitions(false);
    // A type that contains itself is the root, and not a definition beside it.
    let own = definitions
        .iter()
        .find(|(_, definition)| **definition == *schema.as_value());
    if let Some(name) = own.map(|(name, _)| name.clone()) {
        definitions.shift_remove(&name);
        let reference = format!("#/$defs/{name}");
        let members = schema.as_object_mut().into_iter();
        for part in members.flat_map(Map::values_mut) {
            mean_root(part, &reference);
        }
        for definition in definitions.values_mut() {
            mean_root(definition, &reference);
        }
    }
    if !definitions.is_empty() {
        schema.insert("$defs".to_owned(), definitions.into());
    }
    for transform in generator.transforms_mut() {
        transform.transform(&mut schema);
    }
    let mut schema = schema.to_value();
    if schema.get("title").and_then(Value::as_str) == Some(type_name)
        && let Value::Object(members) = &mut schema
    {
        members.shift_remove("title");
    }
    schema
}

/// Redirects references from a definition to the whole schema.
fn mean_root(schema: &mut Value, reference: &str) {
    match schema {
        Value::Object(members) => {
            for (keyword, value) in members {
                if keyword == "$ref" && value == reference {
                    *value = "#".into();
                } else {
                    mean_root(value, reference);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mean_root(item, reference)),
        _ => {}
    }
}

/// Puts the target of a mirrored property's `$ref` in its place: the annotation needs the type beside it.
fn inline_mirrored(schema: &mut Value) {
    let definitions = schema.get("$defs").cloned().unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for property in properties.values_mut().filter_map(Value::as_object_mut) {
        if !property.contains_key("x-mcp-header") {
            continue;
        }
        without_null(property);
        inline(property, &definitions);
    }
}

/// Replaces a reference to a definition of its root by that definition, and keeps the keywords beside it.
pub fn inline(schema: &mut Map<String, Value>, definitions: &Value) {
    let target = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| reference.strip_prefix("#/$defs/"))
        .and_then(|name| definitions.get(name))
        .and_then(Value::as_object);
    if let Some(target) = target.cloned() {
        schema.shift_remove("$ref");
        for (keyword, value) in target {
            schema.entry(keyword).or_insert(value);
        }
    }
}

fn for_each_optional(schema: &mut Value, chosen: impl Fn(&Map<String, Value>) -> bool) {
    let required = schema.get("required").cloned().unwrap_or_default();
    let is_required = |name: &str| super::parts(&required).any(|required| required == name);
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, property) in properties {
        if let Value::Object(property) = property
            && !is_required(name)
            && chosen(property)
        {
            without_null(property);
        }
    }
}

/// Undoes what `Option<T>` does to the schema of `T`.
pub fn without_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type")
        && types.len() > 1
    {
        types.retain(|t| t != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            schema.insert("type".to_owned(), only);
        }
        if let Some(Value::Array(values)) = schema.get_mut("enum") {
            values.retain(|v| !v.is_null());
        }
    } else if let Some(Value::Array(branches)) = schema.get_mut("anyOf") {
        branches.retain(|branch| branch.get("type").is_none_or(|t| t != "null"));
        if let [Value::Object(only)] = branches.as_mut_slice() {
            let only = std::mem::take(only);
            schema.shift_remove("anyOf");
            for (keyword, value) in only {
                schema.entry(keyword).or_insert(value);
            }
        }
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.shift_remove("default");
    }
}
