//! What can be said of a request before anybody reads its body.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    ORIGIN, TRANSFER_ENCODING, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::config::{HttpConfig, HttpLimits};
use super::status::Rejection;
use crate::auth::PublicUrl;
use crate::server::McpHeaders;

/// The header fields that decide over a request, found in one pass over all of them.
#[derive(Debug, Default)]
pub(crate) struct Fields<'h> {
    host: Field<'h>,
    origin: Field<'h>,
    content_type: Field<'h>,
    transfer_encoding: Field<'h>,
    content_encoding: Field<'h>,
    accept: Accept,
    mcp: McpHeaders,
    /// A name has an underscore, and may be read as one with a hyphen somewhere.
    has_underscore: bool,
    /// Bytes of all fields, with a colon, a space and a line end for each.
    bytes: usize,
    /// How many fields there are.
    count: usize,
}

/// What nearly all requests have besides, and what decides nothing here.
const USUAL: [HeaderName; 4] = [CONTENT_LENGTH, USER_AGENT, ACCEPT_ENCODING, CONNECTION];

/// A field that may stand there once.
#[derive(Clone, Copy, Debug, Default)]
enum Field<'h> {
    #[default]
    Absent,
    One(&'h HeaderValue),
    Repeated,
}

/// What a client takes for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Accept {
    present: bool,
    any: bool,
    json: bool,
    stream: bool,
    other: bool,
}

/// What the endpoint needs to know of the headers.
#[derive(Debug)]
pub(crate) struct Summary {
    is_json: Result<(), Rejection>,
    accept: Accept,
    pub(crate) mcp: McpHeaders,
}

impl<'h> Fields<'h> {
    #[inline]
    pub(crate) fn read(headers: &'h HeaderMap) -> Self {
        let mut fields = Self {
            count: headers.len(),
            ..Self::default()
        };
        for (name, value) in headers {
            fields.bytes += name.as_str().len() + value.len() + 4;
            // `http` has a number for each of these names: they are told apart without a look at their text.
            if *name == CONTENT_TYPE {
                fields.content_type.add(value);
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
            } else if !USUAL.contains(name) {
                fields.add_other(name.as_str(), value);
            }
        }
        fields
    }

    #[inline]
    fn add_other(&mut self, name: &str, value: &HeaderValue) {
        // What follows that prefix is named by the author of a tool.
        if !self.mcp.add(name, value) && name.contains('_') && !name.starts_with("mcp-param-") {
            self.has_underscore = true;
        }
    }

    #[inline]
    pub(crate) fn summary(self) -> Summary {
        Summary {
            is_json: check_content_type(self.content_type)
                .and_then(|()| check_content_encoding(self.content_encoding)),
            accept: self.accept,
            mcp: self.mcp,
        }
    }

    /// The size of what came in before the body.
    #[inline]
    pub(crate) fn check_size(&self, uri: &Uri, limits: &HttpLimits) -> Result<(), Rejection> {
        let target = uri.path_and_query().map_or(1, |p| p.as_str().len());
        if limits.target_bytes < target {
            return Err(Rejection::TargetTooLong);
        }
        if limits.header_bytes < target + self.bytes {
            return Err(Rejection::HeadersTooLarge);
        }
        if limits.header_fields < self.count {
            return Err(Rejection::TooManyHeaders);
        }
        Ok(())
    }

    /// Names that programs behind gateways of old (CGI, and what is made like it) cannot tell from those with a hyphen, so
    /// that one may pass for a header that somebody in front has taken away.
    #[inline]
    pub(crate) fn check_names(&self) -> Result<(), Rejection> {
        if self.has_underscore {
            return Err(Rejection::HeaderName);
        }
        Ok(())
    }

    /// On HTTP/2 both may say for whom a request is; then they have to say the same (RFC 9113 section 8.3.1).
    #[inline]
    pub(crate) fn check_authority(&self, uri: &Uri) -> Result<(), Rejection> {
        let (host, authority) = match (self.host, uri.authority()) {
            (Field::Absent, _) | (_, None) => return Ok(()),
            (Field::One(host), Some(authority)) => (host, authority),
            (Field::Repeated, Some(_)) => return Err(Rejection::HeaderRepeated),
        };
        let host = host.to_str().ok().and_then(split_host);
        match (host, split_host(authority.as_str())) {
            // The port that goes with the scheme may be left out.
            (Some((host, _)), Some((other, _))) if host.eq_ignore_ascii_case(other) => Ok(()),
            _ => Err(Rejection::HostInvalid),
        }
    }

    /// Codings of the transfer other than the one that hyper undoes, and the one before HTTP/1.1 had it.
    #[inline]
    pub(crate) fn check_framing(&self, http_10: bool) -> Result<(), Rejection> {
        match self.transfer_encoding {
            Field::Absent => Ok(()),
            Field::One(coding)
                if !http_10 && coding.as_bytes().eq_ignore_ascii_case(b"chunked") =>
            {
                Ok(())
            }
            _ => Err(Rejection::BodyBroken),
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

    #[inline]
    fn value(self) -> Result<Option<&'h HeaderValue>, Rejection> {
        match self {
            Self::Absent => Ok(None),
            Self::One(value) => Ok(Some(value)),
            Self::Repeated => Err(Rejection::HeaderRepeated),
        }
    }
}

impl Accept {
    #[inline]
    fn add(&mut self, value: &HeaderValue) {
        self.present = true;
        // What every official client sends.
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
    /// Whether an answer may be an event stream.
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

    /// Whether it is an event stream that is asked for, in so many words.
    pub(crate) fn names_streams(&self) -> bool {
        self.accept.stream
    }

    /// Whether the body is JSON.
    pub(crate) fn check_body(&self) -> Result<(), Rejection> {
        self.is_json
    }

    /// HTTP-07: the body is JSON, and the client takes an answer in one of the two forms there are. Some clients
    /// name only one of them, and some none; they are answered all the same.
    #[inline]
    pub(crate) fn check_media(&self, strict: bool) -> Result<(), Rejection> {
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
            Err(Rejection::NotAcceptable)
        }
    }
}

/// Whom this server answers to, and which web pages may call it: the guard against DNS rebinding (HTTP-01,
/// HTTP-08).
#[derive(Debug)]
pub(crate) struct HostGuard {
    /// `None`: any host.
    hosts: Option<Vec<HostPattern>>,
    /// The first value that was found good, which nearly every client will say again. Any host would be; this one is
    /// not taken apart once more.
    usual: OnceLock<Box<str>>,
    origins: Vec<String>,
    /// Pages from loopback may call too.
    local_origins: bool,
    /// Refusals are told in the log, and not all of them.
    told: Told,
}

/// When something was last told, in seconds after the beginning, so that strangers cannot fill the log.
#[derive(Debug)]
struct Told {
    beginning: Instant,
    next: AtomicU64,
}

impl Told {
    const PAUSE_SECONDS: u64 = 60;

    fn is_due(&self, now: Instant) -> bool {
        let now = (now - self.beginning).as_secs();
        let next = self.next.load(Relaxed);
        next <= now
            && self
                .next
                .compare_exchange(next, now + Self::PAUSE_SECONDS, Relaxed, Relaxed)
                .is_ok()
    }
}

/// A host with its port, or with any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPattern {
    host: String,
    port: Option<u16>,
}

const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl HostGuard {
    pub(crate) fn new(config: &HttpConfig) -> Self {
        // A page reaches no socket in the file system, by whatever name.
        let local = config.host.is_loopback() && config.unix_socket.is_none();
        let public = config.public_url.as_deref().and_then(PublicUrl::parse);
        // Proxies may or may not take the port along.
        let public_host = public.as_ref().map(|public| public.host().to_owned());
        let names: Vec<String> = config
            .allowed_hosts
            .iter()
            .cloned()
            .chain(public_host)
            .collect();
        let configured = names.iter().filter_map(|text| HostPattern::parse(text));
        let hosts = match (local, names.is_empty()) {
            (false, true) => None,
            (true, _) => {
                let names = LOCAL_HOSTS.map(|host| HostPattern {
                    host: host.to_owned(),
                    port: None,
                });
                Some(names.into_iter().chain(configured).collect())
            }
            (false, false) => Some(configured.collect()),
        };
        Self {
            hosts,
            usual: OnceLock::new(),
            origins: config
                .allowed_origins
                .iter()
                .map(String::as_str)
                // Its own pages.
                .chain(public.as_ref().map(PublicUrl::origin))
                .map(str::to_ascii_lowercase)
                .collect(),
            local_origins: local,
            told: Told {
                beginning: Instant::now(),
                next: AtomicU64::new(0),
            },
        }
    }

    /// Says in the log, once a minute at most, that somebody was refused, and which setting would change that.
    pub(crate) fn report(&self, setting: Option<&'static str>, headers: &HeaderMap) {
        if !self.told.is_due(Instant::now()) {
            return;
        }
        let said = |name| {
            let value = headers.get(name).map_or(&[][..], HeaderValue::as_bytes);
            value[..value.len().min(100)].escape_ascii().to_string()
        };
        tracing::warn!(
            setting,
            host = said(HOST),
            origin = said(ORIGIN),
            "a request was refused for its Host or its Origin; if it should be answered, add it to the setting"
        );
    }

    /// Checks `Host` (or the target's authority, which takes its place) and `Origin`.
    #[inline]
    pub(crate) fn check(&self, uri: &Uri, fields: &Fields<'_>) -> Result<(), Rejection> {
        if uri.scheme().is_some_and(|scheme| {
            *scheme != http::uri::Scheme::HTTP && *scheme != http::uri::Scheme::HTTPS
        }) {
            return Err(Rejection::HostInvalid);
        }
        if uri.scheme().is_none() && uri.authority().is_some() {
            return Err(Rejection::Target);
        }
        let host = match (fields.host.value()?, uri.authority()) {
            (_, Some(authority)) => authority.as_str().as_bytes(),
            (Some(host), None) => host.as_bytes(),
            (None, None) => return Err(Rejection::HostMissing),
        };
        let usual = self.usual.get();
        if usual.is_none_or(|usual| usual.as_bytes() != host) {
            self.check_unusual(host)?;
        }
        match fields.origin.value()? {
            None => Ok(()),
            Some(origin) if self.allows_origin(origin) => Ok(()),
            Some(_) => Err(Rejection::OriginForeign),
        }
    }

    #[cold]
    fn check_unusual(&self, host: &[u8]) -> Result<(), Rejection> {
        let host = std::str::from_utf8(host).map_err(|_| Rejection::HostInvalid)?;
        self.check_host(host)?;
        self.usual.get_or_init(|| host.into());
        Ok(())
    }

    fn check_host(&self, host: &str) -> Result<(), Rejection> {
        let (name, port) = split_host(host).ok_or(Rejection::HostInvalid)?;
        match &self.hosts {
            None => Ok(()),
            Some(hosts) if hosts.iter().any(|host| host.matches(name, port)) => Ok(()),
            Some(_) => Err(Rejection::HostForeign),
        }
    }

    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else {
            return false;
        };
        let origin = origin.to_ascii_lowercase();
        if self.origins.contains(&origin) {
            return true;
        }
        let authority = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        self.local_origins
            && authority
                .and_then(split_host)
                .is_some_and(|(host, _)| LOCAL_HOSTS.contains(&host))
    }
}

impl HostPattern {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = split_host(text)?;
        Some(Self {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    #[inline]
    fn matches(&self, host: &str, port: Option<u16>) -> bool {
        (self.port.is_none() || self.port == port) && self.host.eq_ignore_ascii_case(host)
    }
}

/// Whether a text names a host, with a port or without.
pub(crate) fn is_host(text: &str) -> bool {
    split_host(text).is_some()
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`. `None` if it is none of these; there is no room for a
/// user, a path or a list.
#[inline]
fn split_host(text: &str) -> Option<(&str, Option<u16>)> {
    let end = if text.starts_with('[') {
        text.find(']')? + 1
    } else {
        text.find(':').unwrap_or(text.len())
    };
    let (host, port) = text.split_at(end);
    let is_named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    let is_v6 = |b: u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
    let good = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inner) => !inner.is_empty() && inner.bytes().all(is_v6),
        None => !host.is_empty() && host.bytes().all(is_named),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        None | Some(_) => return None,
    };
    good.then_some((host, port))
}

/// HTTP-07: the body is JSON. A charset may be named, since old clients do; it is UTF-8 whatever they say.
#[inline]
fn check_content_type(field: Field<'_>) -> Result<(), Rejection> {
    let Some(value) = field.value()? else {
        return Err(Rejection::ContentType);
    };
    if value == "application/json" {
        return Ok(());
    }
    let value = value.to_str().map_err(|_| Rejection::ContentType)?;
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
        Err(Rejection::ContentType)
    }
}

/// Bodies are not unpacked: a small one could become a large one.
#[inline]
fn check_content_encoding(field: Field<'_>) -> Result<(), Rejection> {
    match field {
        Field::Absent => Ok(()),
        Field::One(coding) if coding.as_bytes().eq_ignore_ascii_case(b"identity") => Ok(()),
        Field::One(_) | Field::Repeated => Err(Rejection::ContentEncoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;
    use http::header::{ACCEPT, CONTENT_TYPE};

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name.clone(), HeaderValue::from_static(value));
        }
        headers
    }

    fn local() -> HostGuard {
        HostGuard::new(&HttpConfig::default())
    }

    fn public(hosts: &[&str], origins: &[&str]) -> HostGuard {
        HostGuard::new(&HttpConfig {
            host: [0, 0, 0, 0].into(),
            allowed_hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
            allowed_origins: origins.iter().map(|o| (*o).to_owned()).collect(),
            ..HttpConfig::default()
        })
    }

    fn check(
        guard: &HostGuard,
        target: &'static str,
        headers: &HeaderMap,
    ) -> Result<(), Rejection> {
        guard.check(&Uri::from_static(target), &Fields::read(headers))
    }

    fn host(guard: &HostGuard, value: &'static str) -> Result<(), Rejection> {
        check(guard, "/mcp", &headers(&[(HOST, value)]))
    }

    fn origin(guard: &HostGuard, value: &'static str) -> Result<(), Rejection> {
        let host = if guard.local_origins {
            "localhost"
        } else {
            "mcp.example.com"
        };
        check(guard, "/mcp", &headers(&[(HOST, host), (ORIGIN, value)]))
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
    fn http_08_on_loopback_only_its_own_names_are_answered_to() {
        for good in [
            "localhost",
            "localhost:3000",
            "127.0.0.1:3000",
            "[::1]",
            "[::1]:80",
            "LocalHost:1",
        ] {
            assert_eq!(host(&local(), good), Ok(()), "{good}");
        }
        for foreign in [
            "evil.example.com",
            "localhost.evil.com",
            "127.0.0.1.evil.com:3000",
            "0.0.0.0",
        ] {
            assert_eq!(
                host(&local(), foreign),
                Err(Rejection::HostForeign),
                "{foreign}"
            );
        }
        for invalid in [
            "",
            "127.0.0.1:3000@evil",
            "a,b",
            "localhost:x",
            "localhost:99999",
            "[::1",
            "[::1]x",
            "a b",
            "localhost/",
        ] {
            assert_eq!(
                host(&local(), invalid),
                Err(Rejection::HostInvalid),
                "{invalid}"
            );
        }
        let none = HeaderMap::new();
        assert_eq!(check(&local(), "/mcp", &none), Err(Rejection::HostMissing));
        let twice = headers(&[(HOST, "localhost"), (HOST, "localhost")]);
        assert_eq!(
            check(&local(), "/mcp", &twice),
            Err(Rejection::HeaderRepeated)
        );
    }

    #[test]
    fn http_08_the_authority_of_the_target_counts_as_the_host() {
        let headers = headers(&[(HOST, "localhost")]);
        let foreign = check(&local(), "http://evil.example.com/mcp", &headers);
        assert_eq!(foreign, Err(Rejection::HostForeign));
    }

    #[test]
    fn http_08_elsewhere_all_hosts_or_those_that_are_named() {
        assert_eq!(host(&public(&[], &[]), "anything.example.com:99"), Ok(()));
        assert_eq!(host(&public(&[], &[]), "a@b"), Err(Rejection::HostInvalid));
        let named = public(&["mcp.example.com", "other.example.com:8080"], &[]);
        assert_eq!(host(&named, "mcp.example.com:1"), Ok(()));
        assert_eq!(host(&named, "other.example.com:8080"), Ok(()));
        assert_eq!(
            host(&named, "other.example.com"),
            Err(Rejection::HostForeign)
        );
        assert_eq!(host(&named, "localhost"), Err(Rejection::HostForeign));
    }

    #[test]
    fn http_08_the_public_url_names_a_host_and_an_origin() {
        let guard = |listens: [u8; 4], hosts: &[&str]| {
            HostGuard::new(&HttpConfig {
                host: listens.into(),
                allowed_hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
                public_url: Some("https://MCP.example.com:8443/tools".to_owned()),
                ..HttpConfig::default()
            })
        };
        let everywhere = guard([0, 0, 0, 0], &[]);
        assert_eq!(host(&everywhere, "mcp.example.com"), Ok(()));
        assert_eq!(host(&everywhere, "mcp.example.com:8443"), Ok(()));
        assert_eq!(
            host(&everywhere, "other.example.com"),
            Err(Rejection::HostForeign)
        );
        let origin_of = |guard: &HostGuard, value| {
            check(
                guard,
                "/mcp",
                &headers(&[(HOST, "mcp.example.com"), (ORIGIN, value)]),
            )
        };
        assert_eq!(
            origin_of(&everywhere, "https://mcp.example.com:8443"),
            Ok(())
        );
        for foreign in [
            "https://mcp.example.com",
            "http://mcp.example.com:8443",
            "null",
        ] {
            assert_eq!(
                origin_of(&everywhere, foreign),
                Err(Rejection::OriginForeign),
                "{foreign}"
            );
        }
        let two = guard([0, 0, 0, 0], &["inner"]);
        assert_eq!(
            (host(&two, "inner"), host(&two, "mcp.example.com")),
            (Ok(()), Ok(()))
        );
        // A tunnel to this machine.
        let here = guard([127, 0, 0, 1], &[]);
        assert_eq!(
            (host(&here, "localhost"), host(&here, "mcp.example.com")),
            (Ok(()), Ok(()))
        );
        assert_eq!(
            host(&here, "other.example.com"),
            Err(Rejection::HostForeign)
        );
    }

    #[test]
    fn http_01_origins_are_local_or_listed() {
        for good in [
            "http://localhost:5173",
            "https://127.0.0.1",
            "http://[::1]:3000",
        ] {
            assert_eq!(origin(&local(), good), Ok(()), "{good}");
        }
        for bad in [
            "http://evil.example.com",
            "null",
            "",
            "http://localhost.evil.com",
            "http://localhost@evil.com",
            "file://localhost",
            "http://127.0.0.1:3000, http://evil.example.com",
            "localhost",
        ] {
            assert_eq!(
                origin(&local(), bad),
                Err(Rejection::OriginForeign),
                "{bad}"
            );
        }
        let listed = public(&[], &["https://App.example.com"]);
        assert_eq!(origin(&listed, "https://app.example.com"), Ok(()));
        for bad in [
            "https://app.example.com:444",
            "http://app.example.com",
            "http://localhost",
        ] {
            assert_eq!(origin(&listed, bad), Err(Rejection::OriginForeign), "{bad}");
        }
        let twice = headers(&[
            (HOST, "localhost"),
            (ORIGIN, "http://localhost"),
            (ORIGIN, "http://localhost"),
        ]);
        assert_eq!(check(&local(), "/", &twice), Err(Rejection::HeaderRepeated));
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
            assert_eq!(check(bad), Err(Rejection::ContentType), "{bad}");
        }
        let none = Fields::read(&HeaderMap::new()).summary().check_media(false);
        assert_eq!(none, Err(Rejection::ContentType));
        let twice = headers(&[
            (CONTENT_TYPE, "application/json"),
            (CONTENT_TYPE, "application/json"),
        ]);
        let twice = Fields::read(&twice).summary().check_media(false);
        assert_eq!(twice, Err(Rejection::HeaderRepeated));
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
        assert_eq!(check(&uri(8193), &none), Err(Rejection::TargetTooLong));
        let long = HeaderValue::try_from("x".repeat(32 * 1024)).expect("a value");
        let mut large = HeaderMap::new();
        large.insert(ACCEPT, long);
        assert_eq!(check(&uri(1), &large), Err(Rejection::HeadersTooLarge));
        let many = |number: usize| {
            let name = HeaderName::from_static("x");
            let each = (0..number).map(|_| (name.clone(), HeaderValue::from_static("y")));
            each.fold(HeaderMap::new(), |mut all, (name, value)| {
                all.append(name, value);
                all
            })
        };
        assert_eq!(check(&uri(1), &many(100)), Ok(()));
        assert_eq!(check(&uri(1), &many(101)), Err(Rejection::TooManyHeaders));
    }
}
