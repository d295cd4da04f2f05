//! Sources that are starting, of which it is not known yet what they offer.

use std::time::Duration;

/// A source that has not provided its items yet. A catalog lists the sources that were starting when it was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartingSource {
    pub name: String,
    /// Prefix of the names of its tools and prompts. Empty if the names are not known.
    pub prefix: String,
    /// Maximum duration of the start.
    pub patience: Duration,
}

impl StartingSource {
    /// Returns true if it may offer a tool or a prompt of this name.
    pub fn may_offer(&self, name: &str) -> bool {
        name.starts_with(&self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_offer_what_begins_with_its_prefix() {
        let source = |prefix: &str| StartingSource {
            name: "up".to_owned(),
            prefix: prefix.to_owned(),
            patience: Duration::from_secs(1),
        };
        for (prefix, name, may) in [
            ("up__", "up__echo", true),
            ("up__", "up_echo", false),
            ("up__", "echo", false),
            ("", "echo", true),
        ] {
            assert_eq!(source(prefix).may_offer(name), may, "{prefix:?} {name}");
        }
    }
}
