//! Concurrency limits with a short queue.
//!
//! A call needs a permit once it has to wait for something; a call that finishes immediately needs none. The queue is
//! short in length and time, and the newest call is rejected first. When even the shortest wait in the queue has been
//! long for a while, new calls are rejected while another call waits, because waiting no longer helps (the rule of
//! CoDel).

use std::collections::HashMap;
use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use super::{Limit, LimitExceeded};
use crate::net::{Mutex, ShareKey};

/// Observation period: if even the shortest wait in it is too long, new calls are rejected.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest acceptable wait.
const TARGET: Duration = Duration::from_millis(20);

/// Bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) length: usize,
    pub(super) patience: Duration,
}

/// A number of places.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    free: Arc<Semaphore>,
    /// 0 for no limit.
    total: usize,
    queue: Queue,
    waiting: AtomicUsize,
    limit: Limit,
    /// Since when, in milliseconds after `began`, every request that got a permit had waited too long; 0 if that is not so.
    standing_since: AtomicU64,
    began: Instant,
}

/// A concurrency permit, released on drop.
#[derive(Debug)]
pub struct Permit {
    permit: Option<OwnedSemaphorePermit>,
    /// Keeps the permits of a key in the table while one is held.
    inner: Arc<Inner>,
}

impl Permit {
    /// Gives the permit to other calls, until [`take_again`](Self::take_again).
    pub(super) fn release(&mut self) {
        self.permit = None;
    }

    /// Waits in line for a permit in place of the released one. A call that has begun is not rejected.
    pub(super) async fn take_again(&mut self) {
        if self.inner.total != 0 && self.permit.is_none() {
            self.permit = Arc::clone(&self.inner.free).acquire_owned().await.ok();
        }
    }
}

impl ConcurrencyLimit {
    pub(super) fn new(total: usize, queue: Queue, limit: Limit) -> Self {
        Self(Arc::new(Inner {
            free: Arc::new(Semaphore::new(total.min(Semaphore::MAX_PERMITS))),
            total,
            queue,
            waiting: AtomicUsize::new(0),
            limit,
            standing_since: AtomicU64::new(0),
            began: Instant::now(),
        }))
    }

    /// Returns true if a permit is free, with one load.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.0.total == 0 || self.0.free.available_permits() > 0
    }

    /// A place for a call that runs already. If all have been taken since it began, it has none, and runs on.
    pub fn take(&self) -> Permit {
        let permit = match self.0.total {
            0 => None,
            _ => Arc::clone(&self.0.free).try_acquire_owned().ok(),
        };
        self.0.place(permit)
    }

    /// Waits for a place.
    ///
    /// # Errors
    ///
    /// Too many wait already, or they wait too long.
    pub(super) fn wait(&self) -> Result<Waiting, LimitExceeded> {
        let inner = &self.0;
        let now = Instant::now();
        let place = self.take();
        if place.permit.is_some() || inner.total == 0 {
            if inner.waiting.load(Relaxed) == 0 {
                inner.standing_since.store(0, Relaxed);
            }
            return Ok(Waiting {
                inner: Arc::clone(inner),
                since: now,
                stage: Stage::Found(Some(place)),
            });
        }
        let waiting = inner.waiting.load(Relaxed);
        // An empty queue does not stand: the next free permit is for this call.
        if inner.queue.length <= waiting || 0 < waiting && inner.stands(now) {
            return Err(inner.refused());
        }
        inner.waiting.fetch_add(1, Relaxed);
        let free = Arc::clone(&inner.free);
        Ok(Waiting {
            inner: Arc::clone(inner),
            since: now,
            stage: Stage::InLine {
                turn: Box::pin(async move { free.acquire_owned().await.ok() }),
                end: Box::pin(tokio::time::sleep(inner.queue.patience)),
            },
        })
    }

    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.0.waiting.load(Relaxed)
    }
}

impl Inner {
    fn place(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> Permit {
        Permit {
            permit,
            inner: Arc::clone(self),
        }
    }

    fn refused(&self) -> LimitExceeded {
        let retry_after = self.queue.patience.max(Duration::from_secs(1));
        LimitExceeded::for_places(self.limit, retry_after)
    }

    fn since_beginning(&self, now: Instant) -> u64 {
        u64::try_from((now - self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns true if the queue has been standing for a while.
    fn stands(&self, now: Instant) -> bool {
        let since = self.standing_since.load(Relaxed);
        since != 0 && INTERVAL.as_millis() as u64 <= self.since_beginning(now).saturating_sub(since)
    }

    /// Records a permit that was given after a wait.
    fn served(&self, waited: Duration, now: Instant) {
        if waited < TARGET {
            self.standing_since.store(0, Relaxed);
        } else if self.standing_since.load(Relaxed) == 0 {
            let now = self.since_beginning(now).max(1);
            self.standing_since.store(now, Relaxed);
        }
    }
}

type PermitFuture = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// A waiting caller. Dropping it leaves the queue.
pub(super) struct Waiting {
    inner: Arc<Inner>,
    since: Instant,
    stage: Stage,
}

enum Stage {
    Found(Option<Permit>),
    InLine {
        turn: PermitFuture,
        end: Pin<Box<Sleep>>,
    },
}

impl Future for Waiting {
    type Output = Result<Permit, LimitExceeded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let waiting = &mut *self;
        let (turn, end) = match &mut waiting.stage {
            Stage::Found(place) => {
                let place = place.take().ok_or_else(|| waiting.inner.refused());
                return Poll::Ready(place);
            }
            Stage::InLine { turn, end } => (turn, end),
        };
        if let Poll::Ready(permit) = turn.as_mut().poll(cx) {
            let now = Instant::now();
            waiting.inner.served(now - waiting.since, now);
            return Poll::Ready(Ok(waiting.inner.place(permit)));
        }
        let end = end.as_mut().poll(cx);
        end.map(|()| Err(waiting.inner.refused()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::InLine { .. }) {
            self.inner.waiting.fetch_sub(1, Relaxed);
        }
    }
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("since", &self.since)
            .finish_non_exhaustive()
    }
}

type Shard = HashMap<ShareKey, ConcurrencyLimit, RandomState>;

/// Concurrency limits by key. Unused ones are dropped when room is needed.
#[derive(Debug)]
pub(super) struct Keyed {
    total: usize,
    queue: Queue,
    limit: Limit,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// Number of keys in the table.
    keys: AtomicUsize,
}

impl Keyed {
    const SHARDS: usize = 64;

    pub(super) fn new(total: usize, queue: Queue, limit: Limit) -> Self {
        Self {
            total,
            queue,
            limit,
            hasher: RandomState::default(),
            shards: (0..Self::SHARDS).map(|_| Mutex::default()).collect(),
            keys: AtomicUsize::new(0),
        }
    }

    /// Returns true if a permit of this key is free. Until the first permit was ever taken, this is one load.
    #[inline]
    pub(super) fn is_free(&self, key: ShareKey) -> bool {
        self.total == 0
            || self.keys.load(Relaxed) == 0
            || self
                .shard(key)
                .get(&key)
                .is_none_or(ConcurrencyLimit::is_free)
    }

    /// The places of a key; `None` if they are not limited.
    pub(super) fn of(&self, key: ShareKey) -> Option<ConcurrencyLimit> {
        if self.total == 0 {
            return None;
        }
        let mut shard = self.shard(key);
        if let Some(places) = shard.get(&key) {
            return Some(places.clone());
        }
        if shard.len() == shard.capacity() {
            let before = shard.len();
            shard.retain(|_, places| Arc::strong_count(&places.0) > 1);
            self.keys.fetch_sub(before - shard.len(), Relaxed);
        }
        let places = ConcurrencyLimit::new(self.total, self.queue, self.limit);
        shard.insert(key, places.clone());
        self.keys.fetch_add(1, Relaxed);
        Some(places)
    }

    fn shard(&self, key: ShareKey) -> MutexGuard<'_, Shard> {
        let shard = self.hasher.hash_one(key) as usize % Self::SHARDS;
        self.shards[shard].lock()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let len = |shard: &Mutex<Shard>| shard.lock().len();
        let len: usize = self.shards.iter().map(len).sum();
        assert_eq!(len, self.keys.load(Relaxed));
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(total: usize, length: usize) -> ConcurrencyLimit {
        let queue = Queue {
            length,
            patience: Duration::from_secs(1),
        };
        ConcurrencyLimit::new(total, queue, Limit::Calls)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_finds_no_place_waits_in_turn_and_whoever_comes_last_is_refused() {
        let places = places(1, 1);
        let first = places.wait().expect("nobody waits").await.expect("free");
        assert!(!places.is_free());
        let second = places.wait().expect("the queue has room");
        let refused = places.wait().expect_err("the queue is full");
        assert_eq!(
            (refused.limit, refused.retry_after_seconds()),
            (Limit::Calls, 1)
        );
        drop(first);
        let second = second.await.expect("its turn");
        assert_eq!(places.waiting(), 0);
        drop(second);
        assert!(places.is_free());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_the_patience() {
        let places = places(1, 10);
        let _first = places.take();
        let began = Instant::now();
        let refused = places.wait().expect("waits").await.expect_err("too long");
        assert_eq!(refused.limit, Limit::Calls);
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        // Who gives up leaves the queue.
        assert_eq!(places.waiting(), 0);
        drop(places.wait().expect("waits"));
        assert_eq!(places.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_stands_takes_nobody_in_until_it_moves() {
        let places = places(1, 10);
        let mut place = Some(places.take());
        // Whoever is served has waited for more than the target, again and again.
        for _ in 0..5 {
            let waiting = places.wait().expect("not standing for long yet");
            tokio::time::advance(Duration::from_millis(24)).await;
            drop(place.take());
            place = Some(waiting.await.expect("its turn"));
        }
        tokio::time::advance(Duration::from_millis(10)).await;
        let waiting = places.wait().expect("the queue is empty");
        assert!(places.wait().is_err(), "it stands");
        drop(waiting);
        drop(place);
        let place = places.wait().expect("there is a free place").await;
        assert!(place.is_ok());
        assert!(places.wait().is_ok(), "it moves again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_permit_is_taken_again_in_line() {
        let limit = places(1, 1);
        let mut first = limit.take();
        first.release();
        let second = limit.take();
        assert!(!limit.is_free());
        let mut again = Box::pin(first.take_again());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(again.as_mut().poll(&mut cx).is_pending());
        drop(second);
        again.await;
        assert!(!limit.is_free());
        // A permit that was not released, and one without a limit, are not waited for.
        first.take_again().await;
        drop(first);
        assert!(limit.is_free());
        let mut unlimited = places(0, 0).take();
        unlimited.release();
        unlimited.take_again().await;
    }

    #[tokio::test(start_paused = true)]
    async fn zero_is_no_limit() {
        let places = places(0, 0);
        let mut all = Vec::new();
        for _ in 0..1000 {
            assert!(places.is_free());
            all.push(places.wait().expect("no limit").await.expect("no limit"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_have_places_of_their_own_and_are_forgotten_afterwards() {
        let queue = Queue {
            length: 0,
            patience: Duration::ZERO,
        };
        let keyed = Keyed::new(1, queue, Limit::PrincipalCalls);
        let key = ShareKey::of_principal;
        let is_free = |name: &str| keyed.is_free(key(name));
        assert!(is_free("alice") && keyed.len() == 0);
        let of = |name: &str| keyed.of(key(name)).expect("limited");
        let alice = of("alice");
        let _place = alice.take();
        assert!(!of("alice").is_free() && of("bob").is_free());
        assert!(!is_free("alice") && is_free("bob") && is_free("carol"));
        drop(alice);
        for n in 0..100_000 {
            assert!(of(&n.to_string()).is_free());
        }
        assert!(keyed.len() < 10_000, "{}", keyed.len());
    }
}
