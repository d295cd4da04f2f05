//! Work that blocks: on threads of the pool, few at once, and told when nobody waits for it any longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::catalog::ToolError;
use crate::catalog::attribute::run_blocking;
use crate::limit::SectionHits;
use crate::net::FairSemaphore;

/// Places for blocking work, of one toolset. One caller has at most three quarters of them.
///
/// A place is kept until the work has really ended, also when its call has not waited for that. So a disk that hangs
/// takes these places, and no thread beyond them. It is kept until the call has the result, too, so that no more results
/// lie about than there are places.
#[derive(Debug)]
pub(crate) struct Blocking {
    places: FairSemaphore,
    timeout: Duration,
    hits: SectionHits,
}

/// Tells work when it is to stop: its call is over, or its time is.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    wanted: Arc<AtomicBool>,
    at: Instant,
    timeout: Duration,
    hits: SectionHits,
    /// The limits that the call has hit.
    hit: Arc<Mutex<Vec<&'static str>>>,
}

/// Work as an object: what runs it is compiled once for what comes of it, and not for each work.
type Work<T> = Box<dyn FnOnce(&Stop) -> Result<T, ToolError> + Send>;

/// What the limits of all toolsets that block are called.
const TIMEOUT: &str = "timeout_seconds";
const CONCURRENCY: &str = "concurrency";

impl Blocking {
    /// So many places, and so much time for each call, waiting for a place included.
    pub(crate) fn new(at_once: usize, timeout: Duration) -> Self {
        Self {
            places: FairSemaphore::new(at_once),
            timeout,
            hits: SectionHits::default(),
        }
    }

    /// Counts how often limits are hit.
    pub(crate) fn counting(mut self, hits: SectionHits) -> Self {
        self.hits = hits;
        self
    }

    /// Does the work on a thread that may block. Whatever takes long in it asks [`Stop::check`] now and then.
    ///
    /// # Errors
    ///
    /// Its own; or it took too long.
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
        let done = tokio::time::timeout(self.timeout, async {
            let place = self.places.acquire().await;
            let place = place.map_err(|full| ToolError::new(format!("{full}; try again later")))?;
            let stop = stop.clone();
            let (done, _place) = run_blocking(move || (work(&stop), place)).await?;
            done
        });
        done.await.unwrap_or_else(|_| {
            stop.hit(TIMEOUT);
            Err(stop.too_long())
        })
    }
}

impl Stop {
    pub(super) fn after(timeout: Duration) -> Self {
        Self {
            wanted: Arc::new(AtomicBool::new(false)),
            at: Instant::now() + timeout,
            timeout,
            hits: SectionHits::default(),
            hit: Arc::default(),
        }
    }

    /// Counts that the call has hit a limit; once, however often it does.
    pub(crate) fn hit(&self, limit: &'static str) {
        let mut hit = self.hit.lock().unwrap_or_else(PoisonError::into_inner);
        if !hit.contains(&limit) {
            hit.push(limit);
            self.hits.count(limit);
        }
    }

    /// An error if the work is to stop.
    ///
    /// # Errors
    ///
    /// It is; the call has ended, or has run out of time.
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
        let seconds = self.timeout.as_secs_f64();
        ToolError::new(format!("it took more than {seconds} s; ask for less"))
    }

    /// One that never comes, for tests.
    #[cfg(test)]
    pub(super) fn never() -> Self {
        Self::after(Duration::from_secs(3600))
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
        assert!(first.expect_err("late").message().contains("0.02 s"));
        assert!(second.expect_err("late").message().contains("0.02 s"));
        drop(hold);
    }
}
