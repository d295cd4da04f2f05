//! Credentials for other servers: those of this program, from the configuration, or tokens with the rights of the caller.
//! What a caller sends is never forwarded.

mod assertion;
mod client_key;
mod config;
mod dpop_key;
mod error;
mod header_value;
mod oauth;
mod on_behalf;
mod refreshing;
mod token_request;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use url::{Url, form_urlencoded};

pub use self::assertion::IdentityAssertionConfig;
pub use self::client_key::ClientKeyConfig;
pub use self::config::{AuthConfig, BasicConfig, NamedSecret, OAuthConfig};
pub(super) use self::dpop_key::{ALGORITHM as DPOP_ALGORITHM, AccessToken, DpopKey};
pub(crate) use self::error::{CredentialError, LoginNeeded};
pub(super) use self::header_value::{basic_value, bearer_value, sensitive};
use self::oauth::{Issuer, OAuth};
pub(crate) use self::on_behalf::OnBehalfOf;
pub use self::on_behalf::{ExchangeForm, OnBehalfOfConfig};
pub(super) use self::refreshing::{GrantType, Renewed};
pub(super) use self::token_request::{issuer_client, read_answer, read_token, token_request};
use super::headers::header_name;
use super::parts::SourceParts;
use super::per_user::UserLogins;
use super::redact::{bare, secrets_in};
use super::tokens::Name;
use crate::auth::Principal;
use crate::client::ClientError;
use crate::environment::Secret;
use crate::net::OutgoingRequest;

/// Returns the name of the stored token for a configured refresh token, if there is one.
pub(super) fn kept_name(config: &AuthConfig) -> Option<Name> {
    Issuer::new(config.oauth.as_ref()?, None).ok()?.name()
}

/// Credentials that are added to each request.
#[derive(Default)]
pub(super) enum Credentials {
    #[default]
    None,
    Header(HeaderName, HeaderValue),
    Query(String, Secret),
    BearerFile(PathBuf),
    OAuth(Box<OAuth>),
    /// A stored token that is refreshed.
    Kept(Arc<Renewed>),
    /// The caller's token, exchanged.
    OnBehalfOf(Box<OnBehalfOf>),
    /// The user's own login.
    PerUser(Arc<UserLogins>),
}

/// What credentials are made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means<'m> {
    /// Name of the source or upstream server.
    pub(super) source: &'m str,
    /// URL of the API or server.
    pub(super) server: Option<&'m Url>,
    /// True for an upstream server, whose metadata can name its issuer.
    pub(super) is_mcp: bool,
    pub(super) parts: &'m SourceParts,
}

impl Credentials {
    /// Returns true if they depend on who calls.
    pub(super) fn are_of_caller(&self) -> bool {
        matches!(self, Self::OnBehalfOf(_) | Self::PerUser(_))
    }

    /// Returns with whose identity requests are sent, for the audit log.
    pub(super) fn identity(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OnBehalfOf(_) => "caller",
            Self::PerUser(_) => "user_login",
            Self::Header(..)
            | Self::Query(..)
            | Self::BearerFile(_)
            | Self::OAuth(_)
            | Self::Kept(_) => "service",
        }
    }

    /// Returns the logins of users, if there are any.
    pub(super) fn user_logins(&self) -> Option<&Arc<UserLogins>> {
        match self {
            Self::PerUser(logins) => Some(logins),
            _ => None,
        }
    }

    /// Builds the configured credentials.
    ///
    /// # Errors
    ///
    /// Describes the invalid setting and how to correct it.
    pub(super) fn new(config: &AuthConfig, means: Means<'_>) -> Result<Self, String> {
        let Means {
            source,
            server,
            is_mcp,
            parts,
        } = means;
        let tokens = &parts.tokens;
        let AuthConfig {
            bearer,
            bearer_file,
            basic,
            header,
            query,
            oauth,
            login,
            login_issuer,
            on_behalf_of,
            per_user,
        } = config;
        if 1 < config.methods() {
            return Err("it has several authentication methods; keep one".to_owned());
        }
        if let Some(token) = bearer {
            return Ok(Self::Header(AUTHORIZATION, bearer_value(token.expose())?));
        }
        if let Some(path) = bearer_file {
            read_token(path).map_err(|e| format!("bearer_file {}: {e}", path.display()))?;
            return Ok(Self::BearerFile(path.clone()));
        }
        if let Some(basic) = basic {
            let value = basic_value(&basic.username, basic.password.expose())?;
            return Ok(Self::Header(AUTHORIZATION, value));
        }
        if let Some(named) = header {
            let name = header_name(&named.name)?;
            return Ok(Self::Header(name, sensitive(named.value.expose())?));
        }
        if let Some(per_user) = per_user {
            let server = (server, is_mcp);
            let logins = UserLogins::new(source, per_user, server, tokens, &parts.accounts)?;
            return Ok(Self::PerUser(logins));
        }
        if let Some(exchange) = on_behalf_of {
            return Ok(Self::OnBehalfOf(Box::new(OnBehalfOf::new(
                exchange,
                (source, server),
                &parts.metrics,
            )?)));
        }
        if let Some(named) = query {
            return Ok(Self::Query(named.name.clone(), named.value.clone()));
        }
        if *login {
            let server = server.ok_or("login is for one server with a URL")?;
            if tokens.are_in_memory() {
                return Err(
                    "a login needs a token store that other processes can read, and tokens.store is memory; set tokens.store to file, or to state if there are replicas"
                        .to_owned(),
                );
            }
            let issuer = login_issuer.clone();
            let kept = Renewed::new(
                tokens.clone(),
                Name::of_login(server),
                GrantType::Login(issuer),
            );
            return Ok(Self::Kept(Arc::new(kept)));
        }
        if login_issuer.is_some() {
            return Err("login_issuer is set without login; set login: true".to_owned());
        }
        let Some(config) = oauth else {
            return Ok(Self::None);
        };
        let issuer = Issuer::new(config, server)?;
        Ok(match issuer.name() {
            None => Self::OAuth(Box::new(OAuth::new(issuer))),
            Some(name) => {
                let way = GrantType::Configured(Box::new(issuer));
                Self::Kept(Arc::new(Renewed::new(tokens.clone(), name, way)))
            }
        })
    }

    /// Adds the credentials to a request.
    pub(super) async fn apply(
        &self,
        request: &mut OutgoingRequest,
        caller: Option<&Principal>,
    ) -> Result<(), CredentialError> {
        match self {
            Self::PerUser(logins) => {
                let caller = caller.ok_or(CredentialError::NoCaller)?;
                logins.token(caller).await?.apply(request)?;
            }
            Self::OnBehalfOf(exchange) => {
                let caller = caller.ok_or(CredentialError::NoCaller)?;
                let value = exchange.token(caller).await?;
                request.headers.insert(AUTHORIZATION, value);
            }
            Self::None => {}
            Self::Header(name, value) => {
                request.headers.insert(name, value.clone());
            }
            Self::Query(name, value) => set_parameter(&mut request.url, name, value.expose()),
            Self::BearerFile(path) => {
                let token = read_token(path).map_err(CredentialError::File)?;
                let value = bearer_value(&token).map_err(|_| CredentialError::NotText)?;
                request.headers.insert(AUTHORIZATION, value);
            }
            Self::OAuth(oauth) => {
                oauth.token().await?.apply(request)?;
            }
            Self::Kept(kept) => {
                kept.token().await?.apply(request)?;
            }
        }
        Ok(())
    }

    /// Returns the secrets that a request was sent with.
    pub(super) fn secrets<'s>(&'s self, request: &'s OutgoingRequest) -> Vec<Cow<'s, str>> {
        match self {
            Self::None => Vec::new(),
            Self::Query(_, value) => vec![value.expose().into()],
            Self::Header(name, _) => secrets_in(request.headers.get(name)),
            Self::BearerFile(_)
            | Self::OAuth(_)
            | Self::Kept(_)
            | Self::OnBehalfOf(_)
            | Self::PerUser(_) => secrets_in(request.headers.get(AUTHORIZATION)),
        }
    }

    /// Handles a 401 response with these headers. Returns true if a retry can succeed.
    pub(super) async fn refused(
        &self,
        request: &OutgoingRequest,
        response: &HeaderMap,
        caller: Option<&Principal>,
    ) -> bool {
        match self {
            Self::OnBehalfOf(exchange) => caller.is_some_and(|caller| exchange.refused(caller)),
            Self::PerUser(logins) => match caller {
                Some(caller) => {
                    let used = bare(request.headers.get(AUTHORIZATION));
                    logins.refused(caller, used, response).await
                }
                None => false,
            },
            Self::OAuth(oauth) => {
                oauth
                    .refused(request.headers.get(AUTHORIZATION), response)
                    .await;
                true
            }
            Self::Kept(kept) => {
                let used = bare(request.headers.get(AUTHORIZATION));
                kept.refused(used, response).await
            }
            _ => false,
        }
    }
}

/// Sets a query parameter, and removes others of the same name. The URL of a next page often repeats the credentials.
pub(super) fn set_parameter(url: &mut Url, name: &str, value: &str) {
    let is_other = |pair: &&str| form_urlencoded::parse(pair.as_bytes()).all(|(n, _)| n != name);
    let others: Vec<&str> = url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(is_other)
        .collect();
    let others = others.join("&");
    url.set_query(Some(&*others).filter(|others| !others.is_empty()));
    url.query_pairs_mut().append_pair(name, value);
}

impl crate::client::Credentials for Credentials {
    fn apply<'r>(
        &'r self,
        request: &'r mut OutgoingRequest,
    ) -> BoxFuture<'r, Result<(), ClientError>> {
        let applied = self.apply(request, None);
        Box::pin(async { applied.await.map_err(CredentialError::into_client_error) })
    }

    fn lacks<'r>(&'r self, scope: &'r str) -> BoxFuture<'r, ()> {
        Box::pin(async move {
            if let Self::Kept(kept) = self {
                kept.lacks(scope).await;
            }
        })
    }

    fn refused<'r>(
        &'r self,
        request: &'r OutgoingRequest,
        response: &'r HeaderMap,
    ) -> BoxFuture<'r, bool> {
        Box::pin(self.refused(request, response, None))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Header(..) => "Header",
            Self::Query(..) => "Query",
            Self::BearerFile(_) => "BearerFile",
            Self::OAuth(_) => "OAuth",
            Self::Kept(_) => "Kept",
            Self::OnBehalfOf(_) => "OnBehalfOf",
            Self::PerUser(_) => "PerUser",
        })
    }
}
