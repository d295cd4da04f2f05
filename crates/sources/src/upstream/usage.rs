//! Usage of a server, which determines the idle timeout of its connection.

use std::time::Duration;

use tokio::time::Instant;

use crate::net::Mutex;

/// Usage of a server, kept across reconnections.
#[derive(Debug)]
pub(super) struct Usage {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    under_way: usize,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Moving average of the time between calls, in seconds.
    pace: Option<f64>,
}

/// Usage statistics. Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UsageStats {
    pub(super) requests: u64,
    /// Time since the first request began.
    pub(super) first: Option<u64>,
    /// Time since the last request began or ended.
    pub(super) last: Option<u64>,
    /// Moving average of the time between requests.
    pub(super) pace: Option<f64>,
}

const HOUR: f64 = 3600.0;
/// Maximum idle time of a connection that was never used.
const MAX_IDLE: Duration = Duration::from_secs(300);

impl Usage {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began: now,
            state: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, now: Instant) {
        let mut state = self.state.lock();
        if let Some(last) = state.last {
            let since = now.duration_since(last).as_secs_f64();
            state.pace = Some(state.pace.map_or(since, |pace| 0.8 * pace + 0.2 * since));
        }
        state.calls += 1;
        state.under_way += 1;
        state.first.get_or_insert(now);
        state.last = Some(now);
    }

    pub(super) fn end(&self, now: Instant) {
        let mut state = self.state.lock();
        state.under_way = state.under_way.saturating_sub(1);
        state.last = Some(now);
    }

    /// Returns true while a request is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.state.lock().under_way > 0
    }

    /// Returns the time since the last request began or ended.
    pub(super) fn unused_for(&self, now: Instant) -> Duration {
        let last = self.state.lock().last.unwrap_or(self.began);
        now.saturating_duration_since(last)
    }

    /// Returns the current usage statistics.
    pub(super) fn figures(&self, now: Instant) -> UsageStats {
        let state = self.state.lock();
        let ago = |then: Option<Instant>| then.map(|then| now.duration_since(then).as_secs());
        UsageStats {
            requests: state.calls,
            first: ago(state.first),
            last: ago(state.last),
            pace: state.pace,
        }
    }

    /// Returns the idle timeout: five minutes for more than 20 calls an hour, three for 5 to 20, one for fewer.
    fn worth_keeping(&self) -> Duration {
        let state = self.state.lock();
        let per_hour = state.pace.map_or(0.0, |pace| HOUR / pace.max(0.001));
        Duration::from_secs(if per_hour > 20.0 {
            300
        } else if per_hour >= 5.0 {
            180
        } else {
            60
        })
    }

    /// Returns true if the connection has been idle for too long. `fixed` overrides the timeout that follows from its
    /// usage.
    pub(super) fn is_idle(
        &self,
        now: Instant,
        connected: Instant,
        fixed: Option<Duration>,
    ) -> bool {
        let (under_way, last) = {
            let state = self.state.lock();
            (state.under_way, state.last)
        };
        if under_way > 0 {
            return false;
        }
        match last.filter(|last| *last >= connected) {
            // Connected to request the listing, and not called yet.
            None => now.duration_since(connected.max(self.began)) > fixed.unwrap_or(MAX_IDLE),
            Some(last) => now.duration_since(last) > fixed.unwrap_or_else(|| self.worth_keeping()),
        }
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
    fn figures_are_kept_from_the_first_use_on() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let usage = Usage::new(start);
        assert_eq!(usage.figures(at(5)), UsageStats::default());
        for began in [10, 20, 30] {
            usage.begin(at(began));
            usage.end(at(began + 1));
        }
        let figures = usage.figures(at(41));
        assert_eq!(
            (figures.requests, figures.first, figures.last),
            (3, Some(31), Some(10))
        );
        assert!(figures.pace.is_some_and(|pace| (9.0..10.0).contains(&pace)));
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
