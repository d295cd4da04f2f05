//! Recognizes the user of a browser, for pages of this server: the provider logs the user in, and no client is involved.

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Response};
use url::Url;

use super::authorize::{Failure, redirect_to};
use super::error::OAuthError;
use super::form::Parameters;
use super::sealed::{self, LoginState, Recognized};
use super::server::AuthorizationServer;
use super::text::random_text;
use crate::environment::unix_seconds;
use crate::net::Body;
use crate::seal::sha256_base64url;

/// Time for which a recognized user can go on, in seconds.
const VISITOR_SECONDS: u64 = 5 * 60;
/// Page to which recognized users return, below the server's root.
const PAGE: &str = "/connect";
/// Length of the browser's cookie: 32 bytes in base64url.
const COOKIE_LEN: usize = 43;

/// A user whom the provider has recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// Value for the page that the browser returns to, as given to [`AuthorizationServer::recognize`].
    pub visit: String,
    /// Subject of the user, as in the access tokens of this server.
    pub subject: String,
}

impl AuthorizationServer {
    /// Sends a browser to the provider. It returns to the page `/connect` with the parameter `visitor`.
    ///
    /// # Errors
    ///
    /// The provider does not respond, or `visit` is too long. The message is for the user.
    pub async fn recognize(
        &self,
        headers: &HeaderMap,
        visit: &str,
    ) -> Result<Response<Body>, String> {
        let browser = self.cookie.of_or_new(headers);
        let digest = browser.digest.clone();
        let begun = self.begin_login(
            visit.to_owned(),
            digest,
            unix_seconds(),
            "the link is too long",
        );
        let url = begun
            .await
            .map_err(|error| error.description.into_owned())?;
        let mut response = redirect_to(&url);
        browser.set_on(&mut response);
        Ok(response)
    }

    /// Takes the provider's response, and sends the browser back to the page.
    pub(super) async fn recognized(
        &self,
        headers: &HeaderMap,
        parameters: &Parameters,
        state: LoginState<String>,
        now: u64,
    ) -> Result<Response<Body>, Failure> {
        self.check_browser(headers, &state.browser)?;
        let user = self
            .logged_in(parameters, (&state.verifier, &state.nonce))
            .await?;
        let recognized = Recognized {
            visit: state.subject,
            subject: user.subject,
            browser: state.browser,
            expires: now + VISITOR_SECONDS,
        };
        let sealed = sealed::seal(&self.ring, &self.issuer, &recognized);
        let url = sealed.and_then(|sealed| {
            let mut url = Url::parse(&format!("{}{PAGE}", self.issuer)).ok()?;
            url.query_pairs_mut().append_pair("visitor", &sealed);
            Some(url)
        });
        let url = url.ok_or_else(|| OAuthError::server_error("the login cannot be sealed"))?;
        Ok(redirect_to(&url))
    }

    /// Returns the recognized user of a browser, from the parameter `visitor`.
    pub fn visitor(&self, headers: &HeaderMap, sealed: &str, now: u64) -> Option<Visitor> {
        let recognized: Recognized = sealed::open(&self.ring, &self.issuer, sealed, now)?;
        let is_same = self.cookie.is_of(headers, &recognized.browser);
        is_same.then_some(Visitor {
            visit: recognized.visit,
            subject: recognized.subject,
        })
    }
}

/// Cookies that a browser may have. Pages that it requests at the same time, before it has one, each set one: by names of
/// their own they do not replace each other.
const BROWSER_COOKIES_MAX: u8 = 32;

/// The cookie that binds a login to a browser.
#[derive(Clone, Copy, Debug)]
pub struct BrowserCookie {
    is_secure: bool,
}

/// A browser, as its cookie identifies it.
#[derive(Debug)]
pub struct Browser {
    /// Digest of the cookie's value.
    pub digest: String,
    /// The header that sets the cookie.
    set: String,
}

impl Browser {
    /// Makes the browser keep the cookie, for longer than the login that begins now can last.
    pub fn set_on(&self, response: &mut Response<Body>) {
        if let Ok(value) = HeaderValue::from_str(&self.set) {
            response.headers_mut().insert(SET_COOKIE, value);
        }
    }
}

impl BrowserCookie {
    /// `is_secure` is true if browsers reach the server by HTTPS.
    pub fn new(is_secure: bool) -> Self {
        Self { is_secure }
    }

    /// Returns the browser of a request. One without a cookie gets one.
    pub fn of_or_new(self, headers: &HeaderMap) -> Browser {
        let known = self.values(headers).next().map(str::to_owned);
        let value = known.unwrap_or_else(random_text);
        let name = self.name(slot_of(&value));
        Browser {
            digest: sha256_base64url(&value),
            set: set_cookie(&name, &value, 3600, self.is_secure),
        }
    }

    /// Returns true if the browser of a request has the cookie with this digest.
    pub fn is_of(self, headers: &HeaderMap, digest: &str) -> bool {
        self.values(headers)
            .any(|value| sha256_base64url(value) == digest)
    }

    /// Returns the values of the cookies that have the right form and are there once.
    fn values(self, headers: &HeaderMap) -> impl Iterator<Item = &str> {
        (0..BROWSER_COOKIES_MAX).filter_map(move |slot| {
            let value = cookie(headers, &self.name(slot))?;
            (value.len() == COOKIE_LEN && slot_of(value) == slot).then_some(value)
        })
    }

    fn name(self, slot: u8) -> String {
        cookie_name("login", slot, self.is_secure)
    }
}

/// Returns the number in the name of a browser's cookie.
fn slot_of(value: &str) -> u8 {
    value.bytes().fold(0, u8::wrapping_add) % BROWSER_COOKIES_MAX
}

/// Cookies that hold the sealed state of a login at another issuer. So the URLs of the login carry only its ID, as many
/// issuers accept short states only.
#[derive(Clone, Copy, Debug)]
pub struct LoginStateCookie {
    is_secure: bool,
}

/// Logins that a browser can have under way at the same time. Their cookies are a part of each request.
const LOGINS_MAX: u8 = 4;

impl LoginStateCookie {
    /// `is_secure` is true if browsers reach the server by HTTPS.
    pub fn new(is_secure: bool) -> Self {
        Self { is_secure }
    }

    /// Returns the state of the login with this ID, unless a later one has replaced it. It may be that of another login.
    pub fn state(self, headers: &HeaderMap, id: &str) -> Option<String> {
        cookie(headers, &self.name(id)).map(str::to_owned)
    }

    /// Returns true if the state of a login with this ID would replace no other one in the browser.
    pub fn is_free(self, headers: &HeaderMap, id: &str) -> bool {
        let name = self.name(id);
        let mut names = cookies(headers).map(|(name, _)| name);
        names.all(|known| known != name)
    }

    /// Makes the browser keep the state of a login for a time in seconds. With 0 seconds, it forgets it.
    pub fn set_on(self, response: &mut Response<Body>, id: &str, state: &str, seconds: u64) {
        let cookie = set_cookie(&self.name(id), state, seconds, self.is_secure);
        if let Ok(value) = HeaderValue::try_from(cookie) {
            response.headers_mut().append(SET_COOKIE, value);
        }
    }

    fn name(self, id: &str) -> String {
        let slot = id.bytes().next().unwrap_or_default() % LOGINS_MAX;
        cookie_name("connect", slot, self.is_secure)
    }
}

/// Returns the name of a cookie. The prefix keeps other hosts and plain HTTP from setting it.
fn cookie_name(purpose: &str, slot: u8, is_secure: bool) -> String {
    let prefix = if is_secure { "__Host-" } else { "" };
    format!("{prefix}longshore-{purpose}-{slot}")
}

/// Returns the header that makes a browser keep a cookie for a time in seconds.
fn set_cookie(name: &str, value: &str, seconds: u64, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

/// Returns the value of a cookie, if it is base64url and there once.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = cookies(headers).filter_map(|(known, value)| (known == name).then_some(value));
    let value = values.next()?;
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (value.bytes().all(is_base64) && values.next().is_none()).then_some(value)
}

/// Returns all cookies, by name.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(COOKIE).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';'));
    pairs.filter_map(|pair| pair.trim().split_once('='))
}

/// Returns scheme, host and port of a URL, as the header `Origin` names them. Empty for what is not a URL.
pub fn origin_of(url: &str) -> String {
    Url::parse(url).map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
}
