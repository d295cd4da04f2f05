//! Messages between replicas, and the outbox in which they wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::keys::Names;
use super::{Streams, notice};
use crate::catalog::LogLevel;
use crate::net::Mutex;
use crate::replicas::Presence;
use crate::seal::RevokedSession;
use crate::server::inflight::InflightGuard;
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
        /// Short identifier of the replica that sent the request.
        to: u32,
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
/// Retention of the log of ended sessions: the maximum age of a session.
const EVENTS: Retention = Retention {
    entries: 100_000,
    bytes: 16 * 1024 * 1024,
    life: DAY,
    may_go: false,
};
/// Retention of the log of log levels. It is a log of its own, since a client can set its level as often as it likes.
const LEVELS: Retention = Retention {
    entries: 10_000,
    bytes: 1024 * 1024,
    life: DAY,
    may_go: true,
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
    Event(PendingEvent),
    /// Remove everything stored for a session that ended here.
    Forget(Arc<str>),
}

/// A durable event that is not in its log yet.
#[derive(Debug)]
pub(super) struct PendingEvent {
    pub(super) event: Box<DurableEvent>,
    /// Makes shutdown wait for it. `None` if it may be lost.
    pub(super) busy: Option<InflightGuard>,
}

impl Outbox {
    pub(super) fn put(&self, out: OutboxItem) {
        let mut waiting = self.waiting.lock();
        waiting.push_back(out);
        make_room(&mut waiting);
        drop(waiting);
        self.changed.notify_one();
    }

    pub(super) fn take(&self) -> Option<OutboxItem> {
        let mut waiting = self.waiting.lock();
        waiting.pop_front()
    }

    /// Puts events that could not be sent back to the front.
    pub(super) fn put_back(&self, events: impl DoubleEndedIterator<Item = PendingEvent>) {
        let mut waiting = self.waiting.lock();
        for event in events.rev() {
            waiting.push_front(OutboxItem::Event(event));
        }
        make_room(&mut waiting);
    }
}

/// Drops what exceeds the maximum. Messages have no guarantee, state that is not removed expires, and sessions without a
/// log level have the default; ended sessions are dropped last.
fn make_room(waiting: &mut VecDeque<OutboxItem>) {
    while OUTBOX_MAX < waiting.len() {
        let oldest = |is_lesser: fn(&OutboxItem) -> bool| waiting.iter().position(is_lesser);
        let least = oldest(|out| !matches!(out, OutboxItem::Event(_))).or_else(|| {
            oldest(|out| matches!(out, OutboxItem::Event(pending) if pending.is_level()))
        });
        waiting.remove(least.unwrap_or(0));
    }
}

impl PendingEvent {
    /// Returns true for a change of a log level.
    pub(super) fn is_level(&self) -> bool {
        matches!(*self.event, DurableEvent::Level { .. })
    }

    /// Its log, and the retention of that.
    pub(super) fn log<'n>(&self, names: &'n Names) -> (&'n str, Retention) {
        match self.is_level() {
            true => (&names.levels, LEVELS),
            false => (&names.events, EVENTS),
        }
    }
}

impl Streams {
    /// Records a durable event for all replicas. This one has applied it.
    pub(crate) fn record_event(&self, event: DurableEvent) {
        if !self.is_shared {
            return;
        }
        let must_arrive = matches!(event, DurableEvent::Ended(_));
        self.outbox.put(OutboxItem::Event(PendingEvent {
            event: Box::new(event),
            busy: must_arrive.then(|| self.inflight.delay_shutdown()),
        }));
    }

    /// Sends a message to all other replicas.
    pub(crate) fn broadcast(&self, message: BusMessage) {
        if self.is_shared {
            self.outbox.put(OutboxItem::Message(message));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> OutboxItem {
        OutboxItem::Message(BusMessage::News)
    }

    fn level(number: usize) -> OutboxItem {
        OutboxItem::Event(PendingEvent {
            event: Box::new(DurableEvent::Level {
                session: number.to_string().into(),
                level: LogLevel::Debug,
            }),
            busy: None,
        })
    }

    fn ended() -> OutboxItem {
        let nonce = [0_u8; 16];
        let ended = serde_json::json!({
            "nonce": nonce, "principal": "ada", "issued": 0, "expires": 1
        });
        OutboxItem::Event(PendingEvent {
            event: Box::new(DurableEvent::Ended(
                serde_json::from_value(ended).expect("a session"),
            )),
            busy: None,
        })
    }

    #[test]
    fn levels_that_a_client_sets_without_end_displace_no_ended_session() {
        let outbox = Outbox::default();
        outbox.put(ended());
        outbox.put(message());
        for number in 0..2 * OUTBOX_MAX {
            outbox.put(level(number));
        }
        outbox.put(ended());
        let taken: Vec<_> = std::iter::from_fn(|| outbox.take()).collect();
        assert_eq!(taken.len(), OUTBOX_MAX);
        let is_ended = |out: &&OutboxItem| matches!(out, OutboxItem::Event(of) if !of.is_level());
        assert_eq!(taken.iter().filter(is_ended).count(), 2);
        // The newest levels are kept.
        let last = &taken[OUTBOX_MAX - 2];
        assert!(format!("{last:?}").contains(&(2 * OUTBOX_MAX - 1).to_string()));
        // What is put back counts too.
        outbox.put(message());
        outbox.put_back(taken.into_iter().filter_map(|out| match out {
            OutboxItem::Event(pending) => Some(pending),
            _ => None,
        }));
        let taken: Vec<_> = std::iter::from_fn(|| outbox.take()).collect();
        assert_eq!(taken.len(), OUTBOX_MAX);
        assert_eq!(taken.iter().filter(is_ended).count(), 2);
    }
}
