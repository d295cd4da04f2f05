//! Forwards resource updates of upstreams to local subscribers.
//!
//! The upstream has one subscription for each resource, for as long as there is any local subscriber. If the
//! connection is lost, it is made again. An update before the upstream has the subscription is missed, so each resource is
//! reported as updated once it has. One whose subscription it rejects is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connection::Upstream;
use super::line::Connected;
use crate::catalog::{Announcer, SubscriptionCounts, UrlElicitation};
use crate::client::ClientError;
use crate::net::{Backoff, Mutex, chance};

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
        !self.wanted.lock().is_empty()
    }

    /// Wakes the task that compares the wanted subscriptions with the upstream's.
    pub(super) fn wake(&self) {
        self.bell.notify_one();
    }

    /// Handles an update notification of the upstream. Updates without a subscriber are ignored.
    pub(super) fn updated(&self, uri: &str) {
        let names = self.wanted.lock().get(uri).cloned();
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
        let names: Vec<_> = self.wanted.lock().values().flatten().cloned().collect();
        if let Some(announcer) = self.announcer.get() {
            for name in names {
                announcer.resource_changed(name);
            }
        }
    }

    fn want(&self, uris: SubscribedResources) {
        let mut wanted = self.wanted.lock();
        if *wanted != uris {
            *wanted = uris;
            drop(wanted);
            self.wake();
        }
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

/// Subscriptions that an upstream has, and the connection over which it has them.
#[derive(Default)]
struct Subscribed {
    connection: Weak<Connected>,
    uris: BTreeSet<Arc<str>>,
}

/// Keeps the subscriptions at one upstream in line with the wanted ones, for as long as the upstream exists.
pub(super) async fn run(upstream: Weak<Upstream>) {
    let mut subscribed = Subscribed::default();
    let mut failures = 0;
    loop {
        let Some(held) = upstream.upgrade() else {
            return;
        };
        let wanted: BTreeSet<_> = held
            .upkeep
            .subscriptions
            .wanted
            .lock()
            .keys()
            .cloned()
            .collect();
        let outcome = subscribed.change_to(wanted, &held).await;
        let upkeep = Arc::clone(&held.upkeep);
        let name = held.name.clone();
        drop(held);
        let bell = &upkeep.subscriptions.bell;
        match outcome {
            Ok(()) => {
                failures = 0;
                bell.notified().await;
            }
            Err(error) => {
                failures += 1;
                tracing::debug!(upstream = name, %error, "its resources cannot be subscribed to");
                let _ = timeout(RETRY.delay(failures, chance()), bell.notified()).await;
            }
        }
    }
}

impl Subscribed {
    async fn change_to(
        &mut self,
        wanted: BTreeSet<Arc<str>>,
        upstream: &Upstream,
    ) -> Result<(), ClientError> {
        let connected = match wanted.is_empty() {
            // A connection is not made only to remove subscriptions.
            true => match upstream.shared.usable() {
                Some(connected) if self.has(&connected) => connected,
                _ => {
                    *self = Self::default();
                    return Ok(());
                }
            },
            false => upstream.connected(&upstream.shared).await?,
        };
        if !self.has(&connected) {
            self.uris.clear();
            if !connected.client.tells_of_resources() {
                tracing::debug!(
                    upstream = upstream.name,
                    "it does not notify of changed resources"
                );
            }
        }
        connected.client.watch(&wanted).await?;
        let watched = connected.client.watched().await;
        self.connection = Arc::downgrade(&connected);
        drop(connected);
        let before = std::mem::replace(&mut self.uris, wanted);
        // An update between the local subscription, or the loss of the connection, and this one was missed.
        for uri in self.uris.difference(&before) {
            if watched.contains(uri) {
                upstream.upkeep.subscriptions.updated(uri);
            }
        }
        Ok(())
    }

    fn has(&self, connected: &Arc<Connected>) -> bool {
        self.connection.ptr_eq(&Arc::downgrade(connected))
    }
}
