//! Cache of the previous head of a connection.
//!
//! The framing checks ([`super::framing_guard`]) detect a head that is identical to the previous one. The results of its fields
//! are then reused: Host and Origin, media types, and protocol headers. Authentication and session lookup still run for
//! each request.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::framing_guard::HeadMatch;
use super::headers::Summary;

/// Results for the previous head of a connection.
///
/// One thread serves its requests, so the lock is never contended.
#[derive(Debug, Default)]
pub(crate) struct HeadCache {
    /// Comparison result for the head of the next request.
    came: AtomicU8,
    summary: Mutex<Option<Arc<Summary>>>,
}

impl HeadCache {
    /// Records the comparison result of a head, for the next request that begins.
    #[inline]
    pub(super) fn note(&self, came: HeadMatch) {
        self.came.store(came as u8, Relaxed);
    }

    /// Returns true if a head was recorded whose request has not begun.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.came.load(Relaxed) != HeadMatch::Unknown as u8
    }

    /// Begins a request and returns the comparison result of its head.
    #[inline]
    pub(super) fn begin(&self) -> HeadMatch {
        let came = self.came.load(Relaxed);
        if came == HeadMatch::Unknown as u8 {
            return HeadMatch::Unknown;
        }
        self.came.store(HeadMatch::Unknown as u8, Relaxed);
        if came == HeadMatch::Same as u8 {
            return HeadMatch::Same;
        }
        // Results for another head do not apply.
        *self.summary() = None;
        HeadMatch::New
    }

    /// Returns the results for a repeated head.
    #[inline]
    pub(super) fn recall(&self) -> Option<Arc<Summary>> {
        self.summary().clone()
    }

    /// Stores the results for the head whose bytes are remembered.
    pub(super) fn remember(&self, summary: Summary) {
        *self.summary() = Some(Arc::new(summary));
    }

    fn summary(&self) -> MutexGuard<'_, Option<Arc<Summary>>> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
