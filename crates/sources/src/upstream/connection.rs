//! Connection to an upstream server. It is made on first use by one attempt for all waiting requests, and again after
//! it was lost.

mod calls;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use super::cache::{self, Listing, Memory};
use super::call_error::CallError;
use super::config::{OnChange, OnDown, UpstreamConfig, UpstreamError};
use super::instrumented::Peer;
use super::line::{CallerLines, Line, LineInUse, PerCaller};
use super::maintenance::Maintenance;
use super::subscriptions::SubscribedResources;
use super::uri_prefix::UriPrefix;
use super::usage::Usage;
use crate::auth::Principal;
use crate::client::{LifecycleCache, Target};
use crate::net::{Background, BreakerState, Bulkhead, BulkheadStats};
use crate::protocol::{UriTemplate, encoded_uri};
use crate::source::credentials::Credentials;
use crate::source::parts::SourceParts;
use crate::source::per_user::UserLogins;
pub(super) use calls::report;

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
    pub(super) usage: Usage,
    /// Number of retried requests.
    pub(super) retried: AtomicU64,
    /// The connection for listings, subscriptions and, unless `callers` is set, for all callers.
    pub(super) shared: Arc<Line>,
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
    pub(super) peer: Arc<Peer>,
}

/// Timeout of a listing request, once the server is connected.
const DISCOVERY: Duration = Duration::from_secs(10);
/// Grace period for a program that is no longer needed.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Minimum age of a connection that is replaced because abandoned calls make its messages unattributable.
const RENEWAL: Duration = Duration::from_secs(30);
/// Idle time after which a caller's connection is closed, if connections are never closed otherwise.
const CALLER_IDLE: Duration = Duration::from_secs(600);

impl Upstream {
    pub(super) fn new(
        name: &str,
        config: UpstreamConfig,
        background: Background,
        parts: &SourceParts,
    ) -> Result<Self, UpstreamError> {
        let target = config.target_within(name, &parts.memory)?;
        let credentials = config.credentials_at(name, ".auth", &config.auth, parts)?;
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
            upkeep: Arc::new(Maintenance::of(name, is_per_caller)),
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
        let listed: HashMap<Cow<'_, str>, &str> = known
            .resources
            .iter()
            .filter_map(|entry| entry["uri"].as_str())
            .map(|uri| (encoded_uri(uri), uri))
            .collect();
        let own_of = |uri: Cow<'_, str>| match listed.get(&uri) {
            Some(own) => Some((*own).to_owned()),
            None => templates
                .iter()
                .any(|template| template.matches(&uri).is_some())
                .then(|| uri.into_owned()),
        };
        let prefix = UriPrefix::of(&self.name);
        let mut own = SubscribedResources::new();
        for uri in uris {
            let there = [Some(Cow::Borrowed(&**uri)), prefix.there(uri)];
            if let Some(there) = there.into_iter().flatten().find_map(own_of) {
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
        for (setting, entry) in self.config.unmatched(&listing.tools) {
            tracing::warn!(
                upstream = self.name,
                setting,
                entry,
                "the server has no tool that this entry matches; correct or remove the entry"
            );
        }
        memory.keep(&self.name, &self.fingerprint, &listing);
        self.known.store(Some(Arc::new(listing)));
        true
    }

    /// Returns true if a connection is tried without a call: none of its items are listed, so that no call would detect
    /// its recovery, or it is reported as down. A program is listed as long as it is down, and started for calls only.
    pub(super) fn is_missed(&self) -> bool {
        let is_listed = self.known.load().is_some() && !self.hidden.load(Ordering::Relaxed);
        let is_remote = matches!(self.target, Target::Url { .. });
        !self.is_awaited() && (!is_listed || is_remote && self.upkeep.has_failed())
    }

    /// Hides or lists the items, depending on the server's state. Returns true if that has changed.
    pub(super) fn hide_or_show(&self) -> bool {
        let hides = self.config.on_down == OnDown::Hide && self.is_down();
        let hid = self.hidden.swap(hides, Ordering::Relaxed);
        if hides && !hid {
            tracing::warn!(
                upstream = self.name,
                "the upstream server is down; its items are hidden until it reconnects (on_down is hide)"
            );
        } else if hid && !hides {
            tracing::info!(
                upstream = self.name,
                "the upstream server has reconnected; its items are listed again"
            );
        }
        hides != hid && self.known.load().is_some()
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

    /// Closes all connections.
    pub(super) async fn stop(&self, grace: Duration) {
        match &self.callers {
            Some(callers) => {
                tokio::join!(callers.disconnect(grace), self.shared.disconnect(grace));
            }
            None => self.shared.disconnect(grace).await,
        }
    }
}

#[cfg(test)]
mod tests;
