//! Entries of a catalog with their precomputed parts.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::Value;

use super::super::table::ListItem;
use super::CatalogError;
use crate::catalog::elicit::names_a_secret;
use crate::catalog::schema::{
    self, Compiled, HeaderParameter, SchemaError, says_no_more_than_type,
};
use crate::catalog::{
    Arguments, InvalidArguments, Output, Prompt, Resource, ResourceTemplate, Tool,
};
use crate::protocol::UriTemplate;
use crate::telemetry::{OperationId, secret_properties};

/// A tool with the parts computed once from its definition.
pub struct CatalogTool {
    pub tool: Arc<dyn Tool>,
    /// Arguments that HTTP headers mirror.
    pub header_parameters: Vec<HeaderParameter>,
    /// `None` where the tool checks its arguments itself.
    input: Option<Compiled>,
    output: OutputCheck,
    /// Counter of its calls.
    pub operation: OperationId,
    /// A result of it was large.
    is_large: AtomicBool,
}

/// Check of structured results.
enum OutputCheck {
    None,
    /// The type of the result cannot contradict the schema, unless a number is NaN or infinite.
    Numbers,
    Schema(Box<Compiled>),
}

/// A structured result that clients must not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputProblem {
    /// NaN or infinity, which JSON does not have, at a path; empty for the result itself.
    NotFinite(String),
    /// It does not match the output schema.
    Misfit(String),
}

/// A resource at one URI.
pub struct CatalogResource {
    pub resource: Arc<dyn Resource>,
}

/// Resources of one shape.
pub struct CatalogTemplate {
    pub template: Arc<dyn ResourceTemplate>,
    pub uri: UriTemplate,
}

/// A prompt.
pub struct CatalogPrompt {
    pub prompt: Arc<dyn Prompt>,
    /// Counter of its uses.
    pub operation: OperationId,
}

/// Checks a schema that is not used for validation.
fn check_shown(schema: &Value) -> Result<(), SchemaError> {
    match says_no_more_than_type(schema) {
        true => Ok(()),
        false => schema::check_shown(schema),
    }
}

impl CatalogTool {
    pub(super) fn new(tool: Arc<dyn Tool>) -> Result<Self, CatalogError> {
        let definition = tool.definition();
        let failed = |which| {
            let tool = definition.name.clone();
            move |source| CatalogError::Schema {
                tool,
                which,
                source,
            }
        };
        schema::check_is_of_object(&definition.input_schema).map_err(failed("input"))?;
        let input = match tool.validates_arguments() {
            true => {
                check_shown(&definition.input_schema).map_err(failed("input"))?;
                None
            }
            false => Some(Compiled::input(&definition.input_schema).map_err(failed("input"))?),
        };
        let header_parameters =
            schema::header_parameters(&definition.input_schema).map_err(failed("input"))?;
        let output = match &definition.output_schema {
            Some(schema) if tool.checks_output() => {
                check_shown(schema).map_err(failed("output"))?;
                match definition.returns_numbers {
                    true => OutputCheck::Numbers,
                    false => OutputCheck::None,
                }
            }
            Some(schema) => OutputCheck::Schema(Box::new(
                Compiled::output(schema).map_err(failed("output"))?,
            )),
            None => OutputCheck::None,
        };
        Ok(Self {
            input,
            output,
            header_parameters,
            operation: OperationId::OTHER,
            tool,
            is_large: AtomicBool::new(false),
        })
    }

    /// Returns an argument that is named or marked as a secret although headers mirror it, if there is one (MH-20).
    pub(super) fn mirrored_secret(&self) -> Option<&str> {
        let mut marked = BTreeSet::new();
        if !self.header_parameters.is_empty() {
            secret_properties(&self.tool.definition().input_schema, &mut marked);
        }
        let mirrored = self.header_parameters.iter();
        let mut names = mirrored.filter_map(|parameter| Some(&**parameter.path.last()?));
        names.find(|name| marked.contains(*name) || names_a_secret(name))
    }

    /// Returns true if a result of it was so large that its memory counts.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.is_large.load(Relaxed)
    }

    /// Notes that it has large results.
    pub fn has_large_results(&self) {
        if !self.is_large() {
            self.is_large.store(true, Relaxed);
        }
    }

    /// Checks arguments against the input schema, unless the tool does so itself. What had to become a tree
    /// for it stays one, unless its numbers are more precise in the text. An optional argument that is null is left out, if
    /// the schema does not allow null.
    pub fn check(&self, arguments: Arguments) -> Result<Arguments, InvalidArguments> {
        let Some(schema) = &self.input else {
            return Ok(arguments);
        };
        let mut tree = Value::Object(arguments.to_map()?);
        let is_exact = !arguments.may_have_long_numbers();
        let has_nulls = schema.check_and_omit_nulls(&mut tree)?;
        Ok(match tree {
            Value::Object(object) if is_exact => Arguments::from(object),
            tree if has_nulls => arguments.limited_to(&tree),
            _ => arguments,
        })
    }

    /// Checks a structured result against the output schema, unless it says that the tool failed. Of a result whose type
    /// vouches for it, only nulls are checked.
    #[inline]
    pub fn check_output(&self, output: &Output) -> Result<(), OutputProblem> {
        match &self.output {
            OutputCheck::None => Ok(()),
            _ if output.is_error => Ok(()),
            OutputCheck::Numbers => match &output.structured {
                Some(structured) if structured.contains("null") => self.check_numbers(structured),
                _ => Ok(()),
            },
            OutputCheck::Schema(schema) => {
                check_against(schema, output.structured.as_deref()).map_err(OutputProblem::Misfit)
            }
        }
    }

    /// Rejects null where the type of the result has a number.
    #[cold]
    fn check_numbers(&self, structured: &str) -> Result<(), OutputProblem> {
        let schema = self.tool.definition().output_schema.as_ref();
        let tree = serde_json::from_str(structured).unwrap_or_default();
        match schema.and_then(|schema| schema::null_for_number(schema, &tree)) {
            Some(path) => Err(OutputProblem::NotFinite(path)),
            None => Ok(()),
        }
    }
}

fn check_against(schema: &Compiled, structured: Option<&str>) -> Result<(), String> {
    let Some(structured) = structured else {
        return Err("it declares an output schema, but its result is not structured".to_owned());
    };
    let tree: Value = serde_json::from_str(structured).map_err(|e| e.to_string())?;
    schema.check(&tree).map_err(|e| e.to_string())
}

/// Shows entries by their keys.
macro_rules! debug_by_key {
    ($($entry:ident)*) => {$(
        impl fmt::Debug for $entry {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($entry)).field(&self.key()).finish()
            }
        }
    )*};
}

debug_by_key! { CatalogTool CatalogResource CatalogTemplate CatalogPrompt }
