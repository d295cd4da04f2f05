//! REST access to tools for clients without MCP: a POST with arguments returns the result. Also serves descriptions of
//! the server.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::connection::ConnectionState;
use super::endpoint::Endpoint;
use super::error_response::{PROBLEM, Rejection, note_refusal, note_scopes, plain_status, problem};
use super::headers::Summary;
use super::openapi;
use super::route::Rest;
use super::router::Caller;
use crate::limit::share_of;
use crate::net::Body;
use crate::server::{Reply, WorkerState};
use crate::telemetry::Seen;

/// A request outside of the MCP endpoint, its method already one that the path has.
pub(super) struct RestRequest<'r> {
    pub(super) rest: Rest,
    /// Whose worker it came to, and how.
    pub(super) by: (&'r WorkerState, Seen<'static>),
    /// Raw path after `/tools/`.
    pub(super) name: &'r str,
    pub(super) query: Option<&'r str>,
    pub(super) summary: &'r Summary,
    pub(super) headers: &'r mut HeaderMap,
    pub(super) connection: Option<&'r Arc<ConnectionState>>,
}

impl RestRequest<'_> {
    pub(super) async fn answer(
        mut self,
        endpoint: &Endpoint,
        entered: &Caller<'_>,
        body: &mut Body,
    ) -> Response<Body> {
        let offers_tools = endpoint.config.rest;
        match self.rest {
            Rest::Tools | Rest::Tool | Rest::OpenApi if !offers_tools => {
                Rejection::NotFound.into_problem()
            }
            Rest::Tools => match cursor(self.query) {
                Ok(cursor) => page(endpoint, entered, cursor.as_deref()).await,
                Err(detail) => refuse(StatusCode::BAD_REQUEST, detail),
            },
            Rest::Tool => self
                .call(endpoint, entered, body)
                .await
                .unwrap_or_else(Rejection::into_problem),
            Rest::OpenApi => match openapi::describe(endpoint, entered).await {
                Ok(document) => held(
                    endpoint,
                    entered,
                    StatusCode::OK,
                    document.to_string().into(),
                ),
                Err(refusal) => refusal,
            },
            Rest::Info => json_response(StatusCode::OK, &endpoint.server.info()),
            Rest::Version => json_response(StatusCode::OK, &endpoint.server.version()),
            Rest::Ping => json_response(StatusCode::OK, &json!({"status": "ok"})),
        }
    }

    async fn call(
        &mut self,
        endpoint: &Endpoint,
        entered: &Caller<'_>,
        body: &mut Body,
    ) -> Result<Response<Body>, Rejection> {
        let body = endpoint.read(self.connection, body).await?;
        if !body.is_empty() {
            self.summary.check_body()?;
        }
        let Ok(name) = percent_decode_str(self.name).decode_utf8() else {
            return Err(Rejection::NotFound);
        };
        let handled = poll_fn(|cx| {
            let server = &endpoint.server;
            let principal = entered.principal;
            let headers = (&mut *self.headers, self.summary.extensions.as_ref());
            Poll::Ready(server.call_tool_rest(cx, self.by, principal, headers, &name, &body))
        });
        let reply = handled.await.reply().await;
        Ok(match Outcome::of(reply) {
            Outcome::Result(result) => called(&result),
            Outcome::Problem(response) => response,
        })
    }
}

/// A page of the list of tools.
async fn page(endpoint: &Endpoint, entered: &Caller<'_>, cursor: Option<&str>) -> Response<Body> {
    match list(endpoint, entered, cursor).await {
        Outcome::Result(page) => held(endpoint, entered, StatusCode::OK, page),
        Outcome::Problem(response) => response,
    }
}

/// The result of listing tools, as the newest revision has it.
pub(super) async fn list(
    endpoint: &Endpoint,
    entered: &Caller<'_>,
    cursor: Option<&str>,
) -> Outcome {
    let handled = poll_fn(|cx| {
        Poll::Ready(
            endpoint
                .server
                .list_tools_rest(cx, entered.principal, cursor),
        )
    });
    Outcome::of(handled.await.reply().await)
}

/// A response without its JSON-RPC envelope.
pub(super) enum Outcome {
    /// JSON text.
    Result(Bytes),
    Problem(Response<Body>),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<EnvelopeError>,
}

#[derive(Deserialize)]
struct EnvelopeError {
    code: i64,
    message: String,
    #[serde(default)]
    data: Map<String, Value>,
}

impl Outcome {
    fn of(reply: Reply) -> Self {
        let internal =
            || Self::Problem(refuse(StatusCode::INTERNAL_SERVER_ERROR, "Internal error"));
        let Some(mut answer) = reply.into_response() else {
            return internal();
        };
        let refusal = answer.refusal.take();
        let whole = answer.to_bytes();
        let Ok(Envelope { result, error }) = serde_json::from_slice::<Envelope<'_>>(&whole) else {
            return internal();
        };
        let status = refusal.as_ref().map(plain_status);
        match (result, error, status) {
            (Some(result), _, None | Some(StatusCode::OK)) => {
                Self::Result(whole.slice_ref(result.get().as_bytes()))
            }
            (Some(result), _, Some(status)) => {
                let mut response = refuse(status, &text_of(result));
                if let Some(refusal) = &refusal {
                    note_refusal(&mut response, refusal);
                }
                Self::Problem(response)
            }
            (None, Some(error), status) => {
                let status = status.unwrap_or_else(|| error_status(error.code));
                let mut problem = problem(status, &error.message);
                let retry = error.data.get("retryAfterMs").and_then(Value::as_u64);
                if let Value::Object(problem) = &mut problem {
                    problem.extend(error.data);
                }
                let mut response = problem_response(status, &problem);
                if let Some(retry) = retry {
                    let seconds = retry.div_ceil(1000).max(1);
                    response.headers_mut().insert(RETRY_AFTER, seconds.into());
                }
                if let Some(refusal) = refusal {
                    note_refusal(&mut response, &refusal);
                    note_scopes(&mut response, refusal);
                }
                Self::Problem(response)
            }
            (None, None, _) => internal(),
        }
    }
}

/// HTTP status for a JSON-RPC error.
fn error_status(code: i64) -> StatusCode {
    match code {
        -32600 | -32602 => StatusCode::BAD_REQUEST,
        // The tool needs what only a client of the protocol can do.
        -32021 => StatusCode::UNPROCESSABLE_ENTITY,
        // Our own codes are the status.
        400..600 => u16::try_from(code)
            .ok()
            .and_then(|code| StatusCode::from_u16(code).ok())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The result of a call: as it is, or what went wrong.
fn called(result: &Bytes) -> Response<Body> {
    #[derive(Deserialize)]
    struct Flag {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    let raw = serde_json::from_slice::<&RawValue>(result);
    match (serde_json::from_slice::<Flag>(result), raw) {
        (Ok(Flag { is_error: true }), Ok(raw)) => {
            refuse(StatusCode::UNPROCESSABLE_ENTITY, &text_of(raw))
        }
        _ => response(StatusCode::OK, "application/json", result.clone()),
    }
}

/// The texts of a tool's result.
fn text_of(result: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Blocks {
        #[serde(default)]
        content: Vec<Block>,
    }
    #[derive(Deserialize)]
    struct Block {
        #[serde(default)]
        text: Option<String>,
    }
    let Ok(Blocks { content }) = serde_json::from_str::<Blocks>(result.get()) else {
        return String::new();
    };
    let texts: Vec<_> = content.into_iter().filter_map(|block| block.text).collect();
    texts.join("\n")
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

pub(super) fn refuse(status: StatusCode, detail: &str) -> Response<Body> {
    problem_response(status, &problem(status, detail))
}

fn problem_response(status: StatusCode, problem: &Value) -> Response<Body> {
    response(status, PROBLEM, problem.to_string().into())
}

/// JSON that was made for one caller, and counts as unread until it is sent.
fn held(
    endpoint: &Endpoint,
    entered: &Caller<'_>,
    status: StatusCode,
    json: Bytes,
) -> Response<Body> {
    let address = entered.client.map(|client| client.address);
    let share = share_of(entered.principal, address);
    match endpoint.server.limits.hold_response(share, json) {
        Ok(json) => response(status, "application/json", json),
        Err(refused) => Rejection::Limited(refused).into_problem(),
    }
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    response(status, "application/json", value.to_string().into())
}

fn response(status: StatusCode, media: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = [-32602, -32603, -32021, 429, 503, 7, -32020].map(error_status);
        let statuses = found.map(|status| status.as_u16());
        assert_eq!(statuses, [400, 500, 422, 429, 503, 500, 500]);
    }
}
