//! Queue of records for the writer thread.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::AuditFull;
use super::config::AuditConfig;
use super::record::{Entry, Event};
use crate::net::Mutex;
use crate::telemetry::{
    AUDIT_FAILING, AUDIT_LOST, AUDIT_RECORDS, Counter, Gauge, ReadinessGate, Telemetry,
};

/// A bounded queue with non-blocking writers.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the writer thread.
    news: Condvar,
    /// Signals that records were written.
    progress: Notify,
    capacity: usize,
    strangers_per_second: u32,
    required: bool,
    /// Open while what happens can be recorded, where it has to be.
    gate: Option<Arc<ReadinessGate>>,
    records: [Counter; Event::ALL.len()],
    failing: Gauge,
    lost_for_room: Counter,
    lost_in_writing: Counter,
    not_recorded: Counter,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Entry>,
    /// Reserved records of running calls.
    reserved: usize,
    /// The last write failed.
    failing: bool,
    given: u64,
    done: u64,
    stops: bool,
    reopens: bool,
    window: Option<Instant>,
    strangers: u32,
}

/// Records for the thread.
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    pub(super) reopens: bool,
    /// True if the writer must stop, and give up records that cannot be written.
    pub(super) stops: bool,
}

/// Maximum number of records in a write.
const BATCH_MAX: usize = 256;

impl Queue {
    pub(super) fn new(config: &AuditConfig, telemetry: &Telemetry) -> Self {
        let metrics = &telemetry.metrics;
        let lost = |reason| metrics.counter(&AUDIT_LOST, &[("reason", reason)]);
        let gate = config
            .required
            .then(|| telemetry.life.gate("the audit log"));
        if let Some(gate) = &gate {
            gate.open();
        }
        Self {
            state: Mutex::default(),
            news: Condvar::new(),
            progress: Notify::new(),
            capacity: config.queue,
            strangers_per_second: config.refusals_per_second,
            required: config.required,
            gate,
            records: Event::ALL
                .map(|event| metrics.counter(&AUDIT_RECORDS, &[("event", event.as_str())])),
            failing: metrics.gauge(&AUDIT_FAILING, &[]),
            lost_for_room: lost("queue"),
            lost_in_writing: lost("write"),
            not_recorded: lost("rate"),
        }
    }

    /// Takes a place for a record that will come.
    pub(super) fn reserve(queue: &Arc<Self>) -> Result<QueueSlot, AuditFull> {
        let mut state = queue.state();
        if state.failing || queue.capacity <= state.waiting.len() + state.reserved {
            queue.set_ready(&state, false);
            return Err(AuditFull);
        }
        state.reserved += 1;
        Ok(QueueSlot(Some(Arc::clone(queue))))
    }

    /// Queues a record, or counts it as lost.
    pub(super) fn push(&self, entry: Entry) {
        let state = self.state();
        if self.capacity <= state.waiting.len() + state.reserved {
            drop(state);
            self.lost_for_room.add(1);
            return;
        }
        self.put(state, entry);
    }

    /// Queues a record that any client can cause at any rate.
    pub(super) fn push_of_stranger(&self, entry: Entry) {
        let mut state = self.state();
        let now = Instant::now();
        if state
            .window
            .is_none_or(|begun| begun + Duration::from_secs(1) <= now)
        {
            state.window = Some(now);
            state.strangers = 0;
        }
        if self.strangers_per_second <= state.strangers {
            drop(state);
            self.not_recorded.add(1);
            return;
        }
        // Half of the queue is reserved for authenticated callers.
        if self.capacity / 2 <= state.waiting.len() + state.reserved {
            drop(state);
            self.lost_for_room.add(1);
            return;
        }
        state.strangers += 1;
        self.put(state, entry);
    }

    fn put(&self, mut state: MutexGuard<'_, State>, entry: Entry) {
        let was_empty = state.waiting.is_empty();
        state.waiting.push_back(entry);
        state.given += 1;
        drop(state);
        if was_empty {
            self.news.notify_one();
        }
    }

    /// Requests that files are reopened.
    pub(super) fn reopen(&self) {
        self.state().reopens = true;
        self.news.notify_one();
    }

    /// Closes the queue.
    pub(super) fn stop(&self) {
        self.state().stops = true;
        self.news.notify_one();
    }

    /// Waits until all records queued before are written or lost.
    pub(super) async fn written(&self) {
        let given = self.state().given;
        loop {
            let mut progress = std::pin::pin!(self.progress.notified());
            progress.as_mut().enable();
            if given <= self.state().done {
                return;
            }
            progress.await;
        }
    }

    /// For the thread: waits for something to do, but not for longer.
    pub(super) fn take(&self, patience: Duration, is_free: bool) -> Batch {
        let idle = |state: &mut State| {
            (state.waiting.is_empty() || !is_free) && !state.stops && !state.reopens
        };
        let waited = self.news.wait_timeout_while(self.state(), patience, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let count = if is_free {
            state.waiting.len().min(BATCH_MAX)
        } else {
            0
        };
        let entries: Vec<_> = state.waiting.drain(..count).collect();
        Batch {
            stops: state.stops && (state.waiting.is_empty() || !is_free),
            reopens: mem::take(&mut state.reopens),
            entries,
        }
    }

    /// Writer thread: records were written, so calls can be recorded again.
    pub(super) fn wrote(&self, events: &[Event]) {
        for event in events {
            self.records[*event as usize].add(1);
        }
        self.finish(events.len(), false);
    }

    /// Writer thread: records are lost.
    pub(super) fn lost(&self, count: usize) {
        self.lost_in_writing.add(count as u64);
        self.finish(count, true);
    }

    /// Writer thread: the write failed and will be retried.
    pub(super) fn stuck(&self) {
        self.finish(0, true);
    }

    fn finish(&self, count: usize, failing: bool) {
        let mut state = self.state();
        state.failing = failing;
        state.done += count as u64;
        self.set_ready(&state, !failing);
        drop(state);
        self.failing.set(i64::from(failing));
        self.progress.notify_waiters();
    }

    /// Holds the lock, so that a failed reservation cannot close the gate after a write has opened it.
    fn set_ready(&self, _: &MutexGuard<'_, State>, ready: bool) {
        match &self.gate {
            Some(gate) if ready => gate.open(),
            Some(gate) => gate.close(),
            None => (),
        }
    }

    pub(super) fn is_required(&self) -> bool {
        self.required
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Reserved room for a record, released on drop.
#[derive(Debug)]
pub struct QueueSlot(Option<Arc<Queue>>);

impl QueueSlot {
    /// Puts the record in.
    pub fn fill(mut self, entry: Entry) {
        if let Some(queue) = self.0.take() {
            let mut state = queue.state();
            state.reserved -= 1;
            queue.put(state, entry);
        }
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.state().reserved -= 1;
        }
    }
}
