//! Several rounds, said in three numbers.

use std::fmt;

/// The median of some figures, with the least and the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// Half of the figures lie below it.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
}

impl Spread {
    /// Summarizes `figures`. Returns `None` if there are none, or one of them is not a number.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        if sorted.iter().any(|figure| figure.is_nan()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, sorted[middle])
        };
        Some(Self {
            median,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

/// Returns the median, or NaN if there is none.
pub(crate) fn median(figures: &[f64]) -> f64 {
    Spread::of(figures.iter().copied()).map_or(f64::NAN, |spread| spread.median)
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = out.precision().unwrap_or(3);
        write!(
            out,
            "{:.places$} ({:.places$}-{:.places$})",
            self.median, self.min, self.max
        )
    }
}

/// Each figure of `ours` divided by the one of the same round in `theirs`.
///
/// What disturbs one round disturbs both of its halves, so the median of these ratios stands still
/// where the ratio of two medians would not.
pub(crate) fn ratios(ours: &[f64], theirs: &[f64]) -> Option<Spread> {
    Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_middle_two() {
        let cases: [(&[f64], Option<f64>); 5] = [
            (&[], None),
            (&[2.0], Some(2.0)),
            (&[3.0, 1.0], Some(2.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[1.0, f64::NAN], None),
        ];
        for (figures, median) in cases {
            assert_eq!(
                Spread::of(figures.iter().copied()).map(|spread| spread.median),
                median,
                "{figures:?}"
            );
        }
    }

    #[test]
    fn ratios_pair_the_rounds_and_one_bad_round_does_not_move_the_median() {
        let spread = ratios(&[90.0, 45.0, 91.0], &[100.0, 50.0, 200.0]).expect("three rounds");
        assert_eq!(spread.median, 0.9);
        assert_eq!((spread.min, spread.max), (0.455, 0.9));
        assert_eq!(spread.to_string(), "0.900 (0.455-0.900)");
    }
}
