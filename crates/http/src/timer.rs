//! The clock of a worker.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Seconds since a worker started, counted by its sweep.
#[derive(Debug, Default)]
pub(crate) struct WorkerClock {
    seconds: AtomicU32,
}

impl WorkerClock {
    #[inline]
    pub fn now(&self) -> u32 {
        self.seconds.load(Relaxed)
    }

    pub fn tick(&self) -> u32 {
        self.seconds.fetch_add(1, Relaxed) + 1
    }
}
