//! When answers count, seen by all slots.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Opens once, closes once. Everything runs on one thread, so `Relaxed` is all it needs.
#[derive(Debug)]
pub(super) struct Gate {
    state: AtomicU8,
    left: AtomicU64,
}

impl Gate {
    /// Requests may be sent without end; answers do not count yet.
    pub(super) fn warming_up() -> Self {
        Self {
            state: AtomicU8::new(BEFORE),
            left: AtomicU64::new(u64::MAX),
        }
    }

    /// Exactly `requests` may be sent, and all of them count.
    pub(super) fn counting(requests: u64) -> Self {
        Self {
            state: AtomicU8::new(OPEN),
            left: AtomicU64::new(requests),
        }
    }

    /// From now on answers count.
    pub(super) fn open(&self) {
        self.state.store(OPEN, Relaxed);
    }

    /// From now on answers do not count, and no more requests are sent.
    pub(super) fn close(&self) {
        self.state.store(CLOSED, Relaxed);
    }

    /// Whether an answer that has come now counts.
    pub(super) fn counts(&self) -> bool {
        self.state.load(Relaxed) == OPEN
    }

    /// Whether all is over.
    pub(super) fn is_closed(&self) -> bool {
        self.state.load(Relaxed) == CLOSED
    }

    /// Leave to send one more request.
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
