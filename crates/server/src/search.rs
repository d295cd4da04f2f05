//! Tool search: three tools that find, describe and call the others.
//!
//! A list of hundreds of tools uses much of a model's context. Above a threshold, the list contains only these three.
//! The others still exist and can be called by name.

mod ranking;

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::reply::Reply;
use super::snapshot::{Listings, Snapshot};
use super::tools::{error_result, invalid_params, success};
use super::{Caller, truncated};
use crate::auth::{Principal, Shelf};
use crate::catalog::{Bare, Definition, Output, Table, shown_tool};
use crate::protocol::{ToolAnnotations, message};
use ranking::Index;

/// Listing many tools by way of a search.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-reload" = "live"))]
pub struct SearchConfig {
    /// With more tools than this, a caller's list has `search_tools`, `describe_tool` and `call_tool` instead. Default: never.
    pub above: Option<usize>,
    /// How many tools a search finds at most, unless it says otherwise. Default: 10.
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

const SEARCH: &str = "search_tools";
const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";

/// Names reserved for the search tools.
pub const VERBS: [&str; 3] = [SEARCH, DESCRIBE, CALL];

/// Maximum number of results of one search.
const RESULTS_MAX: usize = 50;
/// Maximum length of a description in the results, in bytes.
const SUMMARY_MAX: usize = 300;

/// Search index of the tools, with the definitions of the search tools.
#[derive(Debug)]
pub(super) struct Search {
    config: SearchConfig,
    above: usize,
    index: Index,
    pub(super) verbs: Table<Bare>,
    pub(super) listings: Listings,
}

/// Target of a call, after `call_tool` is resolved.
pub(super) struct ResolvedCall<'r> {
    pub(super) name: Cow<'r, str>,
    pub(super) arguments: Option<&'r str>,
    /// True if the request names the tool itself.
    pub(super) is_direct: bool,
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
            let _ = verbs.add(Bare(verb));
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
        json!({"type": "string", "description": "The tool's name, as search_tools tells it."});
    let search = Definition::new(SEARCH)
        .title("Search tools")
        .description(
            "Finds tools by words of what they do. There are more tools than are listed; this is how to find them. \
             describe_tool tells what one of them takes, and call_tool calls it.",
        )
        .annotations(reads.clone())
        .input_schema(json!({
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words of what is to be done, for example: weather forecast."},
                "limit": {
                    "type": "integer", "minimum": 1, "maximum": RESULTS_MAX, "default": config.results,
                    "description": "How many to tell of at most.",
                },
            },
            "required": ["query"],
            "additionalProperties": false,
        }));
    let describe = Definition::new(DESCRIBE)
        .title("Describe a tool")
        .description("Tells everything of one tool: what it does, and the schema of its arguments.")
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
                "arguments": {"type": "object", "description": "The tool's arguments, as describe_tool tells them."},
            },
            "required": ["name"],
            "additionalProperties": false,
        }));
    [search, describe, call]
}

impl Snapshot {
    /// Returns the search, if this caller sees enough tools to need it.
    pub(super) fn search_for(&self, principal: &Principal) -> Option<&Search> {
        let search = self.search.as_ref()?;
        let all = self.catalog.tools.len();
        let visible = match self.policy_view {
            None => all,
            Some(_) => (0..all)
                .filter(|place| self.sees(principal, Shelf::Tools, *place))
                .count(),
        };
        (search.above < visible).then_some(search)
    }

    /// Resolves the target of a call.
    ///
    /// # Errors
    ///
    /// The response, if the call is answered by the search itself.
    #[cold]
    pub(super) fn resolve_call<'r>(
        &self,
        search: &Search,
        caller: Caller<'_>,
        id: &str,
        name: Cow<'r, str>,
        arguments: Option<&'r str>,
    ) -> Result<ResolvedCall<'r>, Reply> {
        let is_verb = matches!(&*name, SEARCH | DESCRIBE | CALL);
        if !is_verb || self.search_for(caller.principal).is_none() {
            return Ok(ResolvedCall {
                name,
                arguments,
                is_direct: true,
            });
        }
        let failed = |message: &str| error_result(self, caller.revision, id, message);
        let given = arguments.unwrap_or("{}");
        if !message::is_object(given) {
            return Err(invalid_params(id, "arguments is an object"));
        }
        let invalid = |error: serde_json::Error| {
            failed(&format!("Invalid arguments for tool {name}: {error}"))
        };
        match &*name {
            SEARCH => {
                let asked: SearchArguments = serde_json::from_str(given).map_err(invalid)?;
                let found = self.found(search, caller.principal, &asked);
                Err(self.say(caller, id, &found))
            }
            DESCRIBE => {
                let asked: DescribeArguments = serde_json::from_str(given).map_err(invalid)?;
                let known = self
                    .catalog
                    .tool(&asked.name)
                    .filter(|_| self.sees_tool(caller.principal, &asked.name));
                Err(match known {
                    Some(entry) => {
                        let shown = shown_tool(entry.tool.definition(), caller.revision);
                        self.say(caller, id, &Value::Object(shown))
                    }
                    None => failed(&format!(
                        "Unknown tool: {}; find one with {SEARCH}",
                        truncated(&asked.name)
                    )),
                })
            }
            _ => {
                let called: CallArguments<'r> = serde_json::from_str(given).map_err(invalid)?;
                Ok(ResolvedCall {
                    name: called.name,
                    arguments: called.arguments.map(RawValue::get),
                    is_direct: false,
                })
            }
        }
    }

    fn found(&self, search: &Search, principal: &Principal, asked: &SearchArguments) -> Value {
        let limit = asked.limit.unwrap_or(search.config.results);
        let places: Vec<_> = search
            .index
            .find(&asked.query)
            .into_iter()
            .filter(|place| self.sees(principal, Shelf::Tools, *place))
            .collect();
        let told = places.iter().take(limit.clamp(1, RESULTS_MAX));
        let told = told.filter_map(|place| self.catalog.tools.entries().get(*place));
        let tools: Vec<_> = told
            .map(|entry| {
                let definition = entry.tool.definition();
                let mut told = json!({"name": definition.name()});
                if let Some(title) = &definition.title {
                    told["title"] = title.clone().into();
                }
                if let Some(text) = &definition.description {
                    told["description"] = summary(text).into();
                }
                told
            })
            .collect();
        json!({"tools": tools, "found": places.len()})
    }

    fn sees_tool(&self, principal: &Principal, name: &str) -> bool {
        self.sees_key(principal, Shelf::Tools, &self.catalog.tools, name)
    }

    fn say(&self, caller: Caller<'_>, id: &str, value: &Value) -> Reply {
        match Output::structured(value) {
            Ok(output) => success(self, caller.revision, id, &output),
            Err(error) => error_result(self, caller.revision, id, &error.to_string()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    query: String,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribeArguments {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallArguments<'r> {
    #[serde(borrow)]
    name: Cow<'r, str>,
    #[serde(borrow)]
    arguments: Option<&'r RawValue>,
}

/// Start of a description.
fn summary(text: &str) -> String {
    if text.len() <= SUMMARY_MAX {
        return text.to_owned();
    }
    format!("{}...", &text[..text.floor_char_boundary(SUMMARY_MAX)])
}
