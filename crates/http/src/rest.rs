//! REST access to tools for clients without MCP: a POST with arguments returns the result. Also serves descriptions of
//! the server.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::{Dispatched, Outcome, RequestContext};
use super::entity_tag::with_entity_tag;
use super::openapi;
use super::problem::{Envelope, problem, problem_response, text_of};
use super::rejection::{HttpError, Rejection};
use super::request_body::RequestBody;
use super::route::Rest;
use crate::net::{Body, ShareKey};
use crate::server::{Reply, Server};

/// Handles a request outside of the MCP endpoint.
pub(super) fn dispatch(
    request: &RequestContext<'_>,
    cx: &mut Context<'_>,
    rest: Rest,
    head: &mut Parts,
    body: &mut RequestBody<'_>,
) -> Poll<Result<Dispatched, Rejection>> {
    let origin = request.origin;
    let endpoint = &origin.router.endpoint;
    let server = &endpoint.server;
    let by = (&**origin.worker, request.telemetry());
    Poll::Ready(Ok(match rest {
        Rest::Tools => match cursor(head.uri.query()) {
            Ok(cursor) => server
                .list_tools_rest(cx, Some(by), request.principal, cursor.as_deref())
                .into(),
            Err(detail) => {
                let problem = problem(StatusCode::BAD_REQUEST, detail);
                Dispatched::done(problem_response(StatusCode::BAD_REQUEST, &problem))
            }
        },
        Rest::Tool => {
            let body = ready!(body.poll_read(cx, origin, endpoint))?;
            if !body.is_empty() {
                origin.summary.check_body()?;
            }
            let name = percent_decode_str(origin.router.name_in(&head.uri)).decode_utf8();
            let name = name.map_err(|_| HttpError::NotFound)?;
            let headers = (&mut head.headers, origin.summary.extensions.as_ref());
            server
                .call_tool_rest(cx, by, request.principal, headers, &name, &body)
                .into()
        }
        Rest::OpenApi => Dispatched::Response(openapi::describe(request, head.headers.clone())),
        Rest::Info => Dispatched::done(json_response(&server.info())),
        Rest::Version => Dispatched::done(json_response(&server.version())),
        Rest::Ping => Dispatched::done(json_response(&json!({"status": "ok"}))),
    }))
}

/// Builds the response to a reply of the server.
pub(super) fn respond(
    rest: Rest,
    reply: Reply,
    request: &RequestContext<'_>,
    headers: &HeaderMap,
) -> Outcome {
    let (server, share) = (&request.origin.router.endpoint.server, request.share());
    let is_copied = matches!(&reply, Reply::Response(response) if response.rest.len() != 0);
    let result = match ResultText::of(reply)? {
        ResultText::Result(result) => result,
        ResultText::Problem(response) => return Ok(response),
    };
    match rest {
        // A copy does not count as unread, as the pieces did.
        Rest::Tool if is_copied => {
            let held = server.limits.hold_response(share, result.clone());
            // The call has run, and its caller would repeat it.
            Ok(called(held.unwrap_or(result)))
        }
        Rest::Tool => Ok(called(result)),
        _ => document(server, share, headers, &result),
    }
}

/// A response without its JSON-RPC envelope.
pub(super) enum ResultText {
    /// JSON text.
    Result(Bytes),
    /// An error of a message that was not rejected, as a problem document.
    Problem(Response<Body>),
}

impl ResultText {
    pub(super) fn of(reply: Reply) -> Result<Self, Rejection> {
        let Some(mut response) = reply.into_response() else {
            return Err(HttpError::Internal.into());
        };
        if let Some(refusal) = response.refusal.take() {
            return Err(Rejection::message(refusal, response));
        }
        let whole = response.to_bytes();
        match serde_json::from_slice::<Envelope<'_>>(&whole) {
            Ok(Envelope {
                result: Some(result),
                ..
            }) => Ok(Self::Result(whole.slice_ref(result.get().as_bytes()))),
            Ok(Envelope {
                error: Some(error), ..
            }) => {
                let status = error_status(error.code);
                let problem = error.into_problem(status);
                Ok(Self::Problem(problem_response(status, &problem)))
            }
            _ => Err(HttpError::Internal.into()),
        }
    }
}

/// HTTP status for a JSON-RPC error.
fn error_status(code: i64) -> StatusCode {
    match code {
        -32600 | -32602 => StatusCode::BAD_REQUEST,
        // The tool needs what only a client of the protocol can do.
        -32021 => StatusCode::UNPROCESSABLE_ENTITY,
        // Of an upstream server: the credentials of this request were accepted.
        401 | 407 => StatusCode::BAD_GATEWAY,
        // Our own codes are the status.
        400..600 => u16::try_from(code)
            .ok()
            .and_then(|code| StatusCode::from_u16(code).ok())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Builds the response to a call: its result, or the text of an error result.
fn called(result: Bytes) -> Response<Body> {
    #[derive(Deserialize)]
    struct Flag {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    let raw = serde_json::from_slice::<&RawValue>(&result);
    match (serde_json::from_slice::<Flag>(&result), raw) {
        (Ok(Flag { is_error: true }), Ok(raw)) => {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            problem_response(status, &problem(status, &text_of(raw)))
        }
        _ => json_text(result),
    }
}

/// `cursor` in a query; the only parameter there is.
fn cursor(query: Option<&str>) -> Result<Option<String>, &'static str> {
    let mut cursor = None;
    for pair in query
        .unwrap_or_default()
        .split('&')
        .filter(|p| !p.is_empty())
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8();
        match (name, value) {
            ("cursor", Ok(value)) if cursor.is_none() => cursor = Some(value.into_owned()),
            _ => {
                return Err(
                    "the query may have one parameter, cursor: the nextCursor of the page before",
                );
            }
        }
    }
    Ok(cursor)
}

/// Builds a response with JSON that was made for one caller, and counts as unread until it is sent. The client may have it
/// already.
pub(super) fn document(
    server: &Server,
    share: ShareKey,
    request: &HeaderMap,
    json: &Bytes,
) -> Outcome {
    match server.limits.hold_response(share, json.clone()) {
        Ok(held) => Ok(with_entity_tag(request, json, json_text(held))),
        Err(refused) => Err(HttpError::Limited(refused).into()),
    }
}

fn json_response(value: &Value) -> Response<Body> {
    json_text(value.to_string().into())
}

fn json_text(body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Caches know `Authorization`, but not the other credentials.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{ErrorCode, ErrorObject};
    use crate::transport::http::problem::problem_of_document;

    #[test]
    fn a_query_has_at_most_a_cursor() {
        let read = |query| cursor(query).ok();
        assert_eq!(read(None), Some(None));
        assert_eq!(read(Some("")), Some(None));
        assert_eq!(read(Some("cursor=a%2Bb")), Some(Some("a+b".to_owned())));
        assert_eq!(read(Some("cursor=")), Some(Some(String::new())));
        for refused in ["page=2", "cursor=a&cursor=b", "cursor=%ff"] {
            assert_eq!(read(Some(refused)), None, "{refused}");
        }
    }

    #[test]
    fn errors_have_the_status_that_says_the_same() {
        let found = [-32602, -32603, -32021, 429, 503, 7, -32020, 401].map(error_status);
        let statuses = found.map(|status| status.as_u16());
        assert_eq!(statuses, [400, 500, 422, 429, 503, 500, 500, 502]);
    }

    #[test]
    fn an_error_has_its_message_whatever_its_data_are() {
        for (data, member) in [
            (json!("text"), Some(json!("text"))),
            (json!([1]), Some(json!([1]))),
            (Value::Null, None),
            (json!({"data": 1, "status": 2}), Some(json!(1))),
        ] {
            let error = ErrorObject::new(ErrorCode::Internal, "it failed");
            let reply = Reply::error("0", &error.with_data(data));
            let document = reply.into_response().expect("a response").to_bytes();
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            let problem = problem_of_document(status, &document);
            assert_eq!(problem["detail"], "it failed", "{problem}");
            assert_eq!(problem["status"], 500, "{problem}");
            assert_eq!(problem.get("data").cloned(), member, "{problem}");
        }
    }
}
