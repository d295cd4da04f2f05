//! How those that are asked for something are doing, for whoever counts.

use std::sync::Arc;

use super::exchange::Exchange;
use super::promise::Mismatches;
use crate::net::{Bulkhead, BulkheadStats};

/// How one of them is doing, read whenever somebody looks, for as long as it is there.
#[derive(Clone)]
pub(crate) struct Gauge {
    /// What it is called: a source, or a tool of one whose tools are asked each by itself.
    pub(crate) name: String,
    /// `http`, `openapi`, `command`, `component` or `artifacts`.
    pub(crate) kind: &'static str,
    read: Arc<dyn Fn() -> Option<Figures> + Send + Sync>,
    mismatches: Mismatches,
}

/// How it is doing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) bulkhead: BulkheadStats,
    /// Requests that were sent again.
    pub(crate) retries: u64,
}

impl Gauge {
    /// The way to an API.
    pub(super) fn of_exchange(name: &str, kind: &'static str, exchange: &Arc<Exchange>) -> Self {
        let exchange = Arc::downgrade(exchange);
        Self {
            name: name.to_owned(),
            kind,
            read: Arc::new(move || {
                let exchange = exchange.upgrade()?;
                Some(Figures {
                    bulkhead: exchange.stats(),
                    retries: exchange.retried(),
                })
            }),
            mismatches: Mismatches::default(),
        }
    }

    /// Something that is never tried again.
    pub(super) fn of_bulkhead(name: &str, kind: &'static str, bulkhead: &Arc<Bulkhead>) -> Self {
        let bulkhead = Arc::downgrade(bulkhead);
        Self {
            name: name.to_owned(),
            kind,
            read: Arc::new(move || {
                Some(Figures {
                    bulkhead: bulkhead.upgrade()?.stats(),
                    retries: 0,
                })
            }),
            mismatches: Mismatches::default(),
        }
    }

    /// Reads how often results did not conform, too.
    pub(super) fn with_mismatches(mut self, mismatches: &Mismatches) -> Self {
        self.mismatches = mismatches.clone();
        self
    }

    /// Results that did not conform to their output schemas.
    pub(crate) fn mismatches(&self) -> u64 {
        self.mismatches.count()
    }

    /// `None` once it is gone.
    pub(crate) fn figures(&self) -> Option<Figures> {
        (self.read)()
    }
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauge")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
