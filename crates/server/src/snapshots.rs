//! The snapshot that is served, and requests that wait for the next one.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::Notify;

use super::observability::CatalogMetrics;
use super::quota::{Quota, QuotaPlace};
use super::snapshot::{ListChanges, Snapshot};
use crate::net::ShareKey;
use crate::telemetry::Metrics;

/// Maximum number of requests that wait for a source, in total and for one caller.
const WAITERS_MAX: usize = 256;
const WAITERS_OF_ONE: usize = 64;

/// The current snapshot of a server.
pub(super) struct Snapshots {
    current: ArcSwap<Snapshot>,
    /// Notified after a new snapshot is installed.
    installed: Notify,
    /// Requests that wait for a source to finish starting.
    waiters: Arc<Quota>,
    metrics: CatalogMetrics,
}

impl Snapshots {
    pub(super) fn new(
        snapshot: Snapshot,
        metrics: &Metrics,
        labels: &[(&'static str, &str)],
    ) -> Self {
        let snapshot = Arc::new(snapshot);
        let catalog_metrics = CatalogMetrics::new(&snapshot);
        catalog_metrics.show(metrics, labels);
        Self {
            current: ArcSwap::new(snapshot),
            installed: Notify::new(),
            waiters: Quota::new(WAITERS_MAX, WAITERS_OF_ONE),
            metrics: catalog_metrics,
        }
    }

    /// Returns the current snapshot for the duration of one request.
    #[inline]
    pub(super) fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Returns the current snapshot for longer use.
    pub(super) fn load_full(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Replaces the snapshot. Returns the lists that differ.
    pub(super) fn install(&self, snapshot: Snapshot) -> ListChanges {
        let snapshot = Arc::new(snapshot);
        self.metrics.replace(&snapshot);
        let before = self.current.swap(Arc::clone(&snapshot));
        self.installed.notify_waiters();
        snapshot.changes(&before)
    }

    /// Waits until `is_done` holds for the current snapshot.
    pub(super) async fn wait_until(&self, is_done: impl Fn(&Snapshot) -> bool) {
        loop {
            // Registered before the snapshot is read, so that no update is missed.
            let installed = self.installed.notified();
            if is_done(&self.current.load_full()) {
                return;
            }
            installed.await;
        }
    }

    /// Registers a waiting request. Returns `None` if too many wait.
    pub(super) fn enter_queue(&self, key: ShareKey) -> Option<QuotaPlace> {
        self.waiters.take(key).ok()
    }
}
