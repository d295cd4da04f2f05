//! HTTP responses for the server's replies to messages.

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use super::events::EventStream;
use super::headers::Summary;
use super::rejection::Rejection;
use crate::net::Body;
use crate::server::{JsonResponse, Reply};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Maximum capacity of a header map to reuse, in fields, since hyper keeps it for the connection's next head.
const USED_AGAIN_MAX: usize = 24;

/// Builds the response in a format that the client accepts.
///
/// Reuses the request's header map, unless the message was rejected. hyper then reuses the map for the connection's
/// next request, so that nearly no request allocates one.
#[inline]
pub(super) fn respond(
    reply: Reply,
    summary: &Summary,
    fields: &mut HeaderMap,
) -> Result<Response<Body>, Rejection> {
    let response = match reply {
        Reply::Response(response) => response,
        Reply::Stream(stream) => {
            return Ok(event_stream(Body::new(EventStream::new(stream))));
        }
        // The client has cancelled the request; an empty event stream signals that.
        Reply::Cancelled => return Ok(event_stream(Body::empty())),
        Reply::Accepted => return Ok(accepted()),
    };
    if response.refusal.is_some() {
        return Err(rejected(response));
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

/// Builds the response to a message that gets no reply.
pub(super) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Takes the rejection out of the response to a rejected message.
#[cold]
fn rejected(mut response: JsonResponse) -> Rejection {
    match response.refusal.take() {
        Some(refusal) => Rejection::message(refusal, response),
        None => super::rejection::HttpError::Internal.into(),
    }
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
