//! Telemetry setup from settings: metrics, traces, and the export of both.

use std::time::Duration;

use super::config::{MetricsPolicy, TelemetryConfig};
use super::metrics::Metrics;
use super::request_scope::Telemetry;
use super::trace::Propagation;
use crate::environment::Probe;
use crate::net::Background;

/// Running exporters, if any are configured.
#[derive(Debug, Default)]
pub struct Export {
    #[cfg(feature = "otlp")]
    exporter: Option<super::otlp::Exporter>,
}

impl Telemetry {
    /// Creates telemetry without export. `is_read`: true if metrics can be scraped.
    pub fn of(config: &TelemetryConfig, is_read: bool) -> Self {
        let counting = match config.metrics {
            MetricsPolicy::On => true,
            MetricsPolicy::Off => false,
            MetricsPolicy::Auto => is_read,
        };
        Self::new(Metrics::default(), counting)
    }

    /// Creates telemetry and starts the exporters that settings and environment ask for. `service` is a name and a
    /// version.
    #[cfg(feature = "otlp")]
    pub fn start(
        config: &TelemetryConfig,
        is_read: bool,
        probe: &Probe,
        service: (&str, &str),
        background: &Background,
    ) -> (Self, Export) {
        use super::instruments::EXPORT_DROPPED;
        use super::redact::Redaction;
        use super::settings::ExportSettings;
        use super::trace::{SHOWN_MAX_BYTES, Tracer};
        use arc_swap::ArcSwap;

        let Some(settings) = ExportSettings::read(config, probe, service) else {
            let telemetry = Self::of(config, is_read).propagating(propagation_of(probe));
            return (telemetry, Export::default());
        };
        let sampler = settings.sampler;
        let counted = is_read || settings.metrics.is_some();
        let mut telemetry = Self::of(config, counted).propagating(settings.propagation);
        let metrics = telemetry.metrics.clone();
        let exporter =
            super::otlp::Exporter::start(settings, metrics, config.span_names, background);
        let dropped = |signal| {
            let labels = [("signal", signal)];
            telemetry.metrics.counter(&EXPORT_DROPPED, &labels)
        };
        if let Some(records) = &exporter.records {
            super::records::send_to(records.clone(), dropped("records"));
        }
        let shown = |is_wanted: bool| {
            let redaction = Redaction::new(&[], SHOWN_MAX_BYTES);
            redaction.ok().filter(|_| is_wanted)
        };
        let tracer = exporter.spans.as_ref().map(|spans| Tracer {
            sampler,
            arguments: shown(config.record_arguments),
            results: shown(config.record_results),
            secrets: ArcSwap::default(),
            spans: spans.clone(),
            dropped: dropped("spans"),
        });
        if let Some(tracer) = tracer {
            telemetry = telemetry.traced_by(tracer);
        }
        let exporter = Some(exporter);
        (telemetry, Export { exporter })
    }

    /// Creates telemetry in a build without exporters.
    #[cfg(not(feature = "otlp"))]
    pub fn start(
        config: &TelemetryConfig,
        is_read: bool,
        probe: &Probe,
        _service: (&str, &str),
        _background: &Background,
    ) -> (Self, Export) {
        let variables = ["OTEL_EXPORTER_OTLP_ENDPOINT", "MCP_OTEL_ENDPOINT"];
        if config.endpoint.is_some() || variables.iter().any(|v| probe.variable(v).is_some()) {
            tracing::warn!(
                "traces, metrics and logs are not sent: this program was built without the feature `otlp`"
            );
        }
        let telemetry = Self::of(config, is_read).propagating(propagation_of(probe));
        (telemetry, Export::default())
    }
}

/// Returns the propagation formats of a server without export.
fn propagation_of(probe: &Probe) -> Propagation {
    const NAME: &str = "OTEL_PROPAGATORS";
    Propagation::read(probe.variable(NAME), |word| {
        tracing::warn!("{NAME} is {word:?}, {}", Propagation::UNKNOWN);
    })
}

impl Export {
    /// Flushes pending data, for at most this time.
    pub async fn flush(self, within: Duration) {
        #[cfg(feature = "otlp")]
        if let Some(exporter) = self.exporter {
            super::records::send_nowhere();
            exporter.flush(within).await;
        }
        #[cfg(not(feature = "otlp"))]
        let _ = within;
    }
}

/// Result of a test message to each collector, for configuration checks.
#[cfg(feature = "cli")]
#[derive(Debug, Default)]
pub struct ExportCheck {
    /// Settings without effect.
    pub doubts: Vec<String>,
    /// One result for each exported signal.
    pub reached: Vec<EndpointCheck>,
}

/// Result of a test export to one collector.
#[cfg(feature = "cli")]
#[derive(Debug)]
pub struct EndpointCheck {
    /// `traces`, `metrics` or `logs`.
    pub signal: &'static str,
    /// The collector's URL, without secrets.
    pub endpoint: String,
    /// `Ok` if the collector accepted the data, else the reason.
    pub answer: Result<(), String>,
}

/// Problems of the settings of the export, for configuration checks.
#[cfg(feature = "cli")]
#[derive(Debug, Default)]
pub struct ExportProblems {
    /// Settings without effect.
    pub doubts: Vec<String>,
    /// True if an endpoint is invalid, so that its signal is not exported.
    pub lacks_endpoint: bool,
}

/// Checks the settings of the export without sending anything. A build without exporters exports nothing.
#[cfg(feature = "cli")]
pub fn check_export(
    config: &TelemetryConfig,
    probe: &Probe,
    service: (&str, &str),
) -> ExportProblems {
    #[cfg(feature = "otlp")]
    if let Some(settings) = super::settings::ExportSettings::read(config, probe, service) {
        return ExportProblems {
            doubts: settings.doubts,
            lacks_endpoint: settings.lacks_endpoint,
        };
    }
    #[cfg(not(feature = "otlp"))]
    let _ = (config, probe, service);
    ExportProblems::default()
}

/// Sends a test export to each configured collector. A build without exporters has none.
#[cfg(feature = "cli")]
pub async fn examine_export(
    config: &TelemetryConfig,
    probe: &Probe,
    service: (&str, &str),
) -> ExportCheck {
    #[cfg(feature = "otlp")]
    if let Some(settings) = super::settings::ExportSettings::read(config, probe, service) {
        return super::otlp::examine(settings).await;
    }
    #[cfg(not(feature = "otlp"))]
    let _ = (config, probe, service);
    ExportCheck::default()
}
