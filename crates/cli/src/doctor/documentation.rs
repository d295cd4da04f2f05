//! Checks the descriptions of tools, resources and prompts, their total size, and what model APIs require of tools.

use std::sync::Arc;

use serde_json::Value;

use super::report::{Check, Finding, Report};
use crate::app::{App, AppError};
use crate::harness::Harness;
use crate::net;
use crate::protocol::counted;
use longshore_app::config::Loaded;

const AREA: &str = "documentation";
/// A shorter description adds little to the name.
const DESCRIPTION_MIN: usize = 20;
/// Larger tool lists crowd out the model's working context.
const TOKENS_MAX: usize = 20_000;
/// With more tools, models begin to choose wrong ones.
const TOOLS_MAX: usize = 100;
/// A token of English and JSON has about four bytes.
const BYTES_A_TOKEN: usize = 4;
/// Maximum number of names in a finding.
const NAMED_MAX: usize = 8;

/// Builds the configured server without its listeners, and lists its items.
pub(super) async fn examine(loaded: Arc<Loaded>, report: &mut Report) {
    let server = match offered(loaded).await {
        Ok(server) => server,
        Err(error) => {
            let error = crate::app::MainError::from(error).to_string();
            report.add(
                Check("configuration", "server")
                    .failure(error)
                    .advise("run `longshore config check` after the correction"),
            );
            return;
        }
    };
    for refused in server.refused() {
        report.add(
            Check("configuration", "sources")
                .failure(refused)
                .advise("correct the named items; the others are served"),
        );
    }
    let tools = server.tools().await.unwrap_or_default();
    let resources = server.resources().await.unwrap_or_default();
    let prompts = server.prompts().await.unwrap_or_default();
    report.add(described("tools", &tools));
    report.add(parameters(&tools));
    if !resources.is_empty() {
        report.add(described("resources", &resources));
    }
    if !prompts.is_empty() {
        report.add(described("prompts", &prompts));
    }
    report.add(listing(&tools));
    report.add(model_apis(&tools));
}

/// Runs on its own thread, because connecting to upstream servers blocks.
async fn offered(loaded: Arc<Loaded>) -> Result<Arc<Harness>, AppError> {
    let built = net::spawn_blocking(|| App::new().loaded(loaded).diagnostic_harness());
    match built.await {
        Ok(built) => built.map(Arc::new),
        Err(_) => Err(AppError::Refused(
            "building the server ended unexpectedly".to_owned(),
        )),
    }
}

fn name(entry: &Value) -> &str {
    entry["name"].as_str().unwrap_or_default()
}

fn named(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMED_MAX)].join(", ");
    if NAMED_MAX < names.len() {
        text.push_str(&format!(" and {} others", names.len() - NAMED_MAX));
    }
    text
}

fn of_all(count: usize, state: &str) -> String {
    match count {
        1 => format!("the only one is {state}"),
        _ => format!("all {count} are {state}"),
    }
}

/// Checks that each item has a useful description.
fn described(kind: &'static str, entries: &[Value]) -> Finding {
    let length = |entry: &Value| {
        let text = entry["description"].as_str().unwrap_or_default();
        text.trim().chars().count()
    };
    let which = |poor: &dyn Fn(usize) -> bool| -> Vec<String> {
        let poor = entries.iter().filter(|entry| poor(length(entry)));
        poor.map(|entry| name(entry).to_owned()).collect()
    };
    let missing = which(&|length| length == 0);
    let poor = which(&|length| (1..DESCRIPTION_MIN).contains(&length));
    let mut problems = Vec::new();
    if !missing.is_empty() {
        problems.push(format!("without a description: {}", named(&missing)));
    }
    if !poor.is_empty() {
        problems.push(format!(
            "described in fewer than {DESCRIPTION_MIN} characters: {}",
            named(&poor)
        ));
    }
    if problems.is_empty() {
        return Check(AREA, kind).ok(of_all(entries.len(), "described"));
    }
    Check(AREA, kind).warning(problems.join("; ")).advise(
        "describe what the tool does, when to use it and what it returns: `description` in the configuration, the doc comment of a function, `summary` in an OpenAPI document",
    )
}

/// Checks that each parameter of each tool is described.
fn parameters(tools: &[Value]) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "parameters");
    let mut bare = Vec::new();
    let mut all = 0;
    for tool in tools {
        let properties = tool["inputSchema"]["properties"].as_object();
        for (parameter, schema) in properties.into_iter().flatten() {
            all += 1;
            let says = schema["description"].as_str().unwrap_or_default();
            let is_choice = schema.get("enum").is_some() || schema.get("const").is_some();
            // A reference may be described at its definition.
            if says.trim().is_empty() && !is_choice && schema.get("$ref").is_none() {
                bare.push(format!("{}.{parameter}", name(tool)));
            }
        }
    }
    if bare.is_empty() {
        return CHECK.ok(of_all(all, "described"));
    }
    CHECK.warning(format!("{} of {all} without a description: {}", bare.len(), named(&bare)))
    .advise("describe the meaning, the unit and an example of each: `arguments.<name>.description`, or a doc comment on the parameter")
}

/// Checks the size of the tool list, which is part of every conversation.
fn listing(tools: &[Value]) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "listing");
    let sizes = tools.iter().map(|tool| tool.to_string().len());
    let bytes: usize = sizes.clone().sum::<usize>() + tools.len();
    let tokens = bytes / BYTES_A_TOKEN;
    let seen = format!(
        "{} in {bytes} bytes, about {tokens} tokens in each conversation",
        counted(tools.len(), "tool")
    );
    if tokens <= TOKENS_MAX && tools.len() <= TOOLS_MAX {
        return CHECK.ok(seen);
    }
    let mut heaviest: Vec<_> = sizes.zip(tools).collect();
    heaviest.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    let heaviest: Vec<_> = heaviest
        .into_iter()
        .take(3)
        .map(|(size, tool)| format!("{} ({size} bytes)", name(tool)))
        .collect();
    CHECK.warning(format!("{seen}; the largest are {}", heaviest.join(", ")))
    .advise("offer fewer tools: upstreams.<name>.tools, sources.openapi.include, or rules under policy that hide tools from callers who do not need them")
}

/// Checks names and schemas of tools against the rules that all common model APIs share. Many clients pass them on
/// unchanged, and an API rejects the whole request because of one tool.
fn model_apis(tools: &[Value]) -> Finding {
    const CHECK: Check<'_> = Check(AREA, "model APIs");
    let (mut names, mut parameters, mut combined) = (Vec::new(), Vec::new(), Vec::new());
    for tool in tools {
        let tool_name = name(tool);
        let schema = &tool["inputSchema"];
        let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
        if !is_accepted(tool_name, "_-") || !tool_name.starts_with(begins) {
            names.push(tool_name.to_owned());
        }
        let properties = schema["properties"].as_object().into_iter().flatten();
        let rejected = properties.filter(|(parameter, _)| !is_accepted(parameter, "_-."));
        parameters.extend(rejected.map(|(parameter, _)| format!("{tool_name}.{parameter}")));
        let is_combined = |keyword: &&str| schema.get(*keyword).is_some();
        if ["allOf", "anyOf", "oneOf"].iter().any(is_combined) {
            combined.push(tool_name.to_owned());
        }
    }
    let problems: Vec<_> = [
        ("names of tools", names),
        ("names of parameters", parameters),
        (
            "allOf, anyOf or oneOf at the root of the input schema",
            combined,
        ),
    ]
    .into_iter()
    .filter(|(_, which)| !which.is_empty())
    .map(|(problem, which)| format!("{problem}: {}", named(&which)))
    .collect();
    if problems.is_empty() {
        return CHECK.ok(of_all(tools.len(), "accepted"));
    }
    CHECK.warning(format!("some model APIs reject {}", problems.join("; ")))
    .advise("use at most 64 letters, digits, `_` and `-` in names (in names of parameters also `.`), begin those of tools with a letter or `_`, and use properties instead of alternatives at the root of a schema")
}

/// Returns true if a name has 1 to 64 ASCII letters, digits and `marks`.
fn is_accepted(name: &str, marks: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    (1..=64).contains(&name.len()) && name.chars().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::report::Status;
    use super::*;

    #[test]
    fn what_is_not_described_is_named() {
        let tools = [
            json!({"name": "good", "description": "Adds two numbers and returns their sum."}),
            json!({"name": "short", "description": "Adds."}),
            json!({"name": "bare"}),
        ];
        let found = described("tools", &tools);
        assert_eq!(found.status, Status::Warning);
        assert_eq!(
            found.seen,
            "without a description: bare; described in fewer than 20 characters: short"
        );
        assert_eq!(described("tools", &tools[..1]).status, Status::Ok);
        let many: Vec<_> = (0..10).map(|n| json!({"name": format!("t{n}")})).collect();
        assert!(described("tools", &many).seen.ends_with("t7 and 2 others"));
    }

    #[test]
    fn parameters_are_described_unless_they_are_a_choice() {
        let tool = json!({"name": "t", "inputSchema": {"properties": {
            "a": {"type": "string", "description": "A city."},
            "b": {"enum": ["x", "y"]},
            "c": {"type": "integer"},
        }}});
        let found = parameters(std::slice::from_ref(&tool));
        assert_eq!(found.seen, "1 of 3 without a description: t.c");
    }

    #[test]
    fn names_and_schemas_that_model_apis_reject_are_named() {
        let long = "x".repeat(65);
        let tools = [
            json!({"name": "a-b_C9", "inputSchema": {"properties": {"a.b-c_D": {"anyOf": []}}}}),
            json!({"name": "files.read", "inputSchema": {"properties": {"$top": {}, "a b": {}}}}),
            json!({"name": long, "inputSchema": {"properties": {}, "oneOf": []}}),
            json!({"name": "2fa", "inputSchema": {"properties": {}}}),
        ];
        assert_eq!(model_apis(&tools[..1]).status, Status::Ok);
        let found = model_apis(&tools);
        assert_eq!(found.status, Status::Warning);
        assert_eq!(
            found.seen,
            format!(
                "some model APIs reject names of tools: files.read, {long}, 2fa; \
                 names of parameters: files.read.$top, files.read.a b; \
                 allOf, anyOf or oneOf at the root of the input schema: {long}"
            )
        );
    }

    #[test]
    fn listings_are_measured() {
        let small = [json!({"name": "a"})];
        let found = listing(&small);
        assert_eq!(
            (found.status, &*found.seen),
            (
                Status::Ok,
                "1 tool in 13 bytes, about 3 tokens in each conversation"
            )
        );
        let large = [
            json!({"name": "small"}),
            json!({"name": "large", "description": "x".repeat(TOKENS_MAX * BYTES_A_TOKEN)}),
        ];
        let found = listing(&large);
        assert_eq!(found.status, Status::Warning);
        assert!(found.seen.contains("the largest are large ("), "{found:?}");
    }
}
