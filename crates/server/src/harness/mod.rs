//! In-process test harness for tools, resources and prompts.

mod options;
mod result;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::auth::Principal;
use crate::catalog::LogLevel;
use crate::protocol::Revision;
use crate::server::{EventData, Reply, Server, StdioPeer, TestHttpRequest, WorkerState};
use crate::telemetry::RequestOrigin;
pub use result::{CallError, CallResult, Progress};

/// In-process server for tests. Messages are exchanged as JSON and pass through everything but a transport.
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
/// let result = server.call("add", json!({"a": 1, "b": 2})).await?;
/// assert_eq!(result.structured::<i64>()?, 3);
///
/// let result = server.call("add", json!({"a": "one"})).await?;
/// assert!(result.is_error());
/// # Ok(())
/// # }
/// ```
///
/// # Client requests
///
/// [`on_client_request`](Self::on_client_request) sets the responses of the client. The same test then runs for every
/// revision:
///
/// ```
/// use longshore::protocol::Revision;
/// use longshore::{App, CallContext, JsonSchema, ToolError, tool};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, JsonSchema)]
/// struct Name {
///     name: String,
/// }
///
/// /// Greets whoever is there.
/// #[tool]
/// async fn greet(context: &CallContext) -> Result<String, ToolError> {
///     let name = context.elicit::<Name>("What is your name?").await?.accepted();
///     Ok(name.map_or("Goodbye.".to_owned(), |Name { name }| format!("Hello {name}.")))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> longshore::Result {
/// for revision in [Revision::V2025_06_18, Revision::V2025_11_25, Revision::V2026_07_28] {
///     let server = App::new().tool(greet).harness()?.with_version(revision).on_client_request(|method, params| {
///         assert_eq!(method, "elicitation/create");
///         assert_eq!(params["message"], "What is your name?");
///         json!({"action": "accept", "content": {"name": "Ada"}})
///     });
///     let result = server.call("greet", json!({})).await.expect("a result");
///     assert_eq!(result["content"][0]["text"], "Hello Ada.");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Harness {
    server: Arc<Server>,
    worker: WorkerState,
    principal: Arc<Principal>,
    peer: StdioPeer,
    next_id: AtomicU64,
    revision: Revision,
    log_level: Option<LogLevel>,
    http: Option<TestHttpRequest>,
    answer: Option<Box<ClientHandler>>,
    witness: Option<Box<MessageObserver>>,
}

/// A message between the harness's client and its server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WireMessage<'m> {
    /// From the client, as JSON; `null` if it was not valid JSON.
    ToServer(&'m Value),
    /// From the server.
    ToClient(&'m Value),
}

type MessageObserver = dyn Fn(WireMessage<'_>) + Send + Sync;

type ClientHandler = dyn Fn(&str, &Value) -> Value + Send + Sync;

/// Maximum number of times that a call may ask for input.
const ROUNDS_MAX: usize = 100;

impl Harness {
    pub fn new(server: Arc<Server>) -> Self {
        Self {
            worker: WorkerState::new(server.telemetry().cells()),
            server,
            principal: Arc::new(Principal::local()),
            peer: StdioPeer::default(),
            next_id: AtomicU64::new(1),
            revision: Revision::V2026_07_28,
            log_level: None,
            http: None,
            answer: None,
            witness: None,
        }
    }

    /// Calls a function with each message in both directions, for checks that apply to all of them.
    ///
    /// ```
    /// use longshore::harness::WireMessage;
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
    /// let server = App::new().tool(add).harness()?.on_message(|passed| {
    ///     let (WireMessage::ToServer(message) | WireMessage::ToClient(message)) = passed else { return };
    ///     assert_eq!(message["jsonrpc"], "2.0");
    /// });
    /// server.call("add", json!({"a": 1, "b": 2})).await.expect("a result");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn on_message(mut self, witness: impl Fn(WireMessage<'_>) + Send + Sync + 'static) -> Self {
        self.witness = Some(Box::new(witness));
        self
    }

    /// Starts a new session: it belongs to one principal, and revision, capabilities, headers and log level are fixed at its
    /// start.
    fn renew_peer(&mut self) {
        self.peer = StdioPeer::with_http(self.http.clone());
    }

    /// Messages about configured items that cannot be served.
    #[cfg(feature = "cli")]
    pub fn refused(&self) -> Vec<String> {
        self.server.problems()
    }

    /// Calls a tool. The call has a progress token, so [`on_message`](Self::on_message) receives what
    /// [`CallContext::progress`](crate::catalog::CallContext::progress) reports:
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use longshore::harness::WireMessage;
    /// use longshore::{App, CallContext, tool};
    /// use serde_json::json;
    ///
    /// /// Copies files.
    /// #[tool]
    /// async fn copy(context: &CallContext) -> &'static str {
    ///     context.progress(1.0, Some(2.0), "half").await;
    ///     "done"
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> longshore::Result {
    /// let progress = Arc::new(Mutex::new(Vec::new()));
    /// let seen = Arc::clone(&progress);
    /// let server = App::new().tool(copy).harness()?.on_message(move |passed| {
    ///     if let WireMessage::ToClient(message) = passed
    ///         && message["method"] == "notifications/progress"
    ///     {
    ///         seen.lock().expect("not poisoned").push(message["params"]["message"].clone());
    ///     }
    /// });
    /// server.call("copy", json!({})).await.expect("a result");
    /// assert_eq!(*progress.lock().expect("not poisoned"), ["half"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object, for example of an unknown tool. A tool's own failure is a result with
    /// `isError: true`.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<CallResult, CallError> {
        let params = json!({"name": tool, "arguments": arguments});
        let mut notifications = Vec::new();
        let params = self.followed(params);
        let result = self.exchange("tools/call", params, &mut notifications);
        Ok(CallResult::new(result.await?, notifications))
    }

    /// Reads a resource.
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
    pub async fn read(&self, uri: &str) -> Result<Value, CallError> {
        let params = json!({"uri": uri});
        self.request("resources/read", self.followed(params)).await
    }

    /// Gets a prompt. `arguments` is an object of strings.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object, for example for a missing argument.
    pub async fn get_prompt(&self, prompt: &str, arguments: Value) -> Result<Value, CallError> {
        let params = json!({"name": prompt, "arguments": arguments});
        self.request("prompts/get", self.followed(params)).await
    }

    /// Adds a progress token to the parameters.
    fn followed(&self, mut params: Value) -> Value {
        let token = self.next_id.fetch_add(1, Ordering::Relaxed);
        params["_meta"] = json!({"progressToken": format!("progress-{token}")});
        if let Some(level) = self.log_level
            && !self.revision.has_sessions()
        {
            params["_meta"]["io.modelcontextprotocol/logLevel"] = level.as_str().into();
        }
        params
    }

    /// Lists the definitions of all tools, as the client receives them.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object.
    pub async fn tools(&self) -> Result<Vec<Value>, CallError> {
        self.list("tools/list", "tools").await
    }

    /// Lists the definitions of all resources that are not templates.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object. Without resources, the method does not exist.
    pub async fn resources(&self) -> Result<Vec<Value>, CallError> {
        self.list("resources/list", "resources").await
    }

    /// Lists the definitions of all resource templates.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object. Without resources, the method does not exist.
    pub async fn resource_templates(&self) -> Result<Vec<Value>, CallError> {
        self.list("resources/templates/list", "resourceTemplates")
            .await
    }

    /// Lists the definitions of all prompts.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object. Without prompts, the method does not exist.
    pub async fn prompts(&self) -> Result<Vec<Value>, CallError> {
        self.list("prompts/list", "prompts").await
    }

    /// Fetches all pages of a list.
    async fn list(&self, method: &str, member: &str) -> Result<Vec<Value>, CallError> {
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

    /// Sends a request. Adds the metadata that the revision requires, and responds to client requests.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error object.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value, CallError> {
        self.exchange(method, params, &mut Vec::new()).await
    }

    /// Sends a request like [`request`](Self::request). Appends notifications sent before the result to `heard`.
    async fn exchange(
        &self,
        method: &str,
        mut params: Value,
        heard: &mut Vec<Value>,
    ) -> Result<Value, CallError> {
        if self.revision.has_sessions() {
            if !self.peer.has_session() {
                let params = json!({
                    "protocolVersion": self.revision.as_str(),
                    "capabilities": self.capabilities(),
                    "clientInfo": {"name": "harness", "version": env!("CARGO_PKG_VERSION")},
                });
                self.request_once("initialize", &params, heard).await?;
                if let Some(level) = self.log_level {
                    let params = json!({"level": level.as_str()});
                    self.request_once("logging/setLevel", &params, heard)
                        .await?;
                }
            }
            return self.request_once(method, &params, heard).await;
        }
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = self.revision.as_str().into();
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities();
        let mut result = self.request_once(method, &params, heard).await?;
        let Some(answer) = &self.answer else {
            return Ok(result);
        };
        for _ in 0..ROUNDS_MAX {
            if result["resultType"] != "input_required" {
                break;
            }
            params["inputResponses"] = json!({});
            if let Some(requests) = result["inputRequests"].as_object() {
                for (name, request) in requests {
                    let method = request["method"].as_str().unwrap_or_default();
                    params["inputResponses"][name] = answer(method, &request["params"]);
                }
            }
            params["requestState"] = result["requestState"].take();
            result = self.request_once(method, &params, heard).await?;
        }
        Ok(result)
    }

    /// Capabilities of the client.
    fn capabilities(&self) -> Value {
        match self.answer {
            Some(_) => json!({
                "elicitation": {"form": {}, "url": {}},
                "sampling": {"tools": {}, "context": {}},
                "roots": {},
            }),
            None => json!({}),
        }
    }

    async fn request_once(
        &self,
        method: &str,
        params: &Value,
        heard: &mut Vec<Value>,
    ) -> Result<Value, CallError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut messages = self.send_and_listen(&message.to_string()).await;
        let mut answer = messages.pop().unwrap_or_default();
        heard.append(&mut messages);
        match answer["error"].take() {
            Value::Null => Ok(answer["result"].take()),
            error => Err(CallError::new(error)),
        }
    }

    /// Sends a message verbatim, in any revision, like a client over stdio. Returns `None` if there is no response.
    /// Notifications before the response are dropped.
    pub async fn send(&self, message: &str) -> Option<Value> {
        self.send_and_listen(message).await.pop()
    }

    /// Sends a message like [`send`](Self::send). Also returns the notifications before the response, which is last.
    pub async fn send_and_listen(&self, message: &str) -> Vec<Value> {
        let reply = self.handle(message).await;
        let mut messages = Vec::new();
        match reply {
            Reply::Accepted | Reply::Cancelled => {}
            Reply::Response(answer) => messages.push(answer.to_bytes().to_vec()),
            Reply::Stream(mut stream) => {
                while let Some(event) = poll_fn(|cx| match stream.poll_next(cx) {
                    // The stream stays open until it is closed.
                    Poll::Pending if stream.is_standing() => Poll::Ready(None),
                    next => next,
                })
                .await
                {
                    match event.data {
                        EventData::Message(message) => {
                            self.respond(&message).await;
                            messages.push(message.to_vec());
                        }
                        EventData::Response(answer) => messages.push(answer.to_bytes().to_vec()),
                        EventData::Empty => {}
                    }
                }
            }
        }
        let messages: Vec<Value> = messages
            .iter()
            .filter_map(|message| serde_json::from_slice(message).ok())
            .collect();
        if let Some(witness) = &self.witness {
            messages
                .iter()
                .for_each(|message| witness(WireMessage::ToClient(message)));
        }
        messages
    }

    async fn handle(&self, message: &str) -> Reply {
        self.worker.update_clock();
        if let Some(witness) = &self.witness {
            let message = serde_json::from_str(message).unwrap_or_default();
            witness(WireMessage::ToServer(&message));
        }
        let body = Bytes::copy_from_slice(message.as_bytes());
        let handled = poll_fn(|cx| {
            let (by, peer) = ((&self.worker, RequestOrigin::PIPE), &self.peer);
            Poll::Ready(
                self.server
                    .handle_stdio(cx, by, peer, &self.principal, &body),
            )
        });
        handled.await.reply().await
    }

    /// Responds to a message of the server, if it is a request.
    async fn respond(&self, message: &[u8]) {
        let (Some(answer), Ok(question)) = (&self.answer, serde_json::from_slice::<Value>(message))
        else {
            return;
        };
        let Some(method) = question["method"]
            .as_str()
            .filter(|_| !question["id"].is_null())
        else {
            return;
        };
        let result = answer(method, &question["params"]);
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        self.handle(&answer.to_string()).await;
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("server", &self.server)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}
