//! Metrics of the catalog.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::snapshot::Snapshot;
use crate::telemetry::{Metrics, TOOLS, TOOLS_SIZE};

/// The snapshot that the metrics describe. Expensive values are computed when they are read.
#[derive(Clone, Debug)]
pub(super) struct CatalogMetrics(Arc<Mutex<Weak<Snapshot>>>);

impl CatalogMetrics {
    pub(super) fn new(snapshot: &Arc<Snapshot>) -> Self {
        Self(Arc::new(Mutex::new(Arc::downgrade(snapshot))))
    }

    /// Describes another snapshot from now on.
    pub(super) fn replace(&self, snapshot: &Arc<Snapshot>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(snapshot);
    }

    pub(super) fn show(&self, metrics: &Metrics, labels: &[(&'static str, &str)]) {
        let read = |instrument, of: fn(&Snapshot) -> usize| {
            let catalog_metrics = self.clone();
            let read = move || {
                catalog_metrics
                    .snapshot()
                    .map_or(0, |snapshot| of(&snapshot)) as f64
            };
            metrics.read(instrument, labels, read);
        };
        read(&TOOLS, |snapshot| snapshot.catalog.tools.len());
        read(&TOOLS_SIZE, Snapshot::tools_size);
    }

    /// Returns `None` after the server was dropped.
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.upgrade()
    }
}
