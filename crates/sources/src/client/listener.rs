//! Receivers of the messages from a server.

use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use super::attribution::Caller;
use super::{ClientError, METHOD_NOT_FOUND, RpcError};
use crate::protocol::ClientAbility;

/// Receiver of the messages that a server sends about one request.
pub trait Listener: Send + Sync {
    /// Returns true if progress notifications are wanted. Without them a server can respond with plain JSON, where it
    /// would otherwise have to open a stream. Default: true.
    fn wants_progress(&self) -> bool {
        true
    }

    /// Returns the minimum level of wanted log messages, in the protocol's terms. Servers of 2026-07-28 receive it
    /// with the request. Default: `debug`.
    fn wants_log(&self) -> Option<&'static str> {
        Some("debug")
    }

    /// Returns the caller for whom the request is made. A message that names no request is delivered only if all
    /// requests that can have caused it are of one caller. Default: `None`, this program's own user.
    fn caller(&self) -> Option<Caller> {
        None
    }

    /// Returns true if the listener handles client requests that need an ability. Servers of 2026-07-28 are told with
    /// each request. Default: true, all that the connection declares.
    fn can(&self, ability: ClientAbility) -> bool {
        let _ = ability;
        true
    }

    /// Returns true if earlier rounds of the request may be recorded, because the call for which it is made was resumed.
    /// Default: false.
    fn is_resumed(&self) -> bool {
        false
    }

    /// Makes one round of the request to a server of 2026-07-28, or returns its recorded result. A result that asks for
    /// input is recorded, so that a resumed call continues at the server instead of beginning again. By default, nothing
    /// is recorded.
    fn round<'a>(
        &'a self,
        round: BoxFuture<'a, Result<Box<RawValue>, ClientError>>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, ClientError>> {
        round
    }

    /// Called when the request is sent under this JSON-RPC ID. A retry has another ID.
    fn sent(&self, id: u64) {
        let _ = id;
    }

    /// Called for a progress notification.
    fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let _ = (progress, total, message);
    }

    /// Called for a log message: its level, its logger's name, and the message.
    fn log(&self, level: &str, logger: Option<&str>, data: &Value) {
        let _ = (level, logger, data);
    }

    /// Handles a client request: `elicitation/create`, `sampling/createMessage` or `roots/list`.
    ///
    /// # Errors
    ///
    /// The error that is sent to the server. By default, client requests are not supported.
    fn question(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let _ = params;
        Box::pin(async move {
            Err(RpcError::new(
                METHOD_NOT_FOUND,
                format!("no client can be asked: {method}"),
            ))
        })
    }

    /// Handles a client request like [`question`](Self::question), to which a server of 2026-07-28 has given a name. By
    /// default, the name is not used.
    ///
    /// # Errors
    ///
    /// The error that ends the request to the server.
    fn named_question(
        &self,
        name: String,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let _ = name;
        self.question(method, params)
    }
}

/// Receiver of the messages that a server sends outside of requests.
pub trait Events: Send + Sync {
    /// Called when a list has changed: `tools`, `resources` or `prompts`.
    fn list_changed(&self, list: &str) {
        let _ = list;
    }

    /// Called when a subscribed resource has changed.
    fn resource_updated(&self, uri: &str) {
        let _ = uri;
    }

    /// Called when a user has finished with the page of a URL elicitation with this `elicitationId`.
    fn elicitation_completed(&self, id: &str) {
        let _ = id;
    }

    /// Returns true if changes of lists are wanted, for which a server of 2026-07-28 needs a subscription. Default: true.
    fn wants_changes(&self) -> bool {
        true
    }

    /// Called when messages may have been missed, because the stream for them was interrupted. Default: all lists may
    /// have changed.
    fn missed(&self) {
        for list in ["tools", "resources", "prompts"] {
            self.list_changed(list);
        }
    }

    /// Called when a log message was dropped, or a client request rejected, because it could not be attributed to a
    /// call.
    fn withheld(&self, method: &str, reason: &'static str) {
        let _ = (method, reason);
    }

    /// Called when the connection has ended.
    fn closed(&self) {}
}
