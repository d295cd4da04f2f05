//! Discriminators, whose values choose an alternative of a schema.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::composition::is_base;
use super::text::text;

/// Maximum length of the title of an alternative, in bytes.
const TITLE_BYTES_MAX: usize = 200;
/// Maximum length of the list of subtypes, in bytes.
const SUBTYPES_BYTES_MAX: usize = 1000;

/// Shows which values of a schema's discriminator there are, in the copy of the schema. Returns the number of bytes
/// added.
pub(super) fn name_types(schema: &Map<String, Value>, copied: &mut Map<String, Value>) -> usize {
    name_alternatives(schema, copied) + name_subtypes(schema, copied)
}

/// Names the values in the titles of the alternatives that they choose.
fn name_alternatives(schema: &Map<String, Value>, copied: &mut Map<String, Value>) -> usize {
    let mut bytes = 0;
    let mut titles = None;
    for keyword in ["oneOf", "anyOf"] {
        let written = schema.get(keyword).and_then(Value::as_array);
        let alternatives = copied.get_mut(keyword).and_then(Value::as_array_mut);
        for (written, alternative) in written
            .into_iter()
            .flatten()
            .zip(alternatives.into_iter().flatten())
        {
            let titles = titles.get_or_insert_with(|| titles_of(schema));
            if let Some(members) = alternative.as_object_mut()
                && let Some(title) = titles.get(name_in(text(written, "$ref")))
            {
                bytes += title.len();
                members.insert("title".to_owned(), title.as_str().into());
            }
        }
    }
    bytes
}

/// Returns the titles of alternatives by the names of their schemas.
fn titles_of(schema: &Map<String, Value>) -> HashMap<&str, String> {
    let mut titles = HashMap::new();
    let Some(discriminator) = schema.get("discriminator") else {
        return titles;
    };
    let property = text(discriminator, "propertyName");
    let mapping = discriminator.get("mapping").and_then(Value::as_object);
    for (value, target) in mapping.into_iter().flatten() {
        let Some(target) = target.as_str() else {
            continue;
        };
        match titles.get_mut(name_in(target)) {
            Some(title) => add(title, " or ", value, TITLE_BYTES_MAX),
            None if property.len() + ": ".len() + value.len() <= TITLE_BYTES_MAX => {
                titles.insert(name_in(target), format!("{property}: {value}"));
            }
            None => {}
        }
    }
    titles
}

/// Adds a value to a list, if it fits.
fn add(list: &mut String, separator: &str, value: &str, bytes_max: usize) {
    if list.len() + separator.len() + value.len() <= bytes_max {
        list.push_str(separator);
        list.push_str(value);
    }
}

/// Names the subtypes of a base schema in the description of the property that distinguishes them.
fn name_subtypes(schema: &Map<String, Value>, copied: &mut Map<String, Value>) -> usize {
    let discriminator = schema.get("discriminator").filter(|_| is_base(schema));
    let Some(discriminator) = discriminator else {
        return 0;
    };
    let properties = copied.get_mut("properties").and_then(Value::as_object_mut);
    let property = properties.and_then(|all| all.get_mut(text(discriminator, "propertyName")));
    let Some(Value::Object(property)) = property else {
        return 0;
    };
    if property.contains_key("description") {
        return 0;
    }
    let mapping = discriminator.get("mapping").and_then(Value::as_object);
    let mut description = String::new();
    for (value, _) in mapping.into_iter().flatten() {
        let separator = match description.is_empty() {
            true => "One of ",
            false => ", ",
        };
        add(&mut description, separator, value, SUBTYPES_BYTES_MAX);
    }
    let bytes = description.len();
    if !description.is_empty() {
        property.insert("description".to_owned(), description.into());
    }
    bytes
}

/// Returns the name of the schema that a reference leads to. A mapping can have the name alone, and the references of
/// bundled documents differ from those in their mappings.
fn name_in(reference: &str) -> &str {
    let last = reference.rsplit('/').next().unwrap_or_default();
    let endings = [".yaml", ".yml", ".json"];
    let stem = endings.iter().find_map(|ending| last.strip_suffix(ending));
    stem.unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn alternatives_are_named_by_the_values_that_choose_them() {
        let reference = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
        let schema = json!({
            "oneOf": [reference("Cat"), reference("Dog"), reference("Fox"), {"type": "object"}],
            "discriminator": {"propertyName": "kind", "mapping": {
                "kitty": "#/components/schemas/Cat", "cat": "Cat", "puppy": "./Dog.yaml",
            }},
        });
        let mut copied = json!({"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}, {"$ref": "#/$defs/Fox"}, {}]});
        name_alternatives(
            schema.as_object().expect("an object"),
            copied.as_object_mut().expect("an object"),
        );
        assert_eq!(
            copied["oneOf"],
            json!([
                {"$ref": "#/$defs/Cat", "title": "kind: kitty or cat"},
                {"$ref": "#/$defs/Dog", "title": "kind: puppy"},
                {"$ref": "#/$defs/Fox"},
                {},
            ])
        );
    }

    #[test]
    fn titles_and_descriptions_have_a_limit() {
        let values = (0..1000).map(|number| (format!("value_{number}"), json!("A")));
        let mut mapping: Map<String, Value> = values.collect();
        mapping.insert("x".repeat(1000), "B".into());
        let discriminator = json!({"propertyName": "kind", "mapping": mapping});
        let schema =
            json!({"discriminator": discriminator, "anyOf": [{"$ref": "#/A"}, {"$ref": "#/B"}]});
        let mut copied = json!({"anyOf": [{}, {}]});
        let bytes = name_types(
            schema.as_object().expect("an object"),
            copied.as_object_mut().expect("an object"),
        );
        let title = copied["anyOf"][0]["title"].as_str().expect("a title");
        assert!(title.starts_with("kind: value_0 or value_1 or "), "{title}");
        assert!(
            title.len() <= TITLE_BYTES_MAX && title.len() == bytes,
            "{title}"
        );
        assert_eq!(copied["anyOf"][1], json!({}));

        let schema = json!({"discriminator": discriminator});
        let mut copied = json!({"properties": {"kind": {}}});
        let bytes = name_types(
            schema.as_object().expect("an object"),
            copied.as_object_mut().expect("an object"),
        );
        let description = &copied["properties"]["kind"]["description"];
        let description = description.as_str().expect("a description");
        assert!(
            description.starts_with("One of value_0, value_1, "),
            "{description}"
        );
        assert!(description.len() <= SUBTYPES_BYTES_MAX && description.len() == bytes);
    }
}
