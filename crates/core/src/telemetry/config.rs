//! What can be set about telemetry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;

/// What operators get to see.
///
/// The standard variables of OpenTelemetry (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER` and so on) are
/// understood, and outdo what is set here.
///
/// ```toml
/// [telemetry]
/// endpoint = "http://collector:4318"
/// sample = 0.01
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// When requests are counted. Default: `auto`.
    pub metrics: MetricsPolicy,
    /// Where traces, metrics and logs are sent by the OpenTelemetry protocol, such as `http://collector:4318`. The paths
    /// of the signals are added to it. Default: what `OTEL_EXPORTER_OTLP_ENDPOINT` or `MCP_OTEL_ENDPOINT` says, else
    /// nothing is sent.
    pub endpoint: Option<String>,
    /// In which form. Default: `http`.
    pub protocol: ExportProtocol,
    /// Which share of the traces that begin here is recorded, from 0 to 1; traces that a caller has begun are recorded
    /// if the caller records them. Default: 1, all of them.
    pub sample: Option<f64>,
    /// What spans of tool calls are called. Default: `convention`.
    pub span_names: SpanNames,
    /// Whether spans tell the arguments of tool calls, up to 4 KiB. What is named like a
    /// secret, marked as one by the tool's schema, or has the form of a credential is left out; personal data are not.
    /// Default: false.
    pub record_arguments: bool,
    /// The same of their results, structured ones and what is JSON within a text. Of other texts nothing is left out unless
    /// it is a credential as a whole. Default: false.
    pub record_results: bool,
}

impl TelemetryConfig {
    /// Reports the settings that cannot be used.
    pub fn validate(&self, conflicts: &mut Conflicts) {
        if let Some(share) = self.sample
            && !(0.0..=1.0).contains(&share)
        {
            conflicts.add(
                format!("telemetry.sample is {share}"),
                "give it a share from 0 to 1: 0.1 for every tenth trace",
            );
        }
    }
}

/// When requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MetricsPolicy {
    /// If somebody can read what was counted: there is a port for operators, callers prove who they are, or metrics
    /// are exported.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never. Counters outside of requests go on, and `/metrics` shows them.
    Off,
}

/// In which form traces, metrics and logs are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ExportProtocol {
    /// Protocol buffers over HTTP, mostly at port 4318.
    #[default]
    Http,
    /// gRPC, mostly at port 4317.
    Grpc,
}

/// What spans of tool calls are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SpanNames {
    /// As the conventions of OpenTelemetry have it: `tools/call add`.
    #[default]
    Convention,
    /// `tool.add`, as dashboards of other servers may want it.
    Tool,
}
