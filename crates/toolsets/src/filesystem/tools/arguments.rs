//! Arguments and results of the tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::edit::OneEdit;
use crate::catalog::{IntoOutput, Output, ToolError};
use crate::protocol::Content;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadText {
    /// The file.
    pub(super) path: String,
    /// Return only this number of lines from the end.
    pub(super) tail: Option<usize>,
    /// Return only this number of lines from the beginning.
    pub(super) head: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AtPath {
    /// The file or directory.
    pub(super) path: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadMany {
    /// The files.
    #[schemars(length(min = 1, max = 1000))]
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Write {
    /// The file, which can exist already.
    pub(super) path: String,
    /// The whole new content.
    pub(super) content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    /// The file.
    pub(super) path: String,
    /// The edits, applied one after the other.
    pub(super) edits: Vec<OneEdit>,
    /// Only show the changes, without making them.
    #[serde(default, rename = "dryRun")]
    pub(super) dry_run: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SortBy {
    #[default]
    Name,
    Size,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListWithSizes {
    /// The directory.
    pub(super) path: String,
    /// Sort by name, or by size with the largest first.
    #[serde(default, rename = "sortBy")]
    pub(super) sort_by: SortBy,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TreeOf {
    /// The directory.
    pub(super) path: String,
    /// Names to exclude, or patterns of paths below the directory.
    #[serde(default, rename = "excludePatterns")]
    pub(super) exclude_patterns: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// The directory to search.
    pub(super) path: String,
    /// Pattern for paths below it: `*.txt` matches files in the directory, `**/*.txt` also those below it.
    pub(super) pattern: String,
    /// Patterns of paths to exclude.
    #[serde(default, rename = "excludePatterns")]
    pub(super) exclude_patterns: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    /// The path to move.
    pub(super) source: String,
    /// The new path, which must not exist.
    pub(super) destination: String,
}

/// A text that clients also get as the member `content` of the structured result.
pub(super) struct ContentText(pub(super) String);

impl IntoOutput for ContentText {
    fn into_output(self) -> Result<Output, ToolError> {
        #[derive(Serialize)]
        struct Same<'t> {
            content: &'t str,
        }
        let output = Output::structured(&Same { content: &self.0 })?;
        Ok(output.with_content([Content::text(self.0)]))
    }

    fn output_schema() -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": { "content": { "type": "string" } },
            "required": ["content"],
        }))
    }
}
