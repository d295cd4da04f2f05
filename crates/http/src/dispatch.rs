//! Dispatch of an authenticated request to the handler of its path, and the response to the reply of the server.

use std::sync::Arc;
use std::task::Context;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use super::context::{Dispatched, Origin, Outcome, RequestContext};
use super::events::EventStream;
use super::headers::Summary;
use super::rejection::{HttpError, Rejection};
use super::request_body::BodyReader;
use super::route::{METHODS_WITHOUT_STREAMS, Protected, Rest, Route, RouteTarget};
use super::router::Endpoint;
use super::{layers, legacy, rest};
use crate::auth::PrincipalKind;
use crate::limit::ClientLimits;
use crate::net::Body;
use crate::server::{JsonResponse, Reply, VersionHeader};
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

    /// Checks that a route is served with this method, and begins to read the body if the handler needs one.
    #[inline]
    pub(super) fn begin_body(
        &self,
        route: &Route,
        head: &Parts,
        body: &Body,
    ) -> Result<Option<BodyReader>, Rejection> {
        let main = &self.router.endpoint;
        let begin = |endpoint: &Endpoint| BodyReader::new(body, &endpoint.config.limits);
        let RouteTarget::Guarded(guarded) = route.place else {
            return Ok(Some(begin(main)?));
        };
        let is_served = match guarded {
            Protected::Respond => main.config.respond_alias,
            Protected::Legacy => main.config.legacy_sse,
            Protected::Rest(Rest::Tools | Rest::Tool | Rest::OpenApi) => {
                main.config.rest || !route.has(&head.method)
            }
            _ => true,
        };
        if !is_served {
            return Err(HttpError::NotFound.into());
        }
        let names_methods = !matches!(
            guarded,
            Protected::Mcp | Protected::NamedEndpoint | Protected::Custom
        );
        if names_methods && !route.has(&head.method) {
            return Err(HttpError::MethodNotAllowed(route.methods).into());
        }
        let is_post = head.method == Method::POST;
        Ok(match guarded {
            Protected::Mcp | Protected::NamedEndpoint | Protected::Respond if is_post => {
                let endpoint = self.endpoint(guarded, head)?;
                self.summary.check_media(endpoint.config.strict_accept)?;
                Some(begin(endpoint)?)
            }
            Protected::Legacy if is_post => {
                self.summary.check_body()?;
                legacy::session_id(head.uri.query()).ok_or(HttpError::SessionIdMissing)?;
                Some(begin(main)?)
            }
            Protected::Rest(Rest::Tool) | Protected::Custom => Some(begin(main)?),
            Protected::Mcp
            | Protected::NamedEndpoint
            | Protected::Respond
            | Protected::Legacy
            | Protected::Rest(_)
            | Protected::Page(_) => None,
        })
    }

    /// Hands a request on a path without authentication to the part of the program that serves it.
    pub(super) fn dispatch_public(&self, head: &mut Parts, body: Bytes) -> Dispatched {
        let router = self.router;
        let Some(public) = router.layers.public_at(router.path(&head.uri)).cloned() else {
            return Dispatched::done(HttpError::NotFound.into_problem());
        };
        let mut request = request_of(head, body);
        request.extensions_mut().insert(ClientLimits {
            limits: Arc::clone(&router.endpoint.server.limits),
            address: self.client.map(|client| client.address),
        });
        let response = public.respond(router.path(&head.uri), request);
        Dispatched::Respond(Box::pin(async move { Ok(response.await) }))
    }
}

impl RequestContext<'_> {
    /// Hands a request to the handler of its route. `body` is `None` if the handler needs none.
    #[inline]
    pub(super) fn dispatch(
        &self,
        cx: &mut Context<'_>,
        route: &Route,
        head: &mut Parts,
        body: Option<Bytes>,
    ) -> Result<Dispatched, Rejection> {
        let guarded = match route.place {
            RouteTarget::Guarded(guarded) => guarded,
            RouteTarget::Open(_) => return Err(HttpError::NotFound.into()),
        };
        match (guarded, body) {
            (Protected::Mcp | Protected::NamedEndpoint | Protected::Respond, Some(body)) => {
                let server = &self.origin.endpoint(guarded, head)?.server;
                let mut message = self.head(&mut head.headers);
                let handled = server.handle_http(cx, self.origin.worker, &mut message, &body);
                Ok(handled.into())
            }
            (guarded, body) => self.dispatch_other(cx, guarded, head, body),
        }
    }

    /// Handles everything other than a posted message.
    fn dispatch_other(
        &self,
        cx: &mut Context<'_>,
        guarded: Protected,
        head: &mut Parts,
        body: Option<Bytes>,
    ) -> Result<Dispatched, Rejection> {
        let router = self.origin.router;
        match guarded {
            Protected::Mcp | Protected::NamedEndpoint | Protected::Respond => {
                let endpoint = self.origin.endpoint(guarded, head)?;
                Ok(self.handle_other_method(endpoint, head)?)
            }
            Protected::Legacy => {
                let seen = self.origin.seen(&head.headers, &head.uri);
                legacy::dispatch(self, cx, seen, body)
            }
            Protected::Rest(rest) => {
                let name = router.name_in(&head.uri);
                let call = rest::RestCall {
                    rest,
                    name,
                    query: head.uri.query(),
                };
                call.dispatch(self, cx, &mut head.headers, body)
            }
            Protected::Page(_) if self.principal.kind() == PrincipalKind::Anonymous => {
                Err(HttpError::ForOperators.into())
            }
            Protected::Page(page) => Ok(Dispatched::done(
                page.respond(&router.endpoint.server, true),
            )),
            Protected::Custom => self.dispatch_custom(head, body.unwrap_or_default()),
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
                Ok(()) => Dispatched::done(without_body(StatusCode::NO_CONTENT)),
                Err(reply) => Dispatched::Ready(reply),
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
            Ok(opening) => Dispatched::Reply(opening),
            Err(refusal) => Dispatched::Ready(refusal),
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
        Ok(Dispatched::Respond(Box::pin(async move {
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
