//! Texts in a document.

use serde_json::Value;

/// Returns the names between braces.
pub(super) fn placeholders(path: &str) -> impl Iterator<Item = &str> {
    path.split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}').map(|(name, _)| name))
}

/// Returns a member that is a string, or an empty string.
pub(super) fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}
