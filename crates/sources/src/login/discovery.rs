//! Discovery of a server's authorization server: RFC 9728, then RFC 8414 or OpenID Connect Discovery.

use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::LoginError;
use crate::net::{Client, OutgoingRequest, challenge_parameter};
use crate::source::tokens::is_same_issuer;

/// Protected resource metadata of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    pub(super) resource: String,
    pub(super) authorization_servers: Vec<String>,
    pub(super) scopes_supported: Vec<String>,
    pub(super) dpop_signing_alg_values_supported: Vec<String>,
}

/// Authorization server metadata of an issuer.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Issuer {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) registration_endpoint: Option<String>,
    pub(crate) revocation_endpoint: Option<String>,
    #[serde(default)]
    pub(crate) code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(crate) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(crate) token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub(crate) dpop_signing_alg_values_supported: Vec<String>,
    #[serde(default)]
    pub(crate) client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
    /// True if the issuer has no metadata, and these are the default endpoints.
    #[serde(skip)]
    pub(crate) is_default: bool,
}

impl Issuer {
    /// Returns the URLs of the authorization endpoint and the token endpoint, if a client may reach them.
    pub(crate) fn endpoints(&self, client: &Client) -> Result<[Url; 2], LoginError> {
        // The first is opened in a browser, so it must be a web page.
        let urls = [
            endpoint(
                self.authorization_endpoint.as_ref(),
                "authorization_endpoint",
            )?,
            endpoint(self.token_endpoint.as_ref(), "token_endpoint")?,
        ];
        for url in &urls {
            client.guard().check_url(url)?;
        }
        Ok(urls)
    }

    /// Returns true if the issuer supports an authentication method at its token endpoint.
    pub(super) fn takes(&self, method: &str) -> bool {
        let mut methods = self.token_endpoint_auth_methods_supported.iter();
        methods.any(|known| known == method)
    }

    /// Returns true if the client's secret is sent in the form, because the issuer does not support it in a header.
    pub(crate) fn takes_secret_in_form(&self) -> bool {
        self.takes("client_secret_post") && !self.takes("client_secret_basic")
    }
}

/// Parses an endpoint URL from the issuer's metadata.
pub(crate) fn endpoint(reported: Option<&String>, name: &'static str) -> Result<Url, LoginError> {
    reported
        .and_then(|url| url.parse().ok())
        .ok_or(LoginError::NoEndpoint(name))
}

/// Returns the default endpoints of 2025-03-26, for a server that is its own issuer and has no metadata.
pub(super) fn default_issuer(name: &str) -> Result<Issuer, LoginError> {
    let root: Url = name.parse().map_err(|_| LoginError::NoIssuer(cut(name)))?;
    let endpoint = |path: &str| Some(at(&root, path).as_str().to_owned());
    Ok(Issuer {
        issuer: name.to_owned(),
        authorization_endpoint: endpoint("/authorize"),
        token_endpoint: endpoint("/token"),
        registration_endpoint: endpoint("/register"),
        // Protocol version 2025-03-26 requires PKCE.
        code_challenge_methods_supported: vec!["S256".to_owned()],
        is_default: true,
        ..Issuer::default()
    })
}

/// Authentication challenge of a server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) metadata: Option<Url>,
    pub(super) scopes: Vec<String>,
    /// True if the server accepts tokens that are bound to a key (RFC 9449, section 7.1).
    pub(super) offers_dpop: bool,
}

/// Unauthenticated requests, for stateful and stateless protocol versions. Some servers accept `initialize` and
/// reject other requests with 401.
const UNPROVED: [(&str, &str); 3] = [
    (
        "server/discover",
        r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"longshore","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}}"#,
    ),
    (
        "initialize",
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"longshore","version":"0"}}"#,
    ),
    ("tools/list", "{}"),
];

/// Sends unauthenticated requests to a server and returns its challenge.
pub(super) async fn challenge(
    client: &Client,
    server: &Url,
) -> Result<Option<Challenge>, LoginError> {
    for (method, params) in UNPROVED {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let mut request = OutgoingRequest::post(server.clone(), "application/json", body).header(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        if method == "server/discover" {
            let version = HeaderValue::from_static("2026-07-28");
            request = request
                .header(HeaderName::from_static("mcp-protocol-version"), version)
                .header(
                    HeaderName::from_static("mcp-method"),
                    HeaderValue::from_static(method),
                );
        }
        // Only the response head is needed; the body can be an endless stream.
        let answer = client.open(request).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            return Ok(Some(read_challenge(&answer.headers)));
        }
    }
    Ok(None)
}

fn read_challenge(headers: &HeaderMap) -> Challenge {
    let values = headers.get_all(WWW_AUTHENTICATE).iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    let parameter = |name: &str| {
        values
            .iter()
            .find_map(|value| challenge_parameter(value, name))
    };
    Challenge {
        metadata: parameter("resource_metadata").and_then(|url| url.parse().ok()),
        scopes: parameter("scope")
            .map(|scope| scope.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        offers_dpop: values.iter().any(|value| has_scheme(value, "DPoP")),
    }
}

/// Returns true if a challenge is of an authentication scheme. A header can have several challenges (RFC 9110, section 11.6.1).
fn has_scheme(challenges: &str, scheme: &str) -> bool {
    let mut parts = challenges.split(',');
    parts.any(|part| {
        let first = part.split_whitespace().next();
        first.is_some_and(|first| first.eq_ignore_ascii_case(scheme))
    })
}

/// Fetches the resource metadata of a server from the URL in its challenge, or from the well-known locations. Returns
/// `None` if there is none.
pub(super) async fn resource(
    client: &Client,
    server: &Url,
    reported: Option<&Url>,
) -> Result<Option<Resource>, LoginError> {
    const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
    let path = server.path().trim_end_matches('/');
    let candidates = match reported {
        Some(url) => vec![url.clone()],
        None if path.is_empty() => vec![at(server, WELL_KNOWN)],
        None => vec![
            at(server, &format!("{WELL_KNOWN}{path}")),
            at(server, WELL_KNOWN),
        ],
    };
    for url in candidates {
        let Some(found) = document::<Resource>(client, &url).await? else {
            continue;
        };
        if !is_of(&found.resource, server) {
            return Err(LoginError::OtherResource {
                found: cut(&found.resource),
            });
        }
        return Ok(Some(found));
    }
    Ok(None)
}

/// Returns true if the declared resource (RFC 9728, 3.3) is the requested server, or contains it.
fn is_of(resource: &str, server: &Url) -> bool {
    let Ok(resource) = resource.parse::<Url>() else {
        return false;
    };
    let (outer, inner) = (
        resource.path().trim_end_matches('/'),
        server.path().trim_end_matches('/'),
    );
    let below = inner
        .strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.origin() == server.origin() && below
}

/// Fetches the metadata of an issuer and checks that it names this issuer.
pub(crate) async fn issuer(client: &Client, name: &str) -> Result<Issuer, LoginError> {
    let url: Url = name.parse().map_err(|_| LoginError::NoIssuer(cut(name)))?;
    let path = url.path().trim_end_matches('/').to_owned();
    let mut paths = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        paths.push(format!("{path}/.well-known/openid-configuration"));
    }
    let mut invalid = None;
    for path in paths {
        let found = match document::<Issuer>(client, &at(&url, &path)).await {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            // Some servers respond to every path.
            Err(error @ LoginError::Document { .. }) => {
                invalid.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        // Many servers name their issuer by a URL type that adds the slash.
        if !is_same_issuer(&found.issuer, name) {
            return Err(LoginError::OtherIssuer {
                found: cut(&found.issuer),
                wanted: cut(name),
            });
        }
        return Ok(found);
    }
    Err(invalid.unwrap_or_else(|| LoginError::NoIssuer(cut(name))))
}

/// Fetches a document. Returns `None` if it does not exist, or is a page.
async fn document<T: DeserializeOwned>(
    client: &Client,
    url: &Url,
) -> Result<Option<T>, LoginError> {
    let request = OutgoingRequest::new(Method::GET, url.clone())
        .header(ACCEPT, HeaderValue::from_static("application/json"));
    let answer = client.fetch(request).await?;
    let kind = answer.headers.get(CONTENT_TYPE);
    let is_page = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if answer.status != StatusCode::OK || is_page {
        return Ok(None);
    }
    serde_json::from_slice(&answer.body)
        .map(Some)
        .map_err(|error| LoginError::Document {
            url: url.clone(),
            problem: error.to_string(),
        })
}

fn at(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Shortens and sanitizes untrusted text for messages.
pub(crate) fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_says_where_metadata_is_and_which_scopes_are_wanted() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(text));
            read_challenge(&headers)
        };
        let reported = read(
            r#"Bearer error="x, scope=no", resource_metadata="https://a/.well-known/x", scope="r w""#,
        );
        assert_eq!(
            reported.metadata.as_ref().map(Url::as_str),
            Some("https://a/.well-known/x")
        );
        assert_eq!(reported.scopes, ["r", "w"]);
        assert!(!reported.offers_dpop);
        assert!(read(r#"DPoP resource_metadata="https://a/x""#).offers_dpop);
        assert!(read(r#"Bearer realm="DPoP x", dpop algs="ES256""#).offers_dpop);
        assert_eq!(read("Bearer scope=one,x=y").scopes, ["one"]);
        for none in ["", "Bearer", "Bearer scope", "Bearer scope=\"open", "="] {
            assert_eq!(read(none), Challenge::default(), "{none}");
        }
    }

    #[test]
    fn a_server_is_what_it_says_or_a_part_of_that() {
        let server: Url = "https://a.example/x/mcp".parse().expect("a URL");
        for (resource, is) in [
            ("https://a.example/x/mcp", true),
            ("https://a.example/x/mcp/", true),
            ("https://a.example", true),
            ("https://a.example/x", true),
            ("https://a.example/x/m", false),
            ("https://a.example/x/mcp/y", false),
            ("http://a.example/x/mcp", false),
            ("https://b.example/x/mcp", false),
            ("", false),
        ] {
            assert_eq!(is_of(resource, &server), is, "{resource}");
        }
    }
}
