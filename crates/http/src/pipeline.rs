//! Request processing from head to response: the order of the steps before the endpoint's own.
//!
//! hyper moves the request future, and HTTP/2 has one for each stream. The future therefore holds only the parts of the
//! request. Nearly all requests complete on the first poll ([`Pipeline::at_once`]); the others continue in a box
//! ([`Pipeline::later`]).

use std::convert::Infallible;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tower::ServiceExt as _;

use super::compress;
use super::connection::Phase;
use super::endpoint::{Reading, answer};
use super::error_response::{Rejection, RejectionRecord};
use super::framing_guard::HeadMatch;
use super::h2_send_stalls;
use super::headers::AdmittedHead;
use super::route::Route;
use super::router::{Caller, ConnService};
use crate::auth::Principal;
use crate::limit::Limits;
use crate::net::{Body, Peer};
use crate::server::{MaybeReady, Reply};
use crate::telemetry::{HttpKey, HttpWatch, Wire};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Future of the response to one request.
pub(crate) struct RequestFuture(State);

/// Progress of a response.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of them come no further than to the large one"
)]
enum State {
    Begun(Pipeline),
    Later(Waiting<Response<Body>>),
    Over,
}

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request in progress.
struct Pipeline {
    served: StreamGuard,
    head: Parts,
    body: Body,
    /// Comparison of the head with the connection's previous head.
    head_match: HeadMatch,
    /// True if the response may be compressed.
    gzip: bool,
    terms: ResponseContext,
}

/// Inputs of the final steps.
struct ResponseContext {
    client: Peer,
    /// The request is its connection's last.
    last: bool,
    /// Start time, if the client receives a `Server-Timing` header.
    begun: Option<Instant>,
    /// Observer that counts the request, if any.
    watch: Option<HttpWatch>,
}

/// A connection with its service. An HTTP/2 stream is counted until drop.
struct StreamGuard {
    served: Arc<ConnService>,
    is_stream: bool,
}

/// Progress of a request after its first poll.
enum Progress {
    Answered(Response<Body>),
    /// The request was not checked.
    Unusual,
    /// The request is an admitted message; its caller is not authenticated yet.
    Admitted(AdmittedHead),
    /// The caller is authenticated; the body is arriving.
    Reading(Arc<Principal>, AdmittedHead, Reading),
    /// The server takes its time.
    Waiting(Arc<Principal>, AdmittedHead, Waiting<Reply>),
}

impl RequestFuture {
    /// Begins to serve a request, which is taken as its parts: each time that it is put together it is copied.
    #[inline]
    pub(super) fn new(served: Arc<ConnService>, head: Parts, body: impl Into<Body>) -> Self {
        let router = &*served.service.router;
        let config = &router.endpoint.config;
        let hits = &served.service.limits().hits;
        let connection = &served.connection;
        let last = connection.begin_request(&config.limits, hits);
        let head_match = connection.head_cache.begin();
        let is_stream = connection.open_stream();
        let gzip = config.compression && compress::takes_gzip(&head.headers);
        let watch = router.telemetry.counts().then(|| {
            let key = key_of(router.path(&head.uri), &head);
            HttpWatch::begin(Arc::clone(served.service.local.cells()), key)
        });
        let terms = ResponseContext {
            client: router.client(connection, &head.headers),
            last,
            begun: config.server_timing.then(Instant::now),
            watch,
        };
        Self(State::Begun(Pipeline {
            served: StreamGuard { served, is_stream },
            head,
            body: body.into(),
            head_match,
            gzip,
            terms,
        }))
    }
}

impl Future for RequestFuture {
    type Output = Result<Response<Body>, Infallible>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.0;
        if let State::Begun(serving) = state {
            let progress = serving.at_once(cx);
            if let Progress::Answered(response) = progress {
                *state = State::Over;
                return Poll::Ready(Ok(response));
            }
            if let State::Begun(serving) = std::mem::replace(state, State::Over) {
                *state = State::Later(match progress {
                    Progress::Unusual => Box::pin(serving.unusual()),
                    rest => Box::pin(serving.later(rest)),
                });
            }
        }
        match state {
            State::Later(later) => later.as_mut().poll(cx).map(Ok),
            State::Begun(_) | State::Over => Poll::Pending,
        }
    }
}

impl Pipeline {
    /// Runs all steps that do not wait: for nearly all messages, every step.
    #[inline]
    fn at_once(&mut self, cx: &mut Context<'_>) -> Progress {
        let Self {
            served,
            head,
            body,
            head_match,
            gzip,
            terms,
        } = self;
        let ConnService {
            service,
            connection,
        } = &**served;
        let router = &*service.router;
        let is_usual = service.layered.is_none()
            && !*gzip
            && router.is_message(head)
            && router.cors.origin(&head.headers).is_none();
        if !is_usual {
            return Progress::Unusual;
        }
        let said = match router.said(*head_match, connection, head) {
            Ok(said) => said,
            Err(rejection) => return terms.answered(served, router.refuse(rejection, head)),
        };
        let (route, endpoint) = (Route::MCP, &router.endpoint);
        if let Err(refused) = endpoint.server.limits.arrive(terms.client.address) {
            let refusal = Rejection::Limited(refused).into_response(Some(route));
            return terms.answered(served, refusal);
        }
        let proved;
        let principal = match router.gate.everybody() {
            Some(everybody) => everybody,
            None => match router.recall(Some(connection), route, head) {
                None => return Progress::Admitted(said),
                Some(Err(refusal)) => return terms.answered(served, refusal),
                Some(Ok(principal)) => {
                    proved = principal;
                    &proved
                }
            },
        };
        let mut reading = match endpoint.begin_to_post(&said, body) {
            Ok(reading) => reading,
            Err(rejection) => return terms.answered(served, rejection.into_rpc()),
        };
        let response = match reading.poll(cx, &endpoint.config.limits, Some(connection), body) {
            Poll::Pending => return Progress::Reading(Arc::clone(principal), said, reading),
            Poll::Ready(Err(rejection)) => rejection.into_rpc(),
            Poll::Ready(Ok(body)) => {
                let entered = terms.entered(principal);
                let by = (&entered, &*service.local, Wire::of(head.version));
                let fields = &mut head.headers;
                match endpoint.handle(cx, by, &said, fields, &body) {
                    MaybeReady::Pending(reply) => {
                        return Progress::Waiting(Arc::clone(principal), said, reply);
                    }
                    MaybeReady::Ready(reply) => answer(reply, Some(connection), &said, fields),
                }
            }
        };
        let response = match response.status() {
            StatusCode::FORBIDDEN => {
                router.lacking(principal, Some(connection), route, head, response)
            }
            _ => response,
        };
        terms.answered(served, response)
    }

    /// The rest of a request that has to wait for something.
    async fn later(mut self, rest: Progress) -> Response<Body> {
        let ConnService {
            service,
            connection,
        } = &*self.served;
        let router = &*service.router;
        let (head, terms) = (&mut self.head, &mut self.terms);
        let (route, wire) = (Route::MCP, Wire::of(head.version));
        let (principal, response) = match rest {
            Progress::Answered(response) => return response,
            Progress::Unusual => return Box::pin(self.unusual()).await,
            Progress::Admitted(said) => {
                let (at, client) = (Some(connection), Some(terms.client));
                let found = Box::pin(router.enter(at, client, route, head)).await;
                let principal = match found {
                    Ok(principal) => principal,
                    Err(refusal) => return terms.finish(&self.served, refusal, None),
                };
                let (endpoint, fields) = (&router.endpoint, &mut head.headers);
                let entered = terms.entered(&principal);
                let by = (&entered, &*service.local, wire);
                let answer = endpoint.post(by, at, &said, fields, &mut self.body).await;
                (principal, answer.unwrap_or_else(Rejection::into_rpc))
            }
            Progress::Reading(principal, said, reading) => {
                let (endpoint, fields) = (&router.endpoint, &mut head.headers);
                let entered = terms.entered(&principal);
                let by = (&entered, &*service.local, wire);
                let from = (reading, &mut self.body);
                let answer = endpoint.read_on(from, by, Some(connection), &said, fields);
                let answer = answer.await.unwrap_or_else(Rejection::into_rpc);
                (principal, answer)
            }
            Progress::Waiting(principal, said, reply) => {
                let reply = reply.await;
                let answer = answer(reply, Some(connection), &said, &mut head.headers);
                (principal, answer)
            }
        };
        let response = match response.status() {
            StatusCode::FORBIDDEN => {
                router.lacking(&principal, Some(connection), route, head, response)
            }
            _ => response,
        };
        terms.finish(&self.served, response, None)
    }

    /// Handles requests that are not messages at `/mcp`, pass through application layers, or have another origin.
    async fn unusual(mut self) -> Response<Body> {
        let ConnService {
            service,
            connection,
        } = &*self.served;
        let router = &*service.router;
        let origin = router.cors.origin(&self.head.headers);
        let mut response = match router.said(self.head_match, connection, &self.head) {
            Err(rejection) => router.refuse(rejection, &self.head),
            Ok(_) if origin.is_some() && router.cors.is_preflight(&self.head) => {
                router.cors.preflight(&self.head.headers)
            }
            Ok(said) => match service.layers() {
                None => {
                    let (head, body) = (&mut self.head, &mut self.body);
                    let (local, connection) = (&*service.local, Some(connection));
                    Box::pin(router.route(local, connection, &said, head, body)).await
                }
                Some(layered) => {
                    let mut request = Request::from_parts(self.head, self.body);
                    request.extensions_mut().insert(Arc::clone(connection));
                    match Box::pin(layered.oneshot(request)).await {
                        Ok(response) => response,
                        Err(never) => match never {},
                    }
                }
            },
        };
        if self.gzip {
            let limits = &router.endpoint.server.limits;
            let share = Limits::share_of_address(self.terms.client.address);
            let hold = |body| limits.hold_response(share, body).ok();
            response = Box::pin(compress::compressed(response, hold)).await;
        }
        self.terms.finish(&self.served, response, origin)
    }
}

impl ResponseContext {
    fn entered<'p>(&self, principal: &'p Arc<Principal>) -> Caller<'p> {
        Caller {
            principal,
            client: Some(self.client),
        }
    }

    #[inline]
    fn answered(&mut self, served: &ConnService, response: Response<Body>) -> Progress {
        Progress::Answered(self.finish(served, response, None))
    }

    /// Final steps, common to all responses.
    #[inline]
    fn finish(
        &mut self,
        served: &ConnService,
        mut response: Response<Body>,
        origin: Option<HeaderValue>,
    ) -> Response<Body> {
        let ConnService {
            service,
            connection,
        } = served;
        let router = &*service.router;
        connection.body_is_read();
        connection.answer_is_ready();
        if let Some(turned) = response.extensions_mut().remove::<RejectionRecord>() {
            router.turned_away(turned, self.client);
        }
        if let Some(origin) = origin {
            router.cors.allow(origin, &mut response);
        }
        let is_multiplexed = connection.phase() == Phase::Http2;
        if self.last || router.telemetry.life.is_draining() && !is_multiplexed {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(begun) = self.begun {
            tell_time(begun, &mut response);
        }
        if let Some(watch) = self.watch.take() {
            watch.end(response.status().as_u16());
        }
        if is_multiplexed {
            response = response.map(|body| h2_send_stalls::watch(connection, body));
        }
        response
    }
}

impl Deref for StreamGuard {
    type Target = ConnService;

    #[inline]
    fn deref(&self) -> &ConnService {
        &self.served
    }
}

impl Drop for StreamGuard {
    #[inline]
    fn drop(&mut self) {
        if self.is_stream {
            self.served.connection.close_stream();
        }
    }
}

/// Adds the time until the response began to its headers (W3C Server Timing).
#[cold]
fn tell_time(begun: Instant, response: &mut Response<Body>) {
    let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
    if let Ok(value) = HeaderValue::try_from(format!("longshore;dur={milliseconds:.3}")) {
        response.headers_mut().append(SERVER_TIMING, value);
    }
}

/// Metrics labels of a request, without its status.
fn key_of(path: &str, head: &Parts) -> HttpKey {
    let route = Route::of(path).map(|(route, _)| route.counted());
    HttpKey::new(
        route.unwrap_or_default(),
        &head.method,
        Wire::of(head.version),
        0,
    )
}
