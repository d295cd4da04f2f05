//! Administration of stored tokens: listing and logout.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use url::Url;

use super::LoginError;
use crate::source::credentials::{AuthConfig, kept_name};
use crate::source::per_user::PerUserConfig;
use crate::source::tokens::{Grant, KeepError, Name, Tokens};

/// Information about a stored token, without the token itself.
#[derive(Clone, Debug)]
pub struct StoredToken {
    /// True for a login; false for a configured refresh token.
    pub is_login: bool,
    /// The user whose own login it is, for sources with `auth.per_user`.
    pub user: Option<String>,
    /// URL of the server as given at login.
    pub server: String,
    /// Resource identifier of the server, as declared or configured.
    pub resource: String,
    pub issuer: String,
    pub client_id: String,
    pub scopes: Vec<String>,
    /// Expiry of the token, if its issuer stated one.
    pub ends: Option<SystemTime>,
    /// True if the token can be refreshed.
    pub is_renewable: bool,
}

impl StoredToken {
    pub(super) fn of(grant: &Grant, is_login: bool) -> Self {
        let ends = grant.expires.map(Duration::from_secs);
        Self {
            is_login,
            user: grant.user.clone(),
            server: grant.server.clone(),
            resource: grant.resource.clone(),
            issuer: grant.issuer.clone(),
            client_id: grant.client_id.clone(),
            scopes: grant.scopes.clone(),
            ends: ends.and_then(|since| UNIX_EPOCH.checked_add(since)),
            is_renewable: grant.refresh_token.is_some(),
        }
    }
}

/// A removed grant.
#[derive(Clone, Debug)]
pub struct LoggedOut {
    pub issuer: String,
    /// True if the issuer revoked the token too (RFC 7009).
    pub is_told: bool,
}

/// Returns a function that adds the store's location to an error.
pub(super) fn kept_in(tokens: &Tokens) -> impl Fn(KeepError) -> LoginError {
    move |source| LoginError::Keep {
        place: tokens.to_string(),
        source,
    }
}

/// Returns all stored tokens.
///
/// # Errors
///
/// The store cannot be read, or is in the memory of another process.
pub async fn logins(tokens: &Tokens) -> Result<Vec<StoredToken>, LoginError> {
    if tokens.are_in_memory() {
        return Err(LoginError::InMemory);
    }
    let all = tokens.all().await.map_err(kept_in(tokens))?;
    let each = all.iter().flat_map(|(name, grants)| {
        let is_login = name.is_of_login();
        grants
            .iter()
            .map(move |grant| StoredToken::of(grant, is_login))
    });
    Ok(each.collect())
}

/// Removes the logins of a server, or that of one issuer, and revokes them at their issuers. If a refresh token is
/// configured, it removes and revokes the tokens obtained with it, so that the configured one is used again.
///
/// # Errors
///
/// There is none, or it cannot be removed.
pub async fn log_out(
    tokens: &Tokens,
    auth: &AuthConfig,
    server: &Url,
    issuer: Option<&str>,
) -> Result<Vec<LoggedOut>, LoginError> {
    if tokens.are_in_memory() {
        return Err(LoginError::InMemory);
    }
    let name = kept_name(auth).unwrap_or_else(|| Name::of_login(server));
    end(tokens, &name, issuer, None).await
}

/// Removes the login of a user at the API of a source, and revokes it at its issuer. `user` is the name of the principal,
/// and `config` the settings of the source.
///
/// # Errors
///
/// There is none, or it cannot be removed.
pub async fn log_out_user(
    tokens: &Tokens,
    source: &str,
    user: &str,
    config: Option<&PerUserConfig>,
) -> Result<Vec<LoggedOut>, LoginError> {
    if tokens.are_in_memory() {
        return Err(LoginError::InMemory);
    }
    let failed = kept_in(tokens);
    let mut out = Vec::new();
    for (name, grants) in tokens.all().await.map_err(&failed)? {
        let is_meant =
            |grant: &Grant| grant.user.as_deref() == Some(user) && grant.server == source;
        if !name.is_of_user() || !grants.iter().any(is_meant) {
            continue;
        }
        out.extend(end_login(tokens, &name, config).await?);
    }
    match out.is_empty() {
        true => Err(LoginError::NoLogin),
        false => Ok(out),
    }
}

/// Removes the login of a user, and revokes it at its issuer. `config` has the secret of the client, which is not stored.
///
/// # Errors
///
/// There is none, or it cannot be removed.
pub(crate) async fn end_login(
    tokens: &Tokens,
    name: &Name,
    config: Option<&PerUserConfig>,
) -> Result<Vec<LoggedOut>, LoginError> {
    // A lock leaves a trace in the store, which a user without a login must not.
    if let Ok(None) = tokens.load(name).await {
        return Err(LoginError::NoLogin);
    }
    end(tokens, name, None, config).await
}

/// Removes the grants under a name, or that of one issuer, and revokes them. `config` has the secret of the client of a user's
/// login.
async fn end(
    tokens: &Tokens,
    name: &Name,
    issuer: Option<&str>,
    config: Option<&PerUserConfig>,
) -> Result<Vec<LoggedOut>, LoginError> {
    // A server that refreshes its token now would store it again.
    let turn = tokens.turn(name).await.map_err(kept_in(tokens))?;
    let forgotten = forget(tokens, name, issuer).await;
    turn.end().await;
    let mut out = Vec::new();
    for grant in forgotten? {
        let grant = match config {
            Some(config) => config.authenticated(&grant),
            None => grant,
        };
        out.push(LoggedOut {
            is_told: revoke(&grant).await,
            issuer: grant.issuer,
        });
    }
    Ok(out)
}

async fn forget(
    tokens: &Tokens,
    name: &Name,
    issuer: Option<&str>,
) -> Result<Vec<Grant>, LoginError> {
    let failed = kept_in(tokens);
    let grants: Vec<Grant> = match tokens.load(name).await {
        Ok(None) => return Err(LoginError::NoLogin),
        Ok(Some(grants)) => match issuer {
            None => grants.iter().cloned().collect(),
            Some(issuer) => grants.of(Some(issuer)).cloned().into_iter().collect(),
        },
        // Unreadable grants cannot be revoked, but are removed all the same.
        Err(KeepError::Foreign) => Vec::new(),
        Err(error) => return Err(failed(error)),
    };
    if grants.is_empty() && issuer.is_some() {
        return Err(LoginError::NoLogin);
    }
    tokens.forget(name, issuer).await.map_err(&failed)?;
    Ok(grants)
}

/// Revokes a token at its issuer (RFC 7009). Returns true on success.
async fn revoke(grant: &Grant) -> bool {
    let Some(endpoint) = &grant.revocation_endpoint else {
        return false;
    };
    let (token, kind) = match &grant.refresh_token {
        Some(token) => (token, "refresh_token"),
        None => (&grant.access_token, "access_token"),
    };
    let fields = [("token", token.as_str()), ("token_type_hint", kind)];
    let revoked = grant.send(endpoint, &fields).await;
    revoked.is_ok_and(|answer| answer.status.is_success())
}
