//! Settings of rates and concurrency.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::places::Queue;
use crate::environment::Conflicts;

/// How often, and how many at once.
///
/// Rates are token buckets: `per_second` in the long run, `burst` at once; 0 a second is no limit. Who asks too often gets
/// 429, and who finds no place gets 503, each with `Retry-After`, and in the JSON-RPC error `data.retryAfterMs` and
/// `data.setting`. A call that is done at once takes no place among those that run. A queue that has been standing for 100
/// milliseconds takes nobody in until it moves again.
///
/// An address of a private network, or loopback, may be a proxy or a balancer that stands for everybody. Where the default
/// is for public addresses, it is for others only if the setting is written down.
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
    /// Requests of everybody together. Default: no limit.
    pub server: RateConfig,
    /// Requests from one address, before it is known who asks. Default: no limit, since behind a balancer all clients
    /// have one address.
    pub address: RateConfig,
    /// Requests of one principal that was proved. Default: 50 a second, 100 at once.
    pub principal: PrincipalRateConfig,
    /// Sessions that may begin in a minute, of one principal, or where none was proved from one address; as many may
    /// begin at once. 0 for no limit. Default: 600 for principals and public addresses.
    pub initialize_per_minute: Option<u32>,
    /// Failed attempts to authenticate from one address in a minute that are answered as such; further ones get 429.
    /// 0 for no limit. Default: 10 for public addresses.
    pub failed_authentications_per_minute: Option<u32>,
    /// Calls that run at once. 0 for no limit. Default: 256 for each core.
    pub calls: Option<usize>,
    /// Calls of one principal that run at once, if it was proved. 0 for no limit. Default: 64.
    pub calls_per_principal: usize,
    /// Calls of one address that run at once, of callers without a name. 0 for no limit. Default: a quarter of `limits.calls`
    /// for public addresses.
    pub calls_per_address: Option<usize>,
    /// Calls that wait until another one ends. Default: 256.
    pub queue: usize,
    /// Milliseconds that a call waits at most. Default: 1000.
    pub queue_ms: u64,
    /// Memory that the process may have in use, in bytes; programs that it starts have limits of their own. 0 for no limit.
    /// Default: that of its control group, where there is one.
    pub memory_bytes: u64,
    /// From how many hundredths of that on no sessions begin, and connections are closed once they are answered.
    /// Default: 80.
    pub memory_high_percent: u8,
    /// From how many hundredths on all is refused but health, metrics and ends of sessions, and the server is not ready.
    /// Default: 90.
    pub memory_critical_percent: u8,
    /// Maximum size of large responses that wait for their clients to read them, in bytes, of all clients together. One
    /// principal, or one address of clients without a name, may have half of it. Responses below 64 KiB are not counted. 0
    /// for no limit. Default: a quarter of `limits.memory_bytes`; 268435456 where memory is not limited.
    pub response_bytes: Option<u64>,
    /// How many addresses or principals are told apart, for each kind of limit. Default: 100000, of 16 bytes each.
    pub buckets: usize,
    /// Whether rates hold for all replicas together, and not for each of them. They tell one another several times a
    /// second what they let through, by way of the shared state; this takes `state.url` and `seal.keys`. Places for calls
    /// stay each replica's own. Default: false.
    pub shared: bool,
    /// Limits of single tools, by name: `per_second`, `burst`, `calls`. Default: none.
    pub tools: BTreeMap<String, ToolLimitConfig>,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateConfig {
    /// How many a second, in the long run; 0 for no limit.
    pub per_second: f64,
    /// How many at once; 0 for as many as a second brings.
    pub burst: u32,
}

/// The token bucket of each principal.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PrincipalRateConfig {
    /// How many a second, in the long run; 0 for no limit. Default: 50.
    pub per_second: f64,
    /// How many at once; 0 for as many as a second brings. Default: 100.
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

/// The limits of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLimitConfig {
    /// How many calls a second, in the long run; 0 for no limit.
    pub per_second: f64,
    /// How many at once; 0 for as many as a second brings.
    pub burst: u32,
    /// How many calls run at once. Default: no limit, and so is 0.
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
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.calls.unwrap_or_else(|| FOR_EACH_CORE * cores())
    }

    /// Returns the maximum number of concurrent calls of one address, for anonymous callers.
    pub(super) fn calls_of_address(&self) -> usize {
        let calls = self.calls();
        let share = if calls == 0 { 0 } else { (calls / 4).max(1) };
        self.calls_per_address.unwrap_or(share)
    }

    /// Returns the first setting without a sensible meaning, and the problem with it.
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        if let Some((setting, advice)) = self.problem() {
            conflicts.invalid("limits", self, &setting, advice);
        }
    }

    fn problem(&self) -> Option<(String, &'static str)> {
        let rates = [
            ("limits.server.per_second".to_owned(), self.server),
            ("limits.address.per_second".to_owned(), self.address),
            (
                "limits.principal.per_second".to_owned(),
                self.principal.rate(),
            ),
        ];
        let tools = self
            .tools
            .iter()
            .map(|(name, tool)| (format!("limits.tools.{name}.per_second"), tool.rate()));
        let bad = rates
            .into_iter()
            .chain(tools)
            .find(|(_, rate)| !rate.is_sound());
        if let Some((setting, _)) = bad {
            let problem = "a rate is a number from 0.00001 to 1000000000; 0 sets no limit";
            return Some((setting, problem));
        }
        let (high, critical) = (self.memory_high_percent, self.memory_critical_percent);
        if critical < high || 100 < critical {
            let problem =
                "it lies between limits.memory_high_percent and 100, so that there are two steps";
            return Some(("limits.memory_critical_percent".to_owned(), problem));
        }
        (self.buckets == 0).then(|| {
            let problem = "at least one address or principal has to be told from the others";
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
        for (high, critical) in [(91, 90), (80, 101)] {
            let config = LimitConfig {
                memory_high_percent: high,
                memory_critical_percent: critical,
                ..LimitConfig::default()
            };
            let (setting, _) = config.problem().expect("a problem");
            assert_eq!(setting, "limits.memory_critical_percent");
        }
    }
}
