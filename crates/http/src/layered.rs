//! A request inside the layers of the application, and the service inside of them.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::oneshot;
use tower::{Service, ServiceExt as _};

use super::connection::ConnectionState;
use super::context::{LayeredConn, Origin, RequestConn, Waiting, WorkerService};
use super::headers::{Fields, expects_continue};
use super::layers::McpService;
use super::pipeline::Progress;
use super::router::Router;
use crate::net::{Body, BodyError};
use crate::server::WorkerState;

/// A request inside the layers of the application.
pub(super) struct Layered {
    response: Waiting<Response<Body>>,
    /// Receives what the layers leave of the body.
    rest: Option<oneshot::Receiver<Body>>,
    /// True if its client waits to be asked for its body.
    pub(super) expects_continue: bool,
}

impl Layered {
    /// Hands a request to the layers, which call [`Progress`] inside of them. Only the version is left of its head.
    #[cold]
    pub(super) fn new(
        layers: McpService,
        connection: &ConnectionState,
        head: &mut Parts,
        body: &mut Body,
    ) -> Self {
        let expects_continue = expects_continue(head);
        let (mut left, ()) = Request::new(()).into_parts();
        left.version = head.version;
        let head = std::mem::replace(head, left);
        let (body, rest) = lend(std::mem::take(body), head.version);
        let mut request = Request::from_parts(head, body);
        let connection = LayeredConn::new(connection);
        request.extensions_mut().insert(connection);
        let response = Box::pin(async move {
            match layers.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        });
        Self {
            response,
            rest,
            expects_continue,
        }
    }

    /// Completes with the response of the layers. What they leave of the body is given back.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, body: &mut Body) -> Poll<Response<Body>> {
        let response = ready!(self.response.as_mut().poll(cx));
        // Dropped, since futures of layers may hold the request. A body that is read during the response is kept.
        self.response = Box::pin(std::future::pending());
        if let Some(Ok(rest)) = self.rest.as_mut().map(oneshot::Receiver::try_recv) {
            *body = rest;
        }
        Poll::Ready(response)
    }
}

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
            let mut progress = Progress::new(router.find(&head.uri));
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

/// A body inside the layers of the application. If they drop it before its end, the rest is given back.
struct LentBody {
    body: Body,
    rest: Option<oneshot::Sender<Body>>,
}

/// Lends a body to the layers of the application, and receives what they leave of it. Over HTTP/2 nothing is given back: an
/// unread body would hold the receive window of its connection.
fn lend(body: Body, version: Version) -> (Body, Option<oneshot::Receiver<Body>>) {
    if Version::HTTP_2 <= version || body.is_end_stream() {
        return (body, None);
    }
    let (sender, rest) = oneshot::channel();
    let lent = LentBody {
        body,
        rest: Some(sender),
    };
    (Body::new(lent), Some(rest))
}

impl http_body::Body for LentBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LentBody {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take()
            && !self.body.is_end_stream()
        {
            // Without a receiver, the request was abandoned.
            let _ = rest.send(std::mem::take(&mut self.body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_rest_of_a_lent_body_is_given_back_and_a_read_one_is_not() {
        let (body, rest) = lend(Body::from("abc"), Version::HTTP_11);
        let mut rest = rest.expect("it is lent");
        assert!(rest.try_recv().is_err(), "the layers have it");
        drop(body);
        let left = rest.try_recv().map(|rest| rest.size_hint().exact());
        assert_eq!(left, Ok(Some(3)));
        let (mut body, rest) = lend(Body::from("abc"), Version::HTTP_11);
        let mut rest = rest.expect("it is lent");
        let read = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert!(read.is_some_and(|frame| frame.is_ok()));
        drop(body);
        assert!(rest.try_recv().is_err());
        assert!(lend(Body::from("abc"), Version::HTTP_2).1.is_none());
    }
}
