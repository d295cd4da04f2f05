//! Event streams: notification streams, resumable call streams, and how replicas coordinate them.
//!
//! Logs in the shared state hold what every replica must know: *notices*, which say that something has changed
//! (`notice.rs`), and *durable events* about sessions (`cluster.rs`): one for ends, one for log levels. A replica that is told of new entries reads on
//! from its position. So a lost bus message loses no entry.
//!
//! - A session's notification stream (GET) and a stream of `subscriptions/listen` deliver notices
//!   ([`notification_stream`]). Each has a [`mailbox`], but no task and no channel. An event id is a position in the
//!   log of notices, so any replica can resume the stream.
//! - A call stream of the stateful lifecycle has a log of its own ([`resumable`]). If the connection breaks, the call runs
//!   on and its response is appended to the log, from which any replica can resume it.

mod sessions;
mod registration;
mod pending_write;
mod resumable;
mod config;
mod subscriber;
mod live_stream;
mod log_follower;
mod mailbox;
mod keys;
mod listen;
mod notice;
mod open;
mod openings;
mod event;
mod health;
mod bus;
mod cluster;
mod notification_stream;
mod subscribe;
mod subscriptions;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::inflight::{Inflight, canonical};
use super::liveness::Liveness;
use super::quota::Counts;
use super::snapshots::Snapshots;
use crate::auth::{Principal, PrincipalKind};
use crate::catalog::{Announcer, ChangeEvent, RequestId, SubscriptionCounts};
use crate::limit::{is_public, subnet};
use crate::net::Mutex;
use crate::seal::random_bytes;
use crate::state::SharedState;
use crate::telemetry::{Metrics, REPLAY_BYTES, STREAMS, SUBSCRIPTIONS};
use bus::Outbox;
pub(super) use bus::{BusMessage, DurableEvent};
pub(super) use cluster::publish;
pub use config::StreamsConfig;
pub use event::{EventData, EventSource, StreamEvent};
use health::StateHealth;
use keys::Names;
pub(super) use listen::{listen, session_notifications};
use live_stream::LiveStream;
use mailbox::{CloseReason, Filter, Mailbox, Owner, Uris};
pub(crate) use registration::StreamSlot;
use registration::{Registration, TooManyStreams};
pub(super) use subscribe::change_subscription;
use subscriptions::StaleSubscriptions;

/// The streams of one server on this replica.
pub struct Streams {
    config: StreamsConfig,
    state: SharedState,
    /// True if other replicas use the same state.
    is_shared: bool,
    liveness: Arc<Liveness>,
    /// Number of call streams opened, from a random start.
    begun: AtomicU32,
    names: Names,
    inflight: Arc<Inflight>,
    registry: Mutex<Registry>,
    /// Resumable call streams, by session and stream.
    live: Mutex<LiveCalls>,
    outbox: Outbox,
    stale: StaleSubscriptions,
    /// Subscription counts, for sources that watch upstream resources.
    interest: SubscriptionCounts,
    /// Pending changes of the catalog and of resources.
    announcer: Announcer,
    /// What is served, with the cached contents that a change makes invalid.
    snapshots: Arc<Snapshots>,
    stopping: AtomicBool,
    health: StateHealth,
    /// Number of bytes appended to logs of call streams.
    logged_bytes: AtomicU64,
    /// Memory budget for responses that wait for the state to recover.
    retry_budget: Arc<Semaphore>,
}

/// Call streams by session and stream.
type LiveCalls = HashMap<(Arc<str>, u64), Arc<LiveStream>>;

#[derive(Default)]
struct Registry {
    next: u64,
    mailboxes: HashMap<u64, Arc<Mailbox>>,
    /// Mailboxes of a session, oldest first.
    sessions: HashMap<Arc<str>, Vec<Arc<Mailbox>>>,
    principals: Counts<Box<str>>,
    /// Number of streams of anonymous callers, by network.
    networks: Counts<u128>,
    /// Position in the log of notices.
    position: Option<u64>,
}

/// Number of streams and subscriptions on this replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamCounts {
    /// Open notification streams.
    pub(crate) standing: usize,
    /// Resources that they subscribe to.
    pub subscriptions: usize,
    /// Resumable call streams.
    pub calls: usize,
}

impl Streams {
    pub fn new(
        config: StreamsConfig,
        (state, is_shared): (SharedState, bool),
        (endpoint, liveness): (&str, Arc<Liveness>),
        inflight: Arc<Inflight>,
        announcer: Announcer,
        snapshots: Arc<Snapshots>,
    ) -> Self {
        // The announcer may live in tools that the snapshots have.
        let served = Arc::downgrade(&snapshots);
        announcer.on_resource_change(move |uri| {
            if let Some(snapshots) = served.upgrade() {
                snapshots.load().resource_cache.invalidate(uri);
            }
        });
        Self {
            config,
            state,
            is_shared,
            liveness,
            begun: AtomicU32::new(u32::from_ne_bytes(random_bytes())),
            names: Names::new(endpoint),
            inflight,
            registry: Mutex::default(),
            live: Mutex::default(),
            outbox: Outbox::default(),
            stale: StaleSubscriptions::default(),
            interest: announcer.interest(),
            announcer,
            snapshots,
            stopping: AtomicBool::new(false),
            health: StateHealth::default(),
            logged_bytes: AtomicU64::new(0),
            retry_budget: Arc::new(Semaphore::new(pending_write::RETRY_BYTES_MAX)),
        }
    }

    /// Registers a stream and creates its mailbox, if the limits allow it.
    fn enter(
        self: &Arc<Self>,
        owner: Owner,
        wants: Filter,
    ) -> Result<Registration, TooManyStreams> {
        let mut registry = self.registry.lock();
        let open = registry.mailboxes.len();
        TooManyStreams::check(open, self.config.total, "server.streams.total")?;
        if let Some(name) = &owner.principal {
            let (open, max) = (registry.principals.of(name), self.config.per_principal);
            TooManyStreams::check(open, max, "server.streams.per_principal")?;
        }
        if let Some(network) = owner.network {
            let max = self.config.per_address.unwrap_or(1000);
            let open = registry.networks.of(&network);
            TooManyStreams::check(open, max, "server.streams.per_address")?;
        }
        if let Some(session) = owner.session.as_ref().filter(|_| !owner.resumes_call) {
            let of_session = registry.sessions.get(session).into_iter().flatten();
            let open = of_session
                .filter(|mailbox| !mailbox.owner.resumes_call)
                .count();
            TooManyStreams::check(open, self.config.per_session, "server.streams.per_session")?;
        }
        registry.next += 1;
        let delivered_through = registry.position.unwrap_or(0);
        let mailbox = Arc::new(Mailbox::new(registry.next, owner, wants, delivered_through));
        if let Some(name) = &mailbox.owner.principal {
            registry.principals.add(name.clone());
        }
        if let Some(network) = mailbox.owner.network {
            registry.networks.add(network);
        }
        if let Some(session) = &mailbox.owner.session {
            let known = registry.sessions.entry(Arc::clone(session)).or_default();
            known.push(Arc::clone(&mailbox));
        }
        self.interest.begin(&*mailbox.uris());
        registry
            .mailboxes
            .insert(mailbox.number, Arc::clone(&mailbox));
        drop(registry);
        if self.stopping.load(Ordering::Acquire) {
            mailbox.end(CloseReason::Stopping);
        }
        Ok(Registration {
            streams: Arc::clone(self),
            mailbox,
            _guard: self.inflight.stream(),
        })
    }

    fn leave(&self, mailbox: &Arc<Mailbox>) {
        let mut registry = self.registry.lock();
        registry.mailboxes.remove(&mailbox.number);
        self.interest.end(&*mailbox.uris());
        if let Some(name) = &mailbox.owner.principal {
            registry.principals.remove(name);
        }
        if let Some(network) = &mailbox.owner.network {
            registry.networks.remove(network);
        }
        let Some(session) = &mailbox.owner.session else {
            return;
        };
        if let Some(known) = registry.sessions.get_mut(session) {
            known.retain(|other| other.number != mailbox.number);
            if known.is_empty() {
                registry.sessions.remove(session);
            }
        }
        drop(registry);
        if let Some(opening) = mailbox.opening() {
            self.peer_closed(session, opening);
            let session = Arc::clone(session);
            self.broadcast(BusMessage::Closed { session, opening });
        }
    }

    /// Delivers a notice to all mailboxes that want it. Skips notices that were delivered before.
    fn deliver(&self, notice: &ChangeEvent, number: Option<u64>) {
        let mut registry = self.registry.lock();
        if let Some(number) = number {
            if registry.position.is_some_and(|position| number <= position) {
                return;
            }
            registry.position = Some(number);
        }
        // Before the notification, since subscribers read the resource again.
        if let ChangeEvent::Resource(uri) = notice {
            self.snapshots.load().resource_cache.invalidate(uri);
        }
        for mailbox in registry.mailboxes.values() {
            mailbox.deliver(notice, number);
        }
    }

    /// Position in the log of notices.
    fn position(&self) -> Option<u64> {
        self.registry.lock().position
    }

    /// Marks notices up to a position as delivered.
    fn advance_to(&self, position: u64) {
        let mut registry = self.registry.lock();
        registry.position = registry.position.max(Some(position));
    }

    /// Replaces the subscriptions of a session.
    fn set_subscriptions(&self, session: &str, uris: &Uris) {
        if let Some(mailboxes) = self.registry.lock().sessions.get(session) {
            for mailbox in mailboxes {
                self.interest.begin(&**uris);
                let before = mailbox.subscribe(Arc::clone(uris));
                self.interest.end(&*before);
            }
        }
    }

    /// Tells subscribers on all replicas that a task has changed. `session` is the session that started it, if any.
    pub(super) fn task_changed(&self, task: &Arc<str>, session: Option<&Arc<str>>) {
        self.deliver_task(task, session);
        self.broadcast(BusMessage::Task {
            task: Arc::clone(task),
            session: session.cloned(),
        });
    }

    fn deliver_task(&self, task: &Arc<str>, session: Option<&Arc<str>>) {
        for mailbox in self.registry.lock().mailboxes.values() {
            mailbox.deliver_task(task, session.map(|session| &**session));
        }
    }

    /// Makes all mailboxes load their tasks again.
    fn recheck_tasks(&self) {
        for mailbox in self.registry.lock().mailboxes.values() {
            mailbox.recheck_tasks();
        }
    }

    /// Returns true if the session has a stream on this replica.
    fn is_here(&self, session: &str) -> bool {
        self.registry.lock().sessions.contains_key(session)
    }

    /// Owner of a stream that a caller opens from an address.
    fn owner(&self, caller: &Arc<Principal>, address: Option<IpAddr>) -> Owner {
        let principal = share_name(caller);
        let has_share = |address: &IpAddr| {
            principal.is_none() && (self.config.per_address.is_some() || is_public(*address))
        };
        Owner {
            caller: Some(Arc::clone(caller)),
            network: address.filter(has_share).map(subnet),
            principal,
            ..Owner::default()
        }
    }

    /// Closes the stream opened by a request, over stdio.
    pub fn cancel(&self, request: &str) {
        let request = canonical(RequestId::from_json(request));
        for mailbox in self.registry.lock().mailboxes.values() {
            if mailbox.owner.request.as_ref() == Some(&request) {
                mailbox.end(CloseReason::Gone);
            }
        }
    }

    /// Pending changes of the catalog and of resources.
    #[cfg(test)]
    pub(super) fn announcer(&self) -> &Announcer {
        &self.announcer
    }

    /// Returns true if other replicas use the same state.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns true during shutdown.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Number of streams, for metrics.
    pub fn counts(&self) -> StreamCounts {
        let calls = self.live.lock().len();
        let registry = self.registry.lock();
        StreamCounts {
            standing: registry.mailboxes.len(),
            subscriptions: registry
                .mailboxes
                .values()
                .map(|mailbox| mailbox.subscription_count())
                .sum(),
            calls,
        }
    }

    /// Returns true if resumable calls run on this replica.
    fn runs_calls(&self) -> bool {
        self.live.lock().values().any(|live| live.is_here())
    }

    /// Registers the metrics.
    pub fn show(streams: &Arc<Self>, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let read = |instrument, own: &[(&'static str, &str)], of: fn(StreamCounts) -> usize| {
            let streams = Arc::clone(streams);
            let labels = [own, labels].concat();
            metrics.read(instrument, &labels, move || of(streams.counts()) as f64);
        };
        read(&STREAMS, &[("kind", "standing")], |counts| counts.standing);
        read(&STREAMS, &[("kind", "call")], |counts| counts.calls);
        read(&SUBSCRIPTIONS, &[], |counts| counts.subscriptions);
        let streams = Arc::clone(streams);
        let kept = move || streams.logged_bytes.load(Ordering::Relaxed) as f64;
        metrics.read(&REPLAY_BYTES, &[], kept);
    }

    /// Retry delay for clients whose stream was closed, with jitter.
    fn retry_after(&self) -> Duration {
        let noise = u32::from(random_bytes::<1>()[0]);
        let retry = Duration::from_millis(u64::from(self.config.retry_ms));
        retry / 2 + retry * noise / 102
    }
}

/// Name under which a caller's streams are counted; `None` for anonymous callers.
fn share_name(principal: &Principal) -> Option<Box<str>> {
    match principal.kind() {
        PrincipalKind::Anonymous | PrincipalKind::Local => None,
        _ => Some(principal.id().into()),
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
