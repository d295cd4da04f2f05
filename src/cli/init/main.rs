//! An MCP server: `cargo run` serves it, and logs at which address; `cargo test` tests its tool.

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
    // Standard output is for messages, should the server be asked to serve over it.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
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
