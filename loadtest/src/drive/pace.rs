//! When the next request is sent.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use tokio::time::sleep;

/// As fast as answers come, or at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// Closed loop: the next request follows the last answer.
    AsAnswered,
    /// Open loop: a fixed number of requests per second, regardless of the responses.
    PerSecond(f64),
}

impl Pace {
    /// Starts the schedule.
    pub(super) fn start(self) -> Pacer {
        match self {
            Self::AsAnswered => Pacer {
                interval: None,
                start: Instant::now(),
                next: AtomicU64::new(0),
            },
            Self::PerSecond(rate) => Pacer {
                interval: Some(Duration::from_secs_f64(1.0 / rate)),
                start: Instant::now(),
                next: AtomicU64::new(0),
            },
        }
    }
}

/// Schedule shared by all slots: a free slot takes the next send time.
#[derive(Debug)]
pub(super) struct Pacer {
    interval: Option<Duration>,
    start: Instant,
    next: AtomicU64,
}

impl Pacer {
    /// Waits for the next send time and returns it; `None` if `ended` returns true first.
    ///
    /// If all slots were busy, that time has already passed. Latency is counted from the time at which the request
    /// should have been sent, so a server that stalls cannot hide it.
    ///
    /// A timer of the runtime has a resolution of one millisecond, in which many requests fit. This therefore spins
    /// and yields to the sockets in each iteration, since the generator has its own core. It sleeps only until
    /// shortly before a distant time.
    pub(super) async fn next(&self, ended: impl Fn() -> bool) -> Option<Instant> {
        let Some(interval) = self.interval else {
            return Some(Instant::now());
        };
        let number = self.next.fetch_add(1, Relaxed);
        let due = self.start + nth(interval, number);
        let far = due.saturating_duration_since(Instant::now());
        if let Some(sleeps) = far.checked_sub(NEAR) {
            // Not longer than a run may go on beyond its end.
            sleep(sleeps.min(LONGEST_SLEEP)).await;
        }
        while Instant::now() < due {
            if ended() {
                return None;
            }
            yield_now().await;
        }
        Some(due)
    }
}

/// Two milliseconds, because the timer can be late by one.
const NEAR: Duration = Duration::from_millis(2);
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

fn nth(interval: Duration, number: u64) -> Duration {
    interval.mul_f64(number as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn times_follow_each_other_at_the_rate_even_when_taken_late() {
        let pacer = Pace::PerSecond(10_000.0).start();
        let mut times = Vec::new();
        for round in 0..20 {
            if round == 10 {
                std::thread::sleep(Duration::from_millis(2));
            }
            times.push(pacer.next(|| false).await.expect("not ended"));
        }
        for pair in times.windows(2) {
            let gap = (pair[1] - pair[0]).as_nanos();
            assert!(gap.abs_diff(100_000) <= 2, "{gap}");
        }
    }

    #[tokio::test]
    async fn waiting_ends_with_the_run() {
        let pacer = Pace::PerSecond(0.001).start();
        assert!(pacer.next(|| false).await.is_some());
        assert!(pacer.next(|| true).await.is_none());
    }
}
