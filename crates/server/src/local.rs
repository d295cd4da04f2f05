//! What one worker thread keeps for itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::MAIN;
use crate::seal::{KeyRing, OpenedSessions, Session};
use crate::telemetry::Cells;

/// State of one worker: the sessions it has seen lately, and the time of day, to the second.
///
/// It is shared with nobody, so its lock is never waited for.
#[derive(Debug)]
pub(crate) struct Local {
    opened: Mutex<OpenedSessions>,
    /// Those of endpoints beside `/mcp`, by their names: an id that one has opened says nothing to another.
    elsewhere: Mutex<HashMap<Box<str>, OpenedSessions>>,
    now: AtomicU64,
    cells: Arc<Cells>,
}

impl Local {
    pub(crate) fn new(cells: Arc<Cells>) -> Self {
        let local = Self {
            opened: Mutex::default(),
            elsewhere: Mutex::default(),
            now: AtomicU64::new(0),
            cells,
        };
        local.look_at_the_clock();
        local
    }

    /// Reads the system's clock. Whoever owns the value calls this once a second or more often.
    pub(crate) fn look_at_the_clock(&self) {
        self.now.store(unix_seconds(), Ordering::Relaxed);
    }

    /// What this worker's requests are counted in.
    #[inline]
    pub(crate) fn cells(&self) -> &Arc<Cells> {
        &self.cells
    }

    /// Seconds of Unix time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn open(&self, keys: &KeyRing, mount: &str, id: &[u8]) -> Option<Arc<Session>> {
        if mount != MAIN {
            return self.open_elsewhere(keys, mount, id);
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get(keys, mount, id)
    }

    fn open_elsewhere(&self, keys: &KeyRing, mount: &str, id: &[u8]) -> Option<Arc<Session>> {
        let mut all = self
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = all.get_mut(mount) {
            return opened.get(keys, mount, id);
        }
        all.entry(mount.into()).or_default().get(keys, mount, id)
    }

    #[cfg(test)]
    pub(crate) fn set_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }
}

/// What the system's clock says.
pub(crate) fn unix_seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
