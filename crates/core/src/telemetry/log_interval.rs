//! Log lines that every request would repeat during an outage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::environment::unix_seconds;

/// Limits a log line to one in an interval.
#[derive(Debug)]
pub struct LogInterval {
    seconds: u64,
    /// Unix time from which the next line passes.
    next: AtomicU64,
}

impl LogInterval {
    pub const fn new(interval: Duration) -> Self {
        Self {
            seconds: interval.as_secs(),
            next: AtomicU64::new(0),
        }
    }

    /// Returns true if a line is to be logged now.
    pub fn passes(&self) -> bool {
        self.passes_at(unix_seconds())
    }

    fn passes_at(&self, now: u64) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        // A clock that was set back must not silence the line for long.
        let is_due = next <= now || now + self.seconds < next;
        let swapped = || {
            let later = now + self.seconds;
            self.next
                .compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed)
        };
        is_due && swapped().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_passes_in_an_interval() {
        let lines = LogInterval::new(Duration::from_secs(60));
        let passed = [100, 101, 159, 160, 161, 50, 51].map(|now| lines.passes_at(now));
        assert_eq!(passed, [true, false, false, true, false, true, false]);
    }
}
