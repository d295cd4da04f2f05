//! Token store in the state that replicas share. The opener of the state encrypts its values.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use tokio::time::Instant;

use super::{Grants, KeepError, Name};
use crate::seal::digest;
use crate::state::{SharedState, StateError};

/// One value for each name, and one that lists all names. The state is set when the server opens it; sources are
/// built earlier.
#[derive(Default)]
pub(super) struct SharedTokens(OnceLock<SharedState>);

/// TTL of grants that are not used.
const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// Minimum TTL of grants that cannot be refreshed.
const LIFE_MIN: Duration = Duration::from_secs(60);
/// Duration of the lock, longer than requests to the issuer and the state take.
const TURN: Duration = Duration::from_secs(15);
/// Time before the lock's expiry from which it is not released any more, since another replica may hold it by then.
const TURN_MARGIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// Key of the list of all names but those of users, and of the list of those. They are for administration; lookups do not
/// use them.
const NAMES: &str = "oauth:names";
const USERS: &str = "oauth:users";
/// Maximum number of listed names.
const NAMES_MAX: usize = 200;
const USERS_MAX: usize = 2000;
/// Maximum number of attempts of a compare-and-swap.
const TRIES: usize = 8;

impl SharedTokens {
    /// Attaches the state.
    pub(super) fn is_in(&self, state: SharedState) {
        // The process has only one state while it serves.
        let _ = self.0.set(state);
    }

    fn state(&self) -> Result<&SharedState, KeepError> {
        self.0.get().ok_or(KeepError::NoState)
    }

    pub(super) async fn load(&self, name: &Name) -> Result<Option<Grants>, KeepError> {
        let text = self.state()?.get(&key("grants", name)).await?;
        text.as_deref().map(Grants::read).transpose()
    }

    pub(super) async fn put(&self, name: &Name, grants: &Grants) -> Result<(), KeepError> {
        let state = self.state()?;
        let text = Bytes::from(grants.text());
        state.put(&key("grants", name), text, life(grants)).await?;
        if let Err(error) = list(state, name).await {
            tracing::warn!(%error, "a token is stored, but cannot be listed");
        }
        Ok(())
    }

    /// Extends the TTL. The value is also encrypted again, so that keys can be rotated.
    pub(super) async fn prolong(&self, name: &Name) {
        let prolonged = async {
            let state = self.state()?;
            let key = key("grants", name);
            if let Some(text) = state.get(&key).await? {
                let life = life(&Grants::read(&text)?);
                // If another replica has changed the value meanwhile, that write has set its TTL.
                state
                    .compare_and_swap(&key, text.clone(), text, life)
                    .await?;
            }
            list(state, name).await?;
            Ok::<_, KeepError>(())
        };
        if let Err(error) = prolonged.await {
            tracing::debug!(%error, "a token is not prolonged now");
        }
    }

    /// Acquires the lock. Waits at most as long as a token request can take.
    pub(super) async fn turn(&self, name: &Name) -> Result<SharedLock, KeepError> {
        let state = self.state()?;
        let key = key("turn", name);
        let patience = Instant::now() + TURN;
        loop {
            let taken = Instant::now();
            if state.put_if_absent(&key, Bytes::new(), TURN).await? {
                return Ok(SharedLock {
                    state: state.clone(),
                    key,
                    until: taken + TURN - TURN_MARGIN,
                });
            }
            if patience <= Instant::now() {
                return Err(KeepError::Busy);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl SharedTokens {
    pub(super) async fn forget(&self, name: &Name) -> Result<(), KeepError> {
        let state = self.state()?;
        state.remove(&key("grants", name)).await?;
        let without = |names: &mut Vec<String>| {
            let before = names.len();
            names.retain(|known| known != name.as_str());
            names.len() != before
        };
        if let Err(error) = change(state, list_of(name).0, without).await {
            tracing::debug!(%error, "the list of tokens has an entry without a token");
        }
        Ok(())
    }

    pub(super) async fn names(&self) -> Result<Vec<Name>, KeepError> {
        let mut all = Vec::new();
        for list in [NAMES, USERS] {
            let text = self.state()?.get(list).await?;
            let names = names_in(text.as_deref());
            all.extend(names.iter().filter_map(|name| Name::read(name)));
        }
        Ok(all)
    }
}

/// A held lock.
pub(crate) struct SharedLock {
    state: SharedState,
    key: String,
    /// Time at which the lock expires.
    until: Instant,
}

impl SharedLock {
    pub(super) async fn end(self) {
        if self.until <= Instant::now() {
            return;
        }
        if let Err(error) = self.state.remove(&self.key).await {
            tracing::debug!(%error, "the lock for a token could not be released; others wait until it expires");
        }
    }
}

/// Returns the key of a name, hashed so that keys do not reveal the servers.
fn key(kind: &str, name: &Name) -> String {
    let digest = HEXLOWER.encode(&digest(&[name.as_str().as_bytes()]));
    format!("oauth:{kind}:{digest}")
}

fn life(grants: &Grants) -> Duration {
    match grants.end() {
        None => LIFE,
        Some(end) => {
            let left = end.duration_since(SystemTime::now()).unwrap_or_default();
            left.clamp(LIFE_MIN, LIFE)
        }
    }
}

/// Returns the list that has a name, and its maximum length.
fn list_of(name: &Name) -> (&'static str, usize) {
    match name.is_of_user() {
        true => (USERS, USERS_MAX),
        false => (NAMES, NAMES_MAX),
    }
}

/// Adds a name to its list.
async fn list(state: &SharedState, name: &Name) -> Result<(), StateError> {
    let (list, max) = list_of(name);
    change(state, list, |names| {
        let is_new = !names.iter().any(|known| known == name.as_str());
        if is_new {
            // The oldest names are dropped, as their grants are the most likely to be gone.
            let surplus = (names.len() + 1).saturating_sub(max);
            names.drain(..surplus);
            names.push(name.as_str().to_owned());
        }
        is_new
    })
    .await
}

/// Changes the list with compare-and-swap. `change` returns true if it changed the list.
async fn change(
    state: &SharedState,
    list: &str,
    change: impl Fn(&mut Vec<String>) -> bool,
) -> Result<(), StateError> {
    for tried in 1..=TRIES {
        let before = state.get(list).await?;
        let mut names = names_in(before.as_deref());
        let is_changed = change(&mut names);
        let text = serde_json::to_vec(&names).unwrap_or_default();
        let done = match before {
            // Writes the unchanged value to renew its TTL.
            Some(before) if !is_changed => {
                state
                    .compare_and_swap(list, before.clone(), before, LIFE)
                    .await?
            }
            Some(before) => {
                state
                    .compare_and_swap(list, before, text.into(), LIFE)
                    .await?
            }
            None if !is_changed => true,
            // The value is encrypted with an unknown key, so it is replaced.
            None if tried == TRIES => {
                state.put(list, text.into(), LIFE).await?;
                true
            }
            None => state.put_if_absent(list, text.into(), LIFE).await?,
        };
        if done {
            return Ok(());
        }
    }
    Ok(())
}

fn names_in(text: Option<&[u8]>) -> Vec<String> {
    text.and_then(|text| serde_json::from_slice(text).ok())
        .unwrap_or_default()
}
