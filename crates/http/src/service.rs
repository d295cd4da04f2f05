//! The service inside the layers of the application.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower::Service;

use super::context::{LayeredConn, Origin, RequestConn, WorkerService};
use super::headers::Fields;
use super::layers::McpService;
use super::pipeline::Progress;
use super::router::Router;
use crate::net::Body;
use crate::server::WorkerState;

impl WorkerService {
    pub fn new(router: Arc<Router>, local: Arc<WorkerState>) -> Self {
        let innermost = || {
            McpService::new(Innermost {
                router: Arc::clone(&router),
                worker: Arc::clone(&local),
            })
        };
        let layered = router.layers.apply(innermost);
        Self {
            router,
            local,
            layered,
        }
    }
}

/// The innermost service of the application's layers: the stages of a request after its head was admitted.
#[derive(Clone)]
struct Innermost {
    router: Arc<Router>,
    worker: Arc<WorkerState>,
}

impl Service<Request<Body>> for Innermost {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { router, worker } = self.clone();
        let connection = request.extensions_mut().remove::<LayeredConn>();
        let (mut head, mut body) = request.into_parts();
        Box::pin(async move {
            // Layers may have changed the headers.
            let mut summary = Fields::read(&head.headers).summary();
            if !head.extensions.is_empty() {
                summary.extensions = Some(Arc::new(head.extensions.clone()));
            }
            let peer = connection.as_ref().map(|c| c.shared.peer());
            let client = peer.map(|peer| router.client(peer, &head.headers));
            let mut progress = Progress::new();
            let respond = poll_fn(|cx| {
                let connection = connection.as_ref();
                let origin = Origin {
                    router: &router,
                    worker: &worker,
                    connection: connection.map_or(RequestConn::Unknown, RequestConn::Layered),
                    client,
                    summary: &summary,
                };
                progress.poll(cx, &origin, &mut head, &mut body)
            });
            Ok(respond.await)
        })
    }
}
