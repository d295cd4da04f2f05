//! Collects the tools of one source, and what is wrong with it.

use std::path::PathBuf;
use std::sync::Arc;

use super::client_stats::ClientStatsHandle;
use super::name::sanitized;
use super::parts::SourceParts;
use crate::catalog::{RejectedItem, SourceItems};

/// Tools built from one configured source, with the source's state.
#[derive(Clone, Debug)]
pub struct BuiltSource {
    pub name: String,
    pub offered: SourceItems,
    pub gauges: Vec<ClientStatsHandle>,
    /// Local files that its document refers to, which were read or could not be.
    pub files: Vec<PathBuf>,
    /// True if a remote part of the source was unreachable and may become available later.
    pub is_awaited: bool,
}

impl BuiltSource {
    /// Falls back to the `known` state if this one is unavailable. A document that is broken while being edited
    /// removes no tools, and neither does an unreachable server.
    pub fn or_stay(self, known: &Self) -> Self {
        let has_nothing = self.offered.tools.is_empty() && !self.offered.refused.is_empty();
        if !has_nothing || known.offered.tools.is_empty() {
            return self;
        }
        tracing::warn!(
            source = self.name,
            "the source cannot be loaded now; its previous tools stay listed"
        );
        let mut stays = known.clone();
        stays.offered.refused = self.offered.refused;
        stays.is_awaited = self.is_awaited;
        // A file that the previous version refers to may be the one that is missing now.
        stays.files.extend(self.files);
        stays.files.sort_unstable();
        stays.files.dedup();
        stays
    }
}

/// Maximum number of reported rejections for each source.
const REFUSED_MAX: usize = 5_000;

/// Builder for the tools of one source.
pub(super) struct SourceBuilder {
    /// Name of the source, or its place if it has none.
    pub(super) source: String,
    place: String,
    prefix: Option<String>,
    /// Prefix made of the name of the source.
    own_prefix: String,
    pub(super) offered: SourceItems,
    gauges: Vec<ClientStatsHandle>,
    pub(super) files: Vec<PathBuf>,
    is_awaited: bool,
    pub(super) parts: SourceParts,
}

impl SourceBuilder {
    /// `name` is empty if the source has none.
    pub(super) fn new(name: &str, place: &str, prefix: Option<&str>) -> Self {
        let (source, own_prefix) = match name {
            "" => (place, String::new()),
            name => (name, format!("{}__", sanitized(name))),
        };
        Self {
            source: source.to_owned(),
            place: place.to_owned(),
            prefix: prefix.map(str::to_owned),
            own_prefix,
            offered: SourceItems::default(),
            gauges: Vec::new(),
            files: Vec::new(),
            is_awaited: false,
            parts: SourceParts::default(),
        }
    }

    /// Returns what was built.
    pub(super) fn finish(self) -> BuiltSource {
        BuiltSource {
            name: self.source,
            offered: self.offered,
            gauges: self.gauges,
            files: self.files,
            is_awaited: self.is_awaited,
        }
    }

    /// Returns the prefix for the names of tools that the configuration names: none, unless it is set.
    pub(super) fn prefix(&self) -> String {
        self.prefix.clone().unwrap_or_default()
    }

    /// Returns the prefix for the names of tools that a document or a component names: the name of the source, unless
    /// it is set.
    pub(super) fn prefix_of_document(&self) -> String {
        self.prefix.as_ref().unwrap_or(&self.own_prefix).clone()
    }

    pub(super) fn offer(&mut self, tool: impl crate::catalog::Tool) {
        self.offered.tools.push(Arc::new(tool));
    }

    /// Registers statistics to export.
    pub(super) fn count(&mut self, gauge: ClientStatsHandle) {
        self.gauges.push(gauge);
    }

    /// Rejects the item at a setting below the source.
    pub(super) fn refuse(&mut self, setting: &str, problem: impl Into<String>) {
        let place = match setting {
            "" => self.place.clone(),
            setting => format!("{}.{setting}", self.place),
        };
        self.refuse_at(place, problem);
    }

    /// Rejects the item at a setting for now; it is retried later.
    pub(super) fn wait_for(&mut self, setting: &str, problem: &str) {
        self.is_awaited = true;
        self.refuse(setting, format!("{problem}; it is asked for again"));
    }

    /// Rejects an item that has no setting of its own. Rejections beyond the maximum are summarized once.
    pub(super) fn refuse_at(&mut self, place: impl Into<String>, problem: impl Into<String>) {
        let (place, problem) = match self.offered.refused.len() {
            count if count < REFUSED_MAX => (place.into(), problem.into()),
            REFUSED_MAX => (
                self.place.clone(),
                "more tools are rejected than listed here".to_owned(),
            ),
            _ => return,
        };
        let refused = RejectedItem::new(&self.source, place, problem);
        self.offered.refused.push(refused);
    }
}
