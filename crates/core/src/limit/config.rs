//! Settings of rates and concurrency.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::concurrency::Queue;
use crate::environment::{self, Conflicts};

/// Rate and concurrency limits.
///
/// Rates are token buckets: `per_second` is the sustained rate, `burst` the maximum at one time; 0 per second means
/// no limit. A request over a rate gets 429, a call without a permit 503. Both have `Retry-After`, and
/// `data.retryAfterMs` and `data.setting` in the JSON-RPC error. Calls that finish without waiting do not count
/// toward the concurrency limit, nor do calls while they wait for a response of their client. If every call that got
/// a permit in the last 100 ms had waited 20 ms or longer, a new call is rejected while another one waits.
///
/// A private or loopback address may be a proxy that stands for all clients. Defaults for public addresses apply to
/// private ones only if the setting is written down.
///
/// ```toml
/// [limits]
/// calls = 1000
///
/// [limits.principal]
/// per_second = 20
/// burst = 40
///
/// [limits.tools.report]
/// calls = 2
/// ```
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Rate of all requests together. If unset: no limit.
    pub server: RateConfig,
    /// Rate of requests from one address, before authentication. If unset: no limit, because clients behind a load
    /// balancer share one address.
    pub address: RateConfig,
    /// Rate of requests of one authenticated principal.
    pub principal: PrincipalRateConfig,
    /// Maximum number of new sessions per minute of one principal, or of one address of unauthenticated clients. 0
    /// for no limit. If unset: 600 for principals and public addresses.
    pub initialize_per_minute: Option<u32>,
    /// Maximum number of failed authentications per minute from one address, before further ones get 429. 0 for no
    /// limit. If unset: 10 for public addresses.
    pub failed_authentications_per_minute: Option<u32>,
    /// Maximum number of concurrent calls. 0 for no limit. If unset: 256 per core.
    pub calls: Option<usize>,
    /// Maximum number of concurrent calls of one authenticated principal. 0 for no limit.
    pub calls_per_principal: usize,
    /// Maximum number of concurrent calls of unauthenticated clients at one address. 0 for no limit. If unset: a
    /// quarter of `limits.calls` for public addresses.
    pub calls_per_address: Option<usize>,
    /// Maximum number of calls that wait for a permit.
    pub queue: usize,
    /// Maximum time that a call waits for a permit, in milliseconds.
    pub queue_ms: u64,
    /// Memory limit of the process, in bytes, without its child processes. 0 for no limit. If unset: the limit of the
    /// control group, if there is one.
    pub memory_bytes: u64,
    /// Memory use, in percent of `memory_bytes`, above which new sessions are rejected and connections close after
    /// their response.
    pub memory_high_percent: u8,
    /// Memory use, in percent of `memory_bytes`, above which everything but health, metrics and session ends is
    /// rejected, and the server is not ready.
    pub memory_critical_percent: u8,
    /// Maximum size of large responses that wait to be read by clients, in bytes, over all clients. One principal, or
    /// one address of unauthenticated clients, may use half of it. Responses below 64 KiB do not count. 0 for no
    /// limit. If unset: a quarter of `limits.memory_bytes`, or 268435456 if memory is not limited.
    pub response_bytes: Option<u64>,
    /// Maximum number of addresses or principals to track, for each kind of limit, up to 10000000; each takes 16 bytes.
    pub buckets: usize,
    /// Apply rates to all replicas together. Replicas exchange their counts several times a second through the shared
    /// state; requires `state.url` and `seal.keys`. Concurrency limits still apply to each replica.
    pub shared: bool,
    /// Limits of single tools, by name: `per_second`, `burst`, `calls`.
    pub tools: BTreeMap<String, ToolLimitConfig>,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateConfig {
    /// Sustained rate, in requests per second; 0 for no limit.
    pub per_second: f64,
    /// Maximum burst; 0 for the amount of one second.
    pub burst: u32,
}

/// Rate of requests of each principal.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PrincipalRateConfig {
    /// Sustained rate, in requests per second; 0 for no limit.
    pub per_second: f64,
    /// Maximum burst, in requests; 0 for the number of one second.
    pub burst: u32,
}

impl Default for PrincipalRateConfig {
    fn default() -> Self {
        Self {
            per_second: 50.0,
            burst: 100,
        }
    }
}

impl PrincipalRateConfig {
    pub fn rate(self) -> RateConfig {
        RateConfig {
            per_second: self.per_second,
            burst: self.burst,
        }
    }
}

/// Limits of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLimitConfig {
    /// Sustained rate, in calls per second; 0 for no limit. Without a session, each round of a call that asks its client
    /// counts, since the tool runs again.
    pub per_second: f64,
    /// Maximum burst; 0 for the amount of one second.
    pub burst: u32,
    /// Maximum number of concurrent calls. No limit if unset or 0.
    pub calls: Option<usize>,
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            server: RateConfig::default(),
            address: RateConfig::default(),
            principal: PrincipalRateConfig::default(),
            initialize_per_minute: None,
            failed_authentications_per_minute: None,
            calls: None,
            calls_per_principal: 64,
            calls_per_address: None,
            queue: 256,
            queue_ms: 1000,
            memory_bytes: 0,
            memory_high_percent: 80,
            memory_critical_percent: 90,
            response_bytes: None,
            buckets: 100_000,
            shared: false,
            tools: BTreeMap::new(),
        }
    }
}

/// Maximum number of buckets: they are allocated together.
const BUCKETS_MAX: usize = 10_000_000;

impl LimitConfig {
    /// Returns the bounds of the queue for calls without a permit.
    pub(super) fn waiting(&self) -> Queue {
        Queue {
            length: self.queue,
            patience: Duration::from_millis(self.queue_ms),
        }
    }

    /// Returns the maximum number of concurrent calls.
    pub fn calls(&self) -> usize {
        const FOR_EACH_CORE: usize = 256;
        self.calls
            .unwrap_or_else(|| FOR_EACH_CORE * environment::cores())
    }

    /// Returns the maximum number of concurrent calls of one address, for anonymous callers.
    pub(super) fn calls_of_address(&self) -> usize {
        let calls = self.calls();
        let share = if calls == 0 { 0 } else { (calls / 4).max(1) };
        self.calls_per_address.unwrap_or(share)
    }

    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        if let Some((setting, advice)) = self.problem() {
            conflicts.invalid("limits", self, &setting, advice);
        }
    }

    /// Returns the first setting without a sensible meaning, and the problem with it.
    fn problem(&self) -> Option<(String, &'static str)> {
        let rates = [
            ("limits.server".to_owned(), self.server),
            ("limits.address".to_owned(), self.address),
            ("limits.principal".to_owned(), self.principal.rate()),
        ];
        let tools = self
            .tools
            .iter()
            .map(|(name, tool)| (format!("limits.tools.{name}"), tool.rate()));
        for (section, rate) in rates.into_iter().chain(tools) {
            if !rate.is_sound() {
                let problem = "a rate is a number from 0.00001 to 1000000000; 0 sets no limit";
                return Some((format!("{section}.per_second"), problem));
            }
            if !rate.refills() {
                let problem =
                    "the burst takes more than 90 years to refill; lower it, or raise per_second";
                return Some((format!("{section}.burst"), problem));
            }
        }
        let (high, critical) = (self.memory_high_percent, self.memory_critical_percent);
        if high == 0 {
            let problem = "set it to 1 to 100; at 0 no session could begin";
            return Some(("limits.memory_high_percent".to_owned(), problem));
        }
        if critical < high || 100 < critical {
            let problem = "it must be between limits.memory_high_percent and 100";
            return Some(("limits.memory_critical_percent".to_owned(), problem));
        }
        (!(1..=BUCKETS_MAX).contains(&self.buckets)).then(|| {
            let problem = "set it to 1 to 10000000";
            ("limits.buckets".to_owned(), problem)
        })
    }
}

impl RateConfig {
    pub(crate) fn a_minute(number: u32) -> Self {
        Self {
            per_second: f64::from(number) / 60.0,
            burst: number,
        }
    }

    fn is_sound(self) -> bool {
        self.per_second == 0.0 || (0.000_01..=1e9).contains(&self.per_second)
    }

    /// Returns true if an empty bucket is full again after a time that can be counted in nanoseconds.
    fn refills(self) -> bool {
        const YEARS_90: f64 = 90.0 * 365.0 * 86_400.0;
        self.per_second == 0.0 || f64::from(self.burst) <= YEARS_90 * self.per_second
    }
}

impl ToolLimitConfig {
    pub fn rate(self) -> RateConfig {
        RateConfig {
            per_second: self.per_second,
            burst: self.burst,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_fit_into_memory() {
        for (buckets, fits) in [
            (0, false),
            (1, true),
            (10_000_000, true),
            (usize::MAX, false),
        ] {
            let config = LimitConfig {
                buckets,
                ..LimitConfig::default()
            };
            assert_eq!(config.problem().is_none(), fits, "{buckets}");
        }
    }

    #[test]
    fn rates_that_are_none_are_told() {
        assert_eq!(LimitConfig::default().problem(), None);
        for per_second in [-1.0, f64::NAN, f64::INFINITY, 1e-9] {
            let rate = RateConfig {
                per_second,
                burst: 1,
            };
            let config = LimitConfig {
                address: rate,
                ..LimitConfig::default()
            };
            let (setting, _) = config.problem().expect("a problem");
            assert_eq!(setting, "limits.address.per_second");
            let tool = ToolLimitConfig {
                per_second,
                ..ToolLimitConfig::default()
            };
            let config = LimitConfig {
                tools: [("a".to_owned(), tool)].into(),
                ..LimitConfig::default()
            };
            let (setting, _) = config.problem().expect("a problem");
            assert_eq!(setting, "limits.tools.a.per_second");
        }
        for (burst, problem) in [(28_000, false), (29_000, true)] {
            let config = LimitConfig {
                server: RateConfig {
                    per_second: 0.000_01,
                    burst,
                },
                ..LimitConfig::default()
            };
            let found = config.problem().map(|(setting, _)| setting);
            assert_eq!(found.as_deref() == Some("limits.server.burst"), problem);
        }
        for (high, critical, at) in [(91, 90, "critical"), (80, 101, "critical"), (0, 90, "high")] {
            let config = LimitConfig {
                memory_high_percent: high,
                memory_critical_percent: critical,
                ..LimitConfig::default()
            };
            let (setting, _) = config.problem().expect("a problem");
            assert_eq!(setting, format!("limits.memory_{at}_percent"));
        }
    }
}
