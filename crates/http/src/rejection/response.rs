//! HTTP responses to rejected requests.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;

use super::{HttpError, Kind, Rejected, Rejection, Retry, Row};
use crate::auth::AuthError;
use crate::limit::LimitExceeded;
use crate::net::Body;
use crate::protocol::{ErrorCode, ErrorObject};
use crate::server::{RejectReason, limited};
use crate::transport::http::problem::{PROBLEM, problem, problem_of_document};
use crate::transport::http::route::METHODS_WITHOUT_STREAMS;

const JSON: &str = "application/json";

impl Rejection {
    /// Builds the response: a JSON-RPC error if `rpc`, else a problem document (RFC 9457).
    pub(crate) fn into_response(self, rpc: bool) -> Response<Body> {
        let row = self.row();
        let status = match row.rest_status {
            Some(status) if !rpc => status,
            _ => row.status,
        };
        let text = self.text(&row);
        let Rejected {
            kind, challenge, ..
        } = *self.0;
        let (media, body) = match &kind {
            Kind::Message(_, response) if rpc => (
                JSON,
                Body::pieces(response.head.clone(), response.rest.clone()),
            ),
            Kind::Message(_, response) => {
                let document = problem_of_document(status, &response.to_bytes());
                (PROBLEM, Body::from(document.to_string()))
            }
            _ if rpc => (JSON, rpc_error(&kind, status, text, &row).into()),
            _ => (PROBLEM, Body::from(problem_document(status, &text, &row))),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        match kind {
            Kind::Http(HttpError::MethodNotAllowed(methods)) => {
                headers.insert(ALLOW, HeaderValue::from_static(methods));
            }
            Kind::Message(RejectReason::StreamComplete, _) => {
                headers.insert(ALLOW, HeaderValue::from_static(METHODS_WITHOUT_STREAMS));
            }
            // The response depends on the caller.
            Kind::Auth(error) => {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                if let AuthError::UseDpopNonce(nonce) = error
                    && let Ok(nonce) = HeaderValue::try_from(&*nonce)
                {
                    headers.insert("dpop-nonce", nonce);
                }
            }
            _ => {}
        }
        match row.retry {
            Retry::No => {}
            Retry::Seconds(seconds) => {
                headers.insert(RETRY_AFTER, seconds.into());
            }
            Retry::Limit(refused) => add_retry_fields(headers, refused),
        }
        if row.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // Who has to wait does not need other credentials.
        if let (Some(challenge), Retry::No) = (challenge, row.retry) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl HttpError {
    /// Builds a problem document, for responses outside of the pipeline.
    pub(crate) fn into_problem(self) -> Response<Body> {
        Rejection::from(self).into_response(false)
    }
}

/// Builds a JSON-RPC error. No code of the specification applies here; the code is derived from the status.
fn rpc_error(kind: &Kind, status: StatusCode, text: Cow<'static, str>, row: &Row) -> Bytes {
    let error = match (kind, row.setting) {
        (Kind::Http(HttpError::Limited(refused)), _) => limited(*refused),
        (_, Some(setting)) => ErrorObject::new(ErrorCode::Http(status.as_u16()), text)
            .with_data(json!({ "setting": setting })),
        (_, None) => ErrorObject::new(ErrorCode::Http(status.as_u16()), text),
    };
    let mut body = Vec::new();
    error.write(&mut body, None);
    body.into()
}

fn problem_document(status: StatusCode, text: &str, row: &Row) -> String {
    let mut problem = problem(status, text);
    if let Some(setting) = row.setting {
        problem["setting"] = setting.into();
    }
    if let Retry::Limit(refused) = row.retry {
        problem["retryAfterMs"] = refused.retry_after_ms().into();
    }
    problem.to_string()
}

/// Adds when the client may try again: `Retry-After`, and for rates the fields of the IETF's draft on rate limits.
fn add_retry_fields(headers: &mut HeaderMap, refused: LimitExceeded) {
    let seconds = refused.retry_after_seconds();
    headers.insert(RETRY_AFTER, seconds.into());
    let Some((burst, window)) = refused.quota() else {
        return;
    };
    let name = refused.limit.setting();
    for (field, value) in [
        (
            "ratelimit-policy",
            format!("\"{name}\";q={burst};w={window}"),
        ),
        ("ratelimit", format!("\"{name}\";r=0;t={seconds}")),
    ] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(field, value);
        }
    }
}
