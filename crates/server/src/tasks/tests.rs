//! Tests that need control of the caller's address.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::auth::{Policy, Principal};
use crate::catalog::{
    CallContext, Catalog, Definition, IntoTool as _, TaskSupport, ToolError, tool_fn,
};
use crate::server::tests::{at, head, headers_of, of};
use crate::server::{Admission, Reply, Server, ServerConfig, ServerContext, ServerParts};

/// Calls a tool from an address, without authentication.
async fn call_from(server: &Arc<Server>, address: IpAddr) -> Value {
    let params = json!({"name": "work"});
    let caller = (Principal::anonymous(), address);
    send(server, caller, "tools/call", "work", params).await
}

/// Sends a request. `about` is the tool or the task that it names.
async fn send(
    server: &Arc<Server>,
    (principal, address): (Principal, IpAddr),
    method: &str,
    about: &str,
    mut params: Value,
) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities":
            {"roots": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (mut headers, mcp) = headers_of(&[
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("mcp-name", about),
    ]);
    let (worker, principal) = (at(1_700_000_000), Arc::new(principal));
    let body = Bytes::from(body.to_string());
    let mut head = head(&principal, &mut headers, &mcp);
    head.peer = Some(address.into());
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

/// A reload can remove a tool, and so can an upstream that is down.
#[tokio::test]
async fn a_task_of_a_tool_that_was_removed_can_be_followed_and_cancelled() {
    let tool = tool_fn(
        Definition::new("work").task(TaskSupport::Required),
        |_, _: Map<String, Value>| std::future::pending::<Result<String, ToolError>>(),
    );
    let catalog = Catalog::new([tool.into_tool()]).expect("a good tool");
    let server = Arc::new(Server::new(of(catalog)));
    let address: IpAddr = "192.0.2.1".parse().expect("an address");
    let begin = async |name: &str| {
        let caller = (Principal::new(name), address);
        let begun = send(
            &server,
            caller,
            "tools/call",
            "work",
            json!({"name": "work"}),
        )
        .await;
        let task = begun["result"]["taskId"].as_str().expect("a task");
        task.to_owned()
    };
    let (of_ada, of_eve) = (begin("ada").await, begin("eve").await);
    let rules = json!({"rules": [{"effect": "deny", "principals": ["eve"], "tools": ["w*"]}]});
    let rules = serde_json::from_value(rules).expect("sound rules");
    let admission = Admission {
        policy: Policy::new(&rules).expect("sound rules"),
        ..Admission::default()
    };
    let nothing = Catalog::new([]).expect("no tools");
    server.install(server.prepare(nothing, &ServerConfig::default(), admission));
    let ask = async |name: &str, method: &str, task: &str| {
        let caller = (Principal::new(name), address);
        send(&server, caller, method, task, json!({"taskId": task})).await
    };
    let shown = ask("ada", "tasks/get", &of_ada).await;
    assert_eq!(shown["result"]["status"], "working", "{shown}");
    let cancelled = ask("ada", "tasks/cancel", &of_ada).await;
    assert!(cancelled["result"].is_object(), "{cancelled}");
    let shown = ask("ada", "tasks/get", &of_ada).await;
    assert_eq!(shown["result"]["status"], "cancelled", "{shown}");
    for hidden in [
        ask("eve", "tasks/get", &of_eve).await,
        ask("eve", "tasks/get", &of_ada).await,
    ] {
        assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
    }
}

/// Clients of another replica could still respond.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_client_ends_with_a_server_that_has_no_replicas() {
    for is_shared in [false, true] {
        let tool = tool_fn(
            Definition::new("work").task(TaskSupport::Required),
            |context: Arc<CallContext>, _: Map<String, Value>| async move {
                let roots = context.roots().await?;
                Ok::<_, ToolError>(roots[0].uri.clone())
            },
        );
        let server = Arc::new(Server::new(ServerParts {
            shared: ServerContext {
                is_shared,
                ..ServerContext::default()
            },
            ..of(Catalog::new([tool.into_tool()]).expect("a good tool"))
        }));
        let address: IpAddr = "192.0.2.1".parse().expect("an address");
        let ask = async |method: &str, about: &str, params: Value| {
            let caller = (Principal::new("ada"), address);
            let response = send(&server, caller, method, about, params).await;
            response["result"].clone()
        };
        let begun = ask("tools/call", "work", json!({"name": "work"})).await;
        let task = begun["taskId"].as_str().expect("a task");
        let get = async || ask("tasks/get", task, json!({"taskId": task})).await;
        while get().await["status"] != "input_required" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.end_streams();
        let stops = tokio::time::timeout(Duration::from_secs(1), server.idle()).await;
        assert_eq!(stops.is_ok(), !is_shared);
        let shown = get().await;
        if is_shared {
            assert_eq!(shown["status"], "input_required", "{shown}");
            continue;
        }
        assert_eq!(shown["status"], "completed", "{shown}");
        let text = &shown["result"]["content"][0]["text"];
        assert!(
            text.as_str()
                .is_some_and(|text| text.contains("this server stops")),
            "{shown}"
        );
    }
}
