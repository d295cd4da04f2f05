//! Forwards resource updates of upstreams to local subscribers.
//!
//! The upstream has one subscription for each resource, for as long as there is any local subscriber. If the
//! connection is lost, it is made again. An update before the upstream has the subscription is missed, so each resource is
//! reported as updated once it has. One whose subscription it rejects is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Upstream;
use super::line::Connected;
use crate::catalog::{Announcer, SubscriptionCounts, UrlElicitation};
use crate::client::ClientError;
use crate::net::{Backoff, Mutex, chance};
use crate::protocol::encoded_uri;

/// Time for which changes are collected and then forwarded together.
const SETTLES: Duration = Duration::from_millis(20);
/// Backoff of reconnections to an upstream with subscribers.
pub(super) const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(60),
};

/// Resources with subscribers: the upstream's URIs, with their local URIs.
pub(super) type SubscribedResources = BTreeMap<Arc<str>, Vec<Arc<str>>>;

/// Subscribed resources of one upstream.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    wanted: Mutex<SubscribedResources>,
    /// Resources that the upstream has a subscription for.
    held: Mutex<BTreeSet<Arc<str>>>,
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
        let wanted = self.wanted.lock();
        // The upstream may encode characters that it does not encode in its list.
        let mut known = wanted.iter();
        let names = wanted.get(uri).or_else(|| {
            let same = known.find(|(own, _)| encoded_uri(own) == *uri);
            same.map(|(_, names)| names)
        });
        let names = names.cloned();
        drop(wanted);
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

    /// Reports the resources that the upstream has a subscription for as updated, since notifications may have been
    /// missed.
    pub(super) fn all_updated(&self) {
        let held = self.held.lock().clone();
        for uri in &held {
            self.updated(uri);
        }
    }

    /// The upstream's URIs of the resources with subscribers.
    fn wanted(&self) -> BTreeSet<Arc<str>> {
        self.wanted.lock().keys().cloned().collect()
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

/// Keeps the subscriptions at one upstream in line with the wanted ones, for as long as the upstream exists.
pub(super) async fn run(upstream: Weak<Upstream>, retry: Backoff) {
    // The connection over which the upstream has the subscriptions.
    let mut connection = Weak::new();
    let mut failures = 0;
    loop {
        let Some(held) = upstream.upgrade() else {
            return;
        };
        let upkeep = Arc::clone(&held.upkeep);
        let wanted = upkeep.subscriptions.wanted();
        let outcome = subscribe(&held, &wanted, &mut connection).await;
        drop(held);
        let bell = &upkeep.subscriptions.bell;
        match outcome {
            Ok(has_any) => {
                let began = Instant::now();
                bell.notified().await;
                if retry.max <= began.elapsed() {
                    failures = 0;
                }
                let is_lost = connection
                    .upgrade()
                    .is_none_or(|connected: Arc<Connected>| connected.client.is_closed());
                if !(has_any && is_lost) {
                    continue;
                }
            }
            Err(error) => {
                tracing::debug!(upstream = upkeep.name(), %error, "its resources cannot be subscribed to");
            }
        }
        // A server that ends again as soon as it is connected is not restarted continuously.
        failures += 1;
        // The connection has rung when it was made, and when it was lost.
        let _ = bell.notified().now_or_never();
        if upkeep.subscriptions.wanted() != wanted {
            continue;
        }
        let _ = timeout(retry.delay(failures, chance()), bell.notified()).await;
    }
}

/// Changes the subscriptions at an upstream to the wanted ones, and returns true if there are any. `connection` is the one
/// that has the present ones.
async fn subscribe(
    upstream: &Upstream,
    wanted: &BTreeSet<Arc<str>>,
    connection: &mut Weak<Connected>,
) -> Result<bool, ClientError> {
    let subscriptions = &upstream.upkeep.subscriptions;
    let has_them = |connected: &Arc<Connected>| connection.ptr_eq(&Arc::downgrade(connected));
    let connected = match wanted.is_empty() {
        // A connection is not made only to remove subscriptions.
        true => match upstream.shared.usable().filter(has_them) {
            Some(connected) => connected,
            None => return Ok(false),
        },
        false => upstream.connected(&upstream.shared).await?,
    };
    if !has_them(&connected) {
        subscriptions.held.lock().clear();
        if !connected.client.tells_of_resources() {
            tracing::debug!(
                upstream = upstream.name,
                "it does not notify of changed resources"
            );
        }
    }
    connected.client.watch(wanted).await?;
    let watched = connected.client.watched().await;
    *connection = Arc::downgrade(&connected);
    let before = std::mem::replace(&mut *subscriptions.held.lock(), watched.clone());
    // An update between the local subscription, or the loss of the connection, and this one was missed.
    for uri in watched.difference(&before) {
        subscriptions.updated(uri);
    }
    Ok(!wanted.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ChangeEvent;
    use crate::client::Lifecycle;
    use crate::net::Background;
    use crate::source::parts::SourceParts;
    use crate::source::upstream::UpstreamConfig;

    #[test]
    fn only_what_the_upstream_has_a_subscription_for_can_be_missed() {
        let subscriptions = Subscriptions::default();
        let announcer = Announcer::default();
        let _ = subscriptions.announcer.set(announcer.clone());
        let wanted = ["x://a", "x://rejected"].map(|uri| (uri.into(), vec![uri.into()]));
        subscriptions.want(wanted.into());
        subscriptions.held.lock().insert("x://a".into());
        subscriptions.held.lock().insert("x://not-wanted".into());
        subscriptions.all_updated();
        assert_eq!(
            announcer.take(),
            Some(ChangeEvent::Resource("x://a".into()))
        );
        assert_eq!(announcer.take(), None);
    }

    #[tokio::test]
    async fn a_program_that_ends_after_each_subscription_is_started_less_and_less_often() {
        let folder = tempfile::tempdir().expect("a folder");
        let starts = folder.path().join("starts");
        let script = format!(
            r#"echo started >> {starts}
            while read -r line; do
                case "$line" in
                *'"initialize"'*) echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"2025-11-25","capabilities":{{"resources":{{"subscribe":true}}}},"serverInfo":{{"name":"x","version":"0"}}}}}}' ;;
                *resources/subscribe*) exit 1 ;;
                esac
            done"#,
            starts = starts.display()
        );
        let config = UpstreamConfig {
            command: Some("sh".to_owned()),
            args: vec!["-c".to_owned(), script],
            protocol: Lifecycle::Legacy,
            ..UpstreamConfig::default()
        };
        let upstream = Upstream::new("x", config, Background::new(), &SourceParts::default());
        let upstream = Arc::new(upstream.expect("valid"));
        let wanted = [("x://a".into(), vec!["x://a".into()])];
        upstream.upkeep.subscriptions.want(wanted.into());
        let began = Instant::now();
        let retry = Backoff {
            base: Duration::from_millis(100),
            ..RETRY
        };
        let keeping = tokio::spawn(run(Arc::downgrade(&upstream), retry));
        let count = || {
            let starts = std::fs::read_to_string(&starts).unwrap_or_default();
            starts.lines().count()
        };
        while count() < 4 {
            sleep(Duration::from_millis(20)).await;
        }
        keeping.abort();
        // At least half of 100, 200 and 400 ms.
        assert!(Duration::from_millis(350) <= began.elapsed());
    }
}
