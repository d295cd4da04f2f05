//! `tower-mcp PORT`: an echo tool at `/mcp`, with all settings at their defaults.

use axum::Router;
use schemars::JsonSchema;
use serde::Deserialize;
use tower_mcp::{CallToolResult, HttpTransport, McpRouter, ToolBuilder};

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).expect("a port");
    let echo = ToolBuilder::new("echo")
        .description("Returns the message.")
        .handler(|echo: Echo| async move { Ok(CallToolResult::text(echo.message)) })
        .build();
    let router = McpRouter::new().server_info("peer", "1.0.0").tool(echo);
    let app = HttpTransport::new(router).into_router();
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, Router::new().nest("/mcp", app)).await
}
