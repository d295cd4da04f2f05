//! Liveness of replicas. A replica that runs tasks or resumable calls sends heartbeats to the shared state.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::net::Mutex;
use crate::state::{SharedState, StateError};

/// Liveness of the replicas of one server.
pub(super) struct Liveness {
    state: SharedState,
    endpoint: Box<str>,
    replica: u64,
    /// Replicas without a heartbeat, by the key of the heartbeat.
    missing: Mutex<HashMap<String, MissingPeer>>,
}

/// Time to live of a heartbeat.
const HEARTBEAT_TTL: Duration = Duration::from_secs(20);
/// Value that is written in place of a heartbeat to see whether the store accepts one, and its time to live.
const PROBE: &[u8] = b"probe";
const PROBE_TTL: Duration = Duration::from_secs(1);
/// Interval between heartbeats.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a heartbeat after which a replica counts as gone. It allows for an outage of the state and one failed
/// retry.
const GRACE: Duration = Duration::from_secs(15);
/// Time after which a missing replica that is not checked is forgotten.
const MISSING_TTL: Duration = Duration::from_secs(300);
/// Maximum number of missing replicas.
const MISSING_MAX: usize = 1024;

/// Start of the absence of a replica, and the last check.
#[derive(Clone, Copy, Debug)]
struct MissingPeer {
    since: Instant,
    last_checked: Instant,
}

impl Liveness {
    pub(super) fn new(state: SharedState, endpoint: &str, replica: u64) -> Arc<Self> {
        Arc::new(Self {
            state,
            endpoint: endpoint.into(),
            replica,
            missing: Mutex::default(),
        })
    }

    /// Identifier of this replica.
    pub(super) fn replica(&self) -> u64 {
        self.replica
    }

    /// Sends a heartbeat for the tasks of this replica. Repeat within [`HEARTBEAT_TTL`].
    pub(super) async fn heartbeat_tasks(&self) -> Result<(), StateError> {
        self.beat(self.key_of_tasks(self.replica)).await
    }

    /// Sends a heartbeat for the calls of this replica whose streams can be resumed elsewhere.
    pub(super) async fn heartbeat_calls(&self) -> Result<(), StateError> {
        self.beat(self.key_of_calls(short_id(self.replica))).await
    }

    async fn beat(&self, key: String) -> Result<(), StateError> {
        let alive = Bytes::from_static(b"1");
        self.state.put(&key, alive, HEARTBEAT_TTL).await
    }

    /// Returns true if the replica that runs a task is alive, or not missing for long enough.
    pub(super) async fn runs_tasks(&self, replica: u64) -> Result<bool, StateError> {
        self.is_alive(self.key_of_tasks(replica)).await
    }

    /// Returns true if the replica that runs a call is alive, or not missing for long enough. [`short_id`] gives its
    /// id.
    pub(super) async fn runs_calls(&self, replica: u32) -> Result<bool, StateError> {
        self.is_alive(self.key_of_calls(replica)).await
    }

    async fn is_alive(&self, key: String) -> Result<bool, StateError> {
        let said = self.state.get(&key).await;
        let said = said.inspect_err(|_| self.clear_missing())?;
        if said.is_some_and(|said| *said != *PROBE) {
            self.missing().remove(&key);
            return Ok(true);
        }
        // A store that is full or read-only rejects heartbeats, so their absence means nothing. The probe has the key of
        // the heartbeat, since in a cluster this may hold for the node with that key alone.
        let probe = Bytes::from_static(PROBE);
        let probed = self.state.put_if_absent(&key, probe, PROBE_TTL).await;
        if probed.is_err() {
            self.clear_missing();
            return Ok(true);
        }
        let now = Instant::now();
        let mut missing = self.missing();
        if MISSING_MAX <= missing.len() && !missing.contains_key(&key) {
            return Ok(true);
        }
        let missing = missing.entry(key).or_insert(MissingPeer {
            since: now,
            last_checked: now,
        });
        missing.last_checked = now;
        Ok(missing.since.elapsed() < GRACE)
    }

    /// Returns true if any replica is missing.
    pub(super) fn has_missing_peers(&self) -> bool {
        !self.missing().is_empty()
    }

    /// Clears the list of missing replicas after an outage of the state.
    pub(super) fn clear_missing(&self) {
        self.missing().clear();
    }

    /// Missing replicas that were checked lately.
    fn missing(&self) -> MutexGuard<'_, HashMap<String, MissingPeer>> {
        let mut missing = self.missing.lock();
        missing.retain(|_, missing| missing.last_checked.elapsed() < MISSING_TTL);
        missing
    }

    fn key_of_tasks(&self, replica: u64) -> String {
        format!("task-runner/{}/{replica:016x}", self.endpoint)
    }

    fn key_of_calls(&self, replica: u32) -> String {
        format!("call-runner/{}/{replica:08x}", self.endpoint)
    }
}

/// Part of the replica's identifier that the numbers of its call streams start with.
pub(super) fn short_id(replica: u64) -> u32 {
    (replica >> 32) as u32
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness")
            .field("replica", &self.replica)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Memory;

    /// Fills the store, so that it accepts no heartbeat.
    async fn fill(state: &SharedState) {
        for size in [64, 0] {
            let value = Bytes::from(vec![0; size]);
            for number in 0.. {
                let key = format!("{size}-{number}");
                if state.put(&key, value.clone(), MISSING_TTL).await.is_err() {
                    break;
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_replica_is_missing_while_the_store_accepts_no_heartbeats() {
        let state = SharedState::new(Arc::new(Memory::new(8192)), HEARTBEAT_TTL);
        let [runs, looks] = [1, 2].map(|replica| Liveness::new(state.clone(), "mcp", replica));
        runs.heartbeat_tasks().await.expect("there is room");
        for _ in 0..3 {
            tokio::time::advance(HEARTBEAT_TTL).await;
            fill(&state).await;
            assert!(runs.heartbeat_tasks().await.is_err());
            assert!(looks.runs_tasks(1).await.expect("values can be read"));
        }
        state.remove("64-0").await.expect("a store");
        // From now on its heartbeats would be accepted.
        assert!(looks.runs_tasks(1).await.expect("a store"));
        tokio::time::advance(GRACE).await;
        assert!(!looks.runs_tasks(1).await.expect("a store"));
    }

    #[tokio::test(start_paused = true)]
    async fn whether_heartbeats_are_accepted_is_tried_where_they_are_stored() {
        let state = SharedState::new(Arc::new(Memory::new(8192)), HEARTBEAT_TTL);
        let [runs, looks] = [1, 2].map(|replica| Liveness::new(state.clone(), "mcp", replica));
        assert!(looks.runs_tasks(1).await.expect("a store"));
        // Another node of a cluster may accept what this one does not.
        let tried = state.get(&looks.key_of_tasks(1)).await.expect("a store");
        assert_eq!(tried.as_deref(), Some(PROBE));
        assert!(looks.has_missing_peers(), "a probe is no heartbeat");
        assert!(looks.runs_tasks(1).await.expect("a store"));
        assert!(looks.has_missing_peers());
        runs.heartbeat_tasks().await.expect("there is room");
        assert!(looks.runs_tasks(1).await.expect("a store"));
        assert!(!looks.has_missing_peers());
    }
}
