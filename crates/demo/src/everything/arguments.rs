//! Examples of tool arguments: generated schemas, manual schemas, and arguments that HTTP headers mirror.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::catalog::{Definition, Tool, tool_fn};
use crate::tool;

/// Returns the message it was given.
#[tool(title = "Echo", read_only, idempotent, open_world = false)]
pub(super) async fn echo(
    /// The message to return.
    message: String,
) -> String {
    message
}

/// Returns a tool with a schema that no Rust type could express. It is served unchanged, and enforced by the server.
pub(super) fn json_schema_2020_12_tool() -> Arc<dyn Tool> {
    let definition = Definition::new("json_schema_2020_12_tool")
        .title("JSON Schema 2020-12")
        .description("Takes a contact with a required means of contact.")
        .read_only(true)
        .input_schema(json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                },
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {
                "properties": {"contactMethod": {"const": "phone"}},
                "required": ["contactMethod"],
            },
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": false,
        }));
    Arc::new(tool_fn(
        definition,
        |_, contact: Map<String, Value>| async move {
            let name = contact.get("name").and_then(Value::as_str);
            Ok(match name {
                Some(name) => format!("json_schema_2020_12_tool called for {name}"),
                None => "json_schema_2020_12_tool called".to_owned(),
            })
        },
    ))
}

/// Returns an argument that clients of 2026-07-28 also send as the header `Mcp-Param-Value`.
#[tool(title = "Mirrored argument", read_only, idempotent, open_world = false)]
pub(super) async fn test_custom_header(
    /// The value to return.
    #[arg(header = "Value")]
    value: String,
) -> String {
    value
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Order {
    Asc,
    Desc,
}

/// Pretends to run a query in a region. Intermediaries can see the region, the priority and the dry-run flag in
/// headers, without reading bodies.
#[tool(title = "Run a query", read_only, open_world = false)]
pub(super) async fn run_query(
    /// The query to run.
    query: String,
    /// The region to run it in.
    #[arg(header = "Region", default = "eu-north")]
    region: String,
    /// From 0 to 9.
    #[arg(header = "Priority")]
    #[schemars(range(min = 0, max = 9))]
    priority: Option<u8>,
    /// Describe the steps without performing them.
    #[arg(header = "Dry-Run", default)]
    dry_run: bool,
    #[arg(default = Order::Asc)] order: Order,
) -> String {
    let verb = if dry_run { "would run" } else { "ran" };
    let priority = priority.map_or(String::new(), |p| format!(" with priority {p}"));
    format!("{region} {verb} {query:?} in {order:?} order{priority}")
}
