//! The state of a single process, in bounded memory.

mod channels;
mod inner;

use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use tokio::time::Instant;

use self::channels::Listener;
use self::inner::{Inner, Stake};
use super::{Claim, LogPage, Retention, State, StateError, StateFuture, Subscription, Usage};
use crate::net::Mutex;

/// A [`State`] that no other process sees, and that ends with this one.
///
/// It takes no more memory than it was given: contents, keys, indexes and channels are counted with what they cost.
/// Expired entries are dropped. If that is not enough, entries that may go ([`Retention::may_go`], [`Claim::may_go`]) make
/// room: those of the owner that takes most, and never those of an owner that takes less than the one that writes. Of
/// one owner, those go first that would expire first. If there is no room then, nothing more is remembered
/// ([`StateError::Full`]). What may not go and belongs to one owner takes at most a share of the whole
/// ([`StateError::Share`]).
///
/// Tests of several replicas in one process can share one:
///
/// ```
/// use std::sync::Arc;
/// use longshore::App;
/// use longshore::state::Memory;
///
/// let state = Arc::new(Memory::default());
/// let one = App::new().store(state.clone());
/// let other = App::new().store(state);
/// ```
pub struct Memory {
    store: Arc<Store>,
    /// Owner and kind of the entries written through this view.
    stake: Stake,
}

struct Store {
    inner: Mutex<Inner>,
    /// Hashes the names of owners, with a random seed.
    hasher: RandomState,
}

impl Memory {
    /// A state of at most `max_bytes` bytes, of which one owner gets a quarter for what may not go.
    pub fn new(max_bytes: usize) -> Self {
        Self::with_share(max_bytes, super::StateConfig::default().share_percent)
    }

    /// A state of at most `max_bytes` bytes, of which one owner gets `share_percent` per cent for what may not go.
    pub fn with_share(max_bytes: usize, share_percent: u8) -> Self {
        let share_bytes = max_bytes / 100 * usize::from(share_percent.min(100));
        Self {
            store: Arc::new(Store {
                inner: Mutex::new(Inner::new(max_bytes, share_bytes)),
                hasher: RandomState::default(),
            }),
            stake: Stake::SERVER,
        }
    }

    /// Returns how many bytes it takes now.
    pub fn bytes(&self) -> usize {
        self.inner().bytes()
    }

    /// Locks the content, without expired entries.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.store.inner.lock();
        inner.expire(Instant::now());
        inner
    }
}

impl Default for Memory {
    /// As large as is set by default.
    fn default() -> Self {
        Self::new(super::StateConfig::default().memory_bytes)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

fn ready<'a, T: Send + 'a>(result: Result<T, StateError>) -> StateFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl State for Memory {
    fn get<'a>(&'a self, key: &'a str) -> StateFuture<'a, Option<Bytes>> {
        ready(self.inner().get(key))
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, life: Duration) -> StateFuture<'a, ()> {
        ready(self.inner().put(key, &value, life, self.stake))
    }

    fn put_if_absent<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        ready(self.inner().put_if_absent(key, &value, life, self.stake))
    }

    fn compare_and_swap<'a>(
        &'a self,
        key: &'a str,
        expected: Bytes,
        value: Bytes,
        life: Duration,
    ) -> StateFuture<'a, bool> {
        let mut inner = self.inner();
        ready(inner.compare_and_swap(key, &expected, &value, life, self.stake))
    }

    fn remove<'a>(&'a self, key: &'a str) -> StateFuture<'a, bool> {
        ready(Ok(self.inner().remove(key)))
    }

    fn count<'a>(&'a self, key: &'a str, by: u64, life: Duration) -> StateFuture<'a, u64> {
        ready(self.inner().count(key, by, life, self.stake))
    }

    fn append<'a>(&'a self, log: &'a str, entry: Bytes, keep: Retention) -> StateFuture<'a, u64> {
        ready(self.inner().append(log, &entry, keep, self.stake))
    }

    fn read_after<'a>(
        &'a self,
        log: &'a str,
        after: u64,
        max: usize,
    ) -> StateFuture<'a, Option<LogPage>> {
        ready(self.inner().read_after(log, after, max))
    }

    fn trim<'a>(&'a self, log: &'a str, through: u64) -> StateFuture<'a, ()> {
        ready(self.inner().trim(log, through))
    }

    fn publish<'a>(&'a self, channel: &'a str, message: Bytes) -> StateFuture<'a, ()> {
        let wakers = self.inner().publish(channel, &message);
        for waker in wakers {
            waker.wake();
        }
        ready(Ok(()))
    }

    fn subscribe<'a>(&'a self, channel: &'a str) -> StateFuture<'a, Box<dyn Subscription>> {
        let number = self.inner().subscribe(channel);
        ready(number.map(|number| {
            let listener = Listener::new(Arc::clone(&self.store), channel, number);
            Box::new(listener) as Box<dyn Subscription>
        }))
    }

    fn claimed(&self, claim: Claim<'_>) -> Option<Arc<dyn State>> {
        Some(Arc::new(Self {
            store: Arc::clone(&self.store),
            stake: Stake {
                owner: claim.owner.map_or(Stake::SERVER.owner, |owner| {
                    self.store.hasher.hash_one(owner)
                }),
                kind: claim.kind,
                may_go: claim.may_go,
            },
        }))
    }

    fn remove_all<'a>(&'a self, prefix: &'a str) -> StateFuture<'a, ()> {
        self.inner().remove_all(prefix);
        ready(Ok(()))
    }

    fn usage(&self) -> Vec<Usage> {
        self.inner().usage()
    }
}
