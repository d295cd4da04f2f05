//! The authorization endpoint and the consent page (RFC 6749, section 4.1; RFC 7636).

use http::header::{LOCATION, ORIGIN};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use url::Url;

use super::client::{CLIENT_ID_MAX_BYTES, Origin};
use super::error::OAuthError;
use super::form::{Parameters, check_form};
use super::page;
use super::redirect::URI_MAX_BYTES;
use super::sealed::{self, AuthorizationRequest, ConsentForm, LoginState, Sealed};
use super::server::AuthorizationServer;
use super::text::{distinct, random_text};
use crate::limit::ClientLimits;
use crate::net::Body;

/// Time to approve a client and to log in at the provider, in seconds.
const LOGIN_SECONDS: u64 = 15 * 60;
const STATE_MAX_BYTES: usize = 2048;
const SCOPE_MAX_BYTES: usize = 1024;
/// Length of a SHA-256 digest in base64url.
const DIGEST_LEN: usize = 43;
/// Maximum size of the sealed login state: it is a part of URLs, which servers limit to 8 KiB.
const LOGIN_STATE_MAX_BYTES: usize = 5000;

/// A failed authorization request.
pub(super) enum Failure {
    /// The client or its redirect URI is unknown, so the browser stays here.
    Page(OAuthError),
    /// A redirect reports the error to the client.
    Redirect(OAuthError, AuthorizationRequest),
    /// A page has a link that reports the error to the client.
    Link(OAuthError, AuthorizationRequest),
}

impl Failure {
    /// Returns the error code, for metrics.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Self::Page(error) | Self::Redirect(error, _) | Self::Link(error, _) => error.code,
        }
    }
}

/// An error is shown on a page, unless it is explicitly one for the client.
impl From<OAuthError> for Failure {
    fn from(error: OAuthError) -> Self {
        Self::Page(error)
    }
}

impl AuthorizationServer {
    /// Shows the consent page for an authorization request.
    pub(super) async fn authorize(
        &self,
        headers: &HeaderMap,
        query: &[u8],
        limits: Option<&ClientLimits>,
        now: u64,
    ) -> Result<Response<Body>, Failure> {
        let parameters = Parameters::read(query)?;
        let id = parameters.required("client_id", CLIENT_ID_MAX_BYTES)?;
        let client = self.client(id, limits, now).await?;
        let requested = parameters.within("redirect_uri", URI_MAX_BYTES)?;
        let redirect_uri = client.redirect_uri(requested).ok_or_else(|| {
            OAuthError::invalid_request("redirect_uri is not one that the client registered")
        })?;
        // A response without its state would be of no use to the client.
        let state = parameters.within("state", STATE_MAX_BYTES)?;
        let state = state.map(str::to_owned);
        let mut request = AuthorizationRequest {
            client_id: client.id.clone(),
            redirect_uri,
            challenge: String::new(),
            scopes: Vec::new(),
            resource: String::new(),
            state,
            thumbprint: None,
        };
        if let Err(error) = self.complete(&mut request, &parameters) {
            // Anyone can register a site, and links to this server must not lead there before the user has approved it
            // (RFC 9700, section 4.11.2).
            let may_redirect =
                client.origin == Origin::Configured || !request.redirect_uri.starts_with("https:");
            return Err(match may_redirect {
                true => Failure::Redirect(error, request),
                false => Failure::Link(error, request),
            });
        }
        let browser = self.cookie.of_or_new(headers);
        let form = ConsentForm {
            request: request.clone(),
            browser: browser.digest.clone(),
            expires: now + LOGIN_SECONDS,
        };
        let Some(sealed) = sealed::seal(&self.ring, &self.issuer, &form) else {
            let error = OAuthError::server_error("the request cannot be sealed");
            return Err(Failure::Redirect(error, request));
        };
        let provider = self.provider.host();
        let page = page::consent(&self.name.get(), provider, &client, &request, &sealed);
        let mut response = page::response(StatusCode::OK, page);
        browser.set_on(&mut response);
        Ok(response)
    }

    /// Checks the parameters whose errors the client receives by redirect.
    fn complete(
        &self,
        request: &mut AuthorizationRequest,
        parameters: &Parameters,
    ) -> Result<(), OAuthError> {
        match parameters.get("response_type") {
            Some("code") => {}
            Some(_) => {
                return Err(OAuthError::new(
                    "unsupported_response_type",
                    "response_type must be code",
                ));
            }
            None => return Err(OAuthError::invalid_request("response_type is missing")),
        }
        if parameters.get("request").is_some() || parameters.get("request_uri").is_some() {
            return Err(OAuthError::new(
                "request_not_supported",
                "request objects are not supported",
            ));
        }
        if parameters.get("code_challenge_method") != Some("S256") {
            return Err(OAuthError::invalid_request(
                "code_challenge_method must be S256",
            ));
        }
        let challenge = parameters.required("code_challenge", DIGEST_LEN)?;
        request.challenge = digest("code_challenge", challenge)?;
        let thumbprint = parameters.within("dpop_jkt", DIGEST_LEN)?;
        let thumbprint = thumbprint.map(|thumbprint| digest("dpop_jkt", thumbprint));
        request.thumbprint = thumbprint.transpose()?;
        request.resource = self.resource(parameters.within("resource", URI_MAX_BYTES)?)?;
        request.scopes = self.scopes(parameters.within("scope", SCOPE_MAX_BYTES)?);
        Ok(())
    }

    /// Returns the endpoint that a token is requested for (RFC 8707): the requested one, or the main one. The root and the
    /// paths of the transport of 2024-11-05 are other names of the main one.
    pub(super) fn resource(&self, requested: Option<&str>) -> Result<String, OAuthError> {
        let main = &self.resources[0];
        let Some(requested) = requested else {
            return Ok(main.clone());
        };
        let bare = requested.trim_end_matches('/');
        let is_main = match bare.strip_prefix(&*self.issuer) {
            Some(path) => matches!(path, "" | "/sse" | "/mcp/sse"),
            None => false,
        };
        let found = self.resources.iter().find(|known| *known == bare);
        let found = found.or(is_main.then_some(main));
        found.cloned().ok_or_else(|| {
            OAuthError::new(
                "invalid_target",
                "resource is not an endpoint of this server",
            )
        })
    }

    /// Returns the granted scopes: the requested ones that are offered here, or all offered ones if there is none of those.
    ///
    /// Other scopes are ignored (RFC 6749, section 3.3), because many clients request the same ones at every server.
    fn scopes(&self, requested: Option<&str>) -> Vec<String> {
        let offer = self.offer.load();
        let mut granted = distinct(requested.unwrap_or_default());
        granted.retain(|scope| offer.scopes.contains(scope));
        match granted.is_empty() {
            true => offer.scopes.clone(),
            false => granted,
        }
    }

    /// Takes the decision of the consent page: sends the browser to the provider, or back to the client.
    pub(super) async fn decide(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: u64,
    ) -> Result<Response<Body>, Failure> {
        check_form(headers)?;
        if let Some(origin) = headers.get(ORIGIN)
            && origin.as_bytes() != self.origin.as_bytes()
        {
            return Err(OAuthError::access_denied("the form was sent by another site").into());
        }
        let parameters = Parameters::read(body)?;
        let sealed = parameters.get("form").unwrap_or_default();
        let form: ConsentForm = sealed::open(&self.ring, &self.issuer, sealed, now)
            .ok_or_else(|| OAuthError::invalid_request("the consent page has expired"))?;
        self.check_browser(headers, &form.browser)?;
        let request = form.request;
        if parameters.get("decision") != Some("allow") {
            let error = OAuthError::access_denied("the user did not approve the client");
            return Err(Failure::Redirect(error, request));
        }
        let too_long = "client_id, redirect_uri and state together are too long";
        let begun = self.begin_login(request.clone(), form.browser, now, too_long);
        match begun.await {
            Ok(url) => Ok(redirect_to(&url)),
            Err(error) => Err(Failure::Redirect(error, request)),
        }
    }

    /// Returns the URL at which the provider logs the user in.
    ///
    /// # Errors
    ///
    /// The provider does not respond, or the subject is `too_long` for the URL.
    pub(super) async fn begin_login<T>(
        &self,
        subject: T,
        browser: String,
        now: u64,
        too_long: &'static str,
    ) -> Result<Url, OAuthError>
    where
        LoginState<T>: Sealed,
    {
        let login = LoginState {
            subject,
            browser,
            nonce: random_text(),
            verifier: random_text(),
            expires: now + LOGIN_SECONDS,
        };
        let state = sealed::seal(&self.ring, &self.issuer, &login)
            .filter(|state| state.len() <= LOGIN_STATE_MAX_BYTES)
            .ok_or_else(|| OAuthError::invalid_request(too_long))?;
        self.provider
            .authorization_url(&self.callback, &state, &login.nonce, &login.verifier)
            .await
    }

    /// Checks that a request comes from the browser that began the login.
    pub(super) fn check_browser(
        &self,
        headers: &HeaderMap,
        expected: &str,
    ) -> Result<(), OAuthError> {
        if self.cookie.is_of(headers, expected) {
            return Ok(());
        }
        Err(OAuthError::access_denied(
            "this browser did not begin the login; cookies must be allowed for it",
        ))
    }

    /// Answers a failed request: by a page, or by a redirect to the client.
    pub(super) fn failed(&self, failure: Failure) -> Response<Body> {
        match failure {
            Failure::Page(error) => {
                let status = match error.status {
                    StatusCode::UNAUTHORIZED => StatusCode::BAD_REQUEST,
                    status => status,
                };
                page::response(status, page::error(&error.description))
            }
            Failure::Redirect(error, request) => {
                self.back_to_client(&request, &error_fields(&error))
            }
            Failure::Link(error, request) => {
                let page = match self.client_url(&request, &error_fields(&error)) {
                    Some(url) => page::error_of_client(&error.description, &url),
                    None => page::error(&error.description),
                };
                page::response(StatusCode::BAD_REQUEST, page)
            }
        }
    }

    /// Redirects to the client, with `state` and `iss` (RFC 9207).
    pub(super) fn back_to_client(
        &self,
        request: &AuthorizationRequest,
        fields: &[(&str, &str)],
    ) -> Response<Body> {
        match self.client_url(request, fields) {
            Some(url) => redirect_to(&url),
            None => page::response(
                StatusCode::BAD_REQUEST,
                page::error("redirect_uri is not a valid URI"),
            ),
        }
    }

    /// Returns the redirect URI of the client with parameters, `state` and `iss`.
    fn client_url(&self, request: &AuthorizationRequest, fields: &[(&str, &str)]) -> Option<Url> {
        let mut url = Url::parse(&request.redirect_uri).ok()?;
        {
            let mut query = url.query_pairs_mut();
            query.extend_pairs(fields);
            if let Some(state) = &request.state {
                query.append_pair("state", state);
            }
            query.append_pair("iss", &self.issuer);
        }
        Some(url)
    }
}

/// Returns the parameters that report an error to a client.
fn error_fields(error: &OAuthError) -> [(&'static str, &str); 2] {
    [
        ("error", error.code),
        ("error_description", &error.description),
    ]
}

/// Returns a parameter that must be a SHA-256 digest in base64url.
fn digest(name: &'static str, value: &str) -> Result<String, OAuthError> {
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    match value.len() == DIGEST_LEN && value.bytes().all(is_base64) {
        true => Ok(value.to_owned()),
        false => Err(OAuthError::invalid_request(format!(
            "{name} must be the base64url of a SHA-256 digest"
        ))),
    }
}

pub(super) fn redirect_to(url: &Url) -> Response<Body> {
    let mut response = page::response(StatusCode::SEE_OTHER, String::new());
    if let Ok(location) = HeaderValue::from_str(url.as_str()) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
