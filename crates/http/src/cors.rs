//! CORS: responses to web pages of other origins.
//!
//! Only configured origins are permitted, each by name and never as `*`. Browser credentials (cookies) are not used.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::net::Body;

/// Routes of the application may have further methods than the protocol.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
/// Headers that protocol clients and OpenTelemetry send; mirrored parameters are added on request. Not all browsers
/// leave out a `User-Agent` that a page sets.
const HEADERS: &str = "accept, authorization, baggage, content-type, dpop, if-none-match, last-event-id, mcp-method, mcp-name, \
                       mcp-protocol-version, mcp-session-id, traceparent, tracestate, user-agent, x-api-key";
const PARAMETER: &str = "mcp-param-";
const EXPOSED: &str =
    "dpop-nonce, etag, mcp-session-id, www-authenticate, retry-after, ratelimit, ratelimit-policy";
/// Max age of a preflight result in seconds: two hours, the maximum of any browser.
const MAX_AGE_SECONDS: u16 = 7200;

/// Origins whose pages may read responses.
#[derive(Debug)]
pub(crate) struct Cors(Vec<String>);

impl Cors {
    pub fn new(origins: &[String]) -> Self {
        Self(origins.iter().map(|o| o.to_ascii_lowercase()).collect())
    }

    /// The origin of a request, if it is one of the configured.
    #[inline]
    pub fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else {
            return None;
        };
        let is_known = |known: &String| origin.as_bytes().eq_ignore_ascii_case(known.as_bytes());
        self.0.iter().any(is_known).then(|| origin.clone())
    }

    /// Returns true for a CORS preflight request.
    pub(crate) fn is_preflight(&self, head: &Parts) -> bool {
        head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Builds the preflight response.
    pub fn preflight(&self, asked: &HeaderMap) -> Response<Body> {
        let mut allowed = HEADERS.to_owned();
        let names = asked.get(ACCESS_CONTROL_REQUEST_HEADERS);
        let names = names.and_then(|names| names.to_str().ok()).unwrap_or("");
        for name in names.split(',').map(str::trim) {
            let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            let is_parameter = name
                .get(..PARAMETER.len())
                .is_some_and(|prefix| prefix.eq_ignore_ascii_case(PARAMETER));
            if is_parameter && name.bytes().all(is_token) {
                allowed.push_str(", ");
                allowed.push_str(name);
            }
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static(METHODS),
        );
        if let Ok(allowed) = HeaderValue::try_from(allowed) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS.into());
        response
    }

    /// Permits the pages of an origin to read a response.
    pub fn allow(&self, origin: HeaderValue, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        // Public documents can be read from every origin, and shared caches keep them for all.
        if headers
            .get(ACCESS_CONTROL_ALLOW_ORIGIN)
            .is_some_and(|any| any == "*")
        {
            return;
        }
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(VARY, HeaderValue::from_static("origin"));
        headers.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(EXPOSED),
        );
    }
}
