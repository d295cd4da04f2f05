//! Errors of items that cannot be served.

use crate::catalog::schema::SchemaError;
use crate::protocol::TemplateError;

/// Error of an item that cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// Two tools of one name.
    #[error("tool {name:?} was added twice; rename one of them")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A name that clients would not accept.
    #[error(
        "tool name {name:?} is not valid: a name has 1 to 128 characters of A-Z, a-z, 0-9, '_', '-' and '.'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A schema that cannot be used.
    #[error("tool {tool:?}: its {which} schema cannot be used")]
    Schema {
        /// The tool.
        tool: String,
        /// `input` or `output`.
        which: &'static str,
        /// Description and position of the error.
        #[source]
        source: SchemaError,
    },
    /// Two resources of one URI.
    #[error("resource {uri:?} was added twice; change one of the URIs")]
    DuplicateResource {
        /// The URI.
        uri: String,
    },
    /// The text is not a valid URI.
    #[error("resource {uri:?}: the URI is not valid, {problem}")]
    Uri {
        /// The invalid text.
        uri: String,
        /// Reason of the error.
        problem: &'static str,
    },
    /// A template that cannot be used.
    #[error("resource {template:?}: the template cannot be used")]
    Template {
        /// The template.
        template: String,
        /// Reason of the error.
        #[source]
        source: TemplateError,
    },
    /// Two templates that match the same URIs.
    #[error("the templates {one:?} and {other:?} match the same URIs; drop one of them")]
    AmbiguousTemplates {
        /// The one that was added first.
        one: String,
        /// The other.
        other: String,
    },
    /// A member of a resource's or a prompt's definition that clients would not accept.
    #[error("{what} {name:?}: {problem}")]
    Definition {
        /// `resource`, `prompt`, `tool` or `extension`.
        what: &'static str,
        /// Its URI or name.
        name: String,
        /// Reason of the error.
        problem: String,
    },
    /// Two prompts of one name.
    #[error("prompt {name:?} was added twice; rename one of them")]
    DuplicatePrompt {
        /// The name.
        name: String,
    },
}
