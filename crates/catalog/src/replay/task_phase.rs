//! Transition of a call to a task.

use std::task::{Poll, Waker};
use std::time::Duration;

use crate::net::Mutex;

/// Phase of a call that can become a task, which outlives its request.
///
/// ```text
/// Call ── allow ──► Eligible ── the tool calls begin_task ──► Requested
///   └──────── start ───┴─────────────── start ───────────────────┴──► Task
/// ```
#[derive(Debug, Default)]
pub struct TaskPhase(Mutex<Phase>);

#[derive(Debug, Default)]
enum Phase {
    /// A call that ends with its request.
    #[default]
    Call,
    /// The tool decides when the call becomes a task.
    Eligible,
    /// The tool waits until the call has become a task. The waker is that of its future.
    Requested(Waker),
    Task {
        ttl: Duration,
    },
}

impl TaskPhase {
    /// Allows the tool to make the call a task.
    pub fn allow(&self) {
        *self.0.lock() = Phase::Eligible;
    }

    /// Makes the call a task, and wakes a tool that waits for it.
    pub fn start(&self, ttl: Duration) {
        let before = std::mem::replace(&mut *self.0.lock(), Phase::Task { ttl });
        if let Phase::Requested(waker) = before {
            waker.wake();
        }
    }

    /// Waits until the call is a task. Ready immediately if it cannot become one.
    ///
    /// `requested` is called when the tool requests the transition for the first time.
    pub(super) fn poll_begin(&self, waker: &Waker, requested: impl FnOnce()) -> Poll<()> {
        let mut phase = self.0.lock();
        let is_new = match &*phase {
            Phase::Call | Phase::Task { .. } => return Poll::Ready(()),
            Phase::Eligible => true,
            Phase::Requested(_) => false,
        };
        *phase = Phase::Requested(waker.clone());
        drop(phase);
        if is_new {
            requested();
        }
        Poll::Pending
    }

    /// Returns true if the tool waits for the call to become a task.
    pub fn is_requested(&self) -> bool {
        matches!(*self.0.lock(), Phase::Requested(_))
    }

    /// Returns the time to live of a task; `None` if the call is not a task.
    pub(super) fn ttl(&self) -> Option<Duration> {
        match *self.0.lock() {
            Phase::Task { ttl } => Some(ttl),
            Phase::Call | Phase::Eligible | Phase::Requested(_) => None,
        }
    }

    /// Returns true if the call is a task, or is about to become one.
    pub(super) fn is_detached(&self) -> bool {
        matches!(*self.0.lock(), Phase::Requested(_) | Phase::Task { .. })
    }
}
