//! Measurement window, shared by all slots.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Opens once and closes once. All slots run on one thread, so `Relaxed` ordering is sufficient.
#[derive(Debug)]
pub(super) struct Gate {
    state: AtomicU8,
    left: AtomicU64,
}

impl Gate {
    /// Opens the gate for any number of requests, whose responses are not counted yet.
    pub(super) fn warming_up() -> Self {
        Self {
            state: AtomicU8::new(BEFORE),
            left: AtomicU64::new(u64::MAX),
        }
    }

    /// Opens the gate for exactly `requests` requests, which are all counted.
    pub(super) fn counting(requests: u64) -> Self {
        Self {
            state: AtomicU8::new(OPEN),
            left: AtomicU64::new(requests),
        }
    }

    /// Starts counting responses.
    pub(super) fn open(&self) {
        self.state.store(OPEN, Relaxed);
    }

    /// Stops counting responses and sending requests.
    pub(super) fn close(&self) {
        self.state.store(CLOSED, Relaxed);
    }

    /// Returns true if a response that arrives now is counted.
    pub(super) fn counts(&self) -> bool {
        self.state.load(Relaxed) == OPEN
    }

    /// Returns true if the run is over.
    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Relaxed) == CLOSED
    }

    /// Returns true if another request may be sent.
    pub(super) fn admit(&self) -> bool {
        !self.is_closed()
            && self
                .left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_ok()
    }
}

const BEFORE: u8 = 0;
const OPEN: u8 = 1;
const CLOSED: u8 = 2;
