//! Tasks on whose speed no request depends.
//!
//! What a runtime does with a task is some three KiB of code, and compiled for each kind of future that is spawned.
//! These are spawned as objects, and so it is compiled for each kind of result.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinError, JoinHandle};

use super::lock::Mutex;

/// As `tokio::spawn`.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(object(future))
}

/// As [`Handle::spawn`].
pub fn spawn_on<T: Send + 'static>(
    runtime: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    runtime.spawn(object(future))
}

/// As `tokio::task::spawn_local`: on a runtime whose tasks stay on their thread.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let future: Pin<Box<dyn Future<Output = T>>> = Box::pin(future);
    tokio::task::spawn_local(future)
}

/// Aborts a task when it is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    /// Spawns a task as [`spawn`] does.
    pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(spawn(future).abort_handle())
    }

    /// Aborts the task now.
    pub fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.abort();
    }
}

fn object<T>(
    future: impl Future<Output = T> + Send + 'static,
) -> Pin<Box<dyn Future<Output = T> + Send>> {
    Box::pin(future)
}

/// The system did not create a thread for blocking work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the system creates no further thread: a limit of processes (pids.max, ulimit -u) or of memory is reached"
)]
pub struct NoThread;

/// Blocking work. As an object, since a task is much code, and would be compiled for each function.
type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// Delay after which a thread is requested again.
const RETRY: Duration = Duration::from_millis(100);

thread_local! {
    static EXPECTS_PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if a panic on this thread is caught and reported as an error, so that a panic hook can ignore it.
pub fn is_panic_expected() -> bool {
    EXPECTS_PANIC.get()
}

/// Runs work on a blocking thread, like `tokio::task::spawn_blocking`. Without a thread, it is tried again until there is
/// one.
///
/// # Errors
///
/// The work panicked, or the runtime ends.
pub async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let mut work: Work<T> = Box::new(work);
    let mut is_reported = false;
    loop {
        match try_spawn(&Handle::current(), work) {
            Ok(running) => return running.await,
            Err(again) => work = again,
        }
        if !std::mem::replace(&mut is_reported, true) {
            tracing::error!(error = %NoThread, "blocking work cannot begin; it is tried again");
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// As `tokio::task::spawn_blocking`, which panics without a thread.
///
/// # Errors
///
/// The runtime has no blocking thread, and the system does not create one. The work is dropped.
pub fn try_spawn_blocking<T: Send + 'static>(
    runtime: &Handle,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, NoThread> {
    try_spawn(runtime, Box::new(work)).map_err(|_| NoThread)
}

/// Returns the work if there is no thread for it.
fn try_spawn<T: Send + 'static>(runtime: &Handle, work: Work<T>) -> Result<JoinHandle<T>, Work<T>> {
    try_spawn_with(work, |run| runtime.spawn_blocking(run))
}

fn try_spawn_with<T: Send + 'static>(
    work: Work<T>,
    spawn: impl FnOnce(Work<T>) -> JoinHandle<T>,
) -> Result<JoinHandle<T>, Work<T>> {
    let slot = Arc::new(Mutex::new(Some(work)));
    let queued = Arc::clone(&slot);
    let run: Work<T> = Box::new(move || {
        let work = queued.lock().take();
        match work {
            Some(work) => work(),
            // Taken back. Nothing waits for this task, which stayed in the queue.
            None => resume_unwind(Box::new(NoThread)),
        }
    });
    // Held while the task is queued, so that the work cannot begin on another thread and be taken back as well.
    let mut held = slot.lock();
    let expected = EXPECTS_PANIC.replace(true);
    let spawned = catch_unwind(AssertUnwindSafe(|| spawn(run)));
    EXPECTS_PANIC.set(expected);
    match spawned {
        Ok(running) => Ok(running),
        Err(panic) => held.take().map_or_else(|| resume_unwind(panic), Err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_without_a_thread_is_returned_and_does_not_run() {
        let (began, begun) = std::sync::mpsc::channel();
        let work: Work<()> = Box::new(move || began.send(()).expect("a receiver"));
        // As tokio does: the task stays in the queue.
        let queue = Mutex::new(None);
        let work = try_spawn_with(work, |run| {
            assert!(is_panic_expected());
            *queue.lock() = Some(run);
            resume_unwind(Box::new("OS can't spawn worker thread"))
        });
        let work = work.expect_err("no thread");
        assert!(!is_panic_expected());
        let queued = queue.into_inner().expect("queued");
        assert!(catch_unwind(AssertUnwindSafe(queued)).is_err());
        assert!(begun.try_recv().is_err());
        // It can be tried again.
        let running = try_spawn(&Handle::current(), work).ok().expect("a thread");
        running.await.expect("no panic");
        assert!(begun.try_recv().is_ok());
    }

    #[tokio::test]
    async fn blocking_work_returns_its_result_or_its_panic() {
        assert_eq!(spawn_blocking(|| 7).await.expect("no panic"), 7);
        let panicked = spawn_blocking(|| -> u8 { resume_unwind(Box::new("x")) }).await;
        assert!(panicked.expect_err("a panic").is_panic());
        let running = try_spawn_blocking(&Handle::current(), || 8).expect("a thread");
        assert_eq!(running.await.expect("no panic"), 8);
    }
}
