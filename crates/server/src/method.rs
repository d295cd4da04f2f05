//! Methods that the specification does not name.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

use crate::catalog::CallContext;
use crate::protocol::ErrorObject;

/// The future of one call of a method.
pub type MethodFuture = Pin<Box<dyn Future<Output = Result<Value, ErrorObject>> + Send + 'static>>;

/// Answers one method of the application's own, in every revision.
///
/// Implemented by every `async` closure from a context and parameters to a result:
///
/// ```
/// use std::sync::Arc;
/// use longshore::{App, CallContext};
/// use serde_json::{Value, json};
///
/// let app = App::new().method("com.example/mood", |_context: Arc<CallContext>, _params: Value| async {
///     Ok(json!({"mood": "cheerful"}))
/// });
/// ```
pub trait MethodHandler: Send + Sync + 'static {
    /// Runs once. `params` is an object, `{}` if the request had none. The result is an object too; anything else is
    /// an error of the server's own to the caller.
    ///
    /// # Errors
    ///
    /// The JSON-RPC error that the caller gets.
    fn call(&self, context: Arc<CallContext>, params: Value) -> MethodFuture;
}

impl<F, R> MethodHandler for F
where
    F: Fn(Arc<CallContext>, Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, ErrorObject>> + Send + 'static,
{
    fn call(&self, context: Arc<CallContext>, params: Value) -> MethodFuture {
        Box::pin(self(context, params))
    }
}
