//! Stand-in for builds without the feature `sources`.
//!
//! Their settings are ignored but for their presence, so that the error at start can name the feature. The types that `app`
//! holds are uninhabited, so that `app` needs no `cfg`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, IgnoredAny};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::catalog::{Announcer, AnyResource, Catalog, SourceItems};

/// A section of the configuration that this build ignores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredSection {
    is_set: bool,
}

impl IgnoredSection {
    /// Returns true if the configuration has it.
    pub(crate) fn is_set(self) -> bool {
        self.is_set
    }
}

impl<'de> Deserialize<'de> for IgnoredSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self { is_set: true })
    }
}

impl Serialize for IgnoredSection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_map(Some(0))?.end()
    }
}

impl JsonSchema for IgnoredSection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IgnoredSection".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// `artifacts`.
pub type ArtifactConfig = IgnoredSection;
/// `builtin`.
pub type BuiltinConfig = IgnoredSection;
/// `tokens`.
pub type TokensConfig = IgnoredSection;
/// One of `upstreams`.
pub type UpstreamConfig = IgnoredSection;
/// `upstreams_names`.
pub type UpstreamNames = IgnoredSection;
/// One of `sources`.
pub type SourceConfig = IgnoredSection;

impl IgnoredSection {
    pub fn file(&self) -> Option<PathBuf> {
        None
    }

    pub(crate) fn is_a_document(&self) -> bool {
        false
    }

    pub(crate) fn is_a_remote_document(&self) -> bool {
        false
    }
}

/// Uninhabited: this build stores no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {}

/// Uninhabited: this build has no upstream servers.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {}

/// A toolset cannot be offered. Never constructed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsetError {
    /// This build has no toolsets.
    #[error("{setting} {problem}")]
    Setting {
        /// The setting: `toolsets`.
        setting: String,
        /// The problem, and what to do.
        problem: String,
    },
}

/// Uninhabited: this build keeps no large results.
#[derive(Debug)]
pub(crate) enum Artifacts {}

impl Artifacts {
    pub fn around(self: &Arc<Self>, _: SourceItems) -> SourceItems {
        match **self {}
    }

    pub fn template(&self) -> &'static str {
        match *self {}
    }

    pub fn resource(self: &Arc<Self>) -> AnyResource {
        match **self {}
    }
}

/// Uninhabited: this build has no sources to measure.
#[derive(Clone, Debug)]
pub(crate) enum ClientStatsHandle {}

/// The items of a source. Never constructed.
#[derive(Clone, Debug)]
pub(crate) struct BuiltSource {
    pub name: String,
    pub offered: SourceItems,
    pub(crate) gauges: Vec<ClientStatsHandle>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) is_awaited: bool,
}

impl BuiltSource {
    pub(crate) fn or_stay(self, _: &Self) -> Self {
        self
    }
}

/// Uninhabited: this build has no upstream servers.
#[derive(Debug)]
pub(crate) enum Upstreams {}

impl Upstreams {
    pub(crate) async fn discover(&self) -> Result<(), UpstreamError> {
        match *self {}
    }

    pub(crate) fn are_awaited(&self) -> bool {
        match *self {}
    }

    pub(crate) fn are_known(&self) -> bool {
        match *self {}
    }

    pub(crate) fn may_come(&self) -> bool {
        match *self {}
    }

    pub fn offer(&self, _: &Catalog) -> Result<SourceItems, UpstreamError> {
        match *self {}
    }

    pub(crate) fn maintain(&self, _: impl Fn() + Send + Sync + 'static) {
        match *self {}
    }

    pub(crate) fn relay_changes(&self, _: Announcer, _: Arc<Notify>) {
        match *self {}
    }

    pub async fn stop(&self, _: Duration) {
        match *self {}
    }
}
