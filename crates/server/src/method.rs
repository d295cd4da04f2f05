//! Custom methods.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

use crate::catalog::CallContext;
use crate::protocol::ErrorObject;

/// Future of one call of a custom method.
pub type MethodFuture = Pin<Box<dyn Future<Output = Result<Value, ErrorObject>> + Send + 'static>>;

/// Handler of a custom method, for all revisions.
///
/// Implemented for `async` closures that take a context and parameters:
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
    /// Handles one request. `params` is an object, `{}` if the request has none. The result must be an object; any
    /// other value is reported to the caller as an internal error.
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
