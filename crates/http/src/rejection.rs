//! Rejected requests: what was wrong, and what follows from it for the response, metrics, limits and audit log.
//!
//! A rejection is a value that every step returns as its error. [`Rejection::row`] is the table of all kinds. The
//! pipeline turns a rejection into a response in one place, which also counts and records it
//! ([`Router::reject`](super::router::Router::reject)).

pub(super) mod response;

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use super::route::Route;
use crate::audit::Outcome;
use crate::auth::{AuthError, Credential, Principal};
use crate::limit::{Limit, LimitExceeded};
use crate::net::ReadError;
use crate::server::{JsonResponse, RejectReason};
use crate::telemetry::Reason;

/// Error in an HTTP request, found before its message is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpError {
    TargetTooLong,
    HeadersTooLarge,
    TooManyHeaders,
    /// The target is neither a path nor an HTTP URL.
    Target,
    HostMissing,
    HostInvalid,
    HostForeign,
    OriginForeign,
    /// The origin is a page of this server under a name that no setting has.
    OriginUnnamed,
    /// The request can be framed in two ways.
    Framing,
    /// A header that may occur once is repeated.
    HeaderRepeated,
    /// The name of a header is ambiguous to other parsers.
    HeaderName,
    NotFound,
    /// The playground page is disabled.
    NoPlayground,
    /// The server failed: a handler of the application panicked, or a response could not be built.
    Internal,
    /// The admin port has no such page.
    NoPage,
    /// The page is restricted to operators.
    ForOperators,
    /// The path does not have the method; the methods it has.
    MethodNotAllowed(&'static str),
    ContentType,
    ContentEncoding,
    NotAcceptable,
    /// The response is an event stream, which the client does not accept.
    StreamNotAcceptable,
    /// A rate or concurrency limit was exceeded.
    Limited(LimitExceeded),
    BodyTooLarge,
    /// The body exceeded one of two limits.
    BodyTooSlow(Limit),
    BodyBroken,
    /// A message of the transport of 2024-11-05 that names no session.
    SessionIdMissing,
}

/// A rejected request. Small, since it is the error of every step.
#[derive(Debug)]
pub(crate) struct Rejection(Box<Rejected>);

#[derive(Debug)]
struct Rejected {
    kind: Kind,
    /// Value of `WWW-Authenticate`.
    challenge: Option<HeaderValue>,
    /// Authenticated caller, for the audit log.
    principal: Option<Arc<Principal>>,
}

/// Kind of a rejection.
#[derive(Debug)]
enum Kind {
    Http(HttpError),
    Auth(AuthError),
    /// The server rejected the message; its JSON-RPC response says why.
    Message(RejectReason, JsonResponse),
}

/// One row of the table of rejections. The JSON-RPC code is that of the message's response, or else derived from the
/// status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) status: StatusCode,
    /// Status for REST clients, if it is another one: without JSON-RPC, the status alone has to tell an error.
    rest_status: Option<StatusCode>,
    /// Label in metrics and audit log. `None` if the request was not at fault.
    pub(super) reason: Option<Reason>,
    /// Setting that would have let the request pass.
    pub(super) setting: Option<&'static str>,
    /// Limit whose hit is counted with the rejection. Other limits have counted it already.
    pub(super) hit: Option<Limit>,
    /// Outcome in the audit log; `None` if there is no entry, or the server has written it.
    pub(super) audit: Option<Outcome>,
    retry: Retry,
    /// True if the body may still be arriving, so that the connection cannot be reused.
    closes: bool,
    /// Text for the client. Empty for messages, whose response has it.
    text: &'static str,
}

/// When the client may try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    /// With another request only.
    No,
    Seconds(u64),
    /// When the limit allows it.
    Limit(LimitExceeded),
}

impl Row {
    const fn new(status: StatusCode, reason: Reason, text: &'static str) -> Self {
        Self {
            status,
            rest_status: None,
            reason: Some(reason),
            setting: None,
            hit: None,
            audit: None,
            retry: Retry::No,
            closes: false,
            text,
        }
    }

    /// Row of a limit that is counted with the rejection.
    fn limit(status: StatusCode, limit: Limit, text: &'static str) -> Self {
        Self {
            setting: Some(limit.setting()),
            hit: Some(limit),
            audit: Some(Outcome::Limited),
            ..Self::new(status, Reason::Limit(limit.setting()), text)
        }
    }

    /// Row of a rate or concurrency limit, which has counted its hit.
    fn limited(refused: LimitExceeded) -> Self {
        let status = match refused.limit.is_a_rate() {
            true => StatusCode::TOO_MANY_REQUESTS,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            // The memory check does not count hits, since requests that are still served run it too.
            hit: (refused.limit == Limit::Memory).then_some(Limit::Memory),
            retry: Retry::Limit(refused),
            ..Self::limit(status, refused.limit, "")
        }
    }

    const fn setting(mut self, setting: &'static str) -> Self {
        self.setting = Some(setting);
        self
    }

    /// The audit log gets an entry.
    const fn denied(mut self) -> Self {
        self.audit = Some(Outcome::Denied);
        self
    }

    const fn closes(mut self) -> Self {
        self.closes = true;
        self
    }

    const fn retry(mut self, seconds: u64) -> Self {
        self.retry = Retry::Seconds(seconds);
        self
    }

    const fn rest(mut self, status: StatusCode) -> Self {
        self.rest_status = Some(status);
        self
    }
}

impl HttpError {
    /// Rows of errors before the message.
    fn row(self) -> Row {
        use StatusCode as Status;
        let row = |status, reason| Row::new(status, reason, self.text());
        let limited = |status, limit| Row::limit(status, limit, self.text());
        match self {
            Self::TargetTooLong => limited(Status::URI_TOO_LONG, Limit::TargetBytes),
            Self::HeadersTooLarge => {
                limited(Status::REQUEST_HEADER_FIELDS_TOO_LARGE, Limit::HeaderBytes)
            }
            Self::TooManyHeaders => {
                limited(Status::REQUEST_HEADER_FIELDS_TOO_LARGE, Limit::HeaderFields)
            }
            Self::Target | Self::HeaderRepeated | Self::HeaderName => {
                row(Status::BAD_REQUEST, Reason::Head)
            }
            Self::HostMissing | Self::HostInvalid => {
                row(Status::BAD_REQUEST, Reason::Host).denied()
            }
            Self::HostForeign => row(Status::FORBIDDEN, Reason::HostForeign)
                .setting("http.allowed_hosts")
                .denied(),
            Self::OriginForeign => row(Status::FORBIDDEN, Reason::Origin)
                .setting("http.allowed_origins")
                .denied(),
            Self::OriginUnnamed => row(Status::FORBIDDEN, Reason::Origin)
                .setting("http.allowed_hosts")
                .denied(),
            Self::Framing => row(Status::BAD_REQUEST, Reason::Head).denied().closes(),
            Self::NotFound | Self::NoPage => row(Status::NOT_FOUND, Reason::Path),
            Self::NoPlayground => row(Status::NOT_FOUND, Reason::Path).setting("http.playground"),
            Self::Internal => Row {
                reason: None,
                ..row(Status::INTERNAL_SERVER_ERROR, Reason::Path)
            },
            Self::ForOperators => row(Status::FORBIDDEN, Reason::Path).setting("http.admin.port"),
            Self::MethodNotAllowed(_) => row(Status::METHOD_NOT_ALLOWED, Reason::PathMethod),
            Self::ContentType | Self::ContentEncoding => {
                row(Status::UNSUPPORTED_MEDIA_TYPE, Reason::MediaType)
            }
            Self::NotAcceptable | Self::StreamNotAcceptable => {
                row(Status::NOT_ACCEPTABLE, Reason::NotAcceptable)
            }
            Self::Limited(refused) => Row::limited(refused),
            Self::BodyTooLarge => limited(Status::PAYLOAD_TOO_LARGE, Limit::BodyBytes).closes(),
            Self::BodyTooSlow(limit) => limited(Status::REQUEST_TIMEOUT, limit).closes(),
            Self::BodyBroken => row(Status::BAD_REQUEST, Reason::Body).closes(),
            Self::SessionIdMissing => row(Status::BAD_REQUEST, Reason::SessionMissing),
        }
    }

    /// Texts for the client.
    fn text(self) -> &'static str {
        match self {
            Self::TargetTooLong => "The request's target is too long",
            Self::HeadersTooLarge => "The request's headers are too large",
            Self::TooManyHeaders => "The request has too many headers",
            Self::Target => "The request's target is neither a path nor an HTTP URL",
            Self::HostMissing => "The Host header is missing",
            Self::HostInvalid => {
                "The Host header is not a host name with an optional port, or names another host than the request's target"
            }
            Self::HostForeign => "This server does not accept that Host",
            Self::OriginForeign => "Pages of that Origin may not call this server",
            Self::OriginUnnamed => {
                "Pages of this server may call it under localhost or an IP address; to use it in a browser under a name, add the name to http.allowed_hosts"
            }
            Self::Framing => {
                "The request can be framed in two ways: Content-Length beside Transfer-Encoding, a line that does not end with CR LF, or an invalid chunk"
            }
            Self::HeaderRepeated => "A header appears more than once that may appear once",
            Self::HeaderName => {
                "A header name contains an underscore, which other programs may read as a hyphen"
            }
            Self::NotFound => "Not found; the MCP endpoint is /mcp",
            Self::NoPlayground => {
                "The playground is off here (http.playground); the MCP endpoint is /mcp"
            }
            Self::Internal => "Internal error; the server's log has the details",
            Self::NoPage => {
                "Not found; there are /, /metrics, /health, /health/detailed, /livez, /readyz and /startupz"
            }
            Self::ForOperators => "Authentication is required here; on the admin port it is not",
            Self::MethodNotAllowed(_) => "This path does not have that method",
            Self::ContentType => "Content-Type must be application/json",
            Self::ContentEncoding => "The body must not be compressed",
            Self::NotAcceptable => "Accept must allow application/json or text/event-stream",
            Self::StreamNotAcceptable => {
                "The response is an event stream: Accept must allow text/event-stream"
            }
            Self::Limited(_) => "",
            Self::BodyTooLarge => "The body is too large",
            Self::BodyTooSlow(_) => "The body did not arrive in time",
            Self::BodyBroken => "The body broke off or is not framed as HTTP demands",
            Self::SessionIdMissing => {
                "sessionId is missing: post to the address that the stream's first event names"
            }
        }
    }

    /// The setting that would have let the request pass.
    pub fn setting(self) -> Option<&'static str> {
        self.row().setting
    }
}

/// Rows of authentication errors (AUTH-02, AUTH-04).
fn auth_row(error: &AuthError) -> Row {
    use StatusCode as Status;
    match error {
        AuthError::Missing => Row::new(
            Status::UNAUTHORIZED,
            Reason::CredentialMissing,
            "A credential is needed: send Authorization: Bearer with a token or an API key",
        ),
        AuthError::Malformed(_) => Row::new(Status::BAD_REQUEST, Reason::CredentialMalformed, ""),
        AuthError::Invalid(_) | AuthError::Expired | AuthError::InvalidDpopProof(_) => {
            Row::new(Status::UNAUTHORIZED, Reason::CredentialInvalid, "")
        }
        AuthError::UseDpopNonce(_) => Row::new(Status::UNAUTHORIZED, Reason::CredentialMissing, ""),
        AuthError::TooLong(credential) => {
            let limit = match credential {
                Credential::ApiKey => Limit::KeyBytes,
                // `Token`, and credentials that are added later.
                _ => Limit::TokenBytes,
            };
            Row {
                setting: Some(limit.setting()),
                hit: Some(limit),
                ..Row::new(Status::UNAUTHORIZED, Reason::CredentialInvalid, "")
            }
        }
        AuthError::InsufficientScope { .. } => Row::new(Status::FORBIDDEN, Reason::Scope, ""),
        // `Unavailable`, and errors that are added later.
        _ => Row::new(Status::SERVICE_UNAVAILABLE, Reason::CredentialUnchecked, "").retry(2),
    }
    .denied()
}

/// Rows of messages that the server rejected.
fn message_row(refusal: &RejectReason) -> Row {
    use StatusCode as Status;
    let row = |status| Row::new(status, refusal.reason(), "");
    match refusal {
        RejectReason::Malformed
        | RejectReason::Meta
        | RejectReason::Header
        | RejectReason::Version
        | RejectReason::Capability
        | RejectReason::EventUnknown
        | RejectReason::SessionMissing => row(Status::BAD_REQUEST),
        RejectReason::NotAcceptable => row(Status::NOT_ACCEPTABLE),
        RejectReason::StreamComplete => row(Status::METHOD_NOT_ALLOWED),
        RejectReason::AskedElsewhere => row(Status::CONFLICT),
        RejectReason::TooManyStreams => row(Status::TOO_MANY_REQUESTS).retry(5),
        RejectReason::StateUnavailable | RejectReason::Unrecorded => {
            row(Status::SERVICE_UNAVAILABLE).retry(2)
        }
        RejectReason::Method | RejectReason::SessionUnknown => row(Status::NOT_FOUND),
        RejectReason::Scope(_) => row(Status::FORBIDDEN),
        // Ordinary responses for JSON-RPC clients.
        RejectReason::Tool => row(Status::OK).rest(Status::NOT_FOUND),
        RejectReason::Arguments => row(Status::OK).rest(Status::BAD_REQUEST),
        RejectReason::TimedOut => row(Status::OK).rest(Status::GATEWAY_TIMEOUT),
        RejectReason::Limited(refused) => Row {
            hit: None,
            audit: None,
            ..Row::limited(*refused)
        },
    }
}

impl Rejection {
    fn new(kind: Kind) -> Self {
        Self(Box::new(Rejected {
            kind,
            challenge: None,
            principal: None,
        }))
    }

    /// Rejects the credentials of a request. `challenge` is the value of `WWW-Authenticate`.
    pub(super) fn auth(error: AuthError, challenge: Option<HeaderValue>) -> Self {
        Self::new(Kind::Auth(error)).with_challenge(challenge)
    }

    /// Passes on the rejection of a message by the server.
    pub(super) fn message(refusal: RejectReason, response: JsonResponse) -> Self {
        Self::new(Kind::Message(refusal, response))
    }

    pub(super) fn with_challenge(mut self, challenge: Option<HeaderValue>) -> Self {
        self.0.challenge = challenge;
        self
    }

    /// Names the authenticated caller in the audit log.
    pub(super) fn with_principal(mut self, principal: Arc<Principal>) -> Self {
        self.0.principal = Some(principal);
        self
    }

    /// The authenticated caller, if it is named.
    pub(super) fn principal(&self) -> Option<&Arc<Principal>> {
        self.0.principal.as_ref()
    }

    /// Scopes of which the caller of the message needs one.
    pub(super) fn needed_scopes(&self) -> Option<Arc<[String]>> {
        match &self.0.kind {
            Kind::Message(RejectReason::Scope(scopes), _) => Some(Arc::clone(scopes)),
            _ => None,
        }
    }

    /// Returns true if the response is a JSON-RPC error on a route. A path that does not exist has no protocol.
    pub(super) fn speaks_rpc(&self, route: Option<&Route>) -> bool {
        route.is_some_and(Route::speaks_rpc)
            && !matches!(self.0.kind, Kind::Http(HttpError::NotFound))
    }

    /// The row of the table.
    pub(super) fn row(&self) -> Row {
        match &self.0.kind {
            Kind::Http(error) => error.row(),
            Kind::Auth(error) => auth_row(error),
            Kind::Message(refusal, _) => message_row(refusal),
        }
    }

    /// Text for the client.
    fn text(&self, row: &Row) -> Cow<'static, str> {
        match &self.0.kind {
            Kind::Http(HttpError::Limited(refused)) => refused.message().into(),
            Kind::Auth(error) if row.text.is_empty() => error.to_string().into(),
            _ => Cow::Borrowed(row.text),
        }
    }
}

impl From<HttpError> for Rejection {
    #[cold]
    fn from(error: HttpError) -> Self {
        Self::new(Kind::Http(error))
    }
}

impl From<ReadError> for HttpError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge { .. } => Self::BodyTooLarge,
            ReadError::Broken(_) => Self::BodyBroken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_names_its_setting_and_counts_its_hit() {
        for (error, limit) in [
            (HttpError::TargetTooLong, Limit::TargetBytes),
            (HttpError::HeadersTooLarge, Limit::HeaderBytes),
            (HttpError::TooManyHeaders, Limit::HeaderFields),
            (HttpError::BodyTooLarge, Limit::BodyBytes),
            (HttpError::BodyTooSlow(Limit::BodyRate), Limit::BodyRate),
        ] {
            let row = error.row();
            assert_eq!(row.setting, Some(limit.setting()));
            assert_eq!(row.reason, Some(Reason::Limit(limit.setting())));
            assert_eq!((row.hit, row.audit), (Some(limit), Some(Outcome::Limited)));
        }
        let too_long = auth_row(&AuthError::TooLong(Credential::ApiKey));
        assert_eq!(too_long.hit, Some(Limit::KeyBytes));
        assert_eq!(too_long.reason, Some(Reason::CredentialInvalid));
    }

    #[test]
    fn the_server_records_the_messages_that_it_rejects() {
        for refusal in [
            RejectReason::Malformed,
            RejectReason::Scope(Arc::from([])),
            RejectReason::StateUnavailable,
            RejectReason::Arguments,
        ] {
            let row = message_row(&refusal);
            assert_eq!((row.audit, row.hit), (None, None), "{refusal:?}");
            assert_eq!(row.reason, Some(refusal.reason()));
        }
    }

    #[test]
    fn rejections_are_small_errors() {
        assert_eq!(size_of::<Rejection>(), size_of::<usize>());
    }
}
