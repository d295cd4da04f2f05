//! Rejections by a limit.

use std::time::Duration;

use super::Limit;

/// A rejection by a rate or a concurrency limit. It is small, since replies carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    pub limit: Limit,
    /// When it is worth asking again.
    retry_after_ms: u32,
    /// Burst size of the rate; 0 for a concurrency limit.
    burst: u32,
    /// The time in which that comes back, in seconds.
    window_seconds: u32,
}

impl LimitExceeded {
    /// Memory is short.
    pub(super) const MEMORY: Self = Self {
        limit: Limit::Memory,
        retry_after_ms: 5_000,
        burst: 0,
        window_seconds: 0,
    };

    /// There is no place.
    pub(super) fn for_places(limit: Limit, retry_after: Duration) -> Self {
        Self {
            limit,
            retry_after_ms: ms(retry_after),
            burst: 0,
            window_seconds: 0,
        }
    }

    /// A bucket is empty that holds `burst` and is full again after `window`.
    pub(super) fn for_rate(
        limit: Limit,
        retry_after: Duration,
        burst: u32,
        window: Duration,
    ) -> Self {
        Self {
            limit,
            retry_after_ms: ms(retry_after),
            burst,
            window_seconds: u32::try_from(window.as_secs()).unwrap_or(u32::MAX).max(1),
        }
    }

    /// Whole seconds, and at least one: what `Retry-After` can say.
    pub fn retry_after_seconds(self) -> u64 {
        u64::from(self.retry_after_ms).div_ceil(1000).max(1)
    }

    pub fn retry_after_ms(self) -> u32 {
        self.retry_after_ms
    }

    /// Returns burst size and its refill time in seconds; `None` for a concurrency limit.
    pub fn quota(self) -> Option<(u32, u32)> {
        (self.burst > 0).then_some((self.burst, self.window_seconds))
    }

    /// In words that a model can act on.
    pub fn message(self) -> String {
        let what = match self.limit {
            Limit::ToolRate => "Too many calls of this tool",
            Limit::ToolCalls => "Too many calls of this tool are running",
            Limit::Calls | Limit::PrincipalCalls | Limit::AddressCalls => {
                "Too many calls are running"
            }
            Limit::Memory => "The server is short of memory",
            Limit::ResponseBytes => {
                "Too many large responses wait to be read; read those that have been asked for"
            }
            Limit::Initialize => "Too many sessions have begun",
            Limit::FailedAuthentications => "Too many failed attempts to authenticate",
            _ => "Too many requests",
        };
        format!("{what}; try again in {} s", self.retry_after_seconds())
    }
}

fn ms(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
