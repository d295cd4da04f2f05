//! Calls through the tool search: resolves their target or answers them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::errors::invalid_params;
use super::reply::Reply;
use super::request_context::Caller;
use super::results::{error_result, success};
use super::search::{CALL, CallArguments, DESCRIBE, RESULTS_MAX, SEARCH, Search};
use super::snapshot::Snapshot;
use super::text::{shortened, truncated};
use crate::auth::{ItemKind, Principal};
use crate::catalog::{Output, in_words, shown_tool};
use crate::protocol::message;

/// Maximum length of a description in the results, in bytes.
const SUMMARY_MAX: usize = 300;

/// Target of a call, after `call_tool` is resolved.
pub(super) struct ResolvedCall<'r> {
    pub(super) name: Cow<'r, str>,
    pub(super) arguments: Option<&'r str>,
    /// True if the request names the tool itself.
    pub(super) is_direct: bool,
}

/// Returns the search, if this caller sees enough tools to need it.
pub(super) fn search_for<'s>(snapshot: &'s Snapshot, principal: &Principal) -> Option<&'s Search> {
    let search = snapshot.search.as_ref()?;
    let all = snapshot.catalog.tools.len();
    let visible = match snapshot.policy_view {
        None => all,
        Some(_) => (0..all)
            .filter(|place| snapshot.sees(principal, ItemKind::Tools, *place))
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
    snapshot: &Snapshot,
    search: &Search,
    caller: Caller<'_>,
    id: &str,
    name: Cow<'r, str>,
    arguments: Option<&'r str>,
) -> Result<ResolvedCall<'r>, Reply> {
    let is_verb = matches!(&*name, SEARCH | DESCRIBE | CALL);
    if !is_verb || search_for(snapshot, caller.principal).is_none() {
        return Ok(ResolvedCall {
            name,
            arguments,
            is_direct: true,
        });
    }
    let failed = |message: &str| error_result(snapshot, caller.revision, id, message);
    let given = arguments.unwrap_or("{}");
    if !message::is_object(given) {
        return Err(invalid_params(id, "arguments is an object"));
    }
    let invalid = |error: serde_json::Error| {
        let problem = in_words(&error);
        failed(&format!("Invalid arguments for tool {name}: {problem}"))
    };
    match &*name {
        SEARCH => {
            let asked: SearchArguments = serde_json::from_str(given).map_err(invalid)?;
            let found = run_search(snapshot, search, caller.principal, &asked);
            Err(structured_result(snapshot, caller, id, &found))
        }
        DESCRIBE => {
            let asked: DescribeArguments = serde_json::from_str(given).map_err(invalid)?;
            let known = snapshot
                .catalog
                .tool(&asked.name)
                .filter(|_| sees_tool(snapshot, caller.principal, &asked.name));
            Err(match known {
                Some(entry) => {
                    let shown = shown_tool(entry.tool.definition(), caller.revision);
                    structured_result(snapshot, caller, id, &Value::Object(shown))
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

fn run_search(
    snapshot: &Snapshot,
    search: &Search,
    principal: &Principal,
    asked: &SearchArguments,
) -> Value {
    let limit = asked.limit.unwrap_or(search.config.results);
    let places: Vec<_> = search
        .find(&asked.query)
        .into_iter()
        .filter(|place| snapshot.sees(principal, ItemKind::Tools, *place))
        .collect();
    let reported = places.iter().take(limit.clamp(1, RESULTS_MAX));
    let reported = reported.filter_map(|place| snapshot.catalog.tools.entries().get(*place));
    let tools: Vec<_> = reported
        .map(|entry| {
            let definition = entry.tool.definition();
            let mut reported = json!({"name": definition.name()});
            if let Some(title) = &definition.title {
                reported["title"] = title.clone().into();
            }
            if let Some(text) = &definition.description {
                reported["description"] = shortened(text, SUMMARY_MAX).into();
            }
            reported
        })
        .collect();
    json!({"tools": tools, "found": places.len()})
}

fn sees_tool(snapshot: &Snapshot, principal: &Principal, name: &str) -> bool {
    snapshot.sees_key(principal, ItemKind::Tools, &snapshot.catalog.tools, name)
}

fn structured_result(snapshot: &Snapshot, caller: Caller<'_>, id: &str, value: &Value) -> Reply {
    match Output::structured(value) {
        Ok(output) => success(snapshot, caller.revision, id, &output),
        Err(error) => error_result(snapshot, caller.revision, id, &error.to_string()),
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
