//! How much a server is used, and how long a connection to it is worth keeping.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Kept over reconnections.
#[derive(Debug)]
pub(super) struct Usage {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    under_way: usize,
    last: Option<Instant>,
    /// Seconds between calls, the later ones counting more.
    pace: Option<f64>,
}

const HOUR: f64 = 3600.0;
/// How long one that was never used is kept at most.
const MAX_IDLE: Duration = Duration::from_secs(300);

impl Usage {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            state: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, now: Instant) {
        let mut state = self.state();
        if let Some(last) = state.last {
            let since = now.duration_since(last).as_secs_f64();
            state.pace = Some(state.pace.map_or(since, |pace| 0.8 * pace + 0.2 * since));
        }
        state.calls += 1;
        state.under_way += 1;
        state.last = Some(now);
    }

    pub(super) fn end(&self, now: Instant) {
        let mut state = self.state();
        state.under_way = state.under_way.saturating_sub(1);
        state.last = Some(now);
    }

    /// How long without a call is too long: more than 20 calls an hour earn five minutes, five to twenty three, fewer
    /// one.
    fn worth_keeping(&self) -> Duration {
        let state = self.state();
        let per_hour = state.pace.map_or(0.0, |pace| HOUR / pace.max(0.001));
        Duration::from_secs(if per_hour > 20.0 {
            300
        } else if per_hour >= 5.0 {
            180
        } else {
            60
        })
    }

    /// Whether nobody has used it for too long; `fixed` outdoes what its use would earn it.
    pub(super) fn is_idle(
        &self,
        now: Instant,
        connected: Instant,
        fixed: Option<Duration>,
    ) -> bool {
        let (under_way, last) = {
            let state = self.state();
            (state.under_way, state.last)
        };
        if under_way > 0 {
            return false;
        }
        match last.filter(|last| *last >= connected) {
            // Connected to be asked what it offers, and not called yet.
            None => now.duration_since(connected.max(self.began)) > fixed.unwrap_or(MAX_IDLE),
            Some(last) => now.duration_since(last) > fixed.unwrap_or_else(|| self.worth_keeping()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle_after(interval: u64, calls: u32) -> u64 {
        let start = Instant::now();
        let usage = Usage::new(start);
        let mut now = start;
        for _ in 0..calls {
            now += Duration::from_secs(interval);
            usage.begin(now);
            usage.end(now);
        }
        (0..1000)
            .find(|seconds| usage.is_idle(now + Duration::from_secs(*seconds), start, None))
            .expect("some time")
    }

    #[test]
    fn what_is_used_more_is_kept_longer() {
        assert_eq!(idle_after(60, 10), 301);
        assert_eq!(idle_after(400, 10), 181);
        assert_eq!(idle_after(2000, 10), 61);
        assert_eq!(idle_after(0, 0), 301, "never used yet");
    }

    #[test]
    fn what_is_under_way_is_not_idle_and_a_fixed_time_counts_as_it_is() {
        let start = Instant::now();
        let usage = Usage::new(start);
        usage.begin(start);
        let later = start + Duration::from_secs(10_000);
        assert!(!usage.is_idle(later, start, None));
        usage.end(later);
        let fixed = Some(Duration::from_secs(7));
        assert!(!usage.is_idle(later + Duration::from_secs(7), start, fixed));
        assert!(usage.is_idle(later + Duration::from_secs(8), start, fixed));
    }
}
