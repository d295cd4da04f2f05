//! JSON Schemas: refused when a tool is registered if they are unsound, and checked against once a call.
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

use std::sync::OnceLock;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::catalog::InvalidArguments;

mod explain;
mod formats;
mod generate;
mod mirrored;
mod plain;
mod sameness;
mod survey;
mod variants;

pub(crate) use formats::{without_number_formats, without_rust_formats};
pub(super) use generate::{inline, of_arguments, of_output, without_null};
pub use mirrored::{HeaderParameter, ParameterKind, header_parameters};
pub use sameness::says_no_more_than_type;

/// A schema that has been found sound.
///
/// That it compiles is made sure of at once: by looking at it where it has only ordinary words, and else by compiling
/// it. The validator is kept only from the first check on: it is large, and most tools check their arguments by
/// deserialising.
#[derive(Debug)]
pub struct Compiled {
    schema: Value,
    dialect: Draft,
    validator: OnceLock<Option<Validator>>,
}

/// Why a schema was refused, and where in it: a JSON pointer in fragment form, `#/properties/unit`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pointer}`: {problem}")]
pub struct SchemaError {
    pointer: String,
    problem: SchemaProblem,
}

/// What is wrong with a schema.
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
    #[error("there is no support for the dialect {0:?}; use 2020-12, which needs no `$schema`")]
    Dialect(String),
    /// It is not valid in its dialect.
    #[error("not a valid schema: {0}")]
    Invalid(String),
    /// A reference that leads out of the schema.
    #[error(
        "{0:?} is not part of this schema, and nothing is fetched; copy its target into `$defs`"
    )]
    Remote(String),
    /// A reference into this schema that leads nowhere.
    #[error("{0:?} leads nowhere in this schema")]
    Unresolved(String),
    /// A reference that comes back to itself without having looked at a part of the value.
    #[error("this reference comes back to itself, and checks nothing")]
    Endless,
    /// One of the limits on size.
    #[error("more than {limit} {what}; split the tool, or make its arguments simpler")]
    TooLarge {
        /// How many there may be.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
    /// A pattern that cannot be compiled, or not within the limits.
    #[error(
        "the pattern {0:?} cannot be used: patterns run in linear time, without look-around and \
         back-references, and must not be huge"
    )]
    Pattern(String),
    /// An `x-mcp-header` that breaks a rule.
    #[error("x-mcp-header: {0}")]
    Header(String),
}

/// Whether a schema's root says that it is an object's, as that of arguments has to (TOOL-08).
pub(crate) fn check_is_of_object(schema: &Value) -> Result<(), SchemaError> {
    match schema.get("type") {
        Some(kind) if kind == "object" => Ok(()),
        _ => Err(SchemaError::at("", SchemaProblem::NotObject)),
    }
}

impl Compiled {
    /// Checks the schema of a tool's arguments.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the schema, where, and what to do.
    pub fn input(schema: &Value) -> Result<Self, SchemaError> {
        check_is_of_object(schema)?;
        Self::output(schema)
    }

    /// Checks the schema of a tool's structured results, whose root may be of any type.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the schema, where, and what to do.
    pub fn output(schema: &Value) -> Result<Self, SchemaError> {
        let dialect = dialect(schema)?;
        survey::check_size(schema)?;
        let is_plain = dialect == Draft::Draft202012 && plain::is_plainly_valid(schema);
        if !is_plain {
            check_validity(dialect, schema)?;
        }
        survey::check_references(dialect, schema)?;
        if !is_plain {
            // What is not found out above is found out here.
            options(dialect)
                .build(schema)
                .map_err(|invalid| SchemaError::invalid(&invalid))?;
        }
        Ok(Self {
            schema: schema.clone(),
            dialect,
            validator: OnceLock::new(),
        })
    }

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// Names the first few places that are wrong, and what was expected there:
    /// `` `place.latitude`: 123 is greater than the maximum of 90; `unit`: "kelvin" is not one of "celsius",
    /// "fahrenheit" ``.
    pub fn check(&self, value: &Value) -> Result<(), InvalidArguments> {
        let validator = self
            .validator
            .get_or_init(|| options(self.dialect).build(&self.schema).ok());
        match validator {
            Some(validator) if validator.is_valid(value) => Ok(()),
            Some(_) => Err(InvalidArguments::new(explain::explain(&self.schema, value))),
            // It compiled before. If it does not now, nothing passes.
            None => Err(InvalidArguments::new(
                "the schema of this tool cannot be checked against",
            )),
        }
    }
}

impl SchemaError {
    fn at(pointer: &str, problem: SchemaProblem) -> Self {
        Self {
            pointer: format!("#{pointer}"),
            problem,
        }
    }

    fn invalid(error: &jsonschema::ValidationError<'_>) -> Self {
        Self::at(
            error.instance_path().as_str(),
            SchemaProblem::Invalid(error.to_string()),
        )
    }

    /// Where it is.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// What it is.
    pub fn problem(&self) -> &SchemaProblem {
        &self.problem
    }
}

/// How large a compiled pattern may be.
const PATTERN_BYTES: usize = 1 << 20;

fn options(dialect: Draft) -> jsonschema::ValidationOptions<'static> {
    jsonschema::options()
        .with_draft(dialect)
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(
            PatternOptions::regex()
                .size_limit(PATTERN_BYTES)
                .dfa_size_limit(PATTERN_BYTES),
        )
}

fn dialect(schema: &Value) -> Result<Draft, SchemaError> {
    let Some(uri) = schema.get("$schema") else {
        return Ok(Draft::Draft202012);
    };
    let refuse = || {
        let uri = uri.as_str().map_or_else(|| uri.to_string(), str::to_owned);
        SchemaError::at("/$schema", SchemaProblem::Dialect(uri))
    };
    match Draft::from_schema_uri(uri.as_str().ok_or_else(refuse)?) {
        Draft::Unknown => Err(refuse()),
        known => Ok(known),
    }
}

/// Against the meta-schema of its dialect.
fn check_validity(dialect: Draft, schema: &Value) -> Result<(), SchemaError> {
    use jsonschema::{draft4, draft6, draft7, draft201909, draft202012};
    let checked = match dialect {
        Draft::Draft4 => draft4::meta::validate(schema),
        Draft::Draft6 => draft6::meta::validate(schema),
        Draft::Draft7 => draft7::meta::validate(schema),
        Draft::Draft201909 => draft201909::meta::validate(schema),
        _ => draft202012::meta::validate(schema),
    };
    checked.map_err(|invalid| SchemaError::invalid(&invalid))
}

#[cfg(test)]
mod tests;
