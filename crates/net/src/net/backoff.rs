//! Backoff between attempts.

use std::time::Duration;

/// Delays that double up to a limit, each with jitter, so that many who failed together do not return together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay, before jitter.
    pub base: Duration,
    /// No delay is longer.
    pub max: Duration,
}

impl Backoff {
    /// The delay after a number of failures, of which there was at least one. `chance` is from 0 to 1; a delay is
    /// between half and the whole of its length.
    pub fn delay(&self, failures: u32, chance: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        let whole = self.base.saturating_mul(1 << doublings).min(self.max);
        whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

/// Returns an unpredictable random number from 0 to 1.
pub fn chance() -> f64 {
    // Without system randomness, all callers wait equally long.
    let bits = getrandom::u32().unwrap_or(u32::MAX);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_their_limit_and_keep_half_of_their_length() {
        let backoff = Backoff {
            base: Duration::from_millis(100),
            max: Duration::from_secs(1),
        };
        let whole = |failures| backoff.delay(failures, 1.0).as_millis();
        assert_eq!(
            [1, 2, 3, 4, 5, 60, u32::MAX].map(whole),
            [100, 200, 400, 800, 1000, 1000, 1000]
        );
        assert_eq!(backoff.delay(3, 0.0), Duration::from_millis(200));
        assert_eq!(backoff.delay(0, 1.0), Duration::from_millis(100));
        assert!((0.0..=1.0).contains(&chance()));
    }
}
