//! Calls that outlive their request, in both of the forms that the protocol has for them.

mod away;
mod core;
mod extension;
mod lists;
mod notices;

use std::sync::Arc;

use longshore::state::Memory;
use longshore::{App, CallContext, JsonSchema, Output, ToolError, tool};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::{Running, Serve};

#[derive(Deserialize, JsonSchema)]
struct Confirm {
    confirm: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Name {
    name: String,
}

/// Never a task.
#[tool]
async fn greet(name: String) -> String {
    format!("Hello, {name}!")
}

/// Computes at once.
#[tool(task)]
async fn compute(label: String) -> String {
    format!("computed {label}")
}

/// Never comes to an end.
#[tool(task)]
async fn endless() -> String {
    std::future::pending().await
}

/// Fails, and says so itself.
#[tool(task = "required")]
async fn failing_job() -> Result<String, ToolError> {
    Err(ToolError::new("it did not work"))
}

/// Breaks.
#[tool(task = "required")]
async fn protocol_error_job() -> Result<String, ToolError> {
    Err(ToolError::internal("a secret of the server's"))
}

/// Deletes a file, if that is wanted.
#[tool(task)]
async fn confirm_delete(context: &CallContext, filename: String) -> Result<String, ToolError> {
    context.progress(0.5, None, "asking").await;
    let question = format!("Delete {filename}?");
    let sure = context.elicit::<Confirm>(question).named("sure").await?;
    match sure.accepted() {
        Some(Confirm { confirm: true }) => Ok(format!("{filename} is gone")),
        _ => Ok(format!("{filename} stays")),
    }
}

/// Asks twice at once, and a third time with a name that was used.
#[tool(task)]
async fn multi_input(context: &CallContext) -> Result<String, ToolError> {
    let (one, two) = tokio::try_join!(
        context.elicit::<Name>("One?"),
        context.elicit::<Name>("Two?"),
    )?;
    let three = context.elicit::<Name>("Three?").await?;
    let names = [one, two, three].map(|answer| answer.accepted().map_or(String::new(), |n| n.name));
    Ok(names.join(" "))
}

/// Asks before it becomes a task.
#[tool(task = "required", deferred_task)]
async fn asks_first(context: &CallContext) -> Result<String, ToolError> {
    let name = context
        .elicit::<Name>("What is your name?")
        .named("user_name")
        .await?;
    context.begin_task().await;
    let name = name.accepted().map_or(String::new(), |n| n.name);
    Ok(format!("Hello, {name}! (async)"))
}

/// Tells how far it is, before it becomes a task and as one.
#[tool(task = "required", deferred_task)]
async fn reports_first(context: &CallContext) -> String {
    context.progress(1.0, Some(3.0), "before").await;
    context.begin_task().await;
    context.progress(2.0, Some(3.0), "as a task").await;
    "done".to_owned()
}

/// Never makes up its mind to become a task.
#[tool(task = "required", deferred_task)]
async fn hesitates() -> String {
    std::future::pending().await
}

/// Gives a lot.
#[tool(task)]
async fn large(bytes: usize) -> Output {
    Output::text("x".repeat(bytes))
}

fn app() -> App {
    App::new()
        .tool(greet)
        .tool(compute)
        .tool(endless)
        .tool(failing_job)
        .tool(protocol_error_job)
        .tool(confirm_delete)
        .tool(multi_input)
        .tool(asks_first)
        .tool(reports_first)
        .tool(hesitates)
        .tool(large)
}

fn serve() -> Running {
    Serve::new().app(|_| app()).start()
}

/// Two processes that share what replicas share.
fn replicas() -> [Running; 2] {
    let state = Arc::new(Memory::default());
    [(); 2].map(|()| {
        let state = Arc::clone(&state);
        Serve::new()
            .app(|_| app().store(state))
            .shared_key()
            .start()
    })
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {result}"))
}

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}
