//! Entries of an upstream's lists that cannot be offered.

use serde_json::Value;

use super::super::connection::Upstream;
use crate::catalog::RejectedItem;
use crate::source::login::cut;

/// Maximum number of entries of one upstream that are reported one by one.
const REPORTED_MAX: usize = 100;

/// The entries of an upstream's lists that cannot be offered.
pub(super) struct RejectedEntries<'u> {
    upstream: &'u str,
    items: Vec<RejectedItem>,
    /// Number of further entries.
    further: usize,
}

impl<'u> RejectedEntries<'u> {
    pub(super) fn new(upstream: &'u Upstream) -> Self {
        Self {
            upstream: &upstream.name,
            items: Vec::new(),
            further: 0,
        }
    }

    pub(super) fn add(&mut self, kind: &str, entry: &Value, problem: impl AsRef<str>) {
        if self.items.len() == REPORTED_MAX {
            self.further += 1;
            return;
        }
        let name = entry["name"]
            .as_str()
            .or(entry["uri"].as_str())
            .unwrap_or("without a name");
        let place = format!("upstreams.{}, {kind} {:?}", self.upstream, cut(name));
        let item = RejectedItem::new(self.upstream, place, cut(problem.as_ref()));
        self.items.push(item);
    }

    /// Returns the reports.
    pub(super) fn into_items(mut self) -> Vec<RejectedItem> {
        if 0 < self.further {
            let place = format!("upstreams.{}", self.upstream);
            let problem = format!("{} further entries of its lists", self.further);
            self.items
                .push(RejectedItem::new(self.upstream, place, problem));
        }
        self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_and_the_length_of_reports_are_bounded() {
        let mut rejected = RejectedEntries {
            upstream: "one",
            items: Vec::new(),
            further: 0,
        };
        let entry = serde_json::json!({"name": "x".repeat(10_000)});
        for _ in 0..1000 {
            rejected.add("tool", &entry, "y".repeat(10_000));
        }
        let mut reports: Vec<String> = rejected
            .into_items()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            reports.pop().as_deref(),
            Some("source one, upstreams.one: 900 further entries of its lists")
        );
        assert_eq!(reports.len(), 100);
        assert!(reports.iter().all(|report| report.len() < 500));
    }
}
