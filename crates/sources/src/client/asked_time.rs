//! Time for which a request waits for its client requests.

use std::time::Duration;

use tokio::time::Instant;

/// Time for which a request had open client requests. Concurrent ones count once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AskedTime {
    total: Duration,
    open: usize,
    /// Time from which on at least one was open.
    since: Option<Instant>,
}

impl AskedTime {
    pub(super) fn begin(&mut self, now: Instant) {
        self.open += 1;
        self.since.get_or_insert(now);
    }

    pub(super) fn end(&mut self, now: Instant) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.total = self.until(now);
            self.since = None;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        0 < self.open
    }

    /// Returns the time up to now.
    pub(super) fn until(&self, now: Instant) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_concurrent_client_requests_counts_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut asked = AskedTime::default();
        asked.begin(at(1));
        asked.begin(at(2));
        asked.end(at(4));
        assert!(asked.is_open());
        assert_eq!(asked.until(at(5)), Duration::from_secs(4));
        asked.end(at(6));
        assert!(!asked.is_open());
        asked.begin(at(10));
        asked.end(at(11));
        assert_eq!(asked.until(at(20)), Duration::from_secs(6));
    }
}
