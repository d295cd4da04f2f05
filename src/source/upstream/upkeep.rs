//! What changes about an upstream while this server runs: what it offers, and whether it is there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::GRACE;
use super::connection::Upstream;
use super::listing::Memory;
use super::subscriptions::Subscriptions;
use crate::client::Events;
use crate::net::{Backoff, chance};

/// Changes that come one after another are looked at together.
const SETTLES: Duration = Duration::from_millis(50);
/// What changes all the time is not asked about all the time.
const PAUSE: Duration = Duration::from_secs(1);
/// When one is tried again that is not there, and whose tools are not listed for that: no call will try it.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(5),
    max: Duration::from_secs(300),
};

/// What is heard of an upstream and has to be looked at.
#[derive(Debug, Default)]
pub(super) struct Upkeep {
    /// Of the upstream, for the log.
    name: Box<str>,
    bell: Notify,
    /// It may offer something else than what is known.
    stale: AtomicBool,
    /// The last attempt to connect failed.
    failed: AtomicBool,
    connected: AtomicU64,
    /// Log messages that were dropped, and requests to clients that were refused, since it is not known whose call they are
    /// about.
    withheld_logs: AtomicU64,
    withheld_requests: AtomicU64,
    /// What somebody here listens to.
    pub(super) subscriptions: Subscriptions,
}

impl Events for Upkeep {
    fn list_changed(&self, _: &str) {
        self.stale.store(true, Ordering::Relaxed);
        self.look();
    }

    fn resource_updated(&self, uri: &str) {
        self.subscriptions.updated(uri);
    }

    fn withheld(&self, method: &str, reason: &'static str) {
        let is_log = method == "notifications/message";
        let counter = match is_log {
            true => &self.withheld_logs,
            false => &self.withheld_requests,
        };
        let first = counter.fetch_add(1, Ordering::Relaxed) == 0;
        let upstream = &*self.name;
        match (first, is_log) {
            (true, false) => tracing::warn!(
                upstream,
                method,
                reason,
                "a request of an upstream server to its client was refused; further ones are counted in \
                 longshore.backend.withheld"
            ),
            _ => tracing::debug!(
                upstream,
                method,
                reason,
                "a message of an upstream server was withheld"
            ),
        }
    }

    fn closed(&self) {
        self.look();
        self.subscriptions.look();
    }
}

impl Upkeep {
    pub(super) fn of(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Somebody should look at the upstream.
    pub(super) fn look(&self) {
        self.bell.notify_one();
    }

    /// A connection was made. What the server offered before it may have been another version's.
    pub(super) fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
        self.list_changed("all");
        self.subscriptions.look();
    }

    /// No connection could be made.
    pub(super) fn not_connected(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.look();
    }

    /// What is offered was just asked for.
    pub(super) fn is_fresh(&self) {
        self.stale.store(false, Ordering::Relaxed);
    }

    /// Whether the last attempt to connect failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// How many log messages were dropped, or requests to clients refused, since it is not known whose call they are about.
    pub(super) fn withheld_messages(&self, logs: bool) -> u64 {
        let counter = match logs {
            true => &self.withheld_logs,
            false => &self.withheld_requests,
        };
        counter.load(Ordering::Relaxed)
    }

    /// How often a connection was made.
    pub(super) fn connections(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Waits until there is something to look at; tells whether it was time to try again instead.
    async fn wait(&self, retry: Option<Duration>) -> bool {
        let again = async {
            match retry {
                Some(delay) => sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.bell.notified() => false,
            () = again => true,
        }
    }
}

/// Looks after an upstream for as long as it is there; `changed` is told when something else is to be listed.
pub(super) async fn attend(
    upstream: Weak<Upstream>,
    upkeep: Arc<Upkeep>,
    memory: Memory,
    changed: Arc<Notify>,
) {
    let mut failures = 0;
    loop {
        let retry = match upstream.upgrade() {
            Some(upstream) if upstream.is_missed() => Some(RETRY.delay(failures + 1, chance())),
            Some(_) => None,
            None => return,
        };
        let tries_again = upkeep.wait(retry).await;
        sleep(SETTLES).await;
        let Some(upstream) = upstream.upgrade() else {
            return;
        };
        upstream.bury(GRACE).await;
        let was_stale = upkeep.stale.swap(false, Ordering::Relaxed);
        // Nobody is connected to only to be asked for news.
        if tries_again || was_stale && upstream.is_connected() {
            match timeout(upstream.discovery(), upstream.listing()).await {
                Ok(Ok(fresh)) => {
                    failures = 0;
                    if upstream.learn(fresh, &memory) {
                        changed.notify_one();
                    }
                }
                Ok(Err(error)) => {
                    failures += 1;
                    tracing::debug!(upstream = upstream.name, %error, "it does not say what it offers");
                }
                Err(_) => failures += 1,
            }
        }
        if upstream.hide_or_show() {
            changed.notify_one();
        }
        drop(upstream);
        sleep(PAUSE).await;
    }
}
