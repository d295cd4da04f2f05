//! Forwards resource updates of upstreams to local subscribers.
//!
//! The upstream has one subscription for each resource, for as long as there is any local subscriber. If the
//! connection is lost, it is made again. Updates may have been missed meanwhile, so each resource is then reported as
//! updated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connection::Upstream;
use super::line::Connected;
use crate::catalog::{Announcer, SubscriptionCounts, UrlElicitation};
use crate::client::ClientError;
use crate::net::{Backoff, chance};

/// Time for which changes are collected and then forwarded together.
const SETTLES: Duration = Duration::from_millis(20);
/// Backoff of reconnections to an upstream with subscribers.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(60),
};

/// Resources with subscribers: the upstream's URIs, with their local URIs.
pub(super) type SubscribedResources = BTreeMap<Arc<str>, Vec<Arc<str>>>;

/// Subscribed resources of one upstream.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    wanted: Mutex<SubscribedResources>,
    bell: Notify,
    announcer: OnceLock<Announcer>,
}

impl Subscriptions {
    /// Returns true if there are subscribed resources.
    pub(super) fn are_any(&self) -> bool {
        !self.wanted().is_empty()
    }

    /// Wakes the task that compares the wanted subscriptions with the upstream's.
    pub(super) fn wake(&self) {
        self.bell.notify_one();
    }

    /// Handles an update notification of the upstream. Updates without a subscriber are ignored.
    pub(super) fn updated(&self, uri: &str) {
        let names = self.wanted().get(uri).cloned();
        if let (Some(names), Some(announcer)) = (names, self.announcer.get()) {
            for name in names {
                announcer.resource_changed(name);
            }
        }
    }

    /// Notifies the client that was sent to a page that its user has finished.
    pub(super) fn elicitation_completed(&self, visit: &UrlElicitation) {
        if let Some(announcer) = self.announcer.get() {
            announcer.elicitation_completed(visit);
        }
    }

    /// Reports all subscribed resources as updated, since notifications may have been missed.
    pub(super) fn all_updated(&self) {
        let names: Vec<_> = self.wanted().values().flatten().cloned().collect();
        if let Some(announcer) = self.announcer.get() {
            for name in names {
                announcer.resource_changed(name);
            }
        }
    }

    fn want(&self, uris: SubscribedResources) {
        let mut wanted = self.wanted();
        if *wanted != uris {
            *wanted = uris;
            drop(wanted);
            self.wake();
        }
    }

    fn wanted(&self) -> MutexGuard<'_, SubscribedResources> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Assigns the locally subscribed resources to their upstreams. Runs until dropped. `listed` signals that the items
/// of an upstream have changed.
pub(super) async fn share_out(
    upstreams: Vec<Weak<Upstream>>,
    announcer: Announcer,
    listed: Arc<Notify>,
) {
    for upstream in upstreams.iter().filter_map(Weak::upgrade) {
        let _ = upstream
            .upkeep
            .subscriptions
            .announcer
            .set(announcer.clone());
    }
    let interest: SubscriptionCounts = announcer.interest();
    loop {
        let mut left = interest.uris();
        for upstream in upstreams.iter().filter_map(Weak::upgrade) {
            let own = upstream.own_of(&left);
            // If two upstreams have the same resource, the first one is read, so it gets the subscription.
            left.retain(|uri| !own.values().flatten().any(|own| own == uri));
            upstream.upkeep.subscriptions.want(own);
        }
        tokio::select! {
            () = interest.changed() => {}
            () = listed.notified() => {}
        }
        sleep(SETTLES).await;
    }
}

/// Keeps the subscriptions at one upstream in line with the wanted ones, for as long as the upstream exists.
pub(super) async fn run(upstream: Weak<Upstream>) {
    // Connection that holds the current subscriptions.
    let mut asked: Weak<Connected> = Weak::new();
    let mut has_told = false;
    let mut failures = 0;
    loop {
        let Some(held) = upstream.upgrade() else {
            return;
        };
        let wanted: BTreeSet<_> = held.upkeep.subscriptions.wanted().keys().cloned().collect();
        let outcome = ask(&held, &wanted, &mut asked, &mut has_told).await;
        let bell = Arc::clone(&held.upkeep);
        let name = held.name.clone();
        drop(held);
        let bell = &bell.subscriptions.bell;
        match outcome {
            Ok(()) => {
                failures = 0;
                bell.notified().await;
            }
            Err(error) => {
                failures += 1;
                tracing::debug!(upstream = name, %error, "it does not support subscriptions to resources");
                let _ = timeout(RETRY.delay(failures, chance()), bell.notified()).await;
            }
        }
    }
}

async fn ask(
    upstream: &Upstream,
    wanted: &BTreeSet<Arc<str>>,
    asked: &mut Weak<Connected>,
    has_told: &mut bool,
) -> Result<(), ClientError> {
    let connected = match wanted.is_empty() {
        // A connection is not made only to remove subscriptions.
        true => match upstream.shared().usable() {
            Some(connected) if asked.ptr_eq(&Arc::downgrade(&connected)) => connected,
            _ => {
                *asked = Weak::new();
                *has_told = false;
                return Ok(());
            }
        },
        false => upstream.connected(upstream.shared()).await?,
    };
    let is_new = !asked.ptr_eq(&Arc::downgrade(&connected));
    if is_new && !connected.client.tells_of_resources() {
        tracing::debug!(
            upstream = upstream.name,
            "it does not notify of changed resources"
        );
    }
    connected.client.watch(wanted).await?;
    *asked = Arc::downgrade(&connected);
    drop(connected);
    // Subscribed over an earlier connection, so updates may have been missed.
    if is_new && std::mem::replace(has_told, true) {
        for uri in wanted {
            upstream.upkeep.subscriptions.updated(uri);
        }
    }
    Ok(())
}
