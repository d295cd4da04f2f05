//! Stand-in for builds without the feature `sources`.
//!
//! Their settings are ignored but for their presence, so that the error at start can name the feature. The types that `app`
//! holds are uninhabited, so that `app` needs no `cfg`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, IgnoredAny};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::catalog::{Announcer, AnyResource, Catalog, Prompt, Skill, SourceItems, Tool};
use crate::environment::Probe;
use crate::net::{Background, MemoryBudget};
use crate::seal::KeyRing;
use crate::state::SharedState;
use crate::telemetry::Metrics;

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

    pub(crate) fn unused(self, _: &[String]) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::empty()
    }
}

/// Uninhabited: this build stores no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {}

/// Upstream servers are configured, which this build cannot have.
#[derive(Debug, thiserror::Error)]
#[error(
    "upstreams requires the feature `sources`, which this build does not have; enable the feature, or remove the setting"
)]
pub struct UpstreamError;

/// A toolset cannot be offered.
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

/// An error of the artifact store. Never constructed.
#[derive(Debug)]
pub(crate) struct ArtifactError {
    pub setting: String,
    pub problem: String,
}

/// A store of large results. Never implemented.
pub trait ArtifactStore: Send + Sync {}

/// Uninhabited: this build keeps no large results.
#[derive(Debug)]
pub(crate) enum Artifacts {}

impl Artifacts {
    pub fn new(
        _: &ArtifactConfig,
        _: Option<Arc<dyn ArtifactStore>>,
        _: Arc<KeyRing>,
        _: &Probe,
        _: u64,
    ) -> Result<Option<Self>, ArtifactError> {
        Ok(None)
    }

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

/// An empty token store.
#[derive(Clone, Debug, Default)]
pub struct Tokens;

/// See [`crate::source::SourceParts`].
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceParts {
    pub(crate) tokens: Tokens,
    pub(crate) signer: Option<AssertionSigner>,
    pub(crate) accounts: Accounts,
    pub(crate) metrics: Metrics,
    pub(crate) memory_bytes: u64,
    pub(crate) memory: MemoryBudget,
    pub(crate) reuse: Reuse,
}

/// See [`crate::source::Reuse`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Reuse;

/// See [`crate::source::RecognizedUsers`]. Unused.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecognizedUsers {
    pub(crate) issuer: Option<String>,
    pub(crate) keys: bool,
    pub(crate) everybody: bool,
}

/// See [`crate::source::Accounts`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts;

impl Accounts {
    pub(crate) fn new(_: &Arc<KeyRing>, _: String, _: RecognizedUsers) -> Self {
        Self
    }
}

/// See [`crate::source::AssertionSigner`].
#[derive(Clone, Debug)]
pub(crate) enum AssertionSigner {}

impl AssertionSigner {
    pub(crate) fn new(_: &KeyRing, _: Option<String>) -> Option<Self> {
        None
    }
}

impl Tokens {
    pub fn new(_: &TokensConfig, _: &Probe) -> Result<Self, TokensError> {
        Ok(Self)
    }

    pub(crate) fn are_in(&self, _: SharedState, _: bool, _: bool) -> Result<(), TokensError> {
        Ok(())
    }
}

/// Uninhabited: this build has no sources to measure.
#[derive(Clone, Debug)]
pub(crate) enum ClientStatsHandle {}

/// The tools of a source. Never constructed.
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

pub(crate) async fn offered_at(
    _: &[SourceConfig],
    _: &[usize],
    _: &SourceParts,
) -> std::io::Result<Vec<BuiltSource>> {
    Ok(Vec::new())
}

/// The inputs of a toolset.
#[derive(Clone, Copy)]
pub(crate) struct ToolsetContext<'a> {
    pub(crate) announcer: &'a Announcer,
    pub(crate) settings: &'a BuiltinConfig,
    pub(crate) metrics: &'a Metrics,
    pub(crate) background: &'a Background,
}

/// The contents of a toolset. Never constructed.
pub struct Toolset {
    pub tools: Vec<Arc<dyn Tool>>,
    pub resources: Vec<AnyResource>,
    pub prompts: Vec<Arc<dyn Prompt>>,
    pub(crate) skills: Vec<Skill>,
}

pub(crate) fn builtin(name: &str, _: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    Err(ToolsetError::Setting {
        setting: "toolsets".to_owned(),
        problem: format!(
            "has {name}, which requires the feature `sources`; enable the feature, or remove the toolset"
        ),
    })
}

/// Separator between an upstream server's name and a tool's.
pub(crate) const SEPARATOR: &str = "__";
/// Timeout of a call, in seconds.
pub(crate) const TIMEOUT_SECONDS: u64 = 120;

/// Naming rules of upstream servers. Unused.
#[derive(Debug)]
pub(crate) struct Naming {
    pub names: UpstreamNames,
    pub(crate) separator: String,
}

/// Settings of all upstream servers. Unused.
#[derive(Debug)]
pub(crate) struct UpstreamRules {
    pub folder: Option<PathBuf>,
    pub patience: Duration,
    pub timeout_seconds: u64,
    pub(crate) reaping: Duration,
    pub(crate) naming: Naming,
    pub(crate) parts: SourceParts,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) background: Background,
}

/// Uninhabited: this build has no upstream servers.
#[derive(Debug)]
pub(crate) enum Upstreams {}

impl Upstreams {
    pub fn new(
        _: &BTreeMap<String, UpstreamConfig>,
        _: UpstreamRules,
    ) -> Result<Self, UpstreamError> {
        Err(UpstreamError)
    }

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

    pub(crate) fn known_of_all(&self) -> (Vec<String>, usize) {
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
