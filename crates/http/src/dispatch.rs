//! Dispatch of an authenticated request to the handler of its path, and the response to the reply of the server.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use super::context::{Dispatched, Origin, Outcome, RequestContext};
use super::events::EventStream;
use super::headers::Summary;
use super::rejection::{HttpError, Rejection};
use super::request_body::RequestBody;
use super::route::{METHODS_WITHOUT_STREAMS, Protected, Rest, Route, RouteTarget};
use super::router::Endpoint;
use super::{layers, legacy, rest};
use crate::auth::PrincipalKind;
use crate::limit::ClientLimits;
use crate::net::Body;
use crate::server::{JsonResponse, MaybeReady, Reply, VersionHeader};
use crate::telemetry::CountedTransport;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Maximum capacity of a header map to reuse, in fields, since hyper keeps it for the connection's next head.
const USED_AGAIN_MAX: usize = 24;

impl Origin<'_> {
    /// The endpoint of a guarded route.
    #[inline]
    fn endpoint(&self, guarded: Protected, head: &Parts) -> Result<&Endpoint, HttpError> {
        if guarded != Protected::NamedEndpoint {
            return Ok(&self.router.endpoint);
        }
        let name = self.router.name_in(&head.uri);
        self.router.endpoints.get(name).ok_or(HttpError::NotFound)
    }

    /// Checks that a route is served, and with this method. The endpoints check their methods themselves.
    #[inline]
    fn check_served(
        &self,
        guarded: Protected,
        route: &Route,
        head: &Parts,
    ) -> Result<(), HttpError> {
        let config = &self.router.endpoint.config;
        let is_served = match guarded {
            Protected::Mcp | Protected::NamedEndpoint => return Ok(()),
            Protected::Respond => config.respond_alias,
            Protected::Legacy => config.legacy_sse,
            Protected::Rest(Rest::Tools | Rest::Tool | Rest::OpenApi) => {
                config.rest || !route.has(&head.method)
            }
            Protected::Rest(_) | Protected::Page(_) | Protected::Custom => true,
        };
        match is_served {
            false => Err(HttpError::NotFound),
            true if !route.has(&head.method) => Err(HttpError::MethodNotAllowed(route.methods)),
            true => Ok(()),
        }
    }

    /// Hands a request on a path without authentication to the part of the program that serves it.
    pub(super) fn dispatch_public(
        &self,
        cx: &mut Context<'_>,
        head: &mut Parts,
        body: &mut RequestBody<'_>,
    ) -> Poll<Result<Dispatched, Rejection>> {
        let router = self.router;
        let body = ready!(body.poll_read(cx, self, &router.endpoint))?;
        let path = router.path(&head.uri).to_owned();
        let public = router.layers.public_at(&path).ok_or(HttpError::NotFound)?;
        let mut request = request_of(head, body);
        request.extensions_mut().insert(ClientLimits {
            limits: Arc::clone(&router.endpoint.server.limits),
            address: self.client.map(|client| client.address),
        });
        let response = public.respond(&path, request);
        Poll::Ready(Ok(Dispatched::Response(Box::pin(async move {
            Ok(response.await)
        }))))
    }
}

impl RequestContext<'_> {
    /// Hands a request to the handler of its route. A handler whose body has not arrived is called again.
    #[inline]
    pub(super) fn dispatch(
        &self,
        cx: &mut Context<'_>,
        route: &Route,
        head: &mut Parts,
        body: &mut RequestBody<'_>,
    ) -> Poll<Result<Dispatched, Rejection>> {
        let RouteTarget::Guarded(guarded) = route.place else {
            return Poll::Ready(Err(HttpError::NotFound.into()));
        };
        self.origin.check_served(guarded, route, head)?;
        match guarded {
            Protected::Mcp | Protected::NamedEndpoint | Protected::Respond => {
                let endpoint = self.origin.endpoint(guarded, head)?;
                if head.method != Method::POST {
                    return Poll::Ready(Ok(self.handle_other_method(endpoint, head)?));
                }
                let summary = self.origin.summary;
                summary.check_media(endpoint.config.strict_accept)?;
                let body = ready!(body.poll_read(cx, self.origin, endpoint))?;
                let mut message = self.head(&mut head.headers);
                let worker = self.origin.worker;
                let handled = endpoint.server.handle_http(cx, worker, &mut message, &body);
                Poll::Ready(Ok(handled.into()))
            }
            _ => self.dispatch_other(cx, guarded, head, body),
        }
    }

    /// Handles everything other than requests to an endpoint.
    fn dispatch_other(
        &self,
        cx: &mut Context<'_>,
        guarded: Protected,
        head: &mut Parts,
        body: &mut RequestBody<'_>,
    ) -> Poll<Result<Dispatched, Rejection>> {
        let router = self.origin.router;
        match guarded {
            Protected::Legacy => legacy::dispatch(self, cx, head, body),
            Protected::Rest(rest) => rest::dispatch(self, cx, rest, head, body),
            Protected::Page(_) if self.principal.kind() == PrincipalKind::Anonymous => {
                Poll::Ready(Err(HttpError::ForOperators.into()))
            }
            Protected::Page(page) => {
                let page = page.respond(&router.endpoint.server, true);
                Poll::Ready(Ok(Dispatched::done(page)))
            }
            Protected::Custom => {
                let body = ready!(body.poll_read(cx, self.origin, &router.endpoint))?;
                Poll::Ready(self.dispatch_custom(head, body))
            }
            Protected::Mcp | Protected::NamedEndpoint | Protected::Respond => {
                Poll::Ready(Err(HttpError::NotFound.into()))
            }
        }
    }

    /// Handles another method than POST at an endpoint: opens a session stream (LH-03), ends a session (LH-09), or rejects
    /// the request.
    fn handle_other_method(
        &self,
        endpoint: &Endpoint,
        head: &mut Parts,
    ) -> Result<Dispatched, HttpError> {
        const METHODS_STATELESS: &str = "POST";
        let (server, summary) = (&endpoint.server, self.origin.summary);
        let version = summary.mcp.version();
        // Streams of calls can be resumed where sessions have no notification streams (LH-13).
        let has_streams =
            server.has_standing_streams() || head.headers.contains_key("last-event-id");
        let opens = head.method == Method::GET && has_streams;
        if version == VersionHeader::Stateless || !opens && head.method != Method::DELETE {
            // MH-01
            return Err(HttpError::MethodNotAllowed(match version {
                VersionHeader::Stateless => METHODS_STATELESS,
                _ if server.has_standing_streams() => Route::MCP.methods,
                _ => METHODS_WITHOUT_STREAMS,
            }));
        }
        let worker = self.origin.worker;
        let mut message = self.head(&mut head.headers);
        message.wire = CountedTransport::default();
        if !opens {
            return Ok(match server.end_session(worker, &message, version) {
                // Not 204, which the Python SDK before 1.10 reports as a failure.
                Ok(()) => Dispatched::done(without_body(StatusCode::OK)),
                Err(reply) => reply.into(),
            });
        }
        // The client does not follow the specification: a browser or a probe.
        if !summary.mcp.names_session() && !summary.names_streams() {
            return Err(HttpError::MethodNotAllowed(METHODS_STATELESS));
        }
        if !message.takes_streams {
            return Err(HttpError::StreamNotAcceptable);
        }
        Ok(match server.open_stream(worker, &message, version) {
            Ok(opening) => MaybeReady::Pending(opening).into(),
            Err(refusal) => refusal.into(),
        })
    }

    /// Hands a request to a handler of the application.
    fn dispatch_custom(&self, head: &mut Parts, body: Bytes) -> Result<Dispatched, Rejection> {
        let mut request = request_of(head, body);
        if let Some(extensions) = &self.origin.summary.extensions {
            *request.extensions_mut() = (**extensions).clone();
        }
        request.extensions_mut().insert(Arc::clone(self.principal));
        let handler = self.origin.router.custom_route(&head.uri);
        let handler = Arc::clone(handler.ok_or(HttpError::NotFound)?);
        Ok(Dispatched::Response(Box::pin(async move {
            Ok(layers::respond(&*handler, request).await)
        })))
    }
}

/// Builds the request for another handler, which gets the headers.
fn request_of(head: &mut Parts, body: Bytes) -> Request<Bytes> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.version_mut() = head.version;
    *request.headers_mut() = std::mem::take(&mut head.headers);
    request
}

/// Builds the response in a format that the client accepts.
///
/// Reuses the request's header map, unless the message was rejected. hyper then reuses the map for the connection's
/// next request, so that nearly no request allocates one.
#[inline]
pub(super) fn respond(reply: Reply, summary: &Summary, fields: &mut HeaderMap) -> Outcome {
    let mut response = match reply {
        Reply::Response(response) => response,
        Reply::Stream(stream) => {
            return Ok(event_stream(Body::new(EventStream::new(stream))));
        }
        // The client has cancelled the request; an empty event stream signals that.
        Reply::Cancelled => return Ok(event_stream(Body::empty())),
        // A message without a reply.
        Reply::Accepted => return Ok(without_body(StatusCode::ACCEPTED)),
    };
    if let Some(refusal) = response.refusal.take() {
        return Err(Rejection::message(refusal, response));
    }
    if summary.takes_nothing_but_streams() {
        return Ok(single_event(response));
    }
    let JsonResponse {
        head,
        rest,
        session,
        ..
    } = response;
    let mut response = Response::new(Body::pieces(head, rest));
    let headers = response.headers_mut();
    if fields.capacity() <= USED_AGAIN_MAX {
        fields.clear();
        *headers = std::mem::take(fields);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    name_session(headers, session);
    Ok(response)
}

fn without_body(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Builds the response for a client that accepts only event streams (HTTP-07): a stream with a single event.
#[cold]
fn single_event(response: JsonResponse) -> Response<Body> {
    let body = Body::new(EventStream::of(response.head, &response.rest));
    let mut stream = event_stream(body);
    name_session(stream.headers_mut(), response.session);
    stream
}

/// Names the session that the response opens.
#[inline]
fn name_session(headers: &mut HeaderMap, session: Option<String>) {
    if let Some(session) = session.and_then(|id| HeaderValue::try_from(id).ok()) {
        headers.insert(SESSION_ID, session);
    }
}

/// Builds a streamed response (MH-17).
fn event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
