//! Token store in the state that replicas share. The opener of the state encrypts its values.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Grants, KeepError, Name};
use crate::seal::{digest, random_bytes};
use crate::state::{SharedState, StateError, VALUE_MAX_BYTES};

/// One value for each name, and one that lists all names. The state is set when the server opens it; sources are
/// built earlier.
#[derive(Default)]
pub(super) struct SharedTokens(OnceLock<SharedState>);

/// TTL of grants that are not used.
const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
/// Minimum TTL of grants that cannot be refreshed.
const LIFE_MIN: Duration = Duration::from_secs(60);
/// Duration of the lock. Its holder renews it, so that it ends soon after a holder that was killed.
const TURN: Duration = Duration::from_secs(15);
/// Interval of renewals: two of them may fail.
const RENEWAL: Duration = Duration::from_secs(4);
/// Time after which a lock is not renewed any more, far more than requests to the issuer and the state take.
const HELD_MAX: Duration = Duration::from_secs(120);
/// Maximum time that others wait for the lock, longer than those requests take: a refresh can need two requests, the second
/// one with a DPoP nonce.
const PATIENCE: Duration = Duration::from_secs(30);
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
        let mark = Bytes::from(HEXLOWER.encode(&random_bytes::<16>()));
        let patience = Instant::now() + PATIENCE;
        loop {
            if state.put_if_absent(&key, mark.clone(), TURN).await? {
                return Ok(SharedLock::new(state.clone(), key, mark));
            }
            if patience <= Instant::now() {
                return Err(KeepError::Busy);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

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

/// A held lock. It is renewed until it is dropped.
pub(crate) struct SharedLock {
    held: HeldLock,
    renewal: AbortHandle,
}

#[derive(Clone)]
struct HeldLock {
    state: SharedState,
    key: String,
    /// Random value that tells this holder from the next one.
    mark: Bytes,
}

impl SharedLock {
    fn new(state: SharedState, key: String, mark: Bytes) -> Self {
        let held = HeldLock { state, key, mark };
        let renewal = tokio::spawn(held.clone().renew_often()).abort_handle();
        Self { held, renewal }
    }

    pub(super) async fn end(self) {
        // Renewed once more, so that a lock that another replica holds by now is not removed.
        let released = match self.held.renew().await {
            Ok(true) => self.held.state.remove(&self.held.key).await.map(drop),
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            tracing::debug!(%error, "the lock for a token could not be released; others wait until it expires");
        }
    }
}

impl Drop for SharedLock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl HeldLock {
    /// Prolongs the lock. Returns false if it has expired.
    async fn renew(&self) -> Result<bool, StateError> {
        let (old, new) = (self.mark.clone(), self.mark.clone());
        self.state.compare_and_swap(&self.key, old, new, TURN).await
    }

    async fn renew_often(self) {
        let begun = Instant::now();
        while begun.elapsed() < HELD_MAX {
            tokio::time::sleep(RENEWAL).await;
            if let Ok(false) = self.renew().await {
                return;
            }
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
            names.push(name.as_str().to_owned());
            drop_oldest(names, max);
        }
        is_new
    })
    .await
}

/// Drops what exceeds the maximum length of a list, or the size of a value. The grants of the oldest names are the most
/// likely to be gone.
fn drop_oldest(names: &mut Vec<String>, max: usize) {
    // Brackets; quotes and a comma for each.
    let mut bytes = 2;
    let newest = names.iter().rev().take(max);
    let kept = newest.take_while(|name| {
        bytes += name.len() + 3;
        bytes <= VALUE_MAX_BYTES
    });
    let kept = kept.count();
    names.drain(..names.len() - kept);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_expired_is_not_taken_from_the_next_holder() {
        let state = SharedState::default();
        let held = |mark| SharedLock::new(state.clone(), "turn".to_owned(), mark);
        let taken = async |mark: &Bytes| {
            let taken = state.put_if_absent("turn", mark.clone(), TURN).await;
            taken.expect("a state")
        };
        let [first, next] = ["first", "next"].map(Bytes::from);
        assert!(taken(&first).await);
        let late = held(first);
        late.renewal.abort();
        tokio::time::advance(TURN + RENEWAL).await;
        assert!(taken(&next).await);
        late.end().await;
        assert_eq!(state.get("turn").await.expect("a state"), Some(next));
    }

    #[tokio::test]
    async fn a_list_of_names_has_as_many_as_fit_in_a_value() {
        let tokens = SharedTokens::default();
        tokens.is_in(SharedState::default());
        let host = "host.example.".repeat(20);
        let name = |user: usize| Name::of_user("source", &host, &user.to_string());
        let count = 2 * VALUE_MAX_BYTES / host.len();
        let state = tokens.state().expect("a state");
        for user in 0..count {
            list(state, &name(user)).await.expect("room");
        }
        let listed = tokens.names().await.expect("a state");
        assert!(200 < listed.len() && listed.len() < count);
        assert_eq!(listed.last(), Some(&name(count - 1)));
    }
}
