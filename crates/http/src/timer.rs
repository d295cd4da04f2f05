//! A clock that counts only the time in which the process runs. Platforms freeze processes between requests, and what has
//! arrived meanwhile is unread.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

const SECOND: Duration = Duration::from_secs(1);

/// Seconds since a time limit began.
#[derive(Debug)]
pub(crate) struct RunningSeconds {
    passed: u32,
    next: Pin<Box<Sleep>>,
}

impl RunningSeconds {
    pub(crate) fn begin() -> Self {
        Self {
            passed: 0,
            next: Box::pin(tokio::time::sleep(SECOND)),
        }
    }

    /// Completes at each further second, with their number.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
        ready!(self.next.as_mut().poll(cx));
        self.passed += 1;
        self.next.as_mut().reset(Instant::now() + SECOND);
        Poll::Ready(self.passed)
    }

    /// Waits until so many seconds have passed.
    #[cfg(feature = "tls")]
    pub(crate) async fn reach(mut self, seconds: u32) {
        while self.passed < seconds {
            std::future::poll_fn(|cx| self.poll_next(cx)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_process_was_frozen_counts_as_a_second() {
        let mut seconds = RunningSeconds::begin();
        assert_eq!(poll_fn(|cx| seconds.poll_next(cx)).await, 1);
        tokio::time::advance(Duration::from_secs(600)).await;
        assert_eq!(poll_fn(|cx| seconds.poll_next(cx)).await, 2);
        let began = Instant::now();
        assert_eq!(poll_fn(|cx| seconds.poll_next(cx)).await, 3);
        assert!(SECOND <= began.elapsed());
    }
}
