//! `rmcp PORT (session | stateless)`: an echo tool at `/mcp`, over axum. With `session` all settings have their defaults; `stateless` has no
//! sessions and responds with JSON.

use axum::Router;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ServerHandler, tool, tool_handler, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

#[derive(Clone)]
struct Server {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Server {
    /// Returns the message.
    #[tool]
    async fn echo(&self, Parameters(echo): Parameters<Echo>) -> String {
        echo.message
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Server {}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().expect("a port");
    let is_stateless = arguments.next().as_deref() == Some("stateless");
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(!is_stateless)
        .with_json_response(is_stateless);
    let server = Server {
        tool_router: Server::tool_router(),
    };
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        LocalSessionManager::default().into(),
        config,
    );
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, Router::new().nest_service("/mcp", service)).await
}
