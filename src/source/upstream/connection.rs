//! One upstream server: connected on first use, by one attempt for all who wait, and again when it went away.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::config::{OnChange, OnDown, UpstreamConfig, UpstreamError};
use super::listing::{self, Listing, Memory};
use super::names::UriPrefix;
use super::subscriptions::Wanted;
use super::upkeep::Upkeep;
use super::usage::Usage;
use super::watched::{End, Operation, Peer, Session, Watched};
use super::{Background, DISCOVERY};
use crate::catalog::CallContext;
use crate::client::{Client, ClientError, EraCache, Events, Listener, Options, Params, Target};
use crate::net::{BreakerState, Bulkhead, BulkheadStats, Turned, with_causes};
use crate::protocol::UriTemplate;
use crate::source::credentials::Credentials;
use crate::source::tokens::Tokens;
use crate::telemetry::Metrics;

pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) config: UpstreamConfig,
    /// Stands for all of its configuration.
    pub(super) fingerprint: String,
    target: Target,
    credentials: Option<Arc<Credentials>>,
    /// The era of the protocol that it speaks, from its first connection on.
    era: EraCache,
    bulkhead: Bulkhead,
    usage: Usage,
    retried: AtomicU64,
    current: ArcSwapOption<Connected>,
    connecting: Mutex<()>,
    /// What it offers, as far as that is known.
    known: ArcSwapOption<Listing>,
    /// What it offers is not listed, since it is down.
    hidden: AtomicBool,
    /// It has been asked at start what it offers, and has not answered yet.
    awaited: AtomicBool,
    /// Why it was not known at start what it offers.
    problem: ArcSwapOption<String>,
    pub(super) upkeep: Arc<Upkeep>,
    background: Arc<Background>,
    peer: Arc<Peer>,
}

/// The least age of a connection that is replaced since abandoned calls leave it unknown whose messages it brings.
const RENEWAL: Duration = Duration::from_secs(30);

pub(super) struct Connected {
    pub(super) client: Client,
    since: Instant,
    session: Session,
}

impl Connected {
    /// Ends it. Its session is counted before that, which may take longer than the counts wait to be sent.
    async fn close(self, grace: Duration) {
        let Self {
            client, session, ..
        } = self;
        drop(session);
        client.close(grace).await;
    }
}

/// What a server of 2026-07-28 answers to headers that do not repeat what is in the body.
const HEADER_MISMATCH: i64 = -32020;

/// Why a request to an upstream came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Turned(#[from] Turned),
    /// There is no connection to it, so it was not asked.
    #[error(transparent)]
    Apart(ClientError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl Upstream {
    pub(super) fn new(
        name: &str,
        config: UpstreamConfig,
        background: Arc<Background>,
        tokens: &Tokens,
    ) -> Result<Self, UpstreamError> {
        let target = config.target(name)?;
        let credentials = config.credentials(name, tokens)?;
        Ok(Self {
            fingerprint: config.fingerprint(),
            bulkhead: Bulkhead::new(name, &config.bulkhead),
            usage: Usage::new(Instant::now()),
            retried: AtomicU64::new(0),
            current: ArcSwapOption::empty(),
            connecting: Mutex::new(()),
            known: ArcSwapOption::empty(),
            hidden: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            problem: ArcSwapOption::empty(),
            upkeep: Arc::new(Upkeep::of(name)),
            background,
            peer: Arc::new(Peer::new(&target)),
            name: name.to_owned(),
            target,
            credentials,
            era: EraCache::default(),
            config,
        })
    }

    pub(super) fn is_connected(&self) -> bool {
        self.usable().is_some()
    }

    /// Whether the last attempt to reach it failed, or too many calls of it did.
    pub(super) fn is_down(&self) -> bool {
        self.upkeep.has_failed() || self.stats().breaker != BreakerState::Passing
    }

    /// How calls of it fare.
    pub(super) fn stats(&self) -> BulkheadStats {
        self.bulkhead.stats()
    }

    /// How often a request was made again.
    pub(super) fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// How much it is used.
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The revision that is spoken with it, and what it calls itself, while it is connected.
    pub(super) fn spoken(&self) -> Option<(&'static str, String)> {
        let connected = self.usable()?;
        let server = connected.client.server();
        Some((server.revision.as_str(), server.implementation.name.clone()))
    }

    /// What it offers, unless that is not to be listed.
    ///
    /// # Errors
    ///
    /// Why nothing is listed.
    pub(super) fn offered(&self) -> Result<Arc<Listing>, String> {
        let known = self.known.load_full().ok_or_else(|| {
            let problem = self.problem.load_full();
            problem.map_or_else(String::new, |problem| (*problem).clone())
        })?;
        if self.hidden.load(Ordering::Relaxed) {
            return Err("it is down (on_down is hide)".to_owned());
        }
        Ok(known)
    }

    /// Which of these resources are its own: those that it lists, and those that its templates are for. By what it calls
    /// them, and with what they are called here.
    pub(super) fn own_of(&self, uris: &BTreeSet<Arc<str>>) -> Wanted {
        let Some(known) = self.known.load_full().filter(|_| !uris.is_empty()) else {
            return Wanted::new();
        };
        let templates: Vec<UriTemplate> = known
            .templates
            .iter()
            .filter_map(|entry| UriTemplate::parse(entry["uriTemplate"].as_str()?).ok())
            .collect();
        let listed: HashSet<&str> = known
            .resources
            .iter()
            .filter_map(|entry| entry["uri"].as_str())
            .collect();
        let is_own =
            |uri: &str| listed.contains(uri) || templates.iter().any(|t| t.matches(uri).is_some());
        let prefix = UriPrefix::of(&self.name);
        let mut own = Wanted::new();
        for uri in uris {
            let there = [Some(Cow::Borrowed(&**uri)), prefix.there(uri)];
            let mut there = there.into_iter().flatten();
            if let Some(there) = there.find(|there| is_own(there)) {
                own.entry(there.into()).or_default().push(Arc::clone(uri));
            }
        }
        own
    }

    /// How long it may take to say what it offers, connecting to it included.
    pub(super) fn discovery(&self) -> Duration {
        Duration::from_secs(self.config.connect_seconds).saturating_add(DISCOVERY)
    }

    /// It is asked what it offers, and will answer in a while.
    pub(super) fn await_answer(&self) {
        self.awaited.store(true, Ordering::Relaxed);
    }

    /// It has answered, or will not.
    pub(super) fn has_answered(&self) {
        self.awaited.store(false, Ordering::Release);
        self.upkeep.look();
    }

    /// Whether it has still to say what it offers.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// What it offered when somebody asked last.
    pub(super) fn known(&self) -> Option<Arc<Listing>> {
        self.known.load_full()
    }

    /// Takes what is remembered for what it offers.
    pub(super) fn recall(&self, listing: Listing) {
        self.known.store(Some(Arc::new(listing)));
    }

    /// Takes note of why it is not known what it offers.
    pub(super) fn blame(&self, problem: String) {
        self.problem.store(Some(Arc::new(problem)));
    }

    /// Takes note of what it offers. Tells whether that is news.
    pub(super) fn learn(&self, fresh: Listing, memory: &Memory) -> bool {
        let known = self.known.load_full();
        if self.config.on_change == OnChange::Quarantine && memory.is_unreadable(&self.name) {
            let listing = listing::without_memory(self, fresh);
            if known.is_some_and(|known| *known == listing) {
                return false;
            }
            self.known.store(Some(Arc::new(listing)));
            return true;
        }
        let before = match &known {
            Some(known) => Some((**known).clone()),
            None => memory.recall_any(&self.name),
        };
        let listing = listing::compare(self, before, fresh);
        if known.is_some_and(|known| *known == listing) {
            return false;
        }
        memory.keep(&self.name, &self.fingerprint, &listing);
        self.known.store(Some(Arc::new(listing)));
        true
    }

    /// Whether nobody lists what it may offer, so that no call will find out that it is back.
    pub(super) fn is_missed(&self) -> bool {
        !self.is_awaited() && (self.known.load().is_none() || self.hidden.load(Ordering::Relaxed))
    }

    /// Lists or hides what it offers, by how it is. Tells whether that has changed.
    pub(super) fn hide_or_show(&self) -> bool {
        let hides = self.config.on_down == OnDown::Hide && self.is_down();
        let hid = self.hidden.swap(hides, Ordering::Relaxed);
        if hides && !hid {
            tracing::warn!(
                upstream = self.name,
                "it is down, and not listed until it is back (on_down is hide)"
            );
        } else if hid && !hides {
            tracing::info!(upstream = self.name, "it is back, and listed again");
        }
        hides != hid && self.known.load().is_some()
    }

    /// Leaves nothing of a connection that has ended.
    pub(super) async fn bury(&self, grace: Duration) {
        let current = self.current.load_full();
        if let Some(connected) = &current
            && connected.client.is_closed()
        {
            self.part_from(connected);
            if let Some(connected) = current.and_then(Arc::into_inner) {
                connected.close(grace).await;
            }
        }
    }

    /// Uses a connection no more; unless another has taken its place already.
    fn part_from(&self, connected: &Arc<Connected>) {
        connected.session.is_lost();
        self.current.compare_and_swap(connected, None);
    }

    pub(super) fn is_idle(&self) -> bool {
        // Nobody would tell those who listen.
        if self.upkeep.subscriptions.are_any() {
            return false;
        }
        let fixed = match self.config.idle_seconds {
            Some(0) => return false,
            fixed => fixed.map(Duration::from_secs),
        };
        self.usable()
            .is_some_and(|connected| self.usage.is_idle(Instant::now(), connected.since, fixed))
    }

    /// Returns true if its connection is to be replaced: something was withheld from its caller because of calls that
    /// were abandoned on it. Calls in progress keep it until they end.
    pub(super) fn is_to_be_renewed(&self) -> bool {
        self.config.idle_seconds != Some(0)
            && self.usable().is_some_and(|connected| {
                connected.client.is_hindered() && RENEWAL <= connected.since.elapsed()
            })
    }

    pub(super) async fn disconnect(&self, grace: Duration) {
        let Some(connected) = self.current.swap(None) else {
            return;
        };
        // Somebody may be using it still; it ends with them then.
        if let Some(connected) = Arc::into_inner(connected) {
            tracing::debug!(upstream = self.name, "disconnecting");
            connected.close(grace).await;
        }
    }

    pub(super) fn usable(&self) -> Option<Arc<Connected>> {
        self.current
            .load_full()
            .filter(|connected| !connected.client.is_closed())
    }

    pub(super) async fn connected(&self) -> Result<Arc<Connected>, ClientError> {
        match self.usable() {
            Some(connected) => Ok(connected),
            // Kept apart, so that calls do not carry what it takes.
            None => Box::pin(self.connect()).await,
        }
    }

    async fn connect(&self) -> Result<Arc<Connected>, ClientError> {
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(connected) = self.usable() {
            return Ok(connected);
        }
        let options = Options {
            name: self.name.clone(),
            capabilities: super::relay::capabilities(),
            connect_timeout: Duration::from_secs(self.config.connect_seconds.max(1)),
            request_timeout: self.timeout(),
            message_bytes: self.config.message_bytes,
            credentials: self
                .credentials
                .clone()
                .map(|credentials| credentials as Arc<dyn crate::client::Credentials>),
            events: Some(Arc::clone(&self.upkeep) as Arc<dyn Events>),
            lifecycle: self.config.protocol,
            era: self.era.clone(),
            ..Options::default()
        };
        let connecting = Client::connect(self.target.clone(), options);
        // Whoever waits may be given up; the connection is for all.
        let client = match self.background.spawn(connecting) {
            Some(connecting) => connecting.await.unwrap_or_else(|_| Err(given_up())),
            None => Err(given_up()),
        };
        let client = client.inspect_err(|_| self.upkeep.not_connected())?;
        tracing::info!(
            upstream = self.name,
            server = client.server().implementation.name,
            revision = %client.server().revision,
            "connected"
        );
        let connected = Arc::new(Connected {
            session: Session::begin(&self.peer, client.revision()),
            client,
            since: Instant::now(),
        });
        self.current.store(Some(Arc::clone(&connected)));
        self.upkeep.connected();
        Ok(connected)
    }

    /// Does something on the thread that connections live on.
    pub(super) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _ = self.background.spawn(task);
    }

    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout()
    }

    /// Has its requests counted from now on.
    pub(super) fn count(&self, metrics: &Metrics) {
        self.peer.count(metrics);
    }

    /// Begins a request for whoever calls here. `uri` is what it is about, if it is a resource.
    pub(super) fn watch<'a>(
        &'a self,
        operation: &'a Operation,
        context: &Arc<CallContext>,
        uri: Option<&str>,
    ) -> Watched<'a> {
        Watched::begin(&self.peer, operation, context, uri)
    }

    /// The same as [`request`](Self::request), watched: of something that is read, and so may be read twice.
    pub(super) async fn read(
        &self,
        operation: &Operation,
        params: Params,
        context: &Arc<CallContext>,
        uri: Option<&str>,
    ) -> Result<Box<RawValue>, CallError> {
        let watched = self.watch(operation, context, uri);
        let params = watched.placed(params);
        let relay = Arc::clone(&watched.relay);
        let answered = self
            .request(operation.method, &params, Some(relay), true)
            .await;
        let end = match &answered {
            Ok(_) => End::Well,
            Err(error) => End::Failed(error),
        };
        watched.ends(&end, || self.revision());
        answered
    }

    /// The revision that is spoken with it, while it is connected.
    pub(super) fn revision(&self) -> Option<&'static str> {
        Some(self.usable()?.client.revision().as_str())
    }

    /// Makes a request; once more where the first cannot have happened, or `repeatable` says that twice is as good as
    /// once.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        repeatable: bool,
    ) -> Result<Box<RawValue>, CallError> {
        let pass = self.bulkhead.enter().await?;
        let _used = Used::begin(&self.usage);
        let mut again = true;
        loop {
            let connected = self.connected().await;
            let outcome = match &connected {
                Ok(connected) => {
                    connected
                        .client
                        .ask(method, params, listener.clone(), None)
                        .await
                }
                Err(error) => Err(error.clone()),
            };
            let error = match outcome {
                Ok(result) => {
                    pass.succeeded();
                    return Ok(result);
                }
                // It answered.
                Err(error @ ClientError::Rpc(_)) => {
                    pass.succeeded();
                    // Which arguments headers have to repeat is in its list of tools, which may be another by now.
                    if matches!(&error, ClientError::Rpc(refusal) if refusal.code == HEADER_MISMATCH)
                    {
                        self.upkeep.list_changed("tools");
                    }
                    return Err(error.into());
                }
                Err(error) => error,
            };
            if let Ok(connected) = &connected
                && error.ends_connection()
            {
                self.part_from(connected);
            }
            let retry = !error.may_have_happened() || repeatable && error.ends_connection();
            if !(std::mem::take(&mut again) && retry && !matches!(error, ClientError::Start { .. }))
            {
                match &connected {
                    Ok(_) => pass.failed(),
                    Err(_) => pass.unreachable(),
                }
                self.upkeep.look();
                tracing::warn!(
                    upstream = self.name,
                    method,
                    error = with_causes(&error),
                    "a request to an upstream server failed"
                );
                return Err(match connected {
                    Ok(_) => CallError::Client(error),
                    Err(_) => CallError::Apart(error),
                });
            }
            self.retried.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Everything that it offers.
    pub(super) async fn listing(&self) -> Result<Listing, CallError> {
        let pass = self.bulkhead.enter().await?;
        let asked = async { Listing::ask(&self.connected().await?.client).await };
        match asked.await {
            Ok(listing) => {
                pass.succeeded();
                self.upkeep.is_fresh();
                Ok(listing)
            }
            Err(error) => {
                pass.failed();
                Err(error.into())
            }
        }
    }
}

fn given_up() -> ClientError {
    ClientError::Gone("connecting was given up".to_owned())
}

struct Used<'a>(&'a Usage);

impl<'a> Used<'a> {
    fn begin(usage: &'a Usage) -> Self {
        usage.begin(Instant::now());
        Self(usage)
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.0.end(Instant::now());
    }
}
