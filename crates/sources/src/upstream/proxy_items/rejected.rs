//! Entries of an upstream's lists that cannot be offered.

use serde_json::Value;

use super::super::connection::Upstream;
use crate::catalog::RejectedItem;

/// The entries of an upstream's lists that cannot be offered.
pub(super) struct RejectedEntries<'u> {
    pub(super) upstream: &'u str,
    pub(super) items: Vec<RejectedItem>,
}

impl<'u> RejectedEntries<'u> {
    pub(super) fn new(upstream: &'u Upstream) -> Self {
        Self {
            upstream: &upstream.name,
            items: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, kind: &str, entry: &Value, problem: impl Into<String>) {
        let name = entry["name"]
            .as_str()
            .or(entry["uri"].as_str())
            .unwrap_or("without a name");
        let place = format!("upstreams.{}, {kind} {name:?}", self.upstream);
        let item = RejectedItem::new(self.upstream, place, problem.into());
        self.items.push(item);
    }
}
