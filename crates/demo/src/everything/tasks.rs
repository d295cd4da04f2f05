//! Examples of calls that outlive their request as tasks, for clients that support them.

use std::time::Duration;

use tokio::join;

use super::asking::field;
use super::rounds::{name, text};
use crate::catalog::{CallContext, ToolError};
use crate::tool;

/// Returns a greeting immediately; never runs as a task.
#[tool(title = "Greet", read_only, idempotent, open_world = false)]
pub(super) async fn greet(
    /// The name to greet.
    name: String,
) -> String {
    format!("Hello, {name}!")
}

/// Runs for some time: as a task for clients that support tasks, as a long call for all others.
#[tool(
    title = "Slow computation",
    read_only,
    open_world = false,
    task,
    timeout = "70s"
)]
pub(super) async fn slow_compute(
    /// Duration in seconds, from 0 to 60.
    #[schemars(range(min = 0.0, max = 60.0))]
    seconds: f64,
    /// Name of the result.
    #[arg(default = "result")]
    label: String,
) -> String {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    format!("{label}: computed for {seconds} s")
}

/// Fails after a second; requires a task.
#[tool(
    title = "Failing job",
    read_only,
    open_world = false,
    task = "required"
)]
pub(super) async fn failing_job() -> Result<String, ToolError> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    Err(ToolError::new("This job fails on purpose."))
}

/// Ends with a protocol error, like an internal error of the server; requires a task.
#[tool(title = "Broken job", read_only, open_world = false, task = "required")]
pub(super) async fn protocol_error_job() -> Result<String, ToolError> {
    Err(ToolError::internal("a job that is broken on purpose"))
}

/// Asks for confirmation before it pretends to delete a file. A task waits for the response meanwhile.
#[tool(title = "Delete after confirmation", open_world = false, task)]
pub(super) async fn confirm_delete(
    /// Name of the file.
    filename: String,
    context: &CallContext,
) -> Result<String, ToolError> {
    let form = field("confirm", "boolean")?;
    let question = context.elicit_form(format!("Delete {filename}?"), form);
    let answer = question.await?.accepted().unwrap_or_default();
    let confirmed = answer.get("confirm").is_some_and(|confirm| confirm == true);
    Ok(match confirmed {
        true => format!("{filename} was deleted"),
        false => format!("{filename} was kept"),
    })
}

/// Sends two client requests together, which can be answered in any order.
#[tool(title = "Two questions", open_world = false, task)]
pub(super) async fn multi_input(context: &CallContext) -> Result<String, ToolError> {
    let (first, second) = (field("first", "string")?, field("second", "string")?);
    let (first, second) = join!(
        context.elicit_form("What is the first value?", first),
        context.elicit_form("What is the second value?", second),
    );
    let (first, second) = (text(first?, "first")?, text(second?, "second")?);
    Ok(format!("{first} and {second}"))
}

/// Asks for a name first, and continues as a task.
#[tool(
    title = "Ask, then become a task",
    open_world = false,
    task = "required",
    deferred_task
)]
pub(super) async fn test_tool_with_task(context: &CallContext) -> Result<String, ToolError> {
    let name = name(context).await?;
    context.begin_task().await;
    Ok(format!("Hello, {name}! (async)"))
}
