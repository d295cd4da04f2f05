//! Fair shares of a resource that several callers use.
//!
//! A [`FairSemaphore`] has a fixed number of permits. One caller holds at most three quarters of them, so that the next
//! caller finds one free. Waiting callers are served round robin, independent of their number of waiting calls.
//!
//! The caller is known by a [`ShareKey`]. While a call is polled its key is set for the thread ([`enter`]), so that code
//! deep in a toolset need not pass it along. Work without a key, such as upkeep or a client over standard input, has no
//! share and may take all permits.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::{Arc, LazyLock};

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::lock::Mutex;

/// Maximum number of calls that wait for a permit, of one caller and of all together.
const WAITERS_OF_ONE: usize = 512;
const WAITERS_MAX: usize = 8192;

static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::default);

thread_local! {
    static CURRENT: Cell<ShareKey> = const { Cell::new(ShareKey::NONE) };
}

/// Identifies the caller whose share of a resource is used: a hash of a principal's id, or of a client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShareKey(u64);

impl ShareKey {
    /// No caller in particular. It has no share of its own, and is not limited to one.
    pub const NONE: Self = Self(0);

    /// The key of a principal, by its id.
    pub fn of_principal(id: &str) -> Self {
        // 0 means no caller.
        Self(KEYS.hash_one(id) | 1)
    }

    /// The key of a client that has no name, by its network.
    pub fn of_network(network: u128) -> Self {
        Self(KEYS.hash_one(network) | 1)
    }

    /// The key as a number, which means nothing to other processes.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns true if it identifies no caller.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The key of the call that this thread polls now.
    pub fn current() -> Self {
        CURRENT.get()
    }
}

/// Sets the key of the call that is polled on this thread, until the guard is dropped.
#[inline]
pub fn enter(key: ShareKey) -> ShareGuard {
    ShareGuard(CURRENT.replace(key))
}

/// Restores the previous key when dropped.
#[derive(Debug)]
pub struct ShareGuard(ShareKey);

impl Drop for ShareGuard {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// A semaphore of which one caller cannot take all permits.
#[derive(Clone)]
pub struct FairSemaphore(Arc<Inner>);

struct Inner {
    total: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: usize,
    /// Permits that each caller holds. Callers without any are not listed.
    held: HashMap<ShareKey, usize, RandomState>,
    /// Callers with waiting calls, in the order in which they are served.
    ring: VecDeque<ShareKey>,
    waiting: HashMap<ShareKey, VecDeque<oneshot::Sender<FairPermit>>, RandomState>,
    waiters: usize,
}

/// A permit of a [`FairSemaphore`]; released on drop.
#[must_use]
pub struct FairPermit {
    inner: Option<Arc<Inner>>,
    key: ShareKey,
}

/// The queue for a permit is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many calls wait already")]
pub struct QueueFull;

impl FairSemaphore {
    /// A semaphore with `total` permits, at least one.
    pub fn new(total: usize) -> Self {
        let total = total.max(1);
        let state = State {
            free: total,
            ..State::default()
        };
        Self(Arc::new(Inner {
            total,
            state: Mutex::new(state),
        }))
    }

    /// Number of free permits.
    pub fn available(&self) -> usize {
        self.0.state.lock().free
    }

    /// Number of permits that are held.
    pub fn held(&self) -> usize {
        self.0.total - self.available()
    }

    /// Returns true if the current caller would have to wait.
    pub fn is_exhausted(&self) -> bool {
        !self.0.state.lock().may_take(ShareKey::current())
    }

    /// Takes a permit for a caller, if one is free for it.
    pub(crate) fn try_acquire_for(&self, key: ShareKey) -> Option<FairPermit> {
        self.0.state.lock().take(key).then(|| self.permit(key))
    }

    /// Waits for a permit for the current caller. Dropping the future gives up.
    ///
    /// # Errors
    ///
    /// Too many calls wait already.
    pub async fn acquire(&self) -> Result<FairPermit, QueueFull> {
        self.acquire_for(ShareKey::current()).await
    }

    /// Waits for a permit for a caller. Dropping the future gives up.
    ///
    /// # Errors
    ///
    /// Too many calls wait already.
    pub(crate) async fn acquire_for(&self, key: ShareKey) -> Result<FairPermit, QueueFull> {
        let receiver = {
            let mut state = self.0.state.lock();
            if state.take(key) {
                drop(state);
                return Ok(self.permit(key));
            }
            state.wait(key)?
        };
        let mut queued = Queued {
            inner: &self.0,
            key,
            receiver,
        };
        // A sender leaves the queue only with a permit, or when its receiver has gone.
        (&mut queued.receiver).await.map_err(|_| QueueFull)
    }

    fn permit(&self, key: ShareKey) -> FairPermit {
        FairPermit {
            inner: Some(Arc::clone(&self.0)),
            key,
        }
    }
}

impl Inner {
    fn release(self: &Arc<Self>, key: ShareKey) {
        let mut state = self.state.lock();
        state.give_back(key);
        while let Some((key, waiter)) = state.next() {
            let permit = FairPermit {
                inner: Some(Arc::clone(self)),
                key,
            };
            if let Err(mut refused) = waiter.send(permit) {
                // Dropping it as it is would take the lock once more.
                refused.inner = None;
                state.give_back(key);
            }
        }
    }
}

impl State {
    /// Returns true if a permit is free that a caller may take: beside its first one it leaves at least one free, and holds
    /// at most three times as many as are free.
    fn may_take(&self, key: ShareKey) -> bool {
        if self.free == 0 {
            return false;
        }
        if key.is_none() {
            return true;
        }
        let held = self.held.get(&key).copied().unwrap_or(0);
        held == 0 || 1 < self.free && held < 3 * self.free
    }

    fn take(&mut self, key: ShareKey) -> bool {
        let takes = self.may_take(key);
        if takes {
            self.free -= 1;
            *self.held.entry(key).or_default() += 1;
        }
        takes
    }

    fn give_back(&mut self, key: ShareKey) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(&key) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&key);
            }
        }
    }

    fn wait(&mut self, key: ShareKey) -> Result<oneshot::Receiver<FairPermit>, QueueFull> {
        let queue = self.waiting.entry(key).or_default();
        if WAITERS_OF_ONE <= queue.len() || WAITERS_MAX <= self.waiters {
            if queue.is_empty() {
                self.waiting.remove(&key);
            }
            return Err(QueueFull);
        }
        if queue.is_empty() {
            self.ring.push_back(key);
        }
        let (sender, receiver) = oneshot::channel();
        queue.push_back(sender);
        self.waiters += 1;
        Ok(receiver)
    }

    /// Takes a permit for the next waiting call that may have one: the oldest of the next caller in the ring.
    fn next(&mut self) -> Option<(ShareKey, oneshot::Sender<FairPermit>)> {
        for _ in 0..self.ring.len() {
            let key = self.ring.pop_front()?;
            if !self.may_take(key) {
                self.ring.push_back(key);
                continue;
            }
            let queue = self.waiting.get_mut(&key)?;
            let waiter = queue.pop_front();
            match queue.is_empty() {
                true => drop(self.waiting.remove(&key)),
                false => self.ring.push_back(key),
            }
            if let Some(waiter) = waiter {
                self.waiters -= 1;
                self.take(key);
                return Some((key, waiter));
            }
        }
        None
    }

    /// Removes calls of a caller that wait no longer.
    fn leave(&mut self, key: ShareKey) {
        let Some(queue) = self.waiting.get_mut(&key) else {
            return;
        };
        let before = queue.len();
        queue.retain(|waiter| !waiter.is_closed());
        self.waiters -= before - queue.len();
        if queue.is_empty() {
            self.waiting.remove(&key);
            self.ring.retain(|other| *other != key);
        }
    }
}

/// A call in the queue, which leaves it when dropped.
struct Queued<'a> {
    inner: &'a Inner,
    key: ShareKey,
    receiver: oneshot::Receiver<FairPermit>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        if self.receiver.is_terminated() {
            return;
        }
        self.receiver.close();
        self.inner.state.lock().leave(self.key);
        // A permit that was granted meanwhile is released with the receiver, after this.
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.release(self.key);
        }
    }
}

impl fmt::Debug for FairSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairSemaphore")
            .field("total", &self.0.total)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FairPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FairPermit")
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn key(name: &str) -> ShareKey {
        ShareKey::of_principal(name)
    }

    fn all_of(semaphore: &FairSemaphore, key: ShareKey) -> Vec<FairPermit> {
        std::iter::from_fn(|| semaphore.try_acquire_for(key)).collect()
    }

    #[test]
    fn one_caller_has_at_most_three_quarters_and_the_next_finds_a_permit() {
        for (total, most) in [(1, 1), (2, 1), (4, 3), (8, 6), (16, 12), (128, 96)] {
            let semaphore = FairSemaphore::new(total);
            let hers = all_of(&semaphore, key("alice"));
            assert_eq!(hers.len(), most, "{total}");
            let next = semaphore.try_acquire_for(key("bob"));
            assert_eq!(next.is_some(), 1 < total, "{total}");
            drop((hers, next));
            assert_eq!(semaphore.available(), total);
        }
    }

    #[test]
    fn work_without_a_key_may_take_everything() {
        let semaphore = FairSemaphore::new(4);
        let all = all_of(&semaphore, ShareKey::NONE);
        assert_eq!((all.len(), semaphore.held()), (4, 4));
        assert!(semaphore.is_exhausted());
    }

    #[test]
    fn the_key_of_a_thread_is_restored() {
        assert!(ShareKey::current().is_none());
        let outer = enter(key("alice"));
        {
            let _inner = enter(key("bob"));
            assert_eq!(ShareKey::current(), key("bob"));
        }
        assert_eq!(ShareKey::current(), key("alice"));
        drop(outer);
        assert!(ShareKey::current().is_none());
    }

    #[test]
    fn waiting_callers_are_served_round_robin() {
        let semaphore = FairSemaphore::new(1);
        let mut held = semaphore.try_acquire_for(key("x"));
        let cx = &mut Context::from_waker(Waker::noop());
        let callers = ["alice", "alice", "alice", "bob", "carol"];
        let mut waiting: Vec<_> = callers
            .iter()
            .map(|name| (*name, Box::pin(semaphore.acquire_for(key(name)))))
            .collect();
        for (_, call) in &mut waiting {
            assert!(call.as_mut().poll(cx).is_pending());
        }
        let mut served = Vec::new();
        while !waiting.is_empty() {
            drop(held.take());
            let at = waiting.iter_mut().position(|(_, call)| {
                if let Poll::Ready(permit) = call.as_mut().poll(cx) {
                    held = permit.ok();
                }
                held.is_some()
            });
            served.push(waiting.remove(at.expect("somebody has its turn")).0);
        }
        assert_eq!(served, ["alice", "bob", "carol", "alice", "alice"]);
        drop(held);
        assert_eq!(semaphore.available(), 1);
    }

    #[test]
    fn a_call_that_gives_up_leaves_the_queue_and_loses_no_permit() {
        let semaphore = FairSemaphore::new(1);
        let held = semaphore.try_acquire_for(key("x"));
        let cx = &mut Context::from_waker(Waker::noop());
        {
            let mut gives_up = pin!(semaphore.acquire_for(key("alice")));
            assert!(gives_up.as_mut().poll(cx).is_pending());
            assert_eq!(semaphore.0.state.lock().waiters, 1);
        }
        {
            let state = semaphore.0.state.lock();
            assert!(state.waiters == 0 && state.ring.is_empty() && state.waiting.is_empty());
        }
        {
            // It is granted the permit, and is dropped before it has looked.
            let mut granted = pin!(semaphore.acquire_for(key("alice")));
            assert!(granted.as_mut().poll(cx).is_pending());
            drop(held);
            assert_eq!(semaphore.available(), 0);
        }
        assert_eq!(semaphore.available(), 1);
        assert!(semaphore.0.state.lock().held.is_empty());
    }

    #[test]
    fn the_queue_is_bounded() {
        let semaphore = FairSemaphore::new(1);
        let _held = semaphore.try_acquire_for(key("x"));
        let cx = &mut Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..WAITERS_OF_ONE)
            .map(|_| Box::pin(semaphore.acquire_for(key("alice"))))
            .collect();
        for call in &mut waiting {
            assert!(call.as_mut().poll(cx).is_pending());
        }
        let mut refused = pin!(semaphore.acquire_for(key("alice")));
        assert!(matches!(
            refused.as_mut().poll(cx),
            Poll::Ready(Err(QueueFull))
        ));
        let mut other = pin!(semaphore.acquire_for(key("bob")));
        assert!(other.as_mut().poll(cx).is_pending());
    }
}
