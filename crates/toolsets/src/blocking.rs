//! Blocking work of a toolset: runs on pool threads with limited concurrency, and is notified when its call is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::catalog::ToolError;
use crate::catalog::attribute::run_blocking;
use crate::limit::SectionHits;
use crate::net::{FairSemaphore, Mutex};

/// Concurrency limit for the blocking work of one toolset. One caller can hold at most three quarters of the permits.
///
/// A permit is held until the work has really ended, even if its call has not waited for that. A hanging disk thus
/// blocks at most this many threads. The permit is also held until the call has received the result, which bounds the
/// number of results in memory.
#[derive(Debug)]
pub(crate) struct Blocking {
    places: FairSemaphore,
    timeout: Duration,
    hits: SectionHits,
}

/// Stop signal for work: its call is over, or its time is up.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    wanted: Arc<AtomicBool>,
    at: Instant,
    timeout: Duration,
    /// Time that the call waited before its work began.
    waited: Duration,
    hits: SectionHits,
    /// Limits that the call has hit.
    hit: Arc<Mutex<Vec<&'static str>>>,
}

/// Boxed work. The runner is thus compiled once for each result type, and not for each closure.
type Work<T> = Box<dyn FnOnce(&Stop) -> Result<T, ToolError> + Send>;

/// Name of the time limit of all toolsets that block.
const TIMEOUT: &str = "timeout_seconds";
const CONCURRENCY: &str = "concurrency";

impl Blocking {
    /// Creates a pool with `at_once` permits and a timeout for each call, including the wait for a permit.
    pub(crate) fn new(at_once: usize, timeout: Duration) -> Self {
        Self {
            places: FairSemaphore::new(at_once),
            timeout,
            hits: SectionHits::default(),
        }
    }

    /// Sets the counters of limit hits.
    pub(crate) fn counting(mut self, hits: SectionHits) -> Self {
        self.hits = hits;
        self
    }

    /// Runs work on a blocking thread. Long-running work has to call [`Stop::check`] from time to time.
    ///
    /// # Errors
    ///
    /// The error of the work, or a timeout.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Stop) -> Result<T, ToolError> + Send + 'static,
    ) -> impl Future<Output = Result<T, ToolError>> + Send {
        self.run_boxed(Box::new(work))
    }

    async fn run_boxed<T: Send + 'static>(&self, work: Work<T>) -> Result<T, ToolError> {
        let stop = Stop {
            hits: self.hits.clone(),
            ..Stop::after(self.timeout)
        };
        let _stops = StopOnDrop(Arc::clone(&stop.wanted));
        if self.places.is_exhausted() {
            stop.hit(CONCURRENCY);
        }
        let begun = Instant::now();
        let mut waited = None;
        let done = tokio::time::timeout(self.timeout, async {
            let place = self.places.acquire().await;
            let place = place.map_err(|full| ToolError::new(format!("{full}; try again later")))?;
            let stop = Stop {
                waited: *waited.insert(begun.elapsed()),
                ..stop.clone()
            };
            let (done, _place) = run_blocking::<_, ToolError>(move || (work(&stop), place)).await?;
            done
        });
        let done = done.await;
        done.unwrap_or_else(|_| {
            stop.hit(TIMEOUT);
            Err(ToolError::new(overdue("it", self.timeout, waited)))
        })
    }
}

impl Stop {
    pub(super) fn after(timeout: Duration) -> Self {
        Self {
            wanted: Arc::new(AtomicBool::new(false)),
            at: Instant::now() + timeout,
            timeout,
            waited: Duration::ZERO,
            hits: SectionHits::default(),
            hit: Arc::default(),
        }
    }

    /// Counts that the call has hit a limit, once for each limit.
    pub(crate) fn hit(&self, limit: &'static str) {
        let mut hit = self.hit.lock();
        if !hit.contains(&limit) {
            hit.push(limit);
            self.hits.count(limit);
        }
    }

    /// Returns an error if the work should stop.
    ///
    /// # Errors
    ///
    /// The call has ended, or has run out of time.
    pub(crate) fn check(&self) -> Result<(), ToolError> {
        if self.at <= Instant::now() {
            self.hit(TIMEOUT);
            return Err(self.too_long());
        }
        if self.wanted.load(Ordering::Relaxed) {
            return Err(self.too_long());
        }
        Ok(())
    }

    fn too_long(&self) -> ToolError {
        ToolError::new(self.overdue("it"))
    }

    /// Says that the time of `what` is up.
    pub(crate) fn overdue(&self, what: &str) -> String {
        overdue(what, self.timeout, Some(self.waited))
    }

    /// Returns a signal that never fires, for tests.
    #[cfg(test)]
    pub(super) fn never() -> Self {
        Self::after(Duration::from_secs(3600))
    }
}

/// Says that the time of `what` is up. `waited` is the part of it in which other calls ran; `None` if it never began.
pub(crate) fn overdue(what: &str, timeout: Duration, waited: Option<Duration>) -> String {
    let seconds = timeout.as_secs_f64();
    match waited {
        None => {
            format!("{what} waited {seconds} s for other calls and did not begin; try again later")
        }
        Some(waited) if timeout / 10 < waited => {
            let (waited, ran) = (
                waited.as_secs_f64(),
                timeout.saturating_sub(waited).as_secs_f64(),
            );
            format!(
                "{what} waited {waited:.1} s for other calls, and was stopped {ran:.1} s later; try again later"
            )
        }
        Some(_) => format!("{what} took more than {seconds} s and was stopped; ask for less"),
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn work_is_told_when_its_call_is_dropped() {
        let pool = Blocking::new(1, Duration::from_secs(60));
        let (began, begun) = tokio::sync::oneshot::channel();
        let (stopped, was_stopped) = mpsc::channel();
        let call = pool.run(move |stop| {
            let _ = began.send(());
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            let _ = stopped.send(());
            stop.check()
        });
        tokio::select! {
            _ = call => panic!("it does not end by itself"),
            begun = begun => begun.expect("it has begun"),
        }
        tokio::task::spawn_blocking(move || was_stopped.recv())
            .await
            .expect("no panic")
            .expect("told");
        assert_eq!(pool.run(|_| Ok(7)).await.expect("room again"), 7);
    }

    #[tokio::test]
    async fn who_finds_no_place_in_time_is_told_so() {
        let pool = Blocking::new(1, Duration::from_millis(20));
        let (hold, held) = mpsc::channel::<()>();
        let first = pool.run(move |_| {
            let _ = held.recv();
            Ok(())
        });
        let second = pool.run(|_| Ok(()));
        let (first, second) = tokio::join!(first, second);
        let (first, second) = (first.expect_err("late"), second.expect_err("late"));
        assert!(first.message().contains("stopped"), "{first:?}");
        assert_eq!(
            second.message(),
            "it waited 0.02 s for other calls and did not begin; try again later"
        );
        drop(hold);
    }

    #[test]
    fn a_call_that_waited_says_so() {
        let of = |waited| overdue("the query", Duration::from_secs(3), Some(waited));
        assert_eq!(
            of(Duration::from_millis(300)),
            "the query took more than 3 s and was stopped; ask for less"
        );
        assert_eq!(
            of(Duration::from_millis(2100)),
            "the query waited 2.1 s for other calls, and was stopped 0.9 s later; try again later"
        );
    }
}
