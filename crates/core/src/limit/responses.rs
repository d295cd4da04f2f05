//! Memory of responses that their clients have not read yet.
//!
//! A large response counts from when it is written until the last of its bytes has been handed to the socket, wherever
//! it waits meanwhile: [`Reservation::hold`] ties the reservation to the bytes themselves. Responses below
//! [`LARGE_BYTES`] are not counted.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::{Limit, LimitConfig, LimitExceeded};
use crate::net::{Mutex, ShareKey};
use crate::telemetry::{Metrics, UNREAD_BYTES};

/// Responses below this are not counted.
pub const LARGE_BYTES: usize = 64 * 1024;
/// Default budget where memory is not limited.
const DEFAULT_BYTES: u64 = 256 * 1024 * 1024;
/// When a response that was refused is worth another try.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The budget for bytes of large responses that have not been sent.
#[derive(Debug, Default)]
pub(crate) struct ResponseMemory(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Maximum number of bytes; 0 for no limit.
    total: AtomicU64,
    used: Mutex<Used>,
    /// Copy of the bytes in `used`, which is read without the lock.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    /// Reserved bytes by caller, without callers that hold none.
    of: HashMap<ShareKey, u64, RandomState>,
}

/// Bytes of the budget, until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    inner: Arc<Inner>,
    key: ShareKey,
    bytes: u64,
}

/// A document, and the part of the budget that it takes.
struct Counted {
    document: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.document
    }
}

impl LimitConfig {
    /// Bytes of responses that may wait to be read; 0 for no limit.
    fn responses(&self) -> u64 {
        self.response_bytes.unwrap_or(match self.memory_bytes {
            0 => DEFAULT_BYTES,
            memory => (memory / 4).max(LARGE_BYTES as u64),
        })
    }
}

impl ResponseMemory {
    /// Applies a configuration. Reservations stay.
    pub(super) fn apply(&self, config: &LimitConfig) {
        self.0.total.store(config.responses(), Relaxed);
    }

    /// Registers a metric of the reserved bytes.
    pub(super) fn show(&self, metrics: &Metrics) {
        let inner = Arc::clone(&self.0);
        metrics.read(&UNREAD_BYTES, &[], move || inner.used.lock().bytes as f64);
    }

    /// Bytes that are reserved.
    #[cfg(test)]
    fn used(&self) -> u64 {
        self.0.used.lock().bytes
    }

    /// Reserves memory for a response of about this size; none for a small one.
    ///
    /// # Errors
    ///
    /// The caller, or all callers together, have left too many responses unread.
    #[inline]
    pub(super) fn reserve(
        &self,
        key: ShareKey,
        bytes: usize,
    ) -> Result<Option<Reservation>, LimitExceeded> {
        if bytes < LARGE_BYTES {
            return Ok(None);
        }
        self.reserve_large(key, bytes as u64).map(Some)
    }

    /// Checks that there is room for one more large response, before a tool runs for it. Nothing is reserved.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    #[inline]
    pub(super) fn check(&self, key: ShareKey) -> Result<(), LimitExceeded> {
        // Usual case: no response waits to be read.
        if self.0.bytes.load(Relaxed) == 0 {
            return Ok(());
        }
        self.reserve_large(key, LARGE_BYTES as u64).map(drop)
    }

    #[cold]
    fn reserve_large(&self, key: ShareKey, bytes: u64) -> Result<Reservation, LimitExceeded> {
        let total = self.0.total.load(Relaxed);
        let mut used = self.0.used.lock();
        let own = used.of.get(&key).copied().unwrap_or(0);
        if total != 0 && 0 < used.bytes {
            // A caller that has read everything gets one response of any size that there is room for.
            let is_within_share = own == 0 || key.is_none() || own + bytes <= total / 2;
            if !is_within_share || total < used.bytes + bytes {
                return Err(LimitExceeded::for_places(Limit::ResponseBytes, RETRY_AFTER));
            }
        }
        used.bytes += bytes;
        self.0.bytes.store(used.bytes, Relaxed);
        *used.of.entry(key).or_default() += bytes;
        Ok(Reservation {
            inner: Arc::clone(&self.0),
            key,
            bytes,
        })
    }
}

impl Reservation {
    /// Ties the reservation to a document: it ends when the last of its bytes is dropped.
    pub fn hold(mut self, document: Bytes) -> Bytes {
        self.resize(document.len() as u64);
        Bytes::from_owner(Counted {
            document,
            _reservation: self,
        })
    }

    /// Corrects the estimate that was reserved.
    fn resize(&mut self, bytes: u64) {
        let mut used = self.inner.used.lock();
        used.bytes = (used.bytes + bytes).saturating_sub(self.bytes);
        self.inner.bytes.store(used.bytes, Relaxed);
        let own = used.of.entry(self.key).or_default();
        *own = (*own + bytes).saturating_sub(self.bytes);
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut used = self.inner.used.lock();
        used.bytes = used.bytes.saturating_sub(self.bytes);
        self.inner.bytes.store(used.bytes, Relaxed);
        if let Some(own) = used.of.get_mut(&self.key) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                used.of.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn memory(mib: u64) -> ResponseMemory {
        let memory = ResponseMemory::default();
        memory.apply(&LimitConfig {
            response_bytes: Some(mib * MIB as u64),
            ..LimitConfig::default()
        });
        memory
    }

    fn held(memory: &ResponseMemory, key: ShareKey, mib: usize) -> Option<Bytes> {
        let reserved = memory.reserve(key, mib * MIB).ok()?;
        Some(reserved?.hold(vec![b'x'; mib * MIB].into()))
    }

    #[test]
    fn unread_responses_are_bounded_and_one_caller_has_half() {
        let memory = memory(40);
        let (alice, bob) = (ShareKey::of_principal("a"), ShareKey::of_principal("b"));
        assert!(memory.check(alice).is_ok());
        let hers: Vec<_> = std::iter::from_fn(|| held(&memory, alice, 4)).collect();
        assert_eq!(hers.len(), 5);
        let refused = memory.reserve(alice, 4 * MIB).expect_err("her half");
        assert_eq!(refused.limit, Limit::ResponseBytes);
        assert!(memory.check(alice).is_err() && memory.check(bob).is_ok());
        let his: Vec<_> = std::iter::from_fn(|| held(&memory, bob, 4)).collect();
        assert_eq!(his.len(), 5);
        assert!(held(&memory, ShareKey::of_principal("c"), 1).is_none());
        assert_eq!(memory.used(), 40 * MIB as u64);
        drop((hers, his));
        assert_eq!(memory.used(), 0);
        assert!(memory.0.used.lock().of.is_empty());
    }

    #[test]
    fn a_part_of_a_response_holds_all_of_it() {
        let memory = memory(40);
        let mut document = held(&memory, ShareKey::NONE, 8).expect("room");
        let first = document.split_to(10);
        drop(first);
        assert_eq!(memory.used(), 8 * MIB as u64);
        drop(document);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn the_first_response_may_be_larger_than_the_budget_and_a_small_one_is_free() {
        let memory = memory(2);
        let large = held(&memory, ShareKey::of_principal("a"), 8).expect("nobody else has any");
        let other = ShareKey::of_principal("b");
        assert!(held(&memory, other, 1).is_none());
        let small = memory.reserve(other, LARGE_BYTES - 1).expect("not counted");
        assert!(small.is_none());
        drop(large);
        assert!(held(&memory, other, 1).is_some());
    }

    #[test]
    fn the_default_follows_the_memory_of_the_process() {
        let of = |memory_bytes| {
            let config = LimitConfig {
                memory_bytes,
                ..LimitConfig::default()
            };
            config.responses()
        };
        assert_eq!(of(0), DEFAULT_BYTES);
        assert_eq!(of(512 * MIB as u64), 128 * MIB as u64);
    }
}
