//! Replicas that were seen lately, for operators. Replicas with a shared state announce themselves on the bus.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::net::Mutex;
use crate::telemetry::ServerLifecycle;

/// Time after the last announcement for which a replica is shown. They come every five seconds.
const SHOWN: Duration = Duration::from_secs(20);
/// Maximum number of replicas that are shown.
const SHOWN_MAX: usize = 256;

/// What a replica says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Presence {
    /// Name of the host or pod; empty if unknown.
    name: String,
    version: String,
    /// Number of the configuration in force.
    generation: u64,
    uptime_seconds: u64,
    is_draining: bool,
}

/// The other replicas of a server.
#[derive(Debug)]
pub(super) struct Replicas {
    name: Box<str>,
    seen: Mutex<HashMap<u64, (Presence, Instant)>>,
}

impl Replicas {
    pub(super) fn new(name: Option<&str>) -> Self {
        Self {
            name: name.unwrap_or_default().into(),
            seen: Mutex::default(),
        }
    }

    /// What this replica announces.
    pub(super) fn own(&self, life: &ServerLifecycle) -> Presence {
        Presence {
            name: self.name.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            generation: life.generation(),
            uptime_seconds: life.uptime().as_secs(),
            is_draining: life.is_draining(),
        }
    }

    /// Records the announcement of another replica.
    pub(super) fn saw(&self, replica: u64, presence: Presence) {
        let mut seen = self.seen.lock();
        seen.retain(|_, (_, at)| at.elapsed() < SHOWN);
        if seen.len() < SHOWN_MAX || seen.contains_key(&replica) {
            seen.insert(replica, (presence, Instant::now()));
        }
    }

    /// Describes the other replicas, in the order of their names.
    pub(super) fn described(&self) -> Vec<Value> {
        let mut seen: Vec<_> = self
            .seen
            .lock()
            .iter()
            .filter(|(_, (_, at))| at.elapsed() < SHOWN)
            .map(|(id, (presence, at))| (presence.clone(), *id, at.elapsed().as_secs()))
            .collect();
        seen.sort_by(|(one, id, _), (other, other_id, _)| {
            (&one.name, id).cmp(&(&other.name, other_id))
        });
        let described = seen.into_iter().map(|(presence, id, seconds)| {
            json!({
                "name": match presence.name.is_empty() {
                    true => format!("{id:016x}"),
                    false => presence.name,
                },
                "version": presence.version,
                "config_generation": presence.generation,
                "uptime_seconds": presence.uptime_seconds,
                "draining": presence.is_draining,
                "seen_seconds_ago": seconds,
            })
        });
        described.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::state::SharedState;
    use crate::tests::replica_of;

    fn presence(name: &str) -> Presence {
        Presence {
            name: name.to_owned(),
            ..Replicas::new(None).own(&ServerLifecycle::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_are_shown_until_they_are_silent() {
        let replicas = Replicas::new(Some("a"));
        replicas.saw(2, presence("c"));
        replicas.saw(1, presence("b"));
        let names = || -> Vec<_> {
            let described = replicas.described();
            described.iter().map(|one| one["name"].clone()).collect()
        };
        assert_eq!(names(), ["b", "c"]);
        tokio::time::advance(Duration::from_secs(15)).await;
        replicas.saw(1, presence("b"));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(names(), ["b"]);
        assert_eq!(replicas.described()[0]["seen_seconds_ago"], 6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_without_a_name_is_shown_by_its_number_and_there_is_a_maximum() {
        let replicas = Replicas::new(None);
        for id in 0..300 {
            replicas.saw(id, presence(""));
        }
        let described = replicas.described();
        assert_eq!(described.len(), SHOWN_MAX);
        assert_eq!(described[255]["name"], "00000000000000ff");
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_with_a_shared_state_see_one_another() {
        let state = SharedState::default();
        let [one, other] = [(); 2].map(|()| replica_of(state.clone()));
        for server in [&one, &other] {
            tokio::spawn(Arc::clone(server).run_notifications());
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        for server in [&one, &other] {
            let seen = server.replicas();
            assert_eq!(seen.len(), 1, "{seen:?}");
            assert_eq!(seen[0]["draining"], false);
        }
    }
}
