//! Liveness: a replica that runs what others may wait for says so, and who waits learns when it says so no longer.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::state::{SharedState, StateError};

/// Which replicas are there.
pub(super) struct Liveness {
    state: SharedState,
    mount: Box<str>,
    replica: u64,
    /// Replicas that are missed, by the key under which they would say that they are there.
    missed: Mutex<HashMap<String, Missed>>,
}

/// How long a replica is taken to be there after it last said so.
const ALIVE: Duration = Duration::from_secs(20);
/// How often it says so.
pub(super) const SAY_ALIVE: Duration = Duration::from_secs(5);
/// How long a replica has to have been missed here before it is taken to be gone: where it was the state that was away,
/// it has time to say that it is there, and again if that fails.
const GRACE: Duration = Duration::from_secs(15);
/// Who was not looked for in so long is missed anew.
const MISSED_FOR: Duration = Duration::from_secs(300);
/// So many replicas are missed at once.
const MISSED_MAX: usize = 1024;

/// Since when a replica is missed, and when it was last looked for.
#[derive(Clone, Copy, Debug)]
struct Missed {
    since: Instant,
    looked: Instant,
}

impl Liveness {
    pub(super) fn new(state: SharedState, mount: &str, replica: u64) -> Arc<Self> {
        Arc::new(Self {
            state,
            mount: mount.into(),
            replica,
            missed: Mutex::default(),
        })
    }

    /// This replica.
    pub(super) fn replica(&self) -> u64 {
        self.replica
    }

    /// Says that this replica is there, and with it the tasks that it runs. To be said again before [`ALIVE`] is over.
    pub(super) async fn say_for_tasks(&self) -> Result<(), StateError> {
        self.say(self.key_of_tasks(self.replica)).await
    }

    /// The same for the calls that it runs, whose streams can be resumed elsewhere.
    pub(super) async fn say_for_calls(&self) -> Result<(), StateError> {
        self.say(self.key_of_calls(short(self.replica))).await
    }

    async fn say(&self, key: String) -> Result<(), StateError> {
        let alive = Bytes::from_static(b"1");
        self.state.put(&key, alive, ALIVE).await
    }

    /// Returns true if the replica that runs a task is there, as far as anybody knows.
    pub(super) async fn runs_tasks(&self, replica: u64) -> Result<bool, StateError> {
        self.is_there(self.key_of_tasks(replica)).await
    }

    /// Returns true if the replica that runs a call is there, as far as anybody knows. It is named by [`short`].
    pub(super) async fn runs_calls(&self, replica: u32) -> Result<bool, StateError> {
        self.is_there(self.key_of_calls(replica)).await
    }

    async fn is_there(&self, key: String) -> Result<bool, StateError> {
        let said = self.state.get(&key).await;
        let said = said.inspect_err(|_| self.miss_nobody())?;
        let mut missed = self.missed();
        missed.retain(|_, missed| missed.looked.elapsed() < MISSED_FOR);
        if said.is_some() {
            missed.remove(&key);
            return Ok(true);
        }
        let now = Instant::now();
        if MISSED_MAX <= missed.len() && !missed.contains_key(&key) {
            return Ok(true);
        }
        let missed = missed.entry(key).or_insert(Missed {
            since: now,
            looked: now,
        });
        missed.looked = now;
        Ok(missed.since.elapsed() < GRACE)
    }

    /// Returns true if a replica is missed.
    pub(super) fn misses_somebody(&self) -> bool {
        !self.missed().is_empty()
    }

    /// Forgets who is missed: it may be the state that was away.
    pub(super) fn miss_nobody(&self) {
        self.missed().clear();
    }

    fn missed(&self) -> MutexGuard<'_, HashMap<String, Missed>> {
        self.missed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key_of_tasks(&self, replica: u64) -> String {
        format!("task-runner/{}/{replica:016x}", self.mount)
    }

    fn key_of_calls(&self, replica: u32) -> String {
        format!("call-runner/{}/{replica:08x}", self.mount)
    }
}

/// The part of a replica's number that the numbers of its calls' streams begin with.
pub(super) fn short(replica: u64) -> u32 {
    (replica >> 32) as u32
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness")
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}
