//! Messages between replicas, and the outbox in which they wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Streams, notice};
use crate::catalog::LogLevel;
use crate::replicas::Presence;
use crate::seal::RevokedSession;
use crate::state::{Retention, StateError};

/// A change of a session that every replica must apply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DurableEvent {
    /// The session ended before its expiry.
    Ended(RevokedSession),
    /// The session changed its log level.
    Level { session: Arc<str>, level: LogLevel },
}

/// A message between replicas, without delivery guarantee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BusMessage {
    /// The logs have new entries.
    News,
    /// The sender is there.
    Present(Presence),
    /// A client cancelled a request whose call runs elsewhere.
    Cancelled { session: Arc<str>, request: String },
    /// A client responded to a request of another replica.
    Answered {
        /// The replica that sent the request.
        to: u64,
        session: Arc<str>,
        principal: Arc<str>,
        /// JSON text.
        id: String,
        /// JSON text of the result or the error.
        outcome: Result<String, String>,
    },
    /// A session opened a notification stream. Smaller numbers are older.
    Opened { session: Arc<str>, opening: u64 },
    /// A session closed a notification stream.
    Closed { session: Arc<str>, opening: u64 },
    /// A session has a stream that a newer one supersedes. Replicas with a newer one repeat that it was opened.
    AskOpened { session: Arc<str> },
    /// The subscriptions of a session changed.
    Subscribed { session: Arc<str> },
    /// A task changed. `session` is the session that started it.
    Task {
        task: Arc<str>,
        session: Option<Arc<str>>,
    },
    /// A message for an HTTP+SSE session whose stream is on another replica.
    Posted {
        to: u64,
        session: String,
        /// The sender.
        principal: Arc<str>,
        message: String,
    },
    /// A call stream was resumed.
    Taken { session: Arc<str>, stream: u64 },
    /// The log of a call stream that was resumed elsewhere has new entries.
    Appended { session: Arc<str>, stream: u64 },
}

/// Retention of the log of notices. Event ids stay valid as long as it reaches back.
pub(super) const NOTICES: Retention = Retention {
    entries: 10_000,
    bytes: 1024 * 1024,
    life: DAY,
    may_go: false,
};
/// Retention of the log of durable events: the maximum age of a session.
pub(super) const EVENTS: Retention = Retention {
    entries: 100_000,
    bytes: 16 * 1024 * 1024,
    life: DAY,
    may_go: false,
};
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Number of log entries read in one request.
pub(super) const PAGE: usize = 500;
/// Maximum number of items in the outbox.
const OUTBOX_MAX: usize = 8192;

/// Items that wait to be sent to other replicas.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<VecDeque<OutboxItem>>,
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) enum OutboxItem {
    Message(BusMessage),
    Event(Box<DurableEvent>),
    /// Remove everything stored for a session that ended here.
    Forget(Arc<str>),
}

impl Outbox {
    pub(super) fn push(&self, message: BusMessage) {
        self.put(OutboxItem::Message(message));
    }

    pub(super) fn forget(&self, session: Arc<str>) {
        self.put(OutboxItem::Forget(session));
    }

    fn put(&self, out: OutboxItem) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if OUTBOX_MAX <= waiting.len() {
            // Messages have no guarantee, and state that is not removed expires; durable events are dropped last.
            let lesser = waiting
                .iter()
                .position(|out| !matches!(out, OutboxItem::Event(_)));
            waiting.remove(lesser.unwrap_or(0));
        }
        waiting.push_back(out);
        drop(waiting);
        self.changed.notify_one();
    }

    pub(super) fn take(&self) -> Option<OutboxItem> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }

    /// Puts events that could not be sent back to the front.
    pub(super) fn put_back(&self, events: impl DoubleEndedIterator<Item = Box<DurableEvent>>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events.rev() {
            waiting.push_front(OutboxItem::Event(event));
        }
        // The newest items are dropped.
        waiting.truncate(OUTBOX_MAX);
    }
}

impl Streams {
    /// Records a durable event for all replicas. This one has applied it.
    pub(crate) fn record_event(&self, event: DurableEvent) {
        if self.is_shared {
            self.outbox.put(OutboxItem::Event(Box::new(event)));
        }
    }

    /// Sends a message to all other replicas.
    pub(crate) fn broadcast(&self, message: BusMessage) {
        if self.is_shared {
            self.outbox.push(message);
        }
    }

    /// Delivers the notices after the current position.
    pub(super) async fn read_notices(&self) -> Result<(), StateError> {
        let log = &self.names.notices;
        let Some(mut at) = self.position() else {
            // This replica has no position yet. All entries of a new log count as new.
            let page = self.state.read_after(log, 0, 0).await?;
            self.advance_to(page.map_or(0, |page| page.last));
            return Ok(());
        };
        loop {
            let Some(page) = self.state.read_after(log, at, PAGE).await? else {
                return Ok(());
            };
            for (number, entry) in &page.entries {
                at = *number;
                match notice::read_entry(entry) {
                    Some(notice) => self.deliver(&notice, Some(*number)),
                    // Written by a later version, or sealed with an unknown key.
                    None => self.advance_to(*number),
                }
            }
            if page.entries.is_empty() || page.last <= at {
                return Ok(());
            }
        }
    }
}
