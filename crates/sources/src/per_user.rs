//! Each user's own login at the API behind a source, or at an upstream server.
//!
//! A call of a user without a login is answered with a link. The page behind it ([`Accounts`] is its model) recognizes the
//! user in the browser, sends the browser to the issuer of the API, and stores the tokens that the issuer grants, under
//! the source and the user. Nothing but the tokens is stored: the link and the state of the flow, which the browser has as a
//! cookie, are sealed, so that any replica continues a flow.
//!
//! # Threats
//!
//! - A link that is passed on to another person: the page authenticates its visitor, so another person's account is never
//!   connected to the user who asked.
//! - A response that another browser began (RFC 6819, section 4.4.1.7): its state is in a cookie of that browser.
//! - Mix-up (RFC 9207): `iss` is checked as for `longshore login`.

mod preparation;
mod accounts;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use quick_cache::sync::Cache;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

pub use self::accounts::{
    Account, AccountError, Accounts, BegunLogin, Invitation, RecognizedUsers, is_account_path,
};
use super::credentials::{AccessToken, CredentialError, GrantType, LoginNeeded, Renewed};
use super::login::{Issuer, Registrations, end_login};
use super::tokens::{Grant, Name, Tokens, is_same_issuer};
use crate::auth::{Principal, PrincipalKind};
use crate::catalog::{CallContext, ClientRequestError, Elicited, ToolError};
use crate::environment::{Secret, unix_seconds, without_user};
use crate::net::Guard;

/// Each user's own login at the API. A user without a login is asked for one with a link.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PerUserConfig {
    /// URL of the issuer, whose metadata names the endpoints. Default for upstream servers: the issuer that the server
    /// names.
    pub issuer: Option<String>,
    /// URL of the page at which users log in, for issuers without metadata.
    pub authorize_url: Option<String>,
    /// URL of the token endpoint, for issuers without metadata.
    pub token_url: Option<String>,
    /// URL of the revocation endpoint, for issuers without metadata.
    pub revoke_url: Option<String>,
    /// OAuth client ID of this server at the issuer. Without one, the server registers itself, if an upstream server's
    /// issuer supports that (RFC 7591).
    pub client_id: Option<String>,
    /// OAuth client secret.
    pub client_secret: Option<Secret>,
    /// Requested scopes. Default for upstream servers: those that the server names.
    #[serde(deserialize_with = "crate::environment::list")]
    pub scopes: Vec<String>,
    /// Resource that the token is for (RFC 8707, `resource`). Default for upstream servers: the server.
    pub resource: Option<String>,
    /// Further parameters of the login page, such as `access_type: offline` for Google.
    pub parameters: BTreeMap<String, String>,
}

impl PerUserConfig {
    /// Returns true if a stored grant is of the configured client and issuer, as far as they are configured.
    pub(super) fn has_granted(&self, grant: &Grant) -> bool {
        let is = |configured: &Option<String>, stored: &str| {
            let configured = configured.as_deref();
            configured.is_none_or(|configured| is_same_issuer(configured, stored))
        };
        is(&self.client_id, &grant.client_id)
            && is(&self.token_url, &grant.token_endpoint)
            && is(&self.issuer, &grant.issuer)
    }

    /// Returns a stored grant with the configured secret, unless it is of another client or issuer.
    pub(super) fn authenticated(&self, grant: &Grant) -> Grant {
        let mut grant = grant.clone();
        if let Some(secret) = &self.client_secret
            && self.has_granted(&grant)
        {
            grant.client_secret = Some(secret.expose().to_owned());
        }
        grant
    }
}

/// Validity of a link and of the login at the issuer, in seconds.
const INVITATION_SECONDS: u64 = 15 * 60;
/// Maximum number of users whose tokens are cached by one source.
const USERS_CACHED: usize = 10_000;
/// Maximum time that a call waits for a user who has agreed to log in, its share of the call's timeout, and the interval
/// between looks.
const WAIT: Duration = Duration::from_secs(90);
const WAIT_SHARE: f64 = 0.75;
const LOOK: Duration = Duration::from_millis(500);
/// Time for which metadata of an issuer is used.
const METADATA_LIFE: Duration = Duration::from_secs(3600);

/// Logins of users at the API of one source.
pub struct UserLogins {
    source: Box<str>,
    /// Host of the API, for people.
    host: String,
    config: PerUserConfig,
    /// URL of an upstream server, whose metadata names the issuer.
    server: Option<Url>,
    tokens: Tokens,
    accounts: Accounts,
    renewed: Cache<String, Arc<Renewed>>,
    metadata: ArcSwapOption<(Instant, Issuer)>,
    registrations: Registrations,
}

impl UserLogins {
    /// Checks the settings, and registers the logins of the source. `server` is the URL of an API or an upstream server;
    /// `is_mcp` is true for an upstream server.
    ///
    /// # Errors
    ///
    /// Describes the invalid setting and how to correct it.
    pub(super) fn new(
        source: &str,
        config: &PerUserConfig,
        (server, is_mcp): (Option<&Url>, bool),
        tokens: &Tokens,
        accounts: &Accounts,
    ) -> Result<Arc<Self>, String> {
        let wrong = |setting: &str, problem: &str| Err(format!("per_user.{setting}: {problem}"));
        let Some(inner) = &accounts.0 else {
            return Err(
                "per_user needs http.public_url, because users open a page of this server; set it"
                    .to_owned(),
            );
        };
        if inner.recognized == RecognizedUsers::default() {
            return Err(
                "per_user needs users that the server can recognize in a browser; configure auth.oauth.facade or auth.api_keys, or listen on 127.0.0.1 without authentication"
                    .to_owned(),
            );
        }
        let Some(server) = server else {
            return Err("per_user is for one server with a URL".to_owned());
        };
        let urls = [
            ("issuer", &config.issuer),
            ("authorize_url", &config.authorize_url),
            ("token_url", &config.token_url),
            ("revoke_url", &config.revoke_url),
        ];
        for (setting, url) in urls {
            let Some(text) = url else {
                continue;
            };
            let Ok(url) = Url::parse(text) else {
                return wrong(setting, &format!("{:?} is not a URL", without_user(text)));
            };
            if let Err(error) = Guard::public().trust(&url).check_url(&url) {
                return wrong(setting, &error.to_string());
            }
        }
        let is_fixed = config.authorize_url.is_some() || config.token_url.is_some();
        if is_fixed && (config.authorize_url.is_none() || config.token_url.is_none()) {
            return Err(
                "per_user has only one of authorize_url and token_url; set both".to_owned(),
            );
        }
        if is_fixed && config.issuer.is_some() {
            return wrong(
                "issuer",
                "authorize_url and token_url are set too; keep one of them",
            );
        }
        if !is_mcp && !is_fixed && config.issuer.is_none() {
            return wrong(
                "issuer",
                "it is not set; set it, or authorize_url and token_url",
            );
        }
        if (!is_mcp || is_fixed) && config.client_id.is_none() {
            return wrong(
                "client_id",
                "it is not set; register this server at the issuer",
            );
        }
        if config.client_secret.is_some() && is_mcp && !is_fixed && config.issuer.is_none() {
            return wrong(
                "client_secret",
                "the issuer is not named, so the upstream server could choose who receives the secret; set per_user.issuer",
            );
        }
        let logins = Arc::new(Self {
            source: source.into(),
            host: server.host_str().unwrap_or_default().to_owned(),
            config: config.clone(),
            server: is_mcp.then(|| server.clone()),
            tokens: tokens.clone(),
            accounts: accounts.clone(),
            renewed: Cache::new(USERS_CACHED),
            metadata: ArcSwapOption::empty(),
            registrations: Registrations::default(),
        });
        accounts.register(&logins);
        Ok(logins)
    }

    /// Returns the token of a user.
    pub(super) async fn token(&self, caller: &Principal) -> Result<AccessToken, CredentialError> {
        let invitation = self.invitation_of(caller)?;
        match self.renewed(&invitation.user).token().await {
            Err(CredentialError::NoLogin | CredentialError::LoginEnded) => {
                Err(CredentialError::LoginNeeded(self.needed(&invitation)))
            }
            result => result,
        }
    }

    /// Handles a token that the API rejected. Returns true if another one is likely to be available.
    pub(super) async fn refused(
        &self,
        caller: &Principal,
        used: &str,
        response: &HeaderMap,
    ) -> bool {
        match self.invitation_of(caller) {
            Ok(invitation) => self.renewed(&invitation.user).refused(used, response).await,
            Err(_) => false,
        }
    }

    /// Asks the user of a call to log in, unless there is a login already, and waits for it for a while.
    ///
    /// # Errors
    ///
    /// The user did not log in, or the client cannot show the link; the message contains it then.
    pub(super) async fn ensure(&self, context: &CallContext) -> Result<(), ToolError> {
        match self.token(context.principal()).await {
            Err(CredentialError::LoginNeeded(needed)) => self.ask(context, needed).await,
            // Other problems are reported by the request.
            _ => Ok(()),
        }
    }

    async fn ask(&self, context: &CallContext, needed: LoginNeeded) -> Result<(), ToolError> {
        let LoginNeeded { source, host, url } = needed;
        // A call that is replayed asks with the same link.
        let url: Result<String, ToolError> = context
            .step("longshore-login", async { Ok(url.into_string()) })
            .await;
        let url = url?;
        let by_hand =
            format!("{source}: log in to {host} first: open {url} in a browser, then call again");
        let message =
            format!("Log in to {host} with your own account, so that {source} can use it for you.");
        let asked = context
            .elicit_url(message, url)
            .named("longshore-login")
            .required();
        match asked.await {
            Ok(Elicited::Accepted(())) => {}
            Ok(Elicited::Declined | Elicited::Cancelled) => {
                return Err(ToolError::new(format!(
                    "{source}: the login to {host} was declined"
                )));
            }
            Err(ClientRequestError::UrlElicitationRequired(required)) => {
                return Err(ClientRequestError::UrlElicitationRequired(required).into());
            }
            Err(
                ClientRequestError::NotDeclared(_)
                | ClientRequestError::Unsupported(_)
                | ClientRequestError::Unreachable(_)
                | ClientRequestError::TimedOut(_)
                | ClientRequestError::Refused { .. },
            ) => return Err(ToolError::new(by_hand)),
            Err(error) => return Err(error.into()),
        }
        // Before the call ends by its timeout, whose error has no link.
        let patience = context.timeout.map(|timeout| timeout.mul_f64(WAIT_SHARE));
        let deadline = Instant::now() + patience.map_or(WAIT, |patience| patience.min(WAIT));
        // A login that has ended is still stored, so the token itself is looked for.
        while let Err(CredentialError::LoginNeeded(_)) = self.token(context.principal()).await {
            if deadline <= Instant::now() {
                return Err(ToolError::new(by_hand));
            }
            tokio::time::sleep(LOOK).await;
        }
        // Other problems are reported by the request.
        Ok(())
    }

    /// Returns the caller's login. Reads the store.
    async fn account(&self, caller: &Principal) -> Result<Account, AccountError> {
        let invitation = self
            .invitation_of(caller)
            .map_err(|error| AccountError::NotRecognized(error.to_string()))?;
        let found = self.tokens.load(&self.name(&invitation.user)).await;
        let found = found.map_err(|error| AccountError::Keep(error.to_string()))?;
        let grant = found.as_ref().and_then(|grants| grants.iter().next());
        Ok(Account {
            source: self.source.to_string(),
            host: self.host.clone(),
            connected: grant.is_some(),
            issuer: grant.map(|grant| grant.issuer.clone()),
            scopes: grant.map(|grant| grant.scopes.clone()).unwrap_or_default(),
            login_url: self.needed(&invitation).url.into(),
        })
    }

    /// Ends the caller's login: removes its tokens, and revokes them at the issuer.
    async fn end(&self, caller: &Principal) -> Result<(), AccountError> {
        let invitation = self
            .invitation_of(caller)
            .map_err(|error| AccountError::NotRecognized(error.to_string()))?;
        let name = self.name(&invitation.user);
        let ended = end_login(&self.tokens, &name, Some(&self.config)).await;
        self.renewed.remove(&invitation.user);
        for login in ended? {
            tracing::info!(
                source = %self.source,
                user = invitation.name,
                issuer = login.issuer,
                revoked = login.is_told,
                "a user has ended the login at the API of a source"
            );
        }
        Ok(())
    }

    fn renewed(&self, user: &str) -> Arc<Renewed> {
        let made = self.renewed.get_or_insert_with(user, || {
            let way = GrantType::User(Box::new(self.config.clone()));
            let renewed = Renewed::new(self.tokens.clone(), self.name(user), way);
            Ok::<_, std::convert::Infallible>(Arc::new(renewed))
        });
        match made {
            Ok(renewed) => renewed,
            Err(never) => match never {},
        }
    }

    /// Returns true for an issuer at the host of one of the configured endpoints, whose issuer is not configured.
    fn has_endpoint_of(&self, issuer: &str) -> bool {
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
        let issuer = origin(issuer);
        let endpoints = [&self.config.authorize_url, &self.config.token_url];
        let mut endpoints = endpoints.into_iter().flatten();
        issuer.is_some() && endpoints.any(|endpoint| origin(endpoint) == issuer)
    }

    fn name(&self, user: &str) -> Name {
        Name::of_user(&self.source, &self.host, user)
    }

    fn needed(&self, invitation: &Invitation) -> LoginNeeded {
        let inner = self.accounts.0.as_ref();
        let url = inner.map(|inner| inner.link(invitation));
        LoginNeeded {
            source: self.source.clone(),
            host: self.host.as_str().into(),
            url: url.unwrap_or_default().into(),
        }
    }

    /// Returns the identity of a caller, if the page can recognize it in a browser.
    fn invitation_of(&self, caller: &Principal) -> Result<Invitation, CredentialError> {
        let recognized = self.accounts.0.as_ref().map(|inner| &inner.recognized);
        let unknown = || CredentialError::NotRecognized(caller.kind().as_str());
        let recognized = recognized.ok_or_else(unknown)?;
        let invitation = |user: String, subject: Option<&str>| Invitation {
            source: self.source.to_string(),
            user,
            name: caller.name().to_owned(),
            subject: subject.map(str::to_owned),
            is_everybody: false,
            expires: unix_seconds() + INVITATION_SECONDS,
        };
        match caller.kind() {
            PrincipalKind::Token => match (caller.issuer(), caller.subject()) {
                // All clients of a user share the login.
                (Some(issuer), Some(subject)) if recognized.issuer.as_deref() == Some(issuer) => {
                    Ok(invitation(format!("{issuer}\n{subject}"), Some(subject)))
                }
                _ => Err(unknown()),
            },
            PrincipalKind::ApiKey if recognized.keys => {
                Ok(invitation(caller.id().to_owned(), None))
            }
            PrincipalKind::Anonymous | PrincipalKind::Local if recognized.everybody => {
                Ok(Invitation {
                    is_everybody: true,
                    ..invitation("everybody".to_owned(), None)
                })
            }
            _ => Err(unknown()),
        }
    }

    async fn keep(&self, user: &str, grant: &Grant) -> Result<(), AccountError> {
        let failed = |error: super::tokens::KeepError| AccountError::Keep(error.to_string());
        let name = self.name(user);
        // A refresh that is under way would overwrite the new token.
        let turn = self.tokens.turn(&name).await.map_err(failed)?;
        let begun = self.tokens.begin(&name, grant).await;
        turn.end().await;
        begun.map_err(failed)?;
        // The next call reads the store.
        self.renewed.remove(user);
        Ok(())
    }
}

impl fmt::Debug for UserLogins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserLogins")
            .field("source", &self.source)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
