//! In-memory token store, lost when the process ends.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

use super::{Grants, KeepError, Name};
use crate::net::Mutex;

/// Maximum number of names: those of the configuration, and one for each user who has logged in.
const NAMES_MAX: usize = 10_000;

/// Grants by name.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<Name, MemoryEntry>>);

#[derive(Default)]
struct MemoryEntry {
    grants: Option<Grants>,
    turns: Arc<Turns<()>>,
}

impl Memory {
    pub(super) fn load(&self, name: &Name) -> Option<Grants> {
        self.0.lock().get(name)?.grants.clone()
    }

    pub(super) fn put(&self, name: &Name, grants: Grants) -> Result<(), KeepError> {
        let mut kept = self.0.lock();
        // Who writes has taken a turn, so that the name is known.
        let is_new = kept.get(name).is_none_or(|entry| entry.grants.is_none());
        let used = || kept.values().filter(|entry| entry.grants.is_some()).count();
        if is_new && NAMES_MAX <= kept.len() && NAMES_MAX <= used() {
            if name.is_of_user() {
                kept.remove(name);
            }
            return Err(KeepError::Full);
        }
        kept.entry(name.clone()).or_default().grants = Some(grants);
        Ok(())
    }

    pub(super) async fn turn(&self, name: &Name) -> OwnedMutexGuard<()> {
        let turns = Arc::clone(&self.0.lock().entry(name.clone()).or_default().turns);
        turns.lock_owned().await
    }

    pub(super) fn forget(&self, name: &Name) {
        let mut kept = self.0.lock();
        match name.is_of_user() {
            true => drop(kept.remove(name)),
            false => kept.entry(name.clone()).or_default().grants = None,
        }
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.0.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_number_of_logins_is_limited_though_each_takes_a_turn_before() {
        let memory = Memory::default();
        let name = |user: usize| Name::of_user("files", "api.example", &user.to_string());
        for user in 0..NAMES_MAX {
            drop(memory.turn(&name(user)).await);
            memory.put(&name(user), Grants::default()).expect("room");
        }
        let next = name(NAMES_MAX);
        drop(memory.turn(&next).await);
        let full = memory.put(&next, Grants::default());
        assert!(matches!(full, Err(KeepError::Full)));
        assert_eq!(memory.names().len(), NAMES_MAX);
        // Known users can log in again, and others once there is room.
        memory.put(&name(0), Grants::default()).expect("known");
        memory.forget(&name(0));
        memory.put(&next, Grants::default()).expect("room");
    }
}
