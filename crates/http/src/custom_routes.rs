//! Paths of the application's own.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};

use super::rejection::HttpError;
use crate::net::Body;

/// Future of one response.
pub type RouteFuture = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// Handler of one application route. Implemented by every `async` closure from a request with a complete body to a
/// response.
pub trait RouteHandler: Send + Sync + 'static {
    /// Handles one request.
    fn call(&self, request: Request<Bytes>) -> RouteFuture;
}

impl<F, R> RouteHandler for F
where
    F: Fn(Request<Bytes>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    fn call(&self, request: Request<Bytes>) -> RouteFuture {
        Box::pin(self(request))
    }
}

/// Paths that another part of the program serves, without authentication. `Host` and `Origin` are not restricted.
pub trait PublicPaths: fmt::Debug + Send + Sync {
    /// Returns true if a path below the server's root is one of them.
    fn has(&self, path: &str) -> bool;

    /// Responds to a request with a complete body. Its extensions have the
    /// [`ClientLimits`](crate::limit::ClientLimits).
    fn respond(&self, path: &str, request: Request<Bytes>) -> RouteFuture;
}

/// Calls the handler; a panic fails only its own request.
pub(super) async fn respond(handler: &dyn RouteHandler, request: Request<Bytes>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let answer = async { handler.call(request).await };
    match AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!(path, "a route panicked; its request failed");
            HttpError::Internal.into_problem()
        }
    }
}
