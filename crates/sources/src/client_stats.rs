//! Client statistics of sources, for metrics.

use std::sync::Arc;

use super::api_client::ApiClient;
use super::output_contract::Mismatches;
use crate::net::{Bulkhead, BulkheadStats};

/// Handle to the statistics of one client. They are read at each scrape, for as long as the client exists.
#[derive(Clone)]
pub struct ClientStatsHandle {
    /// Name of the source, or of the tool if each tool of the source has its own client.
    pub name: String,
    /// `http`, `openapi`, `command`, `component` or `artifacts`.
    pub kind: &'static str,
    read: Arc<dyn Fn() -> Option<ClientStats> + Send + Sync>,
    mismatches: Mismatches,
}

/// Statistics of one client.
#[derive(Clone, Copy, Debug)]
pub struct ClientStats {
    pub bulkhead: BulkheadStats,
    /// Number of retried requests.
    pub retries: u64,
}

impl ClientStatsHandle {
    /// Statistics of an API client.
    pub(super) fn of_client(name: &str, kind: &'static str, client: &Arc<ApiClient>) -> Self {
        let client = Arc::downgrade(client);
        Self::new(name, kind, move || {
            let client = client.upgrade()?;
            Some(ClientStats {
                bulkhead: client.stats(),
                retries: client.retried(),
            })
        })
    }

    /// Statistics of a client that never retries.
    pub(super) fn of_bulkhead(name: &str, kind: &'static str, bulkhead: &Arc<Bulkhead>) -> Self {
        let bulkhead = Arc::downgrade(bulkhead);
        Self::new(name, kind, move || {
            Some(ClientStats {
                bulkhead: bulkhead.upgrade()?.stats(),
                retries: 0,
            })
        })
    }

    fn new(
        name: &str,
        kind: &'static str,
        read: impl Fn() -> Option<ClientStats> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            read: Arc::new(read),
            mismatches: Mismatches::default(),
        }
    }

    /// Adds the counter of results that did not conform to their output schemas.
    pub(super) fn with_mismatches(mut self, mismatches: &Mismatches) -> Self {
        self.mismatches = mismatches.clone();
        self
    }

    /// Returns the number of results that did not conform to their output schemas.
    pub fn mismatches(&self) -> u64 {
        self.mismatches.count()
    }

    /// Returns `None` once the client is gone.
    pub fn figures(&self) -> Option<ClientStats> {
        (self.read)()
    }
}

impl std::fmt::Debug for ClientStatsHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientStatsHandle")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
