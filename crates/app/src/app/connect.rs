//! The page on which users log in to the APIs of sources (`auth.per_user`).
//!
//! ```text
//! link ──► the user is recognized ──► consent ──► login at the API's issuer ──► /connect/callback ──► tokens are stored
//! ```
//!
//! The user is recognized by a login at the identity provider of `auth.oauth.facade`, or by showing an API key. The link
//! alone grants nothing, so it does no harm in wrong hands.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, LOCATION, ORIGIN, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use longshore_authserver::page::{document, escaped, response};
use longshore_authserver::{AuthorizationServer, LoginStateCookie, origin_of, read_parameters};

use super::accounts::{AccountList, PATH as ACCOUNTS_PATH};
use super::hooks::has_user_logins;
use super::items::AppItems;
use super::responses::allowing;
use crate::auth::{
    ApiKeys, AuthMethod as _, AuthOutcome, Credentials, DisplayName, Principal, PublicUrl,
};
use crate::config::Config;
use crate::environment::unix_seconds;
use crate::limit::ClientLimits;
use crate::net::Body;
use crate::source::{AccountError, Accounts, Invitation, is_account_path};
use crate::telemetry::{LOGINS, Metrics};
use crate::transport::http::{Layers, PublicPaths, RouteFuture};

/// The page and its steps.
#[derive(Clone, Debug)]
pub(super) struct ConnectPage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: DisplayName,
    /// Scheme, host and port of the public URL.
    origin: String,
    cookie: LoginStateCookie,
    accounts: Accounts,
    /// Recognizes the users of access tokens of this server.
    authorization: Option<Arc<AuthorizationServer>>,
    keys: Option<Arc<ApiKeys>>,
    metrics: Metrics,
}

/// Serves the page, and the list of a user's logins, if the server has a public URL.
pub(super) fn serve(
    layers: &mut Layers,
    config: &Config,
    items: &AppItems,
    name: DisplayName,
    recognizers: (Option<Arc<AuthorizationServer>>, Option<Arc<ApiKeys>>),
) {
    let public = config.http.public_url.as_deref();
    let Some(public) = public.and_then(PublicUrl::parse) else {
        return;
    };
    let accounts = items.configured.accounts.clone();
    let has_logins = has_user_logins(config);
    // The first source with logins can come with a reload.
    if has_logins || !layers.has_route(ACCOUNTS_PATH) {
        let list = AccountList {
            accounts: accounts.clone(),
            is_expected: has_logins,
        };
        layers.add_route(ACCOUNTS_PATH.to_owned(), Arc::new(list));
    }
    let page = ConnectPage::new(name, &public, accounts, recognizers, &items.metrics);
    layers.serve_publicly(Arc::new(page));
}

/// A problem to show to the user, and the seconds after which another attempt may succeed.
struct Problem(StatusCode, String, Option<u64>);

impl Problem {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self(status, text.into(), None)
    }

    fn into_response(self) -> Response<Body> {
        let Self(status, text, wait) = self;
        let mut response = response(status, problem_page(&text));
        if let Some(seconds) = wait {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

type PageResult = Result<Response<Body>, Problem>;

impl ConnectPage {
    /// `public` is the public URL of the server.
    pub(super) fn new(
        name: DisplayName,
        public: &PublicUrl,
        accounts: Accounts,
        (authorization, keys): (Option<Arc<AuthorizationServer>>, Option<Arc<ApiKeys>>),
        metrics: &Metrics,
    ) -> Self {
        let root = public.root();
        Self(Arc::new(Inner {
            name,
            origin: origin_of(&root),
            cookie: LoginStateCookie::new(root.starts_with("https://")),
            accounts,
            authorization,
            keys,
            metrics: metrics.clone(),
        }))
    }
}

impl PublicPaths for ConnectPage {
    fn has(&self, path: &str) -> bool {
        is_account_path(path)
    }

    fn respond(&self, path: &str, request: Request<Bytes>) -> RouteFuture {
        let (inner, path) = (Arc::clone(&self.0), path.to_owned());
        Box::pin(async move { inner.respond(&path, request).await })
    }
}

impl Inner {
    async fn respond(&self, path: &str, request: Request<Bytes>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let answer = match (path, &head.method) {
            ("/connect", &Method::GET) => self.visit(&head.headers, query).await,
            ("/connect/begin", &Method::POST) => {
                let limits = head.extensions.get();
                self.begin(&head.headers, &body, limits).await
            }
            ("/connect/callback", &Method::GET) => self.finish(&head.headers, query).await,
            ("/connect" | "/connect/callback", _) => return method_not_allowed("GET"),
            ("/connect/begin", _) => return method_not_allowed("POST"),
            _ => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "this page does not exist",
            )),
        };
        answer.unwrap_or_else(Problem::into_response)
    }

    /// Shows the consent page, once the user is recognized.
    async fn visit(&self, headers: &HeaderMap, query: &[u8]) -> PageResult {
        let parameters = read(query)?;
        if let Some(done) = parameters.get("done") {
            return self.connected(done);
        }
        let visitor = parameters.get("visitor");
        let link = match (parameters.get("link"), visitor) {
            (Some(link), None) => link.clone(),
            (None, Some(visitor)) => self.visit_of(headers, visitor)?.0,
            _ => return Err(expired()),
        };
        let invitation = self.invitation(&link)?;
        if invitation.subject().is_some() && visitor.is_none() {
            let server = self.authorization.as_ref().ok_or_else(expired)?;
            let sent = server.recognize(headers, &link).await;
            return sent.map_err(|text| Problem::new(StatusCode::BAD_GATEWAY, text));
        }
        if let Some(visitor) = visitor {
            let (_, subject) = self.visit_of(headers, visitor)?;
            check_subject(&invitation, &subject)?;
        }
        let host = self.accounts.host(&invitation).ok_or_else(expired)?;
        let field = match visitor {
            Some(visitor) => ("visitor", visitor.as_str()),
            None => ("link", link.as_str()),
        };
        let asks_for_key = invitation.subject().is_none() && !invitation.is_everybody();
        let page = consent(&self.name.get(), &host, &invitation, field, asks_for_key);
        Ok(response(StatusCode::OK, page))
    }

    /// Takes the decision of the consent page, and sends the browser to the issuer of the API.
    async fn begin(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        limits: Option<&ClientLimits>,
    ) -> PageResult {
        let is_foreign = |origin: &HeaderValue| origin.as_bytes() != self.origin.as_bytes();
        if headers.get(ORIGIN).is_some_and(is_foreign) {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                "the form was sent by another site",
            ));
        }
        let parameters = read(body)?;
        let (link, subject) = match (parameters.get("link"), parameters.get("visitor")) {
            (Some(link), None) => (link.clone(), None),
            (None, Some(visitor)) => {
                let (link, subject) = self.visit_of(headers, visitor)?;
                (link, Some(subject))
            }
            _ => return Err(expired()),
        };
        let invitation = self.invitation(&link)?;
        if parameters.get("decision").map(String::as_str) != Some("allow") {
            let text = "No account was connected. You can close this page.";
            return Ok(response(StatusCode::OK, note_page("Not connected", text)));
        }
        match (subject, invitation.subject()) {
            (Some(subject), Some(_)) => check_subject(&invitation, &subject)?,
            (None, Some(_)) | (Some(_), None) => return Err(expired()),
            (None, None) if invitation.is_everybody() => {}
            (None, None) => {
                let key = parameters.get("key").map(String::as_str);
                let shown = self.holder(key.unwrap_or_default());
                if !shown.is_some_and(|shown| invitation.is_of(&shown)) {
                    return Err(wrong_key(limits));
                }
            }
        }
        let is_free = |id: &str| self.cookie.is_free(headers, id);
        let begun = self.accounts.begin(&invitation, is_free).await;
        let begun = begun.map_err(|error| {
            tracing::warn!(
                source = invitation.source(),
                error = crate::net::with_causes(&error),
                "users cannot log in to the API of a source"
            );
            Problem::new(StatusCode::BAD_GATEWAY, error.to_string())
        })?;
        let mut response = redirect_to(begun.page.as_str());
        let seconds = begun.expires.saturating_sub(unix_seconds());
        self.cookie
            .set_on(&mut response, &begun.id, &begun.state, seconds);
        Ok(response)
    }

    /// Takes the response of the issuer.
    async fn finish(&self, headers: &HeaderMap, query: &[u8]) -> PageResult {
        let parameters = read(query)?;
        let id = parameters.get("state").map(String::as_str);
        let id = id.unwrap_or_default();
        let state = self.cookie.state(headers, id);
        let finished = self
            .accounts
            .finish(&parameters, state.as_deref(), unix_seconds());
        let finished = finished.await;
        let outcome = finished
            .as_ref()
            .map_or_else(AccountError::code, |_| "connected");
        let labels = [("step", "account"), ("outcome", outcome)];
        self.metrics.counter(&LOGINS, &labels).add(1);
        let invitation = finished.map_err(|error| {
            tracing::info!(
                error = crate::net::with_causes(&error),
                "a user's login at the API of a source failed"
            );
            Problem::new(StatusCode::BAD_REQUEST, error.to_string())
        })?;
        let mut response = redirect_to(&self.accounts.done_page(invitation.source()));
        self.cookie.set_on(&mut response, id, "", 0);
        Ok(response)
    }

    /// Reports a login that has succeeded.
    fn connected(&self, sealed: &str) -> PageResult {
        let source = self.accounts.done(sealed).ok_or_else(expired)?;
        let text = format!(
            "{} can now use your account for {source}. You can close this page.",
            self.name.get()
        );
        Ok(response(StatusCode::OK, note_page("Connected", &text)))
    }

    fn invitation(&self, link: &str) -> Result<Invitation, Problem> {
        self.accounts
            .invitation(link, unix_seconds())
            .ok_or_else(expired)
    }

    /// Returns the link that a recognized user visits, and the user's subject.
    fn visit_of(&self, headers: &HeaderMap, visitor: &str) -> Result<(String, String), Problem> {
        let server = self.authorization.as_ref().ok_or_else(expired)?;
        let visitor = server.visitor(headers, visitor, unix_seconds());
        let visitor = visitor.ok_or_else(expired)?;
        Ok((visitor.visit, visitor.subject))
    }

    /// Returns the holder of an API key.
    fn holder(&self, key: &str) -> Option<Arc<Principal>> {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).ok()?;
        headers.insert(AUTHORIZATION, value);
        let shown = Credentials::read(&headers, None, None, unix_seconds()).ok()?;
        match self.keys.as_ref()?.judge(&shown) {
            AuthOutcome::Proven(principal) => Some(principal),
            _ => None,
        }
    }
}

/// Checks that the recognized user is the one who was asked to log in.
fn check_subject(invitation: &Invitation, subject: &str) -> Result<(), Problem> {
    if invitation.subject() == Some(subject) {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "the link is for another user of this server; no account was connected",
    ))
}

/// Counts an API key that is not the expected one, as at the endpoint.
fn wrong_key(limits: Option<&ClientLimits>) -> Problem {
    let counted = limits.map(|client| client.limits.failed_proof(client.address));
    match counted {
        Some(Err(refused)) => Problem(
            StatusCode::TOO_MANY_REQUESTS,
            "too many attempts with a wrong API key; try again later".to_owned(),
            Some(refused.retry_after_seconds()),
        ),
        _ => Problem::new(
            StatusCode::FORBIDDEN,
            "this is not the API key that the tool was called with",
        ),
    }
}

fn read(encoded: &[u8]) -> Result<BTreeMap<String, String>, Problem> {
    read_parameters(encoded).map_err(|text| Problem::new(StatusCode::BAD_REQUEST, text))
}

fn expired() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "the link has expired, or it is not one of this server; call the tool again to get a new one",
    )
}

fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    let page = problem_page("this request is not supported here");
    allowing(allowed, response(StatusCode::METHOD_NOT_ALLOWED, page))
}

fn consent(
    name: &str,
    host: &str,
    invitation: &Invitation,
    (field, value): (&str, &str),
    asks_for_key: bool,
) -> String {
    let key = match asks_for_key {
        true => {
            "<p><label for=key>Your API key, with which the tool was called:</label></p>\
             <input id=key name=key type=password autocomplete=off required>"
        }
        false => "",
    };
    let body = format!(
        "<h1>Connect your account at {host}</h1>\
         <p>{name} asks to use your account at <strong>{host}</strong> when <strong>you</strong> call the tools of {source}.</p>\
         <dl><dt>You are</dt><dd>{user}</dd><dt>You log in at</dt><dd>{host}, on its own page</dd></dl>\
         <p class=note>Continue only if you asked for this yourself just now.</p>\
         <form method=post action=connect/begin>\
         <input type=hidden name={field} value=\"{value}\">{key}\
         <button name=decision value=allow>Continue</button><button name=decision value=deny formnovalidate>Cancel</button></form>",
        host = escaped(host),
        name = escaped(name),
        source = escaped(invitation.source()),
        user = escaped(invitation.name()),
        value = escaped(value),
    );
    document("Connect an account", &body)
}

fn redirect_to(url: &str) -> Response<Body> {
    let mut response = response(StatusCode::SEE_OTHER, String::new());
    if let Ok(location) = HeaderValue::from_str(url) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn note_page(title: &str, text: &str) -> String {
    document(title, &format!("<h1>{title}</h1><p>{}</p>", escaped(text)))
}

fn problem_page(text: &str) -> String {
    note_page("Not connected", text)
}
