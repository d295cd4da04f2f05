//! Summary of the served items, for people.

/// Summary of what a server offers, for its start-up message.
#[derive(Debug, Default)]
pub struct Offering {
    /// Toolsets, sources and upstream servers of which something is offered.
    pub(super) names: Vec<String>,
    /// Numbers of sources and upstream servers that offer nothing, in words.
    pub(super) missing: Vec<String>,
}

impl Offering {
    /// Describes it in a few words: `3 tools (demo, weather); 1 of 2 sources cannot be offered, see above`.
    pub fn in_words(&self, tools: usize) -> String {
        let mut text = longshore_protocol::counted(tools, "tool");
        if !self.names.is_empty() {
            text.push_str(&format!(" ({})", self.names.join(", ")));
        }
        if !self.missing.is_empty() {
            let joint = if self.names.is_empty() { ": " } else { "; " };
            let missing = self.missing.join(" and ");
            text.push_str(&format!("{joint}{missing} cannot be offered, see above"));
        }
        text
    }

    /// Creates a summary of these names.
    #[cfg(any(test, feature = "testing"))]
    pub fn of(names: &[&str], missing: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Self {
            names: owned(names),
            missing: owned(missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_what_is_offered_and_how_much_is_not() {
        for (names, missing, tools, expected) in [
            (&["demo"][..], &[][..], 7, "7 tools (demo)"),
            (&["demo", "a"], &[], 1, "1 tool (demo, a)"),
            (&[], &[], 0, "0 tools"),
            (
                &[],
                &["3 of 3 upstreams"],
                0,
                "0 tools: 3 of 3 upstreams cannot be offered, see above",
            ),
            (
                &["a"],
                &["1 of 2 sources", "1 of 1 upstreams"],
                1,
                "1 tool (a); 1 of 2 sources and 1 of 1 upstreams cannot be offered, see above",
            ),
        ] {
            let offering = Offering::of(names, missing);
            assert_eq!(offering.in_words(tools), expected);
        }
    }
}
