//! Patterns of names in settings.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// A list of patterns, one of which must match the whole name. `*` matches any characters and `?` one; `[ab]` and
/// `{a,b}` are alternatives. An empty list matches nothing.
#[derive(Clone, Debug, Default)]
pub struct NamePatterns(GlobSet);

/// A pattern that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern} is not valid: {reason}")]
pub struct PatternError {
    pub pattern: String,
    reason: String,
}

impl NamePatterns {
    /// Compiles patterns.
    ///
    /// # Errors
    ///
    /// The first pattern that is not valid, or all of them if they are too large together.
    pub fn new<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self, PatternError> {
        Self::compile(patterns, false)
    }

    /// Compiles patterns that match upper and lower case alike.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn ignoring_case<'p>(
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> Result<Self, PatternError> {
        Self::compile(patterns, true)
    }

    fn compile<'p>(
        patterns: impl IntoIterator<Item = &'p str>,
        ignores_case: bool,
    ) -> Result<Self, PatternError> {
        let mut set = GlobSetBuilder::new();
        let mut all = Vec::new();
        for pattern in patterns {
            let glob = GlobBuilder::new(pattern)
                .case_insensitive(ignores_case)
                .build();
            set.add(glob.map_err(|error| PatternError {
                pattern: pattern.to_owned(),
                reason: error.kind().to_string(),
            })?);
            all.push(pattern);
        }
        set.build().map(Self).map_err(|error| PatternError {
            pattern: all.join(", "),
            reason: error.kind().to_string(),
        })
    }

    /// Returns true if a pattern matches the name.
    #[inline]
    pub fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }

    /// Returns true if there are no patterns.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of patterns.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, matches) in [
            ("read_*", "read_file", true),
            ("read_*", "a read_file", false),
            ("a/*", "a/b/c", true),
            ("?", "ab", false),
            ("{a,b}", "b", true),
            ("Read", "read", false),
        ] {
            let patterns = NamePatterns::new([pattern]).expect("valid");
            assert_eq!(patterns.is_match(name), matches, "{pattern} {name}");
        }
        let patterns = NamePatterns::ignoring_case(["*Token"]).expect("valid");
        assert!(patterns.is_match("ACCESSTOKEN") && patterns.len() == 1);
        assert!(!NamePatterns::default().is_match(""));
    }

    #[test]
    fn an_invalid_pattern_is_named_with_the_reason() {
        let error = NamePatterns::new(["a", "[b"]).expect_err("not valid");
        assert_eq!(error.pattern, "[b");
        assert_eq!(
            error.to_string(),
            "the pattern [b is not valid: unclosed character class; missing ']'"
        );
    }
}
