//! Messages of both lifecycles.

use serde_json::{Value, json};

use super::client::post;
use super::server::Running;
use super::{Connection, Response};

/// A request's text, with the id 1.
pub(crate) fn request(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// The `_meta` of every request in the stateless lifecycle.
pub(crate) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A session of the stateful lifecycle.
pub(crate) struct Session<'s> {
    server: &'s Running,
    pub(crate) id: String,
    /// The result of `initialize`.
    pub(crate) initialized: Value,
}

impl<'s> Session<'s> {
    /// Asks for a revision, and takes the one that is offered.
    pub(super) fn begin(server: &'s Running, revision: &str, capabilities: &Value) -> Self {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        });
        let response = server.post(&[], &request("initialize", &params));
        let initialized = response.result();
        let id = response.header("mcp-session-id").expect("a session id");
        Self {
            server,
            id: id.to_owned(),
            initialized,
        }
    }

    /// Returns the same session at another server.
    pub(crate) fn at<'o>(&self, server: &'o Running) -> Session<'o> {
        Session {
            server,
            id: self.id.clone(),
            initialized: self.initialized.clone(),
        }
    }

    /// The headers of its requests, in the form that every revision takes.
    pub(crate) fn headers(&self) -> [(&str, &str); 1] {
        [("mcp-session-id", &self.id)]
    }

    /// Posts a body as it is.
    pub(crate) fn post(&self, body: &str) -> Response {
        self.server.post(&self.headers(), body)
    }

    pub(crate) fn request(&self, method: &str, params: &Value) -> Response {
        self.post(&request(method, params))
    }

    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Response {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Ends it.
    #[track_caller]
    pub(crate) fn end(&self) {
        let text = format!(
            "DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {}\r\n\r\n",
            self.id
        );
        assert_eq!(self.server.connect().send(text).receive().status, 200);
    }

    /// A request's bytes, for connections that are held in hand.
    pub(crate) fn text(&self, method: &str, params: &Value) -> String {
        post(&self.headers(), &request(method, params))
    }
}

/// A valid request of the stateless lifecycle, which tests modify.
#[derive(Clone)]
pub(crate) struct Stateless {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
    headers: Vec<(String, String)>,
}

impl Stateless {
    pub(crate) fn new(method: &str, mut params: Value) -> Self {
        params["_meta"] = meta();
        let mut headers = vec![
            ("mcp-protocol-version".to_owned(), "2026-07-28".to_owned()),
            ("mcp-method".to_owned(), method.to_owned()),
        ];
        let named = params["name"].as_str().or(params["uri"].as_str());
        if let Some(name) = named {
            headers.push(("mcp-name".to_owned(), name.to_owned()));
        }
        Self {
            id: json!(1),
            method: method.to_owned(),
            params,
            headers,
        }
    }

    pub(crate) fn call(tool: &str, arguments: Value) -> Self {
        Self::new("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Adds a header.
    pub(crate) fn and(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header away.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(n, _)| n != name);
        self
    }

    /// Replaces a header.
    pub(crate) fn with(self, name: &str, value: &str) -> Self {
        self.without(name).and(name, value)
    }

    /// Changes `params`.
    pub(crate) fn params(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.params);
        self
    }

    /// Changes a member of `_meta`; `null` takes it away.
    pub(crate) fn meta(self, key: &str, value: Value) -> Self {
        let key = format!("io.modelcontextprotocol/{key}");
        self.params(|params| {
            let meta = params["_meta"].as_object_mut().expect("an object");
            match value {
                Value::Null => meta.remove(&key),
                value => meta.insert(key, value),
            };
        })
    }

    /// The request's bytes.
    pub(crate) fn text(&self) -> String {
        let body = json!({
            "jsonrpc": "2.0", "id": self.id, "method": self.method, "params": self.params,
        });
        let headers: Vec<_> = self
            .headers
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        post(&headers, &body.to_string())
    }

    pub(crate) fn send(&self, server: &Running) -> Response {
        self.send_on(&mut server.connect())
    }

    pub(crate) fn send_on(&self, connection: &mut Connection) -> Response {
        connection.send(self.text()).receive()
    }
}
