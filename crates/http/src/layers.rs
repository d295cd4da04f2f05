//! What the application adds to the server: `tower` layers, with the service that they are put around, and paths of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body::Body as HttpBody;
use tower::util::BoxCloneService;
use tower::{Layer, Service};

use super::rejection::HttpError;
use crate::net::{Body, BodyError};

/// The service that a [`tower::Layer`] given to `App::layer` is put around.
#[derive(Clone)]
pub struct McpService(BoxCloneService<Request<Body>, Response<Body>, Infallible>);

impl McpService {
    pub(super) fn new<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        Self(BoxCloneService::new(service))
    }
}

impl Service<Request<Body>> for McpService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

impl fmt::Debug for McpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpService")
    }
}

/// The application's layers, outermost first.
#[derive(Clone, Default)]
pub struct Layers {
    around: Vec<Arc<dyn Fn(McpService) -> McpService + Send + Sync>>,
    /// Handlers of the application, by path.
    pub(super) routes: HashMap<String, Arc<dyn RouteHandler>>,
    /// Paths without authentication that other parts of the program serve.
    public: Vec<Arc<dyn PublicPaths>>,
}

impl Layers {
    /// Adds a handler for a path of the application.
    pub fn add_route(&mut self, path: String, handler: Arc<dyn RouteHandler>) {
        self.routes.insert(path, handler);
    }

    /// Returns true if the application handles a path.
    pub fn has_route(&self, path: &str) -> bool {
        self.routes.contains_key(path)
    }

    /// Serves further paths without authentication. Paths of the server itself take precedence over those of the application.
    pub fn serve_publicly(&mut self, paths: Arc<dyn PublicPaths>) {
        self.public.push(paths);
    }

    /// Returns the part that serves a path without authentication, if any.
    #[inline]
    pub(super) fn public_at(&self, path: &str) -> Option<&Arc<dyn PublicPaths>> {
        self.public.iter().find(|public| public.has(path))
    }

    /// Adds a layer inside the existing ones.
    pub fn push<L, B, E>(&mut self, layer: L)
    where
        L: Layer<McpService> + Send + Sync + 'static,
        L::Service:
            Service<Request<Body>, Response = Response<B>, Error = E> + Clone + Send + 'static,
        <L::Service as Service<Request<Body>>>::Future: Send,
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
        E: Into<BodyError> + 'static,
    {
        self.around.push(Arc::new(move |inner| {
            McpService::new(InnerService {
                inner: layer.layer(inner),
                failed: false,
            })
        }));
    }

    /// Returns true if there are no layers.
    pub(super) fn is_empty(&self) -> bool {
        self.around.is_empty()
    }

    /// Applies all layers to the innermost service; `None` if there are no layers.
    pub(super) fn apply(&self, innermost: impl FnOnce() -> McpService) -> Option<McpService> {
        if self.around.is_empty() {
            return None;
        }
        let layers = self.around.iter().rev();
        Some(layers.fold(innermost(), |inner, layer| layer(inner)))
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers")
            .field("around", &self.around.len())
            .field("routes", &self.routes.keys())
            .finish()
    }
}

/// A layered service that converts errors to responses.
#[derive(Clone)]
struct InnerService<S> {
    inner: S,
    /// True if the service reported a readiness error and must not be called.
    failed: bool,
}

impl<S, B> Service<Request<Body>> for InnerService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BodyError> + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.failed {
            return Poll::Ready(Ok(()));
        }
        self.inner.poll_ready(cx).map(|ready| {
            if let Err(error) = ready {
                self.failed = true;
                layer_failed(&*error.into());
            }
            Ok(())
        })
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.failed {
            let response = HttpError::Internal.into_problem();
            return Box::pin(std::future::ready(Ok(response)));
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            Ok(match answer.await {
                Ok(response) => response.map(Body::new),
                Err(error) => layer_failed(&*error.into()),
            })
        })
    }
}

fn layer_failed(error: &(dyn std::error::Error + Send + Sync)) -> Response<Body> {
    tracing::error!(%error, "a layer of the application failed");
    HttpError::Internal.into_problem()
}

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

/// Calls the handler of a route; a panic fails only its own request.
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
