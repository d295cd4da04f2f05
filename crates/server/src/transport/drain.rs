//! Time budget of shutdown and its phases.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::{Conflicts, Probe};

/// Stopping.
///
/// ```toml
/// [drain]
/// grace_seconds = 60
/// delay_seconds = 5
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainConfig {
    /// Seconds between the stop signal and the forced end of the process. 3.5 of them are reserved for the shutdown
    /// itself; calls get the rest. If unset: what the platform gives, such as 10 on Cloud Run or 5 on Lambda, else 30.
    pub grace_seconds: Option<u32>,
    /// Seconds after the stop signal in which new connections are still accepted, until load balancers have noticed.
    /// If unset: 5 on Kubernetes, else 0.
    pub delay_seconds: Option<u32>,
}

/// Phases of shutdown, from the signal to the end of the process, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainDeadlines {
    /// Readiness fails, while all requests are still served.
    pub delay: Duration,
    /// New connections are rejected; calls in progress complete.
    pub calls: Duration,
    /// Child processes end.
    pub children: Duration,
    /// Telemetry is flushed, while child processes end.
    pub flush: Duration,
    /// Reserve before the process is killed.
    pub slack: Duration,
}

const CHILDREN: Duration = Duration::from_millis(1_500);
const FLUSH: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(1);

/// Minimum grace in seconds: the reserved phases and one second for calls.
pub const GRACE_SECONDS_MIN: u32 = 5;

impl DrainConfig {
    /// Reports the settings that leave no time for calls.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        let Some(grace) = self.grace_seconds else {
            return;
        };
        if grace < GRACE_SECONDS_MIN {
            conflicts.add(
                format!("drain.grace_seconds is {grace}"),
                "set it to at least 5: the shutdown itself needs 3.5 seconds of it",
            );
        }
        if let Some(delay) = self.delay_seconds
            && grace <= delay.saturating_add(GRACE_SECONDS_MIN - 1)
        {
            conflicts.add(
                format!("drain.delay_seconds is {delay}, and drain.grace_seconds {grace}"),
                "leave at least a second for calls: the delay and the 3.5 seconds of the shutdown are part of the grace period",
            );
        }
    }

    /// Returns the budget for the environment of the process.
    pub fn budget(&self, probe: &Probe) -> DrainDeadlines {
        let on_kubernetes = probe.variable("KUBERNETES_SERVICE_HOST").is_some();
        let grace = self.grace_seconds.unwrap_or(match on_kubernetes {
            true => 30,
            false if probe.is_in_container() => 10,
            false => 30,
        });
        let delay = self
            .delay_seconds
            .unwrap_or(if on_kubernetes { 5 } else { 0 });
        DrainDeadlines::of(
            Duration::from_secs(grace.max(GRACE_SECONDS_MIN).into()),
            Duration::from_secs(delay.into()),
        )
    }
}

impl DrainDeadlines {
    /// Divides a grace period. The delay never exceeds the time left for calls.
    pub fn of(grace: Duration, delay: Duration) -> Self {
        let set_aside = CHILDREN + FLUSH + SLACK;
        let serving = grace.saturating_sub(set_aside);
        let delay = delay.min(serving);
        Self {
            delay,
            calls: serving - delay,
            children: CHILDREN,
            flush: FLUSH,
            slack: SLACK,
        }
    }

    /// Total duration.
    pub fn total(&self) -> Duration {
        self.delay + self.calls + self.children + self.flush + self.slack
    }
}

impl Default for DrainDeadlines {
    fn default() -> Self {
        Self::of(Duration::from_secs(30), Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_add_up_to_no_more_than_the_grace() {
        let kubernetes = Probe::of([("KUBERNETES_SERVICE_HOST", "10.0.0.1")]);
        let cloud_run = Probe::of([("K_SERVICE", "weather")]);
        let laptop = Probe::of([("HOME", "/")]);
        let config = DrainConfig::default();
        for (probe, grace, serving, delay) in [
            (&kubernetes, 30, 26_500, 5),
            (&cloud_run, 10, 6_500, 0),
            (&laptop, 30, 26_500, 0),
        ] {
            let budget = config.budget(probe);
            assert_eq!((budget.delay + budget.calls).as_millis(), serving);
            assert_eq!(budget.delay.as_secs(), delay);
            assert_eq!(budget.total(), Duration::from_secs(grace), "{budget:?}");
        }
        for grace in 0..200 {
            for delay in [0, 5, 500] {
                let config = DrainConfig {
                    grace_seconds: Some(grace),
                    delay_seconds: Some(delay),
                };
                let budget = config.budget(&laptop);
                let grace = Duration::from_secs(grace.max(GRACE_SECONDS_MIN).into());
                assert!(budget.total() <= grace, "{budget:?}");
                assert!(budget.delay + budget.calls >= Duration::from_secs(1));
            }
        }
    }
}
