//! Maintenance of an upstream: keeps its listing and its connection state up to date.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::cache::Memory;
use super::caller_key::CallerKey;
use super::connection::{GRACE, Upstream};
use super::subscriptions::Subscriptions;
use super::visits::Visits;
use crate::auth::Principal;
use crate::catalog::UrlElicitation;
use crate::client::Events;
use crate::net::{Backoff, chance};

/// Time for which changes are collected and then handled together.
const SETTLES: Duration = Duration::from_millis(50);
/// Minimum interval between listing requests to an upstream that changes frequently.
const PAUSE: Duration = Duration::from_secs(1);
/// Backoff of listing requests that failed, and of reconnections to an upstream that cannot be reached, if no call would
/// try them or it has a URL.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(5),
    max: Duration::from_secs(300),
};

const LISTS: [&str; 3] = ["tools", "resources", "prompts"];

/// Returns the bit of a list, or 0 for anything else.
fn bit_of(list: &str) -> u8 {
    let position = LISTS.iter().position(|known| *known == list);
    position.map_or(0, |position| 1 << position)
}

/// Pending maintenance of an upstream.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    /// Name of the upstream, for the log.
    name: Box<str>,
    bell: Notify,
    /// True if the listing may be outdated.
    stale: AtomicBool,
    /// Lists that the server has said to have changed, as bits in the order of [`LISTS`].
    announced: AtomicU8,
    /// True if the last connection attempt failed.
    failed: AtomicBool,
    connected: AtomicU64,
    /// Number of rejected requests to clients, and of dropped log messages, that could not be attributed to a call.
    withheld: [AtomicU64; 2],
    /// Resources with local subscribers.
    pub(super) subscriptions: Subscriptions,
    /// Pages that users were sent to.
    visits: Visits,
    /// True if each caller has a connection of its own.
    is_per_caller: bool,
}

impl Events for Maintenance {
    fn list_changed(&self, list: &str) {
        self.announced.fetch_or(bit_of(list), Ordering::Relaxed);
        self.stale.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn resource_updated(&self, uri: &str) {
        self.subscriptions.updated(uri);
    }

    fn missed(&self) {
        self.list_changed("all");
        self.subscriptions.all_updated();
    }

    fn withheld(&self, method: &str, reason: &'static str) {
        let is_log = method == "notifications/message";
        let first = self.withheld[usize::from(is_log)].fetch_add(1, Ordering::Relaxed) == 0;
        let upstream = &*self.name;
        match (first, is_log) {
            (true, false) => tracing::warn!(
                upstream,
                method,
                reason,
                "a request of an upstream server to its client was rejected; further ones are counted in longshore.upstream.withheld"
            ),
            _ => tracing::debug!(
                upstream,
                method,
                reason,
                "a message of an upstream server was withheld"
            ),
        }
    }

    fn elicitation_completed(&self, id: &str) {
        self.end_visits(None, id);
    }

    fn closed(&self) {
        self.wake();
        self.subscriptions.wake();
    }
}

/// Receiver of the messages on a connection of one caller. Lists and resources are watched on the shared connection.
pub(super) struct CallerEvents {
    pub(super) upkeep: Arc<Maintenance>,
    pub(super) caller: CallerKey,
}

impl Events for CallerEvents {
    fn wants_changes(&self) -> bool {
        false
    }

    fn withheld(&self, method: &str, reason: &'static str) {
        self.upkeep.withheld(method, reason);
    }

    fn elicitation_completed(&self, id: &str) {
        self.upkeep.end_visits(Some(self.caller), id);
    }
}

impl Maintenance {
    /// `is_per_caller` is true if each caller has a connection of its own.
    pub(super) fn of(name: &str, is_per_caller: bool) -> Self {
        Self {
            name: name.into(),
            is_per_caller,
            ..Self::default()
        }
    }

    /// Returns the name of the upstream.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Records that the client of a caller was sent to a page. `id` is the upstream's `elicitationId`.
    pub(super) fn begin_visit(&self, caller: &Principal, id: &str, elicitation: UrlElicitation) {
        let caller = self.is_per_caller.then(|| CallerKey::of(caller));
        self.visits.begin(caller, id, elicitation);
    }

    /// Notifies the clients that were sent to a page over this connection: that of a caller, or the shared one.
    fn end_visits(&self, caller: Option<CallerKey>, id: &str) {
        for visit in self.visits.end(caller, id) {
            self.subscriptions.elicitation_completed(&visit);
        }
    }

    /// Wakes the maintenance task.
    pub(super) fn wake(&self) {
        self.bell.notify_one();
    }

    /// Records a new connection. The server may have been updated since the last listing.
    pub(super) fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
        self.list_changed("all");
        self.subscriptions.wake();
    }

    /// Records a new connection of one caller. It says nothing about the listing.
    pub(super) fn caller_connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a failed connection attempt.
    pub(super) fn not_connected(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Records that the listing is requested now.
    pub(super) fn is_fresh(&self) {
        self.stale.store(false, Ordering::Relaxed);
    }

    /// Returns true if the server has said that a list has changed. A server that has had such items only since then did
    /// not declare them when the session began.
    pub(super) fn has_announced(&self, list: &str) -> bool {
        self.announced.load(Ordering::Relaxed) & bit_of(list) != 0
    }

    /// Returns true if the last connection attempt failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of dropped log messages, or of rejected requests to clients, that could not be attributed
    /// to a call.
    pub(super) fn withheld_messages(&self, logs: bool) -> u64 {
        self.withheld[usize::from(logs)].load(Ordering::Relaxed)
    }

    /// Returns the number of connections made.
    pub(super) fn connections(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Waits for a wake-up or for the time of a retry. Returns true if it is that time.
    async fn wait(&self, retry_at: Option<Instant>) -> bool {
        let again = async {
            match retry_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.bell.notified() => false,
            () = again => true,
        }
    }
}

/// Maintains an upstream for as long as it exists. `changed` is notified when the items to list have changed.
pub(super) async fn run(
    upstream: Weak<Upstream>,
    upkeep: Arc<Maintenance>,
    memory: Memory,
    changed: Arc<Notify>,
) {
    let mut failures = 0;
    // True while a listing that failed has to be made up for.
    let mut is_owed = false;
    let mut retry_at = None;
    loop {
        let retries = match upstream.upgrade() {
            Some(upstream) => upstream.is_missed() || is_owed && upstream.is_connected(),
            None => return,
        };
        retry_at = match retries {
            true => retry_at.or_else(|| Some(Instant::now() + RETRY.delay(failures + 1, chance()))),
            false => None,
        };
        let tries_again = upkeep.wait(retry_at).await;
        sleep(SETTLES).await;
        let Some(upstream) = upstream.upgrade() else {
            return;
        };
        upstream.shared.close_ended(GRACE).await;
        let was_stale = upkeep.stale.swap(false, Ordering::Relaxed);
        // A connection is not made only to check for changes.
        let is_due = match tries_again {
            true => upstream.is_missed() || upstream.is_connected(),
            false => was_stale && upstream.is_connected(),
        };
        if is_due {
            retry_at = None;
            is_owed = true;
            match timeout(upstream.discovery(), upstream.listing()).await {
                Ok(Ok(fresh)) => {
                    failures = 0;
                    is_owed = false;
                    if upstream.learn(fresh, &memory) {
                        changed.notify_one();
                    }
                }
                Ok(Err(error)) => {
                    failures += 1;
                    tracing::debug!(upstream = upstream.name, %error, "it does not list its items");
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
