//! Looking after what is kept: which tokens there are, and forgetting them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use url::Url;

use super::LoginError;
use crate::source::credentials::{AuthConfig, kept_name};
use crate::source::tokens::{Grant, KeepError, Name, Tokens};

/// What there is to tell of a token that is kept: everything but itself.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Whether it is of somebody's login, and not of a refresh token that was configured.
    pub(crate) is_login: bool,
    /// For which server, as whoever logged in has written it.
    pub(crate) server: String,
    /// The same as the server names itself, or as it is configured.
    pub(crate) resource: String,
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) scopes: Vec<String>,
    /// When the token ends, if its issuer has said.
    pub(crate) ends: Option<SystemTime>,
    /// Whether there is something to get the next one with.
    pub(crate) is_renewable: bool,
}

impl Known {
    pub(super) fn of(grant: &Grant, is_login: bool) -> Self {
        let ends = grant.expires.map(Duration::from_secs);
        Self {
            is_login,
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

/// What was forgotten.
#[derive(Clone, Debug)]
pub(crate) struct LoggedOut {
    pub(crate) issuer: String,
    /// Whether its issuer was told too (RFC 7009).
    pub(crate) is_told: bool,
}

/// What is wrong with a place.
pub(super) fn kept_in(tokens: &Tokens) -> impl Fn(KeepError) -> LoginError {
    move |source| LoginError::Keep {
        place: tokens.to_string(),
        source,
    }
}

/// Everything that is kept.
///
/// # Errors
///
/// It cannot be read, or is in the memory of another process.
pub(crate) async fn logins(tokens: &Tokens) -> Result<Vec<Known>, LoginError> {
    if tokens.are_in_memory() {
        return Err(LoginError::InMemory);
    }
    let all = tokens.all().await.map_err(kept_in(tokens))?;
    let each = all.iter().flat_map(|(name, grants)| {
        let is_login = name.is_of_login();
        grants.iter().map(move |grant| Known::of(grant, is_login))
    });
    Ok(each.collect())
}

/// Forgets the logins of a server, or that of one issuer, and has their issuers do so; or what has come for its configured
/// refresh token, so that it begins with that again.
///
/// # Errors
///
/// There is none, or it cannot be forgotten.
pub(crate) async fn log_out(
    tokens: &Tokens,
    auth: &AuthConfig,
    server: &Url,
    issuer: Option<&str>,
) -> Result<Vec<LoggedOut>, LoginError> {
    if tokens.are_in_memory() {
        return Err(LoginError::InMemory);
    }
    let failed = kept_in(tokens);
    let name = kept_name(auth).unwrap_or_else(|| Name::of_login(server));
    // A server that gets another token just now would put it back.
    let turn = tokens.turn(&name).await.map_err(&failed)?;
    let forgotten = forget(tokens, &name, issuer).await;
    turn.end().await;
    let mut out = Vec::new();
    for grant in forgotten? {
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
    let grants: Vec<Grant> = match tokens.look(name).await {
        Ok(None) => return Err(LoginError::NoLogin),
        Ok(Some(grants)) => match issuer {
            None => grants.iter().cloned().collect(),
            Some(issuer) => grants.of(Some(issuer)).cloned().into_iter().collect(),
        },
        // Nobody can be told of what cannot be read; it goes away all the same.
        Err(KeepError::Foreign) => Vec::new(),
        Err(error) => return Err(failed(error)),
    };
    if grants.is_empty() && issuer.is_some() {
        return Err(LoginError::NoLogin);
    }
    tokens.forget(name, issuer).await.map_err(&failed)?;
    Ok(grants)
}

/// Tells an issuer that a token is not to be good any more (RFC 7009). Tells whether that was so.
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
