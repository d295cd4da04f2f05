//! Stand-in for builds without the feature `validation`. Deserialising checks a schema that says no more than a Rust type;
//! every other schema is rejected.

use serde_json::Value;

use super::{SchemaError, SchemaProblem};
use crate::catalog::InvalidArguments;

/// Accepts a schema that this server does not validate against.
///
/// # Errors
///
/// Never.
#[doc(hidden)]
pub fn check_shown(_: &Value) -> Result<(), SchemaError> {
    Ok(())
}

/// Uninhabited: this build does not validate.
#[derive(Debug)]
pub enum Compiled {}

impl Compiled {
    /// Rejects the schema of a tool's arguments.
    ///
    /// # Errors
    ///
    /// Always; the error names the feature.
    pub fn input(schema: &Value) -> Result<Self, SchemaError> {
        Self::output(schema)
    }

    /// Rejects the schema of a tool's structured results.
    ///
    /// # Errors
    ///
    /// Always; the error names the feature.
    pub fn output(_: &Value) -> Result<Self, SchemaError> {
        Err(SchemaError::at("", SchemaProblem::NotBuilt))
    }

    /// Checks a value, and removes nulls.
    pub(crate) fn check_and_omit_nulls(&self, _: &mut Value) -> Result<bool, InvalidArguments> {
        match *self {}
    }

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// Never: there is no schema to check against.
    pub fn check(&self, _: &Value) -> Result<(), InvalidArguments> {
        match *self {}
    }
}
