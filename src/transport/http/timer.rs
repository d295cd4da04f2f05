//! The timer that hyper's HTTP/2 has.
//!
//! hyper asks what time it is three times for each request, to know when a connection was last heard of; that decides when
//! the client is sent a ping, seconds later. The worker's clock, which ticks once a second, is good enough for it and costs
//! no look at the system's.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

use super::connection::WorkerClock;

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
