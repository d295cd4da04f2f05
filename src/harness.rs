//! Tools, resources and prompts tested without a socket.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::protocol::Revision;
use crate::server::{Local, Part, Reply, Server, StdioPeer};

/// A server in the same process, for tests: messages go in and come out as JSON, through everything but a
/// transport.
///
/// ```
/// use longshore::{App, tool};
/// use serde_json::json;
///
/// /// Adds two numbers.
/// #[tool]
/// async fn add(a: i64, b: i64) -> i64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> longshore::Result {
/// let server = App::new().tool(add).harness()?;
/// let result = server.call("add", json!({"a": 1, "b": 2})).await.expect("a result");
/// assert_eq!(result["structuredContent"], 3);
///
/// let result = server.call("add", json!({"a": "one"})).await.expect("a result");
/// assert_eq!(result["isError"], true);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Harness {
    server: Arc<Server>,
    local: Local,
    principal: Arc<Principal>,
    peer: StdioPeer,
    next_id: AtomicU64,
}

impl Harness {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self {
            local: Local::new(server.telemetry().cells()),
            server,
            principal: Arc::new(Principal::local()),
            peer: StdioPeer::default(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Calls a tool as a client of the newest revision does.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object, for example of an unknown tool. A tool's own failure is a result with
    /// `isError: true`.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    /// Reads a resource as a client of the newest revision does.
    ///
    /// ```
    /// use longshore::{App, ResourceDefinition, StaticResource};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> longshore::Result {
    /// let greeting = StaticResource::text(ResourceDefinition::new("about://greeting", "greeting"), "Ahoy!");
    /// let server = App::new().resource(greeting).harness()?;
    /// let result = server.read("about://greeting").await.expect("contents");
    /// assert_eq!(result["contents"][0]["text"], "Ahoy!");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object, for example of a resource that is not there.
    pub async fn read(&self, uri: &str) -> Result<Value, Value> {
        self.request("resources/read", json!({"uri": uri})).await
    }

    /// Gets a prompt as a client of the newest revision does. `arguments` is an object of strings.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object, for example of a missing argument.
    pub async fn get_prompt(&self, prompt: &str, arguments: Value) -> Result<Value, Value> {
        self.request(
            "prompts/get",
            json!({"name": prompt, "arguments": arguments}),
        )
        .await
    }

    /// The definitions of all tools, as a client of the newest revision sees them.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object.
    pub async fn tools(&self) -> Result<Vec<Value>, Value> {
        self.list("tools/list", "tools").await
    }

    /// The definitions of all resources that are no templates, as a client of the newest revision sees them.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object; there is no such method where there are no resources.
    pub async fn resources(&self) -> Result<Vec<Value>, Value> {
        self.list("resources/list", "resources").await
    }

    /// The definitions of all templates of resources, as a client of the newest revision sees them.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object; there is no such method where there are no resources.
    pub async fn resource_templates(&self) -> Result<Vec<Value>, Value> {
        self.list("resources/templates/list", "resourceTemplates")
            .await
    }

    /// The definitions of all prompts, as a client of the newest revision sees them.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object; there is no such method where there are no prompts.
    pub async fn prompts(&self) -> Result<Vec<Value>, Value> {
        self.list("prompts/list", "prompts").await
    }

    /// All pages of a list.
    async fn list(&self, method: &str, member: &str) -> Result<Vec<Value>, Value> {
        let mut entries = Vec::new();
        let mut params = json!({});
        loop {
            let mut page = self.request(method, params).await?;
            if let Value::Array(more) = page[member].take() {
                entries.extend(more);
            }
            if page["nextCursor"].is_null() {
                return Ok(entries);
            }
            params = json!({"cursor": page["nextCursor"]});
        }
    }

    /// Sends any request as a client of the newest revision does; `_meta` is filled in.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object.
    pub async fn request(&self, method: &str, mut params: Value) -> Result<Value, Value> {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] =
            Revision::V2026_07_28.as_str().into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut answer = self.send(&message.to_string()).await.unwrap_or_default();
        match answer["error"].take() {
            Value::Null => Ok(answer["result"].take()),
            error => Err(error),
        }
    }

    /// Sends a message to the letter, in whatever revision it speaks; one client's messages after another, as over
    /// standard input and output. `None` if it gets no answer. What a call says while it runs is left out.
    pub async fn send(&self, message: &str) -> Option<Value> {
        self.send_and_listen(message).await.pop()
    }

    /// [`send`](Self::send), with the notifications that come before the answer. The answer is last.
    pub async fn send_and_listen(&self, message: &str) -> Vec<Value> {
        self.local.look_at_the_clock();
        let body = Bytes::copy_from_slice(message.as_bytes());
        let handled = poll_fn(|cx| {
            let (local, peer) = (&self.local, &self.peer);
            Poll::Ready(
                self.server
                    .handle_stdio(cx, local, peer, &self.principal, &body),
            )
        });
        let reply = handled.await.reply().await;
        let mut messages = Vec::new();
        match reply {
            Reply::Accepted | Reply::Cancelled => {}
            Reply::Answer(answer) => messages.push([answer.head, answer.rest].concat()),
            Reply::Stream(mut stream) => {
                while let Some(part) = poll_fn(|cx| stream.poll_next(cx)).await {
                    messages.push(match part {
                        Part::Message(message) => message.to_vec(),
                        Part::Answer(answer) => [answer.head, answer.rest].concat(),
                    });
                }
            }
        }
        messages
            .iter()
            .filter_map(|message| serde_json::from_slice(message).ok())
            .collect()
    }
}
