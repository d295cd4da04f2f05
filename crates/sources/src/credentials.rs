//! Credentials for other servers: those of this program, from the configuration, or tokens with the rights of the caller.
//! What a caller sends is never forwarded.

mod assertion;
mod client_key;
mod config;
mod dpop_key;
mod oauth;
mod on_behalf;
mod refreshing;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use url::Url;
use url::form_urlencoded::{Serializer, byte_serialize};

pub use self::assertion::IdentityAssertionConfig;
pub use self::client_key::ClientKeyConfig;
use self::client_key::ClientKeyError;
pub use self::config::{AuthConfig, BasicConfig, NamedSecret, OAuthConfig};
pub(super) use self::dpop_key::{ALGORITHM as DPOP_ALGORITHM, AccessToken, DpopKey};
use self::oauth::{Issuer, OAuth};
pub(crate) use self::on_behalf::OnBehalfOf;
use self::on_behalf::Rejection;
pub use self::on_behalf::{ExchangeForm, OnBehalfOfConfig};
pub(super) use self::refreshing::{GrantType, Renewed};
use super::config::SourceParts;
use super::per_user::{LoginNeeded, UserLogins};
use super::redact::{bare, secrets_in};
use super::tokens::{KeepError, Name};
use crate::auth::Principal;
use crate::client::ClientError;
use crate::environment::Secret;
use crate::net::{Client, Deadlines, FetchError, FetchedResponse, Guard, OutgoingRequest};

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

/// Reason why a request cannot be authenticated. The messages hold no secret.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("the credentials for it cannot be read")]
    File(#[source] std::io::Error),
    #[error("the token request cannot be signed with client_key.file")]
    ClientKey(#[from] ClientKeyError),
    #[error("its credentials contain characters that a header cannot hold")]
    NotText,
    #[error("cannot reach its issuer of tokens: {0}")]
    Fetch(#[from] FetchError),
    #[error("its issuer of tokens rejected the request: status {0}")]
    Refused(StatusCode),
    #[error("the response of its issuer is not a token")]
    NoToken,
    #[error("cannot reach its issuer of tokens: {0}")]
    Client(String),
    #[error("its token cannot be read or stored: {0}")]
    Kept(#[from] KeepError),
    #[error(
        "the key that the token is bound to cannot be used; log in again with `longshore login`"
    )]
    DpopKey,
    #[error(
        "the issuer did not bind the token to a key (RFC 9449); remove oauth.dpop, or change the client's settings there"
    )]
    NotBound,
    #[error("too many tokens are being requested; try again in a moment")]
    Busy,
    #[error("this process is ending")]
    Ending,
    #[error("no user has logged in; run `longshore login`")]
    NoLogin,
    #[error("the login has ended; log in again with `longshore login`")]
    LoginEnded,
    #[error(
        "its issuer rejects the refresh token; configure a new one, obtained by a user's consent"
    )]
    RefreshEnded,
    #[error("there is no caller whose rights could be used")]
    NoCaller,
    #[error(
        "it is used with your own rights, for which you need an access token; you authenticated otherwise ({0})"
    )]
    NoCallerToken(&'static str),
    #[error(
        "your access token was not exchanged for one that it accepts ({0}); log in again, or ask the operator of this server to check your rights there"
    )]
    Exchange(Rejection),
    #[error("log in to {} first: open {} in a browser, then call again", .0.host, .0.url)]
    LoginNeeded(LoginNeeded),
    #[error(
        "it is used with your own login, and this server cannot recognize you in a browser; you authenticated as {0}, and it needs a login by auth.oauth.facade or an API key"
    )]
    NotRecognized(&'static str),
}

impl CredentialError {
    /// Returns true if the reason lies with the caller, so that others are not affected and the caller can act on the
    /// message.
    pub(super) fn concerns_caller(&self) -> bool {
        matches!(
            self,
            Self::NoCallerToken(_)
                | Self::Exchange(_)
                | Self::LoginNeeded(_)
                | Self::NotRecognized(_)
        )
    }

    /// Converts it to an error of the MCP client.
    pub(super) fn into_client_error(self) -> ClientError {
        match self {
            Self::LoginNeeded(needed) => ClientError::LoginNeeded {
                url: needed.url.into(),
            },
            error if error.concerns_caller() => ClientError::CallerCredentials(error.to_string()),
            error => ClientError::Credentials(error.to_string()),
        }
    }
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
        let ways = [
            bearer.is_some(),
            bearer_file.is_some(),
            basic.is_some(),
            header.is_some(),
            query.is_some(),
            oauth.is_some(),
            *login,
            on_behalf_of.is_some(),
            per_user.is_some(),
        ];
        if ways.iter().filter(|given| **given).count() > 1 {
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
            let name = HeaderName::try_from(&*named.name)
                .map_err(|_| format!("{:?} is not a valid header name", named.name))?;
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
            Self::Query(name, value) => {
                request
                    .url
                    .query_pairs_mut()
                    .append_pair(name, value.expose());
            }
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

/// Parses an issuer's response to a token request.
pub(super) fn read_answer<T: serde::de::DeserializeOwned>(
    answer: &FetchedResponse,
) -> Result<T, CredentialError> {
    if answer.status != StatusCode::OK {
        return Err(CredentialError::Refused(answer.status));
    }
    serde_json::from_slice(&answer.body).map_err(|_| CredentialError::NoToken)
}

/// Returns the form of a token request with the client's authentication: its ID and, if there is one, its secret. The
/// secret goes into a header unless the issuer expects it in the form.
pub(super) fn token_request(
    endpoint: Url,
    mut form: Serializer<'_, String>,
    (id, secret, in_form): (&str, Option<&str>, bool),
) -> Result<OutgoingRequest, CredentialError> {
    let mut proof = None;
    match secret {
        Some(secret) if !in_form => {
            // RFC 6749, 2.3.1: ID and secret are form-encoded before they become a user name and a password.
            let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let value = basic_value(&encode(id), &encode(secret));
            proof = Some(value.map_err(|_| CredentialError::NotText)?);
        }
        secret => {
            form.append_pair("client_id", id);
            if let Some(secret) = secret {
                form.append_pair("client_secret", secret);
            }
        }
    }
    let request =
        OutgoingRequest::post(endpoint, "application/x-www-form-urlencoded", form.finish()).header(
            http::header::ACCEPT,
            HeaderValue::from_static("application/json"),
        );
    Ok(match proof {
        Some(proof) => request.header(AUTHORIZATION, proof),
        None => request,
    })
}

/// Timeout of requests to an issuer of tokens.
const ISSUER_TIMEOUT: Duration = Duration::from_secs(10);

/// Builds the client for requests to an issuer of tokens.
///
/// # Errors
///
/// The client cannot be built.
fn issuer_client(guard: Guard) -> Result<Client, String> {
    let client = Client::builder(guard)
        .deadlines(Deadlines::total(ISSUER_TIMEOUT))
        .max_body(TOKEN_BYTES)
        .build();
    client.map_err(|error| error.to_string())
}

/// Maximum size of a token file or a token response, in bytes.
const TOKEN_BYTES: usize = 64 * 1024;

/// Returns the first line of a small file.
fn read_token(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(TOKEN_BYTES as u64)
        .read_to_string(&mut text)?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "the file is empty",
        ));
    }
    Ok(token.to_owned())
}

pub(super) fn bearer_value(token: &str) -> Result<HeaderValue, String> {
    sensitive(&format!("Bearer {token}"))
}

fn dpop_value(token: &str) -> Result<HeaderValue, String> {
    sensitive(&format!("DPoP {token}"))
}

pub(super) fn basic_value(username: &str, password: &str) -> Result<HeaderValue, String> {
    if username.contains(':') {
        return Err("a user name cannot have a colon".to_owned());
    }
    let encoded = STANDARD.encode(format!("{username}:{password}"));
    sensitive(&format!("Basic {encoded}"))
}

fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "the secret has characters that no header can hold".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
