//! The properties of a form, from all parts and alternatives of its schema.

use serde_json::{Map, Value, json};

use super::document::Document;
use super::form::{STEPS_MAX, is_null, parts, properties_of};

/// Maximum nesting depth of the schemas that a form is composed of.
const DEPTH_MAX: usize = 8;

/// Inlines the references and combines the parts and alternatives of a form's schema, so that its fields are known.
///
/// # Errors
///
/// A reference cannot be resolved.
pub(super) fn flattened(document: &Document, schema: &Value) -> Result<Value, String> {
    let schema = document.resolve(schema)?;
    let is_composed = |keyword: &&str| schema.get(keyword).is_some();
    if !["allOf", "anyOf", "oneOf"].iter().any(is_composed) {
        return Ok(schema.clone());
    }
    let mut whole = schema.as_object().cloned().unwrap_or_default();
    let mut gathered = Gathered::default();
    let mut steps = STEPS_MAX;
    gathered.add(document, schema, 0, &mut steps)?;
    whole.remove("allOf");
    if gathered.has_alternatives {
        whole.remove("anyOf");
        whole.remove("oneOf");
    }
    whole.insert("type".to_owned(), "object".into());
    whole.insert("properties".to_owned(), gathered.properties.into());
    if !gathered.required.is_empty() {
        whole.insert("required".to_owned(), gathered.required.into());
    }
    Ok(whole.into())
}

/// Properties of a form, from all parts of its schema.
#[derive(Default)]
struct Gathered {
    properties: Map<String, Value>,
    required: Vec<Value>,
    /// True if some properties are those of alternatives.
    has_alternatives: bool,
}

impl Gathered {
    fn add(
        &mut self,
        document: &Document,
        schema: &Value,
        depth: usize,
        steps: &mut usize,
    ) -> Result<(), String> {
        let schema = document.resolve(schema)?;
        if DEPTH_MAX < depth {
            return Ok(());
        }
        let own = properties_of(document, schema);
        *steps = steps
            .checked_sub(1 + own.map_or(0, Map::len))
            .ok_or("its form is put together from too many schemas")?;
        for part in parts(schema, "allOf") {
            self.add(document, part, depth + 1, steps)?;
        }
        for keyword in ["anyOf", "oneOf"] {
            let mut alternatives = Vec::new();
            for part in parts(schema, keyword).filter(|part| !is_null(part)) {
                let mut alternative = Self::default();
                alternative.add(document, part, depth + 1, steps)?;
                alternatives.push(alternative);
            }
            self.add_any_of(alternatives);
        }
        for (name, property) in own.into_iter().flatten() {
            self.properties.insert(name.clone(), property.clone());
        }
        let names = schema.get("required").and_then(Value::as_array);
        self.required.extend(names.into_iter().flatten().cloned());
        Ok(())
    }

    /// Adds the properties of alternatives. A property is required if all of them require it.
    fn add_any_of(&mut self, alternatives: Vec<Self>) {
        if let [first, others @ ..] = &alternatives[..] {
            let by_all = |name: &&Value| others.iter().all(|other| other.required.contains(name));
            self.required
                .extend(first.required.iter().filter(by_all).cloned());
        }
        let mut schemas: Map<String, Value> = Map::new();
        for alternative in alternatives {
            for (name, property) in alternative.properties {
                let known = schemas.entry(name).or_insert_with(|| json!([]));
                if let Value::Array(known) = known
                    && !known.contains(&property)
                {
                    known.push(property);
                }
            }
        }
        self.has_alternatives |= !schemas.is_empty();
        for (name, schema) in schemas {
            let schema = match schema {
                Value::Array(mut one) if one.len() == 1 => one.remove(0),
                several => json!({ "anyOf": several }),
            };
            self.properties.insert(name, schema);
        }
    }
}
