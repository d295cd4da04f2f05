//! Syntax of `Host` and `:authority`: a name or an address, with or without a port.

/// Returns true if the string is a host, with or without a port.
pub(super) fn is_host(text: &str) -> bool {
    split_host(text).is_some()
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`. Returns `None` for other input: a user, a path or a list.
#[inline]
pub(super) fn split_host(text: &str) -> Option<(&str, Option<u16>)> {
    let end = if text.starts_with('[') {
        text.find(']')? + 1
    } else {
        text.find(':').unwrap_or(text.len())
    };
    let (host, port) = text.split_at(end);
    let is_named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_v6 = |b: u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
    // The zone of a link-local address, which has a meaning for the client only (RFC 6874).
    let is_zone = |b: u8| is_named(b) || matches!(b, b'%' | b'~');
    let good = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inner) => {
            let (address, zone) = inner.split_once('%').unwrap_or((inner, "0"));
            !address.is_empty()
                && address.bytes().all(is_v6)
                && !zone.is_empty()
                && zone.bytes().all(is_zone)
        }
        None => !host.is_empty() && host.bytes().all(is_named),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        // The port may be empty (RFC 3986 section 3.2.3).
        Some("") => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        None | Some(_) => return None,
    };
    good.then_some((host, port))
}
