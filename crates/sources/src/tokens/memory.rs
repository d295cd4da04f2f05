//! In-memory token store, lost when the process ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

use super::{Grants, Name};

/// Grants by name. The number of names is bounded by the configuration.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<Name, Kept>>);

#[derive(Default)]
struct Kept {
    grants: Option<Grants>,
    turns: Arc<Turns<()>>,
}

impl Memory {
    fn kept(&self) -> MutexGuard<'_, HashMap<Name, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn look(&self, name: &Name) -> Option<Grants> {
        self.kept().get(name)?.grants.clone()
    }

    pub(super) fn put(&self, name: &Name, grants: Grants) {
        self.kept().entry(name.clone()).or_default().grants = Some(grants);
    }

    pub(super) async fn turn(&self, name: &Name) -> OwnedMutexGuard<()> {
        let turns = Arc::clone(&self.kept().entry(name.clone()).or_default().turns);
        turns.lock_owned().await
    }
}

#[cfg(feature = "cli")]
impl Memory {
    pub(super) fn forget(&self, name: &Name) {
        self.kept().entry(name.clone()).or_default().grants = None;
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.kept().keys().cloned().collect()
    }
}
