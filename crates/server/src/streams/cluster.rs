//! Coordination of replicas.
//!
//! Two logs hold what every replica must know. Bus messages announce new entries and carry what concerns one replica.
//! Bus messages may be lost; log entries are not, and wait in the outbox while the state is unavailable. After an
//! outage or lost messages, a replica reads the logs from its position.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{Streams, notice};
use crate::catalog::LogLevel;
use crate::protocol::message::Response;
use crate::seal::Ended;
use crate::server::Server;
use crate::server::liveness::HEARTBEAT_INTERVAL;
use crate::state::{Retention, StateError, Subscription, SubscriptionEvent};

/// A change of a session that every replica must apply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DurableEvent {
    /// The session ended before its expiry.
    Ended(Ended),
    /// The session changed its log level.
    Level { session: Arc<str>, level: LogLevel },
}

/// A message between replicas, without delivery guarantee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BusMessage {
    /// The logs have new entries.
    News,
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

/// A bus message with its sender.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    from: u64,
    #[serde(rename = "word")]
    message: BusMessage,
}

/// Interval between checks for revoked credentials.
const REVOCATION_CHECK: Duration = Duration::from_secs(1);

/// Retention of the log of notices. Event ids stay valid as long as it reaches back.
pub(super) const NOTICES: Retention = Retention {
    entries: 10_000,
    bytes: 1024 * 1024,
    life: DAY,
    may_go: false,
};
/// Retention of the log of durable events: the maximum age of a session.
const EVENTS: Retention = Retention {
    entries: 100_000,
    bytes: 16 * 1024 * 1024,
    life: DAY,
    may_go: false,
};
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const PAGE: usize = 500;
/// Delay before the next attempt after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Number of notices appended before they are delivered.
const CHANGE_BATCH_MAX: usize = 64;
/// Maximum number of items in the outbox.
const OUTBOX_MAX: usize = 8192;

/// Items that wait to be sent to other replicas.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<VecDeque<OutboxItem>>,
    changed: Notify,
}

#[derive(Debug)]
enum OutboxItem {
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
            // Messages may be lost, and state that is not removed expires; durable events are dropped last.
            let lesser = waiting
                .iter()
                .position(|out| !matches!(out, OutboxItem::Event(_)));
            waiting.remove(lesser.unwrap_or(0));
        }
        waiting.push_back(out);
        drop(waiting);
        self.changed.notify_one();
    }

    fn take(&self) -> Option<OutboxItem> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }

    /// Puts events that could not be sent back to the front.
    fn put_back(&self, events: impl DoubleEndedIterator<Item = Box<DurableEvent>>) {
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

/// Progress of this replica.
#[derive(Default)]
struct ClusterState {
    bus: Option<Box<dyn Subscription>>,
    retry_at: Option<Instant>,
    /// Time of the next attempt to send the outbox.
    flush_at: Option<Instant>,
    /// Position in the log of durable events.
    events: u64,
    /// Time of the next attempt to read the logs.
    read_at: Option<Instant>,
}

impl Server {
    /// Delivers notifications and coordinates with other replicas, until it is dropped. It must run once.
    pub async fn run_notifications(self: Arc<Self>) {
        let mut cluster = ClusterState::default();
        let mut alive = tokio::time::interval(HEARTBEAT_INTERVAL);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut credentials = tokio::time::interval(REVOCATION_CHECK);
        credentials.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if cluster.bus.is_none() && cluster.retry_at.is_none_or(|at| at <= Instant::now()) {
                self.subscribe_to_bus(&mut cluster).await;
            }
            let retry_at = cluster.retry_at.unwrap_or_else(Instant::now);
            let is_unsubscribed = cluster.bus.is_none();
            let (flush_at, read_at) = (cluster.flush_at, cluster.read_at);
            tokio::select! {
                event = next(&mut cluster.bus) => match event {
                    SubscriptionEvent::Message(message) => self.handle_bus_message(&mut cluster, &message).await,
                    SubscriptionEvent::Missed => {
                        self.streams.liveness.clear_missing();
                        self.send_heartbeats(&mut alive).await;
                        self.catch_up(&mut cluster).await;
                        self.streams.recheck_tasks();
                    }
                },
                () = self.streams.outbox.changed.notified() => {
                    cluster.flush_at = self.flush_outbox().await;
                }
                () = tokio::time::sleep_until(flush_at.unwrap_or(retry_at)), if flush_at.is_some() => {
                    cluster.flush_at = self.flush_outbox().await;
                }
                () = tokio::time::sleep_until(read_at.unwrap_or(retry_at)), if read_at.is_some() => {
                    self.catch_up(&mut cluster).await;
                }
                () = self.announcer.news() => {
                    if self.publish_changes().await.is_err() {
                        cluster.read_at = Some(Instant::now() + RETRY);
                    }
                }
                () = tokio::time::sleep_until(retry_at), if is_unsubscribed => {}
                _ = credentials.tick() => self.streams.close_revoked(),
                _ = alive.tick() => {
                    self.send_heartbeats(&mut alive).await;
                    let looked = self.tasks.check_runners().await;
                    self.streams.track_health(&looked);
                }
            }
        }
    }

    /// Sends heartbeats for running tasks and calls. Retries soon after a failure.
    async fn send_heartbeats(&self, ticks: &mut Interval) {
        let streams = &self.streams;
        if !streams.is_shared {
            return;
        }
        let (tasks, calls) = (self.tasks.has_running(), streams.runs_calls());
        let said = async {
            if tasks {
                streams.liveness.heartbeat_tasks().await?;
            }
            if calls {
                streams.liveness.heartbeat_calls().await?;
            }
            Ok(())
        };
        let said = said.await;
        if tasks || calls {
            streams.track_health(&said);
        }
        if said.is_err() {
            ticks.reset_after(RETRY);
        }
    }

    async fn subscribe_to_bus(&self, cluster: &mut ClusterState) {
        let streams = &self.streams;
        let bus = streams.state.subscribe(&streams.names.bus).await;
        streams.track_health(&bus);
        match bus {
            Ok(bus) => {
                cluster.bus = Some(bus);
                cluster.retry_at = None;
                self.catch_up(cluster).await;
            }
            Err(_) => cluster.retry_at = Some(Instant::now() + RETRY),
        }
    }

    /// Reads both logs from the current position. Retries after a failure, since the announcement is not repeated.
    async fn catch_up(&self, cluster: &mut ClusterState) {
        let events = self.read_events(&mut cluster.events).await;
        self.streams.track_health(&events);
        let notices = self.streams.read_notices().await;
        self.streams.track_health(&notices);
        let failed = events.is_err() || notices.is_err();
        cluster.read_at = failed.then(|| Instant::now() + RETRY);
    }

    async fn read_events(&self, at: &mut u64) -> Result<(), StateError> {
        let log = &self.streams.names.events;
        loop {
            let Some(page) = self.streams.state.read_after(log, *at, PAGE).await? else {
                return Ok(());
            };
            if page.last < *at {
                // The store was restored to an earlier state. Events can be applied twice.
                *at = 0;
                continue;
            }
            for (number, entry) in &page.entries {
                *at = *number;
                // Entries of later versions, or sealed with an unknown key, are skipped.
                if let Ok(event) = serde_json::from_slice::<DurableEvent>(entry) {
                    self.apply_event(event);
                }
            }
            if page.entries.is_empty() || page.last <= *at {
                return Ok(());
            }
        }
    }

    fn apply_event(&self, event: DurableEvent) {
        match event {
            DurableEvent::Ended(ended) => self.apply_ended_session(&ended),
            DurableEvent::Level { session, level } => self.levels.set(&session, level),
        }
    }

    async fn handle_bus_message(self: &Arc<Self>, cluster: &mut ClusterState, message: &Bytes) {
        let Ok(Envelope { from, message }) = serde_json::from_slice(message) else {
            return;
        };
        if from == self.replica {
            return;
        }
        let streams = &self.streams;
        match message {
            BusMessage::News => self.catch_up(cluster).await,
            BusMessage::Cancelled { session, request } => {
                self.inflight.cancel(&session, &request);
            }
            BusMessage::Answered {
                to,
                session,
                principal,
                id,
                outcome,
            } => {
                if to == self.replica {
                    let outcome = outcome.as_deref().map_err(String::as_str);
                    let response = Response {
                        id: Some(&id),
                        outcome,
                    };
                    self.inflight
                        .client_requests
                        .deliver(&session, &principal, &response);
                }
            }
            BusMessage::Opened { session, opening } => streams.peer_opened(&session, opening),
            BusMessage::Closed { session, opening } => streams.peer_closed(&session, opening),
            BusMessage::Subscribed { session } => {
                if streams.is_here(&session)
                    && let Ok(uris) = streams.subscriptions_of(&session).await
                {
                    streams.set_subscriptions(&session, &uris);
                }
            }
            BusMessage::Posted {
                to,
                session,
                principal,
                message,
            } => {
                if to == self.replica {
                    self.receive_forwarded(&session, &principal, message);
                }
            }
            BusMessage::Task { task, session } => streams.deliver_task(&task, session.as_ref()),
            BusMessage::Taken { session, stream } => {
                streams.call_followed_elsewhere(&session, stream)
            }
            BusMessage::Appended { session, stream } => streams.call_appended(&session, stream),
        }
    }

    /// Sends the outbox. Returns the time of the next attempt if durable events could not be sent.
    async fn flush_outbox(&self) -> Option<Instant> {
        let streams = &self.streams;
        let mut unsent = Vec::new();
        while let Some(out) = streams.outbox.take() {
            let message = match out {
                OutboxItem::Message(message) => message,
                OutboxItem::Forget(session) => {
                    streams.delete_session_state(&session).await;
                    continue;
                }
                OutboxItem::Event(event) if !unsent.is_empty() => {
                    unsent.push(event);
                    continue;
                }
                OutboxItem::Event(event) => {
                    let entry = serde_json::to_vec(&event).unwrap_or_default();
                    let log = &streams.names.events;
                    let appended = streams.state.append(log, entry.into(), EVENTS).await;
                    streams.track_health(&appended);
                    if appended.is_err() {
                        unsent.push(event);
                        continue;
                    }
                    BusMessage::News
                }
            };
            self.publish(message).await;
        }
        let waits = !unsent.is_empty();
        streams.outbox.put_back(unsent.into_iter());
        waits.then(|| Instant::now() + RETRY)
    }

    /// Publishes pending changes through the log, or locally if the log fails.
    async fn publish_changes(&self) -> Result<(), StateError> {
        while self.publish_change_batch().await? == CHANGE_BATCH_MAX {}
        Ok(())
    }

    /// Publishes a batch of changes. Returns its size.
    async fn publish_change_batch(&self) -> Result<usize, StateError> {
        let streams = &self.streams;
        let (mut taken, mut is_in_log, mut is_read_there) = (0, false, false);
        while taken < CHANGE_BATCH_MAX
            && let Some(notice) = self.announcer.take()
        {
            taken += 1;
            if streams.position().is_none() {
                let _ = streams.read_notices().await;
            }
            let entry = notice::entry(&notice);
            let log = &streams.names.notices;
            let appended = streams.state.append(log, entry, NOTICES).await;
            streams.track_health(&appended);
            is_in_log |= appended.is_ok();
            // Without a position, the entry cannot be told from older ones.
            match appended.is_ok() && streams.position().is_some() {
                true => is_read_there = true,
                false => streams.deliver(&notice, None),
            }
        }
        if is_in_log {
            self.publish(BusMessage::News).await;
        }
        if is_read_there {
            // Other replicas may have appended entries before it.
            let read = streams.read_notices().await;
            streams.track_health(&read);
            read?;
        }
        Ok(taken)
    }

    async fn publish(&self, message: BusMessage) {
        let envelope = Envelope {
            from: self.replica,
            message,
        };
        let message = serde_json::to_vec(&envelope).unwrap_or_default();
        let streams = &self.streams;
        let said = streams
            .state
            .publish(&streams.names.bus, message.into())
            .await;
        streams.track_health(&said);
    }
}

/// Waits for the next event of the bus; forever without one.
async fn next(bus: &mut Option<Box<dyn Subscription>>) -> SubscriptionEvent {
    match bus {
        Some(bus) => bus.next().await,
        None => std::future::pending().await,
    }
}
