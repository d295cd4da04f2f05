//! Extensions of the protocol that a server announces.

use serde_json::{Map, Value, json};

use super::{Catalog, CatalogError, TaskSupport, skill, view};
use crate::protocol::Revision;

/// Extensions that the application declares, by identifier.
#[derive(Debug, Default)]
pub struct Extensions(Map<String, Value>);

impl Extensions {
    /// Adds one (EXT-01).
    pub fn add(&mut self, name: String, settings: Value) -> Result<(), CatalogError> {
        let fault = |problem: &str| {
            Err(CatalogError::Definition {
                what: "extension",
                name: name.clone(),
                problem: problem.to_owned(),
            })
        };
        if !is_identifier(&name) {
            return fault("an identifier has a prefix and a name, such as com.example/billing");
        }
        if !settings.is_object() {
            return fault("its settings must be an object; use {} if there are none");
        }
        if self.0.contains_key(&name) {
            return fault("it was added twice");
        }
        self.0.insert(name, settings);
        Ok(())
    }
}

/// Identifier of the extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

impl Catalog {
    /// True if calls of any tool may outlive their request.
    pub fn has_tasks(&self) -> bool {
        let mut tools = self.tools.iter();
        tools.any(|entry| entry.tool.definition().task != TaskSupport::Forbidden)
    }

    /// Extensions that clients of a revision see: those added explicitly, and those that the catalog's items belong to.
    pub fn extensions(&self, revision: Revision) -> Map<String, Value> {
        let mut extensions = self.extensions.0.clone();
        let has_views = self
            .tools
            .iter()
            .any(|entry| entry.tool.definition().meta.contains_key("ui"));
        if has_views {
            extensions
                .entry(view::EXTENSION)
                .or_insert_with(|| json!({}));
        }
        // VER-07: in 2025-11-25 it means nothing.
        if self.has_tasks() && !revision.has_sessions() {
            extensions.insert(TASKS.to_owned(), json!({}));
        }
        // Its methods are those of the stateless lifecycle alone.
        if self.skills.len() > 0 && !revision.has_sessions() {
            extensions.insert(skill::EXTENSION.to_owned(), json!({"directoryRead": true}));
        }
        extensions
    }
}

/// A prefix of labels with dots between them, a slash, and a name.
fn is_identifier(text: &str) -> bool {
    let is_word = |word: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        word.bytes().all(inner)
            && word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    text.split_once('/').is_some_and(|(prefix, name)| {
        prefix
            .split('.')
            .all(|label| !label.contains('_') && is_word(label))
            && is_word(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ext_01_identifiers_have_a_prefix() {
        for good in [
            "com.example/billing",
            "example/x-1.2_a",
            "io.modelcontextprotocol/ui",
        ] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in [
            "billing", "/x", "x/", "a..b/x", ".a/x", "a/x/y", "a b/x", "a/-x", "a_b/x",
        ] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }
}
