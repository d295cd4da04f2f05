//! Protected resource metadata (RFC 9728) and authentication challenges.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{FORWARDED, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde_json::json;

use super::AuthError;
use crate::net::TrustedProxies;

/// Path of the MCP endpoint.
const ENDPOINT: &str = "/mcp";
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The configured public URL of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Scheme, host and port.
    origin: String,
    /// Path prefix of all paths: empty, or `/` and a path without a trailing slash.
    prefix: String,
}

impl PublicUrl {
    /// Parses an `http` or `https` URL of the root or the endpoint. Returns `None` for others.
    pub fn parse(text: &str) -> Option<Self> {
        let url: Uri = text.parse().ok()?;
        let (scheme, default_port) = match url.scheme_str()? {
            "http" => ("http", 80),
            "https" => ("https", 443),
            _ => return None,
        };
        let authority = url.authority()?;
        let host = authority.host();
        // The rest of the authority is the port; `Uri` itself drops a fragment.
        let rest = authority.as_str().get(host.len()..)?;
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            Some("") => None,
            Some(_) => Some(authority.port_u16()?),
            None => return None,
        };
        if text.contains(['#', '@']) || url.query().is_some() {
            return None;
        }
        let host = match host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(address) => format!("[{}]", address.parse::<Ipv6Addr>().ok()?),
            None => host.to_ascii_lowercase(),
        };
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if host.is_empty() || !(host.starts_with('[') || host.bytes().all(is_name)) {
            return None;
        }
        let path = url.path().trim_end_matches('/');
        // Characters of RFC 3986. `Uri` accepts quotation marks, which would end the quoted value of the challenge.
        let is_path = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:%/".contains(&b);
        if !path.bytes().all(is_path) || path.split('/').any(|part| matches!(part, "." | "..")) {
            return None;
        }
        let prefix = path.strip_suffix(ENDPOINT).unwrap_or(path);
        let port = port.filter(|port| *port != default_port);
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Some(Self {
            origin: format!("{scheme}://{host}{port}"),
            prefix: prefix.to_owned(),
        })
    }

    /// Returns the URL of the endpoint, which identifies this server to clients and issuers (RFC 8707).
    pub fn endpoint(&self) -> String {
        format!("{}{}{ENDPOINT}", self.origin, self.prefix)
    }

    /// The URL of the server's root, without a slash at its end.
    pub fn root(&self) -> String {
        format!("{}{}", self.origin, self.prefix)
    }

    /// Returns scheme, host and port in the form of an origin.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the host without a port.
    pub fn host(&self) -> &str {
        let authority = self.origin.split_once("://").map_or("", |(_, rest)| rest);
        match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => authority,
        }
    }

    /// Returns the URL of the metadata, with the well-known name between host and path (RFC 9728, 3.1).
    fn metadata(&self) -> String {
        format!("{}{WELL_KNOWN}{}{ENDPOINT}", self.origin, self.prefix)
    }

    /// Returns a path without the prefix.
    fn below<'p>(&self, path: &'p str) -> &'p str {
        match path.strip_prefix(&*self.prefix) {
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }

    /// The server's own URL, from the request's `Host` and the headers of trusted proxies. `tls` is true if the
    /// server itself serves HTTPS, which is the scheme if no proxy names one.
    fn of(seen: RequestTarget<'_>, trusted: &TrustedProxies, tls: bool) -> Option<Self> {
        let from_proxy = seen.peer.is_some_and(|peer| trusted.contains(peer));
        let said = |name: &HeaderName| {
            let value = seen.headers.get(name).filter(|_| from_proxy)?;
            // The first value is the one of the original client.
            Some(value.to_str().ok()?.split(',').next()?.trim())
        };
        let forwarded = said(&FORWARDED);
        let parameter = |wanted: &str| {
            forwarded?.split(';').find_map(|pair| {
                let (name, value) = pair.split_once('=')?;
                let is_wanted = name.trim().eq_ignore_ascii_case(wanted);
                is_wanted.then(|| value.trim().trim_matches('"'))
            })
        };
        let scheme = parameter("proto").or_else(|| said(&PROTO));
        let host = parameter("host").or_else(|| said(&FORWARDED_HOST));
        let own = || match seen.uri.authority() {
            Some(authority) => Some(authority.as_str()),
            None => seen.headers.get(HOST)?.to_str().ok(),
        };
        let is_https = scheme.map_or(tls, |scheme| scheme.eq_ignore_ascii_case("https"));
        let scheme = if is_https { "https" } else { "http" };
        let prefix = said(&PREFIX).unwrap_or_default();
        Self::parse(&format!("{scheme}://{}{prefix}", host.or_else(own)?))
    }
}

const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// The parts of a request that contain its target.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'r> {
    pub headers: &'r HeaderMap,
    pub uri: &'r Uri,
    pub peer: Option<IpAddr>,
}

/// Protected resource data for metadata and challenges.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// Token issuers. Without any, there is no metadata.
    pub(super) issuers: Vec<String>,
    /// Scopes that every request needs.
    pub(super) scopes: Vec<String>,
    pub(super) public: Option<PublicUrl>,
    pub(super) trusted: TrustedProxies,
    /// True if the server itself serves HTTPS.
    pub(super) serves_tls: bool,
    pub(super) metadata_url: Option<String>,
    /// Display name.
    pub(super) name: String,
    /// True if tokens can be bound to the certificates of clients (RFC 8705).
    pub(super) checks_certificates: bool,
    /// Signature algorithms of DPoP proofs. Empty if this build does not verify them.
    pub(super) dpop_algorithms: &'static [&'static str],
    /// True if access tokens must be bound to a key of the client (DPoP).
    pub(super) requires_dpop: bool,
    /// Endpoints besides the first one, with the scopes that each needs.
    pub(super) endpoints: Vec<(Box<str>, Vec<String>)>,
}

impl Resource {
    fn at(&self, seen: RequestTarget<'_>) -> Option<PublicUrl> {
        match &self.public {
            Some(public) => Some(public.clone()),
            None => PublicUrl::of(seen, &self.trusted, self.serves_tls),
        }
    }

    /// Returns the URL of a request as the client knows it, without its query.
    pub(super) fn url_of(&self, seen: RequestTarget<'_>) -> Option<String> {
        let at = self.at(seen)?;
        Some(format!("{}{}", at.root(), at.below(seen.uri.path())))
    }

    /// Returns the path prefix of public URLs.
    pub(super) fn prefix(&self) -> &str {
        self.public.as_ref().map_or("", |public| &public.prefix)
    }

    /// Returns the additional endpoint at a path, with its scopes.
    fn endpoint_at(&self, path: &str) -> Option<(&str, &[String])> {
        let name = path.strip_prefix(ENDPOINT)?.strip_prefix('/')?;
        let name = name.trim_end_matches('/');
        let endpoint = self.endpoints.iter().find(|(known, _)| **known == *name);
        endpoint.map(|(name, scopes)| (&**name, &**scopes))
    }

    /// Returns the scopes that every request to an additional endpoint needs.
    pub(super) fn scopes_of(&self, endpoint: &str) -> &[String] {
        let known = self
            .endpoints
            .iter()
            .find(|(known, _)| **known == *endpoint);
        known.map_or(&[], |(_, scopes)| scopes)
    }

    /// Returns the metadata document at a path below the server's root (AUTH-01), if the path has one.
    pub fn document(&self, seen: RequestTarget<'_>) -> Option<Vec<u8>> {
        if self.issuers.is_empty() {
            return None;
        }
        let at = self.at(seen)?;
        let path = seen.uri.path();
        let path = path.strip_prefix(&*at.prefix).unwrap_or(path);
        let rest = path.strip_prefix(WELL_KNOWN)?;
        let known = [
            String::new(),
            ENDPOINT.to_owned(),
            format!("{}{ENDPOINT}", at.prefix),
        ];
        let endpoint = self.endpoint_at(at.below(rest));
        if endpoint.is_none() && !known.iter().any(|path| path == rest.trim_end_matches('/')) {
            return None;
        }
        let (resource, scopes) = match endpoint {
            Some((name, scopes)) => (
                format!("{}/{name}", at.endpoint()),
                self.with_scopes(scopes),
            ),
            None => (at.endpoint(), self.scopes.clone()),
        };
        let mut document = json!({
            "resource": resource,
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
        });
        if self.checks_certificates {
            document["tls_client_certificate_bound_access_tokens"] = true.into();
        }
        if !self.dpop_algorithms.is_empty() {
            document["dpop_signing_alg_values_supported"] = json!(self.dpop_algorithms);
        }
        if self.requires_dpop {
            document["dpop_bound_access_tokens_required"] = true.into();
        }
        if !scopes.is_empty() {
            document["scopes_supported"] = scopes.into();
        }
        if !self.name.is_empty() {
            document["resource_name"] = self.name.clone().into();
        }
        Some(document.to_string().into_bytes())
    }

    /// Returns `WWW-Authenticate` (RFC 6750, 3; RFC 9728, 5.1). It has no error code if the request had no
    /// credential.
    pub(super) fn challenge(
        &self,
        seen: RequestTarget<'_>,
        error: &AuthError,
        needed: &[String],
    ) -> Option<HeaderValue> {
        let code = match error {
            AuthError::Missing => None,
            AuthError::Malformed(_) => Some("invalid_request"),
            AuthError::Invalid(_) | AuthError::TooLong(_) => Some("invalid_token"),
            AuthError::InsufficientScope { .. } => Some("insufficient_scope"),
            // Another credential would not help.
            AuthError::Unavailable(_) => return None,
            AuthError::InvalidDpopProof(_) => Some("invalid_dpop_proof"),
            AuthError::UseDpopNonce(_) => Some("use_dpop_nonce"),
        };
        let is_dpop = self.requires_dpop
            || matches!(
                error,
                AuthError::InvalidDpopProof(_) | AuthError::UseDpopNonce(_)
            );
        let mut parameters = Vec::new();
        if let Some(code) = code {
            parameters.push(format!(r#"error="{code}""#));
            parameters.push(format!(
                r#"error_description="{}""#,
                quotable(&error.to_string())
            ));
        }
        let at = self.at(seen);
        let path = seen.uri.path();
        let path = at.as_ref().map_or(path, |at| at.below(path));
        let endpoint = self.endpoint_at(path);
        let scopes = match (error, endpoint) {
            (AuthError::InsufficientScope { required }, _) => required.clone(),
            (_, Some((_, own))) => self.with_scopes(&[own, needed].concat()),
            (_, None) => self.with_scopes(needed),
        };
        if !scopes.is_empty() {
            parameters.push(format!(r#"scope="{}""#, quotable(&scopes.join(" "))));
        }
        if !self.issuers.is_empty() {
            let metadata = match (&self.metadata_url, endpoint) {
                (Some(url), None) => Some(url.clone()),
                (None, None) => at.map(|at| at.metadata()),
                (_, Some((name, _))) => at.map(|at| format!("{}/{name}", at.metadata())),
            };
            if let Some(url) = metadata {
                parameters.push(format!(r#"resource_metadata="{}""#, quotable(&url)));
            }
        }
        let scheme = match is_dpop {
            true => {
                parameters.push(format!(r#"algs="{}""#, self.dpop_algorithms.join(" ")));
                "DPoP"
            }
            false => "Bearer",
        };
        let text = format!("{scheme} {}", parameters.join(", "));
        HeaderValue::try_from(text.trim_end()).ok()
    }

    /// Returns all scopes that a request needs which lacks these.
    pub(super) fn with_scopes(&self, needed: &[String]) -> Vec<String> {
        let mut all = self.scopes.clone();
        for scope in needed {
            if !all.iter().any(|known| known == scope) {
                all.push(scope.clone());
            }
        }
        all
    }
}

/// Escapes or drops characters that cannot occur in a quoted string.
fn quotable(text: &str) -> String {
    let good = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    text.chars().filter(good).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(public: Option<&str>) -> Resource {
        Resource {
            issuers: vec!["https://id.example.com".to_owned()],
            scopes: vec!["mcp".to_owned()],
            public: public.map(|url| PublicUrl::parse(url).expect("a URL")),
            trusted: TrustedProxies::from_iter(["10.0.0.0/8".parse().expect("a network")]),
            serves_tls: false,
            metadata_url: None,
            checks_certificates: false,
            dpop_algorithms: &[],
            requires_dpop: false,
            name: "test".to_owned(),
            endpoints: vec![("files".into(), vec!["files:read".to_owned()])],
        }
    }

    fn reported(
        resource: &Resource,
        path: &'static str,
        peer: [u8; 4],
        headers: &[(&'static str, &'static str)],
    ) -> Option<(String, String)> {
        let mut map = HeaderMap::new();
        map.insert(HOST, HeaderValue::from_static("inner:8080"));
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        let uri = Uri::from_static(path);
        let seen = RequestTarget {
            headers: &map,
            uri: &uri,
            peer: Some(IpAddr::from(peer)),
        };
        let document: serde_json::Value =
            serde_json::from_slice(&resource.document(seen)?).expect("JSON");
        let challenge = resource
            .challenge(seen, &AuthError::Missing, &[])
            .expect("a challenge");
        let challenge = challenge.to_str().expect("ASCII");
        let url = challenge
            .split("resource_metadata=\"")
            .nth(1)
            .expect("a URL");
        Some((
            document["resource"].as_str().expect("a text").to_owned(),
            url.trim_end_matches('"').to_owned(),
        ))
    }

    #[test]
    fn auth_01_the_document_is_at_both_places_and_names_the_endpoint() {
        const PLAIN: [u8; 4] = [192, 0, 2, 1];
        const PROXY: [u8; 4] = [10, 0, 0, 1];
        let root = "/.well-known/oauth-protected-resource";
        let inner = "/.well-known/oauth-protected-resource/mcp";
        let deep = "/.well-known/oauth-protected-resource/tools/mcp";
        let public = resource(Some("https://mcp.example.com"));
        let prefixed = resource(Some("https://example.com/tools/"));
        let endpoint = resource(Some("https://EXAMPLE.com:443/tools/mcp"));
        let derived = resource(None);
        let https = [
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "mcp.example.com"),
        ];
        let forwarded = [(
            "forwarded",
            "for=1.2.3.4;proto=https;host=\"mcp.example.com\", for=x",
        )];
        let with_prefix = [
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "example.com"),
            ("x-forwarded-prefix", "/tools"),
        ];
        for (resource, path, peer, headers, expected) in [
            (
                &public,
                root,
                PLAIN,
                &[][..],
                Some((
                    "https://mcp.example.com/mcp",
                    "https://mcp.example.com/.well-known/oauth-protected-resource/mcp",
                )),
            ),
            (
                &public,
                inner,
                PLAIN,
                &https,
                Some((
                    "https://mcp.example.com/mcp",
                    "https://mcp.example.com/.well-known/oauth-protected-resource/mcp",
                )),
            ),
            (&public, deep, PLAIN, &[], None),
            (
                &prefixed,
                root,
                PLAIN,
                &[],
                Some((
                    "https://example.com/tools/mcp",
                    "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
                )),
            ),
            (
                &prefixed,
                deep,
                PLAIN,
                &[],
                Some((
                    "https://example.com/tools/mcp",
                    "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
                )),
            ),
            (
                &endpoint,
                deep,
                PLAIN,
                &[],
                Some((
                    "https://example.com/tools/mcp",
                    "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
                )),
            ),
            (
                &derived,
                root,
                PLAIN,
                &[],
                Some((
                    "http://inner:8080/mcp",
                    "http://inner:8080/.well-known/oauth-protected-resource/mcp",
                )),
            ),
            // Only proxies that are trusted may say otherwise.
            (
                &derived,
                root,
                PLAIN,
                &https,
                Some((
                    "http://inner:8080/mcp",
                    "http://inner:8080/.well-known/oauth-protected-resource/mcp",
                )),
            ),
            (
                &derived,
                inner,
                PROXY,
                &https,
                Some((
                    "https://mcp.example.com/mcp",
                    "https://mcp.example.com/.well-known/oauth-protected-resource/mcp",
                )),
            ),
            (
                &derived,
                inner,
                PROXY,
                &forwarded,
                Some((
                    "https://mcp.example.com/mcp",
                    "https://mcp.example.com/.well-known/oauth-protected-resource/mcp",
                )),
            ),
            (
                &derived,
                inner,
                PROXY,
                &with_prefix,
                Some((
                    "https://example.com/tools/mcp",
                    "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
                )),
            ),
        ] {
            let found = reported(resource, path, peer, headers);
            let found = found.as_ref().map(|(r, m)| (r.as_str(), m.as_str()));
            assert_eq!(found, expected, "{path} {headers:?}");
        }
    }

    #[test]
    fn auth_01_the_scheme_is_that_of_the_listener_unless_a_trusted_proxy_names_one() {
        let tls = Resource {
            serves_tls: true,
            ..resource(None)
        };
        let path = "/.well-known/oauth-protected-resource";
        let (plain, proxy) = ([192, 0, 2, 1], [10, 0, 0, 1]);
        let http = [("x-forwarded-proto", "http")];
        for (peer, headers, scheme) in [
            (plain, &[][..], "https"),
            (plain, &http, "https"),
            (proxy, &[], "https"),
            (proxy, &http, "http"),
        ] {
            let expected = Some((
                format!("{scheme}://inner:8080/mcp"),
                format!("{scheme}://inner:8080{path}/mcp"),
            ));
            assert_eq!(reported(&tls, path, peer, headers), expected);
        }
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("inner:8080"));
        let uri = Uri::from_static("/mcp?a");
        let seen = RequestTarget {
            headers: &headers,
            uri: &uri,
            peer: None,
        };
        let url = tls.url_of(seen);
        assert_eq!(url.as_deref(), Some("https://inner:8080/mcp"), "DPoP");
    }

    #[test]
    fn auth_01_each_endpoint_has_a_document_of_its_own() {
        let public = resource(Some("https://example.com/tools"));
        for (path, resource, metadata) in [
            (
                "/.well-known/oauth-protected-resource/mcp/files",
                "https://example.com/tools/mcp/files",
                "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
            ),
            (
                "/.well-known/oauth-protected-resource/tools/mcp/files/",
                "https://example.com/tools/mcp/files",
                "https://example.com/.well-known/oauth-protected-resource/tools/mcp",
            ),
        ] {
            let found = reported(&public, path, [192, 0, 2, 1], &[]);
            assert_eq!(found, Some((resource.to_owned(), metadata.to_owned())));
        }
        let unknown = "/.well-known/oauth-protected-resource/mcp/other";
        assert_eq!(reported(&public, unknown, [192, 0, 2, 1], &[]), None);
        for path in ["/mcp/files", "/tools/mcp/files"] {
            let (headers, uri) = (HeaderMap::new(), Uri::from_static(path));
            let seen = RequestTarget {
                headers: &headers,
                uri: &uri,
                peer: None,
            };
            let challenge = public.challenge(seen, &AuthError::Missing, &[]);
            assert_eq!(
                challenge.expect("a challenge"),
                "Bearer scope=\"mcp files:read\", \
                 resource_metadata=\"https://example.com/.well-known/oauth-protected-resource/tools/mcp/files\""
            );
        }
    }

    #[test]
    fn what_is_no_url_of_a_server_is_none() {
        for text in [
            "mcp.example.com",
            "ftp://a",
            "https://a?b",
            "https://a#b",
            "https://u@a",
            "https://u:80@a:80",
            "https://a:65536",
            "https://a:x",
            "https://a\"b",
            "https://a/b\"c",
            "https://a/b\\c",
            "https://a/../b",
            "https://[::x]",
            "https://a b",
            "https://",
            "",
        ] {
            assert_eq!(PublicUrl::parse(text), None, "{text}");
        }
    }

    #[test]
    fn urls_of_a_server_that_differ_in_writing_are_one() {
        for (text, expected) in [
            ("HTTP://A.example:80/", "http://a.example/mcp"),
            ("https://a.example:443/mcp", "https://a.example/mcp"),
            (
                "https://a.example:8443/x/mcp/",
                "https://a.example:8443/x/mcp",
            ),
            ("http://[0:0::1]:3000", "http://[::1]:3000/mcp"),
            ("http://127.0.0.1:", "http://127.0.0.1/mcp"),
        ] {
            let url = PublicUrl::parse(text).map(|url| url.endpoint());
            assert_eq!(url.as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn auth_09_a_challenge_names_every_scope_and_quotes_nothing_that_ends_it() {
        let resource = resource(Some("https://a.example"));
        let (headers, uri) = (HeaderMap::new(), Uri::from_static("/mcp"));
        let seen = RequestTarget {
            headers: &headers,
            uri: &uri,
            peer: None,
        };
        let reported = |error: &AuthError| {
            let value = resource.challenge(seen, error, &[]).expect("a challenge");
            value.to_str().expect("ASCII").to_owned()
        };
        let required =
            resource.with_scopes(&["files:read", "mcp", "files:write"].map(str::to_owned));
        assert_eq!(
            reported(&AuthError::InsufficientScope { required }),
            "Bearer error=\"insufficient_scope\", error_description=\"the credential lacks a scope that is needed: mcp files:read files:write\", \
             scope=\"mcp files:read files:write\", resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\""
        );
        assert_eq!(
            reported(&AuthError::Invalid("a \"b\" \\ \u{e9} c".into())),
            "Bearer error=\"invalid_token\", error_description=\"a b   c\", scope=\"mcp\", \
             resource_metadata=\"https://a.example/.well-known/oauth-protected-resource/mcp\""
        );
        assert_eq!(
            resource.challenge(seen, &AuthError::Unavailable("x".into()), &[]),
            None
        );
    }
}
