//! Memory pressure and its thresholds.

use super::LimitConfig;
use crate::net::MemoryBudget;

/// Level of memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Pressure {
    /// Enough memory, or its use is unknown.
    None,
    /// No sessions begin, and connections are not kept.
    High,
    /// Requests that need memory are rejected.
    Critical,
}

impl Pressure {
    pub(super) fn of(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::High,
            _ => Self::Critical,
        }
    }

    /// Returns the level for this number of bytes in use.
    pub(super) fn find(config: &LimitConfig, in_use: u64) -> Self {
        if config.memory_bytes == 0 {
            return Self::None;
        }
        let from = |percent: u8| {
            let bytes = u128::from(config.memory_bytes) * u128::from(percent) / 100;
            bytes <= u128::from(in_use)
        };
        if from(config.memory_critical_percent) {
            Self::Critical
        } else if from(config.memory_high_percent) {
            Self::High
        } else {
            Self::None
        }
    }

    /// Logs a change of the level, with the limit and the use in bytes.
    pub(super) fn record(self, limit: u64, in_use: u64) {
        let setting = "limits.memory_bytes";
        match self {
            Self::None => tracing::info!(setting, limit, in_use, "memory is available again"),
            Self::High => tracing::warn!(
                setting,
                limit,
                in_use,
                "memory is short: new sessions are rejected, and connections are closed after their response"
            ),
            Self::Critical => tracing::error!(
                setting,
                limit,
                in_use,
                "memory is nearly exhausted: requests are rejected until some is free"
            ),
        }
    }
}

/// Memory for large bodies between two measurements, in which the use can pass the limit.
#[derive(Debug, Default)]
pub(super) struct BodyMemory(MemoryBudget);

/// Memory that a body may take, in multiples of its size: as received, with the reserve of a buffer that grows, as parsed,
/// and in the response.
const COPIES: u64 = 4;

impl BodyMemory {
    /// Returns the memory of requests that share this budget with others.
    pub(super) fn of(budget: MemoryBudget) -> Self {
        Self(budget)
    }

    /// Applies a measurement of the bytes in use, which includes what has arrived before.
    pub(super) fn measured(&self, config: &LimitConfig, in_use: u64) {
        self.0.set_room(match config.memory_bytes {
            0 => u64::MAX,
            limit => {
                let critical = limit / 100 * u64::from(config.memory_critical_percent);
                critical.saturating_sub(in_use) / COPIES
            }
        });
    }

    /// Counts bytes that have arrived. Returns false if there is no room for them.
    pub(super) fn take(&self, bytes: u64) -> bool {
        self.0.take(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::super::{Limit, Limits};
    use super::*;
    use crate::auth::Principal;
    use crate::telemetry::Metrics;

    const SOMEBODY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn what_is_refused_follows_from_what_is_in_use_to_the_byte() {
        let config = LimitConfig {
            memory_bytes: 1000,
            ..LimitConfig::default()
        };
        let limits = Limits::new(&config, &Metrics::default());
        let anonymous = Principal::anonymous();
        for (in_use, pressure, begins, arrives) in [
            (0, Pressure::None, true, true),
            (799, Pressure::None, true, true),
            (800, Pressure::High, false, true),
            (899, Pressure::High, false, true),
            (900, Pressure::Critical, false, false),
            (5000, Pressure::Critical, false, false),
            (799, Pressure::None, true, true),
        ] {
            assert_eq!(limits.look_at_memory(|| Some(in_use)), pressure, "{in_use}");
            let begun = limits.begin_session(&anonymous, Some(SOMEBODY));
            assert_eq!(begun.is_ok(), begins, "{in_use}");
            let arrived = limits.arrive(SOMEBODY);
            assert_eq!(arrived.is_ok(), arrives, "{in_use}");
            for refused in [begun, arrived].into_iter().filter_map(Result::err) {
                assert_eq!(refused.limit, Limit::Memory);
                assert!(!refused.limit.is_a_rate() && refused.quota().is_none());
            }
        }
        assert_eq!(limits.look_at_memory(|| None), Pressure::None);
    }

    #[test]
    fn bodies_that_arrive_between_measurements_stay_within_what_is_free() {
        let mut config = LimitConfig {
            memory_bytes: 1000,
            ..LimitConfig::default()
        };
        let limits = Limits::new(&config, &Metrics::default());
        let unasked = || -> Option<u64> { unreachable!("nobody asks") };
        assert!(
            limits.receive(1 << 20, unasked).is_ok(),
            "nothing is known yet"
        );
        // 400 up to the critical level, for four copies.
        limits.look_at_memory(|| Some(500));
        assert!(limits.receive(60, unasked).is_ok() && limits.receive(40, unasked).is_ok());
        let refused = limits.receive(10, || Some(880)).expect_err("no room");
        assert_eq!(refused.limit, Limit::Memory);
        // Those before were freed.
        assert!(limits.receive(100, || Some(500)).is_ok());
        assert!(limits.receive(1, || Some(2000)).is_err());
        config.memory_bytes = 0;
        limits.take_on(&config);
        assert!(limits.receive(1 << 20, || None).is_ok());
        assert!(limits.receive(1 << 20, unasked).is_ok());
    }

    #[test]
    fn without_a_limit_nobody_looks() {
        let limits = Limits::new(&LimitConfig::default(), &Metrics::default());
        let found = limits.look_at_memory(|| unreachable!("nobody asks"));
        assert_eq!(found, Pressure::None);
    }
}
