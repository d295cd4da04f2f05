//! Limits on what callers have at the same time, such as tasks and waiting requests.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::net::{Mutex, ShareKey};

/// Number of things by key. A key without any takes no memory.
#[derive(Debug)]
pub(super) struct Counts<K>(HashMap<K, usize>);

/// Places that are taken, with a maximum in total and for one caller. They are no concurrency permits.
#[derive(Debug)]
pub(super) struct Quota {
    taken: Mutex<Taken>,
    /// Maximum number of places.
    total: usize,
    /// Maximum number of places of one caller. Callers without a share have only the total.
    per_caller: usize,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    each: Counts<ShareKey>,
}

/// A place of a caller; released on drop.
#[derive(Debug)]
pub(super) struct QuotaPlace {
    quota: Arc<Quota>,
    key: ShareKey,
}

/// The maximum that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaExceeded {
    Total,
    Caller,
}

impl<K: Eq + Hash> Counts<K> {
    pub(super) fn of<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.get(key).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Removes one, if there is any.
    pub(super) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(count) = self.0.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(key);
            }
        }
    }
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl Quota {
    pub(super) fn new(total: usize, per_caller: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: Mutex::default(),
            total,
            per_caller,
        })
    }

    /// Takes a place for a caller.
    pub(super) fn take(self: &Arc<Self>, key: ShareKey) -> Result<QuotaPlace, QuotaExceeded> {
        let mut taken = self.taken.lock();
        if self.total <= taken.all {
            return Err(QuotaExceeded::Total);
        }
        if !key.is_none() {
            if self.per_caller <= taken.each.of(&key) {
                return Err(QuotaExceeded::Caller);
            }
            taken.each.add(key);
        }
        taken.all += 1;
        drop(taken);
        Ok(QuotaPlace {
            quota: Arc::clone(self),
            key,
        })
    }
}

impl Drop for QuotaPlace {
    fn drop(&mut self) {
        let mut taken = self.quota.taken.lock();
        taken.all -= 1;
        taken.each.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_leaves_room_for_others_and_all_together_have_a_bound() {
        let quota = Quota::new(256, 64);
        let callers = ["a", "b", "c", "d", "e"].map(ShareKey::of_principal);
        let mut places = Vec::new();
        for caller in &callers[..4] {
            for _ in 0..64 {
                places.push(quota.take(*caller).expect("room"));
            }
            let exceeded = quota.take(*caller).expect_err("no room");
            let is_last = *caller == callers[3];
            assert_eq!(exceeded == QuotaExceeded::Total, is_last);
        }
        for caller in [callers[4], ShareKey::NONE] {
            assert!(quota.take(caller).is_err());
        }
        places.truncate(1);
        assert!(quota.take(ShareKey::NONE).is_ok());
        places.clear();
        assert_eq!(quota.taken.lock().all, 0);
        assert!(quota.taken.lock().each.0.is_empty());
    }

    #[test]
    fn a_caller_that_may_have_nothing_is_not_remembered() {
        let quota = Quota::new(1, 0);
        let exceeded = quota.take(ShareKey::of_principal("a"));
        assert_eq!(exceeded.expect_err("no room"), QuotaExceeded::Caller);
        assert!(quota.taken.lock().each.0.is_empty());
    }
}
