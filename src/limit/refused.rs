//! What somebody is told who has to wait.

use std::time::Duration;

use super::Limit;

/// Somebody asked too often, or too much is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) limit: Limit,
    /// When it is worth asking again.
    pub(crate) retry_after: Duration,
    /// How much may be asked at once, and in which time that comes back; none for places.
    pub(crate) quota: Option<(u32, Duration)>,
}

impl Refused {
    /// Whole seconds, and at least one: what `Retry-After` can say.
    pub(crate) fn retry_after_seconds(self) -> u64 {
        let seconds = self.retry_after.as_secs();
        let rest = u64::from(self.retry_after.subsec_nanos() > 0);
        (seconds + rest).max(1)
    }

    pub(crate) fn retry_after_ms(self) -> u64 {
        u64::try_from(self.retry_after.as_millis())
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// In words that a model can act on.
    pub(crate) fn message(self) -> String {
        let what = match self.limit {
            Limit::ToolRate => "Too many calls of this tool",
            Limit::ToolCalls => "Too many calls of this tool are running",
            Limit::Calls | Limit::PrincipalCalls => "Too many calls are running",
            Limit::Initialize => "Too many sessions have begun",
            Limit::FailedAuthentications => "Too many failed attempts to authenticate",
            _ => "Too many requests",
        };
        format!("{what}; try again in {} s", self.retry_after_seconds())
    }
}
