//! State of one worker thread.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::environment::unix_seconds;
use crate::net::Mutex;
use crate::seal::{KeyRing, OpenedSessions, Session};
use crate::telemetry::WorkerCounters;

/// Name of the endpoint `/mcp` in sealed data.
pub const MAIN_ENDPOINT: &str = "mcp";

/// Recently opened sessions and the current time of one worker.
///
/// It is not shared between threads, so its locks are never contended.
#[derive(Debug)]
pub struct WorkerState {
    opened: Mutex<OpenedSessions>,
    /// Sessions of other endpoints than `/mcp`, by endpoint name. An id is valid for one endpoint only.
    elsewhere: Mutex<HashMap<Box<str>, OpenedSessions>>,
    now: AtomicU64,
    cells: Arc<WorkerCounters>,
}

impl WorkerState {
    pub fn new(cells: Arc<WorkerCounters>) -> Self {
        let worker = Self {
            opened: Mutex::default(),
            elsewhere: Mutex::default(),
            now: AtomicU64::new(0),
            cells,
        };
        worker.update_clock();
        worker
    }

    /// Reads the system clock. The owner calls this at least once a second.
    pub fn update_clock(&self) {
        self.now.store(unix_seconds(), Ordering::Relaxed);
    }

    /// Counters of this worker.
    #[inline]
    pub fn cells(&self) -> &Arc<WorkerCounters> {
        &self.cells
    }

    /// Unix time in seconds.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn open(&self, keys: &KeyRing, endpoint: &str, id: &[u8]) -> Option<Arc<Session>> {
        if endpoint != MAIN_ENDPOINT {
            return self.open_elsewhere(keys, endpoint, id);
        }
        let mut opened = self.opened.lock();
        opened.get(keys, endpoint, id)
    }

    fn open_elsewhere(&self, keys: &KeyRing, endpoint: &str, id: &[u8]) -> Option<Arc<Session>> {
        let mut all = self.elsewhere.lock();
        if let Some(opened) = all.get_mut(endpoint) {
            return opened.get(keys, endpoint, id);
        }
        all.entry(endpoint.into())
            .or_default()
            .get(keys, endpoint, id)
    }

    #[cfg(test)]
    pub fn set_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }
}
