//! Back-off for caches with one entry for each connection.

/// Maximum number of values that are not stored between two that are.
const MAX: u32 = 63;

/// Decides which values are worth storing. Storing one costs more than computing it, and is wasted where values keep
/// changing: after each value that was not used, twice as many are passed over before the next one is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreBackoff {
    /// Number of values to pass over.
    left: u32,
    /// Number that was passed over before the stored one.
    passed: u32,
}

impl StoreBackoff {
    /// Returns true if the current value is to be passed over.
    #[inline]
    pub fn passes_over(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// A value is stored in place of one that was used or not.
    pub fn stores(&mut self, was_in_vain: bool) {
        self.passed = match was_in_vain {
            true => (2 * self.passed + 1).min(MAX),
            false => 0,
        };
        self.left = self.passed;
    }

    /// Returns true if the next value is stored.
    #[cfg(test)]
    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_values_are_stored_ever_more_seldom_and_a_used_one_resets_that() {
        let mut backoff = StoreBackoff::default();
        let mut passed = [(); 9].map(|()| {
            backoff.stores(true);
            std::iter::repeat_with(|| backoff.passes_over())
                .take_while(|passes| *passes)
                .count()
        });
        assert_eq!(passed, [1, 3, 7, 15, 31, 63, 63, 63, 63]);
        passed = [(); 9].map(|()| {
            backoff.stores(false);
            usize::from(backoff.passes_over())
        });
        assert_eq!(passed, [0; 9]);
    }
}
