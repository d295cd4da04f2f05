//! A long tool: clients that support tasks get a task ID at once and fetch the result later, all others wait for it.
//!
//! ```sh
//! cargo run --example task
//! cargo test --example task
//! ```
//!
//! With several replicas, `state.url` lets any of them return the result. docs/guides/asking-and-tasks.md has the details.

use std::time::Duration;

use longshore::extract::Progress;
use longshore::{App, ToolError, tool};

/// Renders a report.
#[tool(task, timeout = "10m")]
async fn report(
    #[call] progress: Progress,
    /// Number of pages.
    #[schemars(range(min = 1, max = 1000))]
    pages: u32,
) -> Result<String, ToolError> {
    for page in 1..=pages {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let total = Some(f64::from(pages));
        progress
            .report(f64::from(page), total, "page rendered")
            .await;
    }
    Ok(format!("a report of {pages} pages"))
}

fn main() -> longshore::Result {
    App::new().tool(report).run()
}

#[cfg(test)]
mod tests {
    use longshore::protocol::Revision;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_without_tasks_waits_for_the_result() -> longshore::Result {
        let server = App::new().tool(report).harness()?;
        let result = server.call("report", json!({"pages": 2})).await?;
        assert_eq!(result.text(), "a report of 2 pages");
        assert!(!result.progress().is_empty());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_tasks_fetches_the_result_later() -> longshore::Result {
        let app = App::new().tool(report);
        let server = app.harness()?.with_version(Revision::V2025_11_25);
        let call = json!({"name": "report", "arguments": {"pages": 2}, "task": {"ttl": 60_000}});
        let started = server.request("tools/call", call).await?;
        let id = json!({"taskId": started["task"]["taskId"]});
        let result = server.request("tasks/result", id).await?;
        assert_eq!(result["content"][0]["text"], "a report of 2 pages");
        Ok(())
    }
}
