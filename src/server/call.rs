//! Running one call: guarded against panics, bounded in time, and owned by whom it should be.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::protocol::Revision;

/// The future of one call of a tool, or of whatever else somebody has written for this server.
type BoxedCall<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    Done(T),
    /// It took longer than it may.
    TimedOut(Duration),
    /// It panicked; the log has its words.
    Panicked,
}

/// Who loses interest when the client closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDisconnect {
    /// The call is dropped (stateless era, MH-16).
    Cancel,
    /// The call runs on (handshake era, LH-02).
    RunOn,
}

impl OnDisconnect {
    #[inline]
    pub(crate) fn of(revision: Revision) -> Self {
        if revision.has_sessions() {
            Self::RunOn
        } else {
            Self::Cancel
        }
    }
}

/// Runs a call. Most are done at the first poll and never leave this function's frame; a timer is armed, and
/// a task of its own made, only for those that are not.
#[inline]
pub(crate) async fn run<T: Send + 'static>(
    start: impl FnOnce() -> BoxedCall<T>,
    timeout: Duration,
    on_disconnect: OnDisconnect,
    inflight: &Arc<Inflight>,
) -> Outcome<T> {
    let Ok(call) = catch_unwind(AssertUnwindSafe(start)) else {
        return Outcome::Panicked;
    };
    let mut call = Guarded(call);
    if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(Pin::new(&mut call).poll(cx))).await {
        return outcome;
    }
    match on_disconnect {
        OnDisconnect::Cancel => {
            let _guard = inflight.enter();
            bounded(call, timeout).await
        }
        OnDisconnect::RunOn => {
            let (sender, receiver) = oneshot::channel();
            let guard = inflight.enter();
            // Owned by `inflight`, which a draining server waits for.
            tokio::spawn(async move {
                let outcome = bounded(call, timeout).await;
                drop(guard);
                let _ = sender.send(outcome);
            });
            receiver.await.unwrap_or(Outcome::Panicked)
        }
    }
}

async fn bounded<T>(call: Guarded<T>, timeout: Duration) -> Outcome<T> {
    match tokio::time::timeout(timeout, call).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::TimedOut(timeout),
    }
}

/// A call whose panics end here.
struct Guarded<T>(BoxedCall<T>);

impl<T> Future for Guarded<T> {
    type Output = Outcome<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        // A future that panicked is never polled again, so nobody sees what it left half done.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Outcome::Done),
            Err(_) => Poll::Ready(Outcome::Panicked),
        }
    }
}

/// Calls that were not done at once: counted, and waited for when the server stops.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    running: AtomicUsize,
    changed: Notify,
}

/// Counts one call for as long as it lives.
pub(crate) struct Running(Arc<Inflight>);

impl Inflight {
    fn enter(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(self))
    }

    /// Waits until no call is left.
    pub(crate) async fn idle(&self) {
        loop {
            let changed = self.changed.notified();
            if self.running.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}
