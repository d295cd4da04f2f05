//! Output schemas of tools without code, and the check of results against them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;

use crate::catalog::schema::{Compiled, SchemaError};
use crate::catalog::{Output, OutputContent};
use crate::protocol::Content;

/// A configured output schema for responses that another server produces.
#[derive(Debug)]
pub(super) struct OutputContract {
    schema: Compiled,
    tool: Box<str>,
    mismatches: Mismatches,
    /// True once this tool's mismatches have been logged.
    is_told: AtomicBool,
}

/// Counter of a source's results that did not conform to their output schemas.
#[derive(Clone, Debug, Default)]
pub(super) struct Mismatches(Arc<AtomicU64>);

impl From<Arc<AtomicU64>> for Mismatches {
    fn from(count: Arc<AtomicU64>) -> Self {
        Self(count)
    }
}

impl Mismatches {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl OutputContract {
    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// Describes the problem with the schema.
    pub(super) fn new(
        schema: &Value,
        tool: &str,
        mismatches: &Mismatches,
    ) -> Result<Self, SchemaError> {
        Ok(Self {
            schema: Compiled::output(schema)?,
            tool: tool.into(),
            mismatches: mismatches.clone(),
            is_told: AtomicBool::new(false),
        })
    }

    /// Compiles the output schema of a configured tool, if there is one.
    ///
    /// # Errors
    ///
    /// Names the setting, and the problem with the schema.
    pub(super) fn configured(
        schema: Option<&Value>,
        tool: &str,
        mismatches: &Mismatches,
    ) -> Result<Option<Self>, String> {
        let contract = schema.map(|schema| Self::new(schema, tool, mismatches));
        let contract = contract.transpose();
        contract.map_err(|problem| format!("output_schema: {problem}"))
    }

    /// Checks a result if there is an output schema.
    pub(super) fn kept(promise: Option<&Self>, output: Output) -> Output {
        match promise {
            Some(promise) => promise.keep(output),
            None => output,
        }
    }

    /// Returns the result if it conforms to the schema (TOOL-06), else an error that contains all of it. The call has
    /// been made, and its response may be what the caller needs.
    fn keep(&self, output: Output) -> Output {
        if output.is_error {
            return output;
        }
        let problem = match &output.structured {
            None => "it is not a JSON object".to_owned(),
            Some(text) => match serde_json::from_str(text) {
                Ok(value) => match self.schema.check(&value) {
                    Ok(()) => return output,
                    Err(problem) => problem.to_string(),
                },
                Err(problem) => problem.to_string(),
            },
        };
        self.mismatches.0.fetch_add(1, Ordering::Relaxed);
        // Only the caller sees the details, because they quote the result.
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                name = self.tool,
                "a result does not conform to the tool's output schema and is returned as an error; logged once for each tool"
            );
        }
        let reported = format!(
            "The call was executed, but the response does not match the tool's output schema ({problem}). The response:"
        );
        let answer = match (output.content, output.structured) {
            (OutputContent::Text(text), _) | (OutputContent::Structured, Some(text)) => {
                vec![Content::text(text)]
            }
            (OutputContent::Structured, None) => Vec::new(),
            (OutputContent::Blocks(blocks), _) => blocks,
        };
        let reported = std::iter::once(Content::text(reported));
        Output::blocks(reported.chain(answer).collect::<Vec<_>>()).into_error()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tool_06_what_does_not_fit_is_an_error_with_all_of_it() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let mismatches = Mismatches::default();
        let promise = OutputContract::new(&schema, "t", &mismatches).expect("sound");
        let kept = Output::structured(&json!({"a": 1})).expect("JSON");
        assert_eq!(promise.keep(kept.clone()), kept);
        let wrong = Output::structured(&json!({"a": "x"})).expect("JSON");
        for (output, problem, answer) in [
            (wrong, "`a`: \"x\" is not an integer", r#"{"a":"x"}"#),
            (Output::text("plain"), "it is not a JSON object", "plain"),
        ] {
            let reported = promise.keep(output);
            assert!(reported.is_error && reported.structured.is_none());
            let OutputContent::Blocks(blocks) = &reported.content else {
                panic!("{reported:?}");
            };
            let text = format!("{blocks:?}");
            assert!(
                text.contains(&format!("({})", problem.replace('"', "\\\""))),
                "{text}"
            );
            assert_eq!(blocks[1], Content::text(answer));
        }
        let picture = Output::blocks([Content::image(b"x", "image/png")]);
        assert!(format!("{:?}", promise.keep(picture)).contains("image/png"));
        assert_eq!(mismatches.count(), 3);
    }
}
