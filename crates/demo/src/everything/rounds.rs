//! Examples of client requests by name. In 2026-07-28, a call ends with its client requests and is replayed with the
//! responses. The tool's code stays sequential all the same.

use serde_json::{Map, Value};
use tokio::join;

use super::asking::field;
use crate::catalog::{CallContext, Elicited, PromptError, ToolError};
use crate::protocol::{ClientAbility, SamplingRequest};
use crate::{prompt, tool};

/// Asks for a value.
#[tool(title = "Ask for a value", open_world = false)]
pub(super) async fn test_streaming_elicitation(context: &CallContext) -> Result<String, ToolError> {
    let form = field("value", "string")?;
    let question = context.elicit_form("Provide a value", form);
    let answer = question.named("streaming_elicitation").await?;
    Ok(format!("Value: {}", text(answer, "value")?))
}

/// Asks for a name and returns a greeting.
#[tool(title = "Ask for a name", open_world = false)]
pub(super) async fn test_input_required_result_elicitation(
    context: &CallContext,
) -> Result<String, ToolError> {
    Ok(format!("Hello, {}!", name(context).await?))
}

/// Asks the client's model for a capital.
#[tool(title = "Ask the model by name", open_world = false)]
pub(super) async fn test_input_required_result_sampling(
    context: &CallContext,
) -> Result<String, ToolError> {
    let request = SamplingRequest::new("What is the capital of France?", 100);
    let answer = context.sample(&request).named("capital_question").await?;
    Ok(format!("Model said: {}", answer.text()))
}

/// Asks the client for its roots.
#[tool(title = "Ask for roots by name", open_world = false)]
pub(super) async fn test_input_required_result_list_roots(
    context: &CallContext,
) -> Result<String, ToolError> {
    let roots = context.roots().named("client_roots").await?;
    let uris: Vec<_> = roots.iter().map(|root| root.uri.as_str()).collect();
    Ok(format!("Roots: {}", uris.join(", ")))
}

/// Asks for a confirmation. The state of the call travels through the client, encrypted.
#[tool(title = "Ask with a state", open_world = false)]
pub(super) async fn test_input_required_result_request_state(
    context: &CallContext,
) -> Result<&'static str, ToolError> {
    confirm(context).await
}

/// Asks for a confirmation. Used to test a state that was tampered with.
#[tool(title = "Ask with a state to change", open_world = false)]
pub(super) async fn test_input_required_result_tampered_state(
    context: &CallContext,
) -> Result<&'static str, ToolError> {
    confirm(context).await
}

/// Sends three client requests together.
#[tool(title = "Ask several things", open_world = false)]
pub(super) async fn test_input_required_result_multiple_inputs(
    context: &CallContext,
) -> Result<&'static str, ToolError> {
    let request = SamplingRequest::new("Generate a greeting", 50);
    let (name, greeting, roots) = join!(
        name(context),
        context.sample(&request).named("greeting"),
        context.roots().named("client_roots"),
    );
    let (_, _, _) = (name?, greeting?, roots?);
    Ok("All inputs received")
}

/// Sends one client request after another.
#[tool(title = "Ask twice", open_world = false)]
pub(super) async fn test_input_required_result_multi_round(
    context: &CallContext,
) -> Result<String, ToolError> {
    let form = field("name", "string")?;
    let question = context.elicit_form("Step 1: What is your name?", form);
    let name = text(question.named("step1").await?, "name")?;
    let form = field("color", "string")?;
    let question = context.elicit_form("Step 2: What is your favorite color?", form);
    let color = text(question.named("step2").await?, "color")?;
    Ok(format!("{name} likes {color}."))
}

/// Sends only client requests that the client has declared support for.
#[tool(title = "Ask for what there is", open_world = false)]
pub(super) async fn test_input_required_result_capabilities(
    context: &CallContext,
) -> Result<String, ToolError> {
    let request = SamplingRequest::new("What is the capital of France?", 100);
    let asked_model = async {
        match context.client_can(ClientAbility::Sampling) {
            true => context
                .sample(&request)
                .named("capital_question")
                .await
                .map(|_| true),
            false => Ok(false),
        }
    };
    let asked_person = async {
        match context.client_can(ClientAbility::ElicitationForm) {
            true => name(context).await.map(|_| true),
            false => Ok(false),
        }
    };
    let asked_roots = async {
        match context.client_can(ClientAbility::Roots) {
            true => context.roots().named("client_roots").await.map(|_| true),
            false => Ok(false),
        }
    };
    let (model, person, roots) = join!(asked_model, asked_person, asked_roots);
    let asked = usize::from(model?) + usize::from(person?) + usize::from(roots?);
    Ok(format!("{asked} responses"))
}

/// A prompt that sends a client request first.
#[prompt(title = "Prompt that asks")]
pub(super) async fn test_input_required_result_prompt(
    context: &CallContext,
) -> Result<String, PromptError> {
    let form = field("context", "string")?;
    let question = context.elicit_form("What context should the prompt use?", form);
    let answer = question.named("user_context").await?;
    let given = answer.accepted().unwrap_or_default();
    let given = given.get("context").and_then(Value::as_str);
    Ok(format!(
        "Use the following context: {}",
        given.unwrap_or("none was given")
    ))
}

pub(super) async fn name(context: &CallContext) -> Result<String, ToolError> {
    let form = field("name", "string")?;
    let question = context.elicit_form("What is your name?", form);
    text(question.named("user_name").await?, "name")
}

async fn confirm(context: &CallContext) -> Result<&'static str, ToolError> {
    let form = field("ok", "boolean")?;
    let question = context.elicit_form("Please confirm", form);
    let answer = question.named("confirm").await?.accepted();
    match answer.as_ref().and_then(|answer| answer.get("ok")) {
        Some(Value::Bool(true)) => Ok("state-ok: confirmed"),
        _ => Ok("state-ok: not confirmed"),
    }
}

/// Returns the value of a field in a response.
pub(super) fn text(answer: Elicited<Map<String, Value>>, field: &str) -> Result<String, ToolError> {
    let action = answer.action();
    let text = answer
        .accepted()
        .and_then(|mut answer| answer.remove(field));
    match text {
        Some(Value::String(text)) => Ok(text),
        _ => Err(ToolError::new(format!("no response: {action}"))),
    }
}
