//! Header checks that run before the body is read.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT,
    HOST, ORIGIN, TRANSFER_ENCODING, USER_AGENT,
};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Uri};

use super::config::HttpLimits;
use super::head_cache::Repeats;
use super::host::split_host;
use super::rejection::HttpError;
use crate::server::McpHeaders;

/// The header fields that decide over a request, found in one pass over all of them.
#[derive(Debug, Default)]
pub struct Fields<'h> {
    pub(super) host: Field<'h>,
    pub(super) origin: Field<'h>,
    content_type: Field<'h>,
    transfer_encoding: Field<'h>,
    content_encoding: Field<'h>,
    accept: Accept,
    mcp: McpHeaders,
    /// Set if a name has an underscore, which some programs treat as a hyphen.
    has_underscore: bool,
    /// Bytes of all fields, with a colon, a space and a line end for each.
    bytes: usize,
    /// Number of fields.
    count: usize,
}

/// Returns true for fields that nearly all requests have and that decide nothing here.
#[inline]
fn is_usual(name: &HeaderName) -> bool {
    *name == CONTENT_LENGTH
        || *name == USER_AGENT
        || *name == ACCEPT_ENCODING
        || *name == CONNECTION
}

/// Returns true if a client waits to be asked for its body (RFC 9110 section 10.1.1).
pub(super) fn expects_continue(head: &Parts) -> bool {
    let expected = head.headers.get(EXPECT).map(HeaderValue::as_bytes);
    expected.is_some_and(|expected| expected.eq_ignore_ascii_case(b"100-continue"))
}

/// A field that may occur only once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Field<'h> {
    #[default]
    Absent,
    One(&'h HeaderValue),
    Repeated,
}

/// Media types that a client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Accept {
    present: bool,
    any: bool,
    json: bool,
    stream: bool,
    other: bool,
}

/// Facts from the headers that the endpoint needs.
#[derive(Debug)]
pub struct Summary {
    is_json: Result<(), HttpError>,
    accept: Accept,
    /// Number of fields.
    count: usize,
    pub mcp: McpHeaders,
    /// Values that layers of the application have put into the request, if there are any.
    pub extensions: Option<Arc<Extensions>>,
}

/// Header summary of a request, computed now or reused from an earlier request.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each request"
)]
pub enum AdmittedHead {
    Now(Summary),
    Before(Rc<Summary>),
}

impl Deref for AdmittedHead {
    type Target = Summary;

    #[inline]
    fn deref(&self) -> &Summary {
        match self {
            Self::Now(summary) => summary,
            Self::Before(summary) => summary,
        }
    }
}

/// Summary of the remembered head of a connection ([`head_cache`](super::head_cache)).
#[derive(Debug, Default)]
pub(crate) struct SummaryCache {
    repeats: Cell<Option<Repeats>>,
    /// A summary, with the number of its head.
    summary: RefCell<Option<(u32, Rc<Summary>)>>,
}

impl SummaryCache {
    /// Records that a head repeats an earlier one.
    #[inline]
    pub(super) fn note(&self, repeats: Repeats) {
        self.repeats.set(Some(repeats));
    }

    /// The number of the head that a request repeats.
    #[inline]
    pub(super) fn repeated_by(&self, request: u32) -> Option<u32> {
        let repeats = self.repeats.get()?;
        (repeats.request == request).then_some(repeats.head)
    }

    /// Returns the summary of a head.
    #[inline]
    pub(super) fn recall(&self, head: u32) -> Option<Rc<Summary>> {
        match &*self.summary.borrow() {
            Some((known, summary)) if *known == head => Some(Rc::clone(summary)),
            _ => None,
        }
    }

    /// Stores the summary of a head.
    pub(super) fn remember(&self, head: u32, summary: Rc<Summary>) {
        self.summary.replace(Some((head, summary)));
    }
}

impl<'h> Fields<'h> {
    #[inline]
    pub fn read(headers: &'h HeaderMap) -> Self {
        let mut fields = Self {
            count: headers.len(),
            ..Self::default()
        };
        for (name, value) in headers {
            fields.bytes += name.as_str().len() + value.len() + 4;
            // `http` has a number for each of these names, so the comparison does not touch their text.
            if *name == CONTENT_TYPE {
                fields.content_type.add_unless_equal(value);
            } else if *name == ACCEPT {
                fields.accept.add(value);
            } else if *name == HOST {
                fields.host.add(value);
            } else if *name == ORIGIN {
                fields.origin.add(value);
            } else if *name == TRANSFER_ENCODING {
                fields.transfer_encoding.add(value);
            } else if *name == CONTENT_ENCODING {
                fields.content_encoding.add(value);
            } else if !is_usual(name) {
                fields.add_other(name.as_str(), value);
            }
        }
        fields
    }

    #[inline]
    fn add_other(&mut self, name: &str, value: &HeaderValue) {
        // The tool author chooses the rest of the name after that prefix.
        if !self.mcp.add(name, value) && name.contains('_') && !name.starts_with("mcp-param-") {
            self.has_underscore = true;
        }
    }

    #[inline]
    pub fn summary(self) -> Summary {
        Summary {
            is_json: check_content_type(self.content_type)
                .and_then(|()| check_content_encoding(self.content_encoding)),
            accept: self.accept,
            count: self.count,
            mcp: self.mcp,
            extensions: None,
        }
    }

    /// The size of what came in before the body.
    #[inline]
    pub(crate) fn check_size(&self, uri: &Uri, limits: &HttpLimits) -> Result<(), HttpError> {
        let target = uri.path_and_query().map_or(1, |p| p.as_str().len());
        if limits.target_bytes < target {
            return Err(HttpError::TargetTooLong);
        }
        if limits.header_bytes < target + self.bytes {
            return Err(HttpError::HeadersTooLarge);
        }
        if limits.header_fields < self.count {
            return Err(HttpError::TooManyHeaders);
        }
        Ok(())
    }

    /// Rejects names that CGI-style gateways cannot tell from those with a hyphen. Such a name could pass for a header
    /// that a proxy has removed.
    #[inline]
    pub fn check_names(&self) -> Result<(), HttpError> {
        if self.has_underscore {
            return Err(HttpError::HeaderName);
        }
        Ok(())
    }

    /// On HTTP/2 both may say for whom a request is; then they have to say the same (RFC 9113 section 8.3.1).
    #[inline]
    pub(crate) fn check_authority(&self, uri: &Uri) -> Result<(), HttpError> {
        let (host, authority) = match (self.host, uri.authority()) {
            (Field::Absent, _) | (_, None) => return Ok(()),
            (Field::One(host), Some(authority)) => (host, authority),
            (Field::Repeated, Some(_)) => return Err(HttpError::HeaderRepeated),
        };
        let host = host.to_str().ok().and_then(split_host);
        match (host, split_host(authority.as_str())) {
            // The default port of the scheme is optional.
            (Some((host, _)), Some((other, _))) if host.eq_ignore_ascii_case(other) => Ok(()),
            _ => Err(HttpError::HostInvalid),
        }
    }

    /// Codings of the transfer other than the one that hyper undoes, and the one before HTTP/1.1 had it.
    #[inline]
    pub(crate) fn check_framing(&self, http_10: bool) -> Result<(), HttpError> {
        match self.transfer_encoding {
            Field::Absent => Ok(()),
            Field::One(coding)
                if !http_10 && coding.as_bytes().eq_ignore_ascii_case(b"chunked") =>
            {
                Ok(())
            }
            _ => Err(HttpError::BodyBroken),
        }
    }
}

impl<'h> Field<'h> {
    #[inline]
    fn add(&mut self, value: &'h HeaderValue) {
        *self = match self {
            Self::Absent => Self::One(value),
            _ => Self::Repeated,
        };
    }

    /// Adds a value that may occur again. Clients that use cpp-httplib send the type of their body twice.
    #[inline]
    fn add_unless_equal(&mut self, value: &'h HeaderValue) {
        match self {
            Self::One(first) if *first == value => {}
            _ => self.add(value),
        }
    }

    #[inline]
    pub(super) fn value(self) -> Result<Option<&'h HeaderValue>, HttpError> {
        match self {
            Self::Absent => Ok(None),
            Self::One(value) => Ok(Some(value)),
            Self::Repeated => Err(HttpError::HeaderRepeated),
        }
    }
}

impl Accept {
    #[inline]
    fn add(&mut self, value: &HeaderValue) {
        self.present = true;
        // Value sent by all official clients.
        if value == "application/json, text/event-stream" {
            self.json = true;
            self.stream = true;
        } else {
            self.add_list(value);
        }
    }

    fn add_list(&mut self, value: &HeaderValue) {
        let Ok(value) = value.to_str() else {
            self.other = true;
            return;
        };
        for range in value.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let refused = parts.any(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
                name.trim_end().eq_ignore_ascii_case("q")
                    && matches!(value.trim_start(), "0" | "0." | "0.0" | "0.00" | "0.000")
            });
            if media.is_empty() {
                continue;
            }
            if refused {
                self.other = true;
                continue;
            }
            match media.to_ascii_lowercase().as_str() {
                "*/*" => self.any = true,
                "application/json" | "application/*" => self.json = true,
                "text/event-stream" | "text/*" => self.stream = true,
                _ => self.other = true,
            }
        }
    }
}

impl Summary {
    /// Copy to keep for later requests of the same connection.
    pub(crate) fn to_keep(&self) -> Self {
        Self {
            is_json: self.is_json,
            accept: self.accept,
            count: self.count,
            mcp: self.mcp.to_keep(),
            extensions: None,
        }
    }

    /// Returns the number of fields.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns true if the client accepts an event stream as response.
    #[inline]
    pub(crate) fn takes_streams(&self) -> bool {
        let Accept {
            present,
            any,
            stream,
            ..
        } = self.accept;
        stream || any || !present
    }

    /// Returns true if the client names the event stream type explicitly.
    pub(crate) fn names_streams(&self) -> bool {
        self.accept.stream
    }

    /// Returns true if the client accepts only an event stream.
    #[inline]
    pub(crate) fn takes_nothing_but_streams(&self) -> bool {
        let Accept {
            any, json, stream, ..
        } = self.accept;
        stream && !json && !any
    }

    /// Checks that the body is JSON.
    pub(crate) fn check_body(&self) -> Result<(), HttpError> {
        self.is_json
    }

    /// Checks that the body is JSON and that the client accepts both response types (HTTP-07). Without `strict`, one of
    /// them or a missing `Accept` header is sufficient, since some clients send that.
    #[inline]
    pub(crate) fn check_media(&self, strict: bool) -> Result<(), HttpError> {
        self.is_json?;
        let Accept {
            present,
            any,
            json,
            stream,
            other,
        } = self.accept;
        let acceptable = if strict {
            any || json && stream
        } else {
            any || json || stream || !present || !other
        };
        if acceptable {
            Ok(())
        } else {
            Err(HttpError::NotAcceptable)
        }
    }
}

/// Checks that the body is JSON (HTTP-07). A charset parameter is accepted, since old clients send one; the body is
/// always read as UTF-8.
#[inline]
fn check_content_type(field: Field<'_>) -> Result<(), HttpError> {
    let Some(value) = field.value()? else {
        return Err(HttpError::ContentType);
    };
    if value == "application/json" {
        return Ok(());
    }
    let value = value.to_str().map_err(|_| HttpError::ContentType)?;
    let mut parts = value.split(';');
    let essence = parts.next().unwrap_or_default().trim();
    let charset = parts.all(|parameter| {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = value.trim().trim_matches('"');
        !name.trim().eq_ignore_ascii_case("charset")
            || value.eq_ignore_ascii_case("utf-8")
            || value.eq_ignore_ascii_case("utf8")
    });
    if essence.eq_ignore_ascii_case("application/json") && charset {
        Ok(())
    } else {
        Err(HttpError::ContentType)
    }
}

/// Bodies are not unpacked: a small one could become a large one.
#[inline]
fn check_content_encoding(field: Field<'_>) -> Result<(), HttpError> {
    match field {
        Field::Absent => Ok(()),
        Field::One(coding) if coding.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(()),
        Field::One(_) | Field::Repeated => Err(HttpError::ContentEncoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn on_http_2_both_that_name_the_host_have_to_agree() {
        for (target, host, agrees) in [
            ("http://localhost:3000/mcp", "localhost:3000", true),
            ("http://localhost:3000/mcp", "LocalHost:3000", true),
            ("http://localhost:3000/mcp", "localhost", true),
            (
                "http://localhost:3000/mcp",
                "localhost, evil.example.com",
                false,
            ),
            ("http://localhost:3000/mcp", "evil.example.com", false),
            ("/mcp", "evil.example.com", true),
        ] {
            let headers = headers(&[(HOST, host)]);
            let found = Fields::read(&headers).check_authority(&Uri::from_static(target));
            assert_eq!(found.is_ok(), agrees, "{target} and {host}");
        }
        let twice = headers(&[(HOST, "localhost"), (HOST, "localhost")]);
        let target = Uri::from_static("http://localhost/mcp");
        assert!(Fields::read(&twice).check_authority(&target).is_err());
        assert!(Fields::read(&headers(&[])).check_authority(&target).is_ok());
    }

    #[test]
    fn http_07_content_type_is_json() {
        let check = |value| {
            Fields::read(&headers(&[(CONTENT_TYPE, value)]))
                .summary()
                .check_media(false)
        };
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json ; x=y",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "text/plain",
            "application/jsonp",
            "application/json-rpc",
            "",
            "application/json; charset=utf-16",
            "text/json",
            "application/x-www-form-urlencoded",
        ] {
            assert_eq!(check(bad), Err(HttpError::ContentType), "{bad}");
        }
        let none = Fields::read(&HeaderMap::new()).summary().check_media(false);
        assert_eq!(none, Err(HttpError::ContentType));
        for (second, expected) in [
            ("application/json", Ok(())),
            ("text/plain", Err(HttpError::HeaderRepeated)),
        ] {
            let twice = headers(&[(CONTENT_TYPE, "application/json"), (CONTENT_TYPE, second)]);
            let twice = Fields::read(&twice).summary().check_media(false);
            assert_eq!(twice, expected, "{second}");
        }
    }

    #[test]
    fn http_07_accept_is_taken_liberally_unless_told_otherwise() {
        let check = |value, strict| {
            let headers = headers(&[(CONTENT_TYPE, "application/json"), (ACCEPT, value)]);
            Fields::read(&headers).summary().check_media(strict).is_ok()
        };
        for good in [
            "application/json, text/event-stream",
            "text/event-stream,application/json;q=0.9",
            "*/*",
        ] {
            assert!(check(good, false) && check(good, true), "{good}");
        }
        for lax in ["application/json", "text/event-stream", "application/*", ""] {
            assert!(check(lax, false) && !check(lax, true), "{lax}");
        }
        for bad in [
            "text/html",
            "image/png, text/plain",
            "application/json;q=0, text/html",
            "application/json; Q = 0.",
        ] {
            assert!(!check(bad, false) && !check(bad, true), "{bad}");
        }
        let none = headers(&[(CONTENT_TYPE, "application/json")]);
        assert!(Fields::read(&none).summary().check_media(false).is_ok());
    }

    #[test]
    fn sizes_are_bounded() {
        let limits = HttpLimits::default();
        let uri =
            |length: usize| Uri::try_from(format!("/{}", "x".repeat(length - 1))).expect("a URI");
        let check =
            |target: &Uri, headers: &HeaderMap| Fields::read(headers).check_size(target, &limits);
        let none = HeaderMap::new();
        assert_eq!(check(&uri(8192), &none), Ok(()));
        assert_eq!(check(&uri(8193), &none), Err(HttpError::TargetTooLong));
        let long = HeaderValue::try_from("x".repeat(32 * 1024)).expect("a value");
        let mut large = HeaderMap::new();
        large.insert(ACCEPT, long);
        assert_eq!(check(&uri(1), &large), Err(HttpError::HeadersTooLarge));
        let many = |number: usize| {
            let name = HeaderName::from_static("x");
            let each = (0..number).map(|_| (name.clone(), HeaderValue::from_static("y")));
            each.fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            })
        };
        assert_eq!(check(&uri(1), &many(100)), Ok(()));
        assert_eq!(check(&uri(1), &many(101)), Err(HttpError::TooManyHeaders));
    }

    #[test]
    fn results_are_those_of_the_head_that_is_repeated() {
        let cache = SummaryCache::default();
        let summary = || Rc::new(Fields::default().summary());
        let (second, fifth) = (summary(), summary());
        cache.note(Repeats {
            request: 3,
            head: 2,
        });
        assert_eq!(cache.repeated_by(3), Some(2));
        assert_eq!((cache.repeated_by(2), cache.repeated_by(4)), (None, None));
        assert!(cache.recall(2).is_none());
        cache.remember(2, Rc::clone(&second));
        assert!(
            cache
                .recall(2)
                .is_some_and(|found| Rc::ptr_eq(&found, &second))
        );
        // Bytes are read before the requests in front of them begin.
        cache.note(Repeats {
            request: 6,
            head: 5,
        });
        assert_eq!(
            (cache.repeated_by(3), cache.repeated_by(6)),
            (None, Some(5))
        );
        assert!(cache.recall(5).is_none());
        cache.remember(5, Rc::clone(&fifth));
        assert!(
            cache
                .recall(5)
                .is_some_and(|found| Rc::ptr_eq(&found, &fifth))
        );
        assert!(cache.recall(2).is_none());
    }
}
