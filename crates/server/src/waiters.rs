//! Limits on requests that wait: for a source to start, or for the result of a task.

use std::collections::HashMap;
use std::sync::Arc;

use crate::net::{Mutex, ShareKey};

/// Maximum number of requests that wait for a source, in total and for one caller.
const WAITERS_MAX: usize = 256;
const WAITERS_OF_ONE: usize = 64;

/// Number of waiting requests, by caller. They run nothing, so they hold no concurrency permits.
#[derive(Debug)]
pub(super) struct Waiters {
    counts: Mutex<Counts>,
    /// Maximum number of waiting requests.
    total: usize,
    /// Maximum number of waiting requests of one caller.
    per_caller: usize,
}

impl Default for Waiters {
    fn default() -> Self {
        Self::new(WAITERS_MAX, WAITERS_OF_ONE)
    }
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    each: HashMap<ShareKey, usize>,
}

/// Registration of a waiting request; removed on drop.
#[derive(Debug)]
pub(super) struct WaiterSlot {
    waiters: Arc<Waiters>,
    key: ShareKey,
}

impl Waiters {
    pub(super) fn new(total: usize, per_caller: usize) -> Self {
        Self {
            counts: Mutex::default(),
            total,
            per_caller,
        }
    }

    /// Registers a request. Returns `None` if a maximum is reached.
    pub(super) fn enter(waiters: &Arc<Self>, key: ShareKey) -> Option<WaiterSlot> {
        let mut counts = waiters.counts.lock();
        if waiters.total <= counts.all {
            return None;
        }
        if !key.is_none() {
            let own = counts.each.entry(key).or_default();
            if waiters.per_caller <= *own {
                return None;
            }
            *own += 1;
        }
        counts.all += 1;
        drop(counts);
        Some(WaiterSlot {
            waiters: Arc::clone(waiters),
            key,
        })
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        let mut counts = self.waiters.counts.lock();
        counts.all -= 1;
        if let Some(own) = counts.each.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                counts.each.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_room_for_others_and_all_together_have_a_bound() {
        let waiters = Arc::new(Waiters::default());
        let callers = ["a", "b", "c", "d", "e"].map(ShareKey::of_principal);
        let mut places = Vec::new();
        for caller in &callers[..4] {
            for _ in 0..WAITERS_OF_ONE {
                places.push(Waiters::enter(&waiters, *caller).expect("room"));
            }
            assert!(Waiters::enter(&waiters, *caller).is_none());
        }
        assert_eq!(places.len(), WAITERS_MAX);
        for caller in [callers[4], ShareKey::NONE] {
            assert!(Waiters::enter(&waiters, caller).is_none());
        }
        places.truncate(1);
        assert!(Waiters::enter(&waiters, ShareKey::NONE).is_some());
        places.clear();
        assert_eq!(waiters.counts.lock().all, 0);
        assert!(waiters.counts.lock().each.is_empty());
    }
}
