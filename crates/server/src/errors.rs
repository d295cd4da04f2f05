//! Error responses that several handlers use.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tracing::field::Value;

use super::reply::{RejectReason, Reply};
use super::running_call::CallFailure;
use super::text::truncated;
use crate::auth::Principal;
use crate::catalog::MissingScopes;
use crate::limit::{Limit, LimitCounters};
use crate::net::with_causes;
use crate::protocol::message::{Excess, Malformed, MalformedKind, Request};
use crate::protocol::{ErrorCode, ErrorObject};

/// The cause of an error with all of its own causes, as a field for the log. It is formatted only if it is logged.
pub(super) fn causes(source: Option<&(dyn Error + Send + Sync + 'static)>) -> Option<impl Value> {
    struct WithCauses<'e>(&'e (dyn Error + 'static));

    impl fmt::Display for WithCauses<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(&with_causes(self.0))
        }
    }

    source.map(|source| tracing::field::display(WithCauses(source)))
}

/// Error for invalid parameters.
pub(super) fn invalid_params(id: &str, problem: &str) -> Reply {
    let message = format!("Invalid params: {}", truncated(problem));
    Reply::fail(id, ErrorCode::InvalidParams, message)
}

/// Reads the parameters of a request.
pub(super) fn read_params<'r, T: Deserialize<'r>>(request: &Request<'r>) -> Result<T, Reply> {
    let params = request.params.object.unwrap_or("{}");
    serde_json::from_str(params)
        .map_err(|error| invalid_params(request.id, &without_position(&error)))
}

/// Error message without the position, which refers to a part of the request only.
pub(super) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// JSON-RPC error of another server that an item has called.
pub(super) fn protocol_error(id: &str, error: Option<&ErrorObject>) -> Reply {
    match error {
        Some(error) => Reply::error(id, error),
        None => internal_error(id),
    }
}

/// Responds to a call that returned nothing. `kind` and `name` say what was called.
#[cold]
pub(super) fn call_failed(id: &str, (kind, name): (&str, &str), failure: &CallFailure) -> Reply {
    match failure {
        CallFailure::TimedOut(limit) => {
            Reply::fail(id, ErrorCode::Internal, timed_out((kind, name), *limit))
        }
        CallFailure::Panicked => {
            tracing::error!(name = %truncated(name), "a {kind} panicked; its call failed");
            internal_error(id)
        }
        CallFailure::Cancelled => Reply::Cancelled,
        CallFailure::Stopped => stopped(id),
        // `Server::call_failed` handles the calls that can be suspended.
        CallFailure::Suspended(_) => internal_error(id),
    }
}

/// Error for a call that was aborted because the server stops.
pub(super) fn stopped(id: &str) -> Reply {
    let message = "The server is stopping and ended the call; send it again";
    Reply::fail(id, ErrorCode::Http(503), message)
}

/// Logs that a call ran out of time. Returns the message for the client.
pub(super) fn timed_out((kind, name): (&str, &str), limit: Duration) -> String {
    let limit_s = limit.as_secs_f64();
    tracing::warn!(name = %truncated(name), limit_s, "a {kind} ran out of time");
    format!("the {kind} did not respond within {limit_s} s")
}

/// Error whose reason only the log contains.
pub(super) fn internal_error(id: &str) -> Reply {
    Reply::fail(id, ErrorCode::Internal, "Internal error")
}

/// Rejection of a message that is not valid.
pub(super) fn malformed(message: &'static str) -> Reply {
    Reply::refuse(
        RejectReason::Malformed,
        None,
        ErrorCode::InvalidRequest,
        message,
    )
}

/// Error for a method that does not exist, within a session.
pub(super) fn method_not_found(request: &Request<'_>) -> Reply {
    let message = format!("Method not found: {}", truncated(&request.method));
    Reply::fail(request.id, ErrorCode::MethodNotFound, message)
}

/// Error for a malformed message.
#[cold]
pub(super) fn malformed_message(hits: &LimitCounters, problem: &Malformed<'_>) -> Reply {
    let (code, name) = match problem.kind {
        MalformedKind::Parse => (ErrorCode::Parse, "Parse error"),
        MalformedKind::Invalid => (ErrorCode::InvalidRequest, "Invalid Request"),
    };
    let error = ErrorObject::new(code, format!("{name}: {}", problem.reason));
    let error = match problem.excess {
        None => error,
        Some(Excess::Depth) => exceeded(hits, Limit::JsonDepth, error),
        Some(Excess::Members) => exceeded(hits, Limit::JsonMembers, error),
        Some(Excess::Values) => exceeded(hits, Limit::JsonValues, error),
        Some(Excess::Id) => exceeded(hits, Limit::IdBytes, error),
    };
    Reply::refused(RejectReason::Malformed, problem.id, &error)
}

/// Error for a batch that is too large, or whose responses are.
#[cold]
pub(super) fn batch_too_large(hits: &LimitCounters, limit: Limit, message: String) -> Reply {
    let error = ErrorObject::new(ErrorCode::InvalidRequest, message);
    Reply::refused(RejectReason::Malformed, None, &exceeded(hits, limit, error))
}

/// Counts an exceeded limit and adds the name of its setting to the error.
fn exceeded(hits: &LimitCounters, limit: Limit, error: ErrorObject) -> ErrorObject {
    hits.count(limit);
    error.with_data(json!({ "setting": limit.setting() }))
}

/// AUTH-09: checks that the caller has all scopes that its target needs. The error lists them.
pub(super) fn check_scopes(
    principal: &Principal,
    id: &str,
    needed: &[String],
) -> Result<(), Reply> {
    if needed.iter().all(|scope| principal.has_scope(scope)) {
        return Ok(());
    }
    Err(missing_scopes(id, &MissingScopes(needed.into())))
}

/// AUTH-09: error for a caller that lacks scopes.
pub(super) fn missing_scopes(id: &str, missing: &MissingScopes) -> Reply {
    let error = ErrorObject::new(ErrorCode::Http(403), missing.to_string());
    let error = error.with_data(json!({ "requiredScopes": missing.0 }));
    Reply::refused(
        RejectReason::Scope(Arc::clone(&missing.0)),
        Some(id),
        &error,
    )
}

/// Error for a caller that a tool, a resource or a prompt has rejected. `source` may name scopes.
#[cold]
pub(super) fn forbidden(
    id: &str,
    message: &str,
    source: Option<&(dyn std::error::Error + Send + Sync + 'static)>,
) -> Reply {
    match source.and_then(|source| source.downcast_ref()) {
        Some(missing) => missing_scopes(id, missing),
        None => Reply::fail(id, ErrorCode::Http(403), message.to_owned()),
    }
}
