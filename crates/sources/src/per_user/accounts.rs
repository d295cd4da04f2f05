//! The model of the page on which users log in: links, the state of a login, and the logins of all sources.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use url::Url;

use super::UserLogins;
use crate::auth::{Principal, PrincipalKind};
use crate::seal::{KeyRing, Purpose};
use crate::source::login::{
    LoginError, PreparedLogin, Redirected, authorization_url, code_of, redeem, secret_text,
};
use crate::source::tokens::Grant;

/// Path of the page, and of the response of issuers.
const PAGE: &str = "/connect";
const CALLBACK: &str = "/connect/callback";
/// Longest state, in bytes: it is a part of URLs, which servers limit to 8 KiB.
const STATE_MAX_BYTES: usize = 6000;
/// Purposes of what is sealed, with the version of its layout.
const LINK: &str = "account-link-1";
const STATE: &str = "account-state-1";

/// Which users the page can recognize in a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecognizedUsers {
    /// Issuer of access tokens whose users can log in in the browser: this server, with `auth.oauth.facade`.
    pub issuer: Option<String>,
    /// True if holders of API keys can show their key.
    pub keys: bool,
    /// True if all callers are the same user: a server without authentication that only this machine can reach.
    pub everybody: bool,
}

/// All logins of users, by source.
#[derive(Clone, Debug, Default)]
pub struct Accounts(pub(super) Option<Arc<Inner>>);

pub(super) struct Inner {
    pub(super) ring: Arc<KeyRing>,
    /// Public URL of the server's root, without a slash at its end.
    pub(super) root: String,
    pub(super) recognized: RecognizedUsers,
    logins: Mutex<BTreeMap<Box<str>, Arc<UserLogins>>>,
}

/// A user who is asked to log in: the content of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    #[serde(rename = "s")]
    pub(super) source: String,
    /// Identity of the user, as [`UserLogins`] stores tokens under it.
    #[serde(rename = "u")]
    pub(super) user: String,
    /// The user's name in logs and lists.
    #[serde(rename = "n")]
    pub(super) name: String,
    /// Subject of the user's token. `None` for holders of API keys.
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    pub(super) subject: Option<String>,
    #[serde(rename = "a", default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_everybody: bool,
    #[serde(rename = "e")]
    pub(super) expires: u64,
}

/// A caller's login at the API of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Name of the source or upstream server.
    pub source: String,
    /// Host of the API.
    pub host: String,
    /// True if the caller has logged in there.
    pub connected: bool,
    /// Issuer of the stored token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Scopes of the stored token, if the issuer stated them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Page on which the caller can log in, valid for 15 minutes.
    pub login_url: String,
}

/// The sealed state of a login at the issuer of an API.
#[derive(Serialize, Deserialize)]
struct LoginState {
    #[serde(rename = "i")]
    invitation: Invitation,
    /// Digest of the browser's cookie.
    #[serde(rename = "b")]
    browser: String,
    #[serde(rename = "v")]
    verifier: String,
    #[serde(rename = "g")]
    grant: Grant,
    #[serde(rename = "m")]
    names_itself: bool,
}

/// Reason why an account was not connected. The messages are for the user, and hold no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// The link or the login has expired, or is not of this server.
    #[error(
        "the link has expired, or it is not one of this server; call the tool again to get a new one"
    )]
    Expired,
    /// The source is no longer configured.
    #[error("the tool that asked for the login is no longer served")]
    Gone,
    /// The response came to another browser than the one that began.
    #[error("this browser did not begin the login; cookies must be allowed for it")]
    OtherBrowser,
    /// The issuer cannot be used.
    #[error("{0}")]
    Login(#[from] LoginError),
    /// The tokens cannot be stored.
    #[error("the login cannot be stored: {0}")]
    Keep(String),
    /// The page cannot recognize callers of this kind.
    #[error("{0}")]
    NotRecognized(String),
    /// The login request would be too long for a URL.
    #[error("the login request is too long for a URL")]
    TooLong,
}

impl AccountError {
    /// Returns the reason as a word, for metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::OtherBrowser => "other_browser",
            Self::Login(LoginError::Denied(_)) => "denied",
            Self::Login(LoginError::MixedUp) => "other_issuer",
            Self::Login(_) => "issuer",
            Self::Keep(_) => "store",
            Self::NotRecognized(_) => "not_recognized",
            Self::TooLong => "too_long",
        }
    }
}

impl Accounts {
    /// Creates the model of the page. `root` is the public URL of the server.
    pub fn new(ring: &Arc<KeyRing>, root: String, recognized: RecognizedUsers) -> Self {
        Self(Some(Arc::new(Inner {
            ring: Arc::clone(ring),
            root,
            recognized,
            logins: Mutex::default(),
        })))
    }

    /// Returns true if any source has logins of users.
    pub fn are_any(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|inner| !inner.logins().is_empty())
    }

    /// Returns the logins of a caller, one for each source that has logins of users.
    ///
    /// # Errors
    ///
    /// The page cannot recognize such a caller, or the store cannot be read.
    pub async fn of(&self, caller: &Principal) -> Result<Vec<Account>, AccountError> {
        let Some(inner) = &self.0 else {
            return Ok(Vec::new());
        };
        let all: Vec<_> = inner.logins().values().cloned().collect();
        let mut accounts = Vec::with_capacity(all.len());
        for logins in all {
            accounts.push(logins.account(caller).await?);
        }
        Ok(accounts)
    }

    /// Ends the login of a caller at the API of a source, and revokes its tokens at the issuer.
    ///
    /// # Errors
    ///
    /// There is no such source or login, or it cannot be removed.
    pub async fn end(&self, caller: &Principal, source: &str) -> Result<(), AccountError> {
        let inner = self.0.as_ref().ok_or(AccountError::Gone)?;
        let logins = inner.of(source)?;
        logins.end(caller).await
    }

    /// Opens the content of a link.
    pub fn invitation(&self, sealed: &str, now: u64) -> Option<Invitation> {
        let inner = self.0.as_ref()?;
        let plain = inner.ring.open(inner.purpose(LINK), sealed.as_bytes())?;
        let invitation: Invitation = serde_json::from_slice(&plain).ok()?;
        (now < invitation.expires).then_some(invitation)
    }

    /// Returns the host of the API, and the login page at its issuer.
    ///
    /// `browser` is the digest of a cookie that only this browser has.
    ///
    /// # Errors
    ///
    /// The issuer cannot be discovered, or the source is gone.
    pub async fn begin(&self, invitation: &Invitation, browser: &str) -> Result<Url, AccountError> {
        let inner = self.0.as_ref().ok_or(AccountError::Gone)?;
        let logins = inner.of(&invitation.source)?;
        let redirect = inner.redirect();
        let PreparedLogin {
            authorize,
            mut grant,
            names_itself,
        } = logins.prepare(&redirect).await?;
        grant.server.clone_from(&invitation.source);
        grant.user = Some(invitation.name.clone());
        let verifier = secret_text();
        let state = LoginState {
            invitation: invitation.clone(),
            browser: browser.to_owned(),
            verifier: verifier.clone(),
            grant: grant.clone(),
            names_itself,
        };
        let plain = serde_json::to_vec(&state).map_err(|_| AccountError::TooLong)?;
        let sealed = inner.ring.seal(inner.purpose(STATE), &plain);
        if STATE_MAX_BYTES < sealed.len() {
            return Err(AccountError::TooLong);
        }
        let mut url = authorization_url(authorize, &grant, &redirect, &verifier, &sealed);
        if !logins.config.parameters.is_empty() {
            url.query_pairs_mut()
                .extend_pairs(&logins.config.parameters);
        }
        Ok(url)
    }

    /// Takes the response of the issuer, and stores the tokens. `of_browser` checks the digest that
    /// [`begin`](Self::begin) was given.
    ///
    /// # Errors
    ///
    /// The response is of another browser or issuer, or the issuer grants no token.
    pub async fn finish(
        &self,
        response: &BTreeMap<String, String>,
        now: u64,
        of_browser: impl FnOnce(&str) -> bool,
    ) -> Result<Invitation, AccountError> {
        let inner = self.0.as_ref().ok_or(AccountError::Gone)?;
        let value = |name: &str| {
            response
                .get(name)
                .filter(|value| !value.is_empty())
                .cloned()
        };
        let sealed = value("state").ok_or(AccountError::Expired)?;
        let plain = inner.ring.open(inner.purpose(STATE), sealed.as_bytes());
        let state: LoginState = plain
            .and_then(|plain| serde_json::from_slice(&plain).ok())
            .ok_or(AccountError::Expired)?;
        if state.invitation.expires <= now {
            return Err(AccountError::Expired);
        }
        if !of_browser(&state.browser) {
            return Err(AccountError::OtherBrowser);
        }
        let logins = inner.of(&state.invitation.source)?;
        let redirected = Redirected {
            code: value("code"),
            state: None,
            iss: value("iss"),
            error: value("error"),
            error_description: value("error_description"),
        };
        let mut grant = state.grant;
        let code = code_of(redirected, &grant.issuer, state.names_itself)?;
        // The configured secret is not stored.
        let secret = logins.config.client_secret.as_ref();
        if let Some(secret) = secret {
            grant.client_secret = Some(secret.expose().to_owned());
        }
        redeem(&mut grant, &code, &inner.redirect(), &state.verifier).await?;
        if secret.is_some() {
            grant.client_secret = None;
        }
        logins.keep(&state.invitation.user, &grant).await?;
        tracing::info!(
            source = state.invitation.source,
            user = state.invitation.name,
            issuer = grant.issuer,
            "a user has logged in to the API of a source"
        );
        Ok(state.invitation)
    }

    /// Returns the host of the API that a link is for.
    pub fn host(&self, invitation: &Invitation) -> Option<String> {
        let logins = self.0.as_ref()?.of(&invitation.source).ok()?;
        Some(logins.host.clone())
    }

    /// Registers the logins of a source, instead of those of the same name before a reload.
    pub(super) fn register(&self, logins: &Arc<UserLogins>) {
        if let Some(inner) = &self.0 {
            inner
                .logins()
                .insert(logins.source.clone(), Arc::clone(logins));
        }
    }
}

impl Inner {
    fn logins(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Arc<UserLogins>>> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, source: &str) -> Result<Arc<UserLogins>, AccountError> {
        self.logins().get(source).cloned().ok_or(AccountError::Gone)
    }

    /// Returns the link for a user.
    pub(super) fn link(&self, invitation: &Invitation) -> String {
        let plain = serde_json::to_vec(invitation).unwrap_or_default();
        let sealed = self.ring.seal(self.purpose(LINK), &plain);
        format!("{}{PAGE}?link={sealed}", self.root)
    }

    fn purpose(&self, kind: &'static str) -> Purpose<'_> {
        Purpose {
            kind,
            endpoint: &self.root,
        }
    }

    fn redirect(&self) -> String {
        format!("{}{CALLBACK}", self.root)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts")
            .field("root", &self.root)
            .field("recognized", &self.recognized)
            .finish_non_exhaustive()
    }
}

impl Invitation {
    /// Name of the source whose API the user logs in to.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The user's name, as in the log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Subject of the user's access token; `None` for holders of API keys.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// Returns true if the server does not distinguish users.
    pub fn is_everybody(&self) -> bool {
        self.is_everybody
    }

    /// Returns true if the holder of a shown credential is the user who was asked to log in.
    pub fn is_of(&self, shown: &Principal) -> bool {
        shown.kind() == PrincipalKind::ApiKey && shown.id() == self.user
    }
}

/// Returns true for the paths of the page, below the server's root.
pub fn is_account_path(path: &str) -> bool {
    path == PAGE
        || path
            .strip_prefix(PAGE)
            .is_some_and(|rest| rest.starts_with('/'))
}
