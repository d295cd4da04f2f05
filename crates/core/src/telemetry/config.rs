//! Telemetry settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Conflicts;

/// Traces, metrics and logs.
///
/// The standard OpenTelemetry variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_TRACES_SAMPLER`, override
/// these settings.
///
/// ```toml
/// [telemetry]
/// endpoint = "http://collector:4318"
/// sample = 0.01
/// ```
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// When to count requests.
    pub metrics: MetricsPolicy,
    /// URL of an OpenTelemetry collector for traces, metrics and logs, such as `http://collector:4318`. Each
    /// signal's path is appended. If unset: `OTEL_EXPORTER_OTLP_ENDPOINT` or `MCP_OTEL_ENDPOINT` applies; without
    /// any, nothing is exported.
    pub endpoint: Option<String>,
    /// OTLP transport.
    pub protocol: ExportProtocol,
    /// Share of new traces to record, from 0 to 1; unset records all. Traces begun by a caller follow the caller's
    /// sampling decision.
    pub sample: Option<f64>,
    /// Names of tool call spans.
    pub span_names: SpanNames,
    /// Record the arguments of tool calls in spans, up to 4 KiB. Values named like a secret, marked as secret by the
    /// tool's schema, or formatted like a credential are redacted; personal data is not.
    pub record_arguments: bool,
    /// Record the results of tool calls in spans, up to 4 KiB. Structured results and JSON in text are redacted like
    /// arguments; other text is redacted only if all of it is a credential.
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
                "use a fraction from 0 to 1: 0.1 for one trace in ten",
            );
        }
    }
}

/// When requests are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MetricsPolicy {
    /// If metrics can be read: there is an admin port, authentication is configured, or metrics are exported.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never. Other counters still work, and `/metrics` shows them.
    Off,
}

/// OTLP transport for traces, metrics and logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ExportProtocol {
    /// Protocol buffers over HTTP, usually on port 4318.
    #[default]
    Http,
    /// gRPC, usually on port 4317.
    Grpc,
}

/// Names of tool call spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SpanNames {
    /// The OpenTelemetry convention: `tools/call add`.
    #[default]
    Convention,
    /// `tool.add`, for dashboards that group by this name.
    Tool,
}
