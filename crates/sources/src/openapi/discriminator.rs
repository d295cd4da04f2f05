//! Discriminators, whose values choose an alternative of a schema.

use serde_json::{Map, Value};

use super::composition::is_base;
use super::text::text;

/// Maximum number of subtypes that are named.
const SUBTYPES_MAX: usize = 50;

/// Shows which values of a schema's discriminator there are, in the copy of the schema.
pub(super) fn name_types(schema: &Map<String, Value>, copied: &mut Map<String, Value>) {
    name_alternatives(schema, copied);
    name_subtypes(schema, copied);
}

/// Names the values in the titles of the alternatives that they choose.
fn name_alternatives(schema: &Map<String, Value>, copied: &mut Map<String, Value>) {
    let Some(discriminator) = schema.get("discriminator") else {
        return;
    };
    let Some(mapping) = discriminator.get("mapping").and_then(Value::as_object) else {
        return;
    };
    let property = text(discriminator, "propertyName");
    for keyword in ["oneOf", "anyOf"] {
        let written = schema.get(keyword).and_then(Value::as_array);
        let alternatives = copied.get_mut(keyword).and_then(Value::as_array_mut);
        for (written, alternative) in written
            .into_iter()
            .flatten()
            .zip(alternatives.into_iter().flatten())
        {
            let reference = text(written, "$ref");
            let is_chosen =
                |target: &Value| target.as_str().map(name_in) == Some(name_in(reference));
            let values = mapping.iter().filter(|(_, target)| is_chosen(*target));
            let values: Vec<&str> = values.map(|(value, _)| value.as_str()).collect();
            if let Some(members) = alternative.as_object_mut()
                && !values.is_empty()
            {
                let title = format!("{property}: {}", values.join(" or "));
                members.insert("title".to_owned(), title.into());
            }
        }
    }
}

/// Names the subtypes of a base schema in the description of the property that distinguishes them.
fn name_subtypes(schema: &Map<String, Value>, copied: &mut Map<String, Value>) {
    let discriminator = schema.get("discriminator").filter(|_| is_base(schema));
    let Some(discriminator) = discriminator else {
        return;
    };
    let mapping = discriminator.get("mapping").and_then(Value::as_object);
    let names = mapping
        .into_iter()
        .flatten()
        .map(|(value, _)| value.as_str());
    let names: Vec<&str> = names.take(SUBTYPES_MAX).collect();
    let properties = copied.get_mut("properties").and_then(Value::as_object_mut);
    let property = properties.and_then(|all| all.get_mut(text(discriminator, "propertyName")));
    if let Some(Value::Object(property)) = property
        && !names.is_empty()
        && !property.contains_key("description")
    {
        let description = format!("One of {}", names.join(", "));
        property.insert("description".to_owned(), description.into());
    }
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
}
