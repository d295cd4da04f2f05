//! Path patterns supplied by callers.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::refusal::shortened;
use crate::catalog::ToolError;

/// Maximum number of patterns in a call, and maximum length of each.
const PATTERNS_MAX: usize = 100;
const PATTERN_BYTES_MAX: usize = 1024;

/// A set of path patterns. They are compiled into one automaton, so matching takes time linear in the path, whatever
/// the pattern.
#[derive(Debug)]
pub(super) struct Patterns(GlobSet);

impl Patterns {
    /// Compiles patterns. A path matches if any pattern does: `*` matches anything within a name, `**` any number of
    /// names.
    pub(super) fn new<'p>(patterns: impl IntoIterator<Item = &'p str>) -> Result<Self, ToolError> {
        let mut set = GlobSetBuilder::new();
        for (position, pattern) in patterns.into_iter().enumerate() {
            if position == PATTERNS_MAX || PATTERN_BYTES_MAX < pattern.len() {
                return Err(ToolError::new(format!(
                    "at most {PATTERNS_MAX} patterns of {PATTERN_BYTES_MAX} bytes each are allowed"
                )));
            }
            let glob = GlobBuilder::new(pattern)
                .literal_separator(true)
                .backslash_escape(true)
                .empty_alternates(true)
                .build()
                .map_err(|e| {
                    let pattern = shortened(pattern);
                    ToolError::new(format!(
                        "the pattern {pattern} cannot be used: {}",
                        e.kind()
                    ))
                })?;
            set.add(glob);
        }
        set.build().map(Self).map_err(|_| {
            ToolError::new("the patterns are too complex together; use fewer or simpler ones")
        })
    }

    /// Compiles the exclusions of a tree. A pattern without `*` also matches that name at any depth.
    pub(super) fn leaving_out(patterns: &[String]) -> Result<Self, ToolError> {
        let mut all = Vec::with_capacity(patterns.len());
        for pattern in patterns.iter().take(PATTERNS_MAX + 1) {
            all.push(pattern.clone());
            if !pattern.contains('*') {
                all.push(format!("**/{pattern}"));
            }
        }
        if patterns.len() <= PATTERNS_MAX / 2 {
            return Self::new(all.iter().map(String::as_str));
        }
        Err(ToolError::new(format!(
            "at most {} excludePatterns are allowed",
            PATTERNS_MAX / 2
        )))
    }

    pub(super) fn mean(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_paths_from_where_the_search_begins() {
        for (pattern, path, means) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "b/a.txt", false),
            ("**/*.txt", "a.txt", true),
            ("**/*.txt", "b/c/a.txt", true),
            ("b/*", "b/a.txt", true),
            ("b/**", "b/c/a.txt", true),
            ("*.{md,txt}", "a.md", true),
            ("[ab].txt", "a.txt", true),
            ("[!ab].txt", "a.txt", false),
            ("?.txt", "ab.txt", false),
            ("*", ".hidden", true),
            ("**/*", "b/.hidden", true),
            ("A.txt", "a.txt", false),
            ("\\*", "*", true),
        ] {
            let patterns = Patterns::new([pattern]).expect("a pattern");
            assert_eq!(patterns.mean(path), means, "{pattern} {path}");
        }
        let patterns = Patterns::leaving_out(&["node_modules".to_owned(), "*.log".to_owned()])
            .expect("patterns");
        for (path, means) in [
            ("node_modules", true),
            ("a/node_modules", true),
            ("a.log", true),
            ("a/a.log", false),
            ("a", false),
        ] {
            assert_eq!(patterns.mean(path), means, "{path}");
        }
    }

    #[test]
    fn no_pattern_takes_long_and_broken_ones_are_named() {
        let nasty = "*a".repeat(400);
        let patterns = Patterns::new([&*nasty]).expect("a pattern");
        assert!(!patterns.mean(&"a".repeat(255)));
        let deep = format!("{}x{}", "{a,".repeat(300), "}".repeat(300));
        let _ = Patterns::new([&*deep]);
        for broken in ["[", "{a", "a]{"] {
            if let Err(error) = Patterns::new([broken]) {
                assert!(error.message().contains("pattern"), "{}", error.message());
            }
        }
        assert!(Patterns::new(["x".repeat(2000).as_str()]).is_err());
        assert!(Patterns::new(std::iter::repeat_n("x", 101)).is_err());
    }
}
