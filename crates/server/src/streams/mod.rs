//! Streams that stay open, and those that can be taken up again: who has which, what they are told, and how replicas
//! keep in touch about them.
//!
//! Two logs in the shared state carry what every replica has to know: *notices*, that something has changed
//! (`notice.rs`), and *facts* about sessions (`replicas.rs`). A replica that learns of news reads on from where it was;
//! so it misses nothing, whatever happens to a message between replicas.
//!
//! - A session's standing stream (GET) and a stream of `subscriptions/listen` are told notices ([`standing`]). Each has
//!   a [`feed`], and neither a task nor a channel. The id of an event is the place of its notice in their common log, so
//!   every replica can take a stream up again.
//! - A call's stream in the handshake era has a log of its own ([`calls`]). If it breaks, the call runs on and its
//!   answer lands in the log, from where any replica takes it up again.

mod calls;
mod config;
mod ear;
mod feed;
mod listen;
mod notice;
mod open;
mod part;
mod replicas;
mod standing;
mod subscriptions;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
pub use config::StreamsConfig;
pub(crate) use part::{Part, Parts, Said};
use tokio::sync::Semaphore;

use super::call::{Inflight, StreamHold};
use super::liveness::Liveness;
use super::reply::Reply;
use crate::auth::{Principal, PrincipalKind};
use crate::catalog::{Interest, Notice};
use crate::limit::{is_public, subnet};
use crate::seal::random_bytes;
use crate::state::{Retention, SharedState, StateError, unix_micros};
use crate::telemetry::{Metrics, REPLAY_BYTES, STREAMS, SUBSCRIPTIONS};
use calls::Live;
use feed::{End, Feed, Owner, Told, Uris, Wants};
use replicas::Outgoing;
pub(super) use replicas::{Fact, Word};

/// The streams of one server, on this replica.
pub(crate) struct Streams {
    config: StreamsConfig,
    state: SharedState,
    /// Whether other replicas have the same state. If not, there is nobody to tell.
    is_shared: bool,
    liveness: Arc<Liveness>,
    /// How many calls' streams have begun, from anywhere on.
    begun: AtomicU32,
    names: Names,
    inflight: Arc<Inflight>,
    registry: Mutex<Registry>,
    /// Calls' streams that can be taken up again, by session and stream.
    live: Mutex<LiveCalls>,
    outgoing: Outgoing,
    /// Those who ask elsewhere whether a resource has changed are told who listens to it.
    interest: Interest,
    stopping: AtomicBool,
    /// The state did not do what it was asked the last time.
    troubled: AtomicBool,
    /// How many bytes of calls' streams were put into logs.
    kept_bytes: AtomicU64,
    /// Room for ends of calls that wait for the state to be back.
    unkept: Arc<Semaphore>,
}

/// One entry numbers the next. A log that is begun anew goes on above all numbers before.
const OPENINGS: Retention = Retention {
    entries: 1,
    bytes: 1,
    life: Duration::from_secs(60),
    may_go: false,
};

/// Calls' streams by session and stream.
type LiveCalls = HashMap<(Arc<str>, u64), Arc<Live>>;

/// What the server's part of the shared state is called. The number is that of the layout.
struct Names {
    prefix: String,
    notices: String,
    facts: String,
    bus: String,
}

#[derive(Default)]
struct Registry {
    next: u64,
    feeds: HashMap<u64, Arc<Feed>>,
    /// Those that belong to a session, from old to new.
    sessions: HashMap<Arc<str>, Vec<Arc<Feed>>>,
    principals: HashMap<Box<str>, usize>,
    /// Number of streams of callers without a name, by network.
    networks: HashMap<u128, usize>,
    /// How far the log of notices was read.
    position: Option<u64>,
}

/// More streams than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany {
    pub(super) max: usize,
    pub(super) setting: &'static str,
}

/// How many there are of what streams hold, on this replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamCounts {
    /// Streams that stand open.
    pub(crate) standing: usize,
    /// Resources that they have subscribed to.
    pub(crate) subscriptions: usize,
    /// Calls' streams that can be taken up again.
    pub(crate) calls: usize,
}

impl Streams {
    pub(super) fn new(
        config: StreamsConfig,
        (state, is_shared): (SharedState, bool),
        (mount, liveness): (&str, Arc<Liveness>),
        inflight: Arc<Inflight>,
        interest: Interest,
    ) -> Self {
        let prefix = format!("1/{mount}");
        Self {
            config,
            state,
            is_shared,
            liveness,
            begun: AtomicU32::new(u32::from_ne_bytes(random_bytes())),
            names: Names {
                notices: format!("{prefix}/notices"),
                facts: format!("{prefix}/facts"),
                bus: format!("{prefix}/bus"),
                prefix,
            },
            inflight,
            registry: Mutex::default(),
            live: Mutex::default(),
            outgoing: Outgoing::default(),
            interest,
            stopping: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            kept_bytes: AtomicU64::new(0),
            unkept: Arc::new(Semaphore::new(calls::UNKEPT_BYTES_MAX)),
        }
    }

    /// Gives a feed to a stream, if there is room for one more.
    fn enter(self: &Arc<Self>, owner: Owner, wants: Wants) -> Result<Place, TooMany> {
        let mut registry = self.registry();
        let open = registry.feeds.len();
        TooMany::check(open, self.config.total, "server.streams.total")?;
        if let Some(name) = &owner.principal {
            let open = registry.principals.get(name).copied().unwrap_or(0);
            TooMany::check(
                open,
                self.config.per_principal,
                "server.streams.per_principal",
            )?;
        }
        if let Some(network) = owner.network {
            let open = registry.networks.get(&network).copied().unwrap_or(0);
            let max = self.config.of_address();
            TooMany::check(open, max, "server.streams.per_address")?;
        }
        if let Some(session) = &owner.session {
            let open = registry.sessions.get(session).map_or(0, Vec::len);
            TooMany::check(open, self.config.per_session, "server.streams.per_session")?;
        }
        registry.next += 1;
        let seen = registry.position.unwrap_or(0);
        let feed = Arc::new(Feed::new(registry.next, owner, wants, seen));
        if let Some(name) = &feed.principal {
            *registry.principals.entry(name.clone()).or_default() += 1;
        }
        if let Some(network) = feed.network {
            *registry.networks.entry(network).or_default() += 1;
        }
        if let Some(session) = &feed.session {
            let known = registry.sessions.entry(Arc::clone(session)).or_default();
            known.push(Arc::clone(&feed));
        }
        self.interest.begin(&*feed.uris());
        registry.feeds.insert(feed.number, Arc::clone(&feed));
        drop(registry);
        if self.stopping.load(Ordering::Acquire) {
            feed.end(End::Stopping);
        }
        Ok(Place {
            streams: Arc::clone(self),
            feed,
            _hold: self.inflight.stream(),
        })
    }

    fn leave(&self, feed: &Arc<Feed>) {
        let mut registry = self.registry();
        registry.feeds.remove(&feed.number);
        self.interest.end(&*feed.uris());
        if let Some(name) = &feed.principal
            && let Some(open) = registry.principals.get_mut(name)
        {
            *open -= 1;
            if *open == 0 {
                registry.principals.remove(name);
            }
        }
        if let Some(network) = feed.network
            && let Some(open) = registry.networks.get_mut(&network)
        {
            *open -= 1;
            if *open == 0 {
                registry.networks.remove(&network);
            }
        }
        let Some(session) = &feed.session else {
            return;
        };
        if let Some(known) = registry.sessions.get_mut(session) {
            known.retain(|other| other.number != feed.number);
            if known.is_empty() {
                registry.sessions.remove(session);
            }
        }
        drop(registry);
        if let Some(opening) = feed.opening() {
            self.closed(session, opening);
            let session = Arc::clone(session);
            self.say(Word::Closed { session, opening });
        }
    }

    /// Makes a stream its session's standing one, the newest on any replica: what there is to say goes to it, and to no
    /// older one (LH-05).
    ///
    /// Which one is newest is told by numbers that the shared state gives, for words from other replicas may come late.
    async fn stand(&self, feed: &Arc<Feed>) {
        let Some(session) = &feed.session else {
            return;
        };
        let opening = self.number_of_opening(session).await;
        {
            let registry = self.registry();
            feed.stand(opening);
            for other in registry.sessions.get(session).into_iter().flatten() {
                match other.opening() {
                    Some(newer) if opening < newer => feed.overtaken(newer),
                    _ => other.overtaken(opening),
                }
            }
        }
        let session = Arc::clone(session);
        self.say(Word::Opened { session, opening });
    }

    /// A number that is greater than those of all standing streams that the session had before.
    async fn number_of_opening(&self, session: &str) -> u64 {
        let log = self.names.openings(session);
        let number = self.state.append(&log, Bytes::new(), OPENINGS).await;
        self.heed(&number);
        // Logs are numbered by the time in microseconds too where nothing is known of them.
        number.unwrap_or_else(|_| unix_micros())
    }

    /// A session has a standing stream, of which the word comes from another replica.
    fn opened(&self, session: &str, opening: u64) {
        let registry = self.registry();
        for feed in registry.sessions.get(session).into_iter().flatten() {
            feed.overtaken(opening);
        }
    }

    /// It has it no longer.
    fn closed(&self, session: &str, opening: u64) {
        let registry = self.registry();
        for feed in registry.sessions.get(session).into_iter().flatten() {
            feed.outlived(opening);
        }
    }

    /// Tells everybody of a notice who wants to know. One that was told before is not told again.
    fn tell(&self, notice: &Notice, number: Option<u64>) {
        let mut registry = self.registry();
        if let Some(number) = number {
            if registry.position.is_some_and(|position| number <= position) {
                return;
            }
            registry.position = Some(number);
        }
        for feed in registry.feeds.values() {
            feed.tell(notice, number);
        }
    }

    /// How far the log of notices was read here.
    fn position(&self) -> Option<u64> {
        self.registry().position
    }

    /// What is at a place of the log of notices, or before it, is old.
    fn begin_at(&self, position: u64) {
        let mut registry = self.registry();
        registry.position = registry.position.max(Some(position));
    }

    /// What a session has subscribed to is this now.
    fn subscribed(&self, session: &str, uris: &Uris) {
        if let Some(feeds) = self.registry().sessions.get(session) {
            for feed in feeds {
                self.interest.begin(&**uris);
                let before = feed.subscribe(Arc::clone(uris));
                self.interest.end(&*before);
            }
        }
    }

    /// A task has changed that calls of a session, if of one, have made: those who want to know are told here and on
    /// other replicas.
    pub(super) fn task_changed(&self, task: &Arc<str>, session: Option<&Arc<str>>) {
        self.tell_task(task, session);
        self.say(Word::Task {
            task: Arc::clone(task),
            session: session.cloned(),
        });
    }

    fn tell_task(&self, task: &Arc<str>, session: Option<&Arc<str>>) {
        for feed in self.registry().feeds.values() {
            feed.tell_task(task, session.map(|session| &**session));
        }
    }

    /// Has everybody here look at the tasks that they want to know of.
    fn look_at_tasks(&self) {
        for feed in self.registry().feeds.values() {
            feed.look_at_tasks();
        }
    }

    /// Whether a session has a stream here.
    fn is_here(&self, session: &str) -> bool {
        self.registry().sessions.contains_key(session)
    }

    /// Ends the streams of a session that was ended (LH-09). What its calls still say is not kept.
    pub(super) fn end_session(&self, session: &str) {
        let feeds = self.registry().sessions.get(session).cloned();
        for feed in feeds.unwrap_or_default() {
            feed.end(End::Gone);
        }
        for ((of, _), live) in self.live().iter() {
            if **of == *session {
                live.abandon();
            }
        }
    }

    /// Has everything be removed that was kept for a session, which was ended on this replica.
    pub(super) fn forget_session(&self, session: &Arc<str>) {
        self.outgoing.forget(Arc::clone(session));
    }

    /// Removes what was kept for a session. What cannot be removed now expires.
    async fn forget(&self, session: &str) {
        let names = &self.names;
        let removed = async {
            self.state.remove(&names.subscriptions(session)).await?;
            self.state.remove(&names.openings(session)).await?;
            self.state.remove_all(&names.all_events(session)).await
        };
        self.heed(&removed.await);
    }

    /// Ends the streams whose credentials were taken away, as those of a server that stops: their clients come back, and
    /// are refused.
    fn end_withdrawn(&self) {
        for feed in self.registry().feeds.values() {
            if feed.is_withdrawn() {
                feed.end(End::Stopping);
            }
        }
    }

    /// The owner of a stream that a caller opens from an address.
    fn owner(&self, caller: &Arc<Principal>, address: Option<IpAddr>) -> Owner {
        let principal = counted(caller);
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

    /// Ends the stream that a request has asked for, where ids mean something: over standard input and output.
    pub(super) fn cancel(&self, request: &str) {
        for feed in self.registry().feeds.values() {
            if feed
                .request
                .as_ref()
                .is_some_and(|id| id.as_json() == request)
            {
                feed.end(End::Gone);
            }
        }
    }

    /// Ends all streams, each in the way that has its client come back elsewhere.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        for feed in self.registry().feeds.values() {
            feed.end(End::Stopping);
        }
    }

    /// Whether the server stops.
    pub(in crate::server) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// For metrics.
    pub(crate) fn counts(&self) -> StreamCounts {
        let calls = self.live().len();
        let registry = self.registry();
        StreamCounts {
            standing: registry.feeds.len(),
            subscriptions: registry
                .feeds
                .values()
                .map(|feed| feed.subscriptions())
                .sum(),
            calls,
        }
    }

    /// Returns true if calls run here whose streams can be resumed.
    fn runs_calls(&self) -> bool {
        self.live().values().any(|live| live.is_here())
    }

    /// Has operators see how many there are.
    pub(super) fn show(streams: &Arc<Self>, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let read = |instrument, own: &[(&'static str, &str)], of: fn(StreamCounts) -> usize| {
            let streams = Arc::clone(streams);
            let labels = [own, labels].concat();
            metrics.read(instrument, &labels, move || of(streams.counts()) as f64);
        };
        read(&STREAMS, &[("kind", "standing")], |counts| counts.standing);
        read(&STREAMS, &[("kind", "call")], |counts| counts.calls);
        read(&SUBSCRIPTIONS, &[], |counts| counts.subscriptions);
        let streams = Arc::clone(streams);
        let kept = move || streams.kept_bytes.load(Ordering::Relaxed) as f64;
        metrics.read(&REPLAY_BYTES, &[], kept);
    }

    /// Says in the log when the state begins to fail, and when it is back.
    fn heed<T>(&self, result: &Result<T, StateError>) {
        match result {
            Ok(_) if self.troubled.load(Ordering::Relaxed) => {
                if self.troubled.swap(false, Ordering::Relaxed) {
                    tracing::info!("the shared state does what it is asked again");
                }
            }
            Ok(_) => {}
            Err(error) => {
                if !self.troubled.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %error,
                        setting = "state.url",
                        "the shared state fails: streams that break cannot be taken up again, and replicas do not hear of one another"
                    );
                }
            }
        }
    }

    /// After which time a client whose stream was ended should come back; not all at once.
    fn retry_after(&self) -> Duration {
        let noise = u32::from(random_bytes::<1>()[0]);
        let retry = Duration::from_millis(u64::from(self.config.retry_ms));
        retry / 2 + retry * noise / 102
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, LiveCalls> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    /// The log of one call's stream.
    fn events(&self, session: &str, stream: u64) -> String {
        format!("{}{stream:016x}", self.all_events(session))
    }

    /// What the logs of all streams of a session begin with.
    fn all_events(&self, session: &str) -> String {
        format!("{}/events/{session}/", self.prefix)
    }

    /// The numbers of a session's standing streams.
    fn openings(&self, session: &str) -> String {
        format!("{}/openings/{session}", self.prefix)
    }

    /// What a session has subscribed to.
    fn subscriptions(&self, session: &str) -> String {
        format!("{}/subscriptions/{session}", self.prefix)
    }
}

impl TooMany {
    fn check(open: usize, max: usize, setting: &'static str) -> Result<(), Self> {
        if max <= open {
            return Err(Self { max, setting });
        }
        Ok(())
    }
}

/// One stream's feed, for as long as the stream is open.
#[derive(Debug)]
struct Place {
    streams: Arc<Streams>,
    feed: Arc<Feed>,
    /// Counted among the streams that are open.
    _hold: StreamHold,
}

impl Place {
    /// Makes its stream the standing one of its session.
    async fn stand(&self) {
        self.streams.stand(&self.feed).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.streams.leave(&self.feed);
    }
}

/// The place of a stream that is told nothing of what changes, and of the server's end.
#[derive(Debug)]
pub(super) struct StandingPlace(Place);

impl StandingPlace {
    /// Whether the stream has to end. If not, `cx` is woken when it has to.
    pub(super) fn is_ended(&self, cx: &Context<'_>) -> bool {
        matches!(self.0.feed.poll_next(cx), Poll::Ready(Told::End(_)))
    }
}

impl Streams {
    /// A place for a stream of a caller's.
    pub(super) fn place_for(
        self: &Arc<Self>,
        principal: &Arc<Principal>,
        address: Option<IpAddr>,
    ) -> Result<StandingPlace, Reply> {
        let owner = self.owner(principal, address);
        self.enter(owner, Wants::default())
            .map(StandingPlace)
            .map_err(|too_many| too_many.reply(None))
    }
}

/// Under which name a caller's streams are counted; `None` for callers without a name of their own.
fn counted(principal: &Principal) -> Option<Box<str>> {
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
