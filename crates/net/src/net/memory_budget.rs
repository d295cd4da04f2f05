//! Memory for large bodies that arrive between two measurements of the memory in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Memory for large bodies, which clones share. There is no limit before the first measurement.
#[derive(Clone, Debug, Default)]
pub struct MemoryBudget(Arc<Bytes>);

#[derive(Debug)]
struct Bytes {
    /// Bytes that may arrive until the next measurement; `u64::MAX` for any number.
    room: AtomicU64,
    /// Bytes that have arrived since the last one.
    arrived: AtomicU64,
}

impl Default for Bytes {
    fn default() -> Self {
        Self {
            room: AtomicU64::new(u64::MAX),
            arrived: AtomicU64::new(0),
        }
    }
}

impl MemoryBudget {
    /// Sets how many bytes may arrive until the next measurement; `u64::MAX` for any number.
    pub fn set_room(&self, bytes: u64) {
        self.0.room.store(bytes, Relaxed);
        self.0.arrived.store(0, Relaxed);
    }

    /// Returns true if as many bytes could arrive after a measurement.
    pub fn has_room(&self, bytes: u64) -> bool {
        bytes <= self.0.room.load(Relaxed)
    }

    /// Counts bytes that have arrived. Returns false if there is no room for them, and counts nothing.
    pub fn take(&self, bytes: u64) -> bool {
        let room = self.0.room.load(Relaxed);
        if room == u64::MAX {
            return true;
        }
        let fits = |arrived: u64| arrived.checked_add(bytes).filter(|all| *all <= room);
        self.0.arrived.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_fit_are_not_counted() {
        let budget = MemoryBudget::default();
        assert!(budget.take(u64::MAX) && budget.take(u64::MAX));
        budget.set_room(100);
        let shared = budget.clone();
        assert!(budget.take(60) && !shared.take(50) && shared.take(40));
        assert!(!budget.take(1) && budget.has_room(100) && !budget.has_room(101));
        shared.set_room(10);
        assert!(budget.take(10) && !budget.take(1));
    }
}
