//! Header checks, compared with simpler and slower parsers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::config::{HttpConfig, HttpLimits};
use super::framing::FramingCheck;
use super::headers::Fields;
use super::host_guard::HostGuard;
use crate::server::{HeaderValueState, VersionHeader, read_header};

/// Checks the framing of the requests of a connection, read as a whole and in pieces. The first byte is the size of the
/// pieces.
///
/// # Panics
///
/// If the pieces make a difference.
pub fn request_framing_holds(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else {
        return;
    };
    let read = |size: usize| {
        let mut check = FramingCheck::default();
        let mut pieces = bytes.chunks(size);
        let found = pieces.find_map(|piece| check.read(piece).ambiguous);
        (found, check.is_in_head(), check.is_in_body())
    };
    let size = usize::from(*size).max(1);
    assert_eq!(read(size), read(usize::MAX), "by {size}");
}

/// Reads lines `name: value` as the fields of a request, a first line without a colon as its target, and asks
/// everything of them that is asked of a request.
///
/// # Panics
///
/// If an answer is not the one that a simpler reader gives.
pub fn headers_hold(text: &[u8]) {
    let mut target = Uri::from_static("/mcp");
    let mut headers = HeaderMap::new();
    for line in text.split(|b| *b == b'\n') {
        match line.iter().position(|b| *b == b':') {
            None => target = Uri::try_from(line).unwrap_or(target),
            Some(colon) => {
                let name = HeaderName::from_bytes(line[..colon].trim_ascii());
                let value = HeaderValue::from_bytes(&line[colon + 1..]);
                if let (Ok(name), Ok(value)) = (name, value) {
                    headers.append(name, value);
                }
            }
        }
    }
    let fields = Fields::read(&headers);
    let _ = fields.check_size(&target, &HttpLimits::default());
    let _ = (fields.check_framing(true), fields.check_framing(false));
    let local = HostGuard::new(&HttpConfig::default());
    if local.check(&target, &fields).is_ok() {
        host_is_local(&target, &headers);
        origin_is_local(&headers);
    }
    let anywhere = HostGuard::new(&HttpConfig {
        host: [0, 0, 0, 0].into(),
        allowed_origins: vec!["https://app.example.com".to_owned()],
        ..HttpConfig::default()
    });
    if anywhere.check(&target, &fields).is_ok()
        && let Some(origin) = headers.get("origin")
    {
        let listed = origin
            .as_bytes()
            .eq_ignore_ascii_case(b"https://app.example.com");
        assert!(listed, "a stranger's page was let in: {origin:?}");
    }
    let summary = fields.summary();
    if summary.check_media(false).is_ok() {
        body_is_json(&headers);
    } else {
        assert!(summary.check_media(true).is_err(), "strict is never laxer");
    }
    version_is(&headers, summary.mcp.version());
    for name in ["mcp-name", "mcp-method", "mcp-param-v"] {
        mirrored_is(&headers, name);
    }
}

/// Value of a field that may occur only once.
fn only<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values: Vec<_> = headers.get_all(name).iter().collect();
    if name == "content-type" {
        values.dedup();
    }
    assert!(
        values.len() < 2,
        "{name} was accepted although it is there twice"
    );
    values.first().and_then(|value| value.to_str().ok())
}

fn is_local(host: Option<&str>) -> bool {
    let host = host.map(str::to_ascii_lowercase);
    matches!(host.as_deref(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

fn host_is_local(target: &Uri, headers: &HeaderMap) {
    let host = only(headers, "host");
    let authority = match target.authority() {
        Some(authority) => authority.clone(),
        None => match host.and_then(|host| host.parse().ok()) {
            Some(authority) => authority,
            None => panic!("{host:?} was accepted as a host"),
        },
    };
    assert!(
        is_local(Some(authority.host())),
        "{authority} was taken for local"
    );
    assert!(!authority.as_str().contains('@'), "{authority} has a user");
}

fn origin_is_local(headers: &HeaderMap) {
    if !headers.contains_key("origin") {
        return;
    }
    let origin = only(headers, "origin");
    let Some(uri) = origin.and_then(|o| o.to_ascii_lowercase().parse::<Uri>().ok()) else {
        panic!("{origin:?} was accepted as an origin");
    };
    assert!(is_local(uri.host()), "{uri} was taken for local");
    assert!(
        matches!(uri.scheme_str(), Some("http" | "https")),
        "{uri} is no web page's"
    );
    assert_eq!(
        uri.path_and_query().map_or("/", |p| p.as_str()),
        "/",
        "{uri} has a path"
    );
}

fn body_is_json(headers: &HeaderMap) {
    let value = only(headers, "content-type")
        .unwrap_or_default()
        .to_ascii_lowercase();
    let (essence, parameters) = value.split_once(';').unwrap_or((&value, ""));
    assert_eq!(essence.trim(), "application/json");
    for parameter in parameters.split(';').map(str::trim) {
        if let Some(charset) = parameter.strip_prefix("charset=") {
            assert_eq!(charset.trim_matches(['"', ' ', '\t']), "utf-8");
        }
    }
}

fn version_is(headers: &HeaderMap, found: VersionHeader) {
    let values: Vec<_> = headers.get_all("mcp-protocol-version").iter().collect();
    let expected = match values[..] {
        [] => VersionHeader::Absent,
        [value] => match value.as_bytes().trim_ascii() {
            b"2024-11-05" | b"2025-03-26" | b"2025-06-18" | b"2025-11-25" => {
                VersionHeader::WithSessions
            }
            b"2026-07-28" => VersionHeader::Stateless,
            _ => VersionHeader::Unknown,
        },
        _ => VersionHeader::Unknown,
    };
    assert_eq!(found, expected);
}

/// MH-07 to MH-09 and MH-22.
fn mirrored_is(headers: &HeaderMap, name: &'static str) {
    let values: Vec<_> = headers.get_all(name).iter().collect();
    let found = read_header(headers, &HeaderName::from_static(name)).decoded();
    let [value] = values[..] else {
        let expected = if values.is_empty() {
            HeaderValueState::Absent
        } else {
            HeaderValueState::Repeated
        };
        assert_eq!(found, expected);
        return;
    };
    let bytes = value.as_bytes().trim_ascii();
    let inner = bytes
        .strip_prefix(b"=?base64?")
        .and_then(|b| b.strip_suffix(b"?="));
    match (found, inner) {
        (HeaderValueState::Text(text), Some(inner)) => {
            assert_eq!(
                STANDARD.encode(text.as_bytes()).as_bytes(),
                inner,
                "there is one way to write a text"
            );
        }
        (HeaderValueState::Text(text), None) => assert_eq!(text.as_bytes(), bytes),
        (HeaderValueState::Invalid(_), Some(_)) => {}
        (HeaderValueState::Invalid(_), None) => {
            let visible = |b: &u8| matches!(b, b' '..=b'~' | b'\t');
            assert!(!bytes.iter().all(visible), "{value:?} was refused");
        }
        (other, _) => panic!("{value:?} was read as {other:?}"),
    }
}
