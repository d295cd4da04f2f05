//! The endpoints, and the dispatch of requests to them.

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::authorize::Failure;
use super::error::OAuthError;
use super::server::{AuthorizationServer, CALLBACK};
use crate::environment::unix_seconds;
use crate::limit::ClientLimits;
use crate::net::Body;
use crate::telemetry::LOGINS;

/// Parts of a request with a body.
#[derive(Clone, Copy)]
pub(super) struct Form<'r> {
    pub(super) headers: &'r HeaderMap,
    pub(super) body: &'r [u8],
    /// Limits of the client; `None` outside of the server, in tests.
    pub(super) limits: Option<&'r ClientLimits>,
}

/// An endpoint, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint {
    Metadata,
    OpenIdMetadata,
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
                let documents = [
                    ("/.well-known/oauth-authorization-server", Self::Metadata),
                    ("/.well-known/openid-configuration", Self::OpenIdMetadata),
                ];
                return documents.into_iter().find_map(|(known, document)| {
                    let rest = path.strip_prefix(known)?;
                    (rest.is_empty() || rest.starts_with('/')).then_some(document)
                });
            }
        })
    }

    fn methods(self) -> &'static str {
        match self {
            Self::Metadata | Self::OpenIdMetadata | Self::Keys => "GET, HEAD, OPTIONS",
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
            let form = Form {
                headers: &head.headers,
                body: &body,
                limits: head.extensions.get(),
            };
            self.dispatch(endpoint, query.as_bytes(), form, now).await
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
        query: &[u8],
        form: Form<'_>,
        now: u64,
    ) -> Response<Body> {
        let (headers, body) = (form.headers, form.body);
        match endpoint {
            Endpoint::Metadata => public(&self.offer.load().metadata.oauth),
            Endpoint::OpenIdMetadata => public(&self.offer.load().metadata.openid),
            Endpoint::Keys => public(self.keys.public()),
            Endpoint::Authorize => {
                let shown = self.authorize(headers, query, form.limits, now).await;
                self.visited("authorize", shown)
            }
            Endpoint::Consent => self.visited("consent", self.decide(headers, body, now).await),
            Endpoint::Callback => {
                self.visited("callback", self.callback(headers, query, now).await)
            }
            Endpoint::Token => self.done("token", self.token(form, now).await, StatusCode::OK),
            Endpoint::Register => {
                self.done("register", self.register(body, now), StatusCode::CREATED)
            }
            Endpoint::Revoke => {
                let revoked = self.revoke(form, now).await.map(|()| json!({}));
                self.done("revoke", revoked, StatusCode::OK)
            }
        }
    }

    /// Counts a request of a browser, and returns its response: a page or a redirect.
    fn visited(
        &self,
        step: &'static str,
        result: Result<Response<Body>, Failure>,
    ) -> Response<Body> {
        self.count(step, result.as_ref().map_or_else(Failure::code, |_| "ok"));
        result.unwrap_or_else(|failure| self.failed(failure))
    }

    /// Counts a request of a client, and returns its response.
    fn done(
        &self,
        step: &'static str,
        result: Result<Value, OAuthError>,
        success: StatusCode,
    ) -> Response<Body> {
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
        if let Some(seconds) = error.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
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
