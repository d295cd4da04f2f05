//! Protected resource metadata (RFC 9728) and authentication challenges.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{FORWARDED, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde_json::json;

use super::scopes::add_scopes;
use super::{AuthError, DisplayName};
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
    pub(super) name: DisplayName,
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

    /// Returns the path prefix that a client puts before the server's paths: that of public URLs, or the one that a
    /// trusted proxy has removed.
    pub(super) fn prefix_of(&self, seen: RequestTarget<'_>) -> String {
        self.at(seen).map_or_else(String::new, |at| at.prefix)
    }

    /// Returns the additional endpoint of a request, with its scopes. `at` is the public URL.
    fn endpoint_of(
        &self,
        at: Option<&PublicUrl>,
        seen: RequestTarget<'_>,
    ) -> Option<(&str, &[String])> {
        let path = seen.uri.path();
        self.endpoint_at(at.map_or(path, |at| at.below(path)))
    }

    /// Returns the additional endpoint at a path, with its scopes.
    fn endpoint_at(&self, path: &str) -> Option<(&str, &[String])> {
        let name = path.strip_prefix(ENDPOINT)?.strip_prefix('/')?;
        self.endpoint_called(name.trim_end_matches('/'))
    }

    fn endpoint_called(&self, name: &str) -> Option<(&str, &[String])> {
        let mut endpoints = self.endpoints.iter();
        let (name, scopes) = endpoints.find(|(known, _)| **known == *name)?;
        Some((name, scopes))
    }

    /// Returns the scopes that every request to an additional endpoint needs.
    pub(super) fn scopes_of(&self, endpoint: &str) -> &[String] {
        self.endpoint_called(endpoint)
            .map_or(&[], |(_, scopes)| scopes)
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
        let name = self.name.get();
        if !name.is_empty() {
            document["resource_name"] = name.as_str().into();
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
            AuthError::Invalid(_) | AuthError::Expired | AuthError::TooLong(_) => {
                Some("invalid_token")
            }
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
        let endpoint = self.endpoint_of(at.as_ref(), seen);
        let needed = match error {
            AuthError::InsufficientScope { required } => &required[..],
            _ => needed,
        };
        let scopes = self.required_at(seen, needed);
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

    /// Returns all scopes that a request needs which lacks these: those of the server, of its endpoint, and these.
    pub(super) fn required_at(&self, seen: RequestTarget<'_>, needed: &[String]) -> Vec<String> {
        let at = self.at(seen);
        let endpoint = self.endpoint_of(at.as_ref(), seen);
        let own = endpoint.map_or(&[][..], |(_, own)| own);
        self.with_scopes(&[own, needed].concat())
    }

    /// Returns the scopes of the server, and these.
    pub(super) fn with_scopes(&self, needed: &[String]) -> Vec<String> {
        let mut all = self.scopes.clone();
        add_scopes(&mut all, needed);
        all
    }
}

/// Escapes or drops characters that cannot occur in a quoted string.
fn quotable(text: &str) -> String {
    let good = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    text.chars().filter(good).collect()
}

#[cfg(test)]
mod tests;
