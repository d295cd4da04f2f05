//! Request processing from head to response, for HTTP/1, HTTP/2 and requests without a socket alike.
//!
//! A request is admitted by its head, then goes through the stages of [`Progress`], and ends in the steps that are common
//! to all responses. Layers of the application are between the first and the second part.
//!
//! hyper moves the request future, and HTTP/2 has one for each stream. The future therefore holds only the parts of the
//! request. Nearly all requests complete on the first poll; the others continue in a box.

use std::convert::Infallible;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use tower::ServiceExt as _;

use super::compress;
use super::connection::ConnectionState;
use super::context::{LayeredConn, Origin, RequestConn, Waiting};
use super::headers::AdmittedHead;
use super::layers::McpService;
use super::progress::Progress;
use super::request_body::{self, UnreadBody};
use super::route::Route;
use super::service::ConnService;
use crate::limit::Limits;
use crate::net::{Body, Peer};
use crate::telemetry::{CountedTransport, HttpKey, HttpWatch};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Future of the response to one request.
pub(crate) struct RequestFuture {
    service: StreamGuard,
    head: Parts,
    body: Body,
    /// True if the response may be compressed.
    gzip: bool,
    /// True if layers of the application have the request, and its client waits to be asked for its body.
    layers_ask: bool,
    last_steps: LastSteps,
    state: State,
}

enum State {
    /// Not polled yet.
    New,
    /// Rejected by its head, until what has arrived of its body is dropped.
    Rejected(UnreadBody),
    /// Waits in one of the stages.
    Waiting(Box<(AdmittedHead, Progress)>),
    /// Inside the layers of the application.
    Layered(Waiting<Response<Body>>),
    Compressing(Waiting<Response<Body>>),
    Done,
}

/// Inputs of the steps that are common to all responses.
struct LastSteps {
    client: Peer,
    /// Configured origin of the page that sent the request.
    origin: Option<HeaderValue>,
    /// The request is its connection's last.
    last: bool,
    /// Start time, if the client receives a `Server-Timing` header.
    begun: Option<Instant>,
    /// Observer that counts the request, if any.
    watch: Option<HttpWatch>,
}

/// A connection with its service. An HTTP/2 stream is counted until drop.
struct StreamGuard {
    service: Rc<ConnService>,
    is_stream: bool,
}

impl RequestFuture {
    /// Begins to serve a request, which is taken as its parts: each time that it is put together it is copied.
    #[inline]
    pub(super) fn new(conn: Rc<ConnService>, head: Parts, body: impl Into<Body>) -> Self {
        let router = &*conn.service.router;
        let config = &router.endpoint.config;
        let hits = &conn.service.limits().hits;
        let connection = &conn.connection;
        let last = connection.begin_request(&config.limits, hits);
        let is_stream = connection.open_stream();
        let gzip = config.compression && compress::takes_gzip(&head.headers);
        let watch = router.telemetry.counts().then(|| {
            let key = key_of(router.path(&head.uri), &head);
            HttpWatch::begin(Arc::clone(conn.service.local.cells()), key)
        });
        let last_steps = LastSteps {
            client: router.client(connection.shared().peer(), &head.headers),
            origin: router.cors.origin(&head.headers),
            last,
            begun: config.server_timing.then(Instant::now),
            watch,
        };
        Self {
            service: StreamGuard {
                service: conn,
                is_stream,
            },
            head,
            body: body.into(),
            gzip,
            layers_ask: false,
            last_steps,
            state: State::New,
        }
    }

    #[inline]
    pub(super) fn connection(&self) -> &Rc<ConnectionState> {
        &self.service.connection
    }

    /// Returns true if the request waits for its body, and its client waits to be asked for it (RFC 9110 section 10.1.1).
    pub(super) fn is_to_be_continued(&self) -> bool {
        match &self.state {
            State::Waiting(waiting) => waiting.1.reads_body() && expects_continue(&self.head),
            State::Layered(_) => self.layers_ask,
            State::New | State::Rejected(_) | State::Compressing(_) | State::Done => false,
        }
    }

    /// Admits the request by its head, and runs all stages that do not wait: for nearly all messages, every one.
    #[inline]
    fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let Self {
            service,
            head,
            body,
            last_steps,
            ..
        } = self;
        let ConnService {
            service,
            connection,
        } = &**service;
        let router = &service.router;
        let client = Some(last_steps.client);
        let summary = match router.admit_head(connection, head) {
            Ok(summary) => summary,
            Err(error) => {
                let response = router.reject_head(error, head, client);
                let mut unread = UnreadBody::default();
                let polled = unread.poll_drop(cx, head.version, body, response);
                if polled.is_pending() {
                    self.state = State::Rejected(unread);
                }
                return polled;
            }
        };
        if last_steps.origin.is_some() && router.cors.is_preflight(head) {
            return Poll::Ready(router.cors.preflight(&head.headers));
        }
        if let Some(layers) = service.layered.clone() {
            return self.begin_layered(cx, layers);
        }
        let origin = Origin {
            router,
            worker: &service.local,
            connection: RequestConn::Local(connection),
            client,
        };
        let mut progress = Progress::new();
        let polled = progress.poll(cx, (&origin, &summary), head, body);
        if polled.is_pending() {
            self.state = State::Waiting(Box::new((summary, progress)));
        }
        polled
    }

    /// Hands the request to the layers of the application, which call [`Progress`] inside of them.
    #[cold]
    fn begin_layered(&mut self, cx: &mut Context<'_>, layers: McpService) -> Poll<Response<Body>> {
        self.layers_ask = expects_continue(&self.head);
        let (head, ()) = Request::new(()).into_parts();
        let head = std::mem::replace(&mut self.head, head);
        let version = head.version;
        let (body, rest) = request_body::lend(std::mem::take(&mut self.body));
        let mut request = Request::from_parts(head, body);
        let connection = LayeredConn::new(&self.service.connection);
        request.extensions_mut().insert(connection);
        let mut response: Waiting<_> = Box::pin(async move {
            match layers.oneshot(request).await {
                Ok(response) => request_body::drop_rest(rest, version, response).await,
                Err(never) => match never {},
            }
        });
        let polled = response.as_mut().poll(cx);
        self.state = State::Layered(response);
        polled
    }

    /// Continues with a request that had to wait.
    fn resume(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        match &mut self.state {
            State::Rejected(unread) => {
                let polled = unread.poll_held(cx, self.head.version, &mut self.body);
                polled.unwrap_or(Poll::Pending)
            }
            State::Waiting(waiting) => {
                let (summary, progress) = &mut **waiting;
                let ConnService {
                    service,
                    connection,
                } = &*self.service;
                let origin = Origin {
                    router: &service.router,
                    worker: &service.local,
                    connection: RequestConn::Local(connection),
                    client: Some(self.last_steps.client),
                };
                progress.poll(cx, (&origin, summary), &mut self.head, &mut self.body)
            }
            State::Layered(response) | State::Compressing(response) => response.as_mut().poll(cx),
            State::New | State::Done => Poll::Pending,
        }
    }

    /// Compresses the response.
    #[cold]
    fn compress(&self, response: Response<Body>) -> Waiting<Response<Body>> {
        let router = Arc::clone(&self.service.service.service.router);
        let share = Limits::share_of_address(self.last_steps.client.address);
        Box::pin(async move {
            let limits = &router.endpoint.server.limits;
            let hold = |body| limits.hold_response(share, body).ok();
            compress::compressed(response, hold).await
        })
    }
}

impl Future for RequestFuture {
    type Output = Result<Response<Body>, Infallible>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut response = match this.state {
            State::New => ready!(this.begin(cx)),
            _ => ready!(this.resume(cx)),
        };
        if this.gzip && !matches!(this.state, State::Compressing(_)) {
            this.state = State::Compressing(this.compress(response));
            response = ready!(this.resume(cx));
        }
        this.state = State::Done;
        this.last_steps.finish(&this.service, &mut response);
        Poll::Ready(Ok(response))
    }
}

impl LastSteps {
    /// The steps that are common to all responses.
    #[inline]
    fn finish(&mut self, service: &ConnService, response: &mut Response<Body>) {
        let ConnService {
            service,
            connection,
        } = service;
        let router = &*service.router;
        connection.response_is_ready();
        if let Some(origin) = self.origin.take() {
            router.cors.allow(origin, response);
        }
        if self.last || router.telemetry.life.is_draining() && !connection.is_http2() {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(begun) = self.begun {
            add_server_timing(begun, response);
        }
        if let Some(watch) = self.watch.take() {
            watch.end(response.status().as_u16());
        }
    }
}

impl Deref for StreamGuard {
    type Target = ConnService;

    #[inline]
    fn deref(&self) -> &ConnService {
        &self.service
    }
}

impl Drop for StreamGuard {
    #[inline]
    fn drop(&mut self) {
        if self.is_stream {
            self.service.connection.close_stream();
        }
    }
}

/// Adds the time until the response began to its headers (W3C Server Timing).
#[cold]
fn add_server_timing(begun: Instant, response: &mut Response<Body>) {
    let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
    if let Ok(value) = HeaderValue::try_from(format!("longshore;dur={milliseconds:.3}")) {
        response.headers_mut().append(SERVER_TIMING, value);
    }
}

fn expects_continue(head: &Parts) -> bool {
    let expected = head.headers.get(EXPECT).map(HeaderValue::as_bytes);
    expected.is_some_and(|expected| expected.eq_ignore_ascii_case(b"100-continue"))
}

/// Metrics labels of a request, without its status.
fn key_of(path: &str, head: &Parts) -> HttpKey {
    let route = Route::of(path).map(|(route, _)| route.counted());
    HttpKey::new(
        route.unwrap_or_default(),
        &head.method,
        CountedTransport::of(head.version),
        0,
    )
}
