//! JSON Schemas, compiled and validated against (feature `validation`).

use std::sync::OnceLock;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use super::cost::{Bound, COMPARISONS_MAX, Graph};
use super::survey::Patterns;
use super::{SchemaError, SchemaProblem, check_is_of_object, explain, omit_nulls, plain, survey};
use crate::catalog::InvalidArguments;

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
    /// Bound of the comparisons with a value.
    bound: Bound,
    /// Counts the comparisons with a value, where they could be too many.
    graph: OnceLock<Option<Graph>>,
}

impl Compiled {
    /// Compiles the schema of a tool's arguments.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the schema, where, and what to do.
    pub fn input(schema: &Value) -> Result<Self, SchemaError> {
        check_is_of_object(schema)?;
        Self::output(schema)
    }

    /// Compiles the schema of a tool's structured results, whose root may have any type.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the schema, where, and what to do.
    pub fn output(schema: &Value) -> Result<Self, SchemaError> {
        let (dialect, is_plain, bound) = check(schema, Patterns::Compiled)?;
        if !is_plain {
            // The validator's own compilation finds the remaining errors.
            options(dialect)
                .build(schema)
                .map_err(|invalid| SchemaError::invalid(&invalid))?;
        }
        Ok(Self {
            schema: schema.clone(),
            dialect,
            validator: OnceLock::new(),
            bound,
            graph: OnceLock::new(),
        })
    }

    /// Validates a value.
    ///
    /// # Errors
    ///
    /// Names the first few places that are wrong, and what was expected there:
    /// `` `place.latitude`: 123 is greater than the maximum of 90; `unit`: "kelvin" is not one of "celsius",
    /// "fahrenheit" ``.
    pub fn check(&self, value: &Value) -> Result<(), InvalidArguments> {
        if self.bound.could_exceed(value) {
            self.check_cost(value)?;
        }
        let validator = self
            .validator
            .get_or_init(|| options(self.dialect).build(&self.schema).ok());
        match validator {
            Some(validator) if validator.is_valid(value) => Ok(()),
            Some(_) => Err(InvalidArguments::new(explain::explain(&self.schema, value))),
            // Compilation has succeeded before. If it fails now, no value is accepted.
            None => Err(InvalidArguments::new(
                "the schema of this tool cannot be checked against",
            )),
        }
    }

    /// Validates a value, from which optional members are removed that are null although the schema does not allow that. Returns
    /// true if there were any.
    pub(crate) fn check_and_omit_nulls(&self, value: &mut Value) -> Result<bool, InvalidArguments> {
        let Err(invalid) = self.check(value) else {
            return Ok(false);
        };
        if !omit_nulls(&self.schema, value) {
            return Err(invalid);
        }
        self.check(value).map(|()| true)
    }

    /// Rejects a value that takes too long to validate, since validation cannot be interrupted.
    #[cold]
    fn check_cost(&self, value: &Value) -> Result<(), InvalidArguments> {
        let graph = self
            .graph
            .get_or_init(|| survey::graph(self.dialect, &self.schema));
        if graph.as_ref().is_some_and(|graph| graph.permits(value)) {
            return Ok(());
        }
        Err(InvalidArguments::new(format!(
            "the schema takes more than {COMPARISONS_MAX} comparisons for this value; use fewer values, fewer levels or shorter strings"
        )))
    }
}

/// Checks a schema that clients see and this server does not validate against. Its patterns can have what the engine of
/// this server lacks, such as look-around.
///
/// # Errors
///
/// Says what is wrong with the schema, where, and what to do.
#[doc(hidden)]
pub fn check_shown(schema: &Value) -> Result<(), SchemaError> {
    check(schema, Patterns::Ignored).map(drop)
}

/// Returns the dialect of a schema, true if nothing else of it needs to be checked, and the bound of the comparisons with a
/// value.
fn check(schema: &Value, patterns: Patterns) -> Result<(Draft, bool, Bound), SchemaError> {
    let dialect = dialect(schema)?;
    survey::check_size(schema)?;
    let is_plain = dialect == Draft::Draft202012 && plain::is_plainly_valid(schema);
    if !is_plain {
        check_validity(dialect, schema)?;
    }
    let bound = survey::check_references(dialect, schema, patterns)?;
    Ok((dialect, is_plain, bound))
}

impl SchemaError {
    fn invalid(error: &jsonschema::ValidationError<'_>) -> Self {
        Self::at(
            error.instance_path().as_str(),
            SchemaProblem::Invalid(error.to_string()),
        )
    }
}

/// Maximum size of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

pub(super) fn options(dialect: Draft) -> jsonschema::ValidationOptions<'static> {
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

pub(super) fn dialect(schema: &Value) -> Result<Draft, SchemaError> {
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
