//! Name patterns, optimised for the common forms.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::PolicyError;
use crate::net::NamePatterns;

/// A list of patterns, one of which must match.
///
/// Most are plain names or prefixes with a trailing star, which are compared directly. Other patterns are compiled
/// into a glob set, which is slower to build and to match. Rules are matched with every tool.
#[derive(Debug, Default)]
pub(super) struct Names {
    whole: HashSet<Box<str>, RandomState>,
    beginnings: Vec<Box<str>>,
    others: NamePatterns,
}

impl Names {
    /// Returns `None` if there are no patterns.
    ///
    /// # Errors
    ///
    /// The error is the first invalid pattern and its setting.
    pub(super) fn read(setting: &str, patterns: &[String]) -> Result<Option<Self>, PolicyError> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let fault = |pattern: &str| PolicyError::Pattern {
            setting: setting.to_owned(),
            pattern: pattern.to_owned(),
        };
        let mut names = Self::default();
        let mut others = Vec::new();
        for pattern in patterns {
            match pattern.strip_suffix('*') {
                _ if pattern.is_empty() => return Err(fault(pattern)),
                None if is_plain(pattern) => {
                    names.whole.insert(pattern.as_str().into());
                }
                Some(beginning) if is_plain(beginning) => names.beginnings.push(beginning.into()),
                _ => others.push(pattern.as_str()),
            }
        }
        names.others = NamePatterns::new(others).map_err(|error| fault(&error.pattern))?;
        Ok(Some(names))
    }

    /// Returns true if a pattern matches the name.
    pub(super) fn is_match(&self, name: &str) -> bool {
        self.whole.contains(name)
            || self
                .beginnings
                .iter()
                .any(|start| name.starts_with(&**start))
            || !self.others.is_empty() && self.others.is_match(name)
    }
}

/// Returns true if the pattern has no wildcards.
fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(patterns: &[&str]) -> Names {
        let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
        Names::read("policy.rules[0].tools", &patterns)
            .expect("sound")
            .expect("some")
    }

    #[test]
    fn a_set_of_globs_is_made_only_where_one_is_needed() {
        let plain = names(&["read_file", "list_*", "*"]);
        assert!(plain.others.is_empty() && plain.is_match("anything"));
        let globs = names(&["read_file", "*_file", "list_{a,b}", "a**"]);
        assert_eq!((globs.others.len(), globs.whole.len()), (3, 1));
    }

    proptest! {
        #[test]
        fn names_fit_as_globs_have_it(
            patterns in prop::collection::vec("[ab*?/]{1,4}|[ab]{1,3}\\*|\\*|[ab./-]{1,3}|[ab]\\[a\\]", 1..4),
            name in "[ab./*-]{0,4}",
        ) {
            let globs = NamePatterns::new(patterns.iter().map(String::as_str)).expect("globs");
            let names = Names::read("s", &patterns).expect("sound").expect("some");
            prop_assert_eq!(names.is_match(&name), globs.is_match(&name), "{:?} {}", patterns, name);
        }
    }
}
