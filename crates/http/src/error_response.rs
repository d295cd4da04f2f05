//! HTTP responses for rejections, with the status of each.

use std::borrow::Cow;
use std::sync::Arc;

use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::connection::ConnectionState;
use super::events::EventStream;
use super::route::Route;
use crate::auth::{AuthError, Credential, Principal};
use crate::limit::{Limit, Refused};
use crate::net::{Body, ReadError};
use crate::protocol::{ErrorCode, ErrorObject};
use crate::server::{JsonResponse, Refusal, Reply, limited};
use crate::telemetry::Reason;

/// Reason for which a request was rejected before its body was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    TargetTooLong,
    HeadersTooLarge,
    TooManyHeaders,
    /// Neither a path nor a URL.
    Target,
    HostMissing,
    HostInvalid,
    HostForeign,
    OriginForeign,
    /// A page of this server, under a name that no setting has.
    OriginUnnamed,
    /// A header that may occur once is repeated.
    HeaderRepeated,
    /// The name of a header is ambiguous to other parsers.
    HeaderName,
    NotFound,
    /// The playground page is disabled.
    NoPlayground,
    /// A handler of the application's own broke.
    Internal,
    /// The admin port has no such page.
    NoPage,
    /// The page is restricted to operators.
    ForOperators,
    /// Another method than the path has; the methods it has.
    MethodNotAllowed(&'static str),
    ContentType,
    ContentEncoding,
    NotAcceptable,
    /// A rate or concurrency limit was exceeded.
    Limited(Refused),
    BodyTooLarge,
    /// By which of the two limits.
    BodyTooSlow(Limit),
    BodyBroken,
    /// A message of the transport of 2024-11-05 that names no session.
    SessionIdMissing,
}

impl Rejection {
    fn status(self) -> StatusCode {
        match self {
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::HeadersTooLarge | Self::TooManyHeaders => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::Target
            | Self::HostMissing
            | Self::HostInvalid
            | Self::HeaderRepeated
            | Self::HeaderName
            | Self::SessionIdMissing
            | Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::HostForeign | Self::OriginForeign | Self::OriginUnnamed | Self::ForOperators => {
                StatusCode::FORBIDDEN
            }
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NotFound | Self::NoPlayground | Self::NoPage => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::ContentType | Self::ContentEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Limited(refused) => limited_status(refused),
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTooSlow(_) => StatusCode::REQUEST_TIMEOUT,
        }
    }

    fn message(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Limited(refused) => return refused.message().into(),
            Self::TargetTooLong => "The request's target is too long",
            Self::HeadersTooLarge => "The request's headers are too large",
            Self::TooManyHeaders => "The request has too many headers",
            Self::Target => "The request's target is neither a path nor a URL",
            Self::HostMissing => "The Host header is missing",
            Self::HostInvalid => "The Host header is not a host name with an optional port",
            Self::HostForeign => "This server does not answer to that Host",
            Self::OriginForeign => "Pages of that Origin may not call this server",
            Self::OriginUnnamed => {
                "Pages of this server may call it under localhost or an IP address; to use it in a browser under a name, add the name to http.allowed_hosts"
            }
            Self::HeaderRepeated => "A header appears more than once that may appear once",
            Self::HeaderName => {
                "The name of a header has an underscore, which others may take for a hyphen"
            }
            Self::NotFound => "There is nothing at this path; the MCP endpoint is /mcp",
            Self::NoPlayground => {
                "The playground is off here (http.playground); the MCP endpoint is /mcp"
            }
            Self::Internal => "The server is at fault; its log says more",
            Self::NoPage => {
                "There is nothing at this path; there are /metrics, /health, /health/detailed, /livez, /readyz and /startupz"
            }
            Self::ForOperators => {
                "Only those who have proved who they are see this here; it is open to all on the admin port"
            }
            Self::MethodNotAllowed(_) => "This path does not have that method",
            Self::ContentType => "Content-Type must be application/json",
            Self::ContentEncoding => "The body must not be compressed",
            Self::NotAcceptable => "Accept must allow application/json or text/event-stream",
            Self::BodyTooLarge => "The body is too large",
            Self::BodyTooSlow(_) => "The body did not arrive in time",
            Self::SessionIdMissing => {
                "sessionId is missing: post to the address that the stream's first event names"
            }
            Self::BodyBroken => "The body broke off or is not framed as HTTP demands",
        })
    }

    /// The setting that would have let the request pass.
    pub fn setting(self) -> Option<&'static str> {
        match self {
            Self::TargetTooLong => Some("http.limits.target_bytes"),
            Self::HeadersTooLarge => Some("http.limits.header_bytes"),
            Self::TooManyHeaders => Some("http.limits.header_fields"),
            Self::HostForeign | Self::OriginUnnamed => Some("http.allowed_hosts"),
            Self::NoPlayground => Some("http.playground"),
            Self::OriginForeign => Some("http.allowed_origins"),
            Self::ForOperators => Some("http.admin.port"),
            Self::BodyTooLarge => Some("http.limits.body_bytes"),
            Self::BodyTooSlow(limit) => Some(limit.setting()),
            Self::Limited(refused) => Some(refused.limit.setting()),
            Self::Target
            | Self::HostMissing
            | Self::HostInvalid
            | Self::HeaderRepeated
            | Self::HeaderName
            | Self::NotFound
            | Self::Internal
            | Self::NoPage
            | Self::MethodNotAllowed(_)
            | Self::ContentType
            | Self::ContentEncoding
            | Self::NotAcceptable
            | Self::SessionIdMissing
            | Self::BodyBroken => None,
        }
    }

    /// Reason label for metrics and audit. `None` if the request was not rejected: the server is at fault.
    pub fn reason(self) -> Option<Reason> {
        Some(match self {
            Self::TargetTooLong
            | Self::HeadersTooLarge
            | Self::TooManyHeaders
            | Self::BodyTooLarge
            | Self::BodyTooSlow(_) => Reason::Limit(self.setting()?),
            Self::Limited(refused) => Reason::Limit(refused.limit.setting()),
            Self::HostMissing | Self::HostInvalid => Reason::Host,
            Self::HostForeign => Reason::HostForeign,
            Self::OriginForeign | Self::OriginUnnamed => Reason::Origin,
            Self::HeaderRepeated | Self::HeaderName | Self::Target => Reason::Head,
            Self::NotFound | Self::NoPlayground | Self::NoPage | Self::ForOperators => Reason::Path,
            Self::MethodNotAllowed(_) => Reason::PathMethod,
            Self::ContentType | Self::ContentEncoding => Reason::MediaType,
            Self::NotAcceptable => Reason::NotAcceptable,
            Self::BodyBroken => Reason::Body,
            Self::SessionIdMissing => Reason::SessionMissing,
            Self::Internal => return None,
        })
    }

    /// The limit that was hit, where it was not counted before.
    pub fn limit(self) -> Option<Limit> {
        match self {
            Self::TargetTooLong => Some(Limit::TargetBytes),
            Self::HeadersTooLarge => Some(Limit::HeaderBytes),
            Self::TooManyHeaders => Some(Limit::HeaderFields),
            Self::BodyTooLarge => Some(Limit::BodyBytes),
            Self::BodyTooSlow(limit) => Some(limit),
            // The memory check does not count hits, since requests that are still served run it too.
            Self::Limited(refused) if refused.limit == Limit::Memory => Some(Limit::Memory),
            _ => None,
        }
    }

    /// Returns true if the body may still be arriving, so that the connection cannot be reused.
    fn closes(self) -> bool {
        matches!(
            self,
            Self::BodyTooLarge | Self::BodyTooSlow(_) | Self::BodyBroken
        )
    }

    /// Builds the rejection in the format of the route.
    pub(super) fn into_response(self, route: Option<&Route>) -> Response<Body> {
        if route.is_some_and(Route::speaks_rpc) {
            self.into_rpc()
        } else {
            self.into_problem()
        }
    }

    /// Builds a JSON-RPC error response for the MCP endpoint. No code of the specification applies here; the code is
    /// derived from the status.
    pub(crate) fn into_rpc(self) -> Response<Body> {
        let status = self.status();
        let error = match (self, self.setting()) {
            (Self::Limited(refused), _) => limited(refused),
            (_, setting) => {
                let error = ErrorObject::new(ErrorCode::Http(status.as_u16()), self.message());
                match setting {
                    Some(setting) => error.with_data(json!({ "setting": setting })),
                    None => error,
                }
            }
        };
        let mut body = Vec::new();
        error.write(&mut body, None);
        self.respond(status, "application/json", body)
    }

    /// Elsewhere: a problem document (RFC 9457).
    pub(crate) fn into_problem(self) -> Response<Body> {
        let status = self.status();
        let mut problem = problem(status, &self.message());
        if let Some(setting) = self.setting() {
            problem["setting"] = setting.into();
        }
        if let Self::Limited(refused) = self {
            problem["retryAfterMs"] = refused.retry_after_ms().into();
        }
        self.respond(status, PROBLEM, problem.to_string().into_bytes())
    }

    fn respond(self, status: StatusCode, media: &'static str, body: Vec<u8>) -> Response<Body> {
        let mut response = Response::new(Body::from(bytes::Bytes::from(body)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
        if let Self::MethodNotAllowed(allowed) = self {
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
        }
        if let Self::Limited(refused) = self {
            say_when(headers, refused);
        }
        if self.closes() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(reason) = self.reason() {
            response.extensions_mut().insert(RejectionRecord {
                reason,
                limit: self.limit(),
                principal: None,
                recorded: false,
            });
        }
        response
    }
}

/// Response extension that carries the rejection to metrics and audit.
#[derive(Clone, Debug)]
pub(super) struct RejectionRecord {
    pub(super) reason: Reason,
    /// The limit that was hit, where it was not counted before.
    pub(super) limit: Option<Limit>,
    /// Authenticated principal, if already known.
    pub(super) principal: Option<Arc<Principal>>,
    /// True if the audit log already has an entry.
    pub(super) recorded: bool,
}

/// Attaches the rejection of a message to its response. Adds `Retry-After` for transient conditions without a delay of
/// their own, unlike limits.
pub(super) fn note_refusal(response: &mut Response<Body>, refusal: &Refusal) {
    let seconds = match refusal {
        Refusal::StateUnavailable | Refusal::Unrecorded => Some("2"),
        Refusal::TooManyStreams => Some("5"),
        _ => None,
    };
    if let Some(seconds) = seconds {
        let seconds = HeaderValue::from_static(seconds);
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response.extensions_mut().insert(RejectionRecord {
        reason: refusal.reason(),
        limit: None,
        principal: None,
        recorded: true,
    });
}

/// Reason label of an authentication failure, for metrics and audit.
pub(super) fn reason_of(error: &AuthError) -> Reason {
    match error {
        AuthError::Missing => Reason::CredentialMissing,
        AuthError::Malformed(_) => Reason::CredentialMalformed,
        AuthError::Invalid(_) | AuthError::TooLong(_) => Reason::CredentialInvalid,
        AuthError::InsufficientScope { .. } => Reason::Scope,
        // `Unavailable`, and errors that are added later.
        _ => Reason::CredentialUnchecked,
    }
}

/// The limit that was hit, if it was one.
fn limit_of(error: &AuthError) -> Option<Limit> {
    match error {
        AuthError::TooLong(Credential::Token) => Some(Limit::TokenBytes),
        AuthError::TooLong(Credential::ApiKey) => Some(Limit::KeyBytes),
        _ => None,
    }
}

/// The media type of problem documents.
pub(super) const PROBLEM: &str = "application/problem+json";

/// Builds a problem document (RFC 9457) without a type of its own; the status identifies the problem.
pub(super) fn problem(status: StatusCode, detail: &str) -> Value {
    json!({
        "status": status.as_u16(),
        "title": status.canonical_reason(),
        "detail": detail,
    })
}

impl From<ReadError> for Rejection {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge { .. } => Self::BodyTooLarge,
            ReadError::Broken(_) => Self::BodyBroken,
        }
    }
}

/// Rejects an unauthenticated request: a JSON-RPC error on the MCP endpoint, elsewhere a problem document (AUTH-02,
/// AUTH-04).
pub(super) fn deny(
    error: &AuthError,
    challenge: Option<HeaderValue>,
    route: &Route,
) -> Response<Body> {
    let status = match error {
        AuthError::Missing | AuthError::Invalid(_) | AuthError::TooLong(_) => {
            StatusCode::UNAUTHORIZED
        }
        AuthError::Malformed(_) => StatusCode::BAD_REQUEST,
        AuthError::InsufficientScope { .. } => StatusCode::FORBIDDEN,
        // `Unavailable`, and errors that are added later.
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    let message = match error {
        AuthError::Missing => {
            "A credential is needed: send Authorization: Bearer with a token or an API key"
                .to_owned()
        }
        error => error.to_string(),
    };
    let (media, body) = if route.speaks_rpc() {
        let mut told = ErrorObject::new(ErrorCode::Http(status.as_u16()), message.clone());
        if let Some(limit) = limit_of(error) {
            told = told.with_data(json!({ "setting": limit.setting() }));
        }
        let mut body = Vec::new();
        told.write(&mut body, None);
        ("application/json", body)
    } else {
        let mut problem = problem(status, &message);
        if let Some(limit) = limit_of(error) {
            problem["setting"] = limit.setting().into();
        }
        (PROBLEM, problem.to_string().into_bytes())
    };
    let mut response = Response::new(Body::from(bytes::Bytes::from(body)));
    *response.status_mut() = status;
    response.extensions_mut().insert(RejectionRecord {
        reason: reason_of(error),
        limit: limit_of(error),
        principal: None,
        recorded: false,
    });
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    // The response depends on the caller.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("2"));
    } else if let Some(challenge) = challenge {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    response
}

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Converts a reply of the server to an HTTP response.
pub(crate) fn respond(reply: Reply, connection: Option<&Arc<ConnectionState>>) -> Response<Body> {
    respond_in(reply, connection, &mut HeaderMap::new())
}

/// Maximum capacity of a header map to reuse, in fields, since hyper keeps it for the connection's next head.
const USED_AGAIN_MAX: usize = 24;

/// Converts a reply to an HTTP response and reuses the request's header map, unless the request was rejected. hyper
/// then reuses the map for the connection's next request, so that nearly no request allocates one.
#[inline]
pub(crate) fn respond_in(
    reply: Reply,
    connection: Option<&Arc<ConnectionState>>,
    fields: &mut HeaderMap,
) -> Response<Body> {
    let answer = match reply {
        Reply::Response(answer) => answer,
        Reply::Stream(stream) => {
            return event_stream(Body::new(EventStream::new(stream, connection)));
        }
        // The client has cancelled the request; an empty event stream signals that.
        Reply::Cancelled => return event_stream(Body::empty()),
        Reply::Accepted => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::ACCEPTED;
            return response;
        }
    };
    let JsonResponse {
        head,
        rest,
        refusal,
        session,
        verdict: _,
    } = answer;
    let mut response = Response::new(Body::pieces(head, rest));
    if refusal.is_none() && fields.capacity() <= USED_AGAIN_MAX {
        fields.clear();
        *response.headers_mut() = std::mem::take(fields);
    }
    if let Some(refusal) = refusal {
        *response.status_mut() = refusal_status(&refusal);
        if let Refusal::Limited(refused) = refusal {
            say_when(response.headers_mut(), refused);
        }
        note_refusal(&mut response, &refusal);
        note_scopes(&mut response, refusal);
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(session) = session.and_then(|id| HeaderValue::try_from(id).ok()) {
        headers.insert(SESSION_ID, session);
    }
    response
}

/// Variant of `respond_in` for a client that accepts only event streams (HTTP-07): the response is the stream's single
/// event. A rejection keeps its status.
#[cold]
pub(crate) fn respond_in_events(
    reply: Reply,
    connection: Option<&Arc<ConnectionState>>,
    fields: &mut HeaderMap,
) -> Response<Body> {
    let answer = match reply {
        Reply::Response(answer) if answer.refusal.is_none() => answer,
        other => return respond_in(other, connection, fields),
    };
    let session = answer.session;
    let mut response = event_stream(Body::new(EventStream::of(answer.head, &answer.rest)));
    if let Some(session) = session.and_then(|id| HeaderValue::try_from(id).ok()) {
        response.headers_mut().insert(SESSION_ID, session);
    }
    response
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

/// Scopes that the caller of a rejected request needs.
#[derive(Clone, Debug)]
pub(super) struct NeededScopes(pub(super) Arc<[String]>);

/// Attaches the missing scopes to the response; the caller that has the request writes the header.
pub(super) fn note_scopes(response: &mut Response<Body>, refusal: Refusal) {
    if let Refusal::Scope(scopes) = refusal {
        response.extensions_mut().insert(NeededScopes(scopes));
    }
}

fn refusal_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Malformed
        | Refusal::Meta
        | Refusal::Header
        | Refusal::Version
        | Refusal::Capability
        | Refusal::EventUnknown
        | Refusal::SessionMissing => StatusCode::BAD_REQUEST,
        Refusal::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Refusal::AskedElsewhere => StatusCode::CONFLICT,
        Refusal::TooManyStreams => StatusCode::TOO_MANY_REQUESTS,
        Refusal::StateUnavailable | Refusal::Unrecorded => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::Method | Refusal::SessionUnknown => StatusCode::NOT_FOUND,
        Refusal::Limited(refused) => limited_status(*refused),
        Refusal::Scope(_) => StatusCode::FORBIDDEN,
        Refusal::Tool | Refusal::Arguments | Refusal::TimedOut => StatusCode::OK,
    }
}

/// Status of a refusal outside JSON-RPC, where no message body describes the error.
pub(super) fn plain_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Tool => StatusCode::NOT_FOUND,
        Refusal::Arguments => StatusCode::BAD_REQUEST,
        Refusal::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        other => refusal_status(other),
    }
}

fn limited_status(refused: Refused) -> StatusCode {
    if refused.limit.is_a_rate() {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

/// When it is worth asking again, for programs that have never heard of JSON-RPC: `Retry-After`, and for rates the
/// fields of the IETF's draft on rate limits.
pub(super) fn say_when(headers: &mut HeaderMap, refused: Refused) {
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
