//! Stops asking somebody who does not answer.

use std::time::Duration;

use tokio::time::Instant;

use super::Backoff;

/// Counts failures in a row. After too many it trips: nobody is let through until some time has passed; then one is,
/// to probe, and what becomes of that one decides for all. Time is passed in.
#[derive(Debug)]
pub struct Breaker {
    threshold: u32,
    pause: Backoff,
    state: State,
    /// How often it has tripped since it last passed.
    trips: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Passing {
        failures: u32,
    },
    Tripped {
        until: Instant,
    },
    /// Since when. A probe of which nothing is heard is given up.
    Probing {
        since: Instant,
    },
}

/// What a [`Breaker`] is doing, for health and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Everybody passes.
    Passing,
    /// Nobody passes.
    Tripped,
    /// One has passed, to see how it fares.
    Probing,
}

/// A probe that takes longer than this is taken for lost, and the next one may try.
const PROBE_LIFE: Duration = Duration::from_secs(120);

impl Breaker {
    /// A breaker that trips after so many failures in a row, and pauses so long.
    pub fn new(threshold: u32, pause: Backoff) -> Self {
        Self {
            threshold: threshold.max(1),
            pause,
            state: State::Passing { failures: 0 },
            trips: 0,
        }
    }

    /// Lets somebody through, or says how long to wait.
    ///
    /// # Errors
    ///
    /// The time until it is worth another try.
    pub fn enter(&mut self, now: Instant) -> Result<(), Duration> {
        match self.state {
            State::Passing { .. } => Ok(()),
            State::Tripped { until } if now < until => Err(until - now),
            State::Probing { since } if now < since + PROBE_LIFE => Err(self.pause.base),
            State::Tripped { .. } | State::Probing { .. } => {
                self.state = State::Probing { since: now };
                Ok(())
            }
        }
    }

    /// Somebody who was let through fared well.
    pub fn succeeded(&mut self) {
        self.state = State::Passing { failures: 0 };
        self.trips = 0;
    }

    /// Somebody who was let through fared badly. `chance` is for the jitter, from 0 to 1. Tells whether it tripped.
    pub fn failed(&mut self, now: Instant, chance: f64) -> bool {
        let trips = match &mut self.state {
            State::Passing { failures } => {
                *failures += 1;
                self.threshold <= *failures
            }
            // Those that were let through before it tripped change nothing.
            State::Tripped { .. } => false,
            State::Probing { .. } => true,
        };
        if trips {
            self.trips = self.trips.saturating_add(1);
            let pause = self.pause.delay(self.trips, chance);
            self.state = State::Tripped { until: now + pause };
        }
        trips
    }

    /// Somebody who was let through never found out. Where it was the probe, the next one may probe at once.
    pub fn abandoned(&mut self, now: Instant) {
        if matches!(self.state, State::Probing { .. }) {
            self.state = State::Tripped { until: now };
        }
    }

    /// What it is doing.
    pub fn state(&self) -> BreakerState {
        match self.state {
            State::Passing { .. } => BreakerState::Passing,
            State::Tripped { .. } => BreakerState::Tripped,
            State::Probing { .. } => BreakerState::Probing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        let pause = Backoff {
            base: Duration::from_secs(1),
            max: Duration::from_secs(4),
        };
        Breaker::new(3, pause)
    }

    #[test]
    fn trips_after_failures_in_a_row_and_lets_one_through_to_probe() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut breaker = breaker();
        for _ in 0..2 {
            breaker.failed(at(0), 1.0);
        }
        breaker.succeeded();
        assert!(!breaker.failed(at(0), 1.0) && !breaker.failed(at(0), 1.0));
        assert_eq!(breaker.enter(at(0)), Ok(()));
        assert!(breaker.failed(at(0), 1.0));
        assert_eq!(breaker.state(), BreakerState::Tripped);
        assert_eq!(breaker.enter(at(400)), Err(Duration::from_millis(600)));
        assert!(
            !breaker.failed(at(500), 1.0),
            "a late failure prolongs nothing"
        );

        assert_eq!(breaker.enter(at(1000)), Ok(()));
        assert_eq!(breaker.state(), BreakerState::Probing);
        assert!(breaker.enter(at(1000)).is_err(), "one probe at a time");
        breaker.succeeded();
        assert_eq!(breaker.enter(at(1001)), Ok(()));
        assert_eq!(breaker.state(), BreakerState::Passing);
    }

    #[test]
    fn pauses_longer_each_time_a_probe_fails() {
        let start = Instant::now();
        let mut now = start;
        let mut breaker = breaker();
        for _ in 0..3 {
            breaker.failed(now, 1.0);
        }
        for pause in [1, 2, 4, 4] {
            assert_eq!(breaker.enter(now), Err(Duration::from_secs(pause)));
            now += Duration::from_secs(pause);
            assert_eq!(breaker.enter(now), Ok(()));
            assert!(breaker.failed(now, 1.0));
        }
    }

    #[test]
    fn a_probe_that_is_lost_does_not_keep_it_tripped() {
        let now = Instant::now();
        let mut breaker = breaker();
        for _ in 0..3 {
            breaker.failed(now, 1.0);
        }
        let later = now + Duration::from_secs(1);
        assert_eq!(breaker.enter(later), Ok(()));
        breaker.abandoned(later);
        assert_eq!(breaker.enter(later), Ok(()));
        assert!(breaker.enter(later).is_err());
        assert_eq!(breaker.enter(later + PROBE_LIFE), Ok(()));
    }
}
