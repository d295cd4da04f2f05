//! Duration histograms with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of buckets, in nanoseconds. A last bucket has no upper bound.
pub type Bounds = &'static [u64];

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// Bounds for operations: finer than the semantic conventions below 10 ms, and equal to them above.
pub(crate) const OPERATION: Bounds = &[
    10 * MICRO,
    15 * MICRO,
    20 * MICRO,
    30 * MICRO,
    50 * MICRO,
    70 * MICRO,
    100 * MICRO,
    150 * MICRO,
    200 * MICRO,
    300 * MICRO,
    500 * MICRO,
    700 * MICRO,
    MILLI,
    1_500 * MICRO,
    2 * MILLI,
    3 * MILLI,
    5 * MILLI,
    7 * MILLI,
    10 * MILLI,
    20 * MILLI,
    50 * MILLI,
    100 * MILLI,
    200 * MILLI,
    500 * MILLI,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    60 * SECOND,
    120 * SECOND,
    300 * SECOND,
];

/// Bounds of the semantic conventions for MCP, which are the last ones of [`OPERATION`].
pub(crate) const OPERATION_CONVENTION: Bounds = OPERATION.split_at(OPERATION.len() - 14).1;

/// Bounds of the semantic conventions for HTTP.
pub const HTTP: Bounds = &[
    5 * MILLI,
    10 * MILLI,
    25 * MILLI,
    50 * MILLI,
    75 * MILLI,
    100 * MILLI,
    250 * MILLI,
    500 * MILLI,
    750 * MILLI,
    SECOND,
    2_500 * MILLI,
    5 * SECOND,
    7_500 * MILLI,
    10 * SECOND,
];

const BUCKETS_MAX: usize = 33;

/// Bucket counts and a sum. A record costs two atomic additions; a reader may see one before the other.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Histogram {
    sum_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS_MAX],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            sum_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS_MAX],
        }
    }
}

impl Histogram {
    #[inline]
    pub fn record(&self, bounds: Bounds, elapsed: Duration) {
        let ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bounds.partition_point(|bound| *bound < ns);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    pub fn read(&self, bounds: Bounds) -> Distribution {
        let mut distribution = Distribution::empty(bounds);
        distribution.sum_ns = self.sum_ns.load(Relaxed);
        for (count, bucket) in distribution.counts.iter_mut().zip(&self.buckets) {
            *count = bucket.load(Relaxed);
        }
        distribution
    }
}

/// Values of a histogram at the time of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    pub bounds: Bounds,
    /// Count of each bucket, not cumulative.
    pub counts: Vec<u64>,
    pub(crate) sum_ns: u64,
}

impl Distribution {
    pub fn empty(bounds: Bounds) -> Self {
        Self {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum_ns: 0,
        }
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    pub fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }

    /// Merges buckets into coarser bounds. All of `bounds` must be among the existing bounds.
    pub(crate) fn coarser(&self, bounds: Bounds) -> Self {
        let mut coarse = Self::empty(bounds);
        coarse.sum_ns = self.sum_ns;
        for (position, count) in self.counts.iter().enumerate() {
            let bucket = match self.bounds.get(position) {
                Some(bound) => bounds.partition_point(|b| b < bound),
                None => bounds.len(),
            };
            coarse.counts[bucket] += count;
        }
        coarse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_and_fit() {
        for bounds in [OPERATION, OPERATION_CONVENTION, HTTP] {
            assert!(bounds.is_sorted() && bounds.len() < BUCKETS_MAX);
        }
        let seconds: Vec<f64> = OPERATION_CONVENTION
            .iter()
            .map(|b| *b as f64 / 1e9)
            .collect();
        let convention = [
            0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
        ];
        assert_eq!(seconds, convention);
    }

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        for ns in [0, 10_000, 10_001, 300 * SECOND, 300 * SECOND + 1] {
            histogram.record(OPERATION, Duration::from_nanos(ns));
        }
        let read = histogram.read(OPERATION);
        assert_eq!((read.counts[0], read.counts[1]), (2, 1));
        assert_eq!((read.counts[31], read.counts[32]), (1, 1));
        assert_eq!(read.count(), 5);
    }

    #[test]
    fn a_coarser_view_counts_the_same_values() {
        let histogram = Histogram::default();
        for ms in [1, 9, 10, 11, 25, 400_000] {
            histogram.record(OPERATION, Duration::from_millis(ms));
        }
        let fine = histogram.read(OPERATION);
        let coarse = fine.coarser(OPERATION_CONVENTION);
        assert_eq!(coarse.counts[..4], [3, 1, 1, 0]);
        assert_eq!(coarse.counts[14], 1);
        assert_eq!((coarse.count(), coarse.sum_ns), (fine.count(), fine.sum_ns));
    }
}
