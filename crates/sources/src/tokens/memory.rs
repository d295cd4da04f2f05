//! In-memory token store, lost when the process ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

use super::{Grants, KeepError, Name};

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
    fn kept(&self) -> MutexGuard<'_, HashMap<Name, MemoryEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn load(&self, name: &Name) -> Option<Grants> {
        self.kept().get(name)?.grants.clone()
    }

    pub(super) fn put(&self, name: &Name, grants: Grants) -> Result<(), KeepError> {
        let mut kept = self.kept();
        if NAMES_MAX <= kept.len() && !kept.contains_key(name) {
            return Err(KeepError::Full);
        }
        kept.entry(name.clone()).or_default().grants = Some(grants);
        Ok(())
    }

    pub(super) async fn turn(&self, name: &Name) -> OwnedMutexGuard<()> {
        let turns = Arc::clone(&self.kept().entry(name.clone()).or_default().turns);
        turns.lock_owned().await
    }
}

impl Memory {
    pub(super) fn forget(&self, name: &Name) {
        let mut kept = self.kept();
        match name.is_of_user() {
            true => drop(kept.remove(name)),
            false => kept.entry(name.clone()).or_default().grants = None,
        }
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.kept().keys().cloned().collect()
    }
}
