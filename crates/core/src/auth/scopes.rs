//! Scopes that imply other scopes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The implied scopes of each scope (AUTH-10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Implied(BTreeMap<String, Vec<String>>);

impl Implied {
    pub fn new(implied: &BTreeMap<String, Vec<String>>) -> Self {
        Self(implied.clone())
    }

    /// Returns the scopes with all implied ones.
    pub fn expand<'s>(&self, scopes: impl Iterator<Item = &'s str>) -> Arc<[Box<str>]> {
        let mut known = BTreeSet::new();
        let mut all: Vec<Box<str>> = Vec::new();
        let mut waiting: Vec<&str> = scopes.collect();
        waiting.reverse();
        while let Some(scope) = waiting.pop() {
            if known.insert(scope.to_owned()) {
                all.push(scope.into());
                let implied = self.0.get(scope).into_iter().flatten();
                waiting.extend(implied.map(String::as_str));
            }
        }
        all.into()
    }
}

/// Adds the scopes that are not among the known ones.
pub(super) fn add_scopes(known: &mut Vec<String>, more: &[String]) {
    for scope in more {
        if !known.contains(scope) {
            known.push(scope.clone());
        }
    }
}

/// Advice for a setting that [`is_scope`] rejects.
pub const SCOPE_ADVICE: &str =
    "a scope has visible ASCII characters, no quotation mark and no backslash";

/// Returns true if the string is a valid scope (RFC 6749): visible ASCII without quotation marks and backslashes.
pub fn is_scope(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_graphic() && b != b'"' && b != b'\\';
    !text.is_empty() && text.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auth_10_broad_scopes_bring_narrow_ones_along_and_circles_end() {
        let implied = Implied(BTreeMap::from([
            (
                "admin".to_owned(),
                vec!["files".to_owned(), "users".to_owned()],
            ),
            (
                "files".to_owned(),
                vec!["files:read".to_owned(), "admin".to_owned()],
            ),
        ]));
        let expanded = |scopes: &[&str]| {
            let mut all: Vec<_> = implied
                .expand(scopes.iter().copied())
                .iter()
                .map(ToString::to_string)
                .collect();
            all.sort();
            all.join(" ")
        };
        assert_eq!(expanded(&["files:read"]), "files:read");
        assert_eq!(expanded(&["admin", "x"]), "admin files files:read users x");
        assert_eq!(expanded(&[]), "");
    }
}
