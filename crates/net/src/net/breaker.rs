//! Circuit breaker for servers that do not respond.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::Backoff;
use super::share::ShareKey;

/// Circuit breaker that counts consecutive failures. At the threshold it trips and rejects all calls for a while. Then
/// it admits one probe, whose result decides for all. The caller passes the current time.
#[derive(Debug)]
pub struct Breaker {
    threshold: u32,
    pause: Backoff,
    state: State,
    /// Number of trips since the last success.
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
    /// Start of the probe, which is abandoned if it never reports.
    Probing {
        since: Instant,
    },
}

/// State of a [`Breaker`], for health and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// All calls are admitted.
    Passing,
    /// All calls are rejected.
    Tripped,
    /// One call probes: it is in progress, or the next one does.
    Probing,
}

/// A probe that takes longer than this is taken for lost, and the next one may try.
const PROBE_LIFE: Duration = Duration::from_secs(120);

impl Breaker {
    /// Creates a breaker that trips after `threshold` consecutive failures and then rejects calls for `pause`.
    pub fn new(threshold: u32, pause: Backoff) -> Self {
        Self {
            threshold: threshold.max(1),
            pause,
            state: State::Passing { failures: 0 },
            trips: 0,
        }
    }

    /// Admits a call or returns the time to wait.
    ///
    /// # Errors
    ///
    /// Returns the time until the next attempt is useful.
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

    /// Records the success of an admitted call.
    pub fn succeeded(&mut self) {
        self.state = State::Passing { failures: 0 };
        self.trips = 0;
    }

    /// Records the failure of an admitted call. `chance` is the jitter, from 0 to 1. Returns true if the breaker
    /// tripped.
    pub fn failed(&mut self, now: Instant, chance: f64) -> bool {
        let trips = match &mut self.state {
            State::Passing { failures } => {
                *failures += 1;
                self.threshold <= *failures
            }
            // Calls admitted before the trip do not change the state.
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

    /// Records that an admitted call was abandoned without a result. If it was the probe, the next call may probe at
    /// once.
    pub fn abandoned(&mut self, now: Instant) {
        if matches!(self.state, State::Probing { .. }) {
            self.state = State::Tripped { until: now };
        }
    }

    /// Returns the current state.
    pub fn state(&self) -> BreakerState {
        self.state_at(Instant::now())
    }

    fn state_at(&self, now: Instant) -> BreakerState {
        match self.state {
            State::Passing { .. } => BreakerState::Passing,
            State::Tripped { until } if now < until => BreakerState::Tripped,
            State::Tripped { .. } | State::Probing { .. } => BreakerState::Probing,
        }
    }
}

/// Maximum number of callers whose failures are counted one by one.
const CALLERS_MAX: usize = 1024;

/// Circuit breaker of a shared resource, with an additional one for each caller whose calls fail there.
///
/// An unreachable resource is down for all callers. A failed call to a reachable one may be caused by the request, so
/// it counts against its caller only. No caller can therefore block the resource for others.
#[derive(Debug)]
pub(crate) struct Breakers {
    threshold: u32,
    pause: Backoff,
    shared: Breaker,
    of: HashMap<ShareKey, Breaker, RandomState>,
}

/// Scope of a trip: the callers whose calls are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tripped {
    All,
    Caller,
}

impl Breakers {
    /// Creates breakers that trip after `threshold` consecutive failures and then reject calls for `pause`.
    pub fn new(threshold: u32, pause: Backoff) -> Self {
        Self {
            threshold,
            pause,
            shared: Breaker::new(threshold, pause),
            of: HashMap::default(),
        }
    }

    /// Admits a call of a caller, or returns the time to wait.
    pub fn enter(&mut self, caller: ShareKey, now: Instant) -> Result<(), Duration> {
        self.shared.enter(now)?;
        let Some(own) = self.of.get_mut(&caller) else {
            return Ok(());
        };
        own.enter(now).inspect_err(|_| self.shared.abandoned(now))
    }

    /// A call fared well.
    pub fn succeeded(&mut self, caller: ShareKey) {
        self.shared.succeeded();
        self.of.remove(&caller);
    }

    /// A call failed at a place that could be reached.
    pub fn failed(&mut self, caller: ShareKey, now: Instant, chance: f64) -> Option<Tripped> {
        if caller.is_none() {
            return self.unreachable(caller, now, chance);
        }
        // The caller's probe gives no information about the shared resource.
        self.shared.abandoned(now);
        if CALLERS_MAX <= self.of.len() && !self.of.contains_key(&caller) {
            self.make_room();
        }
        let (threshold, pause) = (self.threshold, self.pause);
        let own = self.of.entry(caller);
        let own = own.or_insert_with(|| Breaker::new(threshold, pause));
        own.failed(now, chance).then_some(Tripped::Caller)
    }

    /// The place could not be reached.
    pub fn unreachable(&mut self, caller: ShareKey, now: Instant, chance: f64) -> Option<Tripped> {
        if let Some(own) = self.of.get_mut(&caller) {
            own.abandoned(now);
        }
        self.shared.failed(now, chance).then_some(Tripped::All)
    }

    /// A caller never found out.
    pub fn abandoned(&mut self, caller: ShareKey, now: Instant) {
        self.shared.abandoned(now);
        if let Some(own) = self.of.get_mut(&caller) {
            own.abandoned(now);
        }
    }

    /// The state for all callers.
    pub fn state(&self) -> BreakerState {
        self.shared.state()
    }

    /// Removes callers whose breaker is closed, or all callers if that frees no capacity.
    fn make_room(&mut self) {
        self.of
            .retain(|_, own| own.state() != BreakerState::Passing);
        if CALLERS_MAX <= self.of.len() {
            self.of.clear();
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
        assert_eq!(breaker.state_at(at(999)), BreakerState::Tripped);
        // Without calls, nothing is rejected any more.
        assert_eq!(breaker.state_at(at(1000)), BreakerState::Probing);
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
