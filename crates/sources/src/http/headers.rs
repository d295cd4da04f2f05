//! Headers that a source configures for its requests.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::config::HttpSourceConfig;
use crate::source::identity;

/// Headers that belong to the caller and its connection and are never forwarded.
const NOT_FORWARDED: [&str; 9] = [
    "authorization",
    "cookie",
    "proxy-authorization",
    "mcp-session-id",
    "x-api-key",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-user",
    "forwarded",
];

/// Checks the settings that all tools of a source share.
pub(super) fn check_shared(http: &HttpSourceConfig) -> Result<(), String> {
    fixed_headers(http)?;
    forwarded(http).map(drop)
}

/// Parses a name in `headers`.
pub(super) fn header_name(name: &str) -> Result<HeaderName, String> {
    identity::header_name(name).map_err(|problem| format!("headers.{name}: {problem}"))
}

/// Returns the headers of every request to the origin of `base_url`.
pub(super) fn fixed_headers(http: &HttpSourceConfig) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &http.headers {
        let parsed = header_name(name)?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
            format!("headers.{name}: its value has characters that no header can hold")
        })?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

/// Returns the names of the caller's headers to forward.
pub(super) fn forwarded(http: &HttpSourceConfig) -> Result<Vec<HeaderName>, String> {
    let mut names = Vec::new();
    for name in &http.forward_headers {
        let parsed =
            identity::header_name(name).map_err(|problem| format!("forward_headers: {problem}"))?;
        if NOT_FORWARDED.contains(&parsed.as_str()) {
            return Err(format!(
                "forward_headers has {name:?}, which concerns only the connection of the caller to this server; use auth of the source"
            ));
        }
        names.push(parsed);
    }
    Ok(names)
}
