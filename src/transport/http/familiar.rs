//! What a connection remembers of the head that it was sent last.
//!
//! The bytes of heads are looked at on their way to hyper ([`super::watch`]), where it is seen that one says the same as the
//! last. What its fields decide was found out then, and is not found out again: which Host and which Origin it names, what
//! it sends and takes, and what it says of the protocol. Who sends it is asked of each request all the same, and so is
//! whether its session still lasts.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::headers::Summary;
use super::watch::Came;

/// What was found out about the head that a connection was sent last.
///
/// Its requests are served by one thread, so the lock is never waited for.
#[derive(Debug, Default)]
pub(crate) struct Familiar {
    /// What is known of the head of the request that begins next.
    came: AtomicU8,
    summary: Mutex<Option<Arc<Summary>>>,
}

impl Familiar {
    /// Notes what the bytes of a head have told. The next request that begins is the one that it belongs to.
    #[inline]
    pub(super) fn note(&self, came: Came) {
        self.came.store(came as u8, Relaxed);
    }

    /// Whether a head was noted whose request has not begun.
    #[inline]
    pub(super) fn waits(&self) -> bool {
        self.came.load(Relaxed) != Came::Unknown as u8
    }

    /// A request begins: what is known of its head.
    #[inline]
    pub(super) fn begin(&self) -> Came {
        let came = self.came.load(Relaxed);
        if came == Came::Unknown as u8 {
            return Came::Unknown;
        }
        self.came.store(Came::Unknown as u8, Relaxed);
        if came == Came::Same as u8 {
            return Came::Same;
        }
        // Nothing of what was found out about another head is true of this one.
        *self.summary() = None;
        Came::New
    }

    /// What was found out about a head that came before.
    #[inline]
    pub(super) fn recall(&self) -> Option<Arc<Summary>> {
        self.summary().clone()
    }

    /// Remembers what was found out about the head that the bytes are remembered of.
    pub(super) fn remember(&self, summary: Summary) {
        *self.summary() = Some(Arc::new(summary));
    }

    fn summary(&self) -> MutexGuard<'_, Option<Arc<Summary>>> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
