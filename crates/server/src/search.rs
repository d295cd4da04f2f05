//! Tool search: three tools that find, describe and call the others.
//!
//! A list of hundreds of tools uses much of a model's context. Above a threshold, the list contains only these three.
//! The others still exist and can be called by name.

mod ranking;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::listings::Listings;
use crate::catalog::{BuiltinTool, Definition, Table};
use crate::protocol::ToolAnnotations;
use ranking::Index;

/// Listing many tools by way of a search.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-reload" = "live"))]
pub struct SearchConfig {
    /// Number of tools above which a caller's list has `search_tools`, `describe_tool` and `call_tool` instead. If
    /// unset, all tools are listed.
    pub above: Option<usize>,
    /// Maximum number of results of a search that does not set its own.
    pub results: usize,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self {
            above: None,
            results: 10,
        }
    }
}

pub(super) const SEARCH: &str = "search_tools";
pub(super) const DESCRIBE: &str = "describe_tool";
pub(super) const CALL: &str = "call_tool";

/// Names reserved for the search tools.
pub const VERBS: [&str; 3] = [SEARCH, DESCRIBE, CALL];

/// Maximum number of results of one search.
pub(super) const RESULTS_MAX: usize = 50;

/// Search index of the tools, with the definitions of the search tools.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) config: SearchConfig,
    pub(super) above: usize,
    index: Index,
    pub(super) verbs: Table<BuiltinTool>,
    pub(super) listings: Listings,
}

/// Target and arguments of a call through `call_tool`. Returns `None` for other calls.
pub(super) fn called_tool<'r>(
    name: &str,
    arguments: Option<&'r str>,
) -> Option<(Cow<'r, str>, Option<&'r str>)> {
    if name != CALL {
        return None;
    }
    let called: CallArguments<'r> = serde_json::from_str(arguments?).ok()?;
    Some((called.name, called.arguments.map(RawValue::get)))
}

impl Search {
    /// Positions of the tools that match a query, best first.
    pub(super) fn find(&self, query: &str) -> Vec<usize> {
        self.index.find(query)
    }

    /// Returns `None` if no caller has enough tools for a search.
    pub(super) fn new<'d>(
        config: &SearchConfig,
        definitions: impl ExactSizeIterator<Item = &'d Definition>,
    ) -> Option<Self> {
        let above = config.above?;
        if definitions.len() <= above {
            return None;
        }
        let mut verbs = Table::default();
        for verb in verbs_of(config) {
            // The names are distinct, so adding cannot fail.
            let _ = verbs.add(BuiltinTool(verb));
        }
        Some(Self {
            config: config.clone(),
            above,
            index: Index::new(definitions),
            verbs,
            listings: Listings::default(),
        })
    }
}

fn verbs_of(config: &SearchConfig) -> [Definition; 3] {
    let mut reads = ToolAnnotations::default();
    reads.read_only_hint = Some(true);
    reads.open_world_hint = Some(false);
    let name =
        json!({"type": "string", "description": "Name of the tool, as search_tools returns it."});
    let search = Definition::new(SEARCH)
        .title("Search tools")
        .description(
            "Searches tools by words that describe the task. Not all tools are listed; use this to find the others, describe_tool to get the arguments of one, and call_tool to call it.",
        )
        .annotations(reads.clone())
        .input_schema(json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words that describe the task, for example: weather forecast."},
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": RESULTS_MAX, "default": config.results,
                    "description": "Maximum number of results.",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        }));
    let describe = Definition::new(DESCRIBE)
        .title("Describe a tool")
        .description("Returns the full description of one tool, with the schema of its arguments.")
        .annotations(reads)
        .input_schema(json!({
            "type": "object",
            "properties": {"name": name},
            "required": ["name"],
            "additionalProperties": false,
        }));
    let call = Definition::new(CALL)
        .title("Call a tool")
        .description("Calls one of the tools that search_tools finds. Its result is the tool's own.")
        .input_schema(json!({
            "type": "object",
            "properties": {
                "name": name,
                "arguments": {"type": "object", "description": "Arguments of the tool, as describe_tool returns them."},
            },
            "required": ["name"],
            "additionalProperties": false,
        }));
    [search, describe, call]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallArguments<'r> {
    #[serde(borrow)]
    pub(super) name: Cow<'r, str>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'r RawValue>,
}
