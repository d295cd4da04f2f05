//! Health of the shared state, for the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Streams;
use crate::net::Mutex;
use crate::state::StateError;

/// Outage of the state, if any.
#[derive(Debug, Default)]
pub(super) struct StateHealth {
    /// True during an outage, so that other successes pay one load.
    is_failing: AtomicBool,
    /// Last failure of the outage.
    last_failure: Mutex<Option<Instant>>,
}

/// Time without failures after which an outage is over. A state that is full or read-only still serves reads, so a
/// single success does not end it.
const RECOVERY: Duration = Duration::from_secs(3);

impl StateHealth {
    /// Records a failure. Returns true if it begins an outage.
    fn fails(&self) -> bool {
        let begins = self.last_failure.lock().replace(Instant::now()).is_none();
        self.is_failing.store(true, Ordering::Relaxed);
        begins
    }

    /// Records a success. Returns true if it ends an outage.
    fn recovers(&self) -> bool {
        if !self.is_failing() {
            return false;
        }
        let mut last_failure = self.last_failure.lock();
        let recovers = last_failure.is_some_and(|at| RECOVERY <= at.elapsed());
        if recovers {
            *last_failure = None;
            self.is_failing.store(false, Ordering::Relaxed);
        }
        recovers
    }

    /// Returns true during an outage.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }
}

impl Streams {
    /// Logs when the state starts to fail and when it has recovered.
    pub(super) fn track_health<T>(&self, result: &Result<T, StateError>) {
        match result {
            Ok(_) => {
                if self.health.recovers() {
                    tracing::info!("the shared state works again");
                }
            }
            Err(error) => self.track_failure(error),
        }
    }

    fn track_failure(&self, error: &StateError) {
        if self.health.fails() {
            tracing::warn!(
                %error,
                setting = "state.url",
                "the shared state fails: broken streams cannot be resumed, and replicas do not receive notifications of one another"
            );
        }
    }

    /// Logs that a request failed because of the state: an outage once for all requests, other errors each time.
    pub(crate) fn report_failure(&self, error: &StateError, failed: &'static str) {
        match error {
            StateError::Unreachable { .. } | StateError::TooSlow { .. } => {
                self.track_failure(error);
                tracing::debug!(%error, "{failed}");
            }
            _ => tracing::error!(%error, "{failed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outage_in_which_some_calls_succeed_is_reported_once() {
        let health = StateHealth::default();
        assert!(!health.recovers() && health.fails());
        for _ in 0..10 {
            assert!(!health.recovers() && !health.fails());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        tokio::time::advance(RECOVERY).await;
        assert!(health.recovers() && !health.recovers());
        assert!(health.fails(), "another outage");
    }
}
