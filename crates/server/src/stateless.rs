//! Lifecycle of 2026-07-28: each request carries its own metadata, and headers repeat parts of it.

use http::HeaderMap;
use serde_json::json;

use super::errors::invalid_params;
use super::log_levels::LEVELS;
use super::param_headers::{self, HeaderValueState, McpHeaders};
use super::reply::{RejectReason, Reply};
use super::request_context::RequestContext;
use super::sessions::Sessions;
use super::snapshot::supported_versions;
use super::text::truncated;
use crate::catalog::{CatalogTool, LogLevel};
use crate::protocol::message::{self, Meta, Params, Request};
use crate::protocol::{ErrorCode, ErrorObject, Method, Revision};

/// Validates `_meta`, the version and the headers that repeat them, in the order in which clients expect errors.
///
/// `headers` is `None` for transports without headers.
pub(super) fn check_envelope(
    request: &Request<'_>,
    headers: Option<&McpHeaders>,
) -> Result<Method, Reply> {
    let id = Some(request.id);
    let version = check_meta(&request.params.meta).map_err(|what| {
        let message = format!("Invalid params: _meta.{what}");
        Reply::refuse(RejectReason::Meta, id, ErrorCode::InvalidParams, message)
    })?;
    if let Some(headers) = headers {
        check_header(
            id,
            "mcp-protocol-version",
            headers.version.read(),
            Some(&version),
        )?;
    }
    if Revision::parse(&version).is_none_or(Revision::has_sessions) {
        return Err(unsupported_version(id, &version));
    }
    if let Some(headers) = headers {
        check_header(
            id,
            "mcp-method",
            headers.method.read(),
            Some(&request.method),
        )?;
    }
    Method::parse(&request.method)
        .filter(|method| method.is_in(Revision::V2026_07_28))
        .ok_or_else(|| unknown_method(request))
}

/// MH-13: error for a method that does not exist. It has the HTTP status of a missing page.
pub(super) fn unknown_method(request: &Request<'_>) -> Reply {
    let message = format!("Method not found: {}", truncated(&request.method));
    Reply::refuse(
        RejectReason::Method,
        Some(request.id),
        ErrorCode::MethodNotFound,
        message,
    )
}

/// VER-02: error for a version that is not served.
pub(super) fn unsupported_version(id: Option<&str>, requested: &str) -> Reply {
    let error = ErrorObject::new(
        ErrorCode::UnsupportedProtocolVersion,
        "Unsupported protocol version",
    );
    let data = json!({"supported": supported_versions(), "requested": truncated(requested)});
    Reply::refused(RejectReason::Version, id, &error.with_data(data))
}

/// Checks headers and `_meta` of a request of either lifecycle that names a target: a tool, a resource or a prompt (MH-05,
/// LOG-03).
///
/// Returns the minimum level of log messages that the caller wants.
#[inline]
pub(super) fn check_named(
    sessions: &Sessions,
    request_context: &RequestContext<'_>,
    name: &str,
) -> Result<Option<LogLevel>, Reply> {
    let caller = request_context.caller;
    if caller.revision.has_sessions() {
        return Ok(caller.session.map(|session| sessions.levels.get(session)));
    }
    if let Some(mcp) = request_context.mcp() {
        let id = Some(request_context.request.id);
        check_header(id, "mcp-name", mcp.name.read().decoded(), Some(name))?;
    }
    log_level(request_context.request)
}

/// Error for a request without the name of its target. MH-05: the header must be absent too, since intermediaries that route by
/// it would misread the request.
#[cold]
pub(super) fn missing_name(request_context: &RequestContext<'_>, problem: &str) -> Reply {
    let request = request_context.request;
    if !request_context.caller.revision.has_sessions()
        && let Some(mcp) = request_context.mcp()
        && let Err(mismatch) = check_header(
            Some(request.id),
            "mcp-name",
            mcp.name.read().decoded(),
            None,
        )
    {
        return mismatch;
    }
    invalid_params(request.id, problem)
}

/// MH-10 to MH-12: arguments that the tool maps to headers must be sent, with equal values.
pub(super) fn check_parameters(
    id: &str,
    tool: &CatalogTool,
    params: &Params<'_>,
    headers: &HeaderMap,
) -> Result<(), Reply> {
    if tool.header_parameters.is_empty() {
        return Ok(());
    }
    param_headers::check_parameters(
        &tool.header_parameters,
        params.arguments.unwrap_or("{}"),
        headers,
    )
    .map_err(|message| {
        Reply::refuse(
            RejectReason::Header,
            Some(id),
            ErrorCode::HeaderMismatch,
            message,
        )
    })
}

/// META-01: metadata that every request must have. Returns the version.
fn check_meta<'a>(meta: &Meta<'a>) -> Result<std::borrow::Cow<'a, str>, &'static str> {
    let version = meta
        .protocol_version
        .ok_or("io.modelcontextprotocol/protocolVersion is required")?;
    let version =
        message::string(version).ok_or("io.modelcontextprotocol/protocolVersion is a string")?;
    let capabilities = meta
        .client_capabilities
        .ok_or("io.modelcontextprotocol/clientCapabilities is required")?;
    if !message::is_object(capabilities) {
        return Err("io.modelcontextprotocol/clientCapabilities is an object");
    }
    Ok(version)
}

/// LOG-03: the requested log level must be one of eight.
pub(super) fn log_level(request: &Request<'_>) -> Result<Option<LogLevel>, Reply> {
    let Some(level) = request.params.meta.log_level else {
        return Ok(None);
    };
    match message::string(level).and_then(|word| LogLevel::parse(&word)) {
        Some(level) => Ok(Some(level)),
        None => Err(invalid_params(request.id, LEVELS)),
    }
}

/// MH-06: `Mcp-Name`, if present, must equal the task id.
pub(super) fn check_task(
    request: &Request<'_>,
    task: &str,
    headers: &McpHeaders,
) -> Result<(), Reply> {
    match headers.name.read().decoded() {
        HeaderValueState::Absent => Ok(()),
        value => check_header(Some(request.id), "mcp-name", value, Some(task)),
    }
}

#[inline]
fn check_header(
    id: Option<&str>,
    header: &'static str,
    value: HeaderValueState<'_>,
    body: Option<&str>,
) -> Result<(), Reply> {
    let problem = match (value, body) {
        (HeaderValueState::Text(text), Some(body)) if text == body => return Ok(()),
        (HeaderValueState::Absent, None) => return Ok(()),
        (value, body) => mismatch(&value, body),
    };
    let message = format!("Header mismatch: {header} {problem}");
    Err(Reply::refuse(
        RejectReason::Header,
        id,
        ErrorCode::HeaderMismatch,
        message,
    ))
}

/// Describes the difference between a header and the body.
#[cold]
fn mismatch(value: &HeaderValueState<'_>, body: Option<&str>) -> String {
    let said = body.map_or_else(
        || "nothing".to_owned(),
        |body| format!("'{}'", truncated(body)),
    );
    match value {
        HeaderValueState::Text(text) => {
            format!("is '{}', but the body has {said}", truncated(text))
        }
        HeaderValueState::Absent => format!("is missing; the body has {said}"),
        HeaderValueState::Repeated => "appears more than once".to_owned(),
        HeaderValueState::Invalid(reason) => (*reason).to_owned(),
    }
}
