//! Examples of client requests: elicitation, sampling and roots.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::catalog::{
    Announcer, CallContext, Definition, Elicited, Form, FormError, IntoTool as _, Tool, ToolError,
    tool_fn,
};
use crate::protocol::{ClientAbility, SamplingRequest};
use crate::tool;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Contact {
    /// User's response
    username: String,
    /// User's email address
    email: String,
}

/// Asks for a name and an address with a form that is generated from a Rust type.
#[tool(title = "Ask with a form", open_world = false)]
pub(super) async fn test_elicitation(
    /// The message to show to the user.
    message: String,
    context: &CallContext,
) -> Result<String, ToolError> {
    let answer = context.elicit::<Contact>(message).await?;
    let action = answer.action();
    let content = json!(answer.accepted());
    Ok(format!("User response: action={action}, content={content}"))
}

/// Asks for values of every type, each with a default.
#[tool(title = "Ask with defaults", open_world = false)]
pub(super) async fn test_elicitation_sep1034_defaults(
    context: &CallContext,
) -> Result<String, ToolError> {
    let form = Form::from_schema(json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "User name", "default": "John Doe"},
            "age": {"type": "integer", "description": "User age", "default": 30},
            "score": {"type": "number", "description": "User score", "default": 95.5},
            "status": {
                "type": "string", "description": "User status",
                "enum": ["active", "inactive", "pending"], "default": "active",
            },
            "verified": {"type": "boolean", "description": "Verification status", "default": true},
        },
    }))?;
    let answer = context.elicit_form("Please provide values", form).await?;
    Ok(completed(answer))
}

/// Asks for choices of every kind: with and without titles, one or several.
#[tool(title = "Ask for choices", open_world = false)]
pub(super) async fn test_elicitation_sep1330_enums(
    context: &CallContext,
) -> Result<String, ToolError> {
    let form = Form::from_schema(json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
            "titledSingle": {"type": "string", "oneOf": [
                {"const": "value1", "title": "First Option"},
                {"const": "value2", "title": "Second Option"},
                {"const": "value3", "title": "Third Option"},
            ]},
            "legacyEnum": {
                "type": "string", "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array",
                "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
            },
            "titledMulti": {"type": "array", "items": {"anyOf": [
                {"const": "value1", "title": "First Choice"},
                {"const": "value2", "title": "Second Choice"},
                {"const": "value3", "title": "Third Choice"},
            ]}},
        },
    }))?;
    let answer = context.elicit_form("Please choose", form).await?;
    Ok(completed(answer))
}

fn completed(answer: Elicited<Map<String, Value>>) -> String {
    let action = answer.action();
    let content = json!(answer.accepted());
    format!("Elicitation completed: action={action}, content={content}")
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Page {
    /// The page.
    #[serde(default = "connect_page")]
    url: String,
}

fn connect_page() -> String {
    "https://example.com/connect".to_owned()
}

/// Asks the user to visit a page, for data that the client must not see. It then reports the page as completed, which
/// the server of the page would normally do. Clients of 2025-11-25 are notified.
pub(super) fn visit_page(announcer: &Announcer) -> Arc<dyn Tool> {
    let announcer = announcer.clone();
    let definition = Definition::new("visit_page")
        .title("Ask to visit a page")
        .description("Asks the person to visit a page, for what the client must not see.")
        .open_world(false);
    let visit = move |context: Arc<CallContext>, Page { url }| {
        let announcer = announcer.clone();
        async move {
            let question = context.elicit_url("Please visit this page, and come back.", url);
            let visit = question.elicitation();
            let answer = question.await?;
            if let (Elicited::Accepted(()), Some(visit)) = (&answer, visit) {
                announcer.elicitation_completed(&visit);
            }
            Ok::<_, ToolError>(format!("The person said: {}", answer.action()))
        }
    };
    tool_fn(definition, visit).into_tool()
}

/// Rejects the call until a page was visited.
#[tool(title = "Need a visit", read_only, open_world = false)]
pub(super) async fn visit_first(
    /// Confirm that the page was visited.
    #[arg(default)]
    visited: bool,
    context: &CallContext,
) -> Result<&'static str, ToolError> {
    if !visited {
        let question = context.elicit_url("Please visit this page first.", connect_page());
        question.required().await?;
    }
    Ok("The page was visited.")
}

/// Asks the client's model.
#[tool(title = "Ask the model", open_world = false)]
pub(super) async fn test_sampling(
    /// The prompt for the model.
    prompt: String,
    context: &CallContext,
) -> Result<String, ToolError> {
    let answer = context.sample(&SamplingRequest::new(prompt, 100)).await?;
    Ok(format!("LLM response: {}", answer.text()))
}

/// Asks the client for its roots.
#[tool(title = "Ask for roots", read_only, open_world = false)]
pub(super) async fn list_roots(context: &CallContext) -> Result<Vec<String>, ToolError> {
    let roots = context.roots().await?;
    Ok(roots.into_iter().map(|root| root.uri).collect())
}

/// Requires a client with sampling support, and rejects the call otherwise.
#[tool(title = "Need a model", read_only, open_world = false)]
pub(super) async fn test_missing_capability(
    context: &CallContext,
) -> Result<&'static str, ToolError> {
    context.require(ClientAbility::Sampling)?;
    Ok("The client can be asked for samples of its model.")
}

/// Returns a form with one field.
pub(super) fn field(name: &str, kind: &str) -> Result<Form, FormError> {
    Form::from_schema(json!({
        "type": "object",
        "properties": {name: {"type": kind}},
        "required": [name],
    }))
}
