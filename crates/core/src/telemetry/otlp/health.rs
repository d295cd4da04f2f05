//! Health of a collector, for the log.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;
use url::Url;

use super::Stopped;
use super::client::{LastError, Rejected};
use crate::telemetry::instruments::EXPORT_DROPPED;
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::settings::Target;

/// State of a collector. Changes are logged once.
pub(super) struct Health {
    signal: &'static str,
    endpoint: String,
    pub(super) trouble: LastError,
    failing: bool,
    rejecting: bool,
    /// Time from which the collector accepts exports again, as it has said.
    throttled_until: Option<Instant>,
    dropped: Counter,
}

/// Time without success after which an export that goes on is reported.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time to wait because the collector asks for it.
const THROTTLED_MAX: Duration = Duration::from_secs(60);

impl Health {
    pub(super) fn new(signal: &'static str, target: &Target, counted: &Metrics) -> Self {
        Self {
            signal,
            endpoint: without_secrets(&target.endpoint).unwrap_or_default(),
            trouble: LastError::default(),
            failing: false,
            rejecting: false,
            throttled_until: None,
            dropped: counted.counter(&EXPORT_DROPPED, &[("signal", signal)]),
        }
    }

    /// Waits until the collector accepts exports again, if it has said when. Items wait in their queue meanwhile.
    pub(super) async fn wait(&mut self, stopped: &Stopped) {
        let Some(until) = self.throttled_until.take() else {
            return;
        };
        let mut stopped = stopped.clone();
        tokio::select! {
            () = tokio::time::sleep_until(until) => {}
            () = stopped.wait() => {}
        }
    }

    /// Waits for an export, and reports one that is still retried after a while.
    pub(super) async fn watch(
        &mut self,
        sending: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let mut sending = std::pin::pin!(sending);
        match tokio::time::timeout(PATIENCE, sending.as_mut()).await {
            Ok(sent) => return sent,
            Err(_) if self.failing => {}
            Err(_) => {
                self.failing = true;
                tracing::warn!(
                    signal = self.signal,
                    endpoint = self.endpoint,
                    error = self.trouble.take().problem,
                    "the collector has not accepted an export for {PATIENCE:?}; it is retried, and further failures are not logged until one succeeds"
                );
            }
        }
        sending.await
    }

    pub(super) fn record<E: Display>(&mut self, sent: Result<(), E>, items: usize) {
        let was_failing = std::mem::replace(&mut self.failing, sent.is_err());
        let met = self.trouble.take();
        if sent.is_ok() {
            self.tell_rejected(met.rejected);
        }
        match sent {
            Ok(()) if was_failing => {
                tracing::info!(
                    signal = self.signal,
                    endpoint = self.endpoint,
                    "the collector responds again"
                );
            }
            Ok(()) => {}
            Err(error) => {
                self.throttled_until = met
                    .retry_after
                    .map(|after| Instant::now() + after.min(THROTTLED_MAX));
                self.dropped.add(items as u64);
                if !was_failing {
                    tracing::warn!(
                        signal = self.signal,
                        endpoint = self.endpoint,
                        error = met.problem.unwrap_or_else(|| error.to_string()),
                        "the collector did not accept an export; later exports are attempted, and further failures are not logged until one succeeds"
                    );
                }
            }
        }
    }

    /// Rejected items must not be resent (OTLP, "Partial Success").
    fn tell_rejected(&mut self, rejected: Option<Rejected>) {
        let is_rejecting = rejected.as_ref().is_some_and(|rejected| 0 < rejected.items);
        let was_rejecting = std::mem::replace(&mut self.rejecting, is_rejecting);
        let Some(Rejected { items, why }) = rejected else {
            return;
        };
        self.dropped.add(items);
        if items == 0 {
            // A warning of the collector, which accepted everything.
            tracing::debug!(
                signal = self.signal,
                endpoint = self.endpoint,
                why,
                "the collector warns"
            );
        } else if !was_rejecting {
            tracing::warn!(
                signal = self.signal,
                endpoint = self.endpoint,
                rejected = items,
                why,
                "the collector rejected a part of an export, which is lost; further rejections are not logged until it accepts a whole export"
            );
        }
    }
}

/// Returns an endpoint without its secret parts. `None` if it is not a URL.
pub(super) fn without_secrets(endpoint: &str) -> Option<String> {
    let mut url = Url::parse(endpoint).ok()?;
    // These calls fail only for URLs without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    Some(url.into())
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::RETRY_AFTER;
    use tokio::sync::watch;

    use super::*;
    use crate::telemetry::config::ExportProtocol;

    #[tokio::test(start_paused = true)]
    async fn the_next_export_waits_for_as_long_as_the_collector_asks() {
        let target = Target {
            endpoint: "http://127.0.0.1:4318".to_owned(),
            protocol: ExportProtocol::Http,
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            compressed: false,
            certificate: None,
            identity: None,
        };
        let mut health = Health::new("spans", &target, &Metrics::default());
        let (stop, stopped) = watch::channel(false);
        let stopped = Stopped(stopped);
        for (asked, waited) in [("20", 20), ("86400", 60), ("soon", 0)] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, asked.parse().expect("a value"));
            health.trouble.throttles(&headers);
            health.record(Err("throttled"), 1);
            for waited in [waited, 0] {
                let begun = Instant::now();
                health.wait(&stopped).await;
                assert_eq!(begun.elapsed().as_secs(), waited, "{asked}");
            }
        }
        health.throttled_until = Some(Instant::now() + THROTTLED_MAX);
        stop.send(true).expect("a receiver");
        let begun = Instant::now();
        health.wait(&stopped).await;
        assert!(begun.elapsed().is_zero(), "a stop ends it");
    }
}
