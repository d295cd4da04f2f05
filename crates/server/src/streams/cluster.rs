//! Coordination of replicas.
//!
//! Logs hold what every replica must know. Bus messages announce new entries and carry what concerns one replica.
//! Bus messages may be lost; log entries are not, and wait in the outbox while the state is unavailable. After an
//! outage or lost messages, a replica reads the logs from its position.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::bus::{BusMessage, DurableEvent, NOTICES, OutboxItem, PAGE, PendingEvent};
use super::notice;
use crate::protocol::message::Response;
use crate::server::liveness::{HEARTBEAT_INTERVAL, short_id};
use crate::server::parts::Server;
use crate::server::{handshake, http_sse_2024};
use crate::state::{StateError, Subscription, SubscriptionEvent};

/// A bus message with its sender.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    from: u64,
    #[serde(rename = "word")]
    message: BusMessage,
}

/// Interval between checks for revoked credentials.
const REVOCATION_CHECK: Duration = Duration::from_secs(1);

/// Delay before the next attempt after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Maximum time for which a stopping server tries to record events.
const SHUTDOWN_RETRY: Duration = Duration::from_secs(3);
/// Number of notices appended before they are delivered.
const CHANGE_BATCH_MAX: usize = 64;

/// Progress of this replica.
#[derive(Default)]
struct ClusterState {
    bus: Option<Box<dyn Subscription>>,
    retry_at: Option<Instant>,
    /// Time of the next attempt to send the outbox.
    flush_at: Option<Instant>,
    /// Positions in the logs of ended sessions and of log levels.
    events: u64,
    levels: u64,
    /// Time after which a stopping server does not wait for events that cannot be recorded.
    gives_up_at: Option<Instant>,
    /// Time of the next attempt to read the logs.
    read_at: Option<Instant>,
    /// Time of the next attempt to load subscriptions.
    load_at: Option<Instant>,
}

impl Server {
    /// Delivers notifications and coordinates with other replicas, until it is dropped. It must run once.
    pub async fn run_notifications(self: Arc<Self>) {
        let server = &self;
        let mut cluster = ClusterState::default();
        let mut alive = tokio::time::interval(HEARTBEAT_INTERVAL);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut credentials = tokio::time::interval(REVOCATION_CHECK);
        credentials.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if cluster.bus.is_none() && cluster.retry_at.is_none_or(|at| at <= Instant::now()) {
                subscribe_to_bus(server, &mut cluster).await;
            }
            let retry_at = cluster.retry_at.unwrap_or_else(Instant::now);
            let is_unsubscribed = cluster.bus.is_none();
            let (flush_at, read_at, load_at) = (cluster.flush_at, cluster.read_at, cluster.load_at);
            tokio::select! {
                event = next(&mut cluster.bus) => match event {
                    SubscriptionEvent::Message(message) => handle_bus_message(server, &mut cluster, &message).await,
                    SubscriptionEvent::Missed => {
                        server.streams.liveness.clear_missing();
                        send_heartbeats(server, &mut alive).await;
                        catch_up(server, &mut cluster).await;
                        server.streams.recheck_tasks();
                        server.streams.recheck_subscriptions();
                    }
                },
                () = server.streams.outbox.changed.notified() => {
                    flush_outbox(server, &mut cluster).await;
                }
                () = tokio::time::sleep_until(flush_at.unwrap_or(retry_at)), if flush_at.is_some() => {
                    flush_outbox(server, &mut cluster).await;
                }
                () = tokio::time::sleep_until(read_at.unwrap_or(retry_at)), if read_at.is_some() => {
                    catch_up(server, &mut cluster).await;
                }
                () = server.streams.stale.changed.notified() => {
                    cluster.load_at = load_subscriptions(server).await;
                }
                () = tokio::time::sleep_until(load_at.unwrap_or(retry_at)), if load_at.is_some() => {
                    cluster.load_at = load_subscriptions(server).await;
                }
                () = server.streams.announcer.news() => {
                    if publish_changes(server).await.is_err() {
                        cluster.read_at = Some(Instant::now() + RETRY);
                    }
                }
                () = tokio::time::sleep_until(retry_at), if is_unsubscribed => {}
                _ = credentials.tick() => server.streams.close_revoked(),
                _ = alive.tick() => {
                    send_heartbeats(server, &mut alive).await;
                    if server.streams.is_shared {
                        let presence = server.replicas.own(&server.telemetry().life);
                        let _ = publish(server, BusMessage::Present(presence)).await;
                        server.streams.check_superseded();
                    }
                    let looked = server.tasks.check_runners().await;
                    // A check that was not due says nothing about the state.
                    if !matches!(looked, Ok(false)) {
                        server.streams.track_health(&looked);
                    }
                }
            }
        }
    }
}

/// Loads subscriptions that may have changed. Returns the time of the next attempt if that failed.
async fn load_subscriptions(server: &Server) -> Option<Instant> {
    let loaded = server.streams.load_stale_subscriptions().await;
    loaded.err().map(|_| Instant::now() + RETRY)
}

/// Sends heartbeats for running tasks and calls. Retries soon after a failure.
async fn send_heartbeats(server: &Server, ticks: &mut Interval) {
    let streams = &server.streams;
    if !streams.is_shared {
        return;
    }
    let (tasks, calls) = (server.tasks.has_running(), streams.runs_calls());
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

async fn subscribe_to_bus(server: &Server, cluster: &mut ClusterState) {
    let streams = &server.streams;
    let bus = streams.state.subscribe(&streams.names.bus).await;
    streams.track_health(&bus);
    match bus {
        Ok(bus) => {
            cluster.bus = Some(bus);
            cluster.retry_at = None;
            streams.recheck_subscriptions();
            catch_up(server, cluster).await;
        }
        Err(_) => cluster.retry_at = Some(Instant::now() + RETRY),
    }
}

/// Reads all logs from the current positions. Retries after a failure, since the announcement is not repeated.
async fn catch_up(server: &Server, cluster: &mut ClusterState) {
    let streams = &server.streams;
    let events = read_events(server, &streams.names.events, &mut cluster.events).await;
    streams.track_health(&events);
    let levels = read_events(server, &streams.names.levels, &mut cluster.levels).await;
    streams.track_health(&levels);
    let notices = streams.read_notices().await;
    streams.track_health(&notices);
    let failed = events.is_err() || levels.is_err() || notices.is_err();
    cluster.read_at = failed.then(|| Instant::now() + RETRY);
}

async fn read_events(server: &Server, log: &str, at: &mut u64) -> Result<(), StateError> {
    loop {
        let Some(page) = server.streams.state.read_after(log, *at, PAGE).await? else {
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
                apply_event(server, event);
            }
        }
        if page.entries.is_empty() || page.last <= *at {
            return Ok(());
        }
    }
}

fn apply_event(server: &Server, event: DurableEvent) {
    match event {
        DurableEvent::Ended(ended) => handshake::apply_revocation(server, &ended),
        DurableEvent::Level { session, level } => server.sessions.levels.set(&session, level),
    }
}

async fn handle_bus_message(server: &Arc<Server>, cluster: &mut ClusterState, message: &Bytes) {
    let Ok(Envelope { from, message }) = serde_json::from_slice(message) else {
        return;
    };
    if from == server.replica {
        return;
    }
    let streams = &server.streams;
    match message {
        BusMessage::News => catch_up(server, cluster).await,
        BusMessage::Present(presence) => server.replicas.saw(from, presence),
        BusMessage::Cancelled { session, request } => {
            server.calls.inflight.cancel(&session, &request);
        }
        BusMessage::Answered {
            to,
            session,
            principal,
            id,
            outcome,
        } => {
            if to == short_id(server.replica) {
                let outcome = outcome.as_deref().map_err(String::as_str);
                let response = Response {
                    id: Some(&id),
                    outcome,
                };
                server
                    .calls
                    .inflight
                    .client_requests
                    .deliver(&session, &principal, &response);
            }
        }
        BusMessage::Opened { session, opening } => streams.peer_opened(&session, opening),
        BusMessage::Closed { session, opening } => streams.peer_closed(&session, opening),
        BusMessage::AskOpened { session } => streams.repeat_openings(&session),
        BusMessage::Subscribed { session } => {
            if streams.is_here(&session) {
                streams.load_subscriptions(&session).await;
            }
        }
        BusMessage::Posted {
            to,
            session,
            principal,
            message,
        } => {
            if to == server.replica {
                http_sse_2024::receive_forwarded(server, &session, &principal, message);
            }
        }
        BusMessage::Task { task, session } => streams.deliver_task(&task, session.as_ref()),
        BusMessage::Taken { session, stream } => {
            if let Some(live) = streams.live_call(&session, stream) {
                live.is_followed_elsewhere.store(true, Ordering::Release);
                live.take();
            }
        }
        BusMessage::Appended { session, stream } => {
            if let Some(live) = streams.live_call(&session, stream) {
                live.news.notify_waiters();
            }
        }
    }
}

/// Sends the outbox. Durable events that could not be sent are tried again later.
async fn flush_outbox(server: &Server, cluster: &mut ClusterState) {
    let streams = &server.streams;
    let mut unsent = Vec::new();
    // Each log keeps its order.
    let (mut events_fail, mut levels_fail) = (false, false);
    while let Some(out) = streams.outbox.take() {
        let message = match out {
            OutboxItem::Message(message) => message,
            OutboxItem::Forget(session) => {
                streams.delete_session_state(&session).await;
                continue;
            }
            OutboxItem::Event(pending) => {
                let fails = match pending.is_level() {
                    true => &mut levels_fail,
                    false => &mut events_fail,
                };
                if *fails {
                    unsent.push(pending);
                    continue;
                }
                let entry = serde_json::to_vec(&pending.event).unwrap_or_default();
                let (log, keep) = pending.log(&streams.names);
                let appended = streams.state.append(log, entry.into(), keep).await;
                streams.track_health(&appended);
                if appended.is_err() {
                    *fails = true;
                    unsent.push(pending);
                    continue;
                }
                BusMessage::News
            }
        };
        // Messages have no guarantee; readers of the logs read on later.
        let _ = publish(server, message).await;
    }
    cluster.flush_at = (!unsent.is_empty()).then(|| Instant::now() + RETRY);
    if streams.is_stopping() {
        stop_waiting(&mut unsent, &mut cluster.gives_up_at);
    }
    streams.outbox.put_back(unsent.into_iter());
}

/// Lets a stopping server stop after a while without these events.
fn stop_waiting(unsent: &mut [PendingEvent], gives_up_at: &mut Option<Instant>) {
    let now = Instant::now();
    if now < *gives_up_at.get_or_insert(now + SHUTDOWN_RETRY) {
        return;
    }
    let awaited = unsent.iter_mut().filter_map(|pending| pending.busy.take());
    let count = awaited.count();
    if 0 < count {
        tracing::warn!(
            count,
            setting = "state.url",
            "the end of sessions could not be recorded in the shared state: other replicas serve them until they expire"
        );
    }
}

/// Publishes pending changes through the log, or locally if the log fails.
async fn publish_changes(server: &Server) -> Result<(), StateError> {
    while publish_change_batch(server).await? == CHANGE_BATCH_MAX {}
    Ok(())
}

/// Publishes a batch of changes. Returns its size.
async fn publish_change_batch(server: &Server) -> Result<usize, StateError> {
    let streams = &server.streams;
    let (mut taken, mut is_in_log, mut is_read_there) = (0, false, false);
    while taken < CHANGE_BATCH_MAX
        && let Some(notice) = server.streams.announcer.take()
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
        let _ = publish(server, BusMessage::News).await;
    }
    if is_read_there {
        // Other replicas may have appended entries before it.
        let read = streams.read_notices().await;
        streams.track_health(&read);
        read?;
    }
    Ok(taken)
}

/// Sends a message to all other replicas.
pub(crate) async fn publish(server: &Server, message: BusMessage) -> Result<(), StateError> {
    let envelope = Envelope {
        from: server.replica,
        message,
    };
    let message = serde_json::to_vec(&envelope).unwrap_or_default();
    let streams = &server.streams;
    let said = streams
        .state
        .publish(&streams.names.bus, message.into())
        .await;
    streams.track_health(&said);
    said
}

/// Waits for the next event of the bus; forever without one.
async fn next(bus: &mut Option<Box<dyn Subscription>>) -> SubscriptionEvent {
    match bus {
        Some(bus) => bus.next().await,
        None => std::future::pending().await,
    }
}
