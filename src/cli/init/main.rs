//! An MCP server: `cargo run` serves it at http://127.0.0.1:3000/mcp.

use longshore::{App, tool};

/// Greets somebody by name.
#[tool(read_only)]
async fn hello(
    /// Who is greeted.
    name: String,
    /// With which word.
    #[arg(default = "Hello")]
    greeting: String,
) -> String {
    format!("{greeting}, {name}!")
}

fn app() -> App {
    App::new()
        .name(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .tool(hello)
}

fn main() -> longshore::Result {
    app().run()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::app;

    #[tokio::test]
    async fn greets_by_name() -> longshore::Result {
        let server = app().harness()?;
        let result = server.call("hello", json!({"name": "Ada"})).await;
        let result = result.expect("a result");
        assert_eq!(result["content"][0]["text"], "Hello, Ada!");
        Ok(())
    }
}
