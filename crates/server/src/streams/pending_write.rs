//! Entries of call streams on their way to the log, also while the state is unavailable.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Streams;
use super::event::EventData;
use crate::state::{Retention, SharedState, StateError};

/// An event that is being appended to the log.
pub(super) struct PendingWrite {
    pub(super) data: EventData,
    pub(super) kind: u8,
    /// Earlier messages that have to be appended first.
    pub(super) before: VecDeque<Bytes>,
    pub(super) entry: Bytes,
    pub(super) done: BoxFuture<'static, Result<u64, StateError>>,
}

/// Messages that the reader got although the state was unavailable, in their order. They are appended before the next
/// entry, or once the call has no reader: the reader's connection may have been broken.
#[derive(Default)]
pub(super) struct Unwritten {
    pub(super) entries: VecDeque<Bytes>,
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Maximum size of all entries waiting for a retry: 16 MiB.
pub(super) const RETRY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that an entry counts at least, since its call takes memory too: 4 KiB.
pub(super) const RETRY_BYTES_MIN: usize = 4 * 1024;

impl PendingWrite {
    pub(super) fn new(
        (streams, state): (&Streams, &SharedState),
        (log, keep): (&str, Retention),
        (kind, data): (u8, EventData),
        before: VecDeque<Bytes>,
        entry: Bytes,
    ) -> Self {
        let bytes = entry.len() as u64;
        streams.logged_bytes.fetch_add(bytes, Ordering::Relaxed);
        let first = before.front().unwrap_or(&entry);
        Self {
            done: append(state, log, first, keep, Duration::ZERO),
            data,
            kind,
            before,
            entry,
        }
    }

    /// The entry that is being appended.
    pub(super) fn next(&self) -> &Bytes {
        self.before.front().unwrap_or(&self.entry)
    }

    pub(super) fn bytes(&self) -> usize {
        let before: usize = self.before.iter().map(Bytes::len).sum();
        before + self.entry.len()
    }
}

impl Unwritten {
    /// Adds the entries of a message. It is dropped if there is no room.
    pub(super) fn hold(&mut self, written: PendingWrite, keep: Retention, budget: &Arc<Semaphore>) {
        let PendingWrite { before, entry, .. } = written;
        self.entries = before;
        // Half of the room is for what no reader has.
        let bytes = u32::try_from(entry.len().max(RETRY_BYTES_MIN)).unwrap_or(u32::MAX);
        if keep.entries <= self.entries.len() || budget.available_permits() < RETRY_BYTES_MAX / 2 {
            return;
        }
        let Ok(room) = Arc::clone(budget).try_acquire_many_owned(bytes) else {
            return;
        };
        match &mut self.room {
            Some(held) => held.merge(room),
            None => self.room = Some(room),
        }
        self.entries.push_back(entry);
    }
}

/// Appends an entry after a delay.
pub(super) fn append(
    state: &SharedState,
    log: &str,
    entry: &Bytes,
    keep: Retention,
    delay: Duration,
) -> BoxFuture<'static, Result<u64, StateError>> {
    let (state, log, entry) = (state.clone(), log.to_owned(), entry.clone());
    Box::pin(async move {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        state.append(&log, entry, keep).await
    })
}

/// Returns true if the state could not be used, whatever the entry is.
pub(super) fn is_outage(error: &StateError) -> bool {
    matches!(
        error,
        StateError::TooSlow { .. } | StateError::Unreachable { .. }
    )
}

/// Returns true if the entry may be appended later.
pub(super) fn may_pass(error: &StateError) -> bool {
    !matches!(error, StateError::TooLarge { .. } | StateError::WrongType)
}
