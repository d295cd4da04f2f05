//! The authorization server: its parts, and the dispatch of requests to endpoints.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use url::Url;

use super::authorize::Failure;
use super::document::{DOCUMENT_MAX_BYTES, Documents};
use super::error::OAuthError;
use super::metadata;
use super::once::SingleUse;
use super::provider::Provider;
use super::visit::BrowserCookie;
use crate::auth::{DpopVerifier, FacadeConfig, FacadeSetupError};
use crate::net::{Body, Client, ClientError, Deadlines, Guard};
use crate::seal::{KeyRing, SigningKeys, random_bytes};
use crate::state::SharedState;
use crate::telemetry::{LOGINS, Metrics};

/// Time limit for requests to the provider and for client metadata documents.
const DEADLINE: Duration = Duration::from_secs(10);
const CALLBACK: &str = "/oauth/callback";

/// An OAuth authorization server in front of an identity provider.
#[derive(Debug)]
pub struct AuthorizationServer {
    pub(super) config: FacadeConfig,
    /// Issuer identifier: the public URL of the server's root, without a slash at its end.
    pub(super) issuer: String,
    /// Scheme, host and port of the issuer.
    pub(super) origin: String,
    /// The server's name, for people.
    pub(super) name: String,
    /// URLs of the MCP endpoints, the main one first.
    pub(super) resources: Vec<String>,
    /// Scopes that clients may ask for.
    pub(super) scopes: Vec<String>,
    /// The redirect URI that is registered at the provider.
    pub(super) callback: String,
    /// The cookie that binds logins to a browser.
    pub(super) cookie: BrowserCookie,
    /// True if the server is reached on this machine only, as in tests.
    pub(super) is_local: bool,
    pub(super) ring: Arc<KeyRing>,
    pub(super) keys: SigningKeys,
    pub(super) once: SingleUse,
    pub(super) provider: Provider,
    pub(super) documents: Documents,
    /// Client for documents of strangers: public addresses only.
    pub(super) web: Client,
    /// Verifies the DPoP proofs of token requests.
    pub(super) dpop: DpopVerifier,
    /// True if every client must use DPoP.
    pub(super) requires_dpop: bool,
    metadata: String,
    metrics: Metrics,
}

/// Parts that an authorization server is made of.
#[derive(Debug)]
pub struct Parts {
    pub config: FacadeConfig,
    /// Public URL of the server's root, without a slash at its end.
    pub issuer: String,
    pub name: String,
    /// URLs of the MCP endpoints, the main one first.
    pub resources: Vec<String>,
    /// Scopes that access rules name, which clients may ask for.
    pub scopes: Vec<String>,
    pub ring: Arc<KeyRing>,
    pub state: SharedState,
    pub metrics: Metrics,
    /// Verifies the DPoP proofs of token requests.
    pub dpop: DpopVerifier,
    /// True if every access token must be bound to a key of the client (DPoP).
    pub requires_dpop: bool,
}

/// Reason why an authorization server cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorizationServerError {
    #[error(transparent)]
    Config(#[from] FacadeSetupError),
    #[error("http.public_url {0:?} is not a valid URL for auth.oauth.facade")]
    PublicUrl(String),
    #[error("auth.oauth.facade cannot derive its signing keys from seal.keys")]
    Keys,
    #[error("auth.oauth.facade: cannot build the client for requests to the provider: {0}")]
    Client(#[from] ClientError),
}

/// An endpoint, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Metadata,
    Keys,
    Authorize,
    Consent,
    Callback,
    Token,
    Register,
    Revoke,
}

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/authorize" => Self::Authorize,
            "/oauth/consent" => Self::Consent,
            CALLBACK => Self::Callback,
            "/token" => Self::Token,
            "/register" => Self::Register,
            "/revoke" => Self::Revoke,
            "/.well-known/jwks.json" => Self::Keys,
            _ => {
                let rest = path
                    .strip_prefix("/.well-known/oauth-authorization-server")
                    .or_else(|| path.strip_prefix("/.well-known/openid-configuration"))?;
                return (rest.is_empty() || rest.starts_with('/')).then_some(Self::Metadata);
            }
        })
    }

    fn methods(self) -> &'static str {
        match self {
            Self::Metadata | Self::Keys => "GET, HEAD, OPTIONS",
            Self::Authorize | Self::Callback => "GET",
            Self::Consent => "POST",
            Self::Token | Self::Register | Self::Revoke => "POST, OPTIONS",
        }
    }

    /// Returns true if pages of every origin may use the endpoint. None of these endpoints reads cookies.
    fn is_shared(self) -> bool {
        !matches!(self, Self::Authorize | Self::Callback | Self::Consent)
    }
}

/// Returns true if a path below the server's root belongs to the authorization server.
pub fn is_path(path: &str) -> bool {
    Endpoint::of(path).is_some()
}

impl AuthorizationServer {
    /// Builds the server. Nothing is fetched before the first login.
    ///
    /// # Errors
    ///
    /// A setting is missing or wrong.
    pub fn new(parts: Parts) -> Result<Self, AuthorizationServerError> {
        let Parts {
            config,
            issuer,
            name,
            resources,
            scopes,
            ring,
            state,
            metrics,
            dpop,
            requires_dpop,
        } = parts;
        config.check()?;
        let public = || AuthorizationServerError::PublicUrl(issuer.clone());
        let url = Url::parse(&issuer).map_err(|_| public())?;
        if resources.is_empty() {
            return Err(public());
        }
        let is_secure = url.scheme() == "https";
        let is_local = !is_secure;
        let provider = config.provider()?.url;
        let web = |guard: Guard| {
            Client::builder(guard)
                .redirects(0)
                .max_body(DOCUMENT_MAX_BYTES.max(256 * 1024))
                .deadlines(Deadlines::total(DEADLINE))
                .build()
        };
        let strangers = match is_local {
            true => Guard::public().allow_loopback(),
            false => Guard::public().https_only(),
        };
        let mut offered = config.scopes.clone();
        offered.extend(scopes);
        offered.sort();
        offered.dedup();
        let metadata = metadata::document(&issuer, &offered, &config);
        Ok(Self {
            origin: url.origin().ascii_serialization(),
            callback: format!("{issuer}{CALLBACK}"),
            keys: SigningKeys::derive(&ring, metadata::SIGNING)
                .ok_or(AuthorizationServerError::Keys)?,
            provider: Provider::new(&config, web(Guard::public().trust(&provider))?)?,
            web: web(strangers)?,
            once: SingleUse::new(state),
            documents: Documents::new(),
            config,
            issuer,
            name,
            resources,
            scopes: offered,
            cookie: BrowserCookie::new(is_secure),
            is_local,
            ring,
            metadata,
            metrics,
            dpop,
            requires_dpop,
        })
    }

    /// The public keys as a JWK set, in JSON.
    pub fn public_keys(&self) -> &str {
        self.keys.public()
    }

    /// Responds to a request for one of the paths of [`is_path`].
    pub async fn respond(&self, path: &str, request: Request<Bytes>) -> Response<Body> {
        self.respond_at(path, request, unix_seconds()).await
    }

    /// Responds to a request at a time, in seconds of Unix time.
    pub(super) async fn respond_at(
        &self,
        path: &str,
        request: Request<Bytes>,
        now: u64,
    ) -> Response<Body> {
        let Some(endpoint) = Endpoint::of(path) else {
            return plain(StatusCode::NOT_FOUND);
        };
        let (head, body) = request.into_parts();
        let allowed = endpoint.methods();
        let has = |method: &Method| allowed.split(", ").any(|one| one == method.as_str());
        let mut response = if !has(&head.method) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
            let value = HeaderValue::from_static(allowed);
            response.headers_mut().insert(ALLOW, value);
            response
        } else if head.method == Method::OPTIONS {
            preflight(allowed)
        } else {
            let query = head.uri.query().unwrap_or_default();
            self.dispatch(endpoint, &head.headers, query.as_bytes(), &body, now)
                .await
        };
        if endpoint.is_shared() {
            let any = HeaderValue::from_static("*");
            response
                .headers_mut()
                .insert(ACCESS_CONTROL_ALLOW_ORIGIN, any);
            let exposed = HeaderValue::from_static("dpop-nonce, www-authenticate");
            response
                .headers_mut()
                .insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        response
    }

    async fn dispatch(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        query: &[u8],
        body: &[u8],
        now: u64,
    ) -> Response<Body> {
        let step = match endpoint {
            Endpoint::Metadata => return public(&self.metadata),
            Endpoint::Keys => return public(self.keys.public()),
            Endpoint::Authorize => "authorize",
            Endpoint::Consent => "consent",
            Endpoint::Callback => "callback",
            Endpoint::Token => "token",
            Endpoint::Register => "register",
            Endpoint::Revoke => "revoke",
        };
        // Of a browser: a page or a redirect.
        let visited = match endpoint {
            Endpoint::Authorize => Some(self.authorize(headers, query, now).await),
            Endpoint::Consent => Some(self.consented(headers, body, now).await),
            Endpoint::Callback => Some(self.callback(headers, query, now).await),
            _ => None,
        };
        if let Some(visited) = visited {
            let outcome = visited.as_ref().map_or_else(Failure::code, |_| "ok");
            self.count(step, outcome);
            return visited.unwrap_or_else(|failure| self.failed(failure));
        }
        let (result, success) = match endpoint {
            Endpoint::Register => (self.register(body, now), StatusCode::CREATED),
            Endpoint::Revoke => {
                let revoked = match self.form(headers) {
                    Ok(()) => self.revoke(headers, body, now).await,
                    Err(error) => Err(error),
                };
                (revoked.map(|()| json!({})), StatusCode::OK)
            }
            _ => {
                let granted = match self.form(headers) {
                    Ok(()) => self.token(headers, body, now).await,
                    Err(error) => Err(error),
                };
                (granted, StatusCode::OK)
            }
        };
        self.count(
            step,
            result.as_ref().map_or_else(|error| error.code, |_| "ok"),
        );
        private(result, success)
    }

    fn count(&self, step: &'static str, outcome: &'static str) {
        let labels = [("step", step), ("outcome", outcome)];
        self.metrics.counter(&LOGINS, &labels).add(1);
    }

    async fn consented(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<Response<Body>, Failure> {
        self.form(headers).map_err(Failure::Page)?;
        self.decide(headers, body, now).await
    }

    /// Checks that a body is a form.
    fn form(&self, headers: &HeaderMap) -> Result<(), OAuthError> {
        let kind = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let kind = kind
            .and_then(|kind| kind.split(';').next())
            .unwrap_or_default();
        match kind
            .trim()
            .eq_ignore_ascii_case("application/x-www-form-urlencoded")
        {
            true => Ok(()),
            false => Err(OAuthError::invalid_request(
                "the body must be application/x-www-form-urlencoded",
            )),
        }
    }
}

/// A public document.
fn public(text: &str) -> Response<Body> {
    let mut response = json_response(StatusCode::OK, text.to_owned());
    let value = HeaderValue::from_static("public, max-age=300");
    response.headers_mut().insert(CACHE_CONTROL, value);
    response
}

/// A response that holds secrets, or an error.
fn private(result: Result<Value, OAuthError>, success: StatusCode) -> Response<Body> {
    let mut response = match &result {
        Ok(value) => json_response(success, value.to_string()),
        Err(error) => {
            let body = json!({"error": error.code, "error_description": error.description});
            json_response(error.status, body.to_string())
        }
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Err(error) = result {
        if error.status == StatusCode::UNAUTHORIZED {
            let value = HeaderValue::from_static("Basic realm=\"token\"");
            headers.insert(WWW_AUTHENTICATE, value);
        }
        if let Some(nonce) = error.nonce.as_deref()
            && let Ok(nonce) = HeaderValue::from_str(nonce)
        {
            headers.insert("dpop-nonce", nonce);
        }
    }
    response
}

fn json_response(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn preflight(allowed: &'static str) -> Response<Body> {
    let mut response = plain(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(
        ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(allowed),
    );
    headers.insert(
        ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static("authorization, content-type, dpop, mcp-protocol-version"),
    );
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("3600"));
    response
}

/// 256 random bits in base64url.
pub(super) fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<32>())
}

pub(super) fn text_digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

pub(super) fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
