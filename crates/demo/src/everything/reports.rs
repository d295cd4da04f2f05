//! Examples of notifications during a call: progress and log messages.

use std::time::Duration;

use serde_json::json;

use crate::catalog::{CallContext, LogLevel, ToolError};
use crate::tool;

const PAUSE: Duration = Duration::from_millis(50);

/// Sends progress notifications if the caller requests them.
#[tool(title = "Progress", read_only, idempotent, open_world = false)]
pub(super) async fn test_tool_with_progress(context: &CallContext) -> &'static str {
    for progress in [0.0, 50.0, 100.0] {
        let message = format!("Completed step {progress} of 100");
        context.progress(progress, Some(100.0), &message).await;
        tokio::time::sleep(PAUSE).await;
    }
    "Progress test completed"
}

/// Sends log messages while it runs, if the caller wants this level.
#[tool(title = "Log messages", read_only, idempotent, open_world = false)]
pub(super) async fn test_tool_with_logging(context: &CallContext) -> &'static str {
    for message in [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ] {
        context.log(LogLevel::Info, message).await;
        tokio::time::sleep(PAUSE).await;
    }
    "Tool with logging executed successfully"
}

/// Sends one log message at the level that the caller chose.
#[tool(
    title = "Log message on request",
    read_only,
    idempotent,
    open_world = false
)]
pub(super) async fn test_logging_tool(context: &CallContext) -> &'static str {
    if let Some(level) = context.log_level() {
        context.log(level, "logLevel was requested").await;
    }
    "Logging tool completed"
}

/// Works in steps for some time, and reports each. Cancel it to see that it stops.
#[tool(
    title = "Long operation",
    read_only,
    idempotent,
    open_world = false,
    timeout = "70s"
)]
pub(super) async fn long_operation(
    /// Duration in seconds, from 0 to 60.
    #[arg(default = 10.0)]
    #[schemars(range(min = 0.0, max = 60.0))]
    seconds: f64,
    /// Number of steps, from 1 to 100.
    #[arg(default = 5)]
    #[schemars(range(min = 1, max = 100))]
    steps: u8,
    context: &CallContext,
) -> Result<String, ToolError> {
    let total = f64::from(steps);
    for step in 1..=steps {
        tokio::time::sleep(Duration::from_secs_f64(seconds / total)).await;
        let message = format!("step {step} of {steps}");
        context
            .progress(f64::from(step), Some(total), &message)
            .await;
    }
    Ok(format!("{steps} steps took {seconds} s"))
}

/// Sends a log message at each level, with structured data. The caller receives the levels that it wants.
#[tool(
    title = "All levels of log messages",
    read_only,
    idempotent,
    open_world = false
)]
pub(super) async fn all_levels(context: &CallContext) -> String {
    let levels = [
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Notice,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Alert,
        LogLevel::Emergency,
    ];
    for (number, level) in levels.into_iter().enumerate() {
        let data = json!({"event": "example", "number": number, "level": level.as_str()});
        context.log(level, &data).await;
    }
    let wanted = context.log_level().map_or("none", LogLevel::as_str);
    format!(
        "said something at {} levels; wanted: {wanted}",
        levels.len()
    )
}
