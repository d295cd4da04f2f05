//! Tests that need control of the caller's address.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::auth::Principal;
use crate::catalog::{Catalog, Definition, IntoTool as _, TaskSupport, ToolError, tool_fn};
use crate::server::tests::{at, of};
use crate::server::{HttpHead, McpHeaders, Reply, Server, ServerConfig, ServerParts};
use crate::telemetry::CountedTransport;

/// Calls a tool from an address, without authentication.
async fn call_from(server: &Arc<Server>, address: IpAddr) -> Value {
    let params = json!({"name": "work", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":
            {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "work"),
    ] {
        headers.insert(name, value.parse().expect("visible"));
    }
    let mut mcp = McpHeaders::default();
    for (name, value) in &headers {
        mcp.add(name.as_str(), value);
    }
    let (worker, principal) = (at(1_700_000_000), Arc::new(Principal::anonymous()));
    let body = Bytes::from(body.to_string());
    let mut head = HttpHead {
        principal: &principal,
        headers: &mut headers,
        mcp: &mcp,
        extensions: None,
        takes_streams: true,
        wire: CountedTransport::Http11,
        peer: Some(address.into()),
    };
    let handled = poll_fn(|cx| Poll::Ready(server.handle_http(cx, &worker, &mut head, &body)));
    match handled.await.reply().await {
        Reply::Response(response) => serde_json::from_slice(&response.to_bytes()).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_address_without_authentication_has_its_own_number_of_tasks() {
    let tool = tool_fn(
        Definition::new("work").task(TaskSupport::Required),
        |_, _: Map<String, Value>| std::future::pending::<Result<String, ToolError>>(),
    );
    let mut config = ServerConfig::default();
    config.tasks.per_principal = 1;
    let server = Arc::new(Server::new(ServerParts {
        config,
        ..of(Catalog::new([tool.into_tool()]).expect("a good tool"))
    }));
    let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().expect("an address"));
    let first = call_from(&server, one).await;
    assert!(first["result"]["taskId"].is_string(), "{first}");
    let refused = call_from(&server, one).await;
    assert_eq!(
        refused["error"]["data"]["setting"],
        "server.tasks.per_principal"
    );
    let of_other = call_from(&server, other).await;
    assert!(of_other["result"]["taskId"].is_string(), "{of_other}");
}
