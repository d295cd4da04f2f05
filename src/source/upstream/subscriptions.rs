//! Who listens here to a resource of an upstream's is told what the upstream says of it.
//!
//! However many listen, the upstream is asked once, and no longer than the last of them listens. Where the connection
//! breaks meanwhile it is made anew; what has changed in between nobody knows, so each resource is said to have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connection::{Connected, Upstream};
use crate::catalog::{Announcer, Interest};
use crate::client::ClientError;
use crate::net::{Backoff, chance};

/// Changes that come one after another are passed on together.
const SETTLES: Duration = Duration::from_millis(20);
/// When it is tried again to reach one that somebody listens to.
const RETRY: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(60),
};

/// Resources that somebody listens to: by what the upstream calls them, with what they are called here.
pub(super) type Wanted = BTreeMap<Arc<str>, Vec<Arc<str>>>;

/// What of one upstream's somebody listens to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    wanted: Mutex<Wanted>,
    bell: Notify,
    announcer: OnceLock<Announcer>,
}

impl Subscriptions {
    /// Whether somebody listens to anything.
    pub(super) fn are_any(&self) -> bool {
        !self.wanted().is_empty()
    }

    /// Somebody should look whether the upstream is still asked what it should be.
    pub(super) fn look(&self) {
        self.bell.notify_one();
    }

    /// The upstream says that a resource has changed. What nobody listens to is of no interest.
    pub(super) fn updated(&self, uri: &str) {
        let names = self.wanted().get(uri).cloned();
        if let (Some(names), Some(announcer)) = (names, self.announcer.get()) {
            for name in names {
                announcer.resource_changed(name);
            }
        }
    }

    fn want(&self, uris: Wanted) {
        let mut wanted = self.wanted();
        if *wanted != uris {
            *wanted = uris;
            drop(wanted);
            self.look();
        }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says to each upstream what of its somebody listens to, for as long as it is polled. `listed` is told when an upstream
/// lists something else than before.
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
    let interest: Interest = announcer.interest();
    loop {
        let mut left = interest.uris();
        for upstream in upstreams.iter().filter_map(Weak::upgrade) {
            let own = upstream.own_of(&left);
            // Where two have the same, what is read is the first one's.
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

/// Has one upstream tell of what is wanted of it, for as long as it is there.
pub(super) async fn attend(upstream: Weak<Upstream>) {
    // The connection that was asked last.
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
                tracing::debug!(upstream = name, %error, "it cannot be asked to tell of resources");
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
        // Nobody is connected to only to be told that nothing is wanted.
        true => match upstream.usable() {
            Some(connected) if asked.ptr_eq(&Arc::downgrade(&connected)) => connected,
            _ => {
                *asked = Weak::new();
                *has_told = false;
                return Ok(());
            }
        },
        false => upstream.connected().await?,
    };
    let is_new = !asked.ptr_eq(&Arc::downgrade(&connected));
    if is_new && !connected.client.tells_of_resources() {
        tracing::debug!(
            upstream = upstream.name,
            "it does not tell when its resources change"
        );
    }
    connected.client.watch(wanted).await?;
    *asked = Arc::downgrade(&connected);
    drop(connected);
    // Asked over another connection before: something may have been missed.
    if is_new && std::mem::replace(has_told, true) {
        for uri in wanted {
            upstream.upkeep.subscriptions.updated(uri);
        }
    }
    Ok(())
}
