//! Isolation of upstreams: limits on concurrency and queueing time, and a circuit breaker.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::Backoff;
use super::backoff::chance;
use super::breaker::{BreakerState, Breakers, Tripped};
use super::lock::Mutex;
use super::share::{FairPermit, FairSemaphore, ShareKey};

/// Concurrency limit and circuit breaker of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BulkheadConfig {
    /// Maximum number of concurrent calls; one caller may have three quarters of them.
    pub concurrency: usize,
    /// Maximum time that a call waits for a permit, in milliseconds.
    pub queue_ms: u64,
    /// Number of consecutive failures that opens the circuit breaker: for all callers if the upstream is unreachable,
    /// else for the caller whose calls fail. 0 for never.
    pub breaker_failures: u32,
    /// Time for which the circuit breaker stays open, in milliseconds. It doubles up to a minute while failures
    /// continue.
    pub breaker_pause_ms: u64,
}

impl Default for BulkheadConfig {
    fn default() -> Self {
        Self {
            concurrency: 128,
            queue_ms: 1000,
            breaker_failures: 5,
            breaker_pause_ms: 5000,
        }
    }
}

/// The way to one place.
#[derive(Debug)]
pub struct Bulkhead {
    name: String,
    turns: FairSemaphore,
    queue: Duration,
    breaker: Option<Mutex<Breakers>>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    entered: AtomicU64,
    failed: AtomicU64,
    refused_full: AtomicU64,
    refused_tripped: AtomicU64,
    waiting: AtomicUsize,
}

/// A queued caller, counted until drop.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn among(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reason for which a call was rejected. The call has not been made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BulkheadError {
    /// Too many are on their way.
    #[error("too many calls are under way; try again in a moment")]
    Full,
    /// The circuit breaker is open.
    #[error("its circuit breaker is open after repeated failures; try again in {} s", wait.as_secs().max(1))]
    Down {
        /// When it is worth another try.
        wait: Duration,
    },
}

/// Statistics of a bulkhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkheadStats {
    /// Calls under way.
    pub under_way: usize,
    /// Calls that wait for their turn.
    pub waiting: usize,
    /// Number of admitted calls.
    pub entered: u64,
    /// Number of admitted calls that failed.
    pub failed: u64,
    /// Number of calls rejected for lack of a permit.
    pub refused_full: u64,
    /// Number of calls rejected by the circuit breaker.
    pub refused_tripped: u64,
    /// State of the circuit breaker; [`Passing`](BreakerState::Passing) without one.
    pub breaker: BreakerState,
}

const PAUSE_MAX: Duration = Duration::from_secs(60);

impl Bulkhead {
    /// The way to a place of this name, which is for logs.
    pub fn new(name: impl Into<String>, config: &BulkheadConfig) -> Self {
        let base = Duration::from_millis(config.breaker_pause_ms);
        let pause = Backoff {
            base,
            max: PAUSE_MAX.max(base),
        };
        Self {
            name: name.into(),
            turns: FairSemaphore::new(config.concurrency),
            queue: Duration::from_millis(config.queue_ms),
            breaker: (config.breaker_failures > 0)
                .then(|| Mutex::new(Breakers::new(config.breaker_failures, pause))),
            counts: Counts::default(),
        }
    }

    /// Waits for a permit for the current caller. The pass records the result; dropping it without one records nothing.
    ///
    /// # Errors
    ///
    /// No permit was free in time, or the resource is down.
    pub async fn enter(&self) -> Result<BulkheadPermit<'_>, BulkheadError> {
        self.enter_for(ShareKey::current()).await
    }

    /// Variant of `enter` for a caller whose call is polled elsewhere.
    pub async fn enter_for(&self, caller: ShareKey) -> Result<BulkheadPermit<'_>, BulkheadError> {
        let turn = match self.turns.try_acquire_for(caller) {
            Some(turn) => turn,
            None => {
                let _waiting = Waiting::among(&self.counts.waiting);
                timeout(self.queue, self.turns.acquire_for(caller))
                    .await
                    .ok()
                    .and_then(Result::ok)
                    .ok_or_else(|| {
                        self.counts.refused_full.fetch_add(1, Ordering::Relaxed);
                        BulkheadError::Full
                    })?
            }
        };
        // Checked last, so that a probe already has its permit.
        if let Some(Err(wait)) =
            self.with_breaker(|breakers| breakers.enter(caller, Instant::now()))
        {
            self.counts.refused_tripped.fetch_add(1, Ordering::Relaxed);
            return Err(BulkheadError::Down { wait });
        }
        self.counts.entered.fetch_add(1, Ordering::Relaxed);
        Ok(BulkheadPermit {
            bulkhead: self,
            _turn: turn,
            caller,
            reported: false,
        })
    }

    /// Returns current statistics.
    pub fn stats(&self) -> BulkheadStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BulkheadStats {
            under_way: self.turns.held(),
            waiting: self.counts.waiting.load(Ordering::Relaxed),
            entered: count(&self.counts.entered),
            failed: count(&self.counts.failed),
            refused_full: count(&self.counts.refused_full),
            refused_tripped: count(&self.counts.refused_tripped),
            breaker: self
                .with_breaker(|breaker| breaker.state())
                .unwrap_or(BreakerState::Passing),
        }
    }

    /// Name of the protected resource.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn with_breaker<R>(&self, look: impl FnOnce(&mut Breakers) -> R) -> Option<R> {
        let breaker = self.breaker.as_ref()?;
        let mut breaker = breaker.lock();
        Some(look(&mut breaker))
    }
}

/// Permit for one call.
#[derive(Debug)]
pub struct BulkheadPermit<'a> {
    bulkhead: &'a Bulkhead,
    _turn: FairPermit,
    caller: ShareKey,
    reported: bool,
}

impl BulkheadPermit<'_> {
    /// Records that the resource worked as expected.
    pub fn succeeded(mut self) {
        self.reported = true;
        let caller = self.caller;
        self.bulkhead
            .with_breaker(|breakers| breakers.succeeded(caller));
    }

    /// Records a missing or wrong response. The request may have caused it, so it counts against the caller only.
    pub fn failed(mut self) {
        let caller = self.caller;
        self.count(|breakers| breakers.failed(caller, Instant::now(), chance()));
    }

    /// Records that the resource was unreachable, independent of the request. It counts for all callers.
    pub fn unreachable(mut self) {
        let caller = self.caller;
        self.count(|breakers| breakers.unreachable(caller, Instant::now(), chance()));
    }

    fn count(&mut self, fails: impl FnOnce(&mut Breakers) -> Option<Tripped>) {
        self.reported = true;
        self.bulkhead.counts.failed.fetch_add(1, Ordering::Relaxed);
        match self.bulkhead.with_breaker(fails).flatten() {
            Some(Tripped::All) => tracing::warn!(
                to = self.bulkhead.name,
                "the circuit breaker is open after too many failures; calls are rejected for a while"
            ),
            Some(Tripped::Caller) => tracing::warn!(
                to = self.bulkhead.name,
                "the circuit breaker of this caller is open after too many failures; its calls are rejected for a while"
            ),
            None => {}
        }
    }
}

impl Drop for BulkheadPermit<'_> {
    fn drop(&mut self) {
        if !self.reported {
            let caller = self.caller;
            self.bulkhead
                .with_breaker(|breakers| breakers.abandoned(caller, Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> BulkheadConfig {
        BulkheadConfig {
            concurrency: 2,
            queue_ms: 100,
            breaker_failures: 2,
            breaker_pause_ms: 1000,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once_and_so_long_in_the_queue() {
        let bulkhead = Bulkhead::new("a", &config());
        let first = bulkhead.enter().await.expect("room");
        let _second = bulkhead.enter().await.expect("room");
        let before = Instant::now();
        assert_eq!(bulkhead.enter().await.err(), Some(BulkheadError::Full));
        assert_eq!(before.elapsed(), Duration::from_millis(100));
        assert_eq!(bulkhead.stats().under_way, 2);
        first.succeeded();
        assert!(bulkhead.enter().await.is_ok());
        assert_eq!(bulkhead.stats().refused_full, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_come_in_when_somebody_leaves() {
        let bulkhead = Bulkhead::new("a", &config());
        let first = bulkhead.enter().await.expect("room");
        let _second = bulkhead.enter().await.expect("room");
        let leave = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(bulkhead.stats().waiting, 1);
            first.succeeded();
        };
        let (entered, ()) = tokio::join!(bulkhead.enter(), leave);
        assert!(entered.is_ok());
        assert_eq!(bulkhead.stats().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_down_is_left_alone_and_probed() {
        let bulkhead = Bulkhead::new("a", &config());
        for _ in 0..2 {
            bulkhead.enter().await.expect("up").failed();
        }
        assert!(matches!(
            bulkhead.enter().await,
            Err(BulkheadError::Down { .. })
        ));
        assert_eq!(bulkhead.stats().breaker, BreakerState::Tripped);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let probe = bulkhead.enter().await.expect("a probe");
        assert!(bulkhead.enter().await.is_err());
        drop(probe);
        bulkhead.enter().await.expect("the next probe").succeeded();
        assert!(bulkhead.enter().await.is_ok());
        let stats = bulkhead.stats();
        assert_eq!((stats.failed, stats.refused_tripped), (2, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_leaves_turns_for_the_next() {
        let config = BulkheadConfig {
            concurrency: 8,
            ..config()
        };
        let (alice, bob) = (ShareKey::of_principal("a"), ShareKey::of_principal("b"));
        let bulkhead = Bulkhead::new("a", &config);
        let mut hers = Vec::new();
        while let Ok(pass) = bulkhead.enter_for(alice).await {
            hers.push(pass);
        }
        assert_eq!(hers.len(), 6);
        let before = Instant::now();
        assert!(bulkhead.enter_for(bob).await.is_ok());
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_callers_failures_stop_that_caller_alone() {
        let (alice, bob) = (ShareKey::of_principal("a"), ShareKey::of_principal("b"));
        let bulkhead = Bulkhead::new("a", &config());
        for _ in 0..2 {
            bulkhead.enter_for(alice).await.expect("up").failed();
        }
        let refused = bulkhead.enter_for(alice).await.err();
        assert!(matches!(refused, Some(BulkheadError::Down { .. })));
        bulkhead.enter_for(bob).await.expect("his own").succeeded();
        assert_eq!(bulkhead.stats().breaker, BreakerState::Passing);
        // What cannot be reached cannot be reached by anybody.
        for _ in 0..2 {
            bulkhead.enter_for(bob).await.expect("up").unreachable();
        }
        let carol = ShareKey::of_principal("c");
        assert!(bulkhead.enter_for(carol).await.is_err());
        assert_eq!(bulkhead.stats().breaker, BreakerState::Tripped);
    }
}
