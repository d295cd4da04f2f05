//! `Host` and `Origin`: which web pages may call the server, and which may read its responses (CORS).
//!
//! The checks are against pages that call the server without their visitors' knowledge. Only configured origins may read
//! responses, each by name and never as `*`. Browser credentials (cookies) are not used.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};

use super::config::HttpConfig;
use super::headers::Fields;
use super::host::{is_host, split_host};
use super::rejection::HttpError;
use crate::auth::PublicUrl;
use crate::net::Body;
use crate::telemetry::LogInterval;

/// Minimum interval between log entries about rejections.
const REPORTED_AGAIN_AFTER: Duration = Duration::from_secs(60);

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

/// Permitted hosts and origins: protection against DNS rebinding (HTTP-01, HTTP-08).
#[derive(Debug)]
pub(crate) struct HostGuard {
    /// `None`: any host.
    hosts: Option<Vec<HostPattern>>,
    /// The first value that was found good, which nearly every client will say again. Any host would be; this one is
    /// not taken apart once more.
    usual: OnceLock<Box<str>>,
    origins: Vec<String>,
    /// Origins whose pages may read responses.
    readers: Vec<String>,
    /// Pages from loopback may call too.
    local_origins: bool,
    /// Names from `http.allowed_hosts`. Pages that this server serves under them may call it.
    named: Vec<HostPattern>,
    /// Rate limit of the log entries about rejections, so that clients cannot flood the log.
    reported: LogInterval,
}

/// A host with its port, or with any.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPattern {
    host: String,
    port: Option<u16>,
}

const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl HostGuard {
    pub fn new(config: &HttpConfig) -> Self {
        // A web page cannot reach a Unix domain socket under any name.
        let local = config.host.is_loopback() && config.unix_socket.is_none();
        let public = config.public_url.as_deref().and_then(PublicUrl::parse);
        let named: Vec<_> = config
            .allowed_hosts
            .iter()
            .filter_map(|text| HostPattern::parse(text))
            .collect();
        // Proxies may or may not take the port along.
        let public_host = public
            .as_ref()
            .and_then(|public| HostPattern::parse(public.host()));
        let readers: Vec<_> = config
            .allowed_origins
            .iter()
            // Browsers leave out the default port.
            .map(|origin| match PublicUrl::parse(origin) {
                Some(url) => url.origin().to_owned(),
                None => origin.to_ascii_lowercase(),
            })
            .collect();
        let is_restricted = local || !config.allowed_hosts.is_empty() || public.is_some();
        let hosts = is_restricted.then(|| {
            let local_hosts = LOCAL_HOSTS
                .into_iter()
                .filter(|_| local)
                .filter_map(HostPattern::parse);
            local_hosts
                .chain(named.iter().cloned())
                .chain(public_host)
                .collect()
        });
        Self {
            hosts,
            usual: OnceLock::new(),
            origins: readers
                .iter()
                .cloned()
                // Its own pages.
                .chain(public.map(|public| public.origin().to_owned()))
                .collect(),
            readers,
            local_origins: local,
            named,
            reported: LogInterval::new(REPORTED_AGAIN_AFTER),
        }
    }

    /// Logs a rejection, at most once a minute, with the setting that would permit the request.
    pub fn report(&self, setting: Option<&'static str>, head: &Parts) {
        if !self.reported.passes() {
            return;
        }
        let field = |name| head.headers.get(name).map(HeaderValue::as_bytes);
        let authority = head.uri.authority().map(|host| host.as_str().as_bytes());
        let cut = |value: Option<&[u8]>| {
            let value = value.unwrap_or_default();
            value[..value.len().min(100)].escape_ascii().to_string()
        };
        tracing::warn!(
            setting,
            host = cut(authority.or_else(|| field(HOST))),
            origin = cut(field(ORIGIN)),
            "a request was rejected for its Host or Origin; to accept it, add the value to the setting"
        );
    }

    /// Checks `Host` (or the target's authority, which takes its place) and `Origin`.
    #[inline]
    pub fn check(&self, uri: &Uri, fields: &Fields<'_>) -> Result<(), HttpError> {
        let is_url = uri.scheme().is_some() || uri.authority().is_some();
        if is_url && !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(HttpError::Target);
        }
        let host = match (fields.host.value()?, uri.authority()) {
            (_, Some(authority)) => authority.as_str().as_bytes(),
            (Some(host), None) => host.as_bytes(),
            (None, None) => return Err(HttpError::HostMissing),
        };
        let usual = self.usual.get();
        if usual.is_none_or(|usual| usual.as_bytes() != host) {
            self.check_unusual(host)?;
        }
        match fields.origin.value()? {
            None => Ok(()),
            Some(origin) => self.check_origin(origin, host),
        }
    }

    /// Checks the syntax of `Host`, for routes that accept any host. HTTP/1.1 requires exactly one (RFC 9112 section
    /// 3.2); probes may leave it empty.
    pub(crate) fn check_form(head: &Parts, fields: &Fields<'_>) -> Result<(), HttpError> {
        match fields.host.value()? {
            _ if head.uri.authority().is_some() => Ok(()),
            None if head.version == Version::HTTP_11 => Err(HttpError::HostMissing),
            None => Ok(()),
            Some(host) => match host.to_str() {
                Ok(host) if host.is_empty() || is_host(host) => Ok(()),
                _ => Err(HttpError::HostInvalid),
            },
        }
    }

    #[cold]
    fn check_unusual(&self, host: &[u8]) -> Result<(), HttpError> {
        let host = std::str::from_utf8(host).map_err(|_| HttpError::HostInvalid)?;
        self.check_host(host)?;
        self.usual.get_or_init(|| host.into());
        Ok(())
    }

    fn check_host(&self, host: &str) -> Result<(), HttpError> {
        let (name, port) = split_host(host).ok_or(HttpError::HostInvalid)?;
        match &self.hosts {
            None => Ok(()),
            Some(hosts) if hosts.iter().any(|host| host.matches(name, port)) => Ok(()),
            Some(_) => Err(HttpError::HostForeign),
        }
    }

    /// Checks an `Origin` against the configuration and the request's host.
    ///
    /// A page that this server has served itself may call it under an IP address, `localhost` and the names of
    /// `http.allowed_hosts`. Equality of `Origin` and `Host` alone is not enough: DNS rebinding makes both the attacker's
    /// name. It needs a name, though, so an address literal cannot be rebound, and browsers resolve `localhost` themselves.
    #[cold]
    fn check_origin(&self, origin: &HeaderValue, host: &[u8]) -> Result<(), HttpError> {
        let foreign = Err(HttpError::OriginForeign);
        let Ok(origin) = origin.to_str() else {
            return foreign;
        };
        let origin = origin.to_ascii_lowercase();
        let origin = without_default_port(without_path(&origin));
        if self.origins.iter().any(|listed| listed == origin) {
            return Ok(());
        }
        let parts = origin
            .split_once("://")
            .and_then(|(scheme, authority)| Some((default_port(scheme)?, split_host(authority)?)));
        let Some((default_port, (name, port))) = parts else {
            return foreign;
        };
        if self.local_origins && LOCAL_HOSTS.contains(&name) {
            return Ok(());
        }
        let own = std::str::from_utf8(host).ok().and_then(split_host);
        let is_same = own.is_some_and(|(own_name, own_port)| {
            own_name.eq_ignore_ascii_case(name)
                && own_port.unwrap_or(default_port) == port.unwrap_or(default_port)
        });
        if !is_same {
            return foreign;
        }
        let port = Some(port.unwrap_or(default_port));
        let is_own = |own: &HostPattern| own.matches(name, port);
        if is_never_rebound(name) || self.named.iter().any(is_own) {
            return Ok(());
        }
        // The name of `http.public_url`, with another scheme or port.
        if self.hosts.is_some() {
            return foreign;
        }
        Err(HttpError::OriginUnnamed)
    }
}

/// CORS.
impl HostGuard {
    /// The origin of a request, if its pages may read the response.
    #[inline]
    pub fn reader(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.readers.is_empty() {
            return None;
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else {
            return None;
        };
        let named = without_default_port(origin.to_str().ok()?);
        let is_known = |known: &String| named.eq_ignore_ascii_case(known);
        self.readers.iter().any(is_known).then(|| origin.clone())
    }

    /// Returns true for a CORS preflight request.
    pub(crate) fn is_preflight(head: &Parts) -> bool {
        head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Builds the preflight response.
    pub fn preflight(asked: &HeaderMap) -> Response<Body> {
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
    pub fn let_read(origin: HeaderValue, response: &mut Response<Body>) {
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

/// Returns the origin of a URL. Browsers send no path in `Origin`; the client of ruby_llm-mcp sends the URL of the endpoint.
fn without_path(origin: &str) -> &str {
    // The first two slashes follow the scheme.
    let path = origin.match_indices('/').nth(2);
    path.map_or(origin, |(at, _)| origin.split_at(at).0)
}

/// Returns an origin as browsers send it.
fn without_default_port(origin: &str) -> &str {
    [("https://", ":443"), ("http://", ":80")]
        .iter()
        .find(|(scheme, _)| origin.starts_with(scheme))
        .and_then(|(_, port)| origin.strip_suffix(port))
        .unwrap_or(origin)
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
        let is_default = port.is_none() && matches!(self.port, Some(80 | 443));
        (self.port.is_none() || self.port == port || is_default)
            && self.host.eq_ignore_ascii_case(host)
    }
}

/// The port that an origin of this scheme leaves out. `None` if pages do not have such an origin.
fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

/// Returns true if no DNS server controls the resolution of a host name in lower case.
fn is_never_rebound(name: &str) -> bool {
    let v6 = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    match v6 {
        Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
        None => name == "localhost" || name.parse::<Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

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
    ) -> Result<(), HttpError> {
        guard.check(&Uri::from_static(target), &Fields::read(headers))
    }

    fn host(guard: &HostGuard, value: &'static str) -> Result<(), HttpError> {
        check(guard, "/mcp", &headers(&[(HOST, value)]))
    }

    fn origin(guard: &HostGuard, value: &'static str) -> Result<(), HttpError> {
        let host = if guard.local_origins {
            "localhost"
        } else {
            "mcp.example.com"
        };
        check(guard, "/mcp", &headers(&[(HOST, host), (ORIGIN, value)]))
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
                Err(HttpError::HostForeign),
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
                Err(HttpError::HostInvalid),
                "{invalid}"
            );
        }
        let none = HeaderMap::new();
        assert_eq!(check(&local(), "/mcp", &none), Err(HttpError::HostMissing));
        let twice = headers(&[(HOST, "localhost"), (HOST, "localhost")]);
        assert_eq!(
            check(&local(), "/mcp", &twice),
            Err(HttpError::HeaderRepeated)
        );
    }

    #[test]
    fn http_08_the_authority_of_the_target_counts_as_the_host() {
        let headers = headers(&[(HOST, "localhost")]);
        let foreign = check(&local(), "http://evil.example.com/mcp", &headers);
        assert_eq!(foreign, Err(HttpError::HostForeign));
    }

    #[test]
    fn http_08_elsewhere_all_hosts_or_those_that_are_named() {
        assert_eq!(host(&public(&[], &[]), "anything.example.com:99"), Ok(()));
        assert_eq!(host(&public(&[], &[]), "a@b"), Err(HttpError::HostInvalid));
        let named = public(&["mcp.example.com", "other.example.com:8080"], &[]);
        assert_eq!(host(&named, "mcp.example.com:1"), Ok(()));
        assert_eq!(host(&named, "other.example.com:8080"), Ok(()));
        assert_eq!(
            host(&named, "other.example.com"),
            Err(HttpError::HostForeign)
        );
        assert_eq!(host(&named, "localhost"), Err(HttpError::HostForeign));
        // Clients leave out the default port.
        let secure = public(&["mcp.example.com:443"], &[]);
        assert_eq!(host(&secure, "mcp.example.com"), Ok(()));
        assert_eq!(host(&secure, "mcp.example.com:443"), Ok(()));
        assert_eq!(
            host(&secure, "mcp.example.com:8443"),
            Err(HttpError::HostForeign)
        );
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
            Err(HttpError::HostForeign)
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
                Err(HttpError::OriginForeign),
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
            Err(HttpError::HostForeign)
        );
    }

    #[test]
    fn http_01_origins_are_local_or_listed() {
        for good in [
            "http://localhost:5173",
            "https://127.0.0.1",
            "http://[::1]:3000",
            "http://localhost:3000/mcp",
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
                Err(HttpError::OriginForeign),
                "{bad}"
            );
        }
        let listed = public(&[], &["https://App.example.com"]);
        for good in ["https://app.example.com", "https://app.example.com/mcp"] {
            assert_eq!(origin(&listed, good), Ok(()), "{good}");
        }
        for bad in [
            "https://app.example.com:444",
            "http://app.example.com",
            "http://localhost",
        ] {
            assert_eq!(origin(&listed, bad), Err(HttpError::OriginForeign), "{bad}");
        }
        let with_port = public(&[], &["https://app.example.com:443"]);
        assert_eq!(origin(&with_port, "https://app.example.com"), Ok(()));
        for page in ["https://app.example.com", "https://app.example.com:443"] {
            assert_eq!(origin(&with_port, page), Ok(()));
            let page = headers(&[(ORIGIN, page)]);
            assert_eq!(with_port.reader(&page).as_ref(), page.get(ORIGIN));
        }
        // The origins that are listed are those of other servers; this one's own page needs no listing.
        let own = headers(&[(HOST, "10.0.0.7:8080"), (ORIGIN, "http://10.0.0.7:8080")]);
        assert_eq!(check(&listed, "/mcp", &own), Ok(()));
        let twice = headers(&[
            (HOST, "localhost"),
            (ORIGIN, "http://localhost"),
            (ORIGIN, "http://localhost"),
        ]);
        assert_eq!(check(&local(), "/", &twice), Err(HttpError::HeaderRepeated));
    }

    #[test]
    fn http_01_http_08_beyond_loopback_its_own_page_may_call_where_no_dns_is_asked() {
        let from = |guard: &HostGuard, host, origin| {
            check(guard, "/mcp", &headers(&[(HOST, host), (ORIGIN, origin)]))
        };
        let open = public(&[], &[]);
        for (host, origin) in [
            ("localhost:8080", "http://localhost:8080"),
            ("LOCALHOST:8080", "http://localhost:8080"),
            ("127.0.0.1:49153", "http://127.0.0.1:49153"),
            ("192.168.1.20", "http://192.168.1.20"),
            ("192.168.1.20:80", "http://192.168.1.20"),
            ("192.168.1.20:443", "https://192.168.1.20"),
            ("[2001:db8::1]:8080", "http://[2001:db8::1]:8080"),
            ("localhost:8080", "http://localhost:8080/"),
        ] {
            assert_eq!(from(&open, host, origin), Ok(()), "{host} {origin}");
        }
        // DNS rebinding makes both the same, and they are a name.
        for (host, origin) in [
            ("evil.example.com:8080", "http://evil.example.com:8080"),
            ("127.0.0.1.evil.com", "http://127.0.0.1.evil.com"),
            ("localhost.evil.com", "http://localhost.evil.com"),
            ("0x7f.1", "http://0x7f.1"),
            ("[::g]", "http://[::g]"),
        ] {
            let refused = from(&open, host, origin);
            let unnamed = [Err(HttpError::OriginUnnamed), Err(HttpError::HostInvalid)];
            assert!(unnamed.contains(&refused), "{host} {origin}: {refused:?}");
        }
        // Another port is another server, and so is another scheme.
        for (host, origin) in [
            ("localhost:8080", "http://localhost:8081"),
            ("localhost:8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://evil.example.com"),
            ("192.168.1.20:80", "https://192.168.1.20"),
            ("localhost:8080", "ftp://localhost:8080"),
            ("localhost:8080", "null"),
            ("localhost:8080", "http://evil.example.com/localhost:8080"),
            ("localhost:8080", "http://me@localhost:8080"),
        ] {
            let refused = from(&open, host, origin);
            assert_eq!(refused, Err(HttpError::OriginForeign), "{host} {origin}");
        }
        let named = public(&["mcp.example.com", "other.example.com:8080"], &[]);
        for (host, origin, expected) in [
            ("mcp.example.com", "https://mcp.example.com", Ok(())),
            ("MCP.example.com", "http://mcp.example.com", Ok(())),
            ("mcp.example.com:81", "http://mcp.example.com:81", Ok(())),
            (
                "mcp.example.com",
                "https://other.example.com:8080",
                Err(HttpError::OriginForeign),
            ),
            ("localhost", "http://localhost", Err(HttpError::HostForeign)),
        ] {
            assert_eq!(from(&named, host, origin), expected, "{host} {origin}");
        }
        // A tunnel that ends at this machine.
        let tunnel = HostGuard::new(&HttpConfig {
            allowed_hosts: vec!["abc.tunnel.example".to_owned()],
            ..HttpConfig::default()
        });
        let page = "https://abc.tunnel.example";
        assert_eq!(from(&tunnel, "abc.tunnel.example", page), Ok(()));
        assert_eq!(
            from(&tunnel, "localhost", page),
            Err(HttpError::OriginForeign)
        );
    }
}
