//! Name patterns, optimised for the common forms.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use super::{PolicyError, Target};
use crate::net::NamePatterns;

/// A list of patterns, one of which must match.
///
/// Most are plain names or prefixes with a trailing star, which are compared directly. Other patterns are compiled
/// into a glob set, which is slower to build and to match.
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

    /// Calls `found` with the position of each entry that a pattern matches, perhaps more than once.
    pub(super) fn find(&self, table: &NameTable<'_>, mut found: impl FnMut(usize)) {
        for name in &self.whole {
            let from = table.from(name);
            let equal = from.take_while(|at| table.targets[*at].name == &**name);
            equal.for_each(&mut found);
        }
        for start in &self.beginnings {
            let from = table.from(start);
            let begin_so = from.take_while(|at| table.targets[*at].name.starts_with(&**start));
            begin_so.for_each(&mut found);
        }
        if !self.others.is_empty() {
            let all = table.targets.iter().enumerate();
            let matching = all.filter(|(_, target)| self.others.is_match(target.name));
            matching.for_each(|(at, _)| found(at));
        }
    }
}

/// Entries of one kind, which are found by name or beginning of a name without a scan.
pub(super) struct NameTable<'t> {
    targets: Vec<Target<'t>>,
    /// Positions of the entries, ordered by name.
    order: Vec<usize>,
}

impl<'t> NameTable<'t> {
    pub(super) fn new(targets: Vec<Target<'t>>) -> Self {
        let mut order: Vec<_> = (0..targets.len()).collect();
        order.sort_unstable_by_key(|at| targets[*at].name);
        Self { targets, order }
    }

    pub(super) fn targets(&self) -> &[Target<'t>] {
        &self.targets
    }

    /// Positions of the entries whose names are not before `name`, in order.
    fn from(&self, name: &str) -> impl Iterator<Item = usize> {
        let first = self
            .order
            .partition_point(|at| self.targets[*at].name < name);
        self.order[first..].iter().copied()
    }
}

/// Returns true if the pattern has no wildcards.
fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::{Access, Kind};
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

        #[test]
        fn what_is_found_in_a_table_is_what_matches(
            patterns in prop::collection::vec("[ab*?]{1,4}|[ab]{1,3}\\*|\\*|[ab]{1,3}", 1..4),
            all in prop::collection::vec("[abc]{0,4}", 0..20),
        ) {
            let names = Names::read("s", &patterns).expect("sound").expect("some");
            let target = |name| Target { kind: Kind::Tool, name, access: Access::Read };
            let table = NameTable::new(all.iter().map(|name| target(name)).collect());
            let mut found = BTreeSet::new();
            names.find(&table, |at| {
                found.insert(at);
            });
            let matching = (0..all.len()).filter(|at| names.is_match(&all[*at]));
            prop_assert_eq!(found, matching.collect::<BTreeSet<_>>(), "{:?} {:?}", patterns, all);
        }
    }
}
