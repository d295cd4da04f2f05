//! Problem documents (RFC 9457), and their content from JSON-RPC responses.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::net::Body;

/// The media type of problem documents.
pub(super) const PROBLEM: &str = "application/problem+json";

/// Builds a problem document without a type of its own; the status identifies the problem.
pub fn problem(status: StatusCode, detail: &str) -> Value {
    json!({
        "status": status.as_u16(),
        "title": status.canonical_reason(),
        "detail": detail,
    })
}

/// Builds a response with a problem document.
pub fn problem_response(status: StatusCode, problem: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(problem.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM));
    if let Some(retry) = problem.get("retryAfterMs").and_then(Value::as_u64) {
        headers.insert(RETRY_AFTER, retry.div_ceil(1000).max(1).into());
    }
    response
}

/// A JSON-RPC response.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<EnvelopeError>,
}

/// Error of a JSON-RPC response.
#[derive(Deserialize)]
pub(super) struct EnvelopeError {
    pub(super) code: i64,
    message: String,
    #[serde(default)]
    data: Value,
}

impl EnvelopeError {
    /// Converts the error; the members of its data become members of the document, beside those of its own. Data of an
    /// upstream's error can be of any type.
    pub(super) fn into_problem(self, status: StatusCode) -> Value {
        let mut problem = problem(status, &self.message);
        match (&mut problem, self.data) {
            (_, Value::Null) => {}
            (Value::Object(problem), Value::Object(data)) => {
                for (name, value) in data {
                    problem.entry(name).or_insert(value);
                }
            }
            (problem, data) => problem["data"] = data,
        }
        problem
    }
}

/// Converts a JSON-RPC response with an error, or with a tool's error result.
pub(super) fn problem_of_document(status: StatusCode, document: &[u8]) -> Value {
    match serde_json::from_slice::<Envelope<'_>>(document) {
        Ok(Envelope {
            error: Some(error), ..
        }) => error.into_problem(status),
        Ok(Envelope {
            result: Some(result),
            ..
        }) => problem(status, &text_of(result)),
        _ => problem(status, "Internal error"),
    }
}

/// Returns the texts of a tool's result.
pub(super) fn text_of(result: &RawValue) -> String {
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
