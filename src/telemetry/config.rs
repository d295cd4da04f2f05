//! What can be set about telemetry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What operators get to see.
///
/// ```toml
/// [telemetry]
/// metrics = "on"
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// When requests are counted. Default: `auto`.
    pub metrics: MetricsPolicy,
}

/// When requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MetricsPolicy {
    /// If somebody can read what was counted: there is a port for operators, callers prove who they are, or there is an
    /// exporter of metrics.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never. Counters outside of requests go on, and `/metrics` shows them.
    Off,
}
