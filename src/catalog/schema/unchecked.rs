//! Builds without the feature `validation`: a schema that says no more than a Rust type needs no check beside
//! deserialising, and every other one is refused.

use serde_json::Value;

use super::{SchemaError, SchemaProblem};
use crate::catalog::InvalidArguments;

/// There is none.
#[derive(Debug)]
pub enum Compiled {}

impl Compiled {
    /// Refuses the schema of a tool's arguments.
    ///
    /// # Errors
    ///
    /// Always, and names the feature.
    pub fn input(schema: &Value) -> Result<Self, SchemaError> {
        Self::output(schema)
    }

    /// Refuses the schema of a tool's structured results.
    ///
    /// # Errors
    ///
    /// Always, and names the feature.
    pub fn output(_: &Value) -> Result<Self, SchemaError> {
        Err(SchemaError::at("", SchemaProblem::NotBuilt))
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
