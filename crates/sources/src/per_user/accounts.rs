//! The model of the page on which users log in: links, the state of a login, and the logins of all sources.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use url::Url;

use super::UserLogins;
use crate::auth::{Principal, PrincipalKind};
use crate::net::Mutex;
use crate::seal::{KeyRing, Purpose};
use crate::source::login::{
    LoginError, PreparedLogin, Redirected, authorization_url, code_of, redeem, secret_text,
};
use crate::source::tokens::Grant;

/// Path of the page, and of the response of issuers.
const PAGE: &str = "/connect";
const CALLBACK: &str = "/connect/callback";
/// Longest sealed state, in bytes: browsers limit cookies to 4096.
const STATE_MAX_BYTES: usize = 3800;
/// Maximum number of IDs that are tried for one that replaces no other login in the browser.
const IDS_MAX: usize = 64;
/// Purposes of what is sealed, with the version of its layout.
const LINK: &str = "account-link-1";
const STATE: &str = "account-state-2";
const DONE: &str = "account-done-1";

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
    /// Those of each source, the latest last. A reload creates others, and drops them again if it is rejected.
    logins: Mutex<BTreeMap<Box<str>, Vec<Weak<UserLogins>>>>,
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
    /// ID of the login, which the issuer returns.
    #[serde(rename = "b")]
    id: String,
    #[serde(rename = "v")]
    verifier: String,
    #[serde(rename = "g")]
    grant: Grant,
    #[serde(rename = "m")]
    names_itself: bool,
}

/// A login that has begun at the issuer of an API.
#[derive(Clone, Debug)]
pub struct BegunLogin {
    /// Login page of the issuer.
    pub page: Url,
    /// ID of the login, which the issuer returns as `state`.
    pub id: String,
    /// The sealed state, for a cookie of the browser. Issuers limit the length of what they return.
    pub state: String,
    /// End of its validity, in seconds of Unix time.
    pub expires: u64,
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
    #[error("{}", of_login(.0))]
    Login(#[from] LoginError),
    /// The tokens cannot be stored.
    #[error("the login cannot be stored: {0}")]
    Keep(String),
    /// The page cannot recognize callers of this kind.
    #[error("{0}")]
    NotRecognized(String),
    /// The state of the login would be too long for a cookie.
    #[error("the state of the login is too long for a cookie")]
    TooLong,
}

/// Describes a failed login. The messages for `longshore login` name its options, which users of the page do not have.
fn of_login(error: &LoginError) -> String {
    match error {
        LoginError::NoMetadata => {
            "the server does not name its issuer; ask the operator to set auth.per_user.issuer"
                .to_owned()
        }
        LoginError::NoIssuer(issuer) => format!(
            "the issuer {issuer:?} publishes no metadata; ask the operator to correct auth.per_user.issuer, or to set authorize_url and token_url instead"
        ),
        LoginError::NoOAuth => {
            "the server has no OAuth metadata, and registers no clients; ask the operator to set authorize_url and token_url of auth.per_user"
                .to_owned()
        }
        LoginError::NoClient { redirect } => format!(
            "the issuer does not register clients; ask the operator to register one there with the redirect URI {redirect}, and to set auth.per_user.client_id"
        ),
        error => error.to_string(),
    }
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
        self.0.as_ref().is_some_and(|inner| !inner.all().is_empty())
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
        let all = inner.all();
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

    /// Begins a login at the issuer of the API. `is_free` returns true for the ID of a login that replaces no other one in
    /// the browser.
    ///
    /// # Errors
    ///
    /// The issuer cannot be discovered, or the source is gone.
    pub async fn begin(
        &self,
        invitation: &Invitation,
        is_free: impl Fn(&str) -> bool,
    ) -> Result<BegunLogin, AccountError> {
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
        let mut ids = std::iter::repeat_with(secret_text).take(IDS_MAX);
        let id = ids.find(|id| is_free(id)).unwrap_or_else(secret_text);
        let verifier = secret_text();
        let state = LoginState {
            invitation: invitation.clone(),
            id: id.clone(),
            verifier: verifier.clone(),
            grant: grant.clone(),
            names_itself,
        };
        let plain = serde_json::to_vec(&state).map_err(|_| AccountError::TooLong)?;
        let sealed = inner.ring.seal(inner.purpose(STATE), &plain);
        if STATE_MAX_BYTES < sealed.len() {
            return Err(AccountError::TooLong);
        }
        let mut page = authorization_url(authorize, &grant, &redirect, &verifier, &id);
        if !logins.config.parameters.is_empty() {
            page.query_pairs_mut()
                .extend_pairs(&logins.config.parameters);
        }
        Ok(BegunLogin {
            page,
            id,
            state: sealed,
            expires: invitation.expires,
        })
    }

    /// Takes the response of the issuer, and stores the tokens. `sealed` is the state that the browser has.
    ///
    /// # Errors
    ///
    /// The response is of another browser or issuer, or the issuer grants no token.
    pub async fn finish(
        &self,
        response: &BTreeMap<String, String>,
        sealed: Option<&str>,
        now: u64,
    ) -> Result<Invitation, AccountError> {
        let inner = self.0.as_ref().ok_or(AccountError::Gone)?;
        let value = |name: &str| {
            response
                .get(name)
                .filter(|value| !value.is_empty())
                .cloned()
        };
        let id = value("state").ok_or(AccountError::Expired)?;
        let sealed = sealed.ok_or(AccountError::OtherBrowser)?;
        let plain = inner.ring.open(inner.purpose(STATE), sealed.as_bytes());
        let state: LoginState = plain
            .and_then(|plain| serde_json::from_slice(&plain).ok())
            .ok_or(AccountError::Expired)?;
        if state.id != id {
            return Err(AccountError::OtherBrowser);
        }
        if state.invitation.expires <= now {
            return Err(AccountError::Expired);
        }
        let logins = inner.of(&state.invitation.source)?;
        // The settings may name another client or issuer since the login began.
        if !logins.config.has_granted(&state.grant) {
            return Err(AccountError::Expired);
        }
        let redirected = Redirected {
            code: value("code"),
            state: None,
            iss: value("iss"),
            error: value("error"),
            error_description: value("error_description"),
        };
        let mut grant = state.grant;
        // Without a configured issuer, its host is known only.
        let is_of_endpoints = |iss: &String| logins.has_endpoint_of(iss);
        let issuer = redirected.iss.clone().filter(is_of_endpoints);
        let issuer = issuer.as_ref().unwrap_or(&grant.issuer);
        let code = code_of(redirected, issuer, state.names_itself)
            .inspect_err(|_| logins.registrations.forget(&grant.client_id))?;
        // The configured secret is not stored.
        let secret = logins.config.client_secret.as_ref();
        if let Some(secret) = secret {
            grant.client_secret = Some(secret.expose().to_owned());
        }
        let redeemed = redeem(&mut grant, &code, &inner.redirect(), &state.verifier).await;
        if redeemed.is_err() {
            // The issuer may have removed the client.
            logins.registrations.forget(&grant.client_id);
        }
        redeemed?;
        logins.registrations.proven(&grant.client_id);
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

    /// Returns the page that reports a login at the API of a source. It can be loaded again, unlike the response of the issuer,
    /// whose code counts once.
    pub fn done_page(&self, source: &str) -> String {
        let inner = self.0.as_ref();
        let page = inner.map(|inner| {
            let sealed = inner.ring.seal(inner.purpose(DONE), source.as_bytes());
            format!("{}{PAGE}?done={sealed}", inner.root)
        });
        page.unwrap_or_default()
    }

    /// Returns the source of a page of [`done_page`](Self::done_page).
    pub fn done(&self, sealed: &str) -> Option<String> {
        let inner = self.0.as_ref()?;
        let plain = inner.ring.open(inner.purpose(DONE), sealed.as_bytes())?;
        String::from_utf8(plain).ok()
    }

    /// Returns the host of the API that a link is for.
    pub fn host(&self, invitation: &Invitation) -> Option<String> {
        let logins = self.0.as_ref()?.of(&invitation.source).ok()?;
        Some(logins.host.clone())
    }

    /// Registers the logins of a source for as long as they are in use, in front of those of the same name.
    pub(super) fn register(&self, logins: &Arc<UserLogins>) {
        if let Some(inner) = &self.0 {
            let mut all = inner.logins.lock();
            let of_source = all.entry(logins.source.clone()).or_default();
            of_source.retain(|known| 0 < known.strong_count());
            of_source.push(Arc::downgrade(logins));
        }
    }
}

impl Inner {
    /// Returns the logins of all sources that are served.
    fn all(&self) -> Vec<Arc<UserLogins>> {
        self.logins
            .lock()
            .values()
            .filter_map(|all| latest(all))
            .collect()
    }

    pub(super) fn of(&self, source: &str) -> Result<Arc<UserLogins>, AccountError> {
        let found = self.logins.lock().get(source).and_then(|all| latest(all));
        found.ok_or(AccountError::Gone)
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

/// Returns the latest logins that are in use.
fn latest(all: &[Weak<UserLogins>]) -> Option<Arc<UserLogins>> {
    all.iter().rev().find_map(Weak::upgrade)
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
