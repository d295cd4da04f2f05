//! Schemas that references name instead of the way to them: `$anchor` and `$id` (JSON Schema 2020-12).

use std::collections::HashMap;

use serde_json::Value;

use super::text::text;

/// Named schemas of one document, as URI fragments with a JSON pointer.
#[derive(Debug, Default)]
pub(super) struct NamedSchemas {
    anchors: HashMap<String, String>,
    ids: HashMap<String, String>,
}

/// Approximate maximum length of the way to a named schema, in bytes. Each reference to the name is replaced by the way,
/// which takes more memory than the name.
const WAY_BYTES_MAX: usize = 200;
/// Members whose values are data, not schemas.
const DATA: [&str; 5] = ["example", "examples", "default", "const", "enum"];

/// Typical length of an index in a JSON pointer, in bytes.
const ITEM_BYTES: usize = 3;

enum Step<'v> {
    Member(&'v str),
    Item(usize),
}

impl NamedSchemas {
    pub(super) fn of(document: &Value) -> Self {
        let mut named = Self::default();
        named.find(document, &mut Vec::new(), 0);
        named
    }

    /// `bytes` is the length of the way.
    fn find<'v>(&mut self, value: &'v Value, way: &mut Vec<Step<'v>>, bytes: usize) {
        if WAY_BYTES_MAX < bytes {
            return;
        }
        match value {
            Value::Object(members) => {
                for (keyword, names) in [("$anchor", &mut self.anchors), ("$id", &mut self.ids)] {
                    let name = text(value, keyword);
                    let name = name.strip_suffix('#').unwrap_or(name);
                    if !name.is_empty() {
                        names.entry(name.to_owned()).or_insert_with(|| pointer(way));
                    }
                }
                for (name, value) in members {
                    if !DATA.contains(&name.as_str()) {
                        way.push(Step::Member(name));
                        self.find(value, way, bytes + 1 + name.len());
                        way.pop();
                    }
                }
            }
            Value::Array(items) => {
                for (position, value) in items.iter().enumerate() {
                    way.push(Step::Item(position));
                    self.find(value, way, bytes + ITEM_BYTES);
                    way.pop();
                }
            }
            _ => {}
        }
    }

    /// Returns true if a reference to this document, as written, is to a schema with this `$id`.
    pub(super) fn has_id(&self, document: &str) -> bool {
        self.ids.contains_key(document)
    }

    /// Returns a fragment with a JSON pointer instead of a name. `id` is the document that the reference names; empty for
    /// the one that contains it.
    pub(super) fn resolved(&self, id: &str, fragment: &str) -> String {
        let base = self.ids.get(id).map_or("", String::as_str);
        match self.anchors.get(fragment) {
            Some(pointer) => pointer.clone(),
            None => format!("{base}{fragment}"),
        }
    }
}

fn pointer(way: &[Step<'_>]) -> String {
    let steps = way.iter().map(|step| match step {
        Step::Member(name) => {
            let name = name.replace('~', "~0").replace('/', "~1");
            format!("/{}", name.replace('%', "%25"))
        }
        Step::Item(position) => format!("/{position}"),
    });
    steps.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn anchors_and_ids_become_pointers() {
        let named = NamedSchemas::of(&json!({
            "components": {"schemas": {
                "Cat/50%": {"$anchor": "cat", "example": {"$anchor": "none"}},
                "Dog": {"$id": "https://a.example/dog#", "allOf": [{"$anchor": "tail"}]},
                "Data": {"properties": {"$id": {"type": "string"}}},
            }},
        }));
        assert_eq!(named.resolved("", "cat"), "/components/schemas/Cat~150%25");
        assert_eq!(
            named.resolved("", "tail"),
            "/components/schemas/Dog/allOf/0"
        );
        assert!(named.has_id("https://a.example/dog") && !named.has_id(""));
        let inner = named.resolved("https://a.example/dog", "/allOf/0");
        assert_eq!(inner, "/components/schemas/Dog/allOf/0");
        for other in ["", "/components", "none"] {
            assert_eq!(named.resolved("", other), other);
        }
    }

    #[test]
    fn a_name_at_the_end_of_a_long_way_is_not_replaced() {
        let key = "x".repeat(WAY_BYTES_MAX);
        let named = NamedSchemas::of(&json!({
            "short": {"$anchor": "a"}, key: {"$anchor": "b", "inner": {"$id": "https://a.example/c"}},
        }));
        assert_eq!(named.resolved("", "a"), "/short");
        assert_eq!(named.resolved("", "b"), "b");
        assert!(!named.has_id("https://a.example/c"));
    }
}
