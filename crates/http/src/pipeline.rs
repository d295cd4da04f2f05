//! Request processing from head to response, for HTTP/1, HTTP/2 and requests without a socket alike.
//!
//! A request is admitted by its head, goes through the stages of [`Progress`], and ends in the steps that are common to all
//! responses. Layers of the application are between the first and the second part.
//!
//! ```mermaid
//! stateDiagram-v2
//!     [*] --> Limit
//!     Limit --> Authenticate: unknown credentials
//!     Limit --> Dispatch
//!     Limit --> Respond: page without authentication
//!     Authenticate --> Dispatch
//!     Dispatch --> Dispatch: more of the body has arrived
//!     Dispatch --> Reply: the server waits
//!     Dispatch --> Respond: another handler
//!     Dispatch --> Done
//!     Reply --> Done
//!     Respond --> Done
//! ```
//!
//! hyper moves the request future, and HTTP/2 has one for each stream. The future therefore holds only the parts of the
//! request. [`Progress`] lives on the stack of its first poll, in which nearly all requests complete. It is boxed only when a
//! stage has to wait.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response};
use http_body::Body as _;

use super::authentication::{Authentication, Caller};
use super::context::{ConnService, Dispatched, Origin, Outcome, RequestContext, Waiting};
use super::headers::{AdmittedHead, expects_continue};
use super::host_guard::HostGuard;
use super::layered::Layered;
use super::rejection::{HttpError, Rejection};
use super::request_body::{BodyReader, RequestBody, UnreadBody};
use super::route::{Open, Protected, Route, RouteTarget};
use super::{compress, dispatch, rest};
use crate::limit::Limit;
use crate::net::{Body, Peer};
use crate::server::{MaybeReady, Reply};
use crate::telemetry::{CountedTransport, HttpWatch};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Future of the response to one request.
pub(crate) struct RequestFuture {
    service: Rc<ConnService>,
    /// `None` if the path does not exist.
    route: Option<&'static Route>,
    head: Parts,
    body: Body,
    client: Peer,
    /// Configured origin of the page that sent the request.
    cors_origin: Option<HeaderValue>,
    /// True if the client accepts gzip; `None` if responses are not compressed.
    takes_gzip: Option<bool>,
    /// The request is its connection's last.
    last: bool,
    /// Start time, if the client receives a `Server-Timing` header.
    begun: Option<Instant>,
    /// Observer that counts the request, if any.
    watch: Option<HttpWatch>,
    state: State,
}

enum State {
    /// Not polled yet.
    New,
    /// Waits in one of the stages.
    Waiting(Box<(AdmittedHead, Progress)>),
    /// Inside the layers of the application.
    Layered(Box<Layered>),
    /// Has its response, until what has arrived of its body is dropped.
    Unread(UnreadBody),
    Compressing(Waiting<Response<Body>>),
    Done,
}

impl RequestFuture {
    /// Begins to serve a request, which is taken as its parts: each time that it is put together it is copied.
    #[inline]
    pub(super) fn new(conn: Rc<ConnService>, head: Parts, body: impl Into<Body>) -> Self {
        let router = &*conn.service.router;
        let config = &router.endpoint.config;
        let hits = &router.endpoint.server.limits.hits;
        let connection = &conn.connection;
        let last = connection.begin_request(&config.limits, hits);
        let route = router.find(&head.uri);
        Self {
            route,
            client: router.client(connection.shared().peer(), &head.headers),
            cors_origin: router.guard.reader(&head.headers),
            takes_gzip: config
                .compression
                .then(|| compress::takes_gzip(&head.headers)),
            last,
            begun: config.server_timing.then(Instant::now),
            watch: router.watch(conn.service.local.cells(), &head, route),
            head,
            body: body.into(),
            state: State::New,
            service: conn,
        }
    }

    /// Returns true if the request waits for its body, and its client waits to be asked for it (RFC 9110 section 10.1.1).
    pub(super) fn is_to_be_continued(&self) -> bool {
        match &self.state {
            State::Waiting(waiting) => waiting.1.reader.is_some() && expects_continue(&self.head),
            State::Layered(layered) => layered.expects_continue,
            State::New | State::Unread(_) | State::Compressing(_) | State::Done => false,
        }
    }

    /// Produces the response, and drops what has arrived of a body that nothing has read.
    #[inline]
    fn respond(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let response = match &mut self.state {
            State::New => ready!(self.begin(cx)),
            State::Unread(unread) => return unread.poll(cx, self.head.version, &mut self.body),
            _ => ready!(self.resume(cx)),
        };
        if self.body.is_end_stream() {
            return Poll::Ready(response);
        }
        let mut unread = UnreadBody::new(response);
        let polled = unread.poll(cx, self.head.version, &mut self.body);
        if polled.is_pending() {
            self.state = State::Unread(unread);
        }
        polled
    }

    /// Admits the request by its head, and runs all stages that do not wait: for nearly all messages, every one.
    #[inline]
    fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let (service, client, head) = (&self.service, self.client, &mut self.head);
        let router = &*service.service.router;
        let summary = match router.admit_head(&service.connection, head, self.route) {
            Ok(summary) => summary,
            Err(error) => {
                return Poll::Ready(router.reject_head(error, (self.route, head), client));
            }
        };
        if self.cors_origin.is_some() && HostGuard::is_preflight(head) {
            return Poll::Ready(HostGuard::preflight(&head.headers));
        }
        if let Some(layers) = service.service.layered.clone() {
            let layered = Layered::new(layers, &service.connection, head, &mut self.body);
            self.state = State::Layered(Box::new(layered));
            return self.resume(cx);
        }
        let origin = service.origin(&summary, client);
        let mut progress = Progress::new(self.route);
        let polled = progress.poll(cx, &origin, head, &mut self.body);
        if polled.is_pending() {
            self.state = State::Waiting(Box::new((summary, progress)));
        }
        polled
    }

    /// Continues with a request that had to wait.
    fn resume(&mut self, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        match &mut self.state {
            State::Waiting(waiting) => {
                let (summary, progress) = &mut **waiting;
                let origin = self.service.origin(summary, self.client);
                progress.poll(cx, &origin, &mut self.head, &mut self.body)
            }
            State::Layered(layered) => layered.poll(cx, &mut self.body),
            State::New | State::Unread(_) | State::Compressing(_) | State::Done => Poll::Pending,
        }
    }

    /// The steps that are common to all responses.
    #[inline]
    fn finish(&mut self, response: &mut Response<Body>) {
        let connection = &self.service.connection;
        let router = &*self.service.service.router;
        connection.response_is_ready();
        if let Some(origin) = self.cors_origin.take() {
            HostGuard::let_read(origin, response);
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

impl Future for RequestFuture {
    type Output = Result<Response<Body>, Infallible>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut response = match &mut this.state {
            State::Compressing(response) => ready!(response.as_mut().poll(cx)),
            _ => {
                let mut response = ready!(this.respond(cx));
                if let Some(takes_gzip) = this.takes_gzip
                    && compress::is_worthwhile(&mut response)
                    && takes_gzip
                {
                    let router = Arc::clone(&this.service.service.router);
                    let compressed = compress::compressed(router, this.client, response);
                    this.state = State::Compressing(Box::pin(compressed));
                    return self.poll(cx);
                }
                response
            }
        };
        this.state = State::Done;
        this.finish(&mut response);
        Poll::Ready(Ok(response))
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

/// Progress of one request after its head was admitted.
pub(super) struct Progress {
    /// `None` if the path does not exist.
    route: Option<&'static Route>,
    caller: Caller,
    stage: Stage,
    /// Reader of the body, while a handler waits for it.
    reader: Option<BodyReader>,
}

enum Stage {
    /// Check the limits, and find the caller.
    Limit,
    Authenticate(Authentication),
    /// The caller is known. The handler reads the body.
    Dispatch,
    /// The server works on its reply.
    Reply(Waiting<Reply>),
    /// Another handler works on its response.
    Respond(Waiting<Outcome>),
}

/// What the last stage leaves. A response is large and is moved as a whole, so it is built from the reply last.
enum Finished {
    Reply(Reply),
    Response(Box<Response<Body>>),
}

impl Progress {
    #[inline]
    pub(super) fn new(route: Option<&'static Route>) -> Self {
        Self {
            route,
            caller: Caller::Everybody,
            stage: Stage::Limit,
            reader: None,
        }
    }

    /// Continues with the request. A rejection becomes a response here, and is counted and recorded.
    #[inline]
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        origin: &Origin<'_>,
        head: &mut Parts,
        body: &mut Body,
    ) -> Poll<Response<Body>> {
        let finished = ready!(self.advance(cx, origin, head, body));
        let outcome = match finished {
            Ok(Finished::Reply(reply)) => self.respond(reply, origin, head),
            Ok(Finished::Response(response)) => Ok(*response),
            Err(rejection) => Err(rejection),
        };
        Poll::Ready(match outcome {
            Ok(response) => response,
            Err(rejection) => self.reject(rejection, origin, head),
        })
    }

    #[cold]
    fn reject(&self, rejection: Rejection, origin: &Origin<'_>, head: &Parts) -> Response<Body> {
        let rejection = match self.caller.principal(origin) {
            Some(principal) => origin.with_needed_scopes(rejection, principal, head),
            None => rejection,
        };
        origin
            .router
            .reject(rejection, (self.route, &head.uri), origin.client)
    }

    /// Runs stage after stage until one has to wait.
    #[inline]
    fn advance(
        &mut self,
        cx: &mut Context<'_>,
        origin: &Origin<'_>,
        head: &mut Parts,
        body: &mut Body,
    ) -> Poll<Result<Finished, Rejection>> {
        loop {
            let dispatched = match &mut self.stage {
                Stage::Limit => {
                    self.stage = self.find_caller(origin, head)?;
                    continue;
                }
                Stage::Authenticate(found) => {
                    let found = ready!(found.as_mut().poll(cx));
                    let route = self.route.unwrap_or(Route::MCP);
                    self.caller = origin.authenticated(found, route, head)?;
                    self.stage = Stage::Dispatch;
                    continue;
                }
                Stage::Dispatch => ready!(self.dispatch(cx, origin, head, body))?,
                Stage::Reply(reply) => {
                    let reply = ready!(reply.as_mut().poll(cx));
                    return Poll::Ready(Ok(Finished::Reply(reply)));
                }
                Stage::Respond(response) => {
                    let response = ready!(response.as_mut().poll(cx))?;
                    return Poll::Ready(Ok(Finished::Response(Box::new(response))));
                }
            };
            self.stage = match dispatched {
                Dispatched::Reply(MaybeReady::Ready(reply)) => {
                    return Poll::Ready(Ok(Finished::Reply(reply)));
                }
                Dispatched::Reply(MaybeReady::Pending(reply)) => Stage::Reply(reply),
                Dispatched::Response(response) => Stage::Respond(response),
            };
        }
    }

    /// Checks the limits of the client's address, and finds the caller. A page that needs no authentication is served.
    #[inline]
    fn find_caller(&mut self, origin: &Origin<'_>, head: &mut Parts) -> Result<Stage, Rejection> {
        let router = origin.router;
        let route = self.route.ok_or(HttpError::NotFound)?;
        let is_public = match route.place {
            RouteTarget::Guarded(_) => false,
            RouteTarget::Open(Open::Public) => true,
            RouteTarget::Open(open) => {
                let page = origin.open_page(open, route, head);
                return Ok(Stage::Respond(Box::pin(std::future::ready(page))));
            }
        };
        if let Some(client) = origin.client
            && let Err(refused) = router.endpoint.server.limits.arrive(client.address)
            && !(refused.limit == Limit::Memory && route.frees_memory(&head.method))
        {
            return Err(HttpError::Limited(refused).into());
        }
        if is_public {
            return Ok(Stage::Dispatch);
        }
        Ok(match origin.known_caller(route, head)? {
            Some(caller) => {
                self.caller = caller;
                Stage::Dispatch
            }
            None => Stage::Authenticate(origin.authenticate(head)),
        })
    }

    #[inline]
    fn dispatch(
        &mut self,
        cx: &mut Context<'_>,
        origin: &Origin<'_>,
        head: &mut Parts,
        body: &mut Body,
    ) -> Poll<Result<Dispatched, Rejection>> {
        let reader = &mut self.reader;
        let body = &mut RequestBody { body, reader };
        match self.route {
            Some(route) if !route.is_open() => {
                let request = self.caller.request(origin, head)?;
                request.dispatch(cx, route, head, body)
            }
            _ => origin.dispatch_public(cx, head, body),
        }
    }

    /// Builds the response to a reply of the server, in the format of the route.
    #[inline]
    fn respond(&self, reply: Reply, origin: &Origin<'_>, head: &mut Parts) -> Outcome {
        match self.route.map(|route| route.place) {
            Some(RouteTarget::Guarded(Protected::Rest(rest))) => {
                let request = self.caller.request(origin, head)?;
                rest::respond(rest, reply, &request, &head.headers)
            }
            _ => dispatch::respond(reply, origin.summary, &mut head.headers),
        }
    }
}

impl Caller {
    /// The request as its handler sees it.
    #[inline]
    fn request<'r>(
        &'r self,
        origin: &'r Origin<'r>,
        head: &Parts,
    ) -> Result<RequestContext<'r>, Rejection> {
        Ok(RequestContext {
            origin,
            principal: self.principal(origin).ok_or(HttpError::Internal)?,
            wire: CountedTransport::of(head.version),
        })
    }
}
