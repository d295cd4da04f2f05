//! JSON Schemas: checked for soundness at registration, and used to validate each call.
//!
//! [`Compiled::input`] and [`Compiled::output`] accept a schema that is valid in its dialect, resolves within
//! itself, and is bounded: how deep it goes, how many subschemas it has, how many of them can apply to one
//! value, and how long its patterns run. [`Compiled::check`] then says what is wrong with arguments, in words
//! for a model. Nothing is ever fetched: not a `$ref`, not a `$schema`.
//!
//! # Dialects
//!
//! 2020-12 where the schema does not say otherwise; 2019-09 and drafts 7, 6 and 4 where it does. Any other
//! `$schema` is refused. `format` is an annotation in all of them, as 2020-12 has it.
//!
//! # Limits
//!
//! | what | at most |
//! |---|---|
//! | subschemas within subschemas | 64 |
//! | subschemas | 10,000 |
//! | subschemas that apply to one and the same value, references followed | 10,000 |
//! | references and combinations, one within the other, that apply to one and the same value | 32 |
//! | a compiled pattern | 1 MiB, in an engine that takes linear time |
//! | comparisons of one value with subschemas, in a call | 5,000,000 |

use serde_json::{Map, Value};

#[cfg_attr(not(feature = "validation"), path = "schema/absent.rs")]
mod compiled;
#[cfg(feature = "validation")]
mod cost;
#[cfg(feature = "validation")]
mod explain;
mod formats;
mod generate;
mod inlined;
mod listed;
mod mirrored;
mod nulls;
#[cfg(feature = "validation")]
mod plain;
mod portable_pattern;
mod sameness;
#[cfg(feature = "validation")]
mod survey;
mod type_lists;
mod variants;

pub use compiled::{Compiled, check_shown};
#[cfg(feature = "validation")]
use compiled::{dialect, options};
pub use formats::{without_number_formats, without_rust_formats};
pub use generate::{inline, of_arguments, of_output, without_null};
pub use listed::{allow_other_members, listed_input, listed_output};
pub use mirrored::{HeaderParameter, ParameterKind, header_parameters};
pub use nulls::{null_for_number, omit_nulls, requires_number};
pub use sameness::says_no_more_than_type;

/// Error of a rejected schema, with its position: a JSON pointer in fragment form, `#/properties/unit`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pointer}`: {problem}")]
pub struct SchemaError {
    pointer: String,
    problem: SchemaProblem,
}

/// Kind of schema error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaProblem {
    /// The arguments of a tool are an object.
    #[error("the root of an input schema must have `\"type\": \"object\"`")]
    NotObject,
    /// A schema is an object, `true` or `false`.
    #[error("a schema is an object, `true` or `false`")]
    NotSchema,
    /// `$schema` names something else than one of the dialects.
    #[error("the dialect {0:?} is not supported; use 2020-12, which needs no `$schema`")]
    Dialect(String),
    /// The schema is not valid in its dialect.
    #[error("not a valid schema: {0}")]
    Invalid(String),
    /// A reference that leads out of the schema.
    #[error("{0:?} is not part of this schema, and is not fetched; copy its target into `$defs`")]
    Remote(String),
    /// A reference into this schema that leads nowhere.
    #[error("{0:?} leads nowhere in this schema")]
    Unresolved(String),
    /// A reference loop that consumes no part of the value.
    #[error("this reference leads back to itself without a constraint")]
    Endless,
    /// A size limit was exceeded.
    #[error("more than {limit} {what}; split the tool, or make its arguments simpler")]
    TooLarge {
        /// Value of the limit.
        limit: usize,
        /// Counted quantity.
        what: &'static str,
    },
    /// A pattern that cannot be compiled, or not within the limits.
    #[error(
        "the pattern {0:?} cannot be used: patterns run in linear time, without look-around and \
         back-references, and must not be huge"
    )]
    Pattern(String),
    /// The schema is stricter than a Rust type, and this build has no validator.
    #[error(
        "the schema requires the feature `validation`, which this build does not have; enable the feature, or remove \
         what it is needed for: ranges, lengths and patterns, enums with data, flattened structs, sets, arrays, `char`, \
         `NonZero` types, and maps whose keys are not strings"
    )]
    NotBuilt,
    /// An `x-mcp-header` that breaks a rule.
    #[error("x-mcp-header: {0}")]
    Header(String),
}

/// Returns true if a schema's root has the type `object`, as arguments require (TOOL-08).
pub(crate) fn check_is_of_object(schema: &Value) -> Result<(), SchemaError> {
    match schema.get("type") {
        Some(kind) if kind == "object" => Ok(()),
        _ => Err(SchemaError::at("", SchemaProblem::NotObject)),
    }
}

impl SchemaError {
    fn at(pointer: &str, problem: SchemaProblem) -> Self {
        Self {
            pointer: format!("#{pointer}"),
            problem,
        }
    }

    /// Returns the position of the error.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Returns the kind of the error.
    pub fn problem(&self) -> &SchemaProblem {
        &self.problem
    }
}

/// Returns the items of an array, or the members of an object.
fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let members = value.as_object().into_iter().flat_map(Map::values);
    value.as_array().into_iter().flatten().chain(members)
}

/// Returns true if the value of a keyword is data, and not a schema.
fn is_data(keyword: &str) -> bool {
    matches!(keyword, "const" | "enum" | "default" | "examples")
}

/// Adds a step to a JSON pointer.
fn push(pointer: &mut String, step: &str) {
    pointer.push('/');
    for c in step.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

#[cfg(all(test, feature = "validation"))]
mod tests;
