//! Connection to an upstream server. It is made on first use by one attempt for all waiting requests, and again after
//! it was lost.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::cache::{self, Listing, Memory};
use super::call_error::CallError;
use super::config::{OnChange, OnDown, UpstreamConfig, UpstreamError};
use super::instrumented::{InstrumentedRequest, Operation, Peer, RequestOutcome, Session};
use super::line::{CallerLines, Connected, Line, LineInUse, PerCaller};
use super::maintenance::Maintenance;
use super::subscriptions::SubscribedResources;
use super::timeouts::{DISCOVERY, GRACE};
use super::uri_prefix::UriPrefix;
use super::usage::Usage;
use crate::auth::Principal;
use crate::catalog::CallContext;
use crate::client::{
    Client, ClientError, Events, LifecycleCache, Listener, Options, Params, Target,
};
use crate::net::{Background, BreakerState, Bulkhead, BulkheadStats, with_causes};
use crate::protocol::UriTemplate;
use crate::source::credentials::Credentials;
use crate::source::parts::SourceParts;
use crate::source::per_user::UserLogins;

use crate::telemetry::Metrics;

pub(super) struct Upstream {
    pub(super) name: String,
    pub(super) config: UpstreamConfig,
    /// Digest of the whole configuration.
    pub(super) fingerprint: String,
    target: Target,
    /// Logins of users, if each user has one at the server.
    pub(super) user_logins: Option<Arc<UserLogins>>,
    /// With whose identity requests are sent, for the audit log.
    pub(super) identity: &'static str,
    /// Credentials of the shared connection.
    credentials: Option<Arc<Credentials>>,
    /// Protocol lifecycle of the server, known from its first connection on.
    lifecycle_cache: LifecycleCache,
    bulkhead: Bulkhead,
    usage: Usage,
    retried: AtomicU64,
    /// The connection for listings and, unless `callers` is set, for all callers.
    shared: Arc<Line>,
    /// Connections of callers, if requests carry something of them.
    callers: Option<CallerLines>,
    /// Items of the server, as far as they are known.
    known: ArcSwapOption<Listing>,
    /// True while its items are hidden because it is down.
    hidden: AtomicBool,
    /// True while the listing requested at startup has not arrived.
    awaited: AtomicBool,
    /// Reason why its items were not known at startup.
    problem: ArcSwapOption<String>,
    pub(super) upkeep: Arc<Maintenance>,
    background: Background,
    peer: Arc<Peer>,
}

/// Minimum age of a connection that is replaced because abandoned calls make its messages unattributable.
const RENEWAL: Duration = Duration::from_secs(30);
/// Idle time after which a caller's connection is closed, if connections are never closed otherwise.
const CALLER_IDLE: Duration = Duration::from_secs(600);

/// Error of a server of 2026-07-28 for headers that do not mirror the body.
const HEADER_MISMATCH: i64 = -32020;

impl Upstream {
    pub(super) fn new(
        name: &str,
        config: UpstreamConfig,
        background: Background,
        parts: &SourceParts,
    ) -> Result<Self, UpstreamError> {
        let target = config.target(name)?;
        let credentials = config.credentials(name, parts)?;
        let forward = config.forwarded(name, parts.signer.as_ref())?;
        let listing = config.listing_credentials(name, parts)?;
        let user_logins = credentials.as_ref().and_then(|c| c.user_logins()).cloned();
        let identity = credentials.as_ref().map_or("none", |c| c.identity());
        let is_per_caller =
            !forward.is_empty() || credentials.as_ref().is_some_and(|c| c.are_of_caller());
        let (credentials, callers) = match is_per_caller {
            false => (credentials, None),
            true => {
                let forward = Arc::new(forward);
                let shared = listing.or_else(|| {
                    let own = credentials.clone();
                    own.filter(|credentials| !credentials.are_of_caller())
                });
                let what = PerCaller {
                    credentials,
                    forward,
                };
                (shared, Some(CallerLines::new(what, config.callers_max)))
            }
        };
        Ok(Self {
            fingerprint: config.fingerprint(),
            bulkhead: Bulkhead::new(name, &config.bulkhead),
            usage: Usage::new(Instant::now()),
            retried: AtomicU64::new(0),
            shared: Arc::new(Line::new(None)),
            callers,
            user_logins,
            identity,
            known: ArcSwapOption::empty(),
            hidden: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            problem: ArcSwapOption::empty(),
            upkeep: Arc::new(Maintenance::of(name)),
            background,
            peer: Arc::new(Peer::new(&target)),
            name: name.to_owned(),
            target,
            credentials,
            lifecycle_cache: LifecycleCache::default(),
            config,
        })
    }

    /// Returns true if there is any connection.
    pub(super) fn is_connected(&self) -> bool {
        self.shared.usable().is_some() || self.callers.as_ref().is_some_and(CallerLines::are_any)
    }

    /// Returns the connection for listings and subscriptions.
    pub(super) fn shared(&self) -> &Arc<Line> {
        &self.shared
    }

    /// Returns the connection to use for a caller.
    ///
    /// # Errors
    ///
    /// Each caller has a connection of its own, and there are too many.
    pub(super) fn line(&self, caller: &Arc<Principal>) -> Result<LineInUse, CallError> {
        let Some(callers) = &self.callers else {
            return Ok(LineInUse::begin(&self.shared));
        };
        let (line, closed) = callers.of(caller)?;
        if let Some(closed) = closed {
            self.in_background(async move { closed.disconnect(GRACE).await });
        }
        Ok(LineInUse::counted(line))
    }

    /// Returns true if the last connection attempt failed, or the circuit breaker is open.
    pub(super) fn is_down(&self) -> bool {
        self.upkeep.has_failed() || self.stats().breaker != BreakerState::Passing
    }

    /// Returns the bulkhead statistics.
    pub(super) fn stats(&self) -> BulkheadStats {
        self.bulkhead.stats()
    }

    /// Returns the number of retried requests.
    pub(super) fn retried(&self) -> u64 {
        self.retried.load(Ordering::Relaxed)
    }

    /// Returns the usage tracker.
    pub(super) fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Returns the protocol version and the name of the server, while it is connected.
    pub(super) fn spoken(&self) -> Option<(&'static str, String)> {
        let connected = self.shared.usable()?;
        let server = connected.client.server();
        Some((server.revision.as_str(), server.implementation.name.clone()))
    }

    /// Returns the items to list.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing is listed.
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

    /// Returns those of the resources that belong to this server: that it lists, or that match its templates. The
    /// result maps the server's URIs to the local ones.
    pub(super) fn own_of(&self, uris: &BTreeSet<Arc<str>>) -> SubscribedResources {
        // The shared connection's rights are not those of the subscribers.
        if self.callers.is_some() {
            return SubscribedResources::new();
        }
        let Some(known) = self.known.load_full().filter(|_| !uris.is_empty()) else {
            return SubscribedResources::new();
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
        let mut own = SubscribedResources::new();
        for uri in uris {
            let there = [Some(Cow::Borrowed(&**uri)), prefix.there(uri)];
            let mut there = there.into_iter().flatten();
            if let Some(there) = there.find(|there| is_own(there)) {
                own.entry(there.into()).or_default().push(Arc::clone(uri));
            }
        }
        own
    }

    /// Returns the timeout for requesting the listing, including the connection.
    pub(super) fn discovery(&self) -> Duration {
        Duration::from_secs(self.config.connect_seconds).saturating_add(DISCOVERY)
    }

    /// Records that the listing has been requested.
    pub(super) fn await_answer(&self) {
        self.awaited.store(true, Ordering::Relaxed);
    }

    /// Records that the listing has arrived, or will not.
    pub(super) fn has_answered(&self) {
        self.awaited.store(false, Ordering::Release);
        self.upkeep.wake();
    }

    /// Returns true while the listing is outstanding.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Acquire)
    }

    /// Returns the latest listing.
    pub(super) fn known(&self) -> Option<Arc<Listing>> {
        self.known.load_full()
    }

    /// Uses a cached listing.
    pub(super) fn recall(&self, listing: Listing) {
        self.known.store(Some(Arc::new(listing)));
    }

    /// Records why the listing is not known.
    pub(super) fn blame(&self, problem: String) {
        self.problem.store(Some(Arc::new(problem)));
    }

    /// Stores a new listing. Returns true if it differs from the former one.
    pub(super) fn learn(&self, fresh: Listing, memory: &Memory) -> bool {
        let known = self.known.load_full();
        if self.config.on_change == OnChange::Quarantine && memory.is_unreadable(&self.name) {
            let listing = cache::without_memory(&self.name, fresh);
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
        let listing = cache::compare(&self.name, self.config.on_change, before, fresh);
        if known.is_some_and(|known| *known == listing) {
            return false;
        }
        memory.keep(&self.name, &self.fingerprint, &listing);
        self.known.store(Some(Arc::new(listing)));
        true
    }

    /// Returns true if none of its items are listed, so that no call would detect its recovery.
    pub(super) fn is_missed(&self) -> bool {
        !self.is_awaited() && (self.known.load().is_none() || self.hidden.load(Ordering::Relaxed))
    }

    /// Hides or lists the items, depending on the server's state. Returns true if that has changed.
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

    /// Closes connections that have ended.
    pub(super) async fn close_all(&self, grace: Duration) {
        self.shared.close_all(grace).await;
    }

    pub(super) fn is_idle(&self) -> bool {
        // Subscribers would miss notifications.
        if self.upkeep.subscriptions.are_any() {
            return false;
        }
        let fixed = match self.config.idle_seconds {
            Some(0) => return false,
            fixed => fixed.map(Duration::from_secs),
        };
        self.shared.is_idle(fixed)
    }

    /// Closes the idle connections of callers.
    pub(super) async fn close_idle_callers(&self, grace: Duration) {
        let Some(callers) = &self.callers else {
            return;
        };
        let fixed = match self.config.idle_seconds {
            // Connections of callers who are gone would stay for ever.
            Some(0) => Some(CALLER_IDLE),
            fixed => fixed.map(Duration::from_secs),
        };
        callers.close_idle(fixed, grace).await;
    }

    /// Returns true if its connection is to be replaced: something was withheld from its caller because of calls that
    /// were abandoned on it. Calls in progress keep it until they end.
    pub(super) fn is_to_be_renewed(&self) -> bool {
        self.config.idle_seconds != Some(0)
            && self.shared.usable().is_some_and(|connected| {
                connected.client.is_hindered() && RENEWAL <= connected.since.elapsed()
            })
    }

    /// Closes the shared connection.
    pub(super) async fn disconnect(&self, grace: Duration) {
        self.shared.disconnect(grace).await;
    }

    /// Closes all connections.
    pub(super) async fn stop(&self, grace: Duration) {
        match &self.callers {
            Some(callers) => {
                let (callers, shared) = (callers.disconnect(grace), self.disconnect(grace));
                tokio::join!(callers, shared);
            }
            None => self.disconnect(grace).await,
        }
    }

    pub(super) async fn connected(&self, line: &Arc<Line>) -> Result<Arc<Connected>, ClientError> {
        match line.usable() {
            Some(connected) => Ok(connected),
            // Boxed, so that the futures of calls stay small.
            None => Box::pin(self.connect(line)).await,
        }
    }

    async fn connect(&self, line: &Arc<Line>) -> Result<Arc<Connected>, ClientError> {
        let _one_at_a_time = line.connecting.lock().await;
        if let Some(connected) = line.usable() {
            return Ok(connected);
        }
        let credentials = match &line.identity {
            Some(identity) => Some(Arc::clone(identity) as Arc<dyn crate::client::Credentials>),
            None => self
                .credentials
                .clone()
                .map(|credentials| credentials as Arc<dyn crate::client::Credentials>),
        };
        let is_shared = line.identity.is_none();
        // Changes of lists are heard on the shared connection.
        let events = is_shared.then(|| Arc::clone(&self.upkeep) as Arc<dyn Events>);
        let options = Options {
            name: self.name.clone(),
            capabilities: super::forwarding::capabilities(),
            connect_timeout: Duration::from_secs(self.config.connect_seconds.max(1)),
            request_timeout: self.timeout(),
            message_bytes: self.config.message_bytes,
            credentials,
            events,
            lifecycle: self.config.protocol,
            lifecycle_cache: self.lifecycle_cache.clone(),
            ..Options::default()
        };
        let connecting = Client::connect(self.target.clone(), options);
        // The waiting request can be cancelled, but the connection is shared, so it is made in a separate task.
        let client = match self.background.spawn(connecting) {
            Some(connecting) => connecting.await.unwrap_or_else(|_| Err(given_up())),
            None => Err(given_up()),
        };
        let client = client.inspect_err(|_| {
            if is_shared {
                self.upkeep.not_connected();
            }
        })?;
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
        line.store(Arc::clone(&connected));
        match is_shared {
            true => self.upkeep.connected(),
            false => self.upkeep.caller_connected(),
        }
        Ok(connected)
    }

    /// Runs a task on the runtime of the connections.
    pub(super) fn in_background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _ = self.background.spawn(task);
    }

    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout()
    }

    /// Starts recording metrics of its requests.
    pub(super) fn count(&self, metrics: &Metrics) {
        self.peer.count(metrics);
    }

    /// Starts the metrics and tracing of a request for the current caller. `uri` is the resource it concerns, if any.
    pub(super) fn watch<'a>(
        &'a self,
        operation: &'a Operation,
        context: &Arc<CallContext>,
        uri: Option<&str>,
    ) -> InstrumentedRequest<'a> {
        InstrumentedRequest::begin(&self.peer, operation, context, uri)
    }

    /// Makes an instrumented [`request`](Self::request) for something that is read, and so can be retried.
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
        let line = match self.line(&context.principal) {
            Ok(line) => line,
            Err(error) => {
                watched.ends(&RequestOutcome::Failed(&error), || None);
                return Err(error);
            }
        };
        let answered = self
            .request(&line, operation.method, &params, Some(relay), true)
            .await;
        let end = match &answered {
            Ok(_) => RequestOutcome::Well,
            Err(error) => RequestOutcome::Failed(error),
        };
        watched.ends(&end, || line.revision());
        answered
    }

    /// Makes a request. Retries it once if the first attempt cannot have taken effect, or if `repeatable` says that
    /// it is idempotent.
    pub(super) async fn request(
        &self,
        line: &Arc<Line>,
        method: &'static str,
        params: &Params,
        listener: Option<Arc<dyn Listener>>,
        repeatable: bool,
    ) -> Result<Box<RawValue>, CallError> {
        let pass = self.bulkhead.enter().await?;
        let _used = Used::begin(&self.usage);
        let mut again = true;
        loop {
            let connected = self.connected(line).await;
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
                // An error response shows that the server is up.
                Err(error @ ClientError::Rpc(_)) => {
                    pass.succeeded();
                    // The arguments to mirror in headers follow from the tool list, which may have changed.
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
                line.part_from(connected);
            }
            // The server is not at fault, so other callers are not affected.
            if error.concerns_caller() {
                drop(pass);
                return Err(CallError::Client(error));
            }
            let retry = !error.may_have_happened() || repeatable && error.ends_connection();
            if !(std::mem::take(&mut again) && retry && !matches!(error, ClientError::Start { .. }))
            {
                match &connected {
                    Ok(_) => pass.failed(),
                    Err(_) => pass.unreachable(),
                }
                self.upkeep.wake();
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

    /// Requests all items of the server.
    pub(super) async fn listing(&self) -> Result<Listing, CallError> {
        let pass = self.bulkhead.enter().await?;
        let asked = async { Listing::ask(&self.connected(&self.shared).await?.client).await };
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
