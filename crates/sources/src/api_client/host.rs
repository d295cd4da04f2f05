//! The hosts that an API client reaches. Each has its own bulkhead and its own record of failures.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use url::{Origin, Url};

use super::{ApiClientError, Fares};
use crate::net::{
    BreakerState, Bulkhead, BulkheadConfig, BulkheadError, BulkheadStats, FetchError,
    FetchedResponse, Mutex,
};

/// Hosts of one source, by origin. Origins come from the configuration and from documents and never from callers, so
/// there are at most as many as tools.
#[derive(Debug)]
pub(super) struct Hosts {
    source: Box<str>,
    config: BulkheadConfig,
    known: Mutex<HashMap<Origin, Arc<Host>>>,
}

/// One origin that requests are sent to.
#[derive(Debug)]
pub(super) struct Host {
    source: Box<str>,
    /// Its name or address, for messages.
    name: Box<str>,
    pub(super) bulkhead: Bulkhead,
    /// True once the failure of requests has been logged.
    is_failing: AtomicBool,
    /// Message for callers about the latest attempt that failed through the host's fault.
    last_failure: Mutex<Box<str>>,
}

impl Hosts {
    pub(super) fn new(source: &str, config: &BulkheadConfig) -> Self {
        Self {
            source: source.into(),
            config: config.clone(),
            known: Mutex::default(),
        }
    }

    /// Returns the host of a URL.
    pub(super) fn of(&self, url: &Url) -> Arc<Host> {
        let origin = url.origin();
        let mut known = self.known.lock();
        if let Some(host) = known.get(&origin) {
            return Arc::clone(host);
        }
        let place = format!("{} ({})", self.source, origin.ascii_serialization());
        let host = Arc::new(Host {
            source: self.source.clone(),
            name: url.host_str().unwrap_or_default().into(),
            bulkhead: Bulkhead::new(place, &self.config),
            is_failing: AtomicBool::new(false),
            last_failure: Mutex::default(),
        });
        known.insert(origin, Arc::clone(&host));
        host
    }

    /// Returns the sums of all hosts' statistics. The circuit breaker shown is the one that admits the fewest calls.
    pub(super) fn stats(&self) -> BulkheadStats {
        let known = self.known.lock();
        let mut sum = Bulkhead::new(&*self.source, &self.config).stats();
        for host in known.values() {
            let one = host.bulkhead.stats();
            sum.under_way += one.under_way;
            sum.waiting += one.waiting;
            sum.entered += one.entered;
            sum.failed += one.failed;
            sum.refused_full += one.refused_full;
            sum.refused_tripped += one.refused_tripped;
            sum.breaker = match (sum.breaker, one.breaker) {
                (BreakerState::Tripped, _) | (_, BreakerState::Tripped) => BreakerState::Tripped,
                (BreakerState::Probing, _) | (_, BreakerState::Probing) => BreakerState::Probing,
                (BreakerState::Passing, BreakerState::Passing) => BreakerState::Passing,
            };
        }
        sum
    }
}

impl Host {
    /// Logs when requests begin to fail, with the reason, and when they recover. Callers get their own message each
    /// time.
    pub(super) fn log_change(&self, fares: Fares) {
        let fails = match &fares {
            Fares::Well => false,
            Fares::Badly(_) => true,
            Fares::Unknown => return,
        };
        if self.is_failing.load(Ordering::Relaxed) == fails
            || self.is_failing.swap(fails, Ordering::Relaxed) == fails
        {
            return;
        }
        match fares {
            Fares::Badly(error) => tracing::warn!(
                source = self.source,
                host = self.name,
                error,
                "requests of a source fail; further failures are not logged until one succeeds"
            ),
            _ => tracing::info!(
                source = self.source,
                host = self.name,
                "requests of a source succeed again"
            ),
        }
    }

    /// Records why an attempt failed, for callers that the circuit breaker rejects later.
    pub(super) fn note_failure(&self, sent: &Result<FetchedResponse, FetchError>) {
        let why = match sent {
            Ok(answer) => format!("{} responded with {}", self.name, answer.status),
            Err(error) => error.to_string(),
        };
        *self.last_failure.lock() = why.into();
    }

    /// Converts a bulkhead rejection to an error for the caller.
    pub(super) fn rejection(&self, error: &BulkheadError) -> ApiClientError {
        let source_name = self.source.clone();
        match error {
            BulkheadError::Down { wait } => {
                let last = self.last_failure.lock();
                ApiClientError::Down {
                    source_name,
                    host: self.name.clone(),
                    last: last.clone(),
                    wait: *wait,
                }
            }
            _ => ApiClientError::Full { source_name },
        }
    }
}
