//! Test helpers shared by several kinds of sources.

use std::sync::Arc;

use serde_json::Value;

use crate::catalog::{CallContext, Output, OutputContent, Tool};

/// Calls a tool, and returns its output or the error that the model would read.
pub(super) async fn call(tool: &Arc<dyn Tool>, arguments: Value) -> Result<Output, String> {
    let Value::Object(arguments) = arguments else {
        panic!("an object")
    };
    tool.call(Arc::new(CallContext::for_test()), arguments.into())
        .await
        .map_err(|error| error.message().to_owned())
}

/// Returns the text of a text result.
pub(super) fn text(output: &Output) -> &str {
    match &output.content {
        OutputContent::Text(text) => text,
        other => panic!("{other:?}"),
    }
}
