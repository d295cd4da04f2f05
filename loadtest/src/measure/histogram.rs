//! Latencies, counted in buckets of about 1.6 % width.

use std::time::Duration;

/// Histogram of latencies.
///
/// The buckets are log-linear: every power of two of nanoseconds is divided into [`STEPS`] equal buckets. The error
/// of a quantile is thus under 1/64 of its value, from a nanosecond to centuries, in 30 KB.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
}

impl Histogram {
    /// An empty histogram.
    pub(crate) fn new() -> Self {
        Self {
            buckets: vec![0; bucket_of(u64::MAX) + 1],
            count: 0,
        }
    }

    /// Counts one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)] += 1;
        self.count += 1;
    }

    /// Adds everything that `other` has seen.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
    }

    /// Returns the number of recorded latencies.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The latency that a share of `quantile` (0 to 1) did not exceed; zero when nothing was recorded.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        let rank = ((self.count as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_nanos(middle_of(bucket));
            }
        }
        Duration::ZERO
    }
}

const STEP_BITS: u32 = 6;

/// Buckets for each power of two.
const STEPS: usize = 1 << STEP_BITS;

fn bucket_of(nanos: u64) -> usize {
    let magnitude = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEP_BITS + 1);
    magnitude as usize * STEPS + usize::try_from(nanos >> magnitude).unwrap_or(usize::MAX)
}

fn middle_of(bucket: usize) -> u64 {
    let magnitude = (bucket / STEPS).saturating_sub(1);
    let low = ((bucket - magnitude * STEPS) as u64) << magnitude;
    low + ((1 << magnitude) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_whose_middle_is_within_a_64th() {
        let values = (0..64)
            .map(|shift| 1u64 << shift)
            .flat_map(|power| [power - 1, power, power + power / 3]);
        for value in values.chain([u64::MAX]) {
            let middle = middle_of(bucket_of(value));
            assert!(
                middle.abs_diff(value) <= value / 64,
                "{value} became {middle}"
            );
        }
    }

    #[test]
    fn buckets_are_in_the_order_of_their_values() {
        let mut last = 0;
        for value in 0..100_000 {
            let bucket = bucket_of(value);
            assert!(last <= bucket && bucket <= last + 1, "{value}");
            last = bucket;
        }
    }

    #[test]
    fn quantiles_are_ranks() {
        let mut histogram = Histogram::new();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }

        let close = |quantile, micros: u64| {
            let found = histogram.quantile(quantile).as_nanos();
            found.abs_diff(u128::from(micros) * 1000) <= u128::from(micros) * 1000 / 64
        };
        assert_eq!(histogram.count(), 1000);
        assert!(close(0.5, 500));
        assert!(close(0.99, 990));
        assert!(close(1.0, 1000));
        assert!(close(0.0, 1));
    }

    #[test]
    fn merging_adds_and_an_empty_one_says_zero() {
        let mut all = Histogram::new();
        assert_eq!(all.quantile(0.5), Duration::ZERO);

        let mut part = Histogram::new();
        part.record(Duration::from_nanos(10));
        all.merge(&part);
        all.merge(&part);
        assert_eq!(all.count(), 2);
        assert_eq!(all.quantile(0.99), Duration::from_nanos(10));
    }
}
