//! `turbomcp PORT`: an echo tool at `/mcp`, with all settings at their defaults.

use turbomcp::prelude::*;

#[derive(Clone)]
struct Peer;

#[turbomcp::server(name = "peer", version = "1.0.0")]
impl Peer {
    /// Returns the message.
    #[tool(description = "Returns the message.")]
    async fn echo(&self, message: String) -> McpResult<String> {
        Ok(message)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).expect("a port");
    Ok(Peer.run_http(&format!("127.0.0.1:{port}")).await?)
}
