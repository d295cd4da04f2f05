//! The clock of a worker, and the timer that hyper's HTTP/2 has.
//!
//! hyper asks what time it is three times for each request, to know when a connection was last heard of; that decides when
//! the client is sent a ping, seconds later. The worker's clock, which ticks once a second, is good enough for it and costs
//! no look at the system's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

/// Seconds since a worker started, counted by its sweep.
#[derive(Debug)]
pub(crate) struct WorkerClock {
    began: Instant,
    seconds: AtomicU32,
}

impl WorkerClock {
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.seconds.load(Relaxed)
    }

    pub(crate) fn tick(&self) -> u32 {
        self.seconds.fetch_add(1, Relaxed) + 1
    }

    /// The time of its next tick: what is to happen so long after now happens a second late at most, and never early.
    #[inline]
    fn instant(&self) -> Instant {
        self.began + Duration::from_secs(u64::from(self.now()) + 1)
    }
}

impl Default for WorkerClock {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            seconds: AtomicU32::new(0),
        }
    }
}

/// tokio's timer, and the time to the second.
#[derive(Debug)]
pub(super) struct CoarseTimer {
    clock: Arc<WorkerClock>,
    timer: TokioTimer,
}

impl CoarseTimer {
    pub(super) fn new(clock: Arc<WorkerClock>) -> Self {
        Self {
            clock,
            timer: TokioTimer::new(),
        }
    }
}

impl Timer for CoarseTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.timer.sleep(duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.timer.sleep_until(deadline)
    }

    fn now(&self) -> Instant {
        self.clock.instant()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        self.timer.reset(sleep, new_deadline);
    }
}
