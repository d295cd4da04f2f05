//! Headers that the configuration sets for the requests to an API.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};

use super::credentials::sensitive;
use crate::environment::Secret;
use crate::net::is_connection_header;

/// Headers about the caller and its connection, which are never forwarded.
const NOT_FORWARDED: [&str; 8] = [
    "authorization",
    "cookie",
    "mcp-session-id",
    "x-api-key",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-user",
    "forwarded",
];

/// Parses the name of a header that requests may set.
///
/// # Errors
///
/// It is not a valid name, or that of a header that the client sets itself.
pub(super) fn header_name(name: &str) -> Result<HeaderName, String> {
    let parsed =
        HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a valid header name"))?;
    if is_connection_header(&parsed) {
        return Err(format!(
            "{name} is set by the client itself; leave it out, or use another header"
        ));
    }
    Ok(parsed)
}

/// Parses the headers that all requests of a source have. Their values can be secrets.
///
/// # Errors
///
/// A name is not one that requests may set, or a value has characters that no header can hold.
pub(super) fn fixed_headers(configured: &BTreeMap<String, Secret>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in configured {
        let value = sensitive(value.expose()).map_err(|problem| format!("{name}: {problem}"))?;
        headers.insert(header_name(name)?, value);
    }
    Ok(headers)
}

/// Parses the names of the caller's headers to forward.
///
/// # Errors
///
/// A name is not one that requests may set, or that of a header that is never forwarded.
pub(super) fn forwarded_headers(configured: &[String]) -> Result<Vec<HeaderName>, String> {
    let parsed = configured.iter().map(|name| match header_name(name)? {
        parsed if NOT_FORWARDED.contains(&parsed.as_str()) => Err(format!(
            "it has {name:?}, which concerns only the connection of the caller to this server; use auth of the source"
        )),
        parsed => Ok(parsed),
    });
    parsed.collect()
}
