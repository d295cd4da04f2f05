//! A stored token that is refreshed when it expires.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::HeaderMap;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::dpop_key::{AccessToken, DpopKey, demanded_nonce};
use super::error::{CredentialError, Rejection};
use super::oauth::Issuer;
use crate::source::per_user::PerUserConfig;
use crate::source::tokens::{Grant, Granted, Grants, KeepError, Name, Tokens};

/// Maximum age of the cached state of a login. Users can log in or out at any time.
const LOOKS: Duration = Duration::from_secs(1);
/// Maximum age of the cached state of a configured refresh token, which only servers change.
const LOOKS_CONFIGURED: Duration = Duration::from_secs(60);
/// Interval at which the storage TTL of a token in use is extended.
const PROLONGS: Duration = Duration::from_secs(3600);
/// Time for which a refresh token is not retried after the issuer rejected it, or this server as its client.
const REFUSES: Duration = Duration::from_secs(30);
/// Time for which a token that has not expired is used without a retry after a failed refresh.
const PAUSE: Duration = Duration::from_secs(5);
/// Time for which calls share a failure: those that waited for it, and one that needs the token again at once.
const SHARED: Duration = Duration::from_secs(1);

/// The token for one server or API.
pub(crate) struct Renewed {
    tokens: Tokens,
    name: Name,
    way: GrantType,
    known: ArcSwapOption<CachedToken>,
    own: Mutex<Own>,
}

/// Grant type: the source of the next token.
pub(crate) enum GrantType {
    /// A login, at this issuer if one is given.
    Login(Option<String>),
    /// A user's own login. The settings have the client's secret.
    User(Box<PerUserConfig>),
    /// A configured refresh token.
    Configured(Box<Issuer>),
}

/// Cached token in use.
struct CachedToken {
    grant: Grant,
    token: AccessToken,
    looked: Instant,
}

/// State of the task that reads the store or refreshes the token.
#[derive(Default)]
struct Own {
    /// Token that the server rejected.
    refused: Option<String>,
    /// Grant that could not be stored.
    unkept: Option<Unkept>,
    /// Latest grant, stored or not.
    newest: Option<Grant>,
    /// Refresh token that the issuer rejected, and the time of the rejection.
    ended: Option<(Option<String>, Instant)>,
    /// Latest failure to obtain a token.
    failed: Option<Failure>,
    prolonged: Option<Instant>,
    is_warned: bool,
}

/// A failure to obtain a token, which the calls that waited for it share.
struct Failure {
    at: Instant,
    error: Arc<CredentialError>,
}

struct Unkept {
    /// Stored grant that this one replaces, to detect a concurrent change.
    replaced: Option<Grant>,
    newest: Grant,
}

struct UsableToken {
    grant: Grant,
    is_kept: bool,
}

impl Renewed {
    pub(crate) fn new(tokens: Tokens, name: Name, way: GrantType) -> Self {
        Self {
            tokens,
            name,
            way,
            known: ArcSwapOption::empty(),
            own: Mutex::default(),
        }
    }

    /// Returns a valid token. Concurrent callers wait for the request under way.
    pub(crate) async fn token(self: &Arc<Self>) -> Result<AccessToken, CredentialError> {
        if let Some(token) = self.at_hand() {
            return Ok(token);
        }
        // The caller can be cancelled, and the issuer may grant the token only once.
        let this = Arc::clone(self);
        let got = tokio::spawn(async move { this.get().await }).await;
        got.unwrap_or(Err(CredentialError::Ending))
    }

    /// Records the scopes of an `insufficient_scope` error, so that the next login requests them too.
    pub(super) async fn lacks(&self, scope: &str) {
        let noted = async {
            let turn = self.tokens.turn(&self.name).await?;
            let noted = self.note_lacking(scope).await;
            turn.end().await;
            noted
        };
        if let Err(error) = noted.await {
            tracing::debug!(%error, "cannot store the scopes that a token lacks");
        }
    }

    async fn note_lacking(&self, scope: &str) -> Result<(), KeepError> {
        let kept = self.tokens.load(&self.name).await?;
        let Some(mut grant) = kept
            .as_ref()
            .and_then(|kept| self.way.choose(kept))
            .cloned()
        else {
            return Ok(());
        };
        match matches!(self.way, GrantType::Login(_) | GrantType::User(_)) && grant.lacks(scope) {
            true => self.tokens.keep(&self.name, &grant).await,
            false => Ok(()),
        }
    }

    fn at_hand(&self) -> Option<AccessToken> {
        let known = self.known.load();
        let known = known.as_ref()?;
        let is_recent = known.looked.elapsed() < self.way.poll_interval();
        let is_good = is_recent && known.grant.is_fresh(SystemTime::now());
        is_good.then(|| known.token.clone())
    }

    async fn get(&self) -> Result<AccessToken, CredentialError> {
        let began = Instant::now();
        let mut own = self.own.lock().await;
        if let Some(token) = self.at_hand() {
            return Ok(token);
        }
        // Calls that waited for a failed request would otherwise repeat it one after another.
        let is_shared = |failed: &&Failure| began < failed.at + SHARED;
        if let Some(failed) = own.failed.as_ref().filter(is_shared) {
            return self.without(&own, Arc::clone(&failed.error));
        }
        match self.get_alone(&mut own).await {
            Err(CredentialError::Shared(error)) => self.without(&own, error),
            Err(error) if error.is_failure() => {
                let error = Arc::new(error);
                own.failed = Some(Failure {
                    at: Instant::now(),
                    error: Arc::clone(&error),
                });
                self.without(&own, error)
            }
            got => {
                own.failed = None;
                if matches!(got, Err(CredentialError::NoLogin)) {
                    own.newest = None;
                }
                got
            }
        }
    }

    /// Returns the token that is due for a refresh, if it has not expired; else the reason why there is no other.
    fn without(
        &self,
        own: &Own,
        error: Arc<CredentialError>,
    ) -> Result<AccessToken, CredentialError> {
        match own.valid() {
            Some(grant) => self.remember(grant.clone()),
            None => Err(CredentialError::Shared(error)),
        }
    }

    async fn get_alone(&self, own: &mut Own) -> Result<AccessToken, CredentialError> {
        // Another process may have refreshed the token, or a user may have logged in.
        match self.load(own).await {
            Ok(found) if own.is_good(&found.grant) => {
                self.prolong(own).await;
                return self.remember(found.grant);
            }
            Ok(_) => {}
            Err(CredentialError::Kept(error)) => {
                // A valid token stays usable while the store is unreachable.
                let known = self.known.load_full();
                let known = known.filter(|known| own.is_good(&known.grant));
                let known = known.ok_or(CredentialError::Kept(error))?;
                return self.remember(known.grant.clone());
            }
            Err(error) => {
                self.known.store(None);
                return Err(error);
            }
        }
        if let Some(error) = own.paused() {
            return Err(CredentialError::Shared(error));
        }
        // Refresh tokens are often single-use: one process at a time refreshes.
        let turn = self.tokens.turn(&self.name).await?;
        let got = self.renew(own).await;
        turn.end().await;
        got
    }

    /// Refreshes the token, unless another process did so before the lock was acquired.
    async fn renew(&self, own: &mut Own) -> Result<AccessToken, CredentialError> {
        let found = self.load(own).await?;
        if own.is_good(&found.grant) {
            own.refused = None;
            return self.remember(found.grant);
        }
        if own.has_ended(&found.grant) {
            return Err(self.way.ended());
        }
        let granted = match self.way.next(&found.grant).await {
            Ok(granted) => granted,
            Err(CredentialError::Refused(rejection))
                if rejection.is_denial() && !self.way.is_rejected(&rejection) =>
            {
                // A process that does not take the lock may have been faster.
                let now = self.load(own).await?.grant;
                if now.access_token != found.grant.access_token && own.is_good(&now) {
                    own.refused = None;
                    return self.remember(now);
                }
                own.ended = Some((found.grant.refresh_token, Instant::now()));
                return Err(self.way.ended());
            }
            Err(error) => return Err(error),
        };
        let mut newest = found.grant.clone();
        newest.take(granted, SystemTime::now());
        own.refused = None;
        self.keep(own, found, &newest).await;
        own.newest = Some(newest.clone());
        self.remember(newest)
    }

    async fn keep(&self, own: &mut Own, found: UsableToken, newest: &Grant) {
        let is_other = newest.refresh_token != found.grant.refresh_token;
        let is_configured = matches!(self.way, GrantType::Configured(_));
        if self.tokens.are_in_memory() && is_configured && is_other && !own.is_warned {
            own.is_warned = true;
            tracing::warn!(
                setting = "tokens.store",
                issuer = newest.issuer,
                "the issuer has given another refresh token instead of the one that is configured, and it is forgotten when \
                 this process ends: keep it in a folder (file), or with replicas in the state"
            );
        }
        if let Err(error) = self.tokens.keep(&self.name, newest).await {
            tracing::warn!(
                place = %self.tokens,
                issuer = newest.issuer,
                %error,
                "a renewed token cannot be stored; storing is retried, and until then other processes have the previous token"
            );
            own.unkept = Some(Unkept {
                replaced: found.is_kept.then_some(found.grant),
                newest: newest.clone(),
            });
        }
    }

    /// Reads the stored grant, and stores one that could not be stored before.
    async fn load(&self, own: &mut Own) -> Result<UsableToken, CredentialError> {
        let kept = self.tokens.load(&self.name).await?;
        let found = kept.as_ref().and_then(|grants| self.way.choose(grants));
        if let Some(unkept) = &own.unkept
            && !is_same(unkept.replaced.as_ref(), found)
        {
            // The stored grant changed: a login, a logout or a refresh by another process.
            own.unkept = None;
        }
        if let Some(unkept) = &own.unkept {
            let grant = unkept.newest.clone();
            if self.tokens.keep(&self.name, &grant).await.is_ok() {
                own.unkept = None;
            }
            return Ok(UsableToken {
                grant,
                is_kept: own.unkept.is_none(),
            });
        }
        match found {
            Some(grant) => {
                own.newest = Some(grant.clone());
                Ok(UsableToken {
                    grant: grant.clone(),
                    is_kept: true,
                })
            }
            None => Ok(UsableToken {
                grant: self.way.otherwise(own)?,
                is_kept: false,
            }),
        }
    }

    /// Extends the storage TTL of the token in use.
    async fn prolong(&self, own: &mut Own) {
        if own.prolonged.is_none_or(|at| PROLONGS <= at.elapsed()) {
            own.prolonged = Some(Instant::now());
            self.tokens.prolong(&self.name).await;
        }
    }

    /// Handles a token that the server rejected. Returns true if another one is likely to be available.
    ///
    /// `response` has the headers of the rejection. A demanded nonce is used from then on.
    pub(crate) async fn refused(&self, used: &str, response: &HeaderMap) -> bool {
        if demanded_nonce(response).is_some() {
            let known = self.known.load();
            return known
                .as_ref()
                .is_some_and(|known| known.token.takes_nonce(response));
        }
        let mut own = self.own.lock().await;
        let Ok(found) = self.load(&mut own).await else {
            return false;
        };
        if found.grant.access_token == used {
            // The cache is cleared, so that every caller reads the store first.
            self.known.store(None);
            own.refused = Some(used.to_owned());
            return found.grant.refresh_token.is_some();
        }
        self.known.store(None);
        true
    }

    fn remember(&self, grant: Grant) -> Result<AccessToken, CredentialError> {
        let before = self.known.load();
        let before = before.as_ref().map(|known| (&known.grant, &known.token));
        let token = token_of(&grant, before)?;
        self.known.store(Some(Arc::new(CachedToken {
            grant,
            token: token.clone(),
            looked: Instant::now(),
        })));
        Ok(token)
    }
}

impl Own {
    fn is_good(&self, grant: &Grant) -> bool {
        self.refused.as_ref() != Some(&grant.access_token) && grant.is_fresh(SystemTime::now())
    }

    /// Returns the latest grant if its token has not expired, and the server has not rejected it.
    fn valid(&self) -> Option<&Grant> {
        let newest = self.newest.as_ref()?;
        let is_valid = self.refused.as_ref() != Some(&newest.access_token)
            && newest.is_valid(SystemTime::now());
        is_valid.then_some(newest)
    }

    /// Returns the latest failure if it is too early to try again.
    fn paused(&self) -> Option<Arc<CredentialError>> {
        let Failure { at, error } = self.failed.as_ref()?;
        let pause = match (&**error, self.valid()) {
            (error, _) if error.is_of_client() => REFUSES,
            (_, Some(_)) => PAUSE,
            (_, None) => return None,
        };
        (at.elapsed() < pause).then(|| Arc::clone(error))
    }

    /// Returns true if the issuer recently rejected the refresh token of this grant.
    fn has_ended(&self, grant: &Grant) -> bool {
        self.ended
            .as_ref()
            .is_some_and(|(token, at)| *token == grant.refresh_token && at.elapsed() < REFUSES)
    }
}

impl GrantType {
    fn poll_interval(&self) -> Duration {
        match self {
            Self::Login(_) | Self::User(_) => LOOKS,
            Self::Configured(_) => LOOKS_CONFIGURED,
        }
    }

    fn choose<'g>(&self, grants: &'g Grants) -> Option<&'g Grant> {
        match self {
            Self::Login(issuer) => grants.of(issuer.as_deref()),
            Self::User(_) | Self::Configured(_) => grants.of(None),
        }
    }

    /// Returns the grant to use if none is stored.
    fn otherwise(&self, own: &Own) -> Result<Grant, CredentialError> {
        match self {
            // The user has logged out.
            Self::Login(_) | Self::User(_) => Err(CredentialError::NoLogin),
            // The configured refresh token may have been rotated.
            Self::Configured(issuer) => Ok(own.newest.clone().unwrap_or_else(|| issuer.first())),
        }
    }

    async fn next(&self, grant: &Grant) -> Result<Granted, CredentialError> {
        match self {
            Self::Login(_) => grant.refresh().await,
            Self::User(config) if config.has_granted(grant) => {
                config.authenticated(grant).refresh().await
            }
            // The settings name another client or issuer since the login.
            Self::User(_) => Err(CredentialError::LoginEnded),
            Self::Configured(issuer) => issuer.ask(grant.refresh_token.as_deref()).await,
        }
    }

    /// Returns true if the issuer rejects the configured client, so that another login would not help.
    fn is_rejected(&self, rejection: &Rejection) -> bool {
        let is_configured = match self {
            Self::Login(_) => false,
            Self::User(config) => config.client_id.is_some(),
            Self::Configured(_) => true,
        };
        is_configured && rejection.is_of_client()
    }

    fn ended(&self) -> CredentialError {
        match self {
            Self::Login(_) | Self::User(_) => CredentialError::LoginEnded,
            Self::Configured(_) => CredentialError::RefreshEnded,
        }
    }
}

fn is_same(one: Option<&Grant>, other: Option<&Grant>) -> bool {
    let secrets = |grant: &Grant| (grant.access_token.clone(), grant.refresh_token.clone());
    one.map(secrets) == other.map(secrets)
}

/// Returns the token of a grant. The key of an earlier token is used on, with the nonces that it has.
fn token_of(
    grant: &Grant,
    before: Option<(&Grant, &AccessToken)>,
) -> Result<AccessToken, CredentialError> {
    let key = match &grant.dpop_key {
        Some(stored) if grant.is_bound => {
            let same = before.filter(|(before, _)| before.dpop_key.as_ref() == Some(stored));
            let same = same.and_then(|(_, token)| token.key.clone());
            Some(same.map_or_else(|| DpopKey::read(stored).map(Arc::new), Ok)?)
        }
        _ => None,
    };
    AccessToken::new(&grant.access_token, key)
}

impl fmt::Debug for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed")
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
